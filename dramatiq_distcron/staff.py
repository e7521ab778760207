"""Whether the workers that run know the actors of the ticks: messages of one they do not know end as dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .logs import get_logger
from .store.base import REMEMBERED

if TYPE_CHECKING:
    from .clock import Clock
    from .store.base import Store

__all__ = ["Staff"]

#: How often the workers are asked for at most, in seconds.
_EACH = 5.0


class Staff:
    """Parameters:
    store: where the workers tell of themselves.
    clock: of this process.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self.logger = get_logger(__name__, type(self))
        self._store = store
        self._clock = clock
        self._known: set[str] = set()
        self._warned: set[str] = set()
        #: Those that came since the workers were asked for last.
        self._unsure: dict[str, str] = {}
        self._next_look = 0.0

    def enqueued(self, actors: Mapping[str, str]) -> None:
        """Warns once for each schedule whose actor, told by name, no worker that runs knows.

        To be called with each pass, also if it enqueued nothing: the workers are not asked for each time.
        Nothing is said as long as no worker tells of itself: then the messages wait.

        Raises:
          StoreUnavailable, StoreRefused: the workers could not be asked for.
        """
        self._unsure.update(self._unknown(actors))
        now = self._clock.monotonic()
        if not self._unsure or now < self._next_look:
            return
        self._next_look = now + _EACH
        told = [one.data for one in self._store.instances(keep=REMEMBERED) if one.data.get("role") == "worker"]
        self._known = {actor for data in told for actor in data.get("actors", ())}
        unknown = self._unknown(self._unsure) if told else {}
        self._unsure.clear()
        for name, actor in unknown.items():
            self._warned.add(name)
            self.logger.warning(
                "Schedule %r was enqueued, and no worker that tells of itself knows its actor %r: its messages end as "
                "dead letters. Deploy the workers first, then the beats; and name the actor's module to the workers.",
                name,
                actor,
            )

    def _unknown(self, actors: Mapping[str, str]) -> dict[str, str]:
        return {name: actor for name, actor in actors.items() if actor not in self._known and name not in self._warned}
