"""How a delivery ends: what becomes of a tick's run is recorded in one step with the ack of its message.

Every end of a delivery is an ack or a nack: success, failure, skip, expiry, age limit, unknown actor, death. So this
middleware works in ``before_ack`` and ``before_nack``, as the last in the list, when all others are done. The
consumer's own ack after it finds nothing left to do.
"""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any

from dramatiq.middleware import Middleware, SkipMessage

from ..durations import utc
from ..errors import DistCronError, SettlePostponed, StoreUnavailable
from ..logs import get_logger
from ..places import Places
from ..store.base import Ending, Refused, Started
from ..store.redis import is_passing
from ..tick import Tick, set_current_tick

if TYPE_CHECKING:
    from collections.abc import Callable

    from dramatiq import Broker, Message
    from dramatiq.broker import MessageProxy

    from ..backends import Backend

__all__ = ["Settle", "keep_last"]

SUCCEEDED, RETRYING, DEAD, DROPPED = "succeeded", "retrying", "dead", "dropped"


#: When a delivery that found another worker at its run is tried again, in ms.
_ASK_AGAIN_MS = 5000
#: So many of the first and of the last tickets that were asked for without an answer are remembered.
_DOUBTS = 50


class _Skipped(SkipMessage):
    """A delivery that is not to run: too late, or a copy."""


class Settle(Middleware):
    """Records how the runs of ticks went, and ends them with the ack.

    Parameters:
      backend: opens the store and the publisher of the broker.
    """

    #: A beat need not ask it about what it enqueues.
    listens_in_workers_only = True

    def __init__(self, backend: Callable[[], Backend]) -> None:
        self.logger = get_logger(__name__, type(self))
        self.worker_id = uuid.uuid4().hex
        self._backend = backend
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
        setattr(message, _ATTEMPT, _attempt_of(message))
        started = self._claim(message) if self._backend().by_outbox else self._start(message)
        set_current_tick(_tick(tick, message, started))
        expires = message.options.get("expires")
        if expires is None or started is None or started.before != "queued":
            return
        late = started.now - started.enqueued_at - expires
        if late > 0:
            _note(message, DROPPED, f"expired {late / 1000:g} s before a worker took it up")
            raise _Skipped(f"The tick expired {late / 1000:g} s ago.")

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
            setattr(message, _PUT_OFF, True)
            raise _Skipped(f"Put off: {claimed.holder} is at it.")
        setattr(message, _NOT_OURS, True)
        raise _Skipped("A copy of a message whose run is over or goes on elsewhere.")

    def _ask(self, message: MessageProxy) -> Started | Refused:
        """Asks for the ticket. If no answer comes it may be ours: that is noted, and goes with the message."""
        tick, claim = message.options["distcron"], uuid.uuid4().hex
        doubtful = tick.pop("doubtful", [])
        store, attempt = self._backend().store, _attempt_of(message)
        try:
            claimed = store.claim_run(message.message_id, self.worker_id, attempt, claim, doubtful)
        except Exception:
            # The first ones are those that may have arrived when the store went away.
            tick["doubtful"] = [*doubtful[:_DOUBTS], *doubtful[_DOUBTS:][-_DOUBTS:], claim]
            raise
        if isinstance(claimed, Started):
            setattr(message, _CLAIM, claim)
        elif doubtful:
            tick["doubtful"] = doubtful
        return claimed

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        set_current_tick(None)
        if exception is None:
            _note(message, SUCCEEDED)
        else:
            _note(message, DEAD, _text(exception))

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        set_current_tick(None)
        if not hasattr(message, _NOTE):
            _note(message, DROPPED, "skipped by a middleware")

    def after_enqueue(self, broker: Broker, message: Message[Any], delay: int | None) -> None:
        """A copy of a tick's message: its retry, or its way out of the delay queue. The run goes on with it."""
        if "distcron" in message.options:
            self._enqueued.message = message

    # -- the end --------------------------------------------------------------------------------------------

    def before_ack(self, broker: Broker, message: MessageProxy) -> None:
        """Ends the delivery, if it is one of a tick.

        Raises:
          SettlePostponed: the store is away; the worker asks again.
        """
        if "distcron" in message.options:
            self._settle(broker, message, "ack")

    def before_nack(self, broker: Broker, message: MessageProxy) -> None:
        """As ``before_ack``, for a message that is dead."""
        if "distcron" in message.options:
            self._settle(broker, message, "nack")

    def _settle(self, broker: Broker, message: MessageProxy, verb: str) -> None:
        """Once for each delivery: an ack that fails is tried again, and the run may go on elsewhere meanwhile."""
        if hasattr(message, _SETTLED):
            return
        if not self._backend().by_outbox or self._decides(broker, message):
            self._enqueue_lost_retry(broker, message)
            self._record(message, self._ending(message, verb))
        self._enqueued.message = None
        setattr(message, _SETTLED, True)

    def _record(self, message: MessageProxy, ending: Ending) -> None:
        try:
            answer = self._backend().store.settle(ending)
        except StoreUnavailable as error:
            raise _postponed(message, error) from error
        except DistCronError as error:
            answer = f"failed {error}"
        if answer.startswith("failed") and is_passing(answer):
            raise _postponed(message, answer)
        if answer.startswith("failed"):
            # The record is not worth the message: the plain ack goes on, and the run is swept later.
            self.logger.error("How message %s ended could not be recorded: %s", message.message_id, answer)

    def _decides(self, broker: Broker, message: MessageProxy) -> bool:
        """Whether this delivery decides over the run: a copy does not, nor one on its way out of the delay queue."""
        if hasattr(message, _PUT_OFF):
            self._enqueue_later(broker, message)
            return False
        ended = message.failed or hasattr(message, _NOTE)
        if hasattr(message, _CLAIM) or hasattr(message, _NOT_OURS) or not ended:
            return hasattr(message, _CLAIM)
        # It ended before it began: too old, its actor is unknown, another middleware did not want it.
        try:
            return isinstance(self._ask(message), Started)
        except StoreUnavailable as error:
            raise _postponed(message, error) from error
        except DistCronError as error:
            self.logger.error("How message %s ended could not be recorded: %s", message.message_id, error)
            return False

    def _enqueue_lost_retry(self, broker: Broker, message: MessageProxy) -> None:
        """The retry that could not be enqueued, because the broker was away: Dramatiq logs that, and acks."""
        counted = _attempt_of(message) > getattr(message, _ATTEMPT, _attempt_of(message))
        if counted and not message.failed and self._copy_of(message) is None:
            self._enqueue_later(broker, message)

    def _enqueue_later(self, broker: Broker, message: MessageProxy) -> None:
        try:
            broker.enqueue(message.copy(), delay=_ASK_AGAIN_MS)
        except Exception as error:
            raise SettlePostponed(f"Message {message.message_id} could not be put off: {error}") from error

    def _copy_of(self, message: MessageProxy) -> Message[Any] | None:
        copy: Message[Any] | None = getattr(self._enqueued, "message", None)
        return copy if copy is not None and copy.message_id == message.message_id else None

    def _ending(self, message: MessageProxy, verb: str) -> Ending:
        call = self._backend().publisher.end_call(verb, message.queue_name, message.options)
        claim = getattr(message, _CLAIM, "")
        copy = self._copy_of(message)
        if copy is not None and verb == "ack":
            state = RETRYING if hasattr(message, _NOTE) else ""
            redis_id = copy.options.get("redis_message_id", "")
            place, attempt = self._place(copy.queue_name), _attempt_of(copy)
            return Ending(message.message_id, state, "", True, place, redis_id, attempt, call, claim)
        state, error = getattr(message, _NOTE, (SUCCEEDED, ""))
        if verb == "nack":
            state, error = DEAD, error or _text(message._exception)
        return Ending(message.message_id, state, error, call=call, claim=claim)

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


