"""One suite on every store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from dramatiq.brokers.redis import RedisBroker
from dramatiq.brokers.stub import StubBroker

from dramatiq_distcron.backends import open_backend
from dramatiq_distcron.config import Settings
from dramatiq_distcron.server import Server
from tests.conformance.hands import Hands, HandsInMemory, HandsOnRedis
from tests.support import Rig


@pytest.fixture(params=["memory", "redis"])
def rig(request: pytest.FixtureRequest, namespace: str) -> Iterator[Rig]:
    broker: Any
    if request.param == "memory":
        broker = StubBroker()
    else:
        server: Server = request.getfixturevalue("server")
        broker = RedisBroker(url=server.url, namespace=namespace)
    broker.declare_queue("default")
    broker.declare_queue("broken")
    rig = Rig(broker, open_backend(broker, Settings()))
    yield rig
    if request.param == "redis":
        broker.client.close()


@pytest.fixture
def hands(rig: Rig) -> Hands:
    """A worker of the same broker, and a lease for whoever fires."""
    rig.lead()
    return HandsInMemory(rig) if isinstance(rig.broker, StubBroker) else HandsOnRedis(rig)


@pytest.fixture
def break_queue(rig: Rig) -> Any:
    """Makes a queue refuse messages."""

    def do() -> None:
        if isinstance(rig.broker, StubBroker):
            del rig.broker.queues["broken"]
        else:
            rig.broker.client.set(f"{rig.broker.namespace}:broken", "not a list")

    return do
