"""A broker, a store and a clock in memory, and passes that are stepped by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import dramatiq
from dramatiq import Message
from dramatiq.brokers.stub import StubBroker

from dramatiq_distcron import Schedule, install
from dramatiq_distcron.backends import Backend
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.publishing import StubPublisher
from dramatiq_distcron.scheduler import PassReport
from dramatiq_distcron.store.base import Ending, Stored
from dramatiq_distcron.testing import MemoryStore, SettableClock
from tests.support import queued

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)


class World:
    """One app on a StubBroker. ``gone``: ids of messages that are not in the broker any more."""

    def __init__(self, broker: StubBroker, **options: Any) -> None:
        self.broker = broker
        self.clock = SettableClock(BEGIN)
        self.gone: set[str] = set()
        self.lengths_asked: list[str] = []
        self.distcron = install(broker, **options)
        self.store = MemoryStore(
            self.clock.now_ms, self._dispatch, is_there=self._is_there, length=self._length, history_size=1000
        )
        self.distcron._backend = Backend(self.store, StubPublisher(broker), "dramatiq")
        self._beat: Beat | None = None

    def _dispatch(self, call: Sequence[Any]) -> None:
        queue, data = call
        self.broker.queues[queue].put(data)

    def _is_there(self, place: str, redis_id: str) -> bool:
        return not self.gone

    def _length(self, queue: str) -> int:
        self.lengths_asked.append(queue)
        length: int = self.broker.queues[queue].qsize()
        return length

    def actor(self, *schedules: Schedule, name: str = "job", **options: Any) -> dramatiq.Actor[Any, Any]:
        declare = dramatiq.actor(actor_name=name, broker=self.broker, periodic=list(schedules), **options)
        return declare(lambda *args: None)

    # -- the beat, by hand --------------------------------------------------------------------------------------

    @property
    def beat(self) -> Beat:
        """A beat that took office when it was asked for first."""
        if self._beat is None:
            self._beat = Beat(self.distcron, clock=self.clock)
            self._beat.lease.acquire()
            self._beat.office.take()
        return self._beat

    def restart(self) -> Beat:
        """Another beat takes over."""
        if self._beat is not None:
            self._beat.lease.release()
        self._beat = None
        return self.beat

    def at(self, seconds: float) -> PassReport:
        """A pass, so many seconds after the begin."""
        beat = self.beat
        self.clock.set(BEGIN + timedelta(seconds=seconds))
        beat.lease.acquire()
        return beat.scheduler.pass_once()

    # -- what there is ------------------------------------------------------------------------------------------

    def messages(self, queue: str = "default") -> list[Message[Any]]:
        return queued(self.broker, queue)

    def fired(self, queue: str = "default") -> list[tuple[str, float]]:
        """Schedule and fire time, in seconds since the begin, of the messages on a queue."""
        ticks = [message.options["distcron"] for message in self.messages(queue)]
        return [(tick["schedule"], seconds(tick["fire_time"])) for tick in ticks]

    def outcomes(self, name: str) -> list[tuple[str, float, float, int]]:
        """Outcome, first, last and count of what is recorded of a schedule, oldest first."""
        ticks = sorted(self.distcron.schedules.history(name, limit=1000), key=lambda tick: tick.fire_time)
        return [(tick.outcome, seconds(tick.fire_time), seconds(tick.fire_time_to), tick.count) for tick in ticks]

    def runs(self, name: str) -> list[str | None]:
        """The states of the runs of a schedule, oldest first."""
        ticks = sorted(self.distcron.schedules.history(name, limit=1000), key=lambda tick: tick.fire_time)
        return [tick.run.state if tick.run else None for tick in ticks if tick.message_id]

    def end_run(self, name: str, state: str = "succeeded") -> None:
        """The outstanding run of a schedule is over."""
        self.store.settle(Ending(self.store.outstanding(name), state))

    def stored(self, name: str) -> Stored:
        return self.store.get([name])[name]

    def spec(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads(self.stored(name).spec)
        return found


def seconds(ms: int) -> float:
    return (ms - int(BEGIN.timestamp() * 1000)) / 1000
