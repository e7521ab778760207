"""The thread that puts messages back into their queues when their retry is due: one in each worker process.

Each move is one step in the store, so that any number of these threads may be at it. The one in the process that
recorded a retry knows when it is due; the others look now and then, so that a killed process delays nothing for long.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dramatiq import Message

from .clock import Clock, SystemClock, wall_ms
from .errors import DistCronError
from .logs import get_logger
from .outbox import OutboxPublisher

if TYPE_CHECKING:
    from .backends import Backend
    from .retry_budget import RetryBudget
    from .store.base import Moved

__all__ = ["Mover"]

#: How often it is looked whether somebody else's retries are due, in seconds.
_LOOK = 1.0
#: How often what is not worth a look is done, in seconds.
_CHORES = 60.0
#: How many are moved in one step.
_BATCH = 100
#: After how long a message that was taken to be published and was not is due again, in ms.
_HOLD = 30_000
#: How long a process that leaves waits for the step the thread is at, in seconds.
_PATIENCE = 1.0
#: The rest after an error, in seconds.
_REST = 1.0


class Mover:
    """Parameters:
    backend: opens the store and the publisher.
    clock: of this process.
    look: how often it is looked whether somebody else's retries are due, in seconds.
    """

    def __init__(self, backend: Callable[[], Backend], clock: Clock | None = None, look: float = _LOOK) -> None:
        self.logger = get_logger(__name__, type(self))
        #: How often the thread met an error and went on.
        self.errors = 0
        #: What else is to be done now and then.
        self.chores: list[Callable[[], object]] = []
        self._tidying: threading.Thread | None = None
        self._next_chores = 0.0
        self._backend = backend
        self._clock = clock or SystemClock()
        self._look = look
        self._changed = threading.Condition()
        self._next: float | None = None
        self._offset: float | None = None
        self._earned: Counter[RetryBudget] = Counter()
        #: What is in its broker again and must not be taken once more.
        self._published: set[str] = set()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._users = 0
        self._on_duty: Callable[[], bool] = lambda: True
        self._failing = ""

    # -- what others tell it --------------------------------------------------------------------------------

    def now(self) -> int:
        """The store's clock in ms, as far as it is known."""
        return wall_ms() if self._offset is None else int(self._clock.monotonic() * 1000 + self._offset)

    def expect(self, delay: int) -> None:
        """A message was recorded that is due in ``delay`` ms."""
        due = self._clock.monotonic() + delay / 1000
        with self._changed:
            if self._next is None or due < self._next:
                self._next = due
                self._changed.notify_all()

    def earned(self, budget: RetryBudget) -> None:
        """A run of an actor with this budget succeeded."""
        with self._changed:
            self._earned[budget] += 1

    # -- the thread -----------------------------------------------------------------------------------------

    def start(self, on_duty: Callable[[], bool] = lambda: True) -> None:
        """Moves from now on, as long as ``on_duty`` says so."""
        self._users = max(0, self._users) + 1
        if self._thread is not None and self._thread.is_alive():
            # Several workers in one process share it.
            return
        # One of the process this was forked from is not alive here, nor are its users.
        self._users = 1
        self._on_duty = on_duty
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="distcron-retries", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the step it is at, and does not wait long for one that gets no answer."""
        self._users -= 1
        if self._users > 0:
            return
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            # A broker may never answer. What it was to publish is due again after a while, for another process.
            self._thread.join(_PATIENCE)
            self._thread = None
        if self._tidying is not None:
            self._tidying.join(_PATIENCE)

    @property
    def _is_over(self) -> bool:
        """Whether the thread we are in is to end: told to, or another one was started since."""
        return self._stopping or threading.current_thread() is not self._thread

    def _run(self) -> None:
        while not self._is_over:
            try:
                if self._on_duty():
                    self.move_due()
                    self._pay_in()
                    self._do_chores()
                self._failing = ""
            except DistCronError as error:
                self._failed(str(error))
            except Exception:
                self.errors += 1
                self.logger.exception("Moving retries failed unexpectedly; it goes on.")
                self._rest()
            self._wait()

    def _do_chores(self) -> None:
        """In a thread of their own: hooks of users are called there, and no retry may wait for them."""
        now = self._clock.monotonic()
        if now < self._next_chores or not self.chores or (self._tidying is not None and self._tidying.is_alive()):
            return
        self._next_chores = now + _CHORES * random.uniform(0.8, 1.2)
        self._tidying = threading.Thread(target=self._tidy, name="distcron-chores", daemon=True)
        self._tidying.start()

    def _tidy(self) -> None:
        for chore in self.chores:
            try:
                chore()
            except DistCronError as error:
                self.logger.warning("What is to be tidied up waits for the next time: %s", error)
            except Exception:
                self.errors += 1
                self.logger.exception("Tidying up failed unexpectedly; it is tried again.")

    def _failed(self, why: str) -> None:
        self.errors += 1
        if why != self._failing:
            self.logger.warning("Retries that are due wait: %s", why)
        self._failing = why
        self._rest()

    def _rest(self) -> None:
        with self._changed:
            self._next = self._clock.monotonic() + _REST

    def _wait(self) -> None:
        with self._changed:
            # Not all processes at the same time.
            look = self._clock.monotonic() + self._look * random.uniform(0.8, 1.0)
            while not self._is_over:
                until = look if self._next is None else min(look, self._next)
                left = until - self._clock.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            self._next = None

    # -- one look -------------------------------------------------------------------------------------------

    def move_due(self) -> int:
        """Puts back what is due. Returns how many. Raises what the store raises."""
        done = 0
        while not self._stopping:
            found = self._move_some()
            done += found.moved
            if found.failed:
                self.logger.error("A retry that is due waits on: %s", found.failed)
            if found.moved + found.put_off < _BATCH:
                break
        return done

    def _move_some(self) -> Moved:
        backend = self._backend()
        self._drop_published()
        asked = self._clock.monotonic()
        found = backend.store.move_retries(_BATCH, hold=_HOLD if backend.by_outbox else None)
        self._offset = found.now - asked * 1000
        self._publish_all(found.taken, until=asked + _HOLD / 2000)
        if found.next_due is not None:
            self.expect(max(0, found.next_due - found.now))
        if found.put_off:
            self.logger.info("Retries put off for now, because their budget is spent: %d.", found.put_off)
        return found

    def _publish_all(self, taken: Sequence[tuple[str, bytes]], until: float) -> None:
        """Publishes what was taken. What could not be in time is due again, and others may be at it by then."""
        for key, data in taken:
            if self._clock.monotonic() < until and self._publish_taken(key, data):
                self._published.add(key)
        self._drop_published()

    def _publish_taken(self, key: str, data: bytes) -> bool:
        publisher = self._backend().publisher
        assert isinstance(publisher, OutboxPublisher)
        try:
            publisher.publish(Message.decode(data))
        except Exception as error:
            self.errors += 1
            self.logger.error(
                "Retry %s could not be published; it is tried again in %d s: %s", key, _HOLD // 1000, error
            )
            return False
        return True

    def _drop_published(self) -> None:
        """Also what could not be dropped when it was published: it would be published twice."""
        for key in list(self._published):
            self._backend().store.drop_retry(key)
            self._published.discard(key)

    def _pay_in(self) -> None:
        with self._changed:
            earned, self._earned = self._earned, Counter()
        if not earned:
            return
        try:
            self._backend().store.earn(list(earned.items()))
        except DistCronError:
            with self._changed:
                self._earned.update(earned)
            raise