#: Attributes of a delivered message: how its run went; which attempt it is; the claim it runs on; that it is a copy;
#: that it is to come again later; that its end is recorded.
_NOTE, _ATTEMPT, _CLAIM = "_distcron_end", "_distcron_attempt", "_distcron_claim"
_NOT_OURS, _PUT_OFF, _SETTLED = "_distcron_not_ours", "_distcron_put_off", "_distcron_settled"


def _attempt_of(message: Message[Any] | MessageProxy) -> int:
    retries = message.options.get("retries", 0)
    return retries if isinstance(retries, int) else 0


def _postponed(message: MessageProxy, why: object) -> SettlePostponed:
    return SettlePostponed(f"The end of message {message.message_id} could not be recorded: {why}")


def _note(message: MessageProxy, state: str, error: str = "") -> None:
    setattr(message, _NOTE, (state, error))


def _text(error: BaseException | None) -> str:
    if error is None:
        return ""
    return f"{type(error).__name__}: {error}"[:500].encode("utf-8", "replace").decode()


def _tick(tick: dict[str, Any], message: MessageProxy, started: Started | None) -> Tick:
    previous = started.previous if started else None
    return Tick(
        schedule=tick["schedule"],
        fire_time=utc(tick["fire_time"]),
        previous=None if previous is None else utc(previous),
        attempt=message.options.get("retries", 0),
    )
