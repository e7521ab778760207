"""Durations and instants in the forms users write them and the one we compute with: whole milliseconds."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import TypeAlias

from .errors import ConfigurationError, quoted

__all__ = [
    "FIRST_INSTANT",
    "LAST_INSTANT",
    "LONGEST",
    "Duration",
    "instant_ms",
    "iso",
    "milliseconds",
    "parse_duration",
    "utc",
]

#: Seconds or a ``timedelta``.
Duration: TypeAlias = "int | float | timedelta"

#: The last instant a datetime can name, in UTC ms: the end of the year 9999.
LAST_INSTANT = 253_402_300_799_999
#: And the first one: the beginning of the year 1.
FIRST_INSTANT = -62_135_596_800_000
#: No duration of ours needs to be longer: a hundred years, in ms.
LONGEST = 100 * 366 * 86_400_000

_NO_NUMBERS = (float("inf"), float("-inf"))
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
_TEXT = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)?")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, None: 1}


def milliseconds(value: Duration, what: str, *, minimum: int = 0) -> int:
    """``value`` in whole milliseconds.

    Raises:
      ConfigurationError: it is no finite number of seconds and no ``timedelta``, is below ``minimum`` (ms), or is
        over a hundred years. ``what`` names the setting in the message.
    """
    if isinstance(value, timedelta):
        found = value // _MILLISECOND
    elif isinstance(value, bool) or not isinstance(value, (int, float)) or value in _NO_NUMBERS or value != value:
        raise ConfigurationError(f"{what} must be a number of seconds or a timedelta, not {quoted(value)}.")
    else:
        # Cut first: what is beyond all bounds, infinity included, has no milliseconds.
        found = round(max(-LONGEST, min(value, LONGEST)) * 1000)
    if found < minimum:
        raise ConfigurationError(f"{what} must be at least {minimum / 1000:g} s, not {quoted(value)}.")
    if found > LONGEST:
        raise ConfigurationError(f"{what} must be at most a hundred years; the one given is longer.")
    return found


def parse_duration(text: str) -> float:
    """A duration from the command line, in seconds: ``90``, ``90s``, ``15m``, ``2h``, ``3d``.

    Raises:
      ConfigurationError: it is none of these.
    """
    found = _TEXT.fullmatch(text.strip())
    if not found:
        raise ConfigurationError(f"{text!r} is not a duration; write 90, 90s, 15m, 2h or 3d.")
    return float(found[1]) * _UNITS[found[2]]


def instant_ms(value: datetime, what: str) -> int:
    """An aware datetime as UTC milliseconds since 1970, cut to the millisecond.

    Raises:
      ConfigurationError: it is no datetime, or a naive one: which instant it means would be a guess.
    """
    if not isinstance(value, datetime):
        raise ConfigurationError(f"{what} must be a datetime with a time zone, not {quoted(value)}.")
    if value.utcoffset() is None:
        raise ConfigurationError(
            f"{what} has no time zone, so which instant it means would be a guess: {quoted(value)}. "
            "Give it one, for example tzinfo=zoneinfo.ZoneInfo('Europe/Berlin') or datetime.timezone.utc."
        )
    found = (value - _EPOCH) // _MILLISECOND
    if not FIRST_INSTANT <= found <= LAST_INSTANT:
        raise ConfigurationError(f"{what} is outside the years 1 to 9999 in UTC: {quoted(value)}.")
    return found


def utc(ms: int) -> datetime:
    """UTC milliseconds since 1970 as an aware datetime in UTC."""
    return _EPOCH + timedelta(milliseconds=ms)


def iso(ms: int) -> str:
    """UTC milliseconds since 1970 as ISO 8601 with milliseconds, ending in ``Z``."""
    return utc(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
