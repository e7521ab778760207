"""The commands on dead letters, on a real server."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dramatiq
import pytest
import redis
from dramatiq import Message
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import DeadLetter, DistCron, install
from dramatiq_distcron.cli import main
from dramatiq_distcron.letters import DLQ_ACTOR, DLQ_QUEUE, REASONS, about_death, indexes_of
from dramatiq_distcron.server import Server
from dramatiq_distcron.store.base import Instance, Letter
from tests.integration.cli.apps import ISO
from tests.support import queued

Capture = pytest.CaptureFixture[str]
AT = 1_700_000_000_000
REDRIVEN = {"redriven": 0, "gone": 0, "refused": {}, "missing": [], "unchecked": False, "dry_run": False}


class Dlq:
    """An app with dead letters, and commands on its state by the URL alone."""

    def __init__(self, broker: RedisBroker, url: str, capsys: Capture) -> None:
        self.broker = broker
        self.distcron: DistCron = install(broker)
        self.store: Any = self.distcron.open_backend().store
        self.where = ("--redis-url", url, "--namespace", broker.namespace)
        self._capsys = capsys
        for name, queue in (("sync", "default"), ("mail", "mails")):
            dramatiq.actor(lambda *args: None, actor_name=name, broker=broker, queue_name=queue)
        # A worker tells which actors there are, for those who know no code.
        self.store.heartbeat(Instance("w", {"actors": {"sync": "default", "mail": "mails"}}), keep=60_000)

    def die(self, actor: str, id: str, error: Exception, at: int = AT, reason: str = "aborted", **options: Any) -> None:
        message = self.broker.get_actor(actor).message_with_options(args=(id,), **options).copy(message_id=f"m-{id}")
        about = about_death(message, error, reason, host="here", version="1")
        letter = Letter(id, about, message.encode(), indexes_of(about))
        self.store.put_letters([(letter, at)])

    def run(self, *argv: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            raise SystemExit(main(["dlq", *argv, *self.where]))
        out, err = self._capsys.readouterr()
        return int(ended.value.code or 0), out, err

    def json(self, *argv: str) -> Any:
        code, out, err = self.run(*argv, "--json")
        assert code == 0, err
        return json.loads(out)

    def ids(self, *argv: str) -> list[str]:
        return [one["id"] for one in self.json("list", *argv)["dead_letters"]]


@pytest.fixture
def empty(redis_broker: RedisBroker, server: Server, capsys: Capture) -> Dlq:
    return Dlq(redis_broker, server.url, capsys)


@pytest.fixture
def dlq(empty: Dlq) -> Dlq:
    for number in range(3):
        empty.die("sync", f"s{number}", KeyError("no such key"), AT + number)
    tick = {"schedule": "nightly", "fire_time": AT, "term": 1}
    empty.die("mail", "m", TimeoutError("late"), AT + 10, "age_limit", distcron=tick)
    return empty


# -- looking --------------------------------------------------------------------------------------------------


def test_letters_are_shown_to_people(dlq: Dlq) -> None:
    code, out, err = dlq.run("list")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["LETTER", "DIED", "ACTOR", "QUEUE", "REASON", "ERROR", "RUNS"]
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["m", "s2", "s1", "s0"]
    assert "2023-11-14 22:13:20Z" in out.splitlines()[4]
    assert out.splitlines()[4].split()[-5:] == ["sync", "default", "aborted", "KeyError", "1"]


def test_letters_are_told_to_programs(dlq: Dlq) -> None:
    found = dlq.json("list")
    assert (set(found), found["cursor"]) == ({"dead_letters", "cursor"}, None)
    mail = found["dead_letters"][0]
    assert set(mail) == {
        *("id", "actor", "queue", "reason", "error", "attempts", "first_failed_at", "dead_at", "schedule", "fire_time"),
        *("message", "fingerprint"),
    }
    wanted = {"id": "m", "actor": "mail", "queue": "mails", "reason": "age_limit", "error": "TimeoutError"}
    wanted |= {"schedule": "nightly", "fire_time": "2023-11-14T22:13:20.000Z", "dead_at": "2023-11-14T22:13:20.010Z"}
    assert wanted.items() <= mail.items()
    assert mail["message"]["args"] == ["m"]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--actor", "mail"], ["m"]),
        (["--queue", "default"], ["s2", "s1", "s0"]),
        (["--reason", "age_limit"], ["m"]),
        (["--error", "timeout"], ["m"]),
        (["--schedule", "nightly"], ["m"]),
        (["--text", "NO SUCH"], ["s2", "s1", "s0"]),
        (["--since", "2023-11-14T22:13:20.001Z"], ["m", "s2", "s1"]),
        (["--until", "2023-11-14T23:13:20.001+01:00"], ["s1", "s0"]),
        (["--since", "1h"], []),
        (["--until", "1h", "--actor", "mail"], ["m"]),
        (["-n", "1"], ["m"]),
    ],
)
def test_the_list_can_be_narrowed(dlq: Dlq, argv: list[str], expected: list[str]) -> None:
    assert dlq.ids(*argv) == expected


def test_the_list_goes_on_from_a_cursor(dlq: Dlq) -> None:
    first = dlq.json("list", "-n", "3")
    assert first["cursor"] == f"{AT + 1}:s1"
    assert dlq.ids("-n", "3", "--cursor", first["cursor"]) == ["s0"]
    assert "--cursor" in dlq.run("list", "-n", "3")[2]
    assert "--cursor" not in dlq.run("list")[2]


def test_one_letter_is_shown_with_all_that_is_kept(dlq: Dlq) -> None:
    code, out, _ = dlq.run("show", "m-s0")
    assert code == 0
    for part in ("no such key", "2023-11-14T22:13:20.000Z", "KeyError: 'no such key'", "here"):
        assert part in out
    shown = dlq.json("show", "s0")
    assert set(shown) == set(DeadLetter.__dataclass_fields__)
    assert ISO.fullmatch(shown["dead_at"])
    assert ISO.fullmatch(shown["enqueued_at"])


def test_groups_are_told_with_their_counts(dlq: Dlq) -> None:
    found = dlq.json("stats")
    assert found["total"] == 4
    (error,) = [one for one in found["groups"] if one["value"] == "KeyError"]
    assert error == {
        "field": "error",
        "value": "KeyError",
        "count": 3,
        "first": "2023-11-14T22:13:20.000Z",
        "last": "2023-11-14T22:13:20.002Z",
    }
    _, out, _ = dlq.run("stats")
    head, most, *_ = out.splitlines()
    assert head.split() == ["KIND", "COUNT", "FIRST", "LAST", "THE", "NEWEST"]
    assert most.split()[1] == "3"
    assert most.endswith("sync, aborted, KeyError: 'no such key'")
    assert "BY" in out
    assert out.splitlines()[-1] == "4 in all."


def test_a_terminal_obeys_nothing_that_is_in_a_letter(empty: Dlq) -> None:
    empty.broker.actors["\x1b[2Jx\n"] = empty.broker.get_actor("sync")
    empty.die("\x1b[2Jx\n", "i\x1bd", KeyError("\x1b]0;title\x07 and \x9b31m"))
    message: Message[Any] = Message("default", "\x1b[2Jx\n", ("\ud800",), {}, {}, "m2", 1)
    about = about_death(message, KeyError("\x1b[31m\nline"), "aborted", host="", version="")
    empty.store.put_letters([(Letter("i2", about, message.encode(), indexes_of(about)), AT)])
    for argv in (["list"], ["show", "i2"], ["stats"], ["redrive", "--all"]):
        _, out, err = empty.run(*argv)
        assert {one for one in out + err if not one.isprintable()} <= {"\n"}
    assert empty.json("list")["dead_letters"]


def test_a_search_looks_on_until_it_finds(empty: Dlq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dramatiq_distcron.api.dead_letters._LOOKED_AT", 2)
    monkeypatch.setattr("dramatiq_distcron.api.dead_letters._SCAN", 2)
    for number in range(9):
        empty.die("sync", f"s{number}", KeyError("the needle" if number < 3 else "hay"), AT + number)
    assert empty.ids("--text", "NEEDLE") == ["s2", "s1", "s0"]
    _, out, err = empty.run("list", "--text", "needle", "-n", "1")
    assert "s2" in out
    assert "There may be more: --cursor " in err
    assert "None of the 9 letters fits" in empty.run("list", "--text", "no such")[2]


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["redrive", "--actor", "snyc"], "No letter has the actor 'snyc'. Did you mean 'sync'?"),
        (["discard", "--queue", "defualt", "-y"], "No letter has the queue 'defualt'. Did you mean 'default'?"),
        (["export", "--error", "KyeError"], "No letter has the error 'KyeError'. Did you mean 'KeyError'?"),
        (["list", "--json", "--schedule", "nihgtly"], "No letter has the schedule 'nihgtly'. Did you mean 'nightly'?"),
        (["list", "--actor", "sync", "--queue", "mails"], "'dramatiq-distcron dlq stats' shows of what kinds"),
    ],
)
def test_a_filter_that_fits_nothing_is_told_with_the_nearest_value(dlq: Dlq, argv: list[str], told: str) -> None:
    code, _, err = dlq.run(*argv)
    assert code == 0
    assert "None of the 4 letters fits. " in err
    assert told in err


@pytest.mark.parametrize("verb", ["list", "stats", "redrive", "purge", "export"])
def test_where_nothing_is_kept_it_is_told_where_was_looked(empty: Dlq, verb: str) -> None:
    err = empty.run(verb, *(["--all"] if verb == "redrive" else []))[2]
    assert f"No dead letters of app 'default' are kept in namespace {empty.broker.namespace!r} of redis://" in err
    assert empty.run("list", "--json")[2] == ""


def test_a_time_since_1970_is_not_taken_for_so_many_seconds_ago(dlq: Dlq) -> None:
    for since in ("1700000000", "1700000000000", "20231114"):
        code, _, err = dlq.run("discard", "--since", since, "-y")
        assert (code, "would be so many seconds ago" in err) == (2, True)
    assert dlq.run("list", "--since", "1h", "--until", "2h")[0] == 2
    assert len(dlq.ids()) == 4


def test_a_day_with_a_zone_is_an_instant(dlq: Dlq) -> None:
    assert dlq.ids("--since", "2023-11-14Z") == ["m", "s2", "s1", "s0"]
    assert dlq.ids("--since", "2023-11-15+00:00") == []
    assert dlq.ids("--since", f"{'9' * 400}d") == ["m", "s2", "s1", "s0"]
    told = dlq.run("list", "--since", "2023-11-14")[2]
    assert "write 2023-11-14T00:00Z for UTC" in told


# -- sent back ------------------------------------------------------------------------------------------------


def test_letters_are_sent_back_by_id(dlq: Dlq) -> None:
    assert dlq.json("redrive", "s0", "m-s1") == REDRIVEN | {"redriven": 2}
    assert sorted(message.args[0] for message in queued(dlq.broker)) == ["s0", "s1"]
    assert dlq.ids() == ["m", "s2"]
    # A double press.
    assert dlq.run("redrive", "s0", "s1")[0] == 7
    code, out, err = dlq.run("redrive", "s0", "s2")
    assert (code, out, err) == (
        8,
        "1 letter went back.\n",
        "Not among the dead letters, perhaps sent back already: s0\n",
    )


def test_letters_are_sent_back_by_filter_or_all_and_a_trial_only_counts(dlq: Dlq) -> None:
    assert dlq.run("redrive", "--actor", "sync", "--dry-run")[1] == "3 letters would go back.\n"
    assert len(dlq.ids()) == 4
    assert dlq.run("redrive", "--actor", "sync", "-n", "2", "--rate", "1000")[1] == "2 letters went back.\n"
    assert dlq.json("redrive", "--all")["redriven"] == 2
    assert dlq.ids() == []


def test_a_letter_that_is_refused_stays_and_is_told_of(dlq: Dlq) -> None:
    dlq.broker.actors["gone"] = dlq.broker.get_actor("sync")
    message: Message[Any] = Message("default", "gone", (), {}, {}, "x", 1)
    dlq.store.put_letters([(Letter("x", {"actor": "gone"}, message.encode(), [("actor", "gone")]), AT)])
    code, out, err = dlq.run("redrive", "--all")
    assert (code, out) == (8, "4 letters went back.\n")
    assert "1 stays: Nobody knows the actor 'gone' any more" in err
    assert dlq.ids() == ["x"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_redrive_that_is_interrupted_says_how_far_it_came(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def interrupt(self: Any, count: int) -> None:
        if dlq.distcron.dead_letters.count() < 4:
            signal.raise_signal(number)

    monkeypatch.setattr("dramatiq_distcron.api.redriving.Pace.wait", interrupt)
    code, _, err = dlq.run("redrive", "--all", "--rate", "1")
    assert code == 1
    assert "It ended early: 1 letter went back. Call it again to go on." in err
    monkeypatch.undo()
    assert dlq.json("redrive", "--all")["redriven"] == 3


def test_a_redrive_gives_back_who_hears_signals_and_in_another_thread_leaves_them_alone(dlq: Dlq) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert dlq.run("redrive", "s0")[0] == 0
    assert signal.getsignal(signal.SIGTERM) is before
    with ThreadPoolExecutor() as pool:
        assert pool.submit(dlq.run, "redrive", "s1").result()[0] == 0


def test_a_redrive_leaves_nobody_without_an_answer_to_sigterm(dlq: Dlq, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the handler before was not set in Python, nothing of it can be put back."""
    heard: list[Any] = []
    monkeypatch.setattr("dramatiq_distcron.cli.signals.signal.signal", lambda *given: heard.append(given))
    assert dlq.run("redrive", "s0")[0] == 0
    assert heard[-1] == (signal.SIGTERM, signal.SIG_DFL)


