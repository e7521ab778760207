"""Which dead letters are meant: what indexes know, and what is compared letter by letter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..durations import LAST_INSTANT, instant_ms
from ..errors import ConfigurationError, quoted
from ..letters import REASONS, indexes_of
from ..store.base import NEVER, Query
from ..suggestions import did_you_mean
from .asked import is_utf8

if TYPE_CHECKING:
    from ..store.base import LetterRow, Store

__all__ = ["Filter"]


class Filter:
    """Checked filters. Raises ``ConfigurationError`` for one that is unknown."""

    def __init__(self, filters: Mapping[str, Any]) -> None:
        given = {name: _checked(name, value) for name, value in filters.items() if value is not None}
        self.indexes = indexes_of({name: given[name] for name in _INDEXED if name in given})
        self.since = _instant(given.get("since"), "since", 0)
        self.until = _instant(given.get("until"), "until", NEVER)
        if {"since", "until"} <= given.keys() and self.since > self.until:
            raise ConfigurationError("since is after until, so that no letter could fit: turn them round.")
        self._exactly: str = given.get("error", "")
        self.error = self._exactly.lower()
        self._text: str = given.get("text", "").lower()

    def look_up(self, store: Store) -> None:
        """Finds the error's index, if only one class of error is meant."""
        if not self.error:
            return
        classes = [one for one in store.dead_values("error") if self.error in one.lower()]
        if self._exactly in classes:
            # No class whose name only contains it is meant then.
            classes = [self._exactly]
        if not classes:
            # No letter has one: an index without letters answers at once.
            classes = [self._exactly]
        if len(classes) == 1:
            self.indexes.append(("error", classes[0]))
            self.error = ""

    def query(self, *, oldest_first: bool = False) -> Query:
        """What the store can answer of it."""
        return Query(self.indexes, self.since, self.until, oldest_first)

    @property
    def compares(self) -> bool:
        """Whether letters must be looked at that an index gives."""
        return bool(self.error or self._text)

    @property
    def is_exact(self) -> bool:
        """Whether an index alone answers."""
        return not self.compares and len(self.indexes) <= 1

    def fits(self, row: LetterRow) -> bool:
        """Whether a letter fits what no index knows."""
        if self.error and self.error not in str(row.about.get("error", "")).lower():
            return False
        return not self._text or any(self._text in value.lower() for value in _values(row.about))


def _values(kept: Any) -> Iterator[str]:
    """Every value in it, and no name of ours."""
    for value in kept.values() if isinstance(kept, dict) else kept:
        if isinstance(value, (dict, list)):
            yield from _values(value)
        elif value is not None:
            yield str(value)


_INDEXED = ("actor", "queue", "reason", "fingerprint", "schedule")
_FILTERS = (*_INDEXED, "error", "since", "until", "text")


def _checked(name: str, value: Any) -> Any:
    """Raises ``ConfigurationError`` for a filter that is none, or cannot have this value."""
    if name not in _FILTERS:
        raise ConfigurationError(f"There is no filter {quoted(name)}. {did_you_mean(name, _FILTERS)}")
    if name in ("since", "until"):
        return value
    if name == "actor":
        # The actor itself will do, as the class of an error.
        value = getattr(value, "actor_name", value)
    if name == "error" and isinstance(value, type) and issubclass(value, BaseException):
        value = value.__name__
    if not isinstance(value, str):
        raise ConfigurationError(f"The filter {name!r} takes a text, not {quoted(value)}.")
    if not is_utf8(value, "surrogateescape"):
        raise ConfigurationError(f"The filter {name!r} takes a text, and {quoted(value)} has half a character in it.")
    if not value:
        raise ConfigurationError(f"The filter {name!r} is empty. Leave it out, or say which.")
    if name == "reason" and value not in REASONS:
        raise ConfigurationError(f"There is no reason {quoted(value)}. {did_you_mean(value, REASONS)}")
    return value


def _instant(value: Any, name: str, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= LAST_INSTANT:
            raise ConfigurationError(f"{name} is ms since 1970 in UTC, or an aware datetime, and not {quoted(value)}.")
        return value
    return instant_ms(value, name)
