"""``at()`` and ``any_of()``: once and once only, and whenever one of several says so."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from dramatiq.brokers.stub import StubBroker
from hypothesis import given
from hypothesis import strategies as st

from dramatiq_distcron import ConfigurationError, Schedule, any_of, at, cron, every
from dramatiq_distcron.errors import InvalidCronExpression, ScheduleError
from dramatiq_distcron.specs import parse_spec
from dramatiq_distcron.timing_json import UnknownKind, timing_from_json
from dramatiq_distcron.timings import AnyTiming, AtTiming, EveryTiming, Timing
from dramatiq_distcron.zones import UnknownZone
from tests.unit.world import BEGIN, World

UTC = timezone.utc
DAY = 86_400_000
NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)

instants = st.integers(-(10**12), 10**13)
dense = st.builds(EveryTiming, st.integers(1000, 5 * DAY), st.integers(0, DAY))
crons = st.sampled_from(["*/7 * * * *", "0 3 * * *", "30 2 * * 0", "0 0 13 * 5", "15 */5 1-7 * *", "0 0 29 2 *"])
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"])
parts: st.SearchStrategy[Timing] = st.one_of(
    dense,
    st.builds(AtTiming, instants),
    st.builds(lambda text, zone: cron(text, tz=zone).timing, crons, zones),
)
unions = st.lists(parts, min_size=2, max_size=5).map(lambda some: AnyTiming(tuple(some)))


@pytest.fixture
def world(stub_broker: StubBroker) -> World:
    return World(stub_broker)


def times(timing: Timing, after: int, count: int) -> list[int]:
    found: list[int] = []
    time: int | None = after
    while len(found) < count and (time := timing.next_ms(time)) is not None:
        found.append(time)
    return found


# -- at -----------------------------------------------------------------------------------------------------


def test_an_instant_comes_once() -> None:
    schedule = at(NOON)
    assert schedule.next_after(NOON - timedelta(days=400)) == NOON
    assert schedule.next_after(NOON - timedelta(milliseconds=1)) == NOON
    assert schedule.next_after(NOON) is None
    assert schedule.next_after(NOON + timedelta(days=400)) is None


def test_an_instant_of_any_zone_is_the_same_instant() -> None:
    berlin = NOON.astimezone(ZoneInfo("Europe/Berlin"))
    assert at(berlin).timing == at(NOON).timing


def test_the_two_passes_of_an_hour_that_comes_twice_are_two_instants() -> None:
    first, second = (datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold) for fold in (0, 1))
    assert at(second).timing.next_ms(0) - (at(first).timing.next_ms(0) or 0) == 3_600_000  # type: ignore[operator]


def test_a_naive_instant_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        ConfigurationError, match=r"The instant of at\(\) has no time zone.*guess.*Give it one.*ZoneInfo"
    ):
        at(datetime(2026, 3, 29))


@pytest.mark.parametrize("instant", [None, 5, 1_774_785_600.0, "2026-03-29T12:00:00Z", NOON.date(), timedelta(1)])
def test_what_is_no_datetime_is_refused(instant: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be a datetime with a time zone"):
        at(instant)


@given(instants, instants)
def test_an_instant_is_the_next_fire_time_until_it_is_there_and_never_again(instant: int, after: int) -> None:
    assert AtTiming(instant).next_ms(after) == (instant if after < instant else None)


def test_it_is_fired_once_whatever_passes_and_restarts_follow(world: World) -> None:
    world.actor(at(BEGIN + timedelta(seconds=10)))
    for second in (5, 10, 11):
        world.at(second)
    world.restart()
    for second in (11, 3600, 10**6):
        world.at(second)
    assert world.fired() == [("job", 10)]
    assert world.outcomes("job") == [("enqueued", 10, 10, 1)]
    assert world.distcron.schedules.get("job").state == "finished"


@pytest.mark.parametrize(("catch_up", "outcome"), [("latest", "enqueued"), ("all", "enqueued"), ("skip", "missed")])
def test_one_that_came_while_nobody_was_there_is_made_up_for_as_its_policy_says(
    world: World, catch_up: Any, outcome: str
) -> None:
    world.actor(at(BEGIN + timedelta(seconds=10), catch_up=catch_up))
    world.at(1)
    world.beat.lease.release()
    world.clock.advance(3600)
    world.restart()
    for second in (3700, 3800):
        world.at(second)
    assert world.outcomes("job") == [(outcome, 10, 10, 1)]
    assert len(world.messages()) == (outcome == "enqueued")


def test_one_that_is_stored_after_its_instant_never_fires(world: World) -> None:
    world.actor(at(BEGIN - timedelta(seconds=10)))
    for second in (0, 10, 3600):
        world.at(second)
    assert world.messages() == []
    assert world.distcron.schedules.get("job").state == "finished"


def test_a_finished_one_that_is_moved_to_a_later_instant_fires_again(world: World) -> None:
    job = world.actor(name="job")
    world.distcron.schedules.put(at(BEGIN + timedelta(seconds=10), name="once"), actor=job)
    world.at(10)
    world.distcron.schedules.put(at(BEGIN + timedelta(seconds=20), name="once"), actor=job)
    for second in (15, 20, 30):
        world.at(second)
    assert world.fired() == [("once", 10), ("once", 20)]


# -- any_of -------------------------------------------------------------------------------------------------


def test_a_union_fires_whenever_one_of_its_parts_does() -> None:
    schedule = any_of(cron("0 9 * * 1-5"), cron("0 12 * * 6"), every(days=7, anchor=NOON))
    found, instant = [], datetime(2026, 3, 27, tzinfo=UTC)
    for _ in range(4):
        following = schedule.next_after(instant)
        assert following is not None
        found.append(following)
        instant = following
    assert [f"{time:%a %H}" for time in found] == ["Fri 09", "Sat 12", "Sun 12", "Mon 09"]


def test_a_time_of_several_parts_is_one_fire_time() -> None:
    schedule = any_of(every(60), every(90), at(datetime(2026, 1, 1, 0, 3, tzinfo=UTC)))
    found = times(schedule.timing, int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000), 4)
    assert [time // 1000 % 3600 for time in found] == [60, 90, 120, 180]


@given(unions, instants)
def test_a_union_is_strictly_rising_and_holds_just_what_its_parts_do(union: AnyTiming, after: int) -> None:
    found = times(union, after, 12)
    assert all(one < other for one, other in zip([after, *found], found, strict=False))
    merged = sorted({time for part in union.parts for time in times(part, after, 12)})
    assert found == merged[:12]


@given(unions)
def test_a_union_survives_the_way_into_the_store_and_back(union: AnyTiming) -> None:
    assert timing_from_json(union.to_json()) == union


def test_unions_may_hold_unions() -> None:
    inner = any_of(every(60), every(90))
    assert times(any_of(inner, every(50)).timing, 0, 4) == [50_000, 60_000, 90_000, 100_000]


def test_each_part_keeps_its_own_zone_and_the_others_get_the_default_one() -> None:
    bound = any_of(cron("0 3 * * *", tz="Asia/Tokyo"), cron("0 3 * * *")).timing.bind("job", "Europe/Berlin")
    assert isinstance(bound, AnyTiming)
    assert [part.timezone for part in bound.parts] == ["Asia/Tokyo", "Europe/Berlin"]
    assert bound.timezone is None
    assert any_of(cron("0 3 * * *", tz="Asia/Tokyo"), every(60)).timing.timezone == "Asia/Tokyo"


def test_h_in_its_parts_follows_from_the_name_of_the_whole() -> None:
    schedule = any_of(cron("H 3 * * *"), cron("H 15 * * *"), name="job")
    minute = cron("H 3 * * *", name="job").next_after(NOON)
    assert schedule.next_after(NOON + timedelta(hours=6)) == minute
    with pytest.raises(InvalidCronExpression, match="name="):
        any_of(cron("H 3 * * *"), every(60)).next_after(NOON)


def test_a_union_shows_what_it_is_of_and_what_is_unusual_in_each() -> None:
    schedule = any_of(cron("0 0 13 * 5"), every(days=1))
    assert repr(schedule) == "<any_of '0 0 13 * 5 or every 1 day, 0:00:00'>"
    assert [text.partition(": ")[0] for text in schedule.warnings()] == ["0 0 13 * 5", "every 1 day, 0:00:00"]


@pytest.mark.parametrize("schedules", [(), (every(60),)])
def test_fewer_than_two_are_no_union(schedules: tuple[Schedule, ...]) -> None:
    with pytest.raises(ScheduleError, match="joins two schedules or more"):
        any_of(*schedules)


@pytest.mark.parametrize("other", ["0 3 * * *", None, 60, every, timedelta(1)])
def test_only_schedules_can_be_joined(other: Any) -> None:
    with pytest.raises(ScheduleError, match="joins schedules such as cron"):
        any_of(every(60), other)


@pytest.mark.parametrize(
    "options", [{"name": "a"}, {"args": [1]}, {"kwargs": {"a": 1}}, {"options": {"max_age": 1}}, {"catch_up": "all"}]
)
def test_options_belong_to_the_union_and_not_to_its_parts(options: dict[str, Any]) -> None:
    with pytest.raises(ScheduleError, match="give its options to it"):
        any_of(every(60), every(90, **options))
    assert any_of(every(60), every(90), **options)


def test_each_part_may_have_bounds_of_its_own_beside_those_of_the_union() -> None:
    def second(number: int) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)

    early, late = every(10, end=second(30)), every(7, anchor=second(0), start=second(20), end=second(42))
    schedule = any_of(early, late, start=second(15), end=second(40))
    ms = int(second(0).timestamp() * 1000)
    found = [schedule.next_after(second(number)) for number in range(45)]
    assert sorted({one for one in found if one}) == [second(number) for number in (20, 21, 28, 30, 35)]
    assert [(time - ms) // 1000 for time in times(schedule.timing, ms, 6)] == [10, 20, 21, 28, 30, 35]
    assert timing_from_json(schedule.timing.to_json()) == schedule.timing
    assert schedule.timing.expression == (
        "every 0:00:10 until 2026-01-01T00:00:30.000Z or "
        "every 0:00:07 from 2026-01-01T00:00:20.000Z until 2026-01-01T00:00:42.000Z"
    )


def test_a_bounded_part_is_bound_and_warned_of_as_it_is_alone() -> None:
    bounded = cron("H 0 */15 * *", tz="Asia/Tokyo", start=NOON)
    schedule = any_of(bounded, every(days=400, anchor=NOON - timedelta(days=1)), name="job")
    assert schedule.timing.timezone == "Asia/Tokyo"
    assert schedule.next_after(NOON) == cron("H 0 */15 * *", tz="Asia/Tokyo", name="job").next_after(NOON)
    assert any("counts anew each month" in text for text in schedule.warnings())


def test_a_part_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="never fires"):
        any_of(every(60), every(90, start=NOON, end=NOON - timedelta(1)))


def test_a_union_is_fired_as_one_schedule(world: World) -> None:
    world.actor(any_of(every(20), every(30), at(BEGIN + timedelta(seconds=25)), catch_up="all"))
    for second in (10, 20, 60):
        world.at(second)
    world.restart()
    world.at(60)
    assert world.fired() == [("job", second) for second in (20, 25, 30, 40, 60)]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({"kind": "at", "instant": "x"}, ScheduleError),
        ({"kind": "at", "instant": True}, ScheduleError),
        ({"kind": "at", "instant": 10**30}, ScheduleError),
        ({"kind": "any_of", "parts": [{"kind": "lunar"}]}, UnknownKind),
        ({"kind": "bounded", "timing": {"kind": "at", "instant": 0}, "start": "x", "end": None}, ScheduleError),
        ({"kind": "bounded", "timing": {"kind": "lunar"}, "start": None, "end": None}, UnknownKind),
        (
            {
                "kind": "any_of",
                "parts": [{"kind": "cron", "expression": "* * * * *", "seconds": None, "timezone": "X/Y"}],
            },
            UnknownZone,
        ),
    ],
    ids=str,
)
def test_a_stored_timing_that_cannot_be_used_is_refused(data: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        timing_from_json(data)


def test_what_is_stored_of_a_union_is_fired_by_who_reads_it(world: World) -> None:
    world.actor(any_of(cron("H 3 * * *"), every(3600, anchor=BEGIN), name="job"))
    assert world.beat
    spec = parse_spec(world.stored("job").spec)
    assert spec.timing == world.distcron.specs()["job"].timing


# -- every --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "length"),
    [(every(days=1), "24 hours"), (every(hours=24), "24 hours"), (every(weeks=1), "7 times 24 hours")],
)
def test_an_interval_of_days_says_that_it_is_hours_and_points_to_cron(schedule: Schedule, length: str) -> None:
    (warning,) = schedule.warnings()
    assert f"counts {length}," in warning
    assert "cron('0 3 * * *', tz=...)" in warning


@pytest.mark.parametrize("schedule", [every(hours=23), every(minutes=5), every(hours=36), at(NOON)])
def test_other_intervals_say_nothing(schedule: Schedule) -> None:
    assert schedule.warnings() == ()


def test_an_interval_does_not_drift_through_outages_and_restarts(world: World) -> None:
    world.actor(every(60, anchor=BEGIN + timedelta(seconds=7)))
    for second in (7, 8, 67, 200, 201):
        world.at(second)
        world.restart()
    world.at(247)
    assert world.fired() == [("job", second) for second in (7, 67, 187, 247)]
