"""What a message tells of its failures: in its own options, and among those that wait for their retry."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from .marks import attempt_of

if TYPE_CHECKING:
    from dramatiq.broker import MessageProxy

    from ..retry_budget import RetryBudget

__all__ = ["HISTORY", "about", "delivery_of", "previous_delay", "tell_failure"]

#: The message option that tells of the failures before.
HISTORY = "distcron_retries"
#: How many failures are told of, and how long the text of one may be, in characters.
_FAILURES, _TEXT = 5, 200
#: The end of a traceback is what matters. What is sent on with each retry must not grow without bounds.
_FRAMES, _TRACEBACK = 30, 32_768


def tell_failure(message: MessageProxy, error: BaseException, now: int, delay: int | None) -> None:
    """Writes what Dramatiq tells into the message's options, and our own. ``delay`` is the wait in ms, if any."""
    retries = attempt_of(message) + 1
    told = _history(message)
    message.options["retries"] = retries
    message.options["traceback"] = _encodable("".join(traceback.format_exception(error, limit=_FRAMES))[-_TRACEBACK:])
    message.options["requeue_timestamp"] = now
    attempt = {"at": now, "error": type(error).__name__, "text": _cut(error)}
    message.options[HISTORY] = {
        "attempt": retries,
        "first_failed_at": told.get("first_failed_at", now),
        "last_error": type(error).__name__,
        "next_delay": delay,
        "attempts": [*told.get("attempts", []), attempt][-_FAILURES:],
    }


def previous_delay(message: MessageProxy) -> int | None:
    """The wait before this run in ms, if it was a retry."""
    delay = _history(message).get("next_delay")
    return delay if isinstance(delay, int) and not isinstance(delay, bool) else None


def delivery_of(message: MessageProxy) -> str:
    """What one delivery and its redeliveries have in common, and the message's retries have not."""
    own = message.options.get("redis_message_id")
    return own if isinstance(own, str) else f"{message.message_id}.{attempt_of(message)}"


def about(message: MessageProxy, budget: RetryBudget | None) -> dict[str, Any]:
    """What is told of a waiting message without decoding it."""
    told = _history(message)
    tick = message.options.get("distcron")
    found = {
        "id": message.message_id,
        "actor": message.actor_name,
        "queue": message.queue_name,
        "attempt": told.get("attempt"),
        "first_failed_at": told.get("first_failed_at"),
        "error": told.get("last_error"),
        "schedule": tick.get("schedule") if isinstance(tick, dict) else None,
        "fire_time": tick.get("fire_time") if isinstance(tick, dict) else None,
    }
    if budget is not None:
        found["budget"] = [budget.name, budget.floor, budget.burst]
    # A script reads it, and cannot read half a character.
    return {name: _encodable(value) if isinstance(value, str) else value for name, value in found.items()}


def _history(message: MessageProxy) -> dict[str, Any]:
    told = message.options.get(HISTORY)
    if isinstance(told, dict) and isinstance(told.get("attempts", []), list):
        return told
    return {}


def _cut(error: BaseException) -> str:
    try:
        return _encodable(str(error)[:_TEXT])
    except Exception:
        return "<its text cannot be made>"


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
