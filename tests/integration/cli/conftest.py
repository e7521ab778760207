"""Fixtures of the command line's tests: an app in a folder of its own, a leader, processes."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dramatiq
import pytest
import redis
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import DistCron, every, install
from dramatiq_distcron.server import Server
from tests.integration.cli.apps import TWO, App, Capture, Patch, Start, forget_modules
from tests.integration.conftest import Running
from tests.support import wait_until


@pytest.fixture(autouse=True)
def _own_world(monkeypatch: Patch) -> Iterator[None]:
    """A command changes this process: what it imports, where from, which middlewares there are, who hears signals."""
    hear = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in [name for name in os.environ if name.startswith("DISTCRON_")]:
        monkeypatch.delenv(name)
    # Two versions of a module may be of the same second and length.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    yield
    for number, handler in hear.items():
        signal.signal(number, handler)
    forget_modules()
    # A beat freezes what is loaded; here, what is loaded goes.
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _no_hour_begins() -> None:
    """The schedules of these tests are hourly, and what they do not make due is not to become so in their midst."""
    left = 3600 - time.time() % 3600
    if left < 20:
        time.sleep(left)


@pytest.fixture
def app(tmp_path: Path, server: Server, namespace: str, capsys: Capture, monkeypatch: Patch) -> App:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    return App(tmp_path, server.url, namespace, capsys, monkeypatch)


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    client = redis.Redis.from_url(server.url)
    yield client
    client.close()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Nobody listens there, and while the test has it nobody else gets it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


@pytest.fixture
def shop(app: App) -> App:
    """An app whose beat ran once."""
    assert app.beat(app.on_redis(TWO)).code == 0
    return app


@pytest.fixture
def leader(app: App, redis_broker: RedisBroker, start_beat: Callable[..., Running]) -> Running:
    distcron: DistCron = install(redis_broker)

    @dramatiq.actor(broker=redis_broker, periodic=every(3600))
    def hourly() -> None: ...

    running = start_beat(distcron)
    wait_until(lambda: app.state("status", "--json").json["instances"], "a beat that told of itself")
    return running


@pytest.fixture
def start(app: App) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def do(*argv: str) -> subprocess.Popen[str]:
        running.append(app.start(*argv))
        return running[-1]

    yield do
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()
