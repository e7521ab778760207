"""The loop on a real server: slow hooks, stuck hooks, hand-over, a store that is away."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import Middleware, MiddlewareError

from dramatiq_distcron import DistCron, every, install
from dramatiq_distcron import beat as beat_module
from dramatiq_distcron.errors import ConflictError
from dramatiq_distcron.server import Server
from dramatiq_distcron.store.base import Instance
from tests.integration.conftest import Running
from tests.support import queued, wait_until

Start = Callable[..., Running]


def declare(broker: RedisBroker, count: int, **options: Any) -> DistCron:
    distcron = install(broker, **options)
    schedules = [every(1, name=f"job-{n}", catch_up="all") for n in range(count)]
    dramatiq.actor(lambda: None, actor_name="job", broker=broker, periodic=schedules)
    return distcron


def per_tick(distcron: DistCron) -> dict[tuple[str, int], int]:
    """How many messages each tick has."""
    found: dict[tuple[str, int], int] = {}
    for message in queued(distcron.broker):
        tick = message.options["distcron"]
        key = tick["schedule"], tick["fire_time"]
        found[key] = found.get(key, 0) + 1
    return found


def assert_gapless(distcron: DistCron, ticks: dict[tuple[str, int], int]) -> None:
    """Every tick has one message, and between the first and the last of a schedule none is missing."""
    assert set(ticks.values()) == {1}
    for name in {name for name, _ in ticks}:
        times = sorted(time for n, time in ticks if n == name)
        assert times == list(range(times[0], times[-1] + 1, 1000))


class Slow(Middleware):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
        time.sleep(self.seconds)


def test_a_hook_that_makes_a_pass_longer_than_the_lease_does_not_stop_the_ticks(
    redis_broker: RedisBroker, start_beat: Start
) -> None:
    """Design review 2.1: 0 ticks in 25 s, 8 terms, before batches ended by time and renewal had its own thread."""
    redis_broker.add_middleware(Slow(0.04))
    distcron = declare(redis_broker, 100)
    # Longer than this machine may stand still for, so that only the pass could lose it.
    running = [start_beat(distcron, 3000) for _ in range(2)]
    wait_until(lambda: len(per_tick(distcron)) >= 150, "150 ticks")
    assert_gapless(distcron, per_tick(distcron))
    assert {one.beat.lease.term for one in running if one.beat.lease.term} == {
        int(tick.term) for tick in distcron.schedules.history(limit=10_000)
    }


def test_one_hook_that_is_longer_than_the_lease_does_not_stop_the_ticks(
    redis_broker: RedisBroker, start_beat: Start
) -> None:
    redis_broker.add_middleware(Slow(3.3))
    distcron = declare(redis_broker, 1)
    start_beat(distcron, 3000)
    start_beat(distcron, 3000)
    wait_until(lambda: len(per_tick(distcron)) >= 2, "2 ticks")
    assert_gapless(distcron, per_tick(distcron))
    assert len({tick.term for tick in distcron.schedules.history()}) == 1


def test_a_pass_that_is_stuck_loses_the_lease_and_a_standby_takes_over(
    redis_broker: RedisBroker, start_beat: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beat_module, "_PATIENCE", 0.5)
    monkeypatch.setattr(beat_module, "_PATIENCE_LEASES", 0)
    stuck, freed = threading.Event(), threading.Event()

    class Stuck(Middleware):
        def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            if not stuck.is_set():
                stuck.set()
                freed.wait(60)

    redis_broker.add_middleware(Stuck())
    distcron = declare(redis_broker, 1)
    start_beat(distcron, 600)
    start_beat(distcron, 600)
    wait_until(lambda: len(per_tick(distcron)) >= 3, "ticks of the other beat")
    assert stuck.is_set()
    assert len({tick.holder for tick in distcron.schedules.history()}) == 1
    seen = len(per_tick(distcron))
    freed.set()
    wait_until(lambda: len(per_tick(distcron)) >= seen + 2, "ticks after the stuck one woke")
    assert_gapless(distcron, per_tick(distcron))


def test_a_clean_stop_hands_over_at_once(redis_broker: RedisBroker, start_beat: Start) -> None:
    distcron = declare(redis_broker, 3)
    first = start_beat(distcron, 60_000)
    wait_until(lambda: first.beat.lease.trusted, "a leader")
    second = start_beat(distcron, 60_000)
    wait_until(lambda: len(distcron.status().instances) == 2, "a standby")
    first.stop()
    wait_until(lambda: second.beat.lease.trusted, "a hand-over long before the lease ends")
    wait_until(lambda: len(per_tick(distcron)) >= 9, "ticks")
    assert_gapless(distcron, per_tick(distcron))
    assert [one["role"] for one in distcron.status().instances] == ["leader"]


def test_a_killed_leader_is_not_listed_as_one(redis_broker: RedisBroker, start_beat: Start) -> None:
    distcron = declare(redis_broker, 1)
    store = distcron.open_backend().store
    store.heartbeat(Instance("dead", {"role": "leader", "host": "h", "pid": 1}), keep=60_000)
    running = start_beat(distcron)
    wait_until(lambda: len(distcron.status().instances) == 2, "the heartbeat of the living one")
    roles = {one["holder"]: one["role"] for one in distcron.status().instances}
    assert roles == {"dead": "standby", running.beat.holder: "leader"}


def test_a_lease_that_was_taken_away_stops_the_sending_at_once(redis_broker: RedisBroker, start_beat: Start) -> None:
    distcron = declare(redis_broker, 5)
    running = start_beat(distcron, 3000)
    wait_until(lambda: per_tick(distcron), "a tick")
    lease = distcron.open_backend().store.keys.lease  # type: ignore[attr-defined]
    redis_broker.client.set(lease, "somebody else", px=60_000)
    wait_until(lambda: not running.beat.lease.trusted, "the loss to be noticed")
    sent = len(per_tick(distcron))
    time.sleep(2.2)
    assert len(per_tick(distcron)) == sent


def test_a_lease_that_was_deleted_before_the_end_is_no_error(
    redis_broker: RedisBroker, start_beat: Start, caplog: pytest.LogCaptureFixture
) -> None:
    distcron = declare(redis_broker, 1)
    running = start_beat(distcron, 60_000)
    wait_until(lambda: running.beat.lease.trusted, "a leader")
    redis_broker.client.delete(distcron.open_backend().store.keys.lease)  # type: ignore[attr-defined]
    with caplog.at_level(logging.WARNING):
        running.stop()
    assert running.error is None
    assert caplog.records == []


def test_a_broken_queue_holds_up_its_own_schedule_until_it_is_mended(
    redis_broker: RedisBroker, start_beat: Start
) -> None:
    distcron = install(redis_broker)
    dramatiq.actor(lambda: None, actor_name="good", broker=redis_broker, periodic=every(1))
    dramatiq.actor(lambda: None, actor_name="bad", broker=redis_broker, queue_name="broken", periodic=every(1))
    key = f"{redis_broker.namespace}:broken"
    redis_broker.client.set(key, "not a list")
    start_beat(distcron)
    wait_until(lambda: len(queued(redis_broker)) >= 2, "ticks of the good one")
    # On a slow machine two of its ticks may be due by then, of which one counts.
    assert {tick.outcome for tick in distcron.schedules.history("bad")} <= {"missed"}
    redis_broker.client.delete(key)
    wait_until(lambda: queued(redis_broker, "broken"), "a tick of the mended one")


def test_a_hook_that_refuses_a_message_is_recorded_and_the_schedule_goes_on(
    redis_broker: RedisBroker, start_beat: Start
) -> None:
    class Refusing(Middleware):
        refusing = True

        def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            if self.refusing:
                raise MiddlewareError("the database is away")

    refusing = Refusing()
    redis_broker.add_middleware(refusing)
    distcron = declare(redis_broker, 1)
    start_beat(distcron)
    wait_until(
        lambda: distcron.schedules.list() and distcron.schedules.get("job-0").last_outcome == "error", "an error"
    )
    (record,) = distcron.schedules.history("job-0")
    assert "the database is away" in record.reason
    assert queued(redis_broker) == []
    refusing.refusing = False
    wait_until(lambda: queued(redis_broker), "a tick")


def test_after_enqueue_is_told_of_what_was_fired_and_of_nothing_else(redis_broker: RedisBroker) -> None:
    told: list[str] = []
    seen = contextvars.ContextVar("seen", default="none")

    class Telling(Middleware):
        def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            seen.set(message.options["distcron"]["schedule"])

        def after_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            assert seen.get() == message.options["distcron"]["schedule"]
            assert broker is redis_broker
            told.append(message.options["distcron"]["schedule"])

    redis_broker.add_middleware(Telling())
    distcron = install(redis_broker)
    dramatiq.actor(lambda: None, actor_name="good", broker=redis_broker, periodic=every(1))
    dramatiq.actor(lambda: None, actor_name="bad", broker=redis_broker, queue_name="broken", periodic=every(1))
    redis_broker.client.set(f"{redis_broker.namespace}:broken", "not a list")
    beat = beat_module.Beat(distcron)
    beat.lease.acquire()
    beat.office.take()
    report = beat.scheduler.pass_once(beat.lease.now() + 1000)
    assert (report.enqueued, report.failed) == (1, 1)
    assert told == ["good"]
    assert seen.get() == "none"
    beat.lease.release()


def test_a_broker_that_sends_in_a_way_of_its_own_is_refused_at_start(server: Server, namespace: str) -> None:
    sent: list[Any] = []

    class Own(RedisBroker):
        def enqueue(self, message: Any, *, delay: Any = None) -> Any:
            sent.append(message)
            return message

    distcron = declare(Own(url=server.url, namespace=namespace), 1)
    with pytest.raises(ConflictError, match="in a way of its own"):
        beat_module.Beat(distcron).run()
    assert all(message.actor_name == "distcron_trial" for message in sent)


def test_a_beat_that_is_refused_ends_without_a_word_about_the_connection_it_waited_on(
    redis_broker: RedisBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`beat other` beside the state of `beat app` said why it ended, and then printed a traceback of its watcher."""
    distcron = declare(redis_broker, 1)
    beat = beat_module.Beat(distcron, owner="other")
    waiting, closed = threading.Event(), threading.Event()

    def claim_owner(*_: Any, **__: Any) -> str:
        waiting.wait(30)
        return "app"

    def wait(seconds: float) -> bool:
        waiting.set()
        closed.wait(30)
        raise ValueError("I/O operation on closed file.")

    monkeypatch.setattr(beat.backend.store, "claim_owner", claim_owner)
    monkeypatch.setattr(beat.backend.store, "wait", wait)
    with pytest.raises(ConflictError, match="code base 'app'"):
        beat.run()
    closed.set()
    beat._watcher.join(30)
    assert not beat._watcher.is_alive()
    assert "failed unexpectedly" not in caplog.text


