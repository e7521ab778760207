"""What is shown of a dead letter, as a record of its own: the stored form may change, this not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..durations import LAST_INSTANT

if TYPE_CHECKING:
    from ..store.base import LetterRow

__all__ = ["DeadLetter", "DropHook", "Handler", "Page", "dead_letter"]


@dataclass(frozen=True)
class DeadLetter:
    """A message that died. Times are UTC ms.

    ``error`` is the class of the exception, ``errors`` with what caused it, ``text`` its words. ``message`` is what may
    be shown of the message. ``fingerprint`` is equal for deaths of one kind. ``origin`` links a message that was
    redriven before to its first. ``history`` are the failures before.
    """

    id: str
    message_id: str
    actor: str
    queue: str
    reason: str
    error: str | None
    text: str
    attempts: int
    first_failed_at: int | None
    dead_at: int
    schedule: str | None
    fire_time: int | None
    fingerprint: str
    message: Mapping[str, Any]
    enqueued_at: int | None = None
    errors: Sequence[str] = ()
    traceback: str = ""
    history: Sequence[Mapping[str, Any]] = ()
    origin: Mapping[str, Any] | None = None
    host: str = ""
    version: str = ""


@dataclass(frozen=True)
class Page:
    """Some letters, and where the next page begins (``None``: there is none)."""

    letters: list[DeadLetter]
    cursor: str | None


#: Is called with a letter; with those that are about to be dropped.
Handler = Callable[[DeadLetter], Any]
DropHook = Callable[[list[DeadLetter]], Any]


def dead_letter(row: LetterRow) -> DeadLetter:
    """What is stored, as it is shown; what somebody else wrote there shows as much as it can."""
    about = row.about
    first, attempts = _whole(about.get("first_failed_at")), _whole(about.get("attempts")) or 0
    # One that failed once died of it. A worker's clock may be ahead of the store's.
    died = min(row.dead_at, LAST_INSTANT)
    first = died if first is None and attempts else first
    first = None if first is None else min(first, died)
    return DeadLetter(
        id=row.id,
        message_id=str(about.get("message_id", "")),
        actor=str(about.get("actor", "")),
        queue=str(about.get("queue", "")),
        reason=str(about.get("reason", "")),
        error=_text(about.get("error")),
        text=str(about.get("text", "")),
        attempts=attempts,
        first_failed_at=first,
        dead_at=died,
        schedule=_text(about.get("schedule")),
        fire_time=_whole(about.get("fire_time")),
        fingerprint=str(about.get("fingerprint", "")),
        message=_mapping(about.get("message")) or {},
        enqueued_at=_whole(about.get("enqueued_at")),
        errors=tuple(map(str, _list(about.get("errors")))),
        traceback=str(about.get("traceback", "")),
        history=tuple({**one, "at": _whole(one.get("at"))} for one in _list(about.get("history")) if _mapping(one)),
        origin=_mapping(about.get("origin")),
        host=str(about.get("host", "")),
        version=str(about.get("version", "")),
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LAST_INSTANT else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) else None
