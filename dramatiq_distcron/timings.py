"""When: pure functions from an instant to the next fire time, the same on every host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from .cron_expression import CronExpression
from .cron_time import next_fire
from .durations import LAST_INSTANT, iso
from .zones import load_zone

__all__ = ["AnyTiming", "AtTiming", "BoundedTiming", "CronTiming", "EveryTiming", "Timing"]

_DAY = 86_400_000


class Timing(ABC):
    """One way to say when.

    Attributes:
      kind: the word for it in listings.
      expression: how it is shown.
      timezone: the zone its expression is read in, if any.
    """

    kind: str
    expression: str
    timezone: str | None

    @abstractmethod
    def next_ms(self, after: int) -> int | None:
        """The first fire time strictly after ``after``, both UTC ms; ``None`` if there is none."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """What ``timing_from_json`` builds an equal one from."""

    def next_within(self, after: int, start: int | None, end: int | None) -> int | None:
        """As ``next_ms``, not before ``start`` and not after ``end``, if these are given; UTC ms."""
        found = self.next_ms(after if start is None else max(after, start - 1))
        return None if found is None or (end is not None and found > end) else found

    def bind(self, name: str, timezone: str) -> Timing:
        """With what only the app knows: the schedule's name and the default zone."""
        return self

    def warnings(self) -> tuple[str, ...]:
        """What is valid but often not meant, one sentence each."""
        return ()


@dataclass(frozen=True)
class CronTiming(Timing):
    """By a cron expression, in a zone (``None``: the app's default)."""

    cron: CronExpression
    timezone: str | None = None
    kind = "cron"

    @property
    def expression(self) -> str:  # type: ignore[override]
        return self.cron.text

    def next_ms(self, after: int) -> int | None:
        return next_fire(self.cron, load_zone(self.timezone or "UTC"), after)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "expression": self.cron.text,
            "seconds": self.cron.seconds,
            "timezone": self.timezone,
        }

    def bind(self, name: str, timezone: str) -> Timing:
        return replace(self, cron=self.cron.spread(name), timezone=self.timezone or timezone)

    def warnings(self) -> tuple[str, ...]:
        return self.cron.warnings()


@dataclass(frozen=True)
class EveryTiming(Timing):
    """At ``anchor`` plus every multiple of ``interval``, both in ms: it never drifts."""

    interval: int
    anchor: int = 0
    kind = "every"
    timezone = None

    @property
    def expression(self) -> str:  # type: ignore[override]
        return f"every {timedelta(milliseconds=self.interval)}"

    def next_ms(self, after: int) -> int | None:
        found = self.anchor + ((after - self.anchor) // self.interval + 1) * self.interval
        return found if found <= LAST_INSTANT else None

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "interval": self.interval, "anchor": self.anchor}

    def warnings(self) -> tuple[str, ...]:
        if self.interval % _DAY:
            return ()
        length = "24 hours" if self.interval == _DAY else f"{self.interval // _DAY} times 24 hours"
        return (
            f"every() counts {length}, so that a clock change moves it by an hour on the wall; for a time of day use "
            "cron('0 3 * * *', tz=...)",
        )


@dataclass(frozen=True)
class AtTiming(Timing):
    """Once, at an instant in UTC ms."""

    instant: int
    kind = "at"
    timezone = None

    @property
    def expression(self) -> str:  # type: ignore[override]
        return f"at {iso(self.instant)}"

    def next_ms(self, after: int) -> int | None:
        return self.instant if after < self.instant else None

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "instant": self.instant}


@dataclass(frozen=True)
class AnyTiming(Timing):
    """Whenever one of several says so; a time of more than one is one fire time."""

    parts: tuple[Timing, ...]
    kind = "any_of"

    @property
    def expression(self) -> str:  # type: ignore[override]
        return " or ".join(part.expression for part in self.parts)

    @property
    def timezone(self) -> str | None:  # type: ignore[override]
        zones = {part.timezone for part in self.parts if part.timezone}
        return zones.pop() if len(zones) == 1 else None

    def next_ms(self, after: int) -> int | None:
        return min((found for part in self.parts if (found := part.next_ms(after)) is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "parts": [part.to_json() for part in self.parts]}

    def bind(self, name: str, timezone: str) -> Timing:
        return AnyTiming(tuple(part.bind(name, timezone) for part in self.parts))

    def warnings(self) -> tuple[str, ...]:
        return tuple(f"{part.expression}: {warning}" for part in self.parts for warning in part.warnings())


@dataclass(frozen=True)
class BoundedTiming(Timing):
    """Another one, not before ``start`` and not after ``end`` (UTC ms): the bounds of a part are its own."""

    timing: Timing
    start: int | None = None
    end: int | None = None
    kind = "bounded"

    @property
    def expression(self) -> str:  # type: ignore[override]
        since = "" if self.start is None else f" from {iso(self.start)}"
        until = "" if self.end is None else f" until {iso(self.end)}"
        return f"{self.timing.expression}{since}{until}"

    @property
    def timezone(self) -> str | None:  # type: ignore[override]
        return self.timing.timezone

    def next_ms(self, after: int) -> int | None:
        return self.timing.next_within(after, self.start, self.end)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "timing": self.timing.to_json(), "start": self.start, "end": self.end}

    def bind(self, name: str, timezone: str) -> Timing:
        return replace(self, timing=self.timing.bind(name, timezone))

    def warnings(self) -> tuple[str, ...]:
        return self.timing.warnings()
