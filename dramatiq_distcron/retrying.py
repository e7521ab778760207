"""What becomes of a message whose run failed: another try, and when, or its end, and why. Pure.

Dramatiq's options keep their meaning and their order: the message's own first, then the actor's, then the
middleware's. Each level that says anything about the wait decides over it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from dramatiq import Retry
from dramatiq.common import compute_backoff
from dramatiq.middleware.retries import DEFAULT_MAX_BACKOFF, DEFAULT_MIN_BACKOFF

from .backoff import constant, delays
from .callables import refuse_awaited
from .durations import LONGEST, milliseconds
from .errors import ConfigurationError, quoted
from .logs import get_logger
from .retry_after import RetryAfter

if TYPE_CHECKING:
    import random

__all__ = [
    "ABORTED",
    "EXHAUSTED",
    "POISON",
    "TOO_OLD",
    "Again",
    "Chooser",
    "End",
    "Failure",
    "chooser",
    "decide",
    "late",
]

ABORTED: Final = "aborted"
EXHAUSTED: Final = "retries_exhausted"
TOO_OLD: Final = "max_retry_age"
POISON: Final = "poison"

#: From the attempt (from 0), why it failed, chance and the wait before in seconds to the wait in seconds. ``None``:
#: it says nothing about this failure.
Chooser = Callable[[int, BaseException, "random.Random", "float | None"], "float | None"]


@dataclass(frozen=True)
class Failure:
    """A run that failed.

    ``retries`` is how many there were before, ``age`` how long ago the message was enqueued first, ``previous`` the
    wait before this run; ms.
    """

    exception: BaseException
    retries: int
    age: int = 0
    previous: int | None = None


_log = get_logger(__name__, Failure)


@dataclass(frozen=True)
class Again:
    """Another try in ``delay`` ms."""

    delay: int


@dataclass(frozen=True)
class End:
    """No further try."""

    reason: str
    max_retries: int | None = None


def decide(
    failure: Failure,
    message: Mapping[str, Any],
    actor: Mapping[str, Any],
    defaults: Mapping[str, Any],
    rng: random.Random,
) -> Again | End:
    """Decides over a failed run by the options of its message and its actor, and the defaults of the middleware.

    ``backoff`` in ``actor`` and ``defaults`` is a chooser. What a message says in a form that cannot be is passed over:
    it must not cost the message.
    """
    if _throws(failure.exception, message.get("throws") or actor.get("throws")):
        return End(ABORTED)
    levels = (message, actor, defaults)
    limit = _first(levels, "max_retries", _is_limit)
    if _is_over(failure, actor.get("retry_when", defaults.get("retry_when")), limit):
        return End(EXHAUSTED, limit)
    delay = _delay(failure, levels, rng)
    if _is_too_old(failure.age + delay, levels):
        return End(TOO_OLD, limit)
    return Again(delay)


def late(age: int, message: Mapping[str, Any], actor: Mapping[str, Any], defaults: Mapping[str, Any]) -> End | None:
    """The end of a message whose retry was decided in time and is taken up too late: its budget was spent, or its queue
    long. ``age`` in ms; the options are those of :func:`decide`.
    """
    levels = (message, actor, defaults)
    return End(TOO_OLD, _first(levels, "max_retries", _is_limit)) if _is_too_old(age, levels) else None


def _is_too_old(age: int, levels: Sequence[Mapping[str, Any]]) -> bool:
    oldest = _first(levels, "max_retry_age", lambda value: value is None or _is_number(value))
    return oldest is not None and age > oldest


def _throws(exception: BaseException, throws: Any) -> bool:
    try:
        return bool(throws) and isinstance(exception, throws)
    except TypeError:
        _log.warning("throws=%r is no exception class, so it is passed over.", throws)
        return False


def _is_over(failure: Failure, retry_when: Any, limit: int | None) -> bool:
    if retry_when is not None:
        try:
            return not retry_when(failure.retries, failure.exception)
        except Exception:
            _log.exception("retry_when failed, so max_retries decides.")
    return limit is not None and failure.retries >= limit


# -- the wait -------------------------------------------------------------------------------------------------


def _delay(failure: Failure, levels: Sequence[Mapping[str, Any]], rng: random.Random) -> int:
    asked = _asked(failure.exception, rng)
    if asked is not None:
        return asked
    for level in levels:
        chosen = _chosen(failure, level, rng)
        if chosen is not None:
            return chosen
        if "min_backoff" in level or "max_backoff" in level:
            break
    return _by_formula(failure.retries, levels)


def _asked(exception: BaseException, rng: random.Random) -> int | None:
    """The wait that the exception itself asks for, as Dramatiq's ``Retry`` can."""
    delay: Any = exception.delay if isinstance(exception, Retry) else None
    if isinstance(exception, RetryAfter) and delay is not None:
        delay = exception.spread(rng)
    if isinstance(delay, timedelta):
        delay = delay / timedelta(milliseconds=1)
    if delay is None or _is_number(delay):
        return None if delay is None else int(min(max(0, delay), LONGEST))
    _log.warning("Retry(delay=%r) is no time in ms, so the backoff decides.", delay)
    return None


