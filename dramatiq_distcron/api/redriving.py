"""Sending dead letters back: each in one step, at a pace, and never in a circle."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dramatiq import Message

from ..batching import batches
from ..clock import SystemClock
from ..errors import ConfigurationError, DistCronError, NotFoundError, ScheduleError, StoreUnavailable, quoted
from ..letters import DLQ_ACTOR, ORIGIN, redriven
from ..places import Places
from ..publishing import at_once, waiting_form
from ..specs import parse_spec
from ..store.base import REMEMBERED, LetterRow, Redrive, Waiting
from ..store.redis import is_passing
from ..suggestions import did_you_mean

if TYPE_CHECKING:
    from dramatiq import Broker

    from ..backends import Backend
    from ..publishing import Captured
    from ..store.base import Stored

__all__ = ["Pace", "Redriven", "Redriver"]


@dataclass
class Redriven:
    """What a redrive came to.

    ``gone`` were sent back or dropped by others meanwhile. ``refused`` are the ids of those that stay, with why.
    ``missing`` are given ids that no letter had. ``unchecked``: nobody could say which actors there are.
    """

    redriven: int = 0
    gone: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    unchecked: bool = False


class Redriver:
    """Parameters:
    broker: whose code is loaded here.
    backend: of that broker.
    """

    def __init__(self, broker: Broker, backend: Backend) -> None:
        self._broker = broker
        self._backend = backend
        self._own = {name for name in broker.actors if name != DLQ_ACTOR}
        self._places = Places(backend.store, backend.publisher)
        #: The queue of each actor anybody knows, and what queues there are.
        self._actors: dict[str, str] | None = None
        self._queues: set[str] = set()
        #: Of actors that only others know: whether their broker is another than the one of the store.
        self._elsewhere: dict[str, bool] = {}
        self._policies: dict[str, str] = {}
        #: Schedules of which a letter would have gone by now.
        self._tried: dict[str, str] = {}

    def send_back(self, rows: Sequence[LetterRow], done: Redriven, *, dry_run: bool = False) -> None:
        """Sends letters back, each in one step, and adds to ``done``. Raises what the store raises."""
        now = self._backend.store.now()
        if self._actors is None:
            self._actors = self._learn()
        done.unchecked = not self._actors
        prepared = self._prepared(rows, now, done, dry_run=dry_run)
        for batch in batches(prepared, len(rows), lambda sent: len(sent[0].waiting.data)):
            self._commit(batch, done)

    def _prepared(
        self, rows: Sequence[LetterRow], now: int, done: Redriven, *, dry_run: bool
    ) -> Iterator[tuple[Redrive, Captured | None]]:
        """Those that can go back; the others are refused. None, if it is only tried."""
        for row in rows:
            try:
                message = self._new_message(row, now)
                if dry_run:
                    self._try(row, message, done)
                else:
                    yield self._on_its_way(row, message, now)
            except StoreUnavailable:
                raise
            except DistCronError as error:
                done.refused[row.id] = str(error)

    def _commit(self, sent: Sequence[tuple[Redrive, Captured | None]], done: Redriven) -> None:
        """Raises ``StoreUnavailable`` if some could not go now, but will later; the others are counted."""
        answers = self._backend.store.redrive([one for one, _ in sent])
        for (_, captured), answer in zip(sent, answers, strict=True):
            if answer == "ok" and captured is not None:
                self._backend.publisher.announce(captured)
        done.redriven += answers.count("ok")
        done.gone += answers.count("gone")
        others = [(one, answer) for (one, _), answer in zip(sent, answers, strict=True) if answer not in ("ok", "gone")]
        done.refused |= {one.id: _why_not(one, answer) for one, answer in others if not is_passing(answer)}
        for one, answer in others:
            if is_passing(answer):
                raise StoreUnavailable(f"{self._backend.where} takes no letter back now: {_why_not(one, answer)}")

    def _new_message(self, row: LetterRow, now: int) -> Message[Any]:
        """Raises ``DistCronError`` if it would be of no use."""
        try:
            message: Message[Any] = redriven(Message.decode(row.data), now)
        except Exception as error:
            raise DistCronError(
                f"The message cannot be decoded here: {str(error).rstrip('.')}. It needs the encoder it was written "
                "with, which the app's code sets."
            ) from error
        self._refuse_unknown_actor(message)
        return self._in_its_queue(message)

    def _try(self, row: LetterRow, message: Message[Any], done: Redriven) -> None:
        """What would become of it, if those before it had gone."""
        name = self._alone(message)
        outstanding = name and (self._tried.get(name) or self._outstanding(name))
        if outstanding:
            done.refused[row.id] = _not_alone(name, outstanding)
            return
        self._tried[name] = "of a letter before it"
        done.redriven += 1

    def _in_its_queue(self, message: Message[Any]) -> Message[Any]:
        """As it was, or in the queue its actor has by now if nobody consumes that one any more."""
        now_in = (self._actors or {}).get(message.actor_name)
        if now_in is None or message.queue_name in self._queues:
            return message
        return message.copy(queue_name=now_in)

    def _on_its_way(self, row: LetterRow, message: Message[Any], now: int) -> tuple[Redrive, Captured | None]:
        """With its hooks and in one step where the broker is on Redis; else the movers publish it, with its hooks."""
        if self._leaves(row, message.actor_name):
            try:
                waiting = at_once(message)
            except Exception as error:
                raise DistCronError(f"The message could not be made: {error}") from error
            # Where it will lie is not in our Redis, and a sweep must not look for it there.
            return Redrive(row.id, waiting, self._run_of(message, now, here=False), self._alone(message)), None
        if message.queue_name not in self._broker.queues:
            self._broker.declare_queue(message.queue_name)
        captured = self._backend.publisher.capture(message)
        data, calls = waiting_form(captured)
        waiting = Waiting(message.message_id, 0, {}, data, calls)
        run = self._run_of(captured.message, now, here=True)
        return Redrive(row.id, waiting, run, self._alone(message)), captured

    def _leaves(self, row: LetterRow, actor: str) -> bool:
        """Whether its broker is another than the one of the store.

        By the URL alone, those say so who know its actor. The letter itself only knows where it died, and may have been
        brought here from an app on another broker.
        """
        if self._own or self._backend.by_outbox:
            return self._backend.by_outbox
        return self._elsewhere.get(actor, row.about.get("outbox") is True)

    def _refuse_unknown_actor(self, message: Message[Any]) -> None:
        if self._actors and message.actor_name not in self._actors:
            raise NotFoundError(
                f"Nobody knows the actor {message.actor_name!r} any more, so the message would die again. "
                f"{did_you_mean(message.actor_name, self._actors)}"
            )

    def _learn(self) -> dict[str, str]:
        """Which actors and queues there are: by the code here, and as beats and workers tell."""
        found: dict[str, str] = {}
        for one in self._backend.store.instances(keep=REMEMBERED):
            told = {str(name): str(queue) for name, queue in one.data.get("actors", {}).items()}
            found |= told
            if "outbox" in one.data:
                self._elsewhere |= dict.fromkeys(told, one.data["outbox"] is True)
            self._queues |= {str(queue) for queue in one.data.get("queues", ())}
        found |= {name: actor.queue_name for name, actor in self._broker.actors.items()}
        found.pop(DLQ_ACTOR, None)
        # Not those that are only declared here: a redrive before this one may have done that.
        self._queues |= set(found.values())
        return found

    # -- a tick's -------------------------------------------------------------------------------------------

    def _run_of(self, message: Message[Any], now: int, *, here: bool) -> str:
        """The run of a tick's message that starts again, for the history and for brokers that ask for a ticket."""
        tick = message.options.get("distcron")
        if not isinstance(tick, dict):
            return ""
        run = {
            "schedule": str(tick.get("schedule", "")),
            "queue": message.queue_name,
            "place": self._places.of(message.queue_name).messages if here else "",
            "rid": str(message.options.get("redis_message_id", "")),
            "fire_time": str(tick.get("fire_time", "")),
            "state": "queued",
            "at": str(now),
            # The message that its tick was sent with, by which the history knows it.
            "first": str(message.options[ORIGIN]["message_id"]),
        }
        return json.dumps(run)

    def _outstanding(self, schedule: str) -> str:
        found = self._backend.store.outstanding(schedule)
        return found and f"of message {found}"

    def _alone(self, message: Message[Any]) -> str:
        """The name of its schedule, if the runs of that must not overlap."""
        tick = message.options.get("distcron")
        name = str(tick.get("schedule", "")) if isinstance(tick, dict) else ""
        if not name:
            return ""
        if name not in self._policies:
            stored = self._backend.store.get([name]).get(name)
            self._policies[name] = _overlap_of(stored)
        return "" if self._policies[name] == "allow" else name


