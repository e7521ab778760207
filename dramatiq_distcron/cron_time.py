"""Cron expression, zone and instant -> the next fire time.

The rules for clock changes are Debian's (cron 3.0pl1; section 3 of the project's research page on cron):

* Wildcard expressions (see `CronExpression.is_wildcard`) fire whenever the wall clock of the zone shows a match:
  not at times that a change skips, twice at times it repeats.
* The others have fixed times. What a change of up to three hours skips is fired once, at the first instant after
  it; what such a change repeats is fired in the first pass only.
* After a change of more than three hours (Samoa left out 30 December 2011) all just follow the wall clock.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Protocol
from zoneinfo import ZoneInfo

from .zones import OffsetSpan, span_at

__all__ = ["LONGEST_CHANGE", "WallTimes", "next_fire"]

_DAY = 86_400
#: In seconds: what changes the clock by more is no daylight saving, and nothing is made up for.
LONGEST_CHANGE = 3 * 3600
_FIRST_INSTANT = -62_135_596_800  # 0001-01-01 00:00:00 UTC
_LAST_INSTANT = 253_402_300_799  # 9999-12-31 23:59:59 UTC


class WallTimes(Hashable, Protocol):
    """Matching wall times, without a zone; hashable."""

    @property
    def is_wildcard(self) -> bool: ...

    def next_wall_second(self, after: int) -> int | None: ...


def next_fire(expression: WallTimes, zone: ZoneInfo, after_ms: int) -> int | None:
    """Return the first fire time strictly after `after_ms`; both are UTC milliseconds since 1970.

    The result is a whole second and depends on nothing but the arguments (and the zone's data). None when there is
    none up to the year 9999. Raises `InvalidCronExpression` if the expression has an ``H`` that is not spread yet.
    """
    after = min(max(after_ms // 1000, _FIRST_INSTANT - 1), _LAST_INSTANT)
    found = _next_fire(expression, zone, after)
    return None if found is None else found * 1000


@lru_cache(maxsize=16_384)
def _next_fire(expression: WallTimes, zone: ZoneInfo, after: int) -> int | None:
    fixed = not expression.is_wildcard
    span = span_at(zone, after)
    done = max(after + span.offset, _dealt_with(span, fixed))
    wall = expression.next_wall_second(done)
    while wall is not None:
        if wall < span.end + span.offset:
            instant = wall - span.offset
            return instant if instant <= _LAST_INSTANT else None
        following = span_at(zone, _skip_calm_time(span, done, wall))
        if following.start == span.end:
            if fixed and _skips(following) and wall < following.start + following.offset:
                return following.start
            reached = _dealt_with(following, fixed)
            # Most changes are far from any match: then the match found before is still the next one.
            if not done <= reached < wall:
                wall = expression.next_wall_second(reached)
            done = reached
        span = following
    return None


def _skip_calm_time(span: OffsetSpan, done: int, wall: int) -> int:
    """Return the instant to go on from: the span's end, or close to the match if no change before it matters.

    Only a clock put back (by a day at most) soon after `done` could show wall times again that may match.
    """
    if span.end - (done - span.offset) < 2 * _DAY:
        return span.end
    return max(span.end, wall - 3 * _DAY)


def _dealt_with(span: OffsetSpan, fixed: bool) -> int:
    """Return the last wall second that is out of the question when the span begins."""
    offset = span.before if fixed and _repeats(span) else span.offset
    return span.start + offset - 1


def _skips(span: OffsetSpan) -> bool:
    """Whether the span begins with a clock put forward, as daylight saving does it."""
    return 0 < span.offset - span.before <= LONGEST_CHANGE


def _repeats(span: OffsetSpan) -> bool:
    """Whether the span begins with a clock put back, as daylight saving does it."""
    return -LONGEST_CHANGE <= span.offset - span.before < 0
