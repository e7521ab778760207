"""What is kept of a message that died, and the message that is made of it again: pure.

A letter is its message as it was enqueued, and beside it everything a human or a filter asks for, cut to size, so that
nobody has to decode arguments to find it.
"""

from __future__ import annotations

import hashlib
import json
import os
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dramatiq import ActorNotFound, Message
from dramatiq.middleware import SkipMessage

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "ABORTED",
    "ADOPTED",
    "AGE_LIMIT",
    "DLQ_ACTOR",
    "DLQ_QUEUE",
    "EXHAUSTED",
    "HISTORY",
    "ORIGIN",
    "REASONS",
    "REJECTED",
    "UNKNOWN_ACTOR",
    "Redact",
    "about_death",
    "adopted",
    "guessed_reason",
    "indexes_of",
    "redriven",
]

#: Who tells the handlers of a letter, and on which queue.
DLQ_ACTOR: Final = "distcron_dead_letter"
DLQ_QUEUE: Final = "dead_letters"

ABORTED: Final = "aborted"
AGE_LIMIT: Final = "age_limit"
EXHAUSTED: Final = "retries_exhausted"
REJECTED: Final = "rejected"
UNKNOWN_ACTOR: Final = "unknown_actor"
REASONS: Final = (
    EXHAUSTED,
    ABORTED,
    AGE_LIMIT,
    "max_retry_age",
    UNKNOWN_ACTOR,
    "poison",
    REJECTED,
    "retry_not_recorded",
)

#: The message option that tells of the failures before, and the one that links a redriven message to its origin.
HISTORY: Final = "distcron_retries"
ORIGIN: Final = "distcron_origin"
#: What a retry leaves in the options, and a message that starts again must not have.
_OF_RETRIES = ("retries", "traceback", "requeue_timestamp", "eta", "redis_message_id", HISTORY)

#: How long the parts may be, in characters; how many frames make a fingerprint.
_TEXT, _TRACEBACK, _ARGUMENTS, _NAME, _FRAMES = 500, 4000, 2000, 200, 3

#: From an actor's name, args and kwargs to what may be shown of them.
Redact = Callable[[str, Sequence[Any], Mapping[str, Any]], "tuple[Sequence[Any], Mapping[str, Any]]"]

ADOPTED: Final = "Found among Dramatiq's own dead messages."


def guessed_reason(error: BaseException | None, *, too_old: bool, aborted: bool) -> str:
    """Why a message died whose retries were not decided by our middleware."""
    if isinstance(error, ActorNotFound):
        return UNKNOWN_ACTOR
    if too_old:
        return AGE_LIMIT
    if error is None or isinstance(error, SkipMessage):
        return REJECTED
    return ABORTED if aborted else EXHAUSTED


def about_death(
    message: Message[Any],
    error: BaseException | None,
    reason: str,
    *,
    host: str,
    version: str,
    redact: Redact | None = None,
) -> dict[str, Any]:
    """Everything that is kept beside the message; all of it fits into JSON."""
    told = message.options.get(HISTORY)
    told = told if isinstance(told, dict) else {}
    tick = message.options.get("distcron")
    tick = tick if isinstance(tick, dict) else {}
    return {
        "message_id": message.message_id,
        "actor": message.actor_name[:_NAME],
        "queue": message.queue_name[:_NAME],
        "reason": reason,
        "text": _text(error),
        "error": _class(error),
        "errors": [_class(one) for one in _chain(error)],
        "traceback": _traceback(message, error),
        "attempts": _attempts(message, reason),
        "history": told.get("attempts", []),
        "first_failed_at": told.get("first_failed_at"),
        "enqueued_at": message.message_timestamp,
        "schedule": tick.get("schedule"),
        "fire_time": tick.get("fire_time"),
        "origin": _origin(message),
        "host": host,
        "version": version,
        "fingerprint": _fingerprint(message.actor_name, error),
        "message": _shown(message, redact),
    }


def adopted(message: Message[Any]) -> dict[str, Any]:
    """The same for a message that Dramatiq had moved away: what its options still tell."""
    failed = bool(message.options.get("traceback"))
    about = about_death(message, None, EXHAUSTED if failed else REJECTED, host="", version="")
    return {**about, "text": ADOPTED, "error": _last_line(message.options.get("traceback"))}


