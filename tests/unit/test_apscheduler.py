"""``from_apscheduler()``: APScheduler's answers where they are right, ours where not, a refusal for the rest."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from dramatiq.brokers.stub import StubBroker
from hypothesis import given, settings
from hypothesis import strategies as st

from dramatiq_distcron import ConfigurationError, any_of, apscheduler_triggers, cron, from_apscheduler
from dramatiq_distcron.errors import ScheduleError
from dramatiq_distcron.timing_json import timing_from_json
from dramatiq_distcron.zones import UnknownZone
from tests.unit.cron_strategies import EXAMPLES
from tests.unit.world import BEGIN, World

UTC = timezone.utc
START = datetime(2024, 1, 1, tzinfo=UTC)
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo"]

moments = st.datetimes(datetime(2000, 1, 1), datetime(2060, 1, 1)).map(
    lambda wall: wall.replace(microsecond=0, tzinfo=UTC)
)


def chain(trigger: Any, after: datetime, count: int, **options: Any) -> list[datetime]:
    """The next fire times by our schedule."""
    schedule, found = from_apscheduler(trigger, **options), [after]
    while len(found) <= count and (following := schedule.next_after(found[-1])) is not None:
        found.append(following)
    return found[1:]


def local(times: list[datetime], zone: str) -> list[str]:
    return [time.astimezone(ZoneInfo(zone)).isoformat() for time in times]


# -- cron ---------------------------------------------------------------------------------------------------


def values(low: int, high: int) -> st.SearchStrategy[str]:
    plain = st.integers(low, high).map(str)
    ranges = st.tuples(st.integers(low, high), st.integers(low, high)).map(sorted)
    return st.one_of(
        plain,
        st.integers(1, (high - low) // 2 or 1).map(lambda step: f"*/{step}"),
        ranges.map(lambda pair: f"{pair[0]}-{pair[1]}"),
        st.lists(plain, min_size=1, max_size=3).map(",".join),
    )


cron_fields = st.fixed_dictionaries(
    {},
    optional={
        "month": st.one_of(values(1, 12), st.sampled_from(["jan-mar", "dec"])),
        "day": st.one_of(values(1, 28), st.sampled_from(["last", "1st mon", "last fri", "3rd sat"])),
        "week": values(1, 52),
        "day_of_week": st.one_of(values(0, 6), st.sampled_from(["mon-fri", "sun", "sat,sun"])),
        "hour": values(0, 23),
        "minute": values(0, 59),
        "second": values(0, 59),
    },
)


@given(cron_fields, moments)
@settings(max_examples=max(1, EXAMPLES // 2))
def test_where_no_clock_changes_a_cron_trigger_fires_when_apscheduler_says(
    fields: dict[str, str], after: datetime
) -> None:
    trigger = CronTrigger(**fields, timezone="UTC")
    try:
        found = chain(trigger, after, 3)
    except ScheduleError:
        return  # it never fires
    for asked, answer in pairwise([after, *found]):
        assert answer == trigger.get_next_fire_time(None, asked + timedelta(microseconds=1))


def test_its_numbering_and_its_and_of_day_fields_are_kept() -> None:
    assert {f"{time:%A}" for time in chain(CronTrigger(day_of_week=0, hour=3, timezone="UTC"), START, 3)} == {"Monday"}
    crontab = CronTrigger.from_crontab("0 12 * * 1", timezone="UTC")
    assert {f"{time:%A}" for time in chain(crontab, START, 3)} == {"Tuesday"}
    both = chain(CronTrigger(day=13, day_of_week="fri", hour=0, timezone="UTC"), START, 2)
    assert local(both, "UTC") == ["2024-09-13T00:00:00+00:00", "2024-12-13T00:00:00+00:00"]


def test_weekdays_as_numbers_are_warned_about_and_names_are_not() -> None:
    (warning,) = from_apscheduler(CronTrigger.from_crontab("0 12 * * 1", timezone="UTC")).warnings()
    assert warning.startswith("day_of_week=1 counts from Monday as 0")
    assert from_apscheduler(CronTrigger.from_crontab("0 12 * * mon-fri", timezone="UTC")).warnings() == ()


CLOCK_CHANGES: list[tuple[dict[str, Any], str, str, list[str]]] = [
    # Its issue 606: the day after the spring change is lost.
    (
        {"hour": 0},
        "US/Pacific",
        "2022-03-13T00:00:00-08:00",
        ["2022-03-14T00:00:00-07:00", "2022-03-15T00:00:00-07:00"],
    ),
    # 1021: the same instant for ever.
    (
        {"minute": 30},
        "Europe/Helsinki",
        "2017-10-29T03:45:00+02:00",
        ["2017-10-29T04:30:00+02:00", "2017-10-29T05:30:00+02:00"],
    ),
    # 980: the same, for every second hour.
    (
        {"hour": "1-23/2"},
        "Europe/London",
        "2024-10-26T23:30:00+01:00",
        ["2024-10-27T01:00:00+01:00", "2024-10-27T03:00:00+00:00"],
    ),
    # 1059: a time that does not exist; by cron's rule it is right after the gap.
    (
        {"hour": 2},
        "US/Eastern",
        "2013-03-10T00:00:00-05:00",
        ["2013-03-10T03:00:00-04:00", "2013-03-11T02:00:00-04:00"],
    ),
    # 529: Monday is lost after the change on Sunday.
    (
        {"day_of_week": "mon-fri", "hour": 0},
        "US/Central",
        "2021-03-12T00:00:00-06:00",
        ["2021-03-15T00:00:00-05:00", "2021-03-16T00:00:00-05:00"],
    ),
    # Wildcards follow real time: both passes, and nothing in the gap.
    (
        {"hour": 1, "minute": "*/30"},
        "America/New_York",
        "2024-11-03T01:10:00-04:00",
        ["2024-11-03T01:30:00-04:00", "2024-11-03T01:00:00-05:00"],
    ),
    (
        {"hour": 2, "minute": "*/30"},
        "America/New_York",
        "2024-03-10T00:00:00-05:00",
        ["2024-03-11T02:00:00-04:00", "2024-03-11T02:30:00-04:00"],
    ),
    (
        {"hour": 2, "minute": 30, "second": "0,30"},
        "America/New_York",
        "2024-03-10T00:00:00-05:00",
        ["2024-03-11T02:30:00-04:00", "2024-03-11T02:30:30-04:00"],
    ),
    # An overlap: a fixed time in the first pass only.
    (
        {"hour": 1, "minute": 30},
        "America/New_York",
        "2024-11-02T22:00:00-04:00",
        ["2024-11-03T01:30:00-04:00", "2024-11-04T01:30:00-05:00"],
    ),
]


@pytest.mark.parametrize(("fields", "zone", "after", "expected"), CLOCK_CHANGES)
def test_at_clock_changes_a_cron_trigger_follows_the_rules_of_cron(
    fields: dict[str, Any], zone: str, after: str, expected: list[str]
) -> None:
    found = chain(CronTrigger(**fields, timezone=zone), datetime.fromisoformat(after), 2)
    assert local(found, zone) == expected


@given(st.sampled_from(ZONES), moments, st.integers(0, 59), st.integers(0, 23))
def test_a_cron_trigger_fires_as_the_cron_expression_of_the_same_fields(
    zone: str, after: datetime, minute: int, hour: int
) -> None:
    theirs = from_apscheduler(CronTrigger(hour=hour, minute=minute, timezone=zone))
    assert theirs.next_after(after) == cron(f"{minute} {hour} * * *", tz=zone).next_after(after)


def test_its_start_and_end_become_those_of_the_schedule() -> None:
    trigger = CronTrigger(hour=3, timezone="UTC", start_date="2024-04-01", end_date="2024-04-03")
    assert [time.day for time in chain(trigger, START, 5)] == [1, 2]
    with pytest.raises(ScheduleError, match="has start_date and the schedule start=: leave one of them out"):
        from_apscheduler(trigger, start=START)


def test_a_trigger_without_any_field_fires_each_second() -> None:
    assert chain(CronTrigger(timezone="UTC"), START, 2) == [START + timedelta(seconds=n) for n in (1, 2)]
    assert repr(from_apscheduler(CronTrigger(timezone="UTC"))) == "<apscheduler_cron 'every second'>"


@pytest.mark.parametrize("fields", [{"month": 2, "day": 30}, {"month": 6, "week": 1}, {"month": 1, "week": 30}])
def test_fields_that_never_meet_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ScheduleError, match="never fires: no date has all of its fields"):
        from_apscheduler(CronTrigger(**fields, timezone="UTC"))


def test_the_search_for_a_date_that_never_comes_ends_with_the_cycle_of_the_calendar() -> None:
    fields = apscheduler_triggers._read(CronTrigger(month=2, day=29, week=9, timezone="UTC"))[0].fields  # type: ignore[attr-defined]
    bounded = fields._until_all_is_seen(START)
    assert bounded.end_date == datetime(2424, 12, 31, tzinfo=UTC)
    assert fields._until_all_is_seen(datetime(9700, 1, 1, tzinfo=UTC)).end_date is None


def test_a_year_far_away_is_found() -> None:
    trigger = CronTrigger(year=2900, month=2, day=28, timezone="UTC")
    assert chain(trigger, START, 2) == [datetime(2900, 2, 28, tzinfo=UTC)]


# -- interval, date -----------------------------------------------------------------------------------------


@given(st.integers(1, 40 * 86_400), moments, moments)
def test_an_interval_trigger_fires_on_its_grid_from_its_start_on(
    seconds: int, start: datetime, after: datetime
) -> None:
    trigger = IntervalTrigger(seconds=seconds, start_date=start)
    asked = after + timedelta(milliseconds=1)
    assert chain(trigger, after, 1) == [trigger.get_next_fire_time(None, asked)]


def test_an_interval_trigger_does_not_fire_before_its_start_and_after_its_end() -> None:
    trigger = IntervalTrigger(hours=6, start_date=START, end_date=START + timedelta(hours=13), timezone="UTC")
    assert [time.hour for time in chain(trigger, START - timedelta(days=3), 9)] == [0, 6, 12]


@pytest.mark.parametrize(
    "trigger",
    [IntervalTrigger(minutes=5), IntervalTrigger(minutes=5, end_date="2030-01-01"), DateTrigger()],
    # Not their texts, which have the time in them: two processes of pytest would collect different tests.
    ids=["interval", "interval with an end", "date"],
)
def test_a_trigger_that_took_the_time_from_the_clock_is_refused_with_what_to_do(trigger: Any) -> None:
    with pytest.raises(ScheduleError, match=r"each process would have another.*(start|run)_date=datetime\(2026"):
        from_apscheduler(trigger)


@pytest.mark.parametrize("seconds", [0.25, -60])
def test_an_interval_below_a_second_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="interval of the trigger must be at least 1 s"):
        from_apscheduler(IntervalTrigger(seconds=seconds, start_date=START))


def test_a_date_trigger_fires_once_also_through_restarts(stub_broker: StubBroker) -> None:
    world = World(stub_broker)
    world.actor(from_apscheduler(DateTrigger(BEGIN + timedelta(seconds=10))))
    for second in (9, 10, 11):
        world.at(second)
        world.restart()
    world.at(3600)
    assert world.fired() == [("job", 10)]


# -- calendar interval --------------------------------------------------------------------------------------


@given(
    st.integers(0, 3),
    st.integers(0, 14),
    st.integers(0, 10),
    st.integers(0, 40),
    st.dates(date(2019, 1, 1), date(2024, 12, 31)),
    st.sampled_from(ZONES),
    st.integers(0, 6),
)
@settings(max_examples=max(1, EXAMPLES // 2))
def test_at_noon_a_calendar_trigger_fires_when_apscheduler_says(
    years: int, months: int, weeks: int, days: int, start: date, zone: str, asked: int
) -> None:
    if not any((years, months, weeks, days)):
        return
    trigger = CalendarIntervalTrigger(
        years=years, months=months, weeks=weeks, days=days, hour=12, start_date=start, timezone=zone
    )
    expected: list[Any] = [trigger.get_next_fire_time(None, START)]
    while len(expected) < 8:
        expected.append(trigger.get_next_fire_time(expected[-1], START))
    assert chain(trigger, datetime(2018, 1, 1, tzinfo=UTC), 8) == expected
    assert from_apscheduler(trigger).next_after(expected[asked]) == expected[asked + 1]


def test_a_date_in_a_gap_is_passed_over_and_those_after_it_stay() -> None:
    trigger = CalendarIntervalTrigger(days=1, hour=23, minute=30, start_date="2024-03-28", timezone="America/Nuuk")
    days = [
        time.astimezone(ZoneInfo("America/Nuuk")).day
        for time in chain(trigger, datetime(2024, 3, 28, 12, tzinfo=UTC), 4)
    ]
    # Its pull request 1138: the clock goes forward from 23:00 on 30 March; 3.11 goes on with 1 April.
    assert days == [28, 29, 31, 1]


def test_a_time_that_comes_twice_counts_once() -> None:
    trigger = CalendarIntervalTrigger(days=1, hour=2, minute=30, start_date="2026-10-24", timezone="Europe/Berlin")
    assert local(chain(trigger, datetime(2026, 10, 24, 12, tzinfo=UTC), 2), "Europe/Berlin") == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_months_without_the_day_are_passed_over() -> None:
    trigger = CalendarIntervalTrigger(months=1, start_date="2024-01-31", end_date="2024-08-31", timezone="UTC")
    assert [time.month for time in chain(trigger, START, 9)] == [1, 3, 5, 7, 8]


def test_what_lies_in_the_past_is_not_given_again() -> None:
    trigger = CalendarIntervalTrigger(weeks=2, start_date="2001-01-01", timezone="UTC")
    found = chain(trigger, START, 2)
    assert START < found[0] <= START + timedelta(weeks=2)
    assert (found[0] - datetime(2001, 1, 1, tzinfo=UTC)) % timedelta(weeks=2) == timedelta(0)


def test_a_start_that_is_today_needs_to_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apscheduler_triggers, "local_date", lambda: date(2026, 5, 1))
    for other in ("2026-04-30", "2026-05-02"):
        assert from_apscheduler(CalendarIntervalTrigger(days=1, start_date=other, timezone="UTC"))
    today = CalendarIntervalTrigger(days=1, start_date="2026-05-01", timezone="UTC")
    with pytest.raises(ScheduleError, match=r"is today, as it is for one that was given none.*anchored=True"):
        from_apscheduler(today)
    assert chain(today, datetime(2026, 4, 1, tzinfo=UTC), 1, anchored=True) == [datetime(2026, 5, 1, tzinfo=UTC)]


def test_a_calendar_trigger_without_a_start_is_refused() -> None:
    with pytest.raises(ScheduleError, match="start_date of the CalendarIntervalTrigger is today"):
        from_apscheduler(CalendarIntervalTrigger(days=1))


@pytest.mark.parametrize(
    "interval", [{"days": -1}, {"months": -1}, {"weeks": 1, "days": -7}, {"months": 1, "days": -1}]
)
def test_a_calendar_interval_that_goes_backwards_is_refused(interval: dict[str, int]) -> None:
    with pytest.raises(ScheduleError, match="no interval of whole months and days that goes forward"):
        from_apscheduler(CalendarIntervalTrigger(**interval, start_date="2024-01-01"))


@pytest.mark.parametrize(
    ("interval", "told"),
    [
        ({"days": 1}, "every day at 23:30:00 from 2024-03-28"),
        ({"weeks": 2}, "every 14 days at 23:30:00 from 2024-03-28"),
        ({"months": 1}, "every month at 23:30:00 from 2024-03-28"),
        ({"years": 1, "days": 1}, "every 12 months and 1 day at 23:30:00 from 2024-03-28"),
    ],
)
def test_a_calendar_interval_is_shown_in_words(interval: dict[str, int], told: str) -> None:
    trigger = CalendarIntervalTrigger(**interval, hour=23, minute=30, start_date="2024-03-28", timezone="UTC")
    assert from_apscheduler(trigger).timing.expression == told


@pytest.mark.parametrize("instant", [-(10**15), -62_135_596_800_000, 253_402_300_799_999, 10**15])
def test_the_ends_of_the_calendar_are_no_error(instant: int) -> None:
    for interval in ({"days": 1}, {"months": 1}, {"months": 1, "days": 1}):
        trigger = CalendarIntervalTrigger(**interval, start_date="9990-01-31", timezone="Pacific/Kiritimati")
        found = from_apscheduler(trigger).timing.next_ms(instant)
        assert (found is None) == (instant > 10**14)


# -- all ----------------------------------------------------------------------------------------------------

USABLE = [
    CronTrigger(hour="1-5/2", day_of_week="mon-fri", timezone="Europe/Berlin"),
    CronTrigger(timezone="UTC"),
    IntervalTrigger(minutes=5, start_date=START, end_date=START + timedelta(days=1)),
    DateTrigger(START),
    CalendarIntervalTrigger(
        months=1, days=2, hour=3, start_date="2024-01-31", end_date="2030-01-01", timezone="Asia/Tokyo"
    ),
]


@pytest.mark.parametrize("trigger", USABLE, ids=repr)
def test_a_trigger_survives_the_way_into_the_store_and_back(trigger: Any) -> None:
    timing = from_apscheduler(trigger).timing.bind("job", "UTC")
    assert timing_from_json(timing.to_json()) == timing


@given(st.sampled_from(USABLE), moments)
def test_the_answers_of_any_trigger_are_strictly_rising(trigger: Any, after: datetime) -> None:
    found = [after, *chain(trigger, after, 5)]
    assert all(one < other for one, other in pairwise(found))


@pytest.mark.parametrize(
    "trigger",
    [
        CronTrigger(hour=3, jitter=60),
        IntervalTrigger(minutes=5, start_date=START, jitter=60),
        CalendarIntervalTrigger(days=1, start_date="2024-01-01", jitter=60),
    ],
    ids=repr,
)
def test_a_trigger_with_jitter_is_refused_with_what_to_use(trigger: Any) -> None:
    with pytest.raises(ScheduleError, match=r"another time on each host.*spread="):
        from_apscheduler(trigger)


def test_combined_triggers_are_refused_with_what_to_use() -> None:
    children = [CronTrigger(hour=3), CronTrigger(hour=4)]
    with pytest.raises(ScheduleError, match=r"not OrTrigger.*use any_of\(from_apscheduler"):
        from_apscheduler(OrTrigger(children))
    with pytest.raises(ScheduleError, match=r"not AndTrigger.*for ever; write one cron"):
        from_apscheduler(AndTrigger(children))


class Own(CronTrigger):
    """It may answer what it likes."""


class Stateful:
    """As in APScheduler 4."""

    def next(self) -> datetime:
        return START


@pytest.mark.parametrize("trigger", [Own(hour=3), "0 3 * * *", None, CronTrigger, cron("0 3 * * *")], ids=repr)
def test_anything_else_is_refused(trigger: Any) -> None:
    with pytest.raises(ScheduleError, match="of APScheduler 3, not"):
        from_apscheduler(trigger)


def test_a_trigger_of_apscheduler_4_is_refused_as_such() -> None:
    with pytest.raises(ScheduleError, match="APScheduler 4, which changes whenever it is asked"):
        from_apscheduler(Stateful())  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", [timezone(timedelta(hours=2)), timezone(timedelta(hours=-5), "EST5")])
def test_a_zone_without_a_name_is_refused_with_what_to_do(zone: Any) -> None:
    with pytest.raises(UnknownZone, match="give it timezone='Europe/Berlin'"):
        from_apscheduler(CronTrigger(hour=3, timezone=zone))


def test_an_unknown_option_is_refused_with_a_suggestion() -> None:
    with pytest.raises(
        ConfigurationError, match=r"from_apscheduler\(\) has no option 'anchord'. Did you mean 'anchored'"
    ):
        from_apscheduler(CronTrigger(hour=3), anchord=True)  # type: ignore[call-arg]


def test_apscheduler_is_not_imported_by_apps_that_do_not_use_it() -> None:
    code = "import sys, dramatiq_distcron; sys.exit(any(name.startswith('apscheduler') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- whose zone -----------------------------------------------------------------------------------------------


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's zone is Berlin's."""
    for kind in ("cron", "interval", "date", "calendarinterval"):
        monkeypatch.setattr(f"apscheduler.triggers.{kind}.get_localzone", lambda: ZoneInfo("Europe/Berlin"))


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize(
    "make",
    [
        lambda: CronTrigger(hour=3),
        lambda: IntervalTrigger(hours=1, start_date=datetime(2026, 1, 1)),
        lambda: DateTrigger(datetime(2026, 12, 24, 18)),
        lambda: CalendarIntervalTrigger(days=1, hour=3, start_date=date(2026, 1, 1)),
    ],
)
def test_a_trigger_in_the_zone_of_the_host_is_warned_of_unless_its_zone_is_said(make: Any) -> None:
    (warning, *_) = from_apscheduler(make()).warnings()
    assert "zone Europe/Berlin is that of this host" in warning
    assert "from_apscheduler(trigger, tz='Europe/Berlin')" in warning
    assert not any("of this host" in text for text in from_apscheduler(make(), tz="Europe/Berlin").warnings())
    with pytest.raises(ScheduleError, match=r"in the zone Europe/Berlin, and tz= says Asia/Tokyo"):
        from_apscheduler(make(), tz="Asia/Tokyo")


