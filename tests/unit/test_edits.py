"""Edits of one schedule: what was due gets its outcome, and what was decided is not decided again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramatiq_distcron import at, cron, edits
from dramatiq_distcron.durations import utc
from dramatiq_distcron.policies import Policy
from dramatiq_distcron.schedules import EveryTiming
from dramatiq_distcron.specs import Pause, Retired, Spec, parse_spec
from dramatiq_distcron.store.base import NEVER, Edit, Record, Stored
from dramatiq_distcron.ticks import ENQUEUED, Situation, decide

MINUTE = 60_000
DAY = edits.DAY
NOW = 10_000 * MINUTE + 1
NEXT = 10_001 * MINUTE
EMPTY: Mapping[str, Any] = {"args": [], "kwargs": {}, "options": {}}
SPEC = Spec("job", "actor", "default", EveryTiming(MINUTE), payload=EMPTY)
SEVEN = replace(SPEC, timing=EveryTiming(7 * MINUTE))


def stored(spec: Spec, score: int | None = NEXT, revision: int = 7) -> Stored:
    return Stored(spec.name, json.dumps({"revision": revision, **spec.to_json()}, separators=(",", ":")), score)


def written(edit: Edit) -> Spec:
    assert edit.spec is not None
    return parse_spec(json.dumps({"revision": 8, **edit.spec}))


def with_policy(spec: Spec, **policy: Any) -> Spec:
    return replace(spec, policy=replace(spec.policy, **policy))


# -- adding -------------------------------------------------------------------------------------------------


def test_a_new_schedule_begins_with_its_next_fire_time() -> None:
    assert edits.add(SPEC, NOW) == Edit("job", None, SPEC.to_json(), NEXT)


def test_a_new_schedule_that_is_due_this_very_instant_begins_with_the_next_one() -> None:
    assert edits.add(SPEC, NEXT).score == NEXT + MINUTE


def test_a_new_schedule_with_a_tick_at_once_is_due_now() -> None:
    assert edits.add(with_policy(SPEC, run_at_start=True), NOW).score == NOW


def test_a_new_schedule_of_a_later_start_begins_with_it() -> None:
    assert edits.add(with_policy(SPEC, start=NEXT + 5 * MINUTE), NOW).score == NEXT + 5 * MINUTE


def test_a_new_schedule_that_has_ended_never_fires() -> None:
    assert edits.add(with_policy(SPEC, end=NOW - 1), NOW).score == NEVER


@pytest.mark.parametrize("bounds", [{"start": NOW + 1}, {"end": NOW - 1}])
def test_outside_its_bounds_a_schedule_has_no_tick_at_once(bounds: dict[str, int]) -> None:
    """There are no fire times before the start and after the end."""
    spec = with_policy(SPEC, run_at_start=True, **bounds)
    assert edits.add(spec, NOW).score == edits.next_score(spec, NOW)


def test_a_new_schedule_that_is_spread_begins_with_the_score_of_its_next_fire_time() -> None:
    spec = with_policy(SPEC, spread=MINUTE)
    edit = edits.add(spec, NOW)
    assert edit.score == spec.score_of(NEXT) > NEXT


# -- changing -----------------------------------------------------------------------------------------------

SAME_TIMES: list[dict[str, Any]] = [
    {"payload": {**EMPTY, "args": [1]}},
    {"actor": "renamed"},
    {"queue": "moved"},
    {"policy": Policy(overlap="skip", catch_up="all", expires=5, max_queue_length=3)},
    {"policy": Policy(enabled=False)},
    {"source": "api"},
]


@pytest.mark.parametrize("change", SAME_TIMES, ids=str)
@pytest.mark.parametrize("score", [NEXT, NOW - 5 * MINUTE, NEVER])
def test_a_change_that_leaves_the_times_alone_keeps_the_cursor(change: dict[str, Any], score: int) -> None:
    before, wanted = stored(SPEC, score), replace(SPEC, **change)
    assert edits.change(before, SPEC, wanted, NOW) == Edit("job", before, wanted.to_json(), score)


OTHER_TIMES: list[dict[str, Any]] = [
    {"timing": EveryTiming(7 * MINUTE)},
    {"timing": EveryTiming(MINUTE, 1)},
    {"timing": cron("*/7 * * * *", tz="UTC").timing},
    {"policy": Policy(spread=1000)},
    {"policy": Policy(start=NOW + 100 * MINUTE)},
    {"policy": Policy(end=NOW + 100 * MINUTE)},
]


@pytest.mark.parametrize("change", OTHER_TIMES, ids=str)
def test_a_change_of_the_times_sets_the_cursor_anew_and_records_what_was_due(change: dict[str, Any]) -> None:
    cursor = NEXT - 5 * MINUTE
    before, wanted = stored(SPEC, cursor), replace(SPEC, **change)
    record = Record("missed", cursor, NEXT - MINUTE, 5, "edited")
    assert edits.change(before, SPEC, wanted, NOW) == Edit(
        "job", before, wanted.to_json(), edits.next_score(wanted, NOW), record
    )


def test_the_last_tick_of_the_old_times_is_not_fired_with_the_new_arguments() -> None:
    wanted = replace(SEVEN, payload={**EMPTY, "args": ["new"]})
    edit = edits.change(stored(SPEC, NOW), SPEC, wanted, NOW)
    assert edit.score > NOW
    assert edit.record == Record("missed", NOW, NOW, 1, "edited")


SPREAD = with_policy(SPEC, spread=MINUTE)
#: The fire time NEXT has come, and its score has not.
WAITING = NEXT + 1


def test_a_change_of_the_spread_records_the_fire_times_that_were_to_be_enqueued() -> None:
    first = NEXT - 5 * MINUTE
    due = [time for time in range(first, NEXT + 1, MINUTE) if SPREAD.score_of(time) <= WAITING]
    edit = edits.change(stored(SPREAD, SPREAD.score_of(first)), SPREAD, with_policy(SPEC, spread=1000), WAITING)
    assert edit.record == Record("missed", first, due[-1], len(due), "edited")


def test_a_tick_that_waits_for_its_part_of_the_spread_is_fired_under_the_new_spread() -> None:
    """With a spread of an hour, a deploy in that hour must not cost the day's report."""
    assert SPREAD.score_of(NEXT) > WAITING
    edit = edits.change(stored(SPREAD, SPREAD.score_of(NEXT)), SPREAD, SPEC, WAITING)
    assert (edit.score, edit.record) == (NEXT, None)


