"""The verbs that look: list, next, show, history, status."""

from __future__ import annotations

import json
import os
import re
import socket
from dataclasses import replace
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import install
from dramatiq_distcron.api.infos import RunInfo, TickInfo
from dramatiq_distcron.api.schedules import Schedules
from dramatiq_distcron.messages import tick_id
from dramatiq_distcron.server import Server
from dramatiq_distcron.version import VERSION
from tests.integration.cli.apps import HOURLY, NIGHTLY, SECRET, TWO, App, assert_iso, set_due
from tests.integration.conftest import Running
from tests.support import wait_until

NOBODY_LEADS = "Nobody leads, so nothing is fired. Start one with: dramatiq-distcron beat BROKER\n"


def test_list_in_json_has_exactly_the_keys_it_promises(shop: App) -> None:
    found = shop.state("list", "--json").json
    assert set(found) == {"schedules"}
    hourly, report = found["schedules"]
    assert set(report) == {
        "name", "actor", "queue", "kind", "expression", "timezone", "next_fire_time", "last_fire_time",
        "last_outcome", "paused", "source", "state",
    }  # fmt: skip
    assert set(hourly) == set(report)


def test_list_in_json_tells_what_is_stored(shop: App) -> None:
    hourly, report = shop.state("list", "--json").json["schedules"]
    assert_iso(report["next_fire_time"], hourly["next_fire_time"])
    assert (report["name"], report["actor"], report["queue"]) == ("report:7", "report", "reports")
    assert (report["kind"], report["expression"], report["timezone"]) == ("cron", "0 3 * * *", "Europe/Berlin")
    assert (report["last_fire_time"], report["last_outcome"], report["paused"]) == (None, None, False)
    assert (report["source"], report["state"]) == ("code", "active")
    assert (hourly["kind"], hourly["expression"], hourly["timezone"]) == ("every", "every 1:00:00", None)


def test_list_shows_the_same_to_people(shop: App) -> None:
    head, hourly, report = shop.state("list").out.splitlines()
    assert head.split() == ["SCHEDULE", "WHEN", "ZONE", "ACTOR", "STATE", "NEXT", "LAST", "OUTCOME"]
    assert hourly.startswith("hourly")
    assert re.search(r"report:7 +0 3 \* \* \* +Europe/Berlin +report +active +\d{4}-.*Z \(in .+\) +- +-$", report)


def test_list_of_nothing_is_an_empty_list(app: App) -> None:
    assert app.state("list", "--json").json == {"schedules": []}
    assert app.state("list").code == 0


def test_list_of_nothing_tells_people_where_it_looked(app: App) -> None:
    ran = app.state("list")
    assert ran.out.split() == ["SCHEDULE", "WHEN", "ZONE", "ACTOR", "STATE", "NEXT", "LAST", "OUTCOME"]
    assert ran.err == (
        f"No schedule is stored for app 'default' in namespace {app.namespace!r} of {app.url}. Is it the right one? "
        "See --redis-url, --namespace and --app.\n"
    )


@pytest.fixture
def billing(app: App) -> App:
    """Another app of the namespace, and nothing of the default one."""
    app.beat(app.on_redis(TWO, options=", app='billing'"))
    return app


@pytest.mark.parametrize("argv", [["list"], ["next"], ["history"], ["status"]], ids=lambda argv: argv[0])
def test_who_forgot_the_app_is_told_which_ones_have_schedules(billing: App, argv: list[str]) -> None:
    ran = billing.state(*argv)
    assert ran.code == 0
    assert ran.err == (
        f"No schedule is stored for app 'default' in namespace {billing.namespace!r} of {billing.url}. In namespace "
        f"{billing.namespace!r} there are schedules of app 'billing': is it one of these? See --redis-url, --namespace "
        "and --app.\n"
    )
    assert billing.state(*argv, "--app=billing").err in ("", NOBODY_LEADS)
    assert billing.state(*argv, "--json").err == ""


@pytest.mark.parametrize("verb", ["show", "history", "pause", "trigger"])
def test_who_forgot_the_app_is_told_so_when_a_schedule_is_not_found(billing: App, verb: str) -> None:
    ran = billing.state(verb, "report:7")
    assert ran.code == 7
    assert (
        f"None is known of app 'default' in namespace {billing.namespace!r} of {billing.url}. In namespace " in ran.err
    )
    assert ran.err.endswith("there are schedules of app 'billing': is it one of these?\n")


