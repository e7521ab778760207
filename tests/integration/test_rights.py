"""The user of the how-to on rights: it may do all that a beat does, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dramatiq
import pytest
import redis
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import DistCron, every, install
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.errors import ConflictError, NotFoundError
from dramatiq_distcron.server import Server

HOW_TO = Path(__file__).parents[2] / "docs" / "howto" / "rights.md"
(LINE,) = re.findall(r"^ACL SETUSER beat on .*$", HOW_TO.read_text("utf-8"), re.MULTILINE)
COMMANDS = re.findall(r"\+(\S+)", LINE)
#: Undoes a message that is in its queue, should anything fail after it.
ONLY_UNDOES = {"lrem"}
#: Of connecting, which is everybody's right, and of this test's own asking.
NOT_OURS = {"auth", "hello", "client|setinfo", "config|resetstat", "info", "acl|setuser", "acl|log", "script|flush"}

As = Callable[..., DistCron]


@pytest.fixture
def admin(own: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(own.url) as client:
        yield client


@pytest.fixture
def as_user(own: Server, admin: redis.Redis) -> Iterator[As]:
    """An app that connects as the user of the how-to, whose rights are changed as told."""
    brokers: list[Any] = []

    def make(*changes: str, line: str = LINE, database: int = 0, **options: Any) -> DistCron:
        words = line.replace("~dramatiq:*", "~dramatiq:* ~spoilt").split()
        admin.execute_command(*words, *changes)
        broker = RedisBroker(url=f"redis://beat:secret@127.0.0.1:{own.port}/{database}")
        brokers.append(broker)
        distcron = install(broker, **options)
        schedules = [every(3600, name="plain"), every(3600, name="alone", overlap="skip", max_queue_length=5)]
        dramatiq.actor(lambda: None, actor_name="job", broker=broker, periodic=schedules)
        return distcron

    yield make
    for broker in brokers:
        broker.client.close()


def do_all_a_beat_does(distcron: DistCron, admin: redis.Redis) -> None:
    """A life: start, ticks, a run that got lost, a queue that is broken, edits of every kind, a standby, the end."""
    beat, standby = Beat(distcron, owner="app"), Beat(distcron, owner="app")
    store: Any = beat.backend.store
    distcron.schedules.put(every(3600, name="tenant"), "job")
    beat._turn()
    standby._turn()
    for hours in range(1, 4):
        beat.scheduler.pass_once(beat.lease.now() + hours * 3_600_000)
    admin.delete("dramatiq:default.msgs")
    beat.scheduler.sweep()
    spoil(admin, "dramatiq:default")
    assert beat.scheduler.pass_once(beat.lease.now() + 5 * 3_600_000).failed
    spoil(admin, "dramatiq:default")
    admin.delete(store.keys.due, store.keys.schedules)
    beat._renewed(beat.lease.renew(count=True))
    beat._turn()
    beat.office.look()
    beat.backend.store.wait(0.001)
    use_the_api(distcron)
    beat.lease.release()
    store.forget(beat.holder)
    store.wake()


def spoil(admin: redis.Redis, key: str) -> None:
    """Makes the list of a queue something else, and the other way round."""
    kept = "spoilt"
    if admin.exists(kept):
        admin.rename(kept, key)
        return
    if admin.exists(key):
        admin.rename(key, kept)
    admin.set(key, "not a list")


def use_the_api(distcron: DistCron) -> None:
    schedules = distcron.schedules
    schedules.put(every(60, name="tenant"), "job")
    schedules.pause("tenant", reason="unpaid")
    schedules.resume("tenant")
    schedules.trigger("tenant")
    schedules.remove("tenant")
    schedules.list()
    schedules.history("plain")
    distcron.status()


def refused(admin: redis.Redis) -> set[str]:
    """What the server refused to anybody."""
    return {entry["object"] for entry in admin.acl_log()} - {"info", "client|setinfo"}


def test_it_may_do_all_that_a_beat_does_and_a_beat_does_all_that_it_may(as_user: As, admin: redis.Redis) -> None:
    distcron = as_user()
    admin.script_flush()
    admin.config_resetstat()
    do_all_a_beat_does(distcron, admin)
    assert refused(admin) == set()
    used = {name.removeprefix("cmdstat_") for name in admin.info("commandstats")}
    of_this_test = {"rename", "exists"}
    assert used - NOT_OURS - of_this_test == set(COMMANDS) - ONLY_UNDOES


@pytest.mark.parametrize("command", COMMANDS)
def test_a_right_that_is_missing_is_named_at_start_with_the_line_that_grants_it(as_user: As, command: str) -> None:
    distcron = as_user(f"-{command}")
    with pytest.raises(ConflictError, match="The Redis user 'beat' may not") as refusal:
        Beat(distcron).run_once()
    granting = re.search(r"(ACL SETUSER beat .*) \(", str(refusal.value))
    assert granting is not None
    assert granting[1] == f"ACL SETUSER beat ~dramatiq ~dramatiq:* +{command}"
    assert Beat(as_user(f"-{command}", *granting[1].split()[3:])).run_once()


def test_a_key_that_is_out_of_reach_is_named_at_start(as_user: As) -> None:
    distcron = as_user("resetkeys", "~dramatiq", "~dramatiq:distcron:*", "~dramatiq:__heartbeats__")
    with pytest.raises(ConflictError, match=r"hset dramatiq:default\.msgs, rpush dramatiq:default\b"):
        Beat(distcron).run_once()


def test_another_database_needs_the_right_to_select_it(as_user: As) -> None:
    with pytest.raises(ConflictError, match=r"ACL SETUSER beat ~dramatiq ~dramatiq:\* \+select"):
        Beat(as_user(database=1)).run_once()
    assert Beat(as_user("+select", database=1)).run_once()


def test_without_the_right_to_walk_through_the_keys_no_other_app_is_told(as_user: As, admin: redis.Redis) -> None:
    distcron = as_user()
    admin.hset(f"{distcron.open_backend().namespace}:distcron:other:schedules", "x", "{}")
    with pytest.raises(
        NotFoundError, match=r"There is no schedule 'a'\. None is known of app '[^']*' in [^.]* of \S*\.$"
    ):
        distcron.schedules.get("a")
    with pytest.raises(NotFoundError, match=r"None is known of .*\. In namespace .* of app 'other'"):
        as_user("+scan").schedules.get("a")


def test_waiting_for_replicas_needs_a_right_of_its_own(as_user: As) -> None:
    """It was missed with the first commit, and the beat took that for a Redis in trouble, again and again."""
    with pytest.raises(ConflictError, match=r"ACL SETUSER beat ~dramatiq ~dramatiq:\* \+wait"):
        Beat(as_user(wait_replicas=1)).run_once()
    assert Beat(as_user("+wait", wait_replicas=1)).run_once()
