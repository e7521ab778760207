"""Redis in trouble, with a beat at work: restarts, demotions, lost replies, long scripts, a full memory."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import DistCron, every
from dramatiq_distcron.server import Server
from tests.integration.conftest import Running
from tests.integration.test_beat import assert_gapless, declare, per_tick
from tests.proxies import Proxy, nothing_is_lost
from tests.support import wait_until

Start = Callable[..., Running]
#: Short, so that a beat notices soon.
TTL = 600


@pytest.fixture(autouse=True)
def _logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def ticks_after(distcron: DistCron, more: int = 2) -> None:
    """Waits until each schedule has fired ``more`` times from now on, and looks for gaps and doubles."""
    before = per_tick(distcron)
    names = list(distcron.specs())

    def fired(name: str) -> int:
        return sum(1 for tick in set(per_tick(distcron)) - set(before) if tick[0] == name)

    wait_until(lambda: all(fired(name) >= more for name in names), "ticks after the trouble")
    assert_gapless(distcron, per_tick(distcron))


def in_trouble(running: Running, caplog: pytest.LogCaptureFixture, word: str) -> None:
    """Waits until the beat has told of it, and no longer trusts its lease."""
    wait_until(lambda: word in caplog.text, f"{word} in the log")
    wait_until(lambda: not running.beat.lease.trusted, "no more trust")
    assert running.error is None


# -- restarts -------------------------------------------------------------------------------------------------


def test_restarts_on_an_append_only_file_lose_no_tick_and_repeat_none(
    server_binary: Path | None, start_beat: Start, namespace: str, tmp_path: Path
) -> None:
    with Server(server_binary, directory=tmp_path / "data") as server:
        broker = RedisBroker(url=server.url, namespace=namespace)
        distcron = declare(broker, 20)
        for _ in range(2):
            start_beat(distcron, TTL)
        for _ in range(3):
            ticks_after(distcron, 1)
            server.kill()
            server.restart()
        ticks_after(distcron)
        broker.client.close()


def test_on_a_server_that_restarts_empty_the_codes_schedules_are_back_and_the_loss_of_the_others_is_told(
    own: Server, start_beat: Start, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = RedisBroker(url=own.url, namespace=namespace)
    distcron = declare(broker, 3)
    distcron.schedules.put_many((every(3600, name=f"tenant-{n}"), "job") for n in range(2))
    running = start_beat(distcron, TTL)
    wait_until(lambda: running.beat.office.seen == 5, "the beat to know of all five")
    own.kill()
    own.restart()
    ticks_after(distcron)
    assert {one.name for one in distcron.schedules.list()} == {"job-0", "job-1", "job-2"}
    told = "The store was emptied: 2 schedules that came by the API are lost"
    assert told in caplog.text
    assert any(told in notice for notice in distcron.status().redis["notices"])
    broker.client.close()


# -- a demoted server -----------------------------------------------------------------------------------------


def test_a_beat_on_a_server_that_turns_read_only_waits_and_goes_on_when_it_is_writable(
    own: Server, start_beat: Start, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No socket is closed: the server just refuses (field case 66)."""
    broker = RedisBroker(url=own.url, namespace=namespace)
    distcron = declare(broker, 3)
    running = start_beat(distcron, TTL)
    ticks_after(distcron, 1)
    # Of a master that is not there, so that the data stay.
    broker.client.replicaof("127.0.0.1", "1")
    in_trouble(running, caplog, "is a replica now")
    broker.client.replicaof("NO", "ONE")
    ticks_after(distcron)
    broker.client.close()


class Manager:
    """What a pool of Sentinel asks for the master."""

    def __init__(self, master: Server) -> None:
        self.master = master
        self.sentinels: list[redis.Redis] = []

    def discover_master(self, service: str) -> tuple[str, int]:
        assert self.master.port is not None
        return "127.0.0.1", self.master.port


def synced(replica: redis.Redis) -> bool:
    return replica.info("replication")["master_link_status"] == "up"


def test_a_demoted_master_that_keeps_its_sockets_open_is_left_for_the_new_one(
    own: Server, server_binary: Path | None, start_beat: Start, namespace: str
) -> None:
    manager: Any = Manager(own)
    pool = redis.sentinel.SentinelConnectionPool("service", manager)
    broker = RedisBroker(client=redis.Redis(connection_pool=pool), namespace=namespace)
    distcron = declare(broker, 3)
    running = start_beat(distcron, TTL)
    ticks_after(distcron, 1)
    with Server(server_binary) as other, redis.Redis.from_url(other.url) as new, redis.Redis.from_url(own.url) as old:
        new.replicaof("127.0.0.1", str(own.port))
        wait_until(lambda: synced(new), "the replica to have all")
        new.replicaof("NO", "ONE")
        old.replicaof("127.0.0.1", str(other.port))
        manager.master = other
        broker.client.connection_pool.disconnect()
        ticks_after(distcron)
        assert running.error is None
        running.stop()
    broker.client.close()


