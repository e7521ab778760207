"""Specs are read once for each revision, and none is taken for one it is not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from dramatiq_distcron import known as known_module
from dramatiq_distcron.errors import ScheduleError
from dramatiq_distcron.known import Known, KnownSpecs
from dramatiq_distcron.places import Place
from dramatiq_distcron.schedules import EveryTiming
from dramatiq_distcron.specs import FORMAT, NotForUs, Spec
from dramatiq_distcron.store.base import DueRow, Stored

EMPTY: Mapping[str, Any] = {"args": [], "kwargs": {}, "options": {}}


def spec(name: str, **changes: Any) -> Spec:
    return Spec(name, "actor", "reports", EveryTiming(1000), payload=EMPTY, **changes)


class Shelf:
    """The part of a store that is read from, and what was asked of it."""

    def __init__(self, *names: str) -> None:
        self.asked: list[list[str]] = []
        self.stored: dict[str, Stored] = {}
        for name in names:
            self.put(name, 1)

    def put(self, name: str, revision: int, text: str | None = None) -> None:
        text = json.dumps({"revision": revision, **spec(name).to_json()}) if text is None else text
        self.stored[name] = Stored(name, text, 1000, revision)

    def get(self, names: Iterable[str]) -> dict[str, Stored]:
        self.asked.append(sorted(names))
        return {name: self.stored[name] for name in self.asked[-1] if name in self.stored}


class Kiosk:
    """Places that need not be learned."""

    def of(self, queue: str) -> Place:
        return Place(f"ns:{queue}.msgs", f"ns:{queue}")


@pytest.fixture
def shelf() -> Any:
    return Shelf("a", "b", "c")


@pytest.fixture
def specs(shelf: Any) -> KnownSpecs:
    places: Any = Kiosk()
    return KnownSpecs(shelf, places)


def rows(*names: str, revision: int | str = 1) -> list[DueRow]:
    return [DueRow(name, 1000, revision, "") for name in names]


def spec_of(known: Known) -> Spec:
    assert isinstance(known.spec, Spec), known.spec
    return known.spec


def test_a_spec_is_read_once_and_then_known(shelf: Any, specs: KnownSpecs) -> None:
    first, again = specs.of(rows("a", "b")), specs.of(rows("a", "b"))
    assert shelf.asked == [["a", "b"]]
    assert first == again
    assert {name: spec_of(one) for name, one in first.items()} == {"a": spec("a"), "b": spec("b")}


def test_only_those_that_are_not_known_are_read(shelf: Any, specs: KnownSpecs) -> None:
    specs.of(rows("a"))
    assert set(specs.of(rows("a", "b"))) == {"a", "b"}
    assert shelf.asked == [["a"], ["b"]]


def test_a_new_revision_is_read(shelf: Any, specs: KnownSpecs) -> None:
    specs.of(rows("a"))
    shelf.put("a", 2, json.dumps({"revision": 2, **spec("a").to_json(), "queue": "moved"}))
    assert spec_of(specs.of(rows("a", revision=2))["a"]).queue == "moved"


def test_one_that_was_not_stored_by_us_is_read_each_time(shelf: Any, specs: KnownSpecs) -> None:
    """It has no revision that would tell of a change."""
    for _ in range(3):
        specs.of(rows("a", revision=""))
    assert shelf.asked == [["a"]] * 3


def test_a_cursor_without_a_spec_cannot_be_used(specs: KnownSpecs) -> None:
    found = specs.of(rows("a", "nobody", revision=""))
    assert isinstance(found["nobody"].spec, ScheduleError)
    assert spec_of(found["a"]) == spec("a")


@pytest.mark.parametrize(
    ("text", "kind"),
    [("{rubbish", ScheduleError), ("", ScheduleError), (json.dumps({"format": FORMAT + 1}), NotForUs)],
)
def test_what_cannot_be_used_is_known_by_its_reason(
    shelf: Any, specs: KnownSpecs, text: str, kind: type[ScheduleError]
) -> None:
    shelf.put("bad", 1, text)
    assert isinstance(specs.of(rows("bad"))["bad"].spec, kind)
    specs.of(rows("bad"))
    assert shelf.asked == [["bad"]]


def test_with_a_spec_come_the_beginning_of_its_runs_and_where_its_messages_wait(specs: KnownSpecs) -> None:
    known = specs.of(rows("a"))["a"]
    assert known.waiting == "ns:reports"
    assert json.loads(known.run + "}") == {"schedule": "a", "queue": "reports", "place": "ns:reports.msgs"}


def test_no_more_are_kept_than_is_reasonable(monkeypatch: pytest.MonkeyPatch, specs: KnownSpecs) -> None:
    monkeypatch.setattr(known_module, "_KEPT", 2)
    for name in ("a", "b", "c"):
        specs.of(rows(name))
    assert len(specs._known) == 2


def test_with_more_schedules_than_are_kept_each_is_still_known_when_it_is_due(
    monkeypatch: pytest.MonkeyPatch, shelf: Any, specs: KnownSpecs
) -> None:
    """One that was thrown out for another of the same page was taken for unreadable, and disabled for good."""
    monkeypatch.setattr(known_module, "_KEPT", 2)
    for page in (["a", "b"], ["c"], ["a", "b"], ["b", "c"], ["a", "b", "c"]):
        assert {name: spec_of(one) for name, one in specs.of(rows(*page)).items()} == {
            name: spec(name) for name in page
        }


def test_one_that_was_edited_is_still_known_when_it_is_the_oldest(
    monkeypatch: pytest.MonkeyPatch, shelf: Any, specs: KnownSpecs
) -> None:
    monkeypatch.setattr(known_module, "_KEPT", 2)
    specs.of(rows("a", "b"))
    shelf.put("a", 2)
    found = specs.of([*rows("a", revision=2), *rows("c")])
    assert {name: spec_of(one).name for name, one in found.items()} == {"a": "a", "c": "c"}


def test_the_run_of_a_tick_is_looked_for_on_the_queue_that_its_actor_has_now(shelf: Any) -> None:
    """Its message goes there: on the queue of old it would seem to be gone."""
    places: Any = Kiosk()
    known = KnownSpecs(shelf, places, lambda spec: "moved").of(rows("a"))["a"]
    assert json.loads(known.run + "}") == {"schedule": "a", "queue": "moved", "place": "ns:moved.msgs"}
    assert known.waiting == "ns:moved"
