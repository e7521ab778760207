"""Changes of one schedule, as edits of what is stored: pure.

Whatever was due and undecided under the old spec gets its outcome in the same step, so that no fire time vanishes;
and what was decided once is not decided again, also after a step back of the store's clock.
"""

from __future__ import annotations

from dataclasses import replace

from .specs import Pause, Retired, Spec
from .store.base import NEVER, Edit, Record, Stored
from .ticks import MISSED, PAUSED, passed_over

__all__ = [
    "DAY",
    "add",
    "bring_back",
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


def add(spec: Spec, now: int) -> Edit:
    """A schedule that was not there starts from now, with a tick at once if it says so."""
    return Edit(spec.name, None, spec.to_json(), now if spec.policy.run_at_start else next_score(spec, now))


def change(before: Stored, found: Spec, wanted: Spec, now: int) -> Edit:
    """From ``found`` to ``wanted``: the cursor stays if the times do, else it is set anew from now."""
    wanted = replace(wanted, paused=found.paused)
    cursor = now if before.score is None else before.score
    if found.times == wanted.times:
        return Edit(before.name, before, wanted.to_json(), cursor)
    return _from_now(before, found, wanted, cursor, now, "edited")


def retire(before: Stored, found: Spec, now: int) -> Edit:
    """The leader's code does not know it: it rests, and its cursor is kept."""
    cursor = next_score(found, now) if before.score is None else before.score
    return Edit(before.name, before, replace(found, retired=Retired(now, cursor)).to_json(), NEVER)


def rest(before: Stored, found: Spec) -> Edit:
    """A retired schedule whose place among the cursors got lost."""
    return Edit(before.name, before, found.to_json(), NEVER)


def return_(before: Stored, found: Spec, wanted: Spec, now: int) -> Edit:
    """A retired schedule that the leader's code knows again."""
    assert found.retired is not None
    return _from_now(before, found, replace(wanted, paused=found.paused), found.retired.cursor, now, "retired")


def remove(before: Stored, found: Spec | None, now: int) -> Edit:
    """Away with it. What was due is recorded."""
    if found is None or before.score is None:
        return Edit(before.name, before, None)
    cursor = found.retired.cursor if found.retired else before.score
    reason = "retired" if found.retired else "removed"
    return Edit(before.name, before, None, record=_undecided(found, cursor, now, reason))


def restore(before: Stored, spec: Spec, decided: int | None, now: int) -> Edit:
    """Gives a schedule its cursor again: after what was decided last, so that nothing in between is lost.

    What is older than its last edit was dealt with by that.
    """
    edited = min(before.revision, now) if isinstance(before.revision, int) else None
    after = max((time for time in (decided, edited) if time is not None), default=now)
    return Edit(before.name, before, spec.to_json(), next_score(spec, after))


def bring_back(spec: Spec, decided: int) -> Edit:
    """A schedule that is not stored, though its last outcome is: its spec got lost, and it goes on from there."""
    return Edit(spec.name, None, spec.to_json(), next_score(spec, decided))


def pause(before: Stored, found: Spec, reason: str, until: int | None, now: int) -> Edit:
    """From now on its fire times are recorded as paused."""
    cursor = next_score(found, now) if before.score is None else before.score
    return Edit(before.name, before, replace(found, paused=Pause(now, reason, until)).to_json(), cursor)


def resume(before: Stored, found: Spec, now: int) -> Edit:
    """From now on it fires again. What came in the pause is not made up for."""
    cursor = now if before.score is None else before.score
    return _from_now(before, found, replace(found, paused=None), cursor, now, "paused")


def is_absurd(spec: Spec, score: int, now: int) -> bool:
    """Whether fire times of more than a day ahead are decided already: the store's clock had jumped forward.

    A schedule would else be silent until that time comes. A cursor that is far ahead because its next fire time is,
    is none of these: a monthly job right after its tick.
    """
    if not now + DAY < score < NEVER:
        return False
    ahead = spec.next_ms(now + DAY)
    return ahead is not None and ahead < spec.fire_time_of(score)


def heal(before: Stored, found: Spec, now: int) -> Edit:
    """Sets an absurd cursor to the next fire time from now."""
    return Edit(before.name, before, found.to_json(), next_score(found, now))


def next_score(spec: Spec, now: int) -> int:
    """The cursor of a schedule that starts from now."""
    found = spec.next_ms(now)
    return NEVER if found is None else spec.score_of(found)


def _from_now(before: Stored, found: Spec, wanted: Spec, cursor: int, now: int, reason: str) -> Edit:
    record = _undecided(found, cursor, now, reason)
    return Edit(before.name, before, wanted.to_json(), _anew(found, wanted, cursor, now), record)


def _anew(found: Spec, wanted: Spec, cursor: int, now: int) -> int:
    """The cursor of ``wanted`` from now on, where that of ``found`` was ``cursor``."""
    undecided = found.fire_time_of(cursor)
    # After a step back of the store's clock fire times of the near future are decided already: not again.
    stepped_back = now < cursor < NEVER and (found.next_ms(now) or undecided) < undecided
    return next_score(wanted, undecided - 1 if stepped_back else now)


def _undecided(spec: Spec, cursor: int, now: int, reason: str) -> Record | None:
    passed = passed_over(spec, cursor, now)
    if passed is None:
        return None
    if spec.paused is not None:
        return Record(PAUSED, *passed, spec.paused.reason)
    return Record(MISSED, *passed, reason)
