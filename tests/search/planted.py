"""Bugs as others have them, planted into our code: a search that finds none of them would be worth nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dramatiq_distcron.lease import Lease
from dramatiq_distcron.outbox import OutboxPublisher
from dramatiq_distcron.store.base import Edit, Ending, Fire, Guard, Refused, Started
from dramatiq_distcron.store.memory import MemoryStore

from .editing import ARGUMENTS, PAUSE, TIMES, TRIGGER
from .scenario import Scenario
from .scenarios import BACKLOG, BURST, CLOCK, LEASE
from .stepped import SteppedStore
from .stepping import Request, ask, current_thread
from .working import BUFFER, CLAIM, OUTBOX, TICKET

__all__ = ["PLANTED", "LeaseOnly", "NoLease", "Planted", "TicketForAll", "store_here"]


@dataclass(frozen=True)
class Planted:
    """A bug, and where it must be found.

    Attributes:
      name: what the code does wrongly.
      scenario: where it shows.
      law: words of the law that it breaks.
      faults: the bound of the search: how many faults.
      switches: and how many preemptions.
      store: the store with the bug in it.
      patches: the code with the bug in it.
    """

    name: str
    scenario: Scenario
    law: str
    faults: int
    switches: int
    store: Callable[..., MemoryStore] = MemoryStore
    patches: Mapping[str, Any] = field(default_factory=dict)

    @property
    def planted(self) -> Scenario:
        """The scenario, with the bug in it."""
        return replace(
            self.scenario,
            store=self.store,
            patches={**self.scenario.patches, **self.patches},
            faults=self.faults,
            switches=self.switches,
        )


class _ScoreOnly(MemoryStore):
    def _fire_one(self, guard: Guard, fire: Fire) -> str:
        return super()._fire_one(guard, fire._replace(revision=self._state.revisions.get(fire.name, "")))


class LeaseOnly(_ScoreOnly):
    def _fire_one(self, guard: Guard, fire: Fire) -> str:
        return super()._fire_one(guard, fire._replace(score=self._state.due.get(fire.name)))


class _AnyRun(MemoryStore):
    def _fire_one(self, guard: Guard, fire: Fire) -> str:
        return super()._fire_one(guard, fire._replace(run_before=self._state.outstanding.get(fire.name, "")))


class _EditAnyCursor(MemoryStore):
    def _edit_one(self, guard: Guard, edit: Edit) -> str:
        if edit.before is not None:
            edit = replace(edit, before=replace(edit.before, score=self._state.due.get(edit.name)))
        return super()._edit_one(guard, edit)


class _HistoryLater(MemoryStore):
    """Records what was fired in a step of its own; see ``_fire_then_record``."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._later: list[tuple[Any, ...]] | None = None

    def _remember(self, guard: Guard, name: str, record: Any, **options: Any) -> None:
        if self._later is None:
            super()._remember(guard, name, record, **options)
        else:
            self._later.append((guard, name, record, options))

    def fire_only(self, guard: Guard, fires: Sequence[Fire]) -> tuple[list[str] | None, list[tuple[Any, ...]]]:
        self._later = later = []
        answers = self.fire(guard, fires)
        self._later = None
        return answers, later

    def record(self, later: list[tuple[Any, ...]]) -> None:
        for guard, name, record, options in later:
            super()._remember(guard, name, record, **options)


def store_here() -> Any:
    """The store of the world whose code is being run."""
    thread = current_thread()
    assert thread is not None
    return thread.host.world.store


def _fire_then_record(self: SteppedStore, guard: Guard, fires: Sequence[Fire]) -> Callable[[], Any]:
    store = store_here()

    def both() -> Any:
        answers, later = ask(Request("fire", (guard, fires), lambda: store.fire_only(guard, fires)))
        ask(Request("record", (), lambda: store.record(later)))
        return answers

    return both


def _end_then_ack(self: SteppedStore, ending: Ending) -> str:
    store = store_here()
    ask(Request("settle", (ending,), lambda: store.settle(replace(ending, call=()))))
    ask(Request("ack", (ending,), lambda: store._dispatch(ending.call)))
    return "settled"


def _ack_then_end(self: SteppedStore, ending: Ending) -> str:
    store = store_here()
    if ask(Request("ack", (ending,), lambda: store._dispatch(ending.call))):
        ask(Request("settle", (ending,), lambda: store.settle(replace(ending, call=()))))
    return "settled"


class _EndWithoutAck(MemoryStore):
    """Ends a run although its message was not this worker's any more."""

    def settle(self, ending: Ending) -> str:
        answer = super().settle(ending)
        return super().settle(replace(ending, call=())) if answer == "lost" else answer


