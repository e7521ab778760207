"""Bytes that are no text, written into our keys by hand: one schedule suffers, the others fire."""

from __future__ import annotations

import threading
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import every, install
from dramatiq_distcron.beat import Beat
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
