"""The product's own code, in every order that is possible within a bound, and with every fault."""

from __future__ import annotations

import os
from typing import Any

import pytest

from .coming import COMING
from .dying import DYING
from .editing import EDITS
from .going import GOING
from .scenario import Scenario
from .scenarios import BACKLOG, BURST, CLOCK, DEPLOY, HAND_OVER, LEASE
from .working import BUFFER, CLAIM, OUTBOX, OVERLAP, RETRY, TICKET, WAITING

SCENARIOS = [
    LEASE,
    HAND_OVER,
    BACKLOG,
    BURST,
    CLOCK,
    DEPLOY,
    *EDITS,
    OVERLAP,
    BUFFER,
    RETRY,
    WAITING,
    OUTBOX,
    CLAIM,
    TICKET,
    *DYING,
    *COMING,
    *GOING,
]
#: So many more preemptions than usual: hours for one.
FURTHER = int(os.environ.get("DISTCRON_SEARCH_FURTHER", "0"))
SEARCHES = [one.within(faults, switches + FURTHER) for one in SCENARIOS for faults, switches in one.bounds]


@pytest.mark.timeout(0 if FURTHER else 600)
@pytest.mark.parametrize("scenario", SEARCHES, ids=lambda one: f"{one.name}, {one.bound}".replace(" ", "-"))
def test_no_law_is_broken_in_any_order_of_steps_and_faults(scenario: Scenario, tell: Any) -> None:
    report = scenario.explore()

    tell(f"{scenario.name}, {scenario.bound}: {report}")
    assert report.ends > 0
