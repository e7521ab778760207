"""What is read off a delivered message and its error, as it is recorded or given to the actor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dramatiq import Message
from dramatiq.middleware import SkipMessage

from ..durations import utc
from ..errors import SettlePostponed
from ..tick import Tick
from .marks import marks_of

if TYPE_CHECKING:
    from dramatiq.broker import MessageProxy

    from ..store.base import Started

__all__ = [
    "DEAD",
    "DROPPED",
    "NOT_RECORDED",
    "RETRYING",
    "SUCCEEDED",
    "Skipped",
    "as_it_came",
    "postponed",
    "text_of",
    "tick_of",
]

SUCCEEDED, RETRYING, DEAD, DROPPED = "succeeded", "retrying", "dead", "dropped"
#: The reason of a message that died because its retry could not even be written down.
NOT_RECORDED = "retry_not_recorded"


class Skipped(SkipMessage):
    """A delivery that is not to run: too late, or a copy."""


def as_it_came(message: MessageProxy) -> Message[Any]:
    """With the arguments it had before its actor changed them, and what its options tell by now.

    One that its actor left alone is the same as ever: other middlewares may hold on to it.
    """
    before = marks_of(message).handed_over
    inner: Message[Any] = message._message
    if before is None or not before.is_of(inner):
        return inner
    came: Message[Any] = Message.decode(before.data)
    return inner if _is_left_alone(inner, came, before.data) else inner.copy(args=came.args, kwargs=came.kwargs)


def _is_left_alone(message: Message[Any], came: Message[Any], data: bytes) -> bool:
    """Whether its arguments are encoded as they were: 1 and True are equal, and so are two rows of one key."""
    try:
        return came.copy(args=message.args, kwargs=message.kwargs).encode() == data
    except Exception:
        # There is something in it now that cannot be sent.
        return False


def postponed(message: MessageProxy, why: object) -> SettlePostponed:
    """What makes the worker ask again."""
    return SettlePostponed(f"The end of message {message.message_id} could not be recorded: {why}")


def text_of(error: BaseException | None) -> str:
    """Its class and its words, cut to a size that a record can have."""
    if error is None:
        return ""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = f"{type(error).__name__}: <its text cannot be made>"
    return text[:500].encode("utf-8", "replace").decode()


def tick_of(message: MessageProxy, started: Started | None) -> Tick:
    """The tick whose message it is."""
    tick = message.options["distcron"]
    previous = started.previous if started else None
    return Tick(
        schedule=tick["schedule"],
        fire_time=utc(tick["fire_time"]),
        previous=None if previous is None else utc(previous),
        attempt=message.options.get("retries", 0),
    )
