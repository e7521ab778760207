"""A pid file, as Dramatiq's command keeps one: never over one of a running process, never over another file."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

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
    try:
        opened = _locked(name)
    except OSError as error:
        raise PidFileError(f"The pid file {name} cannot be written: {error.strerror}.") from error
    try:
        _refuse_running(name, os.read(opened, 100).strip())
        os.ftruncate(opened, 0)
        os.pwrite(opened, str(os.getpid()).encode(), 0)
        try:
            yield
        finally:
            with suppress(OSError):
                os.unlink(name)
    finally:
        os.close(opened)


def _locked(name: str) -> int:
    """The file, opened and locked for as long as it is open: of two that start at the same time, one is refused."""
    while True:
        opened = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it before may have removed it since we opened it.
            if os.path.exists(name) and os.path.samestat(os.fstat(opened), os.stat(name)):
                return opened
        except BlockingIOError:
            pid = os.pread(opened, 100, 0).decode(errors="replace").strip() or "just started"
            os.close(opened)
            raise _taken(name, pid) from None
        except BaseException:
            os.close(opened)
            raise
        os.close(opened)


def _refuse_running(name: str, text: bytes) -> None:
    if not text:
        return
    if not re.fullmatch(rb"[1-9][0-9]{0,9}", text):
        raise PidFileError(f"{name} is not a pid file, so it is not overwritten. Name another with --pid-file.")
    if int(text) != os.getpid() and _runs(int(text)):
        raise _taken(name, str(int(text)))


def _taken(name: str, pid: str) -> PidFileError:
    return PidFileError(f"{name} says that a beat runs as process {pid}. Stop it, or name another pid file.")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