class _EndAgain(MemoryStore):
    """Records the end of a run whenever it is told to."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._ended: dict[str, Any] = {}

    def settle(self, ending: Ending) -> str:
        run = self._state.runs.get(ending.message_id) or self._ended.get(ending.message_id)
        answer = super().settle(ending)
        if answer == "lost" and ending.message_id in self._ended:
            self._state.runs[ending.message_id] = run
            self._end_run(ending.message_id, run, ending.state, ending.error)
        if answer == "settled" and not ending.goes_on:
            self._ended[ending.message_id] = run
        return answer


class _NoRecordByHand(MemoryStore):
    def _remember(self, guard: Guard, name: str, record: Any, **options: Any) -> None:
        if not options.get("by_hand"):
            super()._remember(guard, name, record, **options)


class _NoDoubts(MemoryStore):
    def claim_run(
        self, message_id: str, worker: str, attempt: int, claim: str = "", doubtful: Sequence[str] = ()
    ) -> Started | Refused:
        return super().claim_run(message_id, worker, attempt, claim)


class TicketForAll(MemoryStore):
    def claim_run(
        self, message_id: str, worker: str, attempt: int, claim: str = "", doubtful: Sequence[str] = ()
    ) -> Started | Refused:
        run = self._state.runs.get(message_id, {})
        return super().claim_run(message_id, worker, attempt, claim, [run.get("claim", "")])


def _host_time(lease: Lease) -> int:
    lease._offset = lease._offset or 0.0
    wall: int = lease._clock.wall()  # type: ignore[attr-defined]
    return wall


def _trust_from_now(lease: Lease, asked: float) -> None:
    lease._trusted_until = lease._clock.monotonic() + lease.ttl / 1000 * 0.9


def _note_then_publish(publisher: OutboxPublisher, message_id: str, message: Any) -> bool:
    publisher._store.published(message_id)
    publisher._broker.enqueue(message)
    return True


class NoLease(MemoryStore):
    """Takes a commit from anybody. That is no bug: the lease only keeps standbys quiet."""

    def fire(self, guard: Guard, fires: Sequence[Fire]) -> list[str] | None:
        return super().fire(replace(guard, holder=""), fires)


PLANTED = [
    Planted(
        "the commit compares the cursor and not the revision", ARGUMENTS, "as it was before an edit", 0, 1, _ScoreOnly
    ),
    Planted("the commit asks for the lease and compares nothing", BURST, "has two messages", 1, 0, LeaseOnly),
    Planted(
        "the history is written after the message, in a step of its own",
        BACKLOG,
        "outcomes",
        0,
        0,
        _HistoryLater,
        {"tests.search.stepped.SteppedStore.start_fire": _fire_then_record},
    ),
    Planted(
        "the run is ended before the ack, in a step of its own",
        BUFFER,
        "overlap",
        1,
        0,
        patches={"tests.search.stepped.SteppedStore.settle": _end_then_ack},
    ),
    Planted(
        "the run is ended after the ack, in a step of its own",
        BUFFER,
        "nowhere",
        0,
        0,
        patches={"tests.search.stepped.SteppedStore.settle": _ack_then_end},
    ),
    Planted("a run is ended by a worker that lost its message", BUFFER, "overlap", 1, 0, _EndWithoutAck),
    Planted("a run is ended again when its end is told again", BUFFER, "ended 2 times", 1, 0, _EndAgain),
    Planted("a paused schedule is fired on the cursor alone", PAUSE, "gone or at rest", 0, 2, _ScoreOnly),
    Planted("a manual trigger leaves no record", TRIGGER, "the history has", 0, 0, _NoRecordByHand),
    Planted("the commit does not compare the run", TRIGGER, "overlap", 0, 1, _AnyRun),
    Planted("an edit does not compare the cursor", TIMES, "outcomes", 0, 1, _EditAnyCursor),
    Planted(
        "the host's clock is trusted",
        CLOCK,
        "before its time",
        0,
        0,
        patches={"dramatiq_distcron.lease.Lease.now": _host_time},
    ),
    Planted(
        "a lease is trusted from its answer on",
        LEASE,
        "both believe",
        0,
        0,
        patches={"dramatiq_distcron.lease.Lease._trust_from": _trust_from_now},
    ),
    Planted(
        "a message leaves the outbox before it is published",
        OUTBOX,
        "nowhere",
        0,
        0,
        patches={"dramatiq_distcron.outbox.OutboxPublisher._publish": _note_then_publish},
    ),
    Planted("each copy gets a ticket", TICKET, "was run twice", 0, 1, TicketForAll),
    Planted("a ticket whose answer was lost is nobody's", CLAIM, "does not come to an end", 1, 0, _NoDoubts),
]
