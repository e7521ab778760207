"""Taking office: the stored schedules are made to agree with the code of the one who leads."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .logs import get_logger, listed
from .reconcile import Plan, plan
from .store.base import Edit, Guard

if TYPE_CHECKING:
    from .lease import Lease, Progress
    from .specs import Spec
    from .store.base import Renewed, Store

__all__ = ["Office"]

#: How many edits are sent at once.
_BATCH = 100
#: How often it is tried anew because schedules were edited meanwhile.
_ATTEMPTS = 5
#: The share of the code's schedules that may be retired at once without a word of warning.
_LOUD = 0.5


class Office:
    """Parameters:
    store: where the schedules are.
    lease: ours; every write is guarded by it.
    code: the schedules defined in code, by name.
    progress: told of each step.
    """

    def __init__(self, store: Store, lease: Lease, code: Mapping[str, Spec], progress: Progress) -> None:
        self.logger = get_logger(__name__, type(self))
        self._store = store
        self._lease = lease
        self._code = code
        self._progress = progress
        #: How many schedules there were when that was looked at last.
        self.seen = 0
        #: Whether something was found to be missing since. Set by the keeper's thread too.
        self.damaged = False
        self._told: Renewed | None = None
        self._term: int | None = None

    def look(self) -> None:
        """Remembers how many schedules there are: a standby that takes over an emptied store must know what it held."""
        self.seen = self._store.count()

    def counted(self, renewed: Renewed) -> bool:
        """Takes in how large the state is. Returns whether something is missing, so that office must be taken anew."""
        if renewed.schedules is None:
            return False
        damaged = renewed.schedules != renewed.cursors or renewed.schedules < len(self._code)
        before, self._told = self._told, replace(renewed, now=0) if damaged else None
        if not damaged:
            self.seen = renewed.schedules
        if not damaged or self._told == before:
            # What taking office did not mend will not be mended by doing so each few seconds.
            return False
        self.damaged = True
        self.logger.error(
            "The store has %d schedules and %d cursors of at least %d: something was evicted or deleted.",
            renewed.schedules,
            renewed.cursors,
            len(self._code),
        )
        return True

    def compare(self) -> None:
        """Warns of what this code would retire if it led: a standby may be the only one that was set up wrongly."""
        made = plan(self._code, self._store.scan(), self._lease.now(), lambda names: {})
        unknown = made.names.get("retired", [])
        if unknown:
            self.logger.warning(
                "Stored and not in the code of this beat: %s. If it leads, they are retired and do not fire. Is a "
                "module missing on its command line, or is it of another version?",
                listed(unknown),
            )

    def take(self) -> Plan | None:
        """Makes the stored schedules agree with the code. ``None``: the lease was lost meanwhile.

        Raises:
          StoreUnavailable, StoreRefused: it must be done again before a pass.
        """
        # Before we look: what the keeper's thread finds from now on is looked for again.
        damaged = self.damaged
        if damaged:
            self.damaged = False
        made = None
        try:
            made = self._take(damaged)
        finally:
            if damaged and made is None:
                self.damaged = True
        return made

    def _take(self, damaged: bool) -> Plan | None:
        made, answers = self._reconcile()
        for _ in range(_ATTEMPTS):
            if answers is None or "stale" not in answers:
                break
            # Somebody edited a schedule between our reading and our writing.
            made, answers = self._reconcile()
        if answers is None:
            self._lease.lost()
            return None
        self._tell(made, answers)
        if made.stored == 0 and self.seen > 0 and (damaged or self._is_new):
            self._tell_emptied(max(0, self.seen - len(self._code)))
        if damaged and not self._clear_away():
            return None
        self._term = self._lease.term
        self.seen = max(made.stored, len(self._code))
        return made

    @property
    def _is_new(self) -> bool:
        """Whether the store knew of no term before this one, and office is taken in it for the first time."""
        return self._lease.is_first and self._term != self._lease.term

    def _tell_emptied(self, lost: int) -> None:
        """The code's schedules are back, those that came by the API are gone."""
        what = f"{lost} schedules that came by the API are lost, with " if lost else ""
        self._tell_loss(f"The store was emptied: {what}all cursors and history{'' if lost else ' are lost'}.", lost)

    def _tell_loss(self, text: str, lost: int) -> None:
        self.logger.error("%s%s", text, " The app must put them again." if lost else "")
        self._store.notice(text)

    def _clear_away(self) -> bool:
        """Removes what is left of schedules whose specs are lost. ``False``: the lease was lost meanwhile."""
        names = self._store.strays()
        if not names:
            return True
        if self._apply([Edit(name, None, None) for name in names], self._lease.now()) is None:
            self._lease.lost()
            return False
        self._tell_loss(f"{len(names)} schedules that came by the API are lost: {listed(names)}.", len(names))
        return True

    def _reconcile(self) -> tuple[Plan, list[str] | None]:
        now = self._lease.now()
        made = plan(self._code, self._store.scan(), now, self._last_decided)
        return made, self._apply(made.edits, now)

    def _last_decided(self, names: Sequence[str]) -> dict[str, int]:
        return {name: int(last["fire_time_to"]) for name, last in self._store.last(names).items()}

    def _apply(self, edits: Sequence[Edit], now: int) -> list[str] | None:
        answers: list[str] = []
        for start in range(0, len(edits), _BATCH):
            guard = Guard(self._lease.holder, self._lease.term, now)
            some = self._store.edit(guard, edits[start : start + _BATCH])
            if some is None:
                return None
            answers += some
            self._progress.made()
        return answers

    def _tell(self, made: Plan, answers: list[str]) -> None:
        for edit, answer in zip(made.edits, answers, strict=True):
            if answer != "ok":
                self.logger.error("Schedule %r could not be stored: %s", edit.name, answer)
        for what, names in made.names.items():
            loudly = what in ("retired", "left alone")
            self.logger.log(logging.WARNING if loudly else logging.INFO, "Schedules %s: %s", what, listed(names))
        retired = made.names.get("retired", [])
        if len(retired) > made.code_schedules * _LOUD:
            self.logger.error(
                "%d of the %d schedules defined in code are retired at once, because this beat's code does not know "
                "them: %s. Is a module not imported, or is another code base at work here? They keep their cursors "
                "for a day and come back with a beat that knows them.",
                len(retired),
                made.code_schedules,
                listed(retired),
            )
        for name in made.names.get("healed", []):
            self.logger.error(
                "Schedule %r: its cursor was more than a day ahead, because the store's clock had jumped forward. It "
                "was set to the next fire time from now.",
                name,
            )
