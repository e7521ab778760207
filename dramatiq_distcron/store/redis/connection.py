"""How we talk to Redis: connections of our own, made from the broker's settings.

redis-py's defaults suit neither the lease nor the commit: they wait for 5 s and re-send up to ten times in
silence, which outlives a lease and hides what became of a command. Ours wait shortly and never repeat.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.commands.core import Script
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from ...errors import ConfigurationError, StoreRefused, StoreUnavailable

__all__ = ["Connection", "Courier", "mapped_errors", "masked", "raw", "refuse_url", "text"]

T = TypeVar("T")

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

#: Answers that say "not now" though they come as plain errors.
_PASSING = ("BUSY", "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "UNBLOCKED")


class Connection:
    """Where Redis is. Makes clients with short time-outs and without silent repetition.

    Parameters:
      make: builds a client with the given time-out in seconds.
      where: the address for messages, without the password.
    """

    def __init__(self, make: Callable[[float], redis.Redis], where: str) -> None:
        self._make = make
        self.where = where

    def client(self, timeout: float) -> redis.Redis:
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
    def from_client(cls, client: redis.Redis) -> Connection:
        """To the Redis another client is connected to."""
        return cls.from_pool(client.connection_pool)

    @classmethod
    def from_pool(cls, pool: redis.ConnectionPool) -> Connection:
        settings = {
            key: value for key, value in pool.connection_kwargs.items() if key in _KEPT or key.startswith("ssl_")
        }

        def make(timeout: float) -> redis.Redis:
            return redis.Redis(connection_pool=_new_pool(pool, {**settings, **_manners(timeout)}))

        return cls(make, _address(pool, settings))


def _manners(timeout: float) -> dict[str, Any]:
    return {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "decode_responses": False,
        "protocol": 2,
    }


def _new_pool(like: redis.ConnectionPool, settings: dict[str, Any]) -> redis.ConnectionPool:
    if isinstance(like, SentinelConnectionPool):
        return SentinelConnectionPool(  # type: ignore[no-untyped-call]
            like.service_name, like.sentinel_manager, connection_class=like.connection_class, **settings
        )
    return redis.ConnectionPool(connection_class=like.connection_class, **settings)


def _address(pool: redis.ConnectionPool, settings: dict[str, Any]) -> str:
    if isinstance(pool, SentinelConnectionPool):
        return f"sentinel service {pool.service_name}"
    who = settings.get("username") or ""
    if settings.get("password"):
        who += ":***"
    who = who and who + "@"
    database = settings.get("db") or 0
    if "path" in settings:
        return f"unix://{who}{settings['path']}?db={database}"
    scheme = "rediss" if issubclass(pool.connection_class, redis.SSLConnection) else "redis"
    return f"{scheme}://{who}{settings.get('host', 'localhost')}:{settings.get('port', 6379)}/{database}"


class Courier:
    """Sends a script and waits for its reply in a thread of its own, so that meanwhile the next one can be made.

    One at a time. The caller waits until the script is sent, and only then goes on: the interpreter's lock would else
    keep the thread from sending for as long as the caller computes.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._connection: Any = client.connection_pool.make_connection()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="distcron-commit")

    def start(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Future[Any]:
        """Sends ``script``; the future has its reply, or raises what redis-py raises."""
        packed = self._connection.pack_command("EVALSHA", script.sha, len(keys), *keys, *args)
        sent = threading.Event()
        future = self._thread.submit(self._exchange, packed, sent, script)
        sent.wait()
        return future

    def close(self) -> None:
        """Closes the connection, after what is under way; it is opened again for the next."""
        self._thread.submit(self._connection.disconnect).result()

    def _exchange(self, packed: Any, sent: threading.Event, script: Script) -> Any:
        try:
            self._connection.send_packed_command(packed)
            sent.set()
            return self._receive(packed, script)
        except redis.ResponseError:
            raise
        except BaseException:
            # What is still under way on it would be taken for the next reply.
            self._connection.disconnect()
            raise
        finally:
            sent.set()

    def _receive(self, packed: Any, script: Script) -> Any:
        try:
            return self._connection.read_response()
        except redis.exceptions.NoScriptError:
            # It was not run: the server is another one, or was restarted.
            self._connection.send_command("SCRIPT", "LOAD", script.script)
            self._connection.read_response()
            self._connection.send_packed_command(packed)
            return self._connection.read_response()


@contextmanager
def mapped_errors(where: str) -> Iterator[None]:
    """Turns redis-py's errors into ours.

    Raises:
      StoreUnavailable: nobody knows whether the command was carried out, or it can be tried again later.
      StoreRefused: the server said no and will say so again.
    """
    try:
        yield
    except (redis.AuthenticationError, redis.exceptions.AuthorizationError) as error:
        raise StoreRefused(f"Redis at {where} does not let us in: {error}") from error
    except (redis.ConnectionError, redis.TimeoutError, redis.ReadOnlyError, OSError) as error:
        raise StoreUnavailable(f"Redis at {where} does not answer: {_plain(error)}") from error
    except redis.ResponseError as error:
        if str(error).startswith(_PASSING):
            raise StoreUnavailable(f"Redis at {where} cannot serve us now: {error}") from error
        raise StoreRefused(f"Redis at {where} refused: {error}") from error


def masked(url: str) -> str:
    """``url`` without its password, however malformed it is."""
    if "@" not in url:
        return url
    scheme, colon, rest = url.partition(":")
    who = rest.rpartition("@")[0].lstrip("/").partition(":")[0]
    return f"{scheme}{colon}//{who}:***@{rest.rpartition('@')[2]}" if colon else "***"


def refuse_url(url: str) -> None:
    """Raises ``ConfigurationError`` if ``url`` is not that of a Redis."""
    try:
        redis.ConnectionPool.from_url(url)
    except ValueError as error:
        raise ConfigurationError(
            f"{masked(url)!r} is not the URL of a Redis, such as 'redis://127.0.0.1:6379/0', "
            f"'rediss://user:password@host:6380/0' or 'unix:///path?db=0': {error}"
        ) from None


def _plain(error: Exception) -> str:
    return str(error) or type(error).__name__


def text(value: bytes | str | int | None) -> str:
    """A reply as text; nothing is the empty string."""
    if value is None:
        return ""
    # Bytes that are no text must come back as they were: they are compared.
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def raw(value: str) -> bytes:
    """The bytes that ``text`` made a text of."""
    return value.encode("utf-8", "surrogateescape")
