"""The verbs that change: pause, resume, remove, trigger."""

from __future__ import annotations

import re

from dramatiq.brokers.redis import RedisBroker

from tests.integration.cli.apps import TWO, App
from tests.support import queued


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
