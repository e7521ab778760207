"""Beat, server and worker threads together: what the policies of a schedule do to the runs of its actor."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import dramatiq
import pytest
from dramatiq import Worker
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AsyncIO

from dramatiq_distcron import DistCron, current_tick, every, install
from dramatiq_distcron import scheduler as scheduler_module
from dramatiq_distcron.durations import instant_ms
from dramatiq_distcron.tick import Tick
from tests.integration.conftest import Running
from tests.support import queued, wait_until


class Job:
    """An actor that notes its ticks, and holds on in each run until it is let go."""

    def __init__(self, distcron: DistCron, schedule: Any, *, held: bool = False, **options: Any) -> None:
        self.distcron = distcron
        self.ticks: list[Tick | None] = []
        self.at_once = 0
        self.most_at_once = 0
        self.going = threading.Event()
        if not held:
            self.going.set()
        options = {"actor_name": "job", "max_retries": 0, **options}
        self.actor = dramatiq.actor(self.run, broker=distcron.broker, periodic=schedule, **options)

    def run(self, *args: Any) -> None:
        self.ticks.append(current_tick())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.going.wait(60)
        self.at_once -= 1

    def history(self, outcome: str | None = None) -> list[Any]:
        """Oldest first."""
        ticks = sorted(self.distcron.schedules.history(limit=1000), key=lambda tick: tick.fire_time)
        return [tick for tick in ticks if outcome in (None, tick.outcome)]


@pytest.fixture
def distcron(redis_broker: RedisBroker) -> DistCron:
    return install(redis_broker)


@pytest.fixture
def work(redis_broker: RedisBroker) -> Iterator[Callable[[], Worker]]:
    """Starts workers that are stopped at the end of the test."""
    workers: list[Worker] = []

    def start() -> Worker:
        workers.append(Worker(redis_broker, worker_timeout=100, worker_threads=4))
        workers[-1].start()
        return workers[-1]

    yield start
    for worker in workers:
        worker.stop()


Start = Callable[[DistCron], Running]
Work = Callable[[], Worker]


def assert_each_has_one_outcome(job: Job, gap: int = 1000) -> None:
    """Every fire time from the first to the last that is recorded has one outcome."""
    found: Counter[int] = Counter()
    for tick in job.history():
        if tick.reason != "triggered":
            found.update(range(tick.fire_time, tick.fire_time_to + 1, gap))
    assert set(found.values()) == {1}
    assert sorted(found) == list(range(min(found), max(found) + 1, gap))


# -- overlap ------------------------------------------------------------------------------------------------


def released_after_two_skips(job: Job) -> int:
    """When a held run had been let go, in ms; the next one has run too."""
    wait_until(lambda: sum(tick.count for tick in job.history("skipped_overlap")) >= 2, "two skips")
    assert len(job.ticks) == 1
    job.going.set()
    released = job.distcron.open_backend().store.now()
    wait_until(lambda: len(job.ticks) >= 2, "the next run")
    assert job.most_at_once == 1
    return int(released)


def test_while_a_run_goes_on_skip_skips_and_afterwards_the_next_fire_time_runs(
    distcron: DistCron, start_beat: Start, work: Work
) -> None:
    job = Job(distcron, every(1, overlap="skip", catch_up="all"), held=True)
    start_beat(distcron)
    work()
    released_after_two_skips(job)
    first, second = job.history("enqueued")[:2]
    assert first.run.state == "succeeded"
    skipped = [tick for tick in job.history("skipped_overlap") if tick.fire_time < second.fire_time]
    assert first.fire_time + 1000 == skipped[0].fire_time
    assert second.fire_time == skipped[-1].fire_time_to + 1000
    assert {tick.reason for tick in job.history("skipped_overlap")} == {"overlap=skip"}
    assert_each_has_one_outcome(job)


def test_while_a_run_goes_on_buffer_one_keeps_the_newest_tick_and_runs_it_when_the_run_is_over(
    distcron: DistCron, start_beat: Start, work: Work
) -> None:
    job = Job(distcron, every(1, overlap="buffer_one", catch_up="all"), held=True)
    start_beat(distcron)
    work()
    released = released_after_two_skips(job)
    first, second = job.history("enqueued")[:2]
    assert first.fire_time < second.fire_time <= released
    assert_each_has_one_outcome(job)


@pytest.mark.parametrize("overlap", ["skip", "buffer_one"])
def test_a_queue_that_is_flushed_holds_its_schedule_up_no_longer(
    distcron: DistCron, redis_broker: RedisBroker, start_beat: Start, monkeypatch: pytest.MonkeyPatch, overlap: Any
) -> None:
    monkeypatch.setattr(scheduler_module, "_PROBE_EACH", 0)
    job = Job(distcron, every(1, overlap=overlap))
    start_beat(distcron)
    (first,) = wait_until(lambda: queued(redis_broker), "a tick")
    redis_broker.flush("default")
    (second,) = wait_until(lambda: queued(redis_broker), "the next tick")
    assert second.message_id != first.message_id
    run = job.history("enqueued")[0].run
    assert (run.state, run.error) == ("dropped", "its message is gone")


def test_a_run_that_is_never_heard_of_again_holds_its_schedule_up_as_long_as_it_was_told_to(
    distcron: DistCron, redis_broker: RedisBroker, start_beat: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "_PROBE_EACH", 0)
    job = Job(distcron, every(1, overlap="skip", overlap_timeout=1))
    start_beat(distcron)
    wait_until(lambda: len(queued(redis_broker)) == 2, "a second tick beside the first")
    run = job.history("enqueued")[0].run
    assert (run.state, run.error) == ("dropped", "overlap_timeout")


def test_retries_are_part_of_a_run(distcron: DistCron, start_beat: Start, work: Work) -> None:
    """Celery-like locks end with the attempt, and the next tick starts beside the retry."""
    attempts: list[Tick | None] = []

    def fail_twice() -> None:
        attempts.append(current_tick())
        if len(attempts) < 3:
            raise dramatiq.Retry("not yet", delay=700)

    options = {"actor_name": "job", "periodic": every(1, overlap="skip", catch_up="all"), "max_retries": 5}
    dramatiq.actor(fail_twice, broker=distcron.broker, **options)
    start_beat(distcron)
    work()
    wait_until(lambda: len(attempts) >= 4, "the run after the retries")
    seen = [(tick.fire_time, tick.attempt) for tick in attempts if tick]
    assert [attempt for _, attempt in seen[:4]] == [0, 1, 2, 0]
    assert len({fire_time for fire_time, _ in seen[:3]}) == 1
    assert seen[3][0] > seen[0][0]


# -- expires ------------------------------------------------------------------------------------------------


def test_a_tick_that_no_worker_took_up_in_time_is_dropped_unrun(
    distcron: DistCron, start_beat: Start, work: Work
) -> None:
    job = Job(distcron, every(days=300, expires=0.05, run_at_start=True))
    start_beat(distcron)
    (tick,) = wait_until(lambda: job.history("enqueued"), "the tick")
    wait_until(lambda: distcron.open_backend().store.now() > tick.decided_at + 1000, "it expires")
    work()
    run = wait_until(lambda: (run := job.history("enqueued")[0].run) and run.finished_at and run, "the end of the run")
    assert run.state == "dropped"
    assert run.error.startswith("expired ")
    assert job.ticks == []


def test_a_retry_does_not_expire(distcron: DistCron, redis_broker: RedisBroker, start_beat: Start, work: Work) -> None:
    """Periodiq drops these: the age of a message is measured at each of its deliveries."""
    attempts: list[int] = []
    runs = distcron.open_backend().store.keys.runs  # type: ignore[attr-defined]

    def fail_once() -> None:
        tick = current_tick()
        assert tick is not None
        attempts.append(tick.attempt)
        if tick.attempt == 0:
            ((message_id, run),) = redis_broker.client.hgetall(runs).items()
            # As if a day had gone by since it was enqueued.
            older = {**json.loads(run), "at": str(int(json.loads(run)["at"]) - 86_400_000)}
            redis_broker.client.hset(runs, message_id, json.dumps(older))
            raise dramatiq.Retry("not yet", delay=10)

    schedule = every(days=300, expires=60, run_at_start=True)
    dramatiq.actor(fail_once, broker=redis_broker, actor_name="job", periodic=schedule, max_retries=3)
    start_beat(distcron)
    work()
    wait_until(lambda: len(attempts) == 2, "the retry")
    wait_until(lambda: distcron.schedules.history("job")[0].run.state == "succeeded", "its end")  # type: ignore[union-attr]


# -- when and how many --------------------------------------------------------------------------------------


def test_a_schedule_that_runs_at_its_start_runs_once_and_not_again_after_a_restart(
    distcron: DistCron, start_beat: Start, work: Work
) -> None:
    job = Job(distcron, every(days=300, run_at_start=True))
    work()
    first = start_beat(distcron)
    wait_until(lambda: len(job.ticks) == 1, "its run")
    first.stop()
    second = start_beat(distcron)
    wait_until(lambda: second.beat.lease.trusted and second.beat._last_pass_at, "a pass after the restart")
    assert [tick.outcome for tick in job.history()] == ["enqueued"]
    assert len(job.ticks) == 1


def test_a_queue_that_is_full_gets_no_ticks_until_it_is_worked_off(
    distcron: DistCron, redis_broker: RedisBroker, start_beat: Start, work: Work
) -> None:
    job = Job(distcron, every(1, max_queue_length=3, catch_up="all"), held=True)
    for _ in range(3):
        job.actor.send()
    start_beat(distcron)
    wait_until(lambda: job.history("skipped_backpressure"), "a skip")
    assert len(queued(redis_broker)) == 3
    assert {tick.reason for tick in job.history()} == {"max_queue_length=3"}
    job.going.set()
    work()
    wait_until(lambda: [tick for tick in job.ticks if tick], "a tick that ran")
    assert_each_has_one_outcome(job)


# -- which tick it is ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_actor_knows_which_tick_it_runs_for_and_which_came_before(
    distcron: DistCron, redis_broker: RedisBroker, start_beat: Start, work: Work, kind: str
) -> None:
    redis_broker.add_middleware(AsyncIO())
    ticks: list[Tick | None] = []

    async def note_async() -> None:
        ticks.append(current_tick())

    def note() -> None:
        ticks.append(current_tick())

    options = {"actor_name": "job", "periodic": every(1, catch_up="all")}
    actor = dramatiq.actor(note_async if kind == "async" else note, broker=redis_broker, **options)
    running = start_beat(distcron)
    work()
    wait_until(lambda: len(ticks) >= 2, "two runs")
    running.stop()
    times = [tick.fire_time for tick in reversed(distcron.schedules.history("job"))]
    wait_until(lambda: len(ticks) == len(times), "all runs")
    seen = sorted((tick for tick in ticks if tick), key=lambda tick: tick.fire_time)
    assert [instant_ms(tick.fire_time, "") for tick in seen] == times
    assert [tick.previous for tick in seen] == [None, *(tick.fire_time for tick in seen[:-1])]
    assert {(tick.schedule, tick.attempt) for tick in seen} == {("job", 0)}
    # More than there are threads, so that one of a tick's is among them.
    for _ in range(8):
        actor.send()
    wait_until(lambda: len(ticks) == len(times) + 8, "runs that are none of a tick's")
    assert ticks[len(times) :] == [None] * 8
