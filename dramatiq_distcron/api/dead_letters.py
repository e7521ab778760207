"""Dead letters: find them, look at them, send them back, throw them away."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from dramatiq import Message

from ..errors import ConfigurationError, NotFoundError
from ..letters import DLQ_QUEUE, adopted, indexes_of
from ..places import Places
from ..store.base import REMEMBERED, Graveyard, Group, Letter, LetterRow
from .letter_filters import Filter
from .letter_infos import DeadLetter, Page, dead_letter
from .redriving import Pace, Redriven, Redriver

if TYPE_CHECKING:
    from dramatiq import Broker

    from ..backends import Backend
    from ..middleware.dead_letters import DeadLetters

__all__ = ["DeadLetterQueue"]

H = TypeVar("H", bound="Callable[[DeadLetter], Any]")
D = TypeVar("D", bound="Callable[[list[DeadLetter]], Any]")

#: How many letters are sent back in one step; how many are looked at for one page of a text search.
_BATCH, _LOOKED_AT = 100, 5000


class DeadLetterQueue:
    """What ``distcron.dead_letters`` is.

    Filters are the same everywhere: ``actor``, ``queue``, ``reason``, ``error`` (the class of the exception, or a part
    of its name), ``fingerprint`` and ``schedule`` are looked up in indexes; ``since`` and ``until`` are aware datetimes
    of death; ``text`` is searched for in what is kept beside the message.

    Parameters:
      broker: of the app.
      backend: opens the store and the publisher.
      middleware: makes the letters; ``None`` where there is none.
    """

    def __init__(self, broker: Broker, backend: Callable[[], Backend], middleware: DeadLetters | None) -> None:
        self._broker = broker
        self._backend = backend
        self._middleware = middleware

    # -- being told -----------------------------------------------------------------------------------------

    def handler(self, function: H) -> H:
        """Decorator: ``function`` is called with each letter, by the workers that consume the queue ``dead_letters``.

        One that fails is tried again, alone, and is never kept as a letter itself.

        Raises:
          ConfigurationError: the broker has no DeadLetters middleware.
        """
        self._own.handlers[f"{function.__module__}.{function.__qualname__}"] = function
        return function

    def on_drop(self, function: D) -> D:
        """Decorator: ``function`` is called with the letters that are about to be dropped by age or count."""
        self._own.on_drop.append(function)
        return function

    @property
    def _own(self) -> DeadLetters:
        if self._middleware is None:
            raise ConfigurationError("The broker has no DeadLetters middleware: use install(broker).")
        return self._middleware

    # -- looking --------------------------------------------------------------------------------------------

    def list(self, *, limit: int = 100, **filters: Any) -> list[DeadLetter]:
        """The newest letters that fit the filters.

        Raises:
          ConfigurationError: a filter is unknown or has a value it cannot have.
        """
        return self.page(limit=limit, **filters).letters

    def page(self, *, limit: int = 100, cursor: str | None = None, **filters: Any) -> Page:
        """A page of letters, the newest first; ``cursor`` is that of the page before.

        A search for ``text`` may give a page with fewer letters and a cursor: it looks at some thousands a time.
        """
        wanted = self._filter(filters)
        after = _parsed_cursor(cursor)
        found: list[DeadLetter] = []
        looked_at = 0
        while len(found) < limit and looked_at < _LOOKED_AT:
            rows = self._backend().store.letters(wanted.query(), min(_LOOKED_AT, max(limit, 50)), after)
            if not rows:
                return Page(found, None)
            for row in rows:
                looked_at, after = looked_at + 1, (row.dead_at, row.id)
                if wanted.fits(row):
                    found.append(dead_letter(row))
                    if len(found) == limit:
                        break
        return Page(found, f"{after[0]}:{after[1]}" if after else None)

    def get(self, id: str) -> DeadLetter:
        """One letter, by its id or its message's. Raises ``NotFoundError`` if there is none."""
        return dead_letter(self._row(id))

    def stats(self) -> Sequence[Group]:
        """How many letters each actor, queue, reason, error, fingerprint and schedule has, and since when."""
        return self._backend().store.groups()

    def count(self, **filters: Any) -> int:
        """How many letters fit the filters."""
        wanted = self._filter(filters)
        if wanted.is_exact:
            return self._backend().store.count_letters(wanted.query())
        return sum(1 for _ in self._walk(wanted))

    def _filter(self, filters: Mapping[str, Any]) -> Filter:
        wanted = Filter(filters)
        wanted.look_up(self._backend().store)
        return wanted

    def _row(self, id: str) -> LetterRow:
        row = self._backend().store.letter(id)
        if row is None:
            row = next((one for one in self._walk(Filter({})) if one.about.get("message_id") == id), None)
        if row is None:
            raise NotFoundError(f"There is no dead letter {id!r}. 'dramatiq-distcron dlq list' shows those there are.")
        return row

    def _walk(self, wanted: Filter) -> Iterator[LetterRow]:
        """All that fit, the oldest first. Those that are dropped on the way do no harm."""
        after: tuple[int, str] | None = None
        while True:
            rows = self._backend().store.letters(wanted.query(oldest_first=True), _BATCH, after)
            if not rows:
                return
            for row in rows:
                after = (row.dead_at, row.id)
                if wanted.fits(row):
                    yield row

    # -- sending back ---------------------------------------------------------------------------------------

    def redrive(
        self,
        ids: str | Iterable[str] = (),
        *,
        all: bool = False,
        limit: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        progress: Callable[[Redriven], Any] | None = None,
        **filters: Any,
    ) -> Redriven:
        """Sends letters back to their queues as new messages, each in one step.

        Only letters that died before the call are looked at, so that one which dies again is not chased in a circle.
        What is interrupted can be called again: what was sent back is not there any more.

        Parameters:
          ids: which; or use filters, or ``all=True``.
          limit: how many at most.
          rate: how many a second at most.
          dry_run: counts, and sends nothing.
          progress: called after each batch with what was done so far.

        Raises:
          ConfigurationError: neither ids nor filters nor ``all`` say which.
          NotFoundError: one of the ids is not there.
        """
        done, pace = Redriven(), Pace(rate)
        redriver = Redriver(self._broker, self._backend())
        rows = self._chosen(ids, all, limit, filters)
        for batch in _batches(rows, _BATCH if rate is None else max(1, min(_BATCH, int(rate)))):
            redriver.send_back(batch, done, dry_run=dry_run)
            if progress is not None:
                progress(done)
            pace.wait(len(batch))
        return done

    def _chosen(self, ids: Any, all: bool, limit: int | None, filters: Mapping[str, Any]) -> Iterator[LetterRow]:
        ids = (ids,) if isinstance(ids, str) else tuple(ids)
        if not ids and not filters and not all:
            raise ConfigurationError("Say which letters: ids, filters such as actor='sync', or all=True.")
        wanted = self._filter(filters)
        wanted.until = min(wanted.until, self._backend().store.now())
        rows = (self._row(id) for id in ids) if ids else self._walk(wanted)
        for count, row in enumerate(rows):
            if limit is not None and count >= limit:
                return
            yield row

    # -- throwing away --------------------------------------------------------------------------------------

    def discard(self, ids: str | Iterable[str] = (), *, limit: int | None = None, **filters: Any) -> int:
        """Drops letters for good, by ids or filters. Returns how many. Errors as of :meth:`redrive`."""
        rows = self._chosen(ids, False, limit, filters)
        return sum(self._backend().store.drop_letters([row.id for row in batch]) for batch in _batches(rows, _BATCH))

    def purge(self) -> int:
        """Drops every letter there is now. Returns how many."""
        rows = self._chosen((), True, None, {})
        return sum(self._backend().store.drop_letters([row.id for row in batch]) for batch in _batches(rows, _BATCH))

    # -- elsewhere ------------------------------------------------------------------------------------------

    def export(self, **filters: Any) -> Iterator[str]:
        """The letters as lines of JSON, the messages whole in them: whoever reads them sees the arguments."""
        for row in self._walk(self._filter(filters)):
            about = {name: value for name, value in row.about.items() if name != "indexes"}
            data = base64.b64encode(row.data).decode()
            yield json.dumps({"id": row.id, "dead_at": row.dead_at, "about": about, "data": data})

    def import_(self, lines: Iterable[str]) -> int:
        """Keeps letters from lines that :meth:`export` wrote. Returns how many were new.

        Raises:
          ConfigurationError: a line is none of these; those before it are kept.
        """
        new = 0
        for batch in _batches(filter(str.strip, lines), _BATCH):
            new += self._backend().store.put_letters([_imported(line) for line in batch])
        return new

    def adopt(self) -> int:
        """Takes over what lies among Dramatiq's own dead messages (``.XQ``), each in one step. Returns how many.

        Those that cannot be decoded here stay where they are.

        Raises:
          ConfigurationError: the broker is not on Redis, or no queue of it is known.
        """
        backend = self._backend()
        places = Places(backend.store, backend.publisher)
        queues = sorted(self._broker.get_declared_queues() - {DLQ_QUEUE} | self._told_queues())
        if not queues:
            raise ConfigurationError("No queue is known here. Say which app it is with --broker, or start a worker.")
        return sum(self._adopt_from(places.graveyard(queue)) for queue in queues)

    def _told_queues(self) -> set[str]:
        told = self._backend().store.instances(keep=REMEMBERED)
        return {str(queue) for one in told for queue in one.data.get("actors", {}).values()} - {DLQ_QUEUE}

    def _adopt_from(self, keys: Graveyard | None) -> int:
        if keys is None:
            raise ConfigurationError("Only a Redis broker keeps its dead messages where they can be taken over from.")
        store = self._backend().store
        taken = left = 0
        while rows := store.graveyard(keys, left, _BATCH):
            letters = [letter for row in rows if (letter := _adopted(*row)) is not None]
            taken += store.adopt(keys, letters) if letters else 0
            left += len(rows) - len(letters)
        return taken


def _parsed_cursor(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    at, colon, id = cursor.partition(":")
    if not colon or not at.isascii() or not at.isdigit():
        raise ConfigurationError(f"{cursor!r} is not the cursor of a page.")
    return int(at), id


def _imported(line: str) -> tuple[Letter, int]:
    try:
        given = json.loads(line)
        about = given["about"]
        data = base64.b64decode(given["data"], validate=True)
        return Letter(str(given["id"]), about, data, indexes_of(about)), int(given["dead_at"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"This is no line of an export ({error}): {line[:80]!r}") from error


def _adopted(id: str, at: int, data: bytes | None) -> tuple[Letter, int] | None:
    try:
        about = adopted(Message.decode(data or b""))
    except Exception:
        return None
    return Letter(id, about, data or b"", indexes_of(about)), at


T = TypeVar("T")


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    batch: list[T] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
