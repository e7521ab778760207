"""The product's own code, in every order that is possible within a bound, and with every fault."""

from __future__ import annotations

from typing import Any

import pytest

from .editing import EDITS
from .scenario import Scenario
from .scenarios import BACKLOG, BURST, CLOCK, DEPLOY, HAND_OVER, LEASE
from .working import BUFFER, OUTBOX, OVERLAP, RETRY, TICKET

SCENARIOS = [LEASE, HAND_OVER, BACKLOG, BURST, CLOCK, DEPLOY, *EDITS, OVERLAP, BUFFER, RETRY, OUTBOX, TICKET]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name.replace(" ", "-"))
def test_no_law_is_broken_in_any_order_of_steps_and_faults(scenario: Scenario, tell: Any) -> None:
    report = scenario.explore()

    tell(f"{scenario.name}: {scenario.bound}: {report}")
    assert report.ends > 0
