"""From a decision to what is committed: the message of a tick, the record of an outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import ScheduleError
from .messages import schedule_message, tick_id
from .publishing import Captured, Publisher, Vetoed
from .store.base import ANY_RUN, NEVER, DueRow, Fire, Record
from .ticks import DISABLED, ENQUEUED, ERROR, Move

if TYPE_CHECKING:
    from dramatiq import Broker

    from .known import Known
    from .specs import Spec

__all__ = ["Made", "TickMaker", "plain"]

#: What is committed for one move, and the message if it has one.
Made = tuple[Fire, "Captured | None"]


@dataclass(frozen=True)
class TickMaker:
    """Makes the commits of one app's decisions.

    Parameters:
      broker, publisher: where messages go.
      namespace, app: part of every message id.
    """

    broker: Broker
    publisher: Publisher
    namespace: str
    app: str

    def make(self, row: DueRow, known: Known, spec: Spec, moves: Iterable[Move], now: int, term: int) -> Iterator[Made]:
        """The commits for the moves of one schedule, in order.

        Each is bound to what it was decided on: the cursor, the revision and, where runs must not overlap, the run
        that was outstanding, which for a later one is the run of the one before.
        """
        run_before = ANY_RUN if spec.policy.overlap == "allow" else row.outstanding
        previous = row.enqueued
        for move in moves:
            fire, captured = self._make(row, known, spec, move, now, term, run_before, previous)
            yield fire, captured
            if captured is not None:
                previous = move.first
                if run_before != ANY_RUN:
                    run_before = fire.record.message_id

    def _make(
        self,
        row: DueRow,
        known: Known,
        spec: Spec,
        move: Move,
        now: int,
        term: int,
        run_before: str,
        previous: int | None,
    ) -> Made:
        if move.outcome != ENQUEUED:
            return _recorded(row, move, move.outcome, move.reason, run_before), None
        actor = self.broker.actors.get(spec.actor)
        if actor is None:
            return _recorded(row, move, DISABLED, f"actor {spec.actor!r} is not declared here", run_before), None
        message_id = tick_id(self.namespace, self.app, spec.name, move.first)
        try:
            captured = self.publisher.capture(
                schedule_message(spec, actor, message_id=message_id, fire_time=move.first, term=term, now=now)
            )
        except (Vetoed, ScheduleError) as error:
            return _recorded(row, move, ERROR, str(error), run_before), None
        redis_id = captured.message.options.get("redis_message_id", "")
        run = (
            f'{known.run}, "fire_time": "{move.first}", "rid": "{redis_id}", "state": "queued", "at": "{now}", '
            f'"previous": "{"" if previous is None else previous}"}}'
        )
        record = Record(ENQUEUED, move.first, move.first, 1, "", message_id, now - move.score)
        return Fire(
            row.name, row.revision, move.score, _score(move), record, run_before, run, captured.outbox, captured.calls
        ), captured


def _recorded(row: DueRow, move: Move, outcome: str, reason: str, run_before: str) -> Fire:
    record = Record(outcome, move.first, move.last, move.count, plain(reason))
    return Fire(row.name, row.revision, move.score, _score(move), record, run_before)


def _score(move: Move) -> int:
    return NEVER if move.new_score is None else move.new_score


def plain(reason: str) -> str:
    """An error's text as it can be stored: short, and nothing that is no character."""
    return reason[:500].encode("utf-8", "replace").decode()
