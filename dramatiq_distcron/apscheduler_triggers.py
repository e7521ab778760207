"""APScheduler 3's triggers as schedules.

They are read, not asked: what one answers depends on what it is told of before, on when its process started, and at
clock changes on luck (the project's research page on cron, section 8). What is read gets our own arithmetic, and is
stored as plain data, never as a pickle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from .calendar_timing import CalendarTiming
from .clock import local_date
from .durations import LAST_INSTANT, instant_ms, milliseconds
from .errors import ScheduleError, quoted
from .schedules import Schedule, made, refuse_unknown_options
from .timings import AtTiming, EveryTiming, Timing
from .zones import UnknownZone, load_zone

if TYPE_CHECKING:
    from datetime import date

    from apscheduler.triggers.base import BaseTrigger
    from typing_extensions import Unpack

    from .schedules import ScheduleOptions

__all__ = ["from_apscheduler"]

#: A timing, and the policies that belong to it.
_Read = tuple[Timing, dict[str, Any]]

_INSTEAD = {
    "OrTrigger": "Its parts disturb each other; use any_of(from_apscheduler(...), from_apscheduler(...)).",
    "AndTrigger": "It may look for a common time for ever; write one cron(...) that says both.",
}


def from_apscheduler(
    trigger: BaseTrigger, *, anchored: bool = False, tz: str | None = None, **options: Unpack[ScheduleOptions]
) -> Schedule:
    """The schedule of an APScheduler 3 trigger: Cron, Interval, Date or CalendarInterval.

    A CronTrigger keeps its own numbering (weekday 0 is Monday, also if it comes from ``from_crontab``) and gets cron's
    rules at clock changes. Its zone is the host's unless it was given one. Interval and CalendarInterval need the
    ``start_date`` they count from: without, each process would count from its own start.

    Parameters:
      trigger: exactly of one of these classes.
      anchored: says that the ``start_date`` of a CalendarIntervalTrigger was given. It is needed on the one day that
        the date is today, as a trigger that was given none has that one too.
      tz: says which zone the trigger was given. One in another zone is refused: it was given none, and took that of
        this host. Without ``tz=``, ``check`` warns of a trigger in the zone of the host.
      **options: see :class:`~dramatiq_distcron.schedules.ScheduleOptions`.

    Raises:
      ConfigurationError: it cannot be the same on every host, never fires, or is of another kind; or an option cannot
        be used.
    """
    refuse_unknown_options("from_apscheduler()", options, {"anchored", "tz"})
    if not isinstance(anchored, bool):
        raise ScheduleError(f"anchored must be True or False, not {quoted(anchored)}.")
    timing, policies = _read(trigger)
    notes = _notes_on_zone(trigger, tz)
    if isinstance(timing, CalendarTiming) and not anchored:
        _refuse_today(timing.start)
    for name, value in policies.items():
        if value is not None and name in options:
            raise ScheduleError(f"The trigger has {name}_date and the schedule {name}=: leave one of them out.")
    return made(timing, {**{name: value for name, value in policies.items() if value is not None}, **options}, notes)


def _notes_on_zone(trigger: Any, tz: str | None) -> tuple[str, ...]:
    """A zone that is the host's is what a trigger takes that was given none, and other hosts may have another."""
    zone = getattr(trigger, "timezone", None) or trigger.run_date.tzinfo
    if tz is not None:
        load_zone(tz)
        if str(zone) != tz:
            raise ScheduleError(f"The trigger is in the zone {zone}, and tz= says {tz}. Give it timezone={tz!r}.")
        return ()
    # Of an explicit "UTC", APScheduler makes one that is no ZoneInfo.
    local = _local_zone()
    if local is None or getattr(zone, "key", None) != local:
        return ()
    return (
        f"the trigger's zone {zone} is that of this host, as of a trigger that was given none, and other hosts may "
        f"have another; give it timezone={str(zone)!r}, and say so: from_apscheduler(trigger, tz={str(zone)!r})",
    )


def _local_zone() -> str | None:
    """The name of the host's zone; ``None``: it has none, or not one that is known."""
    from apscheduler.triggers.cron import get_localzone

    try:
        return getattr(get_localzone(), "key", None)
    except Exception:
        # A host whose zone is set to nonsense; the trigger has its own then.
        return None


