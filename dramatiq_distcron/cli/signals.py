"""What a command does when it is told to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..waking import Wake

__all__ = ["sigterm_as_ctrl_c", "stopped_by_signal", "stopping_signals"]


def stopping_signals() -> list[signal.Signals]:
    """What tells a command to stop. The end of a terminal does, unless ``nohup`` was to keep it from us."""
    found = [signal.SIGINT, signal.SIGTERM]
    hangup: signal.Signals | None = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        found.append(hangup)
    return found


def stopped_by_signal() -> Wake:
    """Set as soon as somebody tells the command to stop."""
    stopped = Wake()
    for number in stopping_signals():
        signal.signal(number, lambda *_: stopped.set())
    return stopped


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Ends what runs inside as Ctrl-C does, so that it can say how far it came.

    In a thread of a program that calls the command nothing changes: signals are the main thread's.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        # None is a handler that was not set in Python, which cannot be put back.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
