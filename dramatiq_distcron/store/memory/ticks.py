"""Reading what is due, and the commit, in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..base import ANY_RUN, NEVER, Answers, DuePage, DueRow, Fire, Guard
from .base import Verbs

__all__ = ["TickVerbs"]


class TickVerbs(Verbs):
    """What the pass does."""

    def read_due(self, now: int, *, skip: int, limit: int) -> DuePage:
        with self._woken:
            state = self._state
            order = sorted((score, name) for name, score in state.due.items())
            due = [(score, name) for score, name in order if score <= now][skip : skip + limit]
            later = next((score for score, _ in order if now < score < NEVER), None)
            return DuePage(
                [
                    DueRow(n, s, state.revisions.get(n, ""), state.outstanding.get(n, ""), state.enqueued.get(n))
                    for s, n in due
                ],
                later,
            )

    def fire(self, guard: Guard, fires: Sequence[Fire]) -> list[str] | None:
        """Commits ``fires`` one by one. ``None``: the guard's holder does not have the lease."""
        with self._woken:
            if not self._admits(guard):
                return None
            return [self._fire_one(guard, fire) for fire in fires]

    def start_fire(self, guard: Guard, fires: Sequence[Fire]) -> Answers:
        """As ``fire``, which takes no time here."""
        answers = self.fire(guard, fires)
        return lambda: answers

    def _fire_one(self, guard: Guard, fire: Fire) -> str:
        state = self._state
        if (
            (fire.score is not None and state.due.get(fire.name) != fire.score)
            or state.revisions.get(fire.name, "") != fire.revision
            or fire.run_before not in (ANY_RUN, state.outstanding.get(fire.name, ""))
        ):
            return "stale"
        try:
            for call in fire.calls:
                if self._dispatch is None:
                    raise RuntimeError("there is no broker to dispatch to")
                self._dispatch(call)
        except Exception as error:
            return f"failed {error}"
        self._remember(guard, fire.name, fire.record, closed=bool(fire.record.message_id), by_hand=fire.score is None)
        if fire.score is not None:
            state.due[fire.name] = fire.new_score
            if fire.record.message_id:
                state.enqueued[fire.name] = fire.record.fire_time
        if fire.run:
            state.runs[fire.record.message_id] = json.loads(fire.run)
            if fire.run_before != ANY_RUN:
                state.outstanding[fire.name] = fire.record.message_id
        if fire.outbox:
            state.outbox[fire.record.message_id] = fire.outbox
        return "ok"

    def queue_length(self, place: str) -> int:
        """How many messages wait on the queue ``place``."""
        return self._length(place)
