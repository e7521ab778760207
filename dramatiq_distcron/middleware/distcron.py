"""The middleware: it takes schedules in. It never schedules anything; that is the beat's work alone."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dramatiq.broker
from dramatiq.middleware import Middleware

from ..api.dead_letters import DeadLetterQueue
from ..api.retries import WaitingRetries
from ..api.schedules import Schedules
from ..api.status import Status, read_status
from ..arguments import refuse_misfit
from ..backends import Backend, open_backend
from ..config import Settings
from ..errors import ConfigurationError, ConflictError, quoted
from ..moving import Mover
from ..schedules import Schedule, name_of
from ..specs import Spec, resolve
from .dead_letters import DeadLetters, refuse_two_of_letters
from .keeping import ack_what_is_kept
from .presence import Presence
from .recording import Recorder
from .retries import BackoffRetries, refuse_two, replace_retries
from .settle import Settle

if TYPE_CHECKING:
    from dramatiq import Actor, Broker, Worker
    from typing_extensions import Unpack

    from ..config import DistCronOptions

__all__ = ["DistCron", "get_distcron", "install", "installed", "refuse_doubled"]

_everywhere: weakref.WeakSet[DistCron] = weakref.WeakSet()


class DistCron(Middleware, Recorder):
    """Periodic actors on many machines.

    Adds the actor option ``periodic=``: a schedule or a list of them. The schedules are fired by
    ``dramatiq-distcron beat``; a worker with this middleware fires none.

    ``app``, ``tz`` and ``lease_ttl`` come from ``DISTCRON_APP``, ``DISTCRON_TZ`` and ``DISTCRON_LEASE_TTL`` where they
    are not given and the variable is set.

    Parameters:
      redis: where the state is, a URL or a ``redis.Redis``; the broker's own Redis unless given.
      app: name of this code base; apps that share a Redis and a namespace need different ones.
      namespace: prefix of the keys; the broker's unless given.
      tz: IANA zone of schedules that name none (default ``"UTC"``).
      lease_ttl: life of the lease in seconds or as a ``timedelta``: after this time without a sign of the leader
        a standby takes over (default 3 s).
      history_size: how many records the history keeps (default 10,000).
      wait_replicas: how many replicas are to have a commit before the next one is made (default 0). Redis replicates
        asynchronously, and a failover can lose the last writes; this makes that rarer and each commit slower.
      **policies: defaults of every schedule, see :class:`~dramatiq_distcron.policies.PolicyOptions`.

    Raises:
      ConfigurationError: an option is unknown or has a value it cannot have.
    """

    def __init__(self, **options: Unpack[DistCronOptions]) -> None:
        self.settings = Settings.from_options(options)
        self._declared: dict[str, tuple[Actor[Any, Any], Schedule]] = {}
        self._broker: Broker | None = None
        self._backend: Backend | None = None
        self.settle = Settle(self.open_backend, lambda: self.mover)
        self.presence = Presence(self.settle.worker_id, self.open_backend)
        #: Puts messages back when their retry is due.
        self.mover = Mover(self.open_backend)
        _everywhere.add(self)

    @property
    def actor_options(self) -> set[str]:
        return {"periodic"}

    def before_worker_boot(self, broker: Broker, worker: Worker) -> None:
        """Middlewares may have been added since: the one that ends deliveries must be the last."""
        self._broker = broker
        self.attach(broker)
        if not self.presence.is_told:
            # Of this process, and not of the one it was forked from. Its other workers share it.
            self.presence.holder = self.settle.worker_id = uuid.uuid4().hex
        if self.presence not in broker.middleware:
            broker.add_middleware(self.presence)
        # At the end of a new list: somebody may be walking through the old one.
        broker.middleware = [*(one for one in broker.middleware if one is not self.settle), self.settle]
        if self.open_backend().by_outbox:
            ack_what_is_kept(broker)

    def attach(self, broker: Broker) -> None:
        """Tells the other middlewares of ours who records for them."""
        for middleware in broker.middleware:
            if isinstance(middleware, BackoffRetries):
                middleware.attach(self)
            elif isinstance(middleware, DeadLetters):
                middleware.attach(self, broker)
                self.mover.chores = [middleware.retainer.retain]

    def after_worker_boot(self, broker: Broker, worker: Worker) -> None:
        self.mover.start()

    def after_worker_shutdown(self, broker: Broker, worker: Worker) -> None:
        """Not before: its last runs may be recorded for a retry at once."""
        self.mover.stop()

    # -- taking schedules in --------------------------------------------------------------------------------

    def before_declare_actor(self, broker: Broker, actor: Actor[Any, Any]) -> None:
        """Takes the actor's schedules in. Raises ``ConfigurationError`` if one cannot be used."""
        self._broker = broker
        schedules = actor.options.get("periodic", [])
        if isinstance(schedules, Schedule):
            schedules = [schedules]
        if isinstance(schedules, (str, bytes)) or not isinstance(schedules, Sequence):
            raise _no_schedule(actor, schedules)
        for schedule in schedules:
            if not isinstance(schedule, Schedule):
                raise _no_schedule(actor, schedule)
        declared = dict(self._declared)
        actor.options["periodic"] = []
        try:
            for schedule in schedules:
                self.add_schedule(actor, schedule)
        except ConfigurationError:
            # An actor that is refused leaves no schedule behind.
            self._declared = declared
            raise

    def add_schedule(self, actor: Actor[Any, Any], schedule: Schedule) -> None:
        """Gives ``schedule`` to ``actor``.

        Raises:
          ConflictError: there is one of that name.
          ConfigurationError: the actor cannot be called with its arguments, or its name cannot be the schedule's.
        """
        self._broker = actor.broker
        name = name_of(schedule, actor.actor_name)
        refuse_misfit(schedule, actor)
        if name in self._declared:
            raise _same_name(name, self._declared[name], actor, schedule)
        self._declared[name] = (actor, schedule)
        actor.options.setdefault("periodic", []).append(schedule)

    def specs(self) -> dict[str, Spec]:
        """The schedules defined in code, by name, with every default filled in.

        Raises:
          ConfigurationError: the arguments of one cannot be encoded.
        """
        return {name: self.spec_of(actor, schedule) for name, (actor, schedule) in self._declared.items()}

    def declared(self) -> list[tuple[Actor[Any, Any], Schedule]]:
        """The schedules defined in code with their actors, as they were given."""
        return list(self._declared.values())

    def spec_of(self, actor: Actor[Any, Any], schedule: Schedule) -> Spec:
        """One schedule with every default filled in. Raises ``ConfigurationError`` if it cannot be used."""
        return resolve(
            schedule,
            name=name_of(schedule, actor.actor_name),
            actor=actor.actor_name,
            queue=actor.queue_name,
            tz=self.settings.tz,
            policy=self.settings.policy,
        )

    # -- what users call ------------------------------------------------------------------------------------

    @property
    def broker(self) -> Broker:
        """The broker this middleware was added to. Raises ``ConfigurationError`` before that is known."""
        if self._broker is None:
            raise ConfigurationError("DistCron is on no broker yet: use install(broker) or declare an actor first.")
        return self._broker

    @property
    def dead_letters(self) -> DeadLetterQueue:
        """The messages that died."""
        found = next((one for one in self.broker.middleware if isinstance(one, DeadLetters)), None)
        return DeadLetterQueue(self.broker, self.open_backend, found)

    @property
    def retries(self) -> WaitingRetries:
        """The messages that wait for their retry."""
        return WaitingRetries(self.open_backend)

    @property
    def schedules(self) -> Schedules:
        """The stored schedules."""
        return Schedules(self.broker, self.settings, self.open_backend)

    def status(self) -> Status:
        """Who is on duty, and which processes there are."""
        return read_status(self.open_backend(), self.settings.app)

    def open_backend(self) -> Backend:
        """The store and the publisher of this broker. Raises ``ConflictError`` if it cannot be served."""
        if self._backend is None:
            refuse_doubled(self.broker)
            self._backend = open_backend(self.broker, self.settings)
        return self._backend

    def close(self) -> None:
        """Closes our connections; they are opened again when they are needed."""
        if self._backend is not None:
            self._backend.close()


