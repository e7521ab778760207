"""The stored schedules and their history."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from ..base import Edit, Guard, History, Stored, sent_with
from .replies import cursor, raw, record, revision, text
from .verbs import CHUNK, Verbs, answers_of, chunks

__all__ = ["ScheduleVerbs"]


class ScheduleVerbs(Verbs):
    """Reading and editing schedules."""

    def edit(self, guard: Guard, edits: Sequence[Edit]) -> list[str] | None:
        """Applies ``edits`` one by one. ``None``: the guard's holder does not have the lease."""
        k = self.keys
        args: list[Any] = [guard.holder, guard.term, guard.now, self._history_size, len(edits)]
        for edit in edits:
            args += _edit_args(edit)
        with self._errors():
            reply = self._scripts.edit(
                keys=[
                    k.lease,
                    k.schedules,
                    k.revisions,
                    k.due,
                    k.last,
                    k.ticks,
                    k.wake,
                    k.outstanding,
                    k.revision,
                    k.enqueued,
                    k.removed,
                ],
                args=args,
            )
        return answers_of(reply)

    def get(self, names: Iterable[str]) -> dict[str, Stored]:
        found: dict[str, Stored] = {}
        for chunk in chunks([raw(name) for name in names]):
            # Before the specs: an edit in between gives a new spec with an old revision, which fits no commit. The
            # other way round, the old spec would pass for the new one.
            with self._errors():
                revisions = self._client.hmget(self.keys.revisions, chunk)
                specs = self._client.hmget(self.keys.schedules, chunk)
            there = {n: (s, r) for n, s, r in zip(chunk, specs, revisions, strict=True) if s is not None}
            found.update({stored.name: stored for stored in self._stored(there)})
        return found

    def scan(self) -> Iterator[Stored]:
        """Every stored schedule, in no order and without revisions; one that is changed meanwhile may come in either
        form."""
        at = 0
        seen: set[str] = set()
        while True:
            with self._errors():
                at, specs = self._client.hscan(self.keys.schedules, at, count=CHUNK)
            yield from self._stored({name: (spec, None) for name, spec in specs.items() if text(name) not in seen})
            seen.update(text(name) for name in specs)
            if at == 0:
                return

    def _stored(self, specs: Mapping[Any, tuple[Any, Any]]) -> list[Stored]:
        """The specs and revisions with their cursors, which may be newer: a commit compares them all."""
        names = list(specs)
        if not names:
            return []
        with self._errors():
            scores = self._client.zmscore(self.keys.due, names)
        return [
            Stored(text(name), text(spec), cursor(score), revision(given))
            for (name, (spec, given)), score in zip(specs.items(), scores, strict=True)
        ]

    def strays(self) -> list[str]:
        """The names that have a cursor and no spec."""
        found: list[str] = []
        for start in count(0, CHUNK):
            with self._errors():
                names = self._client.zrangebyscore(self.keys.due, "-inf", "+inf", start=start, num=CHUNK)
                if not names:
                    break
                specs = self._client.hmget(self.keys.schedules, names)
            found += [text(name) for name, spec in zip(names, specs, strict=True) if spec is None]
        return found

    def last(self, names: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """The last outcome of each schedule that has one."""
        found: dict[str, Mapping[str, str]] = {}
        for chunk in chunks(list(names)):
            with self._errors():
                values = self._client.hmget(self.keys.last, [raw(name) for name in chunk])
            found.update({n: last for n, v in zip(chunk, values, strict=True) if (last := record(v)) is not None})
        return found

    def history(self, name: str | None, limit: int) -> list[History]:
        """The newest ``limit`` records, newest first, of one schedule or of all, with how their runs stand."""
        found: list[History] = []
        ends: dict[str, Mapping[str, str]] = {}
        read_to = ""
        for id, fields in self._newest_first():
            if len(found) >= limit:
                break
            read_to = read_to or id
            if "run" in fields:
                ends.setdefault(sent_with(fields), fields)
            elif name is None or fields["schedule"] == name:
                found.append(History(fields["schedule"], fields, ends.get(fields["message_id"])))
        return self._with_open_runs(found, read_to)

    def _newest_first(self) -> Iterator[tuple[str, dict[str, str]]]:
        """The ids and the fields of the stream's records."""
        newest = "+"
        while True:
            with self._errors():
                entries = self._client.xrevrange(self.keys.ticks, max=newest, count=CHUNK)
            yield from ((text(id), _decoded(entry)) for id, entry in entries)
            if len(entries) < CHUNK:
                return
            newest = "(" + text(entries[-1][0])

    def _with_open_runs(self, records: list[History], read_to: str) -> list[History]:
        """Fills in the runs that are not over, or were not when the stream was read up to ``read_to``."""
        open_ids = [one.fields["message_id"] for one in records if one.fields["message_id"] and one.run is None]
        runs: dict[str, Mapping[str, str]] = {}
        for chunk in chunks(open_ids):
            with self._errors():
                values = self._client.hmget(self.keys.runs, chunk)
            runs.update({i: json.loads(v) for i, v in zip(chunk, values, strict=True) if v is not None})
        if len(runs) < len(open_ids):
            with self._errors():
                since = self._client.xrevrange(self.keys.ticks, min=f"({read_to}")
            ends = [fields for _, entry in reversed(since) if "run" in (fields := _decoded(entry))]
            runs = {**{sent_with(end): end for end in ends}, **runs}
        again = self._runs_again([one.schedule for one in records if one.run and one.run["state"] == "dead"])
        return [
            one._replace(run=again.get(id := one.fields["message_id"]) or one.run or runs.get(id)) for one in records
        ]

    def _runs_again(self, names: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """The runs of letters that were sent back and that hold their schedules up, by the messages of their ticks."""
        found: dict[str, Mapping[str, str]] = {}
        for chunk in chunks(list(dict.fromkeys(names))):
            with self._errors():
                ids = [id for id in self._client.hmget(self.keys.outstanding, [raw(n) for n in chunk]) if id]
                values = self._client.hmget(self.keys.runs, ids) if ids else []
            for id, value in zip(ids, values, strict=True):
                run = {"run": text(id), **json.loads(value)} if value else {}
                if run.get("first"):
                    found[run["first"]] = run
        return found


def _decoded(entry: Mapping[bytes, bytes]) -> dict[str, str]:
    return {text(key): text(value) for key, value in entry.items()}


def _edit_args(edit: Edit) -> list[Any]:
    before, record = edit.before, edit.record
    args: list[Any] = [
        raw(edit.name),
        raw(before.spec) if before else "",
        "" if before is None or before.score is None else before.score,
        "" if edit.spec is None else json.dumps(edit.spec, separators=(",", ":"))[1:],
        edit.score,
    ]
    if record is None:
        return [*args, "", "", "", "", ""]
    return [*args, record.outcome, record.fire_time, record.fire_time_to, record.count, record.reason]
