"""Dramatiq's own dead messages, and how they are taken over: as the store on Redis does it, told in Python.

The store in memory has none of them: a stub keeps its dead messages itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from dramatiq_distcron.places import Places
from dramatiq_distcron.store.base import Ending, Graveyard, Letter
from dramatiq_distcron.store.memory import MemoryStore

from .post import Post

__all__ = ["GraveStore", "Moody", "Unwilling", "graveyard"]


class GraveStore(MemoryStore):
    """A store beside the queues of a Redis broker."""

    def __init__(self, now: Callable[[], int], commit: Callable[..., Any], **options: Any) -> None:
        super().__init__(now, commit, **options)
        self.post: Post = cast(Any, commit).__self__

    def graveyard(self, keys: Graveyard, after: int, limit: int) -> list[tuple[str, int, bytes | None]]:
        found = [(at, id, data) for (queue, id), (at, data) in self.post.dead.items() if queue == keys.ids]
        return [(id, at, data) for at, id, data in sorted(found)[after:][:limit]]

    def adopt(self, keys: Graveyard, letters: Sequence[tuple[Letter, int]]) -> int:
        return sum(self._adopt(keys, *one) for one in letters)

    def _adopt(self, keys: Graveyard, letter: Letter, at: int) -> bool:
        if self.post.dead.pop((keys.ids, letter.id), None) is None:
            return False
        self._state.dead[letter.id] = (at, letter)
        return True


class Unwilling(GraveStore):
    """Keeps no letter of who dies, for want of a right: the message is left to Dramatiq."""

    def settle(self, ending: Ending) -> str:
        return super().settle(ending) if ending.letter is None else "failed NOPERM"


class Moody(GraveStore):
    """Keeps the letters of some, and of others never."""

    def settle(self, ending: Ending) -> str:
        refused = ending.letter is not None and sum(ending.message_id.encode()) % 2
        return "failed NOPERM" if refused else super().settle(ending)


def graveyard(places: Places, queue: str) -> Graveyard:
    """Where to look, which is asked of Dramatiq's script and is known here."""
    return Graveyard(queue, queue)
