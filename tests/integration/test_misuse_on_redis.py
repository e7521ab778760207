"""The table of what users may give to the API, on Redis: names and texts become bytes there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import DistCron, DistCronError, every, install
from tests.support import queued
from tests.unit.test_misuse import CASES, ODD

ON_THE_STORE = [name for name in CASES if name.startswith(("schedules.", "retries.", "arguments", "message options"))]


@pytest.fixture
def distcron(redis_broker: RedisBroker) -> DistCron:
    distcron = install(redis_broker)
    dramatiq.actor(lambda *args: None, actor_name="job", broker=redis_broker)
    return distcron


def outcome(distcron: DistCron, name: str, odd: Any) -> str:
    call, _ = CASES[name]
    distcron.schedules.put(every(3600, name="t"), "job")
    before, messages = distcron.schedules.list(), len(queued(distcron.broker))
    try:
        call(SimpleNamespace(distcron=distcron), odd)  # type: ignore[arg-type]
    except DistCronError:
        same = distcron.schedules.list() == before and len(queued(distcron.broker)) == messages
        return "refused" if same else "half done"
    except Exception as error:
        return f"raised {error!r}"
    distcron.schedules.put_many([(every(3600, name="t"), "job"), (every(3600, name="q"), "job")])
    distcron.schedules.resume("t")
    distcron.schedules.remove("q")
    return "taken"


@pytest.mark.parametrize("name", ON_THE_STORE)
def test_what_is_taken_and_what_is_refused_is_the_same_on_redis(distcron: DistCron, name: str) -> None:
    _, takes = CASES[name]
    found = {odd: outcome(distcron, name, value) for odd, value in ODD.items()}
    wanted = {odd: "taken" if odd in takes.split() else "refused" for odd in ODD}
    assert {odd: found[odd] for odd in ODD if found[odd] != wanted[odd]} == {}


def test_a_distcron_that_was_closed_connects_again_when_it_is_asked(distcron: DistCron) -> None:
    distcron.schedules.put(every(3600, name="t"), "job")
    distcron.close()
    assert distcron.status().leader is None
    distcron.close()
    assert [one.name for one in distcron.schedules.list()] == ["t"]
