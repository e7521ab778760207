"""What users write: when something happens, and how each fire time is dealt with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, runtime_checkable

from .cron_expression import parse
from .durations import Duration, instant_ms, milliseconds, utc
from .errors import ConfigurationError, ScheduleError, quoted
from .policies import Policy, PolicyOptions, checked_policy
from .suggestions import refuse_unknown
from .timings import AnyTiming, AtTiming, BoundedTiming, CronTiming, EveryTiming, Timing
from .zones import load_zone

if TYPE_CHECKING:
    from dramatiq import Actor
    from typing_extensions import Unpack

__all__ = [
    "Schedule",
    "ScheduleHost",
    "ScheduleOptions",
    "any_of",
    "at",
    "cron",
    "every",
    "made",
    "name_of",
    "refuse_unknown_options",
]

P = ParamSpec("P")
R = TypeVar("R")


class ScheduleOptions(PolicyOptions, total=False):
    """The options of every kind of schedule; those of its policies are described there.

    Attributes:
      name: the schedule's name; the actor's name unless given.
      args, kwargs: what the actor is called with.
      options: options of the message, as for ``send_with_options``; ``delay`` and ``eta`` are refused.
    """

    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any]


_OPTIONS = frozenset(ScheduleOptions.__annotations__) | frozenset(PolicyOptions.__annotations__)
_POLICIES = frozenset(PolicyOptions.__annotations__)
#: Those that say when, and may be a part's own.
_BOUNDS = frozenset({"start", "end"})
#: Message options that would move a tick to another time, or are ours or the broker's.
_RESERVED = {
    "delay": "A tick's time is its schedule's.",
    "eta": "A tick's time is its schedule's.",
    "distcron": "It says which tick a message belongs to.",
    "redis_message_id": "The broker gives it.",
}


@runtime_checkable
class ScheduleHost(Protocol):
    """The middleware that takes schedules in."""

    def add_schedule(self, actor: Actor[Any, Any], schedule: Schedule) -> None: ...


@dataclass(frozen=True, eq=False)
class Schedule:
    """When an actor is to be run, made by :func:`cron`, :func:`every` and the like.

    Give it to an actor with ``@dramatiq.actor(periodic=...)``, or put it as a decorator above ``@dramatiq.actor``.
    """

    timing: Timing
    name: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)
    #: What is to be told of how it was made.
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Also ``dataclasses.replace`` comes by here."""
        if not isinstance(self.timing, Timing):
            raise ScheduleError(
                f"A schedule is made by cron('0 3 * * *'), every(60), at() or any_of(), not of {quoted(self.timing)}."
            )
        _checked_name(self.name)

    def next_after(self, instant: datetime) -> datetime | None:
        """The first fire time strictly after ``instant``, in UTC; ``None`` if there is none.

        Raises:
          ConfigurationError: ``instant`` is naive, or the times depend on the name (``H``) and it has none.
        """
        timing = self.timing if self.name is None else self.timing.bind(self.name, "UTC")
        after = instant_ms(instant, "The instant")
        found = timing.next_within(after, self.policy.get("start"), self.policy.get("end"))
        return None if found is None else utc(found)

    def warnings(self) -> tuple[str, ...]:
        """What is valid but often not meant, one sentence each."""
        return (*self.notes, *self.timing.warnings())

    def __call__(self, actor: Actor[P, R]) -> Actor[P, R]:
        """Gives this schedule to ``actor``.

        Raises:
          ConfigurationError: the actor's broker has no DistCron middleware, or it is not an actor.
        """
        broker = getattr(actor, "broker", None)
        if broker is None:
            raise ConfigurationError(
                f"A schedule decorates an actor, not {quoted(actor)}. Put it above @dramatiq.actor, not below."
            )
        for middleware in broker.middleware:
            if isinstance(middleware, ScheduleHost):
                middleware.add_schedule(actor, self)
                return actor
        raise ConfigurationError(
            f"The broker of actor {actor.actor_name!r} has no DistCron middleware. "
            "Call dramatiq_distcron.install(broker) before the actors are declared."
        )

    def __repr__(self) -> str:
        return f"<{self.timing.kind} {self.timing.expression!r}{f' of {self.name!r}' if self.name else ''}>"