def _why_not(one: Redrive, answer: str) -> str:
    """What the store's answer means, for people."""
    if answer.startswith("outstanding"):
        return _not_alone(one.alone, f"of message {answer.split()[-1]}")
    return answer.removeprefix("failed ")


def _not_alone(schedule: str, outstanding: str) -> str:
    return (
        f"Runs of schedule {schedule!r} must not overlap, and that {outstanding} is not over. Send it back when it is."
    )


def _overlap_of(stored: Stored | None) -> str:
    """The policy of a schedule; what is gone or cannot be read holds nothing up."""
    try:
        return "allow" if stored is None else parse_spec(stored.spec).policy.overlap
    except ScheduleError:
        return "allow"


class Pace:
    """Waits so that no more than ``rate`` letters go a second."""

    def __init__(self, rate: float | None) -> None:
        if rate is not None and not (isinstance(rate, (int, float)) and rate > 0 and not isinstance(rate, bool)):
            raise ConfigurationError(f"rate must be a number of letters a second above 0, not {quoted(rate)}.")
        self._rate = rate
        self._clock = SystemClock()
        self._next = self._clock.monotonic()

    def batch(self, most: int) -> int:
        """How many may go at once."""
        return most if self._rate is None else max(1, int(min(most, self._rate)))

    def wait(self, count: int) -> None:
        """Before so many."""
        if self._rate is None:
            return
        now = self._clock.monotonic()
        if self._next > now:
            time.sleep(self._next - now)
        self._next = max(self._next, now) + count / self._rate
