"""What went wrong with other schedulers in the field, on a real server. Numbers: docs/explanation/field-reports.md."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import Middleware

from dramatiq_distcron import DistCron, cron, every, install
from dramatiq_distcron.backends import open_backend
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.config import Settings
from dramatiq_distcron.server import Server
from dramatiq_distcron.store.base import Guard
from tests.integration.conftest import Running
from tests.integration.test_beat import assert_gapless, declare, per_tick
from tests.proxies import Proxy
from tests.support import Rig, queued, wait_until

Start = Callable[..., Running]
TTL = 600


@pytest.fixture
def own_broker(own: Server, namespace: str) -> Iterator[RedisBroker]:
    broker = RedisBroker(url=own.url, namespace=namespace)
    yield broker
    broker.client.close()


def terms(distcron: DistCron) -> set[int]:
    return {int(tick.term) for tick in distcron.schedules.history(limit=100_000)}


# -- several beats --------------------------------------------------------------------------------------------


def test_whoever_commits_a_tick_at_the_same_moment_one_does_it(redis_broker: RedisBroker, server: Server) -> None:
    """11: two clusters read the same due row within milliseconds."""
    redis_broker.declare_queue("default")
    rigs = [Rig(RedisBroker(url=server.url, namespace=redis_broker.namespace), open_backend(redis_broker, Settings()))]
    rigs += [Rig(redis_broker, open_backend(redis_broker, Settings())) for _ in range(3)]
    rig = rigs[0]
    rig.broker.declare_queue("default")
    # Of the same holder, so that the lease keeps none of them back.
    guard = rig.lead()
    rig.put("job", 1000)
    barrier = threading.Barrier(len(rigs))

    def commit(one: Rig, fire: Any) -> list[str] | None:
        barrier.wait(30)
        answer: list[str] | None = one.store.fire(guard, [fire])
        return answer

    with ThreadPoolExecutor(len(rigs)) as pool:
        for score in range(1000, 1200):
            fire = rig.tick("job", score, score + 1)
            answers = [task.result() for task in [pool.submit(commit, one, fire) for one in rigs]]
            assert sorted(answers) == [["ok"], ["stale"], ["stale"], ["stale"]]
    assert [message.message_id for message in queued(rig.broker)] == [f"job@{score}" for score in range(1000, 1200)]
    rig.broker.client.close()


class Stalls(Middleware):
    """Calls ``stall`` when the given number of messages was made."""

    def __init__(self, at: int, stall: Callable[[], object]) -> None:
        self._left = at
        self._stall = stall

    def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
        self._left -= 1
        if self._left == 0:
            self._stall()


def burst(broker: RedisBroker) -> DistCron:
    """Two thousand schedules with one tick each, at once, and no other while the test lasts."""
    distcron = install(broker)
    schedules = [every(days=300, name=f"job-{n}", run_at_start=True, catch_up="all") for n in range(2000)]
    dramatiq.actor(lambda: None, actor_name="job", broker=broker, periodic=schedules)
    return distcron


def await_burst(distcron: DistCron) -> None:
    broker: Any = distcron.broker
    wait_until(lambda: broker.client.llen(f"{broker.namespace}:default") >= 2000, "the burst", seconds=60)


def assert_each_once(distcron: DistCron) -> None:
    ticks = per_tick(distcron)
    assert len(ticks) == 2000
    assert set(ticks.values()) == {1}


@pytest.mark.parametrize("how", ["told to", "stopped"])
def test_a_server_that_answers_nobody_for_longer_than_the_lease_in_the_middle_of_a_burst_doubles_nothing(
    own: Server, own_broker: RedisBroker, start_beat: Start, how: str
) -> None:
    """2, 3: the lock ended while thousands of jobs were enqueued, and others enqueued them again."""

    def stop() -> None:
        # What was sent to it meanwhile is carried out when it goes on, long after its sender gave up.
        own.pause()
        threading.Timer(3 * TTL / 1000, own.resume).start()

    def tell() -> None:
        own_broker.client.client_pause(3 * TTL)

    own_broker.add_middleware(Stalls(550, stop if how == "stopped" else tell))
    distcron = burst(own_broker)
    for _ in range(3):
        start_beat(distcron, TTL)
    await_burst(distcron)
    assert_each_once(distcron)


def test_a_leader_that_is_frozen_in_the_middle_of_a_burst_and_wakes_after_its_successors_doubles_nothing(
    redis_broker: RedisBroker, start_beat: Start
) -> None:
    """2, 3: what it had read, it enqueued, though somebody else had done so meanwhile."""
    beats: list[Running] = []
    frozen: list[Running] = []

    def freeze() -> None:
        # All of it stands still, as after a SIGSTOP: also the thread that keeps the lease.
        frozen.extend(one for one in beats if one.thread is threading.current_thread())
        frozen[0].beat._keeper.stop()
        await_burst(distcron)

    redis_broker.add_middleware(Stalls(550, freeze))
    distcron = burst(redis_broker)
    beats.append(start_beat(distcron, TTL))
    beats.append(start_beat(distcron, TTL))
    await_burst(distcron)
    beat = frozen[0].beat
    wait_until(lambda: beat._standing_by_for or beat.lease.term > min(terms(distcron)), "the frozen one to go on")
    assert len(terms(distcron)) >= 2
    assert_each_once(distcron)


@pytest.fixture
def load() -> Iterator[None]:
    """Threads that leave the others little of this process."""
    ended = threading.Event()

    def burn() -> None:
        while not ended.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=burn) for _ in range(2)]
    for thread in threads:
        thread.start()
    yield
    ended.set()
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("load")
def test_a_beat_that_gets_little_of_the_processor_keeps_its_lease(redis_broker: RedisBroker, start_beat: Start) -> None:
    """17: extending the lock failed every few minutes."""
    distcron = declare(redis_broker, 20)
    for _ in range(2):
        start_beat(distcron, 4000)
    wait_until(lambda: len(per_tick(distcron)) >= 160, "ticks of two lives of the lease", seconds=60)
    assert_gapless(distcron, per_tick(distcron))
    assert len(terms(distcron)) == 1


def test_a_standby_whose_connections_are_cut_again_and_again_goes_on_waiting_and_sends_nothing(
    redis_broker: RedisBroker, server: Server, start_beat: Start
) -> None:
    """6: an error while it waited for the lock was taken for having it."""
    distcron = declare(redis_broker, 3)
    leader = start_beat(distcron)
    wait_until(lambda: leader.beat.lease.trusted, "a leader")
    assert server.port is not None
    with Proxy(server.port) as proxy:
        behind = declare(RedisBroker(url=proxy.url, namespace=redis_broker.namespace), 3)
        standby = start_beat(behind)
        for _ in range(20):
            wait_until(lambda: proxy._pairs, "the standby to be connected")
            proxy.cut()
        wait_until(lambda: len(per_tick(distcron)) >= 6, "ticks")
        assert (standby.error, standby.beat.lease.trusted) == (None, False)
        assert {tick.holder for tick in distcron.schedules.history()} == {leader.beat.holder}
        leader.stop()
        wait_until(lambda: standby.beat.lease.trusted, "the standby to take over")
        standby.stop()
    assert_gapless(distcron, per_tick(distcron))


def test_a_lease_has_an_end_at_every_moment(redis_broker: RedisBroker, start_beat: Start) -> None:
    """21, 22: a lock without an end blocked everybody for ever after a crash."""
    distcron = declare(redis_broker, 1)
    key = distcron.open_backend().store.keys.lease  # type: ignore[attr-defined]
    running = start_beat(distcron, TTL)
    wait_until(lambda: running.beat.lease.trusted, "a leader")
    left = []
    while len(per_tick(distcron)) < 2:
        left.append(redis_broker.client.pttl(key))
    # -1 is a key without an end. One that is over is none, on a machine that stood still for as long.
    assert -1 not in left
    assert 0 < max(left) <= TTL


def test_a_beat_that_waits_says_for_whom_and_for_how_long(
    redis_broker: RedisBroker, start_beat: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """19: it hung at "acquiring lock" for 25 minutes, and said no more."""
    caplog.set_level(logging.INFO)
    distcron = declare(redis_broker, 1)
    # The standby cuts it to its own, whenever it comes.
    distcron.open_backend().store.acquire("killed", 60_000)
    running = start_beat(distcron, 2000)
    wait_until(lambda: running.beat.lease.trusted, "the end of the lease of one that was killed")
    (line,) = (record.getMessage() for record in caplog.records if "Standing by" in record.getMessage())
    assert "killed leads" in line
    assert "for 2.0 s" in line


def test_two_apps_on_one_server_have_a_leader_each(
    redis_broker: RedisBroker, server: Server, start_beat: Start
) -> None:
    """73: they blocked each other's lock."""
    distcrons = []
    for app in ("shop", "blog"):
        broker = RedisBroker(url=server.url, namespace=redis_broker.namespace)
        distcrons.append(install(broker, app=app))
        dramatiq.actor(lambda: None, actor_name=app, queue_name=app, broker=broker, periodic=every(1))
    beats = [start_beat(distcron) for distcron in distcrons]
    for distcron, app in zip(distcrons, ("shop", "blog"), strict=True):
        wait_until(lambda d=distcron, a=app: len(queued(d.broker, a)) >= 2, f"ticks of the {app}")
        assert [one.name for one in distcron.schedules.list()] == [app]
    assert all(one.beat.lease.trusted for one in beats)


