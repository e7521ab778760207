"""When a spec fires: start and end, and the spread of its ticks, which every host computes alike."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramatiq_distcron import cron
from dramatiq_distcron.policies import Policy
from dramatiq_distcron.schedules import EveryTiming, Timing
from dramatiq_distcron.specs import Spec
from dramatiq_distcron.store.base import NEVER
from tests.unit.decisions import SECOND, START, CountingTiming, FixedTiming, nth, spec_of

HOUR = 3_600_000
NOW = 1_800_000_000_000


def times_of(spec: Spec, after: int, count: int) -> list[int]:
    """The next ``count`` fire times, or as many as there are."""
    found: list[int] = []
    while len(found) < count and (time := spec.next_ms(found[-1] if found else after)) is not None:
        found.append(time)
    return found


# -- start and end ------------------------------------------------------------------------------------------


def test_a_fire_time_at_the_start_or_the_end_is_in() -> None:
    spec = spec_of(EveryTiming(SECOND), start=nth(3), end=nth(5))
    assert times_of(spec, START - SECOND, 9) == [nth(3), nth(4), nth(5)]


def test_a_fire_time_a_millisecond_before_the_start_or_after_the_end_is_out() -> None:
    spec = spec_of(EveryTiming(SECOND), start=nth(3) + 1, end=nth(5) - 1)
    assert times_of(spec, START - SECOND, 9) == [nth(4)]


def test_from_after_the_start_on_the_start_does_not_matter() -> None:
    spec = spec_of(EveryTiming(SECOND), start=nth(3))
    assert spec.next_ms(nth(7)) == nth(8)


def test_between_bounds_without_a_fire_time_there_is_none() -> None:
    assert spec_of(EveryTiming(SECOND), start=nth(3) + 1, end=nth(4) - 1).next_ms(START) is None


def test_a_start_and_end_at_one_fire_time_leave_that_one() -> None:
    assert times_of(spec_of(EveryTiming(SECOND), start=nth(3), end=nth(3)), START, 9) == [nth(3)]


bounds = st.none() | st.integers(START - 10 * SECOND, nth(50))


@given(bounds, bounds, st.integers(START - 10 * SECOND, nth(50)))
def test_the_fire_times_are_those_of_the_timing_that_lie_within_the_bounds(
    start: int | None, end: int | None, after: int
) -> None:
    timing = FixedTiming([nth(n) for n in range(40)])
    within = [t for t in timing.times if t > after and (start is None or t >= start) and (end is None or t <= end)]
    assert times_of(spec_of(timing, start=start, end=end), after, 99) == within


# -- the spread of ticks ------------------------------------------------------------------------------------

timings: st.SearchStrategy[Timing] = st.one_of(
    st.builds(EveryTiming, st.integers(1000, 100_000_000), st.integers(0, 10**9)),
    st.sampled_from(["* * * * *", "*/5 8-18 * * mon-fri", "0 0 1 * *"]).map(lambda text: cron(text, tz="UTC").timing),
)
spreads = st.integers(1, 200_000_000)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@st.composite
def spread_specs(draw: st.DrawFn) -> Spec:
    end = draw(st.none() | st.integers(NOW + HOUR, NOW + 1000 * HOUR))
    policy = Policy(spread=draw(spreads), end=end)
    return Spec(draw(names), "actor", "default", draw(timings), policy)


@given(spread_specs())
def test_a_tick_is_enqueued_at_or_after_its_fire_time_by_less_than_the_spread(spec: Spec) -> None:
    assert spec.policy.spread is not None
    for time in times_of(spec, NOW, 3):
        assert 0 <= spec.score_of(time) - time < spec.policy.spread


@given(spread_specs())
def test_a_tick_is_enqueued_before_the_next_fire_time(spec: Spec) -> None:
    times = times_of(spec, NOW, 5)
    assert all(spec.score_of(time) < following for time, following in pairwise(times))


@given(spread_specs())
def test_the_fire_time_of_a_score_is_the_one_it_was_made_of(spec: Spec) -> None:
    for time in times_of(spec, NOW, 3):
        assert spec.fire_time_of(spec.score_of(time)) == time


@given(spread_specs(), st.integers(0, 10**9))
def test_a_score_that_is_none_of_its_own_stands_for_itself(spec: Spec, distance: int) -> None:
    """A tick at once (run_at_start), or a cursor that was set by hand."""
    score = NOW + distance
    found = spec.fire_time_of(score)
    assert found == score or spec.score_of(found) == score


@given(spread_specs())
def test_the_same_schedule_and_tick_have_the_same_part_wherever_it_is_computed(spec: Spec) -> None:
    other = replace(spec, actor="other", queue="other", payload={"args": [1]}, source="api")
    for time in times_of(spec, NOW, 3):
        assert other.score_of(time) == spec.score_of(time)


def test_every_process_computes_the_same_part() -> None:
    code = "from tests.unit.test_spread import scores_of_spec; print(scores_of_spec())"
    scores = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, text=True)
        for seed in ("1", "2")
    }
    assert scores == {f"{scores_of_spec()}\n"}


SPEC = Spec("report:7", "actor", "default", EveryTiming(HOUR), Policy(spread=HOUR // 2))


def scores_of_spec() -> list[int]:
    return [SPEC.score_of(time) for time in times_of(SPEC, NOW, 9)]


def test_the_part_is_the_same_in_every_version() -> None:
    """Two versions in a rolling deploy that differed would see each other's cursors as none of their own."""
    assert [SPEC.score_of(time) - time for time in times_of(SPEC, NOW, 3)] == [837138, 1145491, 1689864]