def test_what_is_to_be_used_in_the_place_of_a_combined_trigger_takes_each_kind_of_trigger() -> None:
    begin, stop = datetime(2026, 1, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, 12, tzinfo=UTC)
    joined = any_of(
        from_apscheduler(CronTrigger(minute=30, hour="*/5", timezone="UTC", end_date=stop)),
        from_apscheduler(IntervalTrigger(hours=6, start_date=begin)),
        from_apscheduler(DateTrigger(datetime(2026, 1, 2, tzinfo=UTC))),
        from_apscheduler(CalendarIntervalTrigger(days=1, start_date="2026-01-01", hour=1, timezone="UTC")),
    )
    found, instant = [], datetime(2026, 1, 1, tzinfo=UTC)
    while instant < datetime(2026, 1, 2, 6, tzinfo=UTC):
        following = joined.next_after(instant)
        assert following is not None
        found.append(f"{following:%d %H:%M}")
        instant = following
    assert found == [
        "01 00:30", "01 01:00", "01 02:00", "01 05:30", "01 08:00", "01 10:30", "01 14:00", "01 20:00",
        "02 00:00", "02 01:00", "02 02:00", "02 08:00",
    ]  # fmt: skip


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_a_trigger_in_another_zone_than_the_hosts_is_not_warned_of(zone: str) -> None:
    assert from_apscheduler(CronTrigger(hour=3, timezone=zone)).warnings() == ()


@pytest.mark.usefixtures("in_berlin")
def test_the_zone_of_a_part_is_warned_of_as_well() -> None:
    joined = any_of(from_apscheduler(CronTrigger(hour=3)), from_apscheduler(CronTrigger(hour=4, timezone="UTC")))
    assert len(joined.warnings()) == 1


def test_an_explicit_utc_is_not_taken_for_the_zone_of_a_host_that_is_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apscheduler.triggers.cron.get_localzone", lambda: ZoneInfo("UTC"))
    assert from_apscheduler(CronTrigger(hour=3, timezone="UTC")).warnings() == ()
    assert len(from_apscheduler(CronTrigger(hour=3)).warnings()) == 1


def test_a_host_whose_zone_cannot_be_told_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> ZoneInfo:
        raise LookupError("no such zone")

    monkeypatch.setattr("apscheduler.triggers.cron.get_localzone", fail)
    assert from_apscheduler(CronTrigger(hour=3, timezone="Europe/Berlin")).warnings() == ()