def install(broker: Broker, **options: Unpack[DistCronOptions]) -> DistCron:
    """Adds the middleware to ``broker``. Call it before the actors are declared.

    :class:`DeadLetters` is added, unless there is one. Where the broker has Dramatiq's ``Retries``,
    :class:`BackoffRetries` takes its place, with its settings.

    Parameters:
      broker: the broker the actors are declared on.
      **options: those of :class:`DistCron`.

    Raises:
      ConflictError: it is there already.
      ConfigurationError: it is no broker, or an option is unknown or has a value it cannot have.
    """
    _refuse_no_broker(broker, "install()")
    if any(isinstance(middleware, DistCron) for middleware in broker.middleware):
        raise ConflictError(
            "This broker has a DistCron middleware already. Install it once; get_distcron(broker) gives it."
        )
    distcron = DistCron(**options)
    distcron._broker = broker
    replace_retries(broker, distcron)
    broker.add_middleware(distcron)
    if not any(isinstance(middleware, DeadLetters) for middleware in broker.middleware):
        broker.add_middleware(DeadLetters())
    distcron.attach(broker)
    broker.add_middleware(distcron.settle)
    return distcron


def refuse_doubled(broker: Broker) -> None:
    """Raises ``ConflictError`` if there are two where one does the work: in a worker both would do it."""
    refuse_two(broker)
    refuse_two_of_letters(broker)
    if sum(isinstance(middleware, DistCron) for middleware in broker.middleware) > 1:
        raise ConflictError(
            "This broker has two DistCron middlewares. Call install(broker) once, and add no DistCron besides."
        )


