"""How a message is caught on its way: every hook has its say, nothing is sent, and nothing but the tick is changed."""

from __future__ import annotations

import contextvars
import json
import logging
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import dramatiq
import pytest
import redis
from dramatiq import Message, Middleware
from dramatiq.brokers.redis import RedisBroker
from dramatiq.brokers.stub import StubBroker
from dramatiq.encoder import Encoder, PickleEncoder
from dramatiq.middleware import CurrentMessage, MiddlewareError
from hypothesis import given
from hypothesis import strategies as st
from redis.backoff import NoBackoff
from redis.retry import Retry

from dramatiq_distcron import every
from dramatiq_distcron.arguments import encode_payload
from dramatiq_distcron.errors import ConflictError, ScheduleError
from dramatiq_distcron.messages import schedule_message, tick_id
from dramatiq_distcron.policies import Policy
from dramatiq_distcron.publishing import (
    Publisher,
    RedisPublisher,
    StubPublisher,
    Vetoed,
)
from dramatiq_distcron.schedules import EveryTiming
from dramatiq_distcron.specs import Spec, resolve

#: Where Dramatiq's script has what: command, time, queue, broker, two time-outs, maintenance, stack, id, message.
COMMAND, TIME, QUEUE, BROKER_ID, MAINTENANCE, REDIS_ID, DATA = 0, 1, 2, 3, 6, 8, 9
EMPTY: dict[str, Any] = {"args": [], "kwargs": {}, "options": {}}
SPEC = Spec("nightly", "job", "default", EveryTiming(60_000), payload=EMPTY)


