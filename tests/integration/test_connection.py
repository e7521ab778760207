"""Our connections to Redis: made from the broker's settings, with manners of their own, on any redis-py."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.sentinel import Sentinel

from dramatiq_distcron.server import Server
from dramatiq_distcron.store.redis.connection import Connection
from tests.proxies import Proxy


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    assert server.port is not None
    with Proxy(server.port) as running:
        yield running


def test_a_command_whose_reply_is_lost_is_not_sent_again(proxy: Proxy) -> None:
    """redis-py would do so up to ten times in silence, and with pauses that outlive a lease."""
    proxy.loses = lambda request: b"PING" in request
    client = Connection.from_url(proxy.url).client(0.2)
    with pytest.raises(redis.RedisError):
        client.ping()
    assert proxy.lost == 1
    client.close()


def test_settings_of_the_broker_on_how_to_wait_and_what_to_return_are_not_taken_over(server: Server) -> None:
    theirs = redis.Redis.from_url(server.url, decode_responses=True, socket_timeout=600, health_check_interval=1)
    client = Connection.from_client(theirs).client(0.2)
    client.set("test-connection", "value", px=10_000)
    assert client.get("test-connection") == b"value"
    # It would send a PING of its own in between.
    assert "health_check_interval" not in client.connection_pool.connection_kwargs
    assert client.connection_pool.connection_kwargs["socket_timeout"] == 0.2
    for one in (client, theirs):
        one.close()


@pytest.fixture
def guarded(server_binary: Path | None) -> Iterator[Server]:
    with Server(server_binary, config={"user": "beat on >secret ~* +@all"}) as running:
        yield running


def test_user_password_and_database_are_taken_over_and_the_password_is_not_shown(guarded: Server) -> None:
    theirs = redis.Redis(port=guarded.port, db=3, username="beat", password="secret")
    connection = Connection.from_client(theirs)
    client = connection.client(5)
    client.set("here", "1")
    assert theirs.get("here") == b"1"
    assert client.acl_whoami() in ("beat", b"beat")
    assert connection.where == f"redis://beat:***@localhost:{guarded.port}/3"
    assert connection.user == "beat"
    for one in (client, theirs):
        one.close()


def test_a_password_alone_is_that_of_the_default_user_whether_he_has_one_or_not(server_binary: Path | None) -> None:
    """A server that asks for none lets its workers in, by Dramatiq's client: so it must us."""
    for config in ({}, {"requirepass": "secret"}):
        with Server(server_binary, config=config) as running:
            connection = Connection.from_url(f"redis://:secret@127.0.0.1:{running.port}/0")
            client = connection.client(5)
            assert client.ping()
            assert connection.where == f"redis://:***@127.0.0.1:{running.port}/0"
            client.close()


def test_a_unix_socket_is_taken_over(server_binary: Path | None, tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with Server(server_binary, unix_socket=path) as running:
        connection = Connection.from_url(running.url)
        client = connection.client(5)
        assert client.ping()
        assert connection.where == f"unix://{path}?db=0"
        client.close()


def options_of(connection: Connection) -> tuple[int, int]:
    """Whether the system probes an idle connection of ours, and after how many seconds."""
    made: Any = connection.client(5).connection_pool.make_connection()
    made.connect()
    try:
        kept = made._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        return kept, made._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
    finally:
        made.disconnect()


def test_an_idle_connection_is_probed_so_that_no_firewall_forgets_it_unseen(server: Server) -> None:
    assert server.port is not None
    for theirs in (redis.Redis.from_url(server.url), redis.Redis(port=server.port)):
        assert options_of(Connection.from_client(theirs)) == (1, 30)
    assert options_of(Connection.from_url(server.url)) == (1, 30)


def test_what_the_user_says_of_probes_holds(server: Server) -> None:
    off = Connection.from_url(f"{server.url}?socket_keepalive=no")
    assert options_of(off)[0] == 0
    own = redis.Redis(port=server.port, socket_keepalive=True, socket_keepalive_options={socket.TCP_KEEPIDLE: 77})
    assert options_of(Connection.from_client(own)) == (1, 77)


def test_a_sentinel_is_probed_and_so_is_its_master() -> None:
    pool = Connection.from_client(Sentinel([("127.0.0.1", 1)]).master_for("service")).client(3).connection_pool
    for one in (pool, *(sentinel.connection_pool for sentinel in pool.sentinel_manager.sentinels)):
        assert one.connection_kwargs["socket_keepalive"] is True


def test_of_three_sentinels_that_are_dead_each_costs_a_part_of_the_time_out() -> None:
    sentinel = Sentinel([("127.0.0.1", port) for port in (1, 2, 3)], socket_timeout=600)
    pool = Connection.from_client(sentinel.master_for("service")).client(3).connection_pool
    waits = [one.connection_pool.connection_kwargs["socket_timeout"] for one in pool.sentinel_manager.sentinels]
    assert sum(waits) < 3
    with pytest.raises(redis.ConnectionError):
        pool.get_master_address()