def test_a_tick_that_waits_for_its_part_of_the_spread_and_is_none_of_the_new_times_is_recorded() -> None:
    wanted = replace(SPREAD, timing=EveryTiming(7 * MINUTE, NEXT - MINUTE))
    edit = edits.change(stored(SPREAD, SPREAD.score_of(NEXT)), SPREAD, wanted, WAITING)
    assert edit.record == Record("missed", NEXT, NEXT, 1, "edited")
    assert edit.score == wanted.score_of(NEXT + 6 * MINUTE)


def test_new_times_that_came_before_an_edit_are_not_fired_though_a_tick_of_the_old_ones_waits() -> None:
    """Chaos, seed 42: each 5 s became each second, and seconds from before the edit were fired."""
    wanted = replace(SPEC, timing=EveryTiming(1000))
    now = NEXT + 2500
    assert SPREAD.score_of(NEXT) > now
    edit = edits.change(stored(SPREAD, SPREAD.score_of(NEXT)), SPREAD, wanted, now)
    assert edit.record == Record("missed", NEXT, NEXT, 1, "edited")
    assert edit.score == NEXT + 3000


def test_a_tick_that_waits_for_its_part_of_the_spread_is_fired_if_the_pause_ends_before() -> None:
    paused = replace(SPREAD, paused=Pause(1, "unpaid"))
    edit = edits.resume(stored(paused, paused.score_of(NEXT)), paused, WAITING)
    assert (edit.score, edit.record) == (SPREAD.score_of(NEXT), None)


