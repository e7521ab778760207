"""What a command does when it is told to end."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..waking import Wake

__all__ = ["sigterm_as_ctrl_c", "stopped_by_signal"]


def stopped_by_signal() -> Wake:
    """Set as soon as somebody presses Ctrl-C or sends SIGTERM."""
    stopped = Wake()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    return stopped


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Ends what runs inside as Ctrl-C does, so that it can say how far it came."""

    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
