"""When a schedule fires, by arithmetic of our own: the product's is what is tested."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

from dramatiq_distcron import Schedule, cron, every

__all__ = ["Times"]

#: Of a cron expression: the length of a step and of the field it starts anew in, in ms.
_FIELDS = {"seconds": (1000, 60_000), "minutes": (60_000, 3_600_000)}


@dataclass(frozen=True)
class Times:
    """Fire times in UTC ms: each ``step`` seconds, or each ``step`` seconds or minutes of a cron expression.

    ``offset`` moves those of ``every`` off the grid of the epoch; ``first`` and ``last`` bound them all.
    """

    kind: Literal["every", "seconds", "minutes"]
    step: int
    offset: int = 0
    first: int | None = None
    last: int | None = None

    def between(self, after: int, until: int) -> list[int]:
        """The fire times ``after`` < t <= ``until``, rising."""
        if self.first is not None:
            after = max(after, self.first - 1)
        if self.last is not None:
            until = min(until, self.last)
        return list(self._every(after, until) if self.kind == "every" else self._cron(after, until))

    def next_after(self, instant: int) -> int | None:
        """The first fire time after ``instant``."""
        found = self.between(max(instant, (self.first or 0) - 1), max(instant, self.first or 0) + 2 * self._longest_gap)
        return found[0] if found else None

    @property
    def _longest_gap(self) -> int:
        return self.step * 1000 if self.kind == "every" else _FIELDS[self.kind][1]

    def _every(self, after: int, until: int) -> Iterator[int]:
        step = self.step * 1000
        first = (after - self.offset) // step + 1
        yield from range(first * step + self.offset, until + 1, step)

    def _cron(self, after: int, until: int) -> Iterator[int]:
        unit, field = _FIELDS[self.kind]
        for start in range(after // field * field, until + 1, field):
            for time in range(start, start + field, unit * self.step):
                if after < time <= until:
                    yield time

    def schedule(self, **options: Any) -> Schedule:
        """The same, as a user writes it."""
        if self.first is not None:
            options["start"] = _instant(self.first)
        if self.last is not None:
            options["end"] = _instant(self.last)
        if self.kind == "every":
            return every(self.step, anchor=_instant(self.offset), **options)
        if self.kind == "seconds":
            return cron(f"*/{self.step} * * * * *", seconds="first", **options)
        return cron(f"*/{self.step} * * * *", **options)


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, timezone.utc)
