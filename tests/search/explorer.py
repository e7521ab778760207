"""Goes through every order in which things can happen, by doing them again from the beginning."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from .laws import Broken
from .world import Step, World

__all__ = ["Found", "Report", "explore", "shorten"]


@dataclass
class Found(Exception):
    """A law that does not hold, and the steps that lead there; ``at_end``: and what comes after, without faults."""

    law: str
    steps: list[Step]
    told: list[str] = field(default_factory=list)
    at_end: bool = False

    def __str__(self) -> str:
        return "\n  ".join([self.law, *self.told])


class Impossible(Exception):
    """A step that cannot be done in this state."""


@dataclass
class Report:
    """What a search went through. ``orders``: how many complete sequences of steps its states stand for."""

    states: int = 0
    runs: int = 0
    ends: int = 0
    orders: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {what}" for what, count in sorted(self.faults.items()) if what in _FAULTS)
        return (
            f"{self.orders:,} orders of steps through {self.states:,} states to {self.ends:,} ends; "
            f"{faults or 'no faults'}; {self.runs:,} runs in {self.seconds:.1f} s"
        )


#: What goes wrong, of all that can happen.
_FAULTS = ("cut", "kill", "late", "time")


@dataclass
class _Search:
    make: Callable[[], World]
    finish: Callable[[World], None]
    report: Report = field(default_factory=Report)
    after: dict[int, list[int]] = field(default_factory=dict)

    def run(self) -> Report:
        started = time.monotonic()
        waiting: list[tuple[int, list[Step]]] = [(0, [])]
        while waiting:
            waiting += self._one(*waiting.pop())
        self.report.states = len(self.after) - 1
        self.report.orders = _count_orders(self.after)
        self.report.seconds = time.monotonic() - started
        return self.report

    def _one(self, before: int, steps: list[Step]) -> list[tuple[int, list[Step]]]:
        """One run: along ``steps``, then on to where somebody was before. Returns what was passed by."""
        world = self.make()
        self.report.runs += 1
        self.report.faults.update(what for what, _ in steps[-1:])
        try:
            for step in steps:
                world.take(step)
            return self._go_on(world, before, list(steps))
        finally:
            world.close()

    def _go_on(self, world: World, before: int, steps: list[Step]) -> list[tuple[int, list[Step]]]:
        passed_by = []
        while True:
            key = world.key()
            self.after.setdefault(before, []).append(key)
            if key in self.after:
                return passed_by
            self.after[key] = []
            self._check(world.laws.check, steps)
            possible = world.steps()
            if all(what == "late" for what, _ in possible):
                self.report.ends += 1
                if possible:
                    passed_by += [(key, [*steps, step]) for step in possible]
                self._check(lambda: self.finish(world), steps, at_end=True)
                return passed_by
            passed_by += [(key, [*steps, step]) for step in possible[1:]]
            steps.append(possible[0])
            self.report.faults[possible[0][0]] += 1
            world.take(possible[0])
            before = key

    def follow(self, steps: list[Step]) -> None:
        """Does these steps. Raises ``Found`` as soon as a law is broken, and ``Impossible``."""
        world = self.make()
        try:
            for count in range(len(steps) + 1):
                self._check(world.laws.check, steps[:count])
                if count == len(steps):
                    break
                if steps[count] not in world.steps():
                    raise Impossible
                world.take(steps[count])
        finally:
            world.close()

    def _check(self, law: Callable[[], None], steps: list[Step], *, at_end: bool = False) -> None:
        try:
            law()
        except Broken as broken:
            raise Found(str(broken), steps, self._tell(steps), at_end) from None

    def _tell(self, steps: list[Step]) -> list[str]:
        """The steps in words."""
        world, told = self.make(), []
        for step in steps:
            told.append(world.tell(step))
            world.take(step)
        world.close()
        return told


def explore(make: Callable[[], World], finish: Callable[[World], None]) -> Report:
    """Searches all states from ``make()`` on; each last one is given to ``finish``.

    Raises:
      Found: a law does not hold.
    """
    return _Search(make, finish).run()


def shorten(make: Callable[[], World], finish: Callable[[World], None], found: Found) -> Found:
    """Leaves out one step after the other, as long as a law stays broken."""
    search = _Search(make, finish)
    index = -1 if found.at_end else len(found.steps) - 1
    while index >= 0:
        try:
            search.follow(found.steps[:index] + found.steps[index + 1 :])
        except Found as shorter:
            found = shorter
        except Impossible:
            pass
        index = min(index, len(found.steps)) - 1
    return found


def _count_orders(after: dict[int, list[int]]) -> int:
    """The number of paths through the graph of states from its root, 0."""
    counts: dict[int, int] = {}
    waiting = [0]
    while waiting:
        key = waiting[-1]
        missing = [one for one in after[key] if one not in counts]
        if missing:
            waiting += missing
            continue
        counts[key] = sum(counts[one] for one in after[key]) or 1
        waiting.pop()
    return counts[0]
