"""The middleware that decides over a failed run: in Dramatiq's place, with everything Dramatiq's can do.

It only decides. What it decided is recorded by the middleware that ends deliveries, in one step with the ack, so that
a failed message is never in zero places and its retry exists once.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dramatiq import RateLimitExceeded
from dramatiq.middleware import Middleware, SkipMessage
from dramatiq.middleware.retries import Retries

from ..durations import milliseconds
from ..errors import ConfigurationError, ConflictError, DistCronError
from ..logs import get_logger
from ..retry_budget import RetryBudget
from ..retrying import ABORTED, EXHAUSTED, POISON, TOO_OLD, Chooser, End, Failure, chooser, decide
from .marks import Planned, attempt_of, marks_of

if TYPE_CHECKING:
    from dramatiq import Actor, Broker, Worker
    from dramatiq.broker import MessageProxy

    from .distcron import DistCron

__all__ = ["HISTORY", "BackoffRetries", "refuse_two", "replace_retries"]

#: The message option that tells of the failures before.
HISTORY = "distcron_retries"
#: How many failures are told of, and how long the text of one may be, in characters.
_FAILURES, _TEXT = 5, 200

_DURATIONS = ("min_backoff", "max_backoff", "max_retry_age")


class BackoffRetries(Retries):
    """Retries failed messages, durably and without storms. ``install(broker)`` puts it in the place of ``Retries``.

    Every option of Dramatiq's ``Retries`` keeps its meaning, its formula and its order: message, actor, middleware.
    Durations are in ms or ``timedelta``, as Dramatiq's users know them; strategies are made in seconds.

    Parameters:
      max_retries: how often a message is retried at most (default 20; ``None``: for ever).
      min_backoff, max_backoff: the bounds of Dramatiq's formula (default 15 s and 7 days). 0 means 0.
      retry_when: ``(retries, exception) -> bool``, instead of ``max_retries``.
      backoff: how long to wait instead of the formula: a strategy (:func:`~dramatiq_distcron.exponential` and its
        like), seconds, a list of seconds of which the last repeats, a callable ``(attempt, exception) -> seconds``, or
        a mapping from exception classes to any of these, in which the nearest class counts. Also an option of actors,
        and, as a number or a list of numbers, of messages.
      max_retry_age: no retry comes later than so long after the message was enqueued first. Also an option of actors
        and messages.
      max_deliveries: a message whose worker was killed in so many runs is ended as ``poison`` (default: not counted).
        Also an option of actors.
      retry_budget: a :class:`~dramatiq_distcron.RetryBudget`, or the name of one with the defaults. Also an option of
        actors.
      rng: where chance comes from.

    Raises:
      ConfigurationError: an option has a value it cannot have, or two exclude each other.
    """

    def __init__(
        self,
        *,
        max_retries: int | None = 20,
        min_backoff: int | timedelta | None = None,
        max_backoff: int | timedelta | None = None,
        retry_when: Callable[[int, BaseException], bool] | None = None,
        backoff: Any = None,
        max_retry_age: int | timedelta | None = None,
        max_deliveries: int | None = None,
        retry_budget: RetryBudget | str | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(max_retries=max_retries, retry_when=retry_when)  # type: ignore[arg-type]
        self.logger = get_logger(__name__, type(self))
        given = {"min_backoff": min_backoff, "max_backoff": max_backoff, "max_retry_age": max_retry_age}
        given = {name: value for name, value in given.items() if value is not None}
        options = _checked({**given, "backoff": backoff, "max_deliveries": max_deliveries}, "BackoffRetries()")
        self.min_backoff = options.get("min_backoff", self.min_backoff)
        self.max_backoff = options.get("max_backoff", self.max_backoff)
        self._defaults = {**options, "max_retries": max_retries, "retry_when": retry_when}
        self._budget = _checked_budget(retry_budget)
        self._budgets: dict[str, RetryBudget] = {}
        self._rng = rng or random.Random()
        self._distcron: DistCron | None = None

    @property
    def actor_options(self) -> set[str]:
        return {*super().actor_options, "backoff", "max_retry_age", "max_deliveries", "retry_budget"}

    def attach(self, distcron: DistCron) -> None:
        """Tells it who records what it decides."""
        self._distcron = distcron

    @property
    def _recorder(self) -> DistCron:
        if self._distcron is None:
            raise ConflictError(
                "BackoffRetries needs DistCron on the same broker, which records the retries: use install(broker)."
            )
        return self._distcron

    # -- taking actors in -----------------------------------------------------------------------------------

    def before_declare_actor(self, broker: Broker, actor: Actor[Any, Any]) -> None:
        """Checks the actor's options. Raises ``ConfigurationError`` if one cannot be."""
        options = actor.options
        checked = _checked({name: options[name] for name in options if name in _CHECKED}, f"actor {actor.actor_name!r}")
        for name in _DURATIONS:
            if name in checked:
                options[name] = checked[name]
        self._take_in_budget(_checked_budget(options.get("retry_budget")), actor.actor_name)

    def _take_in_budget(self, budget: RetryBudget | None, actor: str) -> None:
        if budget is None or budget.name is None:
            return
        known = self._budgets.setdefault(budget.name, budget)
        if known != budget:
            raise ConflictError(
                f"The retry budget {budget.name!r} of actor {actor!r} has other numbers than the one of that name "
                "that is known already. Make one RetryBudget(...) and give it to each actor."
            )

    def before_worker_boot(self, broker: Broker, worker: Worker) -> None:
        """Raises ``ConflictError`` if a message would be retried twice, or its retry not be recorded."""
        refuse_two(broker)
        self._recorder  # noqa: B018

    # -- a run --------------------------------------------------------------------------------------------------

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        """Counts the delivery, if its actor wants that. Raises ``SkipMessage`` for one that killed too many workers."""
        limit = self._option(broker, message, "max_deliveries")
        if limit is None:
            return
        marks = marks_of(message)
        try:
            count = self._recorder.open_backend().store.count_delivery(_delivery(message))
        except DistCronError as error:
            self.logger.warning("A delivery of message %s could not be counted: %s", message.message_id, error)
            return
        marks.counted = True
        if count > limit:
            marks.reason = POISON
            self.logger.error("Message %s is ended: %d runs of it were killed.", message.message_id, count - 1)
            message.fail()
            poisoned = SkipMessage(f"Its worker was killed in {count - 1} runs (max_deliveries={limit}).")
            message.stuff_exception(poisoned)
            raise poisoned

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        """Decides what becomes of a failed run, and notes it for the end of the delivery."""
        actor = broker.get_actor(message.actor_name)
        if exception is None:
            budget = self._budget_of(actor)
            if budget is not None:
                self._recorder.mover.earned(budget)
            return
        now = self._recorder.mover.now()
        failure = Failure(exception, attempt_of(message), max(0, now - message.message_timestamp), _previous(message))
        verdict = decide(failure, message.options, self._options_of(actor), self._defaults_now, self._rng)
        if isinstance(verdict, End) and verdict.reason == ABORTED:
            self.logger.info("Aborting message %s.", message.message_id)
            self._end(message, verdict.reason)
            return
        self._tell_failure(message, failure, now, None if isinstance(verdict, End) else verdict.delay)
        if isinstance(verdict, End):
            self.logger.warning("No more retries for message %s: %s.", message.message_id, verdict.reason)
            self._end(message, verdict.reason)
            self._announce(broker, message, actor, failure.retries, verdict)
            return
        self.logger.info("Message %s is retried in %d ms.", message.message_id, verdict.delay)
        budget = None if isinstance(exception, RateLimitExceeded) else self._budget_of(actor)
        marks_of(message).planned = Planned(verdict.delay, _about(message, budget))

    def after_ack(self, broker: Broker, message: MessageProxy) -> None:
        """The delivery came to its end."""
        if marks_of(message).counted:
            try:
                self._recorder.open_backend().store.forget_delivery(_delivery(message))
            except DistCronError as error:
                self.logger.debug("The count of message %s stays until it fades: %s", message.message_id, error)

    after_nack = after_ack

    def _end(self, message: MessageProxy, reason: str) -> None:
        marks_of(message).reason = reason
        message.fail()

    def _announce(
        self, broker: Broker, message: MessageProxy, actor: Actor[Any, Any], retries: int, verdict: End
    ) -> None:
        """The message to the actor that is to be told, made now and put into its queue when the delivery ends."""
        target = message.options.get("on_retry_exhausted") or actor.options.get("on_retry_exhausted")
        if not target or verdict.reason not in (EXHAUSTED, TOO_OLD):
            return
        about = {"retries": retries, "max_retries": verdict.max_retries}
        try:
            marks_of(message).announce = broker.get_actor(target).message(message.asdict(), about)
        except Exception:
            self.logger.exception("The actor %r cannot be told that message %s ended.", target, message.message_id)

    def _tell_failure(self, message: MessageProxy, failure: Failure, now: int, delay: int | None) -> None:
        """What Dramatiq tells in the message's options, and our own."""
        error = failure.exception
        message.options["retries"] = failure.retries + 1
        message.options["traceback"] = "".join(traceback.format_exception(error, limit=30))
        message.options["requeue_timestamp"] = now
        told = _history(message)
        attempt = {"at": now, "error": type(error).__name__, "text": _cut(error)}
        message.options[HISTORY] = {
            "attempt": failure.retries + 1,
            "first_failed_at": told.get("first_failed_at", now),
            "last_error": type(error).__name__,
            "next_delay": delay,
            "attempts": [*told.get("attempts", []), attempt][-_FAILURES:],
        }

    # -- options --------------------------------------------------------------------------------------------

    @property
    def _defaults_now(self) -> dict[str, Any]:
        # Attributes, as Dramatiq's: somebody may set them.
        own = {"max_retries": self.max_retries, "retry_when": self.retry_when}
        return {**self._defaults, "min_backoff": self.min_backoff, "max_backoff": self.max_backoff, **own}

    def _options_of(self, actor: Actor[Any, Any]) -> dict[str, Any]:
        options: dict[str, Any] = actor.options
        if options.get("backoff") is None:
            return options
        return {**options, "backoff": chooser(options["backoff"], f"backoff of actor {actor.actor_name!r}")}

    def _option(self, broker: Broker, message: MessageProxy, name: str) -> Any:
        actor = broker.actors.get(message.actor_name)
        return (actor.options if actor else {}).get(name, self._defaults.get(name))

    def _budget_of(self, actor: Actor[Any, Any]) -> RetryBudget | None:
        budget = _checked_budget(actor.options.get("retry_budget")) or self._budget
        if budget is None or budget.name is not None:
            return budget
        return RetryBudget(actor.actor_name, ratio=budget.ratio, floor=budget.floor, burst=budget.burst)


