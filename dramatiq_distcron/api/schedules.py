"""Working with stored schedules: list, look at, trigger."""

from __future__ import annotations

import builtins
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import NotFoundError, ScheduleError, StoreRefused
from ..publishing import schedule_message
from ..specs import Spec, parse_spec
from ..store.base import NEVER, Fire, Guard, History, Record, Stored
from ..suggestions import did_you_mean
from ..ticks import ENQUEUED

if TYPE_CHECKING:
    from dramatiq import Broker, Message

    from ..backends import Backend

__all__ = ["ScheduleInfo", "Schedules", "TickInfo"]


@dataclass(frozen=True)
class ScheduleInfo:
    """A stored schedule. Times are UTC ms; ``state`` is ``active``, ``retired``, ``finished`` or ``disabled``."""

    name: str
    actor: str
    queue: str
    kind: str
    expression: str
    timezone: str | None
    next_fire_time: int | None
    last_fire_time: int | None
    last_outcome: str | None
    paused: bool
    source: str
    state: str
    reason: str


@dataclass(frozen=True)
class TickInfo:
    """One record of the history: what became of the fire times from ``fire_time`` to ``fire_time_to``."""

    schedule: str
    fire_time: int
    fire_time_to: int
    count: int
    outcome: str
    message_id: str | None
    decided_at: int
    lateness_ms: int | None
    term: int
    holder: str
    reason: str
    run: Mapping[str, Any] | None


class Schedules:
    """The schedules of one app, as they are stored.

    Parameters:
      broker: declares the actors, as far as their code is loaded.
      backend: opens the store.
    """

    def __init__(self, broker: Broker, backend: Callable[[], Backend]) -> None:
        self._broker = broker
        self._backend = backend

    def list(self) -> builtins.list[ScheduleInfo]:
        """Every schedule, by name."""
        store = self._backend().store
        stored = sorted(store.scan(), key=lambda one: one.name)
        last = store.last([one.name for one in stored])
        return [_info(one, last.get(one.name)) for one in stored]

    def get(self, name: str) -> ScheduleInfo:
        """One schedule. Raises ``NotFoundError`` with the nearest name if there is none."""
        return _info(self._stored(name), self._backend().store.last([name]).get(name))

    def history(self, name: str | None = None, *, limit: int = 100) -> builtins.list[TickInfo]:
        """The newest records first, of one schedule or of all. Old ones go by the history's size.

        Raises:
          NotFoundError: nothing is known of a schedule of that name.
        """
        store = self._backend().store
        last = store.last([name] if name is not None else [one.name for one in store.scan()])
        found = [_tick(name, fields) for name, fields in last.items() if fields.get("open") and fields["outcome"]]
        found += [_tick(one.schedule, one.fields, one) for one in store.history(name, limit)]
        if not found and name is not None:
            self._stored(name)
        return sorted(found, key=lambda tick: tick.decided_at, reverse=True)[:limit]

    def trigger(self, name: str) -> Message[Any]:
        """Enqueues the schedule's message now, beside its fire times, which it leaves alone.

        Raises:
          NotFoundError: there is no schedule of that name.
          ScheduleError: its stored form cannot be used here.
          StoreRefused: the store does not let us; nothing was sent.
          StoreUnavailable: whether it was sent is not known; look at the history.
        """
        backend = self._backend()
        while True:
            stored = self._stored(name)
            spec = parse_spec(stored.spec)
            now = backend.store.now()
            message = schedule_message(
                spec,
                self._broker.actors.get(spec.actor),
                message_id=str(uuid.uuid4()),
                fire_time=now,
                term=0,
                now=now,
            )
            captured = backend.publisher.capture(message)
            record = Record(ENQUEUED, now, now, reason="triggered", message_id=message.message_id, lateness=0)
            fire = Fire(name, stored.revision, None, NEVER, record, calls=captured.calls)
            (answer,) = backend.store.fire(Guard("", 0, now), [fire]) or ["stale"]
            if answer == "ok":
                backend.publisher.announce(captured)
                return captured.message
            if answer != "stale":
                raise StoreRefused(f"Schedule {name!r} was not triggered: {answer}")

    def _stored(self, name: str) -> Stored:
        store = self._backend().store
        found = store.get([name]).get(name)
        if found is None:
            hint = did_you_mean(name, [one.name for one in store.scan()])
            raise NotFoundError(f"There is no schedule {name!r}. {hint}")
        return found


def _info(stored: Stored, last: Mapping[str, Any] | None) -> ScheduleInfo:
    try:
        spec: Spec | None = parse_spec(stored.spec)
        reason = ""
    except ScheduleError as error:
        spec, reason = None, str(error)
    return ScheduleInfo(
        name=stored.name,
        actor=spec.actor if spec else _guess(stored.spec, "actor"),
        queue=spec.queue if spec else _guess(stored.spec, "queue"),
        kind=spec.timing.kind if spec else "",
        expression=spec.timing.expression if spec else "",
        timezone=spec.timing.timezone if spec else None,
        next_fire_time=None if stored.score in (None, NEVER) else stored.score,
        last_fire_time=int(last["fire_time_to"]) if last else None,
        last_outcome=last["outcome"] if last else None,
        paused=False,
        source=spec.source if spec else _guess(stored.spec, "source"),
        state=_state(stored, spec),
        reason=reason,
    )


def _state(stored: Stored, spec: Spec | None) -> str:
    if spec is None:
        return "disabled"
    if spec.retired:
        return "retired"
    return "finished" if stored.score == NEVER else "active"


def _guess(spec: str, field: str) -> str:
    """A field of a spec that cannot be used, for showing it."""
    try:
        return str(json.loads(spec)[field])
    except (ValueError, KeyError, TypeError):
        return ""


def _tick(name: str, fields: Mapping[str, Any], history: History | None = None) -> TickInfo:
    return TickInfo(
        schedule=name,
        fire_time=int(fields["fire_time"]),
        fire_time_to=int(fields["fire_time_to"]),
        count=int(fields["count"]),
        outcome=fields["outcome"],
        message_id=fields["message_id"] or None,
        decided_at=int(fields["decided_at"]),
        lateness_ms=int(fields["lateness_ms"]) if fields["lateness_ms"] else None,
        term=int(fields["term"] or 0),
        holder=fields["holder"],
        reason=fields["reason"],
        run=history.run if history else None,
    )