def test_a_tick_that_waits_for_its_part_of_the_spread_is_recorded_when_its_schedule_is_removed() -> None:
    before = stored(SPREAD, SPREAD.score_of(NEXT))
    assert edits.remove(before, SPREAD, WAITING).record == Record("missed", NEXT, NEXT, 1, "removed")


def test_a_change_keeps_a_pause() -> None:
    paused = replace(SPEC, paused=Pause(1, "unpaid", NOW + MINUTE))
    for wanted in (replace(SPEC, queue="moved"), SEVEN):
        assert written(edits.change(stored(paused), paused, wanted, NOW)).paused == paused.paused


def test_what_was_due_of_a_paused_schedule_is_recorded_as_paused() -> None:
    paused = replace(SPEC, paused=Pause(1, "unpaid"))
    edit = edits.change(stored(paused, NEXT - 5 * MINUTE), paused, SEVEN, NOW)
    assert edit.record == Record("paused", NEXT - 5 * MINUTE, NEXT - MINUTE, 5, "unpaid")


@pytest.mark.parametrize("change", [{}, {"timing": EveryTiming(7 * MINUTE)}], ids=str)
def test_what_came_while_a_schedule_was_disabled_is_recorded_and_not_made_up_for(change: dict[str, Any]) -> None:
    disabled, wanted = with_policy(SPEC, enabled=False), replace(SPEC, **change)
    before = stored(disabled, NEXT - 5 * MINUTE)
    record = Record("disabled", NEXT - 5 * MINUTE, NEXT - MINUTE, 5, "enabled=False")
    assert edits.change(before, disabled, wanted, NOW) == Edit(
        "job", before, wanted.to_json(), edits.next_score(wanted, NOW), record
    )


def test_a_schedule_that_is_enabled_with_nothing_due_keeps_its_cursor() -> None:
    disabled = with_policy(SPEC, enabled=False)
    edit = edits.change(stored(disabled), disabled, SPEC, NOW)
    assert (edit.score, edit.record) == (NEXT, None)


def test_disabling_leaves_what_is_due_to_the_next_pass() -> None:
    edit = edits.change(stored(SPEC, NEXT - 5 * MINUTE), SPEC, with_policy(SPEC, enabled=False), NOW)
    assert (edit.score, edit.record) == (NEXT - 5 * MINUTE, None)


# -- pausing and resuming -----------------------------------------------------------------------------------


def test_a_pause_keeps_the_cursor_and_says_since_when_why_and_until_when() -> None:
    edit = edits.pause(stored(SPEC), SPEC, "unpaid", NOW + MINUTE, NOW)
    assert (edit.score, edit.record) == (NEXT, None)
    assert written(edit) == replace(SPEC, paused=Pause(NOW, "unpaid", NOW + MINUTE))


def test_a_pause_of_a_paused_schedule_takes_the_place_of_the_first() -> None:
    paused = replace(SPEC, paused=Pause(1, "unpaid"))
    assert written(edits.pause(stored(paused), paused, "gone", None, NOW)).paused == Pause(NOW, "gone", None)


def test_a_pause_of_a_schedule_that_has_no_further_fire_time_leaves_it_finished() -> None:
    assert edits.pause(stored(SPEC, NEVER), SPEC, "", None, NOW).score == NEVER


def test_resuming_begins_from_now_and_records_what_came_in_the_pause() -> None:
    paused = replace(SPEC, paused=Pause(1, "unpaid"))
    edit = edits.resume(stored(paused, NEXT - 5 * MINUTE), paused, NOW)
    assert edit.score == NEXT
    assert edit.record == Record("paused", NEXT - 5 * MINUTE, NEXT - MINUTE, 5, "unpaid")
    assert written(edit).paused is None


