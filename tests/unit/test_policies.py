"""The policies: what each may be, and what they resolve to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import pytest

from dramatiq_distcron.errors import ConfigurationError
from dramatiq_distcron.policies import CatchUp, Policy, PolicyOptions, checked_policy


def test_by_default_the_latest_is_caught_up_without_a_limit() -> None:
    assert Policy() == Policy(catch_up="latest", misfire_grace_time=None, max_catch_up=100)


def test_only_what_was_given_is_checked_and_returned() -> None:
    assert checked_policy({}) == {}
    assert checked_policy({"catch_up": "all"}) == {"catch_up": "all"}


def test_durations_come_out_in_milliseconds() -> None:
    assert checked_policy({"misfire_grace_time": 1.5}) == {"misfire_grace_time": 1500}
    assert checked_policy({"misfire_grace_time": timedelta(minutes=1)}) == {"misfire_grace_time": 60_000}


def test_no_grace_time_means_no_limit_and_zero_is_zero() -> None:
    assert checked_policy({"misfire_grace_time": None}) == {"misfire_grace_time": None}
    assert checked_policy({"misfire_grace_time": 0}) == {"misfire_grace_time": 0}


@pytest.mark.parametrize("value", get_args(CatchUp))
def test_every_way_to_catch_up_is_accepted(value: str) -> None:
    assert checked_policy({"catch_up": value}) == {"catch_up": value}


@pytest.mark.parametrize(("value", "hint"), [("lastest", "'latest'"), ("every", "Known: all, latest, skip")])
def test_another_way_to_catch_up_is_refused_with_a_hint(value: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"catch_up cannot be {value!r}.*{hint}"):
        checked_policy({"catch_up": value})


@pytest.mark.parametrize("value", [None, 1, True, [], {}, ["all"]])
def test_a_way_to_catch_up_that_is_no_word_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="catch_up cannot be"):
        checked_policy({"catch_up": value})


@pytest.mark.parametrize("value", [0, -1, 10_001, 1.5, "5", None, True])
def test_a_cap_must_be_a_whole_number_in_its_bounds(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_catch_up must be a whole number from 1 to 10000"):
        checked_policy({"max_catch_up": value})


@pytest.mark.parametrize("value", [1, 10_000])
def test_the_bounds_of_a_cap_are_in(value: int) -> None:
    assert checked_policy({"max_catch_up": value}) == {"max_catch_up": value}


@pytest.mark.parametrize("value", [-1, "1", True])
def test_a_grace_time_must_be_a_duration(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="misfire_grace_time must be"):
        checked_policy({"misfire_grace_time": value})


def test_a_schedules_own_options_go_over_the_defaults() -> None:
    default = Policy(catch_up="all", misfire_grace_time=5, max_catch_up=7)
    assert default.overridden({}) == default
    own = default.overridden({"catch_up": "skip", "misfire_grace_time": None})
    assert own == Policy(catch_up="skip", misfire_grace_time=None, max_catch_up=7)


def test_every_option_is_a_field_of_the_policy_and_has_a_check() -> None:
    assert set(PolicyOptions.__annotations__) == set(Policy.__dataclass_fields__)
    defaults = {name: getattr(Policy(), name) for name in PolicyOptions.__annotations__}
    assert checked_policy(defaults) == defaults
