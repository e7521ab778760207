"""The plan by which a leader makes the stored schedules agree with its code: every branch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramatiq_distcron import at, cron
from dramatiq_distcron.durations import utc
from dramatiq_distcron.policies import Policy
from dramatiq_distcron.reconcile import RETIREMENT, Plan, plan
from dramatiq_distcron.schedules import EveryTiming
from dramatiq_distcron.specs import FORMAT, Pause, Retired, Spec, parse_spec
from dramatiq_distcron.store.base import NEVER, Edit, Record, Stored

MINUTE = 60_000
NOW = 10_000 * MINUTE + 1
NEXT = 10_001 * MINUTE
EMPTY: Mapping[str, Any] = {"args": [], "kwargs": {}, "options": {}}

SPEC = Spec("job", "actor", "default", EveryTiming(MINUTE), payload=EMPTY)
OTHER = replace(SPEC, name="other")


def stored(spec: Spec, score: int | None = NEXT, revision: int = 7) -> Stored:
    return Stored(spec.name, json.dumps({"revision": revision, **spec.to_json()}, separators=(",", ":")), score)


def planned(code: list[Spec], there: list[Stored], now: int = NOW, decided: Mapping[str, int] | None = None) -> Plan:
    known = decided or {}
    return plan(
        {spec.name: spec for spec in code},
        there,
        now,
        lambda names: {name: known[name] for name in names if name in known},
    )


def only_edit(made: Plan) -> Edit:
    (edit,) = made.edits
    return edit


def told(made: Plan) -> dict[str, list[str]]:
    """What the plan has to tell, without what is empty."""
    return {word: names for word, names in made.names.items() if names}


def written(edit: Edit) -> Spec:
    return parse_spec(json.dumps({"revision": 8, **(edit.spec or {})}))


# -- what the code knows ------------------------------------------------------------------------------------


def test_a_new_schedule_is_added_with_its_next_fire_time() -> None:
    made = planned([SPEC], [])
    assert told(made) == {"added": ["job"]}
    assert only_edit(made) == Edit("job", None, SPEC.to_json(), NEXT, None)


def test_a_new_schedule_that_never_fires_is_added_without_a_fire_time() -> None:
    never = replace(SPEC, timing=cron("0 0 1 1 *", tz="UTC").timing)
    last_instant = 253_402_300_799_000
    assert only_edit(planned([never], [], now=last_instant)).score == NEVER


def test_a_schedule_that_is_the_same_is_left_as_it_is() -> None:
    made = planned([SPEC], [stored(SPEC)])
    assert (told(made), made.edits) == ({}, [])


def test_a_schedule_that_is_due_and_the_same_is_left_to_the_pass() -> None:
    assert planned([SPEC], [stored(SPEC, NOW - 5 * MINUTE)]).edits == []


def test_a_finished_schedule_that_is_the_same_stays_finished() -> None:
    assert planned([SPEC], [stored(SPEC, NEVER)]).edits == []


@pytest.mark.parametrize(
    "change",
    [
        {"payload": {**EMPTY, "args": [1]}},
        {"policy": Policy(catch_up="all")},
        {"actor": "renamed"},
        {"queue": "moved"},
    ],
    ids=str,
)
@pytest.mark.parametrize("score", [NEXT, NOW - 5 * MINUTE, NEVER])
def test_a_change_that_leaves_the_times_alone_keeps_the_cursor(change: dict[str, Any], score: int) -> None:
    before, wanted = stored(SPEC, score), replace(SPEC, **change)
    made = planned([wanted], [before])
    assert told(made) == {"changed": ["job"]}
    assert only_edit(made) == Edit("job", before, wanted.to_json(), score, None)


def test_a_change_of_the_times_sets_the_cursor_anew() -> None:
    before, wanted = stored(SPEC), replace(SPEC, timing=EveryTiming(7 * MINUTE))
    made = planned([wanted], [before])
    assert told(made) == {"changed": ["job"]}
    assert only_edit(made) == Edit("job", before, wanted.to_json(), wanted.timing.next_ms(NOW) or 0, None)


def test_what_was_due_under_the_old_times_is_recorded_with_the_change() -> None:
    cursor = NEXT - 5 * MINUTE
    edit = only_edit(planned([replace(SPEC, timing=EveryTiming(7 * MINUTE))], [stored(SPEC, cursor)]))
    assert edit.record == Record("missed", cursor, NEXT - MINUTE, 5, "edited")


def test_a_finished_schedule_with_new_times_begins_again() -> None:
    wanted = replace(SPEC, timing=EveryTiming(7 * MINUTE))
    edit = only_edit(planned([wanted], [stored(SPEC, NEVER)]))
    assert (edit.score, edit.record) == (wanted.timing.next_ms(NOW), None)


def test_a_change_of_times_that_leads_to_none_leaves_the_schedule_finished() -> None:
    class Past(EveryTiming):
        def next_ms(self, after: int) -> int | None:
            return None

    edit = only_edit(planned([replace(SPEC, timing=Past(1000))], [stored(SPEC)]))
    assert edit.score == NEVER


# -- the store's clock stepped back -------------------------------------------------------------------------


def test_after_a_step_back_of_the_clock_new_times_do_not_repeat_what_is_decided() -> None:
    """Everything before the cursor is decided, also if the clock says that it is still to come."""
    cursor = NOW + 60 * MINUTE
    wanted = replace(SPEC, timing=EveryTiming(7 * MINUTE))
    edit = only_edit(planned([wanted], [stored(SPEC, cursor)]))
    assert edit.score >= cursor
    assert edit.score == wanted.timing.next_ms(cursor - 1)
    assert edit.record is None


def test_a_cursor_that_is_ahead_by_its_own_interval_is_no_step_of_the_clock() -> None:
    daily = replace(SPEC, timing=EveryTiming(1440 * MINUTE))
    cursor = daily.timing.next_ms(NOW)
    edit = only_edit(planned([SPEC], [stored(daily, cursor)]))
    assert edit.score == NEXT


def test_after_a_step_back_of_the_clock_a_schedule_that_returns_does_not_repeat_what_is_decided() -> None:
    cursor = NOW + 60 * MINUTE
    resting = replace(SPEC, retired=Retired(NOW - MINUTE, cursor))
    edit = only_edit(planned([SPEC], [stored(resting, NEVER)]))
    assert edit.score >= cursor


def test_after_a_step_back_of_the_clock_a_lost_cursor_does_not_repeat_what_is_decided() -> None:
    decided = NOW + 60 * MINUTE - 1
    edit = only_edit(planned([SPEC], [stored(SPEC, None)], decided={"job": decided}))
    assert edit.score > decided


def test_after_a_step_back_of_the_clock_the_times_of_a_version_that_had_none_to_come_repeat_nothing() -> None:
    """A deploy there and back, while the clock is behind: the cursor in between says nothing of what is decided."""
    over = replace(SPEC, timing=at(utc(NOW - 1000)).timing)
    decided = NOW + 60 * MINUTE - 1
    made = planned([SPEC], [stored(over, NEVER)], decided={"job": decided})
    assert told(made) == {"changed": ["job"]}
    assert only_edit(made).score == decided + MINUTE


# -- what the code does not know ----------------------------------------------------------------------------


def test_a_schedule_the_code_does_not_know_is_retired_and_remembers_its_cursor() -> None:
    before = stored(OTHER, NEXT)
    made = planned([SPEC], [stored(SPEC), before])
    assert told(made) == {"retired": ["other"]}
    edit = only_edit(made)
    assert (edit.before, edit.score, edit.record) == (before, NEVER, None)
    assert written(edit) == replace(OTHER, retired=Retired(NOW, NEXT))


def test_what_was_due_when_a_schedule_is_retired_is_recorded() -> None:
    edit = only_edit(planned([SPEC], [stored(SPEC), stored(OTHER, NEXT - 5 * MINUTE)]))
    assert edit.record == Record("missed", NEXT - 5 * MINUTE, NEXT - MINUTE, 5, "retired")
    assert written(edit).retired == Retired(NOW, NEXT)


def test_a_retired_schedule_whose_cursor_got_lost_remembers_its_next_fire_time() -> None:
    edit = only_edit(planned([SPEC], [stored(SPEC), stored(OTHER, None)]))
    assert written(edit).retired == Retired(NOW, NEXT)
    assert edit.score == NEVER


@pytest.mark.parametrize("age", [0, 1, RETIREMENT])
def test_a_retired_schedule_rests_for_a_day(age: int) -> None:
    resting = replace(OTHER, retired=Retired(NOW - age, NEXT))
    made = planned([SPEC], [stored(SPEC), stored(resting, NEVER)])
    assert (told(made), made.edits) == ({}, [])


def test_after_a_day_a_retired_schedule_is_removed_and_what_passed_is_recorded() -> None:
    cursor = NEXT - 2000 * MINUTE
    before = stored(replace(OTHER, retired=Retired(NOW - RETIREMENT - 1, cursor)), NEVER)
    made = planned([SPEC], [stored(SPEC), before])
    assert told(made) == {"removed": ["other"]}
    assert only_edit(made) == Edit(
        "other", before, None, NEVER, Record("missed", cursor, NEXT - MINUTE, 2000, "retired")
    )


def test_a_finished_schedule_is_removed_without_a_record() -> None:
    before = stored(replace(OTHER, retired=Retired(NOW - RETIREMENT - 1, NEVER)), NEVER)
    assert only_edit(planned([SPEC], [stored(SPEC), before])).record is None


def test_a_retired_schedule_that_lost_its_cursor_does_not_wake_up() -> None:
    """It may be shown again, but it must not fire: the code does not know it."""
    resting = replace(OTHER, retired=Retired(NOW - MINUTE, NEXT))
    made = planned([SPEC], [stored(SPEC), stored(resting, None)])
    assert all(edit.score == NEVER for edit in made.edits)


def test_a_schedule_returns_with_a_record_of_what_passed_while_it_was_retired() -> None:
    cursor = NEXT - 5 * MINUTE
    before = stored(replace(SPEC, retired=Retired(NOW - 6 * MINUTE, cursor)), NEVER)
    made = planned([SPEC], [before])
    assert told(made) == {"returned": ["job"]}
    record = Record("missed", cursor, NEXT - MINUTE, 5, "retired")
    assert only_edit(made) == Edit("job", before, SPEC.to_json(), NEXT, record)
    assert written(only_edit(made)).retired is None


def test_a_schedule_returns_whole_if_no_fire_time_passed_meanwhile() -> None:
    resting = replace(SPEC, retired=Retired(NOW, NEXT))
    edit = only_edit(planned([SPEC], [stored(resting, NEVER)]))
    assert (edit.score, edit.record) == (NEXT, None)


def test_a_schedule_may_return_with_other_times() -> None:
    wanted = replace(SPEC, timing=EveryTiming(7 * MINUTE))
    resting = replace(SPEC, retired=Retired(NOW - 6 * MINUTE, NEXT - 5 * MINUTE))
    edit = only_edit(planned([wanted], [stored(resting, NEVER)]))
    assert edit.score == wanted.timing.next_ms(NOW)
    assert edit.record == Record("missed", NEXT - 5 * MINUTE, NEXT - MINUTE, 5, "retired")


@pytest.mark.parametrize("score", [NEXT, NOW - 5 * MINUTE, NEVER])
def test_a_leader_that_knows_no_schedule_retires_nothing(score: int) -> None:
    """A module that was not imported is no order to stop everything."""
    assert planned([], [stored(SPEC, score), stored(OTHER, score)]).edits == []


def test_a_leader_that_knows_no_schedule_still_gives_back_a_lost_cursor() -> None:
    made = planned([], [stored(SPEC, None, NOW)])
    assert told(made) == {"restored": ["job"]}
    assert only_edit(made).score == NEXT


# -- schedules that came by the API -------------------------------------------------------------------------

BY_API = replace(OTHER, source="api")


@pytest.mark.parametrize("score", [NEXT, NOW - 5 * MINUTE, NEVER])
def test_a_schedule_that_came_by_the_api_is_not_touched(score: int) -> None:
    assert planned([SPEC], [stored(SPEC), stored(BY_API, score)]).edits == []


def test_a_schedule_that_came_by_the_api_is_not_even_parsed() -> None:
    """There may be 100,000 of them."""
    head = stored(BY_API).spec.partition('"source":"api",')
    unreadable = Stored("other", head[0] + head[1] + "rubbish", NEXT)
    assert planned([SPEC], [stored(SPEC), unreadable]).edits == []


def test_a_schedule_that_came_by_the_api_gets_a_lost_cursor_back() -> None:
    before = stored(BY_API, None)
    made = planned([SPEC], [stored(SPEC), before], decided={"other": NEXT - 5 * MINUTE})
    assert told(made) == {"restored": ["other"]}
    assert only_edit(made) == Edit("other", before, BY_API.to_json(), NEXT - 4 * MINUTE)


def test_the_code_takes_over_a_name_that_came_by_the_api() -> None:
    before = stored(replace(SPEC, source="api"), NOW - 5 * MINUTE)
    made = planned([SPEC], [before])
    assert told(made) == {"changed": ["job"]}
    assert only_edit(made) == Edit("job", before, SPEC.to_json(), NOW - 5 * MINUTE)


# -- what got lost or cannot be read ------------------------------------------------------------------------


def test_a_lost_cursor_comes_back_after_what_was_decided_last() -> None:
    """What was due in between is caught up, by the schedule's policy."""
    before = stored(SPEC, None)
    made = planned([SPEC], [before], decided={"job": NEXT - 10 * MINUTE})
    assert told(made) == {"restored": ["job"]}
    assert only_edit(made) == Edit("job", before, SPEC.to_json(), NEXT - 9 * MINUTE)


