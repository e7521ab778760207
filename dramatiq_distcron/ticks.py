"""What to do with what is due: pure decisions.

A schedule's cursor is its first undecided fire time. A decision is a list of moves, each taking the cursor from
one fire time to a later one: over the fire times that get no message, or over the one that does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from .policies import Policy
from .schedules import Timing
from .specs import Spec

__all__ = ["BUDGET", "DISABLED", "ENQUEUED", "ERROR", "MISSED", "Move", "decide", "passed_over"]

ENQUEUED = "enqueued"
MISSED = "missed"
DISABLED = "disabled"
ERROR = "error"

#: How many fire times of one schedule are counted one by one; beyond that the count is an estimate.
BUDGET = 1000


@dataclass(slots=True)
class Move:
    """The cursor goes from ``score`` to ``new_score`` (``None``: no further fire time).

    It passes ``count`` fire times, from ``score`` to ``last``, all with the same ``outcome``.
    """

    score: int
    new_score: int | None
    outcome: str
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


def decide(spec: Spec, cursor: int, now: int, *, on_duty_since: int) -> list[Move]:
    """The moves that take ``cursor`` past ``now``, both UTC ms.

    ``on_duty_since`` tells the fire times of a gap from those a beat was there for: with ``catch_up="skip"`` only
    the latter are enqueued, however long the pass took to reach them.
    """
    timing, policy = spec.timing, spec.policy
    oldest, too_old = _oldest_allowed(policy, now, on_duty_since)
    following = timing.next_ms(cursor)
    if oldest <= cursor and (following is None or following > now):
        # One tick, on time: nearly always, and 10,000 times at one instant.
        return [Move(cursor, following, ENQUEUED, cursor, 1, "")]
    times = list(islice(_fire_times(timing, cursor, now), BUDGET + 1))
    if len(times) <= BUDGET:
        stretches = _count_all(times, policy, oldest, too_old)
    else:
        stretches = _estimate(timing, times, now, policy, oldest, too_old)
    return _chained(stretches, timing.next_ms(now))


def passed_over(timing: Timing, cursor: int, now: int) -> tuple[int, int] | None:
    """The last fire time from ``cursor`` to ``now`` and how many there are; ``None`` if there is none."""
    times = list(islice(_fire_times(timing, cursor, now), BUDGET + 1))
    if len(times) <= BUDGET:
        return (times[-1], len(times)) if times else None
    gap = _average_gap(times)
    last = (times + _latest(timing, times[-1], now, 1, gap))[-1]
    return last, len(times) + round((last - times[-1]) / gap)


def _average_gap(times: list[int]) -> int:
    return max(1, (times[-1] - times[0]) // (len(times) - 1))


def _fire_times(timing: Timing, first: int, until: int) -> Iterator[int]:
    time: int | None = first
    while time is not None and time <= until:
        yield time
        time = timing.next_ms(time)


def _oldest_allowed(policy: Policy, now: int, on_duty_since: int) -> tuple[int, str]:
    """The oldest fire time that may still be enqueued, and why an older one may not."""
    oldest, why = 0, ""
    if policy.catch_up == "skip":
        oldest, why = on_duty_since, "catch_up=skip"
    if policy.misfire_grace_time is not None and now - policy.misfire_grace_time > oldest:
        oldest, why = now - policy.misfire_grace_time, f"misfire_grace_time={policy.misfire_grace_time / 1000:g}"
    return oldest, why


def _kept_of(policy: Policy) -> tuple[int, str]:
    """How many of the fire times that are due get a message, and why the others don't."""
    if policy.catch_up == "all":
        return policy.max_catch_up, f"max_catch_up={policy.max_catch_up}"
    return 1, f"catch_up={policy.catch_up}"


def _count_all(times: list[int], policy: Policy, oldest: int, too_old: str) -> list[_Stretch]:
    keep, superseded = _kept_of(policy)
    late = [time for time in times if time < oldest]
    allowed = times[len(late) :]
    kept = allowed[-keep:]
    passed = allowed[: len(allowed) - len(kept)]
    return [
        *(
            _Stretch(some[0], some[-1], len(some), MISSED, why)
            for some, why in ((late, too_old), (passed, superseded))
            if some
        ),
        *(_Stretch(time, time, 1, ENQUEUED) for time in kept),
    ]


def _estimate(timing: Timing, times: list[int], now: int, policy: Policy, oldest: int, too_old: str) -> list[_Stretch]:
    """As ``_count_all``, for a backlog that begins with ``times`` and is too long to be walked through."""
    keep, superseded = _kept_of(policy)
    gap = _average_gap(times)
    # Those at the beginning and at the end are known; what lies between is counted by its length.
    known = times + _latest(timing, times[-1], now, keep + 1, gap)
    kept = [time for time in known if time >= oldest][-keep:]
    ticks = [_Stretch(time, time, 1, ENQUEUED) for time in kept]
    passed = [time for time in known if not kept or time < kept[0]]
    if not passed:
        return ticks
    walked = bisect_right(passed, times[-1])
    between = passed[-1] - times[-1] if walked < len(passed) else 0
    reason = superseded if passed[-1] >= oldest else too_old
    missed = _Stretch(times[0], passed[-1], walked + round(between / gap), MISSED, f"{reason} (count estimated)")
    return [missed, *ticks]


def _latest(timing: Timing, after: int, until: int, count: int, gap: int) -> list[int]:
    """The last ``count`` fire times in (``after``, ``until``], or as many as there are, found from the end."""
    span = 2 * count * gap
    while True:
        start = max(after, until - span)
        first = timing.next_ms(start)
        found = deque(_fire_times(timing, first, until) if first is not None else (), maxlen=count)
        if len(found) == count or start == after:
            return list(found)
        span *= 4


def _chained(stretches: list[_Stretch], following: int | None) -> list[Move]:
    ends = [*(stretch.first for stretch in stretches[1:]), following]
    return [Move(s.first, end, s.outcome, s.last, s.count, s.reason) for s, end in zip(stretches, ends, strict=True)]