def cron(
    expression: str,
    *,
    tz: str | None = None,
    seconds: Literal["first", "last"] | None = None,
    **options: Unpack[ScheduleOptions],
) -> Schedule:
    """At the times of a cron expression, by the rules of Debian's cron (see the explanation of time).

    Parameters:
      expression: five fields (``"*/5 8-18 * * mon-fri"``), or six if ``seconds`` says where the seconds are.
      tz: IANA name of the zone it is read in; the one of ``DistCron`` unless given.
      seconds: ``"first"`` or ``"last"`` for six fields.
      **options: see :class:`~dramatiq_distcron.schedules.ScheduleOptions`.

    Raises:
      InvalidCronExpression: the expression is not accepted; the message says why.
      ConfigurationError: a zone or an option cannot be used.
    """
    refuse_unknown_options("cron()", options, {"tz", "seconds"})
    if tz is not None:
        load_zone(tz)
    return made(CronTiming(parse(expression, seconds=seconds), tz), options)


def every(
    interval: Duration | None = None,
    *,
    weeks: float = 0,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    anchor: datetime | None = None,
    **options: Unpack[ScheduleOptions],
) -> Schedule:
    """At ``anchor`` plus every multiple of an interval, in whole milliseconds: it never drifts.

    A day is 24 hours here, whatever the clocks do; for "every day at 3" use ``cron("0 3 * * *", tz=...)``.

    Parameters:
      interval: seconds or a ``timedelta``, at least one second.
      weeks, days, hours, minutes, seconds: the interval in parts.
      anchor: an aware datetime that is on the grid; the start of 1970 in UTC unless given.
      **options: see :class:`~dramatiq_distcron.schedules.ScheduleOptions`.

    Raises:
      ConfigurationError: no interval, one below a second, a naive anchor, or an option that cannot be used.
    """
    refuse_unknown_options("every()", options, {"weeks", "days", "hours", "minutes", "seconds", "anchor"})
    if any(isinstance(part, bool) for part in (weeks, days, hours, minutes, seconds)):
        raise ScheduleError("The parts of every() are numbers, such as every(minutes=5), not True or False.")
    try:
        parts = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    except (OverflowError, ValueError, TypeError) as error:
        raise ScheduleError(f"The interval of every() cannot be used: {error}") from None
    if (interval is None) == (parts == timedelta(0)):
        raise ScheduleError("every() needs one interval: every(30), every(minutes=5) or every(timedelta(...)).")
    length = milliseconds(
        parts.total_seconds() if interval is None else interval, "The interval of every()", minimum=1000
    )
    start = 0 if anchor is None else instant_ms(anchor, "The anchor of every()")
    return made(EveryTiming(length, start), options)


def at(instant: datetime, **options: Unpack[ScheduleOptions]) -> Schedule:
    """Once, at ``instant``. A schedule that is stored after it never fires.

    Parameters:
      instant: an aware datetime; cut to the millisecond.
      **options: see :class:`~dramatiq_distcron.schedules.ScheduleOptions`.

    Raises:
      ConfigurationError: it is naive, or an option cannot be used.
    """
    refuse_unknown_options("at()", options)
    return made(AtTiming(instant_ms(instant, "The instant of at()")), options)


def any_of(*schedules: Schedule, **options: Unpack[ScheduleOptions]) -> Schedule:
    """Whenever one of ``schedules`` says so. A time that several of them have is one fire time.

    Parameters:
      *schedules: two or more, without options of their own but ``start`` and ``end``: what is made is one schedule,
        with one name.
      **options: see :class:`~dramatiq_distcron.schedules.ScheduleOptions`.

    Raises:
      ConfigurationError: there are fewer than two, one has options, or an option cannot be used.
    """
    refuse_unknown_options("any_of()", options)
    if len(schedules) < 2:
        raise ScheduleError("any_of() joins two schedules or more: any_of(cron('0 9 * * 1-5'), cron('0 12 * * 6'))")
    for schedule in schedules:
        if not isinstance(schedule, Schedule):
            raise ScheduleError(f"any_of() joins schedules such as cron(...), not {quoted(schedule)}.")
        if any((schedule.name, schedule.args, schedule.kwargs, schedule.options, schedule.policy.keys() - _BOUNDS)):
            raise ScheduleError(
                f"any_of() makes one schedule of several: give its options to it, not to {quoted(schedule)}."
            )
    notes = tuple(note for schedule in schedules for note in schedule.notes)
    return made(AnyTiming(tuple(_part(schedule) for schedule in schedules)), options, notes)


