"""What is searched of workers: overlap, retries, and brokers that deliver twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

from dramatiq.middleware import Retries

from dramatiq_distcron import BackoffRetries
from dramatiq_distcron.schedules import Schedule

from .hosts import QUEUE, App, BeatHost, DramatiqsRetries, WorkerHost, actor
from .scenario import NO_EDITS, Scenario, job, passing, stored
from .world import Event, Rules, World

__all__ = ["BUFFER", "CLAIM", "OUTBOX", "OVERLAP", "RETRY", "TICKET", "WAITING", "once", "ours", "working_app"]


def ours() -> BackoffRetries:
    return BackoffRetries(rng=Random(1))


@cache
def working_app(
    name: str,
    code: Callable[[], list[Schedule]],
    by_outbox: bool = False,
    retries: Callable[[], Retries] = DramatiqsRetries,
) -> App:
    """The actor is tried again twice."""

    def declare(broker: object) -> None:
        actor(broker, "work", periodic=code(), max_retries=2, min_backoff=1000)

    return App(name, declare, by_outbox=by_outbox, retries=retries, quiet=NO_EDITS)


def _at_work(
    code: Callable[[], list[Schedule]], beats: str, workers: str, *, delaying: bool = False, by_outbox: bool = False
) -> Callable[[World], None]:
    def begin(world: World) -> None:
        stored(world, code, by_outbox)
        world.pass_time(10_000)
        for name in beats:
            BeatHost(world, working_app(name, code, by_outbox)).begin(keeping=False)
        for name in workers:
            WorkerHost(world, working_app(name, code, by_outbox)).begin(delaying=delaying, telling=by_outbox)

    return begin


def _relief(code: Callable[[], list[Schedule]], by_outbox: bool = False) -> Callable[[World], None]:
    def relieve(world: World) -> None:
        BeatHost(world, working_app("fresh", code, by_outbox)).begin()
        WorkerHost(world, working_app("z", code, by_outbox)).begin(delaying=True, telling=by_outbox)

    return relieve


def _skip() -> list[Schedule]:
    return [job(overlap="skip", until=20)]


def _buffer() -> list[Schedule]:
    return [job(overlap="buffer_one", until=20)]


def once() -> list[Schedule]:
    return [job(until=10, overlap="skip")]


def _failing(beats: str, workers: str) -> Callable[[World], None]:
    """With our own retries, which the workers put back."""

    def begin(world: World) -> None:
        if not world.hosts:
            stored(world, once)
            world.pass_time(10_000)
        for name in beats:
            BeatHost(world, working_app(name, once, retries=ours)).begin(keeping=False)
        for name in workers:
            WorkerHost(world, working_app(name, once, retries=ours)).begin(moving=True)

    return begin


OVERLAP = Scenario(
    "runs that must not overlap, skipped, two beats",
    _at_work(_skip, "ab", "v"),
    _relief(_skip),
    Rules(has_workers=True),
    events=(passing(10),),
    struck="v",
)
BUFFER = Scenario(
    "runs that must not overlap, buffered, two workers",
    _at_work(_buffer, "a", "vw"),
    _relief(_buffer),
    Rules(has_workers=True),
    events=(passing(61),),
    struck="v",
)
RETRY = Scenario(
    "a run that fails and is tried again",
    _at_work(once, "a", "v", delaying=True),
    _relief(once),
    # A way out of the delay queue that is left in the middle makes two of a message; that is Dramatiq's own.
    Rules(has_workers=True, failing=1, overlaps=True, copies=True),
    events=(passing(61),),
    struck="v",
)
WAITING = Scenario(
    "a run that fails, and its retry waits in the store",
    _failing("a", "vw"),
    _failing("b", "z"),
    Rules(has_workers=True, failing=1),
    events=(passing(61),),
    struck="v",
)
OUTBOX = Scenario(
    "an outbox, and a beat in trouble",
    _at_work(once, "a", "v", by_outbox=True),
    _relief(once, by_outbox=True),
    Rules(has_workers=True, by_outbox=True, once=True),
    events=(passing(6),),
    struck="a",
)
TICKET = Scenario(
    "a broker that delivers twice, and two workers",
    _at_work(once, "a", "vw", by_outbox=True),
    _relief(once, by_outbox=True),
    Rules(has_workers=True, by_outbox=True, once=True),
    events=(Event("a message is delivered twice", lambda world: world.post.copy_of(QUEUE)),),
    struck="v",
    bounds=((0, 1),),
)
CLAIM = Scenario(
    "a message with a ticket, and a worker in trouble",
    _at_work(once, "a", "vw", by_outbox=True),
    _relief(once, by_outbox=True),
    Rules(has_workers=True, by_outbox=True, once=True),
    struck="v",
)
