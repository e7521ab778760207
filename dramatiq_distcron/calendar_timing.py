"""Every so many years, months, weeks or days, at one time of day: APScheduler's CalendarIntervalTrigger, by our own
arithmetic.

APScheduler's own loses a date when the one before falls into a gap of the clock (its pull request 1138), and begins
with its start date again whenever it is asked without a previous time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any

from .durations import instant_ms, utc
from .timings import Timing
from .zones import load_zone

__all__ = ["CalendarTiming"]

_ONE_DAY = timedelta(days=1)
#: The second day of the calendar, in UTC ms: there is a day before it.
_FIRST = instant_ms(datetime(1, 1, 2, tzinfo=timezone.utc), "")


@dataclass(frozen=True)
class CalendarTiming(Timing):
    """From ``start`` on, each date ``months`` and then ``days`` after the one before, at ``second`` of the day.

    A month without the day of the month is passed over, and so is a date whose time a clock change skips; of a time
    that comes twice, the first counts.
    """

    months: int
    days: int
    second: int
    start: date
    end: date | None
    timezone: str
    kind = "calendar"

    @property
    def expression(self) -> str:  # type: ignore[override]
        parts = [_counted(self.months, "month"), _counted(self.days, "day")]
        interval = " and ".join(filter(None, parts))
        time = str(timedelta(seconds=self.second)).rjust(8, "0")
        return f"every {interval.removeprefix('1 ')} at {time} from {self.start}"

    def next_ms(self, after: int) -> int | None:
        return _next(self, after)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "months": self.months,
            "days": self.days,
            "second": self.second,
            "start": self.start.isoformat(),
            "end": self.end and self.end.isoformat(),
            "timezone": self.timezone,
        }

    def instant(self, day: date) -> int | None:
        """When that is on ``day``, in UTC ms; ``None`` if a clock change skips it."""
        zone = load_zone(self.timezone)
        wall = datetime(day.year, day.month, day.day) + timedelta(seconds=self.second)
        found = wall.replace(tzinfo=zone).astimezone(timezone.utc)
        if found.astimezone(zone).replace(tzinfo=None) != wall:
            return None
        return round(found.timestamp() * 1000)

    def dates(self, since: date) -> Iterator[date]:
        """The dates in order; those before ``since`` may be left out."""
        if not self.months:
            passed = max(0, (since - self.start).days // self.days)
            day = self.start + timedelta(days=passed * self.days)
            while True:
                yield day
                day += timedelta(days=self.days)
        if not self.days:
            yield from self._in_months(since)
        day = self.start
        while True:
            yield day
            day = self._after(day)

    def _in_months(self, since: date) -> Iterator[date]:
        """The dates where only months are counted: the day of the month stays."""
        first = self.start.year * 12 + self.start.month - 1
        passed = max(0, (since.year * 12 + since.month - 1 - first) // self.months)
        month = first + passed * self.months
        while month // 12 <= date.max.year:
            found = _date(month, self.start.day)
            if found is not None:
                yield found
            month += self.months

    def _after(self, day: date) -> date:
        month = day.year * 12 + day.month - 1 + self.months
        while (found := _date(month, day.day)) is None:
            month += self.months
        return found + timedelta(days=self.days)


@lru_cache(maxsize=4096)
def _next(timing: CalendarTiming, after: int) -> int | None:
    try:
        # A day earlier than in UTC: the zone may be behind it.
        since = max(timing.start, utc(max(after, _FIRST)).date() - _ONE_DAY)
        for day in timing.dates(since):
            if timing.end is not None and day > timing.end:
                return None
            if day < since:
                continue
            found = timing.instant(day)
            if found is not None and found > after:
                return found
    except OverflowError:
        # The end of the calendar.
        pass
    return None


def _counted(number: int, unit: str) -> str:
    return {0: "", 1: f"1 {unit}"}.get(number, f"{number} {unit}s")


def _date(month: int, day: int) -> date | None:
    """The day of a month counted from the year 0; ``None`` if that month does not have it."""
    if month // 12 > date.max.year:
        raise OverflowError
    try:
        return date(month // 12, month % 12 + 1, day)
    except ValueError:
        return None
