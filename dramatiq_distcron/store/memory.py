"""The store in a process' memory: for ``StubBroker``, for unit tests, and for the search through interleavings.

It behaves as the one on Redis does; one suite of tests runs on both.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .base import (
    ANY_RUN,
    NEVER,
    REMEMBERED,
    Acquired,
    Answers,
    DuePage,
    DueRow,
    Edit,
    Ending,
    Fire,
    Guard,
    Held,
    History,
    Instance,
    Record,
    Refused,
    Renewed,
    Started,
    Stored,
)

__all__ = ["MemoryStore"]


@dataclass
class _State:
    owner: str | None = None
    lease: str | None = None
    lease_until: int = 0
    term: int = 0
    since: int = 0
    revision: int = 0
    schedules: dict[str, str] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    enqueued: dict[str, int] = field(default_factory=dict)
    outstanding: dict[str, str] = field(default_factory=dict)
    runs: dict[str, dict[str, str]] = field(default_factory=dict)
    outbox: dict[str, bytes] = field(default_factory=dict)
    instances: dict[str, tuple[int, Mapping[str, Any]]] = field(default_factory=dict)


class MemoryStore:
    """All state of one app in memory. Thread-safe: one verb is one atomic step.

    Parameters:
      now: the store's clock in ms.
      dispatch: carries out one call that was captured, as the script of a Redis broker would, and says how many
        messages it took from the worker that acks.
      is_there: whether a message (place, id) is in the broker; without, every one is.
      length: how many messages wait on a queue.
      history_size: how many records the history keeps.
    """

    where = "memory"

    def __init__(
        self,
        now: Callable[[], int],
        dispatch: Callable[[Sequence[Any]], int | None] | None = None,
        *,
        is_there: Callable[[str, str], bool] = lambda place, redis_id: True,
        length: Callable[[str], int] = lambda queue: 0,
        history_size: int = 10_000,
    ) -> None:
        self._now = now
        self._dispatch = dispatch
        self._is_there = is_there
        self._length = length
        self._state = _State()
        self._ticks: deque[dict[str, str]] = deque(maxlen=history_size)
        self._appended = 0
        self._woken = threading.Condition(threading.RLock())
        self._wakes = self._seen = 0

    def now(self) -> int:
        """The store's clock in ms."""
        return self._now()

    @contextmanager
    def running_on(self, now: Callable[[], int]) -> Iterator[None]:
        """Goes by another clock for a while, and has no leader at its beginning and end."""
        before, self._now = self._now, now
        self._state.lease = None
        try:
            yield
        finally:
            self._now = before
            self._state.lease = None

    @property
    def appended(self) -> int:
        """How many records were ever appended to the history."""
        return self._appended

    def records_since(self, appended: int) -> list[Mapping[str, str]]:
        """The records after the first ``appended`` ones, and the open ones, as far as they are kept."""
        with self._woken:
            count = min(self._appended - appended, len(self._ticks))
            closed = list(self._ticks)[len(self._ticks) - count :]
            return closed + [{"schedule": name, **last} for name, last in self._state.last.items() if last["open"]]

    # -- the lease ------------------------------------------------------------------------------------------

    def acquire(self, holder: str, ttl: int) -> Acquired | Held:
        with self._woken:
            state, now = self._state, self._now()
            if state.lease is not None and state.lease_until > now and state.lease != holder:
                state.lease_until = min(state.lease_until, now + ttl)
                return Held(state.lease, state.lease_until - now)
            if state.lease != holder or state.lease_until <= now:
                state.term = state.term + 1 if state.term else now
                state.since = now
            state.lease, state.lease_until = holder, now + ttl
            return Acquired(state.term, now)

    def renew(self, holder: str, ttl: int, *, count: bool = False) -> Renewed | None:
        with self._woken:
            now = self._now()
            if not self._holds(holder, now):
                return None
            self._state.lease_until = now + ttl
            if not count:
                return Renewed(now)
            return Renewed(now, len(self._state.schedules), len(self._state.due))

    def release(self, holder: str) -> bool:
        with self._woken:
            if not self._holds(holder, self._now()):
                return False
            self._state.lease = None
            self._wake()
            return True

    def claim_owner(self, owner: str, *, adopt: bool) -> str:
        """Makes the state that of the code base ``owner`` if it is nobody's, or if told to. Returns whose it is."""
        with self._woken:
            if adopt or self._state.owner is None:
                self._state.owner = owner
            return self._state.owner

    def leader(self) -> tuple[str, int, int] | None:
        """Who leads: holder id, term, since when in ms."""
        with self._woken:
            state = self._state
            if state.lease is None or state.lease_until <= self._now():
                return None
            return state.lease, state.term, state.since

    def _holds(self, holder: str, now: int) -> bool:
        return self._state.lease == holder and self._state.lease_until > now

    def _admits(self, guard: Guard) -> bool:
        return guard.holder == "" or self._holds(guard.holder, self._now())

    # -- ticks ----------------------------------------------------------------------------------------------

    def read_due(self, now: int, *, skip: int, limit: int) -> DuePage:
        with self._woken:
            state = self._state
            order = sorted((score, name) for name, score in state.due.items())
            due = [(score, name) for score, name in order if score <= now][skip : skip + limit]
            later = next((score for score, _ in order if now < score < NEVER), None)
            return DuePage(
                [
                    DueRow(n, s, state.revisions.get(n, ""), state.outstanding.get(n, ""), state.enqueued.get(n))
                    for s, n in due
                ],
                later,
            )

    def fire(self, guard: Guard, fires: Sequence[Fire]) -> list[str] | None:
        """Commits ``fires`` one by one. ``None``: the guard's holder does not have the lease."""
        with self._woken:
            if not self._admits(guard):
                return None
            return [self._fire_one(guard, fire) for fire in fires]

    def start_fire(self, guard: Guard, fires: Sequence[Fire]) -> Answers:
        """As ``fire``, which takes no time here."""
        answers = self.fire(guard, fires)
        return lambda: answers

    def _fire_one(self, guard: Guard, fire: Fire) -> str:
        state = self._state
        if (
            (fire.score is not None and state.due.get(fire.name) != fire.score)
            or state.revisions.get(fire.name, "") != fire.revision
            or fire.run_before not in (ANY_RUN, state.outstanding.get(fire.name, ""))
        ):
            return "stale"
        try:
            for call in fire.calls:
                if self._dispatch is None:
                    raise RuntimeError("there is no broker to dispatch to")
                self._dispatch(call)
        except Exception as error:
            return f"failed {error}"
        self._remember(guard, fire.name, fire.record, closed=bool(fire.record.message_id), by_hand=fire.score is None)
        if fire.score is not None:
            state.due[fire.name] = fire.new_score
            if fire.record.message_id:
                state.enqueued[fire.name] = fire.record.fire_time
        if fire.run:
            state.runs[fire.record.message_id] = json.loads(fire.run)
            if fire.run_before != ANY_RUN:
                state.outstanding[fire.name] = fire.record.message_id
        if fire.outbox:
            state.outbox[fire.record.message_id] = fire.outbox
        return "ok"

    def queue_length(self, place: str) -> int:
        """How many messages wait on the queue ``place``."""
        return self._length(place)

    # -- runs -----------------------------------------------------------------------------------------------

    def start_run(self, message_id: str, worker: str) -> Started | None:
        """A worker takes up a tick's message. ``None``: no run of that message is known."""
        with self._woken:
            run = self._state.runs.get(message_id)
            if run is None:
                return None
            now, before = self._now(), run["state"]
            run.update(state="running", worker=worker)
            run.setdefault("started_at", str(now))
            previous = run.get("previous")
            return Started(before, int(run["at"]), now, int(previous) if previous else None)

    def claim_run(self, message_id: str, worker: str, attempt: int) -> Started | Refused:
        """A worker asks whether it may run a tick's message, where the broker may deliver copies."""
        with self._woken:
            run = self._state.runs.get(message_id)
            if run is None or (run["state"] == "retrying" and attempt < int(run.get("attempt", 0))):
                return Refused()
            if run["state"] == "running":
                seen, _ = self._state.instances.get(run["worker"], (None, {}))
                if seen is not None and self._now() - seen <= REMEMBERED:
                    return Refused(run["worker"])
            started = self.start_run(message_id, worker)
            assert started is not None
            return started

    def settle(self, ending: Ending) -> str:
        """Records the end of a delivery and acks it, or neither: as the store on Redis."""
        with self._woken:
            if ending.call:
                try:
                    taken = self._dispatch(ending.call) if self._dispatch else 0
                except Exception as error:
                    return f"failed {error}"
                if not taken:
                    return "lost"
            run = self._state.runs.get(ending.message_id)
            if run is None:
                return "acked"
            if ending.goes_on:
                run.update(place=ending.place, rid=ending.redis_id, attempt=str(ending.attempt))
                run["state"] = ending.state or run["state"]
            else:
                self._end_run(ending.message_id, run, ending.state, ending.error)
            return "settled"

    def outbox(self, limit: int) -> list[tuple[str, bytes]]:
        """Some of the messages that are committed and not known to be in their broker."""
        with self._woken:
            return list(self._state.outbox.items())[:limit]

    def published(self, message_id: str) -> None:
        """The message is in its broker."""
        with self._woken:
            self._state.outbox.pop(message_id, None)

    def _end_run(self, message_id: str, run: Mapping[str, str], state: str, error: str) -> None:
        del self._state.runs[message_id]
        self._appended += 1
        self._ticks.append(
            {
                "run": message_id,
                "schedule": run["schedule"],
                "fire_time": run["fire_time"],
                "state": state,
                "started_at": run.get("started_at", ""),
                "finished_at": str(self._now()),
                "error": error,
            }
        )
        if self._state.outstanding.get(run["schedule"]) == message_id:
            del self._state.outstanding[run["schedule"]]
            self._wake()

    def probe_run(self, guard: Guard, name: str, message_id: str, longest: int | None) -> str | None:
        """Ends a run that is not there any more. ``there`` or ``dropped``; ``None``: the lease is lost."""
        with self._woken:
            if not self._admits(guard):
                return None
            run = self._state.runs.get(message_id)
            if run is None:
                if self._state.outstanding.get(name) == message_id:
                    del self._state.outstanding[name]
                return "dropped"
            if not self._is_there(run["place"], run["rid"]):
                self._end_run(message_id, run, "dropped", "its message is gone")
                return "dropped"
            if longest is not None and self._now() - int(run["at"]) > longest:
                self._end_run(message_id, run, "dropped", "overlap_timeout")
                return "dropped"
            return "there"

    def sweep_runs(self, guard: Guard, cursor: str, count: int) -> tuple[str, int] | None:
        """Ends all runs that are not there any more: the next cursor, and how many."""
        with self._woken:
            if not self._admits(guard):
                return None
            gone = [(i, run) for i, run in self._state.runs.items() if not self._is_there(run["place"], run["rid"])]
            for message_id, run in gone:
                self._end_run(message_id, run, "dropped", "its message is gone")
            return "0", len(gone)

    def outstanding(self, name: str) -> str:
        """The message of the run that holds the schedule up; ``""``: there is none."""
        with self._woken:
            return self._state.outstanding.get(name, "")

    def _remember(self, guard: Guard, name: str, record: Record, *, closed: bool, by_hand: bool = False) -> None:
        if by_hand:
            # No fire time was decided: the last decided one stays what it is.
            self._append(name, _record_fields(guard, record))
            return
        fields = {**_record_fields(guard, record), "open": not closed}
        before = self._state.last.get(name)
        if before and before["open"]:
            if not closed and (before["outcome"], before["reason"]) == (record.outcome, record.reason):
                before["count"] = str(int(before["count"]) + record.count)
                before["fire_time_to"] = fields["fire_time_to"]
                before["decided_at"] = fields["decided_at"]
                return
            self._append(name, before)
        if closed:
            self._append(name, fields)
        self._state.last[name] = fields

    def _append(self, name: str, fields: Mapping[str, Any]) -> None:
        self._appended += 1
        self._ticks.append({"schedule": name, **{key: value for key, value in fields.items() if key != "open"}})

    # -- schedules ------------------------------------------------------------------------------------------

    def edit(self, guard: Guard, edits: Sequence[Edit]) -> list[str] | None:
        """Applies ``edits`` one by one. ``None``: the guard's holder does not have the lease."""
        with self._woken:
            if not self._admits(guard):
                return None
            answers = [self._edit_one(guard, edit) for edit in edits]
            if "ok" in answers:
                self._wake()
            return answers

    def _edit_one(self, guard: Guard, edit: Edit) -> str:
        state, before = self._state, edit.before
        if state.schedules.get(edit.name) != (before.spec if before else None):
            return "stale"
        if before is not None and state.due.get(edit.name) != before.score:
            return "stale"
        if edit.record is not None:
            self._remember(guard, edit.name, edit.record, closed=False)
        if edit.spec is None:
            self._remove(edit.name)
        else:
            state.revision = max(state.revision, guard.now) + 1
            state.revisions[edit.name] = state.revision
            state.schedules[edit.name] = json.dumps({"revision": state.revision, **edit.spec}, separators=(",", ":"))
            state.due[edit.name] = edit.score
        return "ok"

    def _remove(self, name: str) -> None:
        last = self._state.last.pop(name, None)
        if last and last["open"]:
            self._append(name, last)
        self._state.due.pop(name, None)
        self._state.outstanding.pop(name, None)
        self._state.enqueued.pop(name, None)
        self._state.revisions.pop(name, None)
        self._state.schedules.pop(name, None)

    def get(self, names: Iterable[str]) -> dict[str, Stored]:
        with self._woken:
            state = self._state
            return {
                name: Stored(name, state.schedules[name], state.due.get(name), state.revisions.get(name, ""))
                for name in names
                if name in state.schedules
            }

    def scan(self) -> Iterator[Stored]:
        """Every stored schedule, as of one instant."""
        yield from self.get(list(self._state.schedules)).values()

    def last(self, names: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """The last outcome of each schedule that has one."""
        with self._woken:
            return {name: dict(self._state.last[name]) for name in names if name in self._state.last}

    def history(self, name: str | None, limit: int) -> list[History]:
        """The newest ``limit`` records, newest first, of one schedule or of all, with how their runs stand."""
        with self._woken:
            runs = {**self._state.runs, **{tick["run"]: tick for tick in self._ticks if "run" in tick}}
            found = [
                History(tick["schedule"], tick, runs.get(tick["message_id"]))
                for tick in reversed(self._ticks)
                if "run" not in tick and name in (None, tick["schedule"])
            ]
            return found[:limit]

    # -- waking and watching --------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._wakes += 1
        self._woken.notify_all()

    def wait(self, seconds: float) -> bool:
        """Blocks until a schedule was edited or the leader left, for ``seconds`` at most."""
        with self._woken:
            woken = self._woken.wait_for(lambda: self._wakes != self._seen, timeout=seconds)
            self._seen = self._wakes
            return woken

    def wake(self) -> None:
        """Wakes everybody who waits."""
        with self._woken:
            self._wake()

    def heartbeat(self, instance: Instance, *, keep: int) -> None:
        """Publishes a process and drops those not heard of for ``keep`` ms."""
        with self._woken:
            now = self._now()
            self._state.instances[instance.holder] = (now, dict(instance.data))
            self._state.instances = {h: (at, d) for h, (at, d) in self._state.instances.items() if at >= now - keep}

    def forget(self, holder: str) -> None:
        """Takes a process that ends off the list."""
        with self._woken:
            self._state.instances.pop(holder, None)

    def instances(self, *, keep: int) -> list[Instance]:
        """The processes heard of within the last ``keep`` ms."""
        with self._woken:
            since = self._now() - keep
            return [Instance(holder, data) for holder, (at, data) in self._state.instances.items() if at >= since]

    def server(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        """There is nothing to close."""


def _record_fields(guard: Guard, record: Record) -> dict[str, Any]:
    return {
        "fire_time": str(record.fire_time),
        "fire_time_to": str(record.fire_time_to),
        "count": str(record.count),
        "outcome": record.outcome,
        "message_id": record.message_id,
        "decided_at": str(guard.now),
        "lateness_ms": "" if record.lateness is None else str(record.lateness),
        "term": str(guard.term),
        "holder": guard.holder,
        "reason": record.reason,
    }
