"""A beat in this process, on a real server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from dramatiq_distcron import DistCron
from dramatiq_distcron.beat import Beat


class Running:
    """A beat in a thread."""

    def __init__(self, distcron: DistCron, lease_ttl: int | None = None) -> None:
        self.beat = Beat(distcron, lease_ttl=lease_ttl)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.beat.run()
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        self.beat.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()


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
