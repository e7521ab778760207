"""The search finds what it is meant to find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from .explorer import Found
from .planted import PLANTED, NoLease, Planted
from .planted_deaths import PLANTED_DEATHS
from .planted_letters import PLANTED_LETTERS
from .scenario import Scenario
from .scenarios import BURST

ALL = [*PLANTED, *PLANTED_DEATHS, *PLANTED_LETTERS]


@pytest.mark.parametrize("planted", ALL, ids=lambda planted: planted.name.replace(" ", "-"))
def test_a_planted_bug_is_found(planted: Planted, tell: Any) -> None:
    scenario = planted.planted

    with pytest.raises(Found) as found:
        scenario.explore()

    example = scenario.shortest(found.value)
    tell(f"planted: {planted.name}\n  {scenario.name}, {scenario.bound}: {example}")
    assert planted.law in example.law


@pytest.mark.parametrize("scenario", [BURST], ids=lambda scenario: scenario.name.replace(" ", "-"))
def test_a_commit_that_does_not_ask_for_the_lease_still_sends_one_message_a_tick(scenario: Scenario) -> None:
    report = replace(scenario, name=f"{scenario.name}, no lease", store=NoLease).explore()

    assert report.ends > 0
