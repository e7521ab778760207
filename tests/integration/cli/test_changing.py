"""The verbs that change: pause, resume, remove, trigger."""

from __future__ import annotations

import re
from typing import Any

import pytest
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import every
from dramatiq_distcron.cli.loading import load_app
from tests.integration.cli.apps import HOURLY, NIGHTLY, TWO, App, set_due
from tests.support import queued, wait_until

# -- pause and resume ---------------------------------------------------------------------------------------


def stored(app: App, name: str) -> Any:
    found = {one["name"]: one for one in app.state("list", "--json").json["schedules"]}
    return found.get(name)


def test_a_paused_schedule_is_shown_as_one_until_it_is_resumed(shop: App) -> None:
    assert shop.state("pause", "hourly") == (0, "Paused 'hourly'.\n", "")
    assert (stored(shop, "hourly")["paused"], stored(shop, "hourly")["state"]) == (True, "active")
    assert re.search(r"hourly .* paused +\d{4}-", shop.state("list").out)
    assert shop.state("resume", "hourly").out == "Resumed 'hourly'. What came in the pause is not made up for.\n"
    assert stored(shop, "hourly")["paused"] is False


def test_what_comes_in_a_pause_is_recorded_with_the_reason_and_not_fired(
    shop: App, client: Any, redis_broker: RedisBroker
) -> None:
    shop.state("pause", "hourly", "--reason", "unpaid")
    hour = 3_600_000
    set_due(shop, client, "hourly", int(client.time()[0]) * 1000 // hour * hour)
    assert shop.beat(shop.on_redis(TWO)).code == 0
    (tick,) = shop.state("history", "hourly", "--json").json["ticks"]
    assert (tick["outcome"], tick["reason"], tick["message_id"]) == ("paused", "unpaid", None)
    assert queued(redis_broker) == []


def test_a_pause_with_an_end_tells_when_that_is(shop: App) -> None:
    ran = shop.state("pause", "hourly", "--for", "15m")
    assert re.fullmatch(r"Paused 'hourly' until \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ\.\n", ran.out)
    assert stored(shop, "hourly")["paused"] is True


def test_a_pause_that_is_over_is_not_shown(shop: App) -> None:
    shop.state("pause", "hourly", "--for", "0.001")
    wait_until(lambda: not stored(shop, "hourly")["paused"], "the end of a pause of a millisecond")


def test_resuming_what_is_not_paused_changes_nothing(shop: App) -> None:
    before = stored(shop, "hourly")
    assert shop.state("resume", "hourly").code == 0
    assert stored(shop, "hourly") == before


@pytest.mark.parametrize(("verb", "done"), [("pause", "paused"), ("resume", "resumed"), ("remove", "removed")])
def test_what_was_done_is_told_in_json(shop: App, verb: str, done: str) -> None:
    put_report(shop, "report:8")
    assert shop.state(verb, "report:8", "--json").json == {"schedule": "report:8", "done": done}


# -- remove -------------------------------------------------------------------------------------------------


def put_report(app: App, name: str) -> None:
    """Adds a schedule by the API, as a process of the app does."""
    distcron = load_app(app.on_redis(TWO), path=[str(app.folder)])
    distcron.schedules.put(every(60, name=name, args=(8,)), "report")
    distcron.close()


def test_a_schedule_of_the_api_can_be_removed(shop: App) -> None:
    put_report(shop, "report:8")
    assert stored(shop, "report:8")["source"] == "api"
    assert shop.state("remove", "report:8") == (0, "Removed 'report:8'.\n", "")
    assert stored(shop, "report:8") is None


def test_a_schedule_of_the_code_cannot_be_removed_and_it_is_told_what_to_do(shop: App) -> None:
    ran = shop.state("remove", "hourly")
    assert (ran.code, ran.out) == (5, "")
    assert ran.err == (
        "dramatiq-distcron: Schedule 'hourly' is defined in code, which would bring it back: remove it there, or "
        "pause it.\n"
    )
    assert stored(shop, "hourly")["state"] == "active"


def test_a_schedule_that_the_code_no_longer_knows_can_be_removed(shop: App) -> None:
    shop.beat(shop.on_redis(HOURLY))
    assert stored(shop, "report:7")["state"] == "retired"
    assert shop.state("remove", "report:7").code == 0
    assert stored(shop, "report:7") is None


# -- trigger ------------------------------------------------------------------------------------------------


def test_trigger_enqueues_the_message_of_the_schedule_without_the_apps_code(
    shop: App, redis_broker: RedisBroker
) -> None:
    ran = shop.state("trigger", "report:7", "--json")
    assert set(ran.json) == {"schedule", "message_id", "actor", "queue"}
    assert (ran.json["schedule"], ran.json["actor"], ran.json["queue"]) == ("report:7", "report", "reports")
    (message,) = queued(redis_broker, "reports")
    assert (message.message_id, message.actor_name, message.args) == (ran.json["message_id"], "report", (7,))
    assert message.options["distcron"]["schedule"] == "report:7"


def test_trigger_leaves_the_fire_times_alone(shop: App) -> None:
    before = shop.state("list", "--json").json["schedules"][0]["next_fire_time"]
    shop.state("trigger", "hourly")
    assert shop.state("list", "--json").json["schedules"][0]["next_fire_time"] == before


def test_trigger_tells_people_what_it_did(shop: App) -> None:
    out = shop.state("trigger", "report:7").out
    assert re.fullmatch(r"Enqueued report on 'reports' as message [0-9a-f-]{36}\.\n", out)


def test_verbs_work_with_the_apps_code_as_well(shop: App, redis_broker: RedisBroker) -> None:
    name = shop.on_redis(TWO)
    where = ("--broker", name, f"--path={shop.folder}")
    assert len(shop.run("list", "--json", *where).json["schedules"]) == 2
    assert shop.run("trigger", "hourly", *where).code == 0
    assert [message.actor_name for message in queued(redis_broker)] == ["hourly"]


def test_a_trigger_that_a_middleware_refuses_is_an_error_of_one_line(shop: App) -> None:
    name = shop.on_redis(
        "from dramatiq.middleware import Middleware, MiddlewareError\n"
        "class Veto(Middleware):\n"
        "    def before_enqueue(self, broker, message, delay): raise MiddlewareError('not paid')\n"
        f"broker.add_middleware(Veto())\n{TWO}"
    )
    ran = shop.run("trigger", "hourly", "--broker", name, f"--path={shop.folder}")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.endswith("A middleware refused the message: MiddlewareError: not paid\n")
    assert ran.err.count("\n") == 1


DISABLED = HOURLY.replace("hours=1", "hours=1, enabled=False")
FINISHED = HOURLY.replace("hours=1", "hours=1, end=datetime(2026, 1, 1, tzinfo=timezone.utc)")
FINISHED = f"from datetime import datetime, timezone\n{FINISHED}"


@pytest.mark.parametrize(
    ("actors", "state"), [(NIGHTLY, "retired"), (DISABLED, "disabled"), (FINISHED, "finished")], ids=lambda it: it[-9:]
)
@pytest.mark.parametrize("mode", [[], ["--json"]], ids=["text", "json"])
def test_a_schedule_that_does_not_fire_by_itself_can_be_triggered_and_that_is_told(
    shop: App, redis_broker: RedisBroker, actors: str, state: str, mode: list[str]
) -> None:
    shop.beat(shop.on_redis(actors))
    assert stored(shop, "hourly")["state"] == state
    ran = shop.state("trigger", "hourly", *mode)
    assert ran.code == 0
    assert ran.err == f"The schedule is {state}: it was run this once, and does not fire by itself.\n"
    assert len(queued(redis_broker)) == 1


def test_a_paused_schedule_can_be_triggered_and_that_it_is_paused_is_told(shop: App, redis_broker: RedisBroker) -> None:
    shop.state("pause", "hourly")
    ran = shop.state("trigger", "hourly")
    assert ran.err == "The schedule is paused: it was run this once, and does not fire by itself.\n"
    assert len(queued(redis_broker)) == 1


def test_a_schedule_that_fires_by_itself_is_triggered_without_a_word_about_that(shop: App) -> None:
    assert shop.state("trigger", "hourly").err == ""


@pytest.mark.parametrize("overlap", ["skip", "buffer_one"])
@pytest.mark.parametrize("mode", [[], ["--json"]], ids=["text", "json"])
def test_a_schedule_whose_run_is_not_over_is_not_triggered_where_runs_must_not_overlap(
    shop: App, redis_broker: RedisBroker, overlap: str, mode: list[str]
) -> None:
    shop.beat(shop.on_redis(HOURLY.replace("hours=1", f"hours=1, overlap={overlap!r}")))
    first = shop.state("trigger", "hourly", "--json").json["message_id"]
    ran = shop.state("trigger", "hourly", *mode)
    assert (ran.code, ran.out) == (8, "")
    assert ran.err == (
        f"dramatiq-distcron: Schedule 'hourly' was not triggered: with overlap={overlap!r} a run begins when the one "
        f"before is over, and message {first} is not. Wait for it, or look at it in the history.\n"
    )
    assert [message.message_id for message in queued(redis_broker)] == [first]


def test_resume_of_one_that_is_not_paused_says_so(shop: App) -> None:
    ran = shop.state("resume", "report:7")
    assert (ran.code, ran.out) == (0, "'report:7' was not paused. Nothing was changed.\n")
    assert shop.state("pause", "report:7").code == 0
    assert shop.state("resume", "report:7").out.startswith("Resumed 'report:7'.")