def _read(trigger: Any) -> _Read:
    from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
    from apscheduler.triggers.cron import CronTrigger
    from apscheduler.triggers.date import DateTrigger
    from apscheduler.triggers.interval import IntervalTrigger

    readers: Mapping[type, Callable[[Any], _Read]] = {
        CronTrigger: _cron,
        IntervalTrigger: _interval,
        DateTrigger: _date,
        CalendarIntervalTrigger: _calendar,
    }
    read = readers.get(type(trigger))
    if read is None:
        _refuse_kind(trigger)
    if getattr(trigger, "jitter", None):
        raise ScheduleError(
            "A trigger with jitter= fires at another time on each host. Leave it out and give the schedule spread=, "
            "which is the same everywhere."
        )
    return read(trigger)


def _refuse_kind(trigger: Any) -> NoReturn:
    kind = type(trigger).__name__
    known = "CronTrigger, IntervalTrigger, DateTrigger and CalendarIntervalTrigger of APScheduler 3"
    hint = _INSTEAD.get(kind, "What it would answer is not known to be the same on every host.")
    if hasattr(trigger, "next") and not hasattr(trigger, "get_next_fire_time"):
        hint = "It is one of APScheduler 4, which changes whenever it is asked."
    raise ScheduleError(f"from_apscheduler() takes {known}, not {kind}. {hint}")


def _cron(trigger: Any) -> _Read:
    from .apscheduler_cron import TriggerCronTiming

    fields = {field.name: str(field) for field in trigger.fields if not field.is_default}
    timing = TriggerCronTiming.of(fields, _zone_name(trigger.timezone))
    if timing.next_ms(0) is None:
        raise ScheduleError(f"The trigger {trigger} never fires: no date has all of its fields.")
    return timing, {"start": trigger.start_date, "end": trigger.end_date}


def _interval(trigger: Any) -> _Read:
    _refuse_clock(trigger.start_date, "IntervalTrigger", "start_date")
    interval = milliseconds(trigger.interval, "The interval of the trigger", minimum=1000)
    timing = EveryTiming(interval, instant_ms(trigger.start_date, "start_date"))
    return timing, {"start": trigger.start_date, "end": trigger.end_date}


def _date(trigger: Any) -> _Read:
    _refuse_clock(trigger.run_date, "DateTrigger", "run_date")
    return AtTiming(instant_ms(trigger.run_date, "run_date")), {}


def _calendar(trigger: Any) -> _Read:
    months, days = trigger.years * 12 + trigger.months, trigger.weeks * 7 + trigger.days
    if not all(isinstance(number, int) and number >= 0 for number in (months, days)) or months == days == 0:
        raise ScheduleError(f"{trigger} has no interval of whole months and days that goes forward.")
    time = trigger._time
    timing = CalendarTiming(
        months=months,
        days=days,
        second=time.hour * 3600 + time.minute * 60 + time.second,
        start=trigger.start_date,
        end=trigger.end_date,
        timezone=_zone_name(trigger.timezone),
    )
    if timing.next_ms(-LAST_INSTANT) is None:
        raise ScheduleError(f"The trigger {trigger} never fires.")
    return timing, {}


def _refuse_today(start: date) -> None:
    """A date that is today is what a trigger takes that was given none."""
    if start == local_date():
        raise ScheduleError(
            "The start_date of the CalendarIntervalTrigger is today, as it is for one that was given none, and that "
            "changes with each start of a process. If you gave it, say so: from_apscheduler(trigger, anchored=True)."
        )


def _refuse_clock(instant: datetime, kind: str, name: str) -> None:
    """A time with microseconds is one that was read off the clock: a trigger that was given none takes the present."""
    if instant.microsecond:
        raise ScheduleError(
            f"The {kind} has no {name}, or one taken from the clock, so that each process would have another. Give it "
            f"one in whole seconds: {kind}(..., {name}=datetime(2026, 1, 1, tzinfo=timezone.utc))."
        )


def _zone_name(zone: Any) -> str:
    """The IANA name of a zone of zoneinfo, pytz or the standard library."""
    name = getattr(zone, "key", None) or getattr(zone, "zone", None) or str(zone)
    try:
        load_zone(name)
    except UnknownZone as error:
        raise UnknownZone(
            f"The trigger's zone cannot be named on every host; give it timezone='Europe/Berlin': {error}"
        ) from None
    return str(name)
