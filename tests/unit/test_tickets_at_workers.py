"""Workers of a broker that delivers at least once: Dramatiq's own worker code, stepped by hand, on our middleware."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from queue import PriorityQueue, Queue
from typing import Any, cast

import dramatiq
import dramatiq.worker
import pytest
from dramatiq import Message
from dramatiq.broker import MessageProxy
from dramatiq.brokers.stub import StubBroker
from dramatiq.common import dq_name
from dramatiq.middleware import AgeLimit, Middleware, Retries, SkipMessage

from dramatiq_distcron import install
from dramatiq_distcron.backends import Backend
from dramatiq_distcron.errors import StoreUnavailable
from dramatiq_distcron.middleware.presence import Presence
from dramatiq_distcron.middleware.settle import Settle
from dramatiq_distcron.moving import Mover
from dramatiq_distcron.outbox import OutboxPublisher
from dramatiq_distcron.store.base import REMEMBERED
from tests.plain_broker import PlainBroker, Wire
from tests.unit.test_outbox import Post

ID = "m"


class Worker:
    """One worker process: a broker object, our middleware, and Dramatiq's threads as objects that are not started."""

    def __init__(self, world: World, *others: Middleware) -> None:
        self.broker = PlainBroker(world.wire, [*others, Retries(min_backoff=1, max_backoff=1)])
        publisher = OutboxPublisher(self.broker, world.store, world.clock)
        backend = Backend(world.store, publisher, "dramatiq", by_outbox=True)
        mover = Mover(lambda: backend, world.clock)
        self.settle = Settle(lambda: backend, lambda: mover)
        self.presence = Presence(self.settle.worker_id, lambda: Backend(world.store, publisher, "dramatiq"))
        self.broker.add_middleware(self.settle)
        self.consumers: dict[str, Any] = {}
        for name in ("default", dq_name("default")):
            self.consumers[name] = consumer = dramatiq.worker.ConsumerThread(
                broker=self.broker, queue_name=name, prefetch=1, work_queue=PriorityQueue(), worker_timeout=1
            )
            consumer.consumer = self.broker.consume(name, timeout=0)
        self._thread = dramatiq.worker.WorkerThread(
            broker=self.broker, consumers=self.consumers, work_queue=cast(Any, Queue()), worker_timeout=1
        )

    def does(self, work: Callable[[], None]) -> None:
        dramatiq.actor(work, actor_name="job", broker=self.broker)

    def take(self, queue: str = "default") -> MessageProxy | None:
        """The next delivery; one of an unknown actor is dealt with at once, as Dramatiq does."""
        consumer = self.consumers[queue]
        message = next(consumer.consumer)
        if message is None:
            return None
        consumer.handle_message(message)
        if not consumer.work_queue.empty():
            consumer.work_queue.get()
            self._thread.work_queue.put(cast(Any, message))
        return message

    def process(self, message: MessageProxy | None) -> None:
        assert message is not None
        self._thread.process_message(message)

    def work(self) -> None:
        self.process(self.take())

    def move_delayed(self) -> int:
        """What waits in the delay queue comes out. Returns how many messages that were."""
        queue = dq_name("default")
        moved = 0
        while (message := next(self.consumers[queue].consumer)) is not None:
            message.options["eta"] = 0
            self.consumers[queue].handle_message(message)
            self.consumers[queue].handle_delayed_messages()
            moved += 1
        return moved

    def lose_connection(self) -> None:
        """The broker gives what is not acked to others."""
        for consumer in self.consumers.values():
            consumer.consumer.close()


class World(Post):
    """A tick that was committed, its message in the broker, and workers."""

    def __init__(self) -> None:
        super().__init__()
        self.wire: Wire = self.broker.wire
        self.message = self.commit(ID)
        self.deliver()

    def deliver(self, **options: Any) -> None:
        """The message is (once more) in the broker: published twice, say."""
        stamp = {"message_timestamp": options.pop("stamp")} if "stamp" in options else {}
        self.wire.put("default", self.message.copy(options=options, **stamp).encode())

    def worker(self, *others: Middleware) -> Worker:
        return Worker(self, *others)

    @property
    def state(self) -> str:
        """How the run stands."""
        (record,) = self.store.history("job", 10)
        assert record.run is not None
        return record.run["state"]

    def in_broker(self, queue: str = "default") -> list[Message[Any]]:
        return [Message.decode(data) for data in self.wire.queues.get(queue, ())]

    @property
    def delayed(self) -> list[int]:
        """The attempts of what waits in the delay queue."""
        return [message.options.get("retries", 0) for message in self.in_broker(dq_name("default"))]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(dramatiq.worker, "POST_PROCESS_MESSAGE_RETRY_DELAY_SECS", 0)
    return world


def nothing() -> None:
    pass


