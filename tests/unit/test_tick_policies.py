"""Decisions under every policy and in every combination: one outcome for each fire time, and no move beyond now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dramatiq_distcron.schedules import EveryTiming
from dramatiq_distcron.specs import Pause, Spec
from dramatiq_distcron.ticks import (
    BUDGET,
    DISABLED,
    ENQUEUED,
    MISSED,
    PAUSED,
    SKIPPED_BACKPRESSURE,
    SKIPPED_OVERLAP,
    Move,
    Situation,
    decide,
    passed_over,
)
from tests.unit.decisions import SECOND, START, FixedTiming, enqueued, missed, nth, spec_of, told

OUTSTANDING = Situation(outstanding=True)


def decided(
    count: int, situation: Situation | None = None, *, paused: Pause | None = None, **policy: Any
) -> list[Move]:
    """The moves for ``count`` fire times, one a second from START, decided at the last of them."""
    spec = replace(spec_of(EveryTiming(SECOND), **policy), paused=paused)
    return decide(spec, START, nth(count - 1), situation or Situation())


# -- overlap ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["allow", "skip", "buffer_one"])
def test_without_a_run_before_it_a_tick_is_enqueued_whatever_the_overlap(overlap: str) -> None:
    assert enqueued(decided(1, overlap=overlap)) == [START]


def test_where_runs_may_overlap_an_outstanding_one_holds_nothing_up() -> None:
    assert enqueued(decided(1, OUTSTANDING, overlap="allow")) == [START]


def test_skip_records_the_ticks_that_come_while_a_run_is_outstanding() -> None:
    moves = decided(1, OUTSTANDING, overlap="skip")
    assert moves == [Move(START, nth(1), SKIPPED_OVERLAP, START, START, 1, "overlap=skip")]


def test_buffer_one_lets_the_newest_tick_wait_and_leaves_the_cursor_on_it() -> None:
    assert decided(1, OUTSTANDING, overlap="buffer_one") == []
    moves = decided(5, OUTSTANDING, overlap="buffer_one", catch_up="all")
    assert moves == [Move(nth(0), nth(4), SKIPPED_OVERLAP, nth(0), nth(3), 4, "overlap=buffer_one")]


def test_of_a_backlog_the_first_is_enqueued_and_is_the_run_before_to_the_others() -> None:
    skip = decided(5, overlap="skip", catch_up="all")
    assert enqueued(skip) == [nth(0)]
    assert told(skip, SKIPPED_OVERLAP) == [(nth(1), nth(4), 4, "overlap=skip")]
    buffer = decided(5, overlap="buffer_one", catch_up="all")
    assert enqueued(buffer) == [nth(0)]
    assert told(buffer, SKIPPED_OVERLAP) == [(nth(1), nth(3), 3, "overlap=buffer_one")]
    assert buffer[-1].new_score == nth(4)


def test_of_a_backlog_of_which_only_the_latest_is_caught_up_that_one_is_held_up() -> None:
    skip = decided(5, OUTSTANDING, overlap="skip")
    assert missed(skip) == [(nth(0), nth(3), 4, "catch_up=latest")]
    assert told(skip, SKIPPED_OVERLAP) == [(nth(4), nth(4), 1, "overlap=skip")]
    away = Situation(outstanding=True, on_duty_since=nth(4))
    buffer = decided(5, away, overlap="buffer_one")
    assert missed(buffer) == [(nth(0), nth(3), 4, "catch_up=latest")]
    assert buffer[-1].new_score == nth(4)


def test_of_ticks_that_waited_those_before_the_newest_are_skipped_and_not_missed() -> None:
    """Whatever is caught up: the beat was there, and a run was not over."""
    for catch_up in ("latest", "skip", "all"):
        moves = decided(5, OUTSTANDING, overlap="buffer_one", catch_up=catch_up)
        assert moves == [Move(nth(0), nth(4), SKIPPED_OVERLAP, nth(0), nth(3), 4, "overlap=buffer_one")]


def test_while_the_queue_is_full_no_run_begins_that_could_hold_up_another() -> None:
    moves = decided(5, with_length(3), max_queue_length=3, catch_up="all", overlap="skip")
    assert moves == [Move(nth(0), nth(5), SKIPPED_BACKPRESSURE, nth(0), nth(4), 5, "max_queue_length=3")]


def test_a_tick_that_waited_is_enqueued_when_the_run_before_is_over() -> None:
    waiting = decided(5, OUTSTANDING, overlap="buffer_one")[-1].new_score
    assert waiting is not None
    spec = spec_of(EveryTiming(SECOND), overlap="buffer_one")
    assert enqueued(decide(spec, waiting, nth(4) + 500, Situation())) == [nth(4)]


def test_a_newer_tick_takes_the_place_of_one_that_waits() -> None:
    spec = spec_of(EveryTiming(SECOND), overlap="buffer_one")
    moves = decide(spec, nth(4), nth(5), OUTSTANDING)
    assert told(moves, SKIPPED_OVERLAP) == [(nth(4), nth(4), 1, "overlap=buffer_one")]
    assert moves[-1].new_score == nth(5)


def test_a_tick_that_waited_past_its_grace_time_is_missed() -> None:
    spec = spec_of(EveryTiming(60 * SECOND), overlap="buffer_one", misfire_grace_time=5000)
    first = spec.next_ms(START) or 0
    assert decide(spec, first, first + 5000, OUTSTANDING) == []
    assert missed(decide(spec, first, first + 5001, OUTSTANDING)) == [(first, first, 1, "misfire_grace_time=5")]


# -- backpressure -------------------------------------------------------------------------------------------


def with_length(length: int) -> Situation:
    return Situation(queue_length=lambda: length)


@pytest.mark.parametrize(("length", "room"), [(0, 3), (1, 2), (2, 1), (3, 0), (4, 0), (1000, 0)])
def test_ticks_are_enqueued_up_to_the_length_of_the_queue_and_the_others_are_skipped(length: int, room: int) -> None:
    moves = decided(5, with_length(length), max_queue_length=3, catch_up="all")
    assert enqueued(moves) == [nth(n) for n in range(room)]
    assert told(moves, SKIPPED_BACKPRESSURE) == [(nth(room), nth(4), 5 - room, "max_queue_length=3")]


def test_the_length_of_the_queue_is_not_asked_for_where_it_does_not_matter() -> None:
    def asked() -> int:
        raise AssertionError("asked")

    situation = Situation(outstanding=True, queue_length=asked)
    assert enqueued(decided(3, Situation(queue_length=asked))) == [nth(2)]
    assert told(decided(1, situation, overlap="skip", max_queue_length=1), SKIPPED_OVERLAP)
    assert told(decided(1, situation, enabled=False, max_queue_length=1), DISABLED)


# -- disabled -----------------------------------------------------------------------------------------------

ANYTHING: list[dict[str, Any]] = [
    {},
    {"catch_up": "all"},
    {"catch_up": "skip"},
    {"overlap": "skip"},
    {"overlap": "buffer_one"},
    {"misfire_grace_time": 0},
    {"max_queue_length": 1},
    {"run_at_start": True},
]


@pytest.mark.parametrize("policy", ANYTHING, ids=str)
@pytest.mark.parametrize("outstanding", [False, True])
def test_a_disabled_schedule_records_every_fire_time_whatever_else_is_set(
    policy: dict[str, Any], outstanding: bool
) -> None:
    situation = Situation(outstanding=outstanding, queue_length=lambda: 5)
    moves = decided(5, situation, enabled=False, paused=Pause(0, "unpaid"), **policy)
    assert moves == [Move(START, nth(5), DISABLED, START, nth(4), 5, "enabled=False")]


@pytest.mark.parametrize("policy", ANYTHING, ids=str)
def test_an_app_that_is_switched_off_records_every_fire_time_with_who_did_it(policy: dict[str, Any]) -> None:
    situation = Situation(outstanding=True, disabled="DISTCRON_DISABLED=1")
    moves = decided(5, situation, paused=Pause(0), **policy)
    assert moves == [Move(START, nth(5), DISABLED, START, nth(4), 5, "DISTCRON_DISABLED=1")]


def test_a_single_tick_on_time_is_no_exception() -> None:
    assert told(decided(1, enabled=False), DISABLED) == [(START, START, 1, "enabled=False")]
    assert told(decided(1, Situation(disabled="off")), DISABLED) == [(START, START, 1, "off")]
    assert told(decided(1, paused=Pause(0)), PAUSED) == [(START, START, 1, "")]


# -- paused -------------------------------------------------------------------------------------------------


def test_a_pause_without_an_end_records_every_fire_time_with_its_reason() -> None:
    moves = decided(5, paused=Pause(0, "unpaid"), catch_up="all")
    assert moves == [Move(START, nth(5), PAUSED, START, nth(4), 5, "unpaid")]


def test_a_pause_ends_by_itself_and_what_came_in_it_is_not_caught_up() -> None:
    moves = decided(5, paused=Pause(0, "unpaid", nth(3)), catch_up="all")
    assert told(moves, PAUSED) == [(nth(0), nth(2), 3, "unpaid")]
    assert enqueued(moves) == [nth(3), nth(4)]


def test_the_end_of_a_pause_is_out_of_it() -> None:
    assert enqueued(decided(1, paused=Pause(0, "", START))) == [START]
    assert told(decided(1, paused=Pause(0, "", START + 1)), PAUSED)


def test_after_a_pause_the_latest_is_caught_up_as_ever() -> None:
    moves = decided(10, paused=Pause(0, "", nth(3)))
    assert told(moves, PAUSED) == [(nth(0), nth(2), 3, "")]
    assert missed(moves) == [(nth(3), nth(8), 6, "catch_up=latest")]
    assert enqueued(moves) == [nth(9)]


def test_a_pause_that_was_over_before_the_first_fire_time_does_not_matter() -> None:
    assert decided(5, paused=Pause(0, "", START - 1)) == decided(5)


def test_after_a_pause_with_nothing_due_yet_the_cursor_is_on_the_next() -> None:
    moves = decided(3, paused=Pause(0, "", nth(2) + 1))
    assert moves == [Move(nth(0), nth(3), PAUSED, nth(0), nth(2), 3, "")]


def test_a_pause_of_a_schedule_that_ends_in_it_leads_nowhere() -> None:
    spec = replace(spec_of(FixedTiming([nth(0), nth(1)])), paused=Pause(0))
    assert decide(spec, START, nth(9), Situation())[-1].new_score is None


def test_a_long_pause_is_counted_by_an_estimate() -> None:
    (move,) = decided(5 * BUDGET, paused=Pause(0, "unpaid"))
    assert (move.first, move.last, move.count) == (START, nth(5 * BUDGET - 1), 5 * BUDGET)


# -- spread -------------------------------------------------------------------------------------------------


def test_a_tick_of_a_spread_schedule_waits_for_its_part_and_keeps_its_nominal_fire_time() -> None:
    spec = spec_of(EveryTiming(60 * SECOND), spread=60 * SECOND)
    fire_time = spec.next_ms(START) or 0
    score = spec.score_of(fire_time)
    (move,) = decide(spec, score, score, Situation())
    assert (move.score, move.first, move.last) == (score, fire_time, fire_time)
    assert move.new_score == spec.score_of(fire_time + 60 * SECOND)


@pytest.mark.parametrize("grace", [0, 1, 1000])
def test_a_spread_tick_is_late_from_when_it_is_to_be_enqueued_and_not_from_its_nominal_time(grace: int) -> None:
    """Else a spread that is longer than the grace time would let nearly no tick through."""
    spec = spec_of(EveryTiming(3600 * SECOND), spread=3600 * SECOND, misfire_grace_time=grace)
    fire_time = spec.next_ms(START) or 0
    score = spec.score_of(fire_time)
    assert score - fire_time > 1000
    assert enqueued(decide(spec, score, score + grace, Situation())) == [fire_time]
    assert missed(decide(spec, score, score + grace + 1, Situation()))


def test_a_spread_tick_that_is_to_be_enqueued_while_a_beat_is_on_duty_is_no_part_of_a_gap() -> None:
    spec = spec_of(EveryTiming(3600 * SECOND), spread=3600 * SECOND, catch_up="skip")
    fire_time = spec.next_ms(START) or 0
    score = spec.score_of(fire_time)
    assert enqueued(decide(spec, score, score, Situation(on_duty_since=fire_time + 1))) == [fire_time]


# -- a first tick that is none of the timing's (run_at_start) -----------------------------------------------

#: Where a schedule was stored that has a tick at once, somewhere between its fire times.
AT_ONCE = START + 137


@pytest.mark.parametrize("spread", [None, 500])
def test_a_tick_at_once_is_enqueued_at_once(spread: int | None) -> None:
    spec = spec_of(EveryTiming(SECOND), run_at_start=True, spread=spread)
    (move,) = decide(spec, AT_ONCE, AT_ONCE, Situation())
    assert move == Move(AT_ONCE, spec.score_of(nth(1)), ENQUEUED, AT_ONCE, AT_ONCE, 1, "")


@pytest.mark.parametrize("spread", [None, 500])
def test_a_tick_at_once_counts_as_the_others_where_it_is_not_enqueued(spread: int | None) -> None:
    spec = spec_of(EveryTiming(SECOND), run_at_start=True, spread=spread, enabled=False)
    for now, last, count in ((AT_ONCE, AT_ONCE, 1), (nth(3) + 999, nth(3), 4)):
        assert passed_over(spec, AT_ONCE, now) == (AT_ONCE, last, count)
        assert told(decide(spec, AT_ONCE, now, Situation()), DISABLED) == [(AT_ONCE, last, count, "enabled=False")]


@pytest.mark.parametrize("spread", [None, 500])
def test_a_tick_at_once_may_be_caught_up_or_overtaken(spread: int | None) -> None:
    spec = spec_of(EveryTiming(SECOND), run_at_start=True, spread=spread, catch_up="all", max_catch_up=2)
    moves = decide(spec, AT_ONCE, nth(2) + 999, Situation())
    assert missed(moves) == [(AT_ONCE, AT_ONCE, 1, "max_catch_up=2")]
    assert enqueued(moves) == [nth(1), nth(2)]


# -- what holds for all -------------------------------------------------------------------------------------


@dataclass
class Case:
    """Fire times from START on, a cursor on one of them, a now not before it, and all that may decide."""

    times: list[int]
    policy: dict[str, Any]
    paused: Pause | None
    cursor: int = 0
    now: int = 0
    on_duty_since: int = 0
    outstanding: bool = False
    disabled: str = ""
    length: int = 0

    @cached_property
    def spec(self) -> Spec:
        return replace(spec_of(FixedTiming(self.times), **self.policy), paused=self.paused)

    @property
    def due(self) -> list[int]:
        return [time for time in self.inside if self.cursor <= self.spec.score_of(time) <= self.now]

    @property
    def inside(self) -> list[int]:
        """The fire times from start to end."""
        start, end = self.policy["start"], self.policy["end"]
        return [t for t in self.times if (start is None or start <= t) and (end is None or t <= end)]

    @property
    def situation(self) -> Situation:
        return Situation(self.on_duty_since, self.outstanding, self.disabled, lambda: self.length)

    @cached_property
    def moves(self) -> list[Move]:
        return decide(self.spec, self.cursor, self.now, self.situation)

    @property
    def covered(self) -> list[tuple[int, str]]:
        """The fire times the moves pass, each with its outcome."""
        return [(t, move.outcome) for move in self.moves for t in self.inside if move.first <= t <= move.last]


def expected(case: Case) -> Iterator[tuple[int, str]]:
    """The outcome of each fire time that has one, told one by one and as simply as can be."""
    policy, rest = case.spec.policy, case.due
    if case.disabled or not policy.enabled:
        yield from ((time, DISABLED) for time in rest)
        return
    paused = [time for time in rest if _is_paused(case, time)]
    yield from ((time, PAUSED) for time in paused)
    rest = rest[len(paused) :]
    keep = policy.max_catch_up if policy.catch_up == "all" else 1
    kept = [time for time in rest if _is_allowed(case, time)][-keep:]
    for time in rest:
        if time not in kept:
            yield time, SKIPPED_OVERLAP if _has_waited(case, time) else MISSED
    yield from _by_load(case, kept)


def _has_waited(case: Case, time: int) -> bool:
    in_vain = case.spec.policy.overlap == "buffer_one" and case.outstanding and _is_allowed(case, time)
    return in_vain and case.spec.score_of(time) >= case.on_duty_since


def _is_paused(case: Case, time: int) -> bool:
    paused = case.spec.paused
    return paused is not None and (paused.until is None or case.spec.score_of(time) < paused.until)


def _is_allowed(case: Case, time: int) -> bool:
    policy, score = case.spec.policy, case.spec.score_of(time)
    in_time = policy.misfire_grace_time is None or case.now - score <= policy.misfire_grace_time
    return in_time and (policy.catch_up != "skip" or score >= case.on_duty_since)


def _by_load(case: Case, kept: list[int]) -> Iterator[tuple[int, str]]:
    policy, running, length = case.spec.policy, case.outstanding, case.length
    if kept and not running and policy.max_queue_length is not None and length >= policy.max_queue_length:
        yield from ((time, SKIPPED_BACKPRESSURE) for time in kept)
        return
    for time in kept:
        if policy.overlap != "allow" and (running or time != kept[0]):
            if policy.overlap == "skip" or time != kept[-1]:
                yield time, SKIPPED_OVERLAP
        elif policy.max_queue_length is not None and length >= policy.max_queue_length:
            yield time, SKIPPED_BACKPRESSURE
        else:
            yield time, ENQUEUED
            length += 1


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([*[usual] * 6, *others])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    gap = draw(st.integers(1, 100_000))
    gaps = draw(st.lists(st.integers(1, 2 * gap), min_size=5, max_size=40))
    times = list(accumulate(gaps, initial=START))
    near = st.integers(START - gap, times[-1] + gap)
    bounds = sorted(draw(st.tuples(near, near)))
    policy = {
        "catch_up": draw(st.sampled_from(["skip", "latest", "all", "all"])),
        "misfire_grace_time": draw(st.none() | st.integers(0, 10 * gap)),
        "max_catch_up": draw(st.integers(1, 50)),
        "overlap": draw(st.sampled_from(["allow", "skip", "buffer_one"])),
        "spread": draw(st.none() | st.integers(1, 3 * gap)),
        "start": draw(mostly(None, bounds[0])),
        "end": draw(mostly(None, bounds[1])),
        "enabled": draw(mostly(True, False)),
        "max_queue_length": draw(st.none() | st.integers(1, 10)),
    }
    case = Case(times, policy, draw(st.none() | st.builds(Pause, st.just(0), st.just("why"), st.none() | near)))
    if not case.inside:
        case.policy["start"] = case.policy["end"] = None
    case.cursor = case.spec.score_of(draw(st.sampled_from(case.inside[: len(case.inside) // 2 + 1])))
    case.now = draw(st.integers(case.cursor, max(case.cursor, times[-1] + 3 * gap)))
    case.on_duty_since = draw(st.integers(START - gap, case.now))
    case.outstanding, case.length = draw(st.booleans()), draw(st.integers(0, 12))
    case.disabled = draw(mostly("", "switched off"))
    return case


@settings(max_examples=300)
@given(cases())
def test_every_fire_time_that_is_due_has_the_outcome_that_its_policies_ask_for(case: Case) -> None:
    assert case.covered == list(expected(case))


@settings(max_examples=300)
@given(cases())
def test_every_fire_time_that_is_due_is_counted_once_unless_it_waits(case: Case) -> None:
    covered = [time for time, _ in case.covered]
    waits = case.due[len(covered) :]
    assert covered + waits == case.due
    assert len(waits) <= (case.policy["overlap"] == "buffer_one")
    assert sum(move.count for move in case.moves) == len(covered)


@settings(max_examples=300)
@given(cases())
def test_the_moves_are_a_chain_from_the_cursor_that_ends_on_the_first_fire_time_that_is_left(case: Case) -> None:
    following = [time for time in case.inside if time > (case.moves[-1].last if case.moves else 0)]
    ends = [*(move.score for move in case.moves[1:]), case.spec.score_of(following[0]) if following else None]
    if case.moves:
        assert case.moves[0].score == case.cursor
        assert [move.new_score for move in case.moves] == ends


@settings(max_examples=300)
@given(cases())
def test_no_move_passes_what_is_not_due_yet(case: Case) -> None:
    for move in case.moves:
        assert case.spec.score_of(move.last) <= case.now
        assert move.first <= move.last
        assert move.score < (move.new_score or move.score + 1)


@settings(max_examples=300)
@given(cases())
def test_what_is_enqueued_is_one_tick_a_move_and_all_else_has_a_reason(case: Case) -> None:
    for move in case.moves:
        assert (move.reason == "") == (move.outcome == ENQUEUED)
        if move.outcome == ENQUEUED:
            assert (move.first, move.count) == (move.last, 1)


@settings(max_examples=300)
@given(cases())
def test_what_an_edit_passes_over_is_what_a_decision_would(case: Case) -> None:
    assert passed_over(case.spec, case.cursor, case.now) == (case.due[0], case.due[-1], len(case.due))


@settings(max_examples=300)
@given(cases(), st.data())
def test_a_later_decision_goes_on_where_the_one_before_ended(case: Case, data: st.DataObject) -> None:
    """Decided at once or in two steps, each fire time has an outcome once."""
    middle = data.draw(st.integers(case.cursor, case.now))
    first = replace(case, now=middle)
    cursor = case.cursor if not first.moves else first.moves[-1].new_score
    if cursor is None or cursor > case.now:
        assert first.due == case.due
        return
    second = replace(case, cursor=cursor)
    covered = [time for time, _ in first.covered + second.covered]
    assert covered == case.due[: len(covered)]
    assert len(case.due) - len(covered) <= (case.policy["overlap"] == "buffer_one")