def test_a_restart_fires_what_was_missed_by_policy(redis_broker: RedisBroker) -> None:
    distcron = install(redis_broker)
    schedules = {
        "skipped": every(60, name="skipped", catch_up="skip"),
        "latest": every(60, name="latest"),
        "all": every(60, name="all", catch_up="all", max_catch_up=7),
        "fresh": every(60, name="fresh", catch_up="all", misfire_grace_time=150),
    }
    dramatiq.actor(lambda: None, actor_name="job", broker=redis_broker, periodic=list(schedules.values()))
    first = beat_module.Beat(distcron)
    first.lease.acquire()
    first.office.take()
    first.lease.release()
    second = beat_module.Beat(distcron)
    second.lease.acquire()
    # As if it took office an hour later, twenty seconds after a fire time.
    hour_later = (distcron.schedules.get("all").next_fire_time or 0) + 59 * 60_000 + 20_000
    second.lease.since = hour_later
    while second.scheduler.pass_once(hour_later).more:
        pass
    sent = [name for name, _ in per_tick(distcron)]
    assert {name: sent.count(name) for name in schedules} == {"skipped": 0, "latest": 1, "all": 7, "fresh": 3}
    for name in schedules:
        missed = sum(tick.count for tick in distcron.schedules.history(name) if tick.outcome == "missed")
        assert missed == 60 - sent.count(name)
    second.lease.release()


