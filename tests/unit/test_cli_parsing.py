"""The command line before it does anything: arguments, exit codes, pid files, and how results look."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramatiq_distcron import (
    ConfigurationError,
    ConflictError,
    DistCronError,
    NotFoundError,
    ScheduleError,
    StoreRefused,
    StoreUnavailable,
)
from dramatiq_distcron import cli as commands
from dramatiq_distcron.cli import main
from dramatiq_distcron.cli.exits import Exit, PidFileError, exit_code_of
from dramatiq_distcron.cli.loading import LoadError
from dramatiq_distcron.cli.logging_setup import _JsonFormatter
from dramatiq_distcron.cli.output import ago, instant, print_json, print_table
from dramatiq_distcron.cli.pid_file import pid_file
from dramatiq_distcron.errors import ServerError
from dramatiq_distcron.version import VERSION

Capture = pytest.CaptureFixture[str]


def parsed(*argv: str) -> Any:
    return commands._parser().parse_args(argv)


def refused(capsys: Capture, *argv: str) -> str:
    """The one line of complaint; the exit code is that of a wrong usage."""
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.rstrip("\n").rpartition("\n")[2]


# -- beat takes what periodiq takes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "broker", "modules", "path", "verbose"),
    [
        (["app"], "app", [], ["."], 0),
        (["app:broker"], "app:broker", [], ["."], 0),
        (["app", "app.tasks", "other"], "app", ["app.tasks", "other"], ["."], 0),
        (["app", "-v"], "app", [], ["."], 1),
        (["app", "-vv"], "app", [], ["."], 2),
        (["--verbose", "app", "tasks"], "app", ["tasks"], ["."], 1),
        (["app", "--verbose", "--verbose"], "app", [], ["."], 2),
        (["app", "-P", "src"], "app", [], ["src"], 0),
        (["app", "tasks", "--path", "src", "lib"], "app", ["tasks"], ["src", "lib"], 0),
        (["--path", "src", "--", "app", "tasks"], "app", ["tasks"], ["src"], 0),
        (["-P", "src", "-v", "app"], "app", [], ["src"], 1),
    ],
)
def test_beat_takes_the_arguments_of_periodiq(
    argv: list[str], broker: str, modules: list[str], path: list[str], verbose: int
) -> None:
    found = parsed("beat", *argv)
    assert (found.broker, found.modules, found.path, found.verbose) == (broker, modules, path, verbose)


def test_beat_has_its_own_options() -> None:
    found = parsed("beat", "app", "--pid-file", "p", "--log-file", "l", "--log-format", "json", "--once")
    assert (found.pid_file, found.log_file, found.log_format, found.once) == ("p", "l", "json", True)
    assert parsed("beat", "app", "--lease-ttl", "1.5").lease_ttl == 1500
    assert parsed("beat", "app", "--skip-logging").skip_logging


def test_beat_adopts_only_when_it_is_told_to() -> None:
    assert parsed("beat", "app").adopt is False
    assert parsed("beat", "app", "--adopt").adopt is True


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), ("3d", 259_200)])
def test_a_pause_may_be_given_an_end(text: str, seconds: float) -> None:
    found = parsed("pause", "job", "--for", text, "--reason", "unpaid")
    assert (found.name, found.duration, found.reason) == ("job", seconds, "unpaid")


def test_a_pause_has_neither_end_nor_reason_unless_it_is_given_one() -> None:
    found = parsed("pause", "job")
    assert (found.duration, found.reason) == (None, "")


@pytest.mark.parametrize("value", ["0", "0s", "36501d", "9999999d"])
def test_a_pause_of_no_length_or_for_ever_is_refused_with_what_to_do(capsys: Capture, value: str) -> None:
    message = refused(capsys, "pause", "job", f"--for={value}")
    assert message.endswith(
        "argument --for: a pause lasts more than 0 s and at most 36500d; without --for it lasts until resume"
    )


@pytest.mark.parametrize("value", ["soon", "-5m", "", "1w"])
def test_a_pause_for_what_is_no_duration_is_refused(capsys: Capture, value: str) -> None:
    assert f"argument --for: {value!r} is not a duration" in refused(capsys, "pause", "job", f"--for={value}")


def test_next_shows_ten_unless_told_otherwise() -> None:
    assert parsed("next").limit == 10
    assert parsed("next", "-n", "3").limit == 3


@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5", "²"])
def test_next_shows_at_least_one(capsys: Capture, value: str) -> None:
    assert f"argument -n/--limit: {value!r} is not a whole number from 1" in refused(capsys, "next", f"-n={value}")


def test_without_options_beat_leaves_the_lease_to_the_app() -> None:
    found = parsed("beat", "app")
    assert (found.lease_ttl, found.pid_file, found.log_file, found.log_format) == (None, None, None, "text")
    assert (found.once, found.skip_logging) == (False, False)


@pytest.mark.parametrize("argv", [["--version"], ["beat", "--version"]])
def test_the_version_is_told(capsys: Capture, argv: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{VERSION}\n"


def test_the_package_can_be_run_as_a_module() -> None:
    command = [sys.executable, "-W", "error", "-m", "dramatiq_distcron", "--version"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == (f"{VERSION}\n", "")


def test_run_as_a_module_it_ends_with_the_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(sys, "argv", ["dramatiq-distcron", "list", "--app", "no app"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("dramatiq_distcron", run_name="__main__")
    assert ended.value.code == 2


@pytest.mark.parametrize("command", ["beat", "demo", "server", "dev", "list", "history", "status", "trigger"])
def test_every_command_explains_itself(capsys: Capture, command: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"usage: dramatiq-distcron {command}" in capsys.readouterr().out


def test_the_overview_names_every_command(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    for command in ("beat", "demo", "server", "dev", "list", "history", "status", "trigger"):
        assert re.search(rf"^ +{command} +\S", out, re.MULTILINE)


# -- wrong usage --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "meant"), [("beet", "beat"), ("lst", "list"), ("triger", "trigger")])
def test_an_unknown_command_is_refused_with_a_suggestion(capsys: Capture, command: str, meant: str) -> None:
    assert refused(capsys, command).endswith(f"error: {command!r} is not known here. Did you mean {meant!r}?")


def test_an_unknown_command_that_is_like_no_other_is_refused_with_all_of_them(capsys: Capture) -> None:
    known = "beat, check, demo, dev, dlq, explain, history, list, next, pause, remove, resume, retries, server, show, "
    known += "status, trigger"
    assert f"Known: {known}." in refused(capsys, "xyz")


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["beat", "app", "--lease-tll", "3"], "--lease-ttl"),
        (["beat", "app", "--lease_ttl=3"], "--lease-ttl"),
        (["beat", "app", "--pidfile", "x"], "--pid-file"),
        (["list", "--jsn"], "--json"),
        (["history", "job", "--redis-ulr", "x"], "--redis-url"),
        (["demo", "--durations", "5"], "--duration"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_an_unknown_option_is_refused_with_a_suggestion(capsys: Capture, argv: list[str], meant: str) -> None:
    message = refused(capsys, *argv)
    assert message.startswith(f"dramatiq-distcron {argv[0]}: error: unrecognized arguments:")
    assert message.endswith(f"Did you mean {meant!r}?")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["explain", "0", "3", "app.py", "docs"], "Quote the expression: explain '0 3 * * *'."),
        (["pause", "x", "--for", "5", "min"], "a duration is one word: --for 15m."),
        (["pause", "x", "--reason", "too", "loud"], "Quote a reason of several words"),
        (["resume", "x", "y"], "See dramatiq-distcron resume --help."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_word_too_many_is_refused_with_what_was_meant(capsys: Capture, argv: list[str], told: str) -> None:
    message = refused(capsys, *argv)
    assert message.startswith(f"dramatiq-distcron {argv[0]}: error: unrecognized arguments:")
    assert told in message


@pytest.mark.parametrize("option", ["--verb", "--pid", "--log-form=json", "--on"])
def test_an_option_must_be_written_out(capsys: Capture, option: str) -> None:
    assert "unrecognized arguments" in refused(capsys, "beat", "app", option)


@pytest.mark.parametrize("option", ["--http=:8080", "--shadow"])
def test_an_option_that_is_not_built_yet_is_refused_and_not_ignored(capsys: Capture, option: str) -> None:
    assert f"unrecognized arguments: {option}" in refused(capsys, "beat", "app", option)


@pytest.mark.parametrize("command", ["doctor", "healthcheck"])
def test_a_command_that_is_not_built_yet_is_refused_and_not_ignored(capsys: Capture, command: str) -> None:
    assert f"{command!r} is not known here" in refused(capsys, command, "x")


NEED_SOMETHING = [
    [],
    *([verb] for verb in ("beat", "dev", "check", "explain", "trigger", "show", "pause", "resume", "remove")),
]


@pytest.mark.parametrize("argv", NEED_SOMETHING, ids=" ".join)
def test_what_is_missing_is_told(capsys: Capture, argv: list[str]) -> None:
    assert "the following arguments are required" in refused(capsys, *argv)


@pytest.mark.parametrize("command", ["beat", "check", "dev"])
def test_a_broker_that_was_taken_for_a_path_is_told_so(capsys: Capture, command: str) -> None:
    told = "--path takes all words up to the next option, so put BROKER before it"
    assert refused(capsys, command, "-P", "/srv/app", "app").endswith(told)
    assert told not in refused(capsys, command)


def test_only_what_is_needed_is_asked_for(capsys: Capture) -> None:
    """Modules may be named, but need not be."""
    assert refused(capsys, "beat").endswith("the following arguments are required: BROKER")


@pytest.mark.parametrize("value", ["0", "0.1", "0.499"])
def test_a_lease_that_is_too_short_is_refused_with_what_to_do(capsys: Capture, value: str) -> None:
    message = refused(capsys, "beat", "app", "--lease-ttl", value)
    assert "argument --lease-ttl: " in message
    assert "is shorter than it can be renewed" in message
    assert message.endswith("Use at least 0.5 s; the default is 3 s.")


@pytest.mark.parametrize(
    ("value", "told"), [("x", "'x' is not a duration"), ("", "'' is not a duration"), ("nan", "nan")]
)
def test_a_lease_that_is_no_number_is_refused(capsys: Capture, value: str, told: str) -> None:
    message = refused(capsys, "beat", "app", "--lease-ttl", value)
    assert "argument --lease-ttl: " in message
    assert told in message


@pytest.mark.parametrize(("value", "ms"), [("3s", 3000), ("1m", 60_000)])
def test_a_lease_may_be_written_as_any_duration_on_the_command_line(value: str, ms: int) -> None:
    assert parsed("beat", "app", "--lease-ttl", value).lease_ttl == ms


def test_a_format_of_the_log_that_is_not_known_is_refused(capsys: Capture) -> None:
    assert refused(capsys, "beat", "app", "--log-format", "xml").endswith("'xml' is not known here. Known: json, text.")


@pytest.mark.parametrize("value", ["0", "4.9", "3601", "-5", "nan", "inf", "x"])
def test_a_demonstration_that_is_too_short_or_endless_is_refused(capsys: Capture, value: str) -> None:
    assert "argument --duration: " in refused(capsys, "demo", f"--duration={value}")


@pytest.mark.parametrize("value", ["x", "1.5", "0", "-1"])
def test_a_number_of_records_that_is_none_is_refused(capsys: Capture, value: str) -> None:
    assert "argument -n/--limit: " in refused(capsys, "history", "job", f"--limit={value}")


# -- exit codes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LoadError("x"), 2),
        (ConfigurationError("x"), 2),
        (ScheduleError("x"), 2),
        (StoreUnavailable("x"), 3),
        (StoreRefused("x"), 3),
        (ServerError("x"), 3),
        (PidFileError("x"), 4),
        (ConflictError("x"), 5),
        (NotFoundError("x"), 7),
        (DistCronError("x"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_has_an_exit_code(error: DistCronError, code: int) -> None:
    assert exit_code_of(error) == code


def test_the_exit_codes_are_those_of_dramatiq_and_ours_after_them() -> None:
    assert {exit.name: exit.value for exit in Exit} == {
        "OK": 0,
        "KILLED": 1,
        "IMPORT": 2,
        "CONNECTION": 3,
        "PID_FILE": 4,
        "CONFLICT": 5,
        "FINDINGS": 6,
        "NOT_FOUND": 7,
        "PARTLY": 8,
    }


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes ``list`` end with an error."""

    def end_with(error: BaseException) -> None:
        def fail(args: Any) -> int:
            raise error

        monkeypatch.setattr("dramatiq_distcron.cli.state._list", fail)

    return end_with


