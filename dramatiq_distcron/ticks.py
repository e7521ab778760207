"""What to do with what is due: pure decisions.

A schedule's cursor is the score of its first undecided tick: its fire time, plus its part of the spread. A decision
is a list of moves, each taking the cursor to a later one: over ticks that get no message, or over one that does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from .policies import Policy
from .specs import Spec

__all__ = [
    "BUDGET",
    "DISABLED",
    "ENQUEUED",
    "ERROR",
    "MISSED",
    "NOT_ENABLED",
    "PAUSED",
    "SKIPPED_BACKPRESSURE",
    "SKIPPED_OVERLAP",
    "Move",
    "Situation",
    "decide",
    "passed_over",
]

ENQUEUED = "enqueued"
MISSED = "missed"
SKIPPED_OVERLAP = "skipped_overlap"
SKIPPED_BACKPRESSURE = "skipped_backpressure"
PAUSED = "paused"
DISABLED = "disabled"
ERROR = "error"

#: The reason of what is disabled by its own option.
NOT_ENABLED = "enabled=False"

#: How many fire times of one schedule are counted one by one; beyond that the count is an estimate.
BUDGET = 1000
#: Where the end of a backlog is looked for, so many come first.
_FEW = 16


@dataclass(frozen=True, slots=True)
class Situation:
    """What a decision depends on besides the schedule and its cursor.

    ``on_duty_since`` (UTC ms) tells the fire times of a gap from those a beat was there for. ``outstanding``: the run
    before is not over. ``disabled``: why nothing at all is enqueued. ``queue_length`` is asked for where it matters.
    """

    on_duty_since: int = 0
    outstanding: bool = False
    disabled: str = ""
    queue_length: Callable[[], int] = lambda: 0


@dataclass(slots=True)
class Move:
    """The cursor goes from ``score`` to ``new_score`` (``None``: no further fire time).

    It passes ``count`` fire times, from ``first`` to ``last``, all with the same ``outcome``.
    """

    score: int
    new_score: int | None
    outcome: str
    first: int
    last: int
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Fire times from ``first`` to ``last`` that have one outcome."""

    first: int
    last: int
    count: int
    outcome: str
    reason: str = ""


def decide(spec: Spec, cursor: int, now: int, situation: Situation) -> list[Move]:
    """The moves that take ``cursor`` past ``now`` (both UTC ms), or up to the tick that has to wait."""
    first = spec.fire_time_of(cursor)
    following = spec.next_ms(first)
    oldest, _ = _oldest_allowed(spec.policy, now, situation.on_duty_since)
    alone = following is None or spec.score_of(following) > now
    if alone and oldest <= cursor and _is_plain(spec, situation):
        # One tick, on time: nearly always, and 10,000 times at one instant.
        new_score = None if following is None else spec.score_of(following)
        return [Move(cursor, new_score, ENQUEUED, first, first, 1, "")]
    return _chained(spec, cursor, _stretches(spec, cursor, now, situation))


def _is_plain(spec: Spec, situation: Situation) -> bool:
    """Whether nothing but its time decides over a tick."""
    policy = spec.policy
    return (
        policy.enabled
        and not situation.disabled
        and spec.paused is None
        and policy.max_queue_length is None
        and not (situation.outstanding and policy.overlap != "allow")
    )


def passed_over(spec: Spec, cursor: int, now: int) -> tuple[int, int, int] | None:
    """First and last of the fire times that are due from ``cursor`` to ``now``, and how many; ``None``: there are none.

    Exact up to the budget, an estimate beyond.
    """
    times = list(islice(_due_times(spec, cursor, now), BUDGET + 1))
    if len(times) <= BUDGET:
        return (times[0], times[-1], len(times)) if times else None
    gap = _average_gap(times)
    last = (times + _latest(spec, times[-1], now, 1, gap))[-1]
    return times[0], last, len(times) + round((last - times[-1]) / gap)


def _due_times(spec: Spec, cursor: int, now: int) -> Iterator[int]:
    """The fire times from the one at ``cursor``, which need not be one by the timing (``run_at_start``)."""
    if cursor <= now:
        first = spec.fire_time_of(cursor)
        yield first
        yield from _due_after(spec, first, now)


