"""The pass: read what is due, decide, commit. A step that the beat's loop repeats and a test can call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .batching import BATCH_BYTES
from .durations import iso
from .errors import DistCronError, ScheduleError, StoreRefused, StoreUnavailable
from .known import Known, KnownSpecs
from .logs import get_logger, listed
from .making import Made, TickMaker, plain
from .publishing import Captured
from .resting import Resting
from .specs import NotForUs, Spec
from .store.base import NEVER, NO_RUN, Answers, DueRow, Fire, Guard, Record
from .store.redis import is_passing
from .ticks import DISABLED, ENQUEUED, ERROR, MISSED, Move, Situation, decide

if TYPE_CHECKING:
    from .clock import Clock
    from .lease import Lease, Progress
    from .store.base import Store

__all__ = ["PassReport", "Scheduler"]

#: A batch ends with whichever comes first: this many ticks, its bytes, a sixth of the lease.
BATCH_TICKS = 100
BATCH_SHARE_OF_LEASE = 6
#: How many due schedules are read at once.
PAGE = 1000
#: How often it is asked whether an outstanding run is still there, in seconds for each schedule.
_PROBE_EACH = 5.0


@dataclass
class PassReport:
    """What a pass did. ``more``: something is still due; ``next_score``: when the next one is (ms).

    ``lost``: the lease. ``damaged``: a cursor is to be set anew. ``actors``: of the schedules that were enqueued.
    """

    enqueued: int = 0
    recorded: int = 0
    stale: int = 0
    failed: int = 0
    more: bool = False
    lost: bool = False
    damaged: bool = False
    next_score: int | None = None
    actors: dict[str, str] = field(default_factory=dict)


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


class Scheduler:
    """Fires the schedules of one app on one broker.

    Parameters:
      store: where the state is.
      specs: what is known of it.
      maker: makes the messages.
      lease: ours; every write is guarded by it.
      clock: of this process, for budgets and rests only.
      progress: told of each step.
      disabled: why nothing at all is enqueued, if that is so.
    """

    def __init__(
        self,
        *,
        store: Store,
        specs: KnownSpecs,
        maker: TickMaker,
        lease: Lease,
        clock: Clock,
        progress: Progress,
        disabled: str = "",
    ) -> None:
        self.logger = get_logger(__name__, type(self))
        self.resting = Resting(clock)
        #: The pass ends after the batch it is at.
        self.stopping = False
        self._store = store
        self._specs = specs
        self._maker = maker
        self._lease = lease
        self._clock = clock
        self._progress = progress
        self._disabled = disabled
        self._left_alone: set[str] = set()
        self._stale: set[str] = set()
        self._probed: dict[str, tuple[str, float]] = {}
        self._lengths: dict[str, int] = {}
        self._situation = Situation()
        self._sweep = "0"
        self._damaged = False

    def pass_once(self, now: int | None = None) -> PassReport:
        """Reads a page of what is due at ``now`` (UTC ms; the store's clock unless given), decides, commits in batches.

        Raises:
          StoreUnavailable: what became of the batch is not known. The next pass reads the state and goes on from
            there; what was committed is not committed twice.
          StoreRefused: the store does not let us; nothing was done.
          ConflictError: the broker cannot be served.
        """
        now = self._lease.now() if now is None else now
        self._maker.publisher.begin()
        self.resting.begin()
        self._lengths.clear()
        self._situation = Situation(self._lease.since - self._lease.ttl - 1000, disabled=self._disabled)
        rows, next_score, full = self._read(now)
        self._damaged = False
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
            if self.stopping:
                report.more = True
                break
            committing = batch, self._store.start_fire(self._guard(now), batch.fires)
        if committing:
            self._committed(*committing, report)
        report.damaged = self._damaged
        return report

    def sweep(self) -> int:
        """Ends some of the runs whose message is gone; the next call looks at others. Returns how many."""
        swept = self._store.sweep_runs(self._guard(self._lease.now()), self._sweep, 500)
        if swept is None:
            self._lease.lost()
            return 0
        self._sweep, ended = swept
        if ended:
            self.logger.warning("%d runs were given up: their messages are gone from the broker.", ended)
        return ended

    def _guard(self, now: int) -> Guard:
        return Guard(self._lease.holder, self._lease.term, now)

    # -- what is due ----------------------------------------------------------------------------------------

    def _read(self, now: int) -> tuple[list[DueRow], int | None, bool]:
        """Due rows that do not rest, when the next row is due, and whether there may be more."""
        skip = 0
        while True:
            page = self._store.read_due(now, skip=skip, limit=PAGE)
            rows = [row for row in page.rows if row.name not in self.resting]
            full = len(page.rows) == PAGE
            if rows or not full:
                return rows, page.next_score, full
            skip += len(page.rows)

    def _batches(self, rows: list[DueRow], now: int) -> Iterator[_Batch]:
        batch = _Batch()
        known = self._specs.of(rows)
        deadline = self._batch_deadline()
        for row in rows:
            for fire, captured in self._fires_of(row, known[row.name], now):
                batch.add(fire, captured)
                self._progress.made()
                if batch.full or self.stopping or self._clock.monotonic() >= deadline:
                    yield batch
                    batch, deadline = _Batch(), self._batch_deadline()
        if batch.fires:
            yield batch

    def _batch_deadline(self) -> float:
        return self._clock.monotonic() + self._lease.ttl / 1000 / BATCH_SHARE_OF_LEASE

    # -- one schedule ---------------------------------------------------------------------------------------

    def _fires_of(self, row: DueRow, known: Known, now: int) -> Iterator[Made]:
        if not _is_text(row.name):
            self._fail(row.name, "its name is no text; remove it from the key 'due'")
        elif row.score is None:
            self._damaged = True
            self._fail(row.name, "its cursor is no time, so it is set anew")
        elif isinstance(known.spec, NotForUs):
            self._leave_alone(row.name, known.spec)
        elif isinstance(known.spec, ScheduleError):
            yield self._unusable(row, row.score, known.spec), None
        else:
            yield from self._ticks_of(row, row.score, known, known.spec, now)

    def _ticks_of(self, row: DueRow, cursor: int, known: Known, spec: Spec, now: int) -> Iterator[Made]:
        try:
            row, moves = self._decide(row, cursor, known, spec, now)
            yield from self._maker.make(row, known, spec, moves, now, self._lease.term)
        except StoreRefused as error:
            # Its queue cannot be measured, or its run not be looked for: the commit would be refused as well.
            self._fail(row.name, str(error))
        except DistCronError:
            raise
        except Exception as error:
            # Whatever it is, it is this schedule's: the others must not wait for it.
            self.logger.exception("Schedule %r: its ticks cannot be decided.", row.name)
            self.resting.failed(row.name, f"{type(error).__name__}: {error}")

    def _decide(self, row: DueRow, cursor: int, known: Known, spec: Spec, now: int) -> tuple[DueRow, list[Move]]:
        if spec.policy.overlap == "allow" and spec.policy.max_queue_length is None:
            return row, decide(spec, cursor, now, self._situation)
        row = self._without_lost_run(row, spec)
        situation = replace(
            self._situation, outstanding=bool(row.outstanding), queue_length=lambda: self._queue_length(known.waiting)
        )
        moves = decide(spec, cursor, now, situation)
        if known.waiting in self._lengths:
            self._lengths[known.waiting] += sum(move.outcome == ENQUEUED for move in moves)
        if not moves or (moves[-1].new_score or NEVER) <= now:
            # The newest tick waits for the run before to be over.
            self.resting.waits(row.name)
        return row, moves

    def _queue_length(self, waiting: str) -> int:
        if waiting not in self._lengths:
            self._lengths[waiting] = self._store.queue_length(waiting)
        return self._lengths[waiting]

    def _without_lost_run(self, row: DueRow, spec: Spec) -> DueRow:
        """The row without its outstanding run if that is not there any more: its queue was flushed, say."""
        if not row.outstanding or spec.policy.overlap == "allow":
            return row
        message_id, probed_at = self._probed.get(row.name, ("", 0.0))
        now = self._clock.monotonic()
        if message_id == row.outstanding and now - probed_at < _PROBE_EACH:
            return row
        self._probed[row.name] = row.outstanding, now
        guard = self._guard(self._lease.now())
        answer = self._store.probe_run(guard, row.name, row.outstanding, spec.policy.overlap_timeout)
        if answer == "dropped":
            self.logger.warning("Schedule %r: the run of message %s was given up.", row.name, row.outstanding)
        elif answer != "over":
            return row
        return row._replace(outstanding=NO_RUN)

    def _unusable(self, row: DueRow, cursor: int, error: ScheduleError) -> Fire:
        """Takes a schedule that cannot be used out of the way, with the reason; the others go on."""
        self.logger.error("Schedule %r is disabled: %s", row.name, error)
        record = Record(DISABLED, cursor, cursor, reason=plain(str(error)))
        return Fire(row.name, row.revision, cursor, NEVER, record)

    def _leave_alone(self, name: str, why: NotForUs) -> None:
        if name not in self._left_alone:
            self._left_alone.add(name)
            self.logger.error("Schedule %r is left to another beat, its ticks stay due: %s", name, why)
        self.resting.failed(name, str(why))

    def _fail(self, name: str, reason: str) -> None:
        if self.resting.failed(name, reason):
            self.logger.error(
                "Schedule %r: its tick stays due, nothing was sent, and it is tried again: %s", name, reason
            )

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
            elif is_passing(answer):
                # No fault of this schedule's: out of memory, say.
                raise StoreUnavailable(f"The store cannot take a commit now: {answer.removeprefix('failed ')}")
            else:
                report.failed += 1
                self._fail(fire.name, answer)
        self._look_again(stale, report)
        self._tell_enqueued(batch, report.enqueued - enqueued)

    def _done(self, fire: Fire, captured: Captured | None, report: PassReport) -> None:
        self.resting.recovered(fire.name)
        # What was read is older than this move of the cursor.
        if fire.new_score < NEVER:
            report.next_score = min(fire.new_score, report.next_score or NEVER)
        if captured is None:
            report.recorded += fire.record.count
            self._tell_missed(fire)
        else:
            report.enqueued += 1
            report.actors[fire.name] = captured.message.actor_name
            self._maker.publisher.announce(captured)
            self._progress.made()

    def _tell_enqueued(self, batch: _Batch, enqueued: int) -> None:
        if enqueued > 5:
            late = max(fire.record.lateness or 0 for fire in batch.fires)
            names = listed(fire.name for fire in batch.fires if fire.record.message_id)
            self.logger.info("Enqueued %d ticks, up to %d ms late: %s", enqueued, late, names)
            return
        for fire in batch.fires:
            if fire.record.message_id:
                self.logger.info(
                    "Enqueued %r for %s, %d ms late.", fire.name, iso(fire.record.fire_time), fire.record.lateness
                )

    def _tell_missed(self, fire: Fire) -> None:
        record = fire.record
        if record.outcome in (MISSED, ERROR):
            self.logger.warning(
                "Schedule %r: %d fire times from %s to %s are %s: %s",
                fire.name,
                record.count,
                iso(record.fire_time),
                iso(record.fire_time_to),
                record.outcome,
                record.reason,
            )

    def _look_again(self, stale: set[str], report: PassReport) -> None:
        """A schedule that changed under the decision is decided again at once; one that won't fit twice rests."""
        report.stale += len(stale)
        for name in stale & self._stale:
            self._fail(name, "what was read of it does not compare with what is stored")
        report.more = report.more or bool(stale - self._stale)
        self._stale = stale


def _is_text(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)