@pytest.mark.parametrize(
    "argv",
    [
        ["redrive"],
        ["redrive", "--all", "s0"],
        ["redrive", "s0", "--actor", "sync"],
        ["redrive", "--all", "--rate", "0"],
        ["redrive", "--all", "--rate", "nan"],
        ["redrive", "--all", "-n", "0"],
        ["redrive", "--reason", "bored"],
        ["redrive", "--actor", ""],
        ["redrive", "--since", "2023-11-14T22:13:20"],
        ["redrive", "--since", "yesterday"],
        ["redrive", "--since", "2023-11-14"],
        ["redrive", "--since", "0001-01-01T00:00+14:00"],
        ["redrive", "--until", "9999-12-31T23:59-14:00"],
        ["discard", "--yes"],
        ["discard", "s0"],
        ["discard", "--all", "--yes"],
        ["discard", "s0", "--actor", "sync", "--yes"],
        ["export", "s0", "--actor", "sync"],
        ["purge"],
        ["list", "--cursor", "x"],
        ["list", "--cursor", f"{'9' * 5000}:x"],
        ["list", "-n", "0"],
        ["show"],
        ["import", "no-such-file"],
        [],
    ],
)
def test_what_is_no_such_command_is_refused_and_changes_nothing(dlq: Dlq, argv: list[str]) -> None:
    code, _, err = dlq.run(*argv)
    assert code == 2
    assert err
    assert len(dlq.ids()) == 4
    assert queued(dlq.broker) == []


