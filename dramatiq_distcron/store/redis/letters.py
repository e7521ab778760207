"""Dead letters: kept, found, dropped, sent back.

A letter is stored as one line of JSON with how it is found, one with what is told of it, and after them the message as
it was encoded. Scripts read the first line only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from ...batching import batches
from ..base import Graveyard, Group, Letter, LetterRow, Query, Redrive
from .replies import raw, text
from .retries import waiting_text
from .verbs import CHUNK, Verbs, chunks

__all__ = ["LetterVerbs", "letter_text"]

T = TypeVar("T", dict[str, Any], list[Any])


class LetterVerbs(Verbs):
    """The dead letters of one app."""

    def letters(self, query: Query, limit: int, after: tuple[int, str] | None = None) -> list[LetterRow]:
        """A page of letters, the newest first unless asked otherwise, after the one that died at ``after`` (ms, id).

        The smallest index is walked through; what it gives is compared with the rest of the query.
        """
        key = self._smallest(query)
        found: list[LetterRow] = []
        while len(found) < limit:
            # What is compared with more than one index may be passed over.
            number = CHUNK if len(query.indexes) > 1 else min(CHUNK, limit - len(found))
            following = self._following(key, query, after, number)
            if not following:
                break
            after = following[-1]
            found += self._read(following, query)
        return found[:limit]

    def _smallest(self, query: Query) -> str:
        keys = [self._index(field, value) for field, value in query.indexes]
        if len(keys) < 2:
            return keys[0] if keys else self.keys.dead
        with self._errors():
            sizes = [self._client.zcard(raw(key)) for key in keys]
        return min(zip(sizes, keys, strict=True))[1]

    def _index(self, field: str, value: str) -> str:
        return f"{self.keys.dead_by}{field}:{value}"

    def _following(self, key: str, query: Query, after: tuple[int, str] | None, number: int) -> list[tuple[int, str]]:
        """Some of those after a letter, by its time and id: others come and go, so that its place says nothing."""
        while True:
            chunk = self._chunk(key, query, after, number)
            following = [one for one in chunk if after is None or _is_beyond(one, after, query.oldest_first)]
            if following or len(chunk) < number:
                return following
            # All are of the same millisecond as the cursor, and before it.
            number *= 2

    def _chunk(self, key: str, query: Query, after: tuple[int, str] | None, number: int) -> list[tuple[int, str]]:
        since, until = query.since, query.until
        if after is not None:
            since, until = (max(since, after[0]), until) if query.oldest_first else (since, min(until, after[0]))
        with self._errors():
            if query.oldest_first:
                rows = self._client.zrangebyscore(raw(key), since, until, start=0, num=number, withscores=True)
            else:
                rows = self._client.zrevrangebyscore(raw(key), until, since, start=0, num=number, withscores=True)
        return [(int(score), text(id)) for id, score in rows]

    def _read(self, ids: Sequence[tuple[int, str]], query: Query) -> list[LetterRow]:
        found: list[LetterRow] = []
        died = {id: at for at, id in ids}
        for some in self._light(list(died)):
            with self._errors():
                values = self._client.hmget(self.keys.dead_data, [raw(id) for id in some])
            read = [(id, _parts(value)) for id, value in zip(some, values, strict=True) if value]
            found += [LetterRow(id, died[id], about, data) for id, (pairs, about, data) in read if _fits(pairs, query)]
        return found

    def _light(self, ids: list[str]) -> Iterator[list[str]]:
        """So many at a time that an answer is no longer than it should be."""
        for some in chunks(ids):
            with self._errors(), self._client.pipeline(transaction=False) as pipeline:
                for id in some:
                    pipeline.hstrlen(self.keys.dead_data, raw(id))
                lengths = pipeline.execute()
            for batch in batches(zip(some, lengths, strict=True), CHUNK, lambda one: int(one[1])):
                yield [id for id, _ in batch]

    def letter(self, id: str) -> LetterRow | None:
        """One letter."""
        with self._errors():
            score = self._client.zscore(self.keys.dead, raw(id))
            value = self._client.hget(self.keys.dead_data, raw(id))
        return None if score is None or value is None else LetterRow(id, int(score), *_parts(value)[1:])

    def count_letters(self, query: Query) -> int:
        """How many letters there are: exact for one indexed value and a time, else of the smallest index."""
        with self._errors():
            return int(self._client.zcount(raw(self._smallest(query)), query.since, query.until))

    def count_letters_without(self, field: str, values: Sequence[str]) -> int:
        """How many letters have none of these values in an indexed field, at one instant."""
        keys = [self.keys.dead, *(self._index(field, value) for value in values)]
        with self._errors():
            return int(self._scripts.count_without(keys=list(map(raw, keys))))

    def groups(self) -> list[Group]:
        """How many letters each indexed value has."""
        with self._errors():
            names = sorted(text(name) for name in self._client.smembers(self.keys.dead_groups))
        found: list[Group] = []
        for some in chunks(names):
            found += self._groups([one for one in some if ":" in one])
        return found

    def _groups(self, names: Sequence[str]) -> list[Group]:
        with self._errors(), self._client.pipeline(transaction=False) as pipeline:
            for name in names:
                key = raw(self._index(*name.split(":", 1)))
                pipeline.zcard(key)
                pipeline.zrangebyscore(key, "-inf", "+inf", start=0, num=1, withscores=True)
                pipeline.zrevrangebyscore(key, "+inf", "-inf", start=0, num=1, withscores=True)
            replies = pipeline.execute()
        return [
            Group(field, value, int(count), int(first[0][1]), int(last[0][1]))
            for name, count, first, last in zip(names, replies[::3], replies[1::3], replies[2::3], strict=True)
            for field, _, value in [name.partition(":")]
            if first and last
        ]

    def dead_values(self, field: str) -> list[str]:
        """The values that some letter has in an indexed field."""
        with self._errors():
            names = [text(name) for name in self._client.smembers(self.keys.dead_groups)]
        return sorted(name.split(":", 1)[1] for name in names if name.startswith(f"{field}:"))

    # -- Dramatiq's own -------------------------------------------------------------------------------------

    def graveyard(self, keys: Graveyard, after: int, limit: int) -> list[tuple[str, int, bytes | None]]:
        """Some of Dramatiq's dead messages: id, time of death in ms, message. The first ``after`` ones are left out."""
        with self._errors():
            rows = self._scripts.graveyard(keys=[*keys], args=[after, limit])
        return [(text(id), int(float(at)), value) for id, at, value in rows]

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
            args += [raw(letter.id), dead_at, json.dumps(letter.indexes), letter_text(letter)]
        return args

    def drop_letters(self, ids: Sequence[str]) -> int:
        """Drops letters for good. Returns how many there were of them."""
        with self._errors():
            return int(self._scripts.drop_letters(keys=self._dead_keys, args=[self.keys.dead_by, *map(raw, ids)]))

    @property
    def _dead_keys(self) -> list[str]:
        return [self.keys.dead, self.keys.dead_data, self.keys.dead_groups]

    def redrive(self, letters: Sequence[Redrive]) -> list[str]:
        """Sends letters back, each in one step. For each: ``ok``, ``gone``, ``outstanding ...`` or ``failed ...``."""
        k = self.keys
        keys = [k.namespace, *self._dead_keys, k.runs, k.retries, k.retries_data, k.outstanding]
        with self._errors():
            answers = self._scripts.redrive(keys=keys, args=_redrive_args(letters, k.dead_by))
        return [text(answer) for answer in answers]


