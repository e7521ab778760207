"""Which store and which publisher serve a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from dramatiq.brokers.redis import RedisBroker
from dramatiq.brokers.stub import StubBroker

from .clock import wall_ms
from .errors import ConflictError
from .outbox import OutboxPublisher
from .publishing import Publisher, RedisPublisher, StubPublisher
from .store.memory import MemoryStore
from .store.redis import Connection, Keys, RedisStore, refuse_url

if TYPE_CHECKING:
    from dramatiq import Broker

    from .config import Settings
    from .specs import Spec
    from .store.base import Store

__all__ = ["Backend", "broker_at", "memory_store", "open_backend", "redis_store"]

#: The longest wait for an answer, as a part of the lease: a beat must notice in time that it is cut off.
_PATIENCE = 0.5


@dataclass(frozen=True)
class Backend:
    """What serves one broker.

    ``by_outbox``: messages are published after the commit, so that copies of one can be delivered, and a run asks for
    its ticket.
    """

    store: Store
    publisher: Publisher
    namespace: str
    by_outbox: bool = False

    @property
    def where(self) -> str:
        """The store's address for messages."""
        return str(getattr(self.store, "where", "memory"))

    def checked(self, specs: Mapping[str, Spec]) -> dict[str, Spec]:
        """The schedules by name, with how their messages get into the broker.

        Raises:
          ConflictError: one of them asks for what the broker cannot do.
        """
        limited = [name for name, spec in specs.items() if spec.policy.max_queue_length is not None]
        if limited and self.by_outbox:
            raise ConflictError(
                "max_queue_length needs a Redis broker, whose queues can be measured in the step that fires; it is set "
                f"for {', '.join(limited)}. Leave it out, or use expires= against a backlog."
            )
        return {name: replace(spec, outbox=self.by_outbox) for name, spec in specs.items()}

    def close(self) -> None:
        """Closes our connections; they are opened again when they are needed."""
        if isinstance(self.publisher, OutboxPublisher):
            self.publisher.stop()
        self.store.close()


def open_backend(broker: Broker, settings: Settings) -> Backend:
    """The backend of ``broker``; connects to nothing yet.

    Raises:
      ConflictError: the broker cannot be served with these settings.
    """
    if isinstance(broker, StubBroker):
        return Backend(memory_store(broker, settings), StubPublisher(broker), "dramatiq")
    if _is_redis_broker(broker):
        return _on_redis(broker, settings)
    return _beside_redis(broker, settings)


def _on_redis(broker: Any, settings: Settings) -> Backend:
    connection = Connection.from_client(broker.client)
    _refuse_other_redis(connection, settings)
    _refuse_several_slots(connection, broker.namespace)
    if connection.is_cluster and settings.wait_replicas:
        raise ConflictError("wait_replicas= is not built for a Redis cluster: leave it out.")
    source = broker.scripts["dispatch"].script
    namespace = _namespace(broker, settings)
    store = redis_store(connection, namespace, settings, source.decode() if isinstance(source, bytes) else source)
    return Backend(store, RedisPublisher(broker, settings.app), namespace)


def _beside_redis(broker: Broker, settings: Settings) -> Backend:
    source = settings.redis or settings.default_redis
    if source is None:
        raise ConflictError(
            f"{type(broker).__name__} is not on Redis, and the state of the schedules is: say where with "
            "install(broker, redis='redis://...') or DISTCRON_REDIS_URL."
        )
    connection = Connection.from_url(source) if isinstance(source, str) else Connection.from_client(source)
    namespace = settings.namespace or settings.default_namespace or "dramatiq"
    _refuse_several_slots(connection, namespace)
    store = redis_store(connection, namespace, settings)
    return Backend(store, OutboxPublisher(broker, store), namespace, by_outbox=True)


def redis_store(connection: Connection, namespace: str, settings: Settings, dispatch: str = "") -> RedisStore:
    """The store of one app at ``connection``. Without ``dispatch`` it can put no message into a queue."""
    return RedisStore(
        connection,
        Keys(namespace, settings.app),
        dispatch=dispatch,
        timeout=settings.lease_ttl / 1000 * _PATIENCE,
        history_size=settings.history_size,
        replicas=settings.wait_replicas,
    )


def broker_at(url: str, namespace: str = "dramatiq") -> Broker:
    """A broker for looking at what is at ``url``: no middleware, no actors.

    Raises:
      ConfigurationError: it is not the URL of a Redis.
    """
    refuse_url(url)
    made: Broker = cast(Any, RedisBroker)(url=url, namespace=namespace, middleware=[])
    return made


def memory_store(broker: StubBroker, settings: Settings, now: Callable[[], int] = wall_ms) -> MemoryStore:
    """A store in memory that puts messages on the queues of ``broker``."""

    def dispatch(call: Sequence[Any]) -> None:
        queue, data = call
        broker.queues[queue].put(data)

    def expect(call: Sequence[Any], number: int) -> None:
        """A queue that messages are still to come to is not done: ``join()`` waits, as for Dramatiq's own retries."""
        queue = broker.queues[call[0]]
        if number < 0:
            queue.task_done()
            return
        with queue.all_tasks_done:
            queue.unfinished_tasks += number

    store = MemoryStore(now, dispatch, expect=expect, history_size=settings.history_size)
    _forget_with(broker, store)
    return store


def _forget_with(broker: Any, store: MemoryStore) -> None:
    """Flushing a queue between two tests drops what waits for it too."""
    flush = broker.flush

    def flush_all_of(queue: str) -> None:
        store.forget_retries(queue)
        flush(queue)

    broker.flush = flush_all_of


def _is_redis_broker(broker: Broker) -> bool:
    return "dispatch" in getattr(broker, "scripts", {}) and hasattr(broker, "client") and hasattr(broker, "namespace")


def _namespace(broker: Any, settings: Settings) -> str:
    if settings.namespace not in (None, broker.namespace):
        raise ConflictError(
            f"DistCron(namespace={settings.namespace!r}) differs from the broker's namespace {broker.namespace!r}. "
            "With a Redis broker leave it out: the state must be where the queues are."
        )
    return str(broker.namespace)


def _refuse_several_slots(connection: Connection, namespace: str) -> None:
    if connection.is_cluster and not Keys(namespace, "").has_hash_tag:
        raise ConflictError(
            "In a Redis cluster the keys of one step must be in one slot: give the broker a namespace with a hash tag, "
            f"RedisBroker(client=..., namespace='{{{namespace}}}')."
        )


def _refuse_other_redis(connection: Connection, settings: Settings) -> None:
    if settings.redis is None:
        return
    if isinstance(settings.redis, str):
        other = Connection.from_url(settings.redis)
    else:
        other = Connection.from_client(settings.redis)
    if other.where != connection.where:
        raise ConflictError(
            f"DistCron(redis=...) is {other.where} and the broker is on {connection.where}: a tick and its message "
            "are written in one step, so both must be on the same Redis. Leave redis= out."
        )