# -- thrown away ----------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("YES\n", 0), ("n\n", 4), ("\n", 4), ("", 4)])
def test_purging_asks(dlq: Dlq, monkeypatch: pytest.MonkeyPatch, answer: str, left: int) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    code, out, err = dlq.run("purge")
    assert "Drop all 4 letters for good? [y/N]" in out + err
    assert code == (2 if left else 0)
    assert len(dlq.ids()) == left


def test_letters_are_thrown_away(dlq: Dlq) -> None:
    assert dlq.run("discard", "s0", "--yes")[1] == "1 letter dropped.\n"
    assert dlq.run("discard", "s0", "s1", "--yes")[0] == 8
    assert dlq.json("discard", "--actor", "sync", "-y") == {"discarded": 1, "missing": []}
    assert dlq.run("discard", "nobody", "-y")[0] == 7
    assert dlq.json("purge", "-y") == {"purged": 1}
    assert dlq.json("purge", "-y") == {"purged": 0}


# -- elsewhere ------------------------------------------------------------------------------------------------


def test_an_export_comes_back_as_it_was(dlq: Dlq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dlq.json("list")
    _, lines, _ = dlq.run("export")
    assert len(lines.splitlines()) == 4
    assert len(dlq.run("export", "--actor", "mail")[1].splitlines()) == 1
    dlq.run("purge", "-y")
    (tmp_path / "letters.jsonl").write_text(lines)
    assert dlq.json("import", str(tmp_path / "letters.jsonl")) == {"imported": 4}
    assert dlq.json("list") == before
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert dlq.run("import", "-")[1].startswith("0 letters kept")
    assert [json.loads(line)["id"] for line in dlq.run("export", "s2", "m-s0")[1].splitlines()] == ["s2", "s0"]
    monkeypatch.setattr(sys, "stdin", None)
    assert "name the file" in dlq.run("import")[2]


def test_an_input_that_is_none_is_refused_with_its_line(empty: Dlq, tmp_path: Path) -> None:
    empty.die("sync", "x", KeyError("no"))
    (line,) = empty.run("export")[1].splitlines()
    empty.run("purge", "-y")
    (tmp_path / "a").write_text(f"{line}\n\nnonsense\n")
    (tmp_path / "b").write_bytes(b"\xff\xfe")
    told = empty.run("import", str(tmp_path / "a"))[2]
    assert "Line 3 is none that export printed" in told
    assert "The letters of the lines before it are kept, 1 of them new" in told
    assert empty.ids() == ["x"]
    assert "cannot be read" in empty.run("import", str(tmp_path / "b"))[2]


def test_dramatiqs_dead_are_taken_over_by_the_url_alone(empty: Dlq) -> None:
    for number in range(2):
        empty.broker.enqueue(empty.broker.get_actor("sync").message(number))
    for data in empty.broker.do_fetch("default", 10):
        empty.broker.do_nack("default", Message.decode(data).options["redis_message_id"])
    queues = {"default": 2, "mails": 0}
    assert empty.json("adopt") == {"adopted": 2, "queues": queues, "left": 0}
    assert empty.run("adopt")[1] == "0 dead messages taken over. Looked into: default (0), mails (0).\n"
    assert empty.json("adopt", "--queue", "other.XQ") == {"adopted": 0, "queues": {"other": 0}, "left": 0}
    assert {one["reason"] for one in empty.json("list")["dead_letters"]} == {"rejected"}


# -- an empty, a missing and a read-only server ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["list"], {"dead_letters": [], "cursor": None}),
        (["stats"], {"total": 0, "groups": []}),
        (["redrive", "--all"], REDRIVEN),
        (["redrive", "--actor", "sync"], REDRIVEN),
        (["discard", "--actor", "sync", "-y"], {"discarded": 0, "missing": []}),
        (["discard", "--actor", "sync"], {"discarded": 0, "missing": []}),
        (["purge"], {"purged": 0}),
        (["adopt"], {"adopted": 0, "queues": {"default": 0, "mails": 0}, "left": 0}),
    ],
)
def test_an_empty_server_has_nothing(empty: Dlq, argv: list[str], told: Any) -> None:
    assert empty.json(*argv) == told
    assert empty.run(*argv)[0] == 0


