"""The options of retries as users give them, checked when they are given and not at three in the morning."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import UnionType
from typing import Any

from ..callables import refuse_awaited
from ..durations import LONGEST, milliseconds
from ..errors import ConfigurationError, ConflictError, quoted
from ..retry_budget import RetryBudget
from ..retrying import chooser

__all__ = ["CHECKED", "DURATIONS", "checked", "checked_budget"]

DURATIONS = ("min_backoff", "max_backoff", "max_retry_age")
CHECKED = (*DURATIONS, "backoff", "max_deliveries", "max_retries", "throws", "retry_when", "on_retry_exhausted")


def checked(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The options with durations in ms and ``backoff`` as a chooser.

    Raises:
      ConfigurationError: one has a value it cannot have, or two exclude each other; ``where`` says whose they are.
    """
    found = dict(options)
    clashing = [name for name in ("min_backoff", "max_backoff") if options.get(name) is not None]
    if options.get("backoff") is not None:
        if clashing:
            raise ConflictError(f"{where} has backoff= and {clashing[0]}=, which exclude each other: leave one out.")
        found["backoff"] = chooser(options["backoff"], f"backoff of {where}")
    for name in DURATIONS:
        if options.get(name) is not None:
            found[name] = _ms(options[name], f"{name} of {where}")
    _refuse_counts(options, where)
    if options.get("throws") and not _can_be_thrown(options["throws"]):
        raise ConfigurationError(
            f"throws of {where} must be an exception class or a tuple of them, not {quoted(options['throws'])}."
        )
    if options.get("retry_when") is not None:
        _refuse_uncallable(options["retry_when"], f"retry_when of {where}")
    if not isinstance(options.get("on_retry_exhausted") or "", str):
        raise ConfigurationError(
            f"on_retry_exhausted of {where} must be the name of an actor, not {quoted(options['on_retry_exhausted'])}."
        )
    return found


def _refuse_uncallable(function: Any, what: str) -> None:
    if not callable(function):
        raise ConfigurationError(f"{what} must be callable, not {quoted(function)}.")
    # Its answer would always be true.
    refuse_awaited(function, what)


def _refuse_counts(options: Mapping[str, Any], where: str) -> None:
    deliveries, retries = options.get("max_deliveries"), options.get("max_retries")
    if deliveries is not None and (not isinstance(deliveries, int) or isinstance(deliveries, bool) or deliveries < 1):
        raise ConfigurationError(f"max_deliveries of {where} must be a whole number from 1, not {quoted(deliveries)}.")
    # Dramatiq compares and no more: False is 0 to it, and a number below 0 is as good as 0.
    if retries is not None and (not isinstance(retries, (int, float)) or retries != retries):
        raise ConfigurationError(
            f"max_retries of {where} must be a number, or None for no limit, not {quoted(retries)}."
        )


def _ms(value: Any, what: str) -> int | float:
    """Milliseconds or a ``timedelta``, as Dramatiq's users know them."""
    if isinstance(value, timedelta):
        return milliseconds(value, what)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ConfigurationError(f"{what} must be milliseconds or a timedelta, not {quoted(value)}.")
    if value > LONGEST:
        raise ConfigurationError(f"{what} must be at most a hundred years; {quoted(value)} ms are more.")
    return value


def _can_be_thrown(throws: Any) -> bool:
    """Whether it is what ``isinstance`` takes."""
    if isinstance(throws, tuple):
        return all(_can_be_thrown(one) for one in throws)
    return isinstance(throws, (type, UnionType))


def checked_budget(budget: Any) -> RetryBudget | None:
    """The budget; a name is one with the defaults. Raises ``ConfigurationError`` if it is neither."""
    if budget is None or isinstance(budget, RetryBudget):
        return budget
    if isinstance(budget, str):
        return RetryBudget(budget)
    raise ConfigurationError(f"retry_budget must be a RetryBudget or the name of one, not {quoted(budget)}.")
