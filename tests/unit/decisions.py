"""What the tests of decisions share: timings that can be watched, and short words for moves."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from dramatiq_distcron.policies import Policy
from dramatiq_distcron.schedules import EveryTiming, Timing
from dramatiq_distcron.specs import Spec
from dramatiq_distcron.ticks import ENQUEUED, MISSED, Move, Situation, decide

SECOND = 1000
START = 1_000_000


class FixedTiming(Timing):
    """Fires at given times and counts how often it is asked."""

    kind = "fixed"
    expression = "fixed"
    timezone = None

    def __init__(self, times: list[int]) -> None:
        self.times = sorted(times)
        self.asked = 0

    def next_ms(self, after: int) -> int | None:
        self.asked += 1
        found = bisect_right(self.times, after)
        return self.times[found] if found < len(self.times) else None

    def to_json(self) -> dict[str, Any]:
        return {}


@dataclass
class CountingTiming(Timing):
    """Counts how often another one is asked."""

    inner: Timing
    asked: int = 0
    kind = "counting"
    expression = "counting"
    timezone = None

    def next_ms(self, after: int) -> int | None:
        self.asked += 1
        return self.inner.next_ms(after)

    def to_json(self) -> dict[str, Any]:
        return {}


def spec_of(timing: Timing, **policy: Any) -> Spec:
    return Spec("job", "actor", "default", timing, Policy(**policy))


def decided(count: int, *, on_duty_since: int = 0, late: int = 0, **policy: Any) -> list[Move]:
    """The moves for ``count`` fire times, one a second from START, ``late`` ms after the last of them."""
    now = START + (count - 1) * SECOND + late
    return decide(spec_of(EveryTiming(SECOND), **policy), START, now, Situation(on_duty_since))


def enqueued(moves: list[Move]) -> list[int]:
    return [move.first for move in moves if move.outcome == ENQUEUED]


def told(moves: list[Move], outcome: str) -> list[tuple[int, int, int, str]]:
    """First, last, count and reason of what has ``outcome``."""
    return [(move.first, move.last, move.count, move.reason) for move in moves if move.outcome == outcome]


def missed(moves: list[Move]) -> list[tuple[int, int, int, str]]:
    return told(moves, MISSED)


def nth(index: int) -> int:
    """The fire time number ``index``, from 0."""
    return START + index * SECOND
