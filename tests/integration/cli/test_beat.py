"""What a beat shows and says, and which states it takes office in."""

from __future__ import annotations

import re
from collections.abc import Callable

from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import install
from tests.integration.cli.apps import NIGHTLY, STUB, TWO, App
from tests.integration.conftest import Running
from tests.support import wait_until


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
