"""An event that a signal handler may set."""

from __future__ import annotations

from queue import Empty, SimpleQueue

__all__ = ["Wake"]


class Wake:
    """As ``threading.Event``, for one waiter.

    A handler runs in the thread it interrupts, and that may hold the lock of a ``threading.Event`` at this moment: to
    set it would wait for ever. A ``SimpleQueue`` is made for that.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[None] = SimpleQueue()
        self._set = False

    def set(self) -> None:
        """From any thread, and from a signal handler."""
        self._set = True
        self._queue.put(None)

    def is_set(self) -> bool:
        return self._set

    def clear(self) -> None:
        """By the waiter only."""
        # In this order: what is set from now on leaves at least its mark.
        self._set = False
        while not self._queue.empty():
            self._queue.get()

    def wait(self, seconds: float) -> bool:
        """Waits until it is set, for ``seconds`` at most. Returns whether it is."""
        if not self._set:
            try:
                self._queue.get(timeout=max(0.0, seconds))
            except Empty:
                pass
        return self._set
