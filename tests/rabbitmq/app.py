"""The app of these tests. What it is to do, and where to crash, is in its environment."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import dramatiq
import redis
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.middleware import CurrentMessage, Middleware

from dramatiq_distcron import DeadLetter, current_tick, every, install
from dramatiq_distcron.demo import leash  # noqa: F401

notes = redis.Redis.from_url(os.environ["TEST_NOTES_URL"], decode_responses=True)
queue = os.environ["TEST_QUEUE"]


class Crash(Middleware):
    """Ends the process as a power failure would, at one step of one message."""

    def __init__(self, step: str) -> None:
        self._step = step

    def _reach(self, step: str, message: Any) -> None:
        if step == self._step and "distcron" in message.options:
            notes.rpush("crashed", message.message_id)
            os.kill(os.getpid(), signal.SIGKILL)

    def before_enqueue(self, broker: Any, message: Any, delay: int | None) -> None:
        self._reach("before_enqueue", message)

    def after_enqueue(self, broker: Any, message: Any, delay: int | None) -> None:
        self._reach("after_enqueue", message)

    def after_ack(self, broker: Any, message: Any) -> None:
        self._reach("after_ack", message)

    def before_ack(self, broker: Any, message: Any) -> None:
        self._reach("before_ack", message)


broker = RabbitmqBroker(url=os.environ["TEST_AMQP_URL"])
broker.add_middleware(CurrentMessage())
lease = float(os.environ.get("TEST_LEASE", "2"))
distcron = install(broker, redis=os.environ["TEST_REDIS_URL"], lease_ttl=lease, catch_up="all")
if os.environ.get("TEST_CRASH"):
    broker.add_middleware(Crash(os.environ["TEST_CRASH"]))
dramatiq.set_broker(broker)


def note(what: str) -> None:
    message = CurrentMessage.get_current_message()
    tick = current_tick()
    assert message is not None
    assert tick is not None
    notes.rpush(what, f"{message.message_id} {tick.attempt}")


ticking = every(1) if os.environ.get("TEST_TICKS") else every(days=300)


@dramatiq.actor(queue_name=queue, periodic=ticking)
def job() -> None:
    note("ran")


@dramatiq.actor(queue_name=queue, periodic=every(days=300), min_backoff=50, max_backoff=50, max_retries=3)
def flaky() -> None:
    note("ran")
    if current_tick().attempt < 2:  # type: ignore[union-attr]
        raise dramatiq.Retry("not yet", delay=50)


@dramatiq.actor(queue_name=queue, periodic=every(days=300), max_retries=1)
def dying() -> None:
    note("ran")
    raise dramatiq.Retry("never", delay=50)


@dramatiq.actor(queue_name=queue, periodic=every(days=300), backoff=float(os.environ.get("TEST_BACKOFF", "0.05")))
def waiting() -> None:
    """Fails once."""
    note("ran")
    if current_tick().attempt == 0:  # type: ignore[union-attr]
        raise ValueError("not yet")


@dramatiq.actor(queue_name=queue, backoff=0.05)
def plain() -> None:
    """Fails twice, and is no tick's."""
    message = CurrentMessage.get_current_message()
    assert message is not None
    attempt = message.options.get("retries", 0)
    notes.rpush("plain", attempt)
    if attempt < 2:
        raise ValueError("not yet")


@dramatiq.actor(queue_name=queue)
def aside() -> None:
    """Nothing of ours."""
    notes.set("aside", "ran")


@dramatiq.actor(queue_name=queue, periodic=every(days=300), max_retries=3, time_limit=600_000)
def slow() -> None:
    """Runs until it is told to go on, and fails if it is told so."""
    note("began")
    while not (word := notes.get("go")):
        time.sleep(0.02)
    note("ran")
    if word == "fail" and current_tick().attempt == 0:  # type: ignore[union-attr]
        raise dramatiq.Retry("as told", delay=50)


@dramatiq.actor(queue_name=queue, max_retries=0)
def fragile() -> None:
    message = CurrentMessage.get_current_message()
    assert message is not None
    if notes.get("whole"):
        notes.rpush("healed", message.message_id)
        return
    notes.rpush("died", message.message_id)
    raise ValueError("not whole")


@dramatiq.actor(queue_name=queue, max_age=1000)
def aged() -> None:
    """Too old to run."""


@distcron.dead_letters.handler
def tell(letter: DeadLetter) -> None:
    notes.rpush("told", letter.id)
