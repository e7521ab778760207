"""The store on Redis: each verb is one script or one command."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import StoreRefused
from ..base import (
    NEVER,
    Acquired,
    Answers,
    DuePage,
    DueRow,
    Edit,
    Fire,
    Guard,
    Held,
    History,
    Instance,
    Renewed,
    Stored,
)
from .connection import Connection, Courier, mapped_errors, raw, text
from .keys import Keys
from .scripts import Scripts

__all__ = ["RedisStore", "Touched"]

#: How many schedules are read with one command.
_CHUNK = 500


@dataclass(frozen=True)
class Touched:
    """One command of Dramatiq's script: its key, that key's type now, and ``yes``/``no``/``unknown``: allowed?"""

    command: str
    key: str
    kind: str
    allowed: str


class RedisStore:
    """All state of one app in one Redis.

    Parameters:
      connection: where Redis is.
      keys: which keys to use.
      dispatch: source of Dramatiq's script if the broker is on the same Redis.
      timeout: seconds to wait for an answer.
      history_size: how many records the history keeps.
    """

    def __init__(
        self,
        connection: Connection,
        keys: Keys,
        *,
        dispatch: str = "",
        timeout: float = 1.5,
        history_size: int = 10_000,
    ) -> None:
        self.where = connection.where
        self.keys = keys
        self._connection = connection
        self._history_size = history_size
        # redis-py's types allow for replies that our own settings rule out.
        self._client: Any = connection.client(timeout)
        self._scripts = Scripts(self._client, dispatch)
        self._commits = Courier(self._client)
        self._waiter: Any = None
        self._woken = "$"

    def _errors(self) -> Any:
        return mapped_errors(self.where)

    def now(self) -> int:
        """The server's clock in ms."""
        with self._errors():
            seconds, micros = self._client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    # -- the lease ------------------------------------------------------------------------------------------

    def acquire(self, holder: str, ttl: int) -> Acquired | Held:
        k = self.keys
        with self._errors():
            reply = self._scripts.lease_acquire(keys=[k.lease, k.term, k.since], args=[holder, ttl])
        if text(reply[0]) == "acquired":
            return Acquired(term=int(reply[1]), now=int(reply[2]))
        return Held(holder=text(reply[1]), expires_in=int(reply[2]))

    def renew(self, holder: str, ttl: int, *, count: bool = False) -> Renewed | None:
        k = self.keys
        with self._errors():
            reply = self._scripts.lease_renew(keys=[k.lease, k.schedules, k.due], args=[holder, ttl, int(count)])
        return None if text(reply[0]) == "lost" else Renewed(*(int(number) for number in reply[1:]))

    def release(self, holder: str) -> bool:
        with self._errors():
            return bool(self._scripts.lease_release(keys=[self.keys.lease, self.keys.wake], args=[holder]))

    def leader(self) -> tuple[str, int, int] | None:
        """Who leads: holder id, term, since when in ms."""
        k = self.keys
        with self._errors():
            holder, term, since = self._client.mget(k.lease, k.term, k.since)
        return (text(holder), int(term or 0), int(since or 0)) if holder else None

    # -- ticks ----------------------------------------------------------------------------------------------

    def read_due(self, now: int, *, skip: int, limit: int) -> DuePage:
        k = self.keys
        with self._errors():
            reply = self._scripts.read_due(keys=[k.revisions, k.due, k.outstanding], args=[now, skip, limit])
        rows, later = json.loads(reply.decode("utf-8", "surrogateescape"))
        return DuePage(
            rows=[
                DueRow(name, _whole(score), int(revision) if revision else "", outstanding)
                for name, score, revision, outstanding in rows
            ],
            next_score=_whole(later) if later and _whole(later) < NEVER else None,
        )

    def fire(self, guard: Guard, fires: Sequence[Fire]) -> list[str] | None:
        """Commits ``fires`` one by one. ``None``: the guard's holder does not have the lease."""
        return self.start_fire(guard, fires)()

    def start_fire(self, guard: Guard, fires: Sequence[Fire]) -> Answers:
        """Sends a commit, and returns what waits for its answers: meanwhile the next one can be made.

        The answers must be taken before the next is sent.
        """
        k = self.keys
        keys = [k.namespace, k.lease, k.revisions, k.due, k.last, k.ticks, k.runs, k.outstanding, k.outbox]
        given: list[Any] = [guard.holder, str(guard.term), str(guard.now), str(self._history_size)]
        args: list[Any] = [""]
        for fire in fires:
            _pack(fire, given, args)
        args[0] = json.dumps(given)
        reply = self._commits.start(self._scripts.fire, keys, args)

        def answers() -> list[str] | None:
            with self._errors():
                return _fire_answers(reply.result(), len(fires))

        return answers

    # -- schedules ------------------------------------------------------------------------------------------

    def edit(self, guard: Guard, edits: Sequence[Edit]) -> list[str] | None:
        """Applies ``edits`` one by one. ``None``: the guard's holder does not have the lease."""
        k = self.keys
        args: list[Any] = [guard.holder, guard.term, guard.now, self._history_size, len(edits)]
        for edit in edits:
            args += _edit_args(edit)
        with self._errors():
            reply = self._scripts.edit(
                keys=[k.lease, k.schedules, k.revisions, k.due, k.last, k.ticks, k.wake, k.outstanding, k.revision],
                args=args,
            )
        return _answers(reply)

    def get(self, names: Iterable[str]) -> dict[str, Stored]:
        found: dict[str, Stored] = {}
        for chunk in _chunks(list(names)):
            with self._errors():
                specs = self._client.hmget(self.keys.schedules, [raw(name) for name in chunk])
            for stored in self._stored({raw(n): s for n, s in zip(chunk, specs, strict=True) if s is not None}):
                found[stored.name] = stored
        return found

    def scan(self) -> Iterator[Stored]:
        """Every stored schedule, in no order; one that is changed meanwhile may come in either form."""
        cursor = 0
        seen: set[str] = set()
        while True:
            with self._errors():
                cursor, specs = self._client.hscan(self.keys.schedules, cursor, count=_CHUNK)
            yield from self._stored({name: spec for name, spec in specs.items() if text(name) not in seen})
            seen.update(text(name) for name in specs)
            if cursor == 0:
                return

    def _stored(self, specs: Mapping[Any, Any]) -> list[Stored]:
        """The specs with their cursors and revisions, which may be newer: a commit compares them all."""
        names = list(specs)
        if not names:
            return []
        with self._errors():
            scores = self._client.zmscore(self.keys.due, names)
            revisions = self._client.hmget(self.keys.revisions, names)
        return [
            Stored(text(name), text(specs[name]), _score(score), int(revision) if revision else "")
            for name, score, revision in zip(names, scores, revisions, strict=True)
        ]

    def last(self, names: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """The last outcome of each schedule that has one."""
        found: dict[str, Mapping[str, str]] = {}
        for chunk in _chunks(list(names)):
            with self._errors():
                values = self._client.hmget(self.keys.last, [raw(name) for name in chunk])
            found.update({n: json.loads(v) for n, v in zip(chunk, values, strict=True) if v is not None})
        return found

    def history(self, name: str | None, limit: int) -> list[History]:
        """The newest ``limit`` records, newest first, of one schedule or of all."""
        found: list[History] = []
        newest = "+"
        while len(found) < limit:
            with self._errors():
                entries = self._client.xrevrange(self.keys.ticks, max=newest, count=_CHUNK)
            for _, entry in entries:
                fields = {text(key): text(value) for key, value in entry.items()}
                if name is None or fields["schedule"] == name:
                    found.append(History(fields["schedule"], fields))
            if len(entries) < _CHUNK:
                break
            newest = "(" + text(entries[-1][0])
        return found[:limit]

    # -- fit ------------------------------------------------------------------------------------------------

    def dry_run(self, call: Sequence[Any]) -> list[Touched]:
        """What Dramatiq's script would do with ``call``, without doing it."""
        with self._errors():
            reply = self._scripts.dry_run(keys=[self.keys.namespace], args=call)
        return [Touched(*(text(part) for part in entry[:4])) for entry in reply]

    def refused_commands(self) -> list[str]:
        """Our own commands that this user may not send; empty where the server cannot tell (before Redis 7.0)."""
        args: list[Any] = []
        for command in self.keys.commands():
            args += [command[0], len(command) - 1, *command[1:]]
        with self._errors():
            return [text(refused) for refused in self._scripts.rights(keys=[self.keys.lease], args=args)]

    def wrong_types(self) -> list[str]:
        """Those of our keys that hold something else than they should."""
        with self._errors():
            return [
                f"{key} is a {text(found)}, not a {kind}"
                for key, kind in self.keys.types().items()
                if (found := self._client.type(key)) not in (b"none", kind.encode())
            ]

    # -- waking and watching --------------------------------------------------------------------------------

    def wait(self, seconds: float) -> bool:
        """Blocks until a schedule was edited or the leader left, for ``seconds`` at most."""
        if self._waiter is None:
            # It must outlast the block, unlike every other command of ours.
            self._waiter = self._connection.client(seconds + 5)
        with self._errors():
            if self._woken == "$":
                self._woken = self._newest_wake()
            reply: Any = self._waiter.xread({self.keys.wake: self._woken}, block=max(1, int(seconds * 1000)))
        if not reply:
            return False
        self._woken = text(reply[0][1][-1][0])
        return True

    def wake(self) -> None:
        """Wakes everybody who waits."""
        with self._errors():
            self._client.xadd(self.keys.wake, {"why": "asked"}, maxlen=1, approximate=False)

    def close(self) -> None:
        """Closes the connections; they are opened again when they are needed."""
        if self._waiter is not None:
            self._waiter.connection_pool.disconnect()
        self._commits.close()
        self._client.connection_pool.disconnect()

    def _newest_wake(self) -> str:
        newest = self._waiter.xrevrange(self.keys.wake, count=1)
        return text(newest[0][0]) if newest else "0-0"

    def heartbeat(self, instance: Instance, *, keep: int) -> None:
        """Publishes a process and drops those not heard of for ``keep`` ms."""
        k = self.keys
        data = json.dumps(dict(instance.data))
        with self._errors():
            self._scripts.heartbeat(keys=[k.instances, k.instances_data], args=[instance.holder, data, keep])

    def forget(self, holder: str) -> None:
        """Takes a process that ends off the list."""
        with self._errors():
            self._client.zrem(self.keys.instances, holder)
            self._client.hdel(self.keys.instances_data, holder)

    def instances(self, *, keep: int) -> list[Instance]:
        """The processes heard of within the last ``keep`` ms."""
        since = self.now() - keep
        with self._errors():
            holders = self._client.zrangebyscore(self.keys.instances, since, "+inf")
            data = self._client.hmget(self.keys.instances_data, holders) if holders else []
        return [Instance(text(h), json.loads(d)) for h, d in zip(holders, data, strict=True) if d is not None]

    def server(self) -> Mapping[str, Any]:
        """What kind of server it is; only what we may ask for."""
        try:
            with self._errors():
                info = self._client.info("server")
        except StoreRefused:
            return {}
        name = "valkey" if "valkey_version" in info else "redis"
        return {"server": name, "version": info.get("valkey_version", info.get("redis_version"))}


def _answers(reply: Sequence[Any]) -> list[str] | None:
    return None if text(reply[0]) == "lost" else [text(answer) for answer in reply[1:]]


def _fire_answers(reply: Sequence[Any], count: int) -> list[str] | None:
    if text(reply[0]) == "lost":
        return None
    answers = ["ok"] * count
    for index, answer in zip(reply[1::2], reply[2::2], strict=True):
        answers[index - 1] = text(answer)
    return answers


def _whole(score: str) -> int:
    # Ours are whole numbers; one with a fraction was written by hand, and won't compare.
    try:
        return int(score)
    except ValueError:
        return int(float(score))


def _pack(fire: Fire, given: list[Any], args: list[Any]) -> None:
    """Adds ``fire`` as the script takes it: text to ``given``, bytes to ``args`` with their index in ``given``."""
    r = fire.record
    box: int | str = ""
    if fire.outbox:
        args.append(fire.outbox)
        box = len(args)
    given += (
        fire.name, str(fire.revision), "*" if fire.score is None else str(fire.score), str(fire.new_score),
        fire.run_before, r.outcome, str(r.fire_time), str(r.fire_time_to), str(r.count), r.reason, r.message_id,
        "" if r.lateness is None else str(r.lateness), fire.run, box, len(fire.calls),
    )  # fmt: skip
    for call in fire.calls:
        given.append(len(call))
        for argument in call:
            if type(argument) is bytes:
                args.append(argument)
                given.append(len(args))
            else:
                given.append(argument if type(argument) is str else str(argument))


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


def _score(score: float | None) -> int | None:
    return None if score is None else int(score)


def _chunks(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _CHUNK):
        yield names[start : start + _CHUNK]
