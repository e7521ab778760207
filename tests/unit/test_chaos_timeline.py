"""What the chaos runs know of the edits that were done, and of the fire times that had to come."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from dramatiq_distcron.policies import Policy
from dramatiq_distcron.specs import Spec, resolve
from tests.chaos.faults import KINDS, plan
from tests.chaos.population import Wanted, edited, population
from tests.chaos.timeline import Attempt, Pause, Timeline, applied, timeline
from tests.chaos.timetable import Times

SECOND = Wanted("x", "quick", Times("every", 1), source="api")
TWO = replace(SECOND, times=Times("every", 2), version=1)
SPREAD = replace(SECOND, policy={"spread": 1})


def text(revision: int, **spec: Any) -> str:
    return json.dumps({"revision": revision, **spec})


def attempt(now: int, before: str | None, spec: dict[str, Any] | None, answer: str = "ok", **more: Any) -> Attempt:
    wanted = more.pop("wanted", None if spec is None else SECOND)
    return Attempt("x", now, before, more.pop("score", None), spec, answer, wanted)


ADD = attempt(1, None, {"version": 0})
CHANGE = attempt(2, text(1, version=0), {"version": 1})
REMOVE = attempt(3, text(1, version=0), None)


# -- which edits were done ------------------------------------------------------------------------------------


def unanswered(one: Attempt) -> Attempt:
    return replace(one, answer="")


DONE: dict[str, tuple[list[Attempt], str | None, list[Attempt]]] = {
    "answered": ([ADD, CHANGE], text(2, version=1), [ADD, CHANGE]),
    "stale": ([ADD, replace(CHANGE, answer="stale")], text(1, version=0), [ADD]),
    "unanswered and done": ([ADD, unanswered(CHANGE)], text(2, version=1), [ADD, unanswered(CHANGE)]),
    "unanswered and not done": ([ADD, unanswered(CHANGE)], text(1, version=0), [ADD]),
    "unanswered, and the next one found it": (
        [ADD, unanswered(CHANGE), attempt(4, text(2, version=1), {"version": 2})],
        text(3, version=2),
        [ADD, unanswered(CHANGE), attempt(4, text(2, version=1), {"version": 2})],
    ),
    "unanswered, and the next one was done instead": (
        [ADD, unanswered(CHANGE), attempt(4, text(1, version=0), {"version": 2})],
        text(2, version=2),
        [ADD, attempt(4, text(1, version=0), {"version": 2})],
    ),
    "it arrived after the next one was made": (
        [ADD, unanswered(CHANGE), attempt(4, text(1, version=0), {"version": 2}, "stale")],
        text(2, version=1),
        [ADD, unanswered(CHANGE)],
    ),
    "an unanswered removal was done": ([ADD, unanswered(REMOVE)], None, [ADD, unanswered(REMOVE)]),
    "an unanswered removal was not done": ([ADD, unanswered(REMOVE)], text(1, version=0), [ADD]),
    "an unanswered addition was not done": ([unanswered(ADD)], None, []),
    "a pause that was resumed looks as before": (
        [ADD, attempt(5, text(1, version=0), {"paused": 1}), unanswered(attempt(6, text(2, paused=1), {"version": 0}))],
        text(2, paused=1),
        [ADD, attempt(5, text(1, version=0), {"paused": 1})],
    ),
}


@pytest.mark.parametrize(("attempts", "final", "done"), DONE.values(), ids=DONE)
def test_what_is_found_later_tells_which_edits_were_done(
    attempts: list[Attempt], final: str | None, done: list[Attempt]
) -> None:
    assert applied(attempts, final) == done


# -- which fire times had to come -----------------------------------------------------------------------------


def put(now: int, wanted: Wanted | None, score: int | None = None, paused: dict[str, Any] | None = None) -> Attempt:
    return Attempt("x", now, None, score, {"paused": paused}, "ok", wanted)


def lines(*edits: Attempt) -> Timeline:
    return timeline("x", edits, 8000)


def test_fire_times_count_from_the_addition_to_the_removal() -> None:
    assert lines(put(1500, SECOND), put(4500, None, 5000)).fire_times == [2000, 3000, 4000]


def test_an_edit_of_the_times_counts_from_its_instant_on() -> None:
    line = lines(put(1500, SECOND), put(3500, TWO, 4000))
    assert line.fire_times == [2000, 3000, 4000, 6000, 8000]
    assert line.bounds == [3500]


def test_an_edit_that_was_made_before_the_leaders_last_tick_counts_from_after_that() -> None:
    """Its clock was read at 3500, and the cursor was at 6000 already: 4000 and 5000 are decided as they were."""
    assert lines(put(1500, SECOND), put(3500, TWO, 6000)).fire_times == [2000, 3000, 4000, 5000, 6000, 8000]


def test_a_tick_that_is_spread_to_later_than_the_edit_is_one_of_before_it() -> None:
    line = lines(put(1500, SPREAD), put(3500, replace(TWO, policy={"spread": 1}), 3700))
    assert line.fire_times == [2000, 3000, 4000, 6000, 8000]


def test_a_schedule_may_have_an_extra_fire_time_at_its_start() -> None:
    assert lines(put(1500, replace(SECOND, policy={"run_at_start": True}))).fire_times[:2] == [1500, 2000]


def test_a_removal_was_done_at_the_latest_when_the_next_edit_was_made() -> None:
    line = lines(put(1500, SECOND), put(3500, None, 4000), put(4500, SECOND), put(5500, None, 6000))
    assert line.removals == [(3500, 4500), (5500, 8000)]
    within = {span: line.may_be_removed_within(*span) for span in [(1000, 3499), (4000, 4400), (4501, 5499), (1, 9000)]}
    assert list(within.values()) == [False, True, False, True]


def test_a_schedule_of_the_code_counts_from_when_it_was_stored() -> None:
    assert timeline("x", [], 4000, code=(SECOND, 1999)).fire_times == [2000, 3000, 4000]


PAUSE = {"since": 3500, "until": None, "reason": "a"}


def test_a_pause_lasts_until_it_is_resumed() -> None:
    line = lines(put(1500, SECOND), put(3500, SECOND, 4000, PAUSE), put(5500, SECOND, 6000))
    assert line.pauses == [Pause(3999, 6000, "a")]


def test_a_pause_that_was_made_before_the_leaders_last_tick_counts_from_after_that() -> None:
    """Its clock was read at 3500, and the cursor was at 6000 already: 4000 and 5000 were decided without it."""
    line = lines(put(1500, SECOND), put(3500, SECOND, 6000, PAUSE), put(6500, SECOND, 7000))
    assert line.pauses == [Pause(5999, 7000, "a")]


def test_a_pause_outlasts_an_edit_and_ends_with_its_time_or_the_schedule() -> None:
    paused = {**PAUSE, "until": 9000}
    line = lines(
        put(1500, SECOND), put(3500, SECOND, 4000, paused), put(4500, TWO, 5000, paused), put(5500, None, 6000)
    )
    assert line.pauses == [Pause(3999, 5501, "a")]
    assert lines(put(1500, SECOND), put(3500, SECOND, 4000, paused)).pauses == [Pause(3999, 9000, "a")]


# -- arithmetic, and what is drawn ----------------------------------------------------------------------------


def spec_of(wanted: Wanted) -> Spec:
    return resolve(wanted.schedule(), name="x", actor="a", queue="q", tz="UTC", policy=Policy())


def test_the_arithmetic_of_the_checkers_agrees_with_the_schedules() -> None:
    rng = random.Random(1)
    base = 1_800_000_000_000
    for wanted in population(1, 200, base) + [edited(one, rng) for one in population(2, 200, base)]:
        spec, time = spec_of(wanted), base - 1
        for expected in wanted.times.between(base - 1, base + 200_000):
            assert wanted.times.next_after(time) == expected
            assert spec.next_ms(time) == expected
            time = expected


def test_a_population_and_its_faults_are_the_same_for_the_same_seed() -> None:
    assert population(3, 100, 0) == population(3, 100, 0) != population(4, 100, 0)
    assert plan(3, 100, 1, 3, list(KINDS)) == plan(3, 100, 1, 3, list(KINDS)) != plan(4, 100, 1, 3, list(KINDS))


def test_a_small_population_has_every_policy_already() -> None:
    policies = {name for one in population(1, 25, 0) for name in one.policy}
    assert policies == {
        "catch_up", "max_catch_up", "misfire_grace_time", "spread", "overlap", "expires", "max_queue_length", "enabled",
        "run_at_start",
    }  # fmt: skip


def test_a_long_run_has_every_kind_of_fault() -> None:
    assert {fault.kind for fault in plan(1, 600, 1, 3, list(KINDS))} == set(KINDS)