def test_a_lost_cursor_of_a_schedule_that_never_fired_begins_when_it_was_stored() -> None:
    assert only_edit(planned([SPEC], [stored(SPEC, None, NOW)])).score == NEXT


def test_a_lost_cursor_of_a_changed_schedule_comes_back_with_the_change() -> None:
    wanted = replace(SPEC, payload={**EMPTY, "args": [1]})
    made = planned([wanted], [stored(SPEC, None)], decided={"job": NEXT - 10 * MINUTE})
    assert told(made) == {"restored": ["job"]}
    assert written(only_edit(made)).payload["args"] == [1]


@pytest.mark.parametrize("code", [[SPEC], [replace(SPEC, queue="moved")], [replace(SPEC, timing=EveryTiming(7000))]])
def test_a_lost_cursor_does_not_end_a_pause(code: list[Spec]) -> None:
    paused = replace(SPEC, paused=Pause(1, "unpaid"))
    assert written(only_edit(planned(code, [stored(paused, None)]))).paused == paused.paused


def test_a_retired_schedule_whose_place_got_lost_returns_with_the_cursor_it_remembers() -> None:
    """What passed while it was retired is recorded, and not caught up."""
    cursor = NEXT - 5 * MINUTE
    before = stored(replace(SPEC, retired=Retired(NOW - 6 * MINUTE, cursor)), None)
    made = planned([SPEC], [before], decided={"job": NEXT - 10 * MINUTE})
    assert told(made) == {"returned": ["job"]}
    assert only_edit(made).record == Record("missed", cursor, NEXT - MINUTE, 5, "retired")


