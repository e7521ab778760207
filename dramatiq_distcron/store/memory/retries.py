"""Messages that wait for their retry, their budgets, and counted deliveries, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heappop
from typing import TYPE_CHECKING

from ...retry_budget import Bucket
from ..base import Moved, Waiting, WaitingRow
from .base import Verbs

if TYPE_CHECKING:
    from ...retry_budget import RetryBudget

__all__ = ["RetryVerbs"]


class RetryVerbs(Verbs):
    """The waiting messages, as the store on Redis keeps them."""

    def move_retries(self, limit: int, *, hold: int | None = None) -> Moved:
        """Puts up to ``limit`` messages that are due back into their queues; with ``hold`` the caller takes them."""
        with self._woken:
            now = self._now()
            done: Counter[str] = Counter()
            failed = ""
            taken: list[tuple[str, bytes]] = []
            for key, due, waiting in self._due(now, limit):
                if due and (again := self._asks_again(waiting, now)) is not None:
                    self._wait_until(again, key, waiting)
                    done["put off"] += 1
                elif hold is not None:
                    self._wait_until(now + hold, key, waiting)
                    taken.append((key, waiting.data))
                elif why := self._move(key, waiting):
                    failed = why
                else:
                    done["moved"] += 1
            return Moved(now, done["moved"] + len(taken), done["put off"], failed, self._next_due(), taken)

    def _due(self, now: int, limit: int) -> list[tuple[str, int, Waiting]]:
        """Those that are due, oldest first. Each must be taken out or be given another time."""
        found: dict[str, tuple[int, Waiting]] = {}
        while len(found) < limit and (first := self._next_due()) is not None and first <= now:
            _, key = heappop(self._state.dues)
            found[key] = self._state.retries[key]
        return [(key, due, waiting) for key, (due, waiting) in found.items()]

    def _move(self, key: str, waiting: Waiting) -> str:
        try:
            for call in waiting.calls:
                self._carry_out(call, waiting.data)
        except Exception as error:
            self._wait_until(self._now() + 5000, key, waiting)
            return str(error)
        self._take_out(key)
        return ""

    def _put_waiting(self, waiting: Waiting) -> None:
        if waiting.key not in self._state.retries:
            for call in waiting.calls:
                self._expect(call, 1)
        self._wait_until(self._now() + waiting.delay, waiting.key, waiting)

    def _take_out(self, key: str) -> Waiting:
        _, waiting = self._state.retries.pop(key)
        for call in waiting.calls:
            self._expect(call, -1)
        return waiting

    def _next_due(self) -> int | None:
        dues, retries = self._state.dues, self._state.retries
        while dues and (dues[0][1] not in retries or retries[dues[0][1]][0] != dues[0][0]):
            heappop(dues)
        return dues[0][0] if dues else None

    def retries(self, limit: int, offset: int = 0) -> list[WaitingRow]:
        """The waiting messages, those that are due first first."""
        with self._woken:
            rows = sorted((due, key, waiting) for key, (due, waiting) in self._state.retries.items())
            return [WaitingRow(key, due, waiting.about, waiting.data) for due, key, waiting in rows[offset:][:limit]]

    def retry(self, key: str) -> WaitingRow | None:
        """One waiting message."""
        with self._woken:
            due, waiting = self._state.retries.get(key, (0, None))
            return None if waiting is None else WaitingRow(key, due, waiting.about, waiting.data)

    def hurry_retry(self, key: str) -> bool:
        """Makes it due at once, whatever its budget says. ``False``: it does not wait any more."""
        with self._woken:
            if key not in self._state.retries:
                return False
            self._wait_until(0, key, self._state.retries[key][1])
            return True

    def drop_retry(self, key: str, *, cancelled: bool = False) -> bool:
        """Takes a message out: it was published, or ``cancelled``, which ends its run. ``False``: it does not wait."""
        with self._woken:
            if key not in self._state.retries:
                return False
            waiting = self._take_out(key)
            message_id = waiting.about.get("id", "")
            if cancelled and message_id in self._state.runs:
                self._end_run(message_id, self._state.runs[message_id], "dropped", "its retry was cancelled")
            return True

    def count_retries(self) -> int:
        """How many messages wait."""
        return len(self._state.retries)

    def forget_retries(self, queue: str) -> None:
        """Drops what waits for a queue that was flushed."""
        with self._woken:
            for key in [key for key, (_, one) in self._state.retries.items() if one.about.get("queue") == queue]:
                self._take_out(key)

    # -- budgets --------------------------------------------------------------------------------------------

    def earn(self, earnings: Sequence[tuple[RetryBudget, int]]) -> None:
        """Adds what so many successes earn to each budget."""
        with self._woken:
            for budget, successes in earnings:
                bucket = self._bucket(budget.name or "", budget.floor, budget.burst, self._now())
                bucket.tokens = min(budget.burst, bucket.tokens + successes * budget.ratio)

    def budgets(self) -> dict[str, Mapping[str, float]]:
        """How the budgets stand, by name: ``tokens``, ``taken`` and ``put_off`` since they were first used."""
        with self._woken:
            return {
                name: {"tokens": one.tokens, "at": one.at, "taken": one.taken, "put_off": one.put_off}
                for name, one in self._state.budgets.items()
            }

    def _asks_again(self, waiting: Waiting, now: int) -> int | None:
        """When it is to ask again, because its budget is spent."""
        budget = waiting.about.get("budget")
        return None if budget is None else self._bucket(budget[0], budget[1], budget[2], now).take(now)

    def _bucket(self, name: str, floor: float, burst: float, now: int) -> Bucket:
        bucket = self._state.budgets.setdefault(name, Bucket(burst, now))
        bucket.fill(floor, burst, now)
        return bucket

    # -- deliveries -----------------------------------------------------------------------------------------

    def count_delivery(self, key: str) -> int:
        """Counts one more delivery of a message, before it runs. Returns how many there were, with this one."""
        with self._woken:
            count = self._state.deliveries.get(key, 0) + 1
            self._state.deliveries[key] = count
            return count

    def forget_delivery(self, key: str) -> None:
        """The delivery ended as it should."""
        with self._woken:
            self._state.deliveries.pop(key, None)

    def _end_run(self, message_id: str, run: Mapping[str, str], state: str, error: str) -> None:
        del self._state.runs[message_id]
        if "given_up" in run:
            return
        self._appended += 1
        self._ticks.append(
            {
                "run": message_id,
                "schedule": run["schedule"],
                "fire_time": run["fire_time"],
                "state": state,
                "started_at": run.get("started_at", ""),
                "finished_at": str(self._now()),
                "error": error,
                "first": run.get("first", ""),
            }
        )
        if self._state.outstanding.get(run["schedule"]) == message_id:
            del self._state.outstanding[run["schedule"]]
            self._wake()
