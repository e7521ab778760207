"""Dead letters: find them, look at them, send them back, throw them away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import iscoroutinefunction
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import ConfigurationError, NotFoundError
from ..store.base import Group, LetterRow
from .letter_filters import Filter
from .letter_infos import DeadLetter, Page, dead_letter
from .letter_moves import Adopter, batches, exported, imported
from .redriving import Pace, Redriven, Redriver

if TYPE_CHECKING:
    from dramatiq import Broker

    from ..backends import Backend
    from ..middleware.dead_letters import DeadLetters

__all__ = ["DeadLetterQueue"]

H = TypeVar("H", bound="Callable[[DeadLetter], Any]")
F = TypeVar("F", bound="Callable[..., Any]")
D = TypeVar("D", bound="Callable[[list[DeadLetter]], Any]")

#: How many letters are sent back in one step; how many are looked at for one page of a text search, and so many a time.
_BATCH, _LOOKED_AT, _SCAN = 100, 5000, 500


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
          ConfigurationError: the broker has no DeadLetters middleware, or it is no plain function.
        """
        self._own.handlers[_name_of(_called(function), self._own.handlers)] = function
        return function

    def on_drop(self, function: D) -> D:
        """Decorator: ``function`` is called with the letters that are about to be dropped by age or count."""
        self._own.on_drop.append(_called(function))
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
            more = limit - len(found)
            rows = self._backend().store.letters(wanted.query(), max(more, _SCAN) if wanted.compares else more, after)
            if not rows:
                return Page(found, None)
            fitting = [row for row in rows if wanted.fits(row)][:more]
            found += map(dead_letter, fitting)
            last = fitting[-1] if len(fitting) == more else rows[-1]
            looked_at, after = looked_at + len(rows), (last.dead_at, last.id)
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
          limit: how many are sent back at most.
          rate: how many a second at most.
          dry_run: counts, and sends nothing.
          progress: called after each batch with what was done so far.

        Raises:
          ConfigurationError: not exactly one of ids, filters and ``all`` says which.
          NotFoundError: none of the ids is there.
        """
        ids = _ids(ids)
        _refuse_vague(ids, filters, all=all)
        done, pace = Redriven(), Pace(rate)
        redriver = Redriver(self._broker, self._backend())
        rows = self._rows(ids, done) if ids else self._walk(self._until_now(filters))
        while limit is None or done.redriven < limit:
            most = _BATCH if limit is None else min(_BATCH, limit - done.redriven)
            batch = list(islice(rows, pace.batch(most)))
            if not batch:
                break
            if not dry_run:
                pace.wait(len(batch))
            redriver.send_back(batch, done, dry_run=dry_run)
            if progress is not None:
                progress(done)
        _refuse_unknown(ids, done.gone)
        return done

    def _rows(self, ids: Sequence[str], done: Redriven) -> Iterator[LetterRow]:
        """Those that are there. The others are counted, or what was interrupted could not be called again."""
        for id in dict.fromkeys(ids):
            try:
                yield self._row(id)
            except NotFoundError:
                done.gone += 1

    def _until_now(self, filters: Mapping[str, Any]) -> Filter:
        """Those that die from now on are not meant."""
        wanted = self._filter(filters)
        wanted.until = min(wanted.until, self._backend().store.now())
        return wanted

    # -- throwing away --------------------------------------------------------------------------------------

    def discard(self, ids: str | Iterable[str] = (), *, limit: int | None = None, **filters: Any) -> int:
        """Drops letters for good, by ids or filters. Returns how many. Errors as of :meth:`redrive`."""
        ids, done = _ids(ids), Redriven()
        _refuse_vague(ids, filters)
        rows = self._rows(ids, done) if ids else self._walk(self._until_now(filters))
        dropped = self._drop(islice(rows, limit))
        _refuse_unknown(ids, done.gone)
        return dropped

    def purge(self) -> int:
        """Drops every letter there is now. Returns how many."""
        return self._drop(self._walk(self._until_now({})))

    def _drop(self, rows: Iterator[LetterRow]) -> int:
        return sum(self._backend().store.drop_letters([row.id for row in batch]) for batch in batches(rows, _BATCH))

    # -- elsewhere ------------------------------------------------------------------------------------------

    def export(self, **filters: Any) -> Iterator[str]:
        """The letters as lines of JSON, the messages whole in them: whoever reads them sees the arguments."""
        return map(exported, self._walk(self._filter(filters)))

    def import_(self, lines: Iterable[str]) -> int:
        """Keeps letters from lines that :meth:`export` wrote. Returns how many were new.

        Raises:
          ConfigurationError: a line is none of these; those before it are kept.
        """
        new = 0
        for batch in batches(filter(str.strip, lines), _BATCH):
            new += self._backend().store.put_letters([imported(line) for line in batch])
        return new

    def adopt(self) -> int:
        """Takes over what lies among Dramatiq's own dead messages (``.XQ``), each in one step. Returns how many.

        Those that cannot be decoded here stay where they are.

        Raises:
          ConfigurationError: the broker is not on Redis, or no queue of it is known.
        """
        redact = None if self._middleware is None else self._middleware.redact
        return Adopter(self._broker, self._backend(), redact).adopt()


def _called(function: F) -> F:
    if not callable(function) or iscoroutinefunction(function):
        raise ConfigurationError(f"{function!r} must be a plain function: it is called, and nobody would await it.")
    return function


def _name_of(function: Any, known: Mapping[str, Any]) -> str:
    """By which workers know a handler: the same in each of them."""
    name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__name__)}"
    anonymous = "<" in name or not hasattr(function, "__qualname__")
    # One that has a name of its own was loaded again.
    number = sum(one.partition("#")[0] == name for one in known) if anonymous else 0
    return f"{name}#{number + 1}" if number else name


def _ids(ids: str | Iterable[str]) -> tuple[str, ...]:
    return (ids,) if isinstance(ids, str) else tuple(ids)


def _refuse_vague(ids: Sequence[str], filters: Mapping[str, Any], *, all: bool = False) -> None:
    filters = {name: value for name, value in filters.items() if value is not None}
    if not ids and not filters and not all:
        raise ConfigurationError("Say which letters: ids, filters such as actor='sync', or all=True.")
    if bool(ids) + bool(filters) + all > 1:
        raise ConfigurationError("Say which letters in one way: ids, or filters, or all=True.")


def _refuse_unknown(ids: Sequence[str], gone: int) -> None:
    """That some are gone is no error: they were sent back or dropped meanwhile. That all are is one."""
    if ids and gone == len(set(ids)):
        raise NotFoundError(f"There is no dead letter {ids[0]!r}. 'dramatiq-distcron dlq list' shows those there are.")


def _parsed_cursor(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    at, colon, id = cursor.partition(":")
    if not colon or not at.isascii() or not at.isdigit():
        raise ConfigurationError(f"{cursor!r} is not the cursor of a page.")
    return int(at), id
