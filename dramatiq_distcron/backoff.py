"""How long to wait before a retry: growth, then jitter, then the cap. Pure, with chance as an argument.

The names of the jitters are those of Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

import math
import random
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal, Protocol, TypeAlias

from .durations import Duration, milliseconds
from .errors import ConfigurationError, quoted
from .suggestions import did_you_mean

__all__ = ["Backoff", "Jitter", "Strategy", "constant", "delays", "exponential", "linear"]

#: How chance is mixed in; a duration is added at random.
Jitter: TypeAlias = "Literal['full', 'equal', 'decorrelated', 'none'] | Duration"

#: A week, in seconds: as long as Dramatiq's own retries wait at most.
_CAP: Final = 604_800.0
#: Of so many retries every wait is at its cap, or stays as it is. A number without bounds is no float.
_LAST: Final = 10**9
_WORDS = ("full", "equal", "decorrelated", "none")
#: How much longer than the wait before a decorrelated one may be.
_DECORRELATED = 3


class Strategy(Protocol):
    """How long to wait before a retry."""

    def delay(
        self,
        attempt: int,
        *,
        rng: random.Random,
        previous: float | None = None,
        exception: BaseException | None = None,
    ) -> float:
        """The wait in seconds.

        Parameters:
          attempt: how many retries there were before, from 0.
          rng: where chance comes from.
          previous: the wait before, in seconds.
          exception: why the run failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that grow in one way, made by ``exponential()``, ``linear()``, ``constant()`` or ``delays()``.

    Durations are seconds. ``steps`` are given ones, of which the last repeats; without, the wait before the retry
    number ``attempt`` is ``base * factor ** attempt + step * attempt``.
    """

    base: float
    factor: float = 1.0
    step: float = 0.0
    steps: tuple[float, ...] = ()
    cap: float = _CAP
    jitter: str = "none"
    added: float = 0.0

    def grown(self, attempt: int) -> float:
        """The wait without jitter, in seconds: rising with ``attempt``, from 0, and never over the cap."""
        _refuse_attempt(attempt)
        attempt = min(attempt, _LAST)
        if self.steps:
            return min(self.cap, self.steps[min(attempt, len(self.steps) - 1)])
        if self.factor > 1 and self.base > 0:
            # In logarithms: 2 ** 1,000,000 is no float.
            if math.log(self.base) + attempt * math.log(self.factor) >= math.log(max(self.cap, 1e-9)):
                return self.cap
            return min(self.cap, self.base * self.factor**attempt)
        return min(self.cap, self.base + self.step * attempt)

    def bounds(self, attempt: int) -> tuple[float, float]:
        """The shortest and the longest wait before this retry, in seconds.

        ``full`` waits from 0 to the grown wait, ``equal`` from half of it, ``decorrelated`` from ``base`` to the cap,
        ``none`` exactly the grown one, and an added duration from the grown wait on.
        """
        grown = self.grown(attempt)
        if self.jitter == "full":
            return 0.0, grown
        if self.jitter == "equal":
            return grown / 2, grown
        if self.jitter == "decorrelated":
            return min(self.base, self.cap), self.cap
        return grown, min(self.cap, grown + self.added)

    def delay(
        self,
        attempt: int,
        *,
        rng: random.Random,
        previous: float | None = None,
        exception: BaseException | None = None,
    ) -> float:
        """The wait in seconds before the retry number ``attempt``, counted from 0.

        ``rng`` is where chance comes from; ``previous``, the wait before in seconds, matters to decorrelated jitter
        only, and ``exception`` not at all.
        """
        _refuse_attempt(attempt)
        if not isinstance(rng, random.Random):
            raise ConfigurationError(f"rng is where chance comes from, a random.Random(), not {quoted(rng)}.")
        if self.jitter == "decorrelated":
            if previous is not None and not isinstance(previous, (int, float)):
                raise ConfigurationError(f"previous is the wait before in seconds, not {quoted(previous)}.")
            longest = max(self.base, (self.base if previous is None else min(previous, self.cap)) * _DECORRELATED)
            return min(self.cap, rng.uniform(self.base, longest))
        shortest, longest = self.bounds(attempt)
        if self.jitter == "none" and self.added:
            return min(self.cap, shortest + rng.uniform(0, self.added))
        return shortest if shortest == longest else rng.uniform(shortest, longest)


def _refuse_attempt(attempt: int) -> None:
    if not isinstance(attempt, int) or attempt < 0:
        raise ConfigurationError(f"attempt counts the retries before, a whole number from 0, not {quoted(attempt)}.")


def exponential(base: Duration = 15, factor: float = 2, *, cap: Duration = _CAP, jitter: Jitter = "full") -> Backoff:
    """Waits that are multiplied by ``factor`` from retry to retry.

    Parameters:
      base: the first wait, in seconds or as a ``timedelta``.
      factor: at least 1.
      cap: no wait is longer, jitter included; in seconds or as a ``timedelta`` (default a week).
      jitter: ``"full"`` (default) draws from 0 to the grown wait, which spreads a herd best; ``"equal"`` from half of
        it; ``"decorrelated"`` from ``base`` to three times the wait before; ``"none"`` draws nothing; a duration is
        added at random.

    Raises:
      ConfigurationError: a value is none of these.
    """
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 1 <= factor <= sys.float_info.max:
        raise ConfigurationError(f"factor must be a number from 1, not {quoted(factor)}: waits must not shrink.")
    return _capped(cap, jitter, base=_seconds(base, "base"), factor=float(factor))


def linear(
    base: Duration = 15, step: Duration | None = None, *, cap: Duration = _CAP, jitter: Jitter = "full"
) -> Backoff:
    """Waits that grow by ``step`` (default ``base``) from retry to retry.

    The other parameters, the units and the errors are those of :func:`exponential`.
    """
    first = _seconds(base, "base")
    return _capped(cap, jitter, base=first, step=first if step is None else _seconds(step, "step"))


def constant(wait: Duration, *, jitter: Jitter = "none") -> Backoff:
    """The same wait each time, in seconds or as a ``timedelta``.

    Messages that fail together come back together unless there is a ``jitter``, as in :func:`exponential`; for a
    herd, a duration that is added at random keeps ``wait`` as the least.
    """
    return _given(jitter, "constant", base=_seconds(wait, "wait"))


def delays(*waits: Duration, jitter: Jitter = "none") -> Backoff:
    """Given waits, in seconds or as ``timedelta``; the last repeats. ``jitter`` as in :func:`exponential`."""
    if not waits:
        raise ConfigurationError("delays() needs at least one wait, such as delays(60, 300, 3600).")
    steps = tuple(_seconds(wait, "a delay") for wait in waits)
    return _given(jitter, "delays", base=steps[0], steps=steps)


def _capped(cap: Duration, jitter: Jitter, **growth: Any) -> Backoff:
    word, added = _checked_jitter(jitter)
    longest = _seconds(cap, "cap")
    if longest < growth["base"]:
        raise ConfigurationError(f"cap={quoted(cap)} is shorter than the first wait of {growth['base']:g} s.")
    return Backoff(cap=longest, jitter=word, added=added, **growth)


def _given(jitter: Jitter, what: str, **waits: Any) -> Backoff:
    word, added = _checked_jitter(jitter)
    if word == "decorrelated":
        raise ConfigurationError(
            f"The waits of {what}() are given, so they cannot be decorrelated: use another jitter."
        )
    return Backoff(cap=math.inf, jitter=word, added=added, **waits)


def _seconds(value: Duration, what: str) -> float:
    """In seconds, whole milliseconds. Raises ``ConfigurationError`` if it is no duration."""
    return milliseconds(value, what) / 1000


def _checked_jitter(jitter: object) -> tuple[str, float]:
    if isinstance(jitter, str) and jitter in _WORDS:
        return jitter, 0.0
    if isinstance(jitter, (int, float, timedelta)) and not isinstance(jitter, bool):
        return "none", _seconds(jitter, "jitter")
    hint = f" {did_you_mean(jitter, _WORDS)}" if isinstance(jitter, str) else ""
    raise ConfigurationError(
        "jitter must be 'full', 'equal', 'decorrelated', 'none' or a duration that is added, "
        f"not {quoted(jitter)}.{hint}"
    )
