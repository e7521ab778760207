"""How we talk to Redis: connections of our own, made from the broker's settings.

redis-py's defaults suit neither the lease nor the commit: they wait for 5 s and re-send up to ten times in
silence, which outlives a lease and hides what became of a command. Ours wait shortly and never repeat.
"""

from __future__ import annotations

import copy
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from ...errors import ConfigurationError
from .replies import refuse_url

__all__ = ["Connection", "disconnect", "master_of"]

#: What we take over from the broker's connection: where Redis is and who we are, not how to wait for it.
_KEPT = {
    "host",
    "port",
    "path",
    "db",
    "username",
    "password",
    "credential_provider",
    "socket_type",
    "socket_keepalive",
    "socket_keepalive_options",
}


#: As redis-py 8 does by itself: after so many seconds of silence, each, and how often. The system's own first one
#: comes after two hours, when a firewall has long forgotten the connection and swallows what is sent.
_PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
if not hasattr(socket, "TCP_KEEPIDLE"):
    # So it is called on macOS.
    _PROBES["TCP_KEEPALIVE"] = 30

#: The part of a time-out that may go by until one of the sentinels has answered.
_FOR_SENTINELS = 0.5


class Connection:
    """Where Redis is. Makes clients with short time-outs and without silent repetition.

    Parameters:
      make: builds a client with the given time-out in seconds.
      where: the address for messages, without the password.
      user: the name the server knows us by.
      is_cluster: whether keys must share a slot.
    """

    def __init__(
        self, make: Callable[[float], Any], where: str, *, user: str = "default", is_cluster: bool = False
    ) -> None:
        self._make = make
        self.where = where
        self.user = user
        self.is_cluster = is_cluster

    def client(self, timeout: float) -> Any:
        """A client of its own connections that waits at most ``timeout`` seconds for an answer."""
        return self._make(timeout)

    @classmethod
    def from_url(cls, url: str) -> Connection:
        """To the Redis at ``url``.

        Raises:
          ConfigurationError: the URL cannot be read.
        """
        refuse_url(url)
        return cls.from_pool(redis.ConnectionPool.from_url(url))

    @classmethod
    def from_client(cls, client: redis.Redis | redis.RedisCluster) -> Connection:
        """To the Redis, or the cluster, another client is connected to.

        Raises:
          ConfigurationError: no connection can be made with its settings.
        """
        if isinstance(client, redis.RedisCluster):
            return cls.from_cluster(client)
        return cls.from_pool(client.connection_pool)

    @classmethod
    def from_pool(cls, pool: redis.ConnectionPool) -> Connection:
        settings = _settings_of(pool)
        where = _address(pool, settings)
        _refuse_settings(pool, settings, where)

        def make(timeout: float) -> redis.Redis:
            return redis.Redis(connection_pool=_new_pool(pool, settings, timeout))

        return cls(make, where, user=_user(settings))

    @classmethod
    def from_cluster(cls, cluster: redis.RedisCluster) -> Connection:
        settings = _kept_alive(_kept(cluster.get_connection_kwargs()))
        settings.pop("host", None)
        settings.pop("port", None)
        nodes = [(node.host, node.port) for node in cluster.get_nodes()]

        def make(timeout: float) -> redis.RedisCluster:
            startup = [ClusterNode(host, port) for host, port in nodes]
            return redis.RedisCluster(startup_nodes=startup, **{**_named(settings), **_manners(timeout)})

        host, port = nodes[0]
        where = f"cluster {_who(settings)}{host}:{port}"
        return cls(make, where, user=_user(settings), is_cluster=True)


def master_of(client: Any) -> tuple[str, int] | None:
    """Whom Sentinel takes for the master now; ``None``: it is not asked, or does not know."""
    pool = getattr(client, "connection_pool", None)
    if not isinstance(pool, SentinelConnectionPool):
        return None
    with suppress(redis.RedisError):
        host, port = pool.get_master_address()
        return host, port
    return None


def disconnect(client: Any) -> None:
    """Closes what a client of ours has open; it is opened again when it is needed."""
    if isinstance(client, redis.RedisCluster):
        client.disconnect_connection_pools()
        return
    client.connection_pool.disconnect()
    manager = getattr(client.connection_pool, "sentinel_manager", None)
    for sentinel in getattr(manager, "sentinels", ()):
        sentinel.connection_pool.disconnect()