def _due_after(spec: Spec, after: int, now: int) -> Iterator[int]:
    while (time := spec.next_ms(after)) is not None and spec.score_of(time) <= now:
        yield time
        after = time


def _average_gap(times: list[int]) -> int:
    return max(1, (times[-1] - times[0]) // (len(times) - 1))


# -- which outcome --------------------------------------------------------------------------------------------


def _stretches(spec: Spec, cursor: int, now: int, situation: Situation) -> list[_Stretch]:
    """The outcomes of the fire times due at ``now``, in order; those that have to wait are left out at the end."""
    reason = situation.disabled or ("" if spec.policy.enabled else NOT_ENABLED)
    if reason:
        return _all_as(spec, cursor, now, DISABLED, reason)
    if spec.paused is not None and (spec.paused.until is None or cursor < spec.paused.until):
        return _paused(spec, cursor, now, situation)
    times = list(islice(_due_times(spec, cursor, now), BUDGET + 1))
    missed, kept = _by_lateness(spec, times, cursor, now, situation)
    return missed + _by_load(spec.policy, kept, situation)


def _all_as(spec: Spec, cursor: int, now: int, outcome: str, reason: str) -> list[_Stretch]:
    passed = passed_over(spec, cursor, now)
    return [] if passed is None else [_Stretch(*passed, outcome, reason)]


def _paused(spec: Spec, cursor: int, now: int, situation: Situation) -> list[_Stretch]:
    """A pause never catches up: what came before its end is recorded, and only what came after goes its way."""
    assert spec.paused is not None
    until = spec.paused.until
    end = now if until is None else min(now, until - 1)
    before = _all_as(spec, cursor, end, PAUSED, spec.paused.reason)
    after = spec.next_ms(before[-1].last) if before and end < now else None
    if after is None or spec.score_of(after) > now:
        return before
    return before + _stretches(spec, spec.score_of(after), now, situation)


def _oldest_allowed(policy: Policy, now: int, on_duty_since: int) -> tuple[int, str]:
    """The oldest score whose tick may still be enqueued, and why an older one may not.

    A tick is late from when it was to be enqueued: its part of the spread is no lateness.
    """
    oldest, why = 0, ""
    if policy.catch_up == "skip":
        oldest, why = on_duty_since, "catch_up=skip"
    if policy.misfire_grace_time is not None and now - policy.misfire_grace_time > oldest:
        oldest, why = now - policy.misfire_grace_time, f"misfire_grace_time={policy.misfire_grace_time / 1000:g}"
    return oldest, why


def _kept_of(policy: Policy) -> tuple[int, str]:
    """How many of the fire times that are due may get a message, and why the others don't."""
    if policy.catch_up == "all":
        return policy.max_catch_up, f"max_catch_up={policy.max_catch_up}"
    return 1, f"catch_up={policy.catch_up}"


def _by_lateness(
    spec: Spec, times: list[int], cursor: int, now: int, situation: Situation
) -> tuple[list[_Stretch], list[int]]:
    """What is missed, and the fire times that are left for a message."""
    oldest, too_old = _oldest_allowed(spec.policy, now, situation.on_duty_since)
    if len(times) > BUDGET:
        return _estimate(spec, times, now, oldest, too_old)
    keep, superseded = _kept_of(spec.policy)
    scores = [cursor, *(spec.score_of(time) for time in times[1:])]
    late = times[: bisect_left(scores, oldest)]
    allowed = times[len(late) :]
    kept = allowed[-keep:]
    passed = allowed[: len(allowed) - len(kept)]
    missed, waited = passed, passed[:0]
    if spec.policy.overlap == "buffer_one" and situation.outstanding:
        # Of those that waited for the run to be over, the newest waits on; nobody missed the others.
        first = bisect_left(scores[len(late) : len(late) + len(passed)], situation.on_duty_since)
        missed, waited = passed[:first], passed[first:]
    return [
        *_stretch(late, MISSED, too_old),
        *_stretch(missed, MISSED, superseded),
        *_stretch(waited, SKIPPED_OVERLAP, "overlap=buffer_one"),
    ], kept


def _estimate(spec: Spec, times: list[int], now: int, oldest: int, too_old: str) -> tuple[list[_Stretch], list[int]]:
    """As above, for a backlog that begins with ``times`` and is too long to be walked through."""
    keep, superseded = _kept_of(spec.policy)
    gap = _average_gap(times)
    # Those at the beginning and at the end are known; what lies between is counted by its length.
    known = times + _latest(spec, times[-1], now, keep + 1, gap)
    kept = [time for time in known if spec.score_of(time) >= oldest][-keep:]
    passed = [time for time in known if not kept or time < kept[0]]
    if not passed:
        return [], kept
    walked = bisect_right(passed, times[-1])
    between = passed[-1] - times[-1] if walked < len(passed) else 0
    reason = superseded if spec.score_of(passed[-1]) >= oldest else too_old
    count = walked + round(between / gap)
    return [_Stretch(times[0], passed[-1], count, MISSED, f"{reason} (count estimated)")], kept


def _latest(spec: Spec, after: int, now: int, count: int, gap: int) -> list[int]:
    """The last ``count`` fire times after ``after`` that are due, or as many as there are, found from the end.

    A few first: how dense they are at the end may be far from what ``gap`` says of the beginning.
    """
    wanted = min(count, _FEW)
    while True:
        found = _some_of_the_latest(spec, after, now, wanted, gap)
        if wanted == count or len(found) < wanted:
            return found[-count:]
        gap = max(1, (now - found[0]) // len(found))
        wanted = min(count, wanted * _FEW)


def _some_of_the_latest(spec: Spec, after: int, now: int, count: int, gap: int) -> list[int]:
    """All fire times after some instant, at least ``count`` unless there are fewer, and not many more."""
    many: int | None = None
    few = now
    start = max(after, now - 2 * count * gap)
    while True:
        found = list(islice(_due_after(spec, start, now), 4 * count + 1))
        if len(found) > 4 * count:
            many = start
        elif len(found) >= count or start == after:
            return found
        else:
            few = start
        start = max(after, now - 4 * (now - start)) if many is None else (many + few) // 2


def _by_load(policy: Policy, kept: list[int], situation: Situation) -> list[_Stretch]:
    """Of the fire times that are left, which get a message now, which are skipped, which wait."""
    fired, held_up = _by_overlap(policy, kept, situation.outstanding)
    if policy.max_queue_length is None or not fired:
        return [*_singly(fired), *held_up]
    room = max(0, policy.max_queue_length - situation.queue_length())
    reason = f"max_queue_length={policy.max_queue_length}"
    if room == 0:
        # No run begins, so that none holds up the others.
        return _stretch(kept, SKIPPED_BACKPRESSURE, reason)
    return [*_singly(fired[:room]), *_stretch(fired[room:], SKIPPED_BACKPRESSURE, reason), *held_up]


def _by_overlap(policy: Policy, kept: list[int], outstanding: bool) -> tuple[list[int], list[_Stretch]]:
    """Those that may be enqueued as far as the run before goes, and what is held up by it."""
    if policy.overlap == "allow":
        return kept, []
    # The first of them is the run before to the others.
    fired = [] if outstanding else kept[:1]
    rest = kept[len(fired) :]
    if policy.overlap == "buffer_one":
        # The newest waits: the cursor stays on it until the run is over.
        rest = rest[:-1]
    return fired, _stretch(rest, SKIPPED_OVERLAP, f"overlap={policy.overlap}")


def _singly(times: list[int]) -> list[_Stretch]:
    return [_Stretch(time, time, 1, ENQUEUED) for time in times]


def _stretch(times: list[int], outcome: str, reason: str) -> list[_Stretch]:
    return [_Stretch(times[0], times[-1], len(times), outcome, reason)] if times else []


def _chained(spec: Spec, cursor: int, stretches: list[_Stretch]) -> list[Move]:
    """The moves of the cursor over the stretches; after the last comes the next fire time, or one that waits."""
    moves = []
    score = cursor
    for stretch in stretches:
        following = spec.next_ms(stretch.last)
        new_score = None if following is None else spec.score_of(following)
        moves.append(
            Move(score, new_score, stretch.outcome, stretch.first, stretch.last, stretch.count, stretch.reason)
        )
        if new_score is None:
            break
        score = new_score
    return moves
