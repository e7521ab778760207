"""The middleware of dead letters: what is kept of a message that dies, and who is told.

It only makes the letters. They are recorded by the middleware that ends deliveries, in one step with the message's
leaving its queue, and the actor that tells the handlers is enqueued in the same step where the broker is on Redis.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import dramatiq
from dramatiq import Message, get_encoder
from dramatiq.middleware import Middleware, SkipMessage

from ..api.letter_infos import DeadLetter, DropHook, Handler, dead_letter
from ..callables import refuse_awaited
from ..config import retention_from
from ..durations import Duration
from ..errors import ConfigurationError, ConflictError, quoted
from ..letters import DLQ_ACTOR, REJECTED, Redact, about_death, dlq_queue, guessed_reason, indexes_of
from ..logs import get_logger
from ..store.base import Letter, LetterRow
from ..version import VERSION
from .delivered import as_it_came
from .marks import attempt_of, marks_of
from .recording import Recorder
from .retention import Retainer, Retention

if TYPE_CHECKING:
    from types import EllipsisType

    from dramatiq import Actor, Broker, Worker
    from dramatiq.broker import MessageProxy

    from ..store.base import Store

__all__ = ["DeadLetters", "refuse_two_of_letters"]

#: Of the actor that tells the handlers, whatever retries on this broker: one that fails is tried again. What the app
#: says of all its own actors, which errors are worth a retry and how old a message may be, is not meant for it.
_OF_ACTOR: dict[str, Any] = {"max_retries": 10, "retry_when": None, "max_retry_age": None, "max_age": None}


class DeadLetters(Middleware):
    """Keeps every message that dies, with why, and tells the handlers. ``install(broker)`` adds it.

    Parameters:
      max_age: for how long letters are kept, in seconds or as a ``timedelta`` (default 30 days; ``None``: for ever).
        Unless given it comes from ``DISTCRON_DEAD_LETTERS_MAX_AGE``, such as ``90d`` or ``none``.
      max_count: how many are kept, the newest (default 100,000; ``None``: all). What is dropped is told before, in the
        log and to the ``on_drop`` hooks. Unless given it comes from ``DISTCRON_DEAD_LETTERS_MAX_COUNT``.
      per_actor: a :class:`Retention` for the letters of some actors, by name, in the place of the general one: they
        count for no ``max_count`` but their own.
      redact: ``(actor, args, kwargs) -> (args, kwargs)``: what may be shown of a message's arguments. The message
        itself is kept whole, or it could not be redriven.

    Raises:
      ConfigurationError: an option has a value it cannot have.
    """

    def __init__(
        self,
        *,
        max_age: Duration | EllipsisType | None = ...,
        max_count: int | EllipsisType | None = ...,
        per_actor: Mapping[str, Retention] | None = None,
        redact: Redact | None = None,
    ) -> None:
        self.logger = get_logger(__name__, type(self))
        if redact is not None and not callable(redact):
            raise ConfigurationError(f"redact must be callable, not {quoted(redact)}.")
        refuse_awaited(redact, "redact")
        given = {"max_age": max_age, "max_count": max_count}
        self.retention = Retention(**retention_from(given))
        if per_actor is not None and not isinstance(per_actor, Mapping):
            raise ConfigurationError(
                f"per_actor must be a dict of actors' names and Retention(...), not {quoted(per_actor)}."
            )
        self.per_actor = dict(per_actor or {})
        for actor, retention in self.per_actor.items():
            if not isinstance(retention, Retention):
                raise ConfigurationError(
                    f"per_actor must give {quoted(actor)} a Retention(...), not {quoted(retention)}."
                )
        self.handlers: dict[str, Handler] = {}
        self.on_drop: list[DropHook] = []
        self.retainer = Retainer(self._store, self.retention, self.per_actor, self.on_drop)
        self.redact = None if redact is None else self._telling_failures(redact)
        self._recorder: Recorder | None = None
        self._actor: Actor[Any, Any] | None = None

    def _telling_failures(self, redact: Redact) -> Redact:
        def careful(actor: str, args: Any, kwargs: Any) -> Any:
            try:
                shown_args, shown_kwargs = redact(actor, args, kwargs)
                return list(shown_args), dict(shown_kwargs)
            except Exception as error:
                # Its words may be what should not be seen.
                self.logger.error("redact= failed with %s: no arguments of %s are shown.", type(error).__name__, actor)
                raise

        return careful

    def _store(self) -> Store:
        assert self._recorder is not None
        return self._recorder.open_backend().store

    def attach(self, recorder: Recorder, broker: Broker) -> None:
        """Tells it who records, and declares the actor that tells the handlers."""
        self._recorder = recorder
        if DLQ_ACTOR in broker.actors:
            self._actor = broker.actors[DLQ_ACTOR]
            return
        options = {name: value for name, value in _OF_ACTOR.items() if name in broker.actor_options}
        queue = dlq_queue(recorder.settings.app)
        declared = dramatiq.actor(broker=broker, actor_name=DLQ_ACTOR, queue_name=queue, **options)
        self._actor = declared(self._handle)

    def before_worker_boot(self, broker: Broker, worker: Worker) -> None:
        """Raises ``ConflictError`` if nobody records what it makes, or two make it."""
        if not any(isinstance(one, Recorder) for one in broker.middleware):
            raise ConflictError("DeadLetters needs DistCron on the same broker, which records: use install(broker).")
        refuse_two_of_letters(broker)

    # -- a death --------------------------------------------------------------------------------------------

    def takes(self, message: MessageProxy) -> bool:
        """Whether it is kept: the message that tells of a letter is not, or a failing handler would go on for ever."""
        return message.actor_name != DLQ_ACTOR

    def letter_of(self, broker: Broker, message: MessageProxy, *, by_outbox: bool = False) -> Letter:
        """What is kept of a message that died. ``by_outbox``: its broker is not where the letter is."""
        error = message._exception
        # What was to be retried and is dead nevertheless was failed by somebody else.
        decided = marks_of(message).reason or (REJECTED if marks_of(message).planned else "")
        reason = decided or self._guess(broker, message, error)
        host, inner = socket.gethostname(), as_it_came(message)
        data = _encoded(inner)
        about = about_death(inner, error, reason, host=host, version=VERSION, redact=self.redact)
        if by_outbox:
            about["outbox"] = True
        own = message.options.get("redis_message_id")
        if by_outbox or not isinstance(own, str) or not own:
            # A redelivery that dies again, of whatever, is the same letter.
            attempt = marks_of(message).attempt
            own = f"{message.message_id}.{attempt_of(message) if attempt is None else attempt}"
        return Letter(own, about, data, indexes_of(about))

    def _guess(self, broker: Broker, message: MessageProxy, error: BaseException | None) -> str:
        actor = broker.actors.get(message.actor_name)
        options = actor.options if actor else {}
        throws = message.options.get("throws") or options.get("throws")
        try:
            aborted = bool(throws) and isinstance(error, cast(Any, throws))
        except TypeError:
            aborted = False
        return guessed_reason(error, too_old=_is_age(error), aborted=aborted)

    def notification(self, letter: Letter) -> Message[Any] | None:
        """The message that tells the handlers of a letter."""
        return None if self._actor is None else self._actor.message(letter.id)

    # -- telling --------------------------------------------------------------------------------------------

    def _handle(self, id: str, handler: str | None = None, kept: dict[str, Any] | None = None) -> None:
        """What the actor does. Parameters:
        handler: which one is to be called; unless given, all, each in a message of its own, so that one that fails
          disturbs none.
        kept: the letter as it was then: what one handler does with it keeps no other from being told.
        """
        letter = self._letter(id, kept)
        if letter is None:
            self.logger.info("Letter %s was redriven or dropped before anybody was told.", id)
        elif handler is not None:
            self._handler(handler)(dead_letter(letter))
        elif self.handlers:
            self._send_to_each(letter)
        else:
            self._log(dead_letter(letter))

    def _handler(self, name: str) -> Handler:
        if name not in self.handlers:
            raise ConflictError(f"This worker has no handler {name!r} of dead letters. Is its module loaded?")
        return self.handlers[name]

    def _send_to_each(self, letter: LetterRow) -> None:
        assert self._actor is not None
        for name in self.handlers:
            self._actor.send(letter.id, name, _told(letter))

    def _log(self, letter: DeadLetter) -> None:
        what = (letter.id, letter.actor, letter.queue, letter.reason, letter.error)
        self.logger.error("Dead letter %s: %s on %s, %s: %s", *what)

    def _letter(self, id: str, kept: dict[str, Any] | None) -> LetterRow | None:
        if kept is not None:
            return LetterRow(id, kept["dead_at"], kept["about"], b"")
        return self._store().letter(id)

    def after_nack(self, broker: Broker, message: MessageProxy) -> None:
        """That nobody could be told must not go unnoticed."""
        if not self.takes(message):
            self.logger.error(
                "Nobody could be told of dead letter %s, and it is not tried again. The letter itself is kept.",
                # Not what else it was given: that is the letter, with its text and its arguments.
                ", ".join(str(one)[:200] for one in message.args[:2]),
            )


def refuse_two_of_letters(broker: Broker) -> None:
    """Raises ``ConflictError`` if two middlewares would keep a letter."""
    if sum(isinstance(one, DeadLetters) for one in broker.middleware) > 1:
        raise ConflictError(
            "This broker has two DeadLetters middlewares. install(broker) adds one unless there is one: add yours "
            "before you call it."
        )


def _told(letter: LetterRow) -> dict[str, Any]:
    return {"dead_at": letter.dead_at, "about": dict(letter.about)}


def _is_age(error: BaseException | None) -> bool:
    """Dramatiq's AgeLimit skips a message that is too old, and says so in words only."""
    return isinstance(error, SkipMessage) and "age limit" in str(error).lower()


def _can_be_sent(value: Any) -> bool:
    try:
        get_encoder().encode({"value": value})
    except Exception:
        return False
    return True


def _encoded(message: Message[Any]) -> bytes:
    try:
        return message.encode()
    except Exception:
        # A middleware put something into the options that cannot be sent: the message is worth more than that.
        plain = {name: value for name, value in message.options.items() if _can_be_sent(value)}
        return Message(
            message.queue_name,
            message.actor_name,
            message.args,
            message.kwargs,
            plain,
            message.message_id,
            message.message_timestamp,
        ).encode()
