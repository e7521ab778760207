"""What a scenario is: who takes part, what happens by itself, and up to which bound."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cache
from typing import Any
from unittest import mock

from dramatiq_distcron import every
from dramatiq_distcron.schedules import Schedule
from dramatiq_distcron.store.memory import MemoryStore

from .calm import bring_to_an_end
from .explorer import Found, Report, explore, shorten
from .hosts import App, actor
from .world import START, Event, Rules, World

__all__ = ["NO_EDITS", "Scenario", "app", "at_second", "job", "passing", "stored", "stored_by_api"]


@dataclass(frozen=True)
class Scenario:
    """A beginning, and a bound.

    Attributes:
      name: a few words.
      begin: stores the schedules and starts the hosts.
      relieve: starts those who have to bring it to an end.
      rules: how the world is.
      events: what happens by itself, in this order, each at any moment.
      struck: the hosts, one letter each, that faults happen to; all if there is none.
      bounds: what is searched: pairs of faults and preemptions.
      faults: how many kills and lost replies there may be in one run.
      switches: how often a thread that could go on is left for another one.
      patches: what is other in the product's code than it is, by its full name.
      store: makes the store.
    """

    name: str
    begin: Callable[[World], None]
    relieve: Callable[[World], None]
    rules: Rules = field(default_factory=Rules)
    events: Sequence[Event] = ()
    struck: str = ""
    bounds: Sequence[tuple[int, int]] = ((1, 0),)
    faults: int = 1
    switches: int = 0
    patches: Mapping[str, Any] = field(default_factory=dict)
    store: Callable[..., MemoryStore] = MemoryStore

    def world(self) -> World:
        world = World(
            self.rules, self.store, self.events, faults=self.faults, struck=self.struck, switches=self.switches
        )
        self.begin(world)
        return world

    def finish(self, world: World) -> None:
        self.relieve(world)
        bring_to_an_end(world)

    def explore(self) -> Report:
        """Searches all of it. Raises ``Found``."""
        with self._patched():
            return explore(self.world, self.finish)

    def shortest(self, found: Found) -> Found:
        """What was found, without the steps that are not needed for it."""
        with self._patched():
            return shorten(self.world, self.finish, found)

    @contextmanager
    def _patched(self) -> Iterator[None]:
        # Worlds are thrown away by the thousand: the collector would look at all states again and again.
        gc.disable()
        with ExitStack() as stack:
            stack.callback(gc.enable)
            for target, stand_in in self.patches.items():
                stack.enter_context(mock.patch(target, stand_in))
            yield

    @property
    def bound(self) -> str:
        where = f" of {', '.join(self.struck)}" if self.struck and self.faults else ""
        return f"{_count(self.faults, 'fault')}{where}, {_count(self.switches, 'preemption')}"

    def within(self, faults: int, switches: int) -> Scenario:
        return replace(self, faults=faults, switches=switches)


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def passing(seconds: float) -> Event:
    """Time passes."""
    return Event(f"{seconds:g} s pass", lambda world: world.pass_time(round(seconds * 1000)))


def at_second(seconds: float) -> datetime:
    return datetime.fromtimestamp(START / 1000 + seconds, timezone.utc)


def job(seconds: int = 10, *, until: float = 30, **options: Any) -> Schedule:
    """A schedule with a few fire times, so that it comes to an end."""
    options.setdefault("name", "job")
    return every(seconds, end=at_second(until), **options)


@cache
def app(name: str, code: Callable[[], list[Schedule]] = list, by_outbox: bool = False, **stops: Any) -> App:
    """A process' code, with an actor ``work`` that has the schedules ``code()``."""
    return App(name, lambda broker: actor(broker, "work", periodic=code()), by_outbox=by_outbox, **stops)


def stored(world: World, code: Callable[[], list[Schedule]], by_outbox: bool = False) -> None:
    """The schedules of the code are stored, from the present on."""
    specs = app("code", code).specs.values()
    world.put(*(replace(spec, outbox=by_outbox) for spec in specs))


def stored_by_api(world: World, *schedules: Schedule) -> None:
    api = app("api").distcron.schedules
    world.put(*(api._spec(schedule, "work") for schedule in schedules))


#: Commands that only read what is never written where no schedule is edited, or the clock.
NO_EDITS = ("now", "scan", "get")
