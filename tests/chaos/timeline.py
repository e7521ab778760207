"""Which schedule was in force when: from the edits that were asked for to the fire times that had to come.

An edit is a comparison and a write in one step, so it was done or not; where its reply was lost, what the next one
found tells which. Pure functions.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from .population import Wanted
from .timetable import Times

__all__ = ["Attempt", "Pause", "Timeline", "applied", "timeline"]


@dataclass(frozen=True)
class Attempt:
    """One edit as it was sent: on what it was made, what it writes, and the instant ``now`` it is made for (UTC ms).

    ``answer`` is what came back; ``""``: nobody knows. ``wanted`` is the schedule after it; ``None``: it is removed.
    """

    name: str
    now: int
    before: str | None
    score: int | None
    spec: Mapping[str, Any] | None
    answer: str
    wanted: Wanted | None


def applied(attempts: Sequence[Attempt], final: str | None) -> list[Attempt]:
    """Those of one schedule's attempts that were done, in order. ``final`` is its stored form at the end."""
    done: list[Attempt] = []
    spent: set[str | None] = set()
    for number, attempt in enumerate(attempts):
        later = [*(one.before for one in attempts[number + 1 :]), final]
        if attempt.answer == "ok" or (attempt.answer == "" and _shows(attempt, later)):
            # What an edit was made on is there once; only "it did not exist" comes again.
            assert attempt.before is None or attempt.before not in spent, "two edits were done on one revision"
            spent.add(attempt.before)
            done.append(attempt)
    return done


def _shows(attempt: Attempt, later: Sequence[str | None]) -> bool:
    """Whether what was found later is what this attempt wrote."""
    for text in later:
        if text == attempt.before:
            continue
        # The first other state is the one that came after ``before``.
        if text is None or attempt.spec is None:
            return text is None and attempt.spec is None
        return _without_revision(text) == json.loads(json.dumps(dict(attempt.spec)))
    return False


def _without_revision(text: str) -> Any:
    data = json.loads(text)
    data.pop("revision", None)
    return data


@dataclass(frozen=True)
class Pause:
    """Nothing is enqueued that was due after ``since`` and before ``until``, its part of the spread included."""

    since: int
    until: int
    reason: str


@dataclass(frozen=True)
class _Span:
    """The fire times ``after`` < t <= ``until``, and the schedule as it was put for them."""

    after: int
    until: int
    wanted: Wanted


@dataclass(frozen=True)
class Timeline:
    """One schedule over the whole run."""

    name: str
    fire_times: Sequence[int]
    versions: Sequence[tuple[int, Wanted]]
    pauses: Sequence[Pause]
    #: Where the times, or the schedule itself, changed.
    bounds: Sequence[int]
    #: When it was removed: not before the first of the two, and not after the second.
    removals: Sequence[tuple[int, int]] = ()

    def within(self, first: int, last: int) -> Sequence[int]:
        """The fire times from ``first`` to ``last``, both included."""
        start = bisect_right(self.fire_times, first - 1)
        return self.fire_times[start : bisect_right(self.fire_times, last)]

    def put_before(self, instant: int) -> list[Wanted]:
        """Every version that was in force at some time up to ``instant``."""
        return [wanted for since, wanted in self.versions if since <= instant]

    def may_be_removed_within(self, first: int, last: int) -> bool:
        """Whether it may have been removed between the two instants: then it knew nothing of the runs before."""
        return any(earliest <= last and latest >= first for earliest, latest in self.removals)

    @property
    def exclusive(self) -> bool:
        """Whether its runs must not overlap; no edit changes that."""
        return any(wanted.exclusive for _, wanted in self.versions)

    @property
    def actors(self) -> set[str]:
        return {wanted.actor for _, wanted in self.versions}


def timeline(name: str, edits: Sequence[Attempt], end: int, *, code: tuple[Wanted, int] | None = None) -> Timeline:
    """The timeline of one schedule up to ``end``.

    Parameters:
      edits: those that were done, in order.
      code: the schedule as it is in the code, and since when it is there; for those that are.
    """
    spans: list[_Span] = []
    versions: list[tuple[int, Wanted]] = []
    extra: list[int] = []
    pauses: list[Pause] = []
    current: tuple[int, Wanted] | None = None
    if code is not None:
        current = (code[1], code[0])
        versions.append((code[1], code[0]))
        extra += [code[1]] if code[0].policy.get("run_at_start") else []
    for edit in edits:
        bound = _bound(edit, current[1].times if current else None)
        _pause(pauses, edit)
        if current is not None:
            spans.append(_Span(current[0], bound, current[1]))
        elif edit.wanted is not None and edit.wanted.policy.get("run_at_start"):
            extra.append(edit.now)
        current = None if edit.wanted is None else (bound, edit.wanted)
        if edit.wanted is not None:
            versions.append((edit.now, edit.wanted))
    if current is not None:
        spans.append(_Span(current[0], end, current[1]))
    times = {time for span in spans for time in span.wanted.times.between(span.after, span.until)}
    bounds = [span.until for span in spans if span.until < end]
    return Timeline(name, sorted(times.union(extra)), versions, pauses, bounds, _removals(edits, end))


def _removals(edits: Sequence[Attempt], end: int) -> list[tuple[int, int]]:
    """Each was done at the latest when the next edit found it done."""
    instants = [*(edit.now for edit in edits), end]
    return [(now, later) for edit, (now, later) in zip(edits, pairwise(instants), strict=True) if edit.wanted is None]


def _bound(edit: Attempt, times: Times | None) -> int:
    """Up to which fire time the schedule before the edit counts.

    That is the instant it was made for, unless the leader was further by the time its cursor was read.
    """
    if times is None or edit.score is None:
        return edit.now
    decided = _floor(times, edit.now, edit.score)
    following = times.next_after(edit.now)
    if decided is not None and following is not None and following < decided:
        return decided - 1
    return edit.now


def _floor(times: Times, now: int, score: int) -> int | None:
    """The fire time that the cursor ``score`` stands at: the last one up to it, as its spread is below the gap."""
    if score > now + 86_400_000:
        return None
    found = times.between(min(now, score) - 7_200_000, score)
    return found[-1] if found else None


def _pause(pauses: list[Pause], edit: Attempt) -> None:
    """Takes in that the schedule is paused from this edit on, or is not any more.

    What comes before the cursor it was made on was decided before it; one that is removed may come back with another.
    """
    stays = edit.wanted is not None and edit.score is not None and edit.score < edit.now + 86_400_000
    instant = max(edit.now, (edit.score or 0) - 1) if stays else edit.now
    paused = (edit.spec or {}).get("paused")
    last = pauses[-1] if pauses else None
    if last is not None and paused is not None and paused["reason"] == last.reason:
        return
    if last is not None:
        pauses[-1] = replace(last, until=min(last.until, instant + 1))
    if paused is not None:
        pauses.append(Pause(instant, paused["until"] or 2**62, paused["reason"]))
