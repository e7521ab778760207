"""How a delivery ends: what becomes of a tick's run is recorded in one step with the ack of its message.

Every end of a delivery is an ack or a nack: success, failure, skip, expiry, age limit, unknown actor, death. So this
middleware works in ``before_ack`` and ``before_nack``, as the last in the list, when all others are done. The
consumer's own ack after it finds nothing left to do.
"""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any

from dramatiq.errors import QueueNotFound
from dramatiq.middleware import Middleware, MiddlewareError

from ..errors import BrokerConnectionError, DistCronError, SettlePostponed, StoreRefused, StoreUnavailable
from ..logs import get_logger
from ..places import Places
from ..publishing import waiting_form
from ..store.base import Ending, Refused, Started, Waiting
from ..store.redis import is_passing, mapped_errors
from ..tick import set_current_tick
from .delivered import DEAD, DROPPED, NOT_RECORDED, RETRYING, SUCCEEDED, Skipped, postponed, text_of, tick_of
from .marks import Planned, attempt_of, marks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dramatiq import Broker, Message
    from dramatiq.broker import MessageProxy

    from ..backends import Backend
    from ..moving import Mover
    from ..publishing import Captured

__all__ = ["Settle", "keep_last"]

#: When a delivery that found another worker at its run is tried again, in ms.
_ASK_AGAIN_MS = 5000
#: So many of the first and of the last tickets that were asked for without an answer are remembered.
_DOUBTS = 50


