"""Fire times that are undecided when a schedule is edited, or when a pause ends: each of them has an outcome.

Found by the chaos runs: a tick that is spread to later than the edit, and one that is decided while an edit is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker

from dramatiq_distcron import edits, every, install
from dramatiq_distcron.api.schedules import Schedules
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.policies import Policy
from dramatiq_distcron.schedules import EveryTiming
from dramatiq_distcron.specs import Pause, Spec
from dramatiq_distcron.store.base import NEVER, Edit, Record, Stored
from dramatiq_distcron.store.memory import MemoryStore
from dramatiq_distcron.testing import SettableClock
from dramatiq_distcron.ticks import Situation, decide
from tests.support import queued

MINUTE = 60_000
FIRE_TIME = 10_000 * MINUTE
EMPTY: dict[str, Any] = {"args": [], "kwargs": {}, "options": {}}
SPREAD = Spec("job", "actor", "default", EveryTiming(MINUTE), Policy(spread=50_000), payload=EMPTY)
SCORE = SPREAD.score_of(FIRE_TIME)
#: The fire time has passed, and its tick is spread to later.
BETWEEN = FIRE_TIME + 1


def stored(spec: Spec, score: int) -> Stored:
    return Stored(spec.name, json.dumps({"revision": 7, **spec.to_json()}), score)


OTHER_TIMES = replace(SPREAD, timing=EveryTiming(7 * MINUTE))
MADE: dict[str, tuple[Edit, Record]] = {
    "edited": (
        edits.change(stored(SPREAD, SCORE), SPREAD, OTHER_TIMES, BETWEEN),
        Record("missed", FIRE_TIME, FIRE_TIME, 1, "edited"),
    ),
    "removed": (
        edits.remove(stored(SPREAD, SCORE), SPREAD, BETWEEN),
        Record("missed", FIRE_TIME, FIRE_TIME, 1, "removed"),
    ),
}


@pytest.mark.parametrize(("edit", "record"), MADE.values(), ids=MADE)
def test_a_fire_time_that_is_spread_to_later_than_an_edit_has_an_outcome(edit: Edit, record: Record) -> None:
    assert BETWEEN < SCORE
    assert edit.record == record


def test_a_tick_that_is_spread_to_later_than_the_end_of_a_pause_was_not_paused() -> None:
    """A pause covers the ticks that were to be enqueued in it."""
    spec = replace(SPREAD, paused=Pause(FIRE_TIME - 1, "a pause", FIRE_TIME + 1))
    assert [move.outcome for move in decide(spec, SCORE, SCORE, Situation())] == ["enqueued"]
    edit = edits.resume(stored(replace(spec, paused=Pause(1, "a pause")), SCORE), spec, BETWEEN)
    assert (edit.score, edit.record) == (SCORE, None)


def test_what_came_after_the_end_of_a_pause_was_not_paused_when_an_edit_passes_over_it() -> None:
    plain = replace(SPREAD, policy=Policy(), paused=Pause(FIRE_TIME - MINUTE, "a pause", FIRE_TIME - 1))
    edit = edits.change(stored(plain, FIRE_TIME), plain, replace(plain, timing=EveryTiming(7000)), BETWEEN)
    assert edit.record == Record("missed", FIRE_TIME, FIRE_TIME, 1, "edited")


@pytest.mark.parametrize("cursor", [FIRE_TIME - MINUTE, FIRE_TIME, FIRE_TIME + MINUTE])
def test_a_schedule_whose_pause_is_over_is_resumed_from_the_end_of_the_pause(cursor: int) -> None:
    plain = replace(SPREAD, policy=Policy(), paused=Pause(FIRE_TIME - 2 * MINUTE, "a pause", FIRE_TIME))
    edit = edits.resume(stored(plain, cursor), plain, FIRE_TIME + 2 * MINUTE)
    in_the_pause = Record("paused", cursor, FIRE_TIME - MINUTE, 1, "a pause")
    assert edit.record == (in_the_pause if cursor < FIRE_TIME else None)
    assert edit.score == max(cursor, FIRE_TIME)


# -- with a store -------------------------------------------------------------------------------------------

START = datetime(2026, 3, 1, tzinfo=timezone.utc)


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock(START)


@pytest.fixture
def beat(stub_broker: StubBroker, clock: SettableClock) -> Iterator[Beat]:
    distcron = install(stub_broker)
    dramatiq.actor(lambda: None, actor_name="job", broker=stub_broker)
    store = distcron.open_backend().store
    assert isinstance(store, MemoryStore)
    with store.running_on(clock.now_ms):
        beat = Beat(distcron, clock=clock)
        beat.lease.acquire()
        yield beat


class Busy:
    """A store that is read just after the leader was at it."""

    def __init__(self, store: Any, leader: Callable[[], object]) -> None:
        self._store, self._leader = store, leader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, names: Any) -> Any:
        self._leader()
        return self._store.get(names)


def test_a_tick_that_is_decided_while_an_edit_is_read_is_not_decided_again(
    beat: Beat, stub_broker: StubBroker, clock: SettableClock
) -> None:
    """The last tick of a schedule that ends: its cursor stands at no fire time any more, and tells nothing."""
    distcron = beat._distcron
    distcron.schedules.put(every(10, name="x", end=START + timedelta(seconds=10)), "job")
    store = distcron.open_backend().store

    def lead() -> None:
        clock.set(START + timedelta(seconds=10))
        beat.lease.acquire()
        beat.scheduler.pass_once()

    backend = replace(distcron.open_backend(), store=Busy(store, lead))
    clock.set(START + timedelta(seconds=9))
    Schedules(stub_broker, distcron.settings, lambda: backend).put(every(10, name="x"), "job")
    assert store.get(["x"])["x"].score != NEVER
    lead()
    assert len(queued(stub_broker)) == 1
