"""Child processes that do not outlive us, not even when we are killed with SIGKILL.

Two mechanisms, set up by ``_launcher`` in the child:

- ``"signal"`` (Linux): the kernel's parent-death signal. The kernel ties it to the *thread* that started the
  child, so one thread that lives as long as the process starts them all.
- ``"pipe"`` (elsewhere, and beside the signal when there are files to remove): a watcher process reads a pipe
  whose other end only we hold. End of file means that we are gone: it kills the child and removes the files.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeAlias

from . import _launcher
from .errors import ConfigurationError, ServerError

__all__ = ["ParentDeath", "StrPath", "die_with_parent", "release", "spawn"]

ParentDeath: TypeAlias = Literal["auto", "signal", "pipe"]
StrPath: TypeAlias = "str | os.PathLike[str]"
Stream: TypeAlias = "int | IO[Any] | None"
Child: TypeAlias = "subprocess.Popen[bytes]"

_POLL_SECONDS = 0.2


class _Leash(NamedTuple):
    write_end: int
    removes: bool

    def close(self) -> None:
        with _lock:
            _write_ends.discard(self.write_end)
            os.close(self.write_end)


class _Spawner:
    """A thread that starts processes for other threads, and lives as long as this process."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[tuple[Callable[[], Child], Future[Child]]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="distcron-spawner", daemon=True).start()

    def run(self, order: Callable[[], Child]) -> Child:
        answer: Future[Child] = Future()
        self._orders.put((order, answer))
        try:
            return answer.result()
        except BaseException:
            # Interrupted while waiting: nobody will ever hold this child, so it must not stay. And not before it
            # is started may our caller close the streams it was given: their numbers would soon mean other files.
            answer.add_done_callback(_discard)
            futures.wait([answer])
            raise

    def _serve(self) -> None:
        while True:
            order, answer = self._orders.get()
            try:
                answer.set_result(order())
            except BaseException as error:  # the thread must not end: the kernel would kill its children
                answer.set_exception(error)
            del order, answer


# Held while this process forks, so that a fork knows every pipe it has to close. Reentrant, because a signal
# handler may fork as well.
_lock = threading.RLock()
_spawner: _Spawner | None = None
_leashes: dict[Child, _Leash] = {}
_write_ends: set[int] = set()


def spawn(
    argv: Sequence[StrPath],
    *,
    env: Mapping[str, str] | None = None,
    cwd: StrPath | None = None,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    start_new_session: bool = False,
    remove: Sequence[StrPath] = (),
    parent_death: ParentDeath = "auto",
) -> subprocess.Popen[bytes]:
    """Start a child that is killed when this process ends in any way, as ``subprocess.Popen`` otherwise.

    The child's own children are not covered: they call ``die_with_parent``. Signals that are blocked here are not
    blocked in the child. ``remove`` names files and directories that go when this process dies, unless
    ``release(child)`` was called before. ``parent_death`` forces one of the two mechanisms.

    Raises ``FileNotFoundError`` if there is no such program. One that cannot be executed ends with exit code 127.
    """
    signalled = _mechanism(parent_death) == "signal"
    command = [os.fspath(part) for part in argv]
    command.insert(0, _executable(command[0], env))
    removed = [os.path.abspath(path) for path in remove]
    _prune()

    def order() -> Child:
        with _pipe_to_watcher(signalled, removed) as (read_end, leash):
            child = subprocess.Popen(
                _launcher_command(signalled, read_end, env, removed) + command,
                env=env,
                cwd=cwd,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=start_new_session,
                pass_fds=() if leash is None else (read_end,),
            )
        if leash is not None:
            with _lock:
                _leashes[child] = leash
        return child

    return _the_spawner().run(order)


def release(child: subprocess.Popen[bytes]) -> None:
    """Let go of a child that has ended: whoever calls has removed its files, or wants to keep them."""
    with _lock:
        leash = _leashes.pop(child, None)
    if leash is None:
        return
    # A watcher with nothing to remove has left by itself, and writing to nobody could be our death by SIGPIPE.
    if leash.removes:
        with suppress(OSError):
            os.write(leash.write_end, b".")
    leash.close()


