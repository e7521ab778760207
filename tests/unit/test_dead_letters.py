"""Dead letters on a StubBroker: which deaths are caught, who is told, for how long they are kept. No Redis."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import dramatiq
import pytest
from dramatiq import Message, Worker
from dramatiq.broker import MessageProxy
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import AgeLimit, Middleware, Retries, SkipMessage

from dramatiq_distcron import (
    BackoffRetries,
    ConfigurationError,
    ConflictError,
    DeadLetter,
    DeadLetters,
    DistCron,
    NotFoundError,
    Retention,
    RunOutstanding,
    every,
    install,
)
from dramatiq_distcron.api.redriving import Pace, Redriven
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.durations import iso
from dramatiq_distcron.errors import StoreRefused, StoreUnavailable
from dramatiq_distcron.letters import DLQ_ACTOR, DLQ_QUEUE, ORIGIN
from dramatiq_distcron.store.base import Ending, Instance, Letter
from tests.support import queued, wait_until

Start = Callable[[], Worker]
DAY = 86_400_000


@pytest.fixture
def distcron(stub_broker: StubBroker) -> DistCron:
    return install(stub_broker)


def failing(broker: StubBroker, error: BaseException | None = None, name: str = "job", **options: Any) -> Any:
    def job(*args: Any, **kwargs: Any) -> None:
        raise error or KeyError("no")

    return dramatiq.actor(job, actor_name=name, broker=broker, **{"max_retries": 0, **options})


def worked_off(broker: StubBroker, worker: Worker, *queues: str) -> None:
    for queue in queues or ("default", DLQ_QUEUE):
        broker.join(queue, timeout=20_000, fail_fast=False)
    worker.join()


def died(broker: StubBroker, message: Message[Any], error: BaseException | None = None) -> MessageProxy:
    """A delivery that ends in death, step by step and without a worker."""
    proxy = MessageProxy(message)
    broker.emit_before("process_message", proxy)
    error = error or KeyError("no")
    proxy.stuff_exception(error)
    broker.emit_after("process_message", proxy, exception=error)
    broker.emit_before("nack", proxy)
    broker.emit_after("nack", proxy)
    return proxy


def put(distcron: DistCron, name: str, at: int, **about: Any) -> None:
    about = {"message_id": name, "actor": "job", "queue": "default", **about}
    message: Message[Any] = Message("default", about["actor"], (), {}, {}, name, 1)
    indexes = [(field, about[field]) for field in ("actor", "queue", "error", "reason") if field in about]
    distcron.open_backend().store.put_letters([(Letter(name, about, message.encode(), indexes), at)])


def ids(distcron: DistCron, **filters: Any) -> list[str]:
    return [one.message_id for one in distcron.dead_letters.list(**filters)]


# -- every death ----------------------------------------------------------------------------------------------


class Refusing(Middleware):
    """A middleware of the user's that does not want a message, in one way or another."""

    def __init__(self, how: str) -> None:
        self._how = how

    def before_process_message(self, broker: Any, message: Any) -> None:
        if message.actor_name == "job":
            message.fail()
            if self._how == "raises":
                raise SkipMessage("not today")


