"""A worker process tells that it is there, and what it can run."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING, Any

from dramatiq.middleware import Middleware

from ..api.status import is_heard
from ..errors import DistCronError, StoreRefused
from ..letters import DLQ_ACTOR
from ..logs import get_logger
from ..store.base import REMEMBERED, Instance
from ..version import VERSION
from .dead_letters import DeadLetters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dramatiq import Broker, Worker

    from ..backends import Backend

__all__ = ["Presence", "about_process"]

#: How often, in seconds.
_EACH = 15.0


def about_process(
    broker: Broker,
    role: str,
    started_at: int | None,
    last_pass_at: int | None = None,
    queues: Sequence[str] = (),
    *,
    outbox: bool = False,
) -> dict[str, Any]:
    """What a process tells of itself: times are UTC ms of the store's clock, ``queues`` those it consumes.

    ``outbox``: its broker is not where the state is.
    """
    return {
        "role": role,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "version": VERSION,
        "started_at": started_at,
        "last_pass_at": last_pass_at,
        "queues": queues,
        "outbox": outbox,
        "handlers": sorted(_handlers(broker)),
        "actors": {name: actor.queue_name for name, actor in sorted(broker.actors.items())},
    }


def _handlers(broker: Broker) -> set[str]:
    """Those of dead letters."""
    return {name for one in broker.middleware if isinstance(one, DeadLetters) for name in one.handlers}


class Presence(Middleware):
    """Publishes the worker among the app's instances for as long as it runs.

    Parameters:
      holder: its id.
      backend: opens the store.
    """

    def __init__(self, holder: str, backend: Callable[[], Backend]) -> None:
        self.logger = get_logger(__name__, type(self))
        self.holder = holder
        self._backend = backend
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._users = 0
        self._started_at: int | None = None
        self._queues: list[str] = []
        self._warned = False
        self._refused = False

    @property
    def is_told(self) -> bool:
        """Whether a worker of this process is up."""
        return self._thread is not None and self._thread.is_alive()

    def after_worker_boot(self, broker: Broker, worker: Worker) -> None:
        self._users = max(0, self._users) + 1
        chosen = worker.consumer_whitelist
        queues = {name for name in broker.get_declared_queues() if not chosen or name in chosen}
        self._queues = sorted(queues.union(self._queues if self.is_told else ()))
        if self.is_told:
            # Several workers in one process are one instance.
            return
        self._users = 1
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run, args=(broker,), name="distcron-presence", daemon=True)
        self._thread.start()

    def after_worker_shutdown(self, broker: Broker, worker: Worker) -> None:
        """Not before: until its last run is over, nobody else may think that it is free."""
        self._users -= 1
        if self._users > 0:
            return
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        try:
            self._backend().store.forget(self.holder)
        except DistCronError as error:
            self.logger.debug("The worker could not be taken off the list, so it fades: %s", error)

    def _run(self, broker: Broker) -> None:
        while True:
            try:
                self._tell(broker)
                self._warn_of_handlers(broker)
            except DistCronError as error:
                self.logger.debug("The worker could not tell that it is there: %s", error)
            except Exception:
                self.logger.exception("Telling that the worker is there failed unexpectedly; it goes on.")
            if self._stopped.wait(_EACH):
                return

    def _tell_refused(self, error: StoreRefused) -> None:
        """Once, and before the first message ends: what is refused here is refused there too."""
        if not self._refused:
            self._refused = True
            self.logger.error(
                "This worker may not record that it is there, so probably not how messages end, their retries and dead "
                "letters either: %s",
                error,
            )

    def _tell(self, broker: Broker) -> None:
        backend = self._backend()
        store = backend.store
        try:
            if self._started_at is None:
                self._started_at = store.now()
            about = about_process(broker, "worker", self._started_at, queues=self._queues, outbox=backend.by_outbox)
            store.heartbeat(Instance(self.holder, about), keep=REMEMBERED)
        except StoreRefused as error:
            self._tell_refused(error)
            raise
        self._refused = False

    def _warn_of_handlers(self, broker: Broker) -> None:
        """Once, if nobody will tell the handlers of dead letters, or only some of them."""
        if self._warned or DLQ_ACTOR not in broker.actors:
            return
        queue = broker.actors[DLQ_ACTOR].queue_name
        unknown = self._unknown_handlers(broker, queue)
        if not is_heard(self._backend().store):
            self._warned = True
            self.logger.warning(
                "No worker consumes the queue %r, so nobody is told of dead letters. Start one without -Q, or with "
                "-Q %s.",
                queue,
                queue,
            )
        elif unknown:
            self._warned = True
            self.logger.warning(
                "Other workers have handlers of dead letters that this one does not know: %s. Whoever takes a letter "
                "up calls its own: load all of them here too, or keep this worker from the queue %r with -Q.",
                ", ".join(unknown),
                queue,
            )

    def _unknown_handlers(self, broker: Broker, queue: str) -> list[str]:
        """Those of others who consume the queue, if we do."""
        if queue not in self._queues:
            return []
        told = [one.data for one in self._backend().store.instances(keep=REMEMBERED)]
        others = {name for one in told if queue in one.get("queues", ()) for name in one.get("handlers", ())}
        return sorted(others - _handlers(broker))
