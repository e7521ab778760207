"""What users call on the retries that wait."""

from __future__ import annotations

from typing import Any

import pytest

from dramatiq_distcron import NotFoundError
from dramatiq_distcron.api.retries import WaitingRetries
from dramatiq_distcron.backends import Backend
from dramatiq_distcron.store.base import Ending, Waiting, WaitingRow
from dramatiq_distcron.store.memory import MemoryStore


class Shifting(MemoryStore):
    """Between two pages, the retries of the first one go back to their queues."""

    def retries(self, limit: int, offset: int = 0) -> list[WaitingRow]:
        found = super().retries(limit, offset)
        for row in found[:1]:
            if len(self.gone) < 2:
                self.gone.append(row.key)
                self.drop_retry(row.key)
        return found

    gone: list[str]


def store_of(kind: type[MemoryStore], count: int) -> Any:
    store: Any = kind(lambda: 1000)
    store.gone = []
    for number in range(count):
        about = {"id": f"m{number}", "actor": "odd" if number % 2 else "even", "queue": "q"}
        store.settle(Ending("", "retrying", goes_on=True, waiting=Waiting(f"k{number}", 10_000 + number, about, b"")))
    return store


def api_of(store: Any) -> WaitingRetries:
    return WaitingRetries(lambda: Backend(store, None, "dramatiq"))  # type: ignore[arg-type]


def test_all_are_made_due_though_the_pages_shift_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dramatiq_distcron.api.retries._PAGE", 2)
    store = store_of(Shifting, 9)
    api_of(store).run_all_now()
    assert [row.due for row in MemoryStore.retries(store, 100)] == [0] * 7


def test_pages_are_walked_to_the_end_and_no_further_than_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dramatiq_distcron.api.retries._PAGE", 2)
    api = api_of(store_of(MemoryStore, 9))
    assert [one.id for one in api.list(actor="odd")] == ["m1", "m3", "m5", "m7"]
    assert [one.id for one in api.list(limit=3)] == ["m0", "m1", "m2"]
    assert api.list(queue="none") == []


def test_one_is_named_by_its_message_or_its_key_and_nothing_else() -> None:
    store = store_of(MemoryStore, 3)
    api = api_of(store)
    api.run_now("m2")
    api.cancel("k1")
    assert [(row.key, row.due) for row in store.retries(10)] == [("k2", 0), ("k0", 11_000)]
    for verb in (api.run_now, api.cancel):
        with pytest.raises(NotFoundError, match="No message 'm1' waits"):
            verb("m1")
