"""The least that a Dramatiq broker is: queues in memory, at least once. What other brokers have in common."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from dramatiq import Broker, Message
from dramatiq.broker import Consumer, MessageProxy
from dramatiq.common import current_millis, dq_name, q_name
from dramatiq.errors import ConnectionClosed


@dataclass
class Wire:
    """What stands for the server: queues, what was given up, and whether it can be reached."""

    queues: dict[str, deque[bytes]] = field(default_factory=dict)
    dead: list[Message[Any]] = field(default_factory=list)
    enqueued: list[Message[Any]] = field(default_factory=list)
    down: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def put(self, queue: str, data: bytes) -> None:
        with self.changed:
            self.queues.setdefault(queue, deque()).append(data)
            self.changed.notify_all()


class PlainBroker(Broker):
    """Nothing but the interface. Written as its documentation tells, and knowing nothing of us."""

    def __init__(self, wire: Wire | None = None, middleware: Any = None) -> None:
        super().__init__(middleware)
        self.wire = wire or Wire()

    def declare_queue(self, queue_name: str) -> None:
        if queue_name in self.queues:
            return
        self.emit_before("declare_queue", queue_name)
        self.queues[queue_name] = True
        self.emit_after("declare_queue", queue_name)
        self.delay_queues.add(dq_name(queue_name))
        self.emit_after("declare_delay_queue", dq_name(queue_name))

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        if delay is not None:
            options = {"eta": current_millis() + delay}
            message = message.copy(queue_name=dq_name(message.queue_name), options=options)
        self.emit_before("enqueue", message, delay)
        if self.wire.down:
            raise ConnectionClosed("the broker is away")  # type: ignore[no-untyped-call]
        self.wire.enqueued.append(message)
        self.wire.put(message.queue_name, message.encode())
        self.emit_after("enqueue", message, delay)
        return message

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30_000) -> Consumer:
        return _PlainConsumer(self.wire, queue_name, prefetch, timeout)


class _PlainConsumer(Consumer):
    def __init__(self, wire: Wire, queue: str, prefetch: int, timeout: int) -> None:
        self._wire, self._queue = wire, queue
        self._timeout = timeout / 1000
        self._unacked: dict[int, Message[Any]] = {}
        # They are not bounded by it: tests have few messages.
        self._prefetch = prefetch

    def __next__(self) -> MessageProxy | None:
        with self._wire.changed:
            queue = self._wire.queues.setdefault(self._queue, deque())
            if not queue and not self._wire.changed.wait_for(lambda: queue, self._timeout):
                return None
            proxy = MessageProxy(Message.decode(queue.popleft()))
        self._unacked[id(proxy)] = proxy._message
        return proxy

    def ack(self, message: MessageProxy) -> None:
        if self._wire.down:
            raise ConnectionClosed("the broker is away")  # type: ignore[no-untyped-call]
        self._unacked.pop(id(message), None)

    def nack(self, message: MessageProxy) -> None:
        self.ack(message)
        self._wire.dead.append(message._message)

    def requeue(self, messages: Any) -> None:
        """What is not acked comes back by itself, as with RabbitMQ."""

    def close(self) -> None:
        for message in self._unacked.values():
            self._wire.put(q_name(self._queue) if "eta" not in message.options else self._queue, message.encode())
        self._unacked = {}
