"""Clocks that are wrong or step: of the hosts, which are never asked, and of Redis, which is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import DistCron
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.server import Server, find_server
from tests.debian.conftest import SetClock
from tests.integration.conftest import Running
from tests.integration.test_beat import assert_gapless, declare, per_tick
from tests.process.test_beats import APP, Beats
from tests.support import wait_until

Start = Callable[..., Running]


@pytest.fixture
def clock(make_clock: Callable[[str], SetClock]) -> SetClock:
    """Redis'."""
    return make_clock("redis")


@pytest.fixture
def distcron(clock: SetClock) -> Iterator[DistCron]:
    # The wheel's, with no other on PATH: libfaketime does not get on with the allocator of Debian's.
    with Server(clock.wrapped(find_server({"PATH": ""}))) as server:
        broker = RedisBroker(url=server.url)
        yield declare(broker, 3)
        broker.client.close()


def some_more(distcron: DistCron, count: int = 2) -> dict[tuple[str, int], int]:
    before = len(per_tick(distcron))
    wait_until(lambda: len(per_tick(distcron)) >= before + 3 * count, "ticks")
    return per_tick(distcron)


def test_a_clock_of_redis_that_steps_back_repeats_nothing_and_all_goes_on_when_it_is_where_it_was(
    distcron: DistCron, clock: SetClock, start_beat: Start, caplog: pytest.LogCaptureFixture
) -> None:
    # Longer than this machine may stand still for: the leader is to stay.
    beats = [start_beat(distcron, 3000) for _ in range(2)]
    some_more(distcron)
    clock.set(-90)
    wait_until(lambda: "stepped by -" in caplog.text, "the step to be seen")
    sent = per_tick(distcron)
    store: Any = distcron.open_backend().store
    leader = wait_until(store.leader, "a leader")
    then = store.now()
    wait_until(lambda: store.now() > then + 1500, "fire times that come a second time")
    assert per_tick(distcron) == sent
    assert wait_until(store.leader, "a leader")[0] == leader[0]
    clock.set(0)
    assert_gapless(distcron, some_more(distcron))
    assert [one.error for one in beats] == [None, None]


def test_a_clock_of_redis_that_steps_back_after_a_kill_leaves_nobody_off_duty(
    distcron: DistCron, clock: SetClock, start_beat: Start
) -> None:
    """The lease of the dead one would last for an hour."""
    killed = Beat(distcron, lease_ttl=600)
    killed.lease.acquire()
    clock.set(-3600)
    standby = start_beat(distcron, 600)
    wait_until(lambda: standby.beat.lease.trusted, "somebody on duty")


def test_a_clock_of_redis_that_leaps_days_ahead_and_comes_back_silences_nobody(
    distcron: DistCron, clock: SetClock, start_beat: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    start_beat(distcron, 600)
    some_more(distcron)
    clock.set(3 * 86_400)
    wait_until(lambda: "stepped by +" in caplog.text, "the leap to be seen")
    some_more(distcron)
    clock.set(0)
    wait_until(lambda: "its cursor was more than a day ahead" in caplog.text, "the cursors to be healed")
    some_more(distcron)
    assert set(per_tick(distcron).values()) == {1}


def test_hosts_whose_clocks_are_minutes_off_and_step_change_nothing(
    debian_server: Path, make_clock: Callable[[str], SetClock], namespace: str
) -> None:
    clocks = [make_clock("first"), make_clock("second")]
    with Server(debian_server) as server:
        beats = Beats(server, namespace)
        for clock, seconds in zip(clocks, (300, -300), strict=True):
            clock.set(seconds)
            beats._env |= clock.environ
            beats.start()
        wait_until(lambda: len(beats.ticks()) >= 6, f"ticks of {APP}")
        for clock in clocks:
            clock.set(0)
        beats.await_leader().kill()
        for clock in clocks:
            clock.set(-300)
        sent = len(beats.ticks())
        wait_until(lambda: len(beats.ticks()) >= sent + 6, "ticks of the other one")
        beats.assert_each_tick_once()
        now = beats.distcron.open_backend().store.now()
        assert all(tick.fire_time <= tick.decided_at <= now for tick in beats.distcron.schedules.history())
        for child in beats.children:
            child.end()
        beats.broker.client.close()
