"""Brokers beside Redis: what was committed is published, sooner or later, and nothing is forgotten in between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import dramatiq
import pytest
from dramatiq import Broker, Message
from dramatiq.brokers.stub import StubBroker

from dramatiq_distcron.errors import StoreUnavailable
from dramatiq_distcron.outbox import OutboxPublisher
from dramatiq_distcron.publishing import Vetoed
from dramatiq_distcron.testing import MemoryStore
from tests.support import FakeClock, queued


class Fickle(StubBroker):
    """Is away while it is told to be."""

    away = False

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        if self.away:
            raise OSError("connection refused")
        return super().enqueue(message, delay=delay)


class Site:
    """A broker, an outbox and who publishes from it."""

    def __init__(self) -> None:
        self.broker = Fickle(middleware=[])
        self.broker.declare_queue("default")
        self.clock = FakeClock()
        self.store = MemoryStore(lambda: 0)
        self.publisher = OutboxPublisher(self.broker, self.store, self.clock)

    def commit(self, name: str) -> Any:
        """A message that was committed: it is in the outbox, and not in the broker."""
        captured = self.publisher.capture(Message("default", "job", (), {}, {}, name, 1))
        self.store._state.outbox[name] = captured.outbox
        return captured

    @property
    def published(self) -> list[str]:
        return [message.message_id for message in queued(self.broker)]

    @property
    def waiting(self) -> list[str]:
        return [name for name, _ in self.store.outbox(100)]


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_capture_sends_nothing_and_gives_the_message_in_the_form_of_the_outbox(site: Site) -> None:
    captured = site.publisher.capture(Message("default", "job", (1,), {}, {}, "id", 1))
    assert site.published == []
    assert (captured.calls, captured.size) == ([], len(captured.outbox))
    assert Message.decode(captured.outbox) == captured.message


def test_a_message_that_cannot_be_encoded_is_refused_with_the_reason(site: Site) -> None:
    with pytest.raises(Vetoed, match="could not be made: TypeError"):
        site.publisher.capture(Message("default", "job", (object(),), {}, {}))


def test_what_was_committed_is_published_and_leaves_the_outbox(site: Site) -> None:
    site.publisher.announce(site.commit("a"))
    assert (site.published, site.waiting) == (["a"], [])


def test_it_leaves_the_outbox_only_when_it_is_in_the_broker(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between the two publishes it twice, and never not at all."""
    there: list[list[str]] = []
    monkeypatch.setattr(site.store, "published", lambda message_id: there.append(site.published))
    site.publisher.announce(site.commit("a"))
    assert there == [["a"]]


def test_a_new_leader_publishes_what_the_one_before_left(site: Site) -> None:
    site.commit("a")
    site.commit("b")
    successor = OutboxPublisher(site.broker, site.store, site.clock)
    assert (successor.behind, successor.catch_up(), successor.behind) == (True, 2, False)
    assert sorted(site.published) == ["a", "b"]


def test_one_that_is_not_behind_asks_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.publisher.catch_up()
    monkeypatch.setattr(site.store, "outbox", _must_not_be_asked)
    assert site.publisher.catch_up() == 0


def _must_not_be_asked(limit: int) -> Any:
    raise AssertionError("asked")


def test_more_messages_than_one_batch_are_published(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dramatiq_distcron.outbox._BATCH", 2)
    for number in range(5):
        site.commit(str(number))
    assert site.publisher.catch_up() == 5


def test_a_store_that_is_away_is_no_fault_of_the_brokers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(message_id: str) -> None:
        raise StoreUnavailable("cut off")

    captured = site.commit("a")
    monkeypatch.setattr(site.store, "published", away)
    with pytest.raises(StoreUnavailable):
        site.publisher.announce(captured)
    assert [message.message_id for message in queued(site.broker)] == ["a"]


def test_the_hooks_of_the_broker_run_when_it_is_published(site: Site) -> None:
    seen: list[str] = []

    class Telling(dramatiq.Middleware):
        def before_enqueue(self, broker: Broker, message: Message[Any], delay: int | None) -> None:
            seen.append(f"before {message.message_id}")

        def after_enqueue(self, broker: Broker, message: Message[Any], delay: int | None) -> None:
            seen.append(f"after {message.message_id}")

    site.broker.add_middleware(Telling())
    captured = site.commit("a")
    assert seen == []
    site.publisher.announce(captured)
    assert seen == ["before a", "after a"]


class Confirming(StubBroker):
    """As RabbitmqBroker as far as confirms go."""

    def __init__(self) -> None:
        super().__init__(middleware=[])
        self.confirm_delivery = False
        self.state = threading.local()
        self.connections: set[Any] = {"of the app"}
        self.channels: set[Any] = {"of the app"}
        self.asked: list[bool] = []

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        self.asked.append(self.confirm_delivery)
        return message


def test_where_the_broker_can_confirm_a_message_that_is_asked_for_and_the_apps_channels_stay_as_they_are() -> None:
    broker = Confirming()
    publisher = OutboxPublisher(broker, MemoryStore(lambda: 0), FakeClock())
    ours: Any = publisher._broker
    publisher.announce(publisher.capture(Message("default", "job", (), {}, {})))
    assert broker.asked == [True]
    assert broker.confirm_delivery is False
    assert ours.state is not broker.state
    assert (broker.connections, broker.channels) == ({"of the app"}, {"of the app"})
    assert (ours.connections, ours.channels) == (set(), set())


def test_the_ack_is_left_to_the_broker(site: Site) -> None:
    end_call: Callable[..., Any] = site.publisher.end_call
    assert end_call("ack", "default", {}) == ()
