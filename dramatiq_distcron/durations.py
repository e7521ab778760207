"""Durations and instants in the forms users write them and the one we compute with: whole milliseconds."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from typing import TypeAlias

from .errors import ConfigurationError

__all__ = ["Duration", "instant_ms", "iso", "milliseconds", "seconds", "utc"]

#: Seconds or a ``timedelta``.
Duration: TypeAlias = "int | float | timedelta"

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)


def milliseconds(value: Duration, what: str, *, minimum: int = 0) -> int:
    """``value`` in whole milliseconds.

    Raises:
      ConfigurationError: it is no finite number of seconds and no ``timedelta``, or is below ``minimum`` (ms).
        ``what`` names the setting in the message.
    """
    if isinstance(value, timedelta):
        found = value // _MILLISECOND
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        found = round(value * 1000)
    else:
        raise ConfigurationError(f"{what} must be a number of seconds or a timedelta, not {value!r}.")
    if found < minimum:
        raise ConfigurationError(f"{what} must be at least {minimum / 1000:g} s, not {value!r}.")
    return found


def seconds(ms: int | None) -> float | None:
    """Milliseconds as seconds; nothing stays nothing."""
    return None if ms is None else ms / 1000


def instant_ms(value: datetime, what: str) -> int:
    """An aware datetime as UTC milliseconds since 1970, cut to the millisecond.

    Raises:
      ConfigurationError: it is no datetime, or a naive one: which instant it means would be a guess.
    """
    if not isinstance(value, datetime):
        raise ConfigurationError(f"{what} must be a datetime with a time zone, not {value!r}.")
    if value.utcoffset() is None:
        raise ConfigurationError(
            f"{what} has no time zone, so which instant it means would be a guess: {value!r}. "
            "Give it one, for example tzinfo=zoneinfo.ZoneInfo('Europe/Berlin') or datetime.timezone.utc."
        )
    return (value - _EPOCH) // _MILLISECOND


def utc(ms: int) -> datetime:
    """UTC milliseconds since 1970 as an aware datetime in UTC."""
    return _EPOCH + timedelta(milliseconds=ms)


def iso(ms: int) -> str:
    """UTC milliseconds since 1970 as ISO 8601 with milliseconds, ending in ``Z``."""
    return utc(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
