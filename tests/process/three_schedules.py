"""The app of the process tests: three schedules of one second that catch up with all."""

from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import every, install

broker = RedisBroker(url=os.environ["TEST_REDIS_URL"], namespace=os.environ.get("TEST_NAMESPACE", "dramatiq"))
distcron = install(broker)
dramatiq.set_broker(broker)


@dramatiq.actor(periodic=[every(1, name=name, catch_up="all") for name in ("a", "b", "c")])
def job() -> None:
    pass
