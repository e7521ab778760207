"""Retries on a real server, with Dramatiq's own workers in this process."""

from __future__ import annotations

import json
import threading
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
from dramatiq.middleware import Retries

from dramatiq_distcron import BackoffRetries, DistCron, RetryBudget, every, install
from dramatiq_distcron.server import Server
from tests.integration.conftest import Running
from tests.proxies import Proxy, nothing_is_lost
from tests.support import wait_until

pytestmark = pytest.mark.usefixtures("quick")

#: Of each queue: what waits in it, what was given out, what is dead.
QUEUES = ("default", "default.DQ")


class App:
    """One worker process' broker: an actor that fails so often for each message, and notes its runs.

    Parameters:
      patience: how long it waits for an answer, in seconds. Short where one is made not to come.
    """

    def __init__(
        self,
        url: str,
        namespace: str,
        ran: list[tuple[str, int]],
        *,
        ours: bool = True,
        patience: float = 10,
        **job: Any,
    ) -> None:
        self.broker = RedisBroker(url=url, namespace=namespace, socket_timeout=patience, heartbeat_timeout=20_000)
        # Of which half is the longest wait for an answer.
        self.distcron: DistCron | None = install(self.broker, lease_ttl=2 * patience) if ours else None
        self.ran = ran
        self.job = dramatiq.actor(self._run, actor_name="job", broker=self.broker, **job)
        self.failed = threading.Event()
        self._worker: Worker | None = None

    def _run(self, name: str, failures: int) -> None:
        self.ran.append((name, sum(one == name for one, _ in self.ran)))
        if self.ran[-1][1] < failures:
            self.failed.set()
            raise ValueError(name)

    def start(self, threads: int = 2) -> None:
        self._worker = Worker(self.broker, worker_timeout=50, worker_threads=threads)
        self._worker.start()

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def close(self) -> None:
        self.stop()
        self.broker.client.close()

    def runs(self) -> dict[str, int]:
        """How often each message ran."""
        names = [name for name, _ in self.ran]
        return {name: names.count(name) for name in names}


@contextmanager
def app_of(url: str, namespace: str, **options: Any) -> Iterator[App]:
    app = App(url, namespace, options.pop("ran", []), **options)
    try:
        yield app
    finally:
        app.close()


def places(client: Any, namespace: str) -> dict[str, int]:
    """How many messages are in each place where one can be."""
    found = {}
    for queue in QUEUES:
        found[queue] = client.hlen(f"{namespace}:{queue}.msgs")
        found[f"list {queue}"] = client.llen(f"{namespace}:{queue}")
    found["dead"] = client.zcard(f"{namespace}:default.XQ")
    found["given out"] = sum(client.scard(key) for key in client.scan_iter(f"{namespace}:__acks__.*"))
    found["waiting"] = client.zcard(f"{namespace}:distcron:default:retries")
    found["their data"] = client.hlen(f"{namespace}:distcron:default:retries.msgs")
    return {name: count for name, count in found.items() if count}


def await_rest(url: str, namespace: str, dead: int = 0) -> None:
    """Every message came to its end, and nothing of one is left anywhere."""
    rest = {"dead": dead} if dead else {}
    with redis.Redis.from_url(url) as client:
        wait_until(lambda: places(client, namespace) == rest, "every message at its end", 60)


# -- the usual ------------------------------------------------------------------------------------------------


def test_a_failed_message_comes_back_until_it_succeeds(server: Server, namespace: str) -> None:
    with app_of(server.url, namespace, backoff=0.02) as app:
        app.start()
        app.job.send("a", 3)
        app.job.send("b", 0)
        wait_until(lambda: app.runs() == {"a": 4, "b": 1}, "the runs")
        await_rest(server.url, namespace)


def test_a_far_retry_holds_up_no_near_one(server: Server, namespace: str) -> None:
    """In Dramatiq's delay queue those that were prefetched first do."""
    with app_of(server.url, namespace, backoff=lambda attempt, error: 3600 if "far" in str(error) else 0.01) as app:
        app.start()
        for number in range(200):
            app.job.send(f"far {number}", 1)
        assert app.distcron is not None
        wait_until(lambda: app.distcron.retries.count() == 200, "the far ones")  # type: ignore[union-attr]
        app.job.send("near", 2)
        wait_until(lambda: app.runs().get("near") == 3, "the near one")