# -- in the place of Dramatiq's -------------------------------------------------------------------------------


def replace_retries(broker: Broker, distcron: DistCron) -> None:
    """Puts ours where Dramatiq's ``Retries`` is, with its settings. One of ours that is there stays.

    A subclass of ``Retries`` that is not ours is left alone, and so is a broker without any.
    """
    ours = next((one for one in broker.middleware if isinstance(one, BackoffRetries)), None)
    theirs = [one for one in broker.middleware if type(one) is Retries]
    if ours is None and theirs:
        ours = BackoffRetries(max_retries=theirs[0].max_retries, retry_when=theirs[0].retry_when)
        ours.min_backoff, ours.max_backoff = theirs[0].min_backoff, theirs[0].max_backoff
        broker.add_middleware(ours, before=Retries)
    broker.middleware = [one for one in broker.middleware if type(one) is not Retries]
    if ours is not None:
        ours.attach(distcron)


def refuse_two(broker: Broker) -> None:
    """Raises ``ConflictError`` if two middlewares would retry a message."""
    retrying: list[Middleware] = [one for one in broker.middleware if isinstance(one, Retries)]
    if len(retrying) > 1 and any(isinstance(one, BackoffRetries) for one in retrying):
        names = ", ".join(type(one).__name__ for one in retrying)
        raise ConflictError(
            f"Several middlewares of this broker retry messages: {names}. Each failure would be retried by all of "
            "them: leave Retries out, or call install(broker), which puts BackoffRetries in its place."
        )


