"""For tests of apps: periods of any length in no time, without Redis and without sleeping."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dramatiq import Message
from dramatiq.brokers.stub import StubBroker

from .beat import Beat
from .durations import FIRST_INSTANT, LAST_INSTANT, Duration, instant_ms, milliseconds, utc
from .edits import next_score
from .errors import ConfigurationError, quoted
from .middleware.distcron import get_distcron
from .specs import parse_spec
from .store.base import NEVER, Edit, Guard
from .store.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .middleware.distcron import DistCron

__all__ = ["MemoryStore", "RanTick", "SettableClock", "run_ticks"]


class SettableClock:
    """A clock that stands still until it is told otherwise.

    Parameters:
      start: an aware datetime to begin with.
    """

    def __init__(self, start: datetime) -> None:
        self._ms = instant_ms(start, "The start of the clock")

    def now_ms(self) -> int:
        """The time in UTC ms: what a :class:`~dramatiq_distcron.testing.MemoryStore` takes as its clock."""
        return self._ms

    def monotonic(self) -> float:
        """The same in seconds: what a process takes as its clock."""
        return self._ms / 1000

    def set(self, instant: datetime) -> None:
        """Goes to an instant, also to an earlier one."""
        self._ms = instant_ms(instant, "The time of the clock")

    def advance(self, seconds: Duration) -> None:
        """Goes forward, by seconds or a ``timedelta``."""
        self._ms = self._ms + milliseconds(seconds, "How far the clock goes")
        if self._ms > LAST_INSTANT:
            self._ms = LAST_INSTANT
            raise ConfigurationError("The clock is at the end of the year 9999, and goes no further.")


@dataclass(frozen=True)
class RanTick:
    """What became of one fire time, or of several equal ones up to ``fire_time_to``.

    Attributes:
      schedule: the schedule's name.
      fire_time, fire_time_to: in UTC.
      outcome: ``enqueued``, ``missed``, ``skipped_overlap`` …, as in the history.
      reason: why, unless it was enqueued.
      message: what was put on the queue, if it was.
    """

    schedule: str
    fire_time: datetime
    fire_time_to: datetime
    outcome: str
    reason: str
    message: Message[Any] | None


def run_ticks(broker: StubBroker, start: datetime, end: datetime) -> list[RanTick]:
    """Fires every tick from ``start`` up to, and without, ``end``, as a beat would that was there all the time.

    The messages are put on the broker's queues; start a ``Worker`` to have them processed. All schedules begin at
    ``start``, also those that came by the API. With overlap ``skip`` or ``buffer_one`` a run is over when a worker has
    processed it, so none begins after the first as long as there is no worker.

    What one call leaves behind is there in the next on the same broker: messages, runs that are not over, pauses, the
    history, and that a schedule was stored before. For a fresh start, make a new broker. What is not enqueued comes
    as one ``RanTick`` for fire times in a row, and it may have begun in the call before. The extra tick of
    ``run_at_start`` is one millisecond before ``start``, in the first call alone.

    Parameters:
      broker: a ``StubBroker`` with the DistCron middleware.
      start, end: aware datetimes.

    Returns:
      What became of each fire time, in order.

    Raises:
      ConfigurationError: the broker is no ``StubBroker``, an instant is naive, or ``end`` is before ``start``.
    """
    if not isinstance(broker, StubBroker):
        raise ConfigurationError(
            "run_ticks() is for StubBroker; another broker would put messages where workers take them, and "
            f"{quoted(broker)} is none."
        )
    distcron = get_distcron(broker)
    store = distcron.open_backend().store
    if not isinstance(store, MemoryStore):
        raise ConfigurationError(
            "run_ticks() is for StubBroker; this broker would put messages where workers take them."
        )
    first, last = instant_ms(start, "The start"), instant_ms(end, "The end")
    if last < first:
        raise ConfigurationError(
            f"The period of run_ticks() ends before it starts: from {start.isoformat()} to {end.isoformat()}. "
            "The start comes first."
        )
    clock = SettableClock(utc(max(first - 1, FIRST_INSTANT)))
    with store.running_on(clock.now_ms):
        return list(_run(distcron, store, clock, last))


def _run(distcron: DistCron, store: MemoryStore, clock: SettableClock, end: int) -> Iterator[RanTick]:
    beat = Beat(distcron, clock=clock)
    beat.lease.acquire()
    _restart_all(store, clock.now_ms())
    beat.office.take()
    seen = store.appended
    due: int | None = clock.now_ms()
    while due is not None and due < end:
        clock.set(utc(due))
        beat.lease.acquire()
        report = beat.scheduler.pass_once(due)
        # One that waits for a run to be over is looked at with each of its fire times.
        due = due if report.more else report.next_score or _next_of_waiting(store, due)
    beat.lease.release()
    yield from _ran(distcron, store, seen)


def _next_of_waiting(store: MemoryStore, now: int) -> int | None:
    """The next fire time of schedules whose cursor stays on a tick that has to wait."""
    specs = [parse_spec(stored.spec) for stored in store.scan() if stored.score is not None and stored.score <= now]
    coming = (next_score(spec, now) for spec in specs if spec.retired is None)
    return min((score for score in coming if score < NEVER), default=None)


def _restart_all(store: MemoryStore, now: int) -> None:
    """Sets every cursor to the first fire time from now on: it may have been stored years later."""
    edits = [
        Edit(stored.name, stored, spec.to_json(), next_score(spec, now))
        for stored in list(store.scan())
        if (spec := parse_spec(stored.spec)).retired is None
    ]
    store.edit(Guard("", 0, now), edits)


def _ran(distcron: DistCron, store: MemoryStore, seen: int) -> Iterator[RanTick]:
    messages = {message.message_id: message for message in _queued(distcron.broker)}
    ticks = [fields for fields in store.records_since(seen) if "run" not in fields]
    for fields in sorted(ticks, key=lambda one: (int(one["fire_time"]), one["schedule"])):
        yield RanTick(
            schedule=fields["schedule"],
            fire_time=utc(int(fields["fire_time"])),
            fire_time_to=utc(int(fields["fire_time_to"])),
            outcome=fields["outcome"],
            reason=fields["reason"],
            message=messages.get(fields["message_id"]),
        )


def _queued(broker: Any) -> Iterator[Message[Any]]:
    for queue in broker.queues.values():
        for data in list(queue.queue):
            yield Message.decode(data)
