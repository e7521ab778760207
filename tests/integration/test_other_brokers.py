"""Any Dramatiq broker, by its interface alone, with the state in Redis: one that keeps its queues in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dramatiq
import pytest
import redis
from dramatiq import Broker, Worker
from dramatiq.broker import MessageProxy
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import Middleware

from dramatiq_distcron import ConflictError, DistCron, current_tick, every, install
from dramatiq_distcron.backends import broker_at
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.schedules import Schedule
from dramatiq_distcron.server import Server
from dramatiq_distcron.store.base import Started
from tests.integration.conftest import Running
from tests.plain_broker import PlainBroker
from tests.support import wait_until


class Site:
    """An app on a plain broker, and what its actor noted."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.broker = PlainBroker()
        self.distcron: DistCron = install(self.broker, redis=server.url, namespace=namespace)
        self.by_url: DistCron = install(broker_at(server.url, namespace))
        self.ran: list[str] = []
        self._worker: Worker | None = None

    def actor(self, name: str = "job", periodic: Schedule | None = None, fails: int = 0, **options: Any) -> Any:
        def work() -> None:
            tick = current_tick()
            assert tick is not None
            self.ran.append(f"{tick.schedule} {int(tick.fire_time.timestamp() * 1000)} {tick.attempt}")
            if tick.attempt < fails:
                raise dramatiq.Retry("not yet", delay=10)

        periodic = periodic or every(days=300)
        return dramatiq.actor(work, broker=self.broker, actor_name=name, periodic=periodic, **options)

    def work(self) -> None:
        self._worker = Worker(self.broker, worker_timeout=50, worker_threads=2)
        self._worker.start()

    def close(self) -> None:
        if self._worker is not None:
            self._worker.stop()
        self.by_url.close()
        self.by_url.broker.client.close()  # type: ignore[attr-defined]

    @property
    def outbox(self) -> list[str]:
        return [message_id for message_id, _ in self.distcron.open_backend().store.outbox(1000)]

    def run_of(self, message_id: str) -> str | None:
        for tick in self.distcron.schedules.history():
            if tick.message_id == message_id and tick.run:
                return tick.run.state
        return None


@pytest.fixture
def site(server: Server, namespace: str) -> Iterator[Site]:
    site = Site(server, namespace)
    yield site
    site.close()


def test_ticks_go_through_the_outbox_and_run_once(site: Site, start_beat: Callable[[DistCron], Running]) -> None:
    site.actor(periodic=every(1))
    running = start_beat(site.distcron)
    site.work()
    wait_until(lambda: len(site.ran) >= 2, "two runs")
    running.stop()
    wait_until(lambda: {tick.run and tick.run.state for tick in site.distcron.schedules.history()} == {"succeeded"}, "")
    fire_times = [tick.fire_time for tick in reversed(site.distcron.schedules.history())]
    assert site.ran == [f"job {fire_time} 0" for fire_time in fire_times]
    assert site.outbox == []


def test_a_pass_that_fires_once_and_ends_publishes_what_it_fired(site: Site) -> None:
    site.actor(periodic=every(60, run_at_start=True))
    assert Beat(site.distcron).run_once()
    assert len(site.broker.wire.enqueued) == 1
    assert site.outbox == []


def test_a_retry_keeps_the_run(site: Site, start_beat: Callable[[DistCron], Running]) -> None:
    site.actor(fails=2)
    running = start_beat(site.distcron)
    wait_until(lambda: site.distcron.schedules.list(), "the schedule")
    message_id = site.distcron.schedules.trigger("job").message_id
    site.work()
    wait_until(lambda: site.run_of(message_id) == "succeeded", "the end of the run")
    assert [line.split()[2] for line in site.ran] == ["0", "1", "2"]
    running.stop()


def test_overlap_is_held_up_by_the_ticket(site: Site, start_beat: Callable[[DistCron], Running]) -> None:
    site.actor(periodic=every(1, overlap="skip"))
    start_beat(site.distcron)
    wait_until(lambda: "skipped_overlap" in {tick.outcome for tick in site.distcron.schedules.history()}, "a skip")
    assert len(site.broker.wire.enqueued) == 1
    site.work()
    wait_until(lambda: len(site.ran) >= 2, "the next run")


def test_a_trigger_by_the_url_of_the_state_goes_to_the_apps_broker(
    site: Site, start_beat: Callable[[DistCron], Running]
) -> None:
    """The command line does that, without the app's code: it must not put the message on a queue in Redis."""
    site.actor()
    start_beat(site.distcron)
    wait_until(lambda: site.by_url.schedules.list(), "the schedule")
    message_id = site.by_url.schedules.trigger("job").message_id
    wait_until(lambda: site.broker.wire.enqueued, "the message")
    assert [message.message_id for message in site.broker.wire.enqueued] == [message_id]
    client: Any = site.by_url.broker.client  # type: ignore[attr-defined]
    ours = site.distcron.open_backend().store.keys.prefix.encode()  # type: ignore[attr-defined]
    assert all(key.startswith(ours) for key in client.keys(f"{site.by_url.broker.namespace}*"))  # type: ignore[attr-defined]