def test_once_fires_what_is_due_and_ends(redis_broker: RedisBroker) -> None:
    distcron = declare(redis_broker, 2)
    beat_module.Beat(distcron).run_once()
    due = distcron.schedules.get("job-0").next_fire_time or 0
    wait_until(lambda: distcron.open_backend().store.now() > due, "the next fire time")
    assert beat_module.Beat(distcron).run_once() is True
    assert per_tick(distcron)
    assert distcron.status().leader is None


def test_once_does_nothing_beside_a_leader(redis_broker: RedisBroker) -> None:
    distcron = declare(redis_broker, 2)
    leader = beat_module.Beat(distcron)
    leader.lease.acquire()
    assert beat_module.Beat(distcron).run_once() is False
    leader.lease.release()


@pytest.mark.parametrize("how", ["killed", "paused"])
def test_a_server_that_is_away_is_told_of_once_and_waited_for(
    server_binary: Any, start_beat: Start, caplog: pytest.LogCaptureFixture, how: str, tmp_path: Any, namespace: str
) -> None:
    caplog.set_level(logging.INFO)
    with Server(server_binary, directory=tmp_path / "data", config={"requirepass": "hidden"}) as server:
        broker = RedisBroker(host="127.0.0.1", port=server.port, password="hidden", namespace=namespace)
        distcron = declare(broker, 1)
        running = start_beat(distcron, 600)
        wait_until(lambda: per_tick(distcron), "a tick")
        if how == "killed":
            server.kill()
        else:
            server.pause()
        wait_until(lambda: "Nothing is enqueued meanwhile" in caplog.text, "the trouble to be told")
        time.sleep(2.5)
        assert caplog.text.count("Nothing is enqueued meanwhile") == 1
        assert "hidden" not in caplog.text
        assert f"redis://:***@127.0.0.1:{server.port}" in caplog.text
        if how == "killed":
            server.restart()
        else:
            server.resume()
        before = len(per_tick(distcron))
        wait_until(lambda: len(per_tick(distcron)) >= before + 2, "ticks after the trouble")
        assert_gapless(distcron, per_tick(distcron))
        assert running.error is None
        wait_until(lambda: "is back after" in caplog.text, "the end of the trouble to be told")
        running.stop()
        broker.client.close()


