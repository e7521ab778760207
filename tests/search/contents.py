"""What is stored, as far as anything depends on it: without what is only for reading."""

from __future__ import annotations

from typing import Any

from dramatiq_distcron.store.memory import MemoryStore

from .post import essence

__all__ = ["contents"]

#: Who decided when, and how late that was, is for reading only.
_OF_A_RECORD = ("fire_time", "fire_time_to", "count", "outcome", "reason", "message_id", "open", "run", "state")
_OF_A_RUN = ("schedule", "fire_time", "state", "worker", "attempt", "place", "rid", "claim")


def contents(store: MemoryStore, *, presence: bool) -> Any:
    """Equal for stores from which the same things can happen."""
    state = store._state
    ticks = sorted((tick["schedule"], index, _only(_OF_A_RECORD, tick)) for index, tick in enumerate(store._ticks))
    return (
        (state.lease, max(state.lease_until, store.now()), state.revision, state.removed, state.due),
        [(name, hash(spec)) for name, spec in state.schedules.items()],
        sorted((name, _only(_OF_A_RECORD, last)) for name, last in state.last.items()),
        sorted(state.outstanding.items()),
        sorted((message_id, _only(_OF_A_RUN, run)) for message_id, run in state.runs.items()),
        sorted(state.outbox),
        sorted((waiting.about["id"], due) for due, waiting in state.retries.values()),
        [(id, essence(letter.data)) for id, (_, letter) in sorted(state.dead.items(), key=lambda item: item[1][0])],
        sorted((holder, at) for holder, (at, _) in state.instances.items()) if presence else (),
        [(name, record) for name, _, record in ticks],
    )


def _only(fields: tuple[str, ...], record: Any) -> tuple[Any, ...]:
    return tuple(record.get(field) for field in fields)
