"""Loggers named as Dramatiq names its own."""

from __future__ import annotations

import logging

__all__ = ["get_logger"]


def get_logger(module: str, owner: type) -> logging.Logger:
    """The logger of ``owner``: its module's name and its own."""
    return logging.getLogger(f"{module}.{owner.__name__}")
