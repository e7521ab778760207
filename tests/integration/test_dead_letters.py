"""Dead letters on a real server, with Dramatiq's own workers in this process."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dramatiq
import dramatiq.worker
import pytest
import redis
from dramatiq import Message, Worker
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import (
    DeadLetter,
    DeadLetters,
    DistCron,
    RunOutstanding,
    StoreUnavailable,
    current_tick,
    every,
    install,
)
from dramatiq_distcron.api.letter_moves import Adopted
from dramatiq_distcron.backends import broker_at
from dramatiq_distcron.letters import DLQ_ACTOR, DLQ_QUEUE, ORIGIN
from dramatiq_distcron.server import Server
from dramatiq_distcron.store.base import Letter, Query
from tests.integration.conftest import Running
from tests.integration.test_retries import cut_at
from tests.proxies import Proxy, nothing_is_lost
from tests.support import queued, wait_until

pytestmark = pytest.mark.usefixtures("quick")


class App:
    """One worker process' broker: an actor that dies as long as it is told to, and notes its runs.

    Parameters:
      patience: how long it waits for an answer, in seconds. Short where one is made not to come.
    """

    def __init__(
        self,
        url: str,
        namespace: str,
        *,
        ours: bool = True,
        letters: DeadLetters | None = None,
        patience: float = 10,
    ) -> None:
        self.broker = RedisBroker(url=url, namespace=namespace, socket_timeout=patience, heartbeat_timeout=60_000)
        if letters is not None:
            self.broker.add_middleware(letters)
        # Of which half is the longest wait for an answer.
        self.distcron: DistCron | None = install(self.broker, lease_ttl=2 * patience) if ours else None
        self.broken = True
        self.failed = threading.Event()
        self.ran: list[Any] = []
        self.told: list[DeadLetter] = []
        self.job = dramatiq.actor(self._run, actor_name="job", broker=self.broker, max_retries=0)
        self._worker: Worker | None = None
        if ours:
            self.letters.handler(self.told.append)
            # A cut may hit the telling; Dramatiq's formula would wait up to half a minute.
            self.broker.get_actor(DLQ_ACTOR).options["backoff"] = 0.05

    @property
    def letters(self) -> Any:
        assert self.distcron is not None
        return self.distcron.dead_letters

    def _run(self, name: Any) -> None:
        if self.broken:
            self.failed.set()
            raise KeyError(name)
        self.ran.append(name)

    def start(self, threads: int = 2, queues: set[str] | None = None) -> None:
        self._worker = Worker(self.broker, queues=queues, worker_timeout=50, worker_threads=threads)
        self._worker.start()

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def close(self) -> None:
        self.stop()
        self.broker.client.close()

    def await_deaths(self, count: int) -> list[DeadLetter]:
        wait_until(lambda: self.letters.count() == count and not self.at_work(), f"{count} letters")
        found: list[DeadLetter] = self.letters.list(limit=10_000)
        return found

    def at_work(self, *queues: str) -> dict[str, int]:
        """How many messages are in each place where one can be; without those that tell handlers, unless asked for."""
        client: Any = self.broker.client
        ns = self.broker.namespace
        found = {}
        for queue in queues or ("default", "default.DQ"):
            found[queue] = client.hlen(f"{ns}:{queue}.msgs")
            found[f"list {queue}"] = client.llen(f"{ns}:{queue}")
            acks = client.scan_iter(f"{ns}:__acks__.*.{queue}")
            found[f"given out {queue}"] = sum(client.scard(key) for key in acks)
            found[f"their dead {queue}"] = client.zcard(f"{ns}:{queue}.XQ")
        found["waiting"] = client.zcard(f"{ns}:distcron:default:retries")
        return {name: count for name, count in found.items() if count}


@contextmanager
def app_of(url: str, namespace: str, **options: Any) -> Iterator[App]:
    app = App(url, namespace, **options)
    try:
        yield app
    finally:
        app.close()


@pytest.fixture
def app(server: Server, namespace: str) -> Iterator[App]:
    with app_of(server.url, namespace) as app:
        yield app


# -- the usual ------------------------------------------------------------------------------------------------


def test_every_death_has_one_letter_with_its_reason_and_no_second_copy(app: App) -> None:
    """Field bug 105: all messages are dead, and no log says why. 106: retries are spent, and nothing is dead."""
    failing = {"fn": app.job.fn, "broker": app.broker}
    for name, options in (
        ("aborted", {"throws": KeyError}),
        ("age_limit", {"max_age": 1}),
        ("max_retry_age", {"max_retry_age": 1}),
        ("retries_exhausted", {"max_retries": 1, "backoff": 0}),
        ("unknown_actor", {}),
    ):
        message = dramatiq.actor(actor_name=name, **failing, **options).message(name)
        app.broker.enqueue(message.copy(message_timestamp=1 if "age" in name else message.message_timestamp))
    del app.broker.actors["unknown_actor"]
    app.start()
    letters = app.await_deaths(5)
    assert {one.actor: one.reason for one in letters} == {one.actor: one.actor for one in letters}
    runs = {"retries_exhausted": 2, "aborted": 1, "max_retry_age": 1, "age_limit": 0, "unknown_actor": 0}
    assert {one.actor: one.attempts for one in letters} == runs
    for one in letters:
        assert one.error
        assert one.text
        assert (one.first_failed_at is not None) == bool(one.attempts)
        assert one.queue == "default"
    wait_until(lambda: len(app.told) == 5, "the handler")
    assert sorted(one.id for one in app.told) == sorted(one.id for one in letters)
    wait_until(lambda: not app.at_work(DLQ_QUEUE), "nothing is left")


def test_whoever_is_to_be_told_is_told_from_the_step_of_the_death_on(app: App) -> None:
    app.job.send("a")
    app.start(queues={"default"})
    (letter,) = app.await_deaths(1)
    (message,) = queued(app.broker, DLQ_QUEUE)
    assert message.args == (letter.id,)


def test_letters_go_back_run_and_are_gone(app: App) -> None:
    for number in range(250):
        app.job.send(number)
    app.start()
    app.await_deaths(250)
    app.broken = False
    assert app.letters.redrive(actor="job", error="KeyError", limit=100).redriven == 100
    assert app.letters.redrive(all=True).redriven == 150
    wait_until(lambda: len(app.ran) == 250, "the runs")
    assert sorted(app.ran) == list(range(250))
    wait_until(lambda: not app.at_work(), "nothing is left")
    keys: list[bytes] = app.broker.client.keys(f"{app.broker.namespace}:distcron:default:dead*")
    assert keys == []


def test_a_message_that_died_of_its_age_does_not_die_at_once_again(app: App) -> None:
    job = dramatiq.actor(app.job.fn, actor_name="aged", broker=app.broker, max_age=60_000)
    app.broken = False
    app.broker.enqueue(job.message("a").copy(message_timestamp=1))
    app.start()
    app.await_deaths(1)
    assert app.letters.redrive(reason="age_limit").redriven == 1
    wait_until(lambda: app.ran == ["a"], "the run")


def test_a_tick_that_died_starts_again_as_a_run_of_its_schedule(app: App, start_beat: Callable[..., Running]) -> None:
    ticks: list[Any] = []

    @dramatiq.actor(broker=app.broker, max_retries=0, periodic=every(86_400, expires=60))
    def nightly() -> None:
        ticks.append(current_tick())
        if len(ticks) == 1:
            raise KeyError

    assert app.distcron is not None
    start_beat(app.distcron)
    wait_until(lambda: app.distcron.schedules.list(), "the schedule")  # type: ignore[union-attr]
    message_id = app.distcron.schedules.trigger("nightly").message_id
    app.start()
    (letter,) = app.await_deaths(1)
    assert (letter.schedule, letter.message_id) == ("nightly", message_id)
    (tick,) = app.distcron.schedules.history("nightly")
    assert tick.run is not None
    assert (tick.run.state, tick.run.error) == ("dead", "KeyError: ")
    assert app.letters.redrive(schedule="nightly").redriven == 1
    wait_until(lambda: len(ticks) == 2, "the run")
    assert [(one.schedule, one.attempt) for one in ticks] == [("nightly", 0)] * 2
    assert ticks[0].fire_time == ticks[1].fire_time
    wait_until(lambda: not app.broker.client.exists(app.distcron.open_backend().store.keys.runs), "its end")  # type: ignore[union-attr,attr-defined]
    (tick,) = app.distcron.schedules.history("nightly")
    assert tick.run is not None
    assert (tick.message_id, tick.run.state) == (message_id, "succeeded")
    assert tick.run.message_id != message_id


def test_while_a_redriven_tick_holds_its_schedule_up_the_history_tells_of_it(app: App) -> None:
    """Nobody works here yet, and a letter's run is outstanding."""
    assert app.distcron is not None
    distcron = app.distcron

    @dramatiq.actor(broker=app.broker, max_retries=0)
    def nightly() -> None:
        raise KeyError

    distcron.schedules.put(every(86_400, name="nightly", overlap="skip"), nightly)
    distcron.schedules.trigger("nightly")
    app.start()
    app.await_deaths(1)
    app.stop()
    assert app.letters.redrive(all=True).redriven == 1
    (tick,) = distcron.schedules.history("nightly")
    assert tick.run is not None
    assert (tick.run.state, tick.run.finished_at) == ("queued", None)
    with pytest.raises(RunOutstanding, match=f"message {tick.run.message_id} is not"):
        distcron.schedules.trigger("nightly")
    # So it does of a letter that is sent back for the second time: its tick is the same.
    app.start()
    app.await_deaths(1)
    app.stop()
    before, (tick,) = tick.run, distcron.schedules.history("nightly")
    assert tick.run is not None
    assert (tick.run.state, tick.run.message_id) == ("dead", before.message_id)
    assert app.letters.redrive(all=True).redriven == 1
    (tick,) = distcron.schedules.history("nightly")
    assert tick.run is not None
    assert tick.run.state == "queued"
    assert tick.run.message_id not in (tick.message_id, before.message_id)


