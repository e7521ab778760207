"""Bugs with letters that come from elsewhere and letters that go, as others have them, and four that we had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dramatiq_distcron.api.dead_letters import DeadLetterQueue
from dramatiq_distcron.middleware.retention import Retainer, Retention
from dramatiq_distcron.store.base import Graveyard, Letter, LetterRow, Query
from dramatiq_distcron.store.memory import MemoryStore

from .coming import ADOPT, DISCARD_IDS, IMPORT, IMPORT_REDRIVE, PURGE
from .going import AGE, NUMBER, OWN, STORM
from .graves import GraveStore
from .planted import Planted, store_here
from .stepped import SteppedStore
from .stepping import Request, ask

__all__ = ["PLANTED_LETTERS"]

Letters = Sequence[tuple[Letter, int]]


# -- letters that come ------------------------------------------------------------------------------------------------


class _AdoptAny(GraveStore):
    """Keeps what was read, whether it is still there or not."""

    def _adopt(self, keys: Graveyard, letter: Letter, at: int) -> bool:
        was_there = super()._adopt(keys, letter, at)
        self._state.dead[letter.id] = (at, letter)
        return was_there


def _keep_then_take_out(self: SteppedStore, keys: Graveyard, letters: Letters) -> int:
    store = store_here()
    kept: int = ask(Request("put", (letters,), lambda: store.put_letters(letters)))
    ask(Request("adopt", (letters,), lambda: store.adopt(keys, letters)))
    return kept


def _read_in_two(self: SteppedStore, keys: Graveyard, after: int, limit: int) -> list[Any]:
    store = store_here()
    ids = [row[:2] for row in ask(Request("ids", (), lambda: store.graveyard(keys, after, limit)))]

    def data() -> list[Any]:
        return [store.post.dead.get((keys.ids, id), (0, None))[1] for id, _ in ids]

    found = ask(Request("messages", (), data)) if ids else []
    return [(*row, value) for row, value in zip(ids, found, strict=True)]


def _look_then_put(self: SteppedStore, letters: Letters) -> int:
    store = store_here()
    new = [one for one in letters if ask(Request("letter", (), lambda id=one[0].id: store.letter(id))) is None]  # type: ignore[misc]
    ask(Request("put_letters", (new,), lambda: store._state.dead.update({one.id: (at, one) for one, at in new})))
    return len(new)


class _ImportOver(MemoryStore):
    """An import takes the place of what is there."""

    def put_letters(self, letters: Letters) -> int:
        new = sum(letter.id not in self._state.dead for letter, _ in letters)
        self._state.dead.update({letter.id: (self._now(), letter) for letter, _ in letters})
        return new


# -- letters that go --------------------------------------------------------------------------------------------------


def _purge_to_the_newest(self: DeadLetterQueue) -> int:
    wanted = self._until_now({})
    wanted.until = max([wanted.until, *(row.dead_at for row in self._backend().store.letters(Query(), 1))])
    return self._drop(row.id for row in self._walk(wanted))


class _DropAsAsked(MemoryStore):
    """Tells of all it was asked for, and not of those that were there."""

    def drop_letters(self, ids: Sequence[str]) -> int:
        super().drop_letters(ids)
        return len(ids)


def _drop_then_tell(self: Retainer, retention: Retention, indexes: Any, now: int) -> int:
    store = self._store()
    dropped = 0
    while rows := store.letters(Query(indexes, until=now - 3_600_000, oldest_first=True), 2):
        dropped += store.drop_letters([row.id for row in rows])
        self._tell_dropped(rows, "their age")
    return dropped


_tell_dropped = Retainer._tell_dropped


def _whatever_the_hook_does(self: Retainer, rows: list[LetterRow], why: str) -> bool:
    _tell_dropped(self, rows, why)
    return True


def _count_then_read(self: Retainer, retention: Retention, actor: str | None) -> int:
    store, most = self._store(), retention.max_count or 0
    excess = self._count(actor) - most
    rows = store.letters(Query((), oldest_first=True), max(0, excess))
    if not rows or not self._tell_dropped(rows, "their number"):
        return 0
    return store.drop_letters([row.id for row in rows])


def _pass_over_the_rest(self: Retainer, retention: Retention, actor: str | None) -> int:
    store, most, dropped = self._store(), retention.max_count or 0, 0
    oldest = self._oldest(actor)
    while self._count(actor) > most:
        rows = next(oldest, [])
        rows = rows[: max(0, self._count(actor) - most)]
        if not rows or not self._tell_dropped(rows, "their number"):
            break
        dropped += store.drop_letters([row.id for row in rows])
    return dropped


def _count_in_two(self: Retainer, actor: str | None) -> int:
    count = self._store().count_letters
    return count(Query()) - sum(count(Query((("actor", own),))) for own in self._per_actor)


_STORE = "tests.search.stepped.SteppedStore"
_RETAINER = "dramatiq_distcron.middleware.retention.Retainer"

PLANTED_LETTERS = [
    Planted(
        "what Dramatiq gave up is kept, and taken out in a step of its own",
        ADOPT,
        "is not in one place",
        0,
        0,
        GraveStore,
        {f"{_STORE}.adopt": _keep_then_take_out},
    ),
    Planted("what Dramatiq gave up is kept, there or not", ADOPT, "is not in one place", 0, 1, _AdoptAny),
    Planted(
        "what Dramatiq gave up is read in two commands",
        ADOPT,
        "by leave undecoded",
        1,
        0,
        GraveStore,
        {f"{_STORE}.graveyard": _read_in_two},
    ),
    Planted(
        "an import looks what is new, and keeps it in a step of its own",
        IMPORT,
        "people were told of",
        0,
        1,
        patches={f"{_STORE}.put_letters": _look_then_put},
    ),
    Planted("an import takes the place of what is there", IMPORT_REDRIVE, "is not what it was", 0, 0, _ImportOver),
    Planted("a discard tells of letters that were sent back", DISCARD_IDS, "people were told of", 0, 1, _DropAsAsked),
    Planted(
        "who drops all goes on to the newest there was",
        PURGE,
        "which had not said so",
        0,
        1,
        patches={"dramatiq_distcron.api.dead_letters.DeadLetterQueue.purge": _purge_to_the_newest},
    ),
    Planted(
        "letters are dropped, and announced after it",
        AGE,
        "which had not said so",
        0,
        0,
        patches={f"{_RETAINER}._drop_old": _drop_then_tell},
    ),
    Planted(
        "letters are dropped though the hook that saves them failed",
        NUMBER,
        "which had not said so",
        1,
        0,
        patches={f"{_RETAINER}._tell_dropped": _whatever_the_hook_does},
    ),
    Planted(
        "what is too many is counted before it is read",
        NUMBER,
        "neither too old nor too many",
        0,
        1,
        patches={f"{_RETAINER}._drop_many": _count_then_read},
    ),
    Planted(
        "what was read and was not too many yet is passed over",
        STORM,
        "neither too old nor too many",
        0,
        1,
        patches={f"{_RETAINER}._drop_many": _pass_over_the_rest},
    ),
    Planted(
        "those without a limit of their own are counted in two commands",
        OWN,
        "neither too old nor too many",
        0,
        2,
        patches={f"{_RETAINER}._count": _count_in_two},
    ),
]
