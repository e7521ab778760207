"""Schedules that are passed over for a while: after a failure, or because they wait for something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clock import Clock

__all__ = ["Resting"]

#: How long a schedule rests after a failure, in seconds: doubled each time.
_FIRST, _LONGEST = 1.0, 60.0
#: How long one that waits is passed over at most, in seconds; a wake-up ends it at once.
_WAIT = 1.0


@dataclass
class _Rest:
    until: float
    length: float
    reason: str


class Resting:
    """Who rests, and until when.

    Parameters:
      clock: of this process.
      first: how long one rests after its first failure, in seconds.
    """

    def __init__(self, clock: Clock, first: float = _FIRST) -> None:
        self._clock = clock
        self._first = first
        self._failed: dict[str, _Rest] = {}
        self._waiting: dict[str, float] = {}

    def __contains__(self, name: Any) -> bool:
        if not self._failed and not self._waiting:
            return False
        now = self._clock.monotonic()
        rest = self._failed.get(name)
        return bool((rest is not None and now < rest.until) or now < self._waiting.get(name, now))

    def failed(self, name: str, reason: str) -> bool:
        """A schedule rests, longer each time. Returns whether the reason is new, and worth a line in the log."""
        before = self._failed.get(name)
        length = min(_LONGEST, before.length * 2) if before else self._first
        self._failed[name] = _Rest(self._clock.monotonic() + length, length, reason)
        return before is None or before.reason != reason

    def recovered(self, name: str) -> None:
        """The schedule got further after a failure."""
        self._failed.pop(name, None)

    def waits(self, name: str) -> None:
        """A schedule waits for a run to be over; that is looked at again soon, or at a wake-up."""
        self._waiting[name] = self._clock.monotonic() + _WAIT

    def begin(self) -> None:
        """A pass begins: it looks at those whose wait is over, so that they are no reason for the next one."""
        if self._waiting:
            now = self._clock.monotonic()
            self._waiting = {name: until for name, until in self._waiting.items() if until > now}

    def woken(self) -> None:
        """Something changed: whoever waits is looked at again."""
        self._waiting.clear()

    @property
    def next_look(self) -> float | None:
        """In how many seconds the first who waits is to be looked at again."""
        if not self._waiting:
            return None
        return max(0.0, min(self._waiting.values()) - self._clock.monotonic())
