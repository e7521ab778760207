"""A dependency of fixed capacity fails for a minute: what retries do to it then, with and without budget and jitter.

    python benchmarks/retry_overload.py [--minutes 15] [--svg docs/explanation/retry-overload.svg]

A simulation: the strategies and the budget (of the store in memory) are the real ones, the clock is not. Fresh messages
come at 80 a second. The dependency does 100 a second; what is asked of it beyond that costs it as well, so that of n
requests 100 * 100 / n succeed. From 60 s on it does nothing for 60 s. Load amplification is how many requests there are
for each fresh message, in the worst ten seconds and over all.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dramatiq_distcron import RetryBudget, exponential
from dramatiq_distcron.backoff import Backoff
from dramatiq_distcron.store.base import Ending, Waiting
from dramatiq_distcron.store.memory import MemoryStore

FRESH, CAPACITY = 80, 100
OUTAGE = (60.0, 120.0)
#: Length of a step and of a window, in seconds.
STEP, WINDOW = 0.1, 10.0
BASE, CAP = 1, 30


@dataclass
class Scenario:
    """One way to retry, and what came of it: requests and successes by the second, what waits at each second."""

    name: str
    strategy: Backoff
    budget: RetryBudget | None
    requests: list[float] = field(default_factory=list)
    successes: list[float] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)

    @property
    def worst(self) -> float:
        """The load amplification of the worst window."""
        length = int(WINDOW)
        windows = [sum(self.requests[i : i + length]) for i in range(len(self.requests) - length + 1)]
        return max(windows) / (FRESH * WINDOW)

    @property
    def overall(self) -> float:
        return sum(self.requests) / (FRESH * len(self.requests))

    @property
    def healed(self) -> int | None:
        """The second from which on as many succeed as come, to the end."""
        last = max((i for i, done in enumerate(self.successes) if done < 0.9 * FRESH), default=0)
        return None if last >= len(self.successes) - 10 else last + 1


class World:
    """The dependency, the messages, and the store with a clock that is moved by hand."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario = scenario
        self._rng = random.Random(seed)
        self._ms = 0
        self._store = MemoryStore(lambda: self._ms, self._enqueue)
        self._queue: list[tuple[int, int, float | None]] = []
        self._fresh = 0

    def _enqueue(self, call: Sequence[object]) -> int:
        self._queue.append(call[0])  # type: ignore[arg-type]
        return 1

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            requests = successes = 0
            for _ in range(round(1 / STEP)):
                asked, done = self._step()
                requests, successes = requests + asked, successes + done
            self._scenario.requests.append(requests)
            self._scenario.successes.append(successes)
            self._scenario.waiting.append(self._store.count_retries())

    def _step(self) -> tuple[int, int]:
        self._ms += round(STEP * 1000)
        for _ in range(round(FRESH * STEP)):
            self._fresh += 1
            self._queue.append((self._fresh, 0, None))
        while (found := self._store.move_retries(1000)).moved + found.put_off == 1000:
            pass
        asked, self._queue = self._queue, []
        self._rng.shuffle(asked)
        done = self._served(len(asked))
        for message in asked[done:]:
            self._retry(*message)
        if self._scenario.budget is not None and done:
            self._store.earn([(self._scenario.budget, done)])
        return len(asked), done

    def _served(self, asked: int) -> int:
        """How many of so many requests succeed in one step."""
        if OUTAGE[0] <= self._ms / 1000 < OUTAGE[1]:
            return 0
        able = CAPACITY * STEP
        exact = asked if asked <= able else able * able / asked
        return int(exact) + (self._rng.random() < exact - int(exact))

    def _retry(self, number: int, attempt: int, previous: float | None) -> None:
        delay = self._scenario.strategy.delay(attempt, rng=self._rng, previous=previous)
        budget = self._scenario.budget
        about = {} if budget is None else {"budget": [budget.name, budget.floor, budget.burst]}
        call = ((number, attempt + 1, delay),)
        waiting = Waiting(str(number), round(delay * 1000), about, b"", [call])
        self._store.settle(Ending(str(number), "retrying", goes_on=True, waiting=waiting))


