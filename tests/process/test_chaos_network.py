"""The bad network of the chaos runs is as bad as it says."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from dramatiq_distcron.server import Server
from tests.chaos.proxy import Network, Proxy
from tests.support import wait_until


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    assert server.port is not None
    with Network() as network:
        made = network.proxy(server.port)
        yield made
        made.cut()


@pytest.fixture
def direct(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        client.delete("x")
        yield client


@pytest.fixture
def client(proxy: Proxy) -> Iterator[redis.Redis]:
    """Past the proxy; it waits a moment, longer than a good reply takes on a machine under load, and asks once."""
    with redis.Redis.from_url(proxy.url, socket_timeout=2, retry=Retry(NoBackoff(), 0)) as client:
        client.delete("x")
        yield client


def test_a_good_network_passes_everything(client: redis.Redis) -> None:
    large = b"x" * 3_000_000
    client.set("x", large)
    assert client.get("x") == large


def test_a_swallowed_reply_is_lost_and_its_request_is_not(
    proxy: Proxy, client: redis.Redis, direct: redis.Redis
) -> None:
    proxy.swallow()
    with pytest.raises(redis.TimeoutError):
        client.incr("x")
    assert direct.get("x") == b"1"
    proxy.stop_swallowing()
    assert client.incr("x") == 2
    assert sum(proxy.swallowed.values()) == 1


def test_what_was_held_arrives_after_its_sender_gave_up(proxy: Proxy, client: redis.Redis, direct: redis.Redis) -> None:
    proxy.hold()
    with pytest.raises(redis.TimeoutError):
        client.incr("x")
    assert direct.get("x") is None
    proxy.let_go()
    wait_until(lambda: direct.get("x") == b"1", "the late request")


def test_half_a_request_does_nothing(proxy: Proxy, client: redis.Redis, direct: redis.Redis) -> None:
    proxy.tear()
    with pytest.raises(redis.ConnectionError):
        client.incr("x")
    assert direct.get("x") is None
    assert client.incr("x") == 1


def test_a_trap_springs_once_and_before_its_request_arrives(
    proxy: Proxy, client: redis.Redis, direct: redis.Redis
) -> None:
    found: list[bytes | None] = []
    proxy.set_trap(b"INCR", lambda link: found.append(direct.get("x")))
    assert client.get("x") is None
    assert client.incr("x") == 1
    assert client.incr("x") == 2
    assert found == [None]


def test_a_trap_that_swallows_loses_the_reply_of_its_own_connection_alone(
    proxy: Proxy, client: redis.Redis, direct: redis.Redis
) -> None:
    proxy.set_trap(b"INCR", lambda link: setattr(link, "lost_a_reply", True))
    with pytest.raises(redis.TimeoutError):
        client.incr("x")
    assert direct.get("x") == b"1"
    assert client.incr("x") == 2


def test_a_lifted_trap_does_not_spring(proxy: Proxy, client: redis.Redis) -> None:
    found: list[object] = []
    proxy.set_trap(b"INCR", found.append)
    proxy.lift_trap()
    client.incr("x")
    assert found == []


def test_a_cut_ends_every_connection_and_new_ones_are_good(proxy: Proxy, client: redis.Redis) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as one:
        wait_until(lambda: len(proxy.links) == 2, "both connections")
        proxy.cut()
        wait_until(lambda: not proxy.links, "no connections")
        assert _is_over(one)
    # The client may have seen that its own is over, and have another one already.
    with suppress(redis.ConnectionError):
        client.incr("x")
    client.set("x", 1)
    assert client.incr("x") == 2


def _is_over(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_delay_that_is_longer_than_the_patience_is_a_time_out(proxy: Proxy, client: redis.Redis) -> None:
    proxy.set_delay(3)
    with pytest.raises(redis.TimeoutError):
        client.ping()
    proxy.undelay()
    assert client.ping()


def test_a_healed_network_is_a_good_one(proxy: Proxy, client: redis.Redis) -> None:
    proxy.hold()
    proxy.swallow()
    proxy.tear()
    proxy.set_delay(9)
    proxy.heal()
    assert client.ping()


def test_a_server_that_is_away_is_a_cut(server: Server) -> None:
    with Network() as network:
        nowhere = network.proxy(1)
        with (
            redis.Redis.from_url(nowhere.url, retry=Retry(NoBackoff(), 0)) as client,
            pytest.raises(redis.ConnectionError),
        ):
            client.ping()
