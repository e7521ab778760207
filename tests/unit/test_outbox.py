"""Brokers that are not on our Redis: what was committed is published, whatever happens in between."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from dramatiq import Message
from dramatiq.middleware import Middleware, MiddlewareError

from dramatiq_distcron.errors import StoreUnavailable
from dramatiq_distcron.outbox import OutboxPublisher
from dramatiq_distcron.store.base import Fire, Guard, Record
from dramatiq_distcron.store.memory import MemoryStore
from tests.plain_broker import PlainBroker
from tests.support import FakeClock, wait_until

GUARD = Guard("", 0, 1000)


class Post:
    """A store with an outbox, and a broker."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(lambda: round(self.clock.seconds * 1000))
        self.broker = PlainBroker(middleware=[])
        self.broker.declare_queue("default")
        self.publisher = OutboxPublisher(self.broker, self.store, self.clock)

    def commit(self, message_id: str, data: bytes | None = None) -> Message[Any]:
        """As a beat does: the message, its ticket and its record."""
        message: Message[Any] = Message("default", "job", (), {}, {"distcron": {"schedule": "job"}}, message_id)
        run = {"schedule": "job", "queue": "default", "place": "", "rid": "", "fire_time": "1", "state": "queued"}
        record = Record("enqueued", 1, 1, message_id=message_id)
        box = message.encode() if data is None else data
        fire = Fire("job", "", None, 0, record, run=json.dumps({**run, "at": "1000"}), outbox=box)
        assert self.store.fire(GUARD, [fire]) == ["ok"]
        return message

    def announce(self, message_id: str) -> None:
        self.publisher.announce(self.publisher.capture(self.commit(message_id)))

    def catch_up(self) -> int:
        self.publisher.behind = True
        return self.publisher.catch_up()

    @property
    def published(self) -> list[str]:
        return [message.message_id for message in self.broker.wire.enqueued]

    @property
    def waiting(self) -> list[str]:
        return [message_id for message_id, _ in self.store.outbox(1000)]


@pytest.fixture
def post() -> Iterator[Post]:
    post = Post()
    yield post
    post.publisher.stop()


class Refusing(Middleware):
    """Lets some messages not pass, with an error of its kind."""

    def __init__(self, **errors: Exception) -> None:
        self.errors = errors

    def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
        if message.message_id in self.errors:
            raise self.errors[message.message_id]


class Failing(PlainBroker):
    """A broker that cannot take some messages, for a reason that is no loss of its connection."""

    def __init__(self, unfit: set[str]) -> None:
        super().__init__(middleware=[])
        self.unfit = unfit

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        if message.message_id in self.unfit:
            raise ValueError("too large")
        return super().enqueue(message, delay=delay)


def test_a_message_is_published_after_its_commit_and_leaves_the_outbox(post: Post) -> None:
    post.announce("m")
    assert post.published == ["m"]
    assert post.waiting == []


def test_what_a_beat_left_behind_is_published_by_the_next(post: Post) -> None:
    post.commit("m")
    assert OutboxPublisher(post.broker, post.store).catch_up() == 1
    assert (post.published, post.waiting) == (["m"], [])


def test_a_message_that_was_published_and_not_noted_is_published_again(post: Post) -> None:
    message = post.commit("m")
    post.broker.enqueue(message)
    post.catch_up()
    assert (post.published, post.waiting) == (["m", "m"], [])


def test_the_oldest_are_published_first(post: Post) -> None:
    for number in (3, 1, 2):
        message: Message[Any] = Message("default", "job", (), {}, {}, f"m{number}", number)
        post.commit(f"m{number}", message.encode())
    post.catch_up()
    assert post.published == ["m1", "m2", "m3"]


