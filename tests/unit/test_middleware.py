"""The middleware takes schedules in, and schedules nothing by itself."""

from __future__ import annotations

import gc
import threading
from typing import Any

import dramatiq
import pytest
from dramatiq import Worker
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import Middleware, Retries

from dramatiq_distcron import (
    ConfigurationError,
    ConflictError,
    DeadLetters,
    DistCron,
    ScheduleError,
    cron,
    every,
    get_distcron,
    install,
)
from dramatiq_distcron.errors import StoreRefused
from dramatiq_distcron.middleware.distcron import installed
from dramatiq_distcron.schedules import Schedule


def declare(broker: StubBroker, periodic: Any, name: str = "job") -> dramatiq.Actor[Any, Any]:
    @dramatiq.actor(broker=broker, actor_name=name, periodic=periodic)
    def job() -> None: ...

    return job


@pytest.fixture
def distcron(stub_broker: StubBroker) -> DistCron:
    return install(stub_broker)


# -- periodic= ----------------------------------------------------------------------------------------------


def test_an_actor_may_have_one_schedule(stub_broker: StubBroker, distcron: DistCron) -> None:
    declare(stub_broker, cron("0 3 * * *"))
    (spec,) = distcron.specs().values()
    assert (spec.name, spec.actor, spec.queue, spec.source) == ("job", "job", "default", "code")


@pytest.mark.parametrize("kind", [list, tuple])
def test_an_actor_may_have_several_schedules(stub_broker: StubBroker, distcron: DistCron, kind: Any) -> None:
    declare(stub_broker, kind([cron("0 3 * * *", name="nightly"), every(60, name="minutely")]))
    assert {name: spec.actor for name, spec in distcron.specs().items()} == {"nightly": "job", "minutely": "job"}


def test_an_actor_may_have_no_schedule(stub_broker: StubBroker, distcron: DistCron) -> None:
    declare(stub_broker, [])
    assert distcron.specs() == {}


def test_one_of_several_may_go_without_a_name(stub_broker: StubBroker, distcron: DistCron) -> None:
    declare(stub_broker, [cron("0 3 * * *"), every(60, name="minutely")])
    assert set(distcron.specs()) == {"job", "minutely"}


def test_one_schedule_may_be_given_to_several_actors(stub_broker: StubBroker, distcron: DistCron) -> None:
    nightly = cron("0 3 * * *")
    declare(stub_broker, nightly, "one")
    declare(stub_broker, nightly, "other")
    assert set(distcron.specs()) == {"one", "other"}


def test_the_schedules_of_an_actor_can_be_seen_on_it(stub_broker: StubBroker, distcron: DistCron) -> None:
    schedule, added = cron("0 3 * * *"), every(60, name="minutely")
    actor: dramatiq.Actor[Any, Any] = added(declare(stub_broker, schedule))
    assert actor.options["periodic"] == [schedule, added]


def test_a_list_that_was_given_is_not_changed(stub_broker: StubBroker, distcron: DistCron) -> None:
    given = [cron("0 3 * * *")]
    actor = declare(stub_broker, given)
    every(60, name="minutely")(actor)
    assert len(given) == 1


def test_defaults_of_the_app_are_filled_in(stub_broker: StubBroker) -> None:
    distcron = install(stub_broker, tz="Europe/Berlin", catch_up="all", max_catch_up=7)
    declare(stub_broker, [cron("0 3 * * *", catch_up="skip"), cron("0 3 * * *", name="tokyo", tz="Asia/Tokyo")])
    specs = distcron.specs()
    assert (specs["job"].timing.timezone, specs["tokyo"].timing.timezone) == ("Europe/Berlin", "Asia/Tokyo")
    assert (specs["job"].policy.catch_up, specs["job"].policy.max_catch_up) == ("skip", 7)
    assert specs["tokyo"].policy.catch_up == "all"


def test_the_queue_of_the_actor_is_the_queue_of_the_schedule(stub_broker: StubBroker, distcron: DistCron) -> None:
    @dramatiq.actor(broker=stub_broker, queue_name="reports", periodic=cron("0 3 * * *"))
    def report() -> None: ...

    assert distcron.specs()["report"].queue == "reports"


