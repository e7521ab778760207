"""What users of other schedulers reported of time. Each docstring names its reports: plain numbers are those of the
project's list of bugs in the field, R1 to R27 those of its research on cron.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import dramatiq
import pytest
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from dramatiq.brokers.stub import StubBroker

from dramatiq_distcron import InvalidCronExpression, any_of, at, cron, every, from_apscheduler, install
from dramatiq_distcron.cli import main
from dramatiq_distcron.errors import ScheduleError
from dramatiq_distcron.testing import run_ticks
from tests.unit.world import BEGIN, World

UTC = timezone.utc


@pytest.fixture
def world(stub_broker: StubBroker) -> World:
    return World(stub_broker)


@pytest.fixture
def host_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the zone of the process."""

    def put(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    before = os.environ.get("TZ")
    yield put
    monkeypatch.undo()
    assert os.environ.get("TZ") == before
    time.tzset()


def fires(schedule: Any, start: str, count: int, zone: str) -> list[str]:
    """The next fire times after ``start``, as the wall clock of ``zone`` shows them; rising in any case."""
    found = [datetime.fromisoformat(start)]
    assert found[0].tzinfo is not None
    while len(found) <= count and (following := schedule.next_after(found[-1])) is not None:
        found.append(following)
    assert all(one < other for one, other in pairwise(found))
    return [moment.astimezone(ZoneInfo(zone)).isoformat(timespec="minutes") for moment in found[1:]]


# -- DST ----------------------------------------------------------------------------------------------------

#: Reports, expression, zone, start, the next fire times.
WALKS = (Path(__file__).parent / "data" / "field-reports-time.txt").read_text("utf-8").splitlines()


@pytest.mark.parametrize("row", WALKS, ids=lambda row: row.split(" | ")[0])
def test_the_next_fire_times_are_those_the_report_asked_for(row: str) -> None:
    """35, 38, 39, 41, 42, 43, 118; R1 to R9, R13 to R20, R24, R25, R27."""
    _, expression, zone, start, expected = row.split(" | ")
    assert fires(cron(expression, tz=zone), start, len(expected.split()), zone) == expected.split()


def test_a_daily_job_keeps_its_wall_time_over_the_change_without_a_restart(world: World) -> None:
    """37: ran at 17:04 and not at 16:04 on the day of the change."""
    world.actor(cron("4 16 * * *", tz="America/New_York"))
    day = (datetime(2026, 3, 6, 12, tzinfo=UTC) - BEGIN).total_seconds()
    assert world.at(day - 60)
    world.broker.queues["default"].queue.clear()
    for hour in range(24 * 4):
        world.at(day + hour * 3600)
    local = [
        (BEGIN + timedelta(seconds=second)).astimezone(ZoneInfo("America/New_York")) for _, second in world.fired()
    ]
    assert [f"{moment:%d %H:%M}" for moment in local] == ["06 16:04", "07 16:04", "08 16:04", "09 16:04"]


# -- time zone, weekday and day-of-month ----------------------------------------------------------------------


def test_a_zone_behind_that_of_the_process_is_not_fired_again_and_again(
    stub_broker: StubBroker, host_zone: Callable[[str], None]
) -> None:
    """45: a cron zone behind the app's was sent continuously."""
    host_zone("Europe/Vilnius")
    install(stub_broker)
    dramatiq.actor(
        lambda: None,
        actor_name="job",
        broker=stub_broker,
        periodic=[
            cron("* * * * *", tz="America/Los_Angeles", name="minute"),
            cron("0 3 * * *", tz="America/Los_Angeles", name="day"),
        ],
    )
    ran = run_ticks(
        stub_broker, datetime(2026, 3, 29, 9, 59, 30, tzinfo=UTC), datetime(2026, 3, 29, 10, 2, 30, tzinfo=UTC)
    )
    assert [(tick.schedule, f"{tick.fire_time:%H:%M}") for tick in ran] == [
        ("day", "10:00"),
        ("minute", "10:00"),
        ("minute", "10:01"),
        ("minute", "10:02"),
    ]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/Los_Angeles"])
def test_the_instant_is_the_same_whatever_the_zone_of_the_process(zone: str, host_zone: Callable[[str], None]) -> None:
    """46: with a zone set, jobs fired hours off."""
    host_zone(zone)
    schedule = cron("45 9 * * *", tz="Europe/Moscow")
    assert schedule.next_after(datetime(2026, 6, 1, tzinfo=UTC)) == datetime(2026, 6, 1, 6, 45, tzinfo=UTC)


def test_state_written_under_one_zone_is_read_under_another_without_a_shift(
    world: World, host_zone: Callable[[str], None]
) -> None:
    """47: last run in one zone and now in another, and never due again."""
    host_zone("America/Los_Angeles")
    world.actor(cron("0 * * * *", tz="Europe/Berlin"), every(1800, name="half"))
    world.at(3600)
    before = {name: world.stored(name).score for name in ("job", "half")}
    host_zone("Asia/Tokyo")
    world.restart()
    assert {name: world.stored(name).score for name in ("job", "half")} == before
    world.at(7200)
    assert [fired for fired in world.fired() if fired[0] == "job"] == [("job", 3600), ("job", 7200)]


def test_day_of_month_and_day_of_week_are_joined_by_or() -> None:
    """49, 50: they were joined by AND, 3 days of 2026 instead of 61."""
    days = fires(cron("0 0 13 * 5"), "2025-12-31T00:00+00:00", 61, "UTC")
    assert (days[0], days[-1][:4]) == ("2026-01-02T00:00+00:00", "2026")
    assert fires(cron("0 0 13 * 5"), days[-1], 1, "UTC")[0].startswith("2027")


def test_both_day_fields_at_once_can_be_written_and_explain_says_which_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """49: an explicit, documented AND form."""
    friday_13th = cron("0 0 */32,13 * 5")
    assert fires(friday_13th, "2026-01-02T00:00+00:00", 2, "UTC") == [
        "2026-02-13T00:00+00:00",
        "2026-03-13T00:00+00:00",
    ]
    assert main(["explain", "0 0 13 * 5"]) == 0
    assert "and also on every Friday" in capsys.readouterr().out


@pytest.mark.parametrize("weekday", ["0", "7", "sun", "SUN", "Sun", "0,7", "7-7"])
def test_zero_seven_and_sun_are_sunday(weekday: str) -> None:
    """51: number 0 was Monday, so that copied crontabs fired a day late."""
    days = fires(cron(f"0 0 * * {weekday}"), "2026-01-01T00:00+00:00", 10, "UTC")
    assert {datetime.fromisoformat(day).isoweekday() for day in days} == {7}


# -- clocks, restarts -----------------------------------------------------------------------------------------


def test_a_clock_set_back_repeats_nothing_and_stops_nothing(world: World) -> None:
    """53: nothing fired for the two minutes that the clock was set back."""
    world.actor(every(10))
    world.at(200)
    for second in (80, 90, 150, 200, 205):
        world.at(second)
    world.at(210)
    assert world.fired() == [("job", 200), ("job", 210)]


def test_an_interval_goes_on_where_it_was_after_a_restart(world: World) -> None:
    """27: 60 s, stopped at 50 s and started at 55 s, fired at 115 s."""
    world.actor(every(60))
    world.at(50)
    world.restart()
    for second in (55, 59, 60, 115):
        world.at(second)
    assert world.fired() == [("job", 60)]


# -- expressions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 2 *", "0 0 31 4,6,9,11 *", "0 0 30-31 2 */2"])
def test_a_date_that_never_comes_is_refused_when_it_is_written_and_by_explain(
    expression: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """114, 119: it was stored, and the beat died; a check of validity said yes."""
    with pytest.raises(InvalidCronExpression, match="never fires"):
        cron(expression)
    assert main(["explain", expression]) == 2
    assert "never fires" in capsys.readouterr().err


def test_a_day_that_never_comes_beside_a_weekday_is_an_or_and_fires() -> None:
    """114: ``* * 31 2 1`` is each Monday of February by cron's rule, and nothing dies of it."""
    assert fires(cron("0 0 31 2 1"), "2026-01-15T00:00+00:00", 2, "UTC") == [
        "2026-02-02T00:00+00:00",
        "2026-02-09T00:00+00:00",
    ]
    assert cron("* * 31 2 1").warnings()


def test_one_that_got_into_the_store_is_disabled_and_the_others_tick(world: World) -> None:
    """115: one report of 30 February stopped all tenants'."""
    world.actor(every(10))
    world.at(5)
    store: Any = world.store
    broken = {**world.spec("job"), "name": "tenant", "source": "api"}
    broken["timing"] = {"kind": "cron", "expression": "0 0 30 2 *", "seconds": None, "timezone": "UTC"}
    store._state.schedules["tenant"] = json.dumps(broken)
    store._state.due["tenant"] = world.clock.now_ms()
    for second in (10, 20):
        world.at(second)
    assert world.fired() == [("job", 10), ("job", 20)]
    info = world.distcron.schedules.get("tenant")
    assert info.state == "disabled"
    assert "never fires" in info.reason


def test_on_a_leap_day_nothing_is_unusual(stub_broker: StubBroker) -> None:
    """117: on 29 February every query raised."""
    install(stub_broker)
    texts = ["0 0 29 2 *", "0 0 29 * *", "0 0 L * *", "0 12 * * *", "0 0 * 2 1-7", "0 0 30 * *"]
    schedules = [cron(text, name=text) for text in texts]
    dramatiq.actor(lambda: None, actor_name="job", broker=stub_broker, periodic=schedules)
    ran = run_ticks(stub_broker, datetime(2028, 2, 29, tzinfo=UTC), datetime(2028, 3, 1, tzinfo=UTC))
    assert sorted(tick.schedule for tick in ran) == sorted(texts[:5])
    leap_day = datetime(2028, 2, 29, 23, tzinfo=UTC)
    assert all(schedule.next_after(leap_day) for schedule in schedules)


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("* * R/0 * *", "a step of 0"),
        ("* * R * *", "from host to host"),
        ("0 1 0/10 * *", "day-of-month goes from 1 to 31"),
        ("0 8 * * FRI-MON", "write FRI-SAT,SUN-MON"),
    ],
)
def test_what_others_read_in_their_own_way_is_refused_with_a_hint(expression: str, hint: str) -> None:
    """R11, R12, R26."""
    with pytest.raises(InvalidCronExpression, match=hint):
        cron(expression)