def test_a_message_whose_actor_is_gone_is_refused_by_the_url_alone_too(app: App, server: Server) -> None:
    app.broker.enqueue(app.job.message("a").copy(actor_name="gone"))
    app.job.send("b")
    app.start()
    app.await_deaths(2)
    by_url = install(broker_at(server.url, app.broker.namespace))
    app.broken = False
    done = by_url.dead_letters.redrive(all=True)
    assert done.redriven == 1
    assert ["Nobody knows the actor 'gone' any more" in why for why in done.refused.values()] == [True]
    wait_until(lambda: app.ran == ["b"], "the run")
    by_url.broker.client.close()  # type: ignore[attr-defined]


def test_two_who_send_the_same_letters_back_send_each_once(app: App, server: Server) -> None:
    for number in range(400):
        app.job.send(number)
    app.start(queues={"default"})
    app.await_deaths(400)
    app.stop()
    with ExitStack() as stack:
        others = [stack.enter_context(app_of(server.url, app.broker.namespace)) for _ in range(3)]
        barrier, done = threading.Barrier(3), []

        def redrive(other: App) -> None:
            barrier.wait()
            done.append(other.letters.redrive(all=True))

        threads = [threading.Thread(target=redrive, args=(other,)) for other in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(one.redriven for one in done) == 400
    assert sorted(message.args[0] for message in queued(app.broker)) == list(range(400))
    assert app.letters.count() == 0


def test_what_died_without_us_is_taken_over_and_goes_back(server: Server, namespace: str) -> None:
    with app_of(server.url, namespace, ours=False) as before:
        for number in range(3):
            before.job.send(number)
        before.start()
        wait_until(lambda: before.at_work() == {"their dead default": 3}, "Dramatiq's dead")
    with app_of(server.url, namespace, letters=DeadLetters(redact=lambda *given: (["…"], {}))) as app:
        client: Any = app.broker.client
        # One that nobody can read, and one whose message is gone.
        client.zadd(f"{namespace}:default.XQ", {"foreign": 1, "gone": 2})
        client.hset(f"{namespace}:default.XQ.msgs", "foreign", b"\x80")
        assert app.letters.adopt() == Adopted({"default": 3}, left=2)
        assert app.letters.adopt() == Adopted({"default": 0}, left=2)
        assert client.zcard(f"{namespace}:default.XQ") == 2
        assert {(one.actor, one.message["args"][0]) for one in app.letters.list()} == {("job", "…")}
        app.broken = False
        app.start()
        assert app.letters.redrive(all=True).redriven == 3
        wait_until(lambda: sorted(app.ran) == [0, 1, 2], "the runs")


def test_long_messages_are_taken_over_a_few_at_a_time(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step with all of them would hold the server up for seconds, and the lease with it."""
    client: Any = app.broker.client
    store: Any = app.letters._backend().store
    for number in range(20):
        client.zadd(f"{app.broker.namespace}:default.XQ", {f"m{number:02}": number + 1})
        data = app.job.message("x" * 400_000).encode()
        client.hset(f"{app.broker.namespace}:default.XQ.msgs", f"m{number:02}", data)
    read, taken = store.graveyard, store.adopt
    sizes: list[int] = []
    monkeypatch.setattr(store, "graveyard", lambda keys, after, most: sizes.append(most) or read(keys, after, most))
    monkeypatch.setattr(store, "adopt", lambda keys, letters: sizes.append(len(letters)) or taken(keys, letters))
    assert app.letters.adopt().adopted == 20
    assert max(sizes) <= 5


def test_what_cannot_be_told_of_by_the_url_alone_is_refused(server: Server, namespace: str) -> None:
    """Where no process tells of its queues."""
    by_url = install(broker_at(server.url, namespace))
    with pytest.raises(ValueError, match="No queue is known here"):
        by_url.dead_letters.adopt()
    by_url.broker.client.close()  # type: ignore[attr-defined]


def test_a_letter_of_another_broker_goes_back_by_its_workers(server: Server, namespace: str) -> None:
    """By the URL of the state alone: a queue on this Redis would be read by nobody."""
    by_url = install(broker_at(server.url, namespace))
    tick = {"schedule": "nightly", "fire_time": 1, "term": 1}
    message: Message[Any] = Message("default", "job", (1,), {}, {"distcron": tick}, "m", 1)
    letter = Letter("m.0", {"actor": "job", "outbox": True}, message.encode(), [("actor", "job")])
    store: Any = by_url.open_backend().store
    store.put_letters([(letter, 1000)])
    assert by_url.dead_letters.redrive("m.0").redriven == 1
    ((key, data),) = store.move_retries(10, hold=1000).taken
    again = Message.decode(data)
    assert (again.message_id, again.options[ORIGIN]["message_id"]) == (key, "m")
    client: Any = by_url.broker.client  # type: ignore[attr-defined]
    assert client.keys(f"{namespace}:default*") == []
    # A sweep must not look for its message in this Redis: it would take the ticket away.
    assert json.loads(client.hget(store.keys.runs, key))["place"] == ""
    client.close()


def test_letters_that_come_and_go_hide_no_other_and_show_none_twice(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dramatiq_distcron.store.redis.letters.CHUNK", 5)
    store: Any = app.letters._backend().store
    wanted = [("actor", "job"), ("queue", "default")]
    for number in range(40):
        data = app.job.message(number).encode()
        store.put_letters([(Letter(f"m{number:02}", {"actor": "job"}, data, wanted), 1000 + number)])
    chunk = store._chunk

    def meanwhile(*given: Any) -> Any:
        found = chunk(*given)
        if len(found) == 5 and store.count_letters(Query()) > 20:
            store.drop_letters([id for _, id in found[:3]])
            store.put_letters([(Letter(f"new {found[0]}", {"actor": "job"}, b"", wanted), 5)])
        return found

    monkeypatch.setattr(store, "_chunk", meanwhile)
    for oldest_first in (False, True):
        query = Query(wanted, oldest_first=oldest_first, since=1000)
        before = set(store._client.zrange(store.keys.dead, 0, -1))
        found = [row.id for row in store.letters(query, 100)]
        assert len(found) == len(set(found))
        still = set(store._client.zrange(store.keys.dead, 0, -1)) & before
        assert {id.decode() for id in still if id.startswith(b"m")} <= set(found)


# -- who hears of them ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("queues", "told"), [({"default"}, False), (None, True)])
def test_that_nobody_hears_of_dead_letters_is_said_at_the_start_and_in_the_status(
    app: App, caplog: pytest.LogCaptureFixture, queues: set[str] | None, told: bool
) -> None:
    app.start(queues=queues)
    assert app.distcron is not None
    wait_until(lambda: app.distcron.status().instances, "the worker")  # type: ignore[union-attr]
    assert app.distcron.status().dead_letters == {"kept": 0, "told": told, "queue": DLQ_QUEUE}
    app.stop()
    assert ("so nobody is told of dead letters" in caplog.text) != told


def test_a_worker_that_does_not_know_all_handlers_says_so(
    app: App, caplog: pytest.LogCaptureFixture, server: Server, namespace: str
) -> None:
    app.letters.handler(told_elsewhere)
    app.start()
    wait_until(lambda: app.distcron.status().instances, "the worker")  # type: ignore[union-attr]
    with app_of(server.url, namespace) as other:
        other.start()
        wait_until(lambda: "that this one does not know" in caplog.text, "the warning")
    assert f"{__name__}.told_elsewhere" in caplog.text


def told_elsewhere(letter: DeadLetter) -> None: ...


def test_a_second_worker_of_the_process_that_hears_of_them_counts(app: App) -> None:
    app.start(queues={"default"})
    second = Worker(app.broker, queues={DLQ_QUEUE}, worker_timeout=50, worker_threads=1)
    second.start()
    try:
        assert app.distcron is not None
        app.distcron.presence._tell(app.broker)
        assert app.distcron.status().dead_letters["told"]
        (instance,) = app.distcron.status().instances
        assert instance["queues"] == [DLQ_QUEUE, "default"]
    finally:
        second.stop()


# -- Redis is cut off at the death or at the redrive ------------------------------------------------------------


@pytest.mark.parametrize("how", ["the request", "the reply"])
@pytest.mark.parametrize("step", range(1, 6))
def test_a_cut_at_any_step_of_a_death_neither_loses_nor_doubles_the_letter(
    server: Server, namespace: str, step: int, how: str
) -> None:
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(server.port or 0))
        app = stack.enter_context(app_of(proxy.url, namespace, patience=1))
        look = stack.enter_context(app_of(server.url, namespace))
        proxy.loses = cut_at(step, how, app.failed)
        app.start(threads=1)
        app.job.send("a")
        look.await_deaths(1)
        wait_until(lambda: len(app.told) == 1, "the handler")
        wait_until(lambda: not look.at_work("default", DLQ_QUEUE), "nothing is left")
        assert look.letters.count() == 1


@pytest.mark.parametrize("how", ["the request", "the reply"])
@pytest.mark.parametrize("step", range(1, 9))
def test_a_cut_at_any_step_of_a_redrive_neither_loses_nor_doubles_a_message(
    server: Server, namespace: str, step: int, how: str
) -> None:
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(server.port or 0))
        app = stack.enter_context(app_of(proxy.url, namespace, patience=1))
        for number in range(250):
            message = app.job.message(number)
            about = {"actor": "job", "message_id": message.message_id}
            letter = Letter(f"letter {number}", about, message.encode(), [("actor", "job")])
            app.distcron.open_backend().store.put_letters([(letter, 1000 + number)])  # type: ignore[union-attr]
        armed = threading.Event()
        armed.set()
        proxy.loses = cut_at(step, how, armed)
        for _ in range(3):
            try:
                app.letters.redrive(all=True)
                break
            except StoreUnavailable:
                proxy.loses = nothing_is_lost
        with app_of(server.url, namespace) as look:
            assert sorted(message.args[0] for message in queued(look.broker)) == list(range(250))
            assert look.letters.count() == 0


# -- a store that refuses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["dead", "dead.msgs", "dead.groups", "dead.by:actor:job"])
def test_a_key_of_ours_that_holds_something_else_leaves_the_message_to_dramatiqs_own_dead(app: App, key: str) -> None:
    app.broker.client.set(f"{app.broker.namespace}:distcron:default:{key}", "nonsense")
    app.start()
    app.job.send("a")
    wait_until(lambda: app.at_work() == {"their dead default": 1}, "Dramatiq's dead")
    # Nothing of the step is left.
    kept: list[bytes] = app.broker.client.keys(f"{app.broker.namespace}:distcron:default:dead*")
    assert kept == [f"{app.broker.namespace}:distcron:default:{key}".encode()]


def test_a_missing_right_to_our_keys_leaves_the_message_to_dramatiqs_own_dead(server: Server, namespace: str) -> None:
    with redis.Redis.from_url(server.url) as admin:
        allowed = [f"~{namespace}", *(f"~{namespace}:{name}*" for name in ("default", "__", DLQ_QUEUE))]
        admin.execute_command("ACL", "SETUSER", namespace, "on", ">secret", *allowed, "+@all")
        with app_of(server.url.replace("://", f"://{namespace}:secret@"), namespace) as app:
            app.start()
            app.job.send("a")
            wait_until(lambda: admin.zcard(f"{namespace}:default.XQ") == 1, "Dramatiq's dead")
        admin.execute_command("ACL", "DELUSER", namespace)


def test_a_death_while_redis_lets_nobody_in_is_recorded_when_it_does_again(
    server: Server, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody gave it another password, and then the old one back."""
    admin = redis.Redis.from_url(server.url)

    def give(password: str) -> None:
        rights = ["resetpass", f">{password}", "~*", "&*", "+@all"]
        admin.execute_command("ACL", "SETUSER", namespace, "on", *rights)
        admin.execute_command("CLIENT", "KILL", "USER", namespace)

    def dies() -> None:
        give("another")
        raise KeyError

    give("secret")
    told: list[Any] = []
    with app_of(server.url.replace("://", f"://{namespace}:secret@"), namespace) as app:
        dramatiq.actor(lambda *given: told.append(given), actor_name="told", broker=app.broker)
        options = {"max_retries": 0, "on_retry_exhausted": "told"}
        job = dramatiq.actor(dies, actor_name="dies", broker=app.broker, **options)
        app.start()
        job.send()
        wait_until(lambda: "could not be recorded" in caplog.text, "a try")
        give("secret")
        (letter,) = app.await_deaths(1)
        assert (letter.actor, letter.error) == ("dies", "KeyError")
        wait_until(lambda: told, "the actor that is to be told of the end")
    admin.execute_command("ACL", "DELUSER", namespace)
    admin.close()


def test_whoever_is_to_be_told_of_the_end_is_told_once_though_no_letter_can_be_kept(app: App) -> None:
    told: list[Any] = []
    dramatiq.actor(lambda *given: told.append(given), actor_name="told", broker=app.broker)
    app.broker.client.set(f"{app.broker.namespace}:distcron:default:dead", "nonsense")
    app.job.options["on_retry_exhausted"] = "told"
    app.start(threads=1)
    app.job.send("a")
    wait_until(lambda: told and app.at_work() == {"their dead default": 1}, "Dramatiq's dead, and all else is done")
    assert len(told) == 1


def test_a_broken_queue_of_those_who_are_to_be_told_costs_no_letter(app: App, caplog: pytest.LogCaptureFixture) -> None:
    app.broker.client.set(f"{app.broker.namespace}:{DLQ_QUEUE}", "not a list")
    app.start(queues={"default"})
    app.job.send("a")
    app.await_deaths(1)
    assert "Nobody can be told" in caplog.text
    assert app.broker.client.hlen(f"{app.broker.namespace}:{DLQ_QUEUE}.msgs") == 0


def _short(value: str | bytes) -> str:
    """An id that every process of a run spells the same and that fits a line."""
    return ascii(value)[:30]


# -- what somebody else wrote -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"\n\n",
        b"{}\n{}\n{}",
        b'[5]\n{"actor": 5}\n',
        b"[[]]\n[]\n",
        b'[["actor"]]\n5\n',
        b'[["actor", {}], [1, 2], ["error", "x"]]\n{"attempts": []}\n',
        b"\xff\xfe\n\x00\n\xff",
        b"[" * 5000 + b"\n" + b"[" * 100_000,
    ],
    ids=_short,
)
def test_what_somebody_else_put_among_the_letters_harms_no_other(app: App, text: bytes) -> None:
    client: Any = app.broker.client
    prefix = f"{app.broker.namespace}:distcron:default:"
    client.zadd(f"{prefix}dead", {"foreign": 1, b"\xff\xfe": 2, "gone": 3})
    client.hset(f"{prefix}dead.msgs", mapping={"foreign": text, b"\xff\xfe": text or b"x"})
    client.sadd(f"{prefix}dead.groups", "nonsense", b"\xff", "actor:nobody", b"error:\xff")
    app.start()
    app.job.send("a")
    wait_until(lambda: app.letters.count(actor="job") == 1, "the letter")
    json.dumps([vars(one) for one in app.letters.list()])
    assert [one.count for one in app.letters.stats() if one.value == "job"] == [1]
    for _ in app.letters.export():
        pass
    app.broken = False
    assert app.letters.redrive(all=True).redriven == 1
    wait_until(lambda: app.ran == ["a"], "the run")
    app.letters.purge()
    assert client.hlen(f"{prefix}dead.msgs") <= (not text)