def _chosen(failure: Failure, level: Mapping[str, Any], rng: random.Random) -> int | None:
    choose = level.get("backoff")
    if choose is None:
        return None
    try:
        if not callable(choose):
            # A message can only say it in numbers.
            choose = chooser(choose, "backoff of the message")
        previous = None if failure.previous is None else failure.previous / 1000
        seconds = choose(failure.retries, failure.exception, rng, previous)
        return None if seconds is None else milliseconds(seconds, "the wait")
    except Exception:
        _log.exception("The backoff failed for %r, so Dramatiq's formula decides.", failure.exception)
        return None


def _by_formula(retries: int, levels: Sequence[Mapping[str, Any]]) -> int:
    least = _first(levels, "min_backoff", _is_number, DEFAULT_MIN_BACKOFF)
    most = min(_first(levels, "max_backoff", _is_number, DEFAULT_MAX_BACKOFF), DEFAULT_MAX_BACKOFF)
    _, delay = compute_backoff(retries, factor=least, max_backoff=most)
    return int(delay)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _is_limit(value: Any) -> bool:
    # False is 0 to Dramatiq: no retries.
    return value is None or isinstance(value, bool) or _is_number(value)


def _first(levels: Sequence[Mapping[str, Any]], name: str, fits: Callable[[Any], bool], default: Any = None) -> Any:
    """The option on the first level that has it in a form that can be."""
    for level in levels:
        if name in level:
            if fits(level[name]):
                return level[name]
            _log.warning("%s=%r cannot be, so it is passed over.", name, level[name])
    return default


# -- what backoff= may be -------------------------------------------------------------------------------------


def chooser(backoff: Any, where: str) -> Chooser:
    """What ``backoff=`` means: a strategy, seconds, a list of seconds, a callable, or a mapping of exceptions to these.

    Raises:
      ConfigurationError: it is none of these; ``where`` says whose it is.
    """
    if isinstance(backoff, Mapping):
        return _by_class({_exception(key, where): chooser(value, where) for key, value in backoff.items()})
    if isinstance(backoff, (list, tuple)):
        return _of_strategy(delays(*backoff))
    if isinstance(backoff, (int, float, timedelta)) and not isinstance(backoff, bool):
        return _of_strategy(constant(backoff))
    if isinstance(backoff, type) or not (callable(backoff) or callable(getattr(backoff, "delay", None))):
        raise ConfigurationError(
            f"{where} must be a strategy such as exponential(), a list of seconds, a callable or a mapping from "
            f"exception classes to these, not {quoted(backoff)}."
        )
    if callable(getattr(backoff, "delay", None)):
        return _of_strategy(backoff)
    refuse_awaited(backoff, where)
    return _of_function(backoff)


def _of_strategy(strategy: Any) -> Chooser:
    def choose(attempt: int, exception: BaseException, rng: random.Random, previous: float | None) -> Any:
        return strategy.delay(attempt, rng=rng, previous=previous, exception=exception)

    return choose


def _of_function(function: Callable[[int, BaseException], Any]) -> Chooser:
    return lambda attempt, exception, rng, previous: function(attempt, exception)


def _by_class(choosers: Mapping[type[BaseException], Chooser]) -> Chooser:
    """The nearest class of the exception counts."""

    def choose(attempt: int, exception: BaseException, rng: random.Random, previous: float | None) -> float | None:
        for parent in type(exception).__mro__:
            if parent in choosers:
                return choosers[parent](attempt, exception, rng, previous)
        return None

    return choose


def _exception(key: Any, where: str) -> type[BaseException]:
    if isinstance(key, type) and issubclass(key, BaseException):
        return key
    raise ConfigurationError(f"The keys of a mapping as {where} must be exception classes, not {quoted(key)}.")
