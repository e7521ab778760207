"""Cron expressions in words: the sentence says what the expression does, and names what clock changes do to it."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dramatiq_distcron.clock_changes import clock_change_warnings, year_around
from dramatiq_distcron.cron_expression import parse
from dramatiq_distcron.describing import describe
from dramatiq_distcron.zones import load_zone
from tests.unit.cron_strategies import EXAMPLES, expressions, fields, parse_unless_it_never_fires

SENTENCES = """
* * * * * | Every minute on every day.
*/15 * * * * | Every 15 minutes on every day.
5/15 * * * * | Every 15 minutes from minute 5 on every day.
7 * * * * | At minute 7 of every hour on every day.
20/15 8-18 * * mon-fri | At minutes 20, 35 and 50 from 08:00 to 18:59 on Monday to Friday.
0 * * * * | Every hour, on the hour, on every day.
@hourly | Every hour, on the hour, on every day.
0 */2 * * * | On the hour, every 2 hours from 00:00, on every day.
0 1-23/2 * * * | On the hour, every 2 hours from 01:00, on every day.
*/5 9-17 * * * | Every 5 minutes from 09:00 to 17:59 on every day.
*/5 9-11,14-16 * * * | Every 5 minutes from 09:00 to 11:59 and 14:00 to 16:59 on every day.
23 0-20/2 * * * | At minute 23 in the hours 0, 2, 4, 6, 8, 10, 12, 14, 16, 18 and 20 on every day.
30 2 * * * | At 02:30 on every day.
0,30 1,2 * * * | At 01:00, 01:30, 02:00 and 02:30 on every day.
@WEEKLY | At 00:00 on every Sunday.
0 0 * * 7 | At 00:00 on every Sunday.
0 22 * * sun-4 | At 22:00 on Sunday to Thursday.
0 3 * * 6,0 | At 03:00 on every Sunday and every Saturday.
0 0 1,15 * * | At 00:00 on days 1 and 15 of the month.
0 0 1-5 * * | At 00:00 on days 1 to 5 of the month.
0 0 */10 * * | At 00:00 on every 10th day of the month from the 1st.
0 0 13 * 5 | At 00:00 on day 13 of the month, and also on every Friday.
0 0 13 2,3 5 | At 00:00 on day 13 of the month, and also on every Friday, in February and March.
0 0 1-31 * FRI | At 00:00 on every day.
0 0 13 * 0-6 | At 00:00 on every day.
0 0 13 * */1 | At 00:00 on day 13 of the month.
0 0 */2 * MON | At 00:00 on every 2nd day of the month from the 1st, but only if it is a Monday.
0 0 */32,1-7 * 2 | At 00:00 on days 1 to 7 of the month, but only if it is a Tuesday.
0 0 1-7 * */3 | At 00:00 on days 1 to 7 of the month, but only if it is a Sunday, a Wednesday or a Saturday.
0 0 */2 * mon-fri | At 00:00 on every 2nd day of the month from the 1st, but only if it is a day from Monday to Friday.
0 0 29 2 */7 | At 00:00 on day 29 of the month, but only if it is a Sunday, in February.
0 0 L * * | At 00:00 on the last day of the month.
0 0 LW * * | At 00:00 on the last Monday-to-Friday day of the month.
0 9 15W * * | At 09:00 on the Monday-to-Friday day nearest to day 15 of the month.
0 0 * * 5#3 | At 00:00 on the third Friday of the month.
0 0 * * FRI#1,5L | At 00:00 on the last Friday of the month and the first Friday of the month.
0 0 * 2 1#5 | At 00:00 on the fifth Monday of the month in February.
0 8 * jan-mar,dec * | At 08:00 on every day in January to March and December.
0 0 1 */3 * | At 00:00 on day 1 of the month in January, April, July and October.
"""


@pytest.mark.parametrize(("text", "sentence"), [line.split(" | ") for line in SENTENCES.strip().splitlines()])
def test_an_expression_is_told_in_one_sentence(text: str, sentence: str) -> None:
    assert describe(parse(text)) == sentence


@pytest.mark.parametrize(
    ("text", "seconds", "sentence"),
    [
        ("* * * * * *", "first", "Every second on every day."),
        ("*/10 * * * * *", "first", "Every 10 seconds of every minute on every day."),
        ("30 * * * * *", "first", "At second 30 of every minute on every day."),
        ("* * * * * 30", "last", "At second 30 of every minute on every day."),
        ("15 30 9 1 * *", "first", "At 09:30:15 on day 1 of the month."),
        ("0,30 5 * * * *", "first", "At seconds 0 and 30 of the minute at minute 5 of every hour on every day."),
        ("0 0 12 * * *", "first", "At 12:00 on every day."),
    ],
)
def test_seconds_are_told_where_there_are_any(text: str, seconds: Any, sentence: str) -> None:
    assert describe(parse(text, seconds=seconds)) == sentence


def test_an_expression_with_h_is_told_as_it_is_for_a_name() -> None:
    assert describe(parse("H(5-5) H(3-3) * * *").spread("job")) == "At 03:05 on every day."


@given(expressions())
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_expression_is_told_in_one_line_and_says_or_and_and_as_it_is_meant(text: str) -> None:
    expression = parse_unless_it_never_fires(text)
    if expression is None:
        return
    told = describe(expression)
    assert told.endswith(".")
    assert told.isprintable()
    assert ("but only if" in told) == (expression.day_rule == "and")
    either = expression.day_rule == "or" and "every day" not in told
    assert ("and also on" in told) == either


@given(fields(1, 31), fields(0, 7))
@settings(max_examples=EXAMPLES, deadline=None)
def test_where_it_says_every_day_every_day_matches(dom: str, dow: str) -> None:
    expression = parse_unless_it_never_fires(f"0 12 {dom} * {dow}")
    if expression is None:
        return
    noons = [datetime(2024, 1, 1, 11) + timedelta(days=n) for n in range(366)]
    always = all(expression.next_wall(noon) == noon + timedelta(hours=1) for noon in noons)
    assert ("on every day" in describe(expression)) == always


# -- clock changes --------------------------------------------------------------------------------------------


def seconds(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=timezone.utc).timestamp())  # type: ignore[misc,arg-type]


def changes(text: str, zone: str, year: int, **options: Any) -> list[str]:
    return clock_change_warnings(parse(text, **options), load_zone(zone), seconds(year, 1, 1), seconds(year + 1, 1, 1))


def test_a_fixed_time_in_the_gap_and_in_the_overlap_is_told_with_what_becomes_of_it() -> None:
    assert changes("30 2 * * *", "Europe/Berlin", 2026) == [
        "in Europe/Berlin the clock skips 02:00 to 03:00 on 2026-03-29: what falls into it fires once, at 03:00",
        "in Europe/Berlin the clock repeats 02:00 to 03:00 on 2026-10-25: what falls into it fires the first time only",
    ]


def test_the_first_minute_of_a_gap_is_in_it_and_the_first_one_after_it_is_not() -> None:
    assert len(changes("0 2 * * *", "Europe/Berlin", 2026)) == 2
    assert len(changes("59 2 * * *", "Europe/Berlin", 2026)) == 2
    assert changes("0 3 * * *", "Europe/Berlin", 2026) == []


def test_a_wildcard_job_follows_the_clock() -> None:
    assert changes("*/20 * * * *", "Australia/Lord_Howe", 2026) == [
        "in Australia/Lord_Howe the clock repeats 01:30 to 02:00 on 2026-04-05: what falls into it fires both times",
        "in Australia/Lord_Howe the clock skips 02:00 to 02:30 on 2026-10-04: what falls into it does not happen",
    ]


def test_six_fields_follow_the_clock_too() -> None:
    told = changes("0 30 2 * * *", "Europe/Berlin", 2026, seconds="first")
    assert [text.rpartition("it ")[2] for text in told] == ["does not happen", "fires both times"]


def test_a_date_that_is_left_out_is_told_as_such() -> None:
    assert changes("0 12 * * *", "Pacific/Apia", 2011)[-1] == (
        "in Pacific/Apia the clock skips 24 hours from 00:00 on 2011-12-30: what falls into it does not happen"
    )


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("0 12 * * *", "Europe/Berlin"),
        ("0 3 * * *", "Europe/Berlin"),
        ("59 1 * * *", "Europe/Berlin"),
        ("30 2 * * 1", "Europe/Berlin"),
        ("30 2 * 5 *", "Europe/Berlin"),
        ("30 2 * * *", "Asia/Tokyo"),
        ("* * * * *", "UTC"),
    ],
)
def test_what_falls_into_no_change_is_not_told_of(text: str, zone: str) -> None:
    assert changes(text, zone, 2026) == []


def test_changes_of_one_kind_are_told_together() -> None:
    zone = load_zone("Europe/Berlin")
    told = clock_change_warnings(parse("30 2 * * *"), zone, seconds(2026, 1, 1), seconds(2029, 1, 1))
    assert len(told) == 2
    assert "on 2026-03-29, 2027-03-28 and 2028-03-26:" in told[0]


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Los_Angeles", "Asia/Kathmandu"])
def test_the_year_begins_on_the_wall_clock_and_goes_on_for_a_year_from_the_instant(zone: str) -> None:
    loaded = load_zone(zone)
    instant = seconds(2026, 11, 30)
    start, end = year_around(loaded, instant)
    assert datetime.fromtimestamp(start, loaded).replace(tzinfo=None) == datetime(2026, 1, 1)
    assert end - instant == timedelta(days=366).total_seconds()


@given(st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]), st.integers(1975, 2080))
def test_each_change_of_a_year_is_told_of_for_a_job_of_each_minute(zone: str, year: int) -> None:
    told = changes("* * * * *", zone, year)
    offsets = [
        datetime(year, 1, 1, 12, tzinfo=load_zone(zone)) + timedelta(days=n)
        for n in range((date(year + 1, 1, 1) - date(year, 1, 1)).days)
    ]
    changed = sum(one.utcoffset() != other.utcoffset() for one, other in pairwise(offsets))
    assert sum(text.count(f"{year}-") for text in told) == changed
