"""The fields of an APScheduler CronTrigger, with our rules for clock changes.

Its weekdays count from Monday, its day fields are joined by AND, and it has a week and a year field: that is kept. How
it steps over clock changes is not: from a daily job at midnight it loses the day after the spring change (its issue
606), and in an overlap it can give the same instant for ever (1021). So it is asked about walls in UTC only, where no
clock changes, and the step into the zone is the one of every cron expression of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
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
#: After so many years the calendar is the same, so that there is nothing more to be found.
_CYCLE = 400


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
            found = self._until_all_is_seen(start).get_next_fire_time(None, start)
        except (OverflowError, ValueError):
            # The end of the calendar.
            return None
        return None if found is None else round((found - _EPOCH).total_seconds())

    def _until_all_is_seen(self, start: datetime) -> Any:
        """The trigger, with an end. Without one it would look for a date that never comes for seconds."""
        first = self._trigger.fields[0].get_next_value(start)
        last = (start.year if first is None else first) + _CYCLE
        bounded = copy(self._trigger)
        bounded.end_date = None if last > datetime.max.year else datetime(last, 12, 31, tzinfo=timezone.utc)
        return bounded


@dataclass(frozen=True)
class TriggerCronTiming(Timing):
    """By the fields of an APScheduler CronTrigger, in a zone."""

    fields: TriggerFields
    timezone: str
    kind = "apscheduler_cron"

    @property
    def expression(self) -> str:  # type: ignore[override]
        return ", ".join(f"{name}={value}" for name, value in self.fields.given) or "every second"

    def next_ms(self, after: int) -> int | None:
        return next_fire(self.fields, load_zone(self.timezone), after)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "fields": dict(self.fields.given), "timezone": self.timezone}

    def warnings(self) -> tuple[str, ...]:
        weekday = dict(self.fields.given).get("day_of_week", "")
        if not any(character.isdigit() for character in weekday):
            return ()
        return (
            f"day_of_week={weekday} counts from Monday as 0, as APScheduler does, and not from Sunday as cron does; "
            "names such as mon-fri are read alike",
        )

    @classmethod
    def of(cls, fields: Mapping[str, str], zone: str) -> TriggerCronTiming:
        """Raises ``ValueError`` if APScheduler does not know the fields."""
        return cls(TriggerFields(tuple(fields.items())), zone)
