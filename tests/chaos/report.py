"""What a run came to, as lines and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .history import History
from .run import Outcome

__all__ = ["as_json", "lines"]

_SHOWN = 20


def as_json(outcome: Outcome) -> dict[str, Any]:
    """All figures of a run."""
    history = outcome.history
    state = history.state
    outcomes: Counter[str] = Counter()
    for one in state.decisions:
        outcomes[one.outcome] += one.count if one.is_tick else 0
    ticks = [one for one in state.decisions if one.message_id and one.is_tick]
    lateness = sorted((one.stored_at or 0) - one.first for one in ticks)
    settings = outcome.settings
    return {
        "seed": settings.seed,
        "server": outcome.server,
        "schedules": settings.schedules,
        "lease_s": settings.lease,
        "hooked": settings.hooked,
        "planted": settings.planted,
        "seconds": round(outcome.seconds),
        "fire_times": sum(outcomes.values()),
        "ticks": len(ticks),
        "outcomes": dict(outcomes.most_common()),
        "triggers": len(state.decisions) - len([one for one in state.decisions if one.is_tick]),
        "terms": len({one.term for one in ticks}),
        "processes": outcome.processes,
        "faults": dict(sorted(outcome.faults.items())),
        "edits": dict(sorted(outcome.edits.items())),
        "replies_swallowed": dict(Counter(outcome.swallowed).most_common()),
        "lateness_ms": {"median": _at(lateness, 0.5), "p99": _at(lateness, 0.99), "worst": _at(lateness, 1)},
        **_deliveries(history),
        "violations": len(outcome.violations),
        "violations_by_kind": dict(Counter(one.kind for one in outcome.violations)),
    }


def _deliveries(history: History) -> dict[str, Any]:
    """What Dramatiq's "at least once" came to, which is no fault of the scheduler's."""
    begun = [seen for seen in history.seen if seen.event == "begun"]
    attempts = {(seen.message_id, seen.attempt) for seen in begun}
    copies: Counter[tuple[str, int]] = Counter()
    for message_id, attempt, _ in {(seen.message_id, seen.attempt, seen.redis_id) for seen in begun}:
        copies[message_id, attempt] += 1
    return {
        "runs_begun": len(begun),
        "retries": len(attempts) - len({seen.message_id for seen in begun}),
        "redeliveries": len(begun) - len(attempts),
        "doubled_retries": sum(count - 1 for count in copies.values()),
        "runs_ended": dict(Counter(one.state for one in history.state.endings)),
    }


def _at(sorted_values: list[int], share: float) -> int | None:
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))] if sorted_values else None


def lines(outcome: Outcome) -> list[str]:
    """For a human: the figures, then the first violations."""
    shown = [f"{name:>20}  {_plain(value)}" for name, value in as_json(outcome).items()]
    for violation in outcome.violations[:_SHOWN]:
        shown.append(f"VIOLATION {violation.kind} {violation.schedule}: {violation.detail}")
    if len(outcome.violations) > _SHOWN:
        shown.append(f"... and {len(outcome.violations) - _SHOWN} more")
    return shown


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {count}" for name, count in value.items()) or "-"
    return str(value)
