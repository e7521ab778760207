"""Whether runs that must not overlap did not: by the order of the records, and by what the workers saw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from .conservation import Violation
from .history import History
from .witness import Seen

__all__ = ["check_exclusion"]


def check_exclusion(history: History) -> Iterator[Violation]:
    """Of a schedule with an overlap policy, no run begins before the one before is over.

    Except beside a run of one of its name that was removed since.
    """
    exclusive = {name for name, timeline in history.timelines.items() if timeline.exclusive}
    yield from _by_records(history, exclusive)
    # Of one that fails on the way Dramatiq may make two retries, if its worker is killed between two of its steps.
    retrying = {name for name in exclusive if history.timelines[name].actors & {"flaky", "doomed"}}
    yield from _by_witness(history, exclusive - retrying)


def _by_records(history: History, exclusive: set[str]) -> Iterator[Violation]:
    """Both kinds of record are in one stream, and it has the order in which they were written."""
    begun = [
        (one.position or 0, one.schedule, one.message_id, True) for one in history.state.decisions if one.message_id
    ]
    over = [(one.position, one.schedule, one.message_id, False) for one in history.state.endings]
    knows_nothing_of = _Removals(history)
    outstanding: dict[str, str] = {}
    for _, schedule, message_id, is_begin in sorted(begun + over):
        if schedule not in exclusive:
            continue
        before = outstanding.get(schedule)
        if not is_begin:
            if before == message_id:
                del outstanding[schedule]
        elif before is None or knows_nothing_of(schedule, before, message_id):
            outstanding[schedule] = message_id
        else:
            yield Violation("overlap", schedule, f"{message_id} was enqueued before {before} was over")


def _by_witness(history: History, exclusive: set[str]) -> Iterator[Violation]:
    by_schedule: dict[str, dict[str, list[Seen]]] = defaultdict(lambda: defaultdict(list))
    for seen in history.seen:
        if seen.schedule in exclusive:
            by_schedule[seen.schedule][seen.message_id].append(seen)
    knows_nothing_of = _Removals(history)
    for schedule, messages in by_schedule.items():
        runs = sorted((_begin(events), _end(events), message_id) for message_id, events in messages.items())
        for before, after in pairwise(runs):
            if after[0] < before[1] and not knows_nothing_of(schedule, before[2], after[2]):
                yield Violation("overlap", schedule, f"{after[2]} ran before {before[2]} was over")


class _Removals:
    """Tells whether the schedule of two messages may have been removed after one and before the other."""

    def __init__(self, history: History) -> None:
        self._timelines = history.timelines
        self._enqueued = {one.message_id: one.stored_at or 0 for one in history.state.decisions if one.message_id}

    def __call__(self, schedule: str, one: str, other: str) -> bool:
        first, last = sorted(self._enqueued.get(message_id, 0) for message_id in (one, other))
        return self._timelines[schedule].may_be_removed_within(first, last)


def _begin(events: list[Seen]) -> int:
    return min(seen.at for seen in events)


def _end(events: list[Seen]) -> int:
    """The first time it was done: a worker taken for dead may still be at the same message, and is no second run."""
    return min((seen.at for seen in events if seen.event == "done"), default=0)
