"""A pid file, as Dramatiq's command keeps one: never over one of a running process, never over another file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .exits import PidFileError

__all__ = ["pid_file"]


@contextmanager
def pid_file(name: str | None) -> Iterator[None]:
    """Holds the pid file ``name`` with our pid in it.

    Raises:
      PidFileError: it belongs to a running process, is something else than a pid file, or cannot be written.
    """
    if name is None:
        yield
        return
    file = Path(name)
    _refuse_running(file)
    try:
        file.unlink(missing_ok=True)
        # Exclusively: of two that start at the same time, one is refused.
        with file.open("x") as opened:
            opened.write(str(os.getpid()))
    except FileExistsError:
        raise PidFileError(f"The pid file {file} was written by another beat at this moment.") from None
    except OSError as error:
        raise PidFileError(f"The pid file {file} cannot be written: {error.strerror}.") from error
    try:
        yield
    finally:
        with suppress(OSError):
            file.unlink()


def _refuse_running(file: Path) -> None:
    try:
        text = file.read_bytes().strip()
    except OSError:
        return
    if not re.fullmatch(rb"[1-9][0-9]{0,9}", text):
        raise PidFileError(f"{file} is not a pid file, so it is not overwritten. Name another with --pid-file.")
    if int(text) != os.getpid() and _runs(int(text)):
        raise PidFileError(f"{file} says that a beat runs as process {int(text)}. Stop it, or name another pid file.")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
