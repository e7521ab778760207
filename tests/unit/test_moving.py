"""The thread that puts due retries back, without the thread where it can be."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from dramatiq import Message
from dramatiq.brokers.stub import StubBroker

from dramatiq_distcron import RetryBudget
from dramatiq_distcron.backends import Backend
from dramatiq_distcron.errors import StoreUnavailable
from dramatiq_distcron.moving import Mover
from dramatiq_distcron.outbox import OutboxPublisher
from dramatiq_distcron.store.base import Ending, Moved, Waiting
from dramatiq_distcron.store.memory import MemoryStore
from tests.support import FakeClock


class World:
    """A store in memory, and a broker beside it that publishes at ``seconds`` a message."""

    def __init__(self, *, by_outbox: bool = True) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(lambda: int(self.clock.seconds * 1000), lambda call: self.put.append(call) or 1)
        self.put: list[Any] = []
        self.published: list[str] = []
        self.seconds = 0.0
        self.broken: set[str] = set()
        publisher = OutboxPublisher(StubBroker(), self.store, self.clock)
        publisher.publish = self._publish  # type: ignore[method-assign]
        self.backend = Backend(self.store, publisher, "dramatiq", by_outbox=by_outbox)
        self.mover = self.another()

    def another(self) -> Mover:
        return Mover(lambda: self.backend, self.clock)

    def _publish(self, message: Message[Any]) -> None:
        self.clock.advance(self.seconds)
        if message.message_id in self.broken:
            raise ConnectionError("no broker")
        self.published.append(message.message_id)

    def wait(self, *names: str, delay: int = 0) -> None:
        for name in names:
            data = Message("default", "job", (), {}, {}, name, 0).encode()
            calls = [] if self.backend.by_outbox else [("enqueue", 1)]
            waiting = Waiting(name, delay, {"id": name}, data, calls)
            self.store.settle(Ending(name, "retrying", goes_on=True, waiting=waiting))


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_due_is_published_once_and_then_gone(world: World) -> None:
    world.wait("a", "b")
    world.wait("later", delay=60_000)
    assert world.mover.move_due() == 2
    assert world.mover.move_due() == 0
    assert world.published == ["a", "b"]
    assert [row.key for row in world.store.retries(10)] == ["later"]


def test_a_broker_that_is_away_keeps_the_others_from_nothing(world: World) -> None:
    world.broken = {"a"}
    world.wait("a", "b")
    world.mover.move_due()
    assert world.published == ["b"]
    world.broken = set()
    world.clock.advance(29)
    world.mover.move_due()
    assert world.published == ["b"]
    world.clock.advance(1.1)
    world.mover.move_due()
    assert world.published == ["b", "a"]


def test_a_slow_broker_gets_nothing_that_others_may_publish_by_then(world: World) -> None:
    world.wait(*"abcdefgh")
    world.seconds = 6
    world.mover.move_due()
    # Half the time for which they were taken is over.
    assert world.published == ["a", "b", "c"]
    world.seconds = 0
    world.clock.advance(30)
    world.another().move_due()
    assert sorted(world.published) == list("abcdefgh")


def test_one_that_slept_while_it_published_goes_on_with_nothing(world: World) -> None:
    world.wait("a", "b")
    world.seconds = 3600
    world.mover.move_due()
    assert world.published == ["a"]


def test_what_was_published_and_could_not_be_taken_out_is_taken_out_before_anything_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.wait("a")

    def away(key: str) -> bool:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(world.store, "drop_retry", away)
        with pytest.raises(StoreUnavailable):
            world.mover.move_due()
    world.clock.advance(60)
    world.mover.move_due()
    assert world.published == ["a"]
    assert world.store.count_retries() == 0


def test_a_message_that_cannot_be_read_keeps_the_others_from_nothing(world: World) -> None:
    world.store.settle(Ending("x", "retrying", goes_on=True, waiting=Waiting("x", 0, {}, b"\xff")))
    world.wait("y")
    world.mover.move_due()
    assert world.published == ["y"]
    assert world.store.count_retries() == 1


def test_more_than_a_batch_is_moved_in_one_look() -> None:
    world = World(by_outbox=False)
    world.wait(*(str(number) for number in range(250)))
    assert world.mover.move_due() == 250


def test_its_time_is_the_stores(world: World) -> None:
    world.clock.seconds = 5000.0
    world.store._now = lambda: 77_000_000
    world.mover.move_due()
    world.clock.advance(2)
    assert world.mover.now() == 77_002_000


def test_what_was_earned_and_could_not_be_paid_in_is_paid_in_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = RetryBudget("b", ratio=1, floor=0.001)
    world.store._bucket("b", 0.001, 10, world.store.now()).tokens = 0
    for _ in range(3):
        world.mover.earned(budget)

    def away(earnings: Any) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(world.store, "earn", away)
        with pytest.raises(StoreUnavailable):
            world.mover._pay_in()
    world.mover._pay_in()
    world.mover._pay_in()
    assert world.store.budgets()["b"]["tokens"] == 3


class Flaky:
    """A store that fails so often in so many ways before it answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.answered = threading.Event()

    def move_retries(self, limit: int, *, hold: int | None = None) -> Moved:
        if self.errors:
            raise self.errors.pop(0)
        self.answered.set()
        return Moved(1)


