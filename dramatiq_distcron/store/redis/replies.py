"""What redis-py gives back, in our terms: errors, texts, addresses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import redis
from redis.exceptions import AuthorizationError, ClusterCrossSlotError, MovedError, RedisClusterException

from ...durations import FIRST_INSTANT, LAST_INSTANT
from ...errors import AccessDenied, ConfigurationError, StoreRefused, StoreUnavailable, WrongSlot
from ..base import NEVER

__all__ = [
    "cursor",
    "is_passing",
    "is_read_only",
    "mapped_errors",
    "masked",
    "raw",
    "record",
    "refuse_url",
    "revision",
    "text",
]

_RECORD = ("outcome", "message_id", "lateness_ms", "term", "holder", "reason")

#: Answers that say "not now" though they come as plain errors.
_PASSING = (
    "BUSY", "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "UNBLOCKED", "OOM", "MISCONF"
)  # fmt: skip

#: What a node of a cluster says of keys that it does not have, or that are not together.
_ELSEWHERE = ("MOVED ", "CROSSSLOT", "non local key", "hash to the same slot")


@contextmanager
def mapped_errors(where: str) -> Iterator[None]:
    """Turns redis-py's errors into ours.

    Raises:
      StoreUnavailable: nobody knows whether the command was carried out, or it can be tried again later.
      AccessDenied: the server does not let us in.
      WrongSlot: the keys are on another node of a cluster.
      StoreRefused: the server said no and will say so again.
    """
    try:
        yield
    except (redis.AuthenticationError, AuthorizationError) as error:
        raise AccessDenied(f"Redis at {where} does not let us in: {error}") from error
    except (redis.ConnectionError, redis.TimeoutError, RedisClusterException, OSError) as error:
        raise StoreUnavailable(f"Redis at {where} does not answer: {_plain(error)}") from error
    except redis.ResponseError as error:
        if "unauthenticated" in str(error):
            # So it answers long commands of those who gave no password, and does not even read them.
            raise AccessDenied(f"Redis at {where} does not let us in: {error}") from error
        if is_read_only(str(error)):
            raise StoreUnavailable(f"Redis at {where} is a replica now, which takes no writes: {error}") from error
        if _is_elsewhere(error):
            raise WrongSlot(
                f"Redis at {where} is part of a cluster, and the keys are on another node or not in one slot: {error}. "
                "Give the broker a client of the cluster and a namespace with a hash tag: "
                "RedisBroker(client=redis.RedisCluster(...), namespace='{dramatiq}')."
            ) from error
        if is_passing(str(error)):
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
            f"'rediss://user:password@host:6380/0' or 'unix:///path?db=0': {_without_secret(str(error), url)}"
        ) from None


def _without_secret(reason: str, url: str) -> str:
    """What is wrong with ``url``, unless that tells a part of its password."""
    secret = url.rpartition("@")[0]
    if any(quote in secret for quote in re.findall(r"'([^']+)'", reason)):
        return "in its password '/', '?', '#' and '@' must be written as '%2F', '%3F', '%23' and '%40'"
    return reason


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


def revision(value: bytes | str | None) -> int | str:
    """A schedule's revision; as it stands if it is none of ours, for it is only compared."""
    found = text(value)
    return int(found) if found.isascii() and found.isdigit() else found


def cursor(score: float | str | None) -> int | None:
    """A schedule's cursor. ``None``: there is none, or it is none of ours, and nothing can be decided on it."""
    try:
        number = float("nan" if score is None else score)
    except ValueError:
        return None
    # Ours are whole, and in the calendar; what was written by hand may be anything.
    is_ours = number == NEVER or FIRST_INSTANT <= number <= LAST_INSTANT
    return int(number) if is_ours and number.is_integer() else None


def record(value: bytes | None) -> Mapping[str, Any] | None:
    """The last outcome of a schedule; ``None`` if it is none of ours."""
    try:
        found = json.loads(value or b"")
        int(found["count"])
        times = [int(found[name]) for name in ("fire_time", "fire_time_to", "decided_at")]
        are_ours = all(FIRST_INSTANT <= time <= LAST_INSTANT for time in times)
        return {**dict.fromkeys(_RECORD, ""), **found} if are_ours else None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _is_elsewhere(error: redis.ResponseError) -> bool:
    return isinstance(error, (MovedError, ClusterCrossSlotError)) or any(word in str(error) for word in _ELSEWHERE)


def is_read_only(answer: str) -> bool:
    """Whether an error's text says that the server is a replica. redis-py may have cut the code off."""
    return "READONLY" in answer or "read only replica" in answer


def is_passing(answer: str) -> bool:
    """Whether an error's text says that it will pass: out of memory, read-only, busy."""
    words = answer[:200].replace("-", " ").split()
    return any(word in _PASSING for word in words)
