"""Which tick an actor is run for."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

__all__ = ["Tick", "current_tick", "set_current_tick"]


@dataclass(frozen=True)
class Tick:
    """The tick an actor is run for.

    Attributes:
      schedule: the schedule's name.
      fire_time: its nominal fire time, in UTC; of a manual trigger, when that was.
      previous: the fire time of the schedule's tick before it that got a message, in UTC; ``None`` for the first one.
      attempt: how often it was tried before, from 0.
    """

    schedule: str
    fire_time: datetime
    previous: datetime | None
    attempt: int


_current: ContextVar[Tick | None] = ContextVar("dramatiq_distcron_tick", default=None)


def current_tick() -> Tick | None:
    """The tick this actor is run for, in sync and async actors; ``None`` where it was sent otherwise."""
    return _current.get()


def set_current_tick(tick: Tick | None) -> None:
    """For the middleware: what ``current_tick`` answers from now on in this context."""
    _current.set(tick)
