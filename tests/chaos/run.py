"""A run: start everything, let things go wrong, heal, let everything come to its end, and read what there is."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import redis

from dramatiq_distcron.server import Server

from .cluster import Cluster, Settings
from .conservation import Violation, check_conservation
from .editor import Editor
from .exclusion import check_exclusion
from .faults import Injector, plan
from .history import Decision, History, read_state
from .population import Wanted, population
from .reasons import check_reasons
from .targets import check_targets
from .timeline import Attempt, applied, timeline
from .witness import read_all

__all__ = ["Outcome", "check", "run"]

#: How far the beats may be behind at the end, in ms.
_BEHIND = 2000


@dataclass(frozen=True)
class Outcome:
    """A run, with what went wrong in it on purpose and what did otherwise."""

    settings: Settings
    server: str
    history: History
    faults: Mapping[str, int]
    edits: Mapping[str, int]
    violations: list[Violation]
    processes: int
    swallowed: Mapping[str, int]
    seconds: float


def check(history: History) -> list[Violation]:
    """What all the checkers find."""
    checkers: list[Callable[[History], Iterator[Violation]]]
    checkers = [check_conservation, check_targets, check_reasons, check_exclusion]
    return [violation for checker in checkers for violation in checker(history)]


def run(settings: Settings, say: Callable[[str], None]) -> Outcome:
    """One run, from the start of the server to what the checkers say."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="distcron-chaos-")))
        # Every write is on disk before it is answered, so that a killed server loses nothing it promised.
        server = stack.enter_context(Server(settings.binary, directory=folder / "server", start_timeout=60))
        return _Run(settings, folder, server, stack, say).go()


