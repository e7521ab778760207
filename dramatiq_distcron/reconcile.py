"""What must change in the store so that it agrees with the leader's code: a pure plan.

Code is the truth for schedules defined in code, the store for those that came by the API. A schedule that the code
does not know is retired, not removed: in a rolling deploy the newer version may be the next leader, and then it
comes back with its cursor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from . import edits
from .errors import ScheduleError
from .specs import NotForUs, Spec, parse_spec
from .store.base import Edit, Stored

__all__ = ["Plan", "plan"]

#: How long a retired schedule keeps its cursor, in ms.
RETIREMENT = edits.DAY
#: Read without parsing: there may be 100,000 of them, and nothing is to be done.
_FROM_API = re.compile(r'\{"revision":\d+,"format":1,"source":"api",')


#: From names to their last decided fire times, as far as they are known.
Decided: TypeAlias = Callable[[Sequence[str]], Mapping[str, int]]


@dataclass
class Plan:
    """The edits, and by what was done the names a human should hear of."""

    edits: list[Edit] = field(default_factory=list)
    names: dict[str, list[str]] = field(default_factory=dict)
    stored: int = 0
    code_schedules: int = 0

    def do(self, what: str, edit: Edit) -> None:
        self.names.setdefault(what, []).append(edit.name)
        self.edits.append(edit)


def plan(code: Mapping[str, Spec], stored: Iterable[Stored], now: int, decided: Decided) -> Plan:
    """Compares the code's schedules with the stored ones.

    ``decided`` tells the last decided fire times of schedules whose cursor or spec got lost, or whose times change. A
    leader whose code has no schedule at all retires nothing: that is a module that was not imported.
    """
    made = Plan()
    missing = dict(code)
    known_again: list[tuple[Stored, Spec, Spec]] = []
    for before in stored:
        made.stored += 1
        wanted = missing.pop(before.name, None)
        if wanted is None and _is_settled(before, now):
            continue
        try:
            found = parse_spec(before.spec)
        except NotForUs:
            made.names.setdefault("left alone", []).append(before.name)
            continue
        except ScheduleError:
            found = None
        made.code_schedules += found is not None and found.source == "code" and not found.retired
        if wanted is not None and found is not None and _is_to_change(before, found, wanted, now):
            known_again.append((before, found, wanted))
        elif wanted is not None:
            _keep(made, before, found, wanted, now, decided)
        elif found is not None:
            _without_code(made, before, found, now, decided, retiring=bool(code))
    _change(made, known_again, now, decided)
    _add(made, missing, now, decided)
    return made


def _change(made: Plan, changes: Sequence[tuple[Stored, Spec, Spec]], now: int, decided: Decided) -> None:
    moved = [before.name for before, found, wanted in changes if found.times != wanted.times]
    known = decided(moved) if moved else {}
    for before, found, wanted in changes:
        what, edit = ("returned", edits.return_) if found.retired else ("changed", edits.change)
        made.do(what, edit(before, found, wanted, now, known.get(before.name)))


def _add(made: Plan, missing: Mapping[str, Spec], now: int, decided: Decided) -> None:
    """Those that are not stored: new, or lost while what was decided of them is still known."""
    known = decided(list(missing)) if missing else {}
    for name, spec in missing.items():
        if name in known:
            made.do("restored", edits.add_again(spec, known[name]))
        else:
            made.do("added", edits.add(spec, now))


def _is_settled(before: Stored, now: int) -> bool:
    """Whether it is one of the API's with a cursor that can be right."""
    near = before.score is not None and before.score <= now + edits.DAY
    return near and _FROM_API.match(before.spec) is not None


def _is_to_change(before: Stored, found: Spec, wanted: Spec, now: int) -> bool:
    """Whether the code says something else than what is stored, which can be used."""
    if found.retired:
        return True
    if before.score is None or edits.is_absurd(found, before.score, now):
        return False
    return found.fingerprint != wanted.fingerprint or found.source != "code"


def _keep(made: Plan, before: Stored, found: Spec | None, wanted: Spec, now: int, decided: Decided) -> None:
    if found is None or before.score is None:
        made.do("restored", edits.restore(before, found, wanted, decided([before.name]).get(before.name), now))
    elif edits.is_absurd(found, before.score, now):
        made.do("healed", edits.heal(before, found, wanted, now))


def _without_code(made: Plan, before: Stored, found: Spec, now: int, decided: Decided, *, retiring: bool) -> None:
    if found.retired and now - found.retired.at > RETIREMENT:
        made.do("removed", edits.remove(before, found, now))
    elif found.retired:
        if before.score is None:
            made.do("restored", edits.rest(before, found))
    elif found.source == "code" and retiring:
        made.do("retired", edits.retire(before, found, now))
    elif before.score is None:
        made.do("restored", edits.restore(before, found, found, decided([before.name]).get(before.name), now))
    elif edits.is_absurd(found, before.score, now):
        made.do("healed", edits.heal(before, found, found, now))
