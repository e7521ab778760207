"""The fields of an APScheduler CronTrigger, with our rules for clock changes.

Its weekdays count from Monday, its day fields are joined by AND, and it has a week and a year field: that is kept. How
it steps over clock changes is not: from a daily job at midnight it loses the day after the spring change (its issue
606), and in an overlap it can give the same instant for ever (1021). So it is asked about walls in UTC only, where no
clock changes, and the step into the zone is the one of every cron expression of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from apscheduler.triggers.cron import CronTrigger

from .cron_time import next_fire
from .timings import Timing
from .zones import load_zone

__all__ = ["TriggerCronTiming", "TriggerFields"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class TriggerFields:
    """The fields, as (name, expression); those that are left out have APScheduler's defaults."""

    given: tuple[tuple[str, str], ...]
    _trigger: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_trigger", CronTrigger(**dict(self.given), timezone=timezone.utc))

    @property
    def is_wildcard(self) -> bool:
        """Whether clock changes leave it alone: as with cron, if minute or hour starts with ``*`` or it has seconds."""
        fields = {one.name: str(one) for one in self._trigger.fields}
        return fields["minute"].startswith("*") or fields["hour"].startswith("*") or not fields["second"].isdigit()

    def next_wall_second(self, after: int) -> int | None:
        """The first matching wall time strictly after ``after``, in seconds since 1970."""
        try:
            start = _EPOCH + timedelta(seconds=after) + _MICROSECOND
            found = self._trigger.get_next_fire_time(None, start)
        except (OverflowError, ValueError):
            # The end of the calendar.
            return None
        return None if found is None else round((found - _EPOCH).total_seconds())


@dataclass(frozen=True)
class TriggerCronTiming(Timing):
    """By the fields of an APScheduler CronTrigger, in a zone."""

    fields: TriggerFields
    timezone: str
    kind = "apscheduler_cron"

    @property
    def expression(self) -> str:  # type: ignore[override]
        return ", ".join(f"{name}={value}" for name, value in self.fields.given)

    def next_ms(self, after: int) -> int | None:
        return next_fire(self.fields, load_zone(self.timezone), after)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "fields": dict(self.fields.given), "timezone": self.timezone}

    @classmethod
    def of(cls, fields: Mapping[str, str], zone: str) -> TriggerCronTiming:
        """Raises ``ValueError`` if APScheduler does not know the fields."""
        return cls(TriggerFields(tuple(fields.items())), zone)
