"""Working with stored schedules: look at them, change them, run one now."""

from __future__ import annotations

import builtins
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import edits
from ..arguments import refuse_misfit
from ..durations import instant_ms, iso
from ..errors import (
    ConfigurationError,
    ConflictError,
    NotFoundError,
    ScheduleError,
    StoreRefused,
    StoreUnavailable,
    quoted,
)
from ..letters import DLQ_ACTOR
from ..logs import get_logger
from ..schedules import name_of
from ..specs import NotForUs, Spec, parse_spec, resolve
from ..store.base import NEVER, REMEMBERED, Edit, Guard, Stored
from ..suggestions import did_you_mean
from .asked import checked_limit, checked_name, checked_reason
from .infos import ScheduleInfo, TickInfo, schedule_info, tick_info
from .others import tell_others
from .triggering import try_trigger
from .wanted import checked_pairs, refuse_nameless

if TYPE_CHECKING:
    from dramatiq import Actor, Broker, Message

    from ..backends import Backend
    from ..config import Settings
    from ..schedules import Schedule

__all__ = ["Schedules"]

#: How many edits are sent at once.
_BATCH = 100
#: How often an edit is tried anew because somebody else's came in between.
_ATTEMPTS = 40
#: The longest pause between two attempts, in seconds: at first for each attempt before, and at last.
_PAUSE, _LONGEST_PAUSE = 0.005, 0.05

#: From a name to its last fire time that has an outcome. It is read for all of them when it is asked for first.
_Decided: TypeAlias = Callable[[str], "int | None"]
#: From what is stored, the name and the present to the edit, if one is needed.
_MakesEdit: TypeAlias = Callable[["Stored | None", str, int, _Decided], "Edit | None"]