class NoServer(redis.Redis):
    """A client that must not be used."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        raise AssertionError(f"sent {args!r}")


def redis_broker(kind: type[RedisBroker] = RedisBroker, **settings: Any) -> Any:
    made: Any = kind
    return made(client=NoServer(), namespace="ns", middleware=settings.pop("middleware", []), **settings)


@pytest.fixture(autouse=True)
def _known_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    # Dramatiq asks the server for it once for each process.
    monkeypatch.setattr(RedisBroker, "_max_unpack_size_val", 4000)


@pytest.fixture(params=["stub", "redis"])
def broker(request: pytest.FixtureRequest) -> Iterator[Any]:
    broker: Any = StubBroker(middleware=[]) if request.param == "stub" else redis_broker()
    broker.declare_queue("default")
    yield broker
    broker.close()


@pytest.fixture
def publisher(broker: Any) -> Any:
    return publisher_of(broker)


def publisher_of(broker: Any) -> Any:
    made: Publisher = StubPublisher(broker) if isinstance(broker, StubBroker) else RedisPublisher(broker, "default")
    made.begin()
    return made


def message(**changes: Any) -> Message[Any]:
    fields: dict[str, Any] = {"queue_name": "default", "actor_name": "job", "args": (1,), "kwargs": {"a": "ü"}}
    return Message(**{**fields, "options": {"max_age": 5}, "message_id": "id", "message_timestamp": 4, **changes})


def sent(captured: Any) -> list[Message[Any]]:
    """The messages that the calls would put into the broker."""
    return [Message.decode(call[-1]) for call in captured.calls]


def without_redis_id(found: Message[Any]) -> Message[Any]:
    options = {name: value for name, value in found.options.items() if name != "redis_message_id"}
    return Message(**{**found.asdict(), "options": options})


# -- the id of a tick ---------------------------------------------------------------------------------------

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)
fire_times = st.integers(0, 253_402_300_799_999)


@given(names, names, names, fire_times)
def test_the_id_of_a_tick_is_a_uuid_of_version_5(namespace: str, app: str, schedule: str, fire_time: int) -> None:
    text = tick_id(namespace, app, schedule, fire_time)
    found = uuid.UUID(text)
    assert str(found) == text
    assert (found.version, found.variant) == (5, uuid.RFC_4122)


@given(names, names, names, fire_times)
def test_the_id_of_a_tick_is_the_one_the_standard_library_gives(
    namespace: str, app: str, schedule: str, fire_time: int
) -> None:
    ours = uuid.UUID("6f2a4c0e-4a3b-5d0c-9a57-1f3f0f2b7d11")
    expected = uuid.uuid5(ours, f"{namespace}\n{app}\n{schedule}\n{fire_time}")
    assert tick_id(namespace, app, schedule, fire_time) == str(expected)


def test_the_id_of_a_tick_is_the_same_in_every_version() -> None:
    """With another one, the de-duplication of a rolling deploy would not see that two messages are one tick."""
    assert tick_id("dramatiq", "default", "report:7", 1_774_746_000_000) == "a93a6c36-2fe4-5341-b42e-72881cb363e0"


@pytest.mark.parametrize(
    "other", [("ns2", "app", "s", 1), ("ns", "app2", "s", 1), ("ns", "app", "t", 1), ("ns", "app", "s", 2)]
)
def test_another_namespace_app_schedule_or_fire_time_has_another_id(other: tuple[str, str, str, int]) -> None:
    assert tick_id(*other) != tick_id("ns", "app", "s", 1)


# -- the message of a tick ----------------------------------------------------------------------------------


def of_tick(spec: Spec = SPEC, actor: Any = None) -> Message[Any]:
    return schedule_message(spec, actor, message_id="id", fire_time=1000, term=7, now=5000)


def test_the_message_of_a_tick_says_which_tick_it_is_and_is_stamped_with_the_stores_time() -> None:
    found = of_tick()
    assert (found.message_id, found.message_timestamp) == ("id", 5000)
    assert (found.queue_name, found.actor_name, found.args, found.kwargs) == ("default", "job", (), {})
    assert found.options == {"distcron": {"schedule": "nightly", "fire_time": 1000, "term": 7}}


def test_the_message_of_a_tick_has_the_schedules_arguments_and_options() -> None:
    payload = encode_payload(
        every(60, args=(1, [2]), kwargs={"a": None}, options={"max_age": 5}), "nightly", "job", "default"
    )
    found = of_tick(Spec("nightly", "job", "default", EveryTiming(1), payload=payload))
    assert (found.args, found.kwargs, found.options["max_age"]) == ((1, [2]), {"a": None}, 5)


def test_the_queue_is_that_of_the_actor_if_its_code_is_loaded(stub_broker: StubBroker) -> None:
    @dramatiq.actor(broker=stub_broker, queue_name="moved")
    def job() -> None: ...

    assert of_tick(actor=job).queue_name == "moved"
    assert of_tick().queue_name == "default"


def test_an_actor_that_builds_its_messages_itself_does_so(stub_broker: StubBroker) -> None:
    class Special(dramatiq.Actor[Any, Any]):
        def message_with_options(self, **options: Any) -> Message[Any]:
            return super().message_with_options(**{**options, "tenant": "seven"})

    @dramatiq.actor(broker=stub_broker, actor_class=Special)
    def job() -> None: ...

    found = of_tick(actor=job)
    assert found.options == {"tenant": "seven", "distcron": {"schedule": "nightly", "fire_time": 1000, "term": 7}}
    assert (found.message_id, found.message_timestamp) == ("id", 5000)


def test_two_messages_of_one_schedule_share_nothing_that_can_be_changed() -> None:
    one, other = of_tick(), of_tick()
    one.options["distcron"]["fire_time"] = 0
    assert other.options["distcron"]["fire_time"] == 1000


def test_arguments_of_another_encoder_are_a_fault_of_the_schedule() -> None:
    payload = encode_payload(every(60, args=({1},)), "nightly", "job", "default", PickleEncoder())
    with pytest.raises(ScheduleError, match="PickleEncoder"):
        of_tick(Spec("nightly", "job", "default", EveryTiming(1), payload=payload))


def test_with_the_encoder_of_the_app_any_argument_arrives(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dramatiq.message.global_encoder", PickleEncoder())
    publisher = publisher_of(broker)
    when = datetime(2026, 1, 1, tzinfo=timezone.utc)
    schedule = every(60, args=(when,))
    spec = resolve(schedule, name="nightly", actor="job", queue="default", tz="UTC", policy=Policy())
    (found,) = sent(publisher.capture(of_tick(spec)))
    assert found.args == (when,)


# -- what is caught -----------------------------------------------------------------------------------------


def test_a_message_is_caught_whole_and_not_sent(broker: Any, publisher: Any) -> None:
    captured = publisher.capture(message())
    (found,) = sent(captured)
    assert without_redis_id(found) == message()
    assert captured.size == len(captured.calls[0][-1])
    if isinstance(broker, StubBroker):
        assert broker.queues["default"].empty()


def test_the_caught_call_is_the_one_dramatiq_would_make(publisher: Any, broker: Any) -> None:
    (call,) = publisher.capture(message()).calls
    if isinstance(broker, StubBroker):
        assert call[0] == "default"
    else:
        assert (call[COMMAND], call[QUEUE]) == ("enqueue", "default")
        assert json.loads(call[DATA])["options"]["redis_message_id"] == call[REDIS_ID]


def test_each_message_has_an_id_of_its_own_in_redis() -> None:
    publisher = publisher_of(redis_broker())
    ids = {publisher.capture(message()).calls[0][REDIS_ID] for _ in range(100)}
    assert len(ids) == 100


def test_a_message_that_cannot_be_encoded_is_refused_with_the_reason(publisher: Any) -> None:
    with pytest.raises(Vetoed, match=r"could not be made: TypeError: .*not JSON serializable"):
        publisher.capture(message(args=(object(),)))


def test_after_a_message_that_was_refused_the_next_is_caught(publisher: Any) -> None:
    with pytest.raises(Vetoed):
        publisher.capture(message(args=(object(),)))
    assert len(publisher.capture(message()).calls) == 1


def test_a_queue_that_is_not_declared_is_refused_with_the_reason() -> None:
    broker = StubBroker(middleware=[])
    with pytest.raises(Vetoed, match="QueueNotFound: default"):
        publisher_of(broker).capture(message())
    broker.close()


@pytest.mark.parametrize("thread", ["one", "other"])
def test_what_the_app_sends_itself_is_not_caught(thread: str) -> None:
    broker = StubBroker(middleware=[])
    broker.declare_queue("default")
    publisher = publisher_of(broker)
    if thread == "one":
        broker.enqueue(message())
    else:
        worker = threading.Thread(target=broker.enqueue, args=(message(),))
        worker.start()
        worker.join()
    captured = publisher.capture(message())
    assert len(captured.calls) == 1
    assert broker.queues["default"].qsize() == 1
    broker.close()


def test_the_broker_of_the_app_stays_as_it_was(broker: Any) -> None:
    before = dict(vars(broker))
    publisher_of(broker).capture(message())
    assert vars(broker) == before


# -- Dramatiq's maintenance ---------------------------------------------------------------------------------


@pytest.mark.parametrize("hooks", [[], [CurrentMessage()]], ids=["direct", "with hooks"])
def test_maintenance_is_never_done_whatever_its_chance(hooks: list[Middleware]) -> None:
    """With a host clock that is ahead it would give a live worker's running messages to others."""
    publisher = publisher_of(redis_broker(maintenance_chance=1_000_000, middleware=hooks))
    calls = [publisher.capture(message()).calls[0] for _ in range(50)]
    assert {int(call[MAINTENANCE]) for call in (*calls, publisher.trial("default"))} == {0}


