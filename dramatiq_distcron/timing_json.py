"""From the stored form of a timing to the timing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from .calendar_timing import CalendarTiming
from .cron_expression import parse
from .durations import LAST_INSTANT
from .errors import ScheduleError, quoted
from .timings import AnyTiming, AtTiming, BoundedTiming, CronTiming, EveryTiming, Timing
from .zones import load_zone

__all__ = ["UnknownKind", "timing_from_json"]


class UnknownKind(ScheduleError):
    """A newer version may know it."""


def timing_from_json(data: Mapping[str, Any]) -> Timing:
    """The timing that ``to_json`` described.

    Raises:
      UnknownZone: this host's data on time zones does not have its zone.
      UnknownKind: this version does not have its kind.
      ScheduleError: it cannot be used anywhere.
    """
    make = _KINDS.get(data["kind"])
    if make is None:
        raise UnknownKind(f"A schedule of kind {data['kind']!r} is not known to this version.")
    if data.get("timezone") is not None:
        load_zone(data["timezone"])
    return make(data)


def _cron(data: Mapping[str, Any]) -> Timing:
    return CronTiming(parse(data["expression"], seconds=data["seconds"]), data["timezone"])


def _every(data: Mapping[str, Any]) -> Timing:
    return EveryTiming(_whole(data["interval"], 1000), _whole(data["anchor"], -LAST_INSTANT))


def _at(data: Mapping[str, Any]) -> Timing:
    return AtTiming(_whole(data["instant"], -LAST_INSTANT))


def _any_of(data: Mapping[str, Any]) -> Timing:
    return AnyTiming(tuple(timing_from_json(part) for part in data["parts"]))


def _bounded(data: Mapping[str, Any]) -> Timing:
    start, end = (None if data[name] is None else _whole(data[name], -LAST_INSTANT) for name in ("start", "end"))
    return BoundedTiming(timing_from_json(data["timing"]), start, end)


def _calendar(data: Mapping[str, Any]) -> Timing:
    months, days = _whole(data["months"], 0), _whole(data["days"], 0)
    if months == days == 0:
        raise ScheduleError("It has no interval.")
    end = data["end"]
    return CalendarTiming(
        months=months,
        days=days,
        second=_whole(data["second"], 0),
        start=date.fromisoformat(data["start"]),
        end=None if end is None else date.fromisoformat(end),
        timezone=data["timezone"],
    )


def _apscheduler_cron(data: Mapping[str, Any]) -> Timing:
    # Here, because most apps have none and should not pay for importing it.
    from .apscheduler_cron import TriggerCronTiming

    return TriggerCronTiming.of(data["fields"], data["timezone"])


_KINDS: dict[str, Callable[[Mapping[str, Any]], Timing]] = {
    "cron": _cron,
    "every": _every,
    "at": _at,
    "any_of": _any_of,
    "bounded": _bounded,
    "calendar": _calendar,
    "apscheduler_cron": _apscheduler_cron,
}


def _whole(value: Any, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LAST_INSTANT:
        raise ScheduleError(f"{quoted(value)} is no number that can be used.")
    return value