def test_the_phase_of_h_does_not_change() -> None:
    """R10: ``H/5`` with the name lml-scamper changed its minute with a release."""
    assert cron("H/5 * * * *", name="lml-scamper").timing.bind("lml-scamper", "UTC").next_ms(0) == PHASE


#: In ms after a full hour. A release that changes it moves every schedule with an H.
PHASE = 240_000


# -- APScheduler's own ----------------------------------------------------------------------------------------


def test_both_of_two_dates_fire_once_each() -> None:
    """R21: an Or of two dates fired the first only."""
    first, second = (datetime(2026, 5, day, 12, tzinfo=UTC) for day in (1, 2))
    joined = any_of(from_apscheduler(DateTrigger(first)), from_apscheduler(DateTrigger(second)))
    assert fires(joined, "2026-01-01T00:00+00:00", 5, "UTC") == ["2026-05-01T12:00+00:00", "2026-05-02T12:00+00:00"]
    with pytest.raises(ScheduleError, match="any_of"):
        from_apscheduler(OrTrigger([DateTrigger(first), DateTrigger(second)]))
    assert fires(any_of(at(first), at(second)), "2026-05-01T12:00+00:00", 5, "UTC") == ["2026-05-02T12:00+00:00"]


def test_an_and_of_an_interval_and_hours_is_refused_before_it_hangs() -> None:
    """R22."""
    with pytest.raises(ScheduleError, match="for ever"):
        from_apscheduler(AndTrigger([IntervalTrigger(minutes=2), CronTrigger(hour="7-22")]))


def test_a_calendar_interval_does_not_lose_the_days_after_a_gap() -> None:
    """R23: in Nuuk, 23:30 after 29 March 2024."""
    trigger = CalendarIntervalTrigger(days=1, hour=23, minute=30, start_date="2024-03-29", timezone="America/Nuuk")
    found = fires(from_apscheduler(trigger), "2024-03-30T12:00+00:00", 2, "America/Nuuk")
    assert found == ["2024-03-31T23:30-01:00", "2024-04-01T23:30-01:00"]
