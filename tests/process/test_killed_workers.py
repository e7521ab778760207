"""Real workers, real kills: what overlap promises when the worker of a run is gone."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import DistCron, install
from dramatiq_distcron.demo.processes import Child, beat_command, worker_command
from dramatiq_distcron.server import Server
from tests.support import wait_until

APP = "tests.process.held_job"


class Note(NamedTuple):
    pid: int
    what: str
    fire_time: int


class Plant:
    """One beat and some workers of the app, and what its runs noted."""

    def __init__(self, server: Server, namespace: str, overlap: str) -> None:
        self._env = {"TEST_REDIS_URL": server.url, "TEST_NAMESPACE": namespace, "TEST_OVERLAP": overlap}
        self.broker = RedisBroker(url=server.url, namespace=namespace, middleware=[])
        self.distcron: DistCron = install(self.broker)
        self.children: list[Child] = []

    def beat(self) -> Child:
        return self._start("beat", beat_command(APP))

    def worker(self) -> Child:
        return self._start("worker", worker_command(APP, threads=2))

    def _start(self, name: str, command: list[str]) -> Child:
        self.children.append(Child(name, command, self._env))
        return self.children[-1]

    def hold(self) -> None:
        """Runs do not end from now on."""
        self.broker.client.set(f"{self.broker.namespace}-notes-held", "1")

    def let_go(self) -> None:
        self.broker.client.delete(f"{self.broker.namespace}-notes-held")

    def notes(self, what: str = "begins") -> list[Note]:
        notes = (line.decode().split() for line in self.broker.client.lrange(f"{self.broker.namespace}-notes", 0, -1))
        return [Note(int(pid), event, int(time)) for pid, event, time in notes if event == what]

    def ticks(self, outcome: str | None = None) -> list[Any]:
        """The history, oldest first."""
        ticks = sorted(self.distcron.schedules.history(limit=1000), key=lambda tick: tick.fire_time)
        return [tick for tick in ticks if outcome in (None, tick.outcome)]

    def skipped(self) -> int:
        return sum(tick.count for tick in self.ticks("skipped_overlap"))

    def close(self) -> None:
        self.let_go()
        for child in reversed(self.children):
            child.terminate()
        for child in self.children:
            child.end()
        self.broker.client.connection_pool.disconnect()


@pytest.fixture
def plant(request: pytest.FixtureRequest, server: Server, namespace: str) -> Iterator[Plant]:
    plant = Plant(server, namespace, request.param)
    yield plant
    plant.close()


def kill(pid: int) -> None:
    """The worker process that runs the actor, and not only the master it was forked by."""
    os.kill(pid, signal.SIGKILL)


def assert_each_fire_time_has_one_outcome(plant: Plant) -> None:
    found: Counter[int] = Counter()
    for tick in plant.ticks():
        found.update(range(tick.fire_time, tick.fire_time_to + 1, 1000))
    assert set(found.values()) == {1}
    assert sorted(found) == list(range(min(found), max(found) + 1, 1000))


@pytest.mark.parametrize("plant", ["skip", "buffer_one"], indirect=True)
def test_a_run_whose_worker_is_killed_is_run_again_and_the_schedule_waits_for_that(plant: Plant) -> None:
    plant.hold()
    plant.beat()
    first = plant.worker()
    began = wait_until(plant.notes, "a run")[0]
    first.kill()
    kill(began.pid)
    before = plant.skipped()
    plant.worker()
    again = wait_until(lambda: plant.notes()[1:], "the second try of the run")[0]
    assert again.fire_time == began.fire_time
    assert again.pid != began.pid
    wait_until(lambda: plant.skipped() > before, "ticks are held up meanwhile")
    (tick,) = plant.ticks("enqueued")
    assert tick.run.state == "running"
    plant.let_go()
    wait_until(lambda: len(plant.notes("ends")) >= 2, "the next run")
    assert plant.notes("ends")[0].fire_time == began.fire_time
    assert plant.ticks("enqueued")[0].run.state == "succeeded"
    assert_each_fire_time_has_one_outcome(plant)


@pytest.mark.parametrize("plant", ["skip"], indirect=True)
def test_a_worker_that_is_told_to_stop_ends_its_run_and_the_next_worker_goes_on(plant: Plant) -> None:
    plant.hold()
    plant.beat()
    first = plant.worker()
    began = wait_until(plant.notes, "a run")[0]
    first.terminate()
    plant.let_go()
    wait_until(lambda: plant.notes("ends"), "the end of its run")
    assert first.wait() == 0
    plant.worker()
    later = wait_until(lambda: [note for note in plant.notes() if note.pid != began.pid], "a run of the next worker")
    assert later[0].fire_time > began.fire_time
    times = [note.fire_time for note in plant.notes()]
    assert len(times) == len(set(times))
    assert_each_fire_time_has_one_outcome(plant)


@pytest.mark.parametrize("plant", ["skip"], indirect=True)
def test_a_worker_and_a_beat_that_are_killed_together_leave_a_schedule_that_goes_on(plant: Plant) -> None:
    plant.hold()
    beat, worker = plant.beat(), plant.worker()
    began = wait_until(plant.notes, "a run")[0]
    beat.kill()
    worker.kill()
    kill(began.pid)
    plant.let_go()
    plant.beat()
    plant.worker()
    wait_until(lambda: len({note.fire_time for note in plant.notes("ends")}) >= 3, "runs of the new ones")
    assert plant.notes("ends")[0].fire_time == began.fire_time
    assert_each_fire_time_has_one_outcome(plant)


@pytest.mark.parametrize("plant", ["allow"], indirect=True)
def test_where_runs_may_overlap_a_killed_worker_holds_nothing_up(plant: Plant) -> None:
    plant.hold()
    plant.beat()
    first = plant.worker()
    began = wait_until(plant.notes, "a run")[0]
    first.kill()
    kill(began.pid)
    plant.let_go()
    plant.worker()
    wait_until(lambda: began.fire_time in {note.fire_time for note in plant.notes("ends")}, "the run of the killed one")
    ended = Counter(note.fire_time for note in plant.notes("ends"))
    assert set(ended.values()) == {1}
    assert {tick.outcome for tick in plant.ticks()} == {"enqueued"}
    assert_each_fire_time_has_one_outcome(plant)
