"""Whether each outcome was due to the policy in force: its window, and its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .conservation import Violation
from .history import Decision, History
from .population import VETOED, Wanted
from .timeline import Timeline

__all__ = ["check_reasons"]

_MAX_CATCH_UP = 100


def check_reasons(history: History) -> Iterator[Violation]:
    """Every record has an outcome and a reason that one of the policies in force by then gives."""
    versions = {one.message_id: one.version for one in history.seen}
    for one in history.state.decisions:
        timeline = history.timelines.get(one.schedule)
        if timeline is None or not one.is_tick:
            continue
        candidates = timeline.put_before(one.decided_at)
        if not any(_fits(one, timeline, wanted) for wanted in candidates):
            yield Violation("unfounded", one.schedule, f"{one} under {candidates}, pauses {timeline.pauses}")
        version = versions.get(one.message_id)
        if version is not None and version < _least_version(one, timeline):
            yield Violation("old_version", one.schedule, f"{one} was sent as version {version}")


def _fits(one: Decision, timeline: Timeline, wanted: Wanted) -> bool:
    check = _OUTCOMES.get(one.outcome)
    return check is not None and check(one, timeline, wanted)


def _least_version(one: Decision, timeline: Timeline) -> int:
    """An edit of the times holds for every fire time after it."""
    bounds = [bound for bound in timeline.bounds if bound < one.first]
    if not bounds:
        return 0
    since = bounds[-1]
    return max((wanted.version for instant, wanted in timeline.versions if instant <= since), default=0)


def _later_due(one: Decision, timeline: Timeline, wanted: Wanted) -> int:
    """How many fire times after this one were certainly due when it was decided."""
    spread = int(wanted.policy.get("spread", 0) * 1000)
    return len(timeline.within(one.last + 1, one.decided_at - spread))


def _enqueued(one: Decision, timeline: Timeline, wanted: Wanted) -> bool:
    """Its window: from its fire time until, by policy, something else must have become of it."""
    policy = wanted.policy
    every = policy.get("catch_up", "latest") == "all"
    limit = policy.get("max_catch_up", _MAX_CATCH_UP) if every else 1
    grace = policy.get("misfire_grace_time")
    return (
        one.first == one.last
        and bool(one.message_id)
        and policy.get("enabled", True)
        and 0 <= _due(one) - one.first <= wanted.policy.get("spread", 0) * 1000
        and not _is_paused(one, timeline)
        and _later_due(one, timeline, wanted) < limit
        and (grace is None or one.decided_at - one.first <= grace * 1000)
    )


def _due(one: Decision) -> int:
    """When it was to be enqueued: its fire time and its part of the spread."""
    return one.decided_at - (one.lateness or 0)


def _is_paused(one: Decision, timeline: Timeline) -> bool:
    """A pause covers what was to be enqueued in it; what is spread to after its end is enqueued."""
    return any(pause.since < _due(one) < pause.until for pause in timeline.pauses)


def _missed(one: Decision, timeline: Timeline, wanted: Wanted) -> bool:
    word, _, value = one.reason.partition("=")
    check = _MISSED.get(word)
    return check is not None and check(one, timeline, wanted, value)


def _by_catch_up(one: Decision, timeline: Timeline, wanted: Wanted, value: str) -> bool:
    """A newer one was due, or nobody was there for longer than the lease can tell."""
    newer = len(timeline.within(one.last + 1, one.decided_at)) > 0
    return value == wanted.policy.get("catch_up", "latest") and (newer or value == "skip")


def _by_cap(one: Decision, timeline: Timeline, wanted: Wanted, value: str) -> bool:
    cap = wanted.policy.get("max_catch_up", _MAX_CATCH_UP)
    newer = len(timeline.within(one.last + 1, one.decided_at))
    return wanted.policy.get("catch_up") == "all" and int(value) == cap and newer >= cap


def _by_grace(one: Decision, timeline: Timeline, wanted: Wanted, value: str) -> bool:
    grace = wanted.policy.get("misfire_grace_time")
    return grace is not None and float(value) == grace and one.decided_at - one.last > grace * 1000


def _by_edit(one: Decision, timeline: Timeline, wanted: Wanted, value: str) -> bool:
    return any(bound >= one.last for bound in timeline.bounds)


def _by_overlap(one: Decision, timeline: Timeline, wanted: Wanted) -> bool:
    return wanted.exclusive and one.reason == f"overlap={wanted.policy['overlap']}"


def _by_length(one: Decision, timeline: Timeline, wanted: Wanted) -> bool:
    length = wanted.policy.get("max_queue_length")
    return length is not None and one.reason == f"max_queue_length={length}"


def _by_pause(one: Decision, timeline: Timeline, wanted: Wanted) -> bool:
    return any(pause.reason == one.reason and one.last < pause.until for pause in timeline.pauses)


def _by_switch(one: Decision, timeline: Timeline, wanted: Wanted) -> bool:
    return one.reason == "enabled=False" and wanted.policy.get("enabled") is False


def _by_veto(one: Decision, timeline: Timeline, wanted: Wanted) -> bool:
    return one.schedule.endswith(VETOED) and "refused by the hook" in one.reason


_MISSED: dict[str, Callable[[Decision, Timeline, Wanted, str], bool]] = {
    "catch_up": _by_catch_up,
    "max_catch_up": _by_cap,
    "misfire_grace_time": _by_grace,
    "edited": _by_edit,
    "removed": _by_edit,
}
_OUTCOMES: dict[str, Callable[[Decision, Timeline, Wanted], bool]] = {
    "enqueued": _enqueued,
    "missed": _missed,
    "skipped_overlap": _by_overlap,
    "skipped_backpressure": _by_length,
    "paused": _by_pause,
    "disabled": _by_switch,
    "error": _by_veto,
}
