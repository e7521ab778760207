"""An embedded Redis or Valkey server of our own: found, started, watched, and never left behind.

It serves the command line (``server``, ``dev``, ``demo``) and the tests, which also pause, kill and restart it.
It listens on the loopback interface or on a unix socket only, keeps nothing on disk unless it is given a
directory, and dies with the process that started it, even if that is killed with SIGKILL.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from ._launcher import remove_path
from ._processes import ParentDeath, StrPath, die_with_parent, release, spawn
from ._server_binary import find_server
from ._server_config import HOST, Directives, checked, configuration
from ._server_directory import OwnDirectory
from ._server_probe import Address, Log, ask, is_taken, version_of
from .errors import ConfigurationError, ServerError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Server", "die_with_parent", "find_free_port", "find_server", "release", "spawn"]

# Below the ports systems hand out to outgoing connections: a client that keeps trying to reach a stopped server on
# one of those can end up connected to itself, and the server could not come back.
_PORTS = range(20_000, 32_768)
_PORT_ATTEMPTS = 8

_POLL_SECONDS = 0.005
_STOP_SECONDS = 5.0
# A server that lost the race for its port gives up within a few milliseconds of its start.
_GIVING_UP_SECONDS = 0.1

_SOCKET_PATH_BYTES = 103


class _PortTaken(ServerError):
    """Another process listens on the port."""


class Server:
    """One server process, started by ``start()`` or by a ``with`` statement.

    ``binary`` is looked up by ``find_server(environ)`` unless given. A free ``port`` is chosen unless one is
    given, or a path for ``unix_socket`` instead. Without ``directory`` nothing is written to disk; with it
    (created for this user alone if missing) every write is in an append-only file there before it is acknowledged.
    ``config`` has further directives of the server's configuration file. ``mode="sentinel"`` starts a Sentinel.
    The server has ``start_timeout`` seconds to answer.

    The server belongs to the process that started it: in a fork, ``stop()`` does nothing. One object is for one
    thread at a time. Raises ``ConfigurationError`` for settings that exclude each other.
    """

    def __init__(
        self,
        binary: StrPath | None = None,
        *,
        port: int | None = None,
        unix_socket: StrPath | None = None,
        directory: StrPath | None = None,
        config: Directives | None = None,
        mode: Literal["server", "sentinel"] = "server",
        environ: Mapping[str, str] = os.environ,
        start_timeout: float = 10.0,
        parent_death: ParentDeath = "auto",
    ) -> None:
        self._sentinel = mode == "sentinel"
        self._binary = find_server(environ) if binary is None else Path(binary)
        self._port = port
        self._socket = None if unix_socket is None else Path(unix_socket).absolute()
        self._directory = None if directory is None else Path(directory).absolute()
        self._config = checked(config or {})
        self._start_timeout = start_timeout
        self._parent_death: ParentDeath = parent_death
        self._own: OwnDirectory | None = None
        self._private: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._log = Log()
        self._version = "unknown"
        self._refuse_contradictions()

    def start(self) -> Self:
        """Start and wait until the server answers, if it does not run already. ``ServerError`` if it can't."""
        if self.alive:
            return self
        self._prepare_files()
        try:
            self._start_on_a_port()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the server in an orderly way (by force after 5 s) and remove what is ours. May be repeated."""
        if self._owner != os.getpid():
            return
        if self._process is not None:
            self._end()
            for path in self._paths_to_remove():
                remove_path(str(path))
            self._private = None
            release(self._process)
        if self._own is not None:
            self._own.release()
            self._own = None

    def kill(self) -> None:
        """SIGKILL, as a crash. ``restart()`` brings it back, ``stop()`` is still needed."""
        process = self._running()
        process.kill()
        process.wait()

    def pause(self) -> None:
        """SIGSTOP: the server keeps its connections and answers nobody."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: goes on after ``pause()``."""
        self._running().send_signal(signal.SIGCONT)

    def restart(self) -> Self:
        """Stop if need be and start on the same port, with the same directory."""
        self._end()
        return self.start()

    @property
    def alive(self) -> bool:
        """Whether the process exists; a paused one does."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the last start."""
        return self._started().pid

    @property
    def port(self) -> int | None:
        """The TCP port; None with a unix socket, or before a port was chosen."""
        return self._port

    @property
    def url(self) -> str:
        """URL for a client, such as ``redis://127.0.0.1:20001/0`` or ``unix:///run/my.sock?db=0``."""
        if self._socket is not None:
            return f"unix://{quote(str(self._socket))}?db=0"
        if self._port is None:
            raise ServerError("The server has no URL before start(), because its port is chosen there.")
        return f"redis://{HOST}:{self._port}/0"

    @property
    def version(self) -> str:
        """Version of the server, such as ``7.0.15``, read at its start."""
        self._started()
        return self._version

    def log_tail(self, lines: int = 20) -> str:
        """The last lines the server wrote, over all its starts; 200 are kept."""
        return self._log.tail(lines)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _refuse_contradictions(self) -> None:
        if self._socket is not None and self._port is not None:
            raise ConfigurationError("A server listens on port= or on unix_socket=, not on both: leave one out.")
        if self._sentinel and (self._socket is not None or self._directory is not None):
            raise ConfigurationError(
                "A sentinel listens on a port and keeps its state in a directory of its own: leave out "
                "unix_socket= and directory=."
            )
        if self._socket is not None and len(os.fsencode(self._socket)) > _SOCKET_PATH_BYTES:
            raise ConfigurationError(
                f"unix_socket= is longer than the {_SOCKET_PATH_BYTES} bytes a socket's path may have: "
                f"{self._socket}. Use a shorter directory, such as one in /tmp."
            )

    def _prepare_files(self) -> None:
        if self._socket is not None:
            _refuse_occupied(self._socket)
        if self._directory is not None and self._own is None:
            self._own = OwnDirectory(self._directory)
        if self._sentinel and self._private is None:
            self._private = Path(tempfile.mkdtemp(prefix="distcron-sentinel-"))

    def _start_on_a_port(self) -> None:
        # A port once chosen stays, because clients know it. Only a first choice can lose a race and choose again.
        fixed = self._port is not None or self._socket is not None
        attempts = 1 if fixed else _PORT_ATTEMPTS
        for attempt in range(1, attempts + 1):
            port = self._port if fixed else find_free_port()
            try:
                self._launch(port)
            except _PortTaken:
                if attempt == attempts:
                    raise
                self._end()
            else:
                self._port = port
                return

    def _launch(self, port: int | None) -> None:
        # Also asked before: behind a password we could not tell whose answer it is that we get.
        if port is not None and is_taken((HOST, port)):
            raise self._port_taken(port, "the address is already in use")
        previous, self._process = self._process, self._spawn(port)
        self._owner = os.getpid()
        if previous is not None:
            release(previous)
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        self._log.follow(process.stdout)
        with suppress(BrokenPipeError), process.stdin as stdin:  # one that died at once is seen below
            stdin.write(b"" if self._sentinel else self._configuration(port))
        self._await_ready(process, port)

    def _spawn(self, port: int | None) -> subprocess.Popen[bytes]:
        try:
            return spawn(
                self._command(port),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # A Ctrl-C is for the program, which ends its server when the others are done with it.
                start_new_session=True,
                remove=self._paths_to_remove(),
                parent_death=self._parent_death,
            )
        except OSError as error:
            raise self._failure(error.strerror or str(error)) from error

    def _command(self, port: int | None) -> list[StrPath]:
        if self._private is None:
            return [self._binary, "-"]
        # A sentinel writes what it learns into its file, and is to find it there after a restart.
        file = self._private / "sentinel.conf"
        if self._port is None or not file.exists():
            file.write_bytes(self._configuration(port))
        return [self._binary, file, "--sentinel"]

    def _configuration(self, port: int | None) -> bytes:
        directory = self._private or self._directory
        return configuration(
            self._config, port=port, unix_socket=self._socket, directory=directory, sentinel=self._sentinel
        )

    def _paths_to_remove(self) -> list[Path]:
        return [path for path in (self._private, self._socket) if path is not None]

    def _await_ready(self, process: subprocess.Popen[bytes], port: int | None) -> None:
        address: Address = str(self._socket) if port is None else (HOST, port)
        deadline = time.monotonic() + self._start_timeout
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise self._why_it_ended(process, port)
            answer = ask(address)
            if answer.ready:
                return self._recognise(process, port, answer.info)
            time.sleep(_POLL_SECONDS)
        raise self._failure(f"it did not answer a PING within {self._start_timeout:g} s")

    def _recognise(self, process: subprocess.Popen[bytes], port: int | None, info: Mapping[str, str]) -> None:
        """Make sure that it is our process that answered, and learn its version."""
        if "process_id" in info:
            if int(info["process_id"]) != process.pid:
                raise self._port_taken(port, f"process {info['process_id']} answers there")
            self._version = info.get("valkey_version") or info.get("redis_version", "unknown")
            return
        # It wants a password first: then outliving the moment of giving up has to do.
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GIVING_UP_SECONDS)
            raise self._why_it_ended(process, port)
        self._version = version_of(self._binary)

    def _why_it_ended(self, process: subprocess.Popen[bytes], port: int | None) -> ServerError:
        self._log.finish()
        if re.search("address already in use", self.log_tail(), re.IGNORECASE):
            return self._port_taken(port, "the address is already in use")
        return self._failure(f"it ended with code {process.returncode} before it answered")

    def _port_taken(self, port: int | None, detail: str) -> _PortTaken:
        place = str(self._socket) if port is None else f"port {port}"
        return _PortTaken(str(self._failure(f"{place} is taken, {detail}; free it or give another one")))

    def _failure(self, reason: str) -> ServerError:
        tail = "".join(f"\n  {line}" for line in self.log_tail().splitlines()) or " (none)"
        return ServerError(f"The server {self._binary} did not start: {reason}. The end of its log:{tail}")

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # a paused one does not even see SIGTERM
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._log.finish()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerError("The server was never started: call start() first, or use it in a with statement.")
        return self._process

    def _running(self) -> subprocess.Popen[bytes]:
        process = self._started()
        if not self.alive:
            raise ServerError(f"The server is not running: process {process.pid} has ended. Call restart() first.")
        return process


def find_free_port() -> int:
    """A TCP port of the loopback interface that is free at this moment. ``ServerError`` if there is none.

    Ports come from 20000-32767, which systems do not hand out to outgoing connections.
    """
    # Not the shared generator: programs seed it, and would all be given the same ports.
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise ServerError(f"No port between {_PORTS[0]} and {_PORTS[-1]} is free on {HOST}: give port= or unix_socket=.")


def _refuse_occupied(path: Path) -> None:
    # The server itself would take any file's place, and silently cut off another server.
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigurationError(f"unix_socket= names {path}, which exists and is no socket: give another path.")
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        probe.connect(str(path))
        raise ServerError(f"Another server listens on {path}: stop it or give another unix_socket=.")
