"""A directory that belongs to one server at a time: two would write one file of data, each over the other."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from .errors import ConfigurationError, ServerError

__all__ = ["OwnDirectory"]

_NAME = "distcron.lock"

# A process' own locks do not stop it, and a fork has none of them.
_ours: dict[Path, int] = {}


class OwnDirectory:
    """Makes ``path`` (for this user alone) and holds it until :meth:`release`, or until this process ends.

    Raises:
      ConfigurationError: it cannot be made or written to.
      ServerError: another server uses it.
    """

    def __init__(self, path: Path) -> None:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path = path.resolve()
            self._lock = os.open(self._path / _NAME, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigurationError(
                f"The directory {path} cannot be used for a server's data: {error.strerror}. Name another one."
            ) from error
        try:
            self._hold()
        except BaseException:
            os.close(self._lock)
            raise

    def _hold(self) -> None:
        if _ours.get(self._path) == os.getpid():
            raise self._taken()
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise self._taken() from None
        _ours[self._path] = os.getpid()

    def _taken(self) -> ServerError:
        return ServerError(
            f"Another server keeps its data in {self._path}. Two would overwrite each other's: stop it, or name "
            "another directory."
        )

    def release(self) -> None:
        """Lets others use it. The data stays."""
        _ours.pop(self._path, None)
        with suppress(OSError):
            os.close(self._lock)
