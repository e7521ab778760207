"""How a message gets into the broker: caught on its way, and put there by the commit.

``broker.enqueue()`` runs whole, on a shallow copy whose last step is written down instead of done, so that every
hook, encoder and subclass has its say. What was written down becomes part of the atomic step that decides the tick.
"""

from __future__ import annotations

import contextvars
import copy
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from dramatiq import Broker, Message, get_encoder
from dramatiq.brokers.redis import RedisBroker
from dramatiq.brokers.stub import StubBroker
from dramatiq.encoder import JSONEncoder
from dramatiq.middleware import Middleware, MiddlewareError

from .errors import ConflictError, DistCronError
from .store.base import DATA, Waiting

__all__ = [
    "Captured",
    "Publisher",
    "RedisPublisher",
    "StubPublisher",
    "Vetoed",
    "at_once",
    "waiting_form",
]


class Vetoed(DistCronError):
    """A middleware refused the message, or it could not be made."""


@dataclass(slots=True)
class Captured:
    """A message on its way: ``calls`` puts it into the broker, ``size`` is its length in bytes.

    ``outbox`` is the message itself where it cannot be part of the commit and is published after it.
    """

    message: Message[Any]
    context: contextvars.Context = field(default_factory=contextvars.Context)
    calls: list[Sequence[Any]] = field(default_factory=list)
    size: int = 0
    outbox: bytes = b""
    postponed: list[tuple[Any, ...]] = field(default_factory=list)


class Publisher(Protocol):
    """Puts messages into one broker."""

    def begin(self) -> None: ...

    def capture(self, message: Message[Any]) -> Captured: ...

    def capture_plainly(self, message: Message[Any]) -> Captured: ...

    def announce(self, captured: Captured) -> None: ...

    def end_call(self, verb: str, queue: str, options: Mapping[str, Any]) -> Sequence[Any]: ...


