from __future__ import annotations

import csv
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import islice, product
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dramatiq_distcron import cron_time, zones
from dramatiq_distcron.cron_expression import CronExpression, parse
from dramatiq_distcron.cron_time import next_fire
from dramatiq_distcron.errors import InvalidCronExpression
from dramatiq_distcron.zones import load_zone
from tests.unit.cron_reference import DAY, Reference, changes_in
from tests.unit.cron_strategies import EXAMPLES, Moment, expressions, fields, moments, parse_unless_it_never_fires

GOLDEN = Path(__file__).parent / "data" / "cron-golden.csv"
UTC = timezone.utc
FIRST_MS = -62_135_596_800_000  # year 1
LAST_MS = 253_402_300_799_000  # year 9999


def ms(text: str, zone: str = "UTC", fold: int = 0) -> int:
    """The instant of a local time; its own offset, if it has one, goes before the zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(zone), fold=fold)
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


def local(instant: int, zone: ZoneInfo) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=instant)).astimezone(zone).isoformat()


def fires(expression: CronExpression, zone: str, after: int, count: int) -> list[str]:
    loaded = load_zone(zone)
    found = []
    for _ in range(count):
        following = next_fire(expression, loaded, after)
        if following is None:
            break
        assert following > after
        assert following % 1000 == 0
        after = following
        found.append(local(after, loaded))
    return found


def golden() -> list[Any]:
    with GOLDEN.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) > 100
    return [pytest.param(row, id=f"{row['expression']}-{row['timezone']}-{row['start_iso']}") for row in rows]


@pytest.mark.parametrize("row", golden())
def test_the_golden_file_holds(row: dict[str, str]) -> None:
    text, expected = row["expression"], [time for time in row["expected_next_iso"].split(";") if time]
    if not expected:
        with pytest.raises(InvalidCronExpression, match="never fires"):
            parse(text)
        return
    expression = parse(text, seconds="last" if len(text.split()) == 6 else None)
    assert fires(expression, row["timezone"], ms(row["start_iso"]), len(expected)) == expected


# Public bug reports: where | expression | zone | start | right next times.
REPORTS = """
celery#10107 | 0 * * * * | America/New_York | 2026-11-01T00:30 | 2026-11-01T01:00-04:00 2026-11-01T01:00-05:00
celery#10107 | 0 * * * * | US/Pacific | 2026-11-01T01:00-07:00 | 2026-11-01T01:00-08:00
beat#134 | 4 16 * * * | America/New_York | 2026-03-07T12:00 | 2026-03-07T16:04-05:00 2026-03-08T16:04-04:00
croniter#25 | 0 20 * * * | Europe/Paris | 2022-10-30T00:00 | 2022-10-30T20:00+01:00 2022-10-31T20:00+01:00
croniter#28 | 0 * * * * | America/New_York | 2022-03-13T00:30 | 2022-03-13T01:00-05:00 2022-03-13T03:00-04:00
croniter#258 | 0 * * * * | Australia/Lord_Howe | 2019-10-06T01:43 | 2019-10-06T03:00+11:00
croniter!267 | 0 1 * * * | Europe/Dublin | 2019-10-26T12:00 | 2019-10-27T01:00+01:00 2019-10-28T01:00+00:00
croniter#203 | 0 0 29 * * | UTC | 2024-02-28T00:00 | 2024-02-29T00:00+00:00 2024-03-29T00:00+00:00
croniter#191 | 10 3 * * 0 | Europe/Prague | 2025-10-19T12:00 | 2025-10-26T03:10+01:00
croniter#140 | */25 */10 4-28 * */3 | UTC | 2024-11-29T00:00 | 2024-12-04T00:00+00:00
croniter#40 | 0 16 */2 * SAT | UTC | 2023-05-01T00:00 | 2023-05-13T16:00+00:00 2023-05-27T16:00+00:00
croniter!178 | 0 0 */10 * * | UTC | 2025-02-21T00:00 | 2025-03-01T00:00+00:00
croniter old#116 | 0 8 * * 1-5 | America/New_York | 2018-11-04T05:00 | 2018-11-05T08:00-05:00
croniter old#82 | 0 0 * * * | Europe/Warsaw | 2017-03-26T00:00 | 2017-03-27T00:00+02:00
croniter old#55 | 0 9 29 2 * | UTC | 2096-03-01T00:00 | 2104-02-29T09:00+00:00
croniter old#131 | 0 9 * * * | UTC | 2028-02-29T00:00 | 2028-02-29T09:00+00:00 2028-03-01T09:00+00:00
apscheduler#606 | 0 0 * * * | US/Pacific | 2022-03-13T00:00 | 2022-03-14T00:00-07:00 2022-03-15T00:00-07:00
apscheduler#1021 | 30 * * * * | Europe/Helsinki | 2017-10-29T03:45+02:00 | 2017-10-29T04:30+02:00 2017-10-29T05:30+02:00
apscheduler#980 | 0 1-23/2 * * * | Europe/London | 2024-10-26T23:30 | 2024-10-27T01:00+01:00 2024-10-27T03:00+00:00
apscheduler#1059 | 0 2 * * * | US/Eastern | 2013-03-10T00:00 | 2013-03-10T03:00-04:00 2013-03-11T02:00-04:00
apscheduler#529 | 0 0 * * mon-fri | US/Central | 2021-03-12T00:00 | 2021-03-15T00:00-05:00
apscheduler#286 | 30 7 * * 4 | UTC | 2024-06-03T00:00 | 2024-06-06T07:30+00:00
apscheduler#286 | 0 0 * * 0 | UTC | 2024-06-03T00:00 | 2024-06-09T00:00+00:00
apscheduler#286 | 0 0 * * 7 | UTC | 2024-06-03T00:00 | 2024-06-09T00:00+00:00
apscheduler#286 | 0 0 * * sun | UTC | 2024-06-03T00:00 | 2024-06-09T00:00+00:00
apscheduler!1138 | 30 23 * * * | America/Nuuk | 2024-03-30T00:00 | 2024-03-31T00:00-01:00 2024-03-31T23:30-01:00
celery#4307 | 0 22 1-7 * 6 | UTC | 2017-10-01T00:00 | 2017-10-01T22:00+00:00 2017-10-02T22:00+00:00
celery#4743 | 45 9 * * * | Europe/Moscow | 2024-06-03T00:00 | 2024-06-03T09:45+03:00
redbeat#153 | 1 * * * * | UTC | 2024-06-03T00:00 | 2024-06-03T00:01+00:00 2024-06-03T01:01+00:00
turnstone#1097 | 30 1 * * * | America/New_York | 2026-11-01T00:00 | 2026-11-01T01:30-04:00 2026-11-02T01:30-05:00
found here | 0 0 15 * 1 | UTC | 2024-01-01T00:00 | 2024-01-08T00:00+00:00 2024-01-15T00:00+00:00 2024-01-22T00:00+00:00
found here | 0 12 * * * | Pacific/Apia | 2011-12-29T13:00 | 2011-12-31T12:00+14:00
found here | */20 * * * * | Australia/Lord_Howe | 2024-04-07T01:40+11:00 | 2024-04-07T01:40+10:30 2024-04-07T02:00+10:30
found here | * 5 * * * | Australia/Lord_Howe | 2024-04-07T00:00 | 2024-04-07T05:00+10:30
found here | 30 1 * * * | America/New_York | 2024-11-03T01:10-05:00 | 2024-11-04T01:30-05:00
found here | 0 0 * * * | Africa/Cairo | 2024-04-25T12:00 | 2024-04-26T01:00+03:00 2024-04-27T00:00+03:00
"""


def table(text: str) -> list[Any]:
    rows = [line.split(" | ") for line in text.strip().splitlines()]
    times = [[datetime.fromisoformat(time).isoformat() for time in row[-1].split()] for row in rows]
    return [pytest.param(*row[1:4], found, id=f"{row[0]}: {row[1]}") for row, found in zip(rows, times, strict=True)]


@pytest.mark.parametrize(("text", "zone", "start", "expected"), table(REPORTS))
def test_a_reported_bug_is_not_ours(text: str, zone: str, start: str, expected: list[str]) -> None:
    assert fires(parse(text), zone, ms(start, zone), len(expected)) == expected


def test_the_seconds_field_may_be_the_sunday_of_a_report() -> None:
    expression = parse("0 0 * * 7 0", seconds="last")
    assert fires(expression, "UTC", ms("2024-06-03"), 2) == ["2024-06-09T00:00:00+00:00", "2024-06-16T00:00:00+00:00"]


# Three hours forward and back are made up and fired in the first pass only; then a whole day left out and one that
# came twice; then offsets with odd seconds and changes at odd seconds.
UNUSUAL = """
Casey forward | 0 2 * * * | Antarctica/Casey | 2009-10-17T12:00 | 2009-10-18T05:00+11:00 2009-10-19T02:00+11:00
Casey back | 30 0 * * * | Antarctica/Casey | 2010-03-04T12:00 | 2010-03-05T00:30+11:00 2010-03-06T00:30+08:00
Kwajalein forward | 0 12 * * * | Pacific/Kwajalein | 1993-08-20T12:00 | 1993-08-22T12:00+12:00
Kwajalein back | 0 2 * * * | Pacific/Kwajalein | 1969-09-29T12:00 | 1969-09-30T02:00+11:00 1969-09-30T02:00-12:00
noon | 0 12 * * * | America/New_York | 1883-11-17T13:00 | 1883-11-18T12:00-04:56:02 1883-11-19T12:00-05:00
gap of 44:30 | 0 0 * * * | Africa/Monrovia | 1972-01-06T12:00 | 1972-01-07T00:44:30+00:00 1972-01-08T00:00+00:00
LMT | 0 0 1 1 * | Asia/Kolkata | 1800-06-01T00:00 | 1801-01-01T00:00+05:53:28
"""


@pytest.mark.parametrize(("text", "zone", "start", "expected"), table(UNUSUAL))
def test_unusual_changes_follow_the_same_rules(text: str, zone: str, start: str, expected: list[str]) -> None:
    assert fires(parse(text), zone, ms(start, zone), len(expected)) == expected


def test_hourly_jobs_see_each_real_hour_of_samoas_lost_day() -> None:
    found = fires(parse("0 * * * *"), "Pacific/Apia", ms("2011-12-29T22:30-10:00"), 2)
    assert found == ["2011-12-29T23:00:00-10:00", "2011-12-31T00:00:00+14:00"]


def test_six_fields_are_neither_made_up_nor_held_back() -> None:
    expression = parse("30 30 1,2 * * *", seconds="first")
    spring = fires(expression, "America/New_York", ms("2024-03-10T00:00-05:00"), 2)
    assert spring == ["2024-03-10T01:30:30-05:00", "2024-03-11T01:30:30-04:00"]
    autumn = fires(expression, "America/New_York", ms("2024-11-03T00:00-04:00"), 3)
    assert autumn == ["2024-11-03T01:30:30-04:00", "2024-11-03T01:30:30-05:00", "2024-11-03T02:30:30-05:00"]


def test_the_result_is_strictly_after_and_parts_of_a_second_count() -> None:
    expression, utc = parse("0 12 * * *"), load_zone("UTC")
    noon = ms("2024-06-03T12:00")
    assert next_fire(expression, utc, noon - 1) == noon
    assert next_fire(expression, utc, noon) == noon + DAY * 1000
    assert next_fire(expression, utc, noon + 1) == noon + DAY * 1000


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati", "Africa/Monrovia"])
@pytest.mark.parametrize("text", ["* * * * *", "0 3 * * *", "0 0 29 2 */7", "0 0 1 1 *", "0 0 * * 5#5"])
def test_the_ends_of_time_are_no_error(text: str, zone: str) -> None:
    expression, loaded = parse(text), load_zone(zone)
    for after in (-(10**30), FIRST_MS - 1, FIRST_MS, FIRST_MS + DAY * 1000):
        found = next_fire(expression, loaded, after)
        assert found is not None
        assert found > after
    for after in (LAST_MS, 10**30):
        assert next_fire(expression, loaded, after) is None
    after = LAST_MS - 40 * DAY * 1000
    for _ in range(100):
        following = next_fire(expression, loaded, after)
        if following is None:
            break
        assert after < following <= LAST_MS
        after = following


@pytest.mark.parametrize("host_zone", ["UTC", "Asia/Tokyo", "America/Los_Angeles"])
@pytest.mark.skipif(not hasattr(time, "tzset"), reason="this platform cannot change its zone")
def test_the_zone_of_the_host_does_not_matter(host_zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TZ", host_zone)
    time.tzset()
    try:
        expression = parse("45 9 1-28/9 * *")
        assert next_fire(expression, load_zone("Europe/Moscow"), ms("2024-06-03")) == ms("2024-06-10T09:45+03:00")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_hash_must_be_spread_first() -> None:
    expression, utc = parse("H 3 * * *"), load_zone("UTC")
    with pytest.raises(InvalidCronExpression, match="name of the schedule"):
        next_fire(expression, utc, 0)
    assert next_fire(expression.spread("nightly"), utc, 0) is not None


def test_a_match_soon_after_the_clock_is_put_back_is_seen_though_the_wall_time_has_passed() -> None:
    expression = parse("*/30 1 3 11 *")
    found = fires(expression, "America/New_York", ms("2024-11-03T01:45-04:00"), 3)
    assert found == ["2024-11-03T01:00:00-05:00", "2024-11-03T01:30:00-05:00", "2025-11-03T01:00:00-05:00"]


@pytest.fixture
def cut_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, int], None]]:
    """Changes the pieces that time is cut into: the seconds of a piece and of a step of the search."""

    def cut(block: int, step: int) -> None:
        monkeypatch.setattr(zones, "_BLOCK", block)
        monkeypatch.setattr(zones, "_STEP", step)
        zones._block.cache_clear()
        cron_time._next_fire.cache_clear()

    yield cut
    monkeypatch.undo()
    zones._block.cache_clear()
    cron_time._next_fire.cache_clear()


@pytest.mark.parametrize("zone", ["Africa/Cairo", "Asia/Beirut", "Europe/Berlin", "Pacific/Apia", "Antarctica/Troll"])
def test_the_pieces_that_time_is_cut_into_do_not_matter(zone: str, cut_time: Callable[[int, int], None]) -> None:
    loaded = load_zone(zone)
    changes = changes_in(loaded, ms("2009-01-01") // 1000, ms("2016-01-01") // 1000)
    instants = [(change + hours * 3600) * 1000 for change in changes for hours in (-30, -1, 0, 1, 2, 24, 47)]
    cases = list(product(["*/20 * * * *", "30 0-4 * * *", "0 12 * * *", "15 0 1 1 *"], instants))
    expected = [next_fire(parse(text), loaded, instant) for text, instant in cases]
    cut_time(zones._STEP, zones._STEP)
    assert [next_fire(parse(text), loaded, instant) for text, instant in cases] == expected


def test_an_overlap_is_still_known_where_a_new_piece_of_time_begins(cut_time: Callable[[int, int], None]) -> None:
    berlin, change = load_zone("Europe/Berlin"), ms("2024-10-27T01:00") // 1000
    cuts = ((change + later, step) for later in range(600, 1800, 60) for step in range(6 * 3600, 2 * DAY, 60))
    begin, step = next((begin, step) for begin, step in cuts if begin % step == 0)
    cut_time(step, step)
    assert next_fire(parse("30 2 * * *"), berlin, begin * 1000) == ms("2024-10-28T02:30+01:00")


def compare(text: str, seconds: Any, moment: Moment, horizon: int) -> None:
    """The package and the reference agree on the next three fire times within the horizon (seconds)."""
    zone, after = load_zone(moment.zone), moment.after
    expression = parse_unless_it_never_fires(text, seconds)
    if expression is None:
        return
    until = after // 1000 + horizon
    expected = list(islice(Reference(text, seconds).fires(zone, after // 1000, until), 3))
    found = []
    for _ in range(max(1, len(expected))):
        following = next_fire(expression, zone, after)
        # The epoch itself is a fire time too, and 0.
        after = LAST_MS if following is None else following
        found.append(after // 1000)
    if expected:
        assert found == expected
    else:
        assert found[0] > until


@given(st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_it_agrees_with_the_minute_by_minute_reference(data: st.DataObject) -> None:
    moment = data.draw(moments())
    compare(data.draw(expressions(moment.wall)), None, moment, 60 * DAY)


@given(st.data(), st.sampled_from(["first", "last"]), fields(0, 59))
@settings(max_examples=max(1, EXAMPLES // 5), deadline=None)
def test_six_fields_agree_with_the_second_by_second_reference(data: st.DataObject, place: str, second: str) -> None:
    # Since 1973 no zone has an offset with odd seconds, which the reference could not do second by second.
    moment = data.draw(moments(first_year=1973))
    five = data.draw(expressions(moment.wall))
    compare(f"{second} {five}" if place == "first" else f"{five} {second}", place, moment, 30 * DAY)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="cronsim needs Python 3.11")
@given(expressions(), st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)))
@settings(max_examples=EXAMPLES, deadline=None)
def test_cronsim_is_of_the_same_opinion_in_utc(text: str, start: datetime) -> None:
    from cronsim import CronSim

    words = text.upper()
    if "W" in words.split()[2] or re.search("[A-Z]L", words) or "/" in words.replace("*/", ""):
        return  # cronsim has neither 15W nor FRIL, and takes n-n/step on its own
    expression = parse_unless_it_never_fires(text)
    if expression is not None:
        opinion = [moment.isoformat() for moment in islice(CronSim(text, start.replace(tzinfo=UTC)), 3)]
        assert fires(expression, "UTC", ms(start.isoformat()), 3) == opinion
