"""``python -m tests.retry_soak``: one run, and an exit code that says whether every message ended once."""

from __future__ import annotations

import sys

from tests.soaks import Plan, soak

from .run import run

if __name__ == "__main__":
    sys.exit(soak(__doc__, Plan(20_000, 3, pace=0.7), "with Dramatiq's own retries", run))