class _Capturing:
    """What the publishers share: the copy of the broker, and hooks in a context of their own.

    Middlewares with a context (tracing) would leave it behind if ``before_enqueue`` and ``after_enqueue`` of many
    messages were interleaved in one.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._copy = cast(Any, copy.copy(broker))
        self._copy.emit_after = self._postpone
        self._local = threading.local()
        self._announces = True

    @property
    def _current(self) -> Captured | None:
        """The message that is on its way in this thread."""
        return getattr(self._local, "captured", None)

    def begin(self) -> None:
        """To be called before a series of messages: middlewares may have been added."""
        self._announces = _is_hooked(self._broker, "after_enqueue")

    def capture(self, message: Message[Any]) -> Captured:
        """Runs ``broker.enqueue(message)`` up to its last step.

        Raises:
          Vetoed: a middleware refused it with a ``MiddlewareError``, or it cannot be encoded.
          ConflictError: the broker does not enqueue as we know it, so nothing could be caught.
        """
        captured = Captured(message, contextvars.copy_context())
        # Some may have been added since, and adding makes a new list of them.
        self._copy.middleware = self._broker.middleware
        captured.message = captured.context.run(self._caught, self._copy.enqueue, captured)
        if not captured.calls:
            raise self._enqueues_its_own_way()
        return captured

    def capture_plainly(self, message: Message[Any]) -> Captured:
        """As :meth:`capture`, without any hook. Raises ``Vetoed`` if it cannot be encoded."""
        captured = Captured(message)
        plain = copy.copy(self._copy)
        plain.middleware = []
        captured.message = self._caught(plain.enqueue, captured)
        return captured

    def _caught(self, enqueue: Callable[[Message[Any]], Message[Any]], captured: Captured) -> Message[Any]:
        # A hook may trigger another schedule.
        outer, self._local.captured = self._current, captured
        try:
            return enqueue(captured.message)
        except MiddlewareError as error:
            raise Vetoed(f"A middleware refused the message: {type(error).__name__}: {error}") from error
        except Exception as error:
            raise _not_made(error) from error
        finally:
            self._local.captured = outer

    def _enqueues_its_own_way(self) -> ConflictError:
        return ConflictError(
            f"{type(self._broker).__name__} enqueues in a way of its own, so that its messages cannot be made part "
            "of the step that decides a tick. Use RedisBroker, or a subclass that calls its enqueue()."
        )

    def _postpone(self, *signal: Any, **kwargs: Any) -> None:
        captured = self._current
        if captured is not None:
            captured.postponed.append(signal)
        else:
            self._broker.emit_after(*signal, **kwargs)

    def announce(self, captured: Captured) -> None:
        """Runs the ``after_enqueue`` hooks of a message that is in its queue now."""
        if not self._announces:
            return
        for signal in captured.postponed:
            captured.context.run(self._broker.emit_after, *signal)


def _is_hooked(broker: Broker, hook: str) -> bool:
    """Whether any middleware has a ``hook`` of its own, or the broker emits signals in its own way."""
    ours = type(broker).emit_before is Broker.emit_before and type(broker).emit_after is Broker.emit_after
    plain = getattr(Middleware, hook)
    return not ours or any(
        getattr(type(middleware), hook, None) is not plain or hook in vars(middleware)
        for middleware in broker.middleware
        if not getattr(middleware, "listens_in_workers_only", False)
    )


class _Trial(Message[Any]):
    """A message of no actor, which an encoder that knows its actors would refuse."""

    def encode(self) -> bytes:
        return b"{}"


class RedisPublisher(_Capturing):
    """For ``RedisBroker``: catches the arguments of its script.

    Dramatiq's maintenance is off on the copy: with a host clock that is ahead, one enqueue would give a live
    worker's running messages to others.
    """

    def __init__(self, broker: Broker, app: str) -> None:
        super().__init__(broker)
        self._dispatch = self._copy.scripts["dispatch"]
        self._copy.scripts = {**self._copy.scripts, "dispatch": self._record}
        self._copy.maintenance_chance = 0
        # Only maintenance and fetching use it; asking the server would be a command of the broker's own, slow client.
        self._copy._max_unpack_size = lambda: 1
        # One id for all beats of an app: each start of a crash loop would else leave a heartbeat behind.
        self._copy.broker_id = f"distcron-{app}"
        self._shape: _Shape | None = None
        self._ending = copy.copy(self._copy)
        self._ending.broker_id = cast(Any, broker).broker_id

    def begin(self) -> None:
        super().begin()
        hooked = self._announces or _is_hooked(self._broker, "before_enqueue")
        plain = all(getattr(type(self._broker), name) is getattr(RedisBroker, name) for name in _ENQUEUES)
        self._shape = self._learn() if plain and not hooked else None

    def capture(self, message: Message[Any]) -> Captured:
        """As for every broker; where no middleware listens, in a third of the time."""
        if self._shape is None:
            return super().capture(message)
        try:
            call = self._shape.call(message)
        except Exception as error:
            raise _not_made(error) from error
        return Captured(message, calls=[call], size=len(call[-1]))

    def _learn(self) -> _Shape | None:
        """What an enqueue of this broker comes to: asked of the broker with a trial, not assumed."""
        message: Message[Any] = Message("distcron_queue", "distcron_trial", (1,), {"a": "ü"}, {"b": None}, "id", 4)
        captured = Captured(message)
        try:
            enqueued = self._caught(self._on_trial().enqueue, captured)
            return _Shape.of(message, enqueued, captured.calls)
        except (DistCronError, LookupError, ValueError):
            return None

    def end_call(self, verb: str, queue: str, options: Mapping[str, Any]) -> Sequence[Any]:
        """The call that acks or nacks (``verb``) a message this process was given from ``queue``."""
        captured = Captured(Message(queue, "", (), {}, {}))
        outer, self._local.captured = self._current, captured
        try:
            # In this process' own name: the message is in the hands of its broker.
            getattr(self._ending, f"do_{verb}")(queue, options["redis_message_id"])
        finally:
            self._local.captured = outer
        return captured.calls[0]

    def _record(self, *, args: Sequence[Any], keys: Sequence[Any]) -> Any:
        captured = self._current
        if captured is None:
            # A hook kept the broker it was given and sends with it, later or in a thread: that is none of ours.
            return self._dispatch(args=args, keys=keys)
        captured.calls.append(args)
        captured.size += len(args[-1])
        return None

    def _on_trial(self) -> Any:
        """The copy without hooks and without a connection: whatever it does, nothing is sent."""
        trial = copy.copy(self._copy)
        trial.middleware = []
        trial.client = None
        return trial

    def trial(self, queue: str) -> Sequence[Any]:
        """What an enqueue on ``queue`` gives to Dramatiq's script. No hook runs and nothing is sent.

        Raises:
          ConflictError: the broker does not enqueue as we know it.
        """
        captured = Captured(_Trial(queue, "distcron_trial", (), {}, {}))
        try:
            self._caught(self._on_trial().enqueue, captured)
        except Vetoed as error:
            raise self._enqueues_its_own_way() from error
        if len(captured.calls) != 1:
            raise self._enqueues_its_own_way()
        return captured.calls[0]


@dataclass(frozen=True)
class _Shape:
    """The call that a broker makes of a message: ``arguments``, and where queue, id in Redis and data go."""

    arguments: list[Any]
    queue: int
    id: int
    data: int
    encode: Callable[[Message[Any]], bytes]

    @classmethod
    def of(cls, message: Message[Any], enqueued: Message[Any], calls: list[Sequence[Any]]) -> _Shape | None:
        """From what a broker made of ``message``; ``None`` if it did more than we know."""
        (arguments,) = calls
        redis_message_id = enqueued.options["redis_message_id"]
        if enqueued != message.copy(options={"redis_message_id": redis_message_id}):
            return None
        data = enqueued.encode()
        json_alike = type(get_encoder()) is JSONEncoder and _encode_json(enqueued) == data
        encode = _encode_json if json_alike else Message.encode
        return cls(
            arguments=[str(argument) for argument in arguments],
            queue=arguments.index(message.queue_name),
            id=arguments.index(redis_message_id),
            data=arguments.index(data),
            encode=encode,
        )

    def call(self, message: Message[Any]) -> list[Any]:
        """The call for a message that nobody else has: its options get the id in Redis."""
        message.options["redis_message_id"] = redis_message_id = os.urandom(16).hex()
        call = self.arguments.copy()
        call[self.queue], call[self.id] = message.queue_name, redis_message_id
        call[self.data] = self.encode(message)
        return call


#: What a subclass must leave alone for its enqueue to be RedisBroker's.
_ENQUEUES = ("enqueue", "_dispatch", "__getattr__")

_json = json.JSONEncoder(separators=(",", ":"))


def _encode_json(message: Message[Any]) -> bytes:
    """As Dramatiq's JSON encoder; only used where it gives the same bytes."""
    return _json.encode(
        {
            "queue_name": message.queue_name,
            "actor_name": message.actor_name,
            "args": message.args,
            "kwargs": message.kwargs,
            "options": message.options,
            "message_id": message.message_id,
            "message_timestamp": message.message_timestamp,
        }
    ).encode()