def _kept(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key in _KEPT or key.startswith("ssl_")}


def _settings_of(pool: redis.ConnectionPool) -> dict[str, Any]:
    settings = _kept(pool.connection_kwargs)
    # Those to a socket in the file system are of another class, which knows no such setting.
    return _kept_alive(settings) if issubclass(pool.connection_class, redis.Connection) else settings


def _refuse_settings(pool: redis.ConnectionPool, settings: Mapping[str, Any], where: str) -> None:
    """Raises ``ConfigurationError`` if redis-py can make no connection with them. It makes none before it connects."""
    try:
        _new_pool(pool, settings, 1.0).make_connection()
    except Exception as error:
        tls = sorted(name for name in settings if name.startswith("ssl_"))
        hint = "Leave out what it does not know."
        if tls and not issubclass(pool.connection_class, redis.SSLConnection):
            hint = f"It is not encrypted, and {', '.join(tls)} is for TLS: leave that out, or make the URL rediss://."
        raise ConfigurationError(f"No connection to Redis at {where} can be made: {error}. {hint}") from error


def _kept_alive(settings: Mapping[str, Any]) -> dict[str, Any]:
    """With probes on idle connections, unless something is said of them: redis-py before 8 sends none."""
    if settings.get("socket_keepalive") is not None:
        return dict(settings)
    given = settings.get("socket_keepalive_options")
    return {
        **settings,
        "socket_keepalive": True,
        "socket_keepalive_options": _probes() if given is None else given,
    }


def _probes() -> dict[int, int]:
    """In the numbers of this system, as far as it has them."""
    return {getattr(socket, name): value for name, value in _PROBES.items() if hasattr(socket, name)}


def _manners(timeout: float) -> dict[str, Any]:
    return {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
        "decode_responses": False,
        "protocol": 2,
    }


def _named(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A password without a user is that of ``default``, as redis-py says itself by protocol 3.

    By protocol 2 it would say no name, and a server where nobody needs a password refuses that: workers, by Dramatiq's
    client, would be let in, and we not.
    """
    if settings.get("password") and not settings.get("username"):
        return {**settings, "username": "default"}
    return dict(settings)


def _new_pool(like: redis.ConnectionPool, settings: Mapping[str, Any], timeout: float) -> redis.ConnectionPool:
    """A pool to where ``like`` leads, with our manners."""
    made = {"connection_class": like.connection_class, **_named(settings), **_manners(timeout)}
    if not isinstance(like, SentinelConnectionPool):
        return redis.ConnectionPool(**made)
    return SentinelConnectionPool(like.service_name, _asking_briefly(like.sentinel_manager, timeout), **made)


def _asking_briefly(manager: Any, timeout: float) -> Any:
    """The same sentinels. One of them that is dead must not cost the time in which the next could have been asked."""
    if type(manager) is not Sentinel:
        return manager
    brief = copy.copy(manager)
    share = timeout * _FOR_SENTINELS / max(1, len(manager.sentinels))
    brief.sentinels = [
        redis.Redis(connection_pool=_new_pool(pool, _settings_of(pool), share))
        for pool in (sentinel.connection_pool for sentinel in manager.sentinels)
    ]
    return brief


def _address(pool: redis.ConnectionPool, settings: Mapping[str, Any]) -> str:
    if isinstance(pool, SentinelConnectionPool):
        return f"sentinel service {pool.service_name}"
    database = settings.get("db") or 0
    if "path" in settings:
        return f"unix://{_who(settings)}{settings['path']}?db={database}"
    scheme = "rediss" if issubclass(pool.connection_class, redis.SSLConnection) else "redis"
    return f"{scheme}://{_who(settings)}{settings.get('host', 'localhost')}:{settings.get('port', 6379)}/{database}"


def _user(settings: Mapping[str, Any]) -> str:
    provider = settings.get("credential_provider")
    return settings.get("username") or getattr(provider, "username", None) or "default"


def _who(settings: Mapping[str, Any]) -> str:
    """The user of an address, the password masked; nothing for nobody."""
    who = settings.get("username") or ""
    if settings.get("password"):
        who += ":***"
    return who and who + "@"
