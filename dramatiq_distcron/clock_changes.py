"""What the clock changes of a zone do to an expression: the hour that is skipped, the hour that comes twice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from .cron_time import LONGEST_CHANGE, WallTimes
from .zones import OffsetSpan, offset_changes

__all__ = ["clock_change_warnings"]

_EPOCH = datetime(1970, 1, 1)


def clock_change_warnings(expression: WallTimes, zone: ZoneInfo, start: int, end: int) -> list[str]:
    """One sentence for each change from ``start`` to ``end`` (UTC seconds) that fire times fall into."""
    return [text for span in offset_changes(zone, start, end) for text in _of_change(expression, zone, span)]


def _of_change(expression: WallTimes, zone: ZoneInfo, span: OffsetSpan) -> Iterator[str]:
    low, high = sorted((span.start + span.before, span.start + span.offset))
    found = expression.next_wall_second(low - 1)
    if found is None or found >= high:
        return
    what = f"In {zone.key}, {_wall(low)} to {_wall(high)[11:] if high - low < 86_400 else _wall(high)}"
    if span.offset > span.before:
        yield f"{what} is skipped: {_when_skipped(expression, span)}"
    else:
        yield f"{what} comes twice: {_when_repeated(expression, span)}"


def _when_skipped(expression: WallTimes, span: OffsetSpan) -> str:
    if span.offset - span.before > LONGEST_CHANGE or expression.is_wildcard:
        return "what falls into it does not happen."
    return f"what falls into it fires once, at {_wall(span.start + span.offset)[11:]}."


def _when_repeated(expression: WallTimes, span: OffsetSpan) -> str:
    if span.before - span.offset > LONGEST_CHANGE or expression.is_wildcard:
        return "it fires both times."
    return "it fires the first time only."


def _wall(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).isoformat(" ", "minutes")
