"""Changes of one schedule, as edits of what is stored: pure.

Whatever was due and undecided under the old spec gets its outcome in the same step, so that no fire time vanishes;
and what was decided once is not decided again, also after a step back of the store's clock.
"""

from __future__ import annotations

import re
from dataclasses import replace

from .specs import Pause, Retired, Spec
from .store.base import NEVER, Edit, Record, Stored
from .ticks import DISABLED, MISSED, NOT_ENABLED, PAUSED, passed_over

__all__ = [
    "DAY",
    "add",
    "add_again",
    "change",
    "heal",
    "is_absurd",
    "next_score",
    "pause",
    "remove",
    "rest",
    "restore",
    "resume",
    "retire",
    "return_",
]

DAY = 86_400_000
#: The revision in a stored spec is about when it was edited, in ms.
_REVISION = re.compile(r'\{"revision": ?(\d{1,15}),')


def add(spec: Spec, now: int) -> Edit:
    """A schedule that was not there starts from now, with a tick at once if it says so and its bounds allow."""
    policy = spec.policy
    within = (policy.start is None or policy.start <= now) and (policy.end is None or now <= policy.end)
    return Edit(spec.name, None, spec.to_json(), now if policy.run_at_start and within else next_score(spec, now))


def add_again(spec: Spec, decided: int) -> Edit:
    """A schedule whose spec and cursor got lost: from what was decided last, so that nothing since is lost."""
    return Edit(spec.name, None, spec.to_json(), next_score(spec, decided))


def change(before: Stored, found: Spec, wanted: Spec, now: int, decided: int | None = None) -> Edit:
    """From ``found`` to ``wanted``: the cursor stays if the times do, else it is set anew from now.

    So it is if the schedule was disabled and is no more: what came meanwhile is not made up for. ``decided`` is its
    last fire time that has an outcome, where that is known.
    """
    return _changed(before, found, wanted, now if before.score is None else before.score, now, decided)


def retire(before: Stored, found: Spec, now: int) -> Edit:
    """The leader's code does not know it: what was due is recorded, and it rests with its cursor behind that."""
    cursor = now if before.score is None else before.score
    passed, waiting = _undecided(found, cursor, now)
    record = _record(found, _with(passed, waiting), "retired")
    retired = Retired(now, _anew(found, found, cursor, now))
    return Edit(before.name, before, replace(found, retired=retired).to_json(), NEVER, record)


def rest(before: Stored, found: Spec) -> Edit:
    """A retired schedule whose place among the cursors got lost, or whose spec changes while it rests."""
    return Edit(before.name, before, found.to_json(), NEVER)


def return_(before: Stored, found: Spec, wanted: Spec, now: int, decided: int | None = None) -> Edit:
    """A retired schedule that the leader's code knows again. ``decided``: as for :func:`change`."""
    assert found.retired is not None
    wanted = replace(wanted, paused=found.paused)
    return _from_now(before, found, wanted, found.retired.cursor, now, "retired", decided)


def remove(before: Stored, found: Spec | None, now: int) -> Edit:
    """Away with it. What was due is recorded."""
    if found is None or before.score is None:
        return Edit(before.name, before, None)
    cursor = found.retired.cursor if found.retired else before.score
    reason = "retired" if found.retired else "removed"
    passed, waiting = _undecided(found, cursor, now)
    return Edit(before.name, before, None, record=_record(found, _with(passed, waiting), reason))


def restore(before: Stored, found: Spec | None, wanted: Spec, decided: int | None, now: int) -> Edit:
    """Gives a schedule its cursor again: after what was decided last, so that nothing in between is lost.

    What is older than its last edit was dealt with by that.
    """
    revision = _REVISION.match(before.spec)
    edited = None if revision is None else min(int(revision[1]), now)
    since = max((time for time in (decided, edited) if time is not None), default=now)
    if found is None:
        return Edit(before.name, before, wanted.to_json(), next_score(wanted, since))
    return _changed(before, found, wanted, next_score(found, since), now, decided)


def pause(before: Stored, found: Spec, reason: str, until: int | None, now: int) -> Edit:
    """From now on its fire times are recorded as paused."""
    paused = replace(found, paused=Pause(now, reason, until))
    if found.retired:
        return rest(before, paused)
    return Edit(before.name, before, paused.to_json(), next_score(found, now) if before.score is None else before.score)


