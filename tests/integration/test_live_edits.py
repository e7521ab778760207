"""Schedules that are edited while a beat is at work: in force by its wake-up, without a restart and without a poll."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import Middleware

from dramatiq_distcron import DistCron, every, get_distcron, install
from dramatiq_distcron import beat as beat_module
from dramatiq_distcron.api.schedules import Schedules
from dramatiq_distcron.backends import broker_at
from dramatiq_distcron.durations import utc
from dramatiq_distcron.server import Server
from tests.integration.conftest import Running
from tests.support import queued, wait_until

Start = Callable[[DistCron], Running]


@pytest.fixture
def start_beat(start_beat: Callable[..., Running]) -> Start:
    """Its lease is not lost on a machine that stands still for a while: who leads is what the tests say."""
    return lambda distcron: start_beat(distcron, 60_000)


@pytest.fixture
def editor(server: Server, namespace: str) -> Iterator[DistCron]:
    """Another process, which knows no code and finds the state by its URL."""
    distcron = install(broker_at(server.url, namespace))
    yield distcron
    distcron.broker.client.connection_pool.disconnect()  # type: ignore[attr-defined]


@pytest.fixture
def newer(server: Server, namespace: str) -> Iterator[DistCron]:
    """Another process of the app, of a version that has one actor more."""
    broker = RedisBroker(url=server.url, namespace=namespace)
    distcron = install(broker)
    dramatiq.actor(lambda: None, broker=broker, actor_name="added")
    yield distcron
    broker.client.connection_pool.disconnect()


class Pausable(Middleware):
    """Holds a pass between its decision and its commit, once each time it is asked to."""

    def __init__(self) -> None:
        self.asked, self.holding, self.released = threading.Event(), threading.Event(), threading.Event()

    def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
        if self.asked.is_set():
            self.asked.clear()
            self.holding.set()
            self.released.wait(30)

    def hold_next(self) -> None:
        self.holding.clear()
        self.released.clear()
        self.asked.set()
        assert self.holding.wait(30)

    def release(self) -> None:
        self.released.set()


@pytest.fixture
def passes() -> Iterator[Pausable]:
    passes = Pausable()
    yield passes
    passes.release()


@pytest.fixture
def schedules(
    redis_broker: RedisBroker, editor: DistCron, passes: Pausable, start_beat: Start, monkeypatch: pytest.MonkeyPatch
) -> Schedules:
    """Those of a beat that sleeps for ten minutes if nobody wakes it; edited from elsewhere."""
    monkeypatch.setattr(beat_module, "_LONGEST_WAIT", 600)
    redis_broker.add_middleware(passes)
    distcron = install(redis_broker)
    dramatiq.actor(lambda *args: None, broker=redis_broker, actor_name="job", periodic=every(days=300, name="rare"))
    running = start_beat(distcron)
    wait_until(lambda: editor.schedules.list() and editor.status().instances, "a beat that sleeps")
    assert running.beat.lease.trusted
    return editor.schedules


def names(broker: Any) -> Counter[str]:
    return Counter(message.options["distcron"]["schedule"] for message in queued(broker))


def test_a_schedule_that_is_put_fires_at_its_first_fire_time(schedules: Schedules, redis_broker: RedisBroker) -> None:
    before = schedules._backend().store.now()
    schedules.put(every(1, name="tenant", args=(7,), catch_up="all"), "job")
    after = schedules._backend().store.now()
    first = wait_until(lambda: queued(redis_broker), "its first tick")[0]
    assert first.args == (7,)
    assert before < first.options["distcron"]["fire_time"] <= after + 1000


def test_a_paused_schedule_fires_no_more_until_it_is_resumed(schedules: Schedules, redis_broker: RedisBroker) -> None:
    schedules.put(every(1, name="tenant", catch_up="all"), "job")
    wait_until(lambda: names(redis_broker)["tenant"], "a tick")
    schedules.pause("tenant", reason="unpaid")
    fired = names(redis_broker)["tenant"]
    wait_until(lambda: sum(tick.count for tick in schedules.history("tenant") if tick.outcome == "paused") >= 2, "")
    assert names(redis_broker)["tenant"] == fired
    schedules.resume("tenant")
    wait_until(lambda: names(redis_broker)["tenant"] > fired, "a tick after the pause")
    assert_each_has_one_outcome(schedules)


def test_a_pause_with_an_end_ends_by_itself(schedules: Schedules, redis_broker: RedisBroker) -> None:
    schedules.put(every(1, name="tenant", catch_up="all"), "job")
    wait_until(lambda: names(redis_broker)["tenant"], "a tick")
    end = (schedules._backend().store.now() // 1000 + 3) * 1000
    schedules.pause("tenant", until=utc(end))
    fired = names(redis_broker)["tenant"]
    wait_until(lambda: names(redis_broker)["tenant"] > fired, "a tick after the pause")
    assert_each_has_one_outcome(schedules)
    paused = [tick for tick in schedules.history("tenant") if tick.outcome == "paused"]
    assert max(tick.fire_time_to for tick in paused) == end - 1000


def test_a_removed_schedule_fires_no_more(schedules: Schedules, redis_broker: RedisBroker) -> None:
    for name in ("going", "staying"):
        schedules.put(every(1, name=name), "job")
    wait_until(lambda: names(redis_broker)["going"], "a tick")
    schedules.remove("going")
    fired = names(redis_broker)
    wait_until(lambda: names(redis_broker)["staying"] >= fired["staying"] + 2, "ticks of the one that stays")
    assert names(redis_broker)["going"] == fired["going"]


def test_a_trigger_is_on_the_queue_when_it_returns_and_the_fire_times_stay(
    schedules: Schedules, redis_broker: RedisBroker
) -> None:
    before = schedules.get("rare").next_fire_time
    message = schedules.trigger("rare")
    assert [one.message_id for one in queued(redis_broker)] == [message.message_id]
    assert schedules.get("rare").next_fire_time == before


def test_after_an_edit_has_returned_nothing_of_before_is_fired(
    schedules: Schedules, redis_broker: RedisBroker, passes: Pausable
) -> None:
    """Others go on with what they have read, for as long as their sync interval. Here it is edited in mid-pass."""
    tenants = [f"tenant-{n}" for n in range(10)]
    put_all(schedules, tenants, edition=1)
    lengths = [0]
    for edition in range(2, 6):
        passes.hold_next()
        put_all(schedules, tenants, edition)
        lengths.append(len(queued(redis_broker)))
        passes.release()
        wait_until(lambda: len(queued(redis_broker)) > lengths[-1], "ticks after the edit")
    messages = queued(redis_broker)
    for put, length in enumerate(lengths, 1):
        assert all(message.args[0] >= put for message in messages[length:])
    ticks = Counter((m.options["distcron"]["schedule"], m.options["distcron"]["fire_time"]) for m in messages)
    assert set(ticks.values()) == {1}
    for name in tenants:
        times = sorted(time for tenant, time in ticks if tenant == name)
        assert times == list(range(times[0], times[-1] + 1, 1000))


def put_all(schedules: Schedules, tenants: list[str], edition: int) -> None:
    schedules.put_many([(every(1, name=name, args=(edition,), catch_up="all"), "job") for name in tenants])


def test_a_schedule_whose_times_are_changed_fires_by_the_new_ones_from_then_on(
    schedules: Schedules, redis_broker: RedisBroker
) -> None:
    schedules.put(every(1, name="tenant", catch_up="all"), "job")
    wait_until(lambda: names(redis_broker)["tenant"], "a tick")
    schedules.put(every(2, name="tenant", catch_up="all"), "job")
    edited = schedules._backend().store.now()
    fired = names(redis_broker)["tenant"]
    wait_until(lambda: names(redis_broker)["tenant"] >= fired + 2, "ticks by the new times")
    new = [message.options["distcron"]["fire_time"] for message in queued(redis_broker)][fired:]
    assert all(time % 2000 == 0 and time > edited - 1000 for time in new)
    assert {later - earlier for earlier, later in pairwise(new)} == {2000}


# -- an actor that the leader does not know -----------------------------------------------------------------


def test_a_schedule_of_an_actor_the_leader_does_not_know_is_disabled_with_the_reason_and_the_others_go_on(
    schedules: Schedules, redis_broker: RedisBroker, newer: DistCron
) -> None:
    """As in a rolling deploy: the newer version's process puts a schedule, and the older one leads."""
    newer.schedules.put(every(1, name="new", catch_up="all"), "added")
    schedules.put(every(1, name="old"), "job")
    wait_until(lambda: any(tick.schedule == "new" for tick in schedules.history()), "its outcome")
    tick = schedules.history("new")[0]
    assert (tick.outcome, tick.reason, tick.message_id) == ("disabled", "actor 'added' is not declared here", None)
    wait_until(lambda: names(redis_broker)["old"] >= 2, "ticks of the other")
    assert names(redis_broker)["new"] == 0


def assert_each_has_one_outcome(schedules: Schedules) -> None:
    found: Counter[int] = Counter()
    for tick in schedules.history("tenant", limit=1000):
        found.update(range(tick.fire_time, tick.fire_time_to + 1, 1000))
    assert set(found.values()) == {1}
    assert sorted(found) == list(range(min(found), max(found) + 1, 1000))


def test_many_who_edit_one_schedule_at_once_all_get_through(server: Server, namespace: str) -> None:
    """Each edit is made on what was read, so that most of them are made on what has changed already."""
    brokers = [RedisBroker(url=server.url, namespace=namespace) for _ in range(12)]

    def put(broker: RedisBroker) -> None:
        for number in range(10):
            get_distcron(broker).schedules.put(every(60 + number, name="one"), "job")

    for broker in brokers:
        install(broker)
        dramatiq.actor(lambda: None, broker=broker, actor_name="job")
    with ThreadPoolExecutor(len(brokers)) as pool:
        list(pool.map(put, brokers))
    for broker in brokers:
        get_distcron(broker).close()
        broker.client.connection_pool.disconnect()
