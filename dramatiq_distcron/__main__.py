"""``python -m dramatiq_distcron``."""

import sys

from dramatiq_distcron.cli import main

sys.exit(main())