def _redrive_args(letters: Sequence[Redrive], prefix: str) -> list[Any]:
    """One JSON text, and after it what is no text, which it names by its index."""
    given: list[Any] = []
    blobs: list[Any] = []
    for one in letters:
        at = len(blobs) + 2
        calls = [[part if isinstance(part, int) else str(part) for part in call] for call in one.waiting.calls]
        given.append(
            {
                "message_id": one.waiting.key,
                "run": one.run,
                "alone": one.alone,
                "calls": calls,
                "id": at,
                "data": at + 1,
                "waiting": at + 2,
            }
        )
        blobs += [raw(one.id), one.waiting.data, b"" if calls else waiting_text(one.waiting)]
    return [json.dumps({"by": prefix, "letters": given}), *blobs]


def letter_text(letter: Letter) -> bytes:
    """As it is stored."""
    return b"\n".join((json.dumps(letter.indexes).encode(), json.dumps(letter.about).encode(), letter.data))


def _parts(value: bytes) -> tuple[list[Any], dict[str, Any], bytes]:
    head, _, rest = value.partition(b"\n")
    told, _, data = rest.partition(b"\n")
    return _decoded(head, list), _decoded(told, dict), data


def _decoded(text: bytes, kind: type[T]) -> T:
    """What somebody else wrote there tells nothing."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return kind()
    return found if isinstance(found, kind) else kind()


def _is_beyond(one: tuple[int, str], after: tuple[int, str], oldest_first: bool) -> bool:
    # Redis compares bytes.
    mine, other = (one[0], raw(one[1])), (after[0], raw(after[1]))
    return mine > other if oldest_first else mine < other


def _fits(pairs: Sequence[Any], query: Query) -> bool:
    return len(query.indexes) < 2 or all([field, value] in pairs for field, value in query.indexes)
