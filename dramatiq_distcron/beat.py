"""The beat: the loop around the pass. It leads, or it stands by and waits to."""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress

from .backends import Backend
from .clock import Clock, SystemClock
from .durations import iso
from .errors import ConflictError, DistCronError, StoreRefused, StoreUnavailable
from .known import KnownSpecs
from .lease import Keeper, Lease, Progress
from .logs import get_logger
from .making import TickMaker
from .middleware.distcron import DistCron
from .middleware.presence import about_process
from .moving import Mover
from .office import Office
from .outbox import OutboxPublisher
from .places import Places
from .proving import prove
from .publishing import RedisPublisher
from .scheduler import PassReport, Scheduler
from .specs import Spec
from .staff import Staff
from .store.base import REMEMBERED, Acquired, Instance, Renewed
from .store.redis import RedisStore
from .trouble import Trouble
from .waking import Wake

__all__ = ["Beat"]

#: The longest a beat sleeps, in seconds: what a lost wake-up may cost.
_LONGEST_WAIT = 5.0
#: How often a process tells of itself, in seconds.
_HEARTBEAT = 15.0
#: How often runs are looked at whose message may be gone, in seconds.
_SWEEP = 10.0
#: How often retries are looked at, in seconds. Workers do so each second: whoever is to run them is there to do it.
_RETRIES = 15.0
#: The rest after an unexpected error, in seconds.
_REST = 5.0
#: A pass that made no step for so long is stuck, in lives of the lease and in seconds.
_PATIENCE_LEASES, _PATIENCE = 10, 30.0


