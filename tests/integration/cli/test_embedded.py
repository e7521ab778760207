"""``server`` and ``dev`` as processes: ports, directories, and apps that look elsewhere."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from dramatiq_distcron.server import Server, find_free_port
from tests.integration.cli.apps import TWO, App, Start


@pytest.fixture(autouse=True)
def _this_server(monkeypatch: pytest.MonkeyPatch, server_binary: Path | None) -> None:
    if server_binary is not None:
        monkeypatch.setenv("DISTCRON_SERVER_BINARY", str(server_binary))


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code, and what it said to stderr."""
    _, err = process.communicate(timeout=60)
    return process.returncode, err


@pytest.fixture
def at() -> Iterator[Any]:
    """Clients by URL."""
    clients: list[Any] = []

    def connect(url: str) -> Any:
        clients.append(redis.Redis.from_url(url))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


# -- server -------------------------------------------------------------------------------------------------


def test_a_server_on_the_port_that_is_asked_for_prints_its_url_first_and_ends_well(
    app: App, start: Start, at: Any
) -> None:
    port = find_free_port()
    process = start("server", "--port", str(port))
    assert first_line(process) == f"redis://127.0.0.1:{port}/0"
    assert at(f"redis://127.0.0.1:{port}/0").ping()
    process.terminate()
    assert ended(process) == (0, "")


def test_a_port_that_is_taken_is_refused_with_the_reason(app: App, start: Start, server: Server) -> None:
    code, err = ended(start("server", "--port", str(server.port)))
    assert code == 3
    assert err.startswith("dramatiq-distcron: The server ")
    assert f"port {server.port} is taken" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("port", ["0", "65536", "-1", "x"])
def test_what_is_no_port_is_refused(app: App, port: str) -> None:
    ran = app.run("server", f"--port={port}")
    assert (ran.code, ran.out) == (2, "")
    assert "argument --port: " in ran.err


def test_a_directory_keeps_the_data_for_the_next_server(app: App, start: Start, at: Any) -> None:
    for expected in (None, b"kept"):
        process = start("server", "--directory", "data")
        client = at(first_line(process))
        assert client.get("key") == expected
        client.set("key", "kept")
        process.kill()
        process.communicate(timeout=60)
    assert (app.folder / "data").stat().st_mode & 0o777 == 0o700


def test_a_directory_that_another_server_uses_is_refused(app: App, start: Start) -> None:
    first = start("server", "--directory", "data")
    first_line(first)
    code, err = ended(start("server", "--directory", "data"))
    assert code == 3
    assert err == (
        f"dramatiq-distcron: Another server keeps its data in {app.folder / 'data'}. Two would overwrite each other's: "
        "stop it, or name another directory.\n"
    )
    first.terminate()
    assert ended(first)[0] == 0
    third = start("server", "--directory", "data")
    assert first_line(third).startswith("redis://")


def test_a_directory_that_cannot_be_made_is_refused_with_the_reason(app: App) -> None:
    (app.folder / "file").write_text("data")
    ran = app.run("server", "--directory", str(app.folder / "file"))
    assert (ran.code, ran.out) == (2, "")
    assert "cannot be used for a server's data" in ran.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_server_and_dev_end_well_when_they_are_told_to_or_their_terminal_is_closed(
    app: App, start: Start, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = app.folder / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    for argv in (["server"], ["dev", app.on_redis(TWO)]):
        process = start(*argv)
        assert "redis://" in first_line(process)
        process.send_signal(number)
        assert ended(process)[0] == 0
    assert list(temporary.iterdir()) == []


# -- dev ----------------------------------------------------------------------------------------------------


def test_dev_starts_nothing_for_an_app_that_looks_elsewhere(app: App, start: Start, client: Any) -> None:
    """It may be production: no schedule is stored there, and no message is taken."""
    assert ended(start("dev", app.on_redis(TWO)))[0] == 5
    assert client.keys(f"{app.namespace}:*") == []


def test_dev_says_where_the_app_looks_and_how_to_let_it_find_the_server(app: App, start: Start) -> None:
    out, _ = start("dev", app.on_redis(TWO)).communicate(timeout=60)
    server = out.partition("Server: ")[2].partition(",")[0]
    assert f"The app's broker is at {app.url}, and dev runs its own server at {server}: nothing was started" in out
    assert 'RedisBroker(url=os.environ["DISTCRON_REDIS_URL"])' in out
    assert "worker |" not in out


def test_dev_starts_no_worker_for_an_app_that_cannot_be_loaded(app: App, start: Start) -> None:
    process = start("dev", app.module("1 / 0"))
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "ZeroDivisionError" in out
    assert "worker |" not in out
