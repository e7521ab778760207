"""What a running server tells: its answer to a PING, its version, its log."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias

__all__ = ["Address", "Answer", "Log", "ask", "is_taken", "version_of"]

Address: TypeAlias = "tuple[str, int] | str"

_ANSWER_SECONDS = 0.25
_VERSION_SECONDS = 5.0
_LAST_LINES_SECONDS = 1.0
_LOG_LINES = 200


class Answer(NamedTuple):
    ready: bool
    info: Mapping[str, str]


def ask(address: Address) -> Answer:
    """Send PING and INFO over a raw connection; an error is an answer too, unless it says that data is loading."""
    try:
        with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            connection.connect(address)
            connection.sendall(b"PING\r\nINFO server\r\n")
            with connection.makefile("rb") as replies:
                pong, header = replies.readline(), replies.readline()
                body = replies.read(int(header[1:])) if header.startswith(b"$") else b""
    except (OSError, ValueError):
        return Answer(False, {})
    pairs = (line.split(":", 1) for line in body.decode("utf-8", "replace").splitlines() if ":" in line)
    return Answer(pong[:1] in (b"+", b"-") and not pong.startswith(b"-LOADING"), dict(pairs))


def is_taken(address: tuple[str, int]) -> bool:
    """Whether somebody listens there already."""
    with socket.socket() as probe:
        # As a server does: connections that are on their way out are no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError:
            return True
        return False


def version_of(binary: Path) -> str:
    with suppress(OSError, subprocess.TimeoutExpired):
        shown = subprocess.run([binary, "--version"], capture_output=True, timeout=_VERSION_SECONDS, check=False)
        found = re.search(rb"v=([\w.]+)", shown.stdout)
        return found[1].decode() if found else "unknown"
    return "unknown"


class Log:
    """What a server writes, bounded, read by a thread so that the server never waits for a reader."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LOG_LINES)
        self._reader: threading.Thread | None = None

    def follow(self, stream: IO[bytes]) -> None:
        self._reader = threading.Thread(target=self._read, args=(stream,), name="distcron-server-log", daemon=True)
        self._reader.start()

    def finish(self) -> None:
        """Wait for the last lines of an ended server, but not for ever: a child of it may hold the pipe open."""
        if self._reader is not None:
            self._reader.join(_LAST_LINES_SECONDS)

    def tail(self, lines: int) -> str:
        return "\n".join(list(self._lines)[-lines:])

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._lines.append(line.decode("utf-8", "replace").rstrip())
