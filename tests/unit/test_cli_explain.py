"""``explain`` and ``check``: what they print, for people and for programs, and how they end. Neither needs a server."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from weakref import WeakSet
from zoneinfo import ZoneInfo

import pytest

from dramatiq_distcron.cli import explain as explain_command
from dramatiq_distcron.cli import main
from dramatiq_distcron.cli.exits import Exit
from dramatiq_distcron.durations import instant_ms
from dramatiq_distcron.middleware import distcron as distcron_module
from tests.unit.world import BEGIN

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_command, "wall_ms", lambda: instant_ms(BEGIN, ""))


@pytest.fixture
def explain(capsys: Capture) -> Callable[..., Any]:
    def run(*argv: str) -> Any:
        assert main(["explain", *argv, "--json"]) == Exit.OK
        captured = capsys.readouterr()
        assert captured.err == ""
        return json.loads(captured.out)

    return run


# -- explain ------------------------------------------------------------------------------------------------


def test_explain_prints_a_sentence_the_next_times_and_what_to_note(capsys: Capture) -> None:
    assert main(["explain", "30 2 * * *", "--tz", "Europe/Berlin", "-n", "2"]) == Exit.OK
    assert capsys.readouterr().out.splitlines() == [
        "At 02:30 on every day.",
        "NEXT IN Europe/Berlin          UTC",
        "Thu 2026-01-01 02:30:00 +0100  2026-01-01 01:30:00Z  in 2 h",
        "Fri 2026-01-02 02:30:00 +0100  2026-01-02 01:30:00Z  in 1 d",
        "Note: in Europe/Berlin the clock skips 02:00 to 03:00 on 2026-03-29: what falls into it fires once, at 03:00.",
        "Note: in Europe/Berlin the clock repeats 02:00 to 03:00 on 2026-10-25: what falls into it fires the "
        "first time only.",
    ]


@pytest.mark.parametrize(
    ("start", "zone", "times"),
    [
        ("9999-12-31T23:57:00Z", "Asia/Tokyo", 3),
        ("9999-12-31T23:58:00Z", "UTC", 2),
        ("0001-01-01T00:00:00Z", "America/New_York", 3),
        ("0001-01-01T00:00:00Z", "Asia/Tokyo", 3),
    ],
)
def test_explain_goes_to_both_ends_of_the_calendar(capsys: Capture, start: str, zone: str, times: int) -> None:
    for form in ([], ["--json"]):
        assert main(["explain", "* * * * *", "-n", "3", "--from", start, "--tz", zone, *form]) == Exit.OK
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])["next"]) <= times


def test_more_fire_times_than_anybody_reads_are_refused(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["explain", "* * * * *", "-n", "99999999999"])
    assert "99999999999 fire times are too many; ask for at most 10000" in capsys.readouterr().err


def test_explain_gives_one_json_object(explain: Callable[..., Any]) -> None:
    assert explain("0 0 13 * 5", "-n", "2") == {
        "expression": "0 0 13 * 5",
        "timezone": "UTC",
        "description": "At 00:00 on day 13 of the month, and also on every Friday.",
        "next": ["2026-01-02T00:00:00.000Z", "2026-01-09T00:00:00.000Z"],
        "warnings": [
            "day-of-month '13' and day-of-week '5' are both restricted: a day matches if either does (cron's rule is "
            "OR, as neither starts with '*')"
        ],
    }


def test_explain_shows_five_times_unless_told_otherwise(explain: Callable[..., Any]) -> None:
    assert len(explain("* * * * *")["next"]) == 5
    assert len(explain("* * * * *", "--limit", "12")["next"]) == 12


def test_explain_begins_after_the_instant_it_is_given(explain: Callable[..., Any]) -> None:
    for start in ("2026-10-25T00:30:00Z", "2026-10-25T00:30Z", "2026-10-25T02:30+02:00"):
        told = explain("30 2 * * *", "--tz", "Europe/Berlin", "--from", start, "-n", "1")
        assert told["next"] == ["2026-10-26T01:30:00.000Z"]


def test_explain_tells_of_the_clock_changes_of_the_year_also_at_its_end(explain: Callable[..., Any]) -> None:
    told = explain("30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-11-30T00:00Z")["warnings"]
    assert [text.partition(" on ")[2].partition(":")[0] for text in told] == [
        "2026-03-29 and 2027-03-28",
        "2026-10-25 and 2027-10-31",
    ]


def test_explain_knows_where_the_seconds_are(explain: Callable[..., Any]) -> None:
    assert explain("30 * * * * *", "--seconds", "first", "-n", "1")["next"] == ["2026-01-01T00:00:30.000Z"]
    assert explain("* * * * * 30", "--seconds", "last", "-n", "1")["next"] == ["2026-01-01T00:00:30.000Z"]


def test_explain_takes_h_as_it_is_for_a_name(explain: Callable[..., Any]) -> None:
    named, other = (explain("H H * * *", "--name", name) for name in ("report:7", "report:8"))
    assert named["next"] != other["next"]
    assert named["warnings"] == []
    assert named["expression"] == "H H * * *"
    (warning,) = explain("H H * * *")["warnings"]
    assert "--name" in warning


def test_explain_ends_where_an_expression_does(explain: Callable[..., Any]) -> None:
    told = explain("0 0 1 1 *", "--from", "9998-06-01T00:00Z")
    assert told["next"] == ["9999-01-01T00:00:00.000Z"]


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["0 0 31 2 *"], "it never fires"),
        (["60 * * * *"], "out of range"),
        (["* * * * * 30"], "seconds='first'"),
        (["@reboot"], "run_at_start=True"),
        (["0 3 * * *", "--tz", "Berlin"], "did you mean 'Europe/Berlin'?"),
        (["0 3 * * *", "--tz", "+02:00"], "a fixed offset"),
        (["0 3 * * *", "--from", "2026-03-29"], "an instant with its zone"),
        (["0 3 * * *", "--from", "2026-03-29T00:00"], "an instant with its zone"),
        (["0 3 * * *", "--from", "tomorrow"], "an instant with its zone"),
    ],
)
def test_explain_refuses_what_it_cannot_use_with_what_to_do(capsys: Capture, argv: list[str], told: str) -> None:
    assert main(["explain", *argv, "--json"]) == Exit.IMPORT
    captured = capsys.readouterr()
    assert captured.out == ""
    assert told in captured.err
    assert len(captured.err.splitlines()) == 1


# -- check --------------------------------------------------------------------------------------------------

HEAD = """
import dramatiq
from datetime import datetime, timezone
from dramatiq.brokers.stub import StubBroker
from dramatiq_distcron import at, any_of, cron, every, install

