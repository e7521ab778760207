"""Messages that wait for their retry, their budgets, and the deliveries of those that may kill a worker.

A waiting message is stored as one line of JSON with what can be told of it, and after it the message as it was
encoded, which may be anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base import Moved, Waiting, WaitingRow
from .replies import cursor, raw, text
from .verbs import Verbs

if TYPE_CHECKING:
    from ...retry_budget import RetryBudget

__all__ = ["RetryVerbs", "waiting_text"]

#: How long a counted delivery is remembered, in ms: as long as Dramatiq keeps its own dead messages.
_REMEMBERED = 7 * 86_400_000


class RetryVerbs(Verbs):
    """The waiting messages."""

    def move_retries(self, limit: int, *, hold: int | None = None) -> Moved:
        """Puts up to ``limit`` messages that are due back into their queues, each in one step.

        With ``hold`` they are taken instead, for the caller to publish and then drop; if it does not, they are due
        again after ``hold`` ms.
        """
        k = self.keys
        with self._errors():
            if hold is None:
                keys = [k.namespace, k.retries, k.retries_data, k.budgets]
                reply = self._scripts.move_retries(keys=keys, args=[limit])
            else:
                keys = [k.retries, k.retries_data, k.budgets]
                reply = self._scripts.take_retries(keys=keys, args=[limit, hold])
        now, moved, put_off, next_due, failed, *taken = reply
        found = [(text(key), _parts(value)[1]) for key, value in zip(taken[::2], taken[1::2], strict=True)]
        return Moved(int(now), int(moved), int(put_off), text(failed), cursor(text(next_due) or None), found)

    def retries(self, limit: int, offset: int = 0) -> list[WaitingRow]:
        """The waiting messages, those that are due first first."""
        with self._errors():
            found = self._client.zrangebyscore(
                self.keys.retries, "-inf", "+inf", start=offset, num=limit, withscores=True
            )
            values = self._client.hmget(self.keys.retries_data, [key for key, _ in found]) if found else []
        return [
            WaitingRow(text(key), int(score), *_parts(value))
            for (key, score), value in zip(found, values, strict=True)
            if value is not None
        ]

    def retry(self, key: str) -> WaitingRow | None:
        """One waiting message."""
        with self._errors():
            score = self._client.zscore(self.keys.retries, raw(key))
            value = self._client.hget(self.keys.retries_data, raw(key))
        return None if score is None or value is None else WaitingRow(key, int(score), *_parts(value))

    def hurry_retry(self, key: str) -> bool:
        """Makes it due at once, whatever its budget says. ``False``: it does not wait any more."""
        with self._errors():
            return bool(self._client.zadd(self.keys.retries, {raw(key): 0}, xx=True, ch=True))

    def drop_retry(self, key: str, *, cancelled: bool = False) -> bool:
        """Takes a message out: it was published, or ``cancelled``, which ends its run. ``False``: it does not wait."""
        k = self.keys
        with self._errors():
            reply = self._scripts.drop_retry(
                keys=[k.retries, k.retries_data, k.runs, k.outstanding, k.ticks, k.wake],
                args=[raw(key), self._history_size, int(cancelled)],
            )
        return bool(int(reply))

    def count_retries(self) -> int:
        """How many messages wait."""
        with self._errors():
            return int(self._client.zcard(self.keys.retries))

    # -- budgets --------------------------------------------------------------------------------------------

    def earn(self, earnings: Sequence[tuple[RetryBudget, int]]) -> None:
        """Adds what so many successes earn to each budget."""
        args: list[Any] = []
        for budget, successes in earnings:
            args += [budget.name, successes * budget.ratio, budget.floor, budget.burst]
        with self._errors():
            self._scripts.earn(keys=[self.keys.budgets], args=args)

    def budgets(self) -> dict[str, Mapping[str, float]]:
        """How the budgets stand, by name: ``tokens``, ``taken`` and ``put_off`` since they were first used."""
        found: dict[str, Mapping[str, float]] = {}
        at = 0
        while True:
            with self._errors():
                at, some = self._client.hscan(self.keys.budgets, at)
            found.update({text(name): standing for name, value in some.items() if (standing := _standing(value))})
            if at == 0:
                return found

    # -- deliveries -----------------------------------------------------------------------------------------

    def count_delivery(self, key: str) -> int:
        """Counts one more delivery of a message, before it runs. Returns how many there were, with this one."""
        with self._errors():
            return int(self._scripts.count_delivery(keys=[self.keys.deliveries + key], args=[_REMEMBERED]))

    def forget_delivery(self, key: str) -> None:
        """The delivery ended as it should."""
        with self._errors():
            self._client.delete(self.keys.deliveries + key)


def waiting_text(waiting: Waiting) -> bytes:
    """As it is stored."""
    about = {**waiting.about, "calls": [[_argument(one) for one in call] for call in waiting.calls]}
    return json.dumps(about).encode() + b"\n" + waiting.data


def _standing(value: bytes) -> Mapping[str, float] | None:
    """How a budget stands; ``None`` if it is none of ours."""
    try:
        found = json.loads(value)
        return {name: float(found.get(name, 0)) for name in ("tokens", "at", "taken", "put_off")}
    except (ValueError, TypeError, AttributeError):
        return None


def _argument(argument: Any) -> Any:
    # A number stands for the encoded message, see store.base.DATA.
    return argument if isinstance(argument, int) and not isinstance(argument, bool) else str(argument)


def _parts(value: bytes) -> tuple[Mapping[str, Any], bytes]:
    """What can be told of it, and the encoded message. What somebody else wrote there tells nothing."""
    head, _, data = value.partition(b"\n")
    try:
        about = json.loads(head)
    except ValueError:
        about = None
    return (about if isinstance(about, dict) else {}), data
