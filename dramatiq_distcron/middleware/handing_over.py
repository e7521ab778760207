"""A message as it was handed to its actor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dramatiq import Message

if TYPE_CHECKING:
    from dramatiq.broker import MessageProxy

__all__ = ["HandedOver", "handed_over"]

#: What nobody can change in place.
_UNCHANGING = (str, int, float, bool, bytes, type(None))


@dataclass(frozen=True)
class HandedOver:
    """A message before its actor sees it, for the actor may change what it is given in place."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    data: bytes

    def is_of(self, message: Message[Any]) -> bool:
        """Whether it was given just these. A middleware that opened them may have closed them again since."""
        return message.args is self.args and message.kwargs is self.kwargs


def handed_over(message: MessageProxy) -> HandedOver | None:
    """``None``: there is nothing in it that can be changed, or it cannot be encoded."""
    inner: Message[Any] = message._message
    if all(isinstance(value, _UNCHANGING) for value in (*message.args, *message.kwargs.values())):
        return None
    try:
        return HandedOver(inner.args, inner.kwargs, inner.encode())
    except Exception:
        return None