def fail() -> None:
    raise dramatiq.Retry("not yet")


class Runs:
    """An actor that counts its runs and does something in each."""

    def __init__(self, *each: Callable[[], None]) -> None:
        self.count = 0
        self._each = list(each)

    def __call__(self) -> None:
        self.count += 1
        if self._each:
            self._each.pop(0)()


def test_a_message_runs_and_a_copy_that_comes_later_does_not(world: World) -> None:
    worker, runs = world.worker(), Runs()
    worker.does(runs)
    world.deliver()
    worker.work()
    worker.work()
    assert (runs.count, world.state) == (1, "succeeded")
    assert world.in_broker() == world.in_broker(dq_name("default")) == []


def test_a_copy_that_comes_while_the_first_runs_is_put_off_until_that_is_over(world: World) -> None:
    first, second = world.worker(), world.worker()
    runs = Runs(lambda: second.work())
    first.does(runs)
    second.does(runs)
    world.deliver()
    first.work()
    assert (runs.count, world.state, world.delayed) == (1, "succeeded", [0])
    assert second.move_delayed() == 1
    second.work()
    assert runs.count == 1
    assert world.in_broker() == world.in_broker(dq_name("default")) == []


def test_a_copy_that_cannot_be_put_off_does_not_run_for_that(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = world.worker(), world.worker()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        world.wire.down = len(pauses) < 3

    def cut_off() -> None:
        world.wire.down = True
        second.process(copy)

    monkeypatch.setattr(dramatiq.worker.time, "sleep", pause)
    runs = Runs(cut_off)
    first.does(runs)
    second.does(runs)
    world.deliver()
    message, copy = first.take(), second.take()
    first.process(message)
    assert (runs.count, world.state, world.delayed) == (1, "succeeded", [0])
    assert len(pauses) == 3


def test_a_message_whose_ticket_cannot_be_asked_for_is_put_off_and_runs_when_it_can(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, runs = world.worker(), Runs()
    worker.does(runs)
    with monkeypatch.context() as away:
        away.setattr(world.store, "claim_run", _unavailable)
        for _ in range(3):
            worker.work()
            assert (runs.count, world.state, world.delayed) == (0, "queued", [0])
            assert worker.move_delayed() == 1
    worker.work()
    assert (runs.count, world.state) == (1, "succeeded")


def _unavailable(*args: Any, **kwargs: Any) -> Any:
    raise StoreUnavailable("away")


def _without_answer(work: Callable[..., Any]) -> Callable[..., Any]:
    """It is done, and nobody learns of it."""

    def done(*args: Any, **kwargs: Any) -> Any:
        work(*args, **kwargs)
        return _unavailable()

    return done


def test_a_ticket_that_was_given_without_an_answer_does_not_keep_the_message_away_for_good(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, runs = world.worker(), world.worker(), Runs()
    first.does(runs)
    second.does(runs)
    with monkeypatch.context() as cut_off:
        cut_off.setattr(world.store, "claim_run", _without_answer(world.store.claim_run))
        for worker in (first, second):
            worker.work()
            assert (runs.count, world.state, worker.move_delayed()) == (0, "running", 1)
    first.work()
    assert (runs.count, world.state) == (1, "succeeded")


def test_a_ticket_that_may_have_been_given_is_asked_for_again_to_end_the_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = world.store.claim_run, []

    def claim_run(*args: Any) -> Any:
        asked.append(args)
        return (_without_answer(real) if len(asked) == 1 else real)(*args)

    monkeypatch.setattr(world.store, "claim_run", claim_run)
    # Its actor is not known here.
    world.worker().take()
    assert (len(asked), world.state) == (2, "dead")


def test_an_end_that_cannot_be_recorded_is_recorded_when_it_can_and_the_message_is_acked_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, runs = world.worker(), Runs()
    worker.does(runs)
    real, calls = world.store.settle, []

    def settle(ending: Any) -> str:
        calls.append(ending)
        if len(calls) < 4:
            raise StoreUnavailable("away")
        return real(ending)

    monkeypatch.setattr(world.store, "settle", settle)
    worker.work()
    assert (runs.count, len(calls), world.state) == (1, 4, "succeeded")
    worker.lose_connection()
    assert world.in_broker() == []


@pytest.mark.parametrize("failures", [1, 3])
def test_a_retry_goes_on_with_the_ticket(world: World, failures: int) -> None:
    worker, runs = world.worker(), Runs(*[fail] * failures)
    worker.does(runs)
    worker.work()
    for attempt in range(1, failures + 1):
        assert (world.state, world.delayed) == ("retrying", [attempt])
        assert worker.move_delayed() == 1
        worker.work()
    assert (runs.count, world.state) == (failures + 1, "succeeded")


def test_a_retry_survives_an_ack_that_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, runs = world.worker(), Runs(fail)
    worker.does(runs)
    message = worker.take()
    consumer = worker.consumers["default"].consumer
    real, acks = consumer.ack, []

    def ack(message: Any) -> None:
        acks.append(message)
        world.wire.down = len(acks) == 1
        real(message)

    monkeypatch.setattr(consumer, "ack", ack)
    worker.process(message)
    assert (len(acks), world.state, world.delayed) == (2, "retrying", [1])
    worker.move_delayed()
    worker.work()
    assert (runs.count, world.state) == (2, "succeeded")


def test_the_last_failure_ends_the_run_as_dead(world: World) -> None:
    worker, runs = world.worker(), Runs(fail)
    worker.does(runs)
    worker.broker.actors["job"].options["max_retries"] = 0
    worker.work()
    assert (runs.count, world.state, world.delayed) == (1, "dead", [])
    assert [message.message_id for message in world.wire.dead] == [ID]


def test_an_early_copy_that_was_put_off_does_not_run_beside_the_retry(world: World) -> None:
    first, second = world.worker(), world.worker()

    def meanwhile() -> None:
        second.work()
        fail()

    runs = Runs(meanwhile)
    first.does(runs)
    second.does(runs)
    world.deliver()
    first.work()
    assert (world.state, sorted(world.delayed)) == ("retrying", [0, 1])
    assert second.move_delayed() == 2
    second.work()
    second.work()
    assert (runs.count, world.state) == (2, "succeeded")
    assert world.in_broker() == world.in_broker(dq_name("default")) == []


def test_the_way_out_of_the_delay_queue_does_not_ask_the_store(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, runs = world.worker(), Runs(fail)
    worker.does(runs)
    worker.work()
    with monkeypatch.context() as away:
        away.setattr(world.store, "settle", _unavailable)
        assert worker.move_delayed() == 1
    worker.work()
    assert (runs.count, world.state) == (2, "succeeded")


def test_two_retries_of_one_attempt_become_one(world: World) -> None:
    """A worker that died between publishing its retry and recording it: the redelivery fails as well."""
    first, second = world.worker(), world.worker()
    runs = Runs(fail, fail)
    first.does(runs)
    second.does(runs)
    message = first.take()
    assert message is not None
    first.broker.emit_before("process_message", message)
    first.broker.enqueue(message.copy(options={"retries": 1}), delay=1)
    first.lose_connection()
    world.store.forget(first.settle.worker_id)
    second.work()
    assert (world.state, world.delayed) == ("retrying", [1, 1])
    second.move_delayed()
    second.work()
    second.work()
    assert (world.state, world.delayed) == ("retrying", [2])
    second.move_delayed()
    second.work()
    assert (runs.count, world.state) == (3, "succeeded")


def test_a_message_of_a_worker_that_was_killed_runs_again(world: World) -> None:
    first, second = world.worker(), world.worker()
    runs = Runs()
    second.does(runs)
    first.does(nothing)
    message = first.take()
    first.broker.emit_before("process_message", message)
    first.lose_connection()
    second.work()
    assert (runs.count, world.delayed) == (0, [0])
    world.clock.advance(REMEMBERED / 1000 + 1)
    second.move_delayed()
    second.work()
    assert (runs.count, world.state) == (1, "succeeded")


def test_a_worker_that_was_taken_for_dead_does_not_end_the_run_of_its_successor(world: World) -> None:
    first, second, third = world.worker(), world.worker(), world.worker()

    def asleep() -> None:
        world.clock.advance(REMEMBERED / 1000 + 1)
        world.deliver()
        second.work()

    def meanwhile() -> None:
        first.broker.emit_after("process_message", message)
        first.broker.emit_before("ack", message)
        world.deliver()
        third.work()

    runs = Runs(asleep, meanwhile)
    for worker in (first, second, third):
        worker.does(runs)
    message = first.take()
    assert message is not None
    first.process(message)
    assert (runs.count, world.state, world.delayed) == (2, "succeeded", [0])


class TooLate(Middleware):
    def before_process_message(self, broker: Any, message: Any) -> None:
        raise SkipMessage("another middleware does not want it")


@pytest.mark.parametrize(
    ("middleware", "state"), [(TooLate(), "dropped"), (AgeLimit(max_age=1), "dead")], ids=["skip", "age limit"]
)
def test_what_another_middleware_ends_before_it_begins_is_ended(world: World, middleware: Any, state: str) -> None:
    worker, runs = world.worker(middleware), Runs()
    worker.does(runs)
    world.wire.queues["default"].clear()
    world.deliver(stamp=0)
    worker.work()
    assert (runs.count, world.state) == (0, state)


@pytest.mark.parametrize("middleware", [TooLate(), AgeLimit(max_age=1)], ids=["skip", "age limit"])
def test_what_becomes_of_a_copy_does_not_end_the_run_of_the_first(world: World, middleware: Any) -> None:
    first, second, third = world.worker(), world.worker(middleware), world.worker()

    def meanwhile() -> None:
        world.deliver(stamp=0)
        second.work()
        assert world.state == "running"
        world.deliver()
        third.work()

    runs = Runs(meanwhile)
    for worker in (first, second, third):
        worker.does(runs)
    first.work()
    assert (runs.count, world.state) == (1, "succeeded")


def test_a_message_for_an_actor_that_is_not_known_here_is_dead(world: World) -> None:
    world.worker().take()
    assert world.state == "dead"
    assert [message.message_id for message in world.wire.dead] == [ID]


def test_a_copy_for_an_actor_that_is_not_known_here_does_not_end_the_run_of_the_first(world: World) -> None:
    first, second = world.worker(), world.worker()

    def meanwhile() -> None:
        world.deliver()
        second.take()
        assert world.state == "running"

    first.does(Runs(meanwhile))
    first.work()
    assert world.state == "succeeded"


@pytest.mark.parametrize("retries", ["many", None, [1], {}])
def test_a_number_of_attempts_that_is_none_does_not_run_it_without_a_ticket(world: World, retries: Any) -> None:
    worker, runs = world.worker(), Runs()
    worker.does(runs)
    world.deliver(retries=retries)
    worker.work()
    worker.work()
    assert runs.count == 1


def test_a_message_that_is_no_ticks_needs_no_ticket(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, runs = world.worker(), Runs()
    worker.does(runs)
    world.wire.queues["default"].clear()
    worker.broker.enqueue(Message("default", "job", (), {}, {}))
    for verb in ("claim_run", "start_run", "settle"):
        monkeypatch.setattr(world.store, verb, _unavailable)
    worker.work()
    assert runs.count == 1


def test_a_worker_is_there_until_its_last_run_is_over(world: World) -> None:
    worker, another = world.worker(), world.worker()
    for one in (worker, another):
        one.broker.add_middleware(one.presence)
        one.broker.emit_after("worker_boot", one)

    def told_to_stop() -> None:
        worker.broker.emit_before("worker_shutdown", worker)
        world.deliver()
        another.work()

    runs = Runs(told_to_stop)
    worker.does(runs)
    another.does(runs)
    worker.work()
    worker.broker.emit_after("worker_shutdown", worker)
    assert (runs.count, world.state, world.delayed) == (1, "succeeded", [0])
    assert worker.settle.worker_id not in {one.holder for one in world.store.instances(keep=REMEMBERED)}
    another.broker.emit_after("worker_shutdown", another)


def test_a_retry_that_could_not_be_enqueued_is_enqueued_before_the_ack(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dramatiq logs that its middleware failed, and acks."""
    worker = world.worker()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        world.wire.down = len(pauses) < 3

    def cut_off() -> None:
        world.wire.down = True
        fail()

    monkeypatch.setattr(dramatiq.worker.time, "sleep", pause)
    runs = Runs(cut_off)
    worker.does(runs)
    worker.work()
    assert (len(pauses), world.state, world.delayed) == (3, "retrying", [1])
    worker.move_delayed()
    worker.work()
    assert (runs.count, world.state) == (2, "succeeded")


def test_without_retries_a_failure_is_the_end(world: World) -> None:
    worker, runs = world.worker(), Runs(fail)
    worker.broker.middleware = [worker.settle]
    worker.does(runs)
    worker.work()
    assert (runs.count, world.state, world.delayed) == (1, "dead", [])


def test_an_end_that_does_not_fit_into_the_memory_now_is_recorded_when_it_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, runs = world.worker(), Runs()
    worker.does(runs)
    real, answers = world.store.settle, ["failed OOM command not allowed when used memory > 'maxmemory'."]
    monkeypatch.setattr(world.store, "settle", lambda ending: answers.pop() if answers else real(ending))
    worker.work()
    assert (runs.count, answers, world.state) == (1, [], "succeeded")


def test_each_worker_process_has_an_id_of_its_own_also_if_it_was_forked(stub_broker: StubBroker) -> None:
    distcron = install(stub_broker)
    ids = set()
    for _ in range(2):
        stub_broker.emit_before("worker_boot", None)
        ids.add(distcron.settle.worker_id)
        assert distcron.presence.holder == distcron.settle.worker_id
    assert len(ids) == 2


def test_what_is_enqueued_beside_costs_no_memory(world: World) -> None:
    """A beat enqueues for years, and no delivery of its ends."""
    worker = world.worker()
    enqueued = [weakref.ref(worker.broker.enqueue(world.message.copy(message_id=str(n)))) for n in range(100)]
    world.wire.enqueued.clear()
    gc.collect()
    assert sum(message() is not None for message in enqueued) <= 1