def test_an_error_is_told_and_counted_and_the_thread_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dramatiq_distcron.moving._REST", 0.001)
    store: Any = Flaky(StoreUnavailable("away"), StoreUnavailable("away"), RuntimeError("a bug"), MemoryError())
    mover = Mover(lambda: Backend(store, None, "dramatiq"))  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        mover.start()
        assert store.answered.wait(20)
        mover.stop()
    assert mover.errors == 4
    # The same trouble is told once.
    assert caplog.text.count("wait: away") == 1


def test_one_that_is_not_on_duty_moves_nothing(world: World) -> None:
    asked = threading.Event()

    def off_duty() -> bool:
        asked.set()
        return False

    world.wait("a")
    world.mover.start(off_duty)
    assert asked.wait(20)
    world.mover.stop()
    assert world.published == []


def test_it_wakes_for_the_retry_that_is_due_first() -> None:
    store: Any = Flaky()
    mover = Mover(lambda: Backend(store, None, "dramatiq"))  # type: ignore[arg-type]
    mover.expect(50_000)
    mover.expect(10)
    mover.expect(50_000)
    assert mover._next is not None
    assert mover._next - mover._clock.monotonic() < 1


def test_a_stop_too_many_and_a_second_start_leave_one_thread(world: World) -> None:
    before = set(threading.enumerate())

    def count() -> int:
        return len([one for one in threading.enumerate() if one not in before])

    for _ in range(2):
        world.mover.stop()
    world.mover.start()
    world.mover.start()
    assert count() == 1
    world.mover.stop()
    assert count() == 1
    world.mover.stop()
    assert count() == 0


def test_a_broker_that_does_not_answer_does_not_keep_a_process_from_leaving(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat would give its lease back only after it, and a worker would never end."""
    monkeypatch.setattr("dramatiq_distcron.moving._PATIENCE", 0.001)
    asked, answers = threading.Event(), threading.Event()

    def publish(message: Message[Any]) -> None:
        asked.set()
        assert answers.wait(30)
        world.published.append(message.message_id)

    monkeypatch.setattr(world.backend.publisher, "publish", publish)
    world.wait("a")
    before = set(threading.enumerate())
    world.mover.start()
    assert asked.wait(20)
    leaving = threading.Thread(target=world.mover.stop)
    leaving.start()
    leaving.join(10)
    left = not leaving.is_alive()
    # A second one in the same process is one of its own, and the first ends as soon as it can.
    world.mover.start()
    (late,) = [one for one in threading.enumerate() if one not in before | {world.mover._thread, leaving}]
    answers.set()
    late.join(20)
    world.mover.stop()
    assert left
    assert not late.is_alive()
    assert world.published == ["a"]
