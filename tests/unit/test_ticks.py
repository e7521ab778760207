"""Decisions: every fire time from the cursor to now has one outcome, whatever the backlog and the policy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dramatiq_distcron import cron
from dramatiq_distcron.schedules import EveryTiming
from dramatiq_distcron.ticks import BUDGET, ENQUEUED, MISSED, Move, Situation, decide, passed_over
from tests.unit.decisions import (
    SECOND,
    START,
    CountingTiming,
    FixedTiming,
    decided,
    enqueued,
    missed,
    nth,
    spec_of,
)

DAY = 86_400 * SECOND

# -- one tick, on time --------------------------------------------------------------------------------------


@pytest.mark.parametrize("catch_up", ["skip", "latest", "all"])
@pytest.mark.parametrize("late", [0, 1, 999])
def test_a_tick_on_time_is_enqueued_by_every_policy(catch_up: str, late: int) -> None:
    moves = decided(1, catch_up=catch_up, late=late, misfire_grace_time=1000)
    assert moves == [Move(START, nth(1), ENQUEUED, START, START, 1, "")]


def test_the_last_fire_time_of_all_leads_nowhere() -> None:
    moves = decide(spec_of(FixedTiming([START])), START, START, Situation())
    assert moves == [Move(START, None, ENQUEUED, START, START, 1, "")]


def test_a_backlog_that_ends_with_the_last_fire_time_of_all_leads_nowhere() -> None:
    moves = decide(spec_of(FixedTiming([nth(0), nth(1), nth(2)])), START, nth(100), Situation())
    assert enqueued(moves) == [nth(2)]
    assert moves[-1].new_score is None


# -- catching up --------------------------------------------------------------------------------------------


def test_latest_enqueues_the_newest_and_records_the_others() -> None:
    moves = decided(5, catch_up="latest")
    assert moves == [
        Move(nth(0), nth(4), MISSED, nth(0), nth(3), 4, "catch_up=latest"),
        Move(nth(4), nth(5), ENQUEUED, nth(4), nth(4), 1, ""),
    ]


def test_all_enqueues_each_in_order() -> None:
    moves = decided(5, catch_up="all")
    assert enqueued(moves) == [nth(n) for n in range(5)]
    assert missed(moves) == []


def test_all_enqueues_the_latest_up_to_the_cap_and_records_the_others() -> None:
    moves = decided(5, catch_up="all", max_catch_up=2)
    assert enqueued(moves) == [nth(3), nth(4)]
    assert missed(moves) == [(nth(0), nth(2), 3, "max_catch_up=2")]


def test_skip_enqueues_nothing_of_a_gap() -> None:
    moves = decided(5, catch_up="skip", on_duty_since=nth(10))
    assert enqueued(moves) == []
    assert missed(moves) == [(nth(0), nth(4), 5, "catch_up=skip")]
    assert moves[-1].new_score == nth(5)


def test_skip_enqueues_what_came_while_a_beat_was_on_duty() -> None:
    moves = decided(5, catch_up="skip", on_duty_since=nth(4))
    assert enqueued(moves) == [nth(4)]
    assert missed(moves) == [(nth(0), nth(3), 4, "catch_up=skip")]


def test_skip_enqueues_a_single_late_tick_of_a_slow_pass_and_none_of_a_gap() -> None:
    assert enqueued(decided(1, catch_up="skip", late=900, on_duty_since=START)) == [START]
    assert enqueued(decided(1, catch_up="skip", late=900, on_duty_since=START + 1)) == []


def test_skip_records_an_overtaken_tick_of_a_slow_pass() -> None:
    moves = decided(5, catch_up="skip", on_duty_since=nth(2))
    assert enqueued(moves) == [nth(4)]
    assert [(first, last, count) for first, last, count, _ in missed(moves)] == [
        (nth(0), nth(1), 2),
        (nth(2), nth(3), 2),
    ]


@pytest.mark.parametrize("catch_up", ["latest", "all"])
def test_since_when_a_beat_is_on_duty_matters_to_skip_alone(catch_up: str) -> None:
    assert decided(5, catch_up=catch_up, on_duty_since=nth(4)) == decided(5, catch_up=catch_up)


# -- the grace time -----------------------------------------------------------------------------------------


def test_within_the_grace_time_a_late_tick_is_enqueued_and_after_it_is_not() -> None:
    assert enqueued(decided(1, late=500, misfire_grace_time=500)) == [START]
    late = decided(1, late=501, misfire_grace_time=500)
    assert enqueued(late) == []
    assert missed(late) == [(START, START, 1, "misfire_grace_time=0.5")]


def test_the_grace_time_cuts_a_backlog_that_all_would_catch_up() -> None:
    moves = decided(10, catch_up="all", misfire_grace_time=2000)
    assert enqueued(moves) == [nth(7), nth(8), nth(9)]
    assert missed(moves) == [(nth(0), nth(6), 7, "misfire_grace_time=2")]


def test_grace_time_and_cap_are_two_reasons() -> None:
    moves = decided(10, catch_up="all", misfire_grace_time=4000, max_catch_up=2)
    assert enqueued(moves) == [nth(8), nth(9)]
    assert missed(moves) == [
        (nth(0), nth(4), 5, "misfire_grace_time=4"),
        (nth(5), nth(7), 3, "max_catch_up=2"),
    ]


def test_the_stricter_of_skip_and_grace_time_is_the_reason() -> None:
    by_grace = decided(10, catch_up="skip", misfire_grace_time=1000, on_duty_since=nth(3))
    by_skip = decided(10, catch_up="skip", misfire_grace_time=100_000, on_duty_since=nth(9))
    assert missed(by_grace)[0][3] == "misfire_grace_time=1"
    assert missed(by_skip)[0][3] == "catch_up=skip"


def test_without_any_grace_only_a_tick_of_this_very_millisecond_is_enqueued() -> None:
    assert enqueued(decided(1, late=0, misfire_grace_time=0)) == [START]
    assert enqueued(decided(1, late=1, misfire_grace_time=0)) == []


# -- long backlogs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 99, 100, 101, 999, BUDGET])
@pytest.mark.parametrize("catch_up", ["latest", "all"])
def test_up_to_the_budget_counts_are_exact(count: int, catch_up: str) -> None:
    moves = decided(count, catch_up=catch_up)
    assert sum(move.count for move in moves) == count
    assert not any("estimated" in move.reason for move in moves)


LONG = [BUDGET + 1, BUDGET + 50, BUDGET + 101, 3000]


@pytest.mark.parametrize("count", LONG)
def test_beyond_the_budget_the_count_is_an_estimate_and_says_so(count: int) -> None:
    (record,) = missed(decided(count, catch_up="latest"))
    assert record[3] == "catch_up=latest (count estimated)"


@pytest.mark.parametrize("count", LONG)
@pytest.mark.parametrize("keep", [1, 100])
def test_the_estimate_of_a_regular_schedule_is_right(count: int, keep: int) -> None:
    moves = decided(count, catch_up="all", max_catch_up=keep)
    assert sum(move.count for move in moves) == count


@pytest.mark.parametrize("count", LONG)
@pytest.mark.parametrize("keep", [2, 100, 10_000])
def test_also_of_a_long_backlog_the_latest_are_enqueued_up_to_the_cap(count: int, keep: int) -> None:
    moves = decided(count, catch_up="all", max_catch_up=keep)
    assert enqueued(moves) == [nth(n) for n in range(max(0, count - keep), count)]


@pytest.mark.parametrize("count", LONG)
def test_of_a_long_backlog_latest_enqueues_the_newest(count: int) -> None:
    assert enqueued(decided(count, catch_up="latest")) == [nth(count - 1)]


@pytest.mark.parametrize("count", LONG)
def test_of_a_long_gap_skip_enqueues_nothing(count: int) -> None:
    moves = decided(count, catch_up="skip", on_duty_since=nth(count))
    assert enqueued(moves) == []
    assert (moves[0].score, moves[-1].last, moves[-1].new_score) == (START, nth(count - 1), nth(count))


@pytest.mark.parametrize("count", LONG)
def test_of_a_long_backlog_the_grace_time_leaves_the_newest(count: int) -> None:
    moves = decided(count, catch_up="all", misfire_grace_time=2000)
    assert enqueued(moves) == [nth(count - 3), nth(count - 2), nth(count - 1)]


def test_of_a_long_backlog_that_only_the_grace_time_cuts_the_grace_time_is_the_reason() -> None:
    (record,) = missed(decided(3000, catch_up="all", misfire_grace_time=2000))
    assert record[3] == "misfire_grace_time=2 (count estimated)"


def test_of_a_backlog_of_a_week_only_a_part_is_looked_at() -> None:
    timing = CountingTiming(EveryTiming(SECOND))
    week = 7 * 86_400
    moves = decide(spec_of(timing), START, nth(week), Situation())
    assert enqueued(moves) == [nth(week)]
    assert timing.asked < BUDGET + 50


@pytest.mark.parametrize("expression", ["* * * * *", "*/5 8-18 * * mon-fri", "* * 1 1 *", "0 0 29 2 *", "0-1 3 * * *"])
@pytest.mark.parametrize("years", [1, 8])
@pytest.mark.parametrize("catch_up", ["latest", "all"])
def test_the_work_for_a_cron_that_was_away_for_years_is_bounded(expression: str, years: int, catch_up: str) -> None:
    timing = CountingTiming(cron(expression, tz="UTC").timing)
    first = timing.next_ms(1_700_000_000_000)
    assert first is not None
    decide(spec_of(timing, catch_up=catch_up), first, first + years * 31_556_952_000 + 100_000_000, Situation())
    assert timing.asked <= 4 * BUDGET


@pytest.mark.parametrize("catch_up", ["latest", "all"])
@pytest.mark.parametrize("days", [10, 400, 3285])
def test_the_work_is_bounded_also_where_the_end_of_a_backlog_is_much_denser_than_its_beginning(
    days: int, catch_up: str
) -> None:
    begin_of_last_day = START + days * DAY
    sparse = list(range(START, begin_of_last_day, DAY))
    dense = list(range(begin_of_last_day, begin_of_last_day + DAY + 1, SECOND))
    timing = FixedTiming(sparse + dense)
    moves = decide(spec_of(timing, catch_up=catch_up), START, dense[-1], Situation())
    assert enqueued(moves) == (dense[-100:] if catch_up == "all" else dense[-1:])
    assert timing.asked < 6 * BUDGET


@given(st.randoms(use_true_random=False), st.integers(1, 300))
def test_the_latest_of_any_long_backlog_are_enqueued_however_it_is_spread(rng: Random, keep: int) -> None:
    gaps = [rng.choice([1, 1000, 10**6, 10**9]) for _ in range(rng.randint(1, 6))]
    times = list(accumulate((rng.choice(gaps[: 1 + n // 300]) for n in range(BUDGET + 800)), initial=START))
    timing = FixedTiming(times)
    moves = decide(
        spec_of(timing, catch_up="all", max_catch_up=keep), START, times[-1] + rng.choice([0, 10**7]), Situation()
    )
    assert enqueued(moves) == times[-keep:]
    assert timing.asked < 50 * BUDGET


def test_a_tick_on_time_costs_one_question() -> None:
    timing = CountingTiming(EveryTiming(SECOND))
    decide(spec_of(timing), START, START + 5, Situation())
    assert timing.asked == 1


# -- what holds for all -------------------------------------------------------------------------------------

gaps = st.lists(st.integers(1, 100_000), min_size=1, max_size=60)
any_policy = st.fixed_dictionaries(
    {
        "catch_up": st.sampled_from(["skip", "latest", "all"]),
        "misfire_grace_time": st.none() | st.integers(0, 3_000_000),
        "max_catch_up": st.integers(1, 70),
    }
)


@dataclass
class Case:
    """Fire times from START on, so many at each distance; a cursor on one of them, and a now not before it."""

    stretches: list[tuple[int, int]]
    cursor: int
    now: int
    on_duty_since: int
    policy: dict[str, Any]

    @cached_property
    def times(self) -> list[int]:
        return list(accumulate((gap for gap, count in self.stretches for _ in range(count)), initial=START))

    @property
    def due(self) -> list[int]:
        return [time for time in self.times if self.cursor <= time <= self.now]

    def decide(self) -> list[Move]:
        spec = spec_of(FixedTiming(self.times), **self.policy)
        return decide(spec, self.cursor, self.now, Situation(self.on_duty_since))

    @property
    def keep(self) -> int:
        return int(self.policy["max_catch_up"]) if self.policy["catch_up"] == "all" else 1

    def allowed(self, time: int) -> bool:
        grace = self.policy["misfire_grace_time"]
        in_time = grace is None or time >= self.now - grace
        return in_time and (self.policy["catch_up"] != "skip" or time >= self.on_duty_since)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    case = Case([(gap, 1) for gap in draw(gaps)], 0, 0, 0, draw(any_policy))
    case.cursor = draw(st.sampled_from(case.times))
    case.now = draw(st.integers(case.cursor, case.times[-1] + 100_000))
    case.on_duty_since = draw(st.integers(START - 1000, case.now + 1000))
    return case


@st.composite
def long_cases(draw: st.DrawFn) -> Case:
    """A backlog around the budget or far beyond it, in stretches of different density."""
    first = draw(st.integers(1, BUDGET - 1))
    second = draw(st.integers(BUDGET - 3, BUDGET + 110) | st.integers(BUDGET, 3 * BUDGET)) - first
    stretches = [(draw(st.integers(1, 100_000)), count) for count in (first, second, 1)]
    case = Case(stretches, START, 0, 0, draw(any_policy))
    case.now = draw(st.integers(case.times[-2], case.times[-1] - 1))
    case.on_duty_since = draw(st.integers(START, case.now))
    return case


def assert_chained(case: Case, moves: list[Move]) -> None:
    """From the cursor to the first fire time after now, without a gap and without an overlap."""
    following = next((time for time in case.times if time > case.now), None)
    assert moves[0].score == case.cursor
    assert [move.new_score for move in moves] == [*(move.score for move in moves[1:]), following]
    assert all(move.score <= move.last for move in moves)
    assert all(move.new_score is None or move.last < move.new_score for move in moves)


@given(cases())
def test_the_moves_lead_from_the_cursor_past_now_without_gap_or_overlap(case: Case) -> None:
    assert_chained(case, case.decide())


@given(cases())
def test_every_fire_time_that_is_due_is_covered_exactly_once(case: Case) -> None:
    covered = []
    for move in case.decide():
        inside = [time for time in case.times if move.score <= time <= move.last]
        assert len(inside) == move.count
        assert {inside[0], inside[-1]} == {move.score, move.last}
        covered += inside
    assert covered == case.due


@given(cases())
def test_the_latest_that_are_allowed_are_enqueued_up_to_the_cap(case: Case) -> None:
    allowed = [time for time in case.due if case.allowed(time)]
    assert enqueued(case.decide()) == allowed[-case.keep :]


@given(cases())
def test_what_is_enqueued_is_one_tick_a_move_and_what_is_missed_has_a_reason(case: Case) -> None:
    for move in case.decide():
        if move.outcome == ENQUEUED:
            assert (move.score, move.count, move.reason) == (move.last, 1, "")
        else:
            assert move.outcome == MISSED
            assert move.reason


@given(cases())
def test_a_decision_is_the_same_whoever_makes_it(case: Case) -> None:
    assert case.decide() == case.decide()


@given(cases())
def test_what_is_decided_is_not_decided_again(case: Case) -> None:
    """After the moves the cursor is where the next decision begins."""
    moves = case.decide()
    cursor = moves[-1].new_score
    assume(cursor is not None)
    assert cursor is not None
    later = replace(case, cursor=cursor, now=max(cursor, case.now))
    assert not set(enqueued(moves)) & set(enqueued(later.decide()))


@given(long_cases())
def test_also_a_long_backlog_is_covered_without_gap_or_overlap(case: Case) -> None:
    moves = case.decide()
    assert_chained(case, moves)
    for move in moves:
        assert {move.score, move.last} <= set(case.due)
        if len(case.due) <= BUDGET:
            assert move.count == len([time for time in case.times if move.score <= time <= move.last])


@given(long_cases())
def test_also_of_a_long_backlog_the_latest_that_are_allowed_are_enqueued(case: Case) -> None:
    allowed = [time for time in case.due if case.allowed(time)]
    assert enqueued(case.decide()) == allowed[-case.keep :]


# -- what an edit passes over -------------------------------------------------------------------------------


def test_nothing_is_passed_over_before_the_cursor() -> None:
    assert passed_over(spec_of(EveryTiming(SECOND)), START, START - 1) is None


@pytest.mark.parametrize("count", [1, 2, 999, BUDGET, *LONG])
def test_what_an_edit_passes_over_is_counted(count: int) -> None:
    assert passed_over(spec_of(EveryTiming(SECOND)), START, nth(count) - 1) == (START, nth(count - 1), count)


@given(cases())
def test_what_an_edit_passes_over_are_the_fire_times_that_are_due(case: Case) -> None:
    assert passed_over(spec_of(FixedTiming(case.times)), case.cursor, case.now) == (
        case.due[0],
        case.due[-1],
        len(case.due),
    )


def test_to_count_what_an_edit_passes_over_only_a_part_is_looked_at() -> None:
    timing = CountingTiming(EveryTiming(SECOND))
    week = 7 * 86_400
    assert passed_over(spec_of(timing), START, nth(week) - 1) == (START, nth(week - 1), week)
    assert timing.asked < BUDGET + 50