@pytest.mark.parametrize("name", ["a:b", "*", "ü", "with space", "\ud800", "x" * 5000, ""], ids=_short)
def test_an_actor_of_any_name_is_kept_found_and_dropped(app: App, name: str) -> None:
    app.broker.enqueue(app.job.message("a").copy(actor_name=name))
    app.start()
    (letter,) = app.await_deaths(1)
    if name:
        assert app.letters.count(actor=letter.actor) == 1
    assert app.letters.discard(letter.id) == 1
    assert app.broker.client.keys(f"{app.broker.namespace}:distcron:default:dead*") == []


@pytest.mark.parametrize("args", [("\ud800",), ("x" * 3_000_000,), ([[[]]] * 1000,), ({"a": {"b": [1.5, None]}},)])
def test_arguments_of_any_kind_come_back_as_they_were(app: App, args: Any) -> None:
    app.broker.enqueue(app.job.message(*args))
    app.start()
    (letter,) = app.await_deaths(1)
    assert len(json.dumps(letter.message)) < 10_000
    app.broken = False
    assert app.letters.redrive(letter.id).redriven == 1
    wait_until(lambda: app.ran == list(args), "the run")


@pytest.mark.parametrize("key", ["dead", "dead.msgs", "dead.groups", "dead.by:actor:job", "dead*"])
def test_a_key_of_letters_that_is_lost_costs_no_later_letter(app: App, key: str) -> None:
    app.start()
    app.job.send("lost")
    app.await_deaths(1)
    client: Any = app.broker.client
    client.delete(*client.keys(f"{app.broker.namespace}:distcron:default:{key}"))
    for number in range(3):
        app.job.send(number)
    wait_until(lambda: {*range(3)} <= {one.message["args"][0] for one in app.letters.list()}, "the letters")
    assert app.letters.count(actor="job") >= 3
    assert {one.value for one in app.letters.stats()} >= {"job", "KeyError"}
    app.broken = False
    assert app.letters.redrive(actor="job").redriven >= 3
    wait_until(lambda: {*range(3)} <= set(app.ran), "the runs")
    assert len(app.ran) == len(set(app.ran))


