"""What must change in the store so that it agrees with the leader's code: a pure plan.

Code is the truth for schedules defined in code, the store for those that came by the API. A schedule that the code
does not know is retired, not removed: in a rolling deploy the newer version may be the next leader, and then it
comes back with its cursor. Whatever was due and undecided under the old spec gets its outcome first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from .errors import ScheduleError
from .specs import NotForUs, Retired, Spec, parse_spec
from .store.base import NEVER, Edit, Record, Stored
from .ticks import MISSED, passed_over

__all__ = ["Plan", "changed", "plan"]

#: How long a retired schedule keeps its cursor, in ms.
RETIREMENT = 86_400_000


#: Read without parsing: there may be 100,000 of them, and nothing is to be done.
_FROM_API = re.compile(r'\{"revision":\d+,"format":1,"source":"api",')


@dataclass
class Plan:
    """The edits, and what a human should know of them."""

    decided: Callable[[str], int | None] = field(default=lambda name: None, repr=False)
    edits: list[Edit] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    left_alone: list[str] = field(default_factory=list)


def plan(code: Mapping[str, Spec], stored: Iterable[Stored], now: int, decided: Callable[[str], int | None]) -> Plan:
    """Compares the code's schedules with the stored ones.

    ``decided`` tells the last decided fire time of a schedule whose cursor got lost. A leader whose code has no
    schedule at all retires nothing: that is a module that was not imported.
    """
    made = Plan(decided=decided)
    missing = dict(code)
    for before in stored:
        wanted = missing.pop(before.name, None)
        if wanted is None and before.score is not None and _FROM_API.match(before.spec):
            continue
        try:
            found = parse_spec(before.spec)
        except NotForUs:
            made.left_alone.append(before.name)
            continue
        except ScheduleError:
            found = None
        if wanted is not None:
            _keep(made, before, found, wanted, now)
        elif found is not None:
            _without_code(made, before, found, now, retiring=bool(code))
    for spec in missing.values():
        made.added.append(spec.name)
        made.edits.append(Edit(spec.name, None, spec.to_json(), _next(spec, now)))
    return made


def _keep(made: Plan, before: Stored, found: Spec | None, wanted: Spec, now: int) -> None:
    if found is None or before.score is None:
        _restore(made, before, wanted, now)
    elif found.retired:
        made.returned.append(before.name)
        cursor = found.retired.cursor
        record = _undecided(found, cursor, now, "retired")
        made.edits.append(Edit(before.name, before, wanted.to_json(), _anew(found, wanted, cursor, now), record))
    elif found.fingerprint != wanted.fingerprint or found.source != "code":
        made.changed.append(before.name)
        made.edits.append(changed(before, found, wanted, now))


def _without_code(made: Plan, before: Stored, found: Spec, now: int, *, retiring: bool) -> None:
    if found.source == "code" and found.retired and now - found.retired.at > RETIREMENT:
        made.removed.append(before.name)
        record = _undecided(found, found.retired.cursor, now, "retired")
        made.edits.append(Edit(before.name, before, None, record=record))
    elif found.retired:
        if before.score is None:
            made.edits.append(Edit(before.name, before, found.to_json(), NEVER))
    elif found.source == "code" and retiring:
        made.retired.append(before.name)
        cursor = _next(found, now) if before.score is None else before.score
        resting = replace(found, retired=Retired(now, cursor))
        made.edits.append(Edit(before.name, before, resting.to_json(), NEVER))
    elif before.score is None:
        _restore(made, before, found, now)


def _restore(made: Plan, before: Stored, spec: Spec, now: int) -> None:
    """Gives a schedule its cursor again: after what was decided last, so that nothing in between is lost."""
    made.restored.append(before.name)
    decided = made.decided(before.name)
    score = _next(spec, now if decided is None else decided)
    made.edits.append(Edit(before.name, before, spec.to_json(), score))


def changed(before: Stored, found: Spec, wanted: Spec, now: int) -> Edit:
    """The edit from ``found`` to ``wanted``: the cursor stays if the times do, else it is set anew from now."""
    cursor = before.score if before.score is not None else now
    if found.timing == wanted.timing:
        return Edit(before.name, before, wanted.to_json(), cursor)
    score = _anew(found, wanted, cursor, now)
    return Edit(before.name, before, wanted.to_json(), score, _undecided(found, cursor, now, "edited"))


def _anew(found: Spec, wanted: Spec, cursor: int, now: int) -> int:
    """The cursor of ``wanted`` from now on, where that of ``found`` was ``cursor``."""
    # After a step back of the store's clock fire times of the near future are decided already: not again.
    stepped_back = now < cursor < NEVER and (found.timing.next_ms(now) or cursor) < cursor
    return _next(wanted, cursor - 1 if stepped_back else now)


def _undecided(spec: Spec, cursor: int, now: int, reason: str) -> Record | None:
    passed = passed_over(spec.timing, cursor, now)
    return None if passed is None else Record(MISSED, cursor, passed[0], passed[1], reason)


def _next(spec: Spec, now: int) -> int:
    found = spec.timing.next_ms(now)
    return NEVER if found is None else found
