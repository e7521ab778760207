"""A checker in the manner of Jepsen's test of Chronos: targets, windows, and runs that are matched with them.

Each fire time that had to come is a *target*, computed by arithmetic of our own from what was asked for. It must have
one outcome, and if that is a message, a run of its own in its window. What is left of the runs is one too many.

Jepsen's windows are a fixed time long. Ours follow from the policy: how long after its target a tick may still be
enqueued, before something else must have become of it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from .conservation import Violation
from .history import Decision, Ended, History
from .timeline import Timeline

__all__ = ["check_targets", "matched"]

#: Beyond this a cursor stands at no fire time: there is none any more.
_NEVER = 2**52


def check_targets(history: History) -> Iterator[Violation]:
    """Every target has one outcome, and every message of a tick one run."""
    by_schedule: dict[str, list[Decision]] = defaultdict(list)
    for one in history.state.decisions:
        if one.is_tick:
            by_schedule[one.schedule].append(one)
    for name in by_schedule.keys() - history.timelines.keys():
        yield Violation("phantom", name, "a schedule that was never asked for has records")
    runs = _first_runs(history)
    ends = {one.message_id: one for one in history.state.endings}
    for name, timeline in history.timelines.items():
        decisions = by_schedule.get(name, [])
        yield from _covered(timeline, decisions, history)
        yield from _in_order(decisions)
        yield from _run(timeline, decisions, runs.get(name, {}), ends)


# -- one outcome a target -------------------------------------------------------------------------------------


def _covered(timeline: Timeline, decisions: Sequence[Decision], history: History) -> Iterator[Violation]:
    decided: dict[int, str] = {}
    for one in decisions:
        times = timeline.within(one.first, one.last)
        if not times or times[0] != one.first or times[-1] != one.last:
            yield Violation("phantom", timeline.name, f"no target is at an end of {_shown(one)}")
        elif len(times) != one.count:
            yield Violation("miscounted", timeline.name, f"{len(times)} targets are in {_shown(one)}")
        for time in times:
            if time in decided:
                yield Violation("decided_twice", timeline.name, f"{time} was {decided[time]} and {_shown(one)}")
            decided[time] = _shown(one)
    for time in timeline.fire_times:
        if time not in decided and _had_to_be_decided(time, timeline, history):
            yield Violation("hole", timeline.name, f"nothing became of {time}")


def _had_to_be_decided(time: int, timeline: Timeline, history: History) -> bool:
    if time > history.settled:
        return False
    cursor = history.state.cursors.get(timeline.name)
    if cursor is None or not history.settled < cursor < _NEVER:
        return True
    # Spread out, it may be due later than its fire time.
    return time < timeline.within(0, cursor)[-1]


def _in_order(decisions: Sequence[Decision]) -> Iterator[Violation]:
    stored = sorted((one for one in decisions if one.position is not None), key=lambda one: one.position or 0)
    for before, after in pairwise(stored):
        if after.first <= before.last:
            yield Violation("disorder", after.schedule, f"{_shown(after)} came after {_shown(before)}")


def _shown(one: Decision) -> str:
    return f"{one.outcome} {one.first}..{one.last} ({one.count}, {one.reason!r}, decided {one.decided_at})"


# -- one run a message ----------------------------------------------------------------------------------------


def _first_runs(history: History) -> Mapping[str, Mapping[str, int]]:
    """When the first run of each tick's message began, by schedule and message."""
    by_hand = {one.message_id for one in history.state.decisions if one.message_id and not one.is_tick}
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for seen in history.seen:
        if seen.event == "begun" and seen.message_id not in by_hand:
            found[seen.schedule].setdefault(seen.message_id, seen.at)
    return found


def _run(
    timeline: Timeline, decisions: Sequence[Decision], runs: Mapping[str, int], ends: Mapping[str, Ended]
) -> Iterator[Violation]:
    """The targets that got a message, and the runs, are matched without asking which is whose.

    The window of one is from its enqueuing, and not before its fire time, to its recorded end.
    """
    windows: list[tuple[int, int | None]] = []
    for one in decisions:
        end = ends.get(one.message_id)
        # A message that was dropped, as its record says, or that still waits, has no run.
        if one.message_id in runs or (end is not None and end.state != "dropped"):
            windows.append((max(one.first, one.stored_at or 0), end.stored_at if end else None))
    unmet, extra = matched(windows, sorted(runs.values()))
    for lower, _ in unmet:
        yield Violation("no_run", timeline.name, f"a target whose window begins at {lower} has no run")
    for at in extra:
        yield Violation("extra_run", timeline.name, f"the run at {at} is one too many")


def matched(
    windows: Sequence[tuple[int, int | None]], runs: Sequence[int]
) -> tuple[list[tuple[int, int | None]], list[int]]:
    """Gives each run the window that closes first of those it is in. Returns the windows and the runs that are left.

    ``runs`` rise. With intervals this finds as many pairs as there can be.
    """
    coming = sorted(windows, key=lambda window: window[0])
    open_: list[tuple[float, int, int | None]] = []
    unmet, extra = [], []
    at = 0
    for run in runs:
        while at < len(coming) and coming[at][0] <= run:
            lower, upper = coming[at]
            heapq.heappush(open_, (float("inf") if upper is None else upper, lower, upper))
            at += 1
        while open_ and open_[0][0] < run:
            unmet.append(heapq.heappop(open_)[1:])
        if open_:
            heapq.heappop(open_)
        else:
            extra.append(run)
    return unmet + [one[1:] for one in open_] + coming[at:], extra