def test_resuming_with_nothing_due_keeps_the_cursor() -> None:
    paused = replace(SPEC, paused=Pause(1))
    edit = edits.resume(stored(paused), paused, NOW)
    assert (edit.score, edit.record) == (NEXT, None)


def test_resuming_right_after_the_pause_ended_by_itself_keeps_what_is_due_since_then() -> None:
    """It is due because no beat came by yet, and not because of the pause."""
    until = NEXT - 3 * MINUTE
    paused = replace(SPEC, paused=Pause(1, "unpaid", until))
    edit = edits.resume(stored(paused, NEXT - 5 * MINUTE), paused, NOW)
    assert edit.record == Record("paused", NEXT - 5 * MINUTE, until - MINUTE, 2, "unpaid")
    assert edit.score == until


def test_resuming_wakes_no_schedule_that_is_retired() -> None:
    resting = replace(SPEC, retired=Retired(NOW - MINUTE, NEXT), paused=Pause(1))
    edit = edits.resume(stored(resting, NEVER), resting, NOW)
    assert edit.score == NEVER
    assert written(edit).retired == resting.retired


def test_a_pause_wakes_no_retired_schedule_that_lost_its_place() -> None:
    resting = replace(SPEC, retired=Retired(NOW - MINUTE, NEXT))
    assert edits.pause(stored(resting, None), resting, "", None, NOW).score == NEVER


# -- retiring and returning ---------------------------------------------------------------------------------


def test_a_retired_schedule_rests_and_keeps_its_cursor() -> None:
    edit = edits.retire(stored(SPEC, NEXT), SPEC, NOW)
    assert (edit.score, edit.record) == (NEVER, None)
    assert written(edit).retired == Retired(NOW, NEXT)


def test_what_was_due_when_a_schedule_retires_is_recorded_and_not_caught_up() -> None:
    edit = edits.retire(stored(SPEC, NEXT - 5 * MINUTE), SPEC, NOW)
    assert edit.record == Record("missed", NEXT - 5 * MINUTE, NEXT - MINUTE, 5, "retired")
    assert written(edit).retired == Retired(NOW, NEXT)


def test_a_schedule_that_returns_has_its_cursor_and_its_pause_back() -> None:
    resting = replace(SPEC, retired=Retired(NOW - MINUTE, NEXT), paused=Pause(1, "unpaid"))
    edit = edits.return_(stored(resting, NEVER), resting, SPEC, NOW)
    assert (edit.score, edit.record) == (NEXT, None)
    assert written(edit) == replace(SPEC, paused=Pause(1, "unpaid"))


def test_a_schedule_that_was_finished_when_it_retired_returns_finished() -> None:
    ended = with_policy(SPEC, end=NOW - MINUTE)
    resting = replace(ended, retired=Retired(NOW - MINUTE, NEVER))
    edit = edits.return_(stored(resting, NEVER), resting, ended, NOW)
    assert (edit.score, edit.record) == (NEVER, None)


# -- removing -----------------------------------------------------------------------------------------------


def test_removing_records_what_was_due() -> None:
    before = stored(SPEC, NEXT - 5 * MINUTE)
    record = Record("missed", NEXT - 5 * MINUTE, NEXT - MINUTE, 5, "removed")
    assert edits.remove(before, SPEC, NOW) == Edit("job", before, None, record=record)


@pytest.mark.parametrize(("found", "score"), [(None, NEXT - MINUTE), (SPEC, None), (SPEC, NEVER), (SPEC, NEXT)])
def test_removing_what_cannot_be_read_or_was_not_due_records_nothing(found: Spec | None, score: int | None) -> None:
    assert edits.remove(stored(SPEC, score), found, NOW).record is None


# -- a cursor that got lost or cannot be right --------------------------------------------------------------


def test_a_lost_cursor_comes_back_after_what_was_decided_last() -> None:
    assert edits.restore(stored(SPEC, None), SPEC, SPEC, NEXT - 10 * MINUTE, NOW).score == NEXT - 9 * MINUTE


