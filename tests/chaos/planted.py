"""Bugs to be found: what schedulers in the field do, built in on purpose to see that the checkers see it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from dramatiq_distcron.store.base import Answers, Fire, Guard
from dramatiq_distcron.store.redis import RedisStore, scripts

__all__ = ["BUGS", "mark_of_the_commit", "plant", "planted_script"]


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


_IN_PYTHON: dict[str, Callable[[RedisStore, Guard, Sequence[Fire]], Answers]] = {
    "lease-then-send": _lease_then_send,
    "claim-then-send": _claim_then_send,
}
#: What the commit does not ask any more: who has the lease, and whether the cursor is where it was.
_IN_LUA: dict[str, dict[str, str]] = {
    "no-comparison": {
        "if HOLDER ~= '' and redis.call('get', LEASE) ~= HOLDER then": "if false then",
        "(given[e + SCORE] ~= '*' and s.score ~= given[e + SCORE])": "false",
    },
}
BUGS = [*_IN_PYTHON, *_IN_LUA]
#: What is sent between two of the steps that should be one.
_IN_THE_MIDDLE = {"lease-then-send": "RPUSH", "claim-then-send": "XADD"}


def plant(bug: str) -> None:
    """Puts this bug in place of the commit, for as long as the process lives; ``""`` none."""
    if bug in _IN_LUA:
        _plant_in_lua(bug)
    elif bug:
        RedisStore.start_fire = _IN_PYTHON[bug]  # type: ignore[method-assign, assignment]


def _plant_in_lua(bug: str) -> None:
    join = scripts._join

    def planted(name: str, *more: Any) -> str:
        return planted_script(bug, join(name, *more)) if name == "fire" else join(name, *more)

    scripts._join = planted  # type: ignore[assignment]


def mark_of_the_commit(bug: str, text: str) -> str:
    """What a request has in it by which a process with this bug commits; ``text`` is the script of a healthy one."""
    return _IN_THE_MIDDLE.get(bug) or hashlib.sha1(planted_script(bug, text).encode()).hexdigest()


def planted_script(bug: str, text: str) -> str:
    """The script of the commit as a process with this bug sends it."""
    for healthy, sick in _IN_LUA.get(bug, {}).items():
        assert healthy in text, healthy
        text = text.replace(healthy, sick)
    return text
