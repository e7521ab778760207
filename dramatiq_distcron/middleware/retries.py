"""The middleware that decides over a failed run: in Dramatiq's place, with everything Dramatiq's can do.

It only decides. What it decided is recorded by the middleware that ends deliveries, in one step with the ack, so that
a failed message is never in zero places and its retry exists once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dramatiq import RateLimitExceeded
from dramatiq.middleware import Middleware, SkipMessage
from dramatiq.middleware.retries import Retries

from ..errors import ConfigurationError, ConflictError, DistCronError, quoted
from ..logs import get_logger
from ..retry_budget import RetryBudget
from ..retrying import ABORTED, EXHAUSTED, POISON, TOO_OLD, Again, End, Failure, chooser, decide, late
from .marks import Planned, attempt_of, marks_of
from .recording import Recorder
from .retry_options import CHECKED, DURATIONS, checked, checked_budget
from .telling import HISTORY, about, delivery_of, previous_delay, tell_failure

if TYPE_CHECKING:
    from datetime import timedelta

    from dramatiq import Actor, Broker, Worker
    from dramatiq.broker import MessageProxy

__all__ = ["HISTORY", "BackoffRetries", "refuse_two", "replace_retries"]


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
        given: dict[str, Any] = {"min_backoff": min_backoff, "max_backoff": max_backoff, "max_retry_age": max_retry_age}
        given = {name: value for name, value in given.items() if value is not None}
        given.update(backoff=backoff, max_deliveries=max_deliveries, max_retries=max_retries, retry_when=retry_when)
        options = checked(given, "BackoffRetries()")
        self.min_backoff = options.get("min_backoff", self.min_backoff)
        self.max_backoff = options.get("max_backoff", self.max_backoff)
        self._defaults = options
        self._budgets: dict[str, RetryBudget] = {}
        self._budget = checked_budget(retry_budget)
        self._take_in_budget(self._budget, "BackoffRetries()")
        if rng is not None and not isinstance(rng, random.Random):
            raise ConfigurationError(f"rng of BackoffRetries() must be a random.Random, not {quoted(rng)}.")
        self._rng = rng or random.Random()
        self._told: Recorder | None = None

    @property
    def actor_options(self) -> set[str]:
        return {*super().actor_options, "backoff", "max_retry_age", "max_deliveries", "retry_budget"}

    def attach(self, recorder: Recorder) -> None:
        """Tells it who records what it decides."""
        self._told = recorder

    @property
    def _recorder(self) -> Recorder:
        if self._told is None:
            raise ConflictError(
                "BackoffRetries needs DistCron on the same broker, which records the retries: use install(broker)."
            )
        return self._told

    # -- taking actors in -----------------------------------------------------------------------------------

    def before_declare_actor(self, broker: Broker, actor: Actor[Any, Any]) -> None:
        """Checks the actor's options. Raises ``ConfigurationError`` if one cannot be."""
        options = actor.options
        where = f"actor {actor.actor_name!r}"
        found = checked({name: options[name] for name in options if name in CHECKED}, where)
        options.update((name, found[name]) for name in DURATIONS if name in found)
        # One without a name has the actor's.
        self._take_in_budget(self._budget_of(actor), where)

    def _take_in_budget(self, budget: RetryBudget | None, where: str) -> None:
        if budget is None or budget.name is None:
            return
        known = self._budgets.setdefault(budget.name, budget)
        if known != budget:
            raise ConflictError(
                f"The retry budget {budget.name!r} of {where} has other numbers than the one of that name "
                "that is known already. Make one RetryBudget(...) and give it to all."
            )

    def before_worker_boot(self, broker: Broker, worker: Worker) -> None:
        """Raises ``ConflictError`` if a message would be retried twice, or its retry not be recorded."""
        refuse_two(broker)
        # In a list of middlewares it may come before the one that records, which is told of the worker after it.
        for one in broker.middleware:
            if isinstance(one, Recorder):
                self.attach(one)
        self._recorder  # noqa: B018

    # -- a run --------------------------------------------------------------------------------------------------

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        """Counts the delivery, if its actor wants that.

        Raises:
          SkipMessage: it killed too many workers, or is a retry that comes too late.
        """
        marks = marks_of(message)
        marks.undecided, marks.attempt = True, attempt_of(message)
        self._refuse_late(broker, message)
        self._refuse_poison(broker, message)

    def _refuse_late(self, broker: Broker, message: MessageProxy) -> None:
        actor, retries = broker.actors.get(message.actor_name), attempt_of(message)
        if actor is None or not retries:
            return
        age = self._recorder.mover.now() - message.message_timestamp
        end = late(age, message.options, actor.options, self._defaults_now)
        if end is not None:
            # The last one of them was not run.
            self._announce(broker, message, actor, retries - 1, end)
            self._end_unrun(message, end.reason, f"Its retry comes {age / 1000:g} s after it was enqueued first.")

    def _end_unrun(self, message: MessageProxy, reason: str, why: str) -> None:
        marks_of(message).reason = reason
        self.logger.error("Message %s is ended, %s: %s", message.message_id, reason, why)
        message.fail()
        skipped = SkipMessage(why)
        message.stuff_exception(skipped)
        raise skipped

    def _refuse_poison(self, broker: Broker, message: MessageProxy) -> None:
        limit = self._option(broker, message, "max_deliveries")
        if limit is None:
            return
        try:
            count = self._recorder.open_backend().store.count_delivery(delivery_of(message))
        except DistCronError as error:
            self.logger.warning("A delivery of message %s could not be counted: %s", message.message_id, error)
            return
        marks_of(message).counted = True
        if count > limit:
            self._end_unrun(message, POISON, f"Its worker was killed in {count - 1} runs (max_deliveries={limit}).")

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: Any = None, exception: BaseException | None = None
    ) -> None:
        """Decides what becomes of a failed run, and notes it for the end of the delivery."""
        if exception is not None:
            self._decide(broker, message, exception)
            return
        marks_of(message).undecided = False
        budget = self._budget_of(broker.get_actor(message.actor_name))
        if budget is not None:
            self._recorder.mover.earned(budget)

    def after_skip_message(self, broker: Broker, message: MessageProxy) -> None:
        marks_of(message).undecided = False

    def before_ack(self, broker: Broker, message: MessageProxy) -> None:
        """Decides now if a time limit, or the worker's end, cut in while that was done: an ack would be a loss."""
        if marks_of(message).undecided and message._exception is not None:
            self._decide(broker, message, message._exception)

    def _decide(self, broker: Broker, message: MessageProxy, exception: BaseException) -> None:
        """By the options. If that fails, by ``max_retries`` and the formula: an error would end in an ack."""
        marks = marks_of(message)
        retries = attempt_of(message) if marks.attempt is None else marks.attempt
        if retries != attempt_of(message):
            # This was cut off before.
            message.options["retries"] = retries
        try:
            self._decide_by_options(broker, message, exception)
        except Exception:
            self.logger.exception("What becomes of message %s was decided without its options.", message.message_id)
            message.options["retries"] = retries + 1
            verdict = decide(Failure(exception, retries), {}, {}, {"max_retries": self.max_retries}, self._rng)
            self._note(message, verdict, None)
        marks.undecided = False

    def _decide_by_options(self, broker: Broker, message: MessageProxy, exception: BaseException) -> None:
        actor = broker.get_actor(message.actor_name)
        now, retries = self._recorder.mover.now(), attempt_of(message)
        failure = Failure(exception, retries, max(0, now - message.message_timestamp), previous_delay(message))
        verdict = decide(failure, message.options, self._options_of(actor), self._defaults_now, self._rng)
        if not (isinstance(verdict, End) and verdict.reason == ABORTED):
            tell_failure(message, exception, now, verdict.delay if isinstance(verdict, Again) else None)
        self._note(message, verdict, None if isinstance(exception, RateLimitExceeded) else self._budget_of(actor))
        if isinstance(verdict, End):
            self._announce(broker, message, actor, retries, verdict)

    def _note(self, message: MessageProxy, verdict: Again | End, budget: RetryBudget | None) -> None:
        if isinstance(verdict, Again):
            self.logger.info("Message %s is retried in %d ms.", message.message_id, verdict.delay)
            marks_of(message).planned = Planned(verdict.delay, about(message, budget))
            return
        if verdict.reason == ABORTED:
            self.logger.info("Aborting message %s.", message.message_id)
        else:
            self.logger.warning("No more retries for message %s: %s.", message.message_id, verdict.reason)
        marks_of(message).reason = verdict.reason
        message.fail()

    def after_ack(self, broker: Broker, message: MessageProxy) -> None:
        """The delivery came to its end."""
        if marks_of(message).counted:
            try:
                self._recorder.open_backend().store.forget_delivery(delivery_of(message))
            except DistCronError as error:
                self.logger.debug("The count of message %s stays until it fades: %s", message.message_id, error)

    after_nack = after_ack

    def _announce(
        self, broker: Broker, message: MessageProxy, actor: Actor[Any, Any], retries: int, verdict: End
    ) -> None:
        """The message to the actor that is to be told, made now and put into its queue when the delivery ends."""
        target = message.options.get("on_retry_exhausted") or actor.options.get("on_retry_exhausted")
        if not target or verdict.reason not in (EXHAUSTED, TOO_OLD):
            return
        counts = {"retries": retries, "max_retries": verdict.max_retries}
        try:
            marks_of(message).announce = broker.get_actor(target).message(message.asdict(), counts)
        except Exception:
            self.logger.exception("The actor %r cannot be told that message %s ended.", target, message.message_id)

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
        budget = checked_budget(actor.options.get("retry_budget")) or self._budget
        if budget is None or budget.name is not None:
            return budget
        return RetryBudget(actor.actor_name, ratio=budget.ratio, floor=budget.floor, burst=budget.burst)


# -- in the place of Dramatiq's -------------------------------------------------------------------------------


def replace_retries(broker: Broker, recorder: Recorder) -> None:
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
        ours.attach(recorder)


def refuse_two(broker: Broker) -> None:
    """Raises ``ConflictError`` if two middlewares would retry a message."""
    retrying: list[Middleware] = [one for one in broker.middleware if isinstance(one, Retries)]
    if len(retrying) > 1 and any(isinstance(one, BackoffRetries) for one in retrying):
        names = ", ".join(type(one).__name__ for one in retrying)
        raise ConflictError(
            f"Several middlewares of this broker retry messages: {names}. Each failure would be retried by all of "
            "them: leave Retries out, or call install(broker), which puts BackoffRetries in its place."
        )
