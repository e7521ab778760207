"""Bugs with dead letters as others have them, and one that we had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dramatiq_distcron.store.base import Ending, Letter, LetterRow, Redrive
from dramatiq_distcron.store.memory import MemoryStore

from .dying import DEATH, DEATH_BY_OUTBOX, DISCARD, REDRIVE
from .planted import Planted, store_here
from .stepped import SteppedStore
from .stepping import Request, ask

__all__ = ["PLANTED_DEATHS", "RedriveAny"]


class _RedriveInSteps(MemoryStore):
    """See ``_take_then_enqueue``."""

    def take(self, id: str) -> tuple[int, Letter] | None:
        return self._state.dead.pop(id, None)

    def enqueue(self, one: Redrive, taken: tuple[int, Letter]) -> str:
        self._state.dead[one.id] = taken
        return self._redrive(one)


def _take_then_enqueue(self: SteppedStore, letters: Sequence[Redrive]) -> list[str]:
    store = store_here()

    def send_back(one: Redrive) -> str:
        taken = ask(Request("take", (one.id,), lambda: store.take(one.id)))
        return ask(Request("enqueue", (one,), lambda: store.enqueue(one, taken))) if taken else "gone"

    return [send_back(one) for one in letters]


class RedriveAny(MemoryStore):
    """Sends back what was ever there, whether it still is or not."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._read: dict[str, tuple[int, Letter]] = {}

    def letters(self, *args: Any) -> list[LetterRow]:
        self._read.update(self._state.dead)
        return super().letters(*args)

    def _redrive(self, one: Redrive) -> str:
        self._state.dead[one.id] = self._read[one.id]
        return super()._redrive(one._replace(alone=""))


class _LetterWithoutAck(MemoryStore):
    """Keeps a letter although the message was not this worker's any more."""

    def settle(self, ending: Ending) -> str:
        answer = super().settle(ending)
        if answer == "lost" and ending.letter is not None:
            self._keep_letter(ending.letter)
        return answer


class _DeathAgain(MemoryStore):
    """Keeps a letter, and tells of it, whenever it is told to."""

    def settle(self, ending: Ending) -> str:
        answer = super().settle(ending)
        if answer == "lost" and ending.letter is not None and ending.message_id not in self._state.runs:
            for call in ending.calls:
                self._carry_out(call, b"")
            self._keep_letter(ending.letter)
        return answer


class _AnyClaimOfTheDead(MemoryStore):
    """As ours was: whose run is over, its ticket is not looked at."""

    def settle(self, ending: Ending) -> str:
        return super().settle(ending if ending.message_id in self._state.runs else replace(ending, claim=""))


def _letter_then_ack(self: SteppedStore, ending: Ending) -> str:
    store = store_here()
    if ending.letter is not None:
        ask(Request("letter", (ending,), lambda: store._keep_letter(ending.letter)))
    return _settled(store, replace(ending, letter=None))


def _die_then_tell(self: SteppedStore, ending: Ending) -> str:
    store = store_here()
    answer = _settled(store, replace(ending, calls=()))
    for call in ending.calls if answer != "lost" else ():
        ask(Request("enqueue", (call,), _carrying_out(store, call)))
    return answer


def _settled(store: Any, ending: Ending) -> str:
    answer: str = ask(Request("settle", (ending,), lambda: store.settle(ending)))
    return answer


def _carrying_out(store: Any, call: Sequence[Any]) -> Callable[[], Any]:
    return lambda: store._carry_out(call, b"")


_SETTLE = "tests.search.stepped.SteppedStore.settle"

PLANTED_DEATHS = [
    Planted(
        "a letter is written before the ack, in a step of its own",
        DEATH,
        "has a letter, and its run is under way",
        0,
        0,
        patches={_SETTLE: _letter_then_ack},
    ),
    Planted(
        "whoever is to be told is told after the death, in a step of its own",
        DEATH,
        "0 messages were made to tell",
        0,
        0,
        patches={_SETTLE: _die_then_tell},
    ),
    Planted(
        "a letter is kept by a worker that lost its message",
        DEATH,
        "is not in one place",
        1,
        0,
        _LetterWithoutAck,
    ),
    Planted("a death is recorded again when it is told again", DEATH, "made to tell of the letter", 1, 0, _DeathAgain),
    Planted(
        "a death whose run is over is recorded again, by an outbox",
        DEATH_BY_OUTBOX,
        "is not in one place",
        1,
        0,
        _AnyClaimOfTheDead,
    ),
    Planted(
        "a letter is taken, and its message is enqueued in a step of its own",
        REDRIVE,
        "is not in one place",
        0,
        0,
        _RedriveInSteps,
        {"tests.search.stepped.SteppedStore.redrive": _take_then_enqueue},
    ),
    Planted(
        "a letter that was read is sent back, there or not", REDRIVE, "messages were made of one", 0, 1, RedriveAny
    ),
    Planted("a letter that was dropped is sent back", DISCARD, "is not in one place", 0, 1, RedriveAny),
]
