"""The proof: every tick that was due is there once. Pure counting, by what the workers wrote down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Proof", "TickKey", "due_ticks", "end_of_play", "prove"]

#: A tick: schedule and fire time in UTC ms.
TickKey = tuple[str, int]


@dataclass(frozen=True)
class Proof:
    """What was due and what became of it; ``takeover_ms`` is the time from the kill to the next leader."""

    ticks_due: int
    enqueued: int
    processed: int
    duplicates: int
    missing: int
    takeover_ms: int | None
    leader_killed: bool

    @property
    def ok(self) -> bool:
        return self.ticks_due > 0 and self.duplicates == 0 and self.missing == 0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}


def due_ticks(first: dict[str, int], until: int, interval: int = 1000) -> set[TickKey]:
    """Every tick of schedules that fire each ``interval`` ms, from their first fire times up to ``until``."""
    return {(name, time) for name, start in first.items() for time in range(start, until + 1, interval)}


def end_of_play(until: int, enqueued: Iterable[TickKey]) -> int:
    """Up to when ticks are due: ``until``, or later if all schedules fired later. A beat does until it is stopped."""
    latest: dict[str, int] = {}
    for name, time in enqueued:
        latest[name] = max(time, latest.get(name, time))
    return max(until, min(latest.values(), default=until))


def prove(
    due: set[TickKey],
    enqueued: Iterable[TickKey],
    succeeded: Iterable[TickKey],
    *,
    takeover_ms: int | None,
    leader_killed: bool,
) -> Proof:
    """Compares what was due with the messages that were enqueued and the runs that succeeded."""
    messages, runs = Counter(enqueued), Counter(succeeded)
    twice = sum(count - 1 for count in messages.values()) + sum(count - 1 for count in runs.values())
    return Proof(
        ticks_due=len(due),
        enqueued=sum(messages.values()),
        processed=len(runs),
        duplicates=twice,
        missing=len(due - set(messages)) + len((due & set(messages)) - set(runs)),
        takeover_ms=takeover_ms,
        leader_killed=leader_killed,
    )