def test_a_lost_cursor_of_a_schedule_that_was_edited_since_comes_back_after_the_edit() -> None:
    for decided in (None, NEXT - 10 * MINUTE):
        edited = stored(SPEC, None, NEXT - 5 * MINUTE)
        assert edits.restore(edited, SPEC, SPEC, decided, NOW).score == NEXT - 4 * MINUTE
    assert edits.restore(stored(SPEC, None, NOW + 1), SPEC, SPEC, None, NOW).score == NEXT


def test_an_evicted_spread_schedule_gets_the_score_of_the_fire_time_after_the_last_decided_one() -> None:
    spec = with_policy(SPEC, spread=MINUTE)
    assert edits.restore(stored(spec, None), spec, spec, NEXT - 10 * MINUTE, NOW).score == spec.score_of(
        NEXT - 9 * MINUTE
    )


def test_a_spec_that_cannot_be_read_is_replaced_and_goes_on_after_what_was_decided_last() -> None:
    edit = edits.restore(stored(SPEC, NEXT), None, SEVEN, NEXT - 10 * MINUTE, NOW)
    assert (edit.score, edit.record) == (SEVEN.next_ms(NEXT - 10 * MINUTE), None)


def test_a_lost_cursor_that_comes_back_with_other_times_fires_none_of_the_old_ones() -> None:
    edit = edits.restore(stored(SPEC, None), SPEC, SEVEN, NEXT - 6 * MINUTE, NOW)
    assert edit.record == Record("missed", NEXT - 5 * MINUTE, NEXT - MINUTE, 5, "edited")
    assert edit.score == edits.next_score(SEVEN, NOW)


def test_a_schedule_that_is_restored_or_healed_stays_paused() -> None:
    paused = replace(SPEC, paused=Pause(1, "unpaid"))
    for edit in (
        edits.restore(stored(paused, None), paused, SPEC, None, NOW),
        edits.restore(stored(paused, None), paused, SEVEN, None, NOW),
        edits.heal(stored(paused, NOW + 3650 * DAY), paused, SPEC, NOW),
    ):
        assert written(edit).paused == paused.paused


MONTHLY = replace(SPEC, timing=cron("0 0 1 * *", tz="UTC").timing)


@pytest.mark.parametrize(
    "spec", [SPEC, replace(SPEC, timing=EveryTiming(DAY)), MONTHLY, with_policy(MONTHLY, spread=DAY)]
)
def test_the_next_fire_time_of_a_schedule_is_never_absurd_however_far_it_is(spec: Spec) -> None:
    assert not edits.is_absurd(spec, edits.next_score(spec, NOW), NOW)
    assert not edits.is_absurd(spec, NEVER, NOW)
    assert not edits.is_absurd(spec, NOW - 40 * DAY, NOW)


def test_a_cursor_with_decided_fire_times_of_more_than_a_day_ahead_is_absurd() -> None:
    assert not edits.is_absurd(SPEC, NOW + DAY, NOW)
    assert edits.is_absurd(SPEC, NEXT + DAY + 2 * MINUTE, NOW)
    after_a_jump = edits.next_score(MONTHLY, NOW + 70 * DAY)
    assert edits.is_absurd(MONTHLY, after_a_jump, NOW)


def test_healing_sets_an_absurd_cursor_to_the_next_fire_time() -> None:
    before = stored(SPEC, NOW + 3650 * DAY)
    assert edits.heal(before, SPEC, SPEC, NOW) == Edit("job", before, SPEC.to_json(), NEXT)


# -- what holds for all -------------------------------------------------------------------------------------

any_spec = st.builds(
    lambda timing, spread, paused: replace(SPEC, timing=timing, policy=Policy(spread=spread), paused=paused),
    st.sampled_from([EveryTiming(MINUTE), EveryTiming(7 * MINUTE), EveryTiming(DAY), MONTHLY.timing]),
    st.none() | st.integers(1, 3 * MINUTE),
    st.none() | st.builds(Pause, st.just(1), st.just("why"), st.none() | st.integers(NOW - DAY, NOW + DAY)),
)


