"""What the clock changes of a zone do to an expression: the hour that is skipped, the hour that comes twice."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from .cron_time import LONGEST_CHANGE, WallTimes
from .durations import FIRST_INSTANT, LAST_INSTANT
from .zones import OffsetSpan, offset_changes, span_at

__all__ = ["clock_change_warnings", "year_around"]

_EPOCH = datetime(1970, 1, 1)
_DAY = 86_400
_YEAR = 366 * _DAY
#: A day inside the years 1 to 9999, so that every wall clock has a date there; UTC seconds.
_FIRST, _LAST = FIRST_INSTANT // 1000 + _DAY, LAST_INSTANT // 1000 - _DAY


def clock_change_warnings(expression: WallTimes, zone: ZoneInfo, start: int, end: int) -> list[str]:
    """One sentence for each kind of change from ``start`` to ``end`` (UTC seconds) that fire times fall into."""
    found: dict[tuple[str, str], list[str]] = {}
    for span in offset_changes(zone, start, end):
        low, high = sorted((span.start + span.before, span.start + span.offset))
        match = expression.next_wall_second(low - 1)
        if match is not None and match < high:
            kind = (_hours(span, low, high), _effect(expression, span))
            found.setdefault(kind, []).append(_wall(low)[:10])
    return [f"in {zone.key} the clock {hours} on {_joined(days)}: {effect}" for (hours, effect), days in found.items()]


def year_around(zone: ZoneInfo, instant: int) -> tuple[int, int]:
    """From the start of the year on the wall clock to a year after ``instant``; all UTC seconds."""
    wall = min(max(instant + span_at(zone, instant).offset, _FIRST), _LAST)
    year = (_EPOCH + timedelta(seconds=wall)).year
    start = (datetime(year, 1, 1) - _EPOCH) // timedelta(seconds=1)
    return max(start - span_at(zone, start).offset, _FIRST), min(instant + _YEAR, _LAST)


def _hours(span: OffsetSpan, low: int, high: int) -> str:
    verb = "skips" if span.offset > span.before else "repeats"
    if high - low < _DAY:
        return f"{verb} {_wall(low)[11:]} to {_wall(high)[11:]}"
    return f"{verb} {(high - low) / 3600:g} hours from {_wall(low)[11:]}"


def _effect(expression: WallTimes, span: OffsetSpan) -> str:
    skipped = span.offset > span.before
    if abs(span.offset - span.before) > LONGEST_CHANGE or expression.is_wildcard:
        return "what falls into it does not happen" if skipped else "what falls into it fires both times"
    if skipped:
        return f"what falls into it fires once, at {_wall(span.start + span.offset)[11:]}"
    return "what falls into it fires the first time only"


def _joined(days: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(days[:-1]), days[-1])))


def _wall(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).isoformat(" ", "minutes")