broker = StubBroker()
install(broker, tz="Europe/Berlin")
dramatiq.set_broker(broker)

@dramatiq.actor(periodic=SCHEDULES)
def job(): ...
"""


@pytest.fixture
def check(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Runs check on an app with these schedules; gives the exit code, stdout and stderr."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(distcron_module, "_everywhere", WeakSet())
    monkeypatch.delitem(sys.modules, "checked_app", raising=False)

    def run(schedules: str, *argv: str) -> tuple[int, str, str]:
        (tmp_path / "checked_app.py").write_text(HEAD.replace("SCHEDULES", schedules), encoding="utf-8")
        code = main(["check", "checked_app", "--path", str(tmp_path), *argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    yield run
    sys.modules.pop("checked_app", None)


def test_check_shows_each_schedule_with_its_next_time(check: Callable[..., Any]) -> None:
    code, out, err = check("[cron('0 3 * * *', name='nightly'), every(hours=1, name='hourly')]")
    assert (code, err) == (Exit.OK, "")
    assert out.splitlines() == [
        "SCHEDULE  WHEN           ZONE           ACTOR  NEXT",
        "hourly    every 1:00:00  -              job    2026-01-01 01:00:00Z (in 1 h)",
        "nightly   0 3 * * *      Europe/Berlin  job    2026-01-01 02:00:00Z (in 2 h)",
        "2 schedules, 0 findings.",
    ]


def test_check_gives_one_json_object(check: Callable[..., Any]) -> None:
    code, out, _ = check("cron('0 0 13 * 5', tz='UTC')", "--json")
    warning = (
        "day-of-month '13' and day-of-week '5' are both restricted: a day matches if either does (cron's rule is OR, "
        "as neither starts with '*')"
    )
    assert code == Exit.FINDINGS
    assert json.loads(out) == {
        "schedules": [
            {
                "name": "job",
                "actor": "job",
                "kind": "cron",
                "expression": "0 0 13 * 5",
                "timezone": "UTC",
                "next_fire_time": "2026-01-02T00:00:00.000Z",
                "warnings": [warning],
            }
        ],
        "findings": [f"job: {warning}"],
    }


@pytest.mark.parametrize(
    ("schedules", "finding"),
    [
        ("cron('0 0 30 2 *')", "it never fires"),
        ("cron('61 * * * *')", "61 is out of range"),
        ("cron('0 3 * * *', tz='Mars/Olympus')", "'Mars/Olympus' is not known"),
        ("cron('0 0 13 * 5')", "either does (cron's rule is OR, as neither starts with '*')."),
        ("cron('0 3 * * *', catchup='all')", "Did you mean 'catch_up'?"),
        ("at(datetime(2020, 1, 1))", "has no time zone"),
        ("at(datetime(2020, 1, 1, tzinfo=timezone.utc))", "job: it never fires again"),
        ("cron('0 3 * * *', end=datetime(2020, 1, 1, tzinfo=timezone.utc))", "job: it never fires again"),
        ("[cron('0 3 * * *'), every(60)]", "name"),
        ("cron('0 0 */15 * *')", "counts anew each month"),
        ("every(days=1)", "24 hours"),
        ("any_of(cron('*/7 * * * *'), every(60))", "7 does not divide 60"),
        ("cron('0 3 * * *', args=(1,))", "too many positional arguments"),
    ],
)
def test_check_ends_with_6_on_a_finding(check: Callable[..., Any], schedules: str, finding: str) -> None:
    code, out, err = check(schedules)
    assert code == Exit.FINDINGS == 6
    assert err == ""
    assert finding in next(line for line in out.splitlines() if line.startswith("Finding: "))
    assert out.splitlines()[-1].endswith("1 finding.")


def test_check_goes_on_after_a_schedule_that_cannot_be_used_and_names_its_line(check: Callable[..., Any]) -> None:
    bad = "every(60, name={!r}, args=(object(),))"
    code, out, _ = check(
        f"[every(60, name='good'), {bad.format('bad')}, {bad.format('worse')}]\n)\ndef first(*a): ...\n"
        "@dramatiq.actor(periodic=every(60, name='last')"
    )
    assert code == Exit.FINDINGS
    found = [line for line in out.splitlines() if line.startswith("Finding: ")]
    assert [line.split()[1] for line in found] == ["bad:", "worse:"]
    assert all(re.search(r"checked_app\.py, line \d+\)\.$", line) for line in found)
    assert {"good", "last"} <= {line.split()[0] for line in out.splitlines()}


@pytest.mark.parametrize("argv", [(), ("--json",)])
def test_check_says_that_there_may_be_more_where_a_schedule_that_cannot_be_made_ended_the_import(
    check: Callable[..., Any], argv: tuple[str, ...]
) -> None:
    code, out, _ = check("[cron('61 * * * *'), cron('62 * * * *'), every(0)]", *argv)
    assert code == Exit.FINDINGS
    (finding,) = json.loads(out)["findings"] if argv else [out.splitlines()[0]]
    assert re.search(
        r"61 is out of range.*checked_app\.py, line \d+\)\. The import ended there, so there may be more: mend it, and "
        r"check again\.?$",
        finding,
    )


OTHER = """every(60, name='first'))
def first(): ...
other = StubBroker()
install(other)
@dramatiq.actor(broker=other, periodic=every(60, name='second')"""


@pytest.mark.parametrize("schedules", ["every(60, options={'x': object()})", OTHER], ids=["encoder", "brokers"])
def test_check_says_nothing_of_more_where_the_import_came_to_its_end(check: Callable[..., Any], schedules: str) -> None:
    code, out, _ = check(schedules)
    assert code == Exit.FINDINGS
    assert "may be more" not in out


ASYNC = """[])
def first(): ...
@dramatiq.actor(periodic=every(60))
async def later(): ...
@dramatiq.actor("""


@pytest.mark.parametrize(
    ("schedules", "warning"),
    [
        ("every(60, overlap_timeout=60)", "job: overlap_timeout does nothing with overlap='allow'"),
        ("every(60, max_catch_up=5)", "job: max_catch_up does nothing with catch_up='latest'"),
        ("every(60, options={'queue': 'high'})", "job: options has 'queue', which Dramatiq does not know: give the"),
        ("every(60), on_retry_exhausted='nobody'", "job: on_retry_exhausted='nobody' names no actor"),
        (ASYNC, "later: its actor 'later' is async and cannot run: the broker has no AsyncIO middleware"),
    ],
)
def test_check_warns_of_what_does_nothing_or_cannot_work(
    check: Callable[..., Any], schedules: str, warning: str
) -> None:
    code, out, _ = check(schedules)
    assert code == Exit.FINDINGS
    assert f"Finding: {warning}" in out
    assert out.splitlines()[-1].endswith(" 1 finding.")
    assert check(schedules, "--warnings-ok")[0] == Exit.OK


def test_check_lets_an_option_be_that_a_middleware_of_the_app_knows(check: Callable[..., Any]) -> None:
    routed = """every(60, options={'queue': 'high'}))
