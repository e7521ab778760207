"""One run: messages that die, kills, cuts, rest, and what the checker says."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dramatiq_distcron.demo.processes import Child
from dramatiq_distcron.server import Server
from tests.proxies import Proxy
from tests.soaks import Plan, Say

from .app import ACTORS, Ledger, app_of
from .checker import check, left_over, read_ledger

__all__ = ["Outcome", "run"]

_NAMESPACE = "soak"


@dataclass(frozen=True)
class Outcome:
    """A run, and everything that was not as it must be."""

    messages: int
    letters: int
    runs: int
    kills: int
    cuts: int
    seconds: float
    violations: list[str]

    def told(self) -> str:
        what = f"{self.messages} messages, {self.letters} letters, {self.runs} runs"
        return f"{what}\n{self.kills} kills, {self.cuts} cuts, {self.seconds:.0f} s"


def run(plan: Plan, say: Say = lambda text: None) -> Outcome:
    """Does the whole of it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="distcron-soak-")))
        server = stack.enter_context(Server(plan.binary))
        proxy = stack.enter_context(Proxy(server.port or 0))
        return _Run(plan, server, proxy, folder / "ledger", stack, say).go()


class _Run:
    def __init__(self, plan: Plan, server: Server, proxy: Proxy, ledger: Path, stack: ExitStack, say: Say) -> None:
        self._plan, self._proxy, self._ledger, self._stack, self._say = plan, proxy, ledger, stack, say
        self._random = random.Random(plan.seed)
        self._env = {"SOAK_URL": proxy.url, "SOAK_NAMESPACE": _NAMESPACE, "SOAK_LEDGER": str(ledger)}
        if plan.doubled:
            self._env["SOAK_DOUBLED"] = "1"
        self._distcron = app_of(server.url, _NAMESPACE, Ledger(str(ledger)))
        self._client: Any = self._distcron.broker.client  # type: ignore[attr-defined]
        stack.callback(self._client.close)
        self._names = list(ACTORS)
        self._deaths = [self._random.choice([1, 2, 2, 3]) for _ in range(plan.messages)]
        self._kills = self._cuts = 0

    def go(self) -> Outcome:
        started = time.monotonic()
        for number, deaths in enumerate(self._deaths):
            self._distcron.broker.get_actor(self._names[number % len(self._names)]).send(number, deaths)
        children = [self._start("worker") for _ in range(self._plan.workers)] + [self._start("redriver")]
        deadline = started + self._plan.patience
        while (left := self._left()) > self._plan.messages // 50 and time.monotonic() < deadline:
            time.sleep(self._random.expovariate(1 / self._plan.pace))
            children = self._hurt(children, left)
        # A fetch whose reply was lost leaves messages with a live worker: they come back when it is gone.
        children = [self._replaced(child) for child in children]
        while self._left() and time.monotonic() < deadline:
            time.sleep(0.1)
        for _, child in children:
            child.end(20)
        return self._look(time.monotonic() - started)

    def _hurt(self, children: list[tuple[str, Child]], left: int) -> list[tuple[str, Child]]:
        if self._random.random() < 0.4:
            self._cuts += 1
            self._proxy.cut()
            return children
        victim = self._random.randrange(len(children))
        self._kills += 1
        if self._kills % 10 == 0:
            self._say(f"{self._kills} kills, {self._cuts} cuts, {left} are left")
        return [self._replaced(one) if at == victim else one for at, one in enumerate(children)]

    def _start(self, kind: str) -> tuple[str, Child]:
        child = Child(kind, [sys.executable, "-m", "tests.letter_soak.app", kind], self._env)
        self._stack.callback(child.kill)
        return kind, child

    def _replaced(self, one: tuple[str, Child]) -> tuple[str, Child]:
        kind, child = one
        child.kill()
        return self._start(kind)

    def _left(self) -> int:
        prefix = f"{_NAMESPACE}:distcron:default:"
        places = [f"{_NAMESPACE}:{name}.msgs" for name in ("default", "default.DQ", "dead_letters", "dead_letters.DQ")]
        messages = sum(self._client.hlen(place) for place in places)
        return int(messages + self._client.zcard(f"{prefix}retries") + self._client.zcard(f"{prefix}dead"))

    def _look(self, seconds: float) -> Outcome:
        seen = read_ledger(self._ledger.read_text())
        tries = [2 if self._names[number % len(self._names)] == "twice" else 1 for number in range(len(self._deaths))]
        wanted = dict(enumerate(zip(self._deaths, tries, strict=True)))
        found = list(check(wanted, seen, left_over(self._client, _NAMESPACE)))
        letters = sum(self._deaths)
        return Outcome(self._plan.messages, letters, seen.runs, self._kills, self._cuts, seconds, found)