# -- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [5, None, {"cron": "0 3 * * *"}, {cron("0 3 * * *")}, cron, DistCron, True])
def test_what_is_no_schedule_is_refused_with_an_example(
    stub_broker: StubBroker, distcron: DistCron, value: Any
) -> None:
    with pytest.raises(ConfigurationError, match=r"periodic= of actor 'job' must be a schedule such as cron\("):
        declare(stub_broker, value)


def test_an_expression_without_cron_around_it_is_refused_with_what_to_write(
    stub_broker: StubBroker, distcron: DistCron
) -> None:
    with pytest.raises(ConfigurationError, match=r"Did you mean periodic=cron\('0 3 \* \* \*'\)\?"):
        declare(stub_broker, "0 3 * * *")


@pytest.mark.parametrize("value", [[cron("0 3 * * *"), 5], ["0 3 * * *"], [[cron("0 3 * * *")]], [None]])
def test_a_list_with_something_else_in_it_is_refused(stub_broker: StubBroker, distcron: DistCron, value: Any) -> None:
    with pytest.raises(ConfigurationError, match="periodic= of actor 'job' must be a schedule"):
        declare(stub_broker, value)


def test_an_actor_that_is_refused_leaves_no_schedule_behind(stub_broker: StubBroker, distcron: DistCron) -> None:
    with pytest.raises(ConfigurationError):
        declare(stub_broker, [cron("0 3 * * *"), "0 4 * * *"])
    assert distcron.specs() == {}
    declare(stub_broker, cron("0 3 * * *"))


@pytest.mark.parametrize("where", ["decorator", "periodic", "put"])
def test_an_actor_that_is_a_class_is_asked_for_the_arguments_of_its_perform(
    stub_broker: StubBroker, distcron: DistCron, where: str
) -> None:
    dramatiq.set_broker(stub_broker)

    def give(*args: int) -> None:
        schedule = every(60, args=args)

        class Report(dramatiq.GenericActor):
            class Meta:
                periodic = [schedule] if where == "periodic" else []

            def perform(self, tenant: int) -> None: ...

        report: Any = Report
        if where == "decorator":
            schedule(report)
        elif where == "put":
            distcron.schedules.put(schedule, report)

    with pytest.raises(ConfigurationError, match=r"does not fit its actor Report\(tenant.*too many"):
        give(1, 2)
    stub_broker.actors.clear()
    give(7)
    found: set[str] = {one.name for one in distcron.schedules.list()} | distcron.specs().keys()
    assert found == {"Report"}


def test_two_schedules_of_one_name_are_refused_and_both_actors_named(
    stub_broker: StubBroker, distcron: DistCron
) -> None:
    declare(stub_broker, cron("0 3 * * *", name="nightly"), "one")
    with pytest.raises(ConflictError, match="Two schedules are named 'nightly': one of actor 'one' and one of 'other'"):
        declare(stub_broker, cron("0 4 * * *", name="nightly"), "other")


def test_a_name_that_another_actor_has_is_refused(stub_broker: StubBroker, distcron: DistCron) -> None:
    declare(stub_broker, cron("0 3 * * *"), "one")
    with pytest.raises(ConflictError, match="Two schedules are named 'one'"):
        declare(stub_broker, cron("0 4 * * *", name="one"), "other")


def test_several_schedules_without_a_name_on_one_actor_are_refused_with_what_to_do(
    stub_broker: StubBroker, distcron: DistCron
) -> None:
    with pytest.raises(
        ConflictError, match=r"'job' has several schedules without a name.*cron\(\.\.\., name='\.\.\.'\)"
    ):
        declare(stub_broker, [cron("0 3 * * *"), cron("0 4 * * *")])


NO_NAMES = ["", "x" * 201, "two\nlines", "bell\a", "half \ud800"]


