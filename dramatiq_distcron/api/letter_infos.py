"""What is shown of a dead letter, as a record of its own: the stored form may change, this not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..store.base import LetterRow

__all__ = ["DeadLetter", "Page", "dead_letter"]


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


def dead_letter(row: LetterRow) -> DeadLetter:
    """What is stored, as it is shown; what somebody else wrote there shows as much as it can."""
    about = row.about
    return DeadLetter(
        id=row.id,
        message_id=str(about.get("message_id", "")),
        actor=str(about.get("actor", "")),
        queue=str(about.get("queue", "")),
        reason=str(about.get("reason", "")),
        error=about.get("error"),
        text=str(about.get("text", "")),
        attempts=about.get("attempts") or 0,
        first_failed_at=about.get("first_failed_at"),
        dead_at=row.dead_at,
        schedule=about.get("schedule"),
        fire_time=about.get("fire_time"),
        fingerprint=str(about.get("fingerprint", "")),
        message=about.get("message") or {},
        enqueued_at=about.get("enqueued_at"),
        errors=tuple(about.get("errors") or ()),
        traceback=str(about.get("traceback", "")),
        history=tuple(about.get("history") or ()),
        origin=about.get("origin"),
        host=str(about.get("host", "")),
        version=str(about.get("version", "")),
    )
