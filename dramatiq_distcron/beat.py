"""The beat: the loop around the pass. It leads, or it stands by and waits to."""

from __future__ import annotations

import os
import random
import socket
import threading
import uuid
from typing import Any

from .api.status import REMEMBERED
from .backends import Backend
from .clock import Clock, SystemClock
from .durations import iso
from .errors import DistCronError, StoreRefused, StoreUnavailable
from .lease import Keeper, Lease, Progress
from .logs import get_logger
from .middleware.distcron import DistCron
from .proving import prove
from .publishing import RedisPublisher
from .scheduler import PassReport, Scheduler
from .store.base import Acquired, Instance, Renewed
from .store.redis import RedisStore
from .version import VERSION

__all__ = ["Beat"]

#: The longest a beat sleeps, in seconds: what a lost wake-up may cost.
_LONGEST_WAIT = 5.0
#: How often a process tells of itself, in seconds.
_HEARTBEAT = 15.0
#: A pass that made no step for so long is stuck, in lives of the lease and in seconds.
_PATIENCE_LEASES, _PATIENCE = 10, 30.0


class Beat:
    """Runs the schedules of one app for as long as it is told to.

    Parameters:
      distcron: the app's middleware; its broker and its schedules are used.
      lease_ttl: life of the lease in ms, if not the middleware's.
      clock: of this process.
    """

    def __init__(self, distcron: DistCron, *, lease_ttl: int | None = None, clock: Clock | None = None) -> None:
        self.logger = get_logger(__name__, type(self))
        self.holder = uuid.uuid4().hex
        self.backend: Backend = distcron.open_backend()
        self.specs = distcron.specs()
        self._distcron = distcron
        self._clock = clock or SystemClock()
        ttl = lease_ttl or distcron.settings.lease_ttl
        self.lease = Lease(self.backend.store, self._clock, self.holder, ttl)
        self._progress = Progress(self._clock, max(_PATIENCE, _PATIENCE_LEASES * ttl / 1000))
        self.scheduler = self._make_scheduler()
        self._keeper = Keeper(self.lease, self._progress, self._renewed)
        self._trouble = _Trouble(self.backend.where)
        self._watcher = threading.Thread(target=self._watch, name="distcron-wake", daemon=True)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._proven = False
        self._in_office = False
        self._standing_by_for: str | None = None
        self._next_heartbeat = 0.0
        self._started_at: int | None = None
        self._last_pass_at: int | None = None

    def _make_scheduler(self) -> Scheduler:
        return Scheduler(
            broker=self._distcron.broker,
            publisher=self.backend.publisher,
            namespace=self.backend.namespace,
            app=self._distcron.settings.app,
            store=self.backend.store,
            lease=self.lease,
            clock=self._clock,
            code=self.specs,
            progress=self._progress,
        )

    # -- the loop -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Leads or stands by until :meth:`stop`. Survives a store that is away; never sends without the lease.

        Raises:
          ConflictError: the configuration cannot be served.
          StoreRefused: the store does not let us in at start.
        """
        self._keeper.start()
        self._watcher.start()
        try:
            while not self._stopping.is_set():
                self._wake.wait(self._guarded_turn())
                self._wake.clear()
                self._progress.made()
        finally:
            self._leave()

    def run_once(self) -> bool:
        """One term: take office, fire all that is due, leave. False: somebody else is on duty, nothing was done.

        Raises:
          StoreUnavailable, StoreRefused: the store is not there or does not let us.
        """
        self._keeper.start()
        try:
            self._prove()
            if not isinstance(self.lease.acquire(), Acquired):
                return False
            report = self._lead()
            while report.more and not report.lost:
                report = self._lead()
            return not report.lost
        finally:
            self._leave()

    def stop(self) -> None:
        """Ends the loop after the batch it is at. Safe to call from a signal handler and from other threads."""
        self._stopping.set()
        self._wake.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def _guarded_turn(self) -> float:
        try:
            wait = self._turn()
        except (StoreUnavailable, StoreRefused) as error:
            if isinstance(error, StoreRefused) and not self._proven:
                raise
            self._in_office = False
            return self._trouble.wait_after(error)
        self._trouble.over()
        return wait

    def _turn(self) -> float:
        """One turn; returns how many seconds to wait until the next."""
        if not self._proven:
            self._prove()
        if not self.lease.trusted:
            wait = self._try_to_lead()
            if wait > 0:
                return wait
        report = self._lead()
        if report.lost:
            self._in_office = False
            self.logger.warning("The lease is lost; standing by.")
            return 0
        return self._until_next(report)

    def _prove(self) -> None:
        store, publisher = self.backend.store, self.backend.publisher
        if isinstance(store, RedisStore) and isinstance(publisher, RedisPublisher):
            queues = sorted({spec.queue for spec in self.specs.values()})
            prove(store, publisher, queues or ["default"], self.logger)
        self._started_at = store.now()
        self._proven = True

    def _try_to_lead(self) -> float:
        """Returns 0 as the leader, else how many seconds to stand by."""
        self._in_office = False
        reply = self.lease.acquire()
        if isinstance(reply, Acquired):
            self.logger.info("Leading since %s, term %d, as %s.", iso(self.lease.since), reply.term, self.holder)
            self._standing_by_for = None
            return 0
        if self._standing_by_for != reply.holder:
            self._standing_by_for = reply.holder
            self.logger.info("Standing by: %s leads.", reply.holder)
        self._beat_heart("standby")
        return max(0.001, min(reply.expires_in / 1000 + 0.001, _LONGEST_WAIT))

    def _lead(self) -> PassReport:
        if not self._in_office:
            if self.scheduler.take_office() is None:
                return PassReport(lost=True)
            self._in_office = True
            self._next_heartbeat = 0
        report = self.scheduler.pass_once()
        self._last_pass_at = self.lease.now()
        self._beat_heart("leader")
        return report

    def _until_next(self, report: PassReport) -> float:
        if report.more:
            return 0
        if report.next_score is None:
            return _LONGEST_WAIT
        return min(max(0.0, (report.next_score - self.lease.now()) / 1000), _LONGEST_WAIT)

    def _leave(self) -> None:
        """Hands over: a standby is woken by the release."""
        self._stopping.set()
        self._keeper.stop()
        self._keeper.join()
        if self._started_at is None:
            # The store was never there, so there is nothing to give back.
            return
        try:
            self.lease.release()
            self.backend.store.forget(self.holder)
            # Others look around once and find nothing to do; our own watcher ends.
            self.backend.store.wake()
        except DistCronError as error:
            self.logger.warning("The lease could not be given back, so it ends by itself: %s", error)
        if self._watcher.is_alive():
            self._watcher.join(1)

    # -- what other threads tell ----------------------------------------------------------------------------

    def _renewed(self, renewed: Renewed | None) -> None:
        """Called by the keeper's thread."""
        if renewed is None:
            self._wake.set()
        elif (
            self._in_office
            and renewed.schedules is not None
            and (renewed.schedules != renewed.cursors or renewed.schedules < len(self.specs))
        ):
            self.logger.error(
                "The store has %d schedules and %d cursors of at least %d: something was evicted or deleted.",
                renewed.schedules,
                renewed.cursors,
                len(self.specs),
            )
            self._in_office = False
            self._wake.set()

    def _watch(self) -> None:
        """A thread of its own: waits in the store for an edit or a release."""
        while not self._stopping.is_set():
            try:
                if self.backend.store.wait(_LONGEST_WAIT * 2):
                    self._wake.set()
            except DistCronError:
                # The loop meets the same trouble and tells of it.
                self._stopping.wait(1)
            except Exception:
                self.logger.exception("Waiting for a wake-up failed unexpectedly; it goes on.")
                self._stopping.wait(1)

    def _beat_heart(self, role: str) -> None:
        now = self._clock.monotonic()
        if now < self._next_heartbeat:
            return
        self._next_heartbeat = now + _HEARTBEAT
        self.backend.store.heartbeat(Instance(self.holder, self._about_me(role)), keep=REMEMBERED)

    def _about_me(self, role: str) -> dict[str, Any]:
        return {
            "role": role,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": VERSION,
            "started_at": self._started_at,
            "last_pass_at": self._last_pass_at,
            "actors": {name: actor.queue_name for name, actor in sorted(self._distcron.broker.actors.items())},
        }


class _Trouble:
    """A store that is away: told at once, then seldom; asked again soon, then every two seconds."""

    def __init__(self, where: str) -> None:
        self.logger = get_logger(__name__, Beat)
        self._where = where
        self._clock = SystemClock()
        self._since: float | None = None
        self._next_word = 0.0
        self._silence = 5.0
        self._pause = 0.1

    def wait_after(self, error: DistCronError) -> float:
        """Tells of the error if it is time to, and returns how many seconds to wait."""
        now = self._clock.monotonic()
        if self._since is None:
            self._since, self._silence, self._next_word, self._pause = now, 5.0, now, 0.1
        if now >= self._next_word:
            self.logger.error("%s. Nothing is enqueued meanwhile; trying again.", str(error).rstrip("."))
            self._next_word = now + self._silence
            self._silence = min(self._silence * 2, 300.0)
        self._pause = min(self._pause * 2, 2.0)
        return self._pause * random.uniform(0.5, 1.0)

    def over(self) -> None:
        if self._since is not None:
            self.logger.info("%s is back after %.1f s.", self._where, self._clock.monotonic() - self._since)
            self._since = None