def die_with_parent(parent: int | None = None, *, parent_death: ParentDeath = "auto") -> None:
    """Have this very process killed when its parent ends; for a process that was forked and not spawned by us.

    Give ``parent``, the process id expected as parent, where it is known: then a parent that died before this call
    counts too. On Linux the parent must have forked in a thread that lives on, such as its main thread.
    """
    expected = os.getppid() if parent is None else parent
    # The kernel forgets the setting when the thread that made it ends.
    lasting = threading.current_thread() is threading.main_thread()
    if _mechanism(parent_death) == "signal" and lasting:
        _launcher.set_death_signal()
        _die_without(expected)
    else:
        _die_without(expected)
        threading.Thread(target=_outlive_not, args=(expected,), name="distcron-parent", daemon=True).start()


@contextmanager
def _pipe_to_watcher(signalled: bool, removed: Sequence[str]) -> Iterator[tuple[int, _Leash | None]]:
    """The read end to hand to the child and our hold on the other one; ``(-1, None)`` if no watcher is needed."""
    if signalled and not removed:
        yield -1, None
        return
    with _lock:
        read_end, write_end = os.pipe()
        _write_ends.add(write_end)
    leash = _Leash(write_end, bool(removed))
    try:
        yield read_end, leash
    except BaseException:
        leash.close()
        raise
    finally:
        os.close(read_end)


def _launcher_command(
    signalled: bool, read_end: int, env: Mapping[str, str] | None, removed: Sequence[str]
) -> list[str]:
    if not sys.executable:
        raise ServerError(
            "Child processes cannot be started: this Python does not know its own interpreter (sys.executable is "
            "empty, as in an embedded Python). Start the program with a python command."
        )
    locale = (os.environ if env is None else env).get("LC_CTYPE")
    return [
        *(sys.executable, "-I", "-S", str(Path(_launcher.__file__).absolute())),
        *(str(os.getpid()), "1" if signalled else "0", str(read_end), "" if locale is None else "=" + locale),
        *(str(len(removed)), *removed),
    ]


def _executable(name: str, env: Mapping[str, str] | None) -> str:
    path = (os.environ if env is None else env).get("PATH", os.defpath)
    found = shutil.which(name, path=path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return os.path.abspath(found)


def _mechanism(wanted: ParentDeath) -> Literal["signal", "pipe"]:
    able = sys.platform == "linux" and importlib.util.find_spec("_ctypes") is not None
    if wanted == "signal" and not able:
        raise ConfigurationError('parent_death="signal" needs Linux and a Python with ctypes: use "pipe" or "auto".')
    return "signal" if able and wanted != "pipe" else "pipe"


def _the_spawner() -> _Spawner:
    global _spawner
    with _lock:
        if _spawner is None:
            _spawner = _Spawner()
        return _spawner


def _prune() -> None:
    """Close the pipes of children that ended and had nothing to remove."""
    with _lock:
        idle = [child for child, leash in _leashes.items() if not leash.removes]
    for child in idle:
        if child.poll() is not None:
            release(child)


def _discard(answer: Future[Child]) -> None:
    if answer.exception() is None:
        child = answer.result()
        child.kill()
        child.wait()
        release(child)


def _outlive_not(parent: int) -> None:
    while True:
        time.sleep(_POLL_SECONDS)
        _die_without(parent)


def _die_without(parent: int) -> None:
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _forget_the_parents() -> None:
    # In a fork there is no spawner thread, and a pipe held open by us would hide the death of the process whose
    # children these are.
    global _lock, _spawner
    _lock, _spawner = threading.RLock(), None
    for write_end in _write_ends:
        os.close(write_end)
    _write_ends.clear()
    _leashes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _lock.acquire(),
        after_in_parent=lambda: _lock.release(),
        after_in_child=_forget_the_parents,
    )