def test_schedules_of_one_instant_are_spread_over_the_whole_of_it() -> None:
    """Ten parts of the spread get each their share of 1,000 schedules."""
    fire_time = SPEC.next_ms(NOW) or 0
    parts = [replace(SPEC, name=f"job-{n}").score_of(fire_time) - fire_time for n in range(1000)]
    tenths = [sum(1 for part in parts if part * 10 // (HOUR // 2) == tenth) for tenth in range(10)]
    assert min(tenths) > 60


def test_the_ticks_of_one_schedule_have_parts_of_their_own() -> None:
    assert len({SPEC.score_of(time) - time for time in times_of(SPEC, NOW, 20)}) == 20


def test_the_last_fire_time_of_all_is_spread_as_the_others() -> None:
    spec = replace(SPEC, policy=replace(SPEC.policy, end=SPEC.next_ms(NOW)))
    (time,) = times_of(spec, NOW, 9)
    assert time <= spec.score_of(time) < time + HOUR // 2
    assert spec.fire_time_of(spec.score_of(time)) == time


@pytest.mark.parametrize(
    "timing", [EveryTiming(SECOND), cron("* * * * *", tz="Europe/Berlin").timing], ids=["every", "cron"]
)
@pytest.mark.parametrize("spread", [None, 1, HOUR])
def test_a_finished_schedule_has_no_other_fire_time_than_never(timing: Timing, spread: int | None) -> None:
    assert spec_of(timing, spread=spread).fire_time_of(NEVER) == NEVER


@pytest.mark.parametrize("spread", [SECOND, 60 * SECOND, 24 * HOUR, 700 * HOUR])
def test_to_find_a_fire_time_by_its_score_only_a_few_are_looked_at(spread: int) -> None:
    """It is asked for with every tick, and a spread may be much longer than the gap to the next one."""
    timing = CountingTiming(EveryTiming(SECOND))
    spec = spec_of(timing, spread=spread)
    score = spec.score_of(nth(1_000_000))
    timing.asked = 0
    assert spec.fire_time_of(score) == nth(1_000_000)
    assert timing.asked < 100


def test_to_find_the_last_of_a_dense_stretch_long_ago_only_a_few_are_looked_at() -> None:
    timing = CountingTiming(FixedTiming([*range(START, START + 10_000), START + 10_000_000]))
    spec = spec_of(timing, spread=9_000_000)
    score = spec.score_of(START + 9999)
    timing.asked = 0
    assert spec.fire_time_of(score) == START + 9999
    assert timing.asked < 100


@given(spread_specs(), st.integers(0, 10**9))
def test_it_is_found_whatever_the_distance_between_fire_times(spec: Spec, distance: int) -> None:
    """Also where there are many between the score and the length of the spread before it."""
    spec = replace(spec, policy=replace(spec.policy, spread=1000 * HOUR))
    time = spec.next_ms(NOW + distance)
    if time is not None:
        assert spec.fire_time_of(spec.score_of(time)) == time
