"""The pass: read what is due, decide, commit. A step that the beat's loop repeats and a test can call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .durations import iso
from .errors import DistCronError, ScheduleError
from .logs import get_logger
from .publishing import Captured, Publisher, Vetoed, schedule_message, tick_id
from .reconcile import Plan, plan
from .specs import NotForUs, Spec, parse_spec
from .store.base import NEVER, Answers, DueRow, Fire, Guard, Record, Stored
from .ticks import DISABLED, ENQUEUED, ERROR, Move, decide

if TYPE_CHECKING:
    from dramatiq import Broker

    from .clock import Clock
    from .lease import Lease, Progress
    from .store.base import Store

__all__ = ["PassReport", "Scheduler"]

#: A batch ends with whichever comes first: this many ticks, this many bytes of messages, a sixth of the lease.
BATCH_TICKS = 100
BATCH_BYTES = 1_000_000
BATCH_SHARE_OF_LEASE = 6
#: How many due schedules are read at once, and of how many the specs are kept.
PAGE = 1000
KNOWN = 100_000

#: How long a schedule rests after the store refused its tick, in seconds: doubled each time.
_FIRST_REST, _LONGEST_REST = 1.0, 60.0
#: How often taking office is tried anew because schedules were edited meanwhile.
_ATTEMPTS = 5


@dataclass
class PassReport:
    """What a pass did. ``more``: something is still due; ``next_score``: when the next one is (ms)."""

    enqueued: int = 0
    recorded: int = 0
    stale: int = 0
    failed: int = 0
    more: bool = False
    lost: bool = False
    next_score: int | None = None


@dataclass
class _Batch:
    fires: list[Fire] = field(default_factory=list)
    captured: list[Captured | None] = field(default_factory=list)
    size: int = 0

    @property
    def full(self) -> bool:
        return len(self.fires) >= BATCH_TICKS or self.size >= BATCH_BYTES

    def add(self, fire: Fire, captured: Captured | None = None) -> None:
        self.fires.append(fire)
        self.captured.append(captured)
        self.size += captured.size if captured else 0


@dataclass(frozen=True)
class _Read:
    """What was read of a schedule: its spec, or why it cannot be used."""

    revision: int | str
    spec: Spec | ScheduleError


def _read(stored: Stored) -> _Read:
    try:
        return _Read(stored.revision, parse_spec(stored.spec))
    except ScheduleError as error:
        return _Read(stored.revision, error)


_UNREAD = _Read("", ScheduleError("It has a cursor and no spec."))


@dataclass
class _Rest:
    until: float
    length: float
    reason: str


class Scheduler:
    """Fires the schedules of one app on one broker.

    Parameters:
      broker, publisher: where messages go.
      namespace, app: part of every message id.
      store: where the state is.
      lease: ours; every write is guarded by it.
      clock: of this process, for budgets only.
      code: the schedules defined in code, by name.
      progress: told of each step.
    """

    def __init__(
        self,
        *,
        broker: Broker,
        publisher: Publisher,
        namespace: str,
        app: str,
        store: Store,
        lease: Lease,
        clock: Clock,
        code: Mapping[str, Spec],
        progress: Progress,
    ) -> None:
        self.logger = get_logger(__name__, type(self))
        self._broker = broker
        self._publisher = publisher
        self._namespace = namespace
        self._app = app
        self._store = store
        self._lease = lease
        self._clock = clock
        self._code = code
        self._progress = progress
        self._resting: dict[str, _Rest] = {}
        self._left_alone: set[str] = set()
        self._stale: set[str] = set()
        self._known: dict[str, _Read] = {}

    # -- taking office --------------------------------------------------------------------------------------

    def take_office(self) -> Plan | None:
        """Makes the stored schedules agree with the code. ``None``: the lease was lost meanwhile.

        Raises:
          StoreUnavailable, StoreRefused: it must be done again before a pass.
        """
        made, answers = self._reconcile()
        for _ in range(_ATTEMPTS):
            if answers is None or "stale" not in answers:
                break
            # Somebody edited a schedule between our reading and our writing.
            made, answers = self._reconcile()
        if answers is None:
            self._lease.lost()
            return None
        self._tell(made, answers)
        return made

    def _reconcile(self) -> tuple[Plan, list[str] | None]:
        now = self._lease.now()
        made = plan(self._code, self._store.scan(), now, self._last_decided)
        return made, self._apply(made, now)

    def _last_decided(self, name: str) -> int | None:
        last = self._store.last([name]).get(name)
        return int(last["fire_time_to"]) if last else None

    def _apply(self, made: Plan, now: int) -> list[str] | None:
        answers: list[str] = []
        for start in range(0, len(made.edits), BATCH_TICKS):
            some = self._store.edit(self._guard(now), made.edits[start : start + BATCH_TICKS])
            if some is None:
                return None
            answers += some
            self._progress.made()
        return answers

    def _tell(self, made: Plan, answers: list[str]) -> None:
        for edit, answer in zip(made.edits, answers, strict=True):
            if answer != "ok":
                self.logger.error("Schedule %r could not be stored: %s", edit.name, answer)
        for what in ("added", "changed", "retired", "returned", "removed", "restored", "left_alone"):
            names = getattr(made, what)
            if names:
                self.logger.info("Schedules %s: %s", what.replace("_", " "), _listed(names))

    def _guard(self, now: int) -> Guard:
        return Guard(self._lease.holder, self._lease.term, now)

    # -- the pass -------------------------------------------------------------------------------------------

    def pass_once(self, now: int | None = None) -> PassReport:
        """Reads a page of what is due at ``now`` (UTC ms; the store's clock unless given), decides, commits in batches.

        Raises:
          StoreUnavailable: what became of the batch is not known. The next pass reads the state and goes on from
            there; what was committed is not committed twice.
          StoreRefused: the store does not let us; nothing was done.
          ConflictError: the broker cannot be served.
        """
        now = self._lease.now() if now is None else now
        self._publisher.begin()
        rows, next_score, full = self._read(now)
        report = PassReport(next_score=next_score, more=full)
        # While the store commits one batch, the next is made.
        committing: tuple[_Batch, Answers] | None = None
        for batch in self._batches(rows, now):
            if committing:
                self._committed(*committing, report)
                committing = None
            if report.lost or not self._lease.trusted:
                report.lost = True
                break
            committing = batch, self._store.start_fire(self._guard(now), batch.fires)
        if committing:
            self._committed(*committing, report)
        return report

    def _read(self, now: int) -> tuple[list[DueRow], int | None, bool]:
        """Due rows that do not rest, when the next row is due, and whether there may be more."""
        skip = 0
        while True:
            page = self._store.read_due(now, skip=skip, limit=PAGE)
            rows = [row for row in page.rows if not self._rests(row.name)] if self._resting else list(page.rows)
            full = len(page.rows) == PAGE
            if rows or not full:
                return rows, page.next_score, full
            skip += len(page.rows)

    def _batches(self, rows: list[DueRow], now: int) -> Iterator[_Batch]:
        batch = _Batch()
        specs = self._specs_of(rows)
        deadline = self._batch_deadline()
        for row in rows:
            for fire, captured in self._fires_of(row, specs[row.name], now):
                batch.add(fire, captured)
                self._progress.made()
                if batch.full or self._clock.monotonic() >= deadline:
                    yield batch
                    batch, deadline = _Batch(), self._batch_deadline()
        if batch.fires:
            yield batch

    def _batch_deadline(self) -> float:
        return self._clock.monotonic() + self._lease.ttl / 1000 / BATCH_SHARE_OF_LEASE

    def _specs_of(self, rows: list[DueRow]) -> dict[str, _Read]:
        """What is stored of the schedules in ``rows``; read again only where the revision is not the known one."""
        known = self._known
        unknown = [
            row.name for row in rows if row.revision == "" or known.get(row.name, _UNREAD).revision != row.revision
        ]
        if unknown:
            known.update((name, _read(stored)) for name, stored in self._store.get(unknown).items())
            while len(known) > KNOWN:
                del known[next(iter(known))]
        return {row.name: known.get(row.name, _UNREAD) for row in rows}

    def _fires_of(self, row: DueRow, read: _Read, now: int) -> Iterator[tuple[Fire, Captured | None]]:
        if not _is_text(row.name):
            self._rest(row.name, "its name is no text; remove it from the key 'due'")
        elif isinstance(read.spec, NotForUs):
            self._leave_alone(row.name, read.spec)
        elif isinstance(read.spec, ScheduleError):
            yield self._unusable(row, read), None
        else:
            yield from self._moves_of(row, read.spec, now)

    def _moves_of(self, row: DueRow, spec: Spec, now: int) -> Iterator[tuple[Fire, Captured | None]]:
        on_duty_since = self._lease.since - self._lease.ttl - 1000
        try:
            for move in decide(spec, row.score, now, on_duty_since=on_duty_since):
                yield self._fire(spec, row.revision, move, now)
        except DistCronError:
            raise
        except Exception as error:
            # Whatever it is, it is this schedule's: the others must not wait for it.
            self.logger.exception("Schedule %r: its ticks cannot be decided.", row.name)
            self._rest(row.name, f"{type(error).__name__}: {error}", told=True)

    def _fire(self, spec: Spec, revision: int | str, move: Move, now: int) -> tuple[Fire, Captured | None]:
        if move.outcome != ENQUEUED:
            return self._recorded(spec, revision, move, move.outcome, move.reason), None
        actor = self._broker.actors.get(spec.actor)
        if actor is None:
            return self._recorded(spec, revision, move, DISABLED, f"actor {spec.actor!r} is not declared here"), None
        fire_time = move.score
        try:
            captured = self._publisher.capture(
                schedule_message(
                    spec,
                    actor,
                    message_id=tick_id(self._namespace, self._app, spec.name, fire_time),
                    fire_time=fire_time,
                    term=self._lease.term,
                    now=now,
                )
            )
        except (Vetoed, ScheduleError) as error:
            return self._recorded(spec, revision, move, ERROR, str(error)), None
        record = Record(
            ENQUEUED, fire_time, fire_time, message_id=captured.message.message_id, lateness=now - move.score
        )
        return Fire(spec.name, revision, move.score, _score(move), record, calls=captured.calls), captured

    @staticmethod
    def _recorded(spec: Spec, revision: int | str, move: Move, outcome: str, reason: str) -> Fire:
        record = Record(outcome, move.score, move.last, move.count, _plain(reason))
        return Fire(spec.name, revision, move.score, _score(move), record)

    def _unusable(self, row: DueRow, read: _Read) -> Fire:
        """Takes a schedule that cannot be used out of the way, with the reason; the others go on."""
        self.logger.error("Schedule %r is disabled: %s", row.name, read.spec)
        record = Record(DISABLED, row.score, row.score, reason=_plain(str(read.spec)))
        return Fire(row.name, row.revision, row.score, NEVER, record)

    def _leave_alone(self, name: str, why: NotForUs) -> None:
        if name not in self._left_alone:
            self._left_alone.add(name)
            self.logger.error("Schedule %r is left to another beat, its ticks stay due: %s", name, why)
        self._rest(name, str(why), told=True)

    # -- the commit -----------------------------------------------------------------------------------------

    def _committed(self, batch: _Batch, take: Answers, report: PassReport) -> None:
        answers = take()
        self._progress.made()
        if answers is None:
            self._lease.lost()
            report.lost = True
            return
        stale = set()
        enqueued = report.enqueued
        for fire, captured, answer in zip(batch.fires, batch.captured, answers, strict=True):
            if answer == "ok":
                self._done(fire, captured, report)
            elif answer == "stale":
                stale.add(fire.name)
            else:
                report.failed += 1
                self._rest(fire.name, answer)
        self._look_again(stale, report)
        self._tell_enqueued(batch, report.enqueued - enqueued)

    def _done(self, fire: Fire, captured: Captured | None, report: PassReport) -> None:
        self._resting.pop(fire.name, None)
        # What was read is older than this move of the cursor.
        if fire.new_score < NEVER:
            report.next_score = min(fire.new_score, report.next_score or NEVER)
        if captured is None:
            report.recorded += fire.record.count
        else:
            report.enqueued += 1
            self._publisher.announce(captured)
            self._progress.made()

    def _tell_enqueued(self, batch: _Batch, enqueued: int) -> None:
        if enqueued > 5:
            late = max(fire.record.lateness or 0 for fire in batch.fires)
            self.logger.info("Enqueued %d ticks, up to %d ms late.", enqueued, late)
            return
        for fire in batch.fires:
            if fire.record.message_id:
                self.logger.info(
                    "Enqueued %r for %s, %d ms late.", fire.name, iso(fire.record.fire_time), fire.record.lateness
                )

    def _look_again(self, stale: set[str], report: PassReport) -> None:
        """A schedule that changed under the decision is decided again at once; one that won't fit twice rests."""
        report.stale += len(stale)
        for name in stale & self._stale:
            self._rest(name, "what was read of it does not compare with what is stored")
        report.more = report.more or bool(stale - self._stale)
        self._stale = stale

    # -- rest after a failure -------------------------------------------------------------------------------

    def _rests(self, name: str) -> bool:
        rest = self._resting.get(name)
        return rest is not None and self._clock.monotonic() < rest.until

    def _rest(self, name: str, reason: str, *, told: bool = False) -> None:
        before = self._resting.get(name)
        length = min(_LONGEST_REST, before.length * 2) if before else _FIRST_REST
        if not told and (before is None or before.reason != reason):
            self.logger.error(
                "Schedule %r: its tick stays due, nothing was sent, and it is tried again: %s", name, reason
            )
        self._resting[name] = _Rest(self._clock.monotonic() + length, length, reason)


def _score(move: Move) -> int:
    return NEVER if move.new_score is None else move.new_score


def _is_text(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _plain(reason: str) -> str:
    """An error's text as it can be stored: short, and nothing that is no character."""
    return reason[:500].encode("utf-8", "replace").decode()


def _listed(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:10])
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"
