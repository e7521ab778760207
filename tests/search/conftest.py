"""While a test of this level runs nothing else moves; at the end it is told what was searched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .stillness import still

_lines = pytest.StashKey[list[str]]()


@pytest.fixture(autouse=True)
def stillness() -> Iterator[None]:
    with still():
        yield


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Any:
    """Keeps a line for the end of the run."""
    return request.config.stash.setdefault(_lines, []).append


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        # On several processes of pytest: the one that reports gets the lines of the others.
        output["told"] = session.config.stash.get(_lines, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", None) or {}
    node.config.stash.setdefault(_lines, []).extend(output.get("told", []))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    lines = config.stash.get(_lines, [])
    if lines:
        terminalreporter.section("proof by search")
        for line in sorted(lines):
            terminalreporter.write_line(line)
