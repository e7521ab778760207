"""What a run leaves behind: processes and files. A private TMPDIR marks every process that inherits it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.support import wait_until


class Sandbox:
    """Folders for a run that is to leave nothing: ``work`` to start it in, and a TMPDIR of its own."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.temporary = folder / "temporary"
        self.work.mkdir()
        self.temporary.mkdir()

    def environ(self, **more: str) -> dict[str, str]:
        """The environment to start it with."""
        return {**os.environ, "TMPDIR": str(self.temporary), "PYTHONDONTWRITEBYTECODE": "1", **more}

    def processes(self) -> dict[int, str]:
        """The living processes of the run, with their command lines, wherever they are in the tree by now."""
        return processes_with(f"TMPDIR={self.temporary}")

    def files(self) -> list[str]:
        return sorted(str(path) for path in self.temporary.rglob("*"))

    def assert_nothing_left(self) -> None:
        try:
            wait_until(lambda: not self.processes() and not self.files(), "nothing is left")
        except AssertionError:
            raise AssertionError(f"left behind: {self.processes()} {self.files()}") from None

    def clean(self) -> None:
        """Ends what a failing test would leave."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def processes_with(mark: str) -> dict[int, str]:
    """The living processes with ``mark`` in their environment, with their command lines."""
    return {pid: command for pid, command, environ in _all_processes() if mark in environ}


def _all_processes() -> Iterator[tuple[int, str, str]]:
    """Process id, command line and environment. One that is dead and only not yet collected has neither."""
    if not Path("/proc/self/environ").exists():
        listed = subprocess.run(["ps", "-axEww", "-o", "pid=,command="], capture_output=True, text=True, check=True)
        for line in listed.stdout.splitlines():
            pid, _, command = line.strip().partition(" ")
            yield int(pid), command, command
        return
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile, or is none of ours
            environ = (folder / "environ").read_bytes().decode(errors="replace")
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            yield int(folder.name), command, environ
