"""The messages that wait for their retry: look at them, hurry them, cancel them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import NotFoundError, quoted
from .asked import checked_id, checked_limit, checked_which

if TYPE_CHECKING:
    from ..backends import Backend
    from ..store.base import WaitingRow

__all__ = ["RetryInfo", "WaitingRetries"]

_PAGE = 500


@dataclass(frozen=True)
class RetryInfo:
    """A message that waits for its retry. Times are UTC ms.

    ``id`` is the message's, ``key`` its own among those that wait. ``due_at`` is when it goes back to its queue (0: at
    once, by hand); one whose ``budget`` is spent is put off. ``attempt`` is how often it failed. ``schedule`` and
    ``fire_time`` are those of its tick, if it is one's.
    """

    id: str
    key: str
    actor: str
    queue: str
    attempt: int | None
    error: str | None
    first_failed_at: int | None
    due_at: int
    budget: str | None
    schedule: str | None
    fire_time: int | None


class WaitingRetries:
    """What ``distcron.retries`` is.

    Parameters:
      backend: opens the store.
    """

    def __init__(self, backend: Callable[[], Backend]) -> None:
        self._backend = backend

    def list(self, *, actor: str | None = None, queue: str | None = None, limit: int = 100) -> list[RetryInfo]:
        """The messages that wait, those that are due first first.

        Raises:
          StoreUnavailable: the store does not answer.
          ConfigurationError: ``limit`` is no whole number from 1, or what is looked for is no name.
        """
        limit = checked_limit(limit)
        given = {"actor": actor, "queue": queue}
        wanted = {what: checked_which(what, name) for what, name in given.items() if name is not None}
        found: list[RetryInfo] = []
        for row in self._rows():
            if len(found) == limit:
                break
            if all(row.about.get(name) == value for name, value in wanted.items()):
                found.append(_info(row))
        return found

    def count(self) -> int:
        """How many messages wait."""
        return self._backend().store.count_retries()

    def budgets(self) -> Mapping[str, Mapping[str, float]]:
        """How the retry budgets stand, by name: ``tokens``, and ``taken`` and ``put_off`` since their first use."""
        return self._backend().store.budgets()

    def run_now(self, id: str) -> None:
        """Makes a message due at once, whatever its budget says.

        Raises:
          NotFoundError: no message of that id or key waits.
        """
        if not self._backend().store.hurry_retry(self._key(checked_id(id, "run_now"))):
            raise _not_waiting(id)

    def run_all_now(self) -> int:
        """Makes every message due at once. Returns how many. Do so before the middleware is taken out for good."""
        store, seen, hurried = self._backend().store, set[str](), 0
        # Those that go back meanwhile shift the pages, so it is looked until nothing new is found.
        while found := [row.key for row in self._rows() if row.key not in seen]:
            hurried += sum(store.hurry_retry(key) for key in found)
            seen.update(found)
        return hurried

    def cancel(self, id: str) -> None:
        """Drops a message for good. If it is a tick's, its run is recorded as dropped.

        Raises:
          NotFoundError: no message of that id or key waits.
        """
        if not self._backend().store.drop_retry(self._key(checked_id(id, "cancel")), cancelled=True):
            raise _not_waiting(id)

    def _key(self, id: str) -> str:
        if self._backend().store.retry(id) is not None:
            return id
        for row in self._rows():
            if row.about.get("id") == id:
                return row.key
        raise _not_waiting(id)

    def _rows(self) -> Iterator[WaitingRow]:
        store, offset = self._backend().store, 0
        while True:
            rows = store.retries(_PAGE, offset)
            yield from rows
            if not rows:
                return
            offset += _PAGE


def _info(row: WaitingRow) -> RetryInfo:
    about = row.about
    budget = about.get("budget")
    return RetryInfo(
        id=str(about.get("id") or row.key),
        key=row.key,
        actor=str(about.get("actor", "")),
        queue=str(about.get("queue", "")),
        attempt=_whole(about.get("attempt")),
        error=about.get("error"),
        first_failed_at=_whole(about.get("first_failed_at")),
        due_at=row.due,
        budget=budget[0] if isinstance(budget, list) and budget else None,
        schedule=about.get("schedule"),
        fire_time=_whole(about.get("fire_time")),
    )


def _whole(value: object) -> int | None:
    # What somebody else wrote there may be anything.
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _not_waiting(id: str) -> NotFoundError:
    return NotFoundError(
        f"No message {quoted(id)} waits for a retry. 'dramatiq-distcron retries list' shows those that do."
    )