# -- the store in trouble -------------------------------------------------------------------------------------


def test_a_server_that_closes_idle_connections_costs_no_tick_and_is_no_trouble(
    own_broker: RedisBroker, start_beat: Start, caplog: pytest.LogCaptureFixture
) -> None:
    own_broker.client.config_set("timeout", 1)
    distcron = install(own_broker)
    dramatiq.actor(lambda: None, actor_name="job", broker=own_broker, periodic=every(4))
    running = start_beat(distcron, 9000)
    wait_until(lambda: len(per_tick(distcron)) >= 3, "three ticks")
    assert running.error is None
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.WARNING] == []
    times = sorted(time for _, time in per_tick(distcron))
    assert [time - times[0] for time in times] == [4000 * n for n in range(len(times))]


def test_after_a_flush_under_a_running_beat_the_codes_schedules_go_on_and_the_loss_is_told(
    own_broker: RedisBroker, start_beat: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """69: dynamic schedules were gone, and nobody noticed."""
    distcron = declare(own_broker, 2)
    distcron.schedules.put(every(3600, name="tenant"), "job")
    running = start_beat(distcron, TTL)
    wait_until(lambda: running.beat.office.seen == 3, "the beat to know of all three")
    own_broker.client.flushall()
    wait_until(lambda: len(per_tick(distcron)) >= 4, "ticks after the flush")
    assert_gapless(distcron, per_tick(distcron))
    assert "1 schedules that came by the API are lost" in caplog.text
    assert any("lost" in notice for notice in distcron.status().redis["notices"])


def test_a_schedule_that_comes_while_the_beat_sleeps_is_fired_in_time(
    redis_broker: RedisBroker, start_beat: Start
) -> None:
    """33: it slept for five minutes though a task was due in thirteen seconds."""
    distcron = install(redis_broker)
    dramatiq.actor(lambda: None, actor_name="job", broker=redis_broker, periodic=cron("0 0 1 1 *", name="yearly"))
    running = start_beat(distcron, 60_000)
    wait_until(lambda: running.beat.lease.trusted, "a leader")
    for number in range(3):
        distcron.schedules.put(every(days=300, name=f"now-{number}", run_at_start=True), "job")
        wait_until(lambda n=number: len(queued(redis_broker)) > n, "its tick")
    late = [tick.lateness_ms or 0 for tick in distcron.schedules.history()]
    # Without a wake-up each would wait for 5 s, so half of that on average.
    assert sum(late) < 3 * 2500


# -- runs and their ends --------------------------------------------------------------------------------------


class Site:
    """An app on Redis, with workers."""

    def __init__(self, url: str, namespace: str) -> None:
        self.ran: list[str] = []
        # Dramatiq takes a worker for dead after half a second, and looks with each command.
        options = {"heartbeat_timeout": 500, "maintenance_chance": 1_000_000, "dead_message_ttl": 3_600_000}
        self.broker: Any = RedisBroker(url=url, namespace=namespace, **options)
        self.distcron = install(self.broker)
        self._workers: list[dramatiq.Worker] = []

    def actor(self, name: str, work: Callable[[], object] = lambda: None, **options: Any) -> None:
        def run() -> None:
            self.ran.append(name)
            work()

        schedule = every(days=300, name=name, run_at_start=True, **options)
        dramatiq.actor(run, actor_name=name, broker=self.broker, periodic=schedule, max_retries=0)

    def fire(self) -> None:
        assert Beat(self.distcron).run_once()

    def work(self) -> None:
        worker = dramatiq.Worker(self.broker, worker_timeout=50, worker_threads=2)
        self._workers.append(worker)
        worker.start()

    def states(self) -> dict[str, str]:
        ticks = self.distcron.schedules.history()
        return {tick.schedule: tick.run.state for tick in ticks if tick.run}

    def outstanding(self, name: str) -> str:
        return self.distcron.open_backend().store.outstanding(name)

    def await_ends(self, **states: str) -> None:
        wait_until(lambda: self.states() == states, f"the runs to be {states}")

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self.distcron.close()
        self.broker.client.close()


@pytest.fixture
def site(server: Server, namespace: str) -> Iterator[Site]:
    site = Site(server.url, namespace)
    yield site
    site.close()


def boom() -> None:
    raise RuntimeError("boom")


def test_however_a_run_ends_the_next_one_is_not_held_up(site: Site) -> None:
    """85: finished jobs kept the id that guarded against a second run."""
    site.actor("succeeds", overlap="skip")
    site.actor("fails", boom, overlap="skip")
    site.actor("expires", overlap="skip", expires=0.001)
    site.actor("ages", overlap="skip", options={"max_age": 1})
    site.actor("unknown", overlap="skip")
    site.fire()
    assert all(site.outstanding(name) for name in ("succeeds", "fails", "expires", "ages", "unknown"))
    del site.broker.actors["unknown"]
    last = max(tick.decided_at for tick in site.distcron.schedules.history())
    wait_until(lambda: site.distcron.open_backend().store.now() > last + 5, "the expiry to pass")
    site.work()
    site.await_ends(succeeds="succeeded", fails="dead", expires="dropped", ages="dead", unknown="dead")
    assert [site.outstanding(name) for name in site.states()] == [""] * 5
    assert sorted(site.ran) == ["fails", "succeeds"]


def test_the_run_of_a_worker_that_was_killed_is_done_again_and_then_frees_its_schedule(
    site: Site, server: Server
) -> None:
    """85: killed by SIGKILL, it held its schedule up for ever."""
    site.actor("job", overlap="skip")
    site.fire()
    # It takes the message up and does no more: no heartbeat, no end.
    killed = Site(server.url, site.broker.namespace)
    killed.actor("job", overlap="skip")
    message = next(killed.broker.consume("default"))
    assert message is not None
    killed.distcron.settle.before_process_message(killed.broker, message)
    assert site.states() == {"job": "running"}
    assert site.outstanding("job")
    site.work()
    site.await_ends(job="succeeded")
    assert site.ran == ["job"]
    assert site.outstanding("job") == ""
    killed.close()


def test_workers_without_our_middleware_hold_no_schedule_up_for_ever(
    site: Site, server: Server, start_beat: Start
) -> None:
    schedule = every(1, name="job", overlap="skip")
    dramatiq.actor(lambda: None, actor_name="job", broker=site.broker, periodic=schedule)
    plain: Any = RedisBroker(url=server.url, namespace=site.broker.namespace)
    ran: list[str] = []
    dramatiq.actor(lambda: ran.append("job"), actor_name="job", broker=plain)
    start_beat(site.distcron)
    worker = dramatiq.Worker(plain, worker_timeout=50, worker_threads=1)
    worker.start()
    wait_until(lambda: len(ran) >= 2, "the run after the one whose end nobody recorded")
    worker.stop()
    plain.client.close()


def test_when_the_workers_come_back_only_what_is_not_too_old_runs_and_the_others_are_counted_and_not_dead(
    site: Site,
) -> None:
    """90: a backlog of stale copies ran when the workers were back."""
    for number in range(10):
        site.actor(f"stale-{number}", expires=0.001)
        site.actor(f"fresh-{number}", expires=600)
    site.fire()
    last = max(tick.decided_at for tick in site.distcron.schedules.history())
    wait_until(lambda: site.distcron.open_backend().store.now() > last + 5, "the expiry to pass")
    site.work()
    wait_until(lambda: len(site.states()) == 20 and "queued" not in site.states().values(), "all to have ended")
    wait_until(lambda: "running" not in site.states().values(), "all to have ended")
    assert Counter(site.states().values()) == {"dropped": 10, "succeeded": 10}
    assert sorted(site.ran) == [f"fresh-{number}" for number in range(10)]
    assert site.broker.client.exists(f"{site.broker.namespace}:default.XQ") == 0


def test_workers_with_our_middleware_go_on_after_a_restart_of_the_server(
    server_binary: Path | None, tmp_path: Path, namespace: str, start_beat: Start
) -> None:
    """67: consumers did not resume after an error of the broker."""
    with Server(server_binary, directory=tmp_path / "data") as server:
        site = Site(server.url, namespace)
        schedule = every(1, name="job", overlap="skip")
        dramatiq.actor(lambda: site.ran.append("job"), actor_name="job", broker=site.broker, periodic=schedule)
        start_beat(site.distcron, TTL)
        site.work()
        for _ in range(2):
            before = len(site.ran)
            wait_until(lambda n=before: len(site.ran) >= n + 2, "runs", seconds=60)
            server.kill()
            server.restart()
        before = len(site.ran)
        wait_until(lambda: len(site.ran) >= before + 2, "runs after the restart", seconds=60)
        site.close()


def test_a_tick_whose_message_is_long_done_is_not_fired_again_by_a_late_commit(site: Site) -> None:
    """10: what ran so fast that it was over before another looked ran again."""
    site.actor("job", overlap="skip")
    Beat(site.distcron).run_once()
    backend = site.distcron.open_backend()
    rig = Rig(site.broker, backend)
    guard = rig.lead("late")
    rig.put("other", 1000)
    fire = rig.tick("other", 1000, 2000, message_id="once")
    assert rig.fire(fire) == ["ok"]
    assert rig.fire(fire) == ["stale"]
    for consumer in [site.broker.consume("default", prefetch=10)]:
        while (message := next(consumer)) is not None:
            consumer.ack(message)
    assert queued(site.broker) == []
    assert rig.store.fire(Guard("late", guard.term, guard.now), [fire]) == ["stale"]
    assert queued(site.broker) == []
