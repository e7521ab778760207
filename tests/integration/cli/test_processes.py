"""Beats as processes: signals, pid files, logs."""

from __future__ import annotations

import json
import re
import signal
import subprocess

import pytest

from tests.integration.cli.apps import NIGHTLY, SECRET, TWO, App, Start, line_of


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_beat_ends_well_when_it_is_told_to(app: App, start: Start, number: signal.Signals) -> None:
    process = start("beat", app.stub(NIGHTLY))
    line_of(process, "Leading since")
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in err


def test_a_beat_under_nohup_outlives_its_terminal(app: App, start: Start) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start("beat", app.stub(NIGHTLY))
    finally:
        signal.signal(signal.SIGHUP, before)
    line_of(process, "Leading since")
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_beat_keeps_its_pid_file_as_long_as_it_runs(app: App, start: Start) -> None:
    file = app.folder / "beat.pid"
    process = start("beat", app.stub(NIGHTLY), "--pid-file", str(file))
    line_of(process, "Leading since")
    assert file.read_text().strip() == str(process.pid)
    process.terminate()
    process.communicate(timeout=60)
    assert not file.exists()


def test_a_second_beat_does_not_take_the_pid_file_of_the_first(app: App, start: Start) -> None:
    file, name = app.folder / "beat.pid", app.stub(NIGHTLY)
    first = start("beat", name, "--pid-file", str(file))
    line_of(first, "Leading since")
    ran = app.beat(name, "--pid-file", str(file))
    assert ran.code == 4
    assert f"a beat runs as process {first.pid}" in ran.err
    assert file.read_text().strip() == str(first.pid)


def test_a_pid_file_that_is_something_else_or_cannot_be_written_is_refused(app: App) -> None:
    other = app.folder / "important"
    other.write_text("data")
    name = app.stub(NIGHTLY)
    assert "is not a pid file" in app.refused(4, name, "--pid-file", str(other))
    assert "cannot be written" in app.refused(4, name, "--pid-file", str(app.folder / "missing" / "beat.pid"))
    assert other.read_text() == "data"


def test_the_pid_file_of_a_beat_that_was_killed_is_taken_over(app: App, start: Start) -> None:
    file, name = app.folder / "beat.pid", app.stub(NIGHTLY)
    first = start("beat", name, "--pid-file", str(file))
    line_of(first, "Leading since")
    first.kill()
    first.communicate()
    assert file.exists()
    assert app.beat(name, "--pid-file", str(file)).code == 0
    assert not file.exists()


def test_the_log_goes_to_stderr_and_the_schedules_to_stdout(app: App, start: Start) -> None:
    out, err = start("beat", app.stub(NIGHTLY), "--once").communicate(timeout=60)
    assert out.startswith("SCHEDULE")
    assert "nightly" not in err.partition("Schedules added")[0]
    assert re.search(r"\[PID \d+\] \[MainThread\] \[dramatiq_distcron\.\S+\] \[INFO\] ", err)


def test_the_log_may_be_json_lines_in_a_file(app: App, start: Start) -> None:
    file = app.folder / "beat.log"
    process = start("beat", app.stub(NIGHTLY), "--once", "--log-file", str(file), "--log-format", "json")
    assert process.communicate(timeout=60)[1] == ""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)


def test_a_log_file_that_cannot_be_written_is_refused_in_one_line(app: App, start: Start) -> None:
    process = start("beat", app.stub(NIGHTLY), "--once", "--log-file", str(app.folder / "missing" / "beat.log"))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Traceback" not in err
    assert "beat.log" in err


def test_with_logging_left_to_the_app_nothing_is_set_up(app: App, start: Start) -> None:
    _, err = start("beat", app.on_redis(NIGHTLY), "--once", "--skip-logging").communicate(timeout=60)
    assert err == ""


def test_verbose_shows_more(app: App, start: Start) -> None:
    head = "import logging\nlogging.getLogger('app').debug('from the app')\n"
    quiet, loud = (
        start("beat", app.stub(NIGHTLY, head=head), "--once", *more).communicate(timeout=60)[1] for more in ([], ["-v"])
    )
    assert "from the app" not in quiet
    assert "from the app" in loud


def test_without_redis_a_beat_names_it_at_once_and_waits(app: App, start: Start, closed_port: int) -> None:
    process = start("beat", app.on_redis(TWO, url=f"redis://:{SECRET}@127.0.0.1:{closed_port}/0"))
    line = line_of(process, "does not answer")
    assert f"redis://:***@127.0.0.1:{closed_port}/0" in line
    assert process.poll() is None
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert SECRET not in line + out + err


def test_a_reader_that_has_seen_enough_is_no_error(shop: App, start: Start) -> None:
    process = start("list", f"--redis-url={shop.url}", f"--namespace={shop.namespace}")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0
