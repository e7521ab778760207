"""Loggers named as Dramatiq names its own."""

from __future__ import annotations

import logging
from collections.abc import Iterable

__all__ = ["get_logger", "listed"]

#: How many names a line of the log has at most.
_SHOWN = 10


def get_logger(module: str, owner: type) -> logging.Logger:
    """The logger of ``owner``: its module's name and its own."""
    return logging.getLogger(f"{module}.{owner.__name__}")


def listed(names: Iterable[str]) -> str:
    """Names for one line: all of a few, the first of many."""
    known = sorted(set(names))
    shown = ", ".join(known[:_SHOWN])
    return shown if len(known) <= _SHOWN else f"{shown} and {len(known) - _SHOWN} more"
