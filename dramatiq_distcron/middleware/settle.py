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
from ..tick import Tick, set_current_tick

if TYPE_CHECKING:
    from collections.abc import Callable

    from dramatiq import Broker, Message, Worker
    from dramatiq.broker import MessageProxy

    from ..backends import Backend

__all__ = ["Settle", "keep_last"]

SUCCEEDED, RETRYING, DEAD, DROPPED = "succeeded", "retrying", "dead", "dropped"


#: How long to wait between two questions to a store that is away, in seconds.
_PAUSE = 1.0
#: When a delivery that found another worker at its run is tried again, in ms.
_ASK_AGAIN_MS = 5000


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
        self._enqueued = threading.local()
        self._stopping = threading.Event()

    # -- taking a message up --------------------------------------------------------------------------------

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        """Notes that the run began. Raises ``SkipMessage`` for a copy, and for a first delivery that came too late."""
        tick = message.options.get("distcron")
        if tick is None:
            return
        started = self._claim(broker, message) if self._backend().by_outbox else self._start(message)
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

    def _claim(self, broker: Broker, message: MessageProxy) -> Started:
        """The ticket for this delivery. Raises ``SkipMessage`` if another one has it."""
        attempt = int(message.options.get("retries", 0))
        claimed = self._ask_until_answered(message, attempt)
        if isinstance(claimed, Started):
            return claimed
        setattr(message, _NOT_OURS, True)
        if claimed is None or claimed.holder:
            # It may be a redelivery while the first worker is cut off from the broker and still at it: ask later.
            broker.enqueue(message.copy(), delay=_ASK_AGAIN_MS)
            raise _Skipped("Put off: another worker is at it, or it could not be asked.")
        raise _Skipped("A copy of a message whose run is over or goes on elsewhere.")

    def _ask_until_answered(self, message: MessageProxy, attempt: int) -> Started | Refused | None:
        """Neither run nor dropped while the store is away: to run could be a double, to drop a loss.

        ``None``: the worker stops before there is an answer.
        """
        while True:
            try:
                return self._backend().store.claim_run(message.message_id, self.worker_id, attempt)
            except DistCronError as error:
                self.logger.warning("Message %s waits for its ticket: %s", message.message_id, error)
            if self._stopping.wait(_PAUSE):
                return None

    def before_worker_shutdown(self, broker: Broker, worker: Worker) -> None:
        self._stopping.set()

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
            copies = vars(self._enqueued).setdefault("copies", {})
            copies[message.message_id] = message

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
        if hasattr(message, _NOT_OURS):
            # Only this delivery ends, and nothing of the run.
            self._forget_copy(message)
            return
        try:
            answer = self._backend().store.settle(self._ending(message, verb))
        except StoreUnavailable as error:
            raise SettlePostponed(f"The end of message {message.message_id} could not be recorded: {error}") from error
        except DistCronError as error:
            answer = f"failed {error}"
        self._forget_copy(message)
        if answer.startswith("failed"):
            # The record is not worth the message: the plain ack goes on, and the run is swept later.
            self.logger.error("How message %s ended could not be recorded: %s", message.message_id, answer)

    def _ending(self, message: MessageProxy, verb: str) -> Ending:
        call = self._backend().publisher.end_call(verb, message.queue_name, message.options)
        copy = vars(self._enqueued).get("copies", {}).get(message.message_id)
        if copy is not None and verb == "ack":
            state = RETRYING if hasattr(message, _NOTE) else ""
            place = self._place(copy.queue_name)
            redis_id, attempt = copy.options.get("redis_message_id", ""), int(copy.options.get("retries", 0))
            return Ending(message.message_id, state, "", True, place, redis_id, attempt, call)
        state, error = getattr(message, _NOTE, (SUCCEEDED, ""))
        if verb == "nack":
            state, error = DEAD, error or _text(message._exception)
        return Ending(message.message_id, state, error, call=call)

    def _forget_copy(self, message: MessageProxy) -> None:
        vars(self._enqueued).get("copies", {}).pop(message.message_id, None)

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


#: Attributes of a delivered message: how its run went, and that it is none.
_NOTE, _NOT_OURS = "_distcron_end", "_distcron_not_ours"


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
