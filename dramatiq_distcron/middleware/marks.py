"""What our middlewares note on a delivered message, for each other. Nothing of it is stored or sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dramatiq import Message
    from dramatiq.broker import MessageProxy

    from ..publishing import Captured
    from ..store.base import Ending
    from .handing_over import HandedOver

__all__ = ["Marks", "Planned", "attempt_of", "marks_of"]

_NAME = "_distcron_marks"


@dataclass(frozen=True)
class Planned:
    """The retry that a failed run is to have, in ``delay`` ms. ``about`` is shown to people."""

    delay: int
    about: Mapping[str, Any]


@dataclass
class Marks:
    """Of one delivery.

    ``end`` is how the run went (state, error). ``attempt`` is that of this delivery, ``claim`` its id if it asked for
    a ticket. ``not_ours``: it is a copy; ``put_off``: it is to come again later. ``undecided``: it was taken up, and
    what becomes of it if it fails is not decided yet. ``planned`` is its retry, ``reason`` why there is none, and
    ``announce`` the message that tells of its end. ``counted``: its deliveries are. ``ending`` and the messages
    ``captured`` for it are kept for when it must be recorded again, which is ``doubtful`` after an answer that did not
    come; ``settled`` says that it is, and ``kept`` that its end is, so that the broker is to keep no copy.
    ``handed_over`` is the message before its actor saw it, if that may have changed it.
    """

    end: tuple[str, str] | None = None
    attempt: int | None = None
    claim: str = ""
    not_ours: bool = False
    put_off: bool = False
    planned: Planned | None = None
    reason: str = ""
    announce: Message[Any] | None = None
    counted: bool = False
    undecided: bool = False
    ending: Ending | None = None
    captured: list[Captured] = field(default_factory=list)
    doubtful: bool = False
    settled: bool = False
    kept: bool = False
    handed_over: HandedOver | None = None


def marks_of(message: MessageProxy) -> Marks:
    """The marks of a delivered message."""
    found: Marks | None = getattr(message, _NAME, None)
    if found is None:
        found = Marks()
        setattr(message, _NAME, found)
    return found


def attempt_of(message: Message[Any] | MessageProxy) -> int:
    """How many retries there were before."""
    retries = message.options.get("retries", 0)
    return max(0, retries) if isinstance(retries, int) and not isinstance(retries, bool) else 0
