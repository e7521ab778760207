"""Clocks that are wrong: the host's is never asked, and the store's may step. With real clocks: tests/debian."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.redis import RedisBroker
from dramatiq.brokers.stub import StubBroker

from dramatiq_distcron import every, install
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.store.memory import MemoryStore
from tests.integration.conftest import Running
from tests.integration.test_beat import assert_gapless, declare, per_tick
from tests.support import FakeClock, queued, wait_until

Start = Callable[..., Running]
MINUTE, DAY = 60_000, 86_400_000


class HostClock:
    """The host's clock, some seconds off. The monotonic one is not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.off = 0
        right, right_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: right() + self.off)
        monkeypatch.setattr(time, "time_ns", lambda: right_ns() + self.off * 1_000_000_000)


@pytest.mark.parametrize("off", [300, -300])
def test_a_host_clock_that_is_minutes_off_or_steps_in_mid_run_changes_nothing(
    redis_broker: RedisBroker, start_beat: Start, monkeypatch: pytest.MonkeyPatch, off: int
) -> None:
    host = HostClock(monkeypatch)
    distcron = declare(redis_broker, 3)
    host.off = off
    start_beat(distcron, 600)
    for seconds in (0, -off):
        sent = len(per_tick(distcron))
        wait_until(lambda sent=sent: len(per_tick(distcron)) >= sent + 6, "ticks")
        host.off = seconds
    sent = len(per_tick(distcron))
    wait_until(lambda: len(per_tick(distcron)) >= sent + 6, "ticks")
    assert_gapless(distcron, per_tick(distcron))
    now = distcron.open_backend().store.now()
    for message in queued(redis_broker):
        # Stamped by the store's clock: not before its time, and not in the future.
        assert message.options["distcron"]["fire_time"] <= message.message_timestamp <= now


class OnMemory:
    """A beat whose store's clock is set by hand; its turns are made one by one."""

    def __init__(self) -> None:
        self.broker: Any = StubBroker()
        distcron = install(self.broker)
        dramatiq.actor(lambda: None, actor_name="job", broker=self.broker, periodic=every(60, catch_up="all"))
        self.store_ms = 1_000_000 * MINUTE
        self.clock = FakeClock()
        store: Any = distcron.open_backend().store
        assert isinstance(store, MemoryStore)
        store._now = lambda: self.store_ms
        self.beat = Beat(distcron, clock=self.clock)
        self.beat._turn()

    def passes(self, minutes: int) -> None:
        """Time passes for everybody, in steps in which the lease is renewed."""
        for _ in range(minutes * 60):
            self.clock.advance(1)
            self.store_ms += 1000
            self.turn()

    def turn(self) -> None:
        self.beat._renewed(self.beat.lease.renew(count=True))
        self.beat._turn()

    def fired(self) -> Counter[int]:
        """The minutes of the messages."""
        times = [message.options["distcron"]["fire_time"] for message in queued(self.broker)]
        return Counter(time // MINUTE - 1_000_000 for time in times)


def test_a_clock_of_the_store_that_steps_back_repeats_nothing_and_keeps_its_leader() -> None:
    on = OnMemory()
    on.passes(10)
    term = on.beat.lease.term
    on.store_ms -= 5 * MINUTE
    on.passes(8)
    assert on.fired() == Counter(range(1, 14))
    assert on.beat.lease.term == term


def test_a_clock_of_the_store_that_leaps_a_month_ahead_and_comes_back_silences_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    on = OnMemory()
    on.passes(2)
    on.store_ms += 30 * DAY
    on.turn()
    sent = on.fired()
    on.store_ms -= 30 * DAY
    on.turn()
    assert "its cursor was more than a day ahead" in caplog.text
    on.passes(3)
    assert on.fired() - sent == Counter(range(3, 6))


def test_a_cursor_that_is_absurdly_far_ahead_is_healed_when_a_beat_takes_office(
    redis_broker: RedisBroker, caplog: pytest.LogCaptureFixture
) -> None:
    distcron = declare(redis_broker, 2)
    Beat(distcron).run_once()
    store: Any = distcron.open_backend().store
    redis_broker.client.zadd(store.keys.due, {"job-0": store.now() + 40 * DAY})
    Beat(distcron).run_once()
    assert "'job-0': its cursor was more than a day ahead" in caplog.text
    assert "'job-1'" not in caplog.text
    healed = distcron.schedules.get("job-0").next_fire_time
    assert healed is not None
    assert healed < store.now() + DAY
