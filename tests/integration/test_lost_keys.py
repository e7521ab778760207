"""Our keys in Redis are deleted one by one, or hold something else all of a sudden."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import DistCron, every, install
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.errors import StoreRefused, StoreUnavailable
from dramatiq_distcron.store.redis import Keys
from tests.support import FakeClock, queued

HOUR = 3_600_000


class Stepped:
    """A beat whose turns are made by hand, an hour apart."""

    def __init__(self, distcron: DistCron) -> None:
        self.distcron = distcron
        self.clock = FakeClock()
        self.beat = Beat(distcron, owner="app", clock=self.clock)
        self.store: Any = self.beat.backend.store
        self.now: int = self.store.now()
        self.beat.lease.now = lambda: self.now  # type: ignore[method-assign]
        self.client: Any = distcron.broker.client  # type: ignore[attr-defined]
        self.errors: list[str] = []

    def turn(self) -> None:
        try:
            self.beat._turn()
        except (StoreRefused, StoreUnavailable) as error:
            # As the loop does.
            self.errors.append(str(error))
            self.beat._in_office = False

    def renew(self) -> None:
        try:
            self.beat._renewed(self.beat.lease.renew(count=True))
        except (StoreRefused, StoreUnavailable) as error:
            self.errors.append(str(error))

    def hour(self) -> None:
        """An hour passes: the lease is renewed and every schedule is due once."""
        self.now += HOUR
        for _ in range(2):
            self.turn()
            self.renew()
        self.turn()

    def sent(self) -> Counter[tuple[str, int]]:
        ticks = [message.options["distcron"] for message in queued(self.distcron.broker)]
        return Counter((tick["schedule"], tick["fire_time"]) for tick in ticks)

    def sent_of(self, schedule: str) -> list[int]:
        """When, in hours since the first."""
        times = sorted(time for name, time in self.sent() if name == schedule)
        return [(time - times[0]) // HOUR for time in times]


@pytest.fixture
def stepped(redis_broker: RedisBroker, caplog: pytest.LogCaptureFixture) -> Stepped:
    """Has fired once: a plain schedule, one that must not overlap, and one that came by the API."""
    caplog.set_level(logging.INFO)
    distcron = install(redis_broker)
    schedules = [every(3600, name="plain", catch_up="all"), every(3600, name="alone", overlap="skip")]
    dramatiq.actor(lambda: None, actor_name="job", broker=redis_broker, periodic=schedules)
    distcron.schedules.put(every(3600, name="tenant", catch_up="all"), "job")
    stepped = Stepped(distcron)
    stepped.turn()
    stepped.hour()
    assert {name for name, _ in stepped.sent()} == {"plain", "alone", "tenant"}
    return stepped


def name_of(keys: Keys, key: str) -> str:
    return key.removeprefix(keys.prefix)


TYPES = {name_of(Keys("n", "a"), key): kind for key, kind in Keys("n", "a").types().items()}
#: Written by whoever needs them, and not by a beat at work: at its start, by an edit, by an outbox, by a loss.
NOT_BY_THE_BEAT = {"owner", "term", "term.since", "revision", "schedules.revisions"}
NOT_BY_THE_BEAT |= {"removed", "outbox", "notices", "wake"}
NOT_BY_THE_BEAT |= {"dead", "dead.msgs", "dead.groups"}
OF_RETRIES = {"retries", "retries.msgs", "budgets"}
#: What is logged, if anything is.
LOGGED = {
    "due": "3 schedules and 0 cursors",
    "lease": "Leading since",
    "schedules": "0 schedules and 3 cursors",
}


def take_over(stepped: Stepped) -> Stepped:
    """Another beat, which has read nothing yet, leads from now on."""
    stepped.beat.lease.release()
    other = Stepped(stepped.distcron)
    other.now = stepped.now
    other.turn()
    return other


@pytest.mark.parametrize("who", ["the leader", "its successor"])
@pytest.mark.parametrize("name", sorted(TYPES))
def test_a_key_that_is_deleted_doubles_no_tick_and_loses_none_of_the_codes_schedules(
    stepped: Stepped, caplog: pytest.LogCaptureFixture, name: str, who: str
) -> None:
    caplog.clear()
    key = stepped.store.keys.prefix + name
    stepped.client.delete(key)
    stepped.beat._next_heartbeat = 0
    one = take_over(stepped) if who == "its successor" else stepped
    for _ in range(2):
        one.hour()
    assert one.errors == []
    assert set(one.sent().values()) == {1}
    assert one.sent_of("plain") == [0, 1, 2]
    if name != "schedules":
        assert one.sent_of("tenant") == [0, 1, 2]
    if name not in NOT_BY_THE_BEAT | OF_RETRIES:
        assert stepped.client.exists(key)
    assert who != "the leader" or LOGGED.get(name, "") in caplog.text


def test_specs_that_are_lost_bring_the_codes_schedules_back_where_they_were_and_the_others_are_told_of(
    stepped: Stepped, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody looks for three hours: what came due meanwhile is not new, and not forgotten."""
    stepped.client.delete(stepped.store.keys.schedules)
    stepped.now += 3 * HOUR
    other = take_over(stepped)
    other.renew()
    other.turn()
    other.hour()
    assert other.sent_of("plain") == [0, 1, 2, 3, 4]
    told = "1 schedules that came by the API are lost: tenant."
    assert told in caplog.text
    assert any(told in text for _, text in other.store.notices())
    assert set(other.store.get(["plain", "alone", "tenant"])) == {"plain", "alone"}
    assert other.store.strays() == []


