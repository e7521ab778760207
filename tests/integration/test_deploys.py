"""Rolling deploys: two versions of the code take turns at leading; nothing is lost, doubled or silently passed over."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import DistCron, every, install
from dramatiq_distcron.backends import broker_at
from dramatiq_distcron.server import Server
from tests.integration.conftest import Running
from tests.support import queued, wait_until

Start = Callable[[DistCron], Running]
Deploy = Callable[..., DistCron]


@pytest.fixture
def start_beat(start_beat: Callable[..., Running]) -> Start:
    """Its lease is not lost on a machine that stands still for a while: who leads is what the tests say."""
    return lambda distcron: start_beat(distcron, 60_000)


@pytest.fixture
def version(server: Server, namespace: str) -> Iterator[Deploy]:
    """Makes versions of the app: of one name and one state, each with its own schedules."""
    brokers: list[RedisBroker] = []

    def make(*names: str, **options: Any) -> DistCron:
        brokers.append(RedisBroker(url=server.url, namespace=namespace))
        distcron = install(brokers[-1])
        schedules = [every(1, name=name, catch_up="all", **options) for name in names]
        dramatiq.actor(lambda *args: None, broker=brokers[-1], actor_name="job", periodic=schedules)
        return distcron

    yield make
    for broker in brokers:
        broker.client.connection_pool.disconnect()


def sent(distcron: DistCron) -> Counter[tuple[str, int]]:
    ticks = [message.options["distcron"] for message in queued(distcron.broker)]
    return Counter((tick["schedule"], tick["fire_time"]) for tick in ticks)


def await_ticks(distcron: DistCron, *names: str) -> None:
    """Waits until each of them fires once more."""
    before = Counter(name for name, _ in sent(distcron))

    def fired() -> bool:
        now = Counter(name for name, _ in sent(distcron))
        return all(now[name] > before[name] for name in names)

    wait_until(fired, f"ticks of {names}")


def outcomes(distcron: DistCron, name: str) -> dict[int, str]:
    """The outcome of each fire time. Fails if one has two."""
    found: dict[int, str] = {}
    for tick in distcron.schedules.history(name, limit=1000):
        for time in range(tick.fire_time, tick.fire_time_to + 1, 1000):
            assert time not in found, f"{name} has two outcomes for {time}"
            found[time] = tick.outcome if tick.outcome == "enqueued" else f"{tick.outcome}: {tick.reason}"
    return found


def assert_nothing_is_lost(distcron: DistCron, name: str) -> set[str]:
    """Every fire time since the first has one outcome, and what was enqueued one message. Returns the outcomes."""
    found = outcomes(distcron, name)
    assert sorted(found) == list(range(min(found), max(found) + 1, 1000))
    messages = {time: count for (schedule, time), count in sent(distcron).items() if schedule == name}
    assert messages == {time: 1 for time, outcome in found.items() if outcome == "enqueued"}
    return set(found.values())


def states(distcron: DistCron) -> dict[str, str]:
    return {one.name: one.state for one in distcron.schedules.list()}


def hand_over(old: Running, new: Running) -> None:
    wait_until(lambda: new.beat._standing_by_for, "the new one stands by")
    old.stop()
    wait_until(lambda: new.beat._in_office, "the new one leads")


def test_versions_that_take_turns_at_leading_retire_and_bring_back_their_schedules_and_lose_nothing(
    version: Deploy, start_beat: Start
) -> None:
    old, new = version("both", "gone"), version("both", "added")
    running = start_beat(old)
    await_ticks(old, "both", "gone")
    hand_over(running, following := start_beat(new))
    assert states(new) == {"added": "active", "both": "active", "gone": "retired"}
    await_ticks(new, "both", "added")
    hand_over(following, running := start_beat(old))
    assert states(old) == {"added": "retired", "both": "active", "gone": "active"}
    await_ticks(old, "both", "gone")
    hand_over(running, following := start_beat(new))
    assert states(new) == {"added": "active", "both": "active", "gone": "retired"}
    await_ticks(new, "both", "added")
    following.stop()
    assert assert_nothing_is_lost(new, "both") == {"enqueued"}
    assert assert_nothing_is_lost(new, "added") == {"enqueued", "missed: retired"}
    assert "enqueued" in assert_nothing_is_lost(new, "gone") <= {"enqueued", "missed: retired"}


def test_a_retired_schedule_does_not_fire(version: Deploy, start_beat: Start) -> None:
    old, new = version("both", "gone"), version("both")
    running = start_beat(old)
    await_ticks(old, "both", "gone")
    hand_over(running, start_beat(new))
    fired = [one for one in sent(new) if one[0] == "gone"]
    await_ticks(new, "both")
    await_ticks(new, "both")
    assert [one for one in sent(new) if one[0] == "gone"] == fired


def test_arguments_that_a_version_changed_are_in_force_with_its_first_tick(version: Deploy, start_beat: Start) -> None:
    old, new = version("both", args=("old",)), version("both", args=("new",))
    running = start_beat(old)
    await_ticks(old, "both")
    hand_over(running, following := start_beat(new))
    await_ticks(new, "both")
    following.stop()
    terms: dict[int, set[str]] = {}
    for message in queued(new.broker):
        terms.setdefault(message.options["distcron"]["term"], set()).add(message.args[0])
    assert terms == {running.beat.lease.term: {"old"}, following.beat.lease.term: {"new"}}
    assert assert_nothing_is_lost(new, "both") == {"enqueued"}


def test_a_schedule_that_is_paused_stays_so_through_deploys(version: Deploy, start_beat: Start) -> None:
    old, new = version("both", "other"), version("other")
    running = start_beat(old)
    await_ticks(old, "both", "other")
    old.schedules.pause("both", reason="unpaid")
    fired = [one for one in sent(old) if one[0] == "both"]
    hand_over(running, following := start_beat(new))
    await_ticks(new, "other")
    hand_over(following, start_beat(version("both", "other")))
    await_ticks(new, "other")
    assert new.schedules.get("both").paused
    assert [one for one in sent(new) if one[0] == "both"] == fired
    new.schedules.resume("both")
    await_ticks(new, "both")
    outcomes(new, "both")


def test_schedules_of_the_api_belong_to_no_version(version: Deploy, start_beat: Start) -> None:
    old, new = version("both"), version("both", "added")
    old.schedules.put(every(1, name="tenant", catch_up="all"), "job")
    running = start_beat(old)
    await_ticks(old, "both", "tenant")
    hand_over(running, following := start_beat(new))
    await_ticks(new, "both", "tenant", "added")
    following.stop()
    assert assert_nothing_is_lost(new, "tenant") == {"enqueued"}


def test_a_leader_that_retires_more_than_half_of_the_schedules_says_so_loudly(
    version: Deploy, start_beat: Start, caplog: pytest.LogCaptureFixture
) -> None:
    old, wrong = version("a", "b", "c"), version("another")
    running = start_beat(old)
    await_ticks(old, "a", "b", "c")
    assert "are retired at once" not in caplog.text
    hand_over(running, start_beat(wrong))
    (told,) = [record for record in caplog.records if "are retired at once" in record.getMessage()]
    assert told.levelno == logging.ERROR
    assert told.getMessage().startswith("3 of the 3 schedules defined in code are retired at once, because this beat's")
    assert "a, b, c" in told.getMessage()


def test_a_leader_that_knows_no_schedule_at_all_retires_none(version: Deploy, start_beat: Start) -> None:
    """A module that was not imported."""
    old, empty = version("a", "b"), version()
    running = start_beat(old)
    await_ticks(old, "a", "b")
    hand_over(running, start_beat(empty))
    assert states(empty) == {"a": "active", "b": "active"}
    await_ticks(empty, "a", "b")


# -- beats before workers ---------------------------------------------------------------------------------------


def test_a_beat_that_is_newer_than_the_workers_warns_of_the_actors_they_do_not_know(
    version: Deploy, start_beat: Start, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = version(), version("old")
    dramatiq.actor(lambda: None, broker=new.broker, actor_name="fresh", periodic=every(1, name="new"))
    worker = dramatiq.Worker(old.broker, worker_threads=1, worker_timeout=100)
    worker.start()
    try:
        wait_until(lambda: old.status().instances, "a worker that told of itself")
        start_beat(new)
        wait_until(lambda: "no worker that tells of itself knows its actor 'fresh'" in caplog.text, "the warning")
    finally:
        worker.stop()
    warned = [record.message for record in caplog.records if "tells of itself" in record.message]
    assert [text.split()[1] for text in warned] == ["'new'"]


@pytest.fixture
def moved(server: Server, namespace: str) -> Iterator[DistCron]:
    """A version whose actor is on another queue than when the schedule was put, by the API."""
    before, after = (RedisBroker(url=server.url, namespace=namespace) for _ in range(2))
    old, new = install(before), install(after)
    for broker, queue in ((before, "old"), (after, "new")):
        dramatiq.actor(lambda *args: None, broker=broker, actor_name="job", queue_name=queue)
    old.schedules.put(every(1, name="tenant", overlap="skip", max_queue_length=5), "job")
    yield new
    for broker in (before, after):
        broker.client.connection_pool.disconnect()


def test_runs_of_an_actor_that_moved_to_another_queue_do_not_overlap(moved: DistCron, start_beat: Start) -> None:
    """Its messages go to the new queue: looked for on the old one they would seem to be gone, and all would run."""
    start_beat(moved)
    wait_until(lambda: "skipped_overlap" in outcomes_of(moved, "tenant"), "a tick that is skipped")
    assert outcomes_of(moved, "tenant") <= {"enqueued", "skipped_overlap"}
    assert (len(list(queued(moved.broker, "new"))), list(queued(moved.broker, "old"))) == (1, [])
    assert [tick.run.state for tick in moved.schedules.history("tenant") if tick.run] == ["queued"]


@pytest.mark.parametrize("by", ["the code", "what a beat tells"])
def test_a_trigger_goes_to_the_queue_its_actor_has_now(
    moved: DistCron, start_beat: Start, server: Server, namespace: str, by: str
) -> None:
    moved.schedules.pause("tenant")
    start_beat(moved)
    wait_until(lambda: moved.status().instances, "the beat tells of itself")
    trigger = moved if by == "the code" else install(broker_at(server.url, namespace))
    message = trigger.schedules.trigger("tenant")
    assert message.queue_name == "new"
    assert [one.message_id for one in queued(moved.broker, "new")] == [message.message_id]
    assert list(queued(moved.broker, "old")) == []
    # Where it is looked for, too: else the run would seem to be gone, and free the schedule.
    store: Any = moved.open_backend().store
    (run,) = store._client.hvals(store.keys.runs)
    assert json.loads(run)["place"] == f"{namespace}:new.msgs"
    trigger.close()


def outcomes_of(distcron: DistCron, name: str) -> set[str]:
    return {tick.outcome for tick in distcron.schedules.history(name)}
