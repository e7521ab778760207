"""Dead letters that come from elsewhere or go there: lines of JSON, and Dramatiq's own dead messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dramatiq import Message
from dramatiq.common import q_name

from ..batching import BATCH_BYTES, batches
from ..durations import LAST_INSTANT
from ..errors import ConfigurationError, quoted
from ..letters import DLQ_ACTOR, Redact, adopted, indexes_of
from ..places import Places
from ..store.base import REMEMBERED, Graveyard, Letter

if TYPE_CHECKING:
    from dramatiq import Broker

    from ..backends import Backend
    from ..store.base import LetterRow, Store

__all__ = ["Adopted", "Adopter", "Importer", "exported"]

#: How many are kept or taken over in one step at most, and how many are looked at first.
_BATCH, _FIRST = 100, 5


def exported(row: LetterRow) -> str:
    """A letter as one line of JSON, with its message whole."""
    data = base64.b64encode(row.data).decode()
    return json.dumps({"id": row.id, "dead_at": row.dead_at, "about": row.about, "data": data})


class Importer:
    """Keeps letters from lines that were exported."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def import_(self, lines: Iterable[str]) -> int:
        """Returns how many were new. Raises ``ConfigurationError`` at a line that is none."""
        new = 0
        for batch in batches(_numbered(lines), _BATCH, lambda one: len(one[1])):
            good: list[tuple[Letter, int]] = []
            try:
                for number, line in batch:
                    good.append(_imported(number, line))
            except ConfigurationError as error:
                new += self._store.put_letters(good)
                raise ConfigurationError(
                    f"{error} The letters of the lines before it are kept, {new} of them new: mend it and import again."
                ) from error
            new += self._store.put_letters(good)
        return new


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    if not isinstance(lines, Iterable):
        raise ConfigurationError(f"import_() takes lines, such as an open file, not {quoted(lines)}.")
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str):
            raise ConfigurationError(f"Line {number} is no text, but {quoted(line)}.")
        if line.strip():
            yield number, line


def _imported(number: int, line: str) -> tuple[Letter, int]:
    """A letter from such a line, and when it died. Raises ``ConfigurationError``."""
    try:
        given = json.loads(line)
        id, dead_at, about = given["id"], given["dead_at"], dict(given["about"])
        data = base64.b64decode(given["data"], validate=True)
        if not (isinstance(id, str) and id.encode() and type(dead_at) is int and 0 <= dead_at <= LAST_INSTANT):
            raise ValueError("its id or dead_at cannot be")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigurationError(f"Line {number} is none that export printed ({why}): {line[:80]!r}.") from error
    return Letter(id, about, data, indexes_of(about)), dead_at


@dataclass
class Adopted:
    """How many were taken over from each queue, and how many were left because they cannot be decoded here."""

    queues: dict[str, int] = field(default_factory=dict)
    left: int = 0

    @property
    def adopted(self) -> int:
        return sum(self.queues.values())


def _checked_queues(queues: Any) -> set[str]:
    given: list[Any] = (
        [queues] if isinstance(queues, (str, bytes)) or not isinstance(queues, Iterable) else list(queues)
    )
    for one in given:
        if not isinstance(one, str) or not one or not one.isprintable():
            raise ConfigurationError(f"queues are names of queues, not {quoted(one)}.")
    # That of its .XQ or .DQ is meant to be the same.
    return {str(q_name(one)) for one in given}


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

    def adopt(self, queues: Iterable[str] | None = None) -> Adopted:
        """Each in one step. Raises ``ConfigurationError`` if it is not known where to look."""
        places = Places(self._backend.store, self._backend.publisher)
        chosen = self._known_queues() if queues is None else _checked_queues(queues)
        if not chosen:
            raise ConfigurationError(
                "No queue is known here. Name it with queues= or --queue, or say which app it is with --broker, or "
                "start a worker."
            )
        done = Adopted()
        for queue in sorted(chosen):
            self._adopt_from(queue, places.graveyard(queue), done)
        return done

    def _known_queues(self) -> set[str]:
        own = {actor.queue_name for name, actor in self._broker.actors.items() if name == DLQ_ACTOR}
        return self._broker.get_declared_queues() - own | self._told_queues()

    def _told_queues(self) -> set[str]:
        told = self._backend.store.instances(keep=REMEMBERED)
        actors = [actor for one in told for actor in one.data.get("actors", {}).items()]
        return {str(queue) for name, queue in actors if name != DLQ_ACTOR}

    def _adopt_from(self, queue: str, keys: Graveyard | None, done: Adopted) -> None:
        if keys is None:
            raise ConfigurationError("Only a Redis broker keeps its dead messages where they can be taken over from.")
        store = self._backend.store
        taken, left, most = 0, 0, _FIRST
        while rows := store.graveyard(keys, left, most):
            letters = [letter for row in rows if (letter := self._adopted(*row)) is not None]
            for batch in batches(letters, _BATCH, lambda one: len(one[0].data)):
                taken += store.adopt(keys, batch)
            left += len(rows) - len(letters)
            # As long as these were, the next ones will be.
            most = min(_BATCH, BATCH_BYTES * len(rows) // (1 + sum(len(row[2] or b"") for row in rows)) + 1)
        done.queues[queue] = taken
        done.left += left

    def _adopted(self, id: str, at: int, data: bytes | None) -> tuple[Letter, int] | None:
        try:
            about = adopted(Message.decode(data or b""), self._redact)
        except Exception:
            return None
        return Letter(id, about, data or b"", indexes_of(about)), at