@pytest.mark.parametrize("argv", [["show", "x"], ["redrive", "x"], ["discard", "x", "-y"]])
def test_what_is_not_there_is_not_found(empty: Dlq, argv: list[str]) -> None:
    code, out, err = empty.run(*argv)
    assert (code, out) == (7, "")
    assert "There is no dead letter 'x'" in err


VERBS = [
    ["list"],
    ["show", "x"],
    ["stats"],
    ["redrive", "--all"],
    ["discard", "s0", "-y"],
    ["purge", "-y"],
    ["export"],
    ["adopt"],
]


@pytest.mark.parametrize("argv", VERBS)
def test_a_server_that_is_not_there_is_told_with_its_address(empty: Dlq, argv: list[str]) -> None:
    empty.where = ("--redis-url", "redis://127.0.0.1:1/0")
    code, out, err = empty.run(*argv)
    assert (code, out) == (3, "")
    assert "127.0.0.1:1" in err
    assert "Traceback" not in err


@pytest.fixture
def read_only(server_binary: Path | None, capsys: Capture) -> Iterator[Callable[[], Dlq]]:
    with Server(server_binary) as own:
        broker = RedisBroker(url=own.url)

        def make() -> Dlq:
            dlq = Dlq(broker, own.url, capsys)
            dlq.die("sync", "s0", KeyError("x"))
            with redis.Redis.from_url(own.url) as client:
                client.replicaof("127.0.0.1", "1")
            return dlq

        yield make
        broker.client.close()