class _Run:
    def __init__(
        self, settings: Settings, folder: Path, server: Server, stack: ExitStack, say: Callable[[str], None]
    ) -> None:
        self._settings, self._folder, self._say = settings, folder, say
        self._base = time.time_ns() // 1_000_000
        self._wanted = population(settings.seed, settings.schedules, self._base)
        self._cluster = Cluster(settings, folder, self._base, server, stack)
        self._editor = Editor(self._cluster.editors_proxy.url, self._wanted, settings.seed, settings.lease)
        self._onlooker = _Onlooker(self._cluster)
        self._unfinished: list[str] = []
        self._since = 0
        self._started = time.monotonic()

    def go(self) -> Outcome:
        self._warm_up()
        injector = self._let_it_go_wrong()
        settled = self._heal(injector)
        return self._read(injector, settled)

    def _warm_up(self) -> None:
        """Until the code's schedules are stored, so that it is known from when on they count."""
        for post in self._cluster.posts:
            self._cluster.fill(post)
        code = sum(one.source == "code" for one in self._wanted)
        direct, keys = self._cluster.direct, self._cluster.keys
        self._await("the schedules of the code", lambda: direct.hlen(keys.schedules) == code)
        self._since = self._cluster.now()
        self._editor.put_all(0.5)
        self._onlooker.start()
        self._editor.start()
        self._say(f"{len(self._wanted)} schedules; the faults begin.")

    def _let_it_go_wrong(self) -> Injector:
        s = self._settings
        faults = plan(s.seed, s.seconds, s.pace, s.lease, s.faults)
        injector = Injector(self._cluster, faults, self._editor.marks(s.planted))
        end = time.monotonic() + s.seconds
        while time.monotonic() < end:
            injector.turn()
            self._cluster.look_after()
            time.sleep(0.01)
        self._say(f"{sum(injector.done.values())} faults are over; healing.")
        return injector

    def _heal(self, injector: Injector) -> int:
        """Everything that is due must be decided, and every message be run. Returns up to when it is decided."""
        injector.heal()
        self._editor.stop()
        cluster = self._cluster
        # A fetch whose reply was lost leaves messages in the hands of a worker that does not know it (Dramatiq's own).
        for post in cluster.workers():
            cluster.end(post, 20)
            cluster.fill(post)
        self._await("everything due to be decided", self._is_decided)
        settled = cluster.now() - _BEHIND
        # What is read at the end must stand still.
        cluster.close(cluster.beats(), 20)
        self._say("Everything due is decided; the workers finish.")
        self._await("every message to be run", self._is_run)
        cluster.close(cluster.workers(), 20)
        self._onlooker.stop()
        return settled

    def _is_decided(self) -> bool:
        direct, keys = self._cluster.direct, self._cluster.keys
        return direct.zcount(keys.due, "-inf", self._cluster.now() - _BEHIND) == 0

    def _is_run(self) -> bool:
        direct, keys = self._cluster.direct, self._cluster.keys
        at_rest = (b".XQ.msgs", b":dead.msgs")
        queues = [key for key in direct.scan_iter("dramatiq:*.msgs", count=1000) if not key.endswith(at_rest)]
        return not direct.hlen(keys.runs) and not any(direct.hlen(key) for key in queues)

    def _await(self, what: str, is_so: Callable[[], bool]) -> None:
        patience = self._settings.patience
        deadline = time.monotonic() + patience
        while not self._answered(is_so):
            if time.monotonic() > deadline:
                self._say(f"Waited {patience:g} s for {what}, in vain.")
                self._unfinished.append(what)
                return
            self._cluster.look_after()
            time.sleep(0.05)

    @staticmethod
    def _answered(is_so: Callable[[], bool]) -> bool:
        with suppress(redis.RedisError):
            return is_so()
        return False

    # -- what there is at the end ---------------------------------------------------------------------------

    def _read(self, injector: Injector, settled: int) -> Outcome:
        alive = [post.name for post in self._cluster.posts if post.child is not None and post.child.alive]
        assert not alive, f"{alive} are still there"
        with redis.Redis.from_url(self._cluster.server.url) as client:
            state = read_state(client, self._cluster.keys)
        now = self._cluster.now()
        attempts: dict[str, list[Attempt]] = {one.name: [] for one in self._wanted}
        for attempt in self._editor.attempts:
            attempts[attempt.name].append(attempt)
        history = History(
            timelines={
                one.name: timeline(
                    one.name,
                    applied(attempts[one.name], state.specs.get(one.name)),
                    # At least up to where its cursor stands.
                    max(now, min(state.cursors.get(one.name, now), now + 86_400_000)),
                    code=(one, self._born(one, state.decisions)) if one.source == "code" else None,
                )
                for one in self._wanted
            },
            state=state,
            seen=read_all(self._folder),
            triggers=self._editor.triggers,
            settled=settled,
            watched=frozenset(self._onlooker.seen),
            fallen=self._cluster.fallen,
            unfinished=self._unfinished,
        )
        return Outcome(
            self._settings,
            self._cluster.server.version,
            history,
            injector.done,
            self._editor.done,
            check(history),
            self._cluster.started,
            self._swallowed(),
            time.monotonic() - self._started,
        )

    def _swallowed(self) -> Counter[str]:
        """How many replies were swallowed, by what was asked: one of our scripts, or another command."""
        names = self._editor.script_names()
        found: Counter[str] = Counter()
        for proxy in self._cluster.proxies:
            for asked, number in proxy.swallowed.items():
                words = asked.decode("latin-1").split("\r\n")
                command, argument = (words + [""] * 5)[2], (words + [""] * 5)[4]
                found[names.get(argument, command)] += number
        return found

    def _born(self, wanted: Wanted, decisions: Sequence[Decision]) -> int:
        """From when on a schedule of the code counts: the beat that stored it did not tell, but its first tick does.

        That must not be later than the first fire time after the schedule was seen in the store.
        """
        first = min((one.first for one in decisions if one.schedule == wanted.name), default=self._since)
        if wanted.policy.get("run_at_start"):
            return min(first, self._since)
        following = wanted.times.next_after(self._since)
        if first < self._base or (following is not None and first > following):
            return self._since
        return min(first - 1, self._since)


class _Onlooker(threading.Thread):
    """Reads along, with a connection of its own: a record that was seen once must stay."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(name="chaos-onlooker", daemon=True)
        self.seen: set[str] = set()
        self._key = cluster.keys.ticks
        self._client = redis.Redis.from_url(cluster.server.url, socket_timeout=5)
        self._newest = "0"
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(0.3):
            with suppress(redis.RedisError):
                self._read()

    def stop(self) -> None:
        self._stopped.set()
        self.join(30)
        self._client.close()

    def _read(self) -> None:
        for _, entries in self._client.xread({self._key: self._newest}, count=5000):
            self.seen.update(entry[0].decode() for entry in entries)
            self._newest = entries[-1][0].decode()
