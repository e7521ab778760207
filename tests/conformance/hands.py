"""A worker's hands: messages that were given out and not acked yet, on either broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dramatiq import Message
from dramatiq.brokers.stub import StubBroker

from dramatiq_distcron.store.base import ANY_RUN, Ending, Fire
from tests.support import Rig

QUEUE = "default"


class Hands:
    """What a worker does to messages on the queue ``default``."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig

    def take(self) -> list[Message[Any]]:
        """Takes every message off the queue."""
        raise NotImplementedError

    def given(self, *names: str) -> list[Message[Any]]:
        """Messages that were enqueued and taken."""
        for name in names:
            self.rig.broker.enqueue(Message(QUEUE, "job", (), {}, {}, name, 1))
        return self.take()

    def place(self) -> str:
        """Where the messages of the queue lie, as a run remembers it."""
        raise NotImplementedError

    def redis_id(self, call: Sequence[Any]) -> str:
        """By which id the message of a call lies there."""
        raise NotImplementedError

    def ack(self, message: Message[Any]) -> Sequence[Any]:
        """The call that acks."""
        raise NotImplementedError

    def is_there(self, message: Message[Any]) -> bool:
        raise NotImplementedError

    def flush(self) -> None:
        """All messages are gone, whoever has them."""
        raise NotImplementedError

    # -- ticks with runs ----------------------------------------------------------------------------------------

    def tick(self, name: str, score: int = 1000, *, run_before: str = ANY_RUN, at: int = 5000, **run: str) -> Fire:
        """A tick whose run is recorded."""
        tick = self.rig.tick(name, score, score + 1000, run_before=run_before)
        return tick._replace(
            run=json.dumps(
                {
                    "schedule": name,
                    "queue": QUEUE,
                    "place": self.place(),
                    "fire_time": str(score),
                    "rid": self.redis_id(tick.calls[0]),
                    "state": "queued",
                    "at": str(at),
                    "previous": "",
                    **run,
                }
            )
        )

    def fire(self, name: str, score: int = 1000, **fire: Any) -> str:
        """Commits such a tick and returns the id of its message."""
        tick = self.tick(name, score, **fire)
        assert self.rig.fire(tick) == ["ok"]
        return tick.record.message_id

    def ending(self, message: Message[Any], state: str, **ending: Any) -> Ending:
        return Ending(message.message_id, state, call=self.ack(message), **ending)


class HandsOnRedis(Hands):
    def take(self) -> list[Message[Any]]:
        return [Message.decode(data) for data in self.rig.broker.do_fetch(QUEUE, 1000)]

    def place(self) -> str:
        return f"{self.rig.broker.namespace}:{QUEUE}.msgs"

    def redis_id(self, call: Sequence[Any]) -> str:
        return str(Message.decode(call[-1]).options["redis_message_id"])

    def ack(self, message: Message[Any]) -> Sequence[Any]:
        return self.rig.publisher.end_call("ack", QUEUE, message.options)

    def is_there(self, message: Message[Any]) -> bool:
        return bool(self.rig.broker.client.hexists(self.place(), message.options["redis_message_id"]))

    def flush(self) -> None:
        self.rig.broker.flush_all()
        self.rig.broker.client.delete(self.place())


class HandsInMemory(Hands):
    """The memory store is given the ends of deliveries as a script of a Redis broker would be."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self._held: set[str] = set()
        enqueue = rig.store._dispatch

        def dispatch(call: Sequence[Any]) -> int | None:
            if call[0] != "ack":
                return enqueue(call)  # type: ignore[no-any-return]
            taken = len(self._held & {call[1]})
            self._held -= {call[1]}
            return taken

        rig.store._dispatch = dispatch
        rig.store._is_there = lambda place, redis_id: redis_id in self._held | self._queued()

    def _queued(self) -> set[str]:
        broker: StubBroker = self.rig.broker
        return {Message.decode(data).message_id for data in list(broker.queues[QUEUE].queue)}

    def take(self) -> list[Message[Any]]:
        queue = self.rig.broker.queues[QUEUE]
        taken = [Message.decode(queue.get_nowait()) for _ in range(queue.qsize())]
        self._held |= {message.message_id for message in taken}
        return taken

    def place(self) -> str:
        return "place"

    def redis_id(self, call: Sequence[Any]) -> str:
        return str(Message.decode(call[-1]).message_id)

    def ack(self, message: Message[Any]) -> Sequence[Any]:
        return ("ack", message.message_id)

    def is_there(self, message: Message[Any]) -> bool:
        return message.message_id in self._held | self._queued()

    def flush(self) -> None:
        self.take()
        self._held.clear()