# -- age and number -------------------------------------------------------------------------------------------


def test_two_workers_that_look_after_the_limits_drop_no_more_than_is_too_much(server: Server, namespace: str) -> None:
    with ExitStack() as stack:
        apps = [
            stack.enter_context(app_of(server.url, namespace, letters=DeadLetters(max_count=1000))) for _ in range(2)
        ]
        told: Counter[str] = Counter()
        store = apps[0].distcron.open_backend().store  # type: ignore[union-attr]
        for start in range(0, 2500, 500):
            store.put_letters([(Letter(f"m{n:04}", {}, b"", []), store.now() + n) for n in range(start, start + 500)])
        for app in apps:
            app.letters.on_drop(lambda letters: told.update(one.id for one in letters))
        threads = [threading.Thread(target=app.letters._own.retainer.retain) for app in apps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        left = [row.id for row in apps[0].letters.list(limit=5000)]
        # Whatever was dropped was told of.
        assert set(told) >= {f"m{n:04}" for n in range(2500)} - set(left)
        assert sorted(left) == [f"m{n:04}" for n in range(1500, 2500)]


def test_a_server_that_restarts_still_has_the_letters(
    server_binary: Path | None, namespace: str, tmp_path: Path
) -> None:
    with Server(server_binary, directory=tmp_path / "data") as server:
        with app_of(server.url, namespace) as app:
            app.start()
            app.job.send("a")
            before = app.await_deaths(1)
        server.kill()
        server.restart()
        with app_of(server.url, namespace) as app:
            assert app.letters.list() == before


def test_apps_that_share_a_namespace_tell_each_of_its_own_letters(server: Server, namespace: str) -> None:
    told: dict[str, list[str]] = {"default": [], "shop": []}
    workers = []
    for app, seen in told.items():
        broker = RedisBroker(url=server.url, namespace=namespace)
        distcron = install(broker, app=app)
        distcron.dead_letters.handler(lambda letter, seen=seen: seen.append(letter.actor))
        assert distcron.status().dead_letters["queue"] == ("dead_letters" if app == "default" else "dead_letters.shop")

        @dramatiq.actor(broker=broker, actor_name=f"job_{app}", queue_name=f"queue_{app}", max_retries=0)
        def job() -> None:
            raise KeyError

        workers.append(Worker(broker, worker_timeout=50, worker_threads=1))
        workers[-1].start()
        for _ in range(5):
            job.send()
    try:
        wait_until(lambda: [len(seen) for seen in told.values()] == [5, 5], "the handlers")
        assert {app: set(seen) for app, seen in told.items()} == {"default": {"job_default"}, "shop": {"job_shop"}}
    finally:
        for worker in workers:
            worker.stop()
            worker.broker.client.close()
