"""What users give to ``put``: is it a schedule and an actor, and is it told from what is stored already?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dramatiq import Actor, GenericActor

from ..arguments import decode_payload
from ..errors import ConfigurationError, ScheduleError, quoted
from ..schedules import Schedule
from ..specs import Spec

__all__ = ["checked_pairs", "refuse_nameless"]

#: A schedule and whom it runs.
Pair = tuple[Schedule, "Actor[Any, Any] | str"]

_MANY = "put_many() takes pairs of a schedule and an actor, [(cron('0 3 * * *', name='a'), actor), ...]"


def checked_pairs(schedules: Iterable[Any]) -> list[Pair]:
    """The pairs that ``put_many`` was given. Raises ``ConfigurationError`` with what to write instead."""
    if isinstance(schedules, (str, bytes, Mapping)) or not isinstance(schedules, Iterable):
        hint = " Of a dict, give its items()." if isinstance(schedules, Mapping) else ""
        raise ConfigurationError(f"{_MANY}, not {quoted(schedules)}.{hint}")
    return [_checked_pair(one) for one in schedules]


def _checked_pair(pair: Any) -> Pair:
    if isinstance(pair, (str, bytes)) or not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ConfigurationError(f"{_MANY}; {quoted(pair)} is no pair.")
    schedule, actor = pair
    if isinstance(schedule, (Actor, str)) and isinstance(actor, Schedule):
        raise ConfigurationError(f"The schedule comes first, then the actor: put({quoted(actor)}, {quoted(schedule)}).")
    _refuse_no_schedule(schedule)
    if isinstance(actor, GenericActor):
        # The class stands for the actor that was made of it.
        actor = vars(actor).get("__actor__", actor)
    _refuse_no_actor(actor)
    return schedule, actor


def _refuse_no_schedule(schedule: Any) -> None:
    if isinstance(schedule, Schedule):
        return
    hint = f" Did you mean cron({quoted(schedule)})?" if isinstance(schedule, str) else ""
    raise ConfigurationError(
        f"A schedule such as cron('0 3 * * *') or every(60) is put, each with one actor, not {quoted(schedule)}.{hint}"
    )


def _refuse_no_actor(actor: Any) -> None:
    if isinstance(actor, (Actor, str)):
        return
    if callable(actor):
        name = getattr(actor, "__name__", repr(actor))
        hint = f"{name} is no actor: put @dramatiq.actor above it, and give the actor or its name."
    else:
        hint = f"It is not {quoted(actor)}."
    raise ConfigurationError(f"put() takes an actor or its name beside the schedule. {hint}")


def refuse_nameless(found: Spec | None, wanted: Spec) -> None:
    """A schedule that was given no name must not take the place of one with other arguments: of a loop, say.

    Raises:
      ConfigurationError: it would.
    """
    if found is None or found.retired is not None:
        return
    try:
        same = _arguments(found) == _arguments(wanted)
    except ScheduleError:
        return
    if not same:
        raise ConfigurationError(
            f"A schedule {wanted.name!r} is stored with other arguments, and this one has no name, so that it would "
            f"take its place. Give each a name: name='{wanted.name}:7'. To change the stored one, name it: "
            f"name={wanted.name!r}."
        )


def _arguments(spec: Spec) -> tuple[Any, Any]:
    payload = decode_payload(spec.payload)
    return list(payload["args"]), dict(payload["kwargs"])
