"""What must hold in every state a search comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dramatiq import Message

from dramatiq_distcron.errors import ScheduleError
from dramatiq_distcron.letters import DLQ_ACTOR
from dramatiq_distcron.specs import Spec, parse_spec
from dramatiq_distcron.store.base import NEVER, REMEMBERED, Edit
from dramatiq_distcron.ticks import ENQUEUED

from .deaths import Deaths
from .post import decoded, generation_of, named
from .stepping import Request

__all__ = ["Broken", "Laws", "Run"]


class Broken(AssertionError):
    """A law does not hold."""


class Run(NamedTuple):
    """An attempt at a tick; ``generation``: how often its message was redriven."""

    schedule: str
    fire_time: int
    attempt: int
    generation: int
    worker: str


@dataclass(frozen=True)
class Epoch:
    """The times a schedule had after ``since`` and up to ``until``; UTC ms."""

    spec: Spec
    since: int
    until: int | None = None


class Laws:
    """The laws of one world.

    Parameters:
      world: what they are about.
    """

    def __init__(self, world: Any) -> None:
        self.world = world
        self.epochs: dict[str, list[Epoch]] = {}
        #: The commits that came in, as (schedule, message id, message): ever, and since they were looked at.
        self.committed: list[Message[Any]] = []
        self._retried: list[tuple[str, int]] = []
        self._silent: set[str] = set()
        self._new = 0
        self._broken: str = ""
        self._changed = False
        self._begun: Counter[Run] = Counter()
        self.deaths = Deaths(world)

    # -- what is noted as it happens --------------------------------------------------------------------------

    def arrived(self, request: Request) -> None:
        """A command was carried out: what later laws need to know of it."""
        if request.label == "edit" and request.error is None and request.reply:
            guard, edits = request.args
            for edit, answer in zip(edits, request.reply, strict=True):
                if answer == "ok":
                    self._edited(edit, guard.now)
        if request.label == "claim_run":
            self._note_silent()
        self._changed = True
        self._take_commits()
        self.deaths.arrived(request)

    def _edited(self, edit: Edit, now: int) -> None:
        epochs = self.epochs.setdefault(edit.name, [])
        spec = self.spec(edit.name)
        if epochs and epochs[-1].until is None:
            if spec is not None and spec.times == epochs[-1].spec.times:
                return
            epochs[-1] = Epoch(epochs[-1].spec, epochs[-1].since, now)
        if spec is not None:
            epochs.append(Epoch(spec, now))

    def _take_commits(self) -> None:
        """The messages that came with this commit: in a queue, or in the outbox."""
        known = {message.message_id for message in self.committed}
        outbox = self.world.store._state.outbox
        new = [decoded(data) for message_id, data in outbox.items() if message_id not in known]
        new += self.world.post.committed[self._new :]
        self._new = len(self.world.post.committed)
        for message in new:
            if message.actor_name == DLQ_ACTOR or generation_of(message):
                # The laws of deaths know it.
                continue
            if message.options.get("retries"):
                self._went_back(message)
            else:
                self._committed(message)

    def _went_back(self, message: Message[Any]) -> None:
        """Our own retries go back once each."""
        retry = (message.message_id, message.options["retries"])
        if retry in self._retried:
            self._broken = f"retry {retry[1]} of {named(message)} went back twice"
        self._retried.append(retry)

    def _committed(self, message: Message[Any]) -> None:
        tick = message.options["distcron"]
        if any(message.message_id == one.message_id for one in self.committed):
            self._broken = f"{named(message)} has two messages"
        self.committed.append(message)
        spec = self.spec(tick["schedule"])
        if tick["fire_time"] > self.world.latest:
            self._broken = f"{named(message)} was enqueued before its time"
        elif spec is None or ((spec.retired or spec.paused) and not _is_by_hand(message)):
            self._broken = f"{named(message)} was enqueued, and its schedule is gone or at rest"
        elif list(message.args) != list(spec.payload["args"]) or message.actor_name != spec.actor:
            self._broken = f"{named(message)} was enqueued as it was before an edit"

    def run_begins(self, run: Run) -> None:
        """An actor begins with an attempt at a tick. A worker that was killed in it does not count."""
        self._begun[run] += 1
        self._note_silent()
        living = [host for host in self.world.hosts.values() if not host.dead and host.name not in self._silent]
        times = sum(self._begun[run._replace(worker=host.name)] for host in living)
        if self.world.rules.once and times > self._messages_of(run):
            self._broken = f"attempt {run.attempt} at {run.schedule} of {run.fire_time} was run twice"

    def _note_silent(self) -> None:
        """Who told nothing of itself for a minute is taken for dead, and runs beside the next: that is told of."""
        now, instances = self.world.store.now(), self.world.store._state.instances
        self._silent |= {holder for holder, (seen, _) in instances.items() if now - seen > REMEMBERED}
        self._silent |= {one.worker for one in self._begun if one.worker not in instances}

    def _messages_of(self, run: Run) -> int:
        """How many messages its time has: one, also of a letter from elsewhere, and more if it was triggered."""
        ticks = [message.options["distcron"] for message in self.committed]
        return max(1, [(tick["schedule"], tick["fire_time"]) for tick in ticks].count((run.schedule, run.fire_time)))

    def key(self) -> Any:
        return (
            [message.message_id for message in self.committed],
            self._retried,
            sorted(self._silent),
            self._broken,
            sorted(self._begun.items()),
            self.deaths.key(),
            [[(epoch.since, epoch.until) for epoch in epochs] for _, epochs in sorted(self.epochs.items())],
        )

    # -- the laws ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises ``Broken`` if one does not hold in this state."""
        for broken in self._all():
            raise Broken(broken)

    def _all(self) -> Iterator[str]:
        yield from self._failures()
        yield from self._leaders()
        if not self._changed:
            return
        self._changed = False
        if self._broken:
            yield self._broken
        yield from self.deaths.broken(self.sent)
        yield from self._outcomes()
        yield from self._records()
        yield from self._ends()
        yield from self._overlaps()

    def _failures(self) -> Iterator[str]:
        for thread in self.world.threads.values():
            if thread.failure is not None:
                yield f"{thread.name} ended with {thread.failure!r}"

    def _outcomes(self) -> Iterator[str]:
        """Each fire time up to the cursor has one outcome, and none after it has one."""
        for name, epochs in self.epochs.items():
            expected = set(self._passed(name, epochs))
            found = Counter(time for record in self._records_of(name) for time in _times(record, epochs))
            for time in sorted(expected | set(found)):
                wanted = int(time in expected)
                if found[time] != wanted:
                    yield f"{name} of {time} has {found[time]} outcomes and not {wanted}"

    def _passed(self, name: str, epochs: list[Epoch]) -> Iterator[int]:
        cursor = self.cursor(name)
        for epoch in epochs:
            time = epoch.spec.next_ms(epoch.since)
            while time is not None and epoch.spec.score_of(time) < cursor and time <= (epoch.until or NEVER):
                yield time
                time = epoch.spec.next_ms(time)

    def _records(self) -> Iterator[str]:
        """Each message that was ever committed has its record, and each record its message."""
        recorded = [one["message_id"] for one in self.world.store._ticks if one.get("outcome") == ENQUEUED]
        committed = [message.message_id for message in self.committed]
        if sorted(recorded) != sorted(committed):
            yield f"the history has the messages {recorded}, and {committed} were sent"

    def _ends(self) -> Iterator[str]:
        """A run ends once, and a message is gone only when its run has ended."""
        ends = Counter(one["run"] for one in self.world.store._ticks if "run" in one)
        state = self.world.store._state
        there = {message.message_id for message in self.world.post.messages()} | set(state.outbox)
        there |= {waiting.about["id"] for _, waiting in state.retries.values()}
        for message in self.sent:
            name, count = named(message), ends[message.message_id]
            if count > 1:
                yield f"the run of {name} ended {count} times"
            if not count and message.message_id not in there and not self.deaths.has(message.message_id):
                yield f"{name} is nowhere, and its run did not end"
            if not count and message.message_id not in state.runs:
                yield f"the run of {name} is not known, and it did not end"

    def _overlaps(self) -> Iterator[str]:
        """Where runs must not overlap, one message at most is not done."""
        if self.world.rules.overlaps:
            return
        there = {message.message_id: message for message in self.world.post.messages()}
        there |= {message_id: decoded(data) for message_id, data in self.world.store._state.outbox.items()}
        there |= {row.about["id"]: decoded(row.data) for _, row in self.world.store._state.retries.values()}
        ended = {one["run"] for one in self.world.store._ticks if "run" in one}
        if self.world.rules.by_outbox:
            there = {message_id: message for message_id, message in there.items() if message_id not in ended}
        ticks = [message.options["distcron"] for message in there.values() if "distcron" in message.options]
        names = Counter(tick["schedule"] for tick in ticks)
        for name, count in names.items():
            spec = self.spec(name)
            if count > 1 and spec is not None and spec.policy.overlap != "allow":
                yield f"{count} runs of {name} overlap"

    def _leaders(self) -> Iterator[str]:
        """Two do not trust in the lease at once, as long as the clock of the store runs as ours do."""
        leaders = [name for name, host in self.world.hosts.items() if not host.dead and _leads(host)]
        if len(leaders) > 1 and not self.world.rules.skewed:
            yield f"{' and '.join(leaders)} both believe that they lead"

    # -- reading the state ------------------------------------------------------------------------------------

    @property
    def sent(self) -> list[Message[Any]]:
        """The messages of ticks that there ever were, without their retries: committed, and redriven."""
        return [*self.committed, *self.deaths.redriven.values()]

    def spec(self, name: str) -> Spec | None:
        text = self.world.store._state.schedules.get(name)
        try:
            return parse_spec(text) if text else None
        except ScheduleError:
            return None

    def cursor(self, name: str) -> int:
        """Up to where the fire times of a schedule are decided."""
        spec = self.spec(name)
        if spec is not None and spec.retired:
            return spec.retired.cursor
        cursor: int = self.world.store._state.due.get(name, NEVER)
        return cursor

    def is_over(self, name: str) -> bool:
        """Whether a schedule has no further fire time, or none in its present code."""
        return bool(self.world.store._state.due.get(name) == NEVER)

    def _records_of(self, name: str) -> Iterator[Mapping[str, str]]:
        for record in self.world.store._ticks:
            if record["schedule"] == name and "run" not in record and record["reason"] != "triggered":
                yield record
        last = self.world.store._state.last.get(name)
        if last and last["open"]:
            yield last


def _times(record: Mapping[str, str], epochs: list[Epoch]) -> Iterator[int]:
    """The fire times a record stands for; none if their number is wrong, so that they are missed."""
    first, last = int(record["fire_time"]), int(record["fire_time_to"])
    found = []
    for epoch in epochs:
        time = epoch.spec.next_ms(max(first - 1, epoch.since))
        while time is not None and time <= min(last, epoch.until or NEVER):
            found.append(time)
            time = epoch.spec.next_ms(time)
    if len(found) == int(record["count"]):
        yield from found


def _is_by_hand(message: Message[Any]) -> bool:
    return message.message_id.startswith("!")


def _leads(host: Any) -> bool:
    beat = getattr(host, "beat", None)
    return beat is not None and beat.lease.trusted
