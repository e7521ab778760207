"""The smallest app: two periodic actors."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import cron, every, install

broker = RedisBroker(url=os.environ.get("DISTCRON_REDIS_URL", "redis://127.0.0.1:6379/0"))
install(broker)  # before the actors
dramatiq.set_broker(broker)


@dramatiq.actor(periodic=cron("0 3 * * *", tz="Europe/Berlin"))
def nightly_report() -> None:
    print("the nightly report")


@dramatiq.actor(periodic=every(seconds=10))
def heartbeat() -> None:
    print("still here")