def scenarios() -> list[Scenario]:
    def backoff(jitter: str) -> Backoff:
        return exponential(BASE, cap=CAP, jitter=jitter)  # type: ignore[arg-type]

    return [
        Scenario("no jitter, no budget", backoff("none"), None),
        Scenario("full jitter, no budget", backoff("full"), None),
        Scenario("no jitter, budget", backoff("none"), RetryBudget("dependency")),
        Scenario("full jitter, budget", backoff("full"), RetryBudget("dependency")),
    ]


# -- the plot -------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, TOP, GAP = 760, 150, 60, 30, 46


def svg(found: Sequence[Scenario], seconds: int) -> str:
    """One panel a scenario: what is asked of the dependency, and what succeeds."""
    # What is beyond that is beyond all help; what matters is seen.
    most = 4.0 * CAPACITY
    parts = [_panel(one, i, seconds, most) for i, one in enumerate(found)]
    height = TOP + len(found) * (HEIGHT + GAP) + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{height}" fill="#fff"/>' + "".join(parts) + "</svg>\n"
    )


def _panel(one: Scenario, index: int, seconds: int, most: float) -> str:
    top = TOP + index * (HEIGHT + GAP)
    across = (WIDTH - LEFT - 10) / seconds

    def x(second: float) -> str:
        return f"{LEFT + second * across:.1f}"

    def y(rate: float) -> str:
        return f"{top + HEIGHT - min(rate, most) / most * HEIGHT:.1f}"

    def line(rates: Sequence[float], colour: str) -> str:
        points = " ".join(f"{x(second)},{y(rate)}" for second, rate in enumerate(rates))
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.3"/>'

    begin, end = (float(x(second)) for second in OUTAGE)
    healed = "it never heals" if one.healed is None else f"healed after {one.healed} s"
    title = f"{one.name}: amplification {one.worst:.2f} in the worst {WINDOW:.0f} s; {healed}"
    marks = "".join(
        f'<text x="{LEFT - 6}" y="{float(y(rate)) + 4:.1f}" text-anchor="end" fill="#555">{rate}</text>'
        for rate in (0, CAPACITY, int(most // 100) * 100)
    )
    minutes = "".join(
        f'<text x="{x(second)}" y="{top + HEIGHT + 14}" text-anchor="middle" fill="#555">{second // 60} min</text>'
        for second in range(0, seconds + 1, 120)
    )
    return (
        f'<text x="{LEFT}" y="{top - 6}" font-weight="bold">{title}</text>'
        f'<rect x="{begin:.1f}" y="{top}" width="{end - begin:.1f}" height="{HEIGHT}" fill="#f3d9d9"/>'
        f'<line x1="{LEFT}" y1="{y(CAPACITY)}" x2="{WIDTH - 10}" y2="{y(CAPACITY)}" stroke="#999" '
        f'stroke-dasharray="4 3"/><line x1="{LEFT}" y1="{y(0)}" x2="{WIDTH - 10}" y2="{y(0)}" stroke="#999"/>'
        + line(one.requests, "#c0392b")
        + line(one.successes, "#1f7a4d")
        + marks
        + minutes
    )


def main(say: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    found = scenarios()
    for one in found:
        World(one, args.seed).run(args.minutes * 60)
        healed = "never" if one.healed is None else f"{one.healed} s"
        say(
            f"{one.name:<24} amplification: worst {WINDOW:.0f} s {one.worst:.2f}, over all {one.overall:.2f}; "
            f"healed: {healed}; waiting at most {max(one.waiting)}, at the end {one.waiting[-1]}"
        )
    if args.svg:
        args.svg.write_text(svg(found, args.minutes * 60))
    return 0 if all(one.worst <= 1.2 for one in found if one.budget) else 1


if __name__ == "__main__":
    raise SystemExit(main())
