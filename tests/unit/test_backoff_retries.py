"""The retry middleware on a StubBroker: what is refused, what a message tells, and what may go wrong inside."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dramatiq
import dramatiq.worker
import pytest
from dramatiq import Message, Worker
from dramatiq.broker import MessageProxy
from dramatiq.brokers.stub import StubBroker
from dramatiq.errors import RateLimitExceeded
from dramatiq.middleware import Middleware, Retries
from dramatiq.middleware.threading import Interrupt

from dramatiq_distcron import (
    BackoffRetries,
    ConfigurationError,
    ConflictError,
    DistCron,
    RetryBudget,
    exponential,
    install,
)
from dramatiq_distcron.errors import SettlePostponed, StoreUnavailable
from dramatiq_distcron.middleware import settle
from dramatiq_distcron.middleware.marks import Marks, marks_of
from dramatiq_distcron.middleware.telling import HISTORY
from tests.support import queued

Start = Callable[[], Worker]


@pytest.fixture
def distcron(stub_broker: StubBroker) -> DistCron:
    return install(stub_broker)


def failing(broker: StubBroker, times: int = 10**9, **options: Any) -> Any:
    """An actor that fails so often; ``ran`` tells of its runs."""
    ran: list[int] = []

    def job(*args: Any) -> None:
        ran.append(len(ran))
        if len(ran) <= times:
            raise ValueError("no")

    actor = dramatiq.actor(job, actor_name="job", broker=broker, **options)
    actor.ran = ran  # type: ignore[attr-defined]
    return actor


def fail(broker: StubBroker, message: Message[Any], error: BaseException | None = None) -> MessageProxy:
    """A run of a message that fails, up to what is decided of it."""
    proxy = MessageProxy(message)
    broker.emit_before("process_message", proxy)
    error = error or ValueError("no")
    proxy.stuff_exception(error)
    broker.emit_after("process_message", proxy, exception=error)
    return proxy


def marked(broker: StubBroker, message: Message[Any], error: BaseException | None = None) -> Marks:
    return marks_of(fail(broker, message, error))


# -- with workers ---------------------------------------------------------------------------------------------


def test_a_failed_message_is_retried_until_it_succeeds_and_join_waits_for_that(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    job = failing(stub_broker, 3, backoff=0.01)
    worker = start()
    job.send()
    stub_broker.join("default", timeout=20_000)
    worker.join()
    assert len(job.ran) == 4
    assert distcron.retries.count() == 0


def test_a_message_is_run_once_and_as_often_as_it_may_be_retried_and_then_dead(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    """Field bug 101: more retries than configured."""
    job = failing(stub_broker, max_retries=3, backoff=0)
    start()
    job.send()
    with pytest.raises(ValueError, match="no"):
        stub_broker.join("default", timeout=20_000)
    assert len(job.ran) == 4
    (dead,) = stub_broker.dead_letters
    assert dead.options["retries"] == 4


def test_the_actor_that_is_to_be_told_of_the_end_is_told_once(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    told = []
    dramatiq.actor(lambda message, counts: told.append((message, counts)), actor_name="told", broker=stub_broker)
    job = failing(stub_broker, max_retries=1, backoff=0, on_retry_exhausted="told")
    start()
    message = job.send("x")
    stub_broker.join("default", timeout=20_000, fail_fast=False)
    ((found, counts),) = told
    assert (found["message_id"], found["args"], counts) == (message.message_id, ["x"], {"retries": 1, "max_retries": 1})


def test_flushing_a_queue_between_two_tests_drops_what_waits_for_it(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    acked = threading.Event()

    class Acked(Middleware):
        def after_ack(self, broker: Any, message: Any) -> None:
            acked.set()

    stub_broker.add_middleware(Acked())
    job = failing(stub_broker, 1, backoff=3600)
    start()
    job.send()
    assert acked.wait(20)
    assert distcron.retries.count() == 1
    stub_broker.flush_all()
    assert distcron.retries.count() == 0
    stub_broker.join("default", timeout=20_000)


def test_workers_of_one_process_share_what_moves_their_retries(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    before = set(threading.enumerate())

    def ours() -> list[str]:
        found = [thread.name for thread in threading.enumerate() if thread not in before]
        # The chores come and go.
        return sorted(name for name in found if name.startswith("distcron") and name != "distcron-chores")

    failing(stub_broker)
    first = start()
    holder = distcron.presence.holder
    second = start()
    assert distcron.presence.holder == holder
    assert ours() == ["distcron-presence", "distcron-retries"]
    second.stop()
    assert ours() == ["distcron-presence", "distcron-retries"]
    assert distcron.presence.is_told
    first.stop()
    assert ours() == []


# -- what a message tells -------------------------------------------------------------------------------------


def test_a_message_tells_of_its_last_failures(stub_broker: StubBroker, distcron: DistCron) -> None:
    job = failing(stub_broker, backoff=7, max_retries=None)
    message = job.message("a")
    for attempt in range(8):
        fail(stub_broker, message, KeyError(f"{attempt} " + "x" * 1000))
    told = message.options[HISTORY]
    assert (told["attempt"], told["last_error"], told["next_delay"]) == (8, "KeyError", 7000)
    assert told["first_failed_at"] <= told["attempts"][0]["at"]
    assert [one["text"][:2] for one in told["attempts"]] == ["'3", "'4", "'5", "'6", "'7"]
    assert {len(one["text"]) for one in told["attempts"]} == {200}
    assert message.options["retries"] == 8
    assert "KeyError" in message.options["traceback"]


@pytest.mark.parametrize(
    "foreign", [5, "x", [], {"attempts": 5}, {"next_delay": "soon"}, {"attempts": [None] * 9}, None]
)
def test_a_history_of_somebody_elses_costs_no_message(
    stub_broker: StubBroker, distcron: DistCron, foreign: Any
) -> None:
    job = failing(stub_broker, backoff=exponential(5, jitter="decorrelated"))
    planned = marked(stub_broker, job.message_with_options(**{HISTORY: foreign})).planned
    assert planned is not None
    assert 5000 <= planned.delay <= 15_000


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [Unspeakable(), ValueError("\ud800"), ValueError("x" * 10**6)])
def test_an_error_whose_text_cannot_be_sent_is_retried_as_any_other(
    stub_broker: StubBroker, distcron: DistCron, error: Exception
) -> None:
    job = failing(stub_broker, backoff=7)
    proxy = fail(stub_broker, job.message(), error)
    planned = marks_of(proxy).planned
    assert planned is not None
    assert planned.delay == 7000
    assert proxy.options["retries"] == 1
    assert len(proxy.copy().encode()) < 50_000
    str(proxy.options).encode()


@pytest.mark.parametrize(("retries", "next_one"), [(None, 1), ("3", 1), (True, 1), (-5, 1), (10**6, 10**6 + 1)])
def test_a_count_of_retries_that_is_none_counts_from_the_start(
    stub_broker: StubBroker, distcron: DistCron, retries: Any, next_one: int
) -> None:
    job = failing(stub_broker, max_retries=None)
    message = job.message_with_options(retries=retries)
    assert marked(stub_broker, message).planned is not None
    assert message.options["retries"] == next_one


# -- budgets --------------------------------------------------------------------------------------------------


def test_a_retry_names_its_budget_and_that_of_a_rate_limit_none(stub_broker: StubBroker, distcron: DistCron) -> None:
    job = failing(stub_broker, retry_budget="github")
    planned = marked(stub_broker, job.message()).planned
    assert planned is not None
    assert planned.about["budget"] == ["github", 0.1, 10]
    limited = marked(stub_broker, job.message(), RateLimitExceeded("full")).planned
    assert limited is not None
    assert "budget" not in limited.about


def test_a_budget_without_a_name_is_the_actors_own(stub_broker: StubBroker) -> None:
    stub_broker.middleware = [one for one in stub_broker.middleware if not isinstance(one, Retries)]
    stub_broker.add_middleware(BackoffRetries(retry_budget=RetryBudget(ratio=0.5)))
    install(stub_broker)
    planned = marked(stub_broker, failing(stub_broker).message()).planned
    assert planned is not None
    assert planned.about["budget"] == ["job", 0.1, 10]


def test_successes_earn_for_the_budget_of_their_actor(stub_broker: StubBroker, distcron: DistCron) -> None:
    job = failing(stub_broker, 0, retry_budget=RetryBudget("github", ratio=0.5))
    for _ in range(4):
        stub_broker.emit_after("process_message", MessageProxy(job.message()))
    budget = RetryBudget("github", ratio=0.5)
    store = distcron.open_backend().store
    for _ in range(10):
        store._bucket(budget.name, budget.floor, budget.burst, store.now()).take(store.now())
    before = store.budgets()["github"]["tokens"]
    distcron.mover._pay_in()
    assert store.budgets()["github"]["tokens"] - before == pytest.approx(2, abs=0.5)


# -- too late -------------------------------------------------------------------------------------------------


def test_a_retry_that_is_taken_up_too_late_is_not_run_and_the_end_is_told_of(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    """It was decided in time, and put off since, or its queue was long."""
    told = []
    dramatiq.actor(lambda message, counts: told.append(counts), actor_name="told", broker=stub_broker)
    job = failing(stub_broker, max_retries=5, max_retry_age=60_000, on_retry_exhausted="told")
    late = job.message_with_options(retries=3)
    stub_broker.enqueue(late.copy(message_timestamp=late.message_timestamp - 61_000))
    worker = start()
    stub_broker.join("default", timeout=20_000, fail_fast=False)
    worker.join()
    assert (job.ran, told) == ([], [{"retries": 2, "max_retries": 5}])
    (letter,) = distcron.dead_letters.list()
    assert (letter.reason, letter.attempts) == ("max_retry_age", 3)
    assert "comes 61" in letter.text


@pytest.mark.parametrize(("retries", "age"), [(0, 61_000), (3, 30_000)])
def test_a_first_run_is_never_too_late_nor_is_a_retry_in_time(
    stub_broker: StubBroker, distcron: DistCron, retries: int, age: int
) -> None:
    message = failing(stub_broker, max_retry_age=60_000).message_with_options(retries=retries)
    message = message.copy(message_timestamp=message.message_timestamp - age)
    stub_broker.emit_before("process_message", MessageProxy(message))


# -- poison ---------------------------------------------------------------------------------------------------


def test_a_message_that_killed_its_worker_too_often_ends_as_poison(stub_broker: StubBroker, distcron: DistCron) -> None:
    """Field bug 102: a message whose run is killed is redelivered for ever."""
    job = failing(stub_broker, max_deliveries=3)
    message = job.message()
    for _ in range(3):
        stub_broker.emit_before("process_message", MessageProxy(message))
    last = MessageProxy(message)
    with pytest.raises(dramatiq.middleware.SkipMessage, match="killed in 3 runs"):
        stub_broker.emit_before("process_message", last)
    assert last.failed
    assert marks_of(last).reason == "poison"


def test_a_delivery_that_ends_is_not_counted_any_more(stub_broker: StubBroker, distcron: DistCron) -> None:
    job = failing(stub_broker, max_deliveries=1)
    message = job.message()
    for signal in ("ack", "nack", "ack"):
        proxy = MessageProxy(message)
        stub_broker.emit_before("process_message", proxy)
        stub_broker.emit_after(signal, proxy)
    assert distcron.open_backend().store.count_delivery(f"{message.message_id}.0") == 1


def test_a_retry_of_a_message_is_counted_on_its_own(stub_broker: StubBroker, distcron: DistCron) -> None:
    job = failing(stub_broker, max_deliveries=1)
    for attempt in range(3):
        proxy = MessageProxy(job.message_with_options(retries=attempt).copy(message_id="m"))
        stub_broker.emit_before("process_message", proxy)
        assert not proxy.failed


def test_a_delivery_that_cannot_be_counted_runs(
    stub_broker: StubBroker, distcron: DistCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(key: str) -> int:
        raise StoreUnavailable("away")

    monkeypatch.setattr(distcron.open_backend().store, "count_delivery", away)
    proxy = MessageProxy(failing(stub_broker, max_deliveries=1).message())
    stub_broker.emit_before("process_message", proxy)
    assert not proxy.failed


# -- what may go wrong inside ---------------------------------------------------------------------------------


def test_a_decision_that_fails_is_made_without_the_options(
    stub_broker: StubBroker, distcron: DistCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = failing(stub_broker, max_retries=None)
    retries = next(one for one in stub_broker.middleware if isinstance(one, BackoffRetries))
    monkeypatch.setattr(retries, "_options_of", lambda actor: 1 / 0)
    proxy = fail(stub_broker, job.message())
    planned = marks_of(proxy).planned
    assert planned is not None
    assert 15_000 <= planned.delay <= 30_000
    assert proxy.options["retries"] == 1
    # It is no reason to retry for ever.
    assert fail(stub_broker, job.message_with_options(retries=20)).failed


@pytest.mark.parametrize("when", ["before", "in the middle"])
def test_a_time_limit_that_cuts_in_while_a_failure_is_decided_costs_neither_message_nor_retry(
    stub_broker: StubBroker, distcron: DistCron, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    job = failing(stub_broker, backoff=7)
    cutting = [True]

    def cut_in(*args: Any, **kwargs: Any) -> Any:
        if cutting.pop():
            raise Interrupt

    class Cutting(Middleware):
        after_process_message = cut_in

    proxy = MessageProxy(job.message())
    stub_broker.emit_before("process_message", proxy)
    if when == "before":
        stub_broker.add_middleware(Cutting())
    else:
        retries = next(one for one in stub_broker.middleware if isinstance(one, BackoffRetries))
        monkeypatch.setattr(retries, "_note", lambda *args: cut_in() or BackoffRetries._note(retries, *args))
    proxy.stuff_exception(ValueError("no"))
    with pytest.raises(Interrupt):
        stub_broker.emit_after("process_message", proxy, exception=proxy._exception)
    cutting.append(False)
    stub_broker.emit_before("ack", proxy)
    (waiting,) = distcron.retries.list()
    assert (waiting.id, waiting.attempt) == (proxy.message_id, 1)
    assert proxy.options["retries"] == 1


def test_a_success_and_a_skipped_message_are_not_retried(stub_broker: StubBroker, distcron: DistCron) -> None:
    job = failing(stub_broker)
    for signal in ("process_message", "skip_message"):
        proxy = MessageProxy(job.message())
        stub_broker.emit_before("process_message", proxy)
        stub_broker.emit_after(signal, proxy)
        stub_broker.emit_before("ack", proxy)
    assert distcron.retries.count() == 0


class Spoiling(Middleware):
    """Puts into the message what cannot be sent."""

    def after_process_message(self, broker: Any, message: Any, *, result: Any = None, exception: Any = None) -> None:
        message.options["spoiled"] = object()


def test_a_message_that_cannot_be_sent_again_is_dead_and_not_gone(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    stub_broker.add_middleware(Spoiling())
    job = failing(stub_broker, backoff=0)
    start()
    job.send()
    stub_broker.join("default", timeout=20_000, fail_fast=False)
    (dead,) = stub_broker.dead_letters
    assert marks_of(dead).reason == "retry_not_recorded"
    assert len(job.ran) == 1


def test_a_retry_has_the_arguments_that_its_actor_was_given(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    """As after a kill: what the first run took out of them, or put in, is gone."""
    seen: list[Any] = []

    def job(items: list[Any], *, more: dict[str, Any]) -> None:
        seen.append((list(items), dict(more)))
        items.append(object())
        if more.pop("left") and len(seen) < 3:
            raise ValueError("no")

    dramatiq.actor(job, broker=stub_broker, backoff=0).send([1], more={"left": 2})
    start()
    stub_broker.join("default", timeout=20_000)
    assert seen == [([1], {"left": 2})] * 3


def test_a_retry_has_what_was_given_also_if_what_is_left_is_equal_to_it(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    seen: list[str] = []

    def job(given: dict[str, Any]) -> None:
        seen.append(repr(given))
        given.update(a=True, b=[1.0])
        if len(seen) < 3:
            raise ValueError("no")

    dramatiq.actor(job, broker=stub_broker, backoff=0).send({"a": 1, "b": [1]})
    start()
    stub_broker.join("default", timeout=20_000)
    assert seen == ["{'a': 1, 'b': [1]}"] * 3


def test_a_message_that_its_failed_actor_left_alone_stays_the_one_that_middlewares_have_seen(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    met: list[Any] = []

    class Seeing(Middleware):
        def before_process_message(self, broker: Any, message: Any) -> None:
            met.append(message._message)

        def after_process_message(
            self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
        ) -> None:
            met.append(message._message)

    # Before ours: it is told after it how the run went.
    stub_broker.add_middleware(Seeing(), before=type(stub_broker.middleware[0]))

    def job(items: list[Any]) -> None:
        if len(met) < 2:
            raise ValueError("no")

    dramatiq.actor(job, broker=stub_broker, backoff=0).send([1])
    start()
    stub_broker.join("default", timeout=20_000)
    assert len(met) == 4
    assert met[0] is met[1]


class Context(Middleware):
    """Takes out of a message what is not its actor's, and puts it back after the run."""

    def before_process_message(self, broker: Any, message: Any) -> None:
        self.user = message.kwargs.pop("user")

    def after_process_message(self, broker: Any, message: Any, *, result: Any = None, exception: Any = None) -> None:
        message.kwargs["user"] = self.user


