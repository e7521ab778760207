"""What went wrong with other schedulers in the field, tried on the pass. Numbers: docs/explanation/field-reports.md."""

from __future__ import annotations

import gc
import logging
import os
import random
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import Middleware, MiddlewareError

from dramatiq_distcron import Schedule, cron, every, install
from dramatiq_distcron.backends import Backend
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.errors import StoreUnavailable
from dramatiq_distcron.publishing import StubPublisher
from dramatiq_distcron.scheduler import BATCH_TICKS
from tests.unit.world import BEGIN, World

MINUTE, HOUR = 60, 3600


@pytest.fixture
def world(stub_broker: StubBroker) -> World:
    return World(stub_broker)


def redeploy(world: World, *schedules: Schedule) -> None:
    """The beat is stopped, and one with other code takes over."""
    broker = StubBroker()
    distcron = install(broker)
    distcron._backend = Backend(world.store, StubPublisher(broker), "dramatiq")
    dramatiq.actor(lambda *args: None, actor_name="job", broker=broker, periodic=list(schedules))
    world.beat.lease.release()
    world._beat = Beat(distcron, clock=world.clock)
    world._beat.lease.acquire()
    world._beat.office.take()


def count_reads(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the schedules whose stored form is read from now on."""
    read: list[str] = []
    get = world.store.get

    def counted(names: Sequence[str]) -> Any:
        read.extend(names)
        return get(names)

    monkeypatch.setattr(world.store, "get", counted)
    monkeypatch.setattr(world.store, "scan", lambda: pytest.fail("all schedules were read"))
    return read


# -- locks ----------------------------------------------------------------------------------------------------


def test_two_beats_of_one_host_name_and_one_pid_are_two_holders(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """5: containers have equal pids and may have equal names; a lock that holds them is taken for one's own."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(socket, "gethostname", lambda: "beat")
    holders = set()
    for _ in range(2):
        random.seed(0)
        holders.add(Beat(world.distcron).holder)
    assert len(holders) == 2


def test_a_beat_lives_through_any_length_of_trouble_and_is_back_within_seconds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """63: a scheduler that gave up after a quarter of an hour without Redis."""
    world.actor(every(10, catch_up="all"))
    assert world.beat
    world.beat.lease.release()
    beat, began = Beat(world.distcron, clock=world.clock), world.clock.monotonic()

    def away(*_: Any) -> Any:
        raise StoreUnavailable("the store is away")

    with monkeypatch.context() as trouble:
        trouble.setattr(world.store, "acquire", away)
        while world.clock.monotonic() < began + 20 * MINUTE:
            wait = beat._guarded_turn()
            assert 0 < wait <= 5
            world.clock.advance(wait)
    beat._guarded_turn()
    assert len(world.fired()) == 100
    assert beat.lease.trusted


# -- missed ticks ---------------------------------------------------------------------------------------------


def test_a_restart_in_the_middle_of_an_interval_does_not_begin_it_anew(world: World) -> None:
    """27: stopped at 50 s and started at 55 s, the tick of 60 s came at 115 s."""
    world.actor(every(MINUTE))
    world.at(50)
    world.clock.set(BEGIN + timedelta(seconds=55))
    world.restart()
    for second in (59.9, 60, 119.9, 120):
        world.at(second)
    assert world.fired() == [("job", 60), ("job", 120)]


def test_minutes_begin_at_the_full_minute_whenever_the_beat_began(world: World) -> None:
    """57: a cron of each minute fired at the second the process had started at."""
    world.clock.set(BEGIN + timedelta(seconds=33))
    world.actor(cron("* * * * *", name="cron"), every(MINUTE, name="every"))
    for second in range(33, 200):
        world.at(second)
    assert world.fired() == [(name, minute * 60) for minute in (1, 2, 3) for name in ("cron", "every")]


def test_ticks_do_not_wait_for_workers(world: World) -> None:
    """29: the only worker was busy, and of ten ticks one was sent."""
    world.actor(every(MINUTE))
    for minute in range(11):
        world.at(minute * MINUTE)
    assert world.fired() == [("job", minute * MINUTE) for minute in range(1, 11)]


@pytest.mark.parametrize(("grace", "outcome"), [(HOUR, "enqueued"), (10 * MINUTE, "missed")])
def test_a_daily_tick_that_came_while_no_beat_was_there_is_made_up_for_within_its_grace_and_recorded_after_it(
    world: World, grace: int, outcome: str
) -> None:
    """26, 30: nothing was sent, and nothing was said."""
    world.actor(cron("0 4 * * *", misfire_grace_time=grace))
    world.at(3 * HOUR)
    world.clock.set(BEGIN + timedelta(hours=4.5))
    world.restart()
    world.at(4.5 * HOUR)
    assert world.outcomes("job") == [(outcome, 4 * HOUR, 4 * HOUR, 1)]
    (record,) = world.distcron.schedules.history("job")
    if outcome == "enqueued":
        assert record.lateness_ms == HOUR / 2 * 1000
        assert world.fired() == [("job", 4 * HOUR)]
    else:
        assert record.reason == f"misfire_grace_time={grace}"
        assert world.fired() == []


def test_edits_of_another_schedule_just_before_the_full_minute_cost_no_tick(world: World) -> None:
    """34: an edit at second 59 made the ticks of the coming minute vanish."""
    world.actor(every(MINUTE))
    for minute in range(50):
        world.at(minute * MINUTE + 59)
        world.distcron.schedules.put(every(HOUR, anchor=BEGIN, name="other", args=[minute]), "job")
        world.at(minute * MINUTE + 59.5)
        world.at(minute * MINUTE + 60)
    assert [time for name, time in world.fired() if name == "job"] == [minute * MINUTE for minute in range(1, 51)]


def test_a_machine_that_was_suspended_makes_up_for_it_by_policy_when_it_wakes(world: World) -> None:
    world.actor(
        every(MINUTE, name="skip", catch_up="skip"),
        every(MINUTE, name="latest"),
        every(MINUTE, name="all", catch_up="all"),
    )
    world.at(MINUTE)
    world.at(HOUR + 20)
    fired = Counter(name for name, time in world.fired() if time > MINUTE)
    assert fired == {"latest": 1, "all": 59}
    assert world.outcomes("skip")[-1] == ("missed", 2 * MINUTE, HOUR, 59)


@pytest.mark.parametrize("where", ["code", "api"])
def test_a_schedule_that_is_enabled_again_makes_up_for_nothing_though_no_beat_saw_it_disabled(
    world: World, where: str
) -> None:
    """django-celery-beat 383, 537: enabling a task ran it at once, because its time had come while it was disabled."""
    world.actor(every(24 * HOUR, name="other"))
    world.at(0)

    def say(enabled: bool) -> None:
        schedule = every(HOUR, name="job", enabled=enabled, catch_up="all")
        if where == "api":
            world.distcron.schedules.put(schedule, "job")
        else:
            redeploy(world, schedule)

    say(enabled=False)
    world.at(HOUR)
    world.clock.set(BEGIN + timedelta(seconds=5 * HOUR + 60))
    say(enabled=True)
    world.at(5 * HOUR + 61)
    world.at(6 * HOUR)
    assert world.fired() == [("job", 6 * HOUR)]
    assert world.outcomes("job") == [("disabled", HOUR, 5 * HOUR, 5), ("enqueued", 6 * HOUR, 6 * HOUR, 1)]


# -- what a pass costs ----------------------------------------------------------------------------------------


def test_what_is_read_in_a_pass_is_what_is_due_and_new_however_much_is_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """31, 59: loading all schedules took minutes, again after each edit."""
    world.actor(every(MINUTE), *(every(24 * HOUR, name=f"other-{n}") for n in range(2000)))
    assert world.beat
    read = count_reads(world, monkeypatch)
    for minute in range(1, 4):
        world.at(minute * MINUTE)
    assert read == ["job"]
    read.clear()
    world.distcron.schedules.put(every(MINUTE, name="new"), "job")
    world.distcron.schedules.pause("other-7")
    assert set(read) == {"new", "other-7"}
    read.clear()
    world.at(4 * MINUTE)
    assert read == ["new"]


def test_ticks_of_one_instant_are_committed_in_a_few_steps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """58: a thousand schedules of one instant took 12 to 18 s, one send after the other."""
    world.actor(*(every(MINUTE, name=f"job-{n}") for n in range(1000)))
    assert world.beat
    sizes: list[int] = []
    start_fire = world.store.start_fire

    def counted(guard: Any, fires: Sequence[Any]) -> Any:
        sizes.append(len(fires))
        return start_fire(guard, fires)

    monkeypatch.setattr(world.store, "start_fire", counted)
    assert world.at(MINUTE).enqueued == 1000
    assert sizes == [BATCH_TICKS] * (1000 // BATCH_TICKS)


class Refusing(Middleware):
    def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
        raise MiddlewareError("the broker is away")


@pytest.fixture
def quiet() -> Iterator[None]:
    """Log records are kept by pytest, and would count."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def objects_after(turns: Sequence[int], turn: Callable[[int], object]) -> int:
    for number in turns:
        turn(number)
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("where", ["hook", "queue"])
def test_ticks_that_fail_again_and_again_leave_nothing_in_memory(
    world: World, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """61: each failure left its traceback, with all it held."""

    def broken(call: Sequence[Any]) -> None:
        raise RuntimeError("WRONGTYPE")

    if where == "hook":
        world.broker.add_middleware(Refusing())
    else:
        monkeypatch.setattr(world.store, "_dispatch", broken)
    world.actor(*(every(MINUTE, name=f"job-{n}") for n in range(10)))
    before = objects_after(range(1, 50), lambda minute: world.at(minute * MINUTE))
    after = objects_after(range(50, 250), lambda minute: world.at(minute * MINUTE))
    assert world.fired() == []
    assert after - before < 200, "2,000 failures left something each"


# -- clocks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_clock_that_is_set_to_and_fro_by_half_a_second_costs_no_tick_and_doubles_none(
    world: World, seed: int
) -> None:
    """53, 54: set by ntpdate each hour; the tick that fell into the step was lost."""
    world.actor(cron("* * * * *", name="cron", catch_up="all"), every(MINUTE, name="every", catch_up="all"))
    chance = random.Random(seed)
    for minute in range(1, 11):
        offset = chance.choice([-0.5, 0.5])
        for second in (-0.6, -0.4, -0.1, 0, 0.1, 0.4, 0.6):
            world.at(minute * MINUTE + second + offset)
            world.at(minute * MINUTE + second - offset)
    world.at(11 * MINUTE - 1)
    wanted = [(name, minute * MINUTE) for minute in range(1, 11) for name in ("cron", "every")]
    assert sorted(world.fired()) == sorted(wanted)


def test_an_hourly_schedule_among_a_hundred_others_fires_once_an_hour_and_never_early(world: World) -> None:
    """55: the job of minute 1 also ran at minute 56."""
    others = (cron(f"{n % 60} * * * *", name=f"other-{n}") for n in range(100))
    world.actor(cron("1 * * * *", name="ours"), *others)
    sent = [world.at(minute * MINUTE + 0.02).enqueued for minute in range(24 * 60)]
    fired = world.fired()
    assert [time for _, time in fired] == [minute * MINUTE for minute, count in enumerate(sent) for _ in range(count)]
    assert [time for name, time in fired if name == "ours"] == [hour * HOUR + 60 for hour in range(24)]


# -- edits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["api", "code"])
@pytest.mark.parametrize(("old", "new", "fires"), [(0, 30, [30, 90, 150]), (30, 5, [65, 125]), (30, 20, [20, 80, 140])])
def test_after_a_change_of_its_times_a_schedule_fires_at_the_new_ones_and_never_at_the_old(
    world: World, by: str, old: int, new: int, fires: list[int]
) -> None:
    """74, 75, 77: the old time came once more, or none ever again, or a restart was needed."""
    before, after = cron(f"{old} * * * *", name="it"), cron(f"{new} * * * *", name="it")
    world.actor(*([before] if by == "code" else []))
    if by == "api":
        world.distcron.schedules.put(before, "job")
    world.at(10 * MINUTE)
    if by == "api":
        world.distcron.schedules.put(after, "job")
    else:
        redeploy(world, after)
    for minute in range(10, 155):
        world.at(minute * MINUTE)
    assert world.fired() == [("it", minute * MINUTE) for minute in fires]


def test_a_schedule_that_was_renamed_in_code_fires_under_its_new_name_alone(world: World) -> None:
    """79, 82: the old name stayed in Redis and fired beside the new one."""
    world.actor(every(MINUTE, name="old"))
    world.at(MINUTE)
    redeploy(world, every(MINUTE, name="new"))
    for minute in (2, 3):
        world.at(minute * MINUTE)
    assert world.fired() == [("old", 60), ("new", 120), ("new", 180)]
    assert {one.name: one.state for one in world.distcron.schedules.list()} == {"old": "retired", "new": "active"}
    world.at(25 * HOUR)
    redeploy(world, every(MINUTE, name="new"))
    assert [one.name for one in world.distcron.schedules.list()] == ["new"]


class OnFirst(Middleware):
    """Does something while the first message of a burst is made."""

    def __init__(self, do: Callable[[], None]) -> None:
        self._do: Callable[[], None] | None = do

    def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
        if (do := self._do) is not None:
            self._do = None
            do()


@pytest.mark.parametrize("how", ["pause", "remove"])
def test_of_a_burst_nothing_is_sent_that_was_paused_or_removed_before_its_commit(world: World, how: str) -> None:
    """81: cancelled jobs went on."""
    api = world.distcron.schedules
    names = [f"job-{n:03}" for n in range(250)]

    def stop() -> None:
        for name in names[1:]:
            getattr(api, how)(name)

    world.broker.add_middleware(OnFirst(stop))
    world.actor()
    api.put_many((every(MINUTE, name=name), "job") for name in names)
    for second in (60, 61, 62, 120):
        world.at(second)
    assert world.fired() == [("job-000", 60), ("job-000", 120)]
    if how == "pause":
        assert world.outcomes("job-007") == [("paused", 60, 120, 2)]


def test_all_schedules_that_came_by_the_api_can_be_listed_and_removed(world: World) -> None:
    """83: there was no way to list or clear all of them."""
    api = world.distcron.schedules
    world.actor(every(MINUTE, name="code"))
    assert world.beat
    api.put_many((every(MINUTE, name=f"tenant-{n}"), "job") for n in range(50))
    for one in api.list():
        if one.source == "api":
            api.remove(one.name)
    assert [one.name for one in api.list()] == ["code"]
    world.at(MINUTE)
    assert world.fired() == [("code", 60)]


# -- overlap --------------------------------------------------------------------------------------------------


def test_short_runs_of_a_short_interval_are_not_held_up(world: World) -> None:
    """86: a guard of a fixed minute stopped a schedule of five seconds."""
    world.actor(every(5, overlap="skip"))
    for second in range(60):
        world.at(second)
        if world.store.outstanding("job") and second % 5 == 1:
            world.end_run("job")
    world.at(60)
    assert len(world.fired()) == 12
    assert [outcome for outcome, *_ in world.outcomes("job")] == ["enqueued"] * 12


def test_a_long_run_is_followed_by_the_first_tick_after_it(world: World) -> None:
    world.actor(every(1, overlap="skip"))
    for second in range(1, 15):
        if second % 6 == 5:
            world.end_run("job")
        world.at(second)
    assert world.fired() == [("job", 1), ("job", 5), ("job", 11)]
    assert world.outcomes("job") == [
        ("enqueued", 1, 1, 1),
        ("skipped_overlap", 2, 4, 3),
        ("enqueued", 5, 5, 1),
        ("skipped_overlap", 6, 10, 5),
        ("enqueued", 11, 11, 1),
        ("skipped_overlap", 12, 14, 3),
    ]


@pytest.mark.parametrize("overlap", ["allow", "skip"])
def test_each_schedule_of_an_actor_has_its_own_overlap_and_catch_up(world: World, overlap: Any) -> None:
    """89: all jobs of the process caught up in the same way."""
    world.actor(every(MINUTE, name="one", overlap=overlap), every(MINUTE, name="two", overlap="allow", catch_up="all"))
    world.at(MINUTE)
    world.at(4 * MINUTE)
    fired = Counter(name for name, _ in world.fired())
    assert fired == {"one": 2 if overlap == "allow" else 1, "two": 4}


def test_how_long_a_message_is_good_for_is_in_the_message_also_when_its_schedule_was_stored(world: World) -> None:
    """91: the expiry set in code was dropped by the store."""
    world.actor(every(MINUTE, name="code", expires=30))
    assert world.beat
    world.distcron.schedules.put(every(MINUTE, name="api", expires=30, options={"max_age": 7000}), "job")
    world.restart()
    world.at(MINUTE)
    by_name = {message.options["distcron"]["schedule"]: message.options for message in world.messages()}
    assert by_name["code"]["expires"] == 30_000
    assert (by_name["api"]["expires"], by_name["api"]["max_age"]) == (30_000, 7000)
