"""The first program of every child of ours: it ties the child's life to its parent's, then becomes the command.

``_processes.spawn`` runs this file by its path (``python -I -S``), so it imports the standard library only, and of
that as little as it can: each import is paid for at every start of a child.

This work happens here, after an exec, and not between fork and exec (``preexec_fn``), because the parent may have
many threads: in a forked copy of such a process no lock can be trusted, in this fresh one every lock can.
"""

from __future__ import annotations

import os
import signal
import sys

CANNOT_EXECUTE = 127
PARENT_IS_GONE = 128 + signal.SIGTERM

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.2
_DEATH_SECONDS = 5.0


def main(arguments: list[str]) -> None:
    """Set up parent death as told by ``arguments`` (see ``_processes._launch``) and execute the command."""
    parent, use_signal, pipe, locale = int(arguments[0]), arguments[1] == "1", int(arguments[2]), arguments[3]
    split = 5 + int(arguments[4])
    remove, executable, command = arguments[5:split], arguments[split], arguments[split + 1 :]
    _restore_signals()
    if pipe >= 0:
        _start_watcher(pipe, remove)
    if use_signal:
        set_death_signal()
    # A parent that died before the signal was set sends none: whoever adopted us tells.
    if os.getppid() != parent:
        os._exit(PARENT_IS_GONE)
    _become(executable, command, locale)


def set_death_signal() -> None:
    """Ask Linux to SIGKILL this process when the thread that started it ends. ``OSError`` if it refuses.

    The setting belongs to the calling thread, survives exec, and is not inherited by children.
    """
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    if prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refused the parent-death signal")


def remove_path(path: str) -> None:
    """Remove a file, a socket or a whole directory; what is not there or not ours to remove is left."""
    import shutil

    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        os.unlink(path)
    except OSError:
        pass


def _restore_signals() -> None:
    # Exec hands on what is ignored and what is blocked. Python ignores two signals for itself; the mask is that of
    # the thread which started us, and Dramatiq's master blocks SIGTERM and SIGINT while it forks.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _become(executable: str, command: list[str], locale: str) -> None:
    # In the C locale Python sets LC_CTYPE in its own environment; the child is to get the one it was given.
    if locale:
        os.environ["LC_CTYPE"] = locale[1:]
    else:
        os.environ.pop("LC_CTYPE", None)
    try:
        os.execv(executable, command)
    except OSError as error:
        sys.stderr.write(f"cannot execute {executable}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(CANNOT_EXECUTE)


def _start_watcher(pipe: int, remove: list[str]) -> None:
    """Leave a process behind that kills the command when the write end of ``pipe`` is closed by a death."""
    command = os.getpid()
    if os.fork():
        os.close(pipe)
        return
    try:
        _detach(pipe)
        _watch(pipe, command, remove)
    finally:
        os._exit(0)


def _detach(pipe: int) -> None:
    # Own session: a Ctrl-C or a kill of the group is not for us. No standard streams: a reader of the command's
    # output is to see its end when the command ends.
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _watch(pipe: int, command: int, remove: list[str]) -> None:
    import select

    # We are the command's child, so "is it still my parent?" is exact where a process id alone could be reused.
    while True:
        gone = os.getppid() != command
        if gone and not remove:
            return
        if select.select([pipe], [], [], None if gone else _POLL_SECONDS)[0]:
            break
    if os.read(pipe, 1):
        return
    _kill_parent(command)
    for path in remove:
        remove_path(path)


def _kill_parent(command: int) -> None:
    import time

    deadline = time.monotonic() + _DEATH_SECONDS
    while os.getppid() == command and time.monotonic() < deadline:
        os.kill(command, signal.SIGKILL)
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1:])
