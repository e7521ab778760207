"""What is searched of dead letters: a death, and letters that are sent back and dropped by several at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from dramatiq_distcron.errors import StoreUnavailable
from dramatiq_distcron.middleware.distcron import DistCron

from .hosts import App, BeatHost, WebHost, WorkerHost, actor
from .scenario import NO_EDITS, Scenario, passing, stored
from .stepping import Request, ask, current_thread
from .working import once, ours
from .world import Rules, World

__all__ = ["DEATH", "DEATH_BY_OUTBOX", "DISCARD", "DYING", "REDRIVE", "asked_again", "discard", "redrive", "tell"]

Program = Callable[[DistCron], None]


@cache
def _app(name: str, by_outbox: bool) -> App:
    """An actor that is not tried again."""

    def declare(broker: object) -> None:
        actor(broker, "work", periodic=once(), max_retries=0)

    return App(name, declare, by_outbox=by_outbox, retries=ours, quiet=NO_EDITS)


def _fired(world: World, by_outbox: bool) -> None:
    """There is one message, and whoever sent it is gone."""
    stored(world, once, by_outbox)
    world.pass_time(10_000)
    beat = BeatHost(world, _app("a", by_outbox))
    beat.begin(keeping=False)
    _go_on(world, lambda: bool(world.post.bodies) and not world.store._state.outbox)
    beat.kill()


def _died(world: World, by_outbox: bool) -> None:
    """There is one letter, and the worker it died in is gone."""
    _fired(world, by_outbox)
    worker = WorkerHost(world, _app("u", by_outbox))
    worker.begin()
    _go_on(world, lambda: bool(world.store._state.dead) and not world.post.hands)
    worker.kill()


def _go_on(world: World, is_done: Callable[[], bool]) -> None:
    """Before the search begins nothing goes wrong."""
    faults, switches = world.faults_left, world.switches_left
    world.faults_left, world.switches_left = 0, None
    while not is_done():
        world.take(next(step for step in world.steps() if step[0] in ("go", "land")))
    world.faults_left, world.switches_left, world.last = faults, switches, ""


# -- who sends back and drops ---------------------------------------------------------------------------------------


def tell(verb: str, count: int) -> None:
    """A human reads how many letters came or went by a command."""
    thread = current_thread()
    assert thread is not None
    thread.host.world.laws.deaths.count(verb, count)


def asked_again(program: Program) -> Program:
    """A human who is told that the store did not answer calls it once more."""

    def run(distcron: DistCron) -> None:
        try:
            program(distcron)
        except StoreUnavailable:
            program(distcron)

    return run


@asked_again
def redrive(distcron: DistCron) -> None:
    tell("redrive", distcron.dead_letters.redrive(all=True).redriven)


@asked_again
def discard(distcron: DistCron) -> None:
    tell("drop_letters", distcron.dead_letters.discard(actor="work"))


def _redrive_soon(distcron: DistCron) -> None:
    """As soon as there is a letter."""
    thread = current_thread()
    assert thread is not None
    dead = thread.host.world.store._state.dead
    ask(Request("no letter yet", is_ready=lambda: bool(dead)))
    redrive(distcron)


# -- beginnings -----------------------------------------------------------------------------------------------------


def _dying(by_outbox: bool, *programs: Program) -> Callable[[World], None]:
    """A message is about to be run by one of two workers."""

    def begin(world: World) -> None:
        _fired(world, by_outbox)
        for name in "vw":
            # One mover will do, and it is that of the worker that lives.
            WorkerHost(world, _app(name, by_outbox)).begin(moving=by_outbox and name == "w")
        _begin(world, by_outbox, programs)

    return begin


def _dead(by_outbox: bool, *programs: Program) -> Callable[[World], None]:
    def begin(world: World) -> None:
        _died(world, by_outbox)
        _begin(world, by_outbox, programs)

    return begin


def _begin(world: World, by_outbox: bool, programs: Sequence[Program]) -> None:
    for number, program in enumerate(programs):
        WebHost(world, _app(f"web{number}", by_outbox)).begin(program)


def _relief(by_outbox: bool) -> Callable[[World], None]:
    """What is sent back is run, and somebody is told of every letter."""

    def relieve(world: World) -> None:
        BeatHost(world, _app("b", by_outbox)).begin()
        worker = WorkerHost(world, _app("z", by_outbox))
        worker.begin(delaying=by_outbox, moving=by_outbox, telling=by_outbox, noticing=True)

    return relieve


_ON_REDIS = Rules(has_workers=True, failing=1, once=True)
_BY_OUTBOX = Rules(has_workers=True, failing=1, once=True, by_outbox=True)

DEATH = Scenario(
    "a run that dies, and its letter is sent back",
    _dying(False, _redrive_soon),
    _relief(False),
    # A worker that was taken for dead may run beside the next one.
    Rules(has_workers=True, failing=1),
    events=(passing(61),),
    struck="v",
    bounds=((1, 0), (0, 2)),
)
DEATH_BY_OUTBOX = Scenario(
    "a run that dies by an outbox, and its letter is sent back",
    _dying(True, _redrive_soon),
    _relief(True),
    _BY_OUTBOX,
    struck="v",
    bounds=((1, 0), (0, 2)),
)
TAKEN_FOR_DEAD = Scenario(
    "a run that dies by an outbox, in a worker that is taken for dead",
    _dying(True),
    _relief(True),
    _BY_OUTBOX,
    events=(passing(61),),
    struck="v",
    bounds=((1, 0), (0, 1)),
)
REDRIVE = Scenario(
    "two that send the same letter back",
    _dead(False, redrive, redrive),
    _relief(False),
    _ON_REDIS,
    bounds=((2, 1),),
)
REDRIVE_BY_OUTBOX = Scenario(
    "two that send the same letter back, by an outbox",
    _dead(True, redrive, redrive),
    _relief(True),
    _BY_OUTBOX,
    bounds=((1, 4),),
)
DISCARD = Scenario(
    "one that sends a letter back, and one that drops it",
    _dead(False, redrive, discard),
    _relief(False),
    _ON_REDIS,
    bounds=((2, 1),),
)
DYING = [DEATH, DEATH_BY_OUTBOX, TAKEN_FOR_DEAD, REDRIVE, REDRIVE_BY_OUTBOX, DISCARD]
