"""Bytes that are no text, written into our keys by hand: one schedule suffers, the others fire."""

from __future__ import annotations

import json
import threading
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import every, get_distcron, install
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.durations import FIRST_INSTANT, LAST_INSTANT
from tests.support import queued

NO_TEXT = b"\xff\xfe{"


@pytest.fixture
def beat(redis_broker: RedisBroker) -> Beat:
    """A beat with two schedules in its code, which were stored by one that ended."""
    distcron = install(redis_broker)

    @dramatiq.actor(broker=redis_broker, periodic=[every(3600, name="good"), every(3600, name="bad")])
    def job() -> None: ...

    Beat(distcron).run_once()
    return Beat(distcron)


def fire(beat: Beat, broker: Any) -> list[str]:
    """Fires what is due and returns the schedules whose message was enqueued."""
    store: Any = beat.backend.store
    broker.client.zadd(store.keys.due, {"good": 3_600_000})
    done = threading.Thread(target=beat.run_once, daemon=True)
    done.start()
    done.join(5)
    if done.is_alive():
        # Somebody else's lease ends whatever it is at.
        broker.client.set(store.keys.lease, "another")
        done.join(5)
        pytest.fail("it does not come to an end")
    return [message.options["distcron"]["schedule"] for message in queued(broker)]


def test_a_spec_that_is_no_text_is_overwritten_by_the_code(beat: Beat, redis_broker: Any) -> None:
    store: Any = beat.backend.store
    redis_broker.client.hset(store.keys.schedules, "bad", NO_TEXT)
    assert fire(beat, redis_broker) == ["good"]
    assert redis_broker.client.hget(store.keys.schedules, "bad") != NO_TEXT


def test_a_spec_that_is_no_text_and_not_in_the_code_is_taken_out_of_the_way(beat: Beat, redis_broker: Any) -> None:
    store: Any = beat.backend.store
    redis_broker.client.hset(store.keys.schedules, "other", NO_TEXT)
    redis_broker.client.zadd(store.keys.due, {"other": 1000})
    assert fire(beat, redis_broker) == ["good"]
    assert store.last(["other"])["other"]["outcome"] == "disabled"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_name_that_is_no_text_does_not_stop_the_others(beat: Beat, redis_broker: Any) -> None:
    store: Any = beat.backend.store
    redis_broker.client.hset(store.keys.schedules, NO_TEXT, b"{}")
    redis_broker.client.zadd(store.keys.due, {NO_TEXT: 1000})
    assert fire(beat, redis_broker) == ["good"]


def test_an_empty_spec_is_taken_out_of_the_way(beat: Beat, redis_broker: Any) -> None:
    store: Any = beat.backend.store
    redis_broker.client.hset(store.keys.schedules, "other", b"")
    redis_broker.client.zadd(store.keys.due, {"other": 1000})
    assert fire(beat, redis_broker) == ["good"]
    assert store.last(["other"])["other"]["outcome"] == "disabled"


#: As a score: before the year 1, after the year 9999, and no time at all.
NO_TIMES = (-(10**15), 9 * 10**14, 9.9e17, float("-inf"), float("inf"), 1000.5)


@pytest.mark.parametrize("score", NO_TIMES)
def test_a_cursor_that_is_no_time_is_set_anew_and_does_not_stop_the_others(
    beat: Beat, redis_broker: Any, score: float, caplog: pytest.LogCaptureFixture
) -> None:
    store: Any = beat.backend.store
    redis_broker.client.zadd(store.keys.due, {"bad": score})
    assert fire(beat, redis_broker)[:1] == ["good"]
    Beat(get_distcron(redis_broker)).run_once()
    assert 0 < redis_broker.client.zscore(store.keys.due, "bad") - store.now() <= 3_600_000
    schedules = get_distcron(redis_broker).schedules
    assert [one.name for one in schedules.list()] == ["bad", "good"]
    assert all(FIRST_INSTANT <= tick.fire_time <= LAST_INSTANT for tick in schedules.history())
    assert "failed unexpectedly" not in caplog.text
    assert "could not be stored" not in caplog.text


@pytest.mark.parametrize("score", NO_TIMES)
def test_a_schedule_whose_cursor_is_no_time_can_be_edited(redis_broker: Any, score: float) -> None:
    distcron = install(redis_broker)

    @dramatiq.actor(broker=redis_broker)
    def job() -> None: ...

    distcron.schedules.put(every(3600, name="bad"), job)
    store: Any = distcron.open_backend().store
    redis_broker.client.zadd(store.keys.due, {"bad": score})
    distcron.schedules.pause("bad")
    assert 0 < redis_broker.client.zscore(store.keys.due, "bad") - store.now() <= 3_600_000
    redis_broker.client.zadd(store.keys.due, {"bad": score})
    distcron.schedules.put(every(1800, name="bad"), job)
    redis_broker.client.zadd(store.keys.due, {"bad": score})
    distcron.schedules.remove("bad")
    assert distcron.schedules.list() == []


def test_the_loss_of_a_schedule_whose_name_is_no_text_is_told(beat: Beat, redis_broker: Any) -> None:
    store: Any = beat.backend.store
    redis_broker.client.zadd(store.keys.due, {NO_TEXT: 1000})
    assert fire(beat, redis_broker) == ["good"]
    store.notice("'\udcff' is lost")
    assert [text for _, text in store.notices()] == ["'\\udcff' is lost"]


def test_a_last_outcome_of_a_time_that_is_none_is_not_shown(beat: Beat, redis_broker: Any) -> None:
    store: Any = beat.backend.store
    told = {"fire_time": 10**18, "fire_time_to": 10**18, "count": 1, "decided_at": 0, "outcome": "missed"}
    redis_broker.client.hset(store.keys.last, "bad", json.dumps(told))
    schedules = get_distcron(redis_broker).schedules
    assert {one.name: one.last_fire_time for one in schedules.list()} == {"bad": None, "good": None}


def test_a_schedule_that_is_stored_too_deep_to_be_read_is_shown_as_disabled(beat: Beat, redis_broker: Any) -> None:
    store: Any = beat.backend.store
    redis_broker.client.hset(store.keys.schedules, "deep", '{"actor":' + "[" * 100_000)
    shown = get_distcron(redis_broker).schedules.get("deep")
    assert (shown.state, shown.actor) == ("disabled", "")