def test_all_beats_of_an_app_are_one_broker_to_dramatiq() -> None:
    ids = {RedisPublisher(redis_broker(), "shop").trial("default")[BROKER_ID] for _ in range(3)}
    assert ids == {"distcron-shop"}


def test_maintenance_of_the_app_itself_is_left_alone() -> None:
    broker = redis_broker(maintenance_chance=1_000_000)
    own = broker.broker_id
    publisher_of(broker)
    assert (broker.maintenance_chance, broker.broker_id) == (1_000_000, own)


# -- hooks --------------------------------------------------------------------------------------------------


class Recorder(Middleware):
    """Writes down which hooks ran, on which broker and for which message."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any, str]] = []

    def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
        self.seen.append(("before", broker, message.message_id))

    def after_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
        self.seen.append(("after", broker, message.message_id))

    @property
    def hooks(self) -> list[str]:
        return [hook for hook, _, _ in self.seen]


def with_middleware(broker: Any, *middleware: Middleware) -> Any:
    for one in middleware:
        broker.add_middleware(one)
    return publisher_of(broker)


def test_before_enqueue_runs_at_the_capture_and_after_enqueue_when_it_is_announced(broker: Any) -> None:
    recorder = Recorder()
    publisher = with_middleware(broker, recorder)
    captured = publisher.capture(message())
    assert recorder.hooks == ["before"]
    publisher.announce(captured)
    assert recorder.hooks == ["before", "after"]


def test_a_middleware_that_was_added_after_the_publisher_was_made_has_its_say(broker: Any) -> None:
    """``DistCron`` itself puts some at their place when a worker boots."""
    publisher = publisher_of(broker)
    recorder = Recorder()
    # As before_worker_boot() does: a new list.
    broker.middleware = [*broker.middleware, recorder]
    publisher.begin()
    publisher.capture(message())
    assert recorder.hooks == ["before"]


def test_after_enqueue_is_given_the_broker_of_the_app(broker: Any) -> None:
    recorder = Recorder()
    publisher = with_middleware(broker, recorder)
    publisher.announce(publisher.capture(message()))
    assert recorder.seen[-1][1] is broker


def test_a_message_that_was_not_fired_has_no_after_enqueue(broker: Any) -> None:
    recorder = Recorder()
    publisher = with_middleware(broker, recorder)
    first, second = publisher.capture(message(message_id="1")), publisher.capture(message(message_id="2"))
    publisher.announce(second)
    assert [(hook, name) for hook, _, name in recorder.seen] == [("before", "1"), ("before", "2"), ("after", "2")]
    assert first.calls


def test_a_hook_may_change_the_options_of_a_message(broker: Any) -> None:
    class Tracing(Middleware):
        def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            message.options["trace"] = "abc"

    (found,) = sent(with_middleware(broker, Tracing()).capture(message()))
    assert found.options["trace"] == "abc"


def test_a_hook_that_was_added_later_is_asked_in_the_next_series(broker: Any) -> None:
    publisher = publisher_of(broker)
    publisher.capture(message())
    recorder = Recorder()
    broker.add_middleware(recorder)
    publisher.begin()
    publisher.announce(publisher.capture(message()))
    assert recorder.hooks == ["before", "after"]


def test_a_hook_put_on_an_instance_is_asked_as_well(broker: Any) -> None:
    seen = []
    plain: Any = Middleware()
    plain.before_enqueue = lambda broker, message, delay: seen.append(message.message_id)
    with_middleware(broker, plain).capture(message())
    assert seen == ["id"]


def test_a_middleware_may_veto_a_message_with_the_reason(broker: Any) -> None:
    class Veto(Middleware):
        def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            raise MiddlewareError("the tenant has not paid")

    recorder = Recorder()
    publisher = with_middleware(broker, Veto(), recorder)
    with pytest.raises(Vetoed, match="A middleware refused the message: MiddlewareError: the tenant has not paid"):
        publisher.capture(message())
    assert recorder.hooks == []


def test_a_hook_that_fails_otherwise_is_logged_and_the_message_goes_on(
    broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Middleware):
        def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            raise RuntimeError("no database")

        after_enqueue = before_enqueue

    publisher = with_middleware(broker, Broken())
    captured = publisher.capture(message())
    publisher.announce(captured)
    assert len(captured.calls) == 1
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL] * 2


def test_what_a_hook_sends_by_the_broker_it_is_given_belongs_to_the_tick(broker: Any) -> None:
    class Audit(Middleware):
        def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            if message.actor_name == "job":
                broker.enqueue(Message("default", "audit", (), {}, {}, "audit-id", 4))

    publisher = with_middleware(broker, Audit())
    captured = publisher.capture(message())
    assert {found.actor_name for found in sent(captured)} == {"audit", "job"}
    if isinstance(broker, StubBroker):
        assert broker.queues["default"].empty()


# -- contexts (design review, 2.9) --------------------------------------------------------------------------

VARIABLE: contextvars.ContextVar[str | None] = contextvars.ContextVar("VARIABLE", default=None)


class Tracing(Middleware):
    """Sets a context variable before and puts it back after, as tracing does."""

    def __init__(self) -> None:
        self.tokens: dict[str, contextvars.Token[str | None]] = {}
        self.seen: list[str | None] = []

    def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
        self.tokens[message.message_id] = VARIABLE.set(message.message_id)

    def after_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
        self.seen.append(VARIABLE.get())
        VARIABLE.reset(self.tokens.pop(message.message_id))


def test_a_context_does_not_leak_out_of_a_message(broker: Any) -> None:
    publisher = with_middleware(broker, Tracing())
    publisher.capture(message())
    assert VARIABLE.get() is None


def test_each_message_has_the_same_context_before_and_after(broker: Any, caplog: pytest.LogCaptureFixture) -> None:
    tracing = Tracing()
    publisher = with_middleware(broker, tracing)
    batch = [publisher.capture(message(message_id=str(n))) for n in range(3)]
    for captured in batch:
        publisher.announce(captured)
    assert tracing.seen == ["0", "1", "2"]
    assert tracing.tokens == {}
    assert VARIABLE.get() is None
    assert caplog.records == []


def test_a_hook_sees_the_context_of_the_beat(broker: Any) -> None:
    seen = []

    class Reader(Middleware):
        def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            seen.append(VARIABLE.get())

    publisher = with_middleware(broker, Reader())
    token = VARIABLE.set("beat")
    try:
        publisher.capture(message())
    finally:
        VARIABLE.reset(token)
    assert seen == ["beat"]


# -- the direct way -----------------------------------------------------------------------------------------


class Counting(RedisBroker):
    """Counts what it is asked to enqueue."""

    asked = 0

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        type(self).asked += 1
        return super().enqueue(message, delay=delay)


class Listening(Middleware):
    """A hook that does nothing, so that the broker's own way is taken."""

    def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None: ...