def test_a_cursor_that_is_lost_before_the_first_tick_makes_the_first_tick_all_the_same(stepped: Stepped) -> None:
    stepped.distcron.schedules.put(every(3600, name="young", catch_up="all"), "job")
    stepped.client.zrem(stepped.store.keys.due, "young")
    stepped.now += 2 * HOUR
    stepped.renew()
    stepped.turn()
    # The store's own clock, by which it was put, is an hour behind ours.
    assert stepped.sent_of("young") == [0, 1, 2]


def test_a_loss_that_cannot_be_mended_is_told_once(stepped: Stepped, caplog: pytest.LogCaptureFixture) -> None:
    stepped.client.hset(stepped.store.keys.schedules, "junk", "junk")
    for _ in range(3):
        stepped.hour()
    assert caplog.text.count("something was evicted or deleted") == 1


def test_a_queue_that_cannot_be_measured_or_looked_into_holds_up_its_own_schedule_and_no_other(
    stepped: Stepped, redis_broker: RedisBroker
) -> None:
    broken = {"queue_name": "broken", "broker": redis_broker}
    dramatiq.actor(lambda: None, actor_name="measured", periodic=every(3600, max_queue_length=5), **broken)
    dramatiq.actor(lambda: None, actor_name="lone", periodic=every(3600, overlap="skip", catch_up="all"), **broken)
    other = Stepped(stepped.distcron)
    stepped.beat.lease.release()
    other.now = stepped.now
    other.turn()
    other.hour()
    assert len(queued(redis_broker, "broken")) == 2
    for key in ("broken", "broken.msgs"):
        stepped.client.delete(f"{redis_broker.namespace}:{key}")
        stepped.client.set(f"{redis_broker.namespace}:{key}", "spoilt")
    for _ in range(2):
        other.clock.advance(10)
        other.hour()
    assert other.sent_of("plain") == [0, 1, 2, 3]
    assert other.beat.scheduler.sweep() == 0


@pytest.mark.parametrize("name", sorted(TYPES))
def test_a_key_that_becomes_something_else_doubles_nothing_and_when_it_is_gone_the_ticks_are_made_up_for(
    stepped: Stepped, name: str
) -> None:
    key = stepped.store.keys.prefix + name
    stepped.client.delete(key)
    stepped.client.rpush(key, "a list")
    before = stepped.sent()
    stepped.beat._next_heartbeat = 0
    stepped.hour()
    if name in {"due", "last", "last.enqueued", "lease", "outstanding", "runs", "schedules.revisions", "ticks"}:
        # What a commit needs.
        assert stepped.sent() == before
    stepped.client.delete(key)
    for _ in range(2):
        stepped.clock.advance(120)
        stepped.hour()
    assert set(stepped.sent().values()) == {1}
    assert stepped.sent_of("plain") == [0, 1, 2, 3]
    assert name == "schedules" or stepped.sent_of("tenant") == [0, 1, 2, 3]


@pytest.mark.parametrize("while_in", ["a pass", "taking office"])
def test_a_loss_that_is_found_while_the_leader_is_at_work_is_mended_all_the_same(
    stepped: Stepped, monkeypatch: pytest.MonkeyPatch, while_in: str
) -> None:
    """The thread that keeps the lease counts the state at any moment, and tells of a loss only once."""
    at_work: Any = stepped.beat.scheduler if while_in == "a pass" else stepped.beat.office
    verb = "pass_once" if while_in == "a pass" else "_reconcile"
    work = getattr(at_work, verb)

    def at_work_meanwhile() -> Any:
        monkeypatch.undo()
        found = work()
        stepped.client.zrem(stepped.store.keys.due, "plain")
        stepped.renew()
        return found

    monkeypatch.setattr(at_work, verb, at_work_meanwhile)
    if while_in == "taking office":
        # Anew, because the store's clock stepped.
        stepped.beat._steps_seen -= 1
    for _ in range(2):
        stepped.turn()
    assert stepped.client.zscore(stepped.store.keys.due, "plain") is not None
