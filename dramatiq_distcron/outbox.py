"""Brokers that are not on our Redis: a message is committed to the outbox first, and published after.

A crash in between leaves it in the outbox, and the next leader publishes it; a crash after publishing and before
noting so publishes it twice. The broker gets it at least once, and the run's ticket lets one delivery run.
"""

from __future__ import annotations

import copy
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from dramatiq import Broker, Message
from dramatiq.middleware import MiddlewareError

from .clock import Clock, SystemClock
from .errors import BrokerConnectionError, DistCronError
from .logs import get_logger
from .publishing import Captured, Vetoed
from .resting import Resting
from .store.base import Ending, Started

if TYPE_CHECKING:
    from .store.base import Store

__all__ = ["LeavingPublisher", "OutboxPublisher"]

#: How long a broker that failed is left alone, in seconds.
_REST = 5.0
#: So many failures in a row are taken for the broker's, and not for the messages'.
_ENOUGH = 3
_BATCH = 500
#: How often it is looked whether somebody else left a message behind, in seconds.
_LOOK = 5.0
#: How long a beat that leaves waits for its last messages to be published, in seconds.
_PATIENCE = 1.0


class OutboxPublisher:
    """Publishes what was committed, with the broker's own ``enqueue()`` and its hooks.

    A beat calls :meth:`start`, and then a thread does it: a broker that does not answer must not keep the pass from
    its ticks. Without, the caller does.

    Parameters:
      broker: any Dramatiq broker.
      store: where the outbox is.
      clock: of this process.
    """

    def __init__(self, broker: Broker, store: Store, clock: Clock | None = None) -> None:
        self.logger = get_logger(__name__, type(self))
        self.behind = True
        self._broker = _confirming(broker)
        self._is_copy = self._broker is not broker
        self._store = store
        self._clock = clock or SystemClock()
        self._unfit = Resting(self._clock, first=30.0)
        self._rests_until = float("-inf")
        self._in_trouble = False
        self._on_duty: Callable[[], bool] = lambda: True
        self._left = False
        self._thread: threading.Thread | None = None
        self._asked, self._stopping = threading.Event(), threading.Event()

    def begin(self) -> None:
        """Nothing to prepare."""

    def capture(self, message: Message[Any]) -> Captured:
        """The message in the form of the outbox. Raises ``Vetoed`` if it cannot be encoded."""
        return _captured(message)

    def capture_plainly(self, message: Message[Any]) -> Captured:
        """The same: no hook runs before it is published."""
        return _captured(message)

    def announce(self, captured: Captured) -> None:
        """Publishes a message that was committed. If that fails, it stays in the outbox for later."""
        if self._thread is not None:
            self.look()
        elif self._clock.monotonic() < self._rests_until:
            self.behind = True
        else:
            self._publish(captured.message.message_id, captured.message)

    def publish(self, message: Message[Any]) -> None:
        """Puts a message into the broker, with its hooks. Raises what the broker raises."""
        self._broker.enqueue(message)

    def end_call(self, verb: str, queue: str, options: Mapping[str, Any]) -> Sequence[Any]:
        """Nothing: the ack is the broker's own, after ours."""
        return ()

    # -- the thread of a beat -------------------------------------------------------------------------------

    def start(self, on_duty: Callable[[], bool]) -> None:
        """Publishes in a thread from now on, as long as ``on_duty`` says so."""
        self._on_duty = on_duty
        self._left = False
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="distcron-outbox", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """There may be something in the outbox."""
        self.behind = True
        self._asked.set()

    def stop(self) -> None:
        """Ends the thread after what it can publish soon, and closes connections of ours."""
        if self._thread is None:
            self._close()
            return
        self._stopping.set()
        self._asked.set()
        self._thread.join(0 if self._left else _PATIENCE)
        # It may be at a long backlog, or wait for the broker: the next leader goes on.
        self._on_duty = lambda: False
        self._left = True
        if not self._thread.is_alive():
            self._thread = None

    def _run(self) -> None:
        while True:
            last = self._stopping.is_set()
            try:
                if self._on_duty():
                    self.catch_up()
            except DistCronError:
                # The loop meets the same trouble and tells of it.
                self._stopping.wait(1)
            except Exception:
                self.logger.exception("Publishing what is in the outbox failed unexpectedly; it goes on.")
                self._stopping.wait(1)
            if last:
                # Here, because a broker that does not answer may take its time for this too.
                self._close()
                return
            if not self._asked.wait(_LOOK):
                self.behind = True
            self._asked.clear()

    def _close(self) -> None:
        if self._is_copy:
            self._broker.close()

    # -- publishing -----------------------------------------------------------------------------------------

    def catch_up(self) -> int:
        """Publishes what lies in the outbox: just committed, or left by a process that died, or by a broker's absence.

        Returns how many messages that were. Raises what the store raises.
        """
        if not self.behind or self._clock.monotonic() < self._rests_until:
            return 0
        # Before we look: what is committed from now on is looked for again.
        self.behind = False
        done = failed = 0
        while failed < _ENOUGH:
            waiting = self._store.outbox(_BATCH, self._unfit)
            if not waiting:
                return done
            for message_id, message in self._in_order(waiting):
                if failed == _ENOUGH or not self._on_duty() or self._clock.monotonic() < self._rests_until:
                    self.behind = True
                    return done
                published = self._publish(message_id, message)
                done, failed = (done + 1, 0) if published else (done, failed + 1)
        self._rest()
        return done

    def _in_order(self, waiting: list[tuple[str, bytes]]) -> list[tuple[str, Message[Any]]]:
        """The messages that can be read, oldest first; the others must not hold them up."""
        readable: list[tuple[str, Message[Any]]] = []
        for message_id, data in waiting:
            try:
                readable.append((message_id, Message.decode(data)))
            except Exception as error:
                self._failed(message_id, error)
        return sorted(readable, key=lambda one: int(one[1].message_timestamp))

    def _publish(self, message_id: str, message: Message[Any]) -> bool:
        try:
            self._broker.enqueue(message)
        except BrokerConnectionError as error:
            self._away(error)
            return False
        except MiddlewareError as error:
            self._refused(message_id, error)
        except Exception as error:
            self._failed(message_id, error)
            return False
        self._store.published(message_id)
        self._unfit.recovered(message_id)
        if self._in_trouble:
            self._in_trouble = False
            self.logger.info("%s takes messages again.", type(self._broker).__name__)
        return True

    def _away(self, error: Exception) -> None:
        self._rest()
        if not self._in_trouble:
            self._in_trouble = True
            self.logger.error(
                "%s cannot be reached. Ticks are committed, and their messages wait in the outbox: %s: %s",
                type(self._broker).__name__,
                type(error).__name__,
                error,
            )

    def _rest(self) -> None:
        self._rests_until = self._clock.monotonic() + _REST
        self.behind = True

    def _failed(self, message_id: str, error: Exception) -> None:
        """It is this message's fault, as far as we know: the others must not wait for it."""
        self.behind = True
        reason = f"{type(error).__name__}: {error}"
        if self._unfit.failed(message_id, reason):
            self.logger.error(
                "Message %s is committed and cannot be published; it waits in the outbox: %s", message_id, reason
            )

    def _refused(self, message_id: str, error: Exception) -> None:
        """A middleware refused the message. Its run is over, unless a copy of it was published before."""
        self.logger.error("A middleware refused message %s, which is dropped: %s", message_id, error)
        claim = uuid.uuid4().hex
        claimed = self._store.claim_run(message_id, "", 0, claim)
        if isinstance(claimed, Started):
            reason = f"A middleware refused the message: {type(error).__name__}: {error}"
            self._store.settle(Ending(message_id, "dropped", reason, claim=claim))


