"""What is searched of edits: each beside a beat that is about to fire what is edited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dramatiq_distcron.middleware.distcron import DistCron
from dramatiq_distcron.schedules import Schedule

from .hosts import BeatHost, WebHost
from .scenario import Scenario, app, job, passing, stored_by_api
from .scenarios import fresh_beat
from .world import World

__all__ = ["ARGUMENTS", "EDITS", "PAUSE", "TIMES", "TRIGGER", "pause", "put", "remove", "resume", "trigger"]

Program = Callable[[DistCron], None]


def _edited(*programs: Program, **options: Any) -> Callable[[World], None]:
    """One fire time is due, and a beat and the programs begin."""

    def begin(world: World) -> None:
        stored_by_api(world, job(args=("old",), **options))
        world.pass_time(10_000)
        BeatHost(world, app("a", quiet=("now", "scan", "sweep_runs"))).begin(keeping=False)
        for number, program in enumerate(programs):
            WebHost(world, app(f"web{number}")).begin(program)

    return begin


def _scenario(
    name: str, *programs: Program, bounds: Sequence[tuple[int, int]] = ((1, 0), (0, 2)), **options: Any
) -> Scenario:
    return Scenario(name, _edited(*programs, **options), fresh_beat(list), events=(passing(10),), bounds=bounds)


def put(schedule: Schedule) -> Program:
    return lambda distcron: distcron.schedules.put(schedule, "work")


def pause(name: str) -> Program:
    return lambda distcron: distcron.schedules.pause(name)


def resume(name: str) -> Program:
    return lambda distcron: distcron.schedules.resume(name)


def remove(name: str) -> Program:
    return lambda distcron: distcron.schedules.remove(name)


def trigger(name: str) -> Program:
    return lambda distcron: distcron.schedules.trigger(name) and None


def _pause_and_resume(distcron: DistCron) -> None:
    distcron.schedules.pause("job")
    distcron.schedules.resume("job")


def _remove_and_add(distcron: DistCron) -> None:
    distcron.schedules.remove("job")
    distcron.schedules.put(job(args=("new",)), "work")


ARGUMENTS = _scenario("an edit of arguments", put(job(args=("new",))))
TIMES = _scenario("an edit of times", put(job(5, args=("new",))))
TRIGGER = _scenario("a manual trigger, where runs must not overlap", trigger("job"), overlap="skip")
PAUSE = _scenario("a pause and its end", _pause_and_resume)
EDITS = [
    ARGUMENTS,
    TIMES,
    TRIGGER,
    PAUSE,
    _scenario("a removal and a new one of its name", _remove_and_add),
    _scenario("two edits at once", put(job(args=("new",))), put(job(5, args=("newer",))), bounds=((0, 1),)),
]
