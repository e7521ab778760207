"""Running a schedule now, by hand: one step, as a tick's, that moves no cursor."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import RunOutstanding, StoreRefused
from ..messages import schedule_message
from ..outbox import LeavingPublisher
from ..places import Places
from ..store.base import ANY_RUN, NEVER, NO_RUN, REMEMBERED, Fire, Guard, Record, Stored
from ..ticks import ENQUEUED

if TYPE_CHECKING:
    from dramatiq import Broker, Message

    from ..backends import Backend
    from ..publishing import Captured, Publisher
    from ..specs import Spec

__all__ = ["try_trigger"]


def try_trigger(broker: Broker, backend: Backend, stored: Stored, spec: Spec) -> Message[Any] | None:
    """Enqueues the schedule's message. ``None``: it changed since it was read as ``stored``, and nothing was sent.

    Raises:
      RunOutstanding: its runs must not overlap, and one is not over.
      StoreRefused: the store does not let us; nothing was sent.
      StoreUnavailable: whether it was sent is not known.
    """
    # First: what will be refused needs no hook to run.
    run_before = _run_before(backend, spec)
    now = backend.store.now()
    publisher = _publisher(backend, spec)
    captured = publisher.capture(_message(broker, backend, spec, now))
    record = Record(ENQUEUED, now, now, reason="triggered", message_id=captured.message.message_id, lateness=0)
    run = json.dumps(_run(Places(backend.store, publisher), spec, captured, now))
    fire = Fire(
        spec.name,
        stored.revision,
        None,
        NEVER,
        record,
        run_before,
        run,
        captured.outbox,
        captured.calls,
    )
    (answer,) = backend.store.fire(Guard("", 0, now), [fire]) or ["stale"]
    if answer == "ok":
        publisher.announce(captured)
        return captured.message
    if answer != "stale":
        raise StoreRefused(f"Schedule {spec.name!r} was not triggered: {answer}")
    return None


def _publisher(backend: Backend, spec: Spec) -> Publisher:
    # By the URL of the state alone, the app's broker is not known: its leader publishes.
    leaves = spec.outbox and not backend.by_outbox
    return LeavingPublisher(backend.store) if leaves else backend.publisher


def _message(broker: Broker, backend: Backend, spec: Spec, now: int) -> Message[Any]:
    actor = broker.actors.get(spec.actor)
    if actor is None:
        spec = replace(spec, queue=_told_queue(backend, spec))
    return schedule_message(spec, actor, message_id=str(uuid.uuid4()), fire_time=now, term=0, now=now)


def _told_queue(backend: Backend, spec: Spec) -> str:
    """The queue the actor has now, as beats and workers tell; it may have moved since the schedule was stored."""
    told = (one.data.get("actors", {}) for one in backend.store.instances(keep=REMEMBERED))
    return next((str(actors[spec.actor]) for actors in told if spec.actor in actors), spec.queue)


def _run(places: Places, spec: Spec, captured: Captured, now: int) -> dict[str, str]:
    queue = captured.message.queue_name
    return {
        "schedule": spec.name,
        "queue": queue,
        "place": places.of(queue).messages,
        "fire_time": str(now),
        "rid": captured.message.options.get("redis_message_id", ""),
        "state": "queued",
        "at": str(now),
    }


def _run_before(backend: Backend, spec: Spec) -> str:
    if spec.policy.overlap == "allow":
        return ANY_RUN
    outstanding = backend.store.outstanding(spec.name)
    if outstanding:
        raise RunOutstanding(
            f"Schedule {spec.name!r} was not triggered: with overlap={spec.policy.overlap!r} a run begins when the "
            f"one before is over, and message {outstanding} is not. Wait for it, or look at it in the history."
        )
    return NO_RUN
