"""Bugs to be found: what schedulers in the field do, built in on purpose to see that the checkers see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dramatiq_distcron.store.base import Answers, Fire, Guard
from dramatiq_distcron.store.redis import RedisStore

__all__ = ["BUGS", "plant"]


def _holds_lease(store: RedisStore, guard: Guard) -> bool:
    leader = store.leader()
    return leader is not None and leader[0] == guard.holder


def _record(store: RedisStore, guard: Guard, fire: Fire) -> None:
    r = fire.record
    fields = {
        "schedule": fire.name, "fire_time": r.fire_time, "fire_time_to": r.fire_time_to, "count": r.count,
        "outcome": r.outcome, "message_id": r.message_id, "decided_at": guard.now, "lateness_ms": r.lateness or "",
        "term": guard.term, "holder": guard.holder, "reason": r.reason,
    }  # fmt: skip
    with store._errors():
        store._client.xadd(store.keys.ticks, fields)
        if fire.run:
            store._client.hset(store.keys.runs, r.message_id, fire.run)


def _move(store: RedisStore, fire: Fire) -> None:
    with store._errors():
        store._client.zadd(store.keys.due, {fire.name: fire.new_score})


def _send(store: RedisStore, fire: Fire) -> None:
    """As ``broker.enqueue`` does: in a step of its own."""
    for call in fire.calls:
        with store._errors():
            store._client.hset(f"{store.keys.namespace}:{call[2]}.msgs", call[8], call[9])
            store._client.rpush(f"{store.keys.namespace}:{call[2]}", call[8])


def _lease_then_send(store: RedisStore, guard: Guard, fires: Sequence[Fire]) -> Answers:
    """Who has the lease may send: that is looked at before, and each message is sent for itself."""
    if not _holds_lease(store, guard):
        return lambda: None
    for fire in fires:
        _send(store, fire)
        _record(store, guard, fire)
        _move(store, fire)
    return lambda: ["ok"] * len(fires)


def _claim_then_send(store: RedisStore, guard: Guard, fires: Sequence[Fire]) -> Answers:
    """The cursor is moved first, so that nobody sends twice: who dies after that has sent nothing."""
    if not _holds_lease(store, guard):
        return lambda: None
    for fire in fires:
        _move(store, fire)
        _record(store, guard, fire)
        _send(store, fire)
    return lambda: ["ok"] * len(fires)


BUGS: dict[str, Callable[[RedisStore, Guard, Sequence[Fire]], Answers]] = {
    "lease-then-send": _lease_then_send,
    "claim-then-send": _claim_then_send,
}


def plant(name: str) -> None:
    """Puts the bug of this name in place of the commit; ``""`` none. Raises ``KeyError`` for an unknown one."""
    if name:
        RedisStore.start_fire = BUGS[name]  # type: ignore[method-assign, assignment]
