"""What only Redis can do to a commit: wrong types, missing rights, a full memory, a stepped clock, a lost script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import dramatiq
import pytest
import redis
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron.backends import open_backend
from dramatiq_distcron.config import Settings
from dramatiq_distcron.errors import ConflictError, StoreRefused
from dramatiq_distcron.logs import get_logger
from dramatiq_distcron.proving import prove
from dramatiq_distcron.server import Server
from dramatiq_distcron.store.base import Acquired, Held
from tests.conformance.hands import HandsOnRedis
from tests.support import Rig, orphans, queued

LOGGER = get_logger(__name__, Rig)


@pytest.fixture
def rig(redis_broker: RedisBroker) -> Rig:
    redis_broker.declare_queue("default")
    redis_broker.declare_queue("broken")
    return Rig(redis_broker, open_backend(redis_broker, Settings()))


@pytest.fixture
def restricted(server: Server, namespace: str) -> Iterator[Any]:
    """Makes a rig whose user lacks the given commands."""
    admin = redis.Redis.from_url(server.url)
    users: list[str] = []

    def make(*lacking: str) -> Rig:
        user = f"user-{namespace}-{len(users)}"
        users.append(user)
        rights = ["+@all", *(f"-{command}" for command in lacking)]
        admin.execute_command("ACL", "SETUSER", user, "on", ">secret", f"~{namespace}:*", f"~{namespace}", *rights)
        broker = RedisBroker(host="127.0.0.1", port=server.port, username=user, password="secret", namespace=namespace)
        broker.declare_queue("default")
        return Rig(broker, open_backend(broker, Settings()))

    yield make
    for user in users:
        admin.execute_command("ACL", "DELUSER", user)
    admin.close()


def test_a_queue_key_of_a_wrong_type_leaves_no_message_cursor_or_record_behind(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    rig.broker.client.set(f"{rig.broker.namespace}:broken", "not a list")
    (answer,) = rig.fire(rig.tick("job", 1000, 2000, queue="broken")) or [""]
    assert "WRONGTYPE" in answer
    assert rig.score("job") == 1000
    assert rig.history() == []
    assert rig.broker.client.hlen(f"{rig.broker.namespace}:broken.msgs") == 0


def test_a_message_hash_of_a_wrong_type_leaves_nothing_behind_either(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    rig.broker.client.set(f"{rig.broker.namespace}:broken.msgs", "not a hash")
    (answer,) = rig.fire(rig.tick("job", 1000, 2000, queue="broken")) or [""]
    assert "WRONGTYPE" in answer
    assert rig.score("job") == 1000
    assert rig.broker.client.llen(f"{rig.broker.namespace}:broken") == 0


def test_a_history_of_a_wrong_type_stops_every_tick_and_sends_nothing(rig: Rig) -> None:
    rig.lead()
    rig.put("one", 1000)
    rig.put("two", 1000)
    rig.broker.client.set(rig.store.keys.ticks, "not a stream")
    answers = rig.fire(rig.tick("one", 1000, 2000), rig.tick("two", 1000, 2000)) or []
    assert [answer.split(" ")[0] for answer in answers] == ["failed", "failed"]
    assert queued(rig.broker) == []
    assert (rig.score("one"), rig.score("two")) == (1000, 1000)
    assert rig.store.last(["one", "two"]) == {}


@pytest.mark.parametrize("lacking", ["rpush", "hset", "xadd", "zadd"])
def test_a_missing_right_is_refused_by_the_commit_and_nothing_is_half_done(restricted: Any, lacking: str) -> None:
    trusted = restricted()
    trusted.lead()
    trusted.put("job", 1000)
    rig = restricted(lacking)
    rig.guard = trusted.guard
    tick = rig.tick("job", 1000, 2000)
    for _ in range(2):
        (answer,) = rig.fire(tick) or [""]
        assert answer.startswith("failed")
        assert trusted.score("job") == 1000
        assert queued(trusted.broker) == []
        assert orphans(trusted.broker) == 0
        assert trusted.history() == []
    assert trusted.fire(trusted.tick("job", 1000, 2000)) == ["ok"]


@pytest.mark.parametrize("lacking", ["rpush", "xadd", "xdel", "hscan"])
def test_a_missing_right_is_found_before_the_first_tick(restricted: Any, lacking: str, server: Server) -> None:
    if int(server.version.split(".")[0]) < 7:
        # Redis 6.2 cannot be asked for rights; there the commit refuses and undoes, as tested above.
        assert restricted(lacking).store.refused_commands() == []
        return
    rig = restricted(lacking)
    with pytest.raises(ConflictError, match=lacking):
        prove(rig.store, rig.publisher, ["default"], LOGGER)


def test_with_all_rights_nothing_is_missing_and_nothing_is_written(rig: Rig) -> None:
    prove(rig.store, rig.publisher, ["default", "broken"], LOGGER)
    assert list(rig.broker.client.scan_iter(f"{rig.broker.namespace}:*")) == []


def test_a_key_of_ours_that_is_something_else_is_named_before_the_first_tick(rig: Rig) -> None:
    rig.broker.client.set(rig.store.keys.due, "x")
    with pytest.raises(ConflictError, match="due is a string, not a zset"):
        prove(rig.store, rig.publisher, ["default"], LOGGER)


def test_a_script_of_dramatiq_that_does_not_fit_is_refused_before_the_first_tick(redis_broker: RedisBroker) -> None:
    script = redis_broker.client.register_script("#!lua name=new\n" + redis_broker.scripts["dispatch"].script.decode())
    redis_broker.scripts["dispatch"] = script
    backend = open_backend(redis_broker, Settings())
    with pytest.raises(ConflictError, match="does not fit"):
        prove(backend.store, backend.publisher, ["default"], LOGGER)  # type: ignore[arg-type]


def test_a_full_memory_refuses_the_whole_commit(server_binary: Any, namespace: str) -> None:
    with Server(server_binary, config={"maxmemory-policy": "noeviction"}) as full:
        broker = RedisBroker(url=full.url, namespace=namespace)
        broker.declare_queue("default")
        rig = Rig(broker, open_backend(broker, Settings()))
        rig.lead()
        rig.put("job", 1000)
        rig.put("other", 1000)
        ticks = [rig.tick("job", 1000, 2000), rig.tick("other", 1000, 2000)]
        rig.fire(rig.passing("job", 1000, 1000))
        broker.client.config_set("maxmemory", 1)
        try:
            answers = rig.fire(*ticks) or []
        except StoreRefused as refused:
            answers = [str(refused)] * 2
        assert all("OOM" in answer for answer in answers)
        broker.client.config_set("maxmemory", 0)
        assert queued(broker) == []
        assert rig.fire(*ticks) == ["ok", "ok"]
        broker.client.close()


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_spec_that_is_edited_while_it_is_read_is_not_taken_for_the_new_one(
    rig: Rig, redis_broker: RedisBroker, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """A reader that knew the old spec under the new revision would fire the old arguments until the next edit."""
    rig.lead()
    rig.put("job", 1000, args="old")
    editor = Rig(redis_broker, open_backend(redis_broker, Settings()))
    calls: list[Any] = []
    client = rig.store._client
    send = client.execute_command

    def edited_before_the_nth(*args: Any, **options: Any) -> Any:
        calls.append(args)
        if len(calls) == call:
            editor.put("job", 1000, args="new")
        return send(*args, **options)

    monkeypatch.setattr(client, "execute_command", edited_before_the_nth)
    found = rig.store.get(["job"])["job"]
    if found.revision == editor.revision("job"):
        assert json.loads(found.spec)["args"] == "new"


def test_after_a_restart_or_a_flush_of_scripts_the_commit_loads_itself(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    rig.broker.client.script_flush()
    assert rig.fire(rig.tick("job", 1000, 2000)) == ["ok"]


def test_a_clock_that_stepped_back_leaves_nobody_off_duty(rig: Rig) -> None:
    """The lease of a dead leader seems to last for an hour; the next who asks cuts it to its own length."""
    rig.store.acquire("dead", 200)
    rig.broker.client.pexpire(rig.store.keys.lease, 3_600_000)
    assert isinstance(rig.store.acquire("b", 200), Held)
    assert rig.broker.client.pttl(rig.store.keys.lease) <= 200
    rig.broker.client.pexpire(rig.store.keys.lease, 1)
    while isinstance(rig.store.acquire("b", 200), Held):
        pass
    assert isinstance(rig.store.acquire("b", 200), Acquired)


def test_the_commit_does_no_maintenance_on_the_strength_of_the_hosts_clock(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat whose host is five minutes ahead must not give a live worker's running messages away."""
    worker = RedisBroker(client=rig.broker.client, namespace=rig.broker.namespace)
    for _ in range(3):
        rig.broker.enqueue(dramatiq.Message("default", "actor", (), {}, {}))
    assert len(worker.do_fetch("default", 10)) == 3
    rig.broker.maintenance_chance = 1_000_000
    monkeypatch.setattr("dramatiq.brokers.redis.current_millis", lambda: rig.store.now() + 300_000)
    backend = open_backend(rig.broker, Settings())
    ahead = Rig(rig.broker, backend)
    ahead.lead()
    ahead.put("job", 1000)
    assert ahead.fire(ahead.tick("job", 1000, 2000)) == ["ok"]
    assert [message.message_id for message in queued(rig.broker)] == ["job@1000"]


def test_a_beat_leaves_one_heartbeat_of_dramatiq_however_often_it_starts(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    for number in range(5):
        again = Rig(rig.broker, open_backend(rig.broker, Settings()))
        again.guard = rig.guard
        at = 1000 + number * 1000
        assert again.fire(again.tick("job", at, at + 1000)) == ["ok"]
    assert rig.broker.client.zcard(f"{rig.broker.namespace}:__heartbeats__") == 1


def test_a_run_that_ends_while_the_history_is_read_is_shown_as_over(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was in the stream not yet, and among the runs no more: shown as none at all."""
    rig.lead()
    hands = HandsOnRedis(rig)
    rig.put("job", 1000)
    hands.fire("job", 1000)
    (message,) = hands.take()
    look = rig.store._client.hmget

    def end_before(*args: Any) -> Any:
        rig.store.settle(hands.ending(message, "succeeded"))
        return look(*args)

    monkeypatch.setattr(rig.store._client, "hmget", end_before)
    (record,) = rig.store.history("job", 10)
    assert record.run["state"] == "succeeded"
