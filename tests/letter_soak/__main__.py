"""``python -m tests.letter_soak``: one run, and an exit code that says whether every letter was sent back once."""

from __future__ import annotations

import sys

from tests.soaks import Plan, soak

from .run import run

if __name__ == "__main__":
    # Each message dies twice, about.
    sys.exit(soak(__doc__, Plan(6000, 2, pace=0.5), "redrive in two steps", run))
