"""Changes of one schedule, as edits of what is stored: pure.

Whatever was due and undecided under the old spec gets its outcome in the same step, so that no fire time vanishes;
and what was decided once is not decided again, also after a step back of the store's clock.
"""

from __future__ import annotations

from dataclasses import replace

from .specs import Pause, Retired, Spec
from .store.base import NEVER, Edit, Record, Stored
from .ticks import MISSED, PAUSED, passed_by

__all__ = [
    "DAY",
    "add",
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


def add(spec: Spec, now: int, *, again: bool = False) -> Edit:
    """A schedule that was not there starts from ``now``, maybe with a tick at once; not if it is there ``again``."""
    at_once = spec.policy.run_at_start and not again
    return Edit(spec.name, None, spec.to_json(), now if at_once else next_score(spec, now))


def change(before: Stored, found: Spec, wanted: Spec, now: int) -> Edit:
    """From ``found`` to ``wanted``: the cursor stays if the times do, else it is set anew from now."""
    wanted = replace(wanted, paused=found.paused)
    cursor = now if before.score is None else before.score
    if found.times == wanted.times:
        return Edit(before.name, before, wanted.to_json(), cursor)
    return _from_now(before, found, wanted, cursor, now, "edited")


def retire(before: Stored, found: Spec, now: int) -> Edit:
    """The leader's code does not know it: what was due is recorded, and it rests with its cursor behind that."""
    cursor = now if before.score is None else before.score
    retired = Retired(now, _anew(found, found, cursor, now))
    record = _undecided(found, cursor, now, "retired")
    return Edit(before.name, before, replace(found, retired=retired).to_json(), NEVER, record)


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
    """Gives a schedule its cursor again: after what was decided last, so that nothing in between is lost."""
    return Edit(before.name, before, spec.to_json(), next_score(spec, now if decided is None else decided))


def pause(before: Stored, found: Spec, reason: str, until: int | None, now: int) -> Edit:
    """From now on its fire times are recorded as paused."""
    cursor = next_score(found, now) if before.score is None else before.score
    return Edit(before.name, before, replace(found, paused=Pause(now, reason, until)).to_json(), cursor)


def resume(before: Stored, found: Spec, now: int) -> Edit:
    """From now on it fires again, or from the end of the pause if that is over. What came in it is not made up for."""
    cursor = now if before.score is None else before.score
    if found.paused is not None and found.paused.until is not None:
        now = min(now, found.paused.until - 1)
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
    passed = passed_by(spec, cursor, now)
    if passed is None:
        return None
    pause = spec.paused
    if pause is not None and (pause.until is None or passed[1] < pause.until):
        return Record(PAUSED, *passed, pause.reason)
    return Record(MISSED, *passed, reason)
