"""Dead letters that come from elsewhere or go there: lines of JSON, and Dramatiq's own dead messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from dramatiq import Message

from ..errors import ConfigurationError
from ..letters import DLQ_ACTOR, Redact, adopted, indexes_of
from ..places import Places
from ..store.base import NEVER, REMEMBERED, Graveyard, Letter

if TYPE_CHECKING:
    from dramatiq import Broker

    from ..backends import Backend
    from ..store.base import LetterRow

__all__ = ["Adopter", "batches", "exported", "imported"]

T = TypeVar("T")

#: How many messages are taken over in one step.
_BATCH = 100


def exported(row: LetterRow) -> str:
    """A letter as one line of JSON, with its message whole."""
    data = base64.b64encode(row.data).decode()
    return json.dumps({"id": row.id, "dead_at": row.dead_at, "about": row.about, "data": data})


def imported(line: str) -> tuple[Letter, int]:
    """A letter from such a line, and when it died. Raises ``ConfigurationError``."""
    try:
        given = json.loads(line)
        id, dead_at, about = given["id"], given["dead_at"], dict(given["about"])
        data = base64.b64decode(given["data"], validate=True)
        if not (isinstance(id, str) and id.encode() and type(dead_at) is int and 0 <= dead_at < NEVER):
            raise ValueError("id or dead_at cannot be")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigurationError(f"This is no line of an export ({error}): {line[:80]!r}") from error
    return Letter(id, about, data, indexes_of(about)), dead_at


class Adopter:
    """Takes over what Dramatiq keeps in ``.XQ``.

    Parameters:
      broker, backend: of the app.
      redact: what may be shown of arguments.
    """

    def __init__(self, broker: Broker, backend: Backend, redact: Redact | None) -> None:
        self._broker = broker
        self._backend = backend
        self._redact = redact

    def adopt(self) -> int:
        """Each in one step. Returns how many. Raises ``ConfigurationError`` if it is not known where to look."""
        places = Places(self._backend.store, self._backend.publisher)
        own = {actor.queue_name for name, actor in self._broker.actors.items() if name == DLQ_ACTOR}
        queues = sorted(self._broker.get_declared_queues() - own | self._told_queues())
        if not queues:
            raise ConfigurationError("No queue is known here. Say which app it is with --broker, or start a worker.")
        return sum(self._adopt_from(places.graveyard(queue)) for queue in queues)

    def _told_queues(self) -> set[str]:
        told = self._backend.store.instances(keep=REMEMBERED)
        actors = [actor for one in told for actor in one.data.get("actors", {}).items()]
        return {str(queue) for name, queue in actors if name != DLQ_ACTOR}

    def _adopt_from(self, keys: Graveyard | None) -> int:
        if keys is None:
            raise ConfigurationError("Only a Redis broker keeps its dead messages where they can be taken over from.")
        store = self._backend.store
        taken = left = 0
        while rows := store.graveyard(keys, left, _BATCH):
            letters = [letter for row in rows if (letter := self._adopted(*row)) is not None]
            taken += store.adopt(keys, letters) if letters else 0
            left += len(rows) - len(letters)
        return taken

    def _adopted(self, id: str, at: int, data: bytes | None) -> tuple[Letter, int] | None:
        try:
            about = adopted(Message.decode(data or b""), self._redact)
        except Exception:
            return None
        return Letter(id, about, data or b"", indexes_of(about)), at


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items, so many at a time."""
    batch: list[T] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
