"""A store that is away: told at once, then seldom; asked again soon, then every two seconds."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging

    from .clock import Clock
    from .errors import DistCronError

__all__ = ["Trouble"]

#: Seconds until the second word of the same trouble, and the longest silence.
_SILENCE, _LONGEST_SILENCE = 5.0, 300.0
#: The first pause before asking again, and the longest, in seconds.
_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


class Trouble:
    """Parameters:
    where: the store's address for messages.
    clock: of this process.
    logger: told of it.
    """

    def __init__(self, where: str, clock: Clock, logger: logging.Logger) -> None:
        self._where = where
        self._clock = clock
        self._logger = logger
        self._since: float | None = None
        self._next_word = 0.0
        self._silence = _SILENCE
        self._pause = _PAUSE

    def wait_after(self, error: DistCronError) -> float:
        """Tells of the error if it is time to, and returns how many seconds to wait."""
        now = self._clock.monotonic()
        if self._since is None:
            self._since, self._silence, self._next_word, self._pause = now, _SILENCE, now, _PAUSE
        if now >= self._next_word:
            self._logger.error("%s. Nothing is enqueued meanwhile; trying again.", str(error).rstrip("."))
            self._next_word = now + self._silence
            self._silence = min(self._silence * 2, _LONGEST_SILENCE)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        return self._pause * random.uniform(0.5, 1.0)

    def over(self) -> None:
        """The store answered again."""
        if self._since is not None:
            self._logger.info("%s is back after %.1f s.", self._where, self._clock.monotonic() - self._since)
            self._since = None
