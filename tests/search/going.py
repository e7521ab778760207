"""What is searched of letters that go because they are old or too many.

What must hold, whatever is killed, cut, or late:

- What is dropped was announced before, by the one that drops it, to a hook that did not fail.
- What is announced was too old at that moment, or among the oldest of those that are too many of their kind.
- What was sent back meanwhile is not dropped, and what was dropped is not sent back.
- Who is told that so many were dropped is told of no more than there were.
- Once somebody looked after the limits and nothing came between, they hold.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from dramatiq_distcron.api.letter_infos import DeadLetter
from dramatiq_distcron.middleware.dead_letters import DeadLetters
from dramatiq_distcron.middleware.distcron import DistCron
from dramatiq_distcron.middleware.retention import Retention

from .coming import begin_programs, import_, letter, redrive_ids, run_through, work_off
from .dying import Program, asked_again, redrive, tell
from .hosts import App, actor
from .laws import Broken
from .scenario import Scenario, passing
from .stepping import Host, Request, ask, current_thread
from .working import ours
from .world import Rules, World

__all__ = ["AGE", "GOING", "MANY", "NUMBER", "OWN", "STORM", "trim"]

_HOUR = 3600
_ACTORS = ("work", "bill")


def _here() -> Host:
    thread = current_thread()
    assert thread is not None
    return thread.host


class Limits:
    """What the workers of an app look after.

    Parameters:
      age: for how many seconds letters are kept.
      number: and how many.
      per_actor: others, of some actors.
    """

    def __init__(self, age: int | None, number: int | None, **per_actor: Retention) -> None:
        self._general = Retention(age, number)
        self._per_actor = per_actor

    def middleware(self) -> DeadLetters:
        general = self._general
        return DeadLetters(max_age=general.max_age, max_count=general.max_count, per_actor=self._per_actor)

    def beyond(self, world: World) -> set[str]:
        """The ids of the letters that may be dropped now."""
        found: set[str] = set()
        dead = world.store._state.dead
        of = {id: str(one.about["actor"]) for id, (_, one) in dead.items()}
        for retention, actors in self._kinds():
            oldest = sorted((at, id) for id, (at, _) in dead.items() if of[id] in actors)
            if retention.max_count is not None:
                found |= {id for _, id in oldest[: max(0, len(oldest) - retention.max_count)]}
            if retention.max_age is not None:
                found |= {id for at, id in oldest if at <= world.now() - _HOUR * 1000}
        return found

    def _kinds(self) -> list[tuple[Retention, set[str]]]:
        own: list[tuple[Retention, set[str]]] = [(one, {name}) for name, one in self._per_actor.items()]
        return [*own, (self._general, set(_ACTORS) - self._per_actor.keys())]

    # -- who looks after them ---------------------------------------------------------------------------------

    def _announced(self, letters: list[DeadLetter]) -> None:
        """The hook: it takes its time, and has saved them when it is done."""
        host = _here()
        ids, dead = {one.id for one in letters}, host.world.store._state.dead
        wrongly = (ids & dead.keys()) - self.beyond(host.world)
        # Where the clock steps back, letters come that are older than those that were read.
        if wrongly and not host.world.rules.skewed:
            host.world.laws.deaths.refuse(f"{sorted(wrongly)} are announced, and are neither too old nor too many")
        ask(Request("save", work=list, lost=lambda: OSError("the disk is full"), writes=False))
        host.world.laws.deaths.announce(host.name, ids)

    @cache  # noqa: B019
    def app(self, name: str) -> App:
        def declare(broker: object) -> None:
            for one in _ACTORS:
                actor(broker, one, max_retries=0)

        app = App(name, declare, retries=ours, letters=self.middleware, quiet=("scan", "get"))
        app.distcron.dead_letters.on_drop(self._announced)
        return app

    def relieve(self, world: World) -> None:
        run_through(world, trim, self.app)
        if self.beyond(world):
            raise Broken(f"{self.beyond(world)} are beyond the limits, and are kept")
        work_off(world)


@asked_again
def trim(distcron: DistCron) -> None:
    """What a worker does once a minute."""
    _here().world.laws.deaths.announce(_here().name)
    tell("drop_letters", distcron.dead_letters._own.retainer.retain())


# -- beginnings -------------------------------------------------------------------------------------------------------

_RULES = Rules(has_workers=True, failing=1)
#: A few at a time, so that there are several steps.
_FEW = {"dramatiq_distcron.middleware.retention._BATCH": 2}


def _kept(limits: Limits, letters: list[Any], *programs: Program, trimmers: int = 2) -> Callable[[World], None]:
    def begin(world: World) -> None:
        world.keep(letters)
        begin_programs(world, *[trim] * trimmers, app=limits.app)
        begin_programs(world, *programs, names="h")

    return begin


def _scenario(name: str, limits: Limits, begin: Callable[[World], None], **options: Any) -> Scenario:
    return Scenario(name, begin, limits.relieve, _RULES, patches=_FEW, **options)


_old = Limits(_HOUR, None)
MANY = Limits(None, 2)
_own = Limits(None, 2, bill=Retention(None, None))

AGE = _scenario(
    "two that drop what is old, and one that sends it back",
    _old,
    _kept(_old, [letter(1), letter(2), letter(3)], redrive),
    events=(passing(_HOUR),),
    struck="ph",
    bounds=((1, 0), (0, 1)),
)
NUMBER = _scenario(
    "two that drop what is too many, and one that sends it back",
    MANY,
    _kept(MANY, [letter(number) for number in range(1, 6)], redrive),
    struck="ph",
    bounds=((1, 0), (0, 2)),
)
STORM = _scenario(
    "one that drops what is too many, and more come",
    MANY,
    _kept(MANY, [letter(1), letter(2), letter(3)], import_(4, 5), trimmers=1),
    bounds=((1, 2),),
)
OWN = _scenario(
    "one that drops what is too many, and an actor has limits of its own",
    _own,
    _kept(_own, [letter(1), letter(2), letter(3), letter(4, "bill")], redrive_ids("l4"), trimmers=1),
    bounds=((1, 2),),
)
GOING = [AGE, NUMBER, STORM, OWN]
