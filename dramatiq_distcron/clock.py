"""The only place that reads a clock."""

from __future__ import annotations

import time
from datetime import date
from typing import Protocol

__all__ = ["Clock", "SystemClock", "local_date", "wall_ms"]


class Clock(Protocol):
    """Elapsed time of this process. What time it *is* comes from the store, never from the host."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""
        ...


class SystemClock:
    """The clock of the running machine."""

    def monotonic(self) -> float:
        return time.monotonic()


def wall_ms() -> int:
    """The host's wall clock in UTC ms: the clock of a store that lives in this process."""
    return time.time_ns() // 1_000_000


def local_date() -> date:
    """The date on the host's wall clock, in its own zone: what others take when they are given none."""
    return date.today()