# -- replies that do not come ---------------------------------------------------------------------------------


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    assert server.port is not None
    with Proxy(server.port) as running:
        yield running


def through(proxy: Proxy, server: Server, namespace: str, count: int) -> tuple[DistCron, DistCron]:
    """An app whose beats go by the proxy, and the same one as seen without it."""
    behind = declare(RedisBroker(url=proxy.url, namespace=namespace), count)
    direct = declare(RedisBroker(url=server.url, namespace=namespace), count)
    return behind, direct


@pytest.mark.parametrize("verb", ["lease_acquire", "lease_renew", "read_due", "edit", "fire"])
def test_when_the_reply_to_a_step_is_lost_the_state_is_read_again_and_nothing_is_doubled(
    proxy: Proxy, server: Server, start_beat: Start, namespace: str, verb: str
) -> None:
    behind, direct = through(proxy, server, namespace, 3)
    store: Any = behind.open_backend().store
    sha = getattr(store._scripts, verb).sha.encode()
    # There is one edit, and it is done with the first try.
    times = 1 if verb == "edit" else 2

    def loses(request: bytes) -> bool:
        return sha in request and proxy.lost < times

    proxy.loses = loses
    running = start_beat(behind, TTL)
    wait_until(lambda: proxy.lost == times, "the lost replies")
    ticks_after(direct)
    assert running.error is None


def test_beats_on_a_network_that_loses_and_cuts_at_random_lose_no_tick_and_double_none(
    proxy: Proxy, server: Server, start_beat: Start, namespace: str
) -> None:
    behind, direct = through(proxy, server, namespace, 20)
    chance = random.Random(66)
    proxy.loses = lambda request: chance.random() < 0.05
    beats = [start_beat(behind, TTL) for _ in range(2)]
    for _ in range(3):
        lost = proxy.lost
        wait_until(lambda lost=lost: proxy.lost >= lost + 2, "lost replies")
        proxy.cut()
    proxy.loses = nothing_is_lost
    ticks_after(direct)
    assert [one.error for one in beats] == [None, None]


# -- a server that is busy or full ----------------------------------------------------------------------------


def test_a_long_script_takes_the_beats_trust_and_not_its_life(
    server_binary: Path | None, start_beat: Start, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Server(server_binary, config={"lua-time-limit": 100}) as server:
        broker = RedisBroker(url=server.url, namespace=namespace)
        distcron = declare(broker, 3)
        running = start_beat(distcron, TTL)
        ticks_after(distcron, 1)
        endless = threading.Thread(target=_run_endless_script, args=(server.url,))
        endless.start()
        in_trouble(running, caplog, "BUSY")
        broker.client.script_kill()
        endless.join()
        ticks_after(distcron)
        broker.client.close()


def _run_endless_script(url: str) -> None:
    with redis.Redis.from_url(url, socket_timeout=60) as client, suppress(redis.ResponseError):
        client.eval("while true do end", 0)


def test_a_full_memory_makes_no_half_commits_and_the_ticks_are_made_up_for_when_there_is_room(
    own: Server, start_beat: Start, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = RedisBroker(url=own.url, namespace=namespace)
    distcron = declare(broker, 3)
    running = start_beat(distcron, TTL)
    ticks_after(distcron, 1)
    broker.client.config_set("maxmemory", 1)
    wait_until(lambda: "OOM" in caplog.text, "the trouble to be told")
    before = per_tick(distcron)
    cursors = due(distcron)
    wait_until(lambda: distcron.open_backend().store.now() > max(cursors.values()) + 1000, "fire times to pass")
    assert per_tick(distcron) == before
    assert due(distcron) == cursors
    broker.client.config_set("maxmemory", 0)
    ticks_after(distcron)
    assert running.error is None
    broker.client.close()


def due(distcron: DistCron) -> dict[bytes, float]:
    store: Any = distcron.open_backend().store
    broker: Any = distcron.broker
    return dict(broker.client.zrange(store.keys.due, 0, -1, withscores=True))
