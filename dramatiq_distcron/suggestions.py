"""Did you mean …? The words after the name of something that does not exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from .errors import ConfigurationError, quoted

__all__ = ["did_you_mean", "refuse_unknown"]


#: What people who come from elsewhere call it: APScheduler, Celery, periodiq, Kubernetes.
_ELSEWHERE = {
    "timezone": "tz",
    "zone": "tz",
    "id": "name",
    "jitter": "spread",
    "coalesce": "catch_up",
    "max_instances": "overlap",
    "concurrency_policy": "overlap",
    "skip_delay": "misfire_grace_time",
    "starting_deadline_seconds": "misfire_grace_time",
    "start_date": "start",
    "end_date": "end",
    "suspend": "enabled",
}


#: So many known words are listed at most: of schedules there may be thousands.
_LISTED = 30


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence with the closest known word, or one that lists those that are known."""
    choices = sorted(known)
    if _ELSEWHERE.get(word) in choices:
        return f"It is called {_ELSEWHERE[word]!r} here."
    close = get_close_matches(word, choices, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]!r}?"
    more = f" and {len(choices) - _LISTED} more" if len(choices) > _LISTED else ""
    return f"Known: {', '.join(choices[:_LISTED])}{more}." if choices else "None is known."


def refuse_unknown(unknown: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raises ``ConfigurationError`` for the first option that ``where`` does not have."""
    for option in unknown:
        raise ConfigurationError(f"{where} has no option {quoted(option)}. {did_you_mean(option, known)}")