def indexes_of(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The (field, value) pairs by which a letter is found."""
    fields = ("actor", "queue", "reason", "error", "fingerprint", "schedule")
    return [(field, str(about[field])[:_NAME]) for field in fields if about.get(field)]


def redriven(message: Message[Any], now: int) -> Message[Any]:
    """The message that starts again: no attempts, of a new generation, with a fresh timestamp and an id of its own.

    A limit of its age counts from now, or it would die again at once. ``now`` is in UTC ms.
    """
    options = {name: value for name, value in message.options.items() if name not in _OF_RETRIES}
    before = _origin(message)
    first = before["message_id"] if before else message.message_id
    generation = (before["generation"] if before else 0) + 1
    options[ORIGIN] = {"message_id": first, "before": message.message_id, "generation": generation}
    return Message(
        message.queue_name,
        message.actor_name,
        tuple(message.args),
        dict(message.kwargs),
        options,
        str(uuid.uuid4()),
        now,
    )


def _attempts(message: Message[Any], reason: str) -> int:
    """How often it ran. A failure that ends by an abort is the only one that retries did not count."""
    retries = message.options.get("retries", 0)
    known = retries if isinstance(retries, int) and not isinstance(retries, bool) else 0
    return known + 1 if reason == ABORTED else known


def _origin(message: Message[Any]) -> dict[str, Any] | None:
    found = message.options.get(ORIGIN)
    good = isinstance(found, dict) and isinstance(found.get("generation"), int) and "message_id" in found
    return found if good else None


# -- what failed ----------------------------------------------------------------------------------------------


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what caused it, the last first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen and len(seen) < 10:
        yield error
        seen.add(id(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _class(error: BaseException | None) -> str | None:
    return None if error is None else type(error).__name__[:_NAME]


def _text(error: BaseException | None) -> str:
    if error is None:
        return ""
    try:
        return _fit(str(error), _TEXT)
    except Exception:
        return "<its text cannot be made>"


def _traceback(message: Message[Any], error: BaseException | None) -> str:
    try:
        text = "".join(traceback.format_exception(error)) if error is not None else ""
    except Exception:
        text = ""
    text = text or str(message.options.get("traceback") or "")
    # The end tells most.
    return _fit(text[-_TRACEBACK:], _TRACEBACK)


def _last_line(text: Any) -> str | None:
    lines = str(text or "").strip().splitlines()
    return lines[-1].partition(":")[0].rpartition(".")[2][:_NAME] if lines else None


def _fingerprint(actor: str, error: BaseException | None) -> str:
    """Equal for deaths of one kind. Without line numbers: an edit elsewhere in the file makes no new kind."""
    frames = [] if error is None else _own_frames(error.__traceback__)
    seed = json.dumps([actor, _class(error), frames[-_FRAMES:]])
    return hashlib.sha256(seed.encode()).hexdigest()[:12]


def _own_frames(tb: TracebackType | None) -> list[tuple[str, str]]:
    """File and function of the frames that are none of a library's, the innermost last."""
    all_frames = [(frame.f_code.co_filename, frame.f_code.co_name) for frame, _ in traceback.walk_tb(tb)]
    own = [one for one in all_frames if "site-packages" not in one[0] and f"{os.sep}lib{os.sep}python" not in one[0]]
    return [(os.path.basename(file), name) for file, name in own or all_frames]


# -- what is shown --------------------------------------------------------------------------------------------


def _shown(message: Message[Any], redact: Redact | None) -> dict[str, Any]:
    args: Sequence[Any] = message.args
    kwargs: Mapping[str, Any] = message.kwargs
    if redact is not None:
        try:
            args, kwargs = redact(message.actor_name, args, kwargs)
        except Exception:
            # Rather nothing than what should not be seen.
            args, kwargs = ("<redact= failed>",), {}
    return {
        "queue_name": message.queue_name,
        "actor_name": message.actor_name,
        "args": _jsonable(list(args)),
        "kwargs": _jsonable(dict(kwargs)),
        "message_id": message.message_id,
        "message_timestamp": message.message_timestamp,
    }


def _jsonable(value: Any) -> Any:
    """As it is if that is short and JSON can hold it, else its beginning as a text."""
    try:
        text = json.dumps(value)
    except Exception:
        text = None
    if text is not None and len(text) <= _ARGUMENTS:
        return json.loads(text)
    try:
        return _fit(text or repr(value), _ARGUMENTS) + "…"
    except Exception:
        return "<cannot be shown>"


def _fit(text: str, length: int) -> str:
    return text[:length].encode("utf-8", "replace").decode()