def test_a_server_that_is_not_there_at_start_is_waited_for(
    server_binary: Any, start_beat: Start, caplog: pytest.LogCaptureFixture, namespace: str
) -> None:
    with Server(server_binary) as server:
        port = server.port
    broker = RedisBroker(host="127.0.0.1", port=port, namespace=namespace)
    distcron = declare(broker, 1)
    running = start_beat(distcron, 600)
    wait_until(lambda: f"127.0.0.1:{port}" in caplog.text, "the trouble to be told")
    with Server(server_binary, port=port):
        wait_until(lambda: running.beat.lease.trusted, "a leader")
        wait_until(lambda: per_tick(distcron), "a tick")
        running.stop()
    broker.client.close()


def commands(client: Any) -> int:
    """How many were carried out so far, with those inside scripts, and without the question itself."""
    return sum(one["calls"] for name, one in client.info("commandstats").items() if name != "cmdstat_info")


def test_three_idle_beats_cost_a_server_few_commands(own: Server, start_beat: Start, namespace: str) -> None:
    """``benchmarks/idle.py`` measures it; with one look more a second it would be too many."""
    client = RedisBroker(url=own.url, namespace=namespace).client
    beats = []
    for _ in range(3):
        distcron = install(RedisBroker(url=own.url, namespace=namespace))
        schedules = [every(days=1, name=f"daily-{n}") for n in range(10)]
        dramatiq.actor(lambda: None, actor_name="job", broker=distcron.broker, periodic=schedules)
        beats.append(start_beat(distcron))
    wait_until(lambda: any(one.beat.lease.trusted for one in beats), "a leader")
    time.sleep(3)

    def rate() -> float:
        before, started = commands(client), time.monotonic()
        time.sleep(15)
        return (commands(client) - before) / (time.monotonic() - started)

    # A machine under load may change leaders, which costs some: one time that is quiet is enough.
    quiet = next((one for one in (rate() for _ in range(3)) if one < 11.5), None)
    assert quiet is not None
    # Their lease is prolonged each second, so that something was counted.
    assert quiet > 2
    for one in beats:
        one.stop()
    client.close()
