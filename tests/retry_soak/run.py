"""One run: messages, workers, kills, rest, and what the checker says."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dramatiq import Message
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron.demo.processes import Child
from dramatiq_distcron.server import Server
from tests.soaks import Plan, Say

from .checker import QUEUES, Rest, check, read_ledger, read_rest
from .worker import TRIES, Ledger, broker_of, declare

__all__ = ["Outcome", "run"]

_ACTORS = ("full", "given", "asked", "shared")


@dataclass(frozen=True)
class Outcome:
    """A run, and everything that was not as it must be."""

    messages: int
    runs: int
    kills: int
    dead: int
    seconds: float
    violations: list[str]

    def told(self) -> str:
        what = f"{self.messages} messages, {self.runs} runs, {self.kills} kills, {self.dead} dead letters"
        return f"{what}\n{self.seconds:.0f} s"


def run(plan: Plan, say: Say = lambda text: None) -> Outcome:
    """Does the whole of it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="distcron-soak-")))
        server = stack.enter_context(Server(plan.binary))
        return _Run(plan, server, folder / "ledger", stack, say).go()


class _Run:
    def __init__(self, plan: Plan, server: Server, ledger: Path, stack: ExitStack, say: Say) -> None:
        self._plan, self._ledger, self._say, self._stack = plan, ledger, say, stack
        self._random = random.Random(plan.seed)
        self._namespace = "soak"
        self._env = {"SOAK_URL": server.url, "SOAK_NAMESPACE": self._namespace, "SOAK_LEDGER": str(ledger)}
        if plan.doubled:
            self._env["SOAK_DOUBLED"] = "1"
        self._broker: Any = broker_of(server.url, self._namespace, doubled=plan.doubled)
        stack.callback(self._broker.client.close)
        # Three of five end well, after up to as many failures as may be.
        self._wanted = {n: self._random.choice([0, 1, 2, TRIES, TRIES]) for n in range(plan.messages)}
        self._kills = 0

    def go(self) -> Outcome:
        started = time.monotonic()
        self._enqueue(self._broker)
        workers = [self._start() for _ in range(self._plan.workers)]
        deadline = started + self._plan.patience
        next_kill = started + 2.0
        while (left := self._left()) and time.monotonic() < deadline:
            if time.monotonic() >= next_kill and left > self._plan.messages // 20:
                workers = self._kill_one(workers)
                next_kill = time.monotonic() + self._random.expovariate(1 / self._plan.pace)
            time.sleep(0.05)
        for worker in workers:
            worker.end(20)
        return self._look(time.monotonic() - started)

    def _enqueue(self, broker: RedisBroker) -> None:
        declare(broker, Ledger(str(self._ledger)), doubled=self._plan.doubled)
        for number, failures in self._wanted.items():
            broker.get_actor(_ACTORS[number % len(_ACTORS)]).send(number, failures)

    def _start(self) -> Child:
        worker = Child("worker", [sys.executable, "-m", "tests.retry_soak.worker"], self._env)
        self._stack.callback(worker.kill)
        return worker

    def _kill_one(self, workers: list[Child]) -> list[Child]:
        victim = self._random.choice(workers)
        victim.kill()
        self._kills += 1
        if self._kills % 10 == 0:
            self._say(f"{self._kills} kills, {self._left()} messages are left")
        return [one for one in workers if one is not victim] + [self._start()]

    def _left(self) -> int:
        client, name = self._broker.client, self._namespace
        waiting = client.zcard(f"{name}:distcron:default:retries")
        return int(sum(client.hlen(f"{name}:{queue}.msgs") for queue in QUEUES) + waiting)

    def _look(self, seconds: float) -> Outcome:
        seen = read_ledger(self._ledger.read_text() if self._ledger.exists() else "")
        rest: Rest = read_rest(self._broker.client, self._namespace, Message.decode)
        found = list(check(self._wanted, seen, rest))
        return Outcome(self._plan.messages, seen.runs, self._kills, sum(rest.dead.values()), seconds, found)
