"""The specs of due schedules, read from the store once for each of their revisions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import ScheduleError
from .places import Place, Places
from .specs import Spec, parse_spec

if TYPE_CHECKING:
    from .store.base import DueRow, Store, Stored

__all__ = ["Known", "KnownSpecs"]

#: Of how many schedules the specs are kept.
_KEPT = 100_000


@dataclass(frozen=True)
class Known:
    """What is known of a schedule: its spec, or why it cannot be used.

    ``run`` is the beginning of the text of its runs, and ``waiting`` where its messages wait.
    """

    revision: int | str
    spec: Spec | ScheduleError
    run: str = ""
    waiting: str = ""


_UNREAD = Known("", ScheduleError("It has a cursor and no spec."))


class KnownSpecs:
    """Parameters:
    store: where the specs are.
    places: of the broker's queues.
    queue_of: on which queue the messages of a spec go now: its actor may have moved since it was stored.
    """

    def __init__(self, store: Store, places: Places, queue_of: Callable[[Spec], str] = lambda spec: spec.queue) -> None:
        self._store = store
        self._places = places
        self._queue_of = queue_of
        self._known: dict[str, Known] = {}

    def of(self, rows: Sequence[DueRow]) -> dict[str, Known]:
        """What is known of the schedules in ``rows``, as of their revisions.

        Raises:
          StoreUnavailable: some had to be read and could not be.
        """
        known = self._known
        unknown = [
            row.name for row in rows if row.revision == "" or known.get(row.name, _UNREAD).revision != row.revision
        ]
        read = {name: self._read(stored) for name, stored in self._store.get(unknown).items()} if unknown else {}
        found = {row.name: read.get(row.name) or known.get(row.name, _UNREAD) for row in rows}
        known.update(read)
        # Not before: one that is due now must not be thrown out for another that is.
        while len(known) > _KEPT:
            del known[next(iter(known))]
        return found

    def _read(self, stored: Stored) -> Known:
        try:
            spec = parse_spec(stored.spec)
        except ScheduleError as error:
            return Known(stored.revision, error)
        queue = self._queue_of(spec)
        place = self._places.of(queue)
        return Known(stored.revision, spec, _run_of(spec, queue, place), place.waiting)


def _run_of(spec: Spec, queue: str, place: Place) -> str:
    return json.dumps({"schedule": spec.name, "queue": queue, "place": place.messages})[:-1]
