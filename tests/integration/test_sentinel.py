"""Beats on three real sentinels: the master dies or is told to stand back, and the commits go on at the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from dramatiq import Message
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import DistCron
from dramatiq_distcron.store.base import Acquired
from tests.integration.conftest import Running
from tests.integration.test_beat import assert_gapless, declare, per_tick
from tests.support import wait_until
from tests.topologies import Sentinels

Start = Callable[..., Running]


@pytest.fixture
def sentinels(server_binary: Path | None) -> Iterator[Sentinels]:
    with Sentinels(server_binary) as running:
        yield running


def at_the_master(distcron: DistCron) -> dict[tuple[str, int], int]:
    """How many messages each tick has, as of one instant: the next command may be answered by another master."""
    broker: Any = distcron.broker
    found: dict[tuple[str, int], int] = {}
    with suppress(redis.RedisError):
        for data in broker.client.hvals(f"{broker.namespace}:default.msgs"):
            tick = Message.decode(data).options["distcron"]
            key = tick["schedule"], tick["fire_time"]
            found[key] = found.get(key, 0) + 1
    return found


@pytest.mark.parametrize(
    ("how", "replicas"), [(Sentinels.kill_the_master, 0), (Sentinels.fail_over, 0), (Sentinels.fail_over, 1)]
)
def test_after_a_failover_the_commits_go_on_at_the_new_master_and_no_tick_is_lost_or_doubled(
    sentinels: Sentinels, start_beat: Start, how: Callable[[Sentinels], object], replicas: int
) -> None:
    """Nothing is taken from the queue: a message and its cursor may be lost, but only together."""
    distcron = declare(RedisBroker(client=sentinels.client()), 20, wait_replicas=replicas)
    beats = [start_beat(distcron, 600) for _ in range(2)]
    wait_until(lambda: len(at_the_master(distcron)) >= 20, "ticks")
    old = sentinels.master
    assert old is not None
    how(sentinels)
    sentinels.await_another(old)
    distcron.broker.client.connection_pool.disconnect()  # type: ignore[attr-defined]
    before = wait_until(lambda: len(at_the_master(distcron)), "the new master")
    wait_until(lambda: len(at_the_master(distcron)) >= before + 20, "ticks at the new master")
    assert_gapless(distcron, at_the_master(distcron))
    for one in beats:
        one.stop()
        assert one.error is None


def test_a_standby_asks_for_the_lease_at_the_new_master_while_the_old_one_still_takes_writes(
    sentinels: Sentinels,
) -> None:
    """Sentinel tells a master that was replaced by command only after ten seconds. A standby that was at it took the
    lease there when the leader had left, and fired what the leader fired at the new one.
    """
    store = declare(RedisBroker(client=sentinels.client()), 1).open_backend().store
    assert isinstance(store.acquire("standby", 1), Acquired)
    old = sentinels.fail_over()
    sentinels.await_another(old)
    assert isinstance(store.acquire("standby", 60_000), Acquired)
    assert sentinels.master not in (None, old)
    with redis.Redis.from_url(sentinels.master.url) as client:  # type: ignore[union-attr]
        assert client.get(store.keys.lease) == b"standby"  # type: ignore[attr-defined]


def test_a_sentinel_that_does_not_answer_does_not_hold_up_a_beat(sentinels: Sentinels, start_beat: Start) -> None:
    """The app's own client would wait for it without end."""
    master = sentinels.master
    assert master is not None
    patient = sentinels.client(sentinel_kwargs={"socket_timeout": None})
    distcron = declare(RedisBroker(client=patient), 1)
    sentinels.sentinels[0].pause()
    running = start_beat(distcron, 600)
    watched = declare(RedisBroker(url=master.url), 1)
    wait_until(lambda: per_tick(watched), "a tick")
    running.stop()
    sentinels.sentinels[0].resume()
    assert running.error is None
    watched.broker.client.close()  # type: ignore[attr-defined]