@given(any_spec, any_spec, st.integers(0, 200))
def test_an_edit_of_the_times_leaves_no_fire_time_out_and_repeats_none(found: Spec, wanted: Spec, behind: int) -> None:
    cursor = edits.next_score(found, NOW - behind * MINUTE)
    edit = edits.change(stored(found, cursor), found, wanted, NOW)
    if found.times == wanted.times:
        assert (edit.score, edit.record) == (cursor, None)
        return
    began = wanted.fire_time_of(edit.score)
    assert edit.score > NOW or (began == found.next_ms(began - 1) and found.score_of(began) > NOW)
    if edit.record is None:
        assert cursor > NOW
    else:
        assert edit.record.fire_time == found.fire_time_of(cursor)
        following = found.next_ms(edit.record.fire_time_to)
        assert following is not None
        assert following > NOW or (began == following and found.score_of(following) > NOW)


@given(any_spec, st.integers(0, 200))
def test_neither_pause_nor_resume_catches_anything_up(spec: Spec, behind: int) -> None:
    """What was due while a schedule was paused has no message, whatever its policy."""
    spec = with_policy(replace(spec, paused=None), catch_up="all")
    cursor = edits.next_score(spec, NOW - behind * MINUTE)
    paused = written(edits.pause(stored(spec, cursor), spec, "why", None, NOW - behind * MINUTE))
    resumed = edits.resume(stored(paused, cursor), paused, NOW)
    assert resumed.score > NOW
    moves = decide(written(resumed), resumed.score, resumed.score, Situation())
    assert [move.outcome for move in moves if move.score <= NOW] == []
    assert ENQUEUED in {move.outcome for move in moves}


# -- what is decided stays so ---------------------------------------------------------------------------------


def test_a_schedule_that_is_over_is_not_begun_again_by_the_end_of_a_pause_that_lay_before() -> None:
    """A one-off that fired after its pause had ended by itself: to resume it enqueued it a second time."""
    once = replace(SPEC, timing=at(utc(NEXT)).timing, paused=Pause(1, "a while", NEXT - 5 * MINUTE))
    assert edits.resume(stored(once, NEVER), once, NEXT + MINUTE).score == NEVER


def test_ticks_that_were_decided_after_a_pause_are_not_decided_again_when_it_is_resumed() -> None:
    ended = with_policy(replace(SPEC, paused=Pause(1, "a while", NEXT - 5 * MINUTE)), end=NEXT)
    assert edits.resume(stored(ended, NEVER), ended, NEXT + MINUTE).score == NEVER


# -- the store's clock stepped back, and the cursor does not tell --------------------------------------------


OVER = with_policy(SPEC, end=NOW - DAY)
MONTHLY = replace(SPEC, timing=cron("0 0 1 * *").timing.bind("job", "UTC"))


@pytest.mark.parametrize(("found", "score"), [(OVER, NEVER), (MONTHLY, edits.next_score(MONTHLY, NOW))])
def test_what_was_decided_before_a_schedule_was_over_or_rare_is_not_decided_again(found: Spec, score: int) -> None:
    decided = NEXT + 3 * MINUTE
    assert edits.change(stored(found, score), found, SPEC, NOW, decided).score == decided + MINUTE
    resting = replace(found, retired=Retired(NOW, score))
    assert edits.return_(stored(resting, NEVER), resting, SPEC, NOW, decided).score == decided + MINUTE


@pytest.mark.parametrize("decided", [None, NOW - 5 * MINUTE, NOW + 2 * DAY])
def test_else_its_new_times_begin_now(decided: int | None) -> None:
    """Also where the clock had leapt days ahead: it must not be silent until then."""
    assert edits.change(stored(OVER, NEVER), OVER, SPEC, NOW, decided).score == NEXT
