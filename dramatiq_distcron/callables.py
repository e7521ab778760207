"""Functions of users that are called here, and not awaited."""

from __future__ import annotations

from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any

from .errors import ConfigurationError, quoted

__all__ = ["refuse_awaited"]

#: What a mere call only begins.
_AWAITED = (iscoroutinefunction, isgeneratorfunction, isasyncgenfunction)


def refuse_awaited(function: Any, what: str) -> None:
    """Raises ``ConfigurationError`` if a call of ``function`` does nothing yet; ``what`` says what it is given as."""
    if any(kind(one) for kind in _AWAITED for one in (function, type(function).__call__)):
        raise ConfigurationError(
            f"{what} must be a plain function: it is called, and nobody would await it. It is not {quoted(function)}."
        )
