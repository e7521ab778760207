"""What is kept of a message that died, and the message that is made of it again: pure.

A letter is its message as it was enqueued, and beside it everything a human or a filter asks for, cut to size, so that
nobody has to decode arguments to find it.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dramatiq import ActorNotFound, Message
from dramatiq.common import q_name
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
    "dlq_queue",
    "adopted",
    "guessed_reason",
    "indexes_of",
    "queue_of",
    "redriven",
]

#: Who tells the handlers of a letter, and on which queue, in the app without a name of its own.
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
#: How many failures before the last are told.
_FAILURES = 5

#: From an actor's name, args and kwargs to what may be shown of them.
Redact = Callable[[str, Sequence[Any], Mapping[str, Any]], "tuple[Sequence[Any], Mapping[str, Any]]"]

ADOPTED: Final = "Found among Dramatiq's own dead messages."


def dlq_queue(app: str) -> str:
    """The queue of the actor that tells handlers. Apps that share a namespace know only their own letters."""
    return DLQ_QUEUE if app == "default" else f"{DLQ_QUEUE}.{app}"


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
    told = _dict(message.options.get(HISTORY))
    tick = _dict(message.options.get("distcron"))
    return {
        "message_id": _name(message.message_id),
        "actor": _name(message.actor_name),
        "queue": _name(queue_of(message)),
        "reason": reason,
        "text": _text(error),
        "error": _class(error),
        "errors": [_class(one) for one in _chain(error)],
        "traceback": _traceback(message, error),
        "attempts": _attempts(message, error, reason),
        "history": _history(told.get("attempts")),
        "first_failed_at": _instant(told.get("first_failed_at")),
        "enqueued_at": _instant(message.message_timestamp),
        "schedule": _name(tick["schedule"]) if "schedule" in tick else None,
        "fire_time": _instant(tick.get("fire_time")),
        "origin": _origin(message),
        "host": host,
        "version": version,
        "fingerprint": _fingerprint(message.actor_name, error),
        "message": _shown(message, redact),
    }


def adopted(message: Message[Any], redact: Redact | None = None) -> dict[str, Any]:
    """The same for a message that Dramatiq had moved away: what its options still tell.

    One that was retried died of its last failure, most likely; of another one nobody knows why, or whether it ran.
    """
    error, text = _last_line(message.options.get("traceback"))
    about = about_death(message, None, EXHAUSTED if error else REJECTED, host="", version="", redact=redact)
    about["text"] = text or ADOPTED
    if error:
        # Dramatiq counts the retries, and not the first run.
        about.update(error=error, errors=[error], attempts=about["attempts"] + 1)
    return about


def indexes_of(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The (field, value) pairs by which a letter is found."""
    fields = ("actor", "queue", "reason", "error", "fingerprint", "schedule")
    return [(field, _name(about[field])) for field in fields if about.get(field)]


def queue_of(message: Message[Any]) -> str:
    """The queue it belongs to, also if it lay in the delay queue of that."""
    return str(q_name(str(message.queue_name)))


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
        queue_of(message),
        message.actor_name,
        tuple(message.args),
        dict(message.kwargs),
        options,
        str(uuid.uuid4()),
        now,
    )


def _attempts(message: Message[Any], error: BaseException | None, reason: str) -> int:
    """How often it failed. Dramatiq's own retries do not count the last time; ours do, unless it is an abort."""
    retries = message.options.get("retries", 0)
    known = retries if isinstance(retries, int) and not isinstance(retries, bool) else 0
    ours = _dict(message.options.get(HISTORY)).get("attempt") == known and reason != ABORTED
    ran = reason == ABORTED or not (error is None or isinstance(error, (SkipMessage, ActorNotFound)))
    return known + 1 if ran and not ours else known


def _origin(message: Message[Any]) -> dict[str, Any] | None:
    found = _dict(message.options.get(ORIGIN))
    generation = _instant(found.get("generation"))
    if generation is None or "message_id" not in found:
        return None
    return {name: _name(found.get(name, "")) for name in ("message_id", "before")} | {"generation": generation}


# -- what anybody may have written ------------------------------------------------------------------------------


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _name(value: Any) -> str:
    return _fit(str(value), _NAME)


def _instant(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _history(value: Any) -> list[dict[str, Any]]:
    """The failures before, as our retries note them."""
    found = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
    return [
        {"at": _instant(one.get("at")), "error": _name(one.get("error")), "text": _name(one.get("text"))}
        for one in found[-_FAILURES:]
    ]


# -- what failed ----------------------------------------------------------------------------------------------


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what caused it, the last first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen and len(seen) < 10:
        yield error
        seen.add(id(error))
        # An error may be empty, and false.
        cause, context = error.__cause__, None if error.__suppress_context__ else error.__context__
        error = context if cause is None else cause


def _class(error: BaseException | None) -> str | None:
    return None if error is None else _name(type(error).__name__)


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


def _last_line(traceback: Any) -> tuple[str | None, str]:
    """The class and the words of the error that a traceback ends with."""
    lines = str(traceback or "").strip().splitlines()
    if not lines:
        return None, ""
    name, _, text = lines[-1].partition(":")
    return _name(name.rpartition(".")[2]), _fit(text.strip(), _TEXT)


def _fingerprint(actor: Any, error: BaseException | None) -> str:
    """Equal for deaths of one kind. Without line numbers: an edit elsewhere in the file makes no new kind."""
    frames = [] if error is None else _own_frames(error.__traceback__)
    seed = json.dumps([str(actor), _class(error), frames[-_FRAMES:]])
    return hashlib.sha256(seed.encode()).hexdigest()[:12]


def _own_frames(tb: TracebackType | None) -> list[tuple[str, str]]:
    """File and function of the frames that are none of a library's, the innermost last."""
    all_frames = [(frame.f_code.co_filename, frame.f_code.co_name) for frame, _ in traceback.walk_tb(tb)]
    own = [one for one in all_frames if "site-packages" not in one[0] and f"{os.sep}lib{os.sep}python" not in one[0]]
    return [(os.path.basename(file), name) for file, name in own or all_frames]


# -- what is shown --------------------------------------------------------------------------------------------


def _shown(message: Message[Any], redact: Redact | None) -> dict[str, Any]:
    args, kwargs = _arguments(message, redact)
    return {
        "queue_name": _name(message.queue_name),
        "actor_name": _name(message.actor_name),
        "args": _jsonable(args),
        "kwargs": _jsonable(kwargs),
        "message_id": _name(message.message_id),
        "message_timestamp": _instant(message.message_timestamp),
    }


def _arguments(message: Message[Any], redact: Redact | None) -> tuple[Any, Any]:
    if redact is None:
        return message.args, message.kwargs
    try:
        # Copies: what it changes in them must not change the message.
        args, kwargs = redact(message.actor_name, copy.deepcopy(message.args), copy.deepcopy(message.kwargs))
        return list(args), dict(kwargs)
    except Exception:
        # Rather nothing than what should not be seen.
        return ["<redact= failed>"], {}


def _jsonable(value: Any) -> Any:
    """As it is if that is short and JSON can hold it, else its beginning as a text."""
    try:
        text = json.dumps(value, allow_nan=False)
        if len(text) <= _ARGUMENTS:
            return json.loads(text)
    except Exception:
        text = ""
    try:
        return _fit(text or repr(value), _ARGUMENTS) + "…"
    except Exception:
        return "<cannot be shown>"


def _fit(text: str, length: int) -> str:
    return text[:length].encode("utf-8", "replace").decode()