def test_exhausted_retries_make_a_letter_with_its_history(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    job = failing(stub_broker, max_retries=2, backoff=0)
    message = job.send(1, two=2)
    worked_off(stub_broker, start())
    (letter,) = distcron.dead_letters.list()
    assert (letter.message_id, letter.actor, letter.queue) == (message.message_id, "job", "default")
    assert (letter.reason, letter.error, letter.text, letter.attempts) == ("retries_exhausted", "KeyError", "'no'", 3)
    assert [one["error"] for one in letter.history] == ["KeyError"] * 3
    assert letter.first_failed_at is not None
    assert letter.first_failed_at <= letter.dead_at
    assert letter.enqueued_at == message.message_timestamp
    assert letter.message["args"] == [1]
    assert letter.message["kwargs"] == {"two": 2}
    assert 'KeyError("no")' in letter.traceback
    assert letter.fingerprint
    assert letter.host
    assert letter.version


def test_an_error_that_is_not_retried_makes_a_letter(stub_broker: StubBroker, distcron: DistCron, start: Start) -> None:
    failing(stub_broker, max_retries=5, throws=KeyError).send()
    worked_off(stub_broker, start())
    (letter,) = distcron.dead_letters.list()
    assert (letter.reason, letter.error, letter.attempts) == ("aborted", "KeyError", 1)
    assert letter.first_failed_at == letter.dead_at


def test_a_message_that_is_too_old_makes_a_letter(stub_broker: StubBroker, distcron: DistCron, start: Start) -> None:
    stub_broker.enqueue(failing(stub_broker, max_age=1000).message().copy(message_timestamp=1))
    worked_off(stub_broker, start())
    (letter,) = distcron.dead_letters.list()
    assert (letter.reason, letter.attempts, letter.first_failed_at) == ("age_limit", 0, None)


def test_a_retry_that_would_come_too_late_makes_a_letter(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    failing(stub_broker, max_retries=5, max_retry_age=1000, backoff=60).send()
    worked_off(stub_broker, start())
    (letter,) = distcron.dead_letters.list()
    assert (letter.reason, letter.error, letter.attempts) == ("max_retry_age", "KeyError", 1)


def test_an_unknown_actor_makes_a_letter(stub_broker: StubBroker, distcron: DistCron, start: Start) -> None:
    stub_broker.declare_queue("default")
    stub_broker.enqueue(Message("default", "gone", (1,), {}, {}))
    worked_off(stub_broker, start())
    (letter,) = distcron.dead_letters.list()
    assert (letter.reason, letter.actor, letter.error) == ("unknown_actor", "gone", "ActorNotFound")


def test_a_message_that_kills_its_workers_makes_a_letter(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    message = failing(stub_broker, max_deliveries=1).message()
    # One run of it was killed.
    stub_broker.emit_before("process_message", MessageProxy(message))
    stub_broker.enqueue(message)
    worked_off(stub_broker, start())
    (letter,) = distcron.dead_letters.list()
    assert letter.reason == "poison"
    assert "killed in 1 runs" in letter.text


@pytest.mark.parametrize("how", ["raises", "is quiet"])
def test_a_message_that_a_middleware_refuses_makes_a_letter(
    stub_broker: StubBroker, distcron: DistCron, start: Start, how: str
) -> None:
    stub_broker.add_middleware(Refusing(how))
    failing(stub_broker).send()
    worked_off(stub_broker, start())
    (letter,) = distcron.dead_letters.list()
    assert letter.reason == "rejected"


class Spoiling(Middleware):
    """Makes a retry that nobody could send."""

    def after_process_message(self, broker: Any, message: Any, *, result: Any = None, exception: Any = None) -> None:
        message.options["spoilt"] = object()


def test_a_message_that_was_to_be_retried_and_is_failed_by_hand_was_rejected(
    stub_broker: StubBroker, distcron: DistCron
) -> None:
    actor = failing(stub_broker, max_retries=3)
    proxy = MessageProxy(actor.message())
    stub_broker.emit_before("process_message", proxy)
    proxy.stuff_exception(KeyError("no"))
    stub_broker.emit_after("process_message", proxy, exception=KeyError("no"))
    proxy.fail()
    stub_broker.emit_before("nack", proxy)
    (letter,) = distcron.dead_letters.list()
    assert (letter.reason, letter.error) == ("rejected", "KeyError")
    assert distcron.retries.list() == []


def test_a_retry_that_cannot_be_made_makes_a_letter(stub_broker: StubBroker, distcron: DistCron, start: Start) -> None:
    stub_broker.add_middleware(Spoiling())
    tick = {"schedule": "nightly", "fire_time": 7, "term": 1}
    failing(stub_broker, max_retries=5, backoff=0).send_with_options(args=(1,), distcron=tick)
    worked_off(stub_broker, start())
    (letter,) = distcron.dead_letters.list()
    assert (letter.reason, letter.message["args"]) == ("retry_not_recorded", [1])
    # What can be sent of its options is still there.
    assert distcron.dead_letters.redrive(letter.id).redriven == 1
    assert queued(stub_broker)[-1].options["distcron"] == tick


def test_the_reason_is_told_without_our_retries_too() -> None:
    class Own(Retries):
        pass

    broker = StubBroker(middleware=[Own()])
    distcron = install(broker)
    job = failing(broker, throws=TypeError)
    for error in (TypeError(), ValueError("over the age limit")):
        proxy = MessageProxy(job.message(options={}))
        proxy.fail()
        proxy.stuff_exception(error)
        broker.emit_before("nack", proxy)
    assert sorted((one.reason, one.error) for one in distcron.dead_letters.list()) == [
        ("aborted", "TypeError"),
        ("retries_exhausted", "ValueError"),
    ]


def test_the_letter_of_a_tick_tells_its_schedule(stub_broker: StubBroker, distcron: DistCron) -> None:
    job = failing(stub_broker)
    died(stub_broker, job.message_with_options(distcron={"schedule": "nightly", "fire_time": 7, "term": 1}))
    (letter,) = distcron.dead_letters.list(schedule="nightly")
    assert (letter.schedule, letter.fire_time) == ("nightly", 7)


def test_what_succeeds_or_is_retried_makes_no_letter(stub_broker: StubBroker, distcron: DistCron, start: Start) -> None:
    ran: list[int] = []

    @dramatiq.actor(broker=stub_broker, backoff=0)
    def once() -> None:
        ran.append(1)
        if len(ran) == 1:
            raise KeyError

    once.send()
    worked_off(stub_broker, start())
    assert (len(ran), distcron.dead_letters.count()) == (2, 0)


def test_a_broker_that_was_flushed_still_has_its_letters(stub_broker: StubBroker, distcron: DistCron) -> None:
    died(stub_broker, failing(stub_broker).message())
    stub_broker.flush_all()
    assert distcron.dead_letters.count() == 1


def test_nothing_secret_is_logged_or_shown(
    start: Start, stub_broker: StubBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "dramatiq_distcron")
    stub_broker.add_middleware(DeadLetters(redact=lambda actor, args, kwargs: (["…"] * len(args), {})))
    distcron = install(stub_broker)
    failing(stub_broker).send("s3cret", token="s3cret")
    worked_off(stub_broker, start())
    distcron.dead_letters.redrive(all=True, dry_run=True)
    (letter,) = distcron.dead_letters.list()
    # Dramatiq's own worker logs arguments.
    ours = [one.getMessage() for one in caplog.records if one.name.startswith("dramatiq_distcron")]
    assert ours
    assert "s3cret" not in repr((ours, letter))
    # The message itself is whole, or it could not be sent back.
    assert distcron.dead_letters.redrive(letter.id).redriven == 1
    assert queued(stub_broker)[-1].args == ("s3cret",)


class Wordless(Exception):
    """An error whose text cannot be made."""

    def __str__(self) -> str:
        raise KeyError("no words")


class Odd(Exception):
    """An error whose text is none."""

    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


@pytest.mark.parametrize("error", [Wordless(), Odd()])
def test_an_error_whose_text_cannot_be_made_makes_a_letter(
    stub_broker: StubBroker, distcron: DistCron, start: Start, error: Exception
) -> None:
    failing(stub_broker, error).send()
    worked_off(stub_broker, start())
    (letter,) = distcron.dead_letters.list()
    assert (letter.error, letter.text) == (type(error).__name__, "<its text cannot be made>")


def test_a_letter_keeps_the_arguments_that_its_actor_was_given(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    """A redrive must not run with what was left of them."""
    seen: list[Any] = []

    def job(items: list[Any], *, more: dict[str, Any]) -> None:
        seen.append((list(items), dict(more)))
        items.pop(0)
        items.append(object())
        more.clear()
        raise KeyError("no")

    dramatiq.actor(job, broker=stub_broker, max_retries=0).send([1, 2, 3], more={"a": 1})
    worked_off(stub_broker, start())
    (letter,) = distcron.dead_letters.list()
    assert (letter.message["args"], letter.message["kwargs"]) == ([[1, 2, 3]], {"more": {"a": 1}})
    distcron.dead_letters.redrive(letter)
    stub_broker.join("default", fail_fast=False)
    assert seen == [([1, 2, 3], {"a": 1})] * 2


def test_what_a_middleware_opens_for_the_run_and_closes_after_it_is_closed_in_the_letter(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    class Sealing(Middleware):
        def before_process_message(self, broker: Any, message: Any) -> None:
            if message.actor_name == "job":
                message._message = message._message.copy(args=(["open"],))

        def after_process_message(
            self, broker: Any, message: Any, *, result: Any = None, exception: Any = None
        ) -> None:
            if message.actor_name == "job":
                message._message = message._message.copy(args=(["sealed"],))

    stub_broker.add_middleware(Sealing())
    failing(stub_broker).send(["sealed"])
    worked_off(stub_broker, start())
    (letter,) = distcron.dead_letters.list()
    assert letter.message["args"] == [["sealed"]]
    assert "open" not in next(iter(distcron.dead_letters.export()))


def test_a_redact_that_fails_shows_nothing_and_is_told_without_its_words(
    stub_broker: StubBroker, caplog: pytest.LogCaptureFixture
) -> None:
    def redact(actor: str, args: Any, kwargs: Any) -> Any:
        raise ValueError(f"the secret is {args}")

    stub_broker.add_middleware(DeadLetters(redact=redact))
    distcron = install(stub_broker)
    died(stub_broker, failing(stub_broker).message("hunter2"))
    (letter,) = distcron.dead_letters.list()
    assert "hunter2" not in str(letter)
    assert "redact= failed with ValueError: no arguments of job are shown." in caplog.text
    assert "hunter2" not in caplog.text


# -- being told -----------------------------------------------------------------------------------------------


def test_a_handler_gets_the_letter_without_redis(stub_broker: StubBroker, distcron: DistCron, start: Start) -> None:
    seen: list[DeadLetter] = []
    distcron.dead_letters.handler(seen.append)
    failing(stub_broker).send()
    worked_off(stub_broker, start())
    assert seen == distcron.dead_letters.list()


def test_each_handler_is_called_alone_and_one_that_fails_is_tried_again(
    stub_broker: StubBroker, distcron: DistCron, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    stub_broker.actors[DLQ_ACTOR].options["backoff"] = 0

    @distcron.dead_letters.handler
    def fails_twice(letter: DeadLetter) -> None:
        calls.append("fails")
        if calls.count("fails") < 3:
            raise RuntimeError

    @distcron.dead_letters.handler
    def works(letter: DeadLetter) -> None:
        calls.append("works")

    failing(stub_broker).send()
    worked_off(stub_broker, start())
    assert sorted(calls) == ["fails", "fails", "fails", "works"]
    assert distcron.dead_letters.count() == 1


def test_a_handler_that_fails_for_ever_ends_without_a_letter_of_its_own_and_that_is_told(
    stub_broker: StubBroker, distcron: DistCron, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    stub_broker.actors[DLQ_ACTOR].options["backoff"] = 0

    @distcron.dead_letters.handler
    def fails(letter: DeadLetter) -> None:
        calls.append(letter.id)
        raise RuntimeError

    failing(stub_broker).send()
    worked_off(stub_broker, start())
    (letter,) = distcron.dead_letters.list()
    assert calls == [letter.id] * 11
    (told,) = [one.getMessage() for one in caplog.records if "Nobody could be told" in one.getMessage()]
    assert letter.id in told
    assert "fails" in told
    # Its text and its arguments are nobody's business there.
    assert "KeyError" not in told


@pytest.mark.parametrize(
    "middleware",
    [
        BackoffRetries(retry_when=lambda retries, error: isinstance(error, ConnectionError)),
        BackoffRetries(max_retry_age=1),
        Retries(retry_when=lambda retries, error: False),
        AgeLimit(max_age=1),
    ],
    ids=["retry_when", "max_retry_age", "dramatiq's retry_when", "max_age"],
)
def test_what_an_app_says_of_all_its_actors_keeps_no_handler_from_being_tried_again(
    start: Start, stub_broker: StubBroker, middleware: Middleware
) -> None:
    stub_broker.middleware = [one for one in stub_broker.middleware if not isinstance(one, Retries | AgeLimit)]
    for one in [middleware] if isinstance(middleware, Retries) else [Retries(), middleware]:
        stub_broker.add_middleware(one)
    distcron, calls = install(stub_broker), []
    stub_broker.actors[DLQ_ACTOR].options["backoff"] = 0.01
    failing(stub_broker, max_age=None)

    @distcron.dead_letters.handler
    def fails_twice(letter: DeadLetter) -> None:
        calls.append(letter.id)
        if len(calls) < 3:
            raise RuntimeError

    stub_broker.actors["job"].send()
    worked_off(stub_broker, start())
    assert len(calls) == 3


def test_without_a_handler_the_letter_is_logged(
    stub_broker: StubBroker, distcron: DistCron, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    failing(stub_broker).send("argument")
    worked_off(stub_broker, start())
    (record,) = [one for one in caplog.records if "Dead letter" in one.getMessage()]
    assert "job on default, retries_exhausted: KeyError" in record.getMessage()
    assert "argument" not in record.getMessage()


def test_what_one_handler_does_with_a_letter_keeps_no_other_from_being_told(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    told: list[DeadLetter] = []

    @distcron.dead_letters.handler
    def send_back(letter: DeadLetter) -> None:
        if letter.origin is None:
            distcron.dead_letters.redrive(letter)

    distcron.dead_letters.handler(told.append)
    failing(stub_broker).send("x")
    worked_off(stub_broker, start())
    wait_until(lambda: len(told) == 2, "both deaths")
    (left,) = distcron.dead_letters.list()
    assert [one.message["args"] for one in told] == [["x"], ["x"]]
    assert told[1] == left
    assert told[1].origin is not None


def test_a_handler_that_sends_the_letter_back_and_then_fails_is_tried_again(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    calls: list[str] = []
    stub_broker.actors[DLQ_ACTOR].options["backoff"] = 0

    @distcron.dead_letters.handler
    def send_back(letter: DeadLetter) -> None:
        calls.append(letter.id)
        if letter.origin is None and len(calls) == 1:
            distcron.dead_letters.redrive(letter)
            raise RuntimeError

    failing(stub_broker).send("x")
    worked_off(stub_broker, start())
    wait_until(lambda: len(calls) == 3, "both deaths, and the first one twice")


def test_a_letter_that_is_gone_by_then_tells_nobody(stub_broker: StubBroker, distcron: DistCron, start: Start) -> None:
    seen: list[DeadLetter] = []
    distcron.dead_letters.handler(seen.append)
    died(stub_broker, failing(stub_broker).message())
    distcron.dead_letters.purge()
    worked_off(stub_broker, start())
    assert seen == []


def test_a_worker_that_does_not_know_a_handler_leaves_it_to_others(stub_broker: StubBroker, distcron: DistCron) -> None:
    """In a rolling deploy: the message is retried, and comes to one who does."""
    put(distcron, "m", 1000)
    with pytest.raises(ConflictError, match="no handler 'app\\.new'"):
        stub_broker.get_actor(DLQ_ACTOR)("m", "app.new")


def test_the_actor_of_on_retry_exhausted_is_told_too(stub_broker: StubBroker, distcron: DistCron, start: Start) -> None:
    told: list[Any] = []
    dramatiq.actor(lambda message, counts: told.append(message), actor_name="told", broker=stub_broker)
    seen: list[DeadLetter] = []
    distcron.dead_letters.handler(seen.append)
    failing(stub_broker, on_retry_exhausted="told").send()
    worked_off(stub_broker, start())
    assert (len(told), len(seen)) == (1, 1)


class Alert:
    def notify(self, letter: DeadLetter) -> None: ...

    async def later(self, letter: DeadLetter) -> None: ...

    async def __call__(self, letter: DeadLetter) -> None: ...


def test_handlers_without_a_name_of_their_own_do_not_replace_each_other(distcron: DistCron) -> None:
    for _ in range(3):
        distcron.dead_letters.handler(lambda letter: None)
        distcron.dead_letters.handler(functools.partial(print))
        distcron.dead_letters.handler([].append)
        distcron.dead_letters.handler(Alert().notify)
    own = distcron.dead_letters._own
    assert len(own.handlers) == 12


def test_a_module_that_is_loaded_again_replaces_its_handlers(distcron: DistCron) -> None:
    for _ in range(2):
        distcron.dead_letters.handler(failing)
    assert list(distcron.dead_letters._own.handlers) == [f"{__name__}.failing"]


async def asynchronous(letter: DeadLetter) -> None:
    raise AssertionError("nobody awaits it")


def generating(letter: DeadLetter) -> Iterator[None]:
    yield


@pytest.mark.parametrize("function", [asynchronous, Alert().later, Alert(), generating])
@pytest.mark.parametrize("where", ["handler", "on_drop"])
def test_what_cannot_be_called_plainly_is_refused_as_a_handler(distcron: DistCron, function: Any, where: str) -> None:
    with pytest.raises(ConfigurationError, match="plain function"):
        getattr(distcron.dead_letters, where)(function)


def test_what_redacts_must_be_a_plain_function_too() -> None:
    with pytest.raises(ConfigurationError, match="redact must be a plain function"):
        DeadLetters(redact=asynchronous)  # type: ignore[arg-type]


@pytest.mark.parametrize("function", [None, "alert", 3])
@pytest.mark.parametrize("where", ["handler", "on_drop"])
def test_what_is_no_function_is_refused_as_a_handler(distcron: DistCron, function: Any, where: str) -> None:
    with pytest.raises(ConfigurationError, match="is no function"):
        getattr(distcron.dead_letters, where)(function)


@pytest.mark.parametrize("where", ["handler", "on_drop"])
def test_what_takes_no_letter_is_refused_as_a_handler(distcron: DistCron, where: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be called with one argument"):
        getattr(distcron.dead_letters, where)(lambda: None)


def test_a_broker_without_the_middleware_has_no_handlers() -> None:
    distcron = DistCron()
    broker = StubBroker(middleware=[distcron])
    distcron._broker = broker
    with pytest.raises(ConfigurationError, match="no DeadLetters middleware"):
        distcron.dead_letters.handler(print)


# -- set up by hand -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [*itertools.permutations([DistCron, DeadLetters, Retries])])
@pytest.mark.parametrize("retries", [Retries, BackoffRetries])
def test_middlewares_without_arguments_work_in_any_order(order: tuple[type[Any], ...], retries: type[Retries]) -> None:
    """As Django makes them, without install()."""
    broker = StubBroker(middleware=[(retries if make is Retries else make)() for make in order])
    job = failing(broker)
    worker = Worker(broker, worker_timeout=5)
    worker.start()
    try:
        job.send()
        broker.join("default", timeout=20_000, fail_fast=False)
        worker.join()
        (distcron,) = [one for one in broker.middleware if isinstance(one, DistCron)]
        assert [one.reason for one in distcron.dead_letters.list()] == ["retries_exhausted"]
    finally:
        worker.stop()
        broker.close()


def test_a_worker_does_not_start_where_nobody_records_letters() -> None:
    with pytest.raises(ConflictError, match="needs DistCron"):
        Worker(StubBroker(middleware=[DeadLetters()])).start()


def test_a_worker_does_not_start_where_two_would_make_letters(stub_broker: StubBroker, distcron: DistCron) -> None:
    stub_broker.add_middleware(DeadLetters(max_count=5))
    with pytest.raises(ConflictError, match="two DeadLetters"):
        Worker(stub_broker).start()


def test_ones_own_middleware_is_kept_by_install(stub_broker: StubBroker) -> None:
    own = DeadLetters(max_count=5)
    stub_broker.add_middleware(own)
    assert install(stub_broker).dead_letters._own is own


def test_install_declares_the_actor_that_tells_handlers(stub_broker: StubBroker, distcron: DistCron) -> None:
    actor = stub_broker.get_actor(DLQ_ACTOR)
    assert (actor.queue_name, actor.options["max_retries"]) == (DLQ_QUEUE, 10)
    assert install(StubBroker(middleware=[])).broker.get_actor(DLQ_ACTOR).queue_name == DLQ_QUEUE


# -- what may go wrong at the end -----------------------------------------------------------------------------


def test_a_store_that_is_away_keeps_the_message_at_its_worker(
    stub_broker: StubBroker, distcron: DistCron, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = distcron.open_backend().store
    settle, asked = store.settle, []

    def away(ending: Any) -> Any:
        asked.append(ending)
        if len(asked) < 4:
            raise StoreUnavailable("away")
        return settle(ending)

    monkeypatch.setattr(store, "settle", away)
    failing(stub_broker).send()
    worked_off(stub_broker, start(), "default")
    assert distcron.dead_letters.count() == 1
    assert len({id(one) for one in asked[:4]}) == 1


def test_a_store_that_refuses_leaves_the_message_to_dramatiqs_own_dead(
    stub_broker: StubBroker,
    distcron: DistCron,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(
        distcron.open_backend().store, "settle", lambda ending: (_ for _ in ()).throw(StoreRefused("NOPERM"))
    )
    failing(stub_broker).send()
    worked_off(stub_broker, start(), "default")
    assert len(stub_broker.dead_letters) == 1
    assert "could not be recorded: failed NOPERM" in caplog.text


def test_a_letter_is_kept_though_the_queue_of_those_to_be_told_is_refused(
    stub_broker: StubBroker,
    distcron: DistCron,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store: Any = distcron.open_backend().store
    settle = store.settle
    monkeypatch.setattr(store, "settle", lambda ending: "failed NOPERM" if ending.calls else settle(ending))
    told: list[Any] = []
    dramatiq.actor(lambda message, counts: told.append(message), actor_name="told", broker=stub_broker)
    died(stub_broker, failing(stub_broker, on_retry_exhausted="told").message())
    assert distcron.dead_letters.count() == 1
    assert "Nobody can be told" in caplog.text
    # Who is told by Dramatiq's option is told, rather twice than not at all.
    assert [one.actor_name for one in queued(stub_broker)] == ["told"]
    assert queued(stub_broker, DLQ_QUEUE) == []


def test_a_letter_that_cannot_be_made_leaves_the_message_to_dramatiqs_own_dead(
    stub_broker: StubBroker, distcron: DistCron, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distcron.dead_letters._own, "letter_of", lambda *args, **kwargs: 1 / 0)
    failing(stub_broker).send()
    worked_off(stub_broker, start(), "default")
    assert len(stub_broker.dead_letters) == 1


# -- retention ------------------------------------------------------------------------------------------------


class Clocked:
    """Letters in a store whose clock stands still."""

    def __init__(self, broker: StubBroker, **options: Any) -> None:
        broker.add_middleware(DeadLetters(**options))
        self.distcron = install(broker)
        self.now = 100 * DAY
        store: Any = self.distcron.open_backend().store
        store._now = lambda: self.now
        self.retain = self.distcron.dead_letters._own.retainer.retain


def test_letters_are_dropped_by_age(stub_broker: StubBroker) -> None:
    app = Clocked(stub_broker, max_age=3 * 86_400)
    for days in range(1, 6):
        put(app.distcron, f"{days} days", app.now - days * DAY)
    put(app.distcron, "not yet", app.now - 3 * DAY + 1)
    assert app.retain() == 3
    assert ids(app.distcron) == ["1 days", "2 days", "not yet"]
    assert app.retain() == 0


def test_the_oldest_are_dropped_beyond_a_number(stub_broker: StubBroker) -> None:
    app = Clocked(stub_broker, max_count=2)
    for number in range(5):
        put(app.distcron, str(number), app.now - number)
    assert app.retain() == 3
    assert ids(app.distcron) == ["0", "1"]


def test_letters_of_an_actor_with_a_limit_of_its_own_count_for_no_other(stub_broker: StubBroker) -> None:
    app = Clocked(stub_broker, max_count=2, per_actor={"bill": Retention(max_age=None, max_count=None)})
    for number in range(600):
        put(app.distcron, f"bill {number}", app.now - 100 * DAY, actor="bill")
    for number in range(4):
        put(app.distcron, f"noise {number}", app.now + number, actor="noise")
    assert app.retain() == 2
    assert (app.distcron.dead_letters.count(actor="bill"), ids(app.distcron, actor="noise")) == (
        600,
        ["noise 3", "noise 2"],
    )
    assert app.retain() == 0


def test_the_oldest_are_dropped_first_though_more_come_meanwhile(stub_broker: StubBroker) -> None:
    app = Clocked(stub_broker, max_count=2)
    for number in range(3):
        put(app.distcron, str(number), app.now + number)
    told: list[str] = []

    @app.distcron.dead_letters.on_drop
    def more(letters: list[DeadLetter]) -> None:
        told.extend(one.id for one in letters)
        if len(told) == 1:
            for number in (3, 4):
                put(app.distcron, str(number), app.now + number)

    app.retain()
    assert (told, ids(app.distcron)) == (["0", "1", "2"], ["4", "3"])


def test_letters_of_an_actor_with_a_limit_of_its_own_that_go_meanwhile_make_no_others_too_many(
    stub_broker: StubBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Clocked(stub_broker, max_count=2, per_actor={"bill": Retention(max_age=None, max_count=None)})
    for number in range(4):
        put(app.distcron, f"bill {number}", app.now, actor="bill")
    for number in range(3):
        put(app.distcron, str(number), app.now + number)
    store: Any = app.distcron.open_backend().store
    bills = iter(range(4))

    def one_goes_after(count: Any, *args: Any) -> int:
        found: int = count(*args)
        store.drop_letters([f"bill {next(bills, None)}"])
        return found

    for name in ("count_letters", "count_letters_without"):
        monkeypatch.setattr(store, name, functools.partial(one_goes_after, getattr(store, name)))
    assert app.retain() == 1
    assert ids(app.distcron, actor="job") == ["2", "1"]


def test_a_limit_of_an_actor_counts_in_the_place_of_the_general_age(stub_broker: StubBroker) -> None:
    limits = {"billing": Retention(max_age=None), "chatty": Retention(max_age=86_400, max_count=1)}
    app = Clocked(stub_broker, max_age=10 * 86_400, per_actor=limits)
    for actor in ("billing", "chatty", "job"):
        for days in (0, 5, 50):
            put(app.distcron, f"{actor} {days}", app.now - days * DAY, actor=actor)
    put(app.distcron, "chatty now", app.now, actor="chatty")
    app.retain()
    assert sorted(ids(app.distcron)) == [
        "billing 0",
        "billing 5",
        "billing 50",
        "chatty now",
        "job 0",
        "job 5",
    ]


def test_without_limits_nothing_is_dropped(stub_broker: StubBroker) -> None:
    app = Clocked(stub_broker, max_age=None, max_count=None)
    put(app.distcron, "old", 1)
    assert app.retain() == 0


def test_what_is_dropped_is_told_before_it_is(stub_broker: StubBroker, caplog: pytest.LogCaptureFixture) -> None:
    app = Clocked(stub_broker, max_count=1)
    seen: list[tuple[list[str], int]] = []

    @app.distcron.dead_letters.on_drop
    def hook(letters: list[DeadLetter]) -> None:
        seen.append(([one.id for one in letters], app.distcron.dead_letters.count()))

    for number in range(3):
        put(app.distcron, f"m{number}", app.now + number)
    assert app.retain() == 2
    assert seen == [(["m0", "m1"], 3)]
    assert "2 dead letters are dropped for a max_count of 1: of job, from m0 to m1" in caplog.text


@pytest.mark.parametrize("error", [OSError("the disk is full"), SystemExit(1)])
def test_a_hook_that_fails_keeps_what_it_may_have_been_meant_to_save(
    stub_broker: StubBroker, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    app = Clocked(stub_broker, max_count=1, max_age=3 * 86_400)
    saved: list[str] = []

    @app.distcron.dead_letters.on_drop
    def save(letters: list[DeadLetter]) -> None:
        if len(saved) < 2:
            saved.append("failed")
            raise error
        saved.extend(app.distcron.dead_letters.export(letters))

    put(app.distcron, "old", app.now - 4 * DAY)
    for number in range(2):
        put(app.distcron, f"m{number}", app.now + number)
    assert app.retain() == 0
    assert "so they are kept for now" in caplog.text
    assert app.distcron.dead_letters.count() == 3
    assert app.retain() == 2
    # What was saved can be brought back.
    assert app.distcron.dead_letters.import_(saved[2:]) == 2


def test_that_letters_will_be_dropped_is_told_in_time_and_once(
    stub_broker: StubBroker, caplog: pytest.LogCaptureFixture
) -> None:
    app = Clocked(stub_broker, max_count=10)

    def warned() -> int:
        return caplog.text.count("beyond 10 the oldest are dropped")

    for number in range(8):
        put(app.distcron, str(number), app.now)
    app.retain()
    assert warned() == 0
    put(app.distcron, "9th", app.now)
    app.retain()
    app.retain()
    assert warned() == 1
    app.distcron.dead_letters.purge()
    app.retain()
    for number in range(9):
        put(app.distcron, f"again {number}", app.now)
    app.retain()
    assert warned() == 2


def test_a_thread_of_the_worker_looks_after_the_limits(stub_broker: StubBroker, start: Start) -> None:
    stub_broker.add_middleware(DeadLetters(max_count=1))
    distcron = install(stub_broker)
    dropped = threading.Event()
    distcron.dead_letters.on_drop(lambda letters: dropped.set())
    for number in range(3):
        put(distcron, str(number), number + 1)
    start()
    assert dropped.wait(20)


def test_a_hook_that_takes_its_time_holds_up_no_retry(stub_broker: StubBroker, start: Start) -> None:
    stub_broker.add_middleware(DeadLetters(max_count=1))
    distcron = install(stub_broker)
    called, done = threading.Event(), threading.Event()

    @distcron.dead_letters.on_drop
    def slow(letters: list[DeadLetter]) -> None:
        called.set()
        assert done.wait(20)

    for number in range(3):
        put(distcron, str(number), number + 1)
    ran: list[int] = []

    @dramatiq.actor(broker=stub_broker, max_retries=1, backoff=0.02)
    def again() -> None:
        ran.append(1)
        if len(ran) == 1:
            raise KeyError("not yet")

    start()
    try:
        assert called.wait(20)
        again.send()
        wait_until(lambda: len(ran) == 2, "the retry")
    finally:
        done.set()


def test_a_limit_that_cannot_be_looked_after_holds_up_nothing(
    stub_broker: StubBroker, distcron: DistCron, caplog: pytest.LogCaptureFixture
) -> None:
    def refused() -> None:
        raise StoreRefused("NOPERM")

    done: list[int] = []

    def broken() -> None:
        raise KeyError("unexpected")

    distcron.mover.chores = [refused, broken, lambda: done.append(1)]
    distcron.mover._tidy()
    assert (done, distcron.mover.errors) == ([1], 1)
    assert "waits for the next time: NOPERM" in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        {"max_age": 0},
        {"max_age": "3d"},
        {"max_count": 0},
        {"max_count": 1.5},
        {"max_count": True},
        {"redact": "args"},
        {"per_actor": {"job": 5}},
        {"per_actor": 5},
    ],
)
def test_a_limit_that_cannot_be_is_refused(options: Any) -> None:
    with pytest.raises(ConfigurationError):
        DeadLetters(**options)


def test_limits_that_are_not_given_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert DeadLetters().retention == Retention(30 * 86_400, 100_000)
    monkeypatch.setenv("DISTCRON_DEAD_LETTERS_MAX_AGE", "90d")
    monkeypatch.setenv("DISTCRON_DEAD_LETTERS_MAX_COUNT", "none")
    assert DeadLetters().retention == Retention(90 * 86_400, None)
    assert DeadLetters(max_age=60, max_count=5).retention == Retention(60, 5)
    monkeypatch.setenv("DISTCRON_DEAD_LETTERS_MAX_COUNT", "many")
    with pytest.raises(ConfigurationError, match="DISTCRON_DEAD_LETTERS_MAX_COUNT is 'many'"):
        DeadLetters()


# -- found ----------------------------------------------------------------------------------------------------


@pytest.fixture
def some(stub_broker: StubBroker, distcron: DistCron) -> DistCron:
    put(distcron, "a", 1000, error="KeyError", reason="aborted", text="no such key")
    put(distcron, "b", 2000, error="MyKeyError", reason="aborted", actor="mail")
    put(distcron, "c", 3000, error="Timeout", reason="age_limit", actor="mail", queue="slow")
    failing(stub_broker, name="mail", queue_name="slow")
    failing(stub_broker)
    return distcron


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, "cba"),
        ({"actor": "mail"}, "cb"),
        ({"actor": "mail", "reason": "aborted"}, "b"),
        ({"queue": "slow"}, "c"),
        ({"error": "KeyError"}, "a"),
        ({"error": "keyerror"}, "ba"),
        ({"error": "timE"}, "c"),
        ({"error": "Zero"}, ""),
        ({"text": "SUCH key"}, "a"),
        ({"text": "mail", "reason": "age_limit"}, "c"),
        ({"since": 2000}, "cb"),
        ({"until": 2000}, "ba"),
        ({"actor": None}, "cba"),
    ],
)
def test_filters_find_what_they_say(some: DistCron, filters: Any, expected: str) -> None:
    assert "".join(ids(some, **filters)) == expected
    assert some.dead_letters.count(**filters) == len(expected)
    assert sorted(json.loads(line)["id"] for line in some.dead_letters.export(**filters)) == sorted(expected)


def test_an_actor_itself_is_a_filter_too(stub_broker: StubBroker, some: DistCron) -> None:
    assert "".join(ids(some, actor=stub_broker.get_actor("mail"))) == "cb"


@pytest.mark.parametrize(
    ("filters", "why"),
    [
        ({"actr": "x"}, "Did you mean 'actor'"),
        ({"reason": "abortd"}, "Did you mean 'aborted'"),
        ({"reason": 5}, "takes a text, not 5"),
        ({"actor": ""}, "'actor' is empty"),
        ({"error": ""}, "'error' is empty"),
        ({"since": "yesterday"}, "since must be a datetime"),
    ],
)
@pytest.mark.parametrize("verb", ["list", "redrive", "discard", "count"])
def test_a_filter_that_cannot_be_is_refused_and_does_nothing(some: DistCron, verb: str, filters: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        getattr(some.dead_letters, verb)(**filters)
    assert some.dead_letters.count() == 3


def test_pages_go_on_from_a_cursor_and_end(distcron: DistCron) -> None:
    for number in range(7):
        put(distcron, f"m:{number}", 1000 + number // 3)
    found, cursor = [], None
    while True:
        page = distcron.dead_letters.page(limit=2, cursor=cursor)
        found += [one.id for one in page.letters]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(found) == [f"m:{number}" for number in range(7)]


def test_pages_of_a_text_search_miss_none_between_them(distcron: DistCron) -> None:
    for number in range(1200):
        put(distcron, f"m{number}", 1000 + number, text="needle" if number % 100 == 7 else "hay")
    found, cursor = [], None
    while True:
        page = distcron.dead_letters.page(limit=3, cursor=cursor, text="needle")
        found += [one.id for one in page.letters]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == [f"m{number}" for number in range(1107, 0, -100)]


@pytest.mark.parametrize("cursor", ["", "x", ":", "x:y", "-1:y", "１:y"])
def test_what_is_no_cursor_is_refused(distcron: DistCron, cursor: str) -> None:
    with pytest.raises(ConfigurationError, match="not the cursor"):
        distcron.dead_letters.page(cursor=cursor)


def test_a_letter_is_found_by_its_id_or_its_messages(distcron: DistCron) -> None:
    put(distcron, "letter", 1000, message_id="message")
    assert distcron.dead_letters.get("letter") == distcron.dead_letters.get("message")
    with pytest.raises(NotFoundError, match="no dead letter 'other'"):
        distcron.dead_letters.get("other")


def test_what_somebody_else_wrote_is_shown_as_far_as_possible(distcron: DistCron) -> None:
    wrong: Any = {
        "actor": 5,
        "attempts": "x",
        "first_failed_at": "y",
        "history": [1, {"at": 2}],
        "message": [],
        "errors": 7,
        "origin": "z",
        "fire_time": 10**30,
        "error": ["x"],
    }
    distcron.open_backend().store.put_letters([(Letter("m", wrong, b""), 1000)])
    (letter,) = distcron.dead_letters.list()
    assert (letter.actor, letter.attempts, letter.first_failed_at, letter.fire_time) == ("5", 0, None, None)
    assert (letter.history, letter.message, letter.errors, letter.origin) == (({"at": 2},), {}, (), None)


def test_a_text_is_looked_for_in_values_and_not_in_their_names(distcron: DistCron) -> None:
    put(distcron, "path", 1000, text='C:\\temp "name"\nnext')
    put(distcron, "deep", 2000, message={"args": [[{"deep": "Needle"}], 17]})
    for name in ("schedule", "fingerprint", "null", "queue", "error", "args"):
        assert ids(distcron, text=name) == [], name
    assert ids(distcron, text='c:\\TEMP "name"\n') == ["path"]
    assert ids(distcron, text="needle") == ids(distcron, text="17") == ["deep"]


def test_what_an_import_brought_from_beyond_the_calendar_is_shown(distcron: DistCron) -> None:
    put(distcron, "far", 8_999_999_999_999_999, history=[{"at": "x", "error": "KeyError"}, 5])
    (letter,) = distcron.dead_letters.list()
    assert iso(letter.dead_at).startswith("9999-12-31")
    assert letter.history == ({"at": None, "error": "KeyError"},)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "5"])
def test_a_limit_of_how_many_that_cannot_be_is_refused(some: DistCron, limit: Any) -> None:
    letters = some.dead_letters
    for verb in (letters.list, letters.page, lambda limit: letters.redrive(all=True, limit=limit)):
        with pytest.raises(ConfigurationError, match="a whole number from 1"):
            verb(limit=limit)
    with pytest.raises(ConfigurationError, match="a whole number from 1"):
        letters.discard(actor="mail", limit=limit)


@pytest.mark.parametrize("id", [None, 5, "", [None], object()])
def test_what_is_no_id_is_refused(some: DistCron, id: Any) -> None:
    for verb in (some.dead_letters.get, some.dead_letters.redrive, some.dead_letters.discard):
        with pytest.raises(ConfigurationError, match="A letter is named by its id"):
            verb(id)


# -- sent back ------------------------------------------------------------------------------------------------


def test_a_letter_goes_back_with_its_arguments_and_a_link_to_its_origin(
    some: DistCron, stub_broker: StubBroker
) -> None:
    assert some.dead_letters.redrive("a") == Redriven(redriven=1)
    (message,) = queued(stub_broker)
    assert message.options[ORIGIN] == {"message_id": "a", "before": "a", "generation": 1}
    assert message.message_timestamp > 1
    assert "".join(ids(some)) == "cb"


def test_a_second_press_does_nothing_more(some: DistCron, stub_broker: StubBroker) -> None:
    """Field bug 107: it is idempotent on a double press."""
    assert some.dead_letters.redrive(["a", "b"]).redriven == 2
    # One that is not there is told, and does not keep the others from going.
    assert some.dead_letters.redrive(["a", "c"]) == Redriven(redriven=1, missing=["a"])
    with pytest.raises(NotFoundError):
        some.dead_letters.redrive(["a", "b"])
    assert len(queued(stub_broker)) + len(queued(stub_broker, "slow")) == 3


def test_ids_that_are_named_twice_go_once(some: DistCron, stub_broker: StubBroker) -> None:
    assert some.dead_letters.redrive(["a", "a"]) == Redriven(redriven=1)
    message: Message[Any] = Message("default", "job", (), {}, {}, "of x", 1)
    some.open_backend().store.put_letters([(Letter("x", {"message_id": "of x"}, message.encode()), 1)])
    assert len(list(some.dead_letters.export(["x", "of x"]))) == 1
    assert some.dead_letters.redrive(["x", "of x"], dry_run=True).redriven == 1


def test_one_must_say_which_letters_in_one_way(some: DistCron) -> None:
    for given in ({}, {"actor": None}):
        with pytest.raises(ConfigurationError, match="Say which letters"):
            some.dead_letters.redrive(**given)
        with pytest.raises(ConfigurationError, match="Say which letters"):
            some.dead_letters.discard(**given)
    for ids, more in ((["a"], {"actor": "mail"}), (["a"], {"all": True}), ([], {"actor": "mail", "all": True})):
        with pytest.raises(ConfigurationError, match="in one way"):
            some.dead_letters.redrive(ids, **more)
    assert some.dead_letters.count() == 3


def test_a_trial_sends_nothing_and_runs_no_hook(some: DistCron, stub_broker: StubBroker) -> None:
    seen: list[str] = []

    class Watching(Middleware):
        def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            seen.append(message.message_id)

    stub_broker.add_middleware(Watching())
    assert some.dead_letters.redrive(actor="mail", dry_run=True).redriven == 2
    assert (seen, some.dead_letters.count(), queued(stub_broker)) == ([], 3, [])


def test_a_message_whose_actor_is_gone_is_refused_with_the_reason_and_uses_up_no_limit(some: DistCron) -> None:
    for number in range(150):
        put(some, f"gone {number}", number, actor="gone")
    done = some.dead_letters.redrive(all=True, limit=2)
    assert done.redriven == 2
    assert len(done.refused) == 150
    assert "Nobody knows the actor 'gone' any more" in done.refused["gone 7"]
    assert some.dead_letters.count(actor="gone") == 150


def test_a_letter_goes_to_the_queue_its_actor_has_by_now(stub_broker: StubBroker, distcron: DistCron) -> None:
    """In the one it was in nobody would run it; another one that somebody consumes is as good as before."""
    failing(stub_broker, queue_name="new")
    failing(stub_broker, name="other", queue_name="fast")
    for name, queue in (("moved", "old"), ("chosen", "fast")):
        message: Message[Any] = Message(queue, "job", (), {}, {}, name, 1)
        distcron.open_backend().store.put_letters([(Letter(name, {"actor": "job"}, message.encode()), 1)])
    assert distcron.dead_letters.redrive(all=True).redriven == 2
    assert [len(queued(stub_broker, queue)) for queue in ("new", "fast")] == [1, 1]
    # Also if this process knows the old one, from when somebody was there.
    stub_broker.declare_queue("old")
    message = Message("old", "job", (), {}, {}, "late", 1)
    distcron.open_backend().store.put_letters([(Letter("late", {"actor": "job"}, message.encode()), 1)])
    distcron.dead_letters.redrive("late")
    assert len(queued(stub_broker, "new")) == 2


def test_where_nobody_tells_of_actors_a_redrive_says_that_it_checked_none(distcron: DistCron) -> None:
    put(distcron, "m", 1)
    assert distcron.dead_letters.redrive(all=True, dry_run=True).unchecked


@pytest.mark.parametrize("overlap", ["skip", "buffer_one"])
def test_a_tick_goes_back_only_while_no_other_run_of_its_schedule_is_outstanding(
    stub_broker: StubBroker, distcron: DistCron, overlap: Any
) -> None:
    dramatiq.actor(lambda: None, actor_name="job", broker=stub_broker, periodic=every(3600, overlap=overlap))
    Beat(distcron).run_once()
    letters, store = distcron.dead_letters, distcron.open_backend().store
    for name in ("first", "second"):
        options = {"distcron": {"schedule": "job", "fire_time": 1, "term": 1}}
        message: Message[Any] = Message("default", "job", (), {}, options, name, 1)
        store.put_letters([(Letter(name, {"actor": "job"}, message.encode()), 1)])
    tried, done = letters.redrive(all=True, dry_run=True), letters.redrive(all=True)
    assert "that of a letter before it is not over" in tried.refused["second"]
    assert (tried.redriven, done.redriven, list(done.refused)) == (1, 1, ["second"])
    (sent,) = queued(stub_broker)
    assert f"that of message {sent.message_id} is not over" in done.refused["second"]
    with pytest.raises(RunOutstanding):
        distcron.schedules.trigger("job")
    # When it is over the next one goes.
    store.settle(Ending(sent.message_id, "succeeded"))
    assert letters.redrive("second").redriven == 1


def test_a_store_that_goes_away_while_a_redrive_is_prepared_refuses_no_letter(
    stub_broker: StubBroker, distcron: DistCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no fault of the letter: whoever asked is to ask again."""
    dramatiq.actor(lambda: None, actor_name="job", broker=stub_broker)
    options = {"distcron": {"schedule": "nightly", "fire_time": 1, "term": 1}}
    message: Message[Any] = Message("default", "job", (), {}, options, "m", 1)
    store = distcron.open_backend().store
    store.put_letters([(Letter("m", {"actor": "job"}, message.encode()), 1)])

    def away(names: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(store, "get", away)
    with pytest.raises(StoreUnavailable):
        distcron.dead_letters.redrive("m")
    monkeypatch.undo()
    assert distcron.dead_letters.redrive("m").redriven == 1


def test_a_tick_that_is_sent_back_does_not_expire_a_second_time(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    ran: list[int] = []
    dramatiq.actor(lambda: ran.append(1), actor_name="job", broker=stub_broker, periodic=every(3600, expires=1))
    options = {"distcron": {"schedule": "job", "fire_time": 1, "term": 1}, "expires": 1}
    message: Message[Any] = Message("default", "job", (), {}, options, "m", 1)
    store: Any = distcron.open_backend().store
    store.put_letters([(Letter("m", {"actor": "job"}, message.encode()), 1)])
    distcron.dead_letters.redrive("m")
    now = store._now()
    store._now = lambda: now + 60_000
    worked_off(stub_broker, start())
    assert ran == [1]


def test_a_limit_holds_also_where_some_in_between_are_refused(some: DistCron) -> None:
    for number in range(20):
        put(some, f"m{number}", 10_000 + number, actor="job" if number else "gone")
    assert some.dead_letters.redrive(since=10_000, limit=3).redriven == 3
    assert some.dead_letters.count(actor="job", since=10_000) == 16


def test_an_actor_that_only_others_know_is_known(some: DistCron) -> None:
    put(some, "m", 1, actor="elsewhere")
    some.open_backend().store.heartbeat(Instance("w", {"actors": {"elsewhere": "default"}}), keep=60_000)
    assert some.dead_letters.redrive("m", dry_run=True).redriven == 1


def test_a_message_that_cannot_be_decoded_here_is_refused_with_the_reason(distcron: DistCron) -> None:
    distcron.open_backend().store.put_letters([(Letter("m", {}, b"\x80\x04"), 1000)])
    done = distcron.dead_letters.redrive(all=True)
    assert "cannot be decoded here" in done.refused["m"]
    assert "the encoder it was written with" in done.refused["m"]
    assert distcron.dead_letters.count() == 1


def test_a_middleware_that_refuses_the_new_message_keeps_the_letter(some: DistCron, stub_broker: StubBroker) -> None:
    class Vetoing(Middleware):
        def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            raise ConfigurationError("not today")

    stub_broker.add_middleware(Vetoing())
    done = some.dead_letters.redrive("a")
    assert "not today" in done.refused["a"]
    assert some.dead_letters.count() == 3


def test_hooks_after_enqueue_hear_of_what_was_sent_back(some: DistCron, stub_broker: StubBroker) -> None:
    seen: list[str] = []

    class Watching(Middleware):
        def after_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            seen.append(message.actor_name)

    stub_broker.add_middleware(Watching())
    some.dead_letters.redrive(actor="mail")
    assert seen == ["mail", "mail"]


def test_one_that_dies_again_is_not_chased_in_a_circle(some: DistCron, stub_broker: StubBroker) -> None:
    store: Any = some.open_backend().store
    now = store.now()
    store._now = lambda: now

    def dies_again(done: Redriven) -> None:
        nonlocal now
        now += 1
        for message in queued(stub_broker)[:300]:
            put(some, message.message_id, now)

    for number in range(250):
        put(some, f"m{number}", 10_000 + number)
    assert some.dead_letters.redrive(all=True, progress=dies_again).redriven == 253
    assert some.dead_letters.count() > 0


def test_a_message_that_died_of_its_age_does_not_die_at_once_again(
    stub_broker: StubBroker, distcron: DistCron, start: Start
) -> None:
    ran = []
    job = dramatiq.actor(lambda: ran.append(1), actor_name="job", broker=stub_broker, max_age=60_000)
    stub_broker.enqueue(job.message().copy(message_timestamp=1))
    worker = start()
    worked_off(stub_broker, worker)
    assert distcron.dead_letters.redrive(reason="age_limit").redriven == 1
    worked_off(stub_broker, worker)
    assert (ran, distcron.dead_letters.count()) == ([1], 0)


def test_attempts_start_again(stub_broker: StubBroker, distcron: DistCron, start: Start) -> None:
    failing(stub_broker, max_retries=2, backoff=0).send()
    worker = start()
    worked_off(stub_broker, worker)
    (first,) = distcron.dead_letters.list()
    distcron.dead_letters.redrive(all=True)
    worked_off(stub_broker, worker)
    (second,) = distcron.dead_letters.list()
    assert (second.attempts, len(second.history)) == (3, 3)
    assert second.origin == {"message_id": first.message_id, "before": first.message_id, "generation": 1}


def test_progress_is_told_after_each_batch_and_what_was_interrupted_goes_on(
    some: DistCron, stub_broker: StubBroker
) -> None:
    def interrupt(done: Redriven) -> None:
        raise KeyboardInterrupt

    for number in range(250):
        put(some, f"m{number}", number)
    with pytest.raises(KeyboardInterrupt):
        some.dead_letters.redrive(all=True, progress=interrupt)
    assert len(queued(stub_broker)) == 100
    told: list[int] = []
    some.dead_letters.redrive(all=True, progress=lambda done: told.append(done.redriven))
    assert told == [100, 153]
    origins = [one.options[ORIGIN]["message_id"] for queue in ("default", "slow") for one in queued(stub_broker, queue)]
    assert len(origins) == len(set(origins)) == 253


@pytest.mark.parametrize("rate", [0, -1, float("nan"), "fast"])
def test_a_pace_that_cannot_be_is_refused(some: DistCron, rate: Any) -> None:
    with pytest.raises(ConfigurationError, match="rate"):
        some.dead_letters.redrive(all=True, rate=rate)


class Slept:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        monkeypatch.setattr("time.sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def monotonic(self) -> float:
        return self.seconds


def test_no_more_go_in_a_second_than_the_pace_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    slept, pace = Slept(monkeypatch), Pace(50)
    pace._clock, pace._next = slept, 0.0  # type: ignore[assignment]
    for _ in range(10):
        pace.wait(pace.batch(100))
    # The first ones go at once, and nobody waits after the last.
    assert slept.seconds == pytest.approx(9)
    assert [Pace(rate).batch(100) for rate in (None, 0.1, 7, 1000, float("inf"))] == [100, 1, 7, 100, 100]


# -- thrown away, elsewhere -----------------------------------------------------------------------------------


def test_letters_are_thrown_away_by_id_or_filter_or_all(some: DistCron) -> None:
    assert some.dead_letters.discard(["a", "nobody"]) == 1
    assert some.dead_letters.discard(actor="mail", limit=1) == 1
    assert "".join(ids(some)) == "c"
    with pytest.raises(NotFoundError):
        some.dead_letters.discard("nobody")
    assert some.dead_letters.purge() == 1
    assert some.dead_letters.purge() == 0


def test_a_purge_drops_what_died_ahead_of_the_clock_too(some: DistCron) -> None:
    put(some, "ahead", some.open_backend().store.now() + DAY)
    assert some.dead_letters.purge() == 4


def test_a_purge_drops_nothing_that_dies_meanwhile(some: DistCron, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where there is a letter from a clock that was ahead."""
    monkeypatch.setattr("dramatiq_distcron.api.dead_letters._BATCH", 1)
    store: Any = some.open_backend().store
    now = store.now()
    put(some, "ahead", now + DAY)
    drop = store.drop_letters

    def drop_and_die(ids: Any) -> int:
        put(some, "new", now + 1000)
        return int(drop(ids))

    monkeypatch.setattr(store, "drop_letters", drop_and_die)
    assert some.dead_letters.purge() == 4
    assert ids(some) == ["new"]


def test_a_purge_comes_to_its_end_while_one_after_the_other_dies(
    some: DistCron, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = some.open_backend().store
    letters, now, dead = store.letters, store.now(), list[str]()

    def die_and_look(*given: Any) -> Any:
        assert len(dead) < 100
        dead.append(f"new{len(dead)}")
        put(some, dead[-1], now + 1000 + len(dead))
        return letters(*given)

    monkeypatch.setattr(store, "letters", die_and_look)
    # Of those who die just when it begins nobody can say whether they are meant.
    assert some.dead_letters.purge() == 3 + 1
    monkeypatch.undo()
    assert set(ids(some)) == set(dead[1:])


def test_an_export_comes_back_as_it_was(some: DistCron) -> None:
    before = some.dead_letters.list()
    lines = list(some.dead_letters.export())
    some.dead_letters.purge()
    assert some.dead_letters.import_([*lines, "", "\n"]) == 3
    assert some.dead_letters.list() == before
    assert [(one.field, one.value, one.count) for one in some.dead_letters.stats()]
    assert some.dead_letters.import_(lines) == 0
    assert some.dead_letters.redrive(actor="mail").redriven == 2


def test_adopting_needs_a_broker_on_redis(stub_broker: StubBroker, distcron: DistCron) -> None:
    stub_broker.declare_queue("default")
    with pytest.raises(ConfigurationError, match="Only a Redis broker"):
        distcron.dead_letters.adopt()
