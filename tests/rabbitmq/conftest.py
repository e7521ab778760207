"""A RabbitMQ for all tests of this level, and for each a Redis of its own, beats and workers."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pika
import pytest
import redis
from dramatiq import Message

from dramatiq_distcron import DistCron, install
from dramatiq_distcron.backends import broker_at
from dramatiq_distcron.demo.processes import Child, beat_command, worker_command
from dramatiq_distcron.server import Server
from tests.rabbitmq.node import Node
from tests.support import wait_until

APP = "tests.rabbitmq.app"


class Site:
    """The processes of one app, and a look at all places where its messages can be."""

    def __init__(self, rabbit: Node, state: Server, notes_at: Server) -> None:
        self.rabbit = rabbit
        self.state = state
        self.queue = f"q{uuid.uuid4().hex[:8]}"
        self.notes: Any = redis.Redis.from_url(notes_at.url, decode_responses=True)
        self.distcron: DistCron = install(broker_at(state.url))
        self.store: Any = self.distcron.open_backend().store
        self._env = {
            "TEST_AMQP_URL": rabbit.url,
            "TEST_REDIS_URL": state.url,
            "TEST_NOTES_URL": notes_at.url,
            "TEST_QUEUE": self.queue,
        }
        self._children: list[Child] = []

    def beat(self, **env: str) -> Child:
        return self._start("beat", beat_command(APP), env)

    def worker(self, **env: str) -> Child:
        child = self._start("worker", worker_command(APP, threads=2), env)
        wait_until(lambda: "is ready for action" in child.output() or not child.alive, "a worker")
        assert child.alive, child.output()
        return child

    def _start(self, name: str, command: list[str], env: dict[str, str]) -> Child:
        child = Child(f"{name} {len(self._children)}", command, {**self._env, **env})
        self._children.append(child)
        return child

    def close(self) -> None:
        for child in self._children:
            child.kill()
        self.distcron.close()
        self.distcron.broker.client.close()  # type: ignore[attr-defined]
        self.notes.close()

    # -- what happened --------------------------------------------------------------------------------------

    def noted(self, what: str) -> Counter[str]:
        """How often each message did it."""
        return Counter(line.split()[0] for line in self.notes.lrange(what, 0, -1))

    def attempts(self, what: str) -> list[int]:
        return [int(line.split()[1]) for line in self.notes.lrange(what, 0, -1)]

    def trigger(self, name: str) -> str:
        """Enqueues one message of a schedule, by the URL of the state alone."""
        wait_until(lambda: self.distcron.status().leader and self.distcron.schedules.list(), "a leader")
        return self.distcron.schedules.trigger(name).message_id

    def run_of(self, message_id: str) -> str | None:
        """How the run of a message stands."""
        for tick in self.distcron.schedules.history(limit=10_000):
            if tick.message_id == message_id:
                return tick.run.state if tick.run else None
        return None

    def enqueued(self) -> set[str]:
        """The messages of all ticks that are recorded as enqueued."""
        ticks = self.distcron.schedules.history("job", limit=10_000)
        return {str(tick.message_id) for tick in ticks if tick.outcome == "enqueued"}

    def unpublished(self) -> list[str]:
        """The messages in the outbox."""
        return [key.decode() for key in self.distcron.broker.client.hkeys(self.store.keys.outbox)]  # type: ignore[attr-defined]

    def outbox(self) -> int:
        return int(self.distcron.broker.client.hlen(self.store.keys.outbox))  # type: ignore[attr-defined]

    def tickets(self) -> int:
        return int(self.distcron.broker.client.hlen(self.store.keys.runs))  # type: ignore[attr-defined]

    def retries(self) -> int:
        """How many messages wait for their retry."""
        return self.distcron.retries.count()

    def pass_a_minute_for(self, child: Child) -> None:
        """The worker processes of ``child`` were not heard of for a minute."""
        client: Any = self.distcron.broker.client  # type: ignore[attr-defined]
        holders = [one.holder for one in self.store.instances(keep=60_000) if one.data["role"] == "worker"]
        assert holders, child.output()
        client.zadd(self.store.keys.instances, {holder: self.store.now() - 61_000 for holder in holders})

    # -- RabbitMQ -------------------------------------------------------------------------------------------

    def peek(self, suffix: str = "") -> list[str]:
        """The ids of the messages that wait in a queue; they stay."""
        with pika.BlockingConnection(pika.URLParameters(self.rabbit.url)) as connection:
            channel = connection.channel()
            found = []
            while (got := channel.basic_get(self.queue + suffix))[0] is not None:
                found.append(Message.decode(got[2]).message_id)
            return found

    def declared(self) -> bool:
        with pika.BlockingConnection(pika.URLParameters(self.rabbit.url)) as connection:
            try:
                connection.channel().queue_declare(self.queue, passive=True)
            except pika.exceptions.ChannelClosedByBroker:
                return False
            return True

    def send_directly(self, actor: str, times: int = 1) -> str:
        """A message that is none of a tick, and an old one."""
        message: Message[Any] = Message(self.queue, actor, (), {}, {}, message_timestamp=1)
        # What is published to a queue that is not there yet is dropped without a word.
        wait_until(self.declared, "the queue")
        with pika.BlockingConnection(pika.URLParameters(self.rabbit.url)) as connection:
            for _ in range(times):
                connection.channel().basic_publish("", self.queue, message.encode())
        return message.message_id

    def delete_queue(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self.rabbit.url)) as connection:
            connection.channel().queue_delete(self.queue)

    def await_rest(self) -> None:
        """Nothing is on its way: no outbox, no ticket, no retry, nothing in a queue."""

        def rests() -> bool:
            waits = self.outbox() or self.tickets() or self.retries()
            return not waits and not self.peek() and not self.peek(".DQ")

        # A retry that could not be published is tried again after half a minute.
        wait_until(rests, "everything is done", 120)


@pytest.fixture(scope="session")
def rabbit() -> Iterator[Node]:
    # It tells of each queue that is not there yet.
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    with Node() as node:
        yield node


@pytest.fixture
def site(rabbit: Node, server: Server) -> Iterator[Site]:
    with Server() as state:
        site = Site(rabbit, state, server)
        site.notes.flushdb()
        yield site
        site.close()
