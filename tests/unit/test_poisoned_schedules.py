"""One schedule that cannot be used is taken out of the way, with the reason; the others fire (field bug 115)."""

from __future__ import annotations

import json
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker

from dramatiq_distcron import every, install
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.schedules import EveryTiming
from dramatiq_distcron.specs import FORMAT, Spec
from tests.support import queued

PAYLOAD: dict[str, Any] = {"args": [], "kwargs": {}, "options": {}}
GOOD = Spec("bad", "job", "default", EveryTiming(1000), payload=PAYLOAD, source="api")
POLICY = {"catch_up": "all", "misfire_grace_time": None, "max_catch_up": 100}
CRON = {"kind": "cron", "expression": "* * * * *", "seconds": None, "timezone": "UTC"}


def poisoned(**changes: Any) -> str:
    return json.dumps({"revision": 1, **GOOD.to_json(), **changes})


@pytest.fixture
def beat(stub_broker: StubBroker) -> Beat:
    """A beat with one good schedule that is due."""
    distcron = install(stub_broker)

    @dramatiq.actor(broker=stub_broker, periodic=every(3600, name="good"))
    def job() -> None: ...

    beat = Beat(distcron)
    spec = json.dumps({"revision": 1, **beat.specs["good"].to_json()})
    put(beat, "good", spec)
    return beat


def put(beat: Beat, name: str, text: str) -> None:
    store: Any = beat.backend.store
    store._state.schedules[name] = text
    store._state.due[name] = store.now() - 5000


def good_ticks(broker: StubBroker) -> list[str]:
    schedules = [message.options["distcron"]["schedule"] for message in queued(broker)]
    return [name for name in schedules if name == "good"]


RUBBISH = {
    "no JSON": "{rubbish",
    "empty": "",
    "no object": "[]",
    "deeply nested": "[" * 100_000,
    "expression": poisoned(timing={**CRON, "expression": "0 0 30 2 *"}),
    "no interval": poisoned(timing={"kind": "every", "interval": 0, "anchor": 0}),
    "endless interval": poisoned(timing={"kind": "every", "interval": float("inf"), "anchor": 0}),
    "policy": poisoned(policy={**POLICY, "max_catch_up": "x"}),
    "payload": poisoned(payload=[]),
    "no args": poisoned(payload={}),
    "args": poisoned(payload={**PAYLOAD, "args": 5}),
    "options": poisoned(payload={**PAYLOAD, "options": []}),
    "encoded": poisoned(payload={"encoder": "JSONEncoder", "encoded": "!!"}),
    "other encoder": poisoned(payload={"encoder": "PickleEncoder", "encoded": ""}),
    "actor": poisoned(actor=["x"]),
    "unknown actor": poisoned(actor="gone"),
}


@pytest.mark.parametrize("text", RUBBISH.values(), ids=RUBBISH)
def test_a_bad_schedule_leaves_its_reason_behind_and_the_others_fire(
    beat: Beat, stub_broker: StubBroker, text: str
) -> None:
    put(beat, "bad", text)
    assert beat.run_once()
    assert good_ticks(stub_broker) == ["good"]
    last = beat.backend.store.last(["bad"]).get("bad", {})
    assert last.get("outcome") in ("disabled", "error")
    assert last["reason"]


@pytest.mark.parametrize(
    "newer",
    [
        poisoned(format=FORMAT + 1),
        poisoned(policy={**POLICY, "of a newer version": 1}),
        poisoned(timing={**CRON, "timezone": "Mars/Olympus"}),
        poisoned(timing={"kind": "lunar"}),
        poisoned(timing={"kind": "any_of", "parts": [CRON, {"kind": "lunar"}]}),
    ],
    ids=["form", "policy", "zone data", "kind", "kind of a part"],
)
def test_what_another_beat_may_be_able_to_use_is_left_alone_and_the_others_fire(
    beat: Beat, stub_broker: StubBroker, newer: str
) -> None:
    put(beat, "bad", newer)
    assert beat.run_once()
    assert good_ticks(stub_broker) == ["good"]
    assert beat.backend.store.get(["bad"])["bad"].spec == newer
    assert beat.backend.store.last(["bad"]) == {}
