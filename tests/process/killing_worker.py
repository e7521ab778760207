"""``python -m tests.process.killing_worker``: a worker that one of its messages kills."""

from __future__ import annotations

import os
import signal
import threading

import dramatiq
from dramatiq import Worker
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import install
from dramatiq_distcron.server import die_with_parent

broker = RedisBroker(
    url=os.environ["TEST_REDIS_URL"],
    namespace=os.environ["TEST_NAMESPACE"],
    # What a killed worker had goes to the next one soon.
    heartbeat_timeout=1000,
    maintenance_chance=1_000_000,
)
distcron = install(broker)


@dramatiq.actor(broker=broker, max_deliveries=3)
def kills() -> None:
    broker.client.incr(f"{broker.namespace}:runs")
    os.kill(os.getpid(), signal.SIGKILL)


@dramatiq.actor(broker=broker, max_deliveries=3)
def harmless() -> None:
    broker.client.incr(f"{broker.namespace}:harmless")


if __name__ == "__main__":
    die_with_parent(os.getppid())
    Worker(broker, worker_timeout=50, worker_threads=1).start()
    threading.Event().wait()
