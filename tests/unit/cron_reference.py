"""A slow, obvious cron: it walks through real time and asks at each minute whether the job is to be run.

Written from the rules alone (Debian's cron as the project's research page has them), to be compared with the
package; it shares no code with it. It knows valid expressions only, and neither ``H`` nor aliases.

The daemon keeps a *virtual time*, the wall time up to which fixed-time jobs are done:

* An ordinary minute runs both kinds of jobs and moves the virtual time on.
* Clock forward by up to three hours: wildcard jobs of the present minute run, and fixed-time jobs of every minute
  that was passed over; the virtual time catches up.
* Clock back by up to three hours: only wildcard jobs run until the clock has passed the virtual time again.
* A larger change: the virtual time is set to the clock, and nothing else happens.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

HOUR = 3600
DAY = 24 * HOUR
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def offset_at(zone: ZoneInfo, instant: int) -> int:
    """Seconds east of UTC at that instant (UTC seconds)."""
    offset = (EPOCH + timedelta(seconds=instant)).astimezone(zone).utcoffset()
    assert offset is not None
    return offset.days * DAY + offset.seconds


def changes_in(zone: ZoneInfo, start: int, end: int) -> list[int]:
    """The instants between the two at which the offset changes: look each day, then each second of that day."""
    changes = []
    for day in range(start, end, DAY):
        low, high = day, day + DAY
        if offset_at(zone, low) == offset_at(zone, high):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            if offset_at(zone, middle) == offset_at(zone, day):
                low = middle
            else:
                high = middle
        changes.append(high)
    return changes


def number(text: str, names: list[str], low: int) -> int:
    return names.index(text) + low if text in names else int(text)


def expand(field: str, low: int, high: int, names: list[str]) -> set[int]:
    """The values a field names: items joined by commas, each ``*``, ``n`` or ``n-m``, with or without a step."""
    values: set[int] = set()
    for item in field.split(","):
        base, _, step = item.partition("/")
        if base == "*":
            first, last = low, high
        elif "-" in base:
            first, last = (number(end, names, low) for end in base.split("-"))
        else:
            first = number(base, names, low)
            last = high if step else first
        values |= {value for value in range(first, last + 1) if (value - first) % int(step or 1) == 0}
    return values


def nearest_workday(year: int, month: int, day: int) -> int:
    """The day from Monday to Friday in that month which is nearest to that day."""
    length = monthrange(year, month)[1]
    day = min(day, length)
    workdays = [d for d in range(1, length + 1) if date(year, month, d).weekday() < 5]
    return min(workdays, key=lambda d: abs(d - day))


def dom_matches(field: str, today: date) -> bool:
    length = monthrange(today.year, today.month)[1]
    if field == "L":
        return today.day == length
    if field == "LW":
        return today.day == nearest_workday(today.year, today.month, length)
    if "W" in field:
        return today.day == nearest_workday(today.year, today.month, int(field.strip("W")))
    return today.day in expand(field, 1, 31, [])


def dow_matches(field: str, today: date) -> bool:
    weekday = today.isoweekday() % 7
    if "#" in field or "L" in field:
        return any(special_dow_matches(item, today) for item in field.split(","))
    return weekday in {value % 7 for value in expand(field, 0, 7, WEEKDAYS)}


def special_dow_matches(item: str, today: date) -> bool:
    name = re.split("#|L", item.strip("L"))[0]
    if number(name, WEEKDAYS, 0) % 7 != today.isoweekday() % 7:
        return False
    if "#" in item:
        return (today.day - 1) // 7 + 1 == int(item[-1])
    return today.day > monthrange(today.year, today.month)[1] - 7


class Reference:
    """One job: its expression, in upper or lower case, and where its second stands (None: five fields)."""

    def __init__(self, expression: str, seconds: str | None = None) -> None:
        fields = expression.upper().split()
        second = {None: "0", "first": fields[0], "last": fields[-1]}[seconds]
        if seconds == "first":
            fields = fields[1:]
        self.minute, self.hour, self.dom, self.month, self.dow = fields[:5]
        self.seconds = expand(second, 0, 59, [])
        self.minutes = expand(self.minute, 0, 59, [])
        self.hours = expand(self.hour, 0, 23, [])
        self.months = expand(self.month, 1, 12, MONTHS)
        self.wildcard = seconds is not None or self.minute[0] == "*" or self.hour[0] == "*"
        self.runs_on = lru_cache(maxsize=None)(self._runs_on)

    def _runs_on(self, today: date) -> bool:
        dom, dow = dom_matches(self.dom, today), dow_matches(self.dow, today)
        star = self.dom[0] == "*" or self.dow[0] == "*"
        return today.month in self.months and ((dom and dow) if star else (dom or dow))

    def runs_at(self, wall: int) -> bool:
        """Whether the job is for the minute that begins at that wall time (seconds since 1970-01-01 00:00)."""
        if wall % 60 or wall // 60 % 60 not in self.minutes or wall // HOUR % 24 not in self.hours:
            return False
        return self.runs_on(date(1970, 1, 1) + timedelta(days=wall // DAY))

    def fires(self, zone: ZoneInfo, after: int, until: int) -> Iterator[int]:
        """The instants (UTC seconds) after the one and up to the other at which the job is run."""
        # The daemon is started early enough to know of a change whose overlap or gap is not over yet.
        for instant in self.run_daemon(zone, after - 6 * HOUR, until):
            if instant > after:
                yield instant

    def run_daemon(self, zone: ZoneInfo, now: int, until: int) -> Iterator[int]:
        offset = offset_at(zone, now)
        virtual = now + offset - 1
        while now <= until:
            shift = offset_at(zone, now) - offset
            offset += shift
            wall = now + offset
            if shift == 0 or abs(shift) > 3 * HOUR:
                caught_up = wall > virtual or shift != 0
                due = self.runs_at(wall) and (caught_up or self.wildcard)
                virtual = wall if caught_up else virtual
            elif shift > 0:
                passed = range(virtual + 1, wall + 1)
                due = any(map(self.runs_at, [wall] if self.wildcard else passed))
                virtual = wall
            else:
                due = self.runs_at(wall) and self.wildcard
                virtual = now - 1 + offset - shift
            if due:
                yield from (now + second for second in sorted(self.seconds))
            if self.idle_around(wall):
                now += DAY
                offset = offset_at(zone, now)
                virtual = now + offset - 1
            else:
                now = self.wake_up(zone, now, offset)

    def idle_around(self, wall: int) -> bool:
        """Whether the day, the one before and the two after hold nothing, so that it may sleep for a day."""
        today = date(1970, 1, 1) + timedelta(days=wall // DAY)
        return not any(self.runs_on(today + timedelta(days=n)) for n in (-1, 0, 1, 2))

    def wake_up(self, zone: ZoneInfo, now: int, offset: int) -> int:
        """The next start of a minute on the wall clock, or the change of the clock if that is before it."""
        minute = now + 60 - (now + offset) % 60
        if offset_at(zone, minute) == offset:
            return minute
        return next(second for second in range(now + 1, minute + 1) if offset_at(zone, second) != offset)
