"""What goes wrong, and when: a plan drawn from the seed, and how each fault is done and undone."""

from __future__ import annotations

import heapq
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

import redis

from dramatiq_distcron.errors import ServerError

from .cluster import Cluster, Post
from .proxy import Link, Proxy

__all__ = ["KINDS", "Fault", "Injector", "plan"]


@dataclass(frozen=True)
class Fault:
    """``at`` and ``length`` are in seconds; ``draw`` from 0 to 1 chooses whom it hits."""

    at: float
    kind: str
    length: float
    draw: float


def plan(seed: int, seconds: float, pace: float, lease: float, kinds: Sequence[str]) -> list[Fault]:
    """The faults of a run, about one each ``pace`` seconds."""
    rng = random.Random(f"{seed} faults")
    weights = [KINDS[kind].weight for kind in kinds]
    faults, at = [], 0.0
    while kinds and (at := at + rng.expovariate(1 / pace)) < seconds:
        kind = rng.choices(kinds, weights)[0]
        shortest, longest = KINDS[kind].length
        faults.append(Fault(at, kind, rng.uniform(shortest, longest) * lease, rng.random()))
    return faults


class Injector:
    """Does what the plan says, and undoes it in time. ``marks`` tell the requests that send a script, by its name."""

    def __init__(self, cluster: Cluster, faults: Sequence[Fault], marks: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.marks = marks
        self.done: Counter[str] = Counter()
        self._order = count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._started = time.monotonic()
        for fault in faults:
            self._push(fault.at, lambda fault=fault: self._inject(fault))  # type: ignore[misc]

    def turn(self) -> None:
        """Does what is due."""
        while self._agenda and self._agenda[0][0] <= time.monotonic() - self._started:
            heapq.heappop(self._agenda)[2]()

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """What is to be done after so many seconds from now."""
        self._push(time.monotonic() - self._started + seconds, work)

    def _push(self, at: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (at, next(self._order), work))

    def _inject(self, fault: Fault) -> None:
        if KINDS[fault.kind].inject(self, fault):
            self.done[fault.kind] += 1

    def heal(self) -> None:
        """Ends every fault: whoever sleeps is woken, whoever is dead comes back, the network is good."""
        self._agenda.clear()
        cluster = self.cluster
        self.wake_server()
        self.restart_server()
        for proxy in cluster.proxies:
            proxy.heal()
        for post in cluster.posts:
            post.signal(signal.SIGCONT)
            post.stopped = False
            cluster.fill(post)

    def restart_server(self) -> None:
        if not self.cluster.server.alive:
            self.cluster.server.restart()

    def wake_server(self) -> None:
        with suppress(ServerError):
            self.cluster.server.resume()

    # -- whom it hits ---------------------------------------------------------------------------------------

    def beat(self, fault: Fault) -> Post | None:
        """The leader, mostly."""
        leader = self.cluster.leader() if fault.draw < 0.6 else None
        return leader or self._one_of(self.cluster.beats(), fault)

    def leader(self, fault: Fault) -> Post | None:
        post = self.cluster.leader()
        return post if post in self._able(self.cluster.beats()) else None

    def worker(self, fault: Fault) -> Post | None:
        return self._one_of(self.cluster.workers(), fault)

    @staticmethod
    def _able(posts: Sequence[Post]) -> list[Post]:
        return [post for post in posts if post.child is not None and post.child.alive and not post.told]

    def _one_of(self, posts: Sequence[Post], fault: Fault) -> Post | None:
        able = self._able(posts)
        return able[int(fault.draw * 997) % len(able)] if able else None

    def proxy(self, fault: Fault) -> Proxy:
        """Mostly a beat's, and the leader's in particular."""
        leader = self.cluster.leader() if fault.draw < 0.5 else None
        return leader.proxy if leader else self.cluster.proxies[int(fault.draw * 997) % len(self.cluster.proxies)]


def _kill(pick: Callable[[Injector, Fault], Post | None]) -> Callable[[Injector, Fault], bool]:
    def inject(injector: Injector, fault: Fault) -> bool:
        post = pick(injector, fault)
        if post is None:
            return False
        injector.cluster.kill(post, fault.length)
        return True

    return inject


def _terminate(pick: Callable[[Injector, Fault], Post | None]) -> Callable[[Injector, Fault], bool]:
    def inject(injector: Injector, fault: Fault) -> bool:
        post = pick(injector, fault)
        if post is None or post.stopped:
            return False
        child = post.child
        injector.cluster.terminate(post, fault.length)

        def insist() -> None:
            # A worker that waits for Redis to ack its last message may take longer than we do.
            if post.child is child:
                injector.cluster.kill(post)

        injector.later(10, insist)
        return True

    return inject


def _stop(pick: Callable[[Injector, Fault], Post | None]) -> Callable[[Injector, Fault], bool]:
    def inject(injector: Injector, fault: Fault) -> bool:
        post = pick(injector, fault)
        if post is None or post.stopped:
            return False
        child = post.child
        post.stopped = True
        post.signal(signal.SIGSTOP)

        def wake() -> None:
            if post.child is child:
                post.stopped = False
                post.signal(signal.SIGCONT)

        injector.later(fault.length, wake)
        return True

    return inject


def _network(begin: Callable[[Proxy, Fault], None], end: Callable[[Proxy], None]) -> Callable[[Injector, Fault], bool]:
    def inject(injector: Injector, fault: Fault) -> bool:
        proxy = injector.proxy(fault)
        begin(proxy, fault)
        injector.later(fault.length, lambda: end(proxy))
        return True

    return inject


#: How long a process may take until it sends what is waited for, in seconds.
_LURK = 1.5


def _at(
    script: str,
    pick: Callable[[Injector, Fault], Post | None],
    strike: Callable[[Post, Link], None],
    undo: Callable[[Post], None] = lambda post: None,
) -> Callable[[Injector, Fault], bool]:
    """At the very moment when the process sends this script: it has left the process, and is not in Redis yet."""

    def inject(injector: Injector, fault: Fault) -> bool:
        post = pick(injector, fault)
        if post is None or post.stopped:
            return False
        child = post.child

        def struck(link: Link) -> None:
            if post.child is child:
                strike(post, link)
                injector.done[fault.kind] += 1

        def over() -> None:
            post.proxy.lift_trap()
            if post.child is child:
                undo(post)

        post.proxy.set_trap(injector.marks[script].encode(), struck)
        injector.later(_LURK + fault.length, over)
        # It is counted when it is done, which may never be.
        return False

    return inject


def _swallow_reply(post: Post, link: Link) -> None:
    link.lost_a_reply = True


def _hold_request(post: Post, link: Link) -> None:
    post.proxy.held = True


def _stop_process(post: Post, link: Link) -> None:
    post.stopped = True
    post.signal(signal.SIGSTOP)


def _wake_process(post: Post) -> None:
    post.stopped = False
    post.signal(signal.SIGCONT)


def _kill_process(post: Post, link: Link) -> None:
    post.told = True
    post.signal(signal.SIGKILL)


def _let_go(post: Post) -> None:
    post.proxy.let_go()


def _pause_clients(injector: Injector, fault: Fault) -> bool:
    return _command(injector, "CLIENT", "PAUSE", int(fault.length * 1000), "ALL" if fault.draw < 0.7 else "WRITE")


def _kill_connections(injector: Injector, fault: Fault) -> bool:
    if fault.draw < 0.4:
        return _command(injector, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    with suppress(redis.RedisError):
        ids = [one["id"] for one in injector.cluster.direct.client_list()]
        for one in ids[:: 2 + int(fault.draw * 5)]:
            _command(injector, "CLIENT", "KILL", "ID", one, "SKIPME", "yes")
        return True
    return False


def _flush_scripts(injector: Injector, fault: Fault) -> bool:
    return _command(injector, "SCRIPT", "FLUSH")


def _command(injector: Injector, *command: str | int) -> bool:
    try:
        injector.cluster.direct.execute_command(*command)
    except redis.RedisError:
        return False
    return True


def _kill_server(injector: Injector, fault: Fault) -> bool:
    server = injector.cluster.server
    if not server.alive:
        return False
    server.kill()
    injector.later(fault.length, injector.restart_server)
    return True


def _stop_server(injector: Injector, fault: Fault) -> bool:
    server = injector.cluster.server
    if not server.alive:
        return False
    server.pause()
    # By a thread of its own: we ourselves may be waiting for the server.
    threading.Timer(fault.length, injector.wake_server).start()
    return True


@dataclass(frozen=True)
class _Kind:
    """How often it is drawn, how long it lasts in lives of the lease, and how it is done; that says whether it was."""

    weight: int
    length: tuple[float, float]
    inject: Callable[[Injector, Fault], bool]


KINDS: dict[str, _Kind] = {
    "kill-beat": _Kind(4, (0, 1), _kill(Injector.beat)),
    "term-beat": _Kind(3, (0, 0.2), _terminate(Injector.beat)),
    "stop-beat": _Kind(6, (0.2, 3), _stop(Injector.beat)),
    "kill-worker": _Kind(2, (0, 0.5), _kill(Injector.worker)),
    "term-worker": _Kind(1, (0, 0.2), _terminate(Injector.worker)),
    "stop-worker": _Kind(2, (0.2, 3), _stop(Injector.worker)),
    "client-pause": _Kind(3, (0.1, 1.5), _pause_clients),
    "client-kill": _Kind(4, (0, 0), _kill_connections),
    "script-flush": _Kind(1, (0, 0), _flush_scripts),
    "cut": _Kind(4, (0, 0), _network(lambda proxy, fault: proxy.cut(), lambda proxy: None)),
    "delay": _Kind(4, (0.3, 2), _network(lambda proxy, fault: proxy.set_delay(0.3 * fault.draw), Proxy.undelay)),
    "hold": _Kind(4, (0.2, 3), _network(lambda proxy, fault: proxy.hold(), Proxy.let_go)),
    "swallow": _Kind(9, (0.02, 0.7), _network(lambda proxy, fault: proxy.swallow(), Proxy.stop_swallowing)),
    "tear": _Kind(3, (0, 0), _network(lambda proxy, fault: proxy.tear(), lambda proxy: None)),
    "swallow-commit": _Kind(5, (0, 0), _at("fire", Injector.leader, _swallow_reply)),
    "hold-commit": _Kind(3, (0.2, 3), _at("fire", Injector.leader, _hold_request, _let_go)),
    "stop-at-commit": _Kind(3, (0.2, 3), _at("fire", Injector.leader, _stop_process, _wake_process)),
    "kill-at-commit": _Kind(3, (0, 0), _at("fire", Injector.leader, _kill_process)),
    "swallow-settle": _Kind(3, (0, 0), _at("settle", Injector.worker, _swallow_reply)),
    "hold-settle": _Kind(1, (0.2, 2), _at("settle", Injector.worker, _hold_request, _let_go)),
    "kill-at-settle": _Kind(1, (0, 0), _at("settle", Injector.worker, _kill_process)),
    "kill-server": _Kind(1, (0, 0.5), _kill_server),
    "stop-server": _Kind(1, (0.1, 1.5), _stop_server),
}
