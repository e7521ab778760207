"""Taking office: the stored schedules are made to agree with the code of the one who leads."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .logs import get_logger, listed
from .reconcile import Plan, plan
from .store.base import Guard

if TYPE_CHECKING:
    from .lease import Lease, Progress
    from .specs import Spec
    from .store.base import Store

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
        #: How many more schedules than cursors there are, and nothing can be done about.
        self.gap = 0

    def look(self) -> None:
        """Remembers how many schedules there are: a standby that takes over an emptied store must know what it held."""
        self.seen = max(self._store.count(), len(self._code))

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
        made, answers = self._reconcile()
        for _ in range(_ATTEMPTS):
            if answers is None or "stale" not in answers:
                break
            # Somebody edited a schedule between our reading and our writing.
            made, answers = self._reconcile()
        if answers is None or not self._drop_strays():
            self._lease.lost()
            return None
        self._tell(made, answers)
        if made.stored == 0 and self.seen > len(self._code):
            self._tell_loss(self.seen - len(self._code))
        self.seen = max(made.stored, len(self._code))
        return made

    def _tell_loss(self, lost: int) -> None:
        """The store was emptied: the code's schedules are back, those that came by the API are gone."""
        text = f"The store was emptied: {lost} schedules that came by the API are lost, with all cursors and history."
        self.logger.error("%s The app must put them again.", text)
        self._store.notice(text)

    def _reconcile(self) -> tuple[Plan, list[str] | None]:
        now = self._lease.now()
        made = plan(self._code, self._store.scan(), now, self._last_decided)
        return made, self._apply(made, now)

    def _drop_strays(self) -> bool:
        """False: the lease is lost."""
        if not self._count() or self.gap == 0:
            return self._lease.trusted
        dropped = self._store.drop_strays(self._guard(self._lease.now()))
        if dropped:
            self.logger.warning("%d cursors without a schedule were dropped.", dropped)
        return self._count() and dropped is not None

    def _count(self) -> bool:
        renewed = self._lease.renew(count=True)
        if renewed is not None:
            self.gap = (renewed.schedules or 0) - (renewed.cursors or 0)
        return renewed is not None

    def _guard(self, now: int) -> Guard:
        return Guard(self._lease.holder, self._lease.term, now)

    def _last_decided(self, names: Sequence[str]) -> dict[str, int]:
        return {name: int(last["fire_time_to"]) for name, last in self._store.last(names).items()}

    def _apply(self, made: Plan, now: int) -> list[str] | None:
        answers: list[str] = []
        for start in range(0, len(made.edits), _BATCH):
            some = self._store.edit(self._guard(now), made.edits[start : start + _BATCH])
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