def test_a_retry_outlives_its_worker_and_a_restart_of_redis(
    server_binary: Path | None, namespace: str, tmp_path: Path
) -> None:
    """Field bug 109: delayed jobs do not run for hours after a restart."""
    ran: list[tuple[str, int]] = []
    with Server(server_binary, directory=tmp_path / "data") as server:
        # Long enough to be seen while it waits.
        with app_of(server.url, namespace, ran=ran, backoff=5) as first:
            first.start()
            first.job.send("a", 1)
            assert first.failed.wait(20)
            wait_until(lambda: places(first.broker.client, namespace).get("waiting"), "the retry")
        server.kill()
        server.restart()
        with app_of(server.url, namespace, ran=ran, backoff=5) as second:
            second.start()
            wait_until(lambda: second.runs() == {"a": 2}, "the retry")
            await_rest(server.url, namespace)


# -- Redis is cut off between the failure and the ack -----------------------------------------------------------


class Cut(Exception):
    pass


def cut_at(step: int, how: str, armed: threading.Event) -> Callable[[bytes], bool]:
    """Loses the request number ``step`` after the failure, or its reply, on whichever connection it is.

    A fetch is left alone: one whose reply is lost leaves messages with a live worker (Dramatiq's own, told by doctor).
    """
    seen = [0]
    lock = threading.Lock()

    def loses(request: bytes) -> bool:
        if not armed.is_set() or b"fetch" in request:
            return False
        with lock:
            seen[0] += 1
            if seen[0] != step:
                return False
        if how == "the request":
            raise OSError("cut")
        return True

    return loses


@pytest.mark.parametrize("how", ["the request", "the reply"])
@pytest.mark.parametrize("step", range(1, 7))
def test_a_cut_at_any_step_between_failure_and_ack_neither_loses_nor_doubles_the_retry(
    server: Server, namespace: str, step: int, how: str
) -> None:
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(server.port or 0))
        app = stack.enter_context(app_of(proxy.url, namespace, backoff=0.05, patience=1))
        proxy.loses = cut_at(step, how, app.failed)
        app.start(threads=1)
        app.job.send("a", 1)
        wait_until(lambda: app.runs().get("a", 0) >= 2, "the retry")
        proxy.loses = nothing_is_lost
        await_rest(server.url, namespace)
        assert app.runs() == {"a": 2}