# -- the store's clock jumped forward -----------------------------------------------------------------------

FAR_AHEAD = NOW + 3650 * RETIREMENT


@pytest.mark.parametrize("code", [[SPEC], []], ids=["code", "no code"])
def test_a_cursor_that_is_absurdly_far_ahead_is_healed(code: list[Spec]) -> None:
    before = stored(SPEC, FAR_AHEAD)
    made = planned(code, [before])
    assert told(made) == {"healed": ["job"]}
    assert only_edit(made) == Edit("job", before, SPEC.to_json(), NEXT)


def test_also_one_that_came_by_the_api_is_healed() -> None:
    assert told(planned([SPEC], [stored(SPEC), stored(BY_API, FAR_AHEAD)])) == {"healed": ["other"]}


def test_a_schedule_that_is_healed_stays_paused_and_has_the_codes_form() -> None:
    paused, wanted = replace(SPEC, paused=Pause(1, "unpaid")), replace(SPEC, queue="moved")
    edit = only_edit(planned([wanted], [stored(paused, FAR_AHEAD)]))
    assert written(edit) == replace(wanted, paused=paused.paused)


def test_a_schedule_whose_next_fire_time_is_far_ahead_is_left_as_it_is() -> None:
    monthly = replace(SPEC, timing=cron("0 0 1 * *", tz="UTC").timing)
    assert planned([monthly], [stored(monthly, monthly.next_ms(NOW))]).edits == []


