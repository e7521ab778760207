"""The configuration file an embedded server is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from dramatiq_distcron._server_config import Directives, checked, configuration
from dramatiq_distcron.errors import ConfigurationError
from dramatiq_distcron.server import Server, find_free_port


def lines(config: Directives | None = None, *, directory: Path | None = None) -> list[str]:
    text = configuration(checked(config or {}), port=7001, unix_socket=None, directory=directory)
    return text.decode().splitlines()


def test_the_server_listens_on_the_loopback_interface_only() -> None:
    assert {"bind 127.0.0.1 -::1", "protected-mode yes", "port 7001"} <= set(lines())


def test_without_a_directory_nothing_is_kept() -> None:
    assert {'save ""', "appendonly no", 'logfile ""', "repl-diskless-load swapdb"} <= set(lines())


def test_with_a_directory_every_write_is_kept(tmp_path: Path) -> None:
    expected = {f'dir "{tmp_path}"', "appendonly yes", "appendfsync always"}
    assert expected <= set(lines(directory=tmp_path))


def test_a_directive_replaces_ours_of_that_name_in_any_case(tmp_path: Path) -> None:
    written = lines({"AppendFsync": "everysec"}, directory=tmp_path)
    assert [line for line in written if line.lower().startswith("appendfsync")] == ["appendfsync everysec"]


def test_a_directive_may_be_repeated() -> None:
    assert lines({"user": ["a on +@all", "b off"]})[-2:] == ["user a on +@all", "user b off"]


def test_a_directive_of_several_words_keeps_their_case() -> None:
    assert lines({"Sentinel monitor Main": "127.0.0.1 7002 2"})[-1] == "sentinel monitor Main 127.0.0.1 7002 2"


def test_a_number_and_an_empty_value_are_written_as_the_server_reads_them() -> None:
    assert lines({"maxclients": 100, "requirepass": ""})[-2:] == ["maxclients 100", 'requirepass ""']


def test_a_path_with_blanks_quotes_and_control_characters_is_quoted() -> None:
    assert 'dir "/a b/\\x22c\\x22\\x0ad"' in lines(directory=Path('/a b/"c"\nd'))


@pytest.mark.parametrize("value", ["1mb\nport 1", "1mb\r", "1mb\0", ["1mb", "2mb\n"]])
def test_a_value_with_a_line_end_is_refused(value: str | list[str]) -> None:
    with pytest.raises(ConfigurationError, match="'maxmemory' has a line end in it"):
        checked({"maxmemory": value})


@pytest.mark.parametrize("name", ["", " maxmemory", "max\nmemory", "maxmemory\n", "# comment"])
def test_what_is_no_name_of_a_directive_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="not the name of a server directive"):
        checked({name: "1"})


@pytest.mark.parametrize(
    ("name", "hint"),
    [("port", "give port="), ("BIND", "loopback"), ("dir", "give directory="), ("logfile", "log_tail")],
)
def test_a_directive_that_is_ours_to_decide_is_refused_with_what_to_do(name: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=hint):
        checked({name: "x"})


def test_a_port_and_a_socket_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not on both"):
        Server("/bin/true", port=7001, unix_socket=tmp_path / "s")


def test_a_sentinel_takes_neither_socket_nor_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="leave out unix_socket= and directory="):
        Server("/bin/true", mode="sentinel", directory=tmp_path)


def test_a_socket_with_too_long_a_path_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="longer than the 103 bytes"):
        Server("/bin/true", unix_socket="/tmp/" + "x" * 100)


def test_a_free_port_is_none_that_clients_are_given() -> None:
    assert 20_000 <= find_free_port() < 32_768
