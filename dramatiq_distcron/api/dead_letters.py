"""Dead letters: find them, look at them, send them back, throw them away."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import signature
from itertools import chain, islice
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..batching import batches
from ..callables import refuse_awaited
from ..errors import ConfigurationError, NotFoundError, quoted
from ..store.base import Group, LetterRow
from .asked import checked_limit, is_utf8
from .letter_filters import Filter
from .letter_infos import DeadLetter, DropHook, Handler, Page, dead_letter
from .letter_moves import Adopted, Adopter, Importer, exported
from .redriving import Pace, Redriven, Redriver

if TYPE_CHECKING:
    from dramatiq import Broker

    from ..backends import Backend
    from ..letters import Redact

__all__ = ["DeadLetterQueue"]

H = TypeVar("H", bound="Callable[[DeadLetter], Any]")
F = TypeVar("F", bound="Callable[..., Any]")
D = TypeVar("D", bound="Callable[[list[DeadLetter]], Any]")

#: How many letters are sent back in one step; how many are looked at for one page of a text search, and so many a time.
_BATCH, _LOOKED_AT, _SCAN = 100, 5000, 500


class LetterKeeper(Protocol):
    """The middleware that makes the letters, as far as it is told here whom to call."""

    handlers: dict[str, Handler]
    on_drop: builtins.list[DropHook]
    redact: Redact | None


class DeadLetterQueue:
    """What ``distcron.dead_letters`` is.

    Filters are the same everywhere: ``actor``, ``queue``, ``reason``, ``error`` (the class of the exception, or a part
    of its name), ``fingerprint`` and ``schedule`` are looked up in indexes; ``since`` and ``until`` are times of
    death, aware datetimes or UTC ms; ``text`` is searched for in what is kept beside the message.

    Parameters:
      broker: of the app.
      backend: opens the store and the publisher.
      keeper: the middleware that makes the letters; ``None`` where there is none.
    """

    def __init__(self, broker: Broker, backend: Callable[[], Backend], keeper: LetterKeeper | None) -> None:
        self._broker = broker
        self._backend = backend
        self._keeper = keeper

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
    def _own(self) -> LetterKeeper:
        if self._keeper is None:
            raise ConfigurationError("The broker has no DeadLetters middleware: use install(broker).")
        return self._keeper

    # -- looking --------------------------------------------------------------------------------------------

    def list(self, *, limit: int = 100, **filters: Any) -> list[DeadLetter]:
        """The newest letters that fit the filters.

        Raises:
          ConfigurationError: a filter is unknown or has a value it cannot have.
        """
        return self.fill(limit=limit, **filters).letters

    def fill(self, *, limit: int = 100, cursor: str | None = None, **filters: Any) -> Page:
        """As :meth:`page`, but looks until the page is full or there is no more."""
        found = self.page(limit=limit, cursor=cursor, **filters)
        letters = found.letters
        while found.cursor is not None and len(letters) < limit:
            found = self.page(limit=limit - len(letters), cursor=found.cursor, **filters)
            letters = letters + found.letters
        return Page(letters, found.cursor)

    def page(self, *, limit: int = 100, cursor: str | None = None, **filters: Any) -> Page:
        """A page of letters, the newest first; ``cursor`` is that of the page before.

        A search for ``text`` may give a page with fewer letters and a cursor: it looks at some thousands a time.
        Errors as of :meth:`list`.
        """
        checked_limit(limit)
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
        ids = _ids(id)
        if len(ids) != 1:
            raise ConfigurationError(f"get() takes the id of one letter, not {quoted(id)}.")
        for row in self._rows(ids, []):
            return dead_letter(row)
        raise _not_found(ids[0])

    def missing(self, ids: str | DeadLetter | Iterable[str | DeadLetter]) -> Sequence[str]:
        """Which of the ids no letter and no letter's message has."""
        missing: builtins.list[str] = []
        for _ in self._rows(_ids(ids), missing):
            pass
        return missing

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

    def _walk(self, wanted: Filter, *, oldest_first: bool = True) -> Iterator[LetterRow]:
        """All that fit, in the order of their deaths. Those that are dropped on the way do no harm."""
        after: tuple[int, str] | None = None
        while True:
            rows = self._backend().store.letters(wanted.query(oldest_first=oldest_first), _BATCH, after)
            if not rows:
                return
            for row in rows:
                after = (row.dead_at, row.id)
                if wanted.fits(row):
                    yield row

    # -- sending back ---------------------------------------------------------------------------------------

    def redrive(
        self,
        ids: str | DeadLetter | Iterable[str | DeadLetter] = (),
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

        The oldest go first.

        Parameters:
          ids: which letters, by their ids or their messages'; or use filters, or ``all=True``.
          limit: how many are sent back at most.
          rate: how many a second at most.
          dry_run: counts, and sends nothing.
          progress: called after each batch with what was done so far.

        Raises:
          ConfigurationError: not exactly one of ids, filters and ``all`` says which.
          NotFoundError: none of the ids is there.
        """
        ids = _ids(ids)
        if not isinstance(all, bool) or not (progress is None or callable(progress)):
            raise ConfigurationError("all must be True or False, and progress a function or None.")
        _refuse_vague("all=True", bool(ids), _is_any(filters), all)
        if limit is not None:
            checked_limit(limit)
        done, pace = Redriven(), Pace(rate)
        redriver = Redriver(self._broker, self._backend())
        rows = self._rows(ids, done.missing) if ids else self._walk(self._until_now(filters))
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
        _refuse_unknown(ids, done.missing)
        return done

    def _rows(self, ids: Sequence[str], missing: builtins.list[str]) -> Iterator[LetterRow]:
        """Those that are there; the others are named, or what was interrupted could not be called again."""
        others: dict[str, None] = {}
        given: set[str] = set()
        for id in dict.fromkeys(ids):
            row = self._backend().store.letter(id)
            if row is not None:
                given.add(row.id)
                yield row
            else:
                others[id] = None
        # By the ids of their messages, which no index has.
        for row in self._walk(Filter({})) if others else ():
            if str(row.about.get("message_id")) in others:
                del others[str(row.about.get("message_id"))]
                if row.id not in given:
                    yield row
            if not others:
                break
        missing += others

    def _until_now(self, filters: Mapping[str, Any]) -> Filter:
        """Those that die from now on are not meant."""
        wanted = self._filter(filters)
        wanted.until = min(wanted.until, self._backend().store.now())
        return wanted

    # -- throwing away --------------------------------------------------------------------------------------

    def discard(
        self,
        ids: str | DeadLetter | Iterable[str | DeadLetter] = (),
        *,
        limit: int | None = None,
        **filters: Any,
    ) -> int:
        """Drops letters for good, by ids or filters, the oldest first. Returns how many.

        Errors as of :meth:`redrive`.
        """
        ids = _ids(ids)
        _refuse_vague("purge() for all", bool(ids), _is_any(filters))
        if limit is not None:
            checked_limit(limit)
        missing: builtins.list[str] = []
        rows = self._rows(ids, missing) if ids else self._walk(self._until_now(filters))
        dropped = self._drop(row.id for row in islice(rows, limit))
        _refuse_unknown(ids, missing)
        return dropped

    def purge(self) -> int:
        """Drops every letter there is now. Returns how many."""
        wanted = self._until_now({})
        # Some may come from a host, or a time, whose clock was ahead. What dies from now on is not meant: it would come
        # behind the others as long as it is looked for there, so that there might be no end.
        ahead = [row.id for row in self._walk(self._filter({"since": wanted.until + 1}), oldest_first=False)]
        return self._drop(chain((row.id for row in self._walk(wanted)), ahead))

    def _drop(self, ids: Iterable[str]) -> int:
        return sum(self._backend().store.drop_letters(batch) for batch in batches(ids, _BATCH))

    # -- elsewhere ------------------------------------------------------------------------------------------

    def export(self, ids: str | DeadLetter | Iterable[str | DeadLetter] = (), **filters: Any) -> Iterator[str]:
        """Letters as lines of JSON, the messages whole in them: whoever reads them sees the arguments.

        By ids, such as those of letters that are about to be dropped, or by filters, or all.
        """
        ids = _ids(ids)
        if ids and _is_any(filters):
            raise ConfigurationError("Say which letters in one way: ids, or filters.")
        return map(exported, self._rows(ids, []) if ids else self._walk(self._filter(filters)))

    def import_(self, lines: Iterable[str]) -> int:
        """Keeps letters from lines that :meth:`export` wrote. Returns how many were new.

        Raises:
          ConfigurationError: a line is none of these; the letters of the lines before it are kept.
        """
        return Importer(self._backend().store).import_(lines)

    def adopt(self, queues: Iterable[str] | None = None) -> Adopted:
        """Takes over what lies among Dramatiq's own dead messages (``.XQ``), each in one step.

        Those that cannot be decoded here stay where they are.

        Parameters:
          queues: from where; unless given, from those that the code here or a running worker of the app declares.

        Raises:
          ConfigurationError: the broker is not on Redis, or no queue of it is known.
        """
        redact = None if self._keeper is None else self._keeper.redact
        return Adopter(self._broker, self._backend(), redact).adopt(queues)


def _called(function: F) -> F:
    if not callable(function):
        raise ConfigurationError(f"{quoted(function)} is no function, so that it cannot be called with letters.")
    refuse_awaited(function, "What is called with letters")
    try:
        signature(function).bind(object())
    except TypeError as error:
        raise ConfigurationError(f"{quoted(function)} cannot be called with one argument: {error}.") from None
    except ValueError:
        # A builtin that does not say what it takes.
        pass
    return function


def _name_of(function: Any, known: Mapping[str, Any]) -> str:
    """By which workers know a handler: the same in each of them."""
    name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__name__)}"
    # Methods of two objects have one name.
    is_method = not isinstance(getattr(function, "__self__", None), (type(None), ModuleType))
    anonymous = "<" in name or not hasattr(function, "__qualname__") or is_method
    # One that has a name of its own was loaded again.
    number = sum(one.partition("#")[0] == name for one in known) if anonymous else 0
    return f"{name}#{number + 1}" if number else name


def _ids(ids: Any) -> tuple[str, ...]:
    single = isinstance(ids, (str, bytes, Mapping, DeadLetter)) or not isinstance(ids, Iterable)
    given: Iterable[Any] = (ids,) if single else ids
    found = tuple(one.id if isinstance(one, DeadLetter) else one for one in given)
    for one in found:
        if not isinstance(one, str) or not one or not is_utf8(one, "surrogateescape"):
            raise ConfigurationError(f"A letter is named by its id, a text, and not by {quoted(one)}.")
    return found


def _is_any(filters: Mapping[str, Any]) -> bool:
    return any(value is not None for value in filters.values())


def _refuse_vague(how_all: str, *ways: bool) -> None:
    """Exactly one way says which letters are meant."""
    if not any(ways):
        raise ConfigurationError(f"Say which letters: ids, filters such as actor='sync', or {how_all}.")
    if sum(ways) > 1:
        raise ConfigurationError(f"Say which letters in one way: ids, or filters, or {how_all}.")


def _refuse_unknown(ids: Sequence[str], missing: Sequence[str]) -> None:
    """That some are gone is no error: they were sent back or dropped meanwhile. That all are is one."""
    if ids and len(missing) == len(set(ids)):
        raise _not_found(ids[0])


def _not_found(id: str) -> NotFoundError:
    return NotFoundError(f"There is no dead letter {quoted(id)}. 'dramatiq-distcron dlq list' shows those there are.")


def _parsed_cursor(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    at, colon, id = cursor.partition(":") if isinstance(cursor, str) else ("", "", "")
    if not colon or not is_utf8(id, "surrogateescape") or not at.isascii() or not at.isdigit() or len(at) > 16:
        raise ConfigurationError(f"{quoted(cursor)} is not the cursor of a page.")
    return int(at), id
