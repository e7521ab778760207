"""``cron()`` and ``every()``: what they accept, what they refuse and with which words, and how they reach an actor."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker
from hypothesis import given
from hypothesis import strategies as st

from dramatiq_distcron import ConfigurationError, InvalidCronExpression, Schedule, cron, every, install
from dramatiq_distcron.durations import instant_ms
from dramatiq_distcron.errors import ScheduleError
from dramatiq_distcron.schedules import ScheduleHost
from dramatiq_distcron.timing_json import timing_from_json
from dramatiq_distcron.timings import CronTiming, EveryTiming

UTC = timezone.utc
DAY = 86_400_000

intervals = st.integers(1000, 40 * DAY)
anchors = st.integers(-(10**12), 10**13)
instants = st.integers(-(10**12), 10**13)


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


# -- cron ---------------------------------------------------------------------------------------------------


def test_a_cron_schedule_tells_its_next_fire_time_in_utc() -> None:
    found = cron("*/5 * * * *").next_after(at(2026, 3, 29, 0, 1))
    assert found == at(2026, 3, 29, 0, 5)
    assert found is not None
    assert found.tzinfo is UTC


def test_the_next_fire_time_is_strictly_after() -> None:
    assert cron("0 3 * * *").next_after(at(2026, 3, 1, 3)) == at(2026, 3, 2, 3)


def test_a_cron_expression_is_read_in_its_zone() -> None:
    schedule = cron("0 3 * * *", tz="Europe/Berlin")
    assert schedule.next_after(at(2026, 1, 1)) == at(2026, 1, 1, 2)
    assert schedule.next_after(at(2026, 7, 1)) == at(2026, 7, 1, 1)


def test_without_a_zone_it_is_read_in_the_default_one_once_bound() -> None:
    bound = cron("0 3 * * *").timing.bind("job", "Europe/Berlin")
    assert bound.timezone == "Europe/Berlin"
    assert bound.next_ms(instant_ms(at(2026, 7, 1), "")) == instant_ms(at(2026, 7, 1, 1), "")


def test_its_own_zone_is_stronger_than_the_default_one() -> None:
    assert cron("0 3 * * *", tz="Asia/Tokyo").timing.bind("job", "Europe/Berlin").timezone == "Asia/Tokyo"


def test_an_instant_in_any_zone_may_be_asked_for() -> None:
    asked = datetime(2026, 7, 1, 4, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    assert cron("0 3 * * *").next_after(asked) == at(2026, 7, 1, 3)


def test_six_fields_need_to_know_where_the_second_is() -> None:
    assert cron("*/10 * * * * *", seconds="first").next_after(at(2026, 1, 1)) == at(2026, 1, 1, 0, 0, 10)
    assert cron("* * * * * 30", seconds="last").next_after(at(2026, 1, 1)) == at(2026, 1, 1, 0, 0, 30)
    with pytest.raises(InvalidCronExpression, match="seconds='first'"):
        cron("*/10 * * * * *")


def test_a_minute_that_is_spread_depends_on_the_name_alone() -> None:
    schedule = cron("H * * * *")
    minutes = {schedule.timing.bind(f"job-{n}", "UTC").next_ms(0) for n in range(50)}
    assert len(minutes) > 10
    assert schedule.timing.bind("job-1", "UTC") == cron("H * * * *").timing.bind("job-1", "UTC")


@pytest.mark.parametrize("expression", ["61 * * * *", "* * *", "", "0 0 30 2 *", "@reboot", None, 5])
def test_a_bad_expression_is_refused_when_it_is_written(expression: Any) -> None:
    with pytest.raises(InvalidCronExpression):
        cron(expression)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "+01:00", "", 5])
def test_a_bad_zone_is_refused_when_it_is_written(zone: Any) -> None:
    with pytest.raises(ScheduleError, match="time zone"):
        cron("0 3 * * *", tz=zone)


# -- every --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schedule",
    [every(90), every(90.0), every(timedelta(seconds=90)), every(seconds=90), every(minutes=1, seconds=30)],
)
def test_an_interval_may_be_written_in_several_ways(schedule: Schedule) -> None:
    assert schedule.timing == EveryTiming(90_000)


def test_every_part_counts() -> None:
    length = timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5)
    assert every(weeks=1, days=2, hours=3, minutes=4, seconds=5).timing == every(length).timing


def test_an_interval_is_anchored_in_1970_unless_told_otherwise() -> None:
    assert every(minutes=10).next_after(at(2026, 1, 1, 0, 3)) == at(2026, 1, 1, 0, 10)
    anchored = every(minutes=10, anchor=at(2026, 1, 1, 0, 3))
    assert anchored.next_after(at(2026, 1, 1)) == at(2026, 1, 1, 0, 3)
    assert anchored.next_after(at(2026, 1, 1, 0, 3)) == at(2026, 1, 1, 0, 13)


def test_a_day_is_24_hours_whatever_the_clocks_do() -> None:
    anchor = datetime(2026, 3, 28, 3, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    found = every(days=1, anchor=anchor).next_after(anchor)
    assert found is not None
    assert found.astimezone(ZoneInfo("Europe/Berlin")).hour == 4


def test_a_naive_anchor_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"The anchor of every\(\) has no time zone"):
        every(60, anchor=datetime(2026, 1, 1))


@pytest.mark.parametrize("arguments", [{}, {"interval": 60, "seconds": 60}, {"interval": None}, {"seconds": 0}])
def test_there_is_exactly_one_interval(arguments: dict[str, Any]) -> None:
    with pytest.raises(ScheduleError, match="needs one interval"):
        every(**arguments)


@pytest.mark.parametrize("interval", [0, 0.999, -60, timedelta(0), timedelta(milliseconds=999)])
def test_an_interval_below_a_second_is_refused(interval: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"The interval of every\(\) must be at least 1 s"):
        every(interval)


@pytest.mark.parametrize("interval", ["60", True, float("nan"), float("inf")])
def test_an_interval_that_is_no_duration_is_refused(interval: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be a number of seconds or a timedelta"):
        every(interval)


@pytest.mark.parametrize(
    "parts", [{"days": 10**9}, {"weeks": float("nan")}, {"interval": 1e300}], ids=["too long", "nan", "1e300"]
)
def test_parts_that_make_no_duration_are_refused_as_any_other(parts: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        every(**parts)


@pytest.mark.parametrize("interval", [1e12, timedelta.max], ids=["30,000 years", "timedelta.max"])
def test_an_interval_beyond_the_calendar_is_refused_or_never_fires(interval: Any) -> None:
    try:
        schedule = every(interval)
    except ConfigurationError:
        return
    assert schedule.next_after(at(2026, 1, 1)) is None


@given(intervals, anchors, instants)
def test_every_fire_time_is_strictly_later_and_on_the_grid_and_none_is_between(
    interval: int, anchor: int, after: int
) -> None:
    found = EveryTiming(interval, anchor).next_ms(after)
    assert found is not None
    assert after < found <= after + interval
    assert (found - anchor) % interval == 0


@given(intervals, anchors, instants, st.integers(1, 50))
def test_an_interval_never_drifts(interval: int, anchor: int, after: int, steps: int) -> None:
    timing = EveryTiming(interval, anchor)
    first = time = timing.next_ms(after)
    for _ in range(steps):
        assert time is not None
        time = timing.next_ms(time)
    assert first is not None
    assert time == first + steps * interval


@given(intervals, anchors, instants, st.lists(st.integers(0, 10 * DAY), max_size=20))
def test_the_next_fire_time_does_not_depend_on_where_one_came_from(
    interval: int, anchor: int, after: int, jumps: list[int]
) -> None:
    timing = EveryTiming(interval, anchor)
    for jump in jumps:
        after += jump
        timing.next_ms(after)
    assert timing.next_ms(after) == EveryTiming(interval, anchor).next_ms(after)


@given(intervals, anchors, instants, instants)
def test_a_later_instant_never_has_an_earlier_fire_time(interval: int, anchor: int, one: int, other: int) -> None:
    timing = EveryTiming(interval, anchor)
    found = [timing.next_ms(after) or 0 for after in sorted((one, other))]
    assert found == sorted(found)


@given(intervals, anchors, st.integers(-50, 50), instants)
def test_any_point_of_the_grid_is_as_good_an_anchor(interval: int, anchor: int, steps: int, after: int) -> None:
    moved = EveryTiming(interval, anchor + steps * interval)
    assert moved.next_ms(after) == EveryTiming(interval, anchor).next_ms(after)


# -- what both share ----------------------------------------------------------------------------------------


@pytest.fixture(params=["cron", "every"])
def make(request: pytest.FixtureRequest) -> Any:
    def call(**options: Any) -> Schedule:
        return cron("0 3 * * *", **options) if request.param == "cron" else every(60, **options)

    return call


def test_a_naive_instant_is_refused(make: Any) -> None:
    with pytest.raises(ConfigurationError, match="The instant has no time zone"):
        make().next_after(datetime(2026, 3, 29))


def test_options_are_kept_as_they_were_given(make: Any) -> None:
    schedule = make(name="job", args=[1, "b"], kwargs={"c": 3}, options={"max_retries": 5})
    assert (schedule.name, schedule.args, schedule.kwargs) == ("job", (1, "b"), {"c": 3})
    assert schedule.options == {"max_retries": 5}


def test_policies_are_checked_and_kept_apart(make: Any) -> None:
    schedule = make(catch_up="all", misfire_grace_time=timedelta(minutes=5), max_catch_up=7)
    assert schedule.policy == {"catch_up": "all", "misfire_grace_time": 300_000, "max_catch_up": 7}
    assert make().policy == {}


@pytest.mark.parametrize(("option", "meant"), [("nme", "name"), ("catchup", "catch_up"), ("kwarg", "kwargs")])
def test_an_unknown_option_is_refused_with_a_suggestion(make: Any, option: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"(cron|every)\(\) has no option {option!r}. Did you mean '{meant}'"):
        make(**{option: "x"})


@pytest.mark.parametrize("option", ["exclusive", "on_conflict", "max_concurrency", "rate_limit", "retry_budget"])
def test_an_option_that_is_not_built_yet_is_refused_and_not_ignored(make: Any, option: str) -> None:
    with pytest.raises(ConfigurationError, match=f"has no option '{option}'"):
        make(**{option: None})


@pytest.mark.parametrize("option", ["delay", "eta", "distcron", "redis_message_id"])
def test_a_message_option_that_would_move_the_tick_is_refused_with_the_reason(make: Any, option: str) -> None:
    with pytest.raises(ScheduleError, match=f"'{option}' cannot be set by a schedule. .+"):
        make(options={option: 1})


@pytest.mark.parametrize("name", ["", "x" * 201, "line\nbreak", "tab\t", "\x00", 5, b"job", True])
def test_a_name_that_cannot_be_shown_is_refused(make: Any, name: Any) -> None:
    with pytest.raises(ScheduleError, match="name must be 1 to 200 printable characters"):
        make(name=name)


@pytest.mark.parametrize("name", ["\x7f", "\x9b31m", "\u2028", "\ud800"], ids=["DEL", "CSI", "line separator", "half"])
def test_a_name_with_characters_that_are_not_printable_is_refused(name: str) -> None:
    with pytest.raises(ScheduleError, match="printable"):
        every(60, name=name)


@pytest.mark.parametrize("name", ["a", "x" * 200, "report:7", "nächtlich 夜 🌙", "%s {0}", "../x"])
def test_any_printable_name_is_accepted(make: Any, name: str) -> None:
    assert make(name=name).name == name


@pytest.mark.parametrize("args", ["abc", b"abc", 5, {"a": 1}, {1, 2}, None])
def test_args_must_be_a_list(make: Any, args: Any) -> None:
    with pytest.raises(ScheduleError, match="args must be a list or tuple"):
        make(args=args)


@pytest.mark.parametrize("value", [[], "x", {1: "a"}, None])
@pytest.mark.parametrize("option", ["kwargs", "options"])
def test_kwargs_and_options_must_be_named(make: Any, option: str, value: Any) -> None:
    with pytest.raises(ScheduleError, match=f"{option} must be a dict with names as keys"):
        make(**{option: value})


def test_a_schedule_does_not_change_with_the_lists_it_was_made_from(make: Any) -> None:
    args, kwargs, options = [1], {"a": 1}, {"max_retries": 1}
    schedule = make(args=args, kwargs=kwargs, options=options)
    args.append(2)
    kwargs["b"] = options["max_age"] = 2
    assert (schedule.args, schedule.kwargs, schedule.options) == ((1,), {"a": 1}, {"max_retries": 1})


def test_a_schedule_shows_what_it_is() -> None:
    assert repr(cron("0 3 * * *", name="job")) == "<cron '0 3 * * *' of 'job'>"
    assert repr(every(90)) == "<every 'every 0:01:30'>"


@pytest.mark.parametrize(
    "schedule", [cron("H 3 * * *", tz="Asia/Tokyo"), cron("5 * * * * *", seconds="first"), every(90)]
)
def test_a_timing_survives_the_way_into_the_store_and_back(schedule: Schedule) -> None:
    assert timing_from_json(schedule.timing.to_json()) == schedule.timing


@given(intervals, anchors)
def test_an_interval_survives_the_way_into_the_store_and_back(interval: int, anchor: int) -> None:
    timing = EveryTiming(interval, anchor)
    assert timing_from_json(timing.to_json()) == timing


def test_a_timing_that_was_bound_stays_bound_in_the_store() -> None:
    bound = cron("H 3 * * *").timing.bind("job", "Asia/Tokyo")
    again = timing_from_json(bound.to_json()).bind("job", "UTC")
    assert isinstance(again, CronTiming)
    assert again == bound
    assert again.next_ms(0) == bound.next_ms(0)


def test_a_kind_of_a_later_version_is_refused() -> None:
    with pytest.raises(ScheduleError, match="kind 'lunar' is not known to this version"):
        timing_from_json({"kind": "lunar"})


# -- the decorator ------------------------------------------------------------------------------------------


def test_a_schedule_is_a_decorator_above_the_actor(stub_broker: StubBroker) -> None:
    distcron = install(stub_broker)

    @cron("0 3 * * *")
    @dramatiq.actor(broker=stub_broker)
    def nightly() -> None: ...

    assert isinstance(nightly, dramatiq.Actor)
    assert distcron.specs()["nightly"].actor == "nightly"


def test_several_schedules_may_decorate_one_actor(stub_broker: StubBroker) -> None:
    distcron = install(stub_broker)

    @cron("0 3 * * *", name="nightly")
    @every(60, name="minutely")
    @dramatiq.actor(broker=stub_broker, periodic=cron("0 0 1 * *", name="monthly"))
    def job() -> None: ...

    assert {name: spec.actor for name, spec in distcron.specs().items()} == {
        "nightly": "job",
        "minutely": "job",
        "monthly": "job",
    }


def test_the_decorated_function_runs_as_before(stub_broker: StubBroker) -> None:
    install(stub_broker)

    @every(60, args=(1,))
    @dramatiq.actor(broker=stub_broker)
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8


def test_below_the_actor_decorator_it_is_refused_with_what_to_do() -> None:
    def job() -> None: ...

    with pytest.raises(ConfigurationError, match=r"decorates an actor, not .*above @dramatiq.actor, not below"):
        every(60)(job)  # type: ignore[arg-type]


def test_an_actor_whose_broker_has_no_middleware_is_refused_with_what_to_do(stub_broker: StubBroker) -> None:
    @dramatiq.actor(broker=stub_broker)
    def job() -> None: ...

    with pytest.raises(ConfigurationError, match=r"'job' has no DistCron middleware.*install\(broker\)"):
        every(60)(job)


def test_the_middleware_is_what_takes_schedules_in(stub_broker: StubBroker) -> None:
    assert isinstance(install(stub_broker), ScheduleHost)
