"""What is shown of schedules, ticks and runs, as records of their own: the stored forms may change, these not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..durations import iso
from ..errors import ScheduleError
from ..policies import Policy
from ..specs import Pause, Spec, parse_spec
from ..store.base import NEVER, History, Stored

#: Policies that are stored in ms.
_DURATIONS = ("misfire_grace_time", "overlap_timeout", "spread", "expires")

__all__ = ["RunInfo", "ScheduleInfo", "TickInfo", "schedule_info", "tick_info"]


@dataclass(frozen=True)
class ScheduleInfo:
    """A stored schedule. Times are UTC ms; ``state`` is ``active``, ``retired``, ``finished`` or ``disabled``.

    ``reason`` says why it is disabled, or why and until when it is paused. ``args`` and ``kwargs`` are those of the
    actor; ``None`` if another encoder than Dramatiq's own encoded them, which ``encoder`` names then. ``policy`` has
    the policies that differ from the built-in defaults, with durations in seconds and instants as text.
    """

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
    args: list[Any] | None = None
    kwargs: Mapping[str, Any] | None = None
    encoder: str | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunInfo:
    """How the run of a tick's message stands: ``queued``, ``running``, ``retrying``, ``succeeded``, ``dead`` or
    ``dropped``; UTC ms. ``message_id`` is the tick's, or the one that its letter was sent back as."""

    state: str
    started_at: int | None
    finished_at: int | None
    error: str | None
    message_id: str


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
    run: RunInfo | None


def schedule_info(stored: Stored, last: Mapping[str, Any] | None, now: int) -> ScheduleInfo:
    """What is shown of a schedule at ``now`` (UTC ms): a pause with an end is over by itself."""
    try:
        spec: Spec | None = parse_spec(stored.spec)
        reason = ""
    except ScheduleError as error:
        spec, reason = None, str(error)
    pause = _pause_of(spec, now)
    return ScheduleInfo(
        name=stored.name,
        actor=spec.actor if spec else _guess(stored.spec, "actor"),
        queue=spec.queue if spec else _guess(stored.spec, "queue"),
        kind=spec.timing.kind if spec else "",
        expression=spec.timing.expression if spec else "",
        timezone=spec.timing.timezone if spec else None,
        next_fire_time=_next_fire_time(stored, spec),
        last_fire_time=int(last["fire_time_to"]) if last else None,
        last_outcome=last["outcome"] if last else None,
        paused=pause is not None,
        source=spec.source if spec else _guess(stored.spec, "source"),
        state=_state(stored, spec),
        reason=_pause_reason(pause) if pause else reason,
        **(_settings(spec) if spec else {}),
    )


def _settings(spec: Spec) -> dict[str, Any]:
    """What it is called with, and how its fire times are dealt with."""
    defaults = asdict(Policy())
    policy = {name: _shown(name, value) for name, value in asdict(spec.policy).items() if value != defaults[name]}
    if "encoded" in spec.payload:
        return {"encoder": str(spec.payload.get("encoder")), "policy": policy}
    return {"args": list(spec.payload["args"]), "kwargs": dict(spec.payload["kwargs"]), "policy": policy}


def _shown(name: str, value: Any) -> Any:
    """The value of a policy as it is written: durations in seconds, instants as text."""
    if name in ("start", "end"):
        return iso(value)
    if name not in _DURATIONS:
        return value
    return value / 1000 if value % 1000 else value // 1000


def _pause_of(spec: Spec | None, now: int) -> Pause | None:
    """The pause that lasts at ``now``."""
    pause = None if spec is None else spec.paused
    return pause if pause is not None and now < (pause.until or NEVER) else None


def _pause_reason(pause: Pause) -> str:
    until = "" if pause.until is None else f"until {iso(pause.until)}"
    return f"{pause.reason} ({until})" if pause.reason and until else pause.reason or until


def _next_fire_time(stored: Stored, spec: Spec | None) -> int | None:
    if stored.score is None or stored.score == NEVER:
        return None
    return spec.fire_time_of(stored.score) if spec else stored.score


def _state(stored: Stored, spec: Spec | None) -> str:
    if spec is None:
        return "disabled"
    if spec.retired:
        return "retired"
    if not spec.policy.enabled:
        return "disabled"
    return "finished" if stored.score == NEVER else "active"


def _guess(spec: str, field: str) -> str:
    """A field of a spec that cannot be used, for showing it."""
    try:
        return str(json.loads(spec)[field])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def tick_info(name: str, fields: Mapping[str, Any], history: History | None = None) -> TickInfo:
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
        run=_run(history.run, fields["message_id"]) if history and history.run else None,
    )


def _run(fields: Mapping[str, str], message_id: str) -> RunInfo:
    started, finished = fields.get("started_at"), fields.get("finished_at")
    return RunInfo(
        state=fields["state"],
        started_at=int(started) if started else None,
        finished_at=int(finished) if finished else None,
        error=fields.get("error") or None,
        message_id=fields.get("run", message_id),
    )
