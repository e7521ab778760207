"""Real beats, real kills."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import DistCron, install
from dramatiq_distcron.demo.processes import Child, beat_command
from dramatiq_distcron.server import Server
from tests.leftovers import processes_with
from tests.support import queued, wait_until

APP = "tests.process.three_schedules"


class Beats:
    """Several beats of one app, and the state they share."""

    def __init__(self, server: Server, namespace: str) -> None:
        self._env = {"TEST_REDIS_URL": server.url, "TEST_NAMESPACE": namespace}
        self.broker = RedisBroker(url=server.url, namespace=namespace, middleware=[])
        self.distcron: DistCron = install(self.broker)
        self.children: list[Child] = []

    def start(self) -> Child:
        self.children.append(Child(f"beat {len(self.children)}", beat_command(APP), self._env))
        return self.children[-1]

    def leader(self) -> Child | None:
        status = self.distcron.status()
        if status.leader is None:
            return None
        pids = {one["holder"]: one["pid"] for one in status.instances}
        pid = pids.get(status.leader.holder)
        return next((child for child in self.children if child.pid == pid and child.alive), None)

    def await_leader(self, other_than: Child | None = None) -> Child:
        def found() -> Child | None:
            leader = self.leader()
            return leader if leader is not other_than else None

        leader = wait_until(found, "a leader")
        assert isinstance(leader, Child)
        return leader

    def ticks(self) -> Counter[tuple[str, int]]:
        options = [message.options["distcron"] for message in queued(self.broker)]
        return Counter((tick["schedule"], tick["fire_time"]) for tick in options)

    def fired(self) -> Counter[int]:
        """How many ticks were fired in each term."""
        return Counter(int(tick.term) for tick in self.distcron.schedules.history(limit=10_000))

    def assert_each_tick_once(self) -> None:
        ticks = self.ticks()
        assert set(ticks.values()) == {1}
        for name in "abc":
            times = sorted(time for n, time in ticks if n == name)
            assert times == list(range(times[0], times[-1] + 1, 1000)), f"{name} lost a tick"


@pytest.fixture
def beats(server: Server, namespace: str) -> Iterator[Beats]:
    beats = Beats(server, namespace)
    yield beats
    for child in beats.children:
        if child.alive:
            child.end()
    beats.broker.client.connection_pool.disconnect()


def test_no_tick_is_lost_or_doubled_when_the_leader_is_killed_again_and_again(beats: Beats) -> None:
    for _ in range(3):
        beats.start()
    for number in range(5):
        leader = beats.await_leader()
        # On a machine under load there may be more of them than there are kills.
        wait_until(lambda n=number: len(beats.fired()) > n, "its ticks")
        if number < 4:
            time.sleep(4)
            leader.kill()
            beats.start()
    beats.assert_each_tick_once()


def test_a_leader_that_slept_through_its_lease_sends_nothing_when_it_wakes(beats: Beats) -> None:
    beats.start()
    beats.await_leader()
    beats.start()
    for _ in range(2):
        first = beats.await_leader()
        wait_until(beats.fired, "ticks")
        terms = set(beats.fired())
        first.send_signal(signal.SIGSTOP)
        beats.await_leader(other_than=first)
        before = beats.fired()
        time.sleep(1.2)
        first.send_signal(signal.SIGCONT)
        time.sleep(1.2)
        wait_until(lambda t=terms: beats.fired().keys() - t, "ticks of the other one")
        after = beats.fired()
        assert {term: after[term] for term in terms} == {term: before[term] for term in terms}
        beats.assert_each_tick_once()


def test_a_beat_that_is_told_to_stop_ends_with_zero_and_leaves_nothing_behind(beats: Beats) -> None:
    beats.start()
    wait_until(lambda: beats.ticks(), "ticks")
    for number in (signal.SIGTERM, signal.SIGINT):
        child = beats.start()
        beats.await_leader()
        beats.children[-2].send_signal(number)
        assert beats.children[-2].wait() == 0, beats.children[-2].output()
        assert "Traceback" not in beats.children[-2].output()
        beats.await_leader()
    child.send_signal(signal.SIGTERM)
    assert child.wait() == 0
    keys = {
        key.decode().partition(":distcron:default:")[2]
        for key in beats.broker.client.scan_iter(f"{beats.broker.namespace}:*")
    } - {""}
    assert keys == {
        "due", "last", "last.enqueued", "owner", "revision", "runs", "schedules", "schedules.revisions", "term",
        "term.since", "ticks", "wake",
    }  # fmt: skip
    beats.assert_each_tick_once()


def test_it_prints_the_schedules_and_logs_who_leads(beats: Beats) -> None:
    child = beats.start()
    wait_until(lambda: beats.ticks(), "ticks")
    output: Callable[[], str] = child.output
    wait_until(lambda: "Enqueued 'a' for" in output(), "a line of what fires")
    assert "SCHEDULE" in output()
    assert "dramatiq-distcron trigger 'a' --broker tests.process.three_schedules" in output()
    assert "Leading since" in output()
    other = beats.start()
    wait_until(lambda: "Standing by" in other.output(), "a standby")


def test_a_beat_is_one_process_so_that_nothing_of_it_outlives_a_kill(beats: Beats) -> None:
    """Field report 25: the wrapper was killed, and the beat it had started went on beside the next one."""
    beats.start()
    child = beats.await_leader()
    wait_until(lambda: beats.ticks(), "ticks")
    assert set(processes_with(f"TEST_NAMESPACE={beats.broker.namespace}")) == {child.pid}
