"""What a beat shows and says, and which states it takes office in."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import install
from tests.integration.cli.apps import HOURLY, NIGHTLY, STUB, TWO, App, Patch, Start, line_of, set_due
from tests.integration.conftest import Running
from tests.support import queued, wait_until


def test_at_its_start_a_beat_shows_the_schedules_with_their_next_times_and_how_to_try_one(app: App) -> None:
    name = app.on_redis(TWO)
    ran = app.beat(name)
    assert (ran.code, ran.err) == (0, "")
    head, *rows, hint = ran.out.splitlines()
    assert head.split() == ["SCHEDULE", "WHEN", "ZONE", "ACTOR", "NEXT"]
    (hourly,) = [row for row in rows if row.startswith("hourly")]
    (report,) = [row for row in rows if row.startswith("report:7")]
    assert "every 1:00:00" in hourly
    assert re.search(r"0 3 \* \* \* +Europe/Berlin +report +\d{4}-\d\d-\d\d 0[12]:00:00Z \(in .+\)$", report)
    first = rows[0].split()[0]
    assert hint == f"Try one: dramatiq-distcron trigger {first!r} --broker {name}"


def test_the_command_it_shows_works(app: App) -> None:
    name = app.on_redis("@dramatiq.actor(periodic=every(hours=1))\ndef hourly(): ...\n")
    hint = app.beat(name).out.splitlines()[-1]
    argv = hint.removeprefix("Try one: dramatiq-distcron ").replace("'", "").split()
    assert app.run(*argv, f"--path={app.folder}").code == 0


def test_one_that_runs_beside_a_leader_does_nothing_and_says_so(
    app: App, redis_broker: RedisBroker, start_beat: Callable[..., Running]
) -> None:
    running = start_beat(install(redis_broker))
    wait_until(lambda: running.beat.lease.trusted, "a leader")
    ran = app.beat(app.on_redis(TWO))
    assert ran.code == 0
    assert ran.err == "Another beat is on duty; nothing was done.\n"


def test_a_function_may_set_the_broker_up(app: App) -> None:
    body = "".join(f"    {line}\n" for line in STUB.splitlines())
    name = app.module(f"def setup():\n{body}    return broker\n")
    assert app.beat(f"{name}:setup").code == 0


def test_a_broker_may_be_deeper_in_the_module(app: App) -> None:
    assert app.beat(f"{app.stub(NIGHTLY + 'class config:' + chr(10) + '    b = broker')}:config.b").code == 0


def test_more_modules_bring_more_schedules(app: App) -> None:
    name = app.stub(NIGHTLY)
    more = app.module(
        "import dramatiq\nfrom dramatiq_distcron import every\n@dramatiq.actor(periodic=every(60))\ndef m(): ...\n"
    )
    out = app.beat(name, more).out
    assert [line.split()[0] for line in out.splitlines()[1:-1]] == ["m", "nightly"]


# -- whose state it is --------------------------------------------------------------------------------------


def stored(app: App, *where: str) -> dict[str, str]:
    """Names and states of the schedules."""
    found = app.state("list", "--json", *where).json["schedules"]
    return {one["name"]: one["state"] for one in found}


def test_another_code_base_under_the_same_app_name_is_refused_with_both_names_and_what_to_do(shop: App) -> None:
    other = shop.on_redis(NIGHTLY, name=f"{shop.name}_other")
    ran = shop.beat(other)
    assert ran.code == 5
    assert ran.err == (
        f"dramatiq-distcron: The schedules of app 'default' in {shop.url} are those of the code base {shop.name!r}, "
        f"and this is {other!r}. Two code bases under one name would retire each other's schedules. Give one of them "
        "another name with DistCron(app=...); if it is the same app under a new module name, take over with --adopt.\n"
    )
    assert stored(shop) == {"hourly": "active", "report:7": "active"}


def test_a_beat_that_is_not_to_end_is_refused_as_well(shop: App, start: Start) -> None:
    process = start("beat", shop.on_redis(NIGHTLY, name=f"{shop.name}_other"))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 5
    assert "take over with --adopt" in err
    assert "Traceback" not in err
    assert stored(shop) == {"hourly": "active", "report:7": "active"}


def test_a_code_base_that_adopts_the_state_owns_it_and_the_one_before_is_refused(shop: App) -> None:
    other = shop.on_redis(NIGHTLY, name=f"{shop.name}_other")
    assert shop.beat(other, "--adopt").code == 0
    assert stored(shop) == {"hourly": "retired", "nightly": "active", "report:7": "retired"}
    assert shop.beat(other).code == 0
    assert f"are those of the code base {other!r}" in shop.beat(shop.on_redis(TWO)).err


def test_a_code_base_that_has_a_new_name_adopts_its_own_schedules_as_they_were(shop: App, client: Any) -> None:
    set_due(shop, client, "hourly", 3_600_000)
    assert shop.beat(shop.on_redis(TWO, name=f"{shop.name}_renamed"), "--adopt").code == 0
    assert stored(shop) == {"hourly": "active", "report:7": "active"}
    assert shop.state("list", "--json").json["schedules"][0]["last_outcome"] == "enqueued"


def test_adopting_what_is_ours_or_nobodys_is_no_error(app: App) -> None:
    name = app.on_redis(TWO)
    assert app.beat(name, "--adopt").code == 0
    assert app.beat(name, "--adopt").code == 0


@pytest.mark.parametrize("how", ["{}:broker", "{}:distcron.broker"])
def test_how_the_broker_is_named_makes_no_other_code_base(shop: App, how: str) -> None:
    assert shop.beat(how.format(shop.on_redis(TWO))).code == 0


def test_under_another_app_name_a_second_code_base_has_schedules_of_its_own(shop: App) -> None:
    assert shop.beat(shop.on_redis(NIGHTLY, name=f"{shop.name}_other", options=", app='other'")).code == 0
    assert stored(shop) == {"hourly": "active", "report:7": "active"}
    assert stored(shop, "--app=other") == {"nightly": "active"}


# -- standing by --------------------------------------------------------------------------------------------


def test_a_standby_that_would_retire_schedules_warns_of_it_before_it_leads(shop: App, start: Start) -> None:
    """It may be the only one that was set up wrongly, and nobody would know before the leader ends."""
    first = start("beat", shop.on_redis(TWO))
    line_of(first, "Leading since")
    second = start("beat", shop.on_redis(HOURLY))
    line = line_of(second, "Stored and not in the code")
    assert "of this beat: report:7. If it leads, they are retired and do not fire." in line
    assert "[WARNING]" in line
    assert "Is a module missing on its command line, or is it of another version?" in line
    line_of(second, "Standing by: ")
    assert stored(shop) == {"hourly": "active", "report:7": "active"}


def test_a_standby_of_the_same_code_has_nothing_to_warn_of(shop: App, start: Start) -> None:
    line_of(start("beat", shop.on_redis(TWO)), "Leading since")
    second = start("beat", shop.name)
    line_of(second, "Standing by: ")
    second.terminate()
    assert "WARNING" not in second.communicate(timeout=60)[1]


def test_a_leader_that_stops_gives_the_lease_back_and_says_so(shop: App, start: Start) -> None:
    first = start("beat", shop.on_redis(TWO))
    line_of(first, "Leading since")
    second = start("beat", shop.name)
    line_of(second, "Standing by: ")
    second.terminate()
    assert "Stopped; another beat may lead." in second.communicate(timeout=60)[1]
    first.terminate()
    assert "Stopped; the lease is given back." in first.communicate(timeout=60)[1]
    status = shop.state("status", "--json").json
    assert (status["leader"], status["instances"]) == (None, [])


# -- switched off -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["1", "true", "YES", "on"])
def test_an_app_that_is_switched_off_enqueues_nothing_and_records_why(
    shop: App, client: Any, redis_broker: RedisBroker, monkeypatch: Patch, value: str
) -> None:
    set_due(shop, client, "hourly", 3_600_000)
    monkeypatch.setenv("DISTCRON_DISABLED", value)
    assert shop.beat(shop.on_redis(TWO)).code == 0
    (tick,) = shop.state("history", "hourly", "--json").json["ticks"]
    assert (tick["outcome"], tick["reason"]) == ("disabled", f"DISTCRON_DISABLED={value.lower()}")
    assert tick["count"] > 400_000
    assert queued(redis_broker) == []


@pytest.mark.parametrize("value", ["", "0", "false", "no", "Off"])
def test_an_app_that_is_not_switched_off_fires(
    shop: App, client: Any, redis_broker: RedisBroker, monkeypatch: Patch, value: str
) -> None:
    set_due(shop, client, "hourly", 3_600_000)
    monkeypatch.setenv("DISTCRON_DISABLED", value)
    assert shop.beat(shop.on_redis(TWO)).code == 0
    assert len(queued(redis_broker)) == 1


def test_a_switch_that_is_neither_on_nor_off_is_refused(app: App, monkeypatch: Patch) -> None:
    monkeypatch.setenv("DISTCRON_DISABLED", "perhaps")
    assert app.refused(2, app.on_redis(TWO)).startswith("DISTCRON_DISABLED must be 1 or 0, not 'perhaps'.")


def test_a_stub_broker_is_warned_of_because_no_worker_sees_its_messages(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    assert app.beat(app.stub(NIGHTLY)).code == 0
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told.startswith("The broker is a StubBroker: its messages stay in this process, and no worker sees them.")


# -- switched off -------------------------------------------------------------------------------------------


def test_a_beat_that_is_switched_off_warns_and_status_tells_it(
    app: App, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTCRON_DISABLED", "1")
    beat = start("beat", app.on_redis(TWO))
    assert "[WARNING]" in line_of(beat, "DISTCRON_DISABLED=1: if this beat leads, nothing is enqueued")
    monkeypatch.delenv("DISTCRON_DISABLED")
    wait_until(lambda: app.state("status", "--json").json["instances"], "a beat that told of itself")
    (instance,) = app.state("status", "--json").json["instances"]
    assert instance["disabled"] == "DISTCRON_DISABLED=1"
    assert "Disabled: the leader was started with DISTCRON_DISABLED=1" in app.state("status").out


@pytest.mark.parametrize("served", [True, False], ids=["of dev", "of its own"])
def test_the_beat_of_dev_tells_how_another_terminal_finds_an_app_with_a_name(
    app: App, redis_broker: RedisBroker, monkeypatch: pytest.MonkeyPatch, served: bool
) -> None:
    if served:
        monkeypatch.setenv("DISTCRON_DEV_SERVER", install(redis_broker).open_backend().where)
    out = app.beat(app.on_redis(TWO, options=", app='shop'")).out
    assert ("In another terminal: export DISTCRON_APP=shop\n" in out) == served