def arguments(publisher: Any, one: Message[Any]) -> list[Any]:
    """What the script would be given, without the time and the id that differ from call to call."""
    (call,) = publisher.capture(one).calls
    data = json.loads(call[DATA])
    assert data["options"].pop("redis_message_id") == call[REDIS_ID]
    return [str(value) for index, value in enumerate(call) if index not in (TIME, REDIS_ID, DATA)] + [data]


json_values = st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(json_values), st.dictionaries(st.text(), json_values), names)
def test_the_direct_way_and_the_brokers_own_give_the_same_arguments(
    args: list[Any], kwargs: dict[str, Any], queue: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RedisBroker, "_max_unpack_size_val", 4000)
        both = [
            arguments(publisher_of(broker), message(args=tuple(args), kwargs=dict(kwargs), queue_name=queue))
            for broker in (redis_broker(), redis_broker(middleware=[Listening()]))
        ]
    assert both[0] == both[1]


@given(st.lists(json_values), st.text(st.characters(exclude_categories=["Cs"])))
def test_the_direct_way_and_the_brokers_own_give_the_same_bytes(args: list[Any], text: str) -> None:
    """A worker, a dashboard or a search by bytes must not see a difference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RedisBroker, "_max_unpack_size_val", 4000)
        both = []
        for broker in (redis_broker(), redis_broker(middleware=[Listening()])):
            one = message(args=tuple(args), options={"text": text})
            (call,) = publisher_of(broker).capture(one).calls
            both.append(call[DATA].replace(call[REDIS_ID].encode(), b"id"))
    assert both[0] == both[1]


@pytest.mark.parametrize("hook", ["before_enqueue", "after_enqueue"])
def test_where_something_listens_the_broker_is_asked_for_each_message(
    hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening = type("AnyHook", (Middleware,), {hook: lambda self, broker, message, delay: None})
    publisher = publisher_of(redis_broker(Counting, middleware=[listening()]))
    monkeypatch.setattr(Counting, "asked", 0)
    for _ in range(3):
        publisher.capture(message())
    assert Counting.asked == 3


def test_a_broker_that_changes_its_messages_is_asked_itself() -> None:
    class Compressing(RedisBroker):
        def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
            return super().enqueue(message.copy(options={"compressed": True}), delay=delay)

    (found,) = sent(publisher_of(redis_broker(Compressing)).capture(message()))
    assert found.options["compressed"] is True


def test_a_broker_that_changes_some_of_its_messages_is_asked_itself() -> None:
    """A trial with one message does not tell what becomes of another."""

    class Routing(RedisBroker):
        def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
            if message.actor_name == "job":
                message = message.copy(queue_name="slow")
            return super().enqueue(message, delay=delay)

    (call,) = publisher_of(redis_broker(Routing)).capture(message()).calls
    assert call[QUEUE] == "slow"


class Dates(Encoder):
    """JSON with dates: as Dramatiq's encoder as long as there is none."""

    def encode(self, data: Any) -> bytes:
        return json.dumps(data, separators=(",", ":"), default=datetime.isoformat).encode()

    def decode(self, data: bytes) -> Any:
        return json.loads(data)


