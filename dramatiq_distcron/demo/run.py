"""A run: start everything, kill the leader in the middle, count at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast

from ..backends import broker_at
from ..errors import ServerError, StoreUnavailable
from ..middleware.distcron import DistCron, install
from ..server import Server
from ..store.base import REMEMBERED
from .processes import Child, beat_command, worker_command
from .proof import Proof, TickKey, due_ticks, end_of_play, prove
from .show import Show

__all__ = ["SHORTEST", "run"]

#: Shorter runs have no time for a takeover.
SHORTEST = 5.0

_APP = "dramatiq_distcron.demo.app"
_SUCCEEDED, _FAILED = "distcron-demo:succeeded", "distcron-demo:failed"
_GLANCE = 0.1
_PATIENCE = 20.0


def run(duration: float, show: Show) -> Proof:
    """Runs the demonstration for about ``duration`` seconds. Leaves no process and no file behind.

    Raises:
      ServerError: there is no server to run on, or something of ours did not start.
    """
    with ExitStack() as stack:
        server = stack.enter_context(Server())
        show.say(f"A server of our own: {server.url}, version {server.version}")
        return _Run(server.url, duration, show, stack).go()


class _Run:
    def __init__(self, url: str, duration: float, show: Show, stack: ExitStack) -> None:
        self._duration = duration
        self._show = show
        broker = broker_at(url)
        self._client = cast(Any, broker).client
        stack.callback(self._client.connection_pool.disconnect)
        self._distcron: DistCron = install(broker)
        stack.callback(self._distcron.close)
        self._store = self._distcron.open_backend().store
        self._children: list[Child] = []
        stack.callback(self._end_all)
        env = {"DISTCRON_REDIS_URL": url}
        self._beats = [self._start(f"beat {n}", beat_command(_APP), env) for n in "AB"]
        self._workers = [self._start(f"worker {n}", worker_command(_APP), env) for n in "12"]
        self._started = time.monotonic()
        self._killed_at: int | None = None
        self._takeover: int | None = None

    def _start(self, name: str, command: list[str], env: dict[str, str]) -> Child:
        child = Child(name, command, env)
        self._children.append(child)
        return child

    def _end_all(self) -> None:
        for child in self._children:
            child.terminate()
        for child in self._children:
            child.end()

    # -- the play -------------------------------------------------------------------------------------------

    def go(self) -> Proof:
        self._await("a leader", self._leader)
        self._await("the first run", lambda: bool(self._client.llen(_SUCCEEDED)))
        self._started = time.monotonic()
        self._show.say("Two beats and two workers run; three schedules of one second, one actor fails at first.")
        self._watch(until=self._duration * 0.4)
        self._kill_leader()
        self._await("a takeover", self._has_taken_over)
        self._watch(until=max(self._duration, time.monotonic() - self._started + 1.5))
        return self._count()

    def _watch(self, until: float) -> None:
        while (elapsed := time.monotonic() - self._started) < until:
            self._check()
            self._show.progress(elapsed, self._state())
            time.sleep(_GLANCE)

    def _await(self, what: str, find: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + _PATIENCE
        while not (found := find()):
            if time.monotonic() > deadline:
                raise ServerError(f"Waited {_PATIENCE:g} s for {what}, in vain.\n{self._outputs()}")
            self._check()
            time.sleep(0.01)
        return found

    def _check(self) -> None:
        dead = [child for child in self._children if not child.alive]
        if dead:
            raise ServerError(f"{dead[0].name} ended by itself.\n{dead[0].output()}")

    def _kill_leader(self) -> None:
        # On a machine under load there may be none for a moment.
        leader: Child = self._await("a leader", self._leader)
        self._show.say(f"Now {leader.name} (process {leader.pid}) leads, and is killed with SIGKILL.")
        self._killed_at = self._store.now()
        leader.kill()
        self._beats.remove(leader)
        self._children.remove(leader)

    def _has_taken_over(self) -> bool:
        found = self._store.leader()
        leader = self._leader()
        if found is None or leader is None or self._killed_at is None or found[2] < self._killed_at:
            return False
        self._takeover = found[2] - self._killed_at
        self._show.say(f"{leader.name} (process {leader.pid}) took over after {self._takeover} ms.")
        return True

    # -- what there is --------------------------------------------------------------------------------------

    def _leader(self) -> Child | None:
        """The beat that holds the lease, if it told of itself already."""
        try:
            found = self._store.leader()
            pids = {one.holder: one.data["pid"] for one in self._store.instances(keep=REMEMBERED)}
        except StoreUnavailable:
            return None
        pid = pids.get(found[0]) if found else None
        return next((beat for beat in self._beats if beat.pid == pid), None)

    def _state(self) -> str:
        leader = self._leader()
        return (
            f"leader: {leader.name if leader else 'none'}   enqueued {len(self._enqueued())}   "
            f"processed {self._client.llen(_SUCCEEDED)}   retried {self._client.llen(_FAILED)}"
        )

    def _enqueued(self) -> list[TickKey]:
        ticks = self._distcron.schedules.history(limit=100_000)
        return [(tick.schedule, tick.fire_time) for tick in ticks if tick.outcome == "enqueued"]

    def _succeeded(self) -> list[TickKey]:
        entries = self._client.lrange(_SUCCEEDED, 0, -1)
        return [(name, int(time)) for name, time in (entry.decode().split() for entry in entries)]

    def _count(self) -> Proof:
        # Stop between two ticks, and not before the beats, which may lag behind, are at the last one.
        until = self._await("the middle of a second", self._middle_of_a_second)
        self._give_time(self._due(until), self._enqueued)
        for beat in self._beats:
            beat.end()
            self._children.remove(beat)
        enqueued = self._enqueued()
        due = self._due(end_of_play(until, enqueued))
        self._show.say("The beats are stopped; waiting for the workers to finish what is enqueued.")
        self._give_time(due, self._succeeded)
        return prove(
            due, enqueued, self._succeeded(), takeover_ms=self._takeover, leader_killed=self._killed_at is not None
        )

    def _middle_of_a_second(self) -> int | None:
        now = self._store.now()
        return now if 400 <= now % 1000 <= 600 else None

    def _give_time(self, due: set[TickKey], seen: Callable[[], list[TickKey]]) -> None:
        """Waits until all that is due is seen. What is not by then is missing."""
        deadline = time.monotonic() + _PATIENCE
        while not due <= set(seen()) and time.monotonic() < deadline:
            time.sleep(_GLANCE)

    def _due(self, until: int) -> set[TickKey]:
        enqueued = self._enqueued()
        return due_ticks({one.name: self._first(one.name, enqueued) for one in self._distcron.schedules.list()}, until)

    def _first(self, name: str, enqueued: list[TickKey]) -> int:
        """The first fire time of a schedule: that of its first message, or of the play for one that has none."""
        times = [time for other, time in enqueued if other == name]
        return min(times) if times else self._killed_at or 0

    def _outputs(self) -> str:
        return "\n".join(f"--- {child.name}\n{child.output()}" for child in self._children)
