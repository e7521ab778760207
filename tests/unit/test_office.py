"""Taking office: what a new leader changes in the store, and what it tells about it."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from dramatiq_distcron.lease import Lease, Progress
from dramatiq_distcron.office import Office
from dramatiq_distcron.reconcile import Plan
from dramatiq_distcron.schedules import EveryTiming
from dramatiq_distcron.specs import FORMAT, Pause, Spec, parse_spec
from dramatiq_distcron.store.base import NEVER, Edit, Guard, Record
from dramatiq_distcron.testing import MemoryStore, SettableClock
from tests.support import FakeClock
from tests.unit.world import BEGIN

MINUTE = 60_000
EMPTY: dict[str, Any] = {"args": [], "kwargs": {}, "options": {}}


def spec(name: str, **changes: Any) -> Spec:
    return replace(Spec(name, "actor", "default", EveryTiming(MINUTE), payload=EMPTY), **changes)


class Town:
    """A store, and offices that are taken in it one after the other."""

    def __init__(self) -> None:
        self.clock = SettableClock(BEGIN)
        self.store = MemoryStore(self.clock.now_ms)
        self.holders = 0

    def office(self, *specs: Spec) -> Office:
        """A leader whose code has ``specs``."""
        self.holders += 1
        lease = Lease(self.store, self.clock, f"holder-{self.holders}", 3000)
        self.store._state.lease = None
        lease.acquire()
        return Office(self.store, lease, {one.name: one for one in specs}, Progress(FakeClock(), 30))

    def take(self, *specs: Spec) -> dict[str, list[str]]:
        made = self.office(*specs).take()
        assert made is not None
        return made.names

    def states(self) -> dict[str, str]:
        found = {one.name: parse_spec(one.spec) for one in self.store.scan()}
        return {name: "retired" if one.retired else "active" for name, one in found.items()}

    def put(self, one: Spec, score: int | None = None) -> None:
        before = self.store.get([one.name]).get(one.name)
        edit = Edit(one.name, before, one.to_json(), self.clock.now_ms() + MINUTE if score is None else score)
        assert self.store.edit(Guard("", 0, self.clock.now_ms()), [edit]) == ["ok"]


@pytest.fixture
def town(caplog: pytest.LogCaptureFixture) -> Town:
    caplog.set_level(logging.INFO)
    return Town()


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


# -- what it changes ----------------------------------------------------------------------------------------


def test_the_first_leader_adds_the_schedules_of_its_code_and_the_second_finds_them(town: Town) -> None:
    assert town.take(spec("a"), spec("b")) == {"added": ["a", "b"]}
    assert town.take(spec("a"), spec("b")) == {}


def test_more_schedules_than_one_batch_are_stored_as_well(town: Town) -> None:
    town.take(*(spec(f"job-{n}") for n in range(250)))
    assert town.store.count() == 250


def test_one_without_the_lease_changes_nothing_and_knows_it(town: Town) -> None:
    office = town.office(spec("a"))
    town.store._state.lease = "somebody else"
    assert office.take() is None
    assert not office._lease.trusted
    assert town.store.count() == 0


def test_an_edit_between_its_reading_and_its_writing_is_read_again(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    town.take(spec("a"))
    edit = town.store.edit

    def after_another(*args: Any) -> Any:
        monkeypatch.setattr(town.store, "edit", edit)
        town.put(replace(parse_spec(town.store.get(["a"])["a"].spec), paused=Pause(1, "unpaid")))
        return edit(*args)

    office = town.office(spec("a", queue="moved"))
    monkeypatch.setattr(town.store, "edit", after_another)
    assert office.take() is not None
    stored = parse_spec(town.store.get(["a"])["a"].spec)
    assert (stored.queue, stored.paused) == ("moved", Pause(1, "unpaid"))


def test_an_edit_that_never_fits_is_told_and_does_not_keep_it_from_taking_office(
    town: Town, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    office = town.office(spec("a"))
    monkeypatch.setattr(town.store, "edit", lambda guard, edits: ["stale" for _ in edits])
    assert office.take() is not None
    assert errors(caplog) == ["Schedule 'a' could not be stored: stale"]


def test_a_lost_cursor_comes_back_after_what_was_decided_last(town: Town) -> None:
    town.take(spec("a"))
    begin = town.clock.now_ms()
    stored = town.store.get(["a"])["a"]
    record = Record("missed", begin + MINUTE, begin + 3 * MINUTE, 3, "edited")
    town.store.edit(Guard("", 0, begin), [Edit("a", stored, spec("a").to_json(), 0, record)])
    town.store._state.due.clear()
    town.clock.advance(3600)
    assert town.take(spec("a")) == {"restored": ["a"]}
    assert town.store.get(["a"])["a"].score == begin + 4 * MINUTE


# -- what it tells ------------------------------------------------------------------------------------------


def test_what_was_done_is_told_by_name(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    town.take(spec("b"), spec("a"), spec("c"))
    town.take(spec("a", queue="moved"), spec("b"), spec("c"))
    told = [record.getMessage() for record in caplog.records if "Schedules" in record.getMessage()]
    assert told == ["Schedules added: a, b, c", "Schedules changed: a"]


def test_of_many_names_ten_are_told_and_how_many_more_there_are(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    town.take(*(spec(f"job-{n:02}") for n in range(13)))
    assert "Schedules added: job-00, job-01" in caplog.text
    assert "job-09 and 3 more" in caplog.text
    assert "job-10" not in caplog.text


@pytest.mark.parametrize(
    ("known", "kept", "loud"), [(4, 4, False), (4, 3, False), (4, 2, False), (4, 1, True), (1, 0, True), (5, 2, True)]
)
def test_more_than_half_of_the_schedules_retired_at_once_is_an_error_with_a_question(
    town: Town, caplog: pytest.LogCaptureFixture, known: int, kept: int, loud: bool
) -> None:
    """Probably a module that was not imported, or two code bases under one name."""
    town.take(*(spec(f"job-{n}") for n in range(known)))
    town.take(*(spec(f"job-{n}") for n in range(kept)), spec("of this code"))
    assert bool(errors(caplog)) == loud
    if loud:
        (error,) = errors(caplog)
        assert error.startswith(f"{known - kept} of the {known} schedules defined in code are retired at once")
        assert "Is a module not imported" in error


def test_schedules_that_came_by_the_api_do_not_count_for_that(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    town.take(spec("a"), spec("b"))
    for number in range(10):
        town.put(spec(f"report:{number}", source="api"))
    town.take(spec("c"))
    assert [error.partition(" schedules")[0] for error in errors(caplog)] == ["2 of the 2"]


def test_nor_do_those_that_are_retired_already(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    town.take(*(spec(f"job-{n}") for n in range(4)))
    town.take(spec("job-0"), spec("job-1"))
    caplog.clear()
    town.take(spec("job-0"))
    assert errors(caplog) == []


def test_a_leader_whose_code_has_no_schedule_at_all_retires_none(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    town.take(spec("a"), spec("b"))
    assert town.take() == {}
    assert town.states() == {"a": "active", "b": "active"}


def test_two_versions_that_take_turns_keep_the_schedules_of_both(town: Town) -> None:
    for _ in range(3):
        town.take(spec("a"), spec("old"))
        assert town.states() == {"a": "active", "old": "active"} | ({"new": "retired"} if town.holders > 1 else {})
        town.take(spec("a"), spec("new"))
        assert town.states() == {"a": "active", "old": "retired", "new": "active"}


def test_a_cursor_that_was_healed_is_an_error_with_the_reason(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    town.take(spec("a"))
    town.store._state.due["a"] = town.clock.now_ms() + 3650 * 86_400_000
    assert town.take(spec("a")) == {"healed": ["a"]}
    (error,) = errors(caplog)
    assert "its cursor was more than a day ahead, because the store's clock had jumped forward" in error


def test_a_spec_of_a_newer_version_is_left_alone_and_told(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    town.store._state.schedules["newer"] = text = json.dumps({"revision": 1, "format": FORMAT + 1})
    town.store._state.due["newer"] = NEVER
    town.take(spec("a"))
    assert "Schedules left alone: newer" in caplog.text
    assert town.store.get(["newer"])["newer"].spec == text


# -- a store that was emptied -------------------------------------------------------------------------------


def flush(town: Town) -> None:
    town.store._state = type(town.store._state)()
    town.clock.advance(1)


def test_a_leader_that_knew_of_schedules_by_the_api_tells_that_they_are_lost(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    office = town.office(spec("a"))
    office.take()
    for number in range(3):
        town.put(spec(f"report:{number}", source="api"))
    office.look()
    flush(town)
    office._lease.acquire()
    assert office.take() is not None
    assert town.states() == {"a": "active"}
    assert errors(caplog) == [
        "The store was emptied: 3 schedules that came by the API are lost, with all cursors and history. "
        "The app must put them again."
    ]
    ((_, notice),) = town.store.notices()
    assert notice.startswith("The store was emptied: 3 schedules")


def test_that_cursors_and_history_are_lost_is_told_also_if_all_schedules_are_the_codes(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    office = town.office(spec("a"))
    office.take()
    office.look()
    flush(town)
    office._lease.acquire()
    office.take()
    assert town.states() == {"a": "active"}
    assert errors(caplog) == ["The store was emptied: all cursors and history are lost."]
    assert len(town.store.notices()) == 1


def test_a_store_that_is_new_is_filled_without_a_word(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    office = town.office(spec("a"))
    office.look()
    office.take()
    assert errors(caplog) == []
    assert town.store.notices() == []


def test_the_loss_is_told_once(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    office = town.office(spec("a"))
    town.put(spec("report:1", source="api"))
    office.take()
    office.look()
    flush(town)
    office._lease.acquire()
    office.take()
    office.take()
    assert len(errors(caplog)) == 1


def test_a_loss_is_not_forgotten_if_it_could_not_be_mended(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    office = town.office(spec("a"))
    office.damaged = True
    for away in (lambda: 1 / 0, lambda: None):
        monkeypatch.setattr(office, "_reconcile", lambda away=away: (Plan(), away()))
        with suppress(ZeroDivisionError):
            assert office.take() is None
        assert office.damaged
    monkeypatch.undo()
    office._lease.acquire()
    assert office.take() is not None
    assert not office.damaged
