"""Child processes that do not outlive their parent, whatever ends it.

A test reads the output of the parent to its end: the end comes when the last process that can write there is gone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dramatiq_distcron
from dramatiq_distcron import _launcher, _processes
from dramatiq_distcron.errors import ConfigurationError, ServerError
from dramatiq_distcron.server import release, spawn

REPOSITORY = Path(dramatiq_distcron.__file__).parents[1]
MECHANISMS = ["signal", "pipe"] if sys.platform == "linux" else ["pipe"]
DEADLINE = 60.0
SLEEPER = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(1000)"]


@contextmanager
def parent(script: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that runs ``script`` and has said ``ready`` (or one of its children has)."""
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


def everyone_is_gone(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdout is not None
    return process.stdout.read() == b""


SPAWNING = """
import sys, threading, time
from dramatiq_distcron.server import spawn
thread = threading.Thread(target=spawn, args=(sys.argv[3:],), kwargs={"parent_death": sys.argv[1], "cwd": sys.argv[2]})
thread.start()
thread.join()
time.sleep(1000)
"""


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("last_signal", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_child_is_gone_when_its_parent_is(mechanism: str, last_signal: signal.Signals, tmp_path: Path) -> None:
    with parent(SPAWNING, mechanism, str(tmp_path), *SLEEPER) as process:
        process.send_signal(last_signal)
        assert everyone_is_gone(process)


FORKING = """
import os, sys, threading, time
from dramatiq_distcron.server import die_with_parent
expected = os.getpid()
if os.fork() == 0:
    if sys.argv[2] == "thread":
        thread = threading.Thread(target=die_with_parent, kwargs={"parent_death": sys.argv[1]})
        thread.start()
        thread.join()
    else:
        die_with_parent(expected, parent_death=sys.argv[1])
    print("ready", flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("caller", ["main", "thread"])
def test_a_fork_that_asks_for_it_is_gone_when_its_parent_is(mechanism: str, caller: str) -> None:
    with parent(FORKING, mechanism, caller) as process:
        process.kill()
        assert everyone_is_gone(process)


ORPHAN = """
import os, sys, time
from dramatiq_distcron.server import die_with_parent
expected = os.getpid()
if os.fork():
    print("ready", flush=True)
    os._exit(0)
while os.getppid() == expected:
    time.sleep(0.01)
die_with_parent(expected, parent_death=sys.argv[1])
print("still here", flush=True)
"""


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_fork_whose_parent_died_before_it_could_ask_is_gone_at_once(mechanism: str) -> None:
    with parent(ORPHAN, mechanism) as process:
        assert everyone_is_gone(process)


def test_a_child_whose_parent_died_before_the_signal_was_set_does_not_start() -> None:
    another_parent = str(os.getppid())
    launcher = [sys.executable, "-I", "-S", _launcher.__file__, another_parent, "0", "-1", "", "0"]
    ended = subprocess.run(
        [*launcher, shutil.which("echo") or "", "echo", "started"], stdout=subprocess.PIPE, check=False
    )
    assert ended.returncode == _launcher.PARENT_IS_GONE
    assert ended.stdout == b""


GRANDPARENT = """
import sys, time
from dramatiq_distcron.server import spawn
spawn([sys.executable, "-c", sys.argv[2], sys.argv[1], "main"], parent_death=sys.argv[1])
time.sleep(1000)
"""


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_grandchild_that_asks_for_it_is_gone_with_the_grandparent(mechanism: str) -> None:
    with parent(GRANDPARENT, mechanism, FORKING) as process:
        process.kill()
        assert everyone_is_gone(process)


LEAVING_A_FILE = """
import pathlib, sys, time
from dramatiq_distcron.server import spawn
directory = pathlib.Path(sys.argv[2])
(directory / "inner").mkdir()
child = spawn(["true"], remove=[directory], parent_death=sys.argv[1])
child.wait()
spawn(["echo", "ready"], parent_death=sys.argv[1]).wait()
time.sleep(1000)
"""


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_files_to_remove_go_with_the_parent_even_if_the_child_ended_before(mechanism: str, tmp_path: Path) -> None:
    directory = tmp_path / "private"
    directory.mkdir()
    with parent(LEAVING_A_FILE, mechanism, str(directory)) as process:
        assert directory.exists()
        process.kill()
        deadline = time.monotonic() + DEADLINE
        while directory.exists():
            assert time.monotonic() < deadline, "the directory is still there"
            time.sleep(0.02)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_child_gets_exactly_the_environment_it_is_given(mechanism: Any) -> None:
    environ = {"ONE": "1", "PYTHONHOME": "/nowhere", "LC_ALL": ""}
    child = spawn(["env"], env=environ, stdout=subprocess.PIPE, parent_death=mechanism)
    output, _ = child.communicate()
    assert dict(line.split("=", 1) for line in output.decode().splitlines()) == environ


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_child_has_its_streams_directory_and_exit_code(mechanism: Any, tmp_path: Path) -> None:
    child = spawn(
        ["sh", "-c", "cat; pwd; echo trouble >&2; exit 7"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        parent_death=mechanism,
    )
    output, errors = child.communicate(b"hello ")
    assert output == f"hello {tmp_path}\n".encode()
    assert errors == b"trouble\n"
    assert child.returncode == 7


def test_the_end_of_a_childs_output_is_seen_at_its_end_whatever_the_watcher_does(tmp_path: Path) -> None:
    child = spawn(["echo", "hello"], stdout=subprocess.PIPE, remove=[tmp_path / "none"])
    assert child.communicate(timeout=DEADLINE)[0] == b"hello\n"
    release(child)


def test_a_child_ignores_no_signal_that_python_ignores() -> None:
    assert spawn(["sh", "-c", "kill -PIPE $$"]).wait() == -signal.SIGPIPE


BLOCKING = """
import signal, sys
from dramatiq_distcron.server import spawn
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
child = spawn(["sh", "-c", "kill -TERM $$; exit 0"])
print("ready" if child.wait() == -signal.SIGTERM else "blocked", flush=True)
"""


def test_a_child_blocks_no_signal_that_its_parent_blocks() -> None:
    with parent(BLOCKING):
        pass


def test_a_program_that_does_not_exist_is_an_error_at_once() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        spawn(["no-such-program"])


def test_a_program_that_cannot_be_executed_says_so_and_ends_with_127(tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense"
    nonsense.write_bytes(b"\x7fELF nonsense")
    nonsense.chmod(0o755)
    child = spawn([nonsense], stderr=subprocess.PIPE)
    assert child.communicate()[1] == f"cannot execute {nonsense}: Exec format error\n".encode()
    assert child.returncode == 127


def test_a_child_nobody_will_hold_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Future):  # type: ignore[type-arg]
        interrupted = False

        def result(self, timeout: float | None = None) -> Any:
            if not self.interrupted:
                self.interrupted = True
                raise KeyboardInterrupt
            return super().result(timeout)

    read_end, write_end = os.pipe()
    monkeypatch.setattr(_processes, "Future", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        spawn(SLEEPER, stdout=write_end, stderr=write_end)
    os.close(write_end)
    with open(read_end, "rb") as output:
        assert output.read() in (b"", b"ready\n")


def test_children_that_ended_cost_no_file_descriptor() -> None:
    spawn(["true"], parent_death="pipe").wait()
    spawn(["true"], parent_death="pipe").wait()
    before = len(os.listdir("/dev/fd"))
    for _ in range(10):
        spawn(["true"], parent_death="pipe").wait()
    assert len(os.listdir("/dev/fd")) <= before


def test_where_the_kernel_has_no_such_signal_a_watcher_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ConfigurationError, match='use "pipe" or "auto"'):
        spawn(["true"], parent_death="signal")
    assert spawn(["true"]).wait() == 0


def test_a_python_that_does_not_know_itself_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(ServerError, match=r"sys\.executable is empty"):
        spawn(["true"])
