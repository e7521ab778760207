"""The exit codes: Dramatiq's, and ours after them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from ..errors import (
    ConfigurationError,
    ConflictError,
    DistCronError,
    NotFoundError,
    RunOutstanding,
    ServerError,
    StoreRefused,
    StoreUnavailable,
)

__all__ = ["Exit", "PidFileError", "exit_code_of", "sigterm_as_ctrl_c", "stopping_signals"]


class Exit(IntEnum):
    OK = 0
    KILLED = 1
    IMPORT = 2
    CONNECTION = 3
    PID_FILE = 4
    CONFLICT = 5
    FINDINGS = 6
    NOT_FOUND = 7
    PARTLY = 8


class PidFileError(DistCronError):
    """The pid file belongs to a running process, or cannot be written."""


# The most special first.
_CODES: list[tuple[type[DistCronError], Exit]] = [
    (ConflictError, Exit.CONFLICT),
    (ConfigurationError, Exit.IMPORT),
    (NotFoundError, Exit.NOT_FOUND),
    (RunOutstanding, Exit.PARTLY),
    (PidFileError, Exit.PID_FILE),
    (StoreUnavailable, Exit.CONNECTION),
    (StoreRefused, Exit.CONNECTION),
    (ServerError, Exit.CONNECTION),
]


def exit_code_of(error: DistCronError) -> int:
    """The code a command ends with because of ``error``."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.KILLED)


def stopping_signals() -> list[signal.Signals]:
    """What tells a command to stop. The end of a terminal does, unless ``nohup`` was to keep it from us."""
    hangup = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []
    return [signal.SIGINT, signal.SIGTERM, *hangup]


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """So that a command that is told to stop can say how far it came, and clear up."""

    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
