"""After the faults: whoever is left, and somebody fresh, must bring everything to its end."""

from __future__ import annotations

from collections import Counter

from .laws import Broken
from .post import generation_of
from .world import World

__all__ = ["bring_to_an_end"]

#: How many steps that may take; it takes a tenth of that.
_PATIENCE = 5000
#: The longest that is slept at once, in ms.
_NAP = 5000
#: Times are multiples of this, which is exact as a fraction of a second.
_GRAIN = 125


def bring_to_an_end(world: World) -> None:
    """No fault happens any more. Raises ``Broken`` if something stays undone, or is undone meanwhile."""
    world.faults_left, world.switches_left = 0, None
    world.events, world.late = [], []
    for host in world.hosts.values():
        if host.is_stuck:
            host.kill()
    for _ in range(_PATIENCE):
        if _is_done(world):
            break
        moving = [one.name for one in world.threads.values() if one.can_move]
        if not moving:
            world.pass_time(_until_next(world))
        for name in moving:
            _move(world, name)
    world.laws.check()
    _check_end(world)


def _move(world: World, name: str) -> None:
    request = world.threads[name].request
    if request is not None and request.on_its_way:
        world.take(("land", name))
    if world.threads[name].can_go:
        world.take(("go", name))


def _until_next(world: World) -> int:
    """How long until the first sleeper wakes, in ms."""
    deadlines = [one.request.deadline for one in world.threads.values() if one.request and one.request.deadline]
    left = min([deadline - world.elapsed for deadline in deadlines], default=_NAP)
    return max(_GRAIN, min(_NAP, -int(-left // _GRAIN) * _GRAIN))


def _is_done(world: World) -> bool:
    state = world.store._state
    decided = all(world.laws.spec(name) is None or world.laws.is_over(name) for name in world.laws.epochs)
    if not world.rules.has_workers:
        return decided
    left = world.post.bodies or state.runs or state.outbox or state.outstanding or state.retries
    return decided and not left


def _check_end(world: World) -> None:
    if not _is_done(world):
        state = world.store._state
        raise Broken(
            f"it does not come to an end: cursors {state.due}, runs {list(state.runs.values())}, outbox "
            f"{list(state.outbox)}, outstanding {state.outstanding}, messages {list(world.post.bodies)}"
        )
    if world.rules.has_workers:
        done = Counter((run.schedule, run.fire_time, run.generation) for run in world.runs)
        for message in world.laws.sent:
            tick = message.options["distcron"]
            if not done[tick["schedule"], tick["fire_time"], generation_of(message)]:
                raise Broken(f"{tick['schedule']} of {tick['fire_time']} was enqueued, and never run")
