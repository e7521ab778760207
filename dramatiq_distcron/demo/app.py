"""The sample app of the demonstration: three schedules of one second, one of them of an actor that fails at first."""

from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import CurrentMessage

from dramatiq_distcron import every, install
from dramatiq_distcron.demo import leash  # noqa: F401

#: Each run that succeeded: schedule and fire time. Each that failed: the same.
SUCCEEDED, FAILED = "distcron-demo:succeeded", "distcron-demo:failed"

broker = RedisBroker(url=os.environ.get("DISTCRON_REDIS_URL", "redis://127.0.0.1:6379/0"))
broker.add_middleware(CurrentMessage())
distcron = install(broker, catch_up="all")
dramatiq.set_broker(broker)


def _note(where: str) -> None:
    message = CurrentMessage.get_current_message()
    assert message is not None
    tick = message.options["distcron"]
    broker.client.rpush(where, f"{tick['schedule']} {tick['fire_time']}")


@dramatiq.actor(periodic=every(seconds=1))
def send_reminders() -> None:
    _note(SUCCEEDED)


@dramatiq.actor(periodic=every(seconds=1))
def charge_invoices() -> None:
    _note(SUCCEEDED)


@dramatiq.actor(periodic=every(seconds=1), min_backoff=100, max_backoff=500, max_retries=20)
def sync_with_a_flaky_service() -> None:
    message = CurrentMessage.get_current_message()
    if message is not None and not message.options.get("retries"):
        _note(FAILED)
        raise dramatiq.Retry("the service is not there at first")
    _note(SUCCEEDED)