@pytest.mark.parametrize("name", NO_NAMES, ids=["empty", "long", "lines", "bell", "half"])
def test_a_schedule_does_not_get_a_name_from_its_actor_that_it_could_not_be_given(
    stub_broker: StubBroker, distcron: DistCron, name: str
) -> None:
    told = r"has that of its actor, and .* cannot be one: .* 1 to 200 printable characters\. .* name='\.\.\.'"
    if name:
        # Without a name an actor has that of its function.
        with pytest.raises(ScheduleError, match=told):
            declare(stub_broker, every(60), name)
        assert distcron.specs() == {}
    with pytest.raises(ScheduleError, match=told):
        distcron.schedules.put(every(60), name)
    if name:
        declare(stub_broker, every(60, name="good"), name)
        assert list(distcron.specs()) == ["good"]


def test_an_actor_of_the_same_name_on_another_broker_is_another_matter(
    stub_broker: StubBroker, distcron: DistCron
) -> None:
    other = StubBroker()
    install(other)
    declare(stub_broker, cron("0 3 * * *"))
    declare(other, cron("0 3 * * *"))
    other.close()


def test_arguments_that_cannot_be_encoded_are_refused_when_the_schedules_are_asked_for(
    stub_broker: StubBroker, distcron: DistCron
) -> None:
    @dramatiq.actor(broker=stub_broker, periodic=every(60, args=(object(),)))
    def job(thing: object) -> None: ...

    with pytest.raises(ConfigurationError, match="The arguments of schedule 'job' cannot be encoded"):
        distcron.specs()


def test_without_the_middleware_dramatiq_refuses_the_option(stub_broker: StubBroker) -> None:
    with pytest.raises(ValueError, match="periodic"):
        declare(stub_broker, cron("0 3 * * *"))


# -- installing ---------------------------------------------------------------------------------------------


def test_installing_adds_the_middleware_and_returns_it(stub_broker: StubBroker) -> None:
    distcron = install(stub_broker)
    assert [type(one).__name__ for one in stub_broker.middleware[-3:]] == ["DistCron", "DeadLetters", "Settle"]
    assert stub_broker.middleware[-1] is distcron.settle
    assert distcron.broker is stub_broker


def test_installing_twice_is_refused(stub_broker: StubBroker, distcron: DistCron) -> None:
    with pytest.raises(ConflictError, match="has a DistCron middleware already"):
        install(stub_broker)


def test_installing_with_an_unknown_option_adds_nothing(stub_broker: StubBroker) -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'lease_ttl'"):
        install(stub_broker, lease_tll=3)  # type: ignore[call-arg]
    assert not any(isinstance(one, DistCron) for one in stub_broker.middleware)


def test_the_middleware_of_a_broker_is_found(stub_broker: StubBroker, distcron: DistCron) -> None:
    assert get_distcron(stub_broker) is distcron


def test_without_a_broker_that_of_the_global_one_is_found(stub_broker: StubBroker, distcron: DistCron) -> None:
    dramatiq.set_broker(stub_broker)
    assert get_distcron() is distcron


def test_a_broker_without_the_middleware_is_refused_with_what_to_do(stub_broker: StubBroker) -> None:
    with pytest.raises(ConfigurationError, match=r"StubBroker has no DistCron middleware.*install\(broker\)"):
        get_distcron(stub_broker)


def test_a_middleware_that_dramatiq_was_given_in_its_list_knows_its_broker_once_it_is_asked_for() -> None:
    given = DistCron()
    broker = StubBroker(middleware=[given])
    with pytest.raises(ConfigurationError, match="on no broker yet"):
        _ = given.broker
    assert get_distcron(broker).broker is broker
    broker.close()


def test_a_middleware_learns_its_broker_from_the_first_actor() -> None:
    given = DistCron()
    broker = StubBroker(middleware=[given])
    declare(broker, [])
    assert given.broker is broker
    broker.close()


def test_a_broker_that_is_gone_is_not_remembered() -> None:
    before = set(map(id, installed()))
    broker = StubBroker()
    install(broker)
    declare(broker, cron("0 3 * * *"))
    assert len(set(map(id, installed())) - before) == 1
    broker.close()
    del broker
    gc.collect()
    assert set(map(id, installed())) <= before


