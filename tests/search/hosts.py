"""The processes of an app, with the product's own loops: beats, workers, and programs that use the API."""

from __future__ import annotations

from collections.abc import Callable
from queue import PriorityQueue, Queue
from types import SimpleNamespace
from typing import Any, cast

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.errors import BrokerConnectionError
from dramatiq.middleware import Middleware, Retries
from dramatiq.worker import ConsumerThread, WorkerThread

from dramatiq_distcron.backends import Backend
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.errors import DistCronError
from dramatiq_distcron.letters import DLQ_QUEUE
from dramatiq_distcron.middleware.dead_letters import DeadLetters
from dramatiq_distcron.middleware.distcron import DistCron, _everywhere, install
from dramatiq_distcron.moving import Mover
from dramatiq_distcron.outbox import OutboxPublisher
from dramatiq_distcron.publishing import RedisPublisher
from dramatiq_distcron.tick import current_tick

from .laws import Run
from .post import generation_of
from .stepped import SteppedScript, SteppedStore
from .stepping import Host, Request, StepEvent, StepLocal, StepLock, ask, current_thread

__all__ = ["QUEUE", "App", "BeatHost", "Failure", "WebHost", "WorkerHost", "actor"]

QUEUE = "default"
#: The life of the lease, in seconds.
LEASE = 3.0


class Failure(Exception):
    """An actor that fails as it is meant to."""


class DramatiqsRetries(Retries):
    """As it is: ``install()`` leaves a subclass where it is."""


class App:
    """The app's code as one process has loaded it: made once, and used in every world.

    Parameters:
      name: of the process.
      declare: declares the app's actors on a broker.
      by_outbox: the broker is none that a commit can put a message into.
      retries: the middleware that retries.
      letters: the middleware that keeps the dead, if it is not as it comes.
      stops: where its commands stop, see ``SteppedStore``.
    """

    def __init__(
        self,
        name: str,
        declare: Callable[[Any], None],
        *,
        by_outbox: bool = False,
        retries: Callable[[], Retries] = DramatiqsRetries,
        letters: Callable[[], DeadLetters] | None = None,
        **stops: Any,
    ) -> None:
        self.name = name
        self.stops = stops
        self.by_outbox = by_outbox
        self.broker = _make_broker(name, *(make() for make in (retries, letters) if make))
        self.distcron: DistCron = install(self.broker, lease_ttl=LEASE)
        # It has no connections to be closed after each test.
        _everywhere.discard(self.distcron)
        # It asks which kind of broker it is; what it works with comes with each world.
        self.distcron._backend = Backend(cast(Any, None), cast(Any, None), "dramatiq", by_outbox=by_outbox)
        self.distcron.before_worker_boot(self.broker, cast(Any, None))
        self.distcron.presence.holder = self.distcron.settle.worker_id = name
        declare(self.broker)
        self.specs = self.distcron.specs()
        self.distcron.specs = lambda: self.specs  # type: ignore[method-assign]

    def load(self, clock: Any) -> None:
        """Forgets what it knew of the world before."""
        store: Any = SteppedStore(presence_matters=self.by_outbox, **self.stops)
        publisher: Any = OutboxPublisher(self.broker, store, clock) if self.by_outbox else self._redis_publisher()
        self.distcron._backend = Backend(store, publisher, "dramatiq", by_outbox=self.by_outbox)
        self.distcron.settle._enqueued = cast(Any, StepLocal())
        self.distcron.presence._started_at = None
        # It looks for it once in its life, which is longer than a world, and only to warn.
        self.distcron.presence._warned = True

    def _redis_publisher(self) -> RedisPublisher:
        return RedisPublisher(self.broker, "default")


def _make_broker(name: str, *middleware: Middleware) -> Any:
    client = SimpleNamespace(register_script=lambda source: source)
    # Maintenance with each command: it is never due too late.
    broker = cast(Any, RedisBroker)(client=client, middleware=middleware, maintenance_chance=1_000_000)
    broker.broker_id = name
    broker._max_unpack_size = lambda: 1000
    broker.scripts["dispatch"] = SteppedScript(broker.heartbeat_timeout)
    return broker


