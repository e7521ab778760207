"""Apps in modules of their own, and commands that are run on them."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

from dramatiq_distcron.cli import main

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
SECRET = "sesame"

Start: TypeAlias = Callable[..., subprocess.Popen[str]]
Capture: TypeAlias = pytest.CaptureFixture[str]
Patch: TypeAlias = pytest.MonkeyPatch


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on stdout."""
        assert self.code == 0, self.err
        return json.loads(self.out)


class App:
    """Modules in a folder of their own, and commands that are run on them in this process."""

    def __init__(self, folder: Path, url: str, namespace: str, capsys: Capture, monkeypatch: Patch) -> None:
        self.folder = folder
        self.url = url
        self.namespace = namespace
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self._count = 0
        self.name = f"app_{namespace.replace('-', '_')}"

    def module(self, text: str, name: str | None = None) -> str:
        """Writes a module and returns its name, which no other has unless it is given."""
        self._count += 1
        name = name or f"{self.name}_{self._count}"
        (self.folder / f"{name}.py").write_text(text)
        return name

    def stub(self, actors: str = "", head: str = "") -> str:
        """An app on a StubBroker, which needs no server."""
        return self.module(f"{head}{STUB}{actors}")

    def on_redis(self, actors: str = "", *, url: str | None = None, name: str | None = None, options: str = "") -> str:
        """The app on Redis. Written again it is its next version: of the same name, unless another is given."""
        return self.module(
            "import dramatiq\nfrom dramatiq.brokers.redis import RedisBroker\n"
            "from dramatiq_distcron import cron, every, install\n"
            f"broker = RedisBroker(url={url or self.url!r}, namespace={self.namespace!r})\n"
            f"distcron = install(broker{options})\ndramatiq.set_broker(broker)\n{actors}",
            name or self.name,
        )

    def run(self, *argv: str) -> Ran:
        """Runs a command in this process, as if nothing had been loaded before."""
        self._monkeypatch.setattr("dramatiq_distcron.middleware.distcron._everywhere", weakref.WeakSet())
        forget_modules()
        try:
            code = main([*argv])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        out, err = self._capsys.readouterr()
        return Ran(code, out, err)

    def beat(self, *argv: str) -> Ran:
        """Runs ``beat`` until it has fired what is due."""
        return self.run("beat", *argv, f"--path={self.folder}", "--once")

    def state(self, verb: str, *argv: str) -> Ran:
        """Runs a state verb on the namespace of this test, without the app's code."""
        return self.run(verb, *argv, f"--redis-url={self.url}", f"--namespace={self.namespace}")

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Starts a command as a process."""
        command = [sys.executable, "-W", "error", "-m", "dramatiq_distcron", *argv]
        return subprocess.Popen(
            command, cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
        )

    def refused(self, code: int, *argv: str) -> str:
        """The complaint of a ``beat`` that does not start: one line and no traceback."""
        ran = self.beat(*argv)
        assert (ran.code, ran.out) == (code, "")
        assert ran.err.startswith("dramatiq-distcron: ")
        assert ran.err.count("\n") == 1
        return ran.err.removeprefix("dramatiq-distcron: ").rstrip("\n")


STUB = """\
import dramatiq
from dramatiq.brokers.stub import StubBroker
from dramatiq_distcron import cron, every, install
broker = StubBroker()
distcron = install(broker)
dramatiq.set_broker(broker)
"""
NIGHTLY = """
@dramatiq.actor(periodic=cron("0 3 * * *", tz="Europe/Berlin"))
def nightly(): ...
"""
HOURLY = """
@dramatiq.actor(periodic=every(hours=1))
def hourly(): ...
"""
REPORT = """
@dramatiq.actor(periodic=cron("0 3 * * *", name="report:7", tz="Europe/Berlin", args=(7,)), queue_name="reports")
def report(tenant): ...
"""
TWO = REPORT + HOURLY


def forget_modules() -> None:
    """Apps are imported anew: another version of one may have been written meanwhile."""
    for name in list(sys.modules):
        if name.startswith("app_"):
            del sys.modules[name]
    importlib.invalidate_caches()


def set_due(app: App, client: Any, name: str, fire_time: int) -> None:
    client.zadd(f"{app.namespace}:distcron:default:due", {name: fire_time})


def assert_iso(*values: Any) -> None:
    for value in values:
        assert ISO.fullmatch(value), value


def line_of(process: subprocess.Popen[str], what: str) -> str:
    """The first line of the log that contains ``what``."""
    assert process.stderr is not None
    for line in process.stderr:
        if what in line:
            return line
    raise AssertionError(f"it ended with {process.wait()} and did not say {what!r}")
