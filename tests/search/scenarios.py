"""What is searched of beats: their lease, a backlog, a burst, clocks that step, deploys."""

from __future__ import annotations

from collections.abc import Callable

from dramatiq_distcron.schedules import Schedule

from .hosts import BeatHost
from .scenario import NO_EDITS, Scenario, app, job, passing, stored
from .world import Event, Rules, World

__all__ = ["BACKLOG", "BURST", "CLOCK", "DEPLOY", "HAND_OVER", "LEASE"]

#: Far more than anything that is waited for: a host's clock must not matter.
_WRONG = 300_000


def begin_beats(world: World, code: Callable[[], list[Schedule]], *, keeping: bool = False) -> None:
    """Two beats of one app; the clock of the first is ahead, and of the second behind."""
    for name, ahead in (("a", _WRONG), ("b", -_WRONG)):
        host = BeatHost(world, app(name, code, quiet=(*NO_EDITS, "sweep_runs")), wall_ahead=ahead)
        host.begin(keeping=keeping)


def fresh_beat(code: Callable[[], list[Schedule]]) -> Callable[[World], None]:
    return lambda world: BeatHost(world, app("fresh", code)).begin()


def _lease(world: World) -> None:
    for name in "ab":
        BeatHost(world, app(name, quiet=(*NO_EDITS, "read_due", "sweep_runs"), dated=("acquire", "renew"))).begin()


LEASE = Scenario(
    "two beats and their lease",
    _lease,
    fresh_beat(list),
    events=(passing(1), passing(2)),
    # The beats are alike, so that it does not matter to which of them something happens; so below.
    struck="a",
)


def one() -> list[Schedule]:
    return [job()]


def _hand_over(world: World) -> None:
    stored(world, one)
    world.pass_time(10_000)
    begin_beats(world, one)


def _tell_to_stop(world: World) -> None:
    host = world.hosts["a"]
    if isinstance(host, BeatHost) and not host.dead:
        host.beat.stop()


HAND_OVER = Scenario(
    "a beat is told to stop",
    _hand_over,
    fresh_beat(one),
    events=(Event("a is told to stop", _tell_to_stop), passing(10)),
    struck="a",
    bounds=((1, 0), (0, 1)),
)


def _policies() -> list[Schedule]:
    return [job(name=policy, catch_up=policy) for policy in ("all", "latest", "skip")]


def _backlog(world: World) -> None:
    """Of each schedule two fire times are due."""
    stored(world, _policies)
    world.pass_time(25_000)
    begin_beats(world, _policies)


BACKLOG = Scenario(
    "two beats and a backlog",
    _backlog,
    fresh_beat(_policies),
    events=(passing(3),),
    bounds=((1, 0), (0, 3)),
)


def _burst_code() -> list[Schedule]:
    return [job(name="one", catch_up="all"), job(name="two")]


def _burst(world: World) -> None:
    stored(world, _burst_code)
    world.pass_time(25_000)
    begin_beats(world, _burst_code)


BURST = Scenario(
    "a burst of batches of one tick",
    _burst,
    fresh_beat(_burst_code),
    events=(passing(3),),
    struck="a",
    patches={"dramatiq_distcron.scheduler.BATCH_TICKS": 1},
)


def _clock(world: World) -> None:
    stored(world, one)
    world.pass_time(10_000)
    begin_beats(world, one)


CLOCK = Scenario(
    "the store's clock steps back and forward",
    _clock,
    fresh_beat(one),
    Rules(skewed=True),
    events=(
        Event("the clock steps 10 s back", lambda world: world.step_clock(-10_000)),
        Event("the clock steps 20 s forward", lambda world: world.step_clock(20_000)),
    ),
)


def _new_code() -> list[Schedule]:
    return [job(), job(name="new")]


def _deploy(world: World) -> None:
    """One beat knows a schedule that the other one retires."""
    stored(world, one)
    world.pass_time(10_000)
    BeatHost(world, app("a", one, quiet=("now", "sweep_runs")), wall_ahead=_WRONG).begin(keeping=False)
    BeatHost(world, app("b", _new_code, quiet=("now", "sweep_runs")), wall_ahead=-_WRONG).begin(keeping=False)


DEPLOY = Scenario(
    "two versions of the code",
    _deploy,
    fresh_beat(_new_code),
    events=(passing(5),),
)