def _not_made(error: Exception) -> Vetoed:
    return Vetoed(f"The message could not be made: {type(error).__name__}: {error}")


class StubPublisher(_Capturing):
    """For ``StubBroker``: catches what is put on its queues, as (queue, data)."""

    def __init__(self, broker: StubBroker) -> None:
        super().__init__(broker)
        self._stub = broker
        self._copy.queues = _CatchingQueues(broker, self)

    def end_call(self, verb: str, queue: str, options: Mapping[str, Any]) -> Sequence[Any]:
        """Nothing: a stub's consumer acks by itself, and nobody else can have the message."""
        return ()

    def caught(self, queue: str, data: bytes) -> None:
        captured = self._current
        if captured is None:
            self._stub.queues[queue].put(data)
            return
        captured.calls.append((queue, data))
        captured.size += len(data)


class _CatchingQueues:
    def __init__(self, broker: StubBroker, publisher: StubPublisher) -> None:
        self._broker = broker
        self._publisher = publisher

    def __contains__(self, queue: object) -> bool:
        return queue in self._broker.queues

    def __getitem__(self, queue: str) -> _CatchingQueue:
        return _CatchingQueue(queue, self._publisher)


@dataclass(frozen=True)
class _CatchingQueue:
    name: str
    publisher: StubPublisher

    def put(self, data: bytes) -> None:
        self.publisher.caught(self.name, data)


def at_once(message: Message[Any]) -> Waiting:
    """A message that whoever looks after those that wait is to publish at once. Raises what its encoder raises."""
    about = {"id": message.message_id, "actor": message.actor_name, "queue": message.queue_name, "attempt": 0}
    return Waiting(message.message_id, 0, about, message.encode())


def waiting_form(captured: Captured) -> tuple[bytes, list[Sequence[Any]]]:
    """The encoded message, and the calls that put it into its queue with ``DATA`` in its place."""
    if not captured.calls:
        return captured.outbox, []
    (data,) = {argument for call in captured.calls for argument in call if isinstance(argument, bytes)}
    return data, [[DATA if argument is data else str(argument) for argument in call] for call in captured.calls]