# -- checks ---------------------------------------------------------------------------------------------------

_CHECKED = (*_DURATIONS, "backoff", "max_deliveries", "throws", "retry_when")


def _checked(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The options with durations in ms and ``backoff`` as a chooser. Raises ``ConfigurationError``."""
    found = dict(options)
    clashing = [name for name in ("min_backoff", "max_backoff") if name in options]
    if options.get("backoff") is not None:
        if clashing:
            raise ConflictError(f"{where} has backoff= and {clashing[0]}=, which exclude each other: leave one out.")
        found["backoff"] = _chooser(options["backoff"], where)
    for name in _DURATIONS:
        if options.get(name) is not None:
            found[name] = _ms(options[name], f"{name} of {where}")
    limit = options.get("max_deliveries")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise ConfigurationError(f"max_deliveries of {where} must be a whole number from 1, not {limit!r}.")
    _refuse_no_classes(options.get("throws"), where)
    if options.get("retry_when") is not None and not callable(options["retry_when"]):
        raise ConfigurationError(f"retry_when of {where} must be callable, not {options['retry_when']!r}.")
    return found


def _chooser(backoff: Any, where: str) -> Chooser:
    return chooser(backoff, f"backoff of {where}")


def _ms(value: Any, what: str) -> int | float:
    """Milliseconds or a ``timedelta``, as Dramatiq's users know them."""
    if isinstance(value, timedelta):
        return milliseconds(value, what)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ConfigurationError(f"{what} must be milliseconds or a timedelta, not {value!r}.")
    return value


def _refuse_no_classes(throws: Any, where: str) -> None:
    classes = throws if isinstance(throws, tuple) else () if throws is None else (throws,)
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise ConfigurationError(
                f"throws of {where} must be an exception class or a tuple of them, not {throws!r}."
            )


def _checked_budget(budget: Any) -> RetryBudget | None:
    if budget is None or isinstance(budget, RetryBudget):
        return budget
    if isinstance(budget, str):
        return RetryBudget(budget)
    raise ConfigurationError(f"retry_budget must be a RetryBudget or the name of one, not {budget!r}.")


# -- what a message tells -------------------------------------------------------------------------------------


def _history(message: MessageProxy) -> dict[str, Any]:
    told = message.options.get(HISTORY)
    if isinstance(told, dict) and isinstance(told.get("attempts", []), list):
        return told
    return {}


def _previous(message: MessageProxy) -> int | None:
    """The wait before this run in ms, if it was a retry."""
    delay = _history(message).get("next_delay")
    return delay if isinstance(delay, int) and not isinstance(delay, bool) else None


def _cut(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = "<its text cannot be made>"
    return text[:_TEXT].encode("utf-8", "replace").decode()


def _delivery(message: MessageProxy) -> str:
    """What one delivery and its redeliveries have in common, and the message's retries have not."""
    own = message.options.get("redis_message_id")
    return own if isinstance(own, str) else f"{message.message_id}.{attempt_of(message)}"


def _about(message: MessageProxy, budget: RetryBudget | None) -> dict[str, Any]:
    told = _history(message)
    tick = message.options.get("distcron")
    about = {
        "id": message.message_id,
        "actor": message.actor_name,
        "queue": message.queue_name,
        "attempt": told.get("attempt"),
        "first_failed_at": told.get("first_failed_at"),
        "error": told.get("last_error"),
        "schedule": tick.get("schedule") if isinstance(tick, dict) else None,
        "fire_time": tick.get("fire_time") if isinstance(tick, dict) else None,
    }
    return about if budget is None else {**about, "budget": [budget.name, budget.floor, budget.burst]}
