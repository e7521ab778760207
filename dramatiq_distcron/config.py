"""The validated settings of the middleware."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from .durations import Duration, milliseconds, parse_duration
from .errors import ConfigurationError, quoted
from .policies import Policy, PolicyOptions, checked_policy
from .suggestions import refuse_unknown
from .zones import load_zone

if TYPE_CHECKING:
    import redis

__all__ = ["DistCronOptions", "RedisSource", "Settings", "checked_lease_ttl", "retention_from"]

#: Where Redis is: a URL or a client whose settings are taken over.
RedisSource: TypeAlias = "str | redis.Redis"

#: A third of the lease must be enough for a renewal over a slow network.
_SHORTEST_LEASE = 500

#: More records than any Redis holds.
_LONGEST_HISTORY = 10**9

_POLICIES = frozenset(PolicyOptions.__annotations__)
_URL = re.compile(r"(redis|rediss|unix)://")
_APP = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class DistCronOptions(PolicyOptions, total=False):
    """The options of ``DistCron``, described there."""

    redis: RedisSource | None
    app: str
    namespace: str | None
    tz: str
    lease_ttl: Duration
    history_size: int
    wait_replicas: int


@dataclass(frozen=True)
class Settings:
    """What ``DistCron`` was given, checked; durations in ms.

    ``default_redis`` and ``default_namespace`` are those of the environment, for a broker that is on no Redis itself;
    ``policy`` is the default of every schedule; ``disabled`` says why nothing at all is enqueued, if that is so.
    """

    redis: RedisSource | None = None
    default_redis: str | None = None
    default_namespace: str | None = None
    disabled: str = ""
    app: str = "default"
    namespace: str | None = None
    tz: str = "UTC"
    lease_ttl: int = 3000
    history_size: int = 10_000
    wait_replicas: int = 0
    policy: Policy = field(default_factory=Policy)

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Settings:
        """Checks the options of ``DistCron``; those that are not given come from ``DISTCRON_*`` variables.

        Raises:
          ConfigurationError: an option is unknown or has a value it cannot have.
        """
        own = set(_CHECKS)
        refuse_unknown({name: None for name in options if name not in own | _POLICIES}, own | _POLICIES, "DistCron()")
        policy = checked_policy({name: value for name, value in options.items() if name in _POLICIES})
        settings: dict[str, Any] = {name: _CHECKS[name](value) for name, value in options.items() if name in own}
        settings |= _from_environment(set(options))
        return cls(
            **settings,
            default_redis=os.environ.get("DISTCRON_REDIS_URL") or None,
            default_namespace=os.environ.get("DISTCRON_NAMESPACE") or None,
            disabled=_switched_off(),
            policy=Policy().overridden(policy),
        )


def checked_lease_ttl(value: Any) -> int:
    """The life of the lease in ms. Raises ``ConfigurationError`` if it is too short to be renewed in time."""
    ttl = milliseconds(value, "lease_ttl")
    if ttl < _SHORTEST_LEASE:
        raise ConfigurationError(
            f"lease_ttl={quoted(value)} is shorter than it can be renewed: a renewal has a third of it, and a network "
            f"needs its time. Use at least {_SHORTEST_LEASE / 1000:g} s; the default is 3 s."
        )
    return ttl


_VARIABLES = {"app": "DISTCRON_APP", "tz": "DISTCRON_TZ", "lease_ttl": "DISTCRON_LEASE_TTL"}


def _from_environment(given: set[str]) -> dict[str, Any]:
    """The options that are not given and have a variable that is set, checked."""
    texts = {name: os.environ.get(variable) for name, variable in _VARIABLES.items() if name not in given}
    return {name: _checked_variable(name, text) for name, text in texts.items() if text}


def _checked_variable(name: str, text: str) -> Any:
    variable = _VARIABLES[name]
    value = _number(text, variable) if name == "lease_ttl" else text
    try:
        return _CHECKS[name](value)
    except ConfigurationError as error:
        # The line that is told with it calls install(), and says nothing of it.
        raise type(error)(f"The environment variable {variable} cannot be used: {error}") from error


_RETENTION: tuple[tuple[str, str, Callable[[str], Any]], ...] = (
    ("max_age", "DISTCRON_DEAD_LETTERS_MAX_AGE", parse_duration),
    ("max_count", "DISTCRON_DEAD_LETTERS_MAX_COUNT", int),
)


def retention_from(given: Mapping[str, Any]) -> dict[str, Any]:
    """Of ``max_age`` and ``max_count`` of dead letters those that are given, are no ``...``, or have a variable."""
    found = {name: value for name, value in given.items() if value is not ...}
    for name, variable, read in _RETENTION:
        text = os.environ.get(variable, "").strip()
        if name in found or not text:
            continue
        try:
            found[name] = None if text.lower() == "none" else read(text)
        except ValueError as error:
            raise ConfigurationError(f"{variable} is {text!r}, which cannot be: {error}") from error
    return found


def _switched_off() -> str:
    """Why the environment stops all enqueuing; ``""``: it does not."""
    value = os.environ.get("DISTCRON_DISABLED", "").strip().lower()
    if value in ("", "0", "false", "no", "off"):
        return ""
    if value in ("1", "true", "yes", "on"):
        return f"DISTCRON_DISABLED={value}"
    raise ConfigurationError(f"DISTCRON_DISABLED must be 1 or 0, not {quoted(value)}.")


def _number(value: str, where: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ConfigurationError(f"{where} must be a number of seconds, not {quoted(value)}.") from None


def _checked_redis(value: Any) -> RedisSource | None:
    if isinstance(value, str) and not _URL.match(value):
        raise ConfigurationError(
            "redis must be the URL of a Redis, beginning with redis://, rediss:// or unix://; the one given begins "
            f"with {value.partition(':')[0][:20]!r}."
        )
    if value is None or isinstance(value, str) or hasattr(value, "connection_pool"):
        return value  # type: ignore[no-any-return]
    raise ConfigurationError(f"redis must be a URL like 'redis://127.0.0.1:6379/0' or a client, not {quoted(value)}.")


def _checked_app(value: Any) -> str:
    if not isinstance(value, str) or not _APP.fullmatch(value):
        raise ConfigurationError(
            f"app must be a short name of letters, digits, dots and dashes, not {quoted(value)}: it is part of every "
            "key in Redis and keeps apps that share one apart."
        )
    return value


def _checked_namespace(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not value or not value.isprintable()):
        raise ConfigurationError(f"namespace must be the prefix of Dramatiq's keys in Redis, not {quoted(value)}.")
    return value


def _checked_tz(value: Any) -> str:
    load_zone(value)
    return str(value)


def _checked_history_size(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 100 <= value <= _LONGEST_HISTORY:
        raise ConfigurationError(
            f"history_size must be a whole number of records from 100 to {_LONGEST_HISTORY}, not {quoted(value)}."
        )
    return value


def _checked_wait_replicas(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 10:
        raise ConfigurationError(f"wait_replicas must be a number of replicas from 0 to 10, not {quoted(value)}.")
    return value


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "redis": _checked_redis,
    "app": _checked_app,
    "namespace": _checked_namespace,
    "tz": _checked_tz,
    "lease_ttl": checked_lease_ttl,
    "history_size": _checked_history_size,
    "wait_replicas": _checked_wait_replicas,
}
