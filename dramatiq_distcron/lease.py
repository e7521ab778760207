"""Who is on duty.

The lease keeps standbys quiet; it is no part of the promise of one message a tick, which the commit keeps by
comparing. What the lease must not do is to be held by somebody who does nothing: it is renewed only while the
pass makes progress.

Trust in a lease ends at the start of the request that got it, plus its life, minus a margin: a slow reply never
makes it longer. An answer that did not come is "don't know", and "don't know" means standby.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from .errors import DistCronError
from .logs import get_logger
from .store.base import Acquired

if TYPE_CHECKING:
    from .clock import Clock
    from .store.base import Held, Renewed, Store

__all__ = ["Keeper", "Lease", "Progress"]

#: The part of a lease's life that is not trusted: clocks run at different speeds, and threads wake up late.
_MARGIN = 0.1
#: A step of the store's clock that is worth a warning, in ms.
_STEP = 1000
#: An answer that took longer is not used to correct the clock, in ms.
_SLOW = 20
#: Each which renewal counts the state: that costs two commands.
_COUNT_EACH = 5


class Lease:
    """The lease as this process knows it. Thread-safe.

    Parameters:
      store: where it is kept.
      clock: of this process.
      holder: random for each process start; a host name or a pid comes twice.
      ttl: its life in ms.
    """

    def __init__(self, store: Store, clock: Clock, holder: str, ttl: int) -> None:
        self.holder = holder
        self.ttl = ttl
        self.term = 0
        self.since = 0
        #: How often the store's clock was seen to step.
        self.steps = 0
        self.logger = get_logger(__name__, type(self))
        self._store = store
        self._clock = clock
        self._mutex = threading.Lock()
        self._trusted_until = float("-inf")
        self._offset: float | None = None

    @property
    def trusted(self) -> bool:
        """Whether we may act as the leader now."""
        return self._clock.monotonic() < self._trusted_until

    @property
    def is_first(self) -> bool:
        """Whether the store knew of no term before ours: it is new, or was emptied."""
        return self.term == self.since

    def now(self) -> int:
        """The store's clock in ms: the monotonic clock plus an offset sampled with each answer of the store."""
        if self._offset is None:
            asked = self._clock.monotonic()
            self._sample(self._store.now(), asked)
        return int(self._clock.monotonic() * 1000 + (self._offset or 0))

    def acquire(self) -> Acquired | Held:
        """Tries to become the leader. Raises what the store raises; then we are none."""
        with self._mutex:
            self._distrust()
            asked = self._clock.monotonic()
            reply = self._store.acquire(self.holder, self.ttl)
            if isinstance(reply, Acquired):
                self._sample(reply.now, asked)
                self.term, self.since = reply.term, reply.now
                self._trust_from(asked)
            return reply

    def renew(self, *, count: bool = False) -> Renewed | None:
        """Prolongs it, and counts the state if told to. ``None``: it was lost.

        An error leaves the trust that is left, and no more.
        """
        with self._mutex:
            asked = self._clock.monotonic()
            reply = self._store.renew(self.holder, self.ttl, count=count)
            if reply is None:
                self._distrust()
            else:
                self._sample(reply.now, asked)
                self._trust_from(asked)
            return reply

    def release(self) -> None:
        """Gives it back, so that a standby need not wait for its end."""
        with self._mutex:
            self._distrust()
            self._store.release(self.holder)

    def lost(self) -> None:
        """The store told us, by refusing a commit, that it is not ours."""
        with self._mutex:
            self._distrust()

    def _trust_from(self, asked: float) -> None:
        self._trusted_until = asked + self.ttl / 1000 * (1 - _MARGIN)

    def _distrust(self) -> None:
        self._trusted_until = float("-inf")

    def _sample(self, answer: int, asked: float) -> None:
        """Takes in what the store's clock said at some moment between ``asked`` and now."""
        earliest = answer - self._clock.monotonic() * 1000
        latest = answer - asked * 1000
        before = self._offset
        if before is not None and earliest <= before <= latest and latest - earliest > _SLOW:
            # A slow answer tells less than we know, and is no step of the clock.
            return
        # The answer may be as old as the request, so that our idea of now is late and never early.
        self._offset = earliest
        step = 0.0 if before is None else min(earliest - before, latest - before, key=abs)
        if abs(step) > _STEP:
            self.steps += 1
            self.logger.warning(
                "The clock of the store stepped by %+.1f s. No tick is repeated: the cursors stay where they are.",
                step / 1000,
            )


class Progress:
    """Proof that the pass moves. Waiting for the next tick counts as moving."""

    def __init__(self, clock: Clock, patience: float) -> None:
        self._clock = clock
        self._patience = patience
        self._last = clock.monotonic()

    def made(self) -> None:
        """The pass got a step further."""
        self._last = self._clock.monotonic()

    @property
    def stuck(self) -> bool:
        """No step for so long that somebody else should try."""
        return self._clock.monotonic() - self._last > self._patience


class Keeper(threading.Thread):
    """Renews the lease in a thread of its own, so that a slow hook does not lose it, as long as the pass moves.

    Parameters:
      lease: the lease to keep.
      progress: what the pass tells of itself.
      renewed: called after each renewal with the answer, and with ``None`` when the lease was lost.
    """

    def __init__(self, lease: Lease, progress: Progress, renewed: Callable[[Renewed | None], None]) -> None:
        super().__init__(name="distcron-lease", daemon=True)
        self.logger = get_logger(__name__, type(self))
        self._lease = lease
        self._progress = progress
        self._renewed = renewed
        self._stopped = threading.Event()
        self._complained = self._failing = False
        self._turns = 0

    def run(self) -> None:
        pause = self._lease.ttl / 3000
        while not self._stopped.wait(pause):
            try:
                pause = self._turn()
            except Exception:
                self.logger.exception("The renewal of the lease failed unexpectedly; it goes on.")

    def stop(self) -> None:
        self._stopped.set()

    def _turn(self) -> float:
        """One turn; returns the seconds to wait until the next."""
        if not self._lease.trusted:
            return self._lease.ttl / 3000
        if self._progress.stuck:
            self._complain()
            return self._lease.ttl / 3000
        self._complained = False
        try:
            self._turns += 1
            self._renewed(self._lease.renew(count=self._turns % _COUNT_EACH == 1))
        except DistCronError as error:
            if not self._failing:
                self.logger.warning("The lease could not be renewed; it is tried again until it ends: %s", error)
            self._failing = True
            return self._lease.ttl / 10_000
        self._failing = False
        return self._lease.ttl / 3000

    def _complain(self) -> None:
        if not self._complained:
            self._complained = True
            self.logger.error(
                "The pass is stuck: no step for long. The lease is not renewed any more, so that a standby "
                "takes over. Look for a before_enqueue hook that does not return."
            )
