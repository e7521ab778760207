"""Random valid cron expressions, and instants near the clock changes of random zones."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from hypothesis import strategies as st

from dramatiq_distcron.cron_expression import CronExpression, parse
from dramatiq_distcron.errors import InvalidCronExpression
from tests.unit.cron_reference import DAY, HOUR, MONTHS, WEEKDAYS, changes_in, offset_at

EXAMPLES = int(os.environ.get("DISTCRON_EXAMPLES", "250"))
#: All that Python knows, but the one that Debian lets stand for the host's own: it is refused.
ZONES = sorted(available_timezones() - {"localtime"})
YEAR = 31_556_952


class Moment(NamedTuple):
    """A zone and an instant (UTC ms), with the wall time of the change of the clock it was aimed at."""

    zone: str
    after: int
    wall: datetime


def steps(size: int) -> st.SearchStrategy[int]:
    return st.integers(1, size + 5)


def items(low: int, high: int, names: list[str]) -> st.SearchStrategy[str]:
    values = st.integers(low, high)
    ends = st.tuples(values, values).map(sorted)
    plain = values.map(str)
    ranges = ends.map(lambda pair: f"{pair[0]}-{pair[1]}")
    anything = st.one_of(plain, ranges, st.just("*"))
    if names:
        ends = st.tuples(*[st.integers(0, len(names) - 1)] * 2).map(sorted)
        ranges = ends.map(lambda pair: f"{names[pair[0]]}-{names[pair[1]].lower()}")
        anything = st.one_of(anything, st.sampled_from(names), ranges)
    stepped = st.tuples(anything, steps(high - low + 1)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    return st.one_of(anything, stepped)


def fields(low: int, high: int, names: list[str] | None = None) -> st.SearchStrategy[str]:
    return st.lists(items(low, high, names or []), min_size=1, max_size=3).map(",".join)


def hours_near(hour: int) -> st.SearchStrategy[str]:
    near = [(hour + n) % 24 for n in range(-2, 4)]
    lists = st.lists(st.sampled_from(near), min_size=1, max_size=3).map(lambda some: ",".join(map(str, some)))
    return st.one_of(lists, st.sampled_from(["*", "*/2", "*/3", "0-23", "1-5", "*/24"]), fields(0, 23))


def minutes() -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(["0", "30", "*/15", "*", "15,45", "0-59", "59", "*/7"]), fields(0, 59))


def days() -> st.SearchStrategy[tuple[str, str]]:
    """Day-of-month and day-of-week fields that may stand together."""
    weekday = st.one_of(st.integers(0, 7).map(str), st.sampled_from(WEEKDAYS))
    nth = st.tuples(weekday, st.integers(1, 5)).map(lambda pair: f"{pair[0]}#{pair[1]}")
    dow = st.one_of(nth, weekday.map(lambda day: f"{day}L"), st.lists(nth, min_size=1, max_size=3).map(",".join))
    dom = st.one_of(st.sampled_from(["L", "LW"]), st.integers(1, 31).map(lambda day: f"{day}W"))
    return st.one_of(
        st.just(("*", "*")),
        st.tuples(fields(1, 31), st.just("*")),
        st.tuples(st.just("*"), fields(0, 7, WEEKDAYS)),
        st.tuples(fields(1, 31), fields(0, 7, WEEKDAYS)),
        st.tuples(st.just("*"), dow),
        st.tuples(dom, st.just("*")),
    )


@st.composite
def expressions(draw: st.DrawFn, wall: datetime = datetime(2024, 2, 29, 2)) -> str:
    """Five fields, with hours and sometimes a date near the wall time given."""
    (dom, dow), month = draw(days()), draw(st.one_of(st.just("*"), st.just("*"), fields(1, 12, MONTHS)))
    if draw(st.integers(0, 3)) == 0:
        date = wall + timedelta(days=draw(st.sampled_from([-1, 0, 0, 0, 1])))
        dom, month, dow = draw(st.sampled_from([str(date.day), f"*/31,{date.day}"])), str(date.month), "*"
    return " ".join((draw(minutes()), draw(hours_near(wall.hour)), dom, month, dow))


@st.composite
def moments(draw: st.DrawFn, first_year: int = 1900, last_year: int = 2090) -> Moment:
    """Mostly within hours of a change of the clock, else anywhere in the year."""
    name = draw(st.sampled_from(ZONES))
    zone = ZoneInfo(name)
    start = (draw(st.integers(first_year, last_year)) - 1970) * YEAR
    changes = changes_in(zone, start, start + YEAR)
    if not changes or draw(st.integers(0, 4)) == 0:
        after = draw(st.integers(start, start + YEAR))
        return Moment(name, after * 1000, wall_at(zone, after))
    change = draw(st.sampled_from(changes))
    away = draw(st.one_of(st.integers(-4 * HOUR, 4 * HOUR), st.integers(-2 * DAY, 2 * DAY), st.integers(-2, 2)))
    after = (change + away) * 1000 + draw(st.sampled_from([0, 0, 0, 1, 999]))
    return Moment(name, after, wall_at(zone, change - 1))


def wall_at(zone: ZoneInfo, instant: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(seconds=instant + offset_at(zone, instant))


def parse_unless_it_never_fires(text: str, seconds: Any = None) -> CronExpression | None:
    """Random expressions are valid, apart from those that name no day at all."""
    try:
        return parse(text, seconds=seconds)
    except InvalidCronExpression as error:
        if "never fires" not in str(error):
            raise
        return None