class Beat:
    """Runs the schedules of one app for as long as it is told to.

    Parameters:
      distcron: the app's middleware; its broker and its schedules are used.
      owner: the code base it runs, to tell others with the same app name from it; asked for nothing unless given.
      adopt: makes the state that of ``owner``, whosever it is.
      lease_ttl: life of the lease in ms, if not the middleware's.
      clock: of this process.

    Raises:
      ConflictError: the broker cannot be served, or a schedule asks for what it cannot do.
    """

    def __init__(
        self,
        distcron: DistCron,
        *,
        owner: str = "",
        adopt: bool = False,
        lease_ttl: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.logger = get_logger(__name__, type(self))
        self.holder = uuid.uuid4().hex
        self.backend: Backend = distcron.open_backend()
        self.specs = self.backend.checked(distcron.specs())
        publisher = self.backend.publisher
        self._outbox = publisher if isinstance(publisher, OutboxPublisher) else None
        self._distcron = distcron
        self._owner, self._adopt = owner, adopt
        self._clock = clock or SystemClock()
        ttl = lease_ttl or distcron.settings.lease_ttl
        self.lease = Lease(self.backend.store, self._clock, self.holder, ttl)
        self._progress = Progress(self._clock, max(_PATIENCE, _PATIENCE_LEASES * ttl / 1000))
        self.office = Office(self.backend.store, self.lease, self.specs, self._progress)
        self.scheduler = self._make_scheduler()
        self._staff = Staff(self.backend.store, self._clock)
        self._keeper = Keeper(self.lease, self._progress, self._renewed)
        self._mover = Mover(distcron.open_backend, self._clock, look=_RETRIES)
        self._trouble = Trouble(self.backend.where, self._clock, self.logger)
        self._watcher = threading.Thread(target=self._watch, name="distcron-wake", daemon=True)
        self._wake = Wake()
        self._stopping = False
        self._left = threading.Event()
        self._proven = False
        self._in_office = False
        self._standing_by_for: str | None = None
        self._next_heartbeat = 0.0
        self._next_sweep = self._clock.monotonic() + _SWEEP
        self._steps_seen = 0
        self._started_at: int | None = None
        self._last_pass_at: int | None = None

    def _make_scheduler(self) -> Scheduler:
        store, publisher = self.backend.store, self.backend.publisher
        settings = self._distcron.settings
        maker = TickMaker(self._distcron.broker, publisher, self.backend.namespace, settings.app)
        return Scheduler(
            store=store,
            specs=KnownSpecs(store, Places(store, publisher), self._queue_of),
            maker=maker,
            lease=self.lease,
            clock=self._clock,
            progress=self._progress,
            disabled=settings.disabled,
        )

    def _queue_of(self, spec: Spec) -> str:
        """Where the messages of a schedule go: to the queue its actor has now."""
        actor = self._distcron.broker.actors.get(spec.actor)
        return spec.queue if actor is None else actor.queue_name

    # -- the loop -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Leads or stands by until :meth:`stop`. Survives a store that is away; never sends without the lease.

        Raises:
          ConflictError: the configuration cannot be served.
          StoreRefused: the store does not let us in at start.
        """
        self._start_threads()
        self._watcher.start()
        try:
            while not self._stopping:
                if self._wake.wait(self._guarded_turn()):
                    self._wake.clear()
                    self.scheduler.resting.woken()
                self._progress.made()
        finally:
            self._leave()

    def run_once(self) -> bool:
        """One term: take office, fire all that is due, leave. False: somebody else is on duty, nothing was done.

        Raises:
          StoreUnavailable, StoreRefused: the store is not there or does not let us.
        """
        self._start_threads()
        try:
            self._prove()
            if not isinstance(self.lease.acquire(), Acquired):
                return False
            report = self._lead()
            while report.more and not report.lost and not self._stopping:
                report = self._lead()
            return not report.lost
        finally:
            self._leave()

    def _start_threads(self) -> None:
        self._keeper.start()
        if self._outbox is not None:
            self._outbox.start(lambda: self.lease.trusted)
        self._mover.start(lambda: self.lease.trusted)

    def stop(self) -> None:
        """Ends the loop after the batch it is at. Safe to call from a signal handler and from other threads."""
        self._stopping = True
        self.scheduler.stopping = True
        self._wake.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    def _guarded_turn(self) -> float:
        try:
            wait = self._turn()
        except (StoreUnavailable, StoreRefused) as error:
            if isinstance(error, StoreRefused) and not self._proven:
                raise
            self._in_office = False
            return self._trouble.wait_after(error)
        except DistCronError:
            raise
        except Exception:
            # Whatever it is, ours or a foreign value in a key: the schedules must not wait for somebody to restart us.
            if not self._proven:
                raise
            self.logger.exception("The pass failed unexpectedly; another beat may try, and this one again.")
            self._in_office = False
            with suppress(DistCronError):
                self.lease.release()
            return _REST
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
        if self._owner:
            self._claim_ownership()
        self._started_at = store.now()
        self._proven = True

    def _claim_ownership(self) -> None:
        app = self._distcron.settings.app
        owner = self.backend.store.claim_owner(self._owner, adopt=self._adopt)
        # Once is enough: a later restart of the loop is none of the user's.
        self._adopt = False
        if owner != self._owner:
            raise ConflictError(
                f"The schedules of app {app!r} in {self.backend.where} are those of the code base {owner!r}, and this "
                f"is {self._owner!r}. Two code bases under one name would retire each other's schedules. Give one of "
                "them another name with DistCron(app=...); if it is the same app under a new module name, take over "
                "with --adopt."
            )

    def _try_to_lead(self) -> float:
        """Returns 0 as the leader, else how many seconds to stand by."""
        self._in_office = False
        reply = self.lease.acquire()
        if isinstance(reply, Acquired):
            self.logger.info("Leading since %s, term %d, as %s.", iso(self.lease.since), reply.term, self.holder)
            self._standing_by_for = None
            return 0
        if self._standing_by_for != reply.holder:
            if self._standing_by_for is None:
                self.office.compare()
            self._standing_by_for = reply.holder
            self.logger.info(
                "Standing by: %s leads, for %.1f s unless it renews.", reply.holder, reply.expires_in / 1000
            )
        self._beat_heart("standby")
        return max(0.001, min(reply.expires_in / 1000 + 0.001, _LONGEST_WAIT))

    def _lead(self) -> PassReport:
        if not self._in_office or self.office.damaged or self.lease.steps != self._steps_seen:
            self._steps_seen = self.lease.steps
            if self.office.take() is None:
                return PassReport(lost=True)
            self._in_office = True
            self._next_heartbeat = 0
        report = self.scheduler.pass_once()
        # Only ever set here: the keeper's thread may have set it in mid-pass.
        if report.damaged:
            self.office.damaged = True
        if self._outbox is not None:
            # Also what the leader before left, who died between a commit and its publishing.
            self._outbox.look()
        self._last_pass_at = self.lease.now()
        self._do_chores(report)
        return report

    def _do_chores(self, report: PassReport) -> None:
        """What is not worth a tick: if the store refuses it, the ticks go on."""
        chores = (
            self._sweep_now_and_then,
            lambda: self._beat_heart("leader"),
            lambda: self._staff.enqueued(report.actors),
        )
        for chore in chores:
            try:
                chore()
            except StoreRefused as error:
                self.logger.error("%s. The ticks go on.", str(error).rstrip("."))

    def _sweep_now_and_then(self) -> None:
        now = self._clock.monotonic()
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP
            self.scheduler.sweep()

    def _until_next(self, report: PassReport) -> float:
        if report.more or self.office.damaged:
            return 0
        waits = [_LONGEST_WAIT]
        if report.next_score is not None:
            waits.append(max(0.0, (report.next_score - self.lease.now()) / 1000))
        if self.scheduler.resting.next_look is not None:
            waits.append(self.scheduler.resting.next_look)
        return min(waits)

    def _leave(self) -> None:
        """Hands over: a standby is woken by the release."""
        self._stopping = True
        self._left.set()
        self._keeper.stop()
        self._keeper.join()
        self._mover.stop()
        if self._outbox is not None:
            self._outbox.stop()
        if self._started_at is None:
            # The store was never there, so there is nothing to give back.
            return
        led = self.lease.trusted
        try:
            self.lease.release()
            self.backend.store.forget(self.holder)
            # Others look around once and find nothing to do; our own watcher ends.
            self.backend.store.wake()
            self.logger.info("Stopped; %s.", "the lease is given back" if led else "another beat may lead")
        except DistCronError as error:
            self.logger.warning("The lease could not be given back, so it ends by itself: %s", error)
        if self._watcher.is_alive():
            self._watcher.join(1)

    # -- what other threads tell ----------------------------------------------------------------------------

    def _renewed(self, renewed: Renewed | None) -> None:
        """Called by the keeper's thread."""
        if renewed is None or (self._in_office and self.office.counted(renewed)):
            self._wake.set()

    def _watch(self) -> None:
        """A thread of its own: waits in the store for an edit or a release."""
        while not self._left.is_set():
            try:
                if self.backend.store.wait(_LONGEST_WAIT * 2):
                    self._wake.set()
            except DistCronError:
                # The loop meets the same trouble and tells of it.
                self._left.wait(1)
            except Exception:
                if self._left.is_set():
                    # We are leaving, and our connections are closed under us.
                    return
                self.logger.exception("Waiting for a wake-up failed unexpectedly; it goes on.")
                self._left.wait(1)

    def _beat_heart(self, role: str) -> None:
        now = self._clock.monotonic()
        if now < self._next_heartbeat:
            return
        self._next_heartbeat = now + _HEARTBEAT
        self.office.look()
        outbox = self.backend.by_outbox
        about = about_process(self._distcron.broker, role, self._started_at, self._last_pass_at, outbox=outbox)
        about["disabled"] = self._distcron.settings.disabled
        self.backend.store.heartbeat(Instance(self.holder, about), keep=REMEMBERED)