class Settle(Middleware):
    """Records how the runs of ticks went, and ends them with the ack.

    Parameters:
      backend: opens the store and the publisher of the broker.
      mover: is told when a retry is due.
    """

    #: A beat need not ask it about what it enqueues.
    listens_in_workers_only = True

    def __init__(self, backend: Callable[[], Backend], mover: Callable[[], Mover]) -> None:
        self.logger = get_logger(__name__, type(self))
        self.worker_id = uuid.uuid4().hex
        self._backend = backend
        self._mover = mover
        self._places: Places | None = None
        #: By thread: what was enqueued last, ``message``.
        self._enqueued = threading.local()

    # -- taking a message up --------------------------------------------------------------------------------

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        """Notes that the run began. Raises ``SkipMessage`` for a copy, and for a first delivery that came too late."""
        tick = message.options.get("distcron")
        if tick is None:
            return
        self._enqueued.message = None
        marks_of(message).attempt = attempt_of(message)
        started = self._claim(message) if self._backend().by_outbox else self._start(message)
        set_current_tick(tick_of(message, started))
        expires = message.options.get("expires")
        if expires is None or started is None or started.before != "queued":
            return
        late = started.now - started.enqueued_at - expires
        if late > 0:
            marks_of(message).end = (DROPPED, f"expired {late / 1000:g} s before a worker took it up")
            raise Skipped(f"The tick expired {late / 1000:g} s ago.")

    def _start(self, message: MessageProxy) -> Started | None:
        try:
            return self._backend().store.start_run(message.message_id, self.worker_id)
        except DistCronError as error:
            # Without its record the run is still worth more than no run.
            self.logger.warning("The start of message %s could not be recorded: %s", message.message_id, error)
            return None

    def _claim(self, message: MessageProxy) -> Started:
        """The ticket for this delivery. Raises ``SkipMessage`` if it may not run, or not now."""
        try:
            claimed = self._ask(message)
        except Exception as error:
            # Whatever it is: to run could be a double, to drop a loss.
            self.logger.warning("Message %s is put off, its ticket cannot be asked for: %s", message.message_id, error)
            claimed = Refused("nobody who answers")
        if isinstance(claimed, Started):
            return claimed
        if claimed.holder:
            # It may be a redelivery while the first worker is cut off from the broker and still at it: ask later.
            marks_of(message).put_off = True
            raise Skipped(f"Put off: {claimed.holder} is at it.")
        marks_of(message).not_ours = True
        raise Skipped("A copy of a message whose run is over or goes on elsewhere.")

    def _ask(self, message: MessageProxy) -> Started | Refused:
        """Asks for the ticket. If no answer comes it may be ours: that is noted, and goes with the message."""
        tick, claim = message.options["distcron"], uuid.uuid4().hex
        doubtful = tick.pop("doubtful", [])
        store, attempt = self._backend().store, attempt_of(message)
        try:
            claimed = store.claim_run(message.message_id, self.worker_id, attempt, claim, doubtful)
        except Exception:
            # The first ones are those that may have arrived when the store went away.
            tick["doubtful"] = [*doubtful[:_DOUBTS], *doubtful[_DOUBTS:][-_DOUBTS:], claim]
            raise
        if isinstance(claimed, Started):
            marks_of(message).claim = claim
        elif doubtful:
            tick["doubtful"] = doubtful
        return claimed

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        set_current_tick(None)
        marks_of(message).end = (SUCCEEDED, "") if exception is None else (DEAD, text_of(exception))

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        set_current_tick(None)
        if marks_of(message).end is None:
            why = text_of(message._exception) if message.failed else "skipped by a middleware"
            marks_of(message).end = (DROPPED, why)

    def after_enqueue(self, broker: Broker, message: Message[Any], delay: int | None) -> None:
        """A copy of a tick's message: its retry, or its way out of the delay queue. The run goes on with it."""
        if "distcron" in message.options:
            self._enqueued.message = message

    # -- the end --------------------------------------------------------------------------------------------

    def before_ack(self, broker: Broker, message: MessageProxy) -> None:
        """Ends the delivery, if it is one of a tick or is to be retried.

        Raises:
          SettlePostponed: the store is away; the worker asks again.
        """
        self._settle(broker, message, "ack")

    def before_nack(self, broker: Broker, message: MessageProxy) -> None:
        """As ``before_ack``, for a message that is dead."""
        self._settle(broker, message, "nack")

    def _settle(self, broker: Broker, message: MessageProxy, verb: str) -> None:
        """Once for each delivery: an ack that fails is tried again, and the run may go on elsewhere meanwhile."""
        marks = marks_of(message)
        is_tick = "distcron" in message.options
        if marks.settled or not (is_tick or marks.planned or marks.announce):
            return
        if not (is_tick and self._backend().by_outbox) or self._decides(broker, message):
            if is_tick:
                self._enqueue_lost_retry(broker, message)
            self._end(broker, message, verb)
        self._enqueued.message = None
        marks.settled = True

    def _end(self, broker: Broker, message: MessageProxy, verb: str) -> None:
        marks = marks_of(message)
        try:
            marks.ending = marks.ending or self._ending(broker, message, verb)
            self._record(broker, message, marks.ending)
        except SettlePostponed:
            raise
        except Exception:
            # Dramatiq would swallow it and ack: a retry would be lost.
            self.logger.exception("How message %s ended could not be recorded.", message.message_id)
            self._save(broker, message)

    def _record(self, broker: Broker, message: MessageProxy, ending: Ending) -> None:
        try:
            answer = self._backend().store.settle(ending)
        except StoreUnavailable as error:
            raise postponed(message, error) from error
        except DistCronError as error:
            answer = f"failed {error}"
        if answer.startswith("failed") and is_passing(answer):
            raise postponed(message, answer)
        if answer.startswith("failed"):
            # The record is not worth the message: the plain ack goes on, and the run is swept later.
            self.logger.error("How message %s ended could not be recorded: %s", message.message_id, answer)
            self._save(broker, message)
        elif answer != "lost":
            self._tell(message, ending)

    def _tell(self, message: MessageProxy, ending: Ending) -> None:
        """What was recorded is in force."""
        if ending.waiting is not None:
            self._mover().expect(ending.waiting.delay)
        for captured in marks_of(message).captured:
            self._backend().publisher.announce(captured)

    def _save(self, broker: Broker, message: MessageProxy) -> None:
        """What could not be recorded with the ack goes before it: rather twice than not at all."""
        marks = marks_of(message)
        if marks.planned is not None:
            try:
                broker.enqueue(message.copy(), delay=marks.planned.delay)
            except Exception as error:
                raise postponed(message, error) from error
        if marks.announce is not None:
            self._tell_actor(broker, message, marks.announce)

    def _tell_actor(self, broker: Broker, message: MessageProxy, announce: Message[Any]) -> None:
        """Tells an actor of the end. What will never work must not keep the message from its end."""
        try:
            with mapped_errors("the broker"):
                broker.enqueue(announce)
        except BrokerConnectionError as error:
            raise postponed(message, error) from error
        except (MiddlewareError, StoreRefused, QueueNotFound) as error:
            self.logger.error("Nobody can be told that message %s ended: %s", message.message_id, error)
        except Exception as error:
            raise postponed(message, error) from error

    def _decides(self, broker: Broker, message: MessageProxy) -> bool:
        """Whether this delivery decides over the run: a copy does not, nor one on its way out of the delay queue."""
        marks = marks_of(message)
        if marks.put_off:
            self._enqueue_later(broker, message)
            return False
        ended = message.failed or marks.end is not None
        if marks.claim or marks.not_ours or not ended:
            return bool(marks.claim)
        # It ended before it began: too old, its actor is unknown, another middleware did not want it.
        try:
            return isinstance(self._ask(message), Started)
        except StoreUnavailable as error:
            raise postponed(message, error) from error
        except DistCronError as error:
            self.logger.error("How message %s ended could not be recorded: %s", message.message_id, error)
            return False

    def _enqueue_lost_retry(self, broker: Broker, message: MessageProxy) -> None:
        """The retry that could not be enqueued, because the broker was away: Dramatiq logs that, and acks."""
        marks = marks_of(message)
        counted = marks.attempt is not None and attempt_of(message) > marks.attempt
        if counted and not message.failed and marks.planned is None and self._copy_of(message) is None:
            self._enqueue_later(broker, message)

    def _enqueue_later(self, broker: Broker, message: MessageProxy) -> None:
        try:
            broker.enqueue(message.copy(), delay=_ASK_AGAIN_MS)
        except Exception as error:
            raise SettlePostponed(f"Message {message.message_id} could not be put off: {error}") from error

    def _copy_of(self, message: MessageProxy) -> Message[Any] | None:
        copy: Message[Any] | None = getattr(self._enqueued, "message", None)
        return copy if copy is not None and copy.message_id == message.message_id else None

    def _ending(self, broker: Broker, message: MessageProxy, verb: str) -> Ending:
        marks = marks_of(message)
        if marks.planned is not None and verb == "ack":
            return self._going_back(broker, message, marks.planned)
        call = self._end_call(message, verb)
        copy = self._copy_of(message)
        if copy is not None and verb == "ack":
            state = RETRYING if marks.end is not None else ""
            redis_id = copy.options.get("redis_message_id", "")
            place, attempt = self._place(copy.queue_name), attempt_of(copy)
            return Ending(message.message_id, state, "", True, place, redis_id, attempt, call, marks.claim)
        state, error = marks.end or (SUCCEEDED, "")
        if verb == "nack":
            state, error = DEAD, error or text_of(message._exception)
        calls = self._announcing(broker, message)
        return Ending(message.message_id, state, error, call=call, claim=marks.claim, calls=calls)

    def _end_call(self, message: MessageProxy, verb: str) -> Sequence[Any]:
        return self._backend().publisher.end_call(verb, message.queue_name, message.options)

    def _going_back(self, broker: Broker, message: MessageProxy, planned: Planned) -> Ending:
        """The retry, as it is to lie among those that wait."""
        marks = marks_of(message)
        captured = self._captured(message.copy())
        if captured is None:
            return self._dying(message)
        call = self._end_call(message, "ack")
        data, calls = waiting_form(captured)
        key = captured.message.options.get("redis_message_id") or f"{message.message_id}.{attempt_of(message)}"
        waiting: Waiting | None = Waiting(key, planned.delay, planned.about, data, calls)
        at_once = planned.delay <= 0 and bool(calls) and "budget" not in planned.about
        if not self._backend().by_outbox:
            marks.captured.append(captured)
        return Ending(
            message.message_id,
            RETRYING,
            goes_on=True,
            place=self._place(message.queue_name),
            redis_id=key,
            attempt=attempt_of(message),
            call=call,
            claim=marks.claim,
            waiting=None if at_once else waiting,
            calls=captured.calls if at_once else (),
        )

    def _dying(self, message: MessageProxy) -> Ending:
        """Nobody could ever run it again as it is now: it is dead, and not gone."""
        marks = marks_of(message)
        marks.reason, marks.planned = NOT_RECORDED, None
        error = f"{NOT_RECORDED}: its retry cannot be made"
        call = self._end_call(message, "nack")
        if not call:
            # The broker's own nack must do it, and the worker is at the ack: it looks again.
            message.fail()
            marks.end = (DEAD, error)
            raise SettlePostponed(f"Message {message.message_id} is dead, {error}.")
        return Ending(message.message_id, DEAD, error, call=call, claim=marks.claim)

    def _captured(self, message: Message[Any]) -> Captured | None:
        """The message on its way, with its hooks, or without them if one refuses it: a retry is nothing new."""
        publisher = self._backend().publisher
        for capture in (publisher.capture, publisher.capture_plainly):
            try:
                return capture(message)
            except DistCronError as error:
                self.logger.error("The retry of message %s could not be made: %s", message.message_id, error)
        return None

    def _announcing(self, broker: Broker, message: MessageProxy) -> Sequence[Sequence[Any]]:
        """The calls that tell an actor of the end; on other brokers it is told before."""
        marks = marks_of(message)
        if marks.announce is None:
            return ()
        if self._backend().by_outbox:
            self._tell_actor(broker, message, marks.announce)
            return ()
        captured = self._captured(marks.announce)
        if captured is None:
            return ()
        marks.captured.append(captured)
        return captured.calls

    def _place(self, queue: str) -> str:
        if self._places is None:
            backend = self._backend()
            self._places = Places(backend.store, backend.publisher)
        return self._places.of(queue).messages


def keep_last(broker: Broker, settle: Settle) -> None:
    """Puts ``settle`` at the end of the broker's middlewares."""
    others = [middleware for middleware in broker.middleware if middleware is not settle]
    # A new list: somebody may be walking through the old one.
    broker.middleware = [*others, settle]