class Schedules:
    """The schedules of one app, as they are stored.

    Parameters:
      broker: declares the actors, as far as their code is loaded.
      settings: the defaults of new schedules.
      backend: opens the store.
    """

    def __init__(self, broker: Broker, settings: Settings, backend: Callable[[], Backend]) -> None:
        self._broker = broker
        self._settings = settings
        self._backend = backend

    def list(self) -> builtins.list[ScheduleInfo]:
        """Every schedule, by name."""
        store = self._backend().store
        stored = sorted(store.scan(), key=lambda one: one.name)
        last = store.last([one.name for one in stored])
        now = store.now()
        return [schedule_info(one, last.get(one.name), now) for one in stored]

    def get(self, name: str) -> ScheduleInfo:
        """One schedule. Raises ``NotFoundError`` with the nearest name if there is none."""
        stored, store = self._stored(checked_name(name, "get")), self._backend().store
        return schedule_info(stored, store.last([name]).get(name), store.now())

    def history(self, name: str | None = None, *, limit: int = 100) -> builtins.list[TickInfo]:
        """The newest records first, of one schedule or of all. Old ones go by the history's size.

        Raises:
          NotFoundError: nothing is known of a schedule of that name.
          ConfigurationError: ``name`` is no name, or ``limit`` no whole number from 1.
        """
        limit = checked_limit(limit)
        name = None if name is None else checked_name(name, "history")
        store = self._backend().store
        last = store.last([name] if name is not None else [one.name for one in store.scan()])
        found = [tick_info(name, fields) for name, fields in last.items() if fields.get("open") and fields["outcome"]]
        found += [tick_info(one.schedule, one.fields, one) for one in store.history(name, limit)]
        if not found and name is not None:
            self._stored(name)
        return sorted(found, key=lambda tick: tick.decided_at, reverse=True)[:limit]

    # -- changing them --------------------------------------------------------------------------------------

    def put(self, schedule: Schedule, actor: Actor[Any, Any] | str) -> None:
        """Adds a schedule, or changes the one of that name; in force at once, without a restart.

        What was due under the old one gets its outcome. The cursor stays where it is unless the times change.

        Parameters:
          schedule: its ``name=`` is the key, so give it one. Without, it is the actor's name, and a schedule of that
            name with other arguments is not replaced.
          actor: the actor, or its name; a name must be declared here or known from a running process of the app.

        Raises:
          ConflictError: a schedule of that name is defined in code.
          ConfigurationError: it cannot be used; nothing was stored.
          StoreRefused, StoreUnavailable: it may not be stored.
        """
        self.put_many([(schedule, actor)])

    def put_many(self, schedules: Iterable[tuple[Schedule, Actor[Any, Any] | str]]) -> None:
        """As :meth:`put`, for many pairs of schedule and actor. All are checked before the first is stored."""
        specs: dict[str, Spec] = {}
        nameless = set()
        for schedule, actor in checked_pairs(schedules):
            spec = self._spec(schedule, actor)
            if spec.name in specs:
                hint = "" if schedule.name else " Without one it has the actor's: give each name='...'."
                raise ConflictError(
                    f"Two of the schedules are named {spec.name!r}. A name stands for one schedule.{hint}"
                )
            specs[spec.name] = spec
            nameless |= set() if schedule.name else {spec.name}
        specs = self._backend().checked(specs)
        self._refuse_nameless([specs[name] for name in sorted(nameless)])
        idle: set[str] = set()

        def make(stored: Stored | None, name: str, now: int, decided: _Decided) -> Edit:
            edit = _put(stored, specs[name], decided, now)
            if edit.score == NEVER and (stored is None or stored.score != NEVER):
                idle.add(name)
            return edit

        self._edit(list(specs), make)
        if idle:
            # One that was to fire a moment ago is easily put: it is no error, and must not go unnoticed.
            get_logger(__name__, Schedules).warning(
                "%s was put, and never fires: it has no fire time to come.", ", ".join(map(repr, sorted(idle)))[:500]
            )

    def _refuse_nameless(self, specs: Sequence[Spec]) -> None:
        stored = self._backend().store.get([spec.name for spec in specs]) if specs else {}
        for spec in specs:
            if spec.name in stored:
                refuse_nameless(_parsed(stored[spec.name]), spec)

    def remove(self, name: str) -> None:
        """Removes a schedule that came by the API.

        Raises:
          NotFoundError: there is none of that name.
          ConflictError: it is defined in code, which would bring it back.
        """
        name = checked_name(name, "remove")
        self._edit([name], lambda stored, _, now, __: _remove(self._found(stored, name), now))

    def pause(self, name: str, *, reason: str = "", until: datetime | None = None) -> None:
        """From now on the schedule's fire times are recorded as ``paused``, and are not made up for later.

        Parameters:
          until: an aware datetime to come, at which it goes on by itself.

        Raises:
          NotFoundError: there is none of that name.
          ConfigurationError: ``until`` has passed, by the store's clock, or is no instant, or ``reason`` is no text.
        """
        name, reason = checked_name(name, "pause"), checked_reason(reason)
        end = None if until is None else instant_ms(until, "until")
        self._edit([name], lambda stored, _, now, __: _pause(self._found(stored, name), reason, end, now))

    def resume(self, name: str) -> bool:
        """The schedule fires again, from now on. Raises ``NotFoundError`` if there is none of that name.

        Returns:
          Whether it was paused.
        """
        name = checked_name(name, "resume")
        was_paused = False

        def make(stored: Stored | None, _: str, now: int, __: _Decided) -> Edit | None:
            nonlocal was_paused
            edit = _resume(self._found(stored, name), now)
            was_paused |= edit is not None
            return edit

        self._edit([name], make)
        return was_paused

    def _spec(self, schedule: Schedule, actor: Actor[Any, Any] | str) -> Spec:
        actor_name = actor if isinstance(actor, str) else actor.actor_name
        declared = self._broker.actors.get(actor_name)
        name = name_of(schedule, actor_name)
        if declared is not None:
            refuse_misfit(schedule, declared)
        return resolve(
            schedule,
            name=name,
            actor=actor_name,
            queue=self._queue(actor_name),
            tz=self._settings.tz,
            policy=self._settings.policy,
            source="api",
        )

    def _queue(self, actor_name: str) -> str:
        """The queue of an actor, from its code or from what running processes tell."""
        declared = self._broker.actors.get(actor_name)
        if declared is not None:
            return declared.queue_name
        told: dict[str, str] = {}
        for one in self._backend().store.instances(keep=REMEMBERED):
            told.update(one.data.get("actors", {}))
        if actor_name not in told:
            known = {*self._broker.actors, *told} - {DLQ_ACTOR}
            raise ConfigurationError(
                f"No actor {quoted(actor_name)} is declared here or told of by a running beat or worker. "
                f"{did_you_mean(actor_name, known)}"
            )
        return told[actor_name]

    def _edit(self, names: Sequence[str], make: _MakesEdit) -> None:
        """Reads the schedules, makes the edits, and does so again for those that changed in between."""
        left = list(names)
        for attempt in range(_ATTEMPTS):
            left = self._try_edit(left, make)
            if not left:
                return
            # Whoever else edits it is to get through before we try again.
            time.sleep(random.uniform(0, min(_LONGEST_PAUSE, _PAUSE * attempt)))
        raise StoreUnavailable(
            f"Schedule {left[0]!r} could not be edited: it changed each time between reading and writing. Try again. "
            "If its cursor in Redis was set by hand, it must be a whole number."
        )

    def _try_edit(self, names: Sequence[str], make: _MakesEdit) -> builtins.list[str]:
        """Returns the names of those that changed between reading and writing."""
        store = self._backend().store
        stored = store.get(names)
        # After the reading: what a leader decided up to then is not decided again.
        now = store.now()

        @cache
        def last() -> Mapping[str, int]:
            return {name: int(one["fire_time_to"]) for name, one in store.last(list(stored)).items()}

        made = [make(stored.get(name), name, now, lambda name: last().get(name)) for name in names]
        edits = [edit for edit in made if edit is not None]
        changed: builtins.list[str] = []
        for start in range(0, len(edits), _BATCH):
            some = edits[start : start + _BATCH]
            answers = store.edit(Guard("", 0, now), some) or []
            changed += [edit.name for edit, answer in zip(some, answers, strict=True) if answer == "stale"]
            _refuse_failed(some, answers)
        return changed

    def _found(self, stored: Stored | None, name: str) -> Stored:
        if stored is None:
            raise self._no_such(name)
        return stored

    # -- running one now ------------------------------------------------------------------------------------

    def trigger(self, name: str) -> Message[Any]:
        """Enqueues the schedule's message now, beside its fire times, which it leaves alone.

        Raises:
          NotFoundError: there is no schedule of that name.
          RunOutstanding: its runs must not overlap, and one is not over.
          ScheduleError: its stored form cannot be used here.
          StoreRefused: the store does not let us; nothing was sent.
          StoreUnavailable: whether it was sent is not known; look at the history.
        """
        name = checked_name(name, "trigger")
        for _ in range(_ATTEMPTS):
            stored = self._stored(name)
            message = try_trigger(self._broker, self._backend(), stored, _usable(stored))
            if message is not None:
                return message
        raise StoreUnavailable(
            f"Schedule {name!r} was not triggered: it changed each time between reading and writing. Try again."
        )

    def _stored(self, name: str) -> Stored:
        found = self._backend().store.get([name]).get(name)
        if found is None:
            raise self._no_such(name)
        return found

    def _no_such(self, name: str) -> NotFoundError:
        backend = self._backend()
        names = [one.name for one in backend.store.scan()]
        if names:
            hint = did_you_mean(name, names)
        else:
            place = f"app {self._settings.app!r} in namespace {backend.namespace!r} of {backend.where}"
            hint = f"None is known of {place}. {tell_others(backend)}".rstrip()
        return NotFoundError(f"There is no schedule {quoted(name)}. {hint}")


