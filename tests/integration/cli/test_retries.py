"""The commands on waiting retries, on a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import dramatiq
import pytest
from dramatiq.broker import MessageProxy
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import DistCron, install
from dramatiq_distcron.cli import main
from dramatiq_distcron.server import Server
from tests.integration.cli.apps import ISO

Capture = pytest.CaptureFixture[str]


class Waiting:
    """An app whose messages failed, and commands on its state by the URL alone."""

    def __init__(self, broker: RedisBroker, url: str, capsys: Capture) -> None:
        self.broker = broker
        self.distcron: DistCron = install(broker)
        self._where = ("--redis-url", url, "--namespace", broker.namespace)
        self._capsys = capsys
        for name, options in (("sync", {"retry_budget": "github"}), ("mail", {"queue_name": "mails"})):
            dramatiq.actor(lambda *args: None, actor_name=name, broker=broker, backoff=3600, **options)

    def fail(self, actor: str, id: str, **options: Any) -> None:
        message = self.broker.get_actor(actor).message_with_options(**options).copy(message_id=id)
        self.broker.enqueue(message)
        consumer = self.broker.consume(message.queue_name, timeout=1000)
        proxy: MessageProxy = next(consumer)  # type: ignore[assignment]
        error = KeyError("no")
        self.broker.emit_before("process_message", proxy)
        self.broker.emit_after("process_message", proxy, exception=error)
        self.broker.emit_before("ack", proxy)
        consumer.ack(proxy)

    def run(self, *argv: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            raise SystemExit(main(["retries", *argv, *self._where]))
        out, err = self._capsys.readouterr()
        return int(ended.value.code or 0), out, err

    def json(self, *argv: str) -> Any:
        code, out, err = self.run(*argv, "--json")
        assert code == 0, err
        return json.loads(out)

    def ids(self, *argv: str) -> list[str]:
        return [one["id"] for one in self.json("list", *argv)["retries"]]


@pytest.fixture
def app(redis_broker: RedisBroker, server: Server, capsys: Capture) -> Iterator[Waiting]:
    app = Waiting(redis_broker, server.url, capsys)
    for number in range(3):
        app.fail("sync", f"s{number}")
    app.fail("mail", "m", distcron={"schedule": "nightly", "fire_time": 1_700_000_000_000, "term": 1})
    return app


def test_what_waits_is_shown_to_people(app: Waiting) -> None:
    code, out, _ = app.run("list")
    assert code == 0
    assert out.splitlines()[0].split() == ["MESSAGE", "ACTOR", "QUEUE", "FAILED", "ERROR", "DUE", "BUDGET"]
    assert len(out.splitlines()) == 5
    (line,) = [line for line in out.splitlines() if line.startswith("s0")]
    assert line.split()[1:5] == ["sync", "default", "1x", "KeyError"]
    assert line.endswith("github")


def test_what_waits_is_told_to_programs(app: Waiting) -> None:
    found = app.json("list")
    assert (found["waiting"], found["budgets"], len(found["retries"])) == (4, [], 4)
    (mail,) = [one for one in found["retries"] if one["id"] == "m"]
    assert {name: mail[name] for name in ("actor", "queue", "attempt", "error", "budget", "schedule", "fire_time")} == {
        "actor": "mail",
        "queue": "mails",
        "attempt": 1,
        "error": "KeyError",
        "budget": None,
        "schedule": "nightly",
        "fire_time": "2023-11-14T22:13:20.000Z",
    }
    assert ISO.fullmatch(mail["due_at"])
    assert ISO.fullmatch(mail["first_failed_at"])
    assert set(mail) == {
        *("id", "key", "actor", "queue", "attempt", "error", "first_failed_at", "due_at", "budget"),
        *("schedule", "fire_time"),
    }


def test_the_list_can_be_narrowed_and_cut(app: Waiting) -> None:
    assert app.ids("--actor", "mail") == ["m"]
    assert sorted(app.ids("--queue", "default")) == ["s0", "s1", "s2"]
    assert app.ids("--actor", "nobody") == []
    assert len(app.ids("-n", "2")) == 2
    _, _, err = app.run("list", "-n", "2")
    assert "4 messages wait in all" in err


def test_where_nothing_is_found_it_is_said_where_one_looked(app: Waiting) -> None:
    # And nothing else: none of those that wait is meant.
    assert app.run("list", "--actor", "nobody")[2] == "None of the 4 messages that wait fits.\n"
    app.run("run-now", "--all")
    app.distcron.open_backend().store.move_retries(10)
    code, _, err = app.run("list")
    assert code == 0
    assert f"No message of app 'default' waits in namespace '{app.broker.namespace}' of redis://" in err
    assert app.run("list", "--json")[2] == ""


def test_one_is_made_due_at_once_by_its_id_or_its_key(app: Waiting) -> None:
    assert app.json("run-now", "s1") == {"id": "s1", "done": "run_now"}
    first = app.json("list")["retries"][0]
    assert (first["id"], first["due_at"]) == ("s1", None)
    assert "now, by hand" in app.run("list")[1]
    key = next(one["key"] for one in app.json("list")["retries"] if one["id"] == "m")
    assert app.json("run-now", key)["done"] == "run_now"
    assert app.distcron.open_backend().store.move_retries(10).moved == 2


def test_all_are_made_due_at_once(app: Waiting) -> None:
    assert app.json("run-now", "--all") == {"hurried": 4}
    assert app.distcron.open_backend().store.move_retries(10).moved == 4
    assert app.run("run-now", "--all")[1] == "0 messages are due now.\n"


def test_one_is_cancelled_for_good(app: Waiting) -> None:
    code, out, _ = app.run("cancel", "s0")
    assert (code, out) == (0, "Message s0 is dropped.\n")
    assert sorted(app.ids()) == ["m", "s1", "s2"]


@pytest.mark.parametrize("verb", ["run-now", "cancel"])
def test_what_does_not_wait_is_not_found(app: Waiting, verb: str) -> None:
    code, out, err = app.run(verb, "nothing")
    assert (code, out) == (7, "")
    assert "No message 'nothing' waits for a retry" in err


def test_the_budgets_are_shown_with_what_was_put_off(app: Waiting) -> None:
    store: Any = app.distcron.open_backend().store
    for number in range(10):
        app.fail("sync", f"x{number}")
    store._client.zadd(store.keys.retries, dict.fromkeys((row.key for row in store.retries(100)), 1))
    store.move_retries(100)
    (budget,) = app.json("list")["budgets"]
    assert (budget["name"], budget["taken"], budget["put_off"]) == ("github", 10, 3)
    lines = app.run("list")[1].splitlines()
    assert "BUDGET" in lines[-2]
    # "In 0 s" alone would not tell that it may be longer.
    assert sum(line.endswith("github, spent") for line in lines) == 3


@pytest.mark.parametrize("argv", [[], ["run-now"], ["run-now", "x", "--all"], ["cancel"], ["list", "-n", "0"]])
def test_what_is_no_such_command_is_refused(app: Waiting, argv: list[str]) -> None:
    code, _, err = app.run(*argv)
    assert code == 2
    assert err


def test_a_server_that_is_not_there_is_told_with_its_address(app: Waiting) -> None:
    app._where = ("--redis-url", "redis://127.0.0.1:1/0")
    code, _, err = app.run("list")
    assert code == 3
    assert "127.0.0.1:1" in err