def resume(before: Stored, found: Spec, now: int) -> Edit:
    """From now on it fires again, or from when its pause ended. What came in the pause is not made up for."""
    resumed = replace(found, paused=None)
    if found.retired:
        return rest(before, resumed)
    until = found.paused.until if found.paused else None
    end = now if until is None else min(now, until - 1)
    cursor = now if before.score is None else before.score
    return _from_now(before, found, resumed, cursor, end, "paused")


def is_absurd(spec: Spec, score: int, now: int) -> bool:
    """Whether fire times of more than a day ahead are decided already: the store's clock had jumped forward.

    A schedule would else be silent until that time comes. A cursor that is far ahead because its next fire time is,
    is none of these: a monthly job right after its tick.
    """
    if not now + DAY < score < NEVER:
        return False
    ahead = spec.next_ms(now + DAY)
    return ahead is not None and ahead < spec.fire_time_of(score)


def heal(before: Stored, found: Spec, wanted: Spec, now: int) -> Edit:
    """Sets an absurd cursor to the next fire time from now."""
    wanted = replace(wanted, paused=found.paused)
    return Edit(before.name, before, wanted.to_json(), next_score(wanted, now))


def next_score(spec: Spec, now: int) -> int:
    """The cursor of a schedule that starts from now."""
    found = spec.next_ms(now)
    return NEVER if found is None else spec.score_of(found)


def _changed(before: Stored, found: Spec, wanted: Spec, cursor: int, now: int, decided: int | None = None) -> Edit:
    wanted = replace(wanted, paused=found.paused)
    is_woken = wanted.policy.enabled and not found.policy.enabled
    if found.times == wanted.times and not is_woken:
        return Edit(before.name, before, wanted.to_json(), cursor)
    return _from_now(before, found, wanted, cursor, now, "edited", decided)


def _from_now(
    before: Stored, found: Spec, wanted: Spec, cursor: int, now: int, reason: str, decided: int | None = None
) -> Edit:
    passed, waiting = _undecided(found, cursor, now)
    if waiting is not None and _is_latest(wanted, waiting, now):
        return Edit(before.name, before, wanted.to_json(), wanted.score_of(waiting), _record(found, passed, reason))
    record = _record(found, _with(passed, waiting), reason)
    return Edit(before.name, before, wanted.to_json(), _anew(found, wanted, cursor, now, decided), record)


def _is_latest(wanted: Spec, waiting: int, now: int) -> bool:
    """Whether no fire time of ``wanted`` came after this one: those from before the edit are none of its own."""
    following = wanted.next_ms(waiting)
    return wanted.next_ms(waiting - 1) == waiting and (following is None or following > now)


def _anew(found: Spec, wanted: Spec, cursor: int, now: int, decided: int | None = None) -> int:
    """The cursor of ``wanted`` from now on, where that of ``found`` was ``cursor``."""
    if found.times == wanted.times:
        # What is decided stays so, also where a clock or the end of a pause lies before it.
        return max(cursor, next_score(wanted, now))
    # After a step back of the store's clock fire times of the near future are decided already: not again.
    since = now
    undecided = found.fire_time_of(cursor)
    if now < cursor < NEVER and (found.next_ms(now) or undecided) < undecided:
        since = undecided - 1
    # A cursor far ahead, or of a schedule that is over, says nothing of what was decided under the spec before it.
    if decided is not None and since < decided <= now + DAY:
        since = decided
    return next_score(wanted, since)


#: First and last of some fire times, and how many they are.
_Passed = tuple[int, int, int]


def _undecided(spec: Spec, cursor: int, now: int) -> tuple[_Passed | None, int | None]:
    """What was to be enqueued by now, and the fire time that has come and waits for its part of the spread."""
    passed = passed_over(spec, cursor, now)
    following = spec.fire_time_of(cursor) if passed is None else spec.next_ms(passed[1])
    return passed, following if following is not None and following <= now else None


def _with(passed: _Passed | None, waiting: int | None) -> _Passed | None:
    if waiting is None:
        return passed
    return (waiting, waiting, 1) if passed is None else (passed[0], waiting, passed[2] + 1)


def _record(spec: Spec, passed: _Passed | None, reason: str) -> Record | None:
    if passed is None:
        return None
    if not spec.policy.enabled:
        return Record(DISABLED, *passed, NOT_ENABLED)
    pause = spec.paused
    if pause is not None and (pause.until is None or passed[1] < pause.until):
        return Record(PAUSED, *passed, pause.reason)
    return Record(MISSED, *passed, reason)
