"""Time zones: names that are safe to use, and when a zone's offset changes.

All arithmetic goes through UTC, in whole seconds since 1970: datetimes of one zone compare by their wall time.
"""

from __future__ import annotations

import re
import zoneinfo
from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from .errors import ScheduleError

__all__ = ["OffsetSpan", "UnknownZone", "load_zone", "offset_changes", "span_at", "tzdata_version"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# One day inside what datetime can hold, so that no offset leads out of it.
_FIRST = int((datetime(1, 1, 2, tzinfo=timezone.utc) - _EPOCH).total_seconds())
_LAST = int((datetime(9999, 12, 30, tzinfo=timezone.utc) - _EPOCH).total_seconds())
# The shortest time in the data between a change and the change back is four days (Freetown 1939).
_STEP = 2 * 86_400
_BLOCK = 182 * _STEP

#: Names in the system's data that stand for whatever the host is set to.
_OF_THE_HOST = ("localtime", "posixrules")
_FIXED = re.compile(r"(UTC|GMT|Z)?[+-][0-9]{1,2}(:?[0-9]{2})*")


class UnknownZone(ScheduleError):
    """Another host's data may have it."""


class OffsetSpan(NamedTuple):
    """A stretch of time, from `start` up to but not including `end`, with one offset.

    Instants are UTC seconds since 1970, offsets seconds east of UTC. ``before`` is the offset just before `start`.
    Long spans come in pieces, so ``before`` may equal ``offset``.
    """

    start: int
    end: int
    offset: int
    before: int


def load_zone(name: str) -> ZoneInfo:
    """Return the IANA time zone of that name.

    Raises `UnknownZone` for unknown names, fixed offsets, paths and whatever is not text.
    """
    text = _checked_name(name)
    try:
        return ZoneInfo(text)
    except Exception:
        # The lookup ends in the file system: OSError, ValueError, UnicodeError and more, by platform.
        raise UnknownZone(f"time zone {text[:80]!r} is not known; {_suggestion(text)}") from None


def tzdata_version() -> str:
    """Return the version of the zone data in use and where it lies, for the log.

    Hosts with different data may compute different times. The system's data goes before the package ``tzdata``.
    """
    for place in map(Path, zoneinfo.TZPATH):
        if (place / "UTC").is_file():
            return f"{_system_version(place)} ({place})"
    try:
        version = import_module("tzdata").IANA_VERSION
    except ImportError:
        return "none"
    return f"{version} (package tzdata)"


def span_at(zone: ZoneInfo, instant: int) -> OffsetSpan:
    """Return the span of constant offset around that instant (UTC seconds)."""
    spans, starts = _block(zone, instant // _BLOCK)
    return spans[bisect_right(starts, instant) - 1]


def offset_changes(zone: ZoneInfo, start: int, end: int) -> Iterator[OffsetSpan]:
    """Yield in order the spans that begin with a change of offset after `start` and up to `end` (UTC seconds)."""
    span = span_at(zone, start)
    while span.end <= end:
        following = span_at(zone, span.end)
        if following.start == span.end and following.offset != following.before:
            yield following
        span = following


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        kind = type(name).__name__
        raise UnknownZone(f"a time zone is named, such as 'Europe/Berlin', not given as an object of type {kind}")
    if name.startswith(("posix/", "right/")):
        raise UnknownZone(f"time zone {name[:80]!r} is not on every host; use {name.partition('/')[2][:80]!r}")
    if name in _OF_THE_HOST:
        raise UnknownZone(
            f"time zone {name!r} is another one on each host, so that they would differ; name the zone that is meant, "
            "such as 'Europe/Berlin'"
        )
    return name


def _suggestion(name: str) -> str:
    if _FIXED.fullmatch(name):
        return "a fixed offset knows no clock changes: use the name of a place, such as 'Europe/Berlin'"
    asked = name[:80].lower().replace(" ", "_")
    by_lower = {known.lower(): known for known in _known_zones()}
    cities = [known for known in by_lower if known.rpartition("/")[2] == asked]
    close = cities[:3] or get_close_matches(asked, by_lower, n=3, cutoff=0.7)
    if close:
        return f"did you mean {' or '.join(repr(by_lower[match]) for match in close)}?"
    return "use an IANA name such as 'Europe/Berlin' or 'UTC' (is the package tzdata installed?)"


@lru_cache(maxsize=1)
def _known_zones() -> tuple[str, ...]:
    return tuple(sorted(zoneinfo.available_timezones()))


def _system_version(place: Path) -> str:
    for name in ("+VERSION", "tzdata.zi"):
        try:
            with (place / name).open(encoding="utf-8") as lines:
                return lines.readline().removeprefix("# version").strip()
        except (OSError, ValueError):
            continue
    return "unknown"


@lru_cache(maxsize=4096)
def _block(zone: ZoneInfo, number: int) -> tuple[list[OffsetSpan], list[int]]:
    """Find the spans of about a year. The first begins a step earlier, so that a change just before is seen."""
    start, end = number * _BLOCK - _STEP, (number + 1) * _BLOCK
    starts, offsets = [start], [_offset(zone, start)]
    for low in range(start, end, _STEP):
        if _offset(zone, low + _STEP) != offsets[-1]:
            starts.append(_find_change(zone, low, low + _STEP))
            offsets.append(_offset(zone, low + _STEP))
    ends = [*starts[1:], end]
    befores = [offsets[0], *offsets[:-1]]
    return list(map(OffsetSpan, starts, ends, offsets, befores)), starts


def _find_change(zone: ZoneInfo, low: int, high: int) -> int:
    """Return the first instant after `low` with another offset, given that `high` has another."""
    offset = _offset(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(zone, middle) == offset else (low, middle)
    return high


def _offset(zone: ZoneInfo, instant: int) -> int:
    inside = min(max(instant, _FIRST), _LAST)
    offset = (_EPOCH + timedelta(seconds=inside)).astimezone(zone).utcoffset()
    return 0 if offset is None else offset.days * 86_400 + offset.seconds