def get_distcron(broker: Broker | None = None) -> DistCron:
    """The DistCron middleware of ``broker``, or of the global broker.

    Raises:
      ConfigurationError: it has none, or is no broker.
    """
    if broker is None:
        # get_broker() would make one up.
        broker = dramatiq.broker.global_broker
        if broker is None:
            raise ConfigurationError("No broker is set. Call dramatiq.set_broker(broker), or name the broker.")
    _refuse_no_broker(broker, "get_distcron()")
    for middleware in broker.middleware:
        if isinstance(middleware, DistCron):
            middleware._broker = broker
            return middleware
    raise ConfigurationError(
        f"{type(broker).__name__} has no DistCron middleware. Call dramatiq_distcron.install(broker) where the broker "
        "is made, before the actors are declared."
    )


def _refuse_no_broker(broker: object, where: str) -> None:
    if not isinstance(broker, dramatiq.broker.Broker):
        raise ConfigurationError(f"{where} takes a broker, such as RedisBroker(url=...), not {quoted(broker)}.")


def installed() -> list[DistCron]:
    """Every DistCron of this process that is on a broker."""
    return [one for one in _everywhere if one._broker is not None]


def _no_schedule(actor: Actor[Any, Any], found: Any) -> ConfigurationError:
    return ConfigurationError(
        f"periodic= of actor {actor.actor_name!r} must be a schedule such as cron('0 3 * * *') or every(60), or a "
        f"list of them, not {quoted(found)}.{_meant(found)}"
    )


def _meant(found: object) -> str:
    """What somebody may have meant who comes from elsewhere."""
    if isinstance(found, str):
        return f" Did you mean periodic=cron({quoted(found)})?"
    if isinstance(found, (int, float, timedelta)):
        return f" Did you mean periodic=every({quoted(found)})?"
    elsewhere = type(found).__module__.partition(".")[0]
    if elsewhere == "apscheduler":
        return " Give a trigger of APScheduler 3 to from_apscheduler(trigger)."
    return " Import cron from dramatiq_distcron, and not from periodiq." if elsewhere == "periodiq" else ""


def _same_name(
    name: str, first: tuple[Actor[Any, Any], Schedule], actor: Actor[Any, Any], schedule: Schedule
) -> ConflictError:
    if first[0] is actor and schedule.name is None:
        return ConflictError(
            f"Actor {actor.actor_name!r} has several schedules without a name, and each would get the actor's. "
            "Give them names: cron(..., name='...')."
        )
    return ConflictError(
        f"Two schedules are named {name!r}: one of actor {first[0].actor_name!r} and one of {actor.actor_name!r}. "
        "A name stands for one schedule; give one of them another with name='...'."
    )
