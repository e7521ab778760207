"""The store on Redis: each verb is one script or one command."""

from __future__ import annotations

from .connection import disconnect
from .lease import LeaseVerbs
from .letters import LetterVerbs
from .retries import RetryVerbs
from .runs import RunVerbs
from .schedules import ScheduleVerbs
from .ticks import TickVerbs
from .watching import Touched, WatchVerbs

__all__ = ["RedisStore", "Touched"]


class RedisStore(LeaseVerbs, TickVerbs, RunVerbs, RetryVerbs, LetterVerbs, ScheduleVerbs, WatchVerbs):
    """All state of one app in one Redis. The parameters are those of ``Verbs``."""

    def close(self) -> None:
        """Closes the connections; they are opened again when they are needed."""
        self._commits.close()
        for client in (self._client, self._waiter):
            if client is not None:
                disconnect(client)
