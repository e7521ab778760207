"""Dead letters: kept, found, dropped, sent back.

A letter is stored as one line of JSON with what is told of it, and after it the message as it was encoded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..base import Graveyard, Group, Letter, LetterRow, Query, Redrive
from .replies import raw, text
from .verbs import CHUNK, Verbs, chunks

__all__ = ["LetterVerbs", "letter_text"]


class LetterVerbs(Verbs):
    """The dead letters of one app."""

    def letters(self, query: Query, limit: int, after: tuple[int, str] | None = None) -> list[LetterRow]:
        """A page of letters, the newest first unless asked otherwise, after the one that died at ``after`` (ms, id).

        The smallest index is walked through; what it gives is compared with the rest of the query.
        """
        key = self._smallest(query)
        found: list[LetterRow] = []
        offset = 0
        while len(found) < limit:
            chunk = self._chunk(key, query, after, offset)
            if not chunk:
                break
            offset += len(chunk)
            following = [one for one in chunk if after is None or _is_beyond(one, after, query.oldest_first)]
            found += [row for row in self._read(following) if _fits(row, query)]
        return found[:limit]

    def _smallest(self, query: Query) -> str:
        keys = [self._index(field, value) for field, value in query.indexes]
        if len(keys) < 2:
            return keys[0] if keys else self.keys.dead
        with self._errors():
            sizes = [self._client.zcard(key) for key in keys]
        return min(zip(sizes, keys, strict=True))[1]

    def _index(self, field: str, value: str) -> str:
        return f"{self.keys.dead_by}{field}:{value}"

    def _chunk(self, key: str, query: Query, after: tuple[int, str] | None, offset: int) -> list[tuple[int, str]]:
        since, until = query.since, query.until
        # Those of the same millisecond as the cursor are read again, and passed over by their ids.
        if after is not None:
            since, until = (after[0], until) if query.oldest_first else (since, after[0])
        with self._errors():
            if query.oldest_first:
                rows = self._client.zrangebyscore(raw(key), since, until, start=offset, num=CHUNK, withscores=True)
            else:
                rows = self._client.zrevrangebyscore(raw(key), until, since, start=offset, num=CHUNK, withscores=True)
        return [(int(score), text(id)) for id, score in rows]

    def _read(self, ids: Sequence[tuple[int, str]]) -> list[LetterRow]:
        found: list[LetterRow] = []
        for some in chunks([id for _, id in ids]):
            with self._errors():
                values = self._client.hmget(self.keys.dead_data, some)
            found += [LetterRow(id, 0, *_parts(value)) for id, value in zip(some, values, strict=True) if value]
        died = {id: at for at, id in ids}
        return [row._replace(dead_at=died[row.id]) for row in found]

    def letter(self, id: str) -> LetterRow | None:
        """One letter."""
        with self._errors():
            score = self._client.zscore(self.keys.dead, id)
            value = self._client.hget(self.keys.dead_data, id)
        return None if score is None or value is None else LetterRow(id, int(score), *_parts(value))

    def count_letters(self, query: Query) -> int:
        """How many letters there are: exact for one indexed value and a time, else of the smallest index."""
        with self._errors():
            return int(self._client.zcount(raw(self._smallest(query)), query.since, query.until))

    def groups(self) -> list[Group]:
        """How many letters each indexed value has."""
        with self._errors():
            names = sorted(text(name) for name in self._client.smembers(self.keys.dead_groups))
        found: list[Group] = []
        for some in chunks(names):
            found += [group for name in some if (group := self._group(*name.split(":", 1))) is not None]
        return found

    def _group(self, field: str, value: str) -> Group | None:
        key = raw(self._index(field, value))
        with self._errors():
            count = self._client.zcard(key)
            first = self._client.zrangebyscore(key, "-inf", "+inf", start=0, num=1, withscores=True)
            last = self._client.zrevrangebyscore(key, "+inf", "-inf", start=0, num=1, withscores=True)
        return Group(field, value, int(count), int(first[0][1]), int(last[0][1])) if first and last else None

    def dead_values(self, field: str) -> list[str]:
        """The values that some letter has in an indexed field."""
        with self._errors():
            names = [text(name) for name in self._client.smembers(self.keys.dead_groups)]
        return sorted(name.split(":", 1)[1] for name in names if name.startswith(f"{field}:"))

    # -- Dramatiq's own -------------------------------------------------------------------------------------

    def graveyard(self, keys: Graveyard, after: int, limit: int) -> list[tuple[str, int, bytes | None]]:
        """Some of Dramatiq's dead messages: id, time of death in ms, message. The first ``after`` ones are left out."""
        with self._errors():
            rows = self._client.zrangebyscore(keys.ids, "-inf", "+inf", start=after, num=limit, withscores=True)
            values = self._client.hmget(keys.messages, [id for id, _ in rows]) if rows else []
        return [(text(id), int(at), value) for (id, at), value in zip(rows, values, strict=True)]

    def adopt(self, keys: Graveyard, letters: Sequence[tuple[Letter, int]]) -> int:
        """Takes letters over from Dramatiq's own dead messages. Returns how many."""
        with self._errors():
            reply = self._scripts.adopt(keys=[*self._dead_keys, *keys], args=self._letter_args(letters))
        return int(reply)

    # -- changes --------------------------------------------------------------------------------------------

    def put_letters(self, letters: Sequence[tuple[Letter, int]]) -> int:
        """Keeps letters that died at some time (UTC ms). Returns how many were new."""
        with self._errors():
            return int(self._scripts.put_letters(keys=self._dead_keys, args=self._letter_args(letters)))

    def _letter_args(self, letters: Sequence[tuple[Letter, int]]) -> list[Any]:
        args: list[Any] = [self.keys.dead_by]
        for letter, dead_at in letters:
            args += [letter.id, dead_at, json.dumps(letter.indexes), letter_text(letter)]
        return args

    def drop_letters(self, ids: Sequence[str]) -> int:
        """Drops letters for good. Returns how many there were of them."""
        with self._errors():
            return int(self._scripts.drop_letters(keys=self._dead_keys, args=[self.keys.dead_by, *ids]))

    @property
    def _dead_keys(self) -> list[str]:
        return [self.keys.dead, self.keys.dead_data, self.keys.dead_groups]

    def redrive(self, letters: Sequence[Redrive]) -> list[str]:
        """Sends letters back, each in one step. For each: ``ok``, ``gone`` or ``failed ...``."""
        k = self.keys
        given = [
            {
                "id": one.id,
                "message_id": one.message_id,
                "data": at + 2,
                "run": one.run,
                "calls": [[part if isinstance(part, int) else str(part) for part in call] for call in one.calls],
            }
            for at, one in enumerate(letters)
        ]
        with self._errors():
            answers = self._scripts.redrive(
                keys=[k.namespace, *self._dead_keys, k.runs, k.outbox],
                args=[json.dumps({"by": k.dead_by, "letters": given}), *(one.data for one in letters)],
            )
        return [text(answer) for answer in answers]


def letter_text(letter: Letter) -> bytes:
    """As it is stored."""
    return json.dumps({**letter.about, "indexes": letter.indexes}).encode() + b"\n" + letter.data


def _parts(value: bytes) -> tuple[Mapping[str, Any], bytes]:
    head, _, data = value.partition(b"\n")
    try:
        about = json.loads(head)
    except ValueError:
        about = None
    return (about if isinstance(about, dict) else {}), data


def _is_beyond(one: tuple[int, str], after: tuple[int, str], oldest_first: bool) -> bool:
    return one > after if oldest_first else one < after


def _fits(row: LetterRow, query: Query) -> bool:
    indexes = row.about.get("indexes", [])
    return all([field, value] in indexes for field, value in query.indexes)
