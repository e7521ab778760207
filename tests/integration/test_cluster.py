"""Beats on a real cluster: served with a client of the cluster and a hash tag, refused with the reason without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dramatiq
import pytest
import redis
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import every, install
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.errors import ConflictError, WrongSlot
from dramatiq_distcron.store.redis.connection import Connection
from tests.integration.conftest import Running
from tests.integration.test_beat import assert_gapless, declare, per_tick
from tests.support import wait_until
from tests.topologies import Cluster

Start = Callable[..., Running]


@pytest.fixture(scope="module")
def cluster(server_binary: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(server_binary, tmp_path_factory.mktemp("cluster")) as running:
        yield running


def test_with_a_client_of_the_cluster_and_a_hash_tag_ticks_are_fired_run_and_shown(
    cluster: Cluster, start_beat: Start, namespace: str
) -> None:
    broker = RedisBroker(client=cluster.client(), namespace=f"{{{namespace}}}")
    distcron = install(broker)
    dramatiq.actor(lambda: None, actor_name="job", broker=broker, periodic=every(1, overlap="skip"))
    distcron.schedules.put(every(1, name="tenant"), "job")
    start_beat(distcron, 600)
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=1)
    worker.start()

    def succeeded(name: str) -> bool:
        ticks = [tick for tick in distcron.schedules.history() if tick.schedule == name]
        return any(tick.run and tick.run.state == "succeeded" for tick in ticks)

    wait_until(lambda: succeeded("job") and succeeded("tenant"), "runs that succeeded")
    worker.stop()
    status = distcron.status()
    assert {one["role"] for one in status.instances} >= {"leader"}
    assert status.redis["url"].startswith("cluster 127.0.0.1:")
    assert {one.name for one in distcron.schedules.list()} == {"job", "tenant"}


def test_other_apps_are_found_in_a_cluster_too(cluster: Cluster, namespace: str) -> None:
    broker = RedisBroker(client=cluster.client(), namespace=f"{{{namespace}}}")
    distcron = install(broker)
    broker.client.hset(f"{{{namespace}}}:distcron:other:schedules", "x", "{}")
    assert distcron.open_backend().store.other_apps() == ["other"]
    broker.client.close()


def test_connections_to_a_cluster_are_probed_too(cluster: Cluster) -> None:
    theirs = cluster.client()
    client = Connection.from_client(theirs).client(5)
    for node in client.get_nodes():
        assert client.get_redis_connection(node).connection_pool.connection_kwargs["socket_keepalive"] is True
    for one in (client, theirs):
        one.close()


def test_a_node_that_dies_and_comes_back_costs_no_tick(cluster: Cluster, start_beat: Start, namespace: str) -> None:
    broker = RedisBroker(client=cluster.client(), namespace=f"{{{namespace}}}")
    distcron = declare(broker, 5)
    beats = [start_beat(distcron, 600) for _ in range(2)]
    wait_until(lambda: per_tick(distcron), "ticks")
    node = cluster.node_of(f"{{{namespace}}}")
    node.kill()
    node.restart()
    # The beats wait for it by themselves; the client of this test would not.
    cluster.await_whole()
    before = len(per_tick(distcron))
    wait_until(lambda: len(per_tick(distcron)) >= before + 10, "ticks after it")
    assert_gapless(distcron, per_tick(distcron))
    assert [one.error for one in beats] == [None, None]


def test_a_namespace_without_a_hash_tag_is_refused_with_what_to_write(cluster: Cluster) -> None:
    broker = RedisBroker(client=cluster.client(), namespace="plain")
    with pytest.raises(ConflictError, match=r"namespace='{plain}'"):
        Beat(install(broker))


def test_waiting_for_replicas_is_refused_in_a_cluster(cluster: Cluster) -> None:
    broker = RedisBroker(client=cluster.client(), namespace="{plain}")
    with pytest.raises(ConflictError, match="wait_replicas"):
        Beat(install(broker, wait_replicas=1))


@pytest.mark.parametrize("tagged", [True, False])
def test_a_client_of_one_node_is_refused_with_what_to_write(cluster: Cluster, namespace: str, tagged: bool) -> None:
    namespace = f"{{{namespace}}}" if tagged else namespace
    home = cluster.node_of(namespace)
    for node in cluster.nodes:
        if tagged and node is home:
            # It has all our keys.
            continue
        broker = RedisBroker(url=node.url, namespace=namespace)
        distcron = declare(broker, 1)
        with pytest.raises(ConflictError, match=r"client=redis\.RedisCluster\(\.\.\.\), namespace='{dramatiq}'"):
            Beat(distcron).run_once()
        if tagged:
            with pytest.raises(WrongSlot, match="RedisCluster"):
                distcron.schedules.list()
        broker.client.close()


def test_a_cluster_of_one_node_serves_a_plain_client_with_a_hash_tag_and_no_other(
    server_binary: Path | None, tmp_path: Path
) -> None:
    with Cluster(server_binary, tmp_path, size=1) as cluster:
        (node,) = cluster.nodes
        clients: list[Any] = [redis.Redis.from_url(node.url) for _ in range(2)]
        assert Beat(declare(RedisBroker(client=clients[0], namespace="{tagged}"), 1)).run_once()
        with pytest.raises(ConflictError, match="hash tag"):
            Beat(declare(RedisBroker(client=clients[1], namespace="plain"), 1)).run_once()
        for client in clients:
            client.close()


def test_letters_are_kept_found_and_sent_back_in_a_cluster(cluster: Cluster, namespace: str) -> None:
    broker = RedisBroker(client=cluster.client(), namespace=f"{{{namespace}}}")
    letters = install(broker).dead_letters
    ran: list[int] = []
    broken = [True]

    @dramatiq.actor(broker=broker, max_retries=0)
    def job(number: int) -> None:
        if broken[0]:
            raise KeyError(number)
        ran.append(number)

    for number in range(150):
        job.send(number)
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=1)
    worker.start()
    try:
        wait_until(lambda: letters.count() == 150, "the letters")
        assert len(letters.list(actor="job", error="KeyError", limit=200)) == 150
        assert {one.value: one.count for one in letters.stats()}["KeyError"] == 150
        broken[0] = False
        assert letters.discard(letters.list(limit=1)[0].id) == 1
        assert letters.redrive(all=True).redriven == 149
        wait_until(lambda: len(ran) == 149, "the runs")
    finally:
        worker.stop()


def test_a_password_that_the_cluster_does_not_ask_for_keeps_nobody_out(cluster: Cluster) -> None:
    with redis.RedisCluster("127.0.0.1", cluster.nodes[0].port, password="secret", protocol=3) as workers:
        client = Connection.from_client(workers).client(5)
    assert client.ping()
    client.close()
