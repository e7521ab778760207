"""What the verbs in memory share: the state, its lock, its clock."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappush
from typing import Any

from ...errors import ConfigurationError, quoted
from ...retry_budget import Bucket
from ..base import DATA, Guard, Letter, Record, Waiting

__all__ = ["Verbs", "record_fields"]


@dataclass
class State:
    owner: str | None = None
    lease: str | None = None
    lease_until: int = 0
    term: int = 0
    since: int = 0
    revision: int = 0
    #: When a schedule was removed last.
    removed: int = -1
    schedules: dict[str, str] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    enqueued: dict[str, int] = field(default_factory=dict)
    outstanding: dict[str, str] = field(default_factory=dict)
    runs: dict[str, dict[str, str]] = field(default_factory=dict)
    outbox: dict[str, bytes] = field(default_factory=dict)
    retries: dict[str, tuple[int, Waiting]] = field(default_factory=dict)
    #: When each of them is due, as a heap; what does not agree with ``retries`` is out of date.
    dues: list[tuple[int, str]] = field(default_factory=list)
    budgets: dict[str, Bucket] = field(default_factory=dict)
    deliveries: dict[str, int] = field(default_factory=dict)
    dead: dict[str, tuple[int, Letter]] = field(default_factory=dict)
    notices: list[tuple[int, str]] = field(default_factory=list)
    #: When each was heard of last, and what it told of itself, if it did yet.
    instances: dict[str, tuple[int, Mapping[str, Any] | None]] = field(default_factory=dict)


class Verbs:
    """The state with its lock and clock. The parameters are those of ``MemoryStore``."""

    where = "memory"

    def __init__(
        self,
        now: Callable[[], int],
        dispatch: Callable[[Sequence[Any]], int | None] | None = None,
        *,
        is_there: Callable[[str, str], bool] = lambda place, redis_id: True,
        length: Callable[[str], int] = lambda queue: 0,
        expect: Callable[[Sequence[Any], int], None] = lambda call, number: None,
        history_size: int = 10_000,
    ) -> None:
        _refuse_odd(history_size, now=now, is_there=is_there, length=length, expect=expect)
        self._now = now
        self._dispatch = dispatch
        self._is_there = is_there
        self._length = length
        self._expect = expect
        self._state = State()
        self._history_size = history_size
        self._ticks: deque[dict[str, str]] = deque(maxlen=history_size)
        self._appended = 0
        self._woken = threading.Condition(threading.RLock())
        self._wakes = self._seen = 0

    def now(self) -> int:
        """The store's clock in ms."""
        return self._now()

    @contextmanager
    def running_on(self, now: Callable[[], int]) -> Iterator[None]:
        """Goes by another clock for a while, keeps all of the history, and has no leader at its beginning and end."""
        before, self._now = self._now, now
        self._ticks = deque(self._ticks)
        self._state.lease = None
        try:
            yield
        finally:
            self._now = before
            self._ticks = deque(self._ticks, maxlen=self._history_size)
            self._state.lease = None

    @property
    def appended(self) -> int:
        """How many records were ever appended to the history."""
        return self._appended

    def records_since(self, appended: int) -> list[Mapping[str, str]]:
        """The records after the first ``appended`` ones, and the open ones, as far as they are kept."""
        with self._woken:
            count = min(self._appended - appended, len(self._ticks))
            closed = list(self._ticks)[len(self._ticks) - count :]
            return closed + [{"schedule": name, **last} for name, last in self._state.last.items() if last["open"]]

    def _holds(self, holder: str, now: int) -> bool:
        return self._state.lease == holder and self._state.lease_until > now

    def _admits(self, guard: Guard) -> bool:
        return guard.holder == "" or self._holds(guard.holder, self._now())

    def _carry_out(self, call: Sequence[Any], data: bytes) -> None:
        if self._dispatch is None:
            raise RuntimeError("there is no broker to dispatch to")
        self._dispatch([data if argument is DATA else argument for argument in call])

    def _wait_until(self, due: int, key: str, waiting: Waiting) -> None:
        self._state.retries[key] = (due, waiting)
        heappush(self._state.dues, (due, key))

    def _wake(self) -> None:
        self._wakes += 1
        self._woken.notify_all()

    def _remember(self, guard: Guard, name: str, record: Record, *, closed: bool, by_hand: bool = False) -> None:
        if by_hand:
            # No fire time was decided: the last decided one stays what it is.
            self._append(name, record_fields(guard, record))
            return
        fields = {**record_fields(guard, record), "open": not closed}
        before = self._state.last.get(name)
        if before and before["open"]:
            if not closed and (before["outcome"], before["reason"]) == (record.outcome, record.reason):
                before["count"] = str(int(before["count"]) + record.count)
                before["fire_time_to"] = fields["fire_time_to"]
                before["decided_at"] = fields["decided_at"]
                return
            self._append(name, before)
        if closed:
            self._append(name, fields)
        self._state.last[name] = fields

    def _append(self, name: str, fields: Mapping[str, Any]) -> None:
        self._appended += 1
        self._ticks.append({"schedule": name, **{key: value for key, value in fields.items() if key != "open"}})


def _refuse_odd(history_size: object, **functions: object) -> None:
    """Tests of apps make stores themselves."""
    for name, function in functions.items():
        if not callable(function):
            raise ConfigurationError(f"MemoryStore({name}=...) takes a function, not {quoted(function)}.")
    if not isinstance(history_size, int) or isinstance(history_size, bool) or not 1 <= history_size <= 10**9:
        raise ConfigurationError(
            f"MemoryStore(history_size=...) takes a whole number of records from 1, not {quoted(history_size)}."
        )


def record_fields(guard: Guard, record: Record) -> dict[str, Any]:
    return {
        "fire_time": str(record.fire_time),
        "fire_time_to": str(record.fire_time_to),
        "count": str(record.count),
        "outcome": record.outcome,
        "message_id": record.message_id,
        "decided_at": str(guard.now),
        "lateness_ms": "" if record.lateness is None else str(record.lateness),
        "term": str(guard.term),
        "holder": guard.holder,
        "reason": record.reason,
    }
