"""Reading what is due, and the commit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..base import NEVER, Answers, DuePage, DueRow, Fire, Guard
from .connection import master_of
from .courier import Courier
from .replies import cursor, is_read_only, revision, text
from .verbs import Verbs

__all__ = ["TickVerbs"]


class TickVerbs(Verbs):
    """What the pass does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._commits = Courier(self._client, self._replicas)

    def read_due(self, now: int, *, skip: int, limit: int) -> DuePage:
        k = self.keys
        with self._errors():
            reply = self._scripts.read_due(
                keys=[k.revisions, k.due, k.outstanding, k.enqueued], args=[now, skip, limit]
            )
        rows, next_score = json.loads(reply.decode("utf-8", "surrogateescape"))
        return DuePage(
            rows=[
                DueRow(name, cursor(score), revision(given), outstanding, int(last) if last.isdigit() else None)
                for name, score, given, outstanding, last in rows
            ],
            next_score=later if (later := cursor(next_score)) is not None and later < NEVER else None,
        )

    def fire(self, guard: Guard, fires: Sequence[Fire]) -> list[str] | None:
        """Commits ``fires`` one by one. ``None``: the guard's holder does not have the lease."""
        return self.start_fire(guard, fires)()

    def start_fire(self, guard: Guard, fires: Sequence[Fire]) -> Answers:
        """Sends a commit, and returns what waits for its answers: meanwhile the next one can be made.

        The answers must be taken before the next is sent.
        """
        k = self.keys
        keys = [
            k.namespace, k.lease, k.revisions, k.due, k.last, k.enqueued, k.ticks, k.runs, k.outstanding, k.outbox
        ]  # fmt: skip
        given: list[Any] = [guard.holder, str(guard.term), str(guard.now), str(self._history_size)]
        args: list[Any] = [""]
        for fire in fires:
            _pack(fire, given, args)
        args[0] = json.dumps(given)
        reply = self._commits.start(self._scripts.fire, keys, args)

        def answers() -> list[str] | None:
            with self._errors():
                found = _fire_answers(reply.result(), len(fires))
            if any(is_read_only(answer) for answer in found or ()):
                # The script caught the refusal, so that it is no error of the connection's.
                self._reconnect()
            return found

        return answers

    def _follow_the_master(self) -> None:
        master = master_of(self._client)
        if master is not None and self._commits.is_elsewhere_than(master):
            self._reconnect()

    def _reconnect(self) -> None:
        super()._reconnect()
        self._commits.reconnect()

    def queue_length(self, place: str) -> int:
        """How many messages wait in the list ``place``."""
        with self._errors():
            return int(self._client.llen(place)) if place else 0


def _fire_answers(reply: Sequence[Any], count: int) -> list[str] | None:
    if text(reply[0]) == "lost":
        return None
    answers = ["ok"] * count
    for index, answer in zip(reply[1::2], reply[2::2], strict=True):
        answers[index - 1] = text(answer)
    return answers


def _pack(fire: Fire, given: list[Any], args: list[Any]) -> None:
    """Adds ``fire`` as the script takes it: text to ``given``, bytes to ``args`` with their index in ``given``."""
    r = fire.record
    box: int | str = ""
    if fire.outbox:
        args.append(fire.outbox)
        box = len(args)
    given += (
        fire.name, str(fire.revision), "*" if fire.score is None else str(fire.score), str(fire.new_score),
        fire.run_before, r.outcome, str(r.fire_time), str(r.fire_time_to), str(r.count), r.reason, r.message_id,
        "" if r.lateness is None else str(r.lateness), fire.run, box, len(fire.calls),
    )  # fmt: skip
    for call in fire.calls:
        given.append(len(call))
        for argument in call:
            if type(argument) is bytes:
                args.append(argument)
                given.append(len(args))
            else:
                given.append(argument if type(argument) is str else str(argument))
