"""The policies: what each may be, and what they resolve to."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramatiq_distcron.durations import LAST_INSTANT
from dramatiq_distcron.errors import ConfigurationError
from dramatiq_distcron.policies import CatchUp, Overlap, Policy, PolicyOptions, checked_policy

BERLIN_NOON = datetime(2026, 6, 1, 12, tzinfo=timezone(timedelta(hours=2)))
BERLIN_NOON_MS = 1_780_308_000_000


def test_by_default_the_latest_is_caught_up_without_a_limit() -> None:
    assert Policy() == Policy(catch_up="latest", misfire_grace_time=None, max_catch_up=100)


def test_only_what_was_given_is_checked_and_returned() -> None:
    assert checked_policy({}) == {}
    assert checked_policy({"catch_up": "all"}) == {"catch_up": "all"}


def test_durations_come_out_in_milliseconds() -> None:
    assert checked_policy({"misfire_grace_time": 1.5}) == {"misfire_grace_time": 1500}
    assert checked_policy({"misfire_grace_time": timedelta(minutes=1)}) == {"misfire_grace_time": 60_000}


def test_no_grace_time_means_no_limit_and_the_shortest_is_a_tenth_of_a_second() -> None:
    assert checked_policy({"misfire_grace_time": None}) == {"misfire_grace_time": None}
    assert checked_policy({"misfire_grace_time": 0.1}) == {"misfire_grace_time": 100}


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


@pytest.mark.parametrize("value", [0, 0.099, timedelta(0)])
def test_a_grace_that_every_tick_would_outlast_is_refused_with_what_is_meant(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"misfire_grace_time must be at least 0.1 s.*catch_up='skip'"):
        checked_policy({"misfire_grace_time": value})


def test_a_grace_that_was_stored_by_an_older_version_is_taken_as_it_is() -> None:
    assert Policy.from_json({"misfire_grace_time": 0}).misfire_grace_time == 0


def test_a_schedules_own_options_go_over_the_defaults() -> None:
    default = Policy(catch_up="all", misfire_grace_time=5, max_catch_up=7)
    assert default.overridden({}) == default
    own = default.overridden({"catch_up": "skip", "misfire_grace_time": None})
    assert own == Policy(catch_up="skip", misfire_grace_time=None, max_catch_up=7)


def test_every_option_is_a_field_of_the_policy_and_has_a_check() -> None:
    assert set(PolicyOptions.__annotations__) == set(Policy.__dataclass_fields__)
    defaults = {name: getattr(Policy(), name) for name in PolicyOptions.__annotations__}
    assert checked_policy(defaults) == defaults


# -- overlap, spread, expires, start, end, enabled, max_queue_length, run_at_start --------------------------


@pytest.mark.parametrize("value", get_args(Overlap))
def test_every_way_to_overlap_is_accepted(value: str) -> None:
    assert checked_policy({"overlap": value}) == {"overlap": value}


@pytest.mark.parametrize(("value", "hint"), [("skpi", "'skip'"), ("wait", "Known: allow, buffer_one, skip")])
def test_another_way_to_overlap_is_refused_with_a_hint(value: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"overlap cannot be {value!r}.*{hint}"):
        checked_policy({"overlap": value})


DURATIONS = {"overlap_timeout": 1000, "spread": 1, "expires": 1, "misfire_grace_time": 100}


@pytest.mark.parametrize("name", DURATIONS)
def test_a_duration_is_in_milliseconds_or_not_set(name: str) -> None:
    assert checked_policy({name: 90}) == {name: 90_000}
    assert checked_policy({name: timedelta(minutes=2)}) == {name: 120_000}
    assert checked_policy({name: None}) == {name: None}


@pytest.mark.parametrize(("name", "least"), DURATIONS.items())
def test_a_duration_has_a_shortest_that_is_of_use(name: str, least: int) -> None:
    assert checked_policy({name: timedelta(milliseconds=least)}) == {name: least}
    with pytest.raises(ConfigurationError, match=f"{name} must be at least"):
        checked_policy({name: timedelta(milliseconds=least - 1)})


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize("value", ["1", True, float("nan"), float("inf"), [], timedelta(days=40_000)])
def test_a_duration_that_is_none_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be"):
        checked_policy({name: value})


@pytest.mark.parametrize("name", ["start", "end"])
def test_a_bound_is_an_instant_whatever_its_zone(name: str) -> None:
    assert checked_policy({name: BERLIN_NOON}) == {name: BERLIN_NOON_MS}
    assert checked_policy({name: BERLIN_NOON.astimezone(timezone.utc)}) == {name: BERLIN_NOON_MS}
    assert checked_policy({name: None}) == {name: None}


@pytest.mark.parametrize("name", ["start", "end"])
@pytest.mark.parametrize("value", [datetime(2026, 6, 1, 12), 1_780_308_000_000, "2026-06-01", timedelta(1)])
def test_a_bound_that_names_no_instant_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} (must be a datetime with a time zone|has no time zone)"):
        checked_policy({name: value})


def test_an_end_before_its_start_is_refused_also_if_one_of_them_is_the_apps_default() -> None:
    for default, own in (({}, {"start": 2, "end": 1}), ({"start": 2}, {"end": 1}), ({"end": 1}, {"start": 2})):
        with pytest.raises(ConfigurationError, match="whose end is before its start never fires"):
            Policy().overridden(default).overridden(own)


def test_an_end_at_its_start_leaves_one_instant() -> None:
    assert Policy().overridden({"start": 5, "end": 5}) == Policy(start=5, end=5)


@pytest.mark.parametrize("name", ["enabled", "run_at_start"])
@pytest.mark.parametrize("value", [1, 0, None, "yes"])
def test_a_switch_is_true_or_false(name: str, value: Any) -> None:
    assert checked_policy({name: True}) == {name: True}
    with pytest.raises(ConfigurationError, match=f"{name} must be True or False"):
        checked_policy({name: value})


@pytest.mark.parametrize("value", [0, -1, 1.5, "5", True, 10**9 + 1])
def test_the_length_of_a_queue_must_be_a_whole_number_from_one(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_queue_length must be a whole number from 1"):
        checked_policy({"max_queue_length": value})


@pytest.mark.parametrize("value", [1, 10**9, None])
def test_the_length_of_a_queue_may_be_limited_or_not(value: Any) -> None:
    assert checked_policy({"max_queue_length": value}) == {"max_queue_length": value}


# -- as they are stored -------------------------------------------------------------------------------------

some_ms = st.none() | st.integers(1000, 10**10)
some_instant = st.none() | st.integers(-LAST_INSTANT, LAST_INSTANT)
policies = st.builds(
    Policy,
    catch_up=st.sampled_from(get_args(CatchUp)),
    misfire_grace_time=some_ms,
    max_catch_up=st.integers(1, 10_000),
    overlap=st.sampled_from(get_args(Overlap)),
    overlap_timeout=some_ms,
    spread=some_ms,
    expires=some_ms,
    start=some_instant,
    end=some_instant,
    enabled=st.booleans(),
    max_queue_length=st.none() | st.integers(1, 10**9),
    run_at_start=st.booleans(),
)


@given(policies)
def test_a_policy_comes_back_as_it_was_stored(policy: Policy) -> None:
    assert Policy.from_json(asdict(policy)) == policy


@pytest.mark.parametrize("name", ["misfire_grace_time", "overlap_timeout", "spread", "expires", "start", "end"])
@pytest.mark.parametrize("value", ["x", 1.5, True, LAST_INSTANT + 1, -LAST_INSTANT - 1, []])
def test_a_time_that_is_stored_as_something_else_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is stored as .*, which is no time in ms"):
        Policy.from_json({name: value})