def actor(broker: Any, name: str, **options: Any) -> Any:
    """Declares an actor that takes its time, and fails as often as the world says, unless it was redriven."""
    return dramatiq.actor(_run_actor, actor_name=name, broker=broker, queue_name=QUEUE, **options)


def _run_actor(*args: Any) -> None:
    thread, tick = current_thread(), current_tick()
    assert thread is not None
    assert tick is not None
    world = thread.host.world
    fire_time, generation = round(tick.fire_time.timestamp() * 1000), generation_of(thread.in_hand)
    run = Run(tick.schedule, fire_time, tick.attempt, generation, thread.host.name)
    world.laws.run_begins(run)
    ask(Request("in the actor"))
    world.runs.append(run)
    if tick.attempt < world.rules.failing and not generation:
        raise Failure


class BeatHost(Host):
    """A beat, with its thread that keeps the lease."""

    def __init__(self, world: Any, app: App, **options: Any) -> None:
        super().__init__(world, app.name, **options)
        app.load(self)
        beat = self.beat = Beat(app.distcron, clock=self)
        beat.holder = beat.lease.holder = self.name
        beat.lease._mutex = cast(Any, StepLock("the lease's lock"))
        beat._wake = cast(Any, StepEvent(self, "asleep", lambda: ()))
        # The search wakes it when the store would.
        beat._watcher = cast(Any, SimpleNamespace(start=lambda: None, is_alive=lambda: False))
        self._keeper = keeper = beat._keeper
        keeper._stopped = cast(Any, StepEvent(self, "keeping", lambda: keeper._turns % 5))
        beat._keeper = cast(Any, SimpleNamespace(start=lambda: None, stop=keeper.stop, join=lambda: None))
        # Retries are put back by the workers here.
        beat._mover = cast(Any, SimpleNamespace(start=lambda on_duty: None, stop=lambda: None))
        if beat._outbox is not None:
            self._hold_outbox(beat._outbox)

    def _hold_outbox(self, outbox: Any) -> None:
        """Its thread is one of ours."""
        outbox._on_duty = lambda: self.beat.lease.trusted
        outbox._thread = SimpleNamespace(join=lambda timeout: None, is_alive=lambda: True)
        outbox._asked = StepEvent(self, "publishing", lambda: (outbox.behind, outbox._rests_until))
        outbox._stopping = StepEvent(self, "stopping")
        outbox.start = lambda on_duty: None

    def begin(self, *, keeping: bool = True) -> None:
        self.start(self.name, self.beat.run)
        if keeping:
            self.start(f"{self.name}/keeper", self._keeper.run)
        if self.beat._outbox is not None:
            self.start(f"{self.name}/outbox", self.beat._outbox._run)

    def woken(self) -> None:
        self.beat._wake.set()

    def known(self) -> Any:
        """All that a beat knows and that its next turns can depend on."""
        beat, lease, scheduler = self.beat, self.beat.lease, self.beat.scheduler
        now = self.monotonic()
        return (
            beat._proven, beat._in_office, beat._steps_seen, max(now, beat._next_sweep), beat.office.seen,
            max(now, lease._trusted_until), lease._offset, lease.since, lease.steps,
            scheduler.resting._failed, {name: max(now, at) for name, at in scheduler.resting._waiting.items()},
            scheduler._probed, sorted(scheduler._stale), scheduler._sweep,
            sorted((name, known.revision) for name, known in scheduler._specs._known.items()),
            beat._progress._last, beat._trouble._since is None, getattr(beat.backend.publisher, "behind", None),
        )  # fmt: skip


