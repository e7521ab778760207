"""The wait that a server asks for, as in the header ``Retry-After`` (RFC 9110, section 10.2.3)."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from dramatiq import Retry

from .clock import wall_ms
from .durations import Duration, instant_ms, milliseconds
from .errors import ConfigurationError, quoted
from .logs import get_logger

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

__all__ = ["RetryAfter"]

#: What a server may ask for.
_When: TypeAlias = "Duration | datetime | str | None"


class RetryAfter(Retry):
    """Raise it in an actor to be retried when a server says so. It uses up a retry as every failure does.

    Parameters:
      when: seconds or a ``timedelta`` from now; an aware ``datetime``; the text of the header ``Retry-After``, with
        seconds or an HTTP date; ``None`` where there was no such header. What lies in the past is retried at once.
        ``None``, and a header nobody can read, fall back to the actor's backoff.
      cap: the longest wait that is believed, in seconds or as a ``timedelta`` (default a day).
      jitter: a duration in seconds or as a ``timedelta``, of which a random part is added: messages that were turned
        away together then do not come back together (default 0).

    Raises:
      ConfigurationError: what the caller made is no time: a naive datetime, infinity, another type.
    """

    def __init__(
        self,
        when: _When = None,
        *,
        cap: Duration = 86_400,
        jitter: Duration = 0,
        message: str = "",
        now: Callable[[], int] = wall_ms,
    ) -> None:
        if not isinstance(message, str):
            raise ConfigurationError(f"RetryAfter(message=...) takes the text of the error, not {quoted(message)}.")
        asked = _milliseconds(when, now)
        longest = milliseconds(cap, "cap")
        delay = None if asked is None else min(max(0, asked), longest)
        super().__init__(message or f"Retry-After: {when}", delay)
        self._jitter = milliseconds(jitter, "jitter")
        self._cap = longest

    def spread(self, rng: random.Random) -> float | None:
        """The wait in ms with its jitter, never over the cap. ``None``: the server asked for none."""
        return None if self.delay is None else min(self.delay + rng.uniform(0, self._jitter), self._cap)

    def __reduce__(self) -> tuple[Any, ...]:
        # Result backends may carry it to another process; there the wait is known already.
        return Retry, (self.message, self.delay)


def _milliseconds(when: _When, now: Callable[[], int]) -> int | None:
    if when is None:
        return None
    if isinstance(when, str):
        return _of_header(when, now)
    if isinstance(when, datetime):
        return instant_ms(when, "RetryAfter(when)") - now()
    if isinstance(when, float) and not math.isfinite(when):
        raise ConfigurationError(f"RetryAfter() must be given a finite number of seconds, not {quoted(when)}.")
    if isinstance(when, (int, float)) and not isinstance(when, bool):
        return milliseconds(max(0, when), "RetryAfter(when)")
    if isinstance(when, timedelta):
        return milliseconds(max(timedelta(0), when), "RetryAfter(when)")
    raise ConfigurationError(
        f"RetryAfter() takes seconds, a timedelta, a datetime, the text of the header or None, not {quoted(when)}."
    )


def _of_header(text: str, now: Callable[[], int]) -> int | None:
    """The server's word: whatever it is, it must not cost the message."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        # A server may send any number of digits.
        return min(int(text.lstrip("0")[:15] or 0), 10**9) * 1000
    try:
        date = parsedate_to_datetime(text)
        # An HTTP date is in GMT, also where the parser finds no zone in it.
        return instant_ms(date if date.tzinfo else date.replace(tzinfo=timezone.utc), "Retry-After") - now()
    except (TypeError, ValueError, IndexError, OverflowError):
        get_logger(__name__, RetryAfter).warning("Retry-After: %.100r cannot be read; the backoff decides.", text)
        return None