def first(): ...
class Router(dramatiq.Middleware):
    actor_options = {"queue"}
broker.add_middleware(Router())
@dramatiq.actor("""
    assert check(routed)[0] == Exit.OK


def test_check_needs_no_redis_for_an_app_that_is_told_of_it_where_it_runs(check: Callable[..., Any]) -> None:
    """Its broker is not on Redis, and where the state is says ``DISTCRON_REDIS_URL``."""
    elsewhere = """[])
def first(): ...
class Other(dramatiq.Broker):
    def declare_queue(self, queue_name):
        self.queues[queue_name] = None
other = Other(middleware=[])
install(other)
dramatiq.set_broker(other)
@dramatiq.actor(periodic=every(60)"""
    code, out, _ = check(elsewhere)
    assert (code, "Finding" in out) == (Exit.OK, False)


def test_check_lets_an_async_function_be_that_another_decorator_runs(check: Callable[..., Any]) -> None:
    decorated = """[])
def first(): ...
def run(fn):
    import asyncio, functools
    return functools.wraps(fn)(lambda *args: asyncio.run(fn(*args)))
@dramatiq.actor(periodic=every(60))
@run
async def later(): ...
@dramatiq.actor("""
    code, out, _ = check(decorated)
    assert (code, "Finding" in out) == (Exit.OK, False)


@pytest.mark.parametrize(
    "schedules",
    [
        "every(60, overlap='skip', overlap_timeout=60)",
        "every(60, catch_up='all', max_catch_up=5)",
        "every(60, options={'max_retries': 3, 'mine': 1}), on_retry_exhausted='job'",
        "[])\ndef f(): ...\nbroker.add_middleware(dramatiq.middleware.AsyncIO())\n@dramatiq.actor(periodic=every(60))\n"
        "async def later(): ...\n@dramatiq.actor(",
    ],
)
def test_check_says_nothing_of_what_works(check: Callable[..., Any], schedules: str) -> None:
    assert check(schedules)[0] == Exit.OK


DOUBLED = """[])
def first(): ...
from dramatiq_distcron import BackoffRetries, DeadLetters, DistCron
broker.add_middleware({}())
@dramatiq.actor(periodic=every(60)"""


@pytest.mark.parametrize("middleware", ["BackoffRetries", "DeadLetters", "DistCron"])
def test_check_finds_a_middleware_that_is_there_twice(check: Callable[..., Any], middleware: str) -> None:
    """A beat and a worker refuse it: so a CI must."""
    code, out, _ = check(DOUBLED.format(middleware))
    assert code == Exit.FINDINGS
    assert re.match(rf"Finding: .*{middleware}", out)


ELSEWHERE = """[])
def first(): ...
from dramatiq.brokers.redis import RedisBroker
other = RedisBroker(url="redis://127.0.0.1:1/0")
install(other, redis="redis://127.0.0.1:1/1")
dramatiq.set_broker(other)
@dramatiq.actor(periodic=every(60)"""


def test_check_finds_a_state_that_would_be_on_another_redis_than_the_broker(check: Callable[..., Any]) -> None:
    code, out, _ = check(ELSEWHERE)
    assert code == Exit.FINDINGS
    assert "Finding: DistCron(redis=...) is redis://127.0.0.1:1/1 and the broker is on redis://127.0.0.1:1/0" in out


def test_check_finds_a_trigger_in_the_zone_of_the_host(
    check: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apscheduler.triggers.cron.get_localzone", lambda: ZoneInfo("Asia/Tokyo"))
    trigger = "__import__('apscheduler.triggers.cron').triggers.cron.CronTrigger(hour=3)"
    code, out, _ = check(f"__import__('dramatiq_distcron').from_apscheduler({trigger})", "--json")
    assert code == Exit.FINDINGS
    found = json.loads(out)
    assert "the trigger's zone Asia/Tokyo is that of this host" in found["findings"][0]
    assert found["findings"] == [f"job: {warning}" for warning in found["schedules"][0]["warnings"]]


def test_check_can_let_warnings_pass(check: Callable[..., Any]) -> None:
    code, out, _ = check("every(days=1)", "--warnings-ok", "--json")
    assert code == Exit.OK
    assert json.loads(out)["findings"] == []
    assert len(json.loads(out)["schedules"][0]["warnings"]) == 1


def test_check_of_an_app_without_schedules_finds_that(check: Callable[..., Any]) -> None:
    code, out, _ = check("[]")
    assert code == Exit.FINDINGS
    assert "no schedules" in out


def test_check_ends_with_2_if_the_app_cannot_be_imported(check: Callable[..., Any]) -> None:
    code, out, err = check("1 / 0")
    assert (code, out) == (Exit.IMPORT, "")
    assert "ZeroDivisionError" in err


# -- what the reference says ----------------------------------------------------------------------------------

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def documented(page: str, command: str) -> str:
    return (REFERENCE / page).read_text("utf-8").partition(f"\n## {command}\n")[2].partition("\n## ")[0]


def test_the_reference_lists_exactly_the_keys_of_json(explain: Callable[..., Any], check: Callable[..., Any]) -> None:
    keys = re.findall(r"^\| `(\w+)`", documented("json.md", "explain"), re.MULTILINE)
    assert keys == list(explain("0 3 * * *"))
    told = json.loads(check("every(60)", "--json")[1])
    assert re.findall(r"^\| `(\w+)`", documented("json.md", "check"), re.MULTILINE) == list(told)
    assert set(re.findall(r"`(\w+)`", documented("json.md", "check"))) == {*told, *told["schedules"][0]}


@pytest.mark.parametrize("page", [REFERENCE / "cli.md", REFERENCE.parents[1] / "README.md"], ids=lambda page: page.name)
def test_what_is_shown_of_explain_is_what_it_prints(
    page: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = re.search(r"\$ dramatiq-distcron (explain .*)\n((?:.*\n)*?)```", page.read_text("utf-8"))
    assert shown is not None
    monkeypatch.setattr(
        explain_command, "wall_ms", lambda: instant_ms(datetime(2026, 11, 30, 3, tzinfo=timezone.utc), "")
    )
    assert main(shlex.split(shown[1])) == Exit.OK
    assert capsys.readouterr().out == shown[2]
