"""Worker processes that are killed: at random while thousands of messages fail, and by a message of theirs."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from dramatiq import Message
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import install
from dramatiq_distcron.demo.processes import Child
from dramatiq_distcron.server import Server
from tests.retry_soak.run import run
from tests.soaks import Plan
from tests.support import wait_until


@pytest.mark.timeout(300)
def test_with_workers_killed_at_random_every_failing_message_ends_once() -> None:
    """A smoke of ``tox -e soak-retries``."""
    outcome = run(Plan(messages=1500, workers=2, pace=1.0, seed=11, patience=200))
    assert outcome.violations == []
    assert outcome.kills > 0
    assert outcome.dead > 0


def is_killed(env: dict[str, str], client: Any, namespace: str) -> bool:
    """Starts a worker, and waits until it is killed or both messages are at their end."""
    worker = Child("worker", [sys.executable, "-m", "tests.process.killing_worker"], env)

    def at_rest() -> bool:
        dead = client.zcard(f"{namespace}:distcron:default:dead")
        return bool(dead) and not client.keys(f"{namespace}:distcron:*:deliveries:*")

    try:
        wait_until(lambda: not worker.alive or at_rest(), "a kill, or the end")
        if worker.alive:
            wait_until(lambda: client.get(f"{namespace}:harmless") and at_rest(), "the other message")
        return not worker.alive
    finally:
        worker.kill()


def test_a_message_that_kills_its_worker_each_time_ends_as_poison(
    server: Server, namespace: str, redis_broker: RedisBroker
) -> None:
    """Field bug 102: it is redelivered for ever, and the limit of retries is never asked."""
    client: Any = redis_broker.client
    for name in ("kills", "harmless"):
        redis_broker.enqueue(Message("default", name, (), {}, {}))
    env = {"TEST_REDIS_URL": server.url, "TEST_NAMESPACE": namespace}
    killed = 0
    while is_killed(env, client, namespace):
        killed += 1
    assert killed == 3
    assert int(client.get(f"{namespace}:runs")) == 3
    (letter,) = install(redis_broker).dead_letters.list()
    assert (letter.actor, letter.reason) == ("kills", "poison")
    # Nothing is remembered of those that ended.
    assert list(client.scan_iter(f"{namespace}:distcron:default:deliveries:*")) == []
