"""Beats in this process, and servers of a test's own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import dramatiq
import pytest

from dramatiq_distcron import DistCron
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.server import Server


class Running:
    """A beat in a thread."""

    def __init__(self, distcron: DistCron, lease_ttl: int | None = None) -> None:
        self.beat = Beat(distcron, lease_ttl=lease_ttl)
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.beat.run()
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        self.beat.stop()
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.fixture
def start_beat() -> Iterator[Callable[..., Running]]:
    """Starts beats that are stopped at the end of the test."""
    running: list[Running] = []

    def start(distcron: DistCron, lease_ttl: int | None = None) -> Running:
        running.append(Running(distcron, lease_ttl))
        return running[-1]

    yield start
    for one in running:
        one.stop()


@pytest.fixture
def own(server_binary: Path | None) -> Iterator[Server]:
    """A server of this test's own, to be ill-treated."""
    with Server(server_binary) as running:
        yield running


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dramatiq's own pauses, which are nothing to these tests."""
    monkeypatch.setattr(dramatiq.worker, "POST_PROCESS_MESSAGE_RETRY_DELAY_SECS", 0.05)
    monkeypatch.setattr(dramatiq.worker, "CONSUMER_RESTART_DELAY_SECS", 0.05)