# -- two versions that take turns ---------------------------------------------------------------------------


def test_two_versions_that_take_turns_lose_no_fire_time_and_repeat_none() -> None:
    """A rolling deploy in which the lease goes back and forth: each retires what only the other knows."""
    added = replace(SPEC, name="added")
    old, new = [SPEC, OTHER], [SPEC, added]
    there: list[Stored] = []
    records: dict[str, list[Record]] = {}
    for turn in range(6):
        now = NOW + 2 * turn * MINUTE
        made = planned(new if turn % 2 else old, there, now)
        for edit in made.edits:
            records.setdefault(edit.name, []).extend([edit.record] if edit.record else [])
        there = carried_out(made, there)
    assert {name: [(r.fire_time, r.count) for r in found] for name, found in records.items()} == {
        "job": [],
        "other": [(NEXT + turn * MINUTE, 2) for turn in (0, 2, 4, 6, 8)],
        "added": [(NEXT + turn * MINUTE, 2) for turn in (2, 4, 6, 8)],
    }


RUBBISH = ["", "{rubbish", "null", '{"revision":1,"format":1}', "[" * 100_000]


@pytest.mark.parametrize("text", RUBBISH, ids=["empty", "cut off", "null", "no fields", "deeply nested"])
def test_a_spec_that_cannot_be_read_is_overwritten_by_the_code(text: str) -> None:
    before = Stored("job", text, NEXT)
    made = planned([SPEC], [before], decided={"job": NEXT - 10 * MINUTE})
    assert told(made) == {"restored": ["job"]}
    assert only_edit(made) == Edit("job", before, SPEC.to_json(), NEXT - 9 * MINUTE)


