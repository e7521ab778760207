"""How a delivery ends: what becomes of a tick's run is recorded in one step with the ack of its message.

Every end of a delivery is an ack or a nack: success, failure, skip, expiry, age limit, unknown actor, death. So this
middleware works in ``before_ack`` and ``before_nack``, as the last in the list, when all others are done. The
consumer's own ack after it finds nothing left to do.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dramatiq.middleware import Middleware

from ..errors import AccessDenied, DistCronError, SettlePostponed, StoreUnavailable
from ..letters import ORIGIN
from ..logs import get_logger
from ..store.base import Ending, Refused, Started
from ..store.redis import is_passing
from ..tick import set_current_tick
from .delivered import (
    DEAD,
    DROPPED,
    NOT_RECORDED,
    SUCCEEDED,
    Skipped,
    as_it_came,
    postponed,
    text_of,
    tick_of,
)
from .endings import Endings, is_locked_out, keeper_of
from .handing_over import handed_over
from .marks import attempt_of, marks_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dramatiq import Broker, Message
    from dramatiq.broker import MessageProxy

    from ..backends import Backend
    from ..moving import Mover

__all__ = ["Settle"]

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
        self._endings = Endings(backend)
        #: By thread: what was enqueued last, ``message``.
        self._enqueued = threading.local()

    # -- taking a message up --------------------------------------------------------------------------------

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        """Notes that the run began. Raises ``SkipMessage`` for a copy, and for a first delivery that came too late."""
        marks_of(message).handed_over = handed_over(message)
        tick = message.options.get("distcron")
        if tick is None:
            return
        self._enqueued.message = None
        marks_of(message).attempt = attempt_of(message)
        started = self._claim(message) if self._backend().by_outbox else self._start(message)
        set_current_tick(tick_of(message, started))
        expires = message.options.get("expires")
        if expires is None or started is None or started.before != "queued" or ORIGIN in message.options:
            # Whoever sends a dead one back wants it to run.
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
        """Notes how the run went. What failed is from here on what its actor was given, for whoever comes next."""
        set_current_tick(None)
        marks_of(message).end = (SUCCEEDED, "") if exception is None else (DEAD, text_of(exception))
        if exception is not None:
            message._message, marks_of(message).handed_over = as_it_came(message), None

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
        is_kept = verb == "nack" and keeper_of(broker, message) is not None
        if marks.settled or not (is_tick or is_kept or marks.planned or marks.announce):
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
            marks.ending = marks.ending or self._endings.make(broker, message, verb, self._copy_of(message))
            self._record(broker, message, marks.ending)
        except SettlePostponed:
            raise
        except Exception:
            # Dramatiq would swallow it and ack: a retry would be lost.
            self.logger.exception("How message %s ended could not be recorded.", message.message_id)
            self._save(broker, message)

    def _record(self, broker: Broker, message: MessageProxy, ending: Ending) -> None:
        answer = self._asked(broker, message, ending)
        if answer.startswith("failed") and ending.letter is not None and (ending.calls or ending.waiting):
            # Perhaps only the queue of those who are to be told cannot take it.
            self.logger.error("Nobody can be told that message %s is dead: %s", message.message_id, answer)
            self._endings.announce(broker, message)
            marks_of(message).captured.clear()
            # If no answer comes now, it is this that is asked for again.
            marks_of(message).ending = ending = replace(ending, calls=(), waiting=None)
            answer = self._asked(broker, message, ending)
        if answer.startswith("failed"):
            # The record is not worth the message: the plain ack goes on, and the run is swept later.
            self.logger.error("How message %s ended could not be recorded: %s", message.message_id, answer)
            self._save(broker, message)
        elif answer != "lost":
            marks_of(message).kept = ending.letter is not None
            self._tell(message, ending)
        else:
            # It was recorded by the command whose answer did not come, or the run is another worker's, who has a copy
            # of the message: this one is not to be nacked either, or a death would be kept twice.
            marks_of(message).kept = ending.letter is not None or not marks_of(message).doubtful

    def _asked(self, broker: Broker, message: MessageProxy, ending: Ending) -> str:
        """The store's answer. Raises ``SettlePostponed`` if it will be another one soon."""
        try:
            answer = self._backend().store.settle(ending)
        except StoreUnavailable as error:
            marks_of(message).doubtful = True
            raise postponed(message, error) from error
        except AccessDenied as error:
            if not self._backend().by_outbox and is_locked_out(broker):
                raise postponed(message, error) from error
            answer = f"failed {error}"
        except DistCronError as error:
            answer = f"failed {error}"
        if answer.startswith("failed") and is_passing(answer):
            raise postponed(message, answer)
        return answer

    def _tell(self, message: MessageProxy, ending: Ending) -> None:
        """What was recorded is in force."""
        if ending.waiting is not None:
            self._mover().expect(ending.waiting.delay)
        for captured in marks_of(message).captured:
            self._backend().publisher.announce(captured)

    def _save(self, broker: Broker, message: MessageProxy) -> None:
        """What could not be recorded with the ack goes before it: rather twice than not at all."""
        marks = marks_of(message)
        if marks.reason == NOT_RECORDED and not message.failed:
            # The worker is at the ack, and that would be a loss: it looks again, and gives it to Dramatiq's own dead.
            message.fail()
            raise SettlePostponed(f"Message {message.message_id} is dead, and that could not be recorded.")
        if marks.planned is not None:
            try:
                broker.enqueue(message.copy(), delay=marks.planned.delay)
            except Exception as error:
                raise postponed(message, error) from error
        self._endings.announce(broker, message)

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
