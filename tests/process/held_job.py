"""The app of the tests of killed workers: a schedule whose runs are noted in Redis, and held until they are let go."""

from __future__ import annotations

import os
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import current_tick, every, install

# A worker that is silent for four seconds is dead, and each look at the queue looks for dead ones.
broker = RedisBroker(
    url=os.environ["TEST_REDIS_URL"],
    namespace=os.environ["TEST_NAMESPACE"],
    heartbeat_timeout=4000,
    maintenance_chance=1_000_000,
)
distcron = install(broker)
dramatiq.set_broker(broker)
NOTES = f"{broker.namespace}-notes"


@dramatiq.actor(
    periodic=every(1, catch_up="all", overlap=os.environ.get("TEST_OVERLAP", "allow")),  # type: ignore[arg-type]
    max_retries=0,
)
def job() -> None:
    tick = current_tick()
    assert tick is not None
    broker.client.rpush(NOTES, f"{os.getpid()} begins {tick.fire_time.timestamp():.0f}")
    while broker.client.exists(f"{NOTES}-held"):
        time.sleep(0.02)
    broker.client.rpush(NOTES, f"{os.getpid()} ends {tick.fire_time.timestamp():.0f}")
