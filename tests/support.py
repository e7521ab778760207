"""What tests of several levels share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dramatiq import Broker, Message
from dramatiq.brokers.stub import StubBroker

from dramatiq_distcron.backends import Backend
from dramatiq_distcron.store.base import Edit, Fire, Guard, Record


class FakeClock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


def queued(broker: Any, queue: str = "default") -> list[Message[Any]]:
    """The messages on a queue, oldest first, without taking them."""
    if isinstance(broker, StubBroker):
        return [Message.decode(data) for data in broker.queues[queue].queue]
    key = f"{broker.namespace}:{queue}"
    ids = broker.client.lrange(key, 0, -1)
    return [Message.decode(broker.client.hget(f"{key}.msgs", one)) for one in ids]


def orphans(broker: Any, queue: str = "default") -> int:
    """How many messages lie in the hash of a queue and on no list."""
    key = f"{broker.namespace}:{queue}"
    return int(broker.client.hlen(f"{key}.msgs")) - int(broker.client.llen(key))


def wait_until(is_so: Callable[[], Any], what: str, seconds: float = 30.0) -> Any:
    """Polls until ``is_so()`` is true and returns it. For tests of processes and threads only."""
    deadline = time.monotonic() + seconds
    while not (found := is_so()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain: {what}")
        time.sleep(0.01)
    return found


class Shy:
    """It cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no word of me")


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


class Rig:
    """A store with the broker it serves, and short ways to put schedules in and fire them."""

    def __init__(self, broker: Broker, backend: Backend) -> None:
        self.broker: Any = broker
        self.store: Any = backend.store
        self.publisher = backend.publisher
        self.publisher.begin()
        self.guard = Guard("", 1, 10_000)

    def lead(self, holder: str = "a", ttl: int = 60_000) -> Guard:
        """Takes the lease; later writes are this leader's."""
        term = self.store.acquire(holder, ttl).term
        self.guard = Guard(holder, term, self.guard.now)
        return self.guard

    def put(self, name: str, score: int = 1000, **spec: Any) -> int:
        """Stores a schedule and returns its revision."""
        before = self.store.get([name]).get(name)
        answer = self.store.edit(self.guard, [Edit(name, before, {"format": 1, "name": name, **spec}, score)])
        assert answer == ["ok"], answer
        return self.revision(name)

    def revision(self, name: str) -> int:
        revision = self.store.get([name])[name].revision
        assert isinstance(revision, int)
        return revision

    def score(self, name: str) -> int | None:
        score: int | None = self.store.get([name])[name].score
        return score

    def tick(self, name: str, score: int = 1000, new_score: int = 2000, *, queue: str = "default", **fire: Any) -> Fire:
        """A tick with a message of its own, decided on the present revision unless told otherwise."""
        message_id = fire.pop("message_id", f"{name}@{score}")
        message: Message[Any] = Message(queue, "actor", (), {}, {}, message_id, 1)
        captured = self.publisher.capture(message)
        fire.setdefault("revision", self.revision(name))
        record = Record("enqueued", score, score, message_id=message_id, lateness=5)
        return Fire(name, score=score, new_score=new_score, record=record, calls=captured.calls, **fire)

    def passing(self, name: str, score: int, new_score: int, outcome: str = "missed", **record: Any) -> Fire:
        """A move of the cursor without a message."""
        return Fire(name, self.revision(name), score, new_score, Record(outcome, score, score, **record))

    def fire(self, *fires: Fire) -> list[str] | None:
        answers: list[str] | None = self.store.fire(self.guard, list(fires))
        return answers

    def history(self, name: str | None = None) -> list[dict[str, str]]:
        """The stream, oldest first."""
        return [dict(one.fields) for one in reversed(self.store.history(name, 1000))]
