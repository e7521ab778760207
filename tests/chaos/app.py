"""The app under chaos: what beats and workers load. Everything it does depends on the environment alone."""

from __future__ import annotations

import os
import time
import zlib
from pathlib import Path
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import CurrentMessage, Middleware, MiddlewareError

from dramatiq_distcron import install
from dramatiq_distcron.demo import leash  # noqa: F401

from .planted import plant
from .population import VETOED, population
from .witness import Witness

#: For tests of the checker only: a fault of this name is built in.
plant(os.environ.get("CHAOS_PLANTED", ""))

broker = RedisBroker(
    url=os.environ["CHAOS_REDIS_URL"],
    heartbeat_timeout=int(os.environ["CHAOS_HEARTBEAT_TIMEOUT"]),
    # Often: a run is too short to wait for one command in a thousand.
    maintenance_chance=50_000,
)
broker.add_middleware(CurrentMessage())


class Refused(MiddlewareError):
    """This message is not to be sent."""


class Hook(Middleware):
    """Listens to what is enqueued, so that the beat takes the long way, and refuses some of it."""

    def before_enqueue(self, broker: Any, message: dramatiq.Message[Any], delay: int | None) -> None:
        tick = message.options.get("distcron", {})
        if tick.get("schedule", "").endswith(VETOED):
            raise Refused("refused by the hook")


if os.environ.get("CHAOS_HOOKED") == "1":
    broker.add_middleware(Hook())

distcron = install(broker, history_size=10_000_000, lease_ttl=float(os.environ["CHAOS_LEASE"]))
dramatiq.set_broker(broker)

_witness = Witness(Path(os.environ["CHAOS_FOLDER"]))


def _saw(event: Any, version: int) -> dramatiq.Message[Any]:
    message = CurrentMessage.get_current_message()
    assert message is not None
    _witness.saw(event, message.message_id, message.options, version)
    return message


def _draw(message: dramatiq.Message[Any]) -> float:
    """From 0 to 1, the same for the same message."""
    return zlib.crc32(message.message_id.encode()) / 2**32


@dramatiq.actor
def quick(version: int) -> None:
    _saw("begun", version)
    _saw("done", version)


@dramatiq.actor(queue_name="slow")
def slow(version: int) -> None:
    time.sleep(0.02 + 0.6 * _draw(_saw("begun", version)))
    _saw("done", version)


@dramatiq.actor(queue_name="narrow")
def narrow(version: int) -> None:
    time.sleep(0.05 * _draw(_saw("begun", version)))
    _saw("done", version)


@dramatiq.actor(queue_name="flaky", min_backoff=100, max_backoff=1000, max_retries=5)
def flaky(version: int) -> None:
    """Fails up to twice."""
    message = _saw("begun", version)
    if message.options.get("retries", 0) < int(_draw(message) * 3):
        _saw("failed", version)
        raise dramatiq.Retry("not yet")
    _saw("done", version)


@dramatiq.actor(queue_name="flaky", min_backoff=100, max_backoff=200, max_retries=1)
def doomed(version: int) -> None:
    _saw("begun", version)
    _saw("failed", version)
    raise dramatiq.Retry("never")


_actors = {actor.actor_name: actor for actor in (quick, slow, narrow, flaky, doomed)}

for wanted in population(
    int(os.environ["CHAOS_SEED"]), int(os.environ["CHAOS_SCHEDULES"]), int(os.environ["CHAOS_BASE"])
):
    if wanted.source == "code":
        wanted.schedule()(_actors[wanted.actor])