def _part(schedule: Schedule) -> Timing:
    """When a part of :func:`any_of` fires: within its own bounds, as a trigger has them that counts from a date."""
    if schedule.policy.keys().isdisjoint(_BOUNDS):
        return schedule.timing
    within = Policy().overridden(schedule.policy)
    return BoundedTiming(schedule.timing, within.start, within.end)


def refuse_unknown_options(maker: str, options: Mapping[str, Any], own: Set[str] = frozenset()) -> None:
    """Raises ``ConfigurationError`` for an option that neither every schedule has nor the maker's ``own`` are."""
    refuse_unknown({name: None for name in options if name not in _OPTIONS}, _OPTIONS | own, maker)


def made(timing: Timing, options: Mapping[str, Any], notes: tuple[str, ...] = ()) -> Schedule:
    """The schedule of a timing and the options of every kind. Raises ``ConfigurationError`` if one cannot be used."""
    return Schedule(
        timing,
        name=_checked_name(options.get("name")),
        args=_checked_args(options.get("args", ())),
        kwargs=_checked_mapping(options.get("kwargs", {}), "kwargs"),
        options=_checked_message_options(_checked_mapping(options.get("options", {}), "options")),
        policy=checked_policy({name: value for name, value in options.items() if name in _POLICIES}),
        notes=notes,
    )


def name_of(schedule: Schedule, actor_name: str) -> str:
    """The name a schedule has on an actor: its own, else the actor's.

    Raises:
      ScheduleError: it has none, and that of the actor cannot be one.
    """
    if schedule.name is not None:
        return schedule.name
    if not _can_be_a_name(actor_name):
        raise ScheduleError(
            f"A schedule without a name has that of its actor, and {quoted(actor_name)} cannot be one: {_NAMES}. "
            "Give the schedule a name: name='...'."
        )
    return actor_name


#: What a name is like: it is shown in tables and logs, and is part of what is stored of each tick.
_NAMES = "a schedule's name must be 1 to 200 printable characters"


def _can_be_a_name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable()


def _checked_name(name: Any) -> str | None:
    if name is not None and not _can_be_a_name(name):
        raise ScheduleError(f"{_NAMES.capitalize()}, not {quoted(name)}.")
    return name  # type: ignore[no-any-return]


def _checked_args(args: Any) -> tuple[Any, ...]:
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise ScheduleError(f"args must be a list or tuple of the actor's arguments, not {quoted(args)}.")
    _refuse_depth(args, "args")
    return tuple(args)


def _checked_mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ScheduleError(f"{what} must be a dict with names as keys, not {quoted(value)}.")
    _refuse_depth(value, what)
    return dict(value)


#: So deep may arguments be nested. Whoever encodes, copies or decodes them does so by recursion, in a stack that
#: may be deep already: what goes through here must go through at a worker.
_DEEPEST = 100


def _refuse_depth(value: Any, what: str) -> None:
    """Raises ``ScheduleError`` if something nested too deep, or itself, is in ``value``."""
    level = [value]
    for _ in range(_DEEPEST):
        # By identity: what is there twice is looked at once, or a few lists could be as many as there are atoms.
        level = list({id(one): one for outer in level for one in _inner(outer)}.values())
        if not level:
            return
    raise ScheduleError(
        f"{what} is nested more than {_DEEPEST} deep, or contains itself, so that it may not get through to a worker. "
        "Make it flatter, or give the actor a key under which it finds it."
    )


def _inner(outer: Any) -> list[Any]:
    """The containers in a container."""
    inside = outer.values() if isinstance(outer, Mapping) else outer
    return [one for one in inside if isinstance(one, (Mapping, list, tuple, Set))]


def _checked_message_options(options: dict[str, Any]) -> dict[str, Any]:
    for name, reason in _RESERVED.items():
        if name in options:
            raise ScheduleError(f"The message option {name!r} cannot be set by a schedule. {reason}")
    return options