def test_an_error_of_ours_is_one_line_and_no_traceback(capsys: Capture, ending: Any) -> None:
    ending(NotFoundError("There is no schedule 'x'."))
    assert main(["list"]) == 7
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "dramatiq-distcron: There is no schedule 'x'.\n")


def test_a_fault_of_ours_is_not_hidden(ending: Any) -> None:
    ending(RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="a bug"):
        main(["list"])


def test_ctrl_c_ends_with_its_own_code(capsys: Capture, ending: Any) -> None:
    ending(KeyboardInterrupt())
    assert main(["list"]) == Exit.KILLED
    assert capsys.readouterr().err == ""


# -- pid files ----------------------------------------------------------------------------------------------


def test_without_a_name_there_is_no_pid_file() -> None:
    with pid_file(None):
        pass


def test_a_pid_file_holds_our_pid_and_is_gone_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "beat.pid"
    with pid_file(str(file)):
        assert file.read_text() == str(os.getpid())
    assert not file.exists()


def test_a_pid_file_is_gone_after_an_error_as_well(tmp_path: Path) -> None:
    file = tmp_path / "beat.pid"
    with pytest.raises(StoreUnavailable), pid_file(str(file)):
        raise StoreUnavailable("x")
    assert not file.exists()


def ended_process() -> int:
    """The pid of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize("ending", ["", "\n"])
def test_the_pid_file_of_a_process_that_is_gone_is_taken_over(tmp_path: Path, ending: str) -> None:
    file = tmp_path / "beat.pid"
    file.write_text(f"{ended_process()}{ending}")
    with pid_file(str(file)):
        assert file.read_text() == str(os.getpid())


def test_our_own_pid_from_before_a_restart_of_the_container_is_taken_over(tmp_path: Path) -> None:
    file = tmp_path / "beat.pid"
    file.write_text(str(os.getpid()))
    with pid_file(str(file)):
        assert file.read_text() == str(os.getpid())


def test_the_pid_file_of_a_running_process_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "beat.pid"
    file.write_text(str(os.getppid()))
    with pytest.raises(PidFileError, match=f"a beat runs as process {os.getppid()}"), pid_file(str(file)):
        pass
    assert file.read_text() == str(os.getppid())


@pytest.mark.parametrize(
    "content",
    [b"important data", b"12 13", b"-1", b"\xff\xfe\x00", "²".encode(), b"9" * 30, b"0"],
    ids=["text", "two numbers", "negative", "binary", "superscript", "huge", "zero"],
)
def test_a_file_that_is_no_pid_file_is_left_alone(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "important"
    file.write_bytes(content)
    with pytest.raises(PidFileError, match="is not a pid file"), pid_file(str(file)):
        pass
    assert file.read_bytes() == content


def test_a_pid_file_that_cannot_be_written_is_refused_with_the_reason(tmp_path: Path) -> None:
    for name, reason in (
        (tmp_path / "missing" / "beat.pid", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(PidFileError, match=f"cannot be written: {reason}"), pid_file(str(name)):
            pass


# -- how results look ---------------------------------------------------------------------------------------


def test_columns_are_as_wide_as_their_widest_cell_and_nothing_is_cut(capsys: Capture) -> None:
    print_table(["NAME", "N"], [("a", 1), ("a long name", 22)])
    assert capsys.readouterr().out == "NAME         N\na            1\na long name  22\n"


def test_a_table_without_rows_is_its_head(capsys: Capture) -> None:
    print_table(["NAME", "N"], [])
    assert capsys.readouterr().out == "NAME  N\n"


def test_json_is_one_line_and_keeps_every_script(capsys: Capture) -> None:
    print_json({"name": "nächtlich 夜"})
    assert capsys.readouterr().out == '{"name": "nächtlich 夜"}\n'


def test_instants_are_shown_in_utc_with_milliseconds() -> None:
    assert instant(1_774_746_000_007) == "2026-03-29T01:00:00.007Z"
    assert instant(0) == "1970-01-01T00:00:00.000Z"
    assert instant(None) is None


@pytest.mark.parametrize(
    ("distance", "told"),
    [
        (0, "in 0 s"),
        (59_000, "in 59 s"),
        (-1000, "1 s ago"),
        (60_000, "in 1 min"),
        (-7_200_000, "2 h ago"),
        (172_800_000, "in 2 d"),
    ],
)
def test_people_are_told_how_far_away_an_instant_is(distance: int, told: str) -> None:
    now = 1_774_746_000_000
    assert ago(now + distance, now).endswith(f"Z ({told})")


def test_no_instant_is_a_dash() -> None:
    assert ago(None, 0) == "-"


@given(st.integers(0, 253_402_300_799_999), st.integers(0, 253_402_300_799_999))
def test_any_instant_can_be_shown(ms: int, now: int) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ \((in \d+ \w+|\d+ \w+ ago)\)", ago(ms, now))


def test_a_log_line_in_json_is_one_object_with_its_traceback() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("a.b", logging.ERROR, "f.py", 1, "failed: %s", ("ü",), sys.exc_info())
    record.created = 1_774_746_000.007
    text = _JsonFormatter().format(record)
    line = json.loads(text)
    assert "\n" not in text
    assert line["time"] == "2026-03-29T01:00:00.007+00:00"
    assert (line["level"], line["logger"], line["message"], line["pid"]) == ("ERROR", "a.b", "failed: ü", os.getpid())
    assert "ValueError: two\nlines" in line["exception"]


# -- what is printed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_what_a_terminal_cannot_show_is_written_in_escapes_and_json_stays_json(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """Names and reasons are the users', down to half characters from an argument that was no UTF-8."""
    text = "día \udce9 日"
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    assert main(["explain", "0 3 * * *"]) == 0
    print_table([text], [[text]])
    print_json({"reason": text})
    sys.stdout.flush()
    assert json.loads(raw.getvalue().decode(encoding).splitlines()[-1]) == {"reason": text}
