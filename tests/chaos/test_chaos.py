"""A run of chaos with no violation, and planted bugs that are found.

``DISTCRON_CHAOS_SECONDS`` is how long things go wrong (60), ``DISTCRON_CHAOS_SEED`` the seed of a run to be repeated.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.cluster import Settings
from tests.chaos.faults import KINDS
from tests.chaos.report import as_json, lines
from tests.chaos.run import Outcome, run

SECONDS = float(os.environ.get("DISTCRON_CHAOS_SECONDS") or 60)
SEED = int(os.environ.get("DISTCRON_CHAOS_SEED") or random.SystemRandom().randrange(10**6))


def chaos(settings: Settings) -> Outcome:
    """A run with its report on standard output, which pytest shows if something is wrong."""
    print(f"seed {settings.seed}")
    outcome = run(settings, print)
    print("\n".join(lines(outcome)))
    return outcome


@pytest.mark.timeout(SECONDS + 600)
def test_no_tick_is_doubled_or_lost_whatever_goes_wrong(server_binary: Path | None) -> None:
    outcome = chaos(
        Settings(seconds=SECONDS, seed=SEED, faults=tuple(KINDS), binary=server_binary, hooked=SEED % 2 == 1)
    )
    figures = as_json(outcome)
    assert outcome.violations == []
    # Something went wrong, and leaders fell; else nothing is shown.
    assert len(figures["faults"]) > 5
    assert figures["terms"] > 1
    assert figures["runs_ended"]["succeeded"] > 1000


#: Each bug, the moment it needs to show, and as what.
BUGS = [
    ("lease-then-send", "stop-at-commit", "duplicate"),
    ("lease-then-send", "swallow-commit", "duplicate"),
    ("claim-then-send", "kill-at-commit", "lost"),
    ("no-comparison", "hold-commit", "duplicate"),
]


#: A fault must strike at the right moment: if it did not with one seed, it does with another.
SEEDS = (5, 6, 7, 8)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("bug", "fault", "kind"), BUGS)
def test_a_planted_bug_is_found(server_binary: Path | None, bug: str, fault: str, kind: str) -> None:
    settings = Settings(
        seconds=20, seed=0, schedules=200, faults=(fault,), pace=2.0, patience=15, binary=server_binary, planted=bug
    )
    runs = (chaos(replace(settings, seed=seed)) for seed in SEEDS)
    assert any(kind in {violation.kind for violation in run.violations} for run in runs)
