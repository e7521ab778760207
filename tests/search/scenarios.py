"""What is searched: who takes part, what happens by itself, and up to which bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from typing import Any

from dramatiq_distcron import every
from dramatiq_distcron.schedules import Schedule
from dramatiq_distcron.store.memory import MemoryStore

from .hosts import App, BeatHost, actor
from .world import START, Event, Rules, World

__all__ = ["SCENARIOS", "Scenario", "passing"]


@dataclass(frozen=True)
class Scenario:
    """A beginning, and a bound.

    Attributes:
      name: a few words.
      begin: stores the schedules and starts the hosts.
      relieve: starts those who have to bring it to an end.
      rules: how the world is.
      events: what happens by itself, in this order, each at any moment.
      faults: how many kills and lost replies there may be in one run.
      switches: how often a thread that could go on is left for another one; ``None``: at every point.
    """

    name: str
    begin: Callable[[World], None]
    relieve: Callable[[World], None]
    rules: Rules = field(default_factory=Rules)
    events: Sequence[Event] = ()
    faults: int = 1
    switches: int | None = None

    def world(self, store: Callable[..., MemoryStore] = MemoryStore) -> World:
        world = World(self.rules, store, self.events, faults=self.faults, switches=self.switches)
        self.begin(world)
        return world


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


def stored(world: World, code: Callable[[], list[Schedule]]) -> None:
    """The schedules of the code are stored, from the present on."""
    world.put(*app("code", code).specs.values())


def stored_by_api(world: World, *schedules: Schedule) -> None:
    api = app("api").distcron.schedules
    world.put(*(api._spec(schedule, "work") for schedule in schedules))


#: Commands that only read what is never written where no schedule is edited, or the clock.
NO_EDITS = ("now", "scan", "get")


# -- the lease --------------------------------------------------------------------------------------------------


def _lease(world: World) -> None:
    stored(world, _one)
    for name in "ab":
        quiet = (*NO_EDITS, "read_due", "sweep_runs")
        BeatHost(world, app(name, _one, quiet=quiet, dated=("acquire", "renew"))).begin()


def _one() -> list[Schedule]:
    return [job()]


def _fresh_beat(code: Callable[[], list[Schedule]]) -> Callable[[World], None]:
    return lambda world: BeatHost(world, app("fresh", code)).begin()


def _told_to_stop(world: World) -> None:
    beat = getattr(world.hosts["a"], "beat")  # noqa: B009
    if not world.hosts["a"].dead:
        beat.stop()


LEASE = Scenario(
    "two beats and their lease",
    _lease,
    _fresh_beat(_one),
    events=(passing(1), passing(2), Event("a is told to stop", _told_to_stop)),
)


# -- beats ------------------------------------------------------------------------------------------------------


def _policies() -> list[Schedule]:
    return [job(name=policy, catch_up=policy) for policy in ("all", "latest", "skip")]


def _two_beats(world: World) -> None:
    """Of each schedule two fire times are due."""
    stored(world, _policies)
    world.pass_time(25_000)
    for name in "ab":
        BeatHost(world, app(name, _policies, quiet=(*NO_EDITS, "sweep_runs"))).begin(keeping=False)


TWO_BEATS = Scenario("two beats, a backlog", _two_beats, _fresh_beat(_policies), events=(passing(3),))


def _burst_code() -> list[Schedule]:
    return [job(name="one", catch_up="all"), job(name="two")]


def _burst(world: World) -> None:
    """Each tick is a batch of its own; see ``conftest``."""
    stored(world, _burst_code)
    world.pass_time(25_000)
    for name in "ab":
        BeatHost(world, app(name, _burst_code, quiet=(*NO_EDITS, "sweep_runs"))).begin(keeping=False)


SCENARIOS: list[Scenario] = [LEASE, TWO_BEATS]