def test_workers_with_the_middleware_alone_enqueue_nothing(stub_broker: StubBroker, distcron: DistCron) -> None:
    """Field bug 7: a scheduler in each worker runs each job as often as there are workers."""
    declare(stub_broker, every(1, catch_up="all"))
    before = {thread.name for thread in threading.enumerate()}
    workers = [Worker(stub_broker, worker_timeout=10, worker_threads=1) for _ in range(4)]
    for worker in workers:
        worker.start()
    started = {thread.name for thread in threading.enumerate()} - before
    stub_broker.join("default")
    for worker in workers:
        worker.stop()
    # One that tidies up comes and goes.
    ours = {name for name in started if "distcron" in name} - {"distcron-chores"}
    assert ours == {"distcron-presence", "distcron-retries"}
    assert {queue.qsize() for queue in stub_broker.queues.values()} == {0}
    store = distcron.open_backend().store
    assert (store.leader(), list(store.scan())) == (None, [])


def test_a_worker_with_the_middleware_runs_what_others_enqueue(stub_broker: StubBroker, distcron: DistCron) -> None:
    ran = []

    @dramatiq.actor(broker=stub_broker, periodic=every(1, args=(1,)))
    def job(number: int) -> None:
        ran.append(number)

    worker = Worker(stub_broker, worker_timeout=10)
    worker.start()
    job.send(5)
    stub_broker.join("default")
    worker.join()
    worker.stop()
    assert ran == [5]


def test_a_worker_that_may_not_record_anything_says_so_once_as_soon_as_it_is_up(
    stub_broker: StubBroker, distcron: DistCron, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise StoreRefused("No permissions to access a key")

    looks = iter([False, False, True])
    monkeypatch.setattr(distcron.presence._stopped, "wait", lambda seconds: next(looks))
    monkeypatch.setattr(distcron.open_backend().store, "heartbeat", refuse)
    distcron.presence._run(stub_broker)
    (told,) = [one.message for one in caplog.records if one.levelname == "ERROR"]
    assert told.startswith("This worker may not record that it is there")
    assert told.endswith("No permissions to access a key")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (DistCron, "has two DistCron middlewares"),
        (DeadLetters, "has two DeadLetters middlewares"),
        (Retries, "Several middlewares of this broker retry messages: BackoffRetries, Retries"),
    ],
)
def test_nothing_is_done_with_a_middleware_that_is_there_twice(
    stub_broker: StubBroker, distcron: DistCron, more: type[Middleware], told: str
) -> None:
    stub_broker.middleware.append(more())
    with pytest.raises(ConflictError, match=told):
        distcron.open_backend()


def test_a_worker_that_may_record_and_not_look_who_else_is_there_says_nothing_wrong(
    stub_broker: StubBroker, distcron: DistCron, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    def refuse(*_: Any, **__: Any) -> None:
        asked.append("who")
        raise StoreRefused("No permissions to run the 'zrangebyscore' command")

    looks = iter([False, False, True])
    distcron.dead_letters.handler(lambda letter: None)
    monkeypatch.setattr(distcron.presence._stopped, "wait", lambda seconds: next(looks))
    monkeypatch.setattr(distcron.open_backend().store, "instances", refuse)
    distcron.presence._run(stub_broker)
    assert asked
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


def test_a_worker_that_may_not_record_again_says_so_again(
    stub_broker: StubBroker, distcron: DistCron, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = distcron.open_backend().store
    beats, heartbeat = iter([True, False, True, True]), store.heartbeat

    def at_times(*given: Any, **named: Any) -> None:
        if next(beats):
            raise StoreRefused("No permissions to access a key")
        heartbeat(*given, **named)

    looks = iter([False, False, False, True])
    monkeypatch.setattr(distcron.presence._stopped, "wait", lambda seconds: next(looks))
    monkeypatch.setattr(store, "heartbeat", at_times)
    distcron.presence._run(stub_broker)
    assert len([one for one in caplog.records if one.levelname == "ERROR"]) == 2


def test_the_middleware_starts_no_process_of_its_own() -> None:
    assert DistCron().forks == []


def test_the_only_actor_option_is_periodic(stub_broker: StubBroker, distcron: DistCron) -> None:
    assert distcron.actor_options == {"periodic"}
    assert isinstance(cron("0 3 * * *"), Schedule)