@pytest.mark.parametrize("is_changed", [True, False])
def test_a_letter_has_what_a_middleware_before_ours_puts_back_after_the_run(
    stub_broker: StubBroker, distcron: DistCron, start: Start, is_changed: bool
) -> None:
    stub_broker.add_middleware(Context(), before=type(stub_broker.middleware[0]))

    def job(items: list[Any]) -> None:
        if is_changed:
            items.clear()
        raise ValueError("no")

    actor = dramatiq.actor(job, broker=stub_broker, max_retries=0)
    stub_broker.enqueue(actor.message([1]).copy(kwargs={"user": 7}))
    start()
    stub_broker.join("default", timeout=20_000, fail_fast=False)
    (letter,) = distcron.dead_letters.list()
    assert (letter.message["args"], letter.message["kwargs"]) == ([[1]], {"user": 7})


def test_a_message_that_ran_well_is_left_as_it_is(
    stub_broker: StubBroker, distcron: DistCron, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody sends it again, and it is the usual case: nothing is decoded for it."""
    seen, decoded = list[Any](), list[Any]()
    monkeypatch.setattr(settle, "as_it_came", lambda message: decoded.append(message) or message._message)

    class Seeing(Middleware):
        def after_process_message(
            self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
        ) -> None:
            seen.append((message.args, exception))

    stub_broker.add_middleware(Seeing(), before=type(stub_broker.middleware[0]))
    dramatiq.actor(lambda items: items.append(2), broker=stub_broker, actor_name="job").send([1])
    start()
    stub_broker.join("default", timeout=20_000)
    assert seen == [(([1, 2],), None)]
    assert not decoded


def test_what_a_middleware_takes_out_for_the_run_and_puts_back_after_it_is_in_the_retry(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    stub_broker.add_middleware(Context())
    seen: list[Any] = []

    def job(items: list[Any]) -> None:
        seen.append(list(items))
        items.clear()
        if len(seen) < 3:
            raise ValueError("no")

    actor = dramatiq.actor(job, broker=stub_broker, backoff=0)
    stub_broker.enqueue(actor.message([1]).copy(kwargs={"user": 7}))
    start()
    stub_broker.join("default", timeout=20_000)
    assert seen == [[1]] * 3


def test_a_store_that_is_away_keeps_the_message_at_its_worker(
    stub_broker: StubBroker, distcron: DistCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = failing(stub_broker, backoff=7)
    proxy = fail(stub_broker, job.message())
    store = distcron.open_backend().store
    with monkeypatch.context() as patched:
        patched.setattr(store, "settle", lambda ending: (_ for _ in ()).throw(StoreUnavailable("away")))
        for _ in range(2):
            with pytest.raises(SettlePostponed):
                stub_broker.emit_before("ack", proxy)
    assert distcron.retries.count() == 0
    stub_broker.emit_before("ack", proxy)
    stub_broker.emit_before("ack", proxy)
    assert distcron.retries.count() == 1


@pytest.mark.parametrize("answer", ["failed OOM command not allowed", "failed -READONLY You can't write"])
def test_a_store_that_cannot_write_now_is_asked_again(
    stub_broker: StubBroker, distcron: DistCron, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    proxy = fail(stub_broker, failing(stub_broker, backoff=7).message())
    monkeypatch.setattr(distcron.open_backend().store, "settle", lambda ending: answer)
    with pytest.raises(SettlePostponed):
        stub_broker.emit_before("ack", proxy)


def test_a_store_that_refuses_for_good_leaves_the_retry_to_the_brokers_delay_queue(
    stub_broker: StubBroker, distcron: DistCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = fail(stub_broker, failing(stub_broker, backoff=7).message())
    monkeypatch.setattr(distcron.open_backend().store, "settle", lambda ending: "failed WRONGTYPE")
    stub_broker.emit_before("ack", proxy)
    (delayed,) = queued(stub_broker, "default.DQ")
    assert delayed.message_id == proxy.message_id
    assert delayed.options["retries"] == 1


@pytest.mark.parametrize("target", ["nobody", "told"])
def test_an_end_that_nobody_can_be_told_of_is_an_end_nevertheless(
    stub_broker: StubBroker, distcron: DistCron, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    dramatiq.actor(lambda message, counts: None, actor_name="told", broker=stub_broker, queue_name="ends")
    job = failing(stub_broker, max_retries=0, on_retry_exhausted=target)
    proxy = fail(stub_broker, job.message())
    assert proxy.failed
    del stub_broker.queues["ends"]
    stub_broker.emit_before("nack", proxy)


# -- what is refused ------------------------------------------------------------------------------------------


async def later(*args: Any) -> bool:
    """What comes of a call is true, whatever it would have said."""
    return False


WRONG = [
    ({"retry_when": later}, "retry_when of .* must be a plain function"),
    ({"backoff": later}, "backoff of .* must be a plain function"),
    ({"backoff": {ValueError: functools.partial(later, 5)}}, "backoff of .* must be a plain function"),
    ({"backoff": "fast"}, "backoff of"),
    ({"backoff": {5: 5}}, "exception classes"),
    ({"backoff": 5, "min_backoff": 100}, "exclude each other"),
    ({"backoff": [5], "max_backoff": 100}, "exclude each other"),
    ({"min_backoff": "1s"}, "min_backoff of"),
    ({"max_backoff": -1}, "max_backoff of"),
    ({"max_retry_age": True}, "max_retry_age of"),
    ({"max_retry_age": float("nan")}, "max_retry_age of"),
    ({"max_retries": "3"}, "max_retries of"),
    ({"max_retries": timedelta(1)}, "max_retries of"),
    ({"max_deliveries": 0}, "max_deliveries of"),
    ({"max_deliveries": 2.5}, "max_deliveries of"),
    ({"retry_when": 5}, "retry_when of"),
    ({"retry_budget": 0.1}, "retry_budget must be"),
    ({"retry_budget": ""}, "name of a RetryBudget"),
]


@pytest.mark.parametrize(("options", "told"), WRONG)
def test_what_cannot_be_is_refused_where_the_middleware_is_made(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        BackoffRetries(**options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        *WRONG,
        ({"throws": "ValueError"}, "throws of"),
        ({"throws": [ValueError]}, "throws of"),
        ({"throws": (ValueError, 5)}, "throws of"),
        ({"on_retry_exhausted": 5}, "on_retry_exhausted of"),
    ],
)
def test_what_cannot_be_is_refused_where_the_actor_is_declared(
    stub_broker: StubBroker, distcron: DistCron, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        failing(stub_broker, **options)
    assert "job" not in stub_broker.actors


def test_an_unknown_option_is_refused_where_the_actor_is_declared(stub_broker: StubBroker, distcron: DistCron) -> None:
    with pytest.raises(ValueError, match="bakoff"):
        failing(stub_broker, bakoff=5)


def test_durations_may_be_timedeltas(stub_broker: StubBroker, distcron: DistCron) -> None:
    job = failing(stub_broker, min_backoff=timedelta(seconds=2), max_retry_age=timedelta(days=1))
    assert (job.options["min_backoff"], job.options["max_retry_age"]) == (2000, 86_400_000)
    assert BackoffRetries(max_backoff=timedelta(hours=1)).max_backoff == 3_600_000


def test_an_option_that_says_none_says_nothing(stub_broker: StubBroker, distcron: DistCron) -> None:
    nothing = dict.fromkeys(("backoff", "max_retry_age", "max_deliveries", "retry_budget", "throws", "retry_when"))
    planned = marked(stub_broker, failing(stub_broker, **nothing).message()).planned
    assert planned is not None
    assert 15_000 <= planned.delay <= 30_000


def test_two_budgets_of_one_name_must_be_equal(stub_broker: StubBroker) -> None:
    stub_broker.middleware = [BackoffRetries(retry_budget=RetryBudget("github", ratio=0.2))]
    install(stub_broker)
    stub_broker.actor_options |= stub_broker.middleware[0].actor_options
    with pytest.raises(ConflictError, match="other numbers"):
        failing(stub_broker, retry_budget="github")
    failing(stub_broker, retry_budget=RetryBudget("github", ratio=0.2))


def test_a_budget_that_takes_its_actors_name_is_checked_as_one_of_that_name(
    stub_broker: StubBroker, distcron: DistCron
) -> None:
    def declare(name: str, budget: RetryBudget | str) -> None:
        dramatiq.actor(lambda: None, actor_name=name, broker=stub_broker, retry_budget=budget)

    declare("github", RetryBudget(ratio=0.5))
    with pytest.raises(ConflictError, match="'github' of actor 'pull' has other numbers"):
        declare("pull", "github")
    with pytest.raises(ConfigurationError, match="1 to 100 printable"):
        declare("long" * 30, RetryBudget())


def test_install_puts_ours_in_the_place_of_dramatiqs_with_its_settings() -> None:
    when = lambda retries, error: True  # noqa: E731
    broker = StubBroker(middleware=[Spoiling(), Retries(max_retries=3, min_backoff=5, max_backoff=7, retry_when=when)])
    install(broker)
    names = ["Spoiling", "BackoffRetries", "DistCron", "DeadLetters", "Settle"]
    assert [type(one).__name__ for one in broker.middleware] == names
    ours = broker.middleware[1]
    assert isinstance(ours, BackoffRetries)
    assert (ours.max_retries, ours.min_backoff, ours.max_backoff, ours.retry_when) == (3, 5, 7, when)


@pytest.mark.parametrize("other", [Retries, BackoffRetries])
def test_a_worker_does_not_start_where_two_would_retry_a_message(
    stub_broker: StubBroker, distcron: DistCron, other: type[Retries]
) -> None:
    stub_broker.add_middleware(other())
    with pytest.raises(ConflictError, match="Several middlewares"):
        Worker(stub_broker).start()


def test_a_worker_does_not_start_where_nobody_records_the_retries(stub_broker: StubBroker) -> None:
    stub_broker.middleware = [BackoffRetries()]
    with pytest.raises(ConflictError, match="needs DistCron"):
        Worker(stub_broker).start()


@pytest.mark.parametrize("order", [[BackoffRetries, DistCron], [DistCron, BackoffRetries]])
def test_in_a_list_of_middlewares_it_may_stand_before_the_one_that_records(order: list[type[Middleware]]) -> None:
    """As in the settings of Django, where DistCron comes last."""
    broker = StubBroker(middleware=[make() for make in order])
    job = failing(broker, times=2, backoff=0)
    worker = Worker(broker, worker_timeout=5)
    worker.start()
    try:
        job.send()
        broker.join("default", timeout=20_000)
        assert len(job.ran) == 3
    finally:
        worker.stop()
        broker.close()


def test_a_broker_without_retries_gets_none() -> None:
    broker = StubBroker(middleware=[])
    install(broker)
    assert not any(isinstance(one, Retries) for one in broker.middleware)


def test_a_subclass_of_dramatiqs_retries_stays() -> None:
    class Mine(Retries):
        pass

    broker = StubBroker(middleware=[Mine()])
    install(broker)
    assert isinstance(broker.middleware[0], Mine)
    assert not any(isinstance(one, BackoffRetries) for one in broker.middleware)
