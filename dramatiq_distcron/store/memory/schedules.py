"""The stored schedules and their history, in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..base import Edit, Guard, History, Stored, sent_with
from .base import Verbs

__all__ = ["ScheduleVerbs"]


class ScheduleVerbs(Verbs):
    """Reading and editing schedules."""

    def edit(self, guard: Guard, edits: Sequence[Edit]) -> list[str] | None:
        """Applies ``edits`` one by one. ``None``: the guard's holder does not have the lease."""
        with self._woken:
            if not self._admits(guard):
                return None
            answers = [self._edit_one(guard, edit) for edit in edits]
            if "ok" in answers:
                self._wake()
            return answers

    def _edit_one(self, guard: Guard, edit: Edit) -> str:
        state, before = self._state, edit.before
        if state.schedules.get(edit.name) != (before.spec if before else None):
            return "stale"
        if before is None and guard.holder == "" and guard.now < state.removed <= self._now():
            # It may have been there in between, and what it fired would come again.
            return "stale"
        if before is not None and state.due.get(edit.name) != before.score:
            return "stale"
        if edit.record is not None:
            self._remember(guard, edit.name, edit.record, closed=False)
        if edit.spec is None:
            self._remove(edit.name)
        else:
            state.revision = max(state.revision, guard.now) + 1
            state.revisions[edit.name] = state.revision
            state.schedules[edit.name] = json.dumps({"revision": state.revision, **edit.spec}, separators=(",", ":"))
            state.due[edit.name] = edit.score
        return "ok"

    def _remove(self, name: str) -> None:
        last = self._state.last.pop(name, None)
        if last and last["open"]:
            self._append(name, last)
        self._state.due.pop(name, None)
        self._state.outstanding.pop(name, None)
        self._state.enqueued.pop(name, None)
        self._state.revisions.pop(name, None)
        self._state.schedules.pop(name, None)
        self._state.removed = self._now()

    def get(self, names: Iterable[str]) -> dict[str, Stored]:
        with self._woken:
            state = self._state
            return {
                name: Stored(name, state.schedules[name], state.due.get(name), state.revisions.get(name, ""))
                for name in names
                if name in state.schedules
            }

    def scan(self) -> Iterator[Stored]:
        """Every stored schedule, as of one instant and without revisions."""
        for stored in self.get(list(self._state.schedules)).values():
            yield replace(stored, revision="")

    def strays(self) -> list[str]:
        """The names that have a cursor and no spec."""
        with self._woken:
            return [name for name in self._state.due if name not in self._state.schedules]

    def last(self, names: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """The last outcome of each schedule that has one."""
        with self._woken:
            return {name: dict(self._state.last[name]) for name in names if name in self._state.last}

    def history(self, name: str | None, limit: int) -> list[History]:
        """The newest ``limit`` records, newest first, of one schedule or of all, with how their runs stand."""
        with self._woken:
            ends = {sent_with(tick): tick for tick in self._ticks if "run" in tick}
            runs = {**self._state.runs, **ends, **self._runs_again()}
            found = [
                History(tick["schedule"], tick, runs.get(tick["message_id"]))
                for tick in reversed(self._ticks)
                if "run" not in tick and name in (None, tick["schedule"])
            ]
            return found[:limit]

    def _runs_again(self) -> dict[str, Mapping[str, str]]:
        """The runs of letters that were sent back and that hold their schedules up, by the messages of their ticks."""
        ids = [id for id in self._state.outstanding.values() if id in self._state.runs]
        runs = [{"run": id, **self._state.runs[id]} for id in ids]
        return {run["first"]: run for run in runs if run.get("first")}