def test_only_apps_of_the_namespace_that_have_schedules_are_told(app: App, client: Any) -> None:
    """Whatever characters the namespace has, and whatever else is called so."""
    prefix = f"{app.namespace}[a-z]*:distcron:"
    for key in ("shop:schedules", "shop:dead.by:queue:schedules", "shop:last"):
        client.hset(prefix + key, "x", "{}")
    client.hset(f"{app.namespace}b:distcron:other:schedules", "x", "{}")
    ran = app.run("list", f"--redis-url={app.url}", f"--namespace={app.namespace}[a-z]*")
    assert "there are schedules of app 'shop': is it" in ran.err


def test_of_many_apps_the_first_ones_are_told(app: App, client: Any) -> None:
    for number in range(15):
        client.hset(f"{app.namespace}:distcron:app{number:02}:schedules", "x", "{}")
    assert re.search(r"of app 'app00', .* 'app09' and 5 more: is it one", app.state("list").err)


def test_no_more_keys_are_looked_at_than_is_promised(app: App, billing: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dramatiq_distcron.store.redis.watching._LOOKED_AT", 0)
    assert "Is it the right one?" in app.state("list").err


def test_list_tells_people_if_nobody_leads(shop: App) -> None:
    ran = shop.state("list")
    assert ran.err == "Nobody leads, so nothing is fired. Start one with: dramatiq-distcron beat BROKER\n"


def test_with_a_leader_list_has_nothing_to_add(app: App, leader: Running) -> None:
    assert app.state("list").err == ""


def test_programs_get_no_hints(app: App) -> None:
    assert app.state("list", "--json").err == ""


def test_a_schedule_that_the_code_no_longer_knows_is_listed_as_retired(shop: App) -> None:
    shop.beat(shop.on_redis(HOURLY))
    states = {one["name"]: one["state"] for one in shop.state("list", "--json").json["schedules"]}
    assert states == {"hourly": "active", "report:7": "retired"}


def test_a_schedule_that_cannot_be_read_is_listed_as_disabled(shop: App, client: Any) -> None:
    client.hset(f"{shop.namespace}:distcron:default:schedules", "bad", "{rubbish")
    schedules = {one["name"]: one for one in shop.state("list", "--json").json["schedules"]}
    assert schedules["bad"]["state"] == "disabled"
    assert shop.state("list").code == 0


# -- next and show ------------------------------------------------------------------------------------------


def test_next_in_json_has_the_next_fire_times_in_their_order(shop: App) -> None:
    found = shop.state("next", "--json").json
    assert set(found) == {"next"}
    assert all(set(one) == {"schedule", "fire_time", "paused"} for one in found["next"])
    times = [one["fire_time"] for one in found["next"]]
    assert_iso(*times)
    assert times == sorted(times)
    assert {one["schedule"] for one in found["next"]} == {"hourly", "report:7"}


def test_next_shows_the_same_to_people(shop: App) -> None:
    shop.state("pause", "hourly")
    head, *rows = shop.state("next").out.splitlines()
    assert head.split() == ["NEXT", "SCHEDULE", "ACTOR", "STATE"]
    assert sorted(row.split()[-3:] for row in rows) == [
        ["hourly", "hourly", "paused"],
        ["report:7", "report", "active"],
    ]


def test_next_shows_no_more_than_asked_for_and_the_earliest(shop: App, client: Any) -> None:
    set_due(shop, client, "report:7", 1000)
    assert [one["schedule"] for one in shop.state("next", "--json", "-n", "1").json["next"]] == ["report:7"]


def test_next_leaves_out_what_does_not_fire_by_itself(shop: App, client: Any) -> None:
    off = NIGHTLY.replace("tz=", "enabled=False, tz=")
    shop.beat(shop.on_redis(HOURLY + off))
    client.hset(f"{shop.namespace}:distcron:default:schedules", "bad", "{rubbish")
    set_due(shop, client, "bad", 1000)
    states = {one["name"]: one["state"] for one in shop.state("list", "--json").json["schedules"]}
    assert states == {"bad": "disabled", "hourly": "active", "nightly": "disabled", "report:7": "retired"}
    assert [one["schedule"] for one in shop.state("next", "--json").json["next"]] == ["hourly"]


def test_show_in_json_is_what_list_has_of_it_with_arguments_and_policies(shop: App) -> None:
    (_, report) = shop.state("list", "--json").json["schedules"]
    shown = shop.state("show", "report:7", "--json").json
    assert {name: shown[name] for name in report} == report
    assert {name: shown[name] for name in set(shown) - set(report)} == {
        "args": [7], "kwargs": {}, "policy": {}, "reason": "", "encoder": None,
    }  # fmt: skip


def test_show_tells_what_the_actor_is_called_with_and_which_policies_are_no_defaults(shop: App) -> None:
    options = "args=(7, 'a'), kwargs={'x': None}, spread=1.5, overlap='skip'"
    text = f"@dramatiq.actor(periodic=every(hours=1, {options}))\ndef report(a, b, x): ...\n"
    assert shop.beat(shop.on_redis(text)).code == 0
    shown = shop.state("show", "report", "--json").json
    assert (shown["args"], shown["kwargs"]) == ([7, "a"], {"x": None})
    assert shown["policy"] == {"overlap": "skip", "spread": 1.5}
    for_people = shop.state("show", "report").out
    assert re.search(r"^called with: 7, 'a', x=None$", for_people, re.MULTILINE)
    assert re.search(r"^policies: +overlap='skip', spread=1.5$", for_people, re.MULTILINE)


def test_show_in_json_is_json_also_where_an_argument_is_a_number_that_json_does_not_have(shop: App) -> None:
    options = "args=(float('nan'),), kwargs={'x': [float('inf'), {'y': -float('inf')}, 1.5]}"
    text = f"@dramatiq.actor(periodic=every(hours=1, {options}))\ndef report(a, x): ...\n"
    assert shop.beat(shop.on_redis(text)).code == 0

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    shown = json.loads(shop.state("show", "report", "--json").out, parse_constant=refuse)
    assert (shown["args"], shown["kwargs"]) == (["NaN"], {"x": ["Infinity", {"y": "-Infinity"}, 1.5]})


def test_show_tells_people_what_is_stored_of_a_schedule(shop: App) -> None:
    shown = dict(re.findall(r"^(.+?): +(.+)$", shop.state("show", "report:7").out, re.MULTILINE))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d 0[12]:00:00Z \(in .+\)", shown.pop("next"))
    assert shown == {
        "schedule": "report:7", "when": "0 3 * * * (Europe/Berlin)", "actor": "report, on queue 'reports'",
        "state": "active", "defined in": "code", "last": "-", "called with": "7",
    }  # fmt: skip


def test_show_tells_the_last_fire_time_with_its_outcome(shop: App, client: Any) -> None:
    set_due(shop, client, "hourly", 3_600_000)
    shop.beat(shop.on_redis(TWO))
    assert re.search(r"^last: +\d{4}-.*:00:00Z \(.+ ago\) enqueued$", shop.state("show", "hourly").out, re.MULTILINE)


def test_show_tells_what_a_schedule_waits_for(shop: App) -> None:
    skipping = HOURLY.replace("hours=1", "hours=1, overlap='skip'")
    shop.beat(shop.on_redis(skipping))
    assert "waits for" not in shop.state("show", "hourly").out
    id = shop.state("trigger", "hourly", "--json").json["message_id"]
    assert re.search(f"^waits for: +the end of message {id}$", shop.state("show", "hourly").out, re.MULTILINE)
    # By now its runs may overlap.
    shop.beat(shop.on_redis(HOURLY))
    assert "waits for" not in shop.state("show", "hourly").out


def test_show_tells_why_a_schedule_is_disabled(shop: App, client: Any) -> None:
    client.hset(f"{shop.namespace}:distcron:default:schedules", "bad", "{rubbish")
    shown = shop.state("show", "bad").out
    assert re.search("^state: +disabled$", shown, re.MULTILINE)
    assert re.search(r"^reason: +\S+", shown, re.MULTILINE)
    assert shop.state("show", "bad", "--json").json["reason"] in shown


def test_a_schedule_that_is_switched_off_in_code_is_shown_as_disabled(shop: App) -> None:
    shop.beat(shop.on_redis(HOURLY.replace("hours=1", "hours=1, enabled=False")))
    assert shop.state("show", "hourly", "--json").json["state"] == "disabled"


# -- history ------------------------------------------------------------------------------------------------


def test_history_in_json_has_exactly_the_keys_it_promises(shop: App, client: Any) -> None:
    week = 7 * 86_400_000
    fire_time = int(client.time()[0]) * 1000 // week * week
    weekly = "@dramatiq.actor(periodic=every(weeks=1))\ndef weekly(): ...\n"
    shop.beat(shop.on_redis(weekly))
    set_due(shop, client, "weekly", fire_time - 5 * week)
    assert shop.beat(shop.on_redis(weekly)).code == 0
    found = shop.state("history", "weekly", "--json").json
    assert set(found) == {"ticks"}
    enqueued, missed = found["ticks"]
    for tick in (enqueued, missed):
        assert set(tick) == {
            "schedule", "fire_time", "fire_time_to", "count", "outcome", "message_id", "decided_at", "lateness_ms",
            "term", "holder", "reason", "run",
        }  # fmt: skip
        assert_iso(tick["fire_time"], tick["fire_time_to"], tick["decided_at"])
    assert (missed["outcome"], missed["count"], missed["reason"]) == ("missed", 5, "catch_up=latest")
    assert (missed["message_id"], missed["lateness_ms"]) == (None, None)
    assert (enqueued["outcome"], enqueued["count"], enqueued["fire_time"]) == ("enqueued", 1, enqueued["fire_time_to"])
    assert enqueued["message_id"] == tick_id(shop.namespace, "default", "weekly", fire_time)
    assert enqueued["lateness_ms"] >= 0
    assert enqueued["term"] == missed["term"] > 0
    assert re.fullmatch("[0-9a-f]{32}", enqueued["holder"])


def test_list_tells_the_last_outcome(shop: App, client: Any) -> None:
    set_due(shop, client, "hourly", 3_600_000)
    shop.beat(shop.on_redis(TWO))
    hourly, _ = shop.state("list", "--json").json["schedules"]
    assert hourly["last_outcome"] == "enqueued"
    assert_iso(hourly["last_fire_time"])


def test_history_shows_the_same_to_people(shop: App) -> None:
    shop.state("trigger", "hourly")
    head, row = shop.state("history", "hourly").out.splitlines()
    assert head.split() == ["SCHEDULE", "FIRE", "TIME", "COUNT", "OUTCOME", "LATE", "RUN", "MESSAGE", "REASON"]
    assert re.search(r"Z \((.+ ago|in 0 s)\) +1 +enqueued +0 ms +queued +[0-9a-f-]{36} +triggered$", row)


def test_history_shows_to_people_why_a_run_is_dead(shop: App, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.state("trigger", "hourly")
    history, run = Schedules.history, RunInfo("dead", 0, 0, f"ValueError: {200 * 'x'}", "0" * 36)

    def ended(self: Schedules, *args: Any, **named: Any) -> list[TickInfo]:
        return [replace(one, run=run) for one in history(self, *args, **named)]

    monkeypatch.setattr(Schedules, "history", ended)
    _, row = shop.state("history", "hourly").out.splitlines()
    assert re.search(r" dead +0{36} +triggered; ValueError: x{88}\.\.\.$", row)
    told = shop.state("history", "hourly", "--json").json["ticks"][0]["run"]
    beginning = "1970-01-01T00:00:00.000Z"
    assert told == {"state": "dead", "started_at": beginning, "finished_at": beginning, "error": run.error}


def test_history_shows_the_newest_first_and_not_more_than_asked_for(shop: App) -> None:
    ids = [shop.state("trigger", "hourly", "--json").json["message_id"] for _ in range(3)]
    shown = [tick["message_id"] for tick in shop.state("history", "hourly", "--json", "-n", "2").json["ticks"]]
    assert shown == ids[:0:-1]


def test_history_of_a_schedule_that_never_fired_is_empty(shop: App) -> None:
    assert shop.state("history", "hourly", "--json").json == {"ticks": []}


def test_without_a_name_history_is_that_of_all_schedules(shop: App) -> None:
    ids = [shop.state("trigger", name, "--json").json["message_id"] for name in ("hourly", "report:7", "hourly")]
    ticks = shop.state("history", "--json").json["ticks"]
    assert [(tick["schedule"], tick["message_id"]) for tick in ticks] == [
        ("hourly", ids[2]), ("report:7", ids[1]), ("hourly", ids[0])
    ]  # fmt: skip
    assert len(shop.state("history", "-n", "2").out.splitlines()) == 1 + 2


def test_a_history_without_records_is_told_to_people(shop: App) -> None:
    assert shop.state("history").out == "Nothing is recorded yet.\n"
    assert shop.state("history", "hourly").out == "Nothing is recorded yet.\n"


@pytest.mark.parametrize("verb", ["history", "trigger", "show", "pause", "resume", "remove"])
@pytest.mark.parametrize("mode", [[], ["--json"]], ids=["table", "json"])
def test_a_schedule_that_is_not_there_is_told_with_the_nearest_name(shop: App, verb: str, mode: list[str]) -> None:
    ran = shop.state(verb, "report7", *mode)
    assert (ran.code, ran.out) == (7, "")
    assert ran.err == "dramatiq-distcron: There is no schedule 'report7'. Did you mean 'report:7'?\n"


def test_where_no_schedule_is_it_is_told(app: App) -> None:
    ran = app.state("trigger", "report:7")
    place = f"app 'default' in namespace {app.namespace!r} of {app.url}"
    told = f"dramatiq-distcron: There is no schedule 'report:7'. None is known of {place}.\n"
    assert (ran.code, ran.err) == (7, told)


# -- status -------------------------------------------------------------------------------------------------


def test_status_without_a_leader_says_so(app: App, server: Server) -> None:
    found = app.state("status", "--json").json
    assert set(found) == {"leader", "instances", "redis", "dead_letters"}
    assert (found["leader"], found["instances"]) == (None, [])
    assert found["redis"]["url"] == server.url
    assert found["redis"]["server"] in ("redis", "valkey")
    assert found["redis"]["version"] == server.version
    assert "Leader: none. Start one with: dramatiq-distcron beat BROKER" in app.state("status").out


def test_status_in_json_has_exactly_the_keys_it_promises(app: App, leader: Running) -> None:
    found = app.state("status", "--json").json
    assert set(found["leader"]) == {"holder", "term", "since"}
    (instance,) = found["instances"]
    assert set(instance) == {
        "holder",
        "role",
        "host",
        "pid",
        "version",
        "started_at",
        "last_pass_at",
        "last_seen_at",
        "disabled",
    }


def test_status_tells_who_leads_and_since_when(app: App, leader: Running) -> None:
    found = app.state("status", "--json").json
    assert_iso(found["leader"]["since"])
    assert (found["leader"]["holder"], found["leader"]["term"]) == (leader.beat.holder, leader.beat.lease.term)
    (instance,) = found["instances"]
    assert_iso(instance["started_at"], instance["last_pass_at"], instance["last_seen_at"])
    assert instance["last_seen_at"] >= instance["started_at"]
    assert (instance["holder"], instance["role"], instance["pid"]) == (leader.beat.holder, "leader", os.getpid())
    assert (instance["host"], instance["version"]) == (socket.gethostname(), VERSION)


def test_status_shows_the_same_to_people(app: App, leader: Running) -> None:
    who, head, row, dead, server = app.state("status").out.splitlines()
    assert who.startswith(f"Leader: {leader.beat.holder}, term {leader.beat.lease.term}, since 2")
    assert head.split() == ["ROLE", "HOST", "PID", "VERSION", "STARTED", "LAST", "PASS", "HEARD", "OF", "HOLDER"]
    assert row.startswith("leader ")
    assert row.endswith(leader.beat.holder)
    assert server.startswith("Redis: ")
    assert dead.startswith("Dead letters: 0")


def test_status_shows_workers_too(app: App, redis_broker: RedisBroker) -> None:
    distcron = install(redis_broker)
    worker = dramatiq.Worker(redis_broker, worker_threads=1, worker_timeout=100)
    worker.start()
    try:
        wait_until(lambda: distcron.status().instances, "a worker that told of itself")
        (instance,) = app.state("status", "--json").json["instances"]
    finally:
        worker.stop()
    assert (instance["role"], instance["pid"], instance["last_pass_at"]) == ("worker", os.getpid(), None)
    assert_iso(instance["started_at"], instance["last_seen_at"])
    assert app.state("status", "--json").json["instances"] == []


def test_status_tells_what_was_lost(app: App, redis_broker: RedisBroker) -> None:
    assert app.state("status", "--json").json["redis"]["notices"] == []
    install(redis_broker).open_backend().store.notice("The store was emptied.")
    (notice,) = app.state("status", "--json").json["redis"]["notices"]
    assert_iso(notice.partition(" ")[0])
    assert notice.endswith(" The store was emptied.")
    assert app.state("status").out.splitlines()[-1] == f"Notice: {notice}"


def test_status_shows_no_password(app: App, server: Server, client: Any, namespace: str) -> None:
    client.execute_command("ACL", "SETUSER", namespace, "on", f">{SECRET}", "~*", "+@all")
    try:
        where = f"--redis-url=redis://{namespace}:{SECRET}@127.0.0.1:{server.port}/0"
        for mode in ([], ["--json"]):
            ran = app.run("status", where, *mode)
            assert ran.code == 0
            assert f"redis://{namespace}:***@127.0.0.1:{server.port}/0" in ran.out
            assert SECRET not in ran.out + ran.err
    finally:
        client.execute_command("ACL", "DELUSER", namespace)


def test_a_missing_right_is_told_with_what_was_refused(app: App, server: Server, client: Any, namespace: str) -> None:
    client.execute_command("ACL", "SETUSER", namespace, "on", f">{SECRET}", "~*", "+@all", "-hscan")
    try:
        ran = app.run("list", f"--redis-url=redis://{namespace}:{SECRET}@127.0.0.1:{server.port}/0")
        assert ran.code == 3
        assert "hscan" in ran.err.lower()
        assert ran.err.count("\n") == 1
    finally:
        client.execute_command("ACL", "DELUSER", namespace)
