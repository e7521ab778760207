"""Dead letters, in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..base import Graveyard, Group, Letter, LetterRow, Query, Redrive
from .base import Verbs

__all__ = ["LetterVerbs"]


class LetterVerbs(Verbs):
    """The dead letters of one app, as the store on Redis keeps them."""

    def letters(self, query: Query, limit: int, after: tuple[int, str] | None = None) -> list[LetterRow]:
        """A page of letters, the newest first unless asked otherwise, after the one that died at ``after`` (ms, id)."""
        with self._woken:
            rows = sorted(self._found(query), key=lambda row: (row.dead_at, row.id), reverse=not query.oldest_first)
        if after is not None:
            ahead = 1 if query.oldest_first else -1
            rows = [row for row in rows if _compared((row.dead_at, row.id), after) == ahead]
        return rows[:limit]

    def _found(self, query: Query) -> list[LetterRow]:
        return [
            LetterRow(id, at, letter.about, letter.data)
            for id, (at, letter) in self._state.dead.items()
            if query.since <= at <= query.until and set(query.indexes) <= set(letter.indexes)
        ]

    def letter(self, id: str) -> LetterRow | None:
        """One letter."""
        with self._woken:
            at, letter = self._state.dead.get(id, (0, None))
            return None if letter is None else LetterRow(id, at, letter.about, letter.data)

    def count_letters(self, query: Query) -> int:
        """How many letters there are."""
        with self._woken:
            return len(self._found(query))

    def count_letters_without(self, field: str, values: Sequence[str]) -> int:
        """How many letters have none of these values in an indexed field, at one instant."""
        pairs = {(field, value) for value in values}
        with self._woken:
            return sum(pairs.isdisjoint(letter.indexes) for _, letter in self._state.dead.values())

    def groups(self) -> list[Group]:
        """How many letters each indexed value has."""
        times: dict[tuple[str, str], list[int]] = {}
        with self._woken:
            for at, letter in self._state.dead.values():
                for pair in letter.indexes:
                    times.setdefault(pair, []).append(at)
        return [Group(*pair, len(found), min(found), max(found)) for pair, found in sorted(times.items())]

    def dead_values(self, field: str) -> list[str]:
        """The values that some letter has in an indexed field."""
        return sorted({group.value for group in self.groups() if group.field == field})

    def graveyard(self, keys: Graveyard, after: int, limit: int) -> list[tuple[str, int, bytes | None]]:
        """Nothing: a stub's dead messages are in its broker."""
        return []

    def adopt(self, keys: Graveyard, letters: Sequence[tuple[Letter, int]]) -> int:
        return 0

    def put_letters(self, letters: Sequence[tuple[Letter, int]]) -> int:
        """Keeps letters that died at some time (UTC ms). Returns how many were new."""
        with self._woken:
            before = len(self._state.dead)
            for letter, at in letters:
                self._state.dead.setdefault(letter.id, (at, letter))
            return len(self._state.dead) - before

    def drop_letters(self, ids: Sequence[str]) -> int:
        """Drops letters for good. Returns how many there were of them."""
        with self._woken:
            return sum(self._state.dead.pop(id, None) is not None for id in ids)

    def redrive(self, letters: Sequence[Redrive]) -> list[str]:
        """Sends letters back, each in one step. For each: ``ok``, ``gone``, ``outstanding ...`` or ``failed ...``."""
        with self._woken:
            return [self._redrive(one) for one in letters]

    def _redrive(self, one: Redrive) -> str:
        if one.id not in self._state.dead:
            return "gone"
        if one.alone and one.alone in self._state.outstanding:
            return f"outstanding {self._state.outstanding[one.alone]}"
        try:
            for call in one.waiting.calls:
                self._carry_out(call, one.waiting.data)
        except Exception as error:
            return f"failed {error}"
        del self._state.dead[one.id]
        if one.run:
            self._state.runs[one.waiting.key] = json.loads(one.run)
        if one.alone:
            self._state.outstanding[one.alone] = one.waiting.key
        if not one.waiting.calls:
            self._wait_until(self._now(), one.waiting.key, one.waiting)
        return "ok"

    def _keep_letter(self, letter: Letter) -> None:
        self._state.dead[letter.id] = (self._now(), letter)


def _compared(one: tuple[int, str], other: tuple[int, str]) -> int:
    return (one > other) - (one < other)