def test_an_encoder_that_can_do_more_than_dramatiqs_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dramatiq.message.global_encoder", Dates())
    when = datetime(2026, 1, 1, tzinfo=timezone.utc)
    (found,) = sent(publisher_of(redis_broker()).capture(message(args=(when,))))
    assert found.args == ("2026-01-01T00:00:00+00:00",)


def test_an_encoder_that_is_set_later_is_used_in_the_next_series(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = publisher_of(redis_broker())
    publisher.capture(message())
    monkeypatch.setattr("dramatiq.message.global_encoder", PickleEncoder())
    publisher.begin()
    (found,) = sent(publisher.capture(message(args=({1},))))
    assert found.args == ({1},)


# -- brokers that cannot be served --------------------------------------------------------------------------


class ItsOwnWay(RedisBroker):
    """Enqueues without Dramatiq's script."""

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        return message


class ItsOwnCommand(RedisBroker):
    """Sends a command of its own."""

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        self.client.rpush("mine", message.encode())
        return message


class Twice(RedisBroker):
    """Sends every message twice."""

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        super().enqueue(message, delay=delay)
        return super().enqueue(message, delay=delay)


@pytest.mark.parametrize("kind", [ItsOwnWay, ItsOwnCommand, Twice])
def test_a_broker_that_enqueues_its_own_way_is_refused_before_the_first_tick(kind: type[RedisBroker]) -> None:
    with pytest.raises(ConflictError, match=f"{kind.__name__} enqueues in a way of its own.*Use RedisBroker"):
        RedisPublisher(redis_broker(kind), "default").trial("default")


def test_a_broker_that_enqueues_its_own_way_is_refused_at_the_capture_as_well() -> None:
    with pytest.raises(ConflictError, match="ItsOwnWay enqueues in a way of its own"):
        publisher_of(redis_broker(ItsOwnWay)).capture(message())


def test_a_stub_broker_that_enqueues_its_own_way_is_refused() -> None:
    class Silent(StubBroker):
        def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
            return message

    broker = Silent(middleware=[])
    with pytest.raises(ConflictError, match="Silent enqueues in a way of its own"):
        publisher_of(broker).capture(message())
    broker.close()


def test_a_trial_runs_no_hook() -> None:
    recorder = Recorder()
    publisher = publisher_of(redis_broker(middleware=[recorder]))
    assert publisher.trial("default")[QUEUE] == "default"
    assert recorder.seen == []


def test_neither_a_trial_nor_a_capture_asks_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dramatiq asks for the size of the stack, with a client that may wait for a minute in the middle of a pass."""
    monkeypatch.setattr(RedisBroker, "_max_unpack_size_val", None)
    made: Any = RedisBroker
    broker = made(client=redis.Redis(port=1, retry=Retry(NoBackoff(), 0)), namespace="ns", middleware=[])
    publisher = RedisPublisher(broker, "default")
    publisher.begin()
    assert publisher.trial("default")
    assert publisher.capture(Message("default", "actor", (), {}, {})).calls
    broker.client.close()


def test_the_size_of_the_stack_is_asked_for_at_most_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be set, so that nothing at all is asked."""
    code = (
        "import redis; from dramatiq.brokers.redis import RedisBroker;"
        "from dramatiq_distcron.publishing import RedisPublisher;"
        "broker = RedisBroker(client=redis.Redis(port=1), middleware=[]);"
        "print(RedisPublisher(broker, 'default').trial('default')[0])"
    )
    monkeypatch.setenv("dramatiq_lua_max_stack", "8000")
    assert subprocess.check_output([sys.executable, "-W", "error", "-c", code], text=True) == "enqueue\n"