def test_while_the_broker_is_away_messages_wait_and_are_then_published(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    post.broker.wire.down = True
    for number in range(5):
        post.announce(f"m{number}")
    assert (post.published, len(post.waiting)) == ([], 5)
    post.clock.advance(60)
    post.broker.wire.down = False
    assert post.catch_up() == 5
    assert post.waiting == []
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "PlainBroker takes messages again" in caplog.text


def test_a_broker_that_is_away_is_not_asked_for_each_message(post: Post) -> None:
    post.broker.wire.down = True
    asked: list[str] = []
    real = post.broker.enqueue

    def enqueue(message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        asked.append(message.message_id)
        return real(message, delay=delay)

    post.broker.enqueue = enqueue  # type: ignore[method-assign]
    for number in range(100):
        post.commit(f"m{number}")
    assert post.catch_up() == 0
    assert post.catch_up() == 0
    assert len(asked) == 1


@pytest.mark.parametrize("poison", [b"\xff", b"{}", b'{"queue_name": 1}', b"null"])
def test_a_message_that_cannot_be_read_holds_no_other_up(post: Post, poison: bytes) -> None:
    post.commit("poison", poison)
    post.commit("m")
    for _ in range(3):
        post.catch_up()
    assert (post.published, post.waiting) == (["m"], ["poison"])


def test_messages_that_the_broker_cannot_take_hold_no_other_up(post: Post) -> None:
    unfit = {f"unfit{number:02}" for number in range(20)}
    post.publisher = OutboxPublisher(Failing(unfit), post.store, post.clock)
    for name in sorted(unfit):
        post.commit(name)
    post.commit("m")
    for _ in range(20):
        post.catch_up()
        post.clock.advance(5)
    assert set(post.waiting) == unfit


def test_a_message_that_the_broker_cannot_take_is_tried_again(post: Post) -> None:
    broker = Failing({"m"})
    post.publisher = OutboxPublisher(broker, post.store, post.clock)
    post.commit("m")
    post.catch_up()
    broker.unfit.clear()
    post.clock.advance(60)
    assert post.catch_up() == 1


def test_a_message_that_a_middleware_refuses_is_dropped_and_its_run_ends_with_the_reason(post: Post) -> None:
    post.broker.add_middleware(Refusing(m=MiddlewareError("not today")))
    post.announce("m")
    assert (post.published, post.waiting) == ([], [])
    (record,) = post.store.history("job", 10)
    assert record.run is not None
    assert record.run["state"] == "dropped"
    assert "not today" in record.run["error"]


def test_a_run_whose_message_is_refused_ends_also_if_the_beat_was_cut_off_in_between(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    post.broker.add_middleware(Refusing(m=MiddlewareError("not today")))
    with monkeypatch.context() as cut_off:
        cut_off.setattr(post.store, "settle", _unavailable)
        with pytest.raises(StoreUnavailable):
            post.announce("m")
    post.catch_up()
    assert post.waiting == []
    (record,) = post.store.history("job", 10)
    assert record.run is not None
    assert record.run["state"] == "dropped"


def _unavailable(*args: Any) -> Any:
    raise StoreUnavailable("away")


def test_a_copy_that_a_middleware_refuses_does_not_end_the_run_of_the_first(post: Post) -> None:
    post.commit("m")
    post.store.claim_run("m", "worker", 0, "claim")
    post.broker.add_middleware(Refusing(m=MiddlewareError("not today")))
    post.catch_up()
    assert post.waiting == []
    (record,) = post.store.history("job", 10)
    assert record.run is not None
    assert record.run["state"] == "running"


def test_a_hook_that_fails_otherwise_does_not_stop_the_message(post: Post) -> None:
    post.broker.add_middleware(Refusing(m=ValueError("a bug of the hook")))
    post.announce("m")
    assert post.published == ["m"]


# -- the thread of a beat -----------------------------------------------------------------------------------


def test_a_beat_publishes_in_a_thread_of_its_own(post: Post) -> None:
    post.publisher.start(lambda: True)
    post.announce("m")
    wait_until(lambda: post.waiting == [], "the message is published")
    assert post.published == ["m"]


def test_a_broker_that_does_not_answer_does_not_hold_the_pass_up(post: Post) -> None:
    answers = threading.Event()
    real = post.broker.enqueue

    def enqueue(message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        assert answers.wait(30)
        return real(message, delay=delay)

    post.broker.enqueue = enqueue  # type: ignore[method-assign]
    post.publisher.start(lambda: True)
    for number in range(3):
        post.announce(f"m{number}")
    assert len(post.waiting) == 3
    answers.set()
    wait_until(lambda: post.waiting == [], "the messages are published")


def test_one_who_is_not_on_duty_publishes_nothing(post: Post) -> None:
    asked = threading.Event()

    def on_duty() -> bool:
        asked.set()
        return False

    post.publisher.start(on_duty)
    post.announce("m")
    assert asked.wait(30)
    post.publisher.stop()
    assert (post.published, post.waiting) == ([], ["m"])


def test_one_who_loses_the_lease_stops_in_the_middle(post: Post) -> None:
    for number in range(10):
        post.commit(f"m{number}")
    post.publisher.start(lambda: len(post.published) < 4)
    post.publisher.look()
    wait_until(lambda: len(post.published) == 4, "some are published")
    post.publisher.stop()
    assert len(post.published) == 4
    assert len(post.waiting) == 6


def test_what_was_committed_is_published_before_the_thread_ends(post: Post) -> None:
    post.publisher.start(lambda: True)
    for number in range(100):
        post.announce(f"m{number}")
    post.publisher.stop()
    assert post.waiting == []


def test_a_broker_that_does_not_answer_does_not_keep_a_beat_from_leaving(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, closed = threading.Event(), threading.Event()
    post.broker.confirm_delivery = False  # type: ignore[attr-defined]
    post.publisher = OutboxPublisher(post.broker, post.store, post.clock)
    monkeypatch.setattr(PlainBroker, "enqueue", lambda *args, **kwargs: answers.wait(30))
    monkeypatch.setattr(PlainBroker, "close", lambda broker: closed.set())
    post.publisher.start(lambda: True)
    post.announce("m")
    for _ in range(2):
        post.publisher.stop()
        assert not closed.is_set(), "its connection is in use"
    answers.set()
    assert closed.wait(30)


def test_the_thread_goes_on_after_an_error_that_nobody_thought_of(
    post: Post, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(post.store, "outbox", lambda *args: 1 / 0)
    post.publisher.start(lambda: True)
    post.publisher.look()
    wait_until(lambda: "unexpectedly" in caplog.text, "the error is told of")
    monkeypatch.undo()
    post.announce("m")
    wait_until(lambda: post.waiting == [], "the message is published")