def test_a_trigger_by_the_url_before_any_beat_waits_for_one(
    site: Site, start_beat: Callable[[DistCron], Running]
) -> None:
    site.actor()
    assert Beat(site.distcron).run_once()
    message_id = site.by_url.schedules.trigger("job").message_id
    assert site.outbox == [message_id]
    start_beat(site.distcron)
    wait_until(lambda: site.outbox == [], "the message is published")
    assert [message.message_id for message in site.broker.wire.enqueued] == [message_id]


def test_what_a_trigger_that_died_had_committed_is_published_by_the_leader(
    site: Site, start_beat: Callable[[DistCron], Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.actor()
    start_beat(site.distcron)
    wait_until(lambda: site.distcron.schedules.list(), "the schedule")
    with monkeypatch.context() as dying:
        dying.setattr(site.distcron.open_backend().publisher, "announce", lambda captured: None)
        message_id = site.distcron.schedules.trigger("job").message_id
    wait_until(lambda: site.outbox == [], "the message is published")
    assert [message.message_id for message in site.broker.wire.enqueued] == [message_id]


def test_a_queue_length_is_refused_in_code_with_the_reason(site: Site) -> None:
    site.actor(periodic=every(60, max_queue_length=5))
    with pytest.raises(ConflictError, match=r"max_queue_length needs a Redis broker.*job"):
        Beat(site.distcron)


def test_a_queue_length_is_refused_as_a_default_with_the_reason(server: Server) -> None:
    broker = PlainBroker()
    distcron = install(broker, redis=server.url, max_queue_length=5)
    dramatiq.actor(lambda: None, broker=broker, actor_name="job", periodic=every(60))
    with pytest.raises(ConflictError, match="max_queue_length needs a Redis broker"):
        Beat(distcron)


def test_a_queue_length_is_refused_by_the_api_with_the_reason_and_nothing_is_stored(site: Site) -> None:
    site.actor()
    good, limited = every(60, name="good"), every(60, name="limited", max_queue_length=5)
    with pytest.raises(ConflictError, match=r"max_queue_length needs a Redis broker.*limited"):
        site.distcron.schedules.put_many([(good, "job"), (limited, "job")])
    assert site.distcron.schedules.list() == []


def test_without_a_place_for_the_state_the_beat_is_refused_and_the_import_is_not() -> None:
    broker = PlainBroker()
    distcron = install(broker)
    dramatiq.actor(lambda: None, broker=broker, actor_name="job", periodic=every(60))
    with pytest.raises(ConflictError, match=r"PlainBroker is not on Redis.*redis='redis://...'"):
        Beat(distcron)


def test_the_place_of_the_state_may_come_from_the_environment(
    server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTCRON_REDIS_URL", server.url)
    monkeypatch.setenv("DISTCRON_NAMESPACE", namespace)
    broker = PlainBroker()
    distcron = install(broker)
    dramatiq.actor(lambda: None, broker=broker, actor_name="job", periodic=every(60, run_at_start=True))
    assert Beat(distcron).run_once()
    with redis.Redis.from_url(server.url) as client:
        assert client.exists(f"{namespace}:distcron:default:due")
    assert len(broker.wire.enqueued) == 1


# -- dead letters ---------------------------------------------------------------------------------------------


def dying(site: Site, told: list[str]) -> Any:
    """An actor whose messages die, and a handler that is told."""
    site.distcron.dead_letters.handler(lambda letter: told.append(letter.id))

    def dies(error: str) -> None:
        raise KeyError(error)

    return dramatiq.actor(dies, broker=site.broker, max_retries=0)


def test_a_letter_is_the_only_copy_and_its_handlers_are_told_when_it_is_there(site: Site) -> None:
    told: list[str] = []
    message = dying(site, told).send("x")
    site.work()
    wait_until(lambda: told, "the handler")
    (letter,) = site.by_url.dead_letters.list()
    assert (letter.id, told) == (f"{message.message_id}.0", [f"{message.message_id}.0"])
    wait_until(lambda: site.distcron.retries.count() == 0, "nothing waits")
    assert site.broker.wire.dead == []


def test_a_redelivery_that_dies_again_is_the_same_letter(site: Site) -> None:
    """Its ack was lost, and by now it is too old."""
    told: list[str] = []
    message = dying(site, told).message("x")

    def reasons() -> list[str]:
        return [one.reason for one in site.distcron.dead_letters.list()]

    site.work()
    site.broker.enqueue(message.copy(message_timestamp=1))
    wait_until(lambda: reasons() == ["retries_exhausted"], "the first death")
    site.broker.enqueue(message.copy(options={"max_age": 1}, message_timestamp=1))
    wait_until(lambda: reasons() == ["age_limit"], "the second death")
    wait_until(lambda: site.distcron.retries.count() == 0, "nothing waits")
    assert site.distcron.dead_letters.stats()[-1].value == "age_limit"


def test_a_letter_that_redis_refuses_leaves_the_message_to_the_brokers_own_dead(site: Site) -> None:
    store: Any = site.distcron.open_backend().store
    store._client.set(store.keys.dead, "not a sorted set")
    message = dying(site, []).send("x")
    site.work()
    wait_until(lambda: [one.message_id for one in site.broker.wire.dead] == [message.message_id], "the broker's dead")


def test_a_death_whose_run_another_worker_took_over_leaves_no_copy_with_the_brokers_own_dead(site: Site) -> None:
    """It was silent for a minute, and taken for dead: the other one has a copy, and says how the run ends."""
    store: Any = site.distcron.open_backend().store
    messages: list[str] = []
    ended: list[Any] = []

    class Ends(Middleware):
        def after_nack(self, broker: Broker, message: MessageProxy) -> None:
            ended.append(message)

    site.broker.add_middleware(Ends())

    def is_taken_over() -> bool:
        # It may tell of itself in between, as it does when it boots.
        store.forget(site.distcron.presence.holder)
        return isinstance(store.claim_run(messages[-1], "another", 0, "another's"), Started)

    def dies() -> None:
        messages.append(site.distcron.schedules.history()[0].message_id or "")
        wait_until(is_taken_over, "the other worker")
        raise KeyError

    dramatiq.actor(dies, broker=site.broker, actor_name="dies", max_retries=0, periodic=every(60, run_at_start=True))
    assert Beat(site.distcron).run_once()
    site.work()
    wait_until(lambda: ended, "the end of the delivery")
    assert (site.broker.wire.dead, site.distcron.dead_letters.list()) == ([], [])
    assert site.run_of(messages[0]) == "running"


def test_whoever_is_to_be_told_of_the_end_is_told_once_though_redis_refuses_the_letter(site: Site) -> None:
    store: Any = site.distcron.open_backend().store
    store._client.set(store.keys.dead, "not a sorted set")
    dramatiq.actor(lambda *given: None, actor_name="told", broker=site.broker)
    job = dying(site, [])
    job.options["on_retry_exhausted"] = "told"
    job.send("x")
    site.work()
    wait_until(lambda: site.broker.wire.dead, "the broker's dead")
    assert [one.actor_name for one in site.broker.wire.enqueued] == ["dies", "told"]


def test_a_redrive_is_published_by_a_worker_though_the_one_who_asked_is_gone(site: Site) -> None:
    told: list[str] = []
    job = dying(site, told)
    job.send("x")
    site.work()
    wait_until(lambda: told, "the letter")
    assert site.by_url.dead_letters.redrive(told[0]).redriven == 1
    wait_until(lambda: len(told) == 2, "it dies again")
    (letter,) = site.distcron.dead_letters.list()
    assert letter.origin is not None
    assert letter.origin["generation"] == 1


def test_a_redrive_while_the_broker_is_away_waits_in_redis(site: Site) -> None:
    told: list[str] = []
    job = dying(site, told)
    job.send("x")
    site.work()
    wait_until(lambda: told, "the letter")
    site.broker.wire.down = True
    assert site.by_url.dead_letters.redrive(all=True).redriven == 1
    assert site.distcron.dead_letters.count() == 0
    wait_until(lambda: site.distcron.mover.errors, "a try")
    assert site.distcron.retries.count() == 1
    site.broker.wire.down = False
    (waiting,) = site.distcron.retries.list()
    site.distcron.retries.run_now(waiting.key)
    wait_until(lambda: len(told) == 2, "it dies again")


def test_a_letter_that_was_brought_from_another_broker_goes_back_by_the_one_of_the_app_it_is_in(
    site: Site, server: Server, namespace: str
) -> None:
    """By the URL alone, in both directions: whether it is published tell those who know its actor."""
    redis_broker = RedisBroker(url=server.url, namespace=f"{namespace}-other")
    on_redis, ran = install(redis_broker), []
    by_url = install(broker_at(server.url, redis_broker.namespace))
    dramatiq.actor(ran.append, actor_name="dies", broker=redis_broker)
    told: list[str] = []
    dying(site, told).send("x")
    site.work()
    worker = Worker(redis_broker, worker_timeout=50, worker_threads=1)
    worker.start()
    wait_until(lambda: told and by_url.status().instances, "the letter, and a worker for it")
    by_url.dead_letters.import_(site.by_url.dead_letters.export())
    assert by_url.dead_letters.redrive(all=True).redriven == 1
    wait_until(lambda: ran == ["x"], "it runs in the other app")
    worker.stop()
    (letter,) = site.by_url.dead_letters.list()
    lines = [line.replace('"outbox": true, ', "") for line in site.by_url.dead_letters.export()]
    site.by_url.dead_letters.purge()
    site.by_url.dead_letters.import_(lines)
    assert site.by_url.dead_letters.redrive(letter.id).redriven == 1
    wait_until(lambda: len(told) == 2, "it dies again, in the app of the broker that is not on Redis")
    on_redis.close()
    for broker in (redis_broker, by_url.broker):
        broker.client.close()
