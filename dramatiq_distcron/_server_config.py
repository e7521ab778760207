"""The configuration file of an embedded server, as text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from .errors import ConfigurationError

__all__ = ["HOST", "Directives", "checked", "configuration"]

#: The rest of a directive's line, written as in the server's configuration file; several for one that is repeated.
Value: TypeAlias = "str | int | Sequence[str]"
Directives: TypeAlias = "Mapping[str, Value]"

HOST = "127.0.0.1"

_MANAGED = {
    "bind": "an embedded server listens on the loopback interface only",
    "daemonize": "an embedded server runs under its parent",
    "dir": "give directory= instead",
    "logfile": "the log is kept in memory, see log_tail()",
    "pidfile": "the process id is in pid",
    "port": "give port= instead",
    "supervised": "an embedded server runs under its parent",
    "unixsocket": "give unix_socket= instead",
}
# Replication writes a snapshot file on both sides unless it is told not to.
_IN_MEMORY: dict[str, Value] = {
    "save": "",
    "appendonly": "no",
    "repl-diskless-sync": "yes",
    "repl-diskless-sync-delay": 0,
    "repl-diskless-load": "swapdb",
}
_ON_DISK: dict[str, Value] = {"save": "", "appendonly": "yes", "appendfsync": "always"}

# Nobody, not even root, can leave a file in /proc, should a client ask the server to save.
_NOWHERE = Path("/proc") if os.path.isdir("/proc/self") else Path("/")

_DIRECTIVE = re.compile(r"[A-Za-z0-9_.-]+( [^\s\0]+)*")
_LINE_END = re.compile(r"[\r\n\0]")


def checked(config: Directives) -> dict[str, Value]:
    """``config`` with lower-case names. ``ConfigurationError`` for what is not one line, or ours to decide."""
    result: dict[str, Value] = {}
    for name, value in config.items():
        if not _DIRECTIVE.fullmatch(name):
            raise ConfigurationError(f"{name!r} is not the name of a server directive: give it as in redis.conf.")
        if any(_LINE_END.search(text) for text in _texts(value)):
            raise ConfigurationError(f"The value of the directive {name!r} has a line end in it: it must be one line.")
        word, space, rest = name.partition(" ")
        if word.lower() in _MANAGED:
            raise ConfigurationError(f"The directive {name!r} cannot be set: {_MANAGED[word.lower()]}.")
        result[word.lower() + space + rest] = value
    return result


def configuration(
    config: Directives,
    *,
    port: int | None,
    unix_socket: Path | None,
    directory: Path | None,
    sentinel: bool = False,
) -> bytes:
    """The whole file: what we insist on, the persistence that goes with ``directory``, and ``config``."""
    directives: dict[str, Value] = {
        "bind": f"{HOST} -::1",
        "protected-mode": "yes",
        "port": port or 0,
        "daemonize": "no",
        "logfile": "",
        "dir": _quoted(directory or _NOWHERE),
    }
    if unix_socket is not None:
        directives |= {"unixsocket": _quoted(unix_socket), "unixsocketperm": 700}
    if not sentinel:
        directives |= _IN_MEMORY if directory is None else _ON_DISK
    return "".join(_lines(directives | dict(config))).encode("utf-8", "surrogateescape")


def _lines(directives: Directives) -> Iterator[str]:
    for name, value in directives.items():
        for text in _texts(value):
            yield f"{name} {text or _quoted('')}\n"


def _texts(value: Value) -> list[str]:
    return [str(value)] if isinstance(value, (str, int)) else list(value)


def _quoted(value: Path | str) -> str:
    escaped = re.sub(r'[\\"\x00-\x1f]', lambda match: f"\\x{ord(match[0]):02x}", str(value))
    return f'"{escaped}"'