def test_a_read_only_server_can_be_looked_at_and_not_changed(read_only: Callable[[], Dlq]) -> None:
    dlq = read_only()
    assert dlq.ids() == ["s0"]
    assert dlq.json("show", "s0")["actor"] == "sync"
    assert dlq.json("stats")["total"] == 1
    assert len(dlq.run("export")[1].splitlines()) == 1
    for argv in (["redrive", "--all"], ["redrive", "s0"], ["discard", "s0", "-y"], ["purge", "-y"]):
        code, _, err = dlq.run(*argv)
        assert (argv, code) == (argv, 3)
        assert "replica" in err
        assert "Traceback" not in err
    assert dlq.ids() == ["s0"]


def test_every_reason_can_be_asked_for(empty: Dlq) -> None:
    for reason in REASONS:
        assert empty.ids("--reason", reason) == []


def test_the_status_tells_how_many_there_are_and_whether_somebody_hears_of_them(dlq: Dlq) -> None:
    def status(*argv: str) -> str:
        dlq._capsys.readouterr()
        assert main(["status", *argv, *dlq.where]) == 0
        return dlq._capsys.readouterr().out

    beat = {"role": "leader", "host": "h", "pid": 1, "version": "1", "started_at": 1, "last_pass_at": 1}
    # Both tell of themselves as processes do.
    dlq.store.heartbeat(Instance("w", {**beat, "actors": {DLQ_ACTOR: DLQ_QUEUE}, "queues": ["default"]}), keep=60_000)
    assert json.loads(status("--json"))["dead_letters"] == {"kept": 4, "told": False, "queue": DLQ_QUEUE}
    assert "Dead letters: 4, and no worker consumes the queue dead_letters to tell of them" in status()
    dlq.store.heartbeat(Instance("w", {**beat, "actors": {DLQ_ACTOR: DLQ_QUEUE}, "queues": [DLQ_QUEUE]}), keep=60_000)
    assert json.loads(status("--json"))["dead_letters"] == {"kept": 4, "told": True, "queue": DLQ_QUEUE}
    assert "Dead letters: 4\n" in status()