@pytest.mark.parametrize("text", RUBBISH, ids=["empty", "cut off", "null", "no fields", "deeply nested"])
def test_a_spec_that_cannot_be_read_and_is_not_in_the_code_is_left_to_the_pass(text: str) -> None:
    assert planned([SPEC], [stored(SPEC), Stored("other", text, NEXT)]).edits == []


@pytest.mark.parametrize("name", ["job", "other"])
@pytest.mark.parametrize("score", [NEXT, None])
def test_a_spec_of_a_newer_version_is_left_alone(name: str, score: int | None) -> None:
    newer = Stored(name, json.dumps({"revision": 9, "format": FORMAT + 1}), score)
    there = [newer] if name == "job" else [stored(SPEC), newer]
    made = planned([SPEC], there)
    assert told(made) == {"left alone": [name]}
    assert made.edits == []


# -- what holds for all -------------------------------------------------------------------------------------

any_timing = st.builds(EveryTiming, st.sampled_from([MINUTE, 7 * MINUTE, 1440 * MINUTE]))
any_spec = st.builds(
    lambda name, timing, source, retired, paused: Spec(
        name, "actor", "default", timing, payload=EMPTY, source=source, retired=retired, paused=paused
    ),
    st.sampled_from("abcdef"),
    any_timing,
    st.sampled_from(["code", "api"]),
    st.none() | st.builds(Retired, st.integers(NOW - 2 * RETIREMENT, NOW), st.just(NEXT - 3 * MINUTE)),
    st.none() | st.builds(Pause, st.just(1), st.just("why")),
)
any_score = st.none() | st.just(NEVER) | st.integers(-10, 10).map(lambda n: NEXT + n * MINUTE) | st.just(FAR_AHEAD)
any_stored = st.lists(st.tuples(any_spec, any_score), unique_by=lambda pair: pair[0].name)
any_code = st.lists(
    any_spec.map(lambda spec: replace(spec, source="code", retired=None, paused=None)), unique_by=lambda s: s.name
)


def carried_out(made: Plan, there: list[Stored]) -> list[Stored]:
    """What is stored after the plan."""
    after = {one.name: one for one in there}
    for edit in made.edits:
        after.pop(edit.name, None)
        if edit.spec is not None:
            text = json.dumps({"revision": 8, **edit.spec}, separators=(",", ":"))
            after[edit.name] = Stored(edit.name, text, edit.score)
    return list(after.values())


@given(any_code, any_stored)
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(
    code: list[Spec], pairs: list[tuple[Spec, int | None]]
) -> None:
    there = [stored(spec, score) for spec, score in pairs]
    after = carried_out(planned(code, there), there)
    assert planned(code, after).edits == []


@given(any_code, any_stored)
def test_after_a_plan_the_code_is_stored_and_every_schedule_has_a_cursor(
    code: list[Spec], pairs: list[tuple[Spec, int | None]]
) -> None:
    there = [stored(spec, score) for spec, score in pairs]
    after = {one.name: one for one in carried_out(planned(code, there), there)}
    for spec in code:
        found = parse_spec(after[spec.name].spec)
        assert (found.fingerprint, found.retired) == (spec.fingerprint, None)
    assert all(one.score is not None for one in after.values())


@given(any_code, any_stored)
def test_a_plan_ends_no_pause(code: list[Spec], pairs: list[tuple[Spec, int | None]]) -> None:
    there = [stored(spec, score) for spec, score in pairs]
    after = {one.name: parse_spec(one.spec).paused for one in carried_out(planned(code, there), there)}
    assert all(after[spec.name] == spec.paused for spec, _ in pairs if spec.name in after)


@given(any_code, any_stored)
def test_a_plan_edits_a_schedule_once_and_on_what_was_read(
    code: list[Spec], pairs: list[tuple[Spec, int | None]]
) -> None:
    there = {spec.name: stored(spec, score) for spec, score in pairs}
    edits = planned(code, list(there.values())).edits
    assert len({edit.name for edit in edits}) == len(edits)
    assert all(edit.before == there.get(edit.name) for edit in edits)
