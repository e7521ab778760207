"""A shared allowance of retries: while a dependency is sick, retries are put off instead of adding to its load.

The idea is that of Finagle's retry budgets and of Marc Brooker, "Fixing retries with token buckets and circuit
breakers", 2022: successes earn retries, and a floor lets some through at any rate.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .errors import ConfigurationError, quoted

__all__ = ["Bucket", "RetryBudget"]

#: When a retry that was put off asks again, in ms: the first in the line, each after it, and the last.
_FIRST, _STEP, _LAST = 1000, 2, 60_000
#: The longest name, in characters: it is part of what is stored with each message that waits.
_LONGEST = 100


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """A token bucket in Redis that the retries of one or more actors share.

    A retry that goes back to its queue takes a token; if there is none, it is put off, never dropped. Those of
    ``RateLimitExceeded`` take none.

    Parameters:
      name: which bucket: actors that use one dependency name one budget; without, the actor's name is taken.
      ratio: how much of a token each success earns (default 0.1: at most a tenth of the successes is retried).
      floor: tokens that come each second whatever happens (default 0.1), so that a dead dependency is tried again.
      burst: how many tokens the bucket holds at most, and at the beginning (default 10).

    Raises:
      ConfigurationError: a number is out of its range.
    """

    name: str | None = None
    ratio: float = field(default=0.1, kw_only=True)
    floor: float = field(default=0.1, kw_only=True)
    burst: float = field(default=10, kw_only=True)

    def __post_init__(self) -> None:
        if self.name is not None and (not isinstance(self.name, str) or not _can_be_a_name(self.name)):
            raise ConfigurationError(
                f"The name of a RetryBudget must be 1 to {_LONGEST} printable characters, not {quoted(self.name)}."
            )
        for what, least, most in (("ratio", 0, 10), ("floor", 0.001, 1_000_000), ("burst", 1, 1_000_000)):
            value = getattr(self, what)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
                raise ConfigurationError(
                    f"RetryBudget({what}=...) must be from {least} to {most}, not {quoted(value)}."
                )


def _can_be_a_name(name: str) -> bool:
    return 0 < len(name) <= _LONGEST and name.isprintable()


@dataclass(slots=True)
class Bucket:
    """How a budget stands, in memory: as the scripts of the store on Redis keep it."""

    tokens: float
    at: int
    taken: int = 0
    put_off: int = 0
    line: int = 0

    def fill(self, floor: float, burst: float, now: int) -> None:
        """Adds what came since it was looked at last; ``now`` in ms. A clock that stepped back earns nothing."""
        self.tokens = min(burst, self.tokens + max(0, now - self.at) / 1000 * floor)
        self.at = now

    def take(self, now: int) -> int | None:
        """Takes a token, if there is one. If not: when to ask again, in ms.

        Those that are put off form a line, so that however many wait, they ask one after the other.
        """
        if self.tokens >= 1:
            self.tokens -= 1
            self.taken += 1
            return None
        self.put_off += 1
        place = max(self.line, now + _FIRST)
        if place > now + _LAST:
            # The line is long: it is walked faster, so that nobody waits for more than a minute before asking.
            return now + _FIRST + (self.put_off * 37) % (_LAST - _FIRST)
        self.line = place + _STEP
        return place
