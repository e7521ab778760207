"""Brokers that are not on our Redis: a message is committed to the outbox first, and published after.

A crash in between leaves it in the outbox, and the next leader publishes it; a crash after publishing and before
noting so publishes it twice. The broker gets it at least once, and the run's ticket lets one delivery run.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from dramatiq import Broker, Message

from .clock import Clock, SystemClock
from .logs import get_logger
from .publishing import Captured, Vetoed

if TYPE_CHECKING:
    from .store.base import Store

__all__ = ["OutboxPublisher"]

#: How long a broker that failed is left alone, in seconds.
_REST = 5.0
_BATCH = 500


class OutboxPublisher:
    """Publishes what was committed, with the broker's own ``enqueue()`` and its hooks.

    Parameters:
      broker: any Dramatiq broker.
      store: where the outbox is.
    """

    def __init__(self, broker: Broker, store: Store, clock: Clock | None = None) -> None:
        self.logger = get_logger(__name__, type(self))
        self._broker = _confirming(broker)
        self._store = store
        self._clock = clock or SystemClock()
        self._rests_until = float("-inf")
        self._unreadable: set[str] = set()
        self.behind = True

    def begin(self) -> None:
        """Nothing to prepare."""

    def capture(self, message: Message[Any]) -> Captured:
        """The message in the form of the outbox. Raises ``Vetoed`` if it cannot be encoded."""
        try:
            data = message.encode()
        except Exception as error:
            raise Vetoed(f"The message could not be made: {type(error).__name__}: {error}") from error
        return Captured(message, size=len(data), outbox=data)

    def announce(self, captured: Captured) -> None:
        """Publishes a message that was committed. If that fails, it stays in the outbox for later."""
        if self._clock.monotonic() < self._rests_until:
            self.behind = True
            return
        self._publish(captured.message.message_id, captured.message)

    def catch_up(self) -> int:
        """Publishes what lies in the outbox: left by a beat that died, or while the broker was away.

        Returns how many messages that were. Raises what the store raises.
        """
        if not self.behind or self._clock.monotonic() < self._rests_until:
            return 0
        done = 0
        while True:
            waiting = [(i, data) for i, data in self._store.outbox(_BATCH) if i not in self._unreadable]
            for message_id, data in waiting:
                message = self._decoded(message_id, data)
                if message is None:
                    continue
                if not self._publish(message_id, message):
                    return done
                done += 1
            if not waiting:
                self.behind = False
                return done

    def _decoded(self, message_id: str, data: bytes) -> Message[Any] | None:
        """``None``: it was encoded with something this process does not use; it stays for one that does."""
        try:
            return Message.decode(data)
        except Exception as error:
            self._unreadable.add(message_id)
            self.logger.error("Message %s is committed and cannot be read here, so it stays: %s", message_id, error)
            return None

    def _publish(self, message_id: str, message: Message[Any]) -> bool:
        try:
            self._broker.enqueue(message)
        except Exception as error:
            self._rests_until = self._clock.monotonic() + _REST
            self.behind = True
            self.logger.error(
                "Message %s is committed and could not be published; it waits in the outbox: %s: %s",
                message_id,
                type(error).__name__,
                error,
            )
            return False
        self._store.published(message_id)
        return True

    def end_call(self, verb: str, queue: str, options: Mapping[str, Any]) -> Sequence[Any]:
        """Nothing: the ack is the broker's own, after ours."""
        return ()


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
