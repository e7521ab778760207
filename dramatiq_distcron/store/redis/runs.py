"""What becomes of a tick's message at the workers."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from typing import Any

from ..base import REMEMBERED, Ending, Guard, Refused, Started
from .letters import letter_text
from .replies import raw, text
from .retries import waiting_text
from .verbs import Verbs

__all__ = ["RunVerbs"]


class RunVerbs(Verbs):
    """The runs of ticks, from being taken up to their end."""

    def start_run(self, message_id: str, worker: str) -> Started | None:
        """A worker takes up a tick's message. ``None``: no run of that message is known."""
        with self._errors():
            reply = self._scripts.start_run(keys=[self.keys.runs], args=[message_id, worker])
        if not reply:
            return None
        before, at, now, previous = reply
        return Started(text(before), int(at), int(now), int(previous) if previous else None)

    def claim_run(
        self, message_id: str, worker: str, attempt: int, claim: str = "", doubtful: Sequence[str] = ()
    ) -> Started | Refused:
        """A worker asks whether it may run a tick's message, where the broker may deliver copies.

        ``claim`` is the delivery's own id: only the delivery that claimed last may settle with it. ``doubtful`` are
        those of deliveries before it that did not learn whether they have the run, and gave it up. A ``worker`` of
        ``""`` has the run for nothing but to end it, and keeps nobody away.
        """
        given: list[str | int] = [message_id, worker, attempt, REMEMBERED, claim, *doubtful]
        with self._errors():
            reply = self._scripts.claim_run(keys=[self.keys.runs, self.keys.instances], args=given)
        verdict, *rest = reply
        if text(verdict) != "run":
            return Refused(text(rest[0]) if rest else "")
        before, at, now, previous = rest
        return Started(text(before), int(at), int(now), int(previous) if previous else None)

    def settle(self, ending: Ending) -> str:
        """Records the end of a delivery and acks it, or neither.

        Returns ``settled``, ``acked`` (no run was known), ``lost`` (the message is not this worker's any more) or
        ``failed ...``; in the last two nothing was changed.
        """
        k = self.keys
        keys = [k.namespace, k.runs, k.outstanding, k.ticks, k.wake, k.retries, k.retries_data]
        keys += [k.dead, k.dead_data, k.dead_groups]
        with self._errors():
            reply = self._scripts.settle(keys=keys, args=_settle_args(ending, self._history_size, k.dead_by))
        return text(reply[0])

    def probe_run(self, guard: Guard, name: str, message_id: str, longest: int | None) -> str | None:
        """Ends a run that is not there any more.

        ``there``, ``over`` (it ended meanwhile) or ``dropped``; ``None``: the lease is lost.
        """
        k = self.keys
        with self._errors():
            reply = self._scripts.probe_run(
                keys=[k.lease, k.runs, k.outstanding, k.ticks, k.wake, k.retries_data],
                args=[guard.holder, raw(name), message_id, "" if longest is None else longest, self._history_size],
            )
        answer = text(reply[0])
        return None if answer == "lost" else answer

    def sweep_runs(self, guard: Guard, cursor: str, count: int) -> tuple[str, int] | None:
        """Looks at some runs and ends those that are not there any more: the next cursor, and how many."""
        k = self.keys
        with self._errors():
            reply = self._scripts.sweep_runs(
                keys=[k.lease, k.runs, k.outstanding, k.ticks, k.wake, k.retries_data],
                args=[guard.holder, cursor, count, self._history_size],
            )
        return None if text(reply[0]) == "lost" else (text(reply[0]), int(reply[1]))

    def outstanding(self, name: str) -> str:
        """The message of the run that holds the schedule up; ``""``: there is none."""
        with self._errors():
            return text(self._client.hget(self.keys.outstanding, raw(name)))

    # -- the outbox -----------------------------------------------------------------------------------------

    def outbox(self, limit: int, skip: Container[str] = ()) -> list[tuple[str, bytes]]:
        """About ``limit`` of the messages that are committed and not known to be in their broker, without ``skip``."""
        found: list[tuple[str, bytes]] = []
        cursor = 0
        while True:
            with self._errors():
                cursor, some = self._client.hscan(self.keys.outbox, cursor, count=limit)
            found += [(name, data) for raw_name, data in some.items() if (name := text(raw_name)) not in skip]
            if cursor == 0 or len(found) >= limit:
                return found

    def published(self, message_id: str) -> None:
        """The message is in its broker."""
        with self._errors():
            self._client.hdel(self.keys.outbox, message_id)


class _Blobs:
    """What is no text, after the JSON text that names each by its index in ARGV. As in ``fire``."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def add(self, data: Any) -> int:
        self.all.append(data)
        return len(self.all) + 1

    def call(self, arguments: Sequence[Any]) -> list[Any]:
        return [self.add(one) if isinstance(one, bytes) else str(one) for one in arguments]


def _settle_args(ending: Ending, history_size: int, index_prefix: str) -> list[Any]:
    waiting, letter = ending.waiting, ending.letter
    blobs = _Blobs()
    given: dict[str, Any] = {
        "message_id": ending.message_id,
        "verdict": "goes on" if ending.goes_on else "over",
        "state": ending.state,
        "error": ending.error,
        "cap": str(history_size),
        "place": ending.place,
        "rid": ending.redis_id,
        "attempt": str(ending.attempt),
        "claim": ending.claim,
        "calls": [blobs.call(arguments) for arguments in ending.calls],
        "ack": [str(argument) for argument in ending.call],
    }
    if waiting is not None:
        given |= {"retry": waiting.key, "delay": waiting.delay, "waiting": blobs.add(waiting_text(waiting))}
    if letter is not None:
        given |= {"letter": letter.id, "indexes": letter.indexes, "index_prefix": index_prefix}
        given["kept"] = blobs.add(letter_text(letter))
    return [json.dumps(given), *blobs.all]