def _put(stored: Stored | None, wanted: Spec, decided: _Decided, now: int) -> Edit:
    if stored is None:
        return edits.add(wanted, now)
    found = _parsed(stored)
    if found is not None and found.source == "code" and not found.retired:
        raise ConflictError(
            f"Schedule {wanted.name!r} is defined in code, which is the truth for it: change it there, or choose "
            "another name."
        )
    if found is None or (stored.score is None and not found.retired):
        return edits.restore(stored, found, wanted, decided(wanted.name), now)
    change = edits.return_ if found.retired else edits.change
    return change(stored, found, wanted, now, None if found.times == wanted.times else decided(wanted.name))


def _remove(stored: Stored, now: int) -> Edit:
    found = _parsed(stored)
    if found is not None and found.source == "code" and not found.retired:
        raise ConflictError(
            f"Schedule {stored.name!r} is defined in code, which would bring it back: remove it there, or pause it."
        )
    return edits.remove(stored, found, now)


def _pause(stored: Stored, reason: str, until: int | None, now: int) -> Edit:
    spec = _usable(stored)
    if until is not None and until <= now:
        raise ConfigurationError(
            f"The pause of {stored.name!r} would be over before it begins: until={iso(until)} has passed, as it is "
            f"{iso(now)}. Give it an instant to come, or none: then it lasts until resume()."
        )
    return edits.pause(stored, spec, reason, until, now)


def _resume(stored: Stored, now: int) -> Edit | None:
    found = _usable(stored)
    return None if found.paused is None else edits.resume(stored, found, now)


def _parsed(stored: Stored) -> Spec | None:
    """The spec of a stored schedule. ``None``: it cannot be used. Raises ``NotForUs`` if a newer version can."""
    try:
        return _usable(stored)
    except NotForUs:
        raise
    except ScheduleError:
        return None


def _usable(stored: Stored) -> Spec:
    """The spec of a stored schedule. Raises ``ScheduleError`` if it cannot be used here."""
    try:
        return parse_spec(stored.spec)
    except ScheduleError as error:
        raise type(error)(f"Schedule {stored.name!r} cannot be used here. {error}") from error


def _refuse_failed(some: Sequence[Edit], answers: Sequence[str]) -> None:
    failed = [f"{edit.name!r}: {answer}" for edit, answer in zip(some, answers, strict=True) if "failed" in answer]
    if failed:
        raise StoreRefused(f"The store refused {len(failed)} of {len(some)} schedules. {failed[0]}")