class WorkerHost(Host):
    """A worker process: a thread that fetches and works, and others for what waits for its time or tells of deaths."""

    def __init__(self, world: Any, app: App, **options: Any) -> None:
        super().__init__(world, app.name, **options)
        app.load(self)
        self.broker = app.broker
        self._presence = app.distcron.presence
        self._presence._stopped = cast(Any, StepEvent(self, "present"))
        self._mover = app.distcron.mover = Mover(app.distcron.open_backend, self)
        self._mover.now = world.store.now  # type: ignore[method-assign]
        self._work: Queue[Any] = Queue()
        self._consumers = {queue: self._consumer(queue) for queue in (QUEUE, f"{QUEUE}.DQ", DLQ_QUEUE)}
        self._worker = WorkerThread(
            broker=self.broker, consumers=self._consumers, work_queue=cast(Any, self._work), worker_timeout=1000
        )

    def _consumer(self, queue: str) -> ConsumerThread:
        consumer = ConsumerThread(
            broker=self.broker, queue_name=queue, prefetch=1, work_queue=cast(Any, self._work), worker_timeout=1000
        )
        consumer.consumer = self.broker.consume(queue, prefetch=1, timeout=1000)
        return consumer

    def begin(
        self, *, delaying: bool = False, moving: bool = False, telling: bool = False, noticing: bool = False
    ) -> None:
        self.start(self.name, lambda: self._serve(QUEUE))
        if noticing:
            self.start(f"{self.name}/notices", lambda: self._serve(DLQ_QUEUE))
        if moving:
            self.start(f"{self.name}/retries", self._move)
        if delaying:
            self.start(f"{self.name}/delayed", self._delay)
        if telling:
            self.start(f"{self.name}/presence", lambda: self._presence._run(self.broker))

    def _serve(self, queue: str) -> None:
        consumer, thread = self._consumers[queue], current_thread()
        assert thread is not None
        while True:
            message = next(cast(Any, consumer.consumer))
            if message is not None:
                consumer.handle_message(message)
                thread.in_hand = self._work.get_nowait().message
                self._worker.process_message(thread.in_hand)

    def _move(self) -> None:
        """Puts retries back when they are due, and sleeps until the next one is."""
        while True:
            retries = self.world.store._state.retries
            ask(Request("no retry is due", is_ready=self._is_due, deadline=self._next_due(retries)))
            try:
                self._mover.move_due()
            except DistCronError:
                continue

    def _is_due(self) -> bool:
        store = self.world.store
        return any(due <= store.now() for due, _ in store._state.retries.values())

    def _next_due(self, retries: Any) -> float | None:
        ahead = [due - self.world.store.now() for due, _ in retries.values()]
        return self.world.elapsed + min(ahead) if ahead else None

    def _delay(self) -> None:
        """Holds one message that waits for its time, and puts it on its queue when it is there."""
        consumer = self._consumers[f"{QUEUE}.DQ"]
        while True:
            message = next(cast(Any, consumer.consumer))
            if message is None:
                continue
            try:
                consumer.handle_message(message)
                self._wait_for(message.options["eta"])
                consumer.handle_delayed_messages()
            except (BrokerConnectionError, redis.ConnectionError):
                # It forgets what it has in hand, which others get when this process ends. That is Dramatiq's own.
                consumer.delay_queue = PriorityQueue()
                self.is_stuck = True

    def _wait_for(self, eta: int) -> None:
        deadline = self.world.elapsed + eta - self.wall()
        ask(Request("delayed", is_ready=lambda: self.wall() >= eta, deadline=deadline))


class WebHost(Host):
    """A program that uses the API; it gives up where the store does not answer."""

    def __init__(self, world: Any, app: App, **options: Any) -> None:
        super().__init__(world, app.name, **options)
        app.load(self)
        self.distcron = app.distcron

    def begin(self, program: Callable[[DistCron], None]) -> None:
        def run() -> None:
            try:
                program(self.distcron)
            except DistCronError as error:
                self.world.refused.append(type(error).__name__)

        self.start(self.name, run)
