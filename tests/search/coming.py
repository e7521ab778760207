"""What is searched of letters that come from elsewhere: imports, and what Dramatiq has among its own dead messages.

What must hold, whatever is killed, cut, or late:

- Adopt. What Dramatiq gave up is in one place: among its dead, a letter, sent back once, or forgotten by Dramatiq after
  a week. It becomes a letter in the step in which it leaves there. Who takes over beside others is told of no more than
  came by that, and never that something cannot be decoded because others took it. Who is not disturbed leaves nothing.
- Import. What is there already is left as it was, and counts for no new one. What was sent back is there again if an
  import comes after that, once for each that does: that is told of. So what came is what is there and what went.
- Discard. A letter is dropped or sent back, not both, and each is told as what it was. Who drops all drops nothing that
  died when it had begun with that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from dramatiq import Message

from dramatiq_distcron.api.letter_moves import exported
from dramatiq_distcron.letters import adopted, indexes_of
from dramatiq_distcron.middleware.distcron import DistCron
from dramatiq_distcron.store.base import Letter, LetterRow

from .dying import Program, asked_again, redrive, tell
from .graves import GraveStore, Unwilling
from .hosts import QUEUE, App, WebHost, WorkerHost, actor
from .laws import Broken
from .scenario import NO_EDITS, Scenario, passing
from .stepping import Request, ask, current_thread
from .working import ours
from .world import START, Rules, World

__all__ = [
    "ADOPT",
    "COMING",
    "DISCARD_IDS",
    "IMPORT",
    "IMPORT_REDRIVE",
    "PURGE",
    "adopt",
    "begin_programs",
    "bury",
    "import_",
    "letter",
    "letter_app",
    "redrive_ids",
    "run_through",
    "take_away_and_back",
    "work_off",
]


# -- what there is ----------------------------------------------------------------------------------------------------


def message(number: int, actor_name: str = "work") -> Message[Any]:
    """One of a tick of another time, which nothing here was decided on."""
    options = {
        "distcron": {"schedule": actor_name, "fire_time": START + number, "term": 1},
        "redis_message_id": f"r{number}",
    }
    return Message(QUEUE, actor_name, (), {}, options, f"m{number}", START)


@cache
def letter(number: int, actor_name: str = "work") -> tuple[Letter, int]:
    """Of such a message, and when it died: the lower the number, the longer ago."""
    about = adopted(message(number, actor_name))
    return Letter(f"l{number}", about, message(number, actor_name).encode(), indexes_of(about)), START - 1000 + number


def bury(world: World, *numbers: int) -> None:
    """Messages that Dramatiq gave up."""
    for number in numbers:
        hand_out(world, "nobody", number)
        call = ["nack", START - 1000 + number, QUEUE, "nobody", 60_000, _WEEK, 0, 1000, f"r{number}"]
        world._arrive(Request("nack", (), lambda call=call: world.post.dispatch(call)))  # type: ignore[misc]


def hand_out(world: World, process: str, number: int) -> None:
    """A message is in the hands of a process."""
    head = [START - 1000, QUEUE, process, 60_000, _WEEK, 0, 1000]
    world.post.dispatch(["enqueue", *head, f"r{number}", message(number).encode()])
    world.post.dispatch(["fetch", *head, 1])


_WEEK = 7 * 86_400_000


# -- who takes part ---------------------------------------------------------------------------------------------------


@cache
def letter_app(name: str) -> App:
    """An actor that is not tried again."""
    return App(name, _declare, retries=ours, quiet=(*NO_EDITS, "start_run"))


def _declare(broker: object) -> None:
    for name in ("work", "bill"):
        actor(broker, name, max_retries=0)


def begin_programs(
    world: World, *programs: Program, app: Callable[[str], App] = letter_app, names: str = "pqr"
) -> None:
    for name, program in zip(names, programs, strict=False):
        WebHost(world, app(name)).begin(program)


def work_off(world: World) -> None:
    """What was sent back is run."""
    WorkerHost(world, letter_app("z")).begin()


def run_through(world: World, program: Program, app: Callable[[str], App] = letter_app) -> None:
    """After the faults somebody does it once more, and nothing comes between."""
    host = WebHost(world, app("fresh"))
    host.begin(program)
    while host.threads[0].request is not None:
        world.take(("go", host.name))


def when_there(is_there: Callable[[World], bool], program: Program) -> Program:
    def run(distcron: DistCron) -> None:
        thread = current_thread()
        assert thread is not None
        world = thread.host.world
        ask(Request("there is nothing yet", is_ready=lambda: is_there(world)))
        program(distcron)

    return run


@asked_again
def adopt(distcron: DistCron) -> None:
    done = distcron.dead_letters.adopt([QUEUE])
    tell("adopt", done.adopted)
    # All of them can be decoded.
    tell("leave undecoded", done.left)


def import_(*numbers: int) -> Program:
    lines = [exported(LetterRow(one.id, at, one.about, one.data)) for one, at in map(letter, numbers)]
    return asked_again(lambda distcron: tell("put_letters", distcron.dead_letters.import_(lines)))


@asked_again
def take_away_and_back(distcron: DistCron) -> None:
    lines = list(distcron.dead_letters.export())
    tell("put_letters", distcron.dead_letters.import_(lines))


def redrive_ids(*ids: str) -> Program:
    return asked_again(lambda distcron: tell("redrive", distcron.dead_letters.redrive(ids).redriven))


def discard_ids(*ids: str) -> Program:
    return asked_again(lambda distcron: tell("drop_letters", distcron.dead_letters.discard(ids)))


def purge(distcron: DistCron) -> None:
    thread = current_thread()
    assert thread is not None
    thread.host.world.laws.deaths.purge(thread.host.name)
    tell("drop_letters", distcron.dead_letters.purge())


# -- what Dramatiq gave up --------------------------------------------------------------------------------------------

_ADOPTED = Rules(has_workers=True, failing=1, gives_up=True)
#: A few at a time, so that there are several steps.
_FEW = {"dramatiq_distcron.api.letter_moves._FIRST": 1, "dramatiq_distcron.api.letter_moves._BATCH": 2}


def _given_up(*programs: Program) -> Callable[[World], None]:
    def begin(world: World) -> None:
        bury(world, 1, 2)
        begin_programs(world, *programs)

    return begin


def _giving_up(world: World) -> None:
    """One message is given up, and another one is about to be."""
    bury(world, 1)
    hand_out(world, "nobody", 2)
    world.post.dispatch(["requeue", START - 1000, QUEUE, "nobody", 60_000, _WEEK, 0, 1000, "r2"])
    WorkerHost(world, letter_app("v")).begin()
    begin_programs(world, when_there(lambda world: len(world.post.dead) > 1, adopt), adopt)


def _forgotten(world: World) -> None:
    """A worker looks whether something is so old that Dramatiq forgets it."""
    bury(world, 1, 2)
    begin_programs(world, adopt, redrive)
    WorkerHost(world, letter_app("v")).begin()


def _all_adopted(world: World) -> None:
    run_through(world, adopt)
    if world.post.dead:
        raise Broken(f"{list(world.post.dead)} are not taken over")
    run_through(world, redrive)
    work_off(world)


ADOPT = Scenario(
    "two that take over what Dramatiq gave up, and one that sends it back",
    _given_up(adopt, adopt, when_there(lambda world: bool(world.store._state.dead), redrive)),
    _all_adopted,
    _ADOPTED,
    # The first two are alike, so that it does not matter to which of them something happens; so below.
    struck="pr",
    bounds=((1, 1), (0, 2)),
    patches=_FEW,
    store=GraveStore,
)
GIVING_UP = Scenario(
    "two that take over what Dramatiq gives up, beside the worker that does",
    _giving_up,
    _all_adopted,
    _ADOPTED,
    bounds=((1, 1),),
    patches=_FEW,
    store=Unwilling,
)
FORGOTTEN = Scenario(
    "one that takes over what Dramatiq forgets",
    _forgotten,
    _all_adopted,
    _ADOPTED,
    events=(passing(7 * 86_400),),
    bounds=((1, 0),),
    patches=_FEW,
    store=GraveStore,
)

# -- imports ----------------------------------------------------------------------------------------------------------

_RULES = Rules(has_workers=True, failing=1)
_ONE_BY_ONE = {"dramatiq_distcron.api.letter_moves._BATCH": 1}
_TWO_BY_TWO = {"dramatiq_distcron.api.letter_moves._BATCH": 2}


def _there(numbers: Sequence[int], *programs: Program) -> Callable[[World], None]:
    def begin(world: World) -> None:
        world.keep([letter(number) for number in numbers])
        world.pass_time(1000)
        begin_programs(world, *programs)

    return begin


IMPORT = Scenario(
    "two that import the same letters",
    _there((), import_(1, 1, 2), import_(1, 1, 2)),
    work_off,
    _RULES,
    bounds=((2, 1),),
    patches=_TWO_BY_TWO,
)
IMPORT_REDRIVE = Scenario(
    "one that imports letters, and one that sends them back",
    _there((1,), import_(1, 2), redrive),
    work_off,
    _RULES,
    bounds=((2, 1),),
    patches=_ONE_BY_ONE,
)
DISCARD_IDS = Scenario(
    "one that drops letters by their ids, and one that sends them back",
    _there((1, 2), discard_ids("l1", "l2"), redrive_ids("l2", "l1")),
    work_off,
    _RULES,
    bounds=((1, 2),),
)
#: One dies when a second has passed, and another one is ahead of all clocks.
_NEW, _AHEAD = 3000, 9000
PURGE = Scenario(
    "one that drops all letters, and one that dies meanwhile",
    _there((1, 2, _AHEAD), purge, when_there(lambda world: world.elapsed >= 2000, import_(_NEW))),
    work_off,
    _RULES,
    events=(passing(1),),
    bounds=((1, 2),),
    patches={"dramatiq_distcron.api.dead_letters._BATCH": 1},
)
COMING = [ADOPT, GIVING_UP, FORGOTTEN, IMPORT, IMPORT_REDRIVE, DISCARD_IDS, PURGE]
