"""The processes of a run: real beats and real workers, which end with us whatever happens to us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence

from ..server import spawn

__all__ = ["Child", "beat_command", "worker_command"]


def beat_command(app: str, *arguments: str) -> list[str]:
    """The command line of a beat for ``app``."""
    return [sys.executable, "-m", "dramatiq_distcron", "beat", app, *arguments]


def worker_command(app: str, modules: Sequence[str] = (), *, threads: int = 4) -> list[str]:
    """The command line of Dramatiq with one worker process for ``app``."""
    return [sys.executable, "-m", "dramatiq", app, *modules, "--processes", "1", "--threads", str(threads)]


class Child:
    """A process with its latest output in memory. In a session of its own, so that Ctrl-C is for us alone."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], *, echo: bool = False) -> None:
        self.name = name
        self._echo = echo
        self._process = spawn(
            command,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._told = False
        self._output: deque[str] = deque(maxlen=200)
        self._reader = threading.Thread(target=self._read, name=f"output of {name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                text = line.decode("utf-8", "replace").rstrip()
                self._output.append(text)
                if self._echo:
                    print(f"{self.name:<6} | {text}", flush=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def output(self) -> str:
        """The latest lines it wrote."""
        return "\n".join(self._output)

    def kill(self) -> None:
        """SIGKILL: what a power failure or the OOM killer does."""
        self._process.kill()
        self._process.wait()

    def send_signal(self, number: signal.Signals) -> None:
        """Any signal, without waiting."""
        self._process.send_signal(number)

    def wait(self, seconds: float = 30.0) -> int:
        """Waits for the end and returns the exit code."""
        code = self._process.wait(seconds)
        self._reader.join()
        return code

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        # Once: for the second, Dramatiq drops what it is at.
        if self.alive and not self._told:
            self._told = True
            self.send_signal(signal.SIGTERM)

    def end(self, patience: float = 10.0) -> None:
        """SIGTERM, and SIGKILL for the whole session if that takes longer than ``patience`` seconds."""
        self.terminate()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join()