@pytest.mark.parametrize("trouble", ["a replica", "a full memory", "a missing right"])
def test_a_redis_that_takes_no_writes_when_the_retry_is_recorded_leaves_the_message_where_it_is(
    own: Server, namespace: str, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Field bug 103: the retry cannot be enqueued, and the message is acked: it is nowhere."""
    begin = {
        "a replica": ("replicaof", "127.0.0.1", "1"),
        "a full memory": ("config", "set", "maxmemory", "1"),
        "a missing right": ("acl", "setuser", "default", "-evalsha", "-eval"),
    }
    end = {
        "a replica": ("replicaof", "no", "one"),
        "a full memory": ("config", "set", "maxmemory", "0"),
        "a missing right": ("acl", "setuser", "default", "+evalsha", "+eval"),
    }
    with app_of(own.url, namespace, backoff=0.05) as app, redis.Redis.from_url(own.url) as admin:
        client: Any = admin
        go = threading.Event()
        run = app.job.fn

        def gated(name: str, failures: int) -> None:
            assert go.wait(20)
            run(name, failures)

        app.job.fn = gated
        app.start(threads=1)
        app.job.send("a", 1)
        wait_until(lambda: places(client, namespace).get("given out"), "the run")
        client.execute_command(*begin[trouble])
        go.set()
        wait_until(lambda: "could not be recorded" in caplog.text, "the worker cannot record it")
        assert places(client, namespace) == {"default": 1, "given out": 1}
        client.execute_command(*end[trouble])
        wait_until(lambda: app.runs() == {"a": 2}, "the retry")
        await_rest(own.url, namespace)


def test_a_retry_that_can_never_be_recorded_goes_the_way_of_dramatiqs(
    server: Server, namespace: str, redis_broker: RedisBroker
) -> None:
    client: Any = redis_broker.client
    client.set(f"{namespace}:distcron:default:retries", "not a sorted set")
    with app_of(server.url, namespace, backoff=0.05) as app:
        app.start(threads=1)
        app.job.send("a", 1)
        wait_until(lambda: app.runs() == {"a": 2}, "the retry")
        client.delete(f"{namespace}:distcron:default:retries")
        await_rest(server.url, namespace)


def test_an_actor_that_cannot_be_told_of_an_end_holds_up_no_worker(
    server: Server, namespace: str, redis_broker: RedisBroker
) -> None:
    redis_broker.client.set(f"{namespace}:ends", "not a list")
    with app_of(server.url, namespace, max_retries=0, on_retry_exhausted="told") as app:
        dramatiq.actor(lambda message, counts: None, actor_name="told", broker=app.broker, queue_name="ends")
        app._worker = Worker(app.broker, queues={"default"}, worker_timeout=50, worker_threads=1)
        app._worker.start()
        app.job.send("a", 1)
        await_rest(server.url, namespace)
        assert app.distcron is not None
        assert app.distcron.dead_letters.count() == 1
        app.job.send("b", 0)
        wait_until(lambda: app.runs() == {"a": 1, "b": 1}, "the next message")


# -- what somebody else wrote -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"{}",
        b"{}\n{}",
        b'{"calls": 5}\n{}',
        b'{"calls": [5]}\n{}',
        b'{"calls": [[]]}\n{}',
        b'{"calls": [["enqueue", {}]]}\n{}',
        b'[1]\n{"a": 1}',
        b"\xff\xfe\n\x00",
        b'{"calls": [["nonsense"]], "budget": 5}\n{}',
        b'{"calls": [["nonsense"]], "budget": []}\n{}',
        b'{"calls": [["nonsense"]], "budget": [5, {}, "x"]}\n{}',
        b'{"id": 5, "actor": null, "attempt": "x", "first_failed_at": "y", "fire_time": {}, "budget": [[]]}\n{}',
    ],
)
def test_what_somebody_else_put_among_the_retries_holds_up_no_other(
    server: Server, namespace: str, redis_broker: RedisBroker, text: bytes
) -> None:
    client: Any = redis_broker.client
    prefix = f"{namespace}:distcron:default:"
    client.zadd(f"{prefix}retries", {"foreign": 1, b"\xff": 2, "gone": 3})
    client.hset(f"{prefix}retries.msgs", mapping={"foreign": text, b"\xff": text})
    client.hset(
        f"{prefix}budgets", mapping={"b": b"nonsense", "c": b"[]", "d": b'{"tokens": "x"}', "e": b'{"tokens": 1}'}
    )
    with app_of(server.url, namespace, backoff=0.02, retry_budget="b") as app:
        app.start()
        app.job.send("a", 2)
        wait_until(lambda: app.runs() == {"a": 3}, "the retries")
        assert app.distcron is not None
        # It can be looked at, and be thrown away.
        json.dumps([vars(one) for one in app.distcron.retries.list()])
        app.distcron.retries.budgets()
        for one in app.distcron.retries.list():
            app.distcron.retries.cancel(one.key)
        assert app.distcron.retries.list() == []


def test_a_budget_key_that_is_no_hash_stops_no_retry(server: Server, namespace: str, redis_broker: RedisBroker) -> None:
    redis_broker.client.set(f"{namespace}:distcron:default:budgets", "not a hash")
    with app_of(server.url, namespace, backoff=0.02, retry_budget="b") as app:
        app.start()
        app.job.send("a", 2)
        wait_until(lambda: app.runs() == {"a": 3}, "the retries")


# -- switching there and back -----------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_switching_a_running_app_to_ours_and_back_loses_and_doubles_nothing(server: Server, namespace: str) -> None:
    """Messages wait in Dramatiq's delay queue at the first switch, and in our set at the second.

    A consumer of Dramatiq's that is stopped may leave what it has fetched and not handed on: it comes back when the
    worker is taken for dead.
    """
    ran: list[tuple[str, int]] = []
    names = [f"m{number}" for number in range(20)]
    quick = {"min_backoff": 300, "max_backoff": 300}
    # Their first retries are still to come when their worker has stopped, also on a slow machine.
    with app_of(server.url, namespace, ran=ran, ours=False, min_backoff=5000, max_backoff=5000) as theirs:
        theirs.start()
        for name in names:
            theirs.job.send(name, 3)
        wait_until(lambda: set(theirs.runs()) == set(names), "the first runs")
    with app_of(server.url, namespace, ran=ran, **quick) as ours:
        wait_until(lambda: places(ours.broker.client, namespace).get("default.DQ"), "a message in the delay queue")
        ours.start()
        wait_until(lambda: min(ours.runs().values()) >= 2, "the second runs", 90)
    with app_of(server.url, namespace, ran=ran, **quick) as draining:
        # The middleware stays on one broker, and Dramatiq's retries are back on the others.
        assert draining.distcron is not None
        draining.distcron.retries.run_all_now()
        draining.broker.middleware = [
            one if not isinstance(one, BackoffRetries) else Retries() for one in draining.broker.middleware
        ]
        draining.start()
        with app_of(server.url, namespace, ran=ran, ours=False, **quick) as back:
            back.start()
            wait_until(lambda: all(back.runs()[name] >= 4 for name in names), "the last runs", 90)
            await_rest(server.url, namespace)
    assert {name: sum(one == name for one, _ in ran) for name in names} == dict.fromkeys(names, 4)


def test_without_any_of_our_code_nothing_that_waits_is_lost(server: Server, namespace: str) -> None:
    ran: list[tuple[str, int]] = []
    with app_of(server.url, namespace, ran=ran, backoff=3600) as ours:
        ours.start()
        ours.job.send("a", 1)
        wait_until(lambda: places(ours.broker.client, namespace).get("waiting"), "the retry")
    with app_of(server.url, namespace, ran=ran, ours=False) as theirs:
        theirs.start()
        theirs.job.send("b", 0)
        wait_until(lambda: theirs.runs().get("b"), "another message")
        assert places(theirs.broker.client, namespace)["waiting"] == 1
    with app_of(server.url, namespace, ran=ran, backoff=3600) as again:
        again.start()
        assert again.distcron is not None
        assert again.distcron.retries.run_all_now() == 1
        wait_until(lambda: again.runs()["a"] == 2, "the retry")


# -- ticks ------------------------------------------------------------------------------------------------------


def test_a_tick_that_is_retried_holds_its_schedule_up_until_it_succeeded(
    server: Server, namespace: str, start_beat: Callable[..., Running]
) -> None:
    with app_of(server.url, namespace) as app:
        assert app.distcron is not None
        attempts: list[int] = []

        @dramatiq.actor(
            broker=app.broker, periodic=every(1, overlap="skip"), backoff=1.2, max_retries=5, actor_name="tick"
        )
        def tick() -> None:
            attempts.append(len(attempts))
            if len(attempts) in (1, 2):
                raise ValueError("not yet")

        app.start()
        start_beat(app.distcron)
        wait_until(lambda: len(attempts) >= 4, "a run after the retries")
        history = sorted(app.distcron.schedules.history("tick"), key=lambda one: one.fire_time)
        first = next(one for one in history if one.message_id)
        assert first.run is not None
        assert first.run.state == "succeeded"
        skipped = next(one for one in history if one.outcome == "skipped_overlap")
        assert skipped.count >= 2
        enqueued = [one for one in history if one.message_id]
        assert enqueued[0].fire_time < skipped.fire_time < enqueued[1].fire_time


def test_a_tick_whose_retry_waits_is_shown_as_retrying_with_its_schedule(
    server: Server, namespace: str, start_beat: Callable[..., Running]
) -> None:
    with app_of(server.url, namespace) as app:
        assert app.distcron is not None

        @dramatiq.actor(broker=app.broker, periodic=every(1, overlap="skip"), backoff=3600, actor_name="tick")
        def tick() -> None:
            raise ValueError("not yet")

        app.start()
        start_beat(app.distcron)
        (waiting,) = wait_until(app.distcron.retries.list, "the retry")
        assert (waiting.schedule, waiting.actor, waiting.error, waiting.attempt) == ("tick", "tick", "ValueError", 1)
        (run,) = [one.run for one in app.distcron.schedules.history("tick") if one.message_id]
        assert run is not None
        assert run.state == "retrying"
        app.distcron.retries.cancel(waiting.id)
        wait_until(lambda: len([1 for o in app.distcron.schedules.history("tick") if o.message_id]) == 2, "the next")  # type: ignore[union-attr]
        assert [one.run.state for one in app.distcron.schedules.history("tick") if one.run][-1] == "dropped"


# -- limits -----------------------------------------------------------------------------------------------------


def test_a_budget_that_is_spent_puts_retries_off_and_shows_it(server: Server, namespace: str) -> None:
    budget = RetryBudget("github", ratio=0, floor=0.001, burst=2)
    with app_of(server.url, namespace, backoff=0.01, retry_budget=budget) as app:
        assert app.distcron is not None
        app.start()
        for number in range(5):
            app.job.send(str(number), 1)
        wait_until(lambda: app.distcron.retries.budgets().get("github", {}).get("put_off", 0) >= 3, "those put off")  # type: ignore[union-attr]
        waiting = app.distcron.retries.list()
        assert {one.budget for one in waiting} == {"github"}
        assert len(waiting) == 3
        assert app.distcron.retries.budgets()["github"]["taken"] == 2
        # The two that were granted are moved and run after the put-offs are counted: only the end state is certain.
        wait_until(lambda: sum(app.runs().values()) == 7, "the two granted")
        app.distcron.retries.run_now(waiting[0].id)
        assert app.distcron.retries.run_all_now() >= 2
        wait_until(lambda: sum(app.runs().values()) == 10, "the others, by hand")
        await_rest(server.url, namespace)


def test_two_processes_move_each_retry_once(server: Server, namespace: str) -> None:
    ran: list[tuple[str, int]] = []
    names = [str(number) for number in range(100)]
    with ExitStack() as stack:
        apps = [stack.enter_context(app_of(server.url, namespace, ran=ran, backoff=[0.05, 0])) for _ in range(3)]
        for app in apps:
            app.start()
        for name in names:
            apps[0].job.send(name, 2)
        wait_until(lambda: apps[0].runs() == dict.fromkeys(names, 3), "the runs")
        await_rest(server.url, namespace)
        assert apps[0].runs() == dict.fromkeys(names, 3)


def test_a_message_of_pickle_comes_back_as_it_was(server: Server, namespace: str) -> None:
    before = dramatiq.get_encoder()
    dramatiq.set_encoder(dramatiq.PickleEncoder())
    try:
        with app_of(server.url, namespace, backoff=0.01) as app:
            app.start()
            odd: Any = b"\x00\n\xff" * 5
            app.job.send(odd, 1)
            wait_until(lambda: app.ran[-1:] == [(odd, 1)], "the retry")
            await_rest(server.url, namespace)
    finally:
        dramatiq.set_encoder(before)


def test_messages_of_any_age_and_size_wait(server: Server, namespace: str) -> None:
    with app_of(server.url, namespace, backoff=10**8) as app:
        app.start()
        app.job.send("x" * 10**6, 1)
        (waiting,) = wait_until(app.distcron.retries.list, "the retry")  # type: ignore[union-attr]
        store: Any = app.distcron.open_backend().store  # type: ignore[union-attr]
        assert waiting.due_at - store.now() > 99_000_000 * 1000
        assert Message.decode(store.retry(waiting.key).data).args[0] == "x" * 10**6


def test_a_beat_puts_back_what_is_due_where_no_worker_runs(
    server: Server, namespace: str, start_beat: Callable[..., Running]
) -> None:
    with app_of(server.url, namespace, backoff=3600) as app:
        app.start()
        app.job.send("a", 1)
        wait_until(app.distcron.retries.list, "the retry")  # type: ignore[union-attr]
        app.stop()
        assert app.distcron is not None
        assert app.distcron.retries.run_all_now() == 1
        start_beat(app.distcron)
        # A beat looks each fifteen seconds.
        back = {"default": 1, "list default": 1}
        wait_until(lambda: places(app.broker.client, namespace) == back, "it is back", 60)


@pytest.mark.parametrize("lost", ["retries", "retries.msgs", "budgets"])
def test_a_key_of_the_retries_that_is_deleted_stops_no_later_retry(
    server: Server, namespace: str, redis_broker: RedisBroker, lost: str
) -> None:
    with app_of(server.url, namespace, backoff=[3600, 0.01], retry_budget="b") as app:
        app.start()
        app.job.send("lost", 1)
        wait_until(app.distcron.retries.list, "the retry")  # type: ignore[union-attr]
        redis_broker.client.delete(f"{namespace}:distcron:default:{lost}")
        redis_broker.client.zadd(f"{namespace}:distcron:default:retries", {"left over": 1})
        app.job.send_with_options(args=("a", 2), backoff=0.01)
        wait_until(lambda: app.runs().get("a") == 3, "the retries")
