"""Brokers that are not on our Redis keep a copy of what is nacked; a message with a letter is acked instead.

Whether there is a letter is known when the worker is at the nack already. So the consumers are wrapped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from dramatiq.broker import Consumer, MessageProxy

from .marks import marks_of

if TYPE_CHECKING:
    from dramatiq import Broker

__all__ = ["ack_what_is_kept"]


def ack_what_is_kept(broker: Broker) -> None:
    """From now on, the consumers of ``broker`` ack a message that is kept as a letter where they would nack it."""
    consume = broker.consume
    if hasattr(consume, "keeps_letters"):
        return

    def consume_keeping(*args: Any, **kwargs: Any) -> Consumer:
        return _Keeping(consume(*args, **kwargs))

    consume_keeping.keeps_letters = True  # type: ignore[attr-defined]
    cast(Any, broker).consume = consume_keeping


class _Keeping(Consumer):
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __next__(self) -> MessageProxy | None:
        return next(self._consumer)

    def ack(self, message: MessageProxy) -> None:
        self._consumer.ack(message)

    def nack(self, message: MessageProxy) -> None:
        if marks_of(message).kept:
            self._consumer.ack(message)
        else:
            self._consumer.nack(message)

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        self._consumer.requeue(messages)

    def close(self) -> None:
        self._consumer.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)
