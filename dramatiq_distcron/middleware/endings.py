"""What a delivery ends with: made here, recorded by the middleware that ends deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dramatiq.errors import QueueNotFound
from dramatiq.middleware import MiddlewareError

from ..errors import BrokerConnectionError, DistCronError, SettlePostponed, StoreRefused
from ..logs import get_logger
from ..places import Places
from ..publishing import at_once, waiting_form
from ..store.base import Ending, Waiting
from ..store.redis import mapped_errors
from .dead_letters import DeadLetters
from .delivered import DEAD, NOT_RECORDED, RETRYING, SUCCEEDED, postponed, text_of
from .marks import Planned, attempt_of, marks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dramatiq import Broker, Message
    from dramatiq.broker import MessageProxy

    from ..backends import Backend
    from ..publishing import Captured

__all__ = ["Endings", "keeper_of"]


class Endings:
    """Makes what is recorded of a delivery: how the run went, the ack, and what is put elsewhere in the same step.

    Parameters:
      backend: opens the store and the publisher of the broker.
    """

    def __init__(self, backend: Callable[[], Backend]) -> None:
        self.logger = get_logger(__name__, type(self))
        self._backend = backend
        self._places: Places | None = None

    def make(self, broker: Broker, message: MessageProxy, verb: str, copy: Message[Any] | None) -> Ending:
        """Parameters:
          verb: ``"ack"`` or ``"nack"``, as the worker would.
          copy: of the message, if this delivery enqueued one: the run goes on with it.

        Raises:
          SettlePostponed: the worker is to ask again.
        """
        marks = marks_of(message)
        if marks.planned is not None and verb == "ack":
            return self._going_back(broker, message, marks.planned)
        if verb == "nack":
            return self._death(broker, message, marks.end[1] if marks.end else "")
        call = self._end_call(message, verb)
        if copy is not None:
            state = RETRYING if marks.end is not None else ""
            redis_id = copy.options.get("redis_message_id", "")
            place, attempt = self._place(copy.queue_name), attempt_of(copy)
            return Ending(message.message_id, state, "", True, place, redis_id, attempt, call, marks.claim)
        state, error = marks.end or (SUCCEEDED, "")
        return Ending(message.message_id, state, error, call=call, claim=marks.claim)

    def _death(self, broker: Broker, message: MessageProxy, error: str) -> Ending:
        """Acked into our own keeping, so that Dramatiq keeps no second copy; nacked where nobody keeps letters."""
        marks = marks_of(message)
        keeper = keeper_of(broker, message)
        call = self._end_call(message, "nack" if keeper is None else "ack")
        letter = None if keeper is None else keeper.letter_of(broker, message, by_outbox=self._backend().by_outbox)
        notice = None if keeper is None or letter is None else keeper.notification(letter)
        told, waiting = [marks.announce, notice], None
        if self._backend().by_outbox:
            # Whoever is told before the letter is there finds none.
            told, waiting = [], None if notice is None else at_once(notice)
            self.announce(broker, message)
        calls = self._telling(message, [one for one in told if one is not None])
        error = error or text_of(message._exception)
        return Ending(
            message.message_id,
            DEAD,
            error,
            call=call,
            claim=marks.claim,
            waiting=waiting,
            letter=letter,
            calls=calls,
        )

    def _end_call(self, message: MessageProxy, verb: str) -> Sequence[Any]:
        return self._backend().publisher.end_call(verb, message.queue_name, message.options)

    def _going_back(self, broker: Broker, message: MessageProxy, planned: Planned) -> Ending:
        """The retry, as it is to lie among those that wait."""
        marks = marks_of(message)
        captured = self._captured(message.copy())
        if captured is None:
            return self._dying(broker, message)
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

    def _dying(self, broker: Broker, message: MessageProxy) -> Ending:
        """Nobody could ever run it again as it is now: it is dead, and not gone."""
        marks = marks_of(message)
        marks.reason, marks.planned = NOT_RECORDED, None
        error = f"{NOT_RECORDED}: its retry cannot be made"
        call = self._end_call(message, "nack")
        if call and keeper_of(broker, message) is not None:
            return self._death(broker, message, error)
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

    def _telling(self, message: MessageProxy, told: Sequence[Message[Any]]) -> Sequence[Sequence[Any]]:
        """The calls that put messages about the end into their queues."""
        captured = [one for one in map(self._captured, told) if one is not None]
        marks_of(message).captured += captured
        return [call for one in captured for call in one.calls]

    def _place(self, queue: str) -> str:
        self._places = self._places or Places(self._backend().store, self._backend().publisher)
        return self._places.of(queue).messages

    def announce(self, broker: Broker, message: MessageProxy) -> None:
        """Tells an actor of the end, before it is recorded and once, however often that is tried.

        What will never work must not keep the message from its end.
        """
        announce = marks_of(message).announce
        if announce is None:
            return
        try:
            with mapped_errors("the broker"):
                broker.enqueue(announce)
        except BrokerConnectionError as error:
            raise postponed(message, error) from error
        except (MiddlewareError, StoreRefused, QueueNotFound) as error:
            self.logger.error("Nobody can be told that message %s ended: %s", message.message_id, error)
        except Exception as error:
            raise postponed(message, error) from error
        marks_of(message).announce = None


def is_locked_out(broker: Broker) -> bool:
    """Whether its own Redis does not let a broker in either, so that it could not put the message anywhere."""
    try:
        with mapped_errors("the broker"):
            cast(Any, broker).client.ping()
    except DistCronError:
        return True
    return False


def keeper_of(broker: Broker, message: MessageProxy) -> DeadLetters | None:
    """Who keeps the letter of a message that dies."""
    found = next((one for one in broker.middleware if isinstance(one, DeadLetters)), None)
    return found if found is not None and found.takes(message) else None
