"""Which days match: day-of-month, month and day-of-week fields -> the next matching date.

croniter is the calculator. It is asked about naive midnights only, with ``implement_cron_bug=True`` (which is
Debian's rule: day-of-month AND day-of-week when either starts with ``*``, else OR), and in a canonical spelling.
"""

from __future__ import annotations

from datetime import date
from functools import lru_cache
from threading import Lock

from croniter import CroniterBadDateError, croniter

from .cron_fields import DAY, MONTH, WEEKDAY, CronField, parse_field

__all__ = ["LAST_DAY", "DayCalendar", "day_calendar", "matches_some_day"]

LAST_DAY = date.max.toordinal()
LONGEST_MONTHS = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_YEAR_2000 = date(2000, 1, 1).toordinal()
_EPOCH = date(1970, 1, 1).toordinal()
_GREGORIAN_CYCLE = 146_097  # days in 400 years, a whole number of weeks
_SPECIALS = {"last": "L", "last_workday": "31W", "workday": "{0.day}W", "nth": "{0.day}#{0.nth}"}


def matches_some_day(day: CronField, month: CronField) -> bool:
    """Whether some month named has some day of the month named, in leap years at least."""
    if day.specials:
        return True
    return any(day.mask & ((2 << LONGEST_MONTHS[number]) - 1) for number in month.values)


@lru_cache(maxsize=1024)
def day_calendar(day: str, month: str, weekday: str) -> DayCalendar:
    """Return the calendar of these three canonical fields, shared by all expressions that have them."""
    return DayCalendar(parse_field(DAY, day), parse_field(MONTH, month), parse_field(WEEKDAY, weekday))


class DayCalendar:
    """The matching days of one set of day fields. Days are proleptic Gregorian ordinals.

    What croniter says is remembered by the shape of the month (number, length, weekday of the 1st): nothing else
    decides which of its days match. There are at most 91 shapes, so the memory is bounded.
    """

    __slots__ = ("_croniter", "_every_day", "_known", "_lock", "_months", "_text")

    def __init__(self, day: CronField, month: CronField, weekday: CronField) -> None:
        self._text = f"0 0 {_croniter_day(day, month, weekday)} {month.text} {_croniter_text(weekday)}"
        self._every_day = day.is_unrestricted and month.mask == MONTH.everything and weekday.is_unrestricted
        self._months = month.mask
        self._known: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._croniter: croniter | None = None
        self._lock = Lock()

    def next_day(self, day: int) -> int | None:
        """Return the first matching day at or after `day`, or None when there is none up to the year 9999."""
        if self._every_day:
            return day if day <= LAST_DAY else None
        while day <= LAST_DAY:
            this = date.fromordinal(day)
            length = _length(this.year, this.month)
            if self._months >> this.month & 1:
                found = self._in_month(day, this, length)
                if found is not None:
                    return found if found <= LAST_DAY else None
            day += length - this.day + 1
        return None

    def _in_month(self, day: int, this: date, length: int) -> int | None:
        shape = (this.month, length, (day - this.day) % 7)
        decided, matching = self._known.get(shape, (0, 0))
        ahead = _lowest(matching >> this.day)
        undecided = _lowest(~decided >> this.day)
        if this.day + undecided > length or (0 <= ahead < undecided):
            return day + ahead if ahead >= 0 else None
        found = self._ask(day + undecided)
        self._learn(shape, this.day + undecided, found - day + this.day)
        return found

    def _learn(self, shape: tuple[int, int, int], first: int, found: int) -> None:
        # Two threads may overwrite each other's entry: what is lost is asked again, what is kept is true.
        decided, matching = self._known.get(shape, (0, 0))
        last = min(found, shape[1])
        decided |= (2 << last) - (1 << first)
        if found == last:
            matching |= 1 << found
        self._known[shape] = (decided, matching)

    def _ask(self, day: int) -> int:
        # Near the year 9999 croniter raises, before 1970 it depends on the platform: ask about the same day of
        # the years 2000 to 2399, whose calendar is the same.
        cycles, offset = divmod(day - _YEAR_2000, _GREGORIAN_CYCLE)
        midnight = (_YEAR_2000 + offset - _EPOCH) * 86_400
        with self._lock:
            if self._croniter is None:
                self._croniter = croniter(self._text, 0.0, implement_cron_bug=True)
            try:
                found: float = self._croniter.get_next(float, start_time=midnight - 60.0)
            except CroniterBadDateError:
                return LAST_DAY + 1
        return int(found) // 86_400 + _EPOCH + cycles * _GREGORIAN_CYCLE


def _length(year: int, month: int) -> int:
    if month == 2 and (year % 4 or (year % 100 == 0 and year % 400)):
        return 28
    return LONGEST_MONTHS[month]


def _lowest(mask: int) -> int:
    """Return the number of the lowest bit that is set, -1 if none is."""
    return (mask & -mask).bit_length() - 1


def _croniter_day(day: CronField, month: CronField, weekday: CronField) -> str:
    # A day of the month that never comes adds nothing to an OR, but makes croniter look through 50 years.
    either = not (day.is_star or weekday.is_star)
    return "*" if either and not matches_some_day(day, month) else _croniter_text(day)


def _croniter_text(field: CronField) -> str:
    if not field.specials:
        return field.text
    return ",".join(_SPECIALS.get(special.kind, "L{0.day}").format(special) for special in field.specials)
