"""For how long dead letters are kept, and how they go: told of before, and by few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..api.letter_infos import DropHook, dead_letter
from ..durations import Duration, milliseconds
from ..errors import ConfigurationError, quoted
from ..logs import get_logger
from ..store.base import LetterRow, Query

if TYPE_CHECKING:
    from ..store.base import Store

__all__ = ["Retainer", "Retention"]

_DAY = 86_400
#: How many letters are dropped in one step.
_BATCH = 500
#: From which share of ``max_count`` on it is said that letters will be dropped.
_NEARLY = 0.9

Indexes = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Retention:
    """For how long letters are kept: ``max_age`` in seconds or as a ``timedelta``, and how many. ``None``: no limit."""

    max_age: Duration | None = 30 * _DAY
    max_count: int | None = 100_000

    def __post_init__(self) -> None:
        if self.max_age is not None:
            milliseconds(self.max_age, "max_age", minimum=1000)
        count = self.max_count
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            raise ConfigurationError(f"max_count must be a whole number from 1, or None, not {quoted(count)}.")


class Retainer:
    """Looks after the limits.

    Parameters:
      store: gives the store.
      general: the limits of all actors but those of ``per_actor``.
      hooks: are told of what is about to be dropped.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        general: Retention,
        per_actor: Mapping[str, Retention],
        hooks: Sequence[DropHook],
    ) -> None:
        self.logger = get_logger(__name__, type(self))
        self._store = store
        self._general = general
        self._per_actor = per_actor
        self._hooks = hooks
        self._warned = False

    def retain(self) -> int:
        """Drops what is too old or too much, after telling of it. Returns how many. Raises what the store raises."""
        store = self._store()
        now = store.now()
        dropped = sum(self._drop_old(limit, indexes, now) for indexes, limit in self._by_age())
        for actor, retention in self._per_actor.items():
            dropped += self._drop_many(retention, actor)
        dropped += self._drop_many(self._general, None)
        self._warn_nearly(self._count(None))
        return dropped

    def _by_age(self) -> list[tuple[Indexes, Retention]]:
        """Which letters have which limit."""
        if not self._per_actor:
            return [((), self._general)]
        actors = self._store().dead_values("actor")
        return [((("actor", actor),), self._per_actor.get(actor, self._general)) for actor in actors]

    def _drop_old(self, retention: Retention, indexes: Indexes, now: int) -> int:
        if retention.max_age is None:
            return 0
        until = now - milliseconds(retention.max_age, "max_age")
        query = Query(indexes, until=until, oldest_first=True)
        store = self._store()
        dropped = 0
        while rows := store.letters(query, _BATCH):
            if not self._tell_dropped(rows, f"an age of over {(now - until) / 1000:g} s"):
                break
            dropped += store.drop_letters([row.id for row in rows])
        return dropped

    def _drop_many(self, retention: Retention, actor: str | None) -> int:
        """Drops the oldest of an actor, or of all without a limit of their own, that are too many."""
        store, most, dropped = self._store(), retention.max_count, 0
        oldest, rest = self._oldest(actor), list[LetterRow]()
        while most is not None and self._count(actor) > most:
            # Those that were read and are not too many yet go first when more come.
            rows = rest or next(oldest, [])
            # Counted after they were read: other workers drop the same ones, and must not make these too many.
            excess = max(0, self._count(actor) - most)
            rows, rest = rows[:excess], rows[excess:]
            whose = "" if actor is None else f" of {actor}"
            if not rows or not self._tell_dropped(rows, f"a max_count of {most}{whose}"):
                break
            dropped += store.drop_letters([row.id for row in rows])
        return dropped

    def _count(self, actor: str | None) -> int:
        store = self._store()
        if actor is None:
            return store.count_letters_without("actor", list(self._per_actor))
        return store.count_letters(Query((("actor", actor),)))

    def _oldest(self, actor: str | None) -> Iterator[list[LetterRow]]:
        """Letters, some at a time, the oldest first. Those with limits of their own are passed over once."""
        query = Query(() if actor is None else (("actor", actor),), oldest_first=True)
        after: tuple[int, str] | None = None
        while rows := self._store().letters(query, _BATCH, after):
            after = (rows[-1].dead_at, rows[-1].id)
            fitting = [row for row in rows if actor is not None or row.about.get("actor") not in self._per_actor]
            if fitting:
                yield fitting

    def _tell_dropped(self, rows: list[LetterRow], why: str) -> bool:
        """Whether they may be dropped: a hook that fails may be the one that saves them."""
        letters = [dead_letter(row) for row in rows]
        self.logger.warning(
            "%d dead letters are dropped for %s: of %s, from %s to %s.",
            len(letters),
            why,
            ", ".join(sorted({letter.actor for letter in letters})[:5]),
            letters[0].id,
            letters[-1].id,
        )
        for hook in self._hooks:
            try:
                hook(letters)
            except (Exception, SystemExit):
                self.logger.exception("A hook that is told of dropped letters failed, so they are kept for now.")
                return False
        return True

    def _warn_nearly(self, count: int) -> None:
        most = self._general.max_count
        nearly = most is not None and count >= most * _NEARLY
        if nearly and not self._warned:
            self.logger.warning(
                "There are %d dead letters; beyond %s the oldest are dropped. Redrive or discard them: "
                "dramatiq-distcron dlq stats",
                count,
                most,
            )
        self._warned = nearly
