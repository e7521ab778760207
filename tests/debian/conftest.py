"""What needs Debian's packages: a server with TLS, and a clock that can be set."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.conftest import start_beat

__all__ = ["SetClock", "debian_server", "make_clock", "start_beat"]


@pytest.fixture(scope="session")
def debian_server() -> Path:
    """A Redis that is linked with TLS."""
    binary = Path(os.environ.get("DISTCRON_TEST_SERVER", "/usr/bin/redis-server"))
    assert binary.exists(), "apt install redis-server, or give the path of another in DISTCRON_TEST_SERVER"
    return binary


class SetClock:
    """The environment of a process whose clock is some seconds off, and may be set anew while it runs."""

    def __init__(self, file: Path) -> None:
        self._file = file
        (library,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
        self.environ = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        self.set(0)

    def set(self, seconds: int) -> None:
        """How many seconds it is ahead from now on."""
        whole = self._file.with_suffix(".new")
        whole.write_text(f"{seconds:+d}")
        whole.replace(self._file)

    def wrapped(self, binary: Path) -> Path:
        """A program that is ``binary`` with this clock."""
        script = self._file.with_suffix(".sh")
        words = " ".join(f"{name}={value}" for name, value in self.environ.items())
        script.write_text(f'#!/bin/sh\nexec env {words} {binary} "$@"\n')
        script.chmod(0o700)
        return script


@pytest.fixture
def make_clock(tmp_path: Path) -> Callable[[str], SetClock]:
    assert list(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), "apt install faketime"
    return lambda name: SetClock(tmp_path / name)