class LeavingPublisher:
    """For one who knows where the state of an app is, and not its broker: the leader publishes.

    Parameters:
      store: where the outbox is.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def begin(self) -> None:
        """Nothing to prepare."""

    def capture(self, message: Message[Any]) -> Captured:
        """The message in the form of the outbox. Raises ``Vetoed`` if it cannot be encoded."""
        return _captured(message)

    def capture_plainly(self, message: Message[Any]) -> Captured:
        """The same: no hook runs before it is published."""
        return _captured(message)

    def announce(self, captured: Captured) -> None:
        """Wakes the leader, who finds the message in the outbox."""
        self._store.wake()

    def end_call(self, verb: str, queue: str, options: Mapping[str, Any]) -> Sequence[Any]:
        """Nothing: it ends no deliveries."""
        return ()


def _captured(message: Message[Any]) -> Captured:
    try:
        data = message.encode()
    except Exception as error:
        raise Vetoed(f"The message could not be made: {type(error).__name__}: {error}") from error
    return Captured(message, size=len(data), outbox=data)


def _confirming(broker: Broker) -> Broker:
    """The broker, with publisher confirms where it knows them: without, a lost publish would go unnoticed."""
    if not hasattr(broker, "confirm_delivery"):
        return broker
    confirming = cast(Any, copy.copy(broker))
    confirming.confirm_delivery = True
    # Channels of its own: those of the app are without.
    confirming.state = threading.local()
    confirming.connections, confirming.channels = set(), set()
    return cast(Broker, confirming)
