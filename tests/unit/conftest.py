"""Workers of a broker in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import dramatiq
import pytest
from dramatiq import Worker
from dramatiq.brokers.stub import StubBroker


@pytest.fixture
def start(stub_broker: StubBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Worker]]:
    """Starts workers that are stopped at the end of the test."""
    monkeypatch.setattr(dramatiq.worker, "POST_PROCESS_MESSAGE_RETRY_DELAY_SECS", 0.01)
    workers = []

    def do() -> Worker:
        worker = Worker(stub_broker, worker_timeout=5, worker_threads=1)
        worker.start()
        workers.append(worker)
        return worker

    yield do
    for worker in workers:
        worker.stop()
