"""What a run left behind, as the checkers take it, and how it is read from the server."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis
from dramatiq import Message

from dramatiq_distcron.store.redis import Keys

from .editor import Trigger
from .timeline import Timeline
from .witness import Seen

__all__ = ["Decision", "Ended", "History", "Left", "State", "read_state"]


@dataclass(frozen=True)
class Decision:
    """A record of the history: what became of the fire times from ``first`` to ``last``.

    ``position`` is its place in the stream and ``stored_at`` the server's clock when it got there (UTC ms); ``None``
    for one that is still open.
    """

    schedule: str
    outcome: str
    first: int
    last: int
    count: int
    reason: str
    message_id: str
    decided_at: int
    lateness: int | None
    term: int
    position: int | None
    stored_at: int | None

    @property
    def is_tick(self) -> bool:
        """Whether a fire time was decided; a run by hand has none."""
        return self.reason != "triggered"


@dataclass(frozen=True)
class Ended:
    """A record of the history: how the run of a message ended."""

    message_id: str
    schedule: str
    fire_time: int
    state: str
    reason: str
    position: int
    stored_at: int


@dataclass(frozen=True)
class Left:
    """A message that lies in the broker at the end, and how often it is on a list, in a set of those handed out, or
    among the dead. ``attempt`` counts its retries."""

    queue: str
    redis_id: str
    message_id: str
    listed: int
    handed_out: int
    dead: int
    attempt: int = 0


@dataclass(frozen=True)
class State:
    """What the server holds at the end."""

    decisions: Sequence[Decision]
    endings: Sequence[Ended]
    stream_ids: frozenset[str]
    specs: Mapping[str, str]
    cursors: Mapping[str, int]
    runs: frozenset[str]
    outstanding: Mapping[str, str]
    left: Sequence[Left]


@dataclass(frozen=True)
class History:
    """A run. ``settled`` is the instant (UTC ms) up to which everything had to be decided."""

    timelines: Mapping[str, Timeline]
    state: State
    seen: Sequence[Seen] = ()
    triggers: Sequence[Trigger] = ()
    settled: int = 0
    #: Ids of records that an onlooker saw while the run went on.
    watched: frozenset[str] = frozenset()
    #: Processes that ended without being told to, with their last words.
    fallen: Sequence[str] = ()
    #: What did not come to its end after the faults were over.
    unfinished: Sequence[str] = ()


def read_state(client: redis.Redis, keys: Keys) -> State:
    """Everything, at a moment when nobody writes."""
    decisions: list[Decision] = []
    endings: list[Ended] = []
    ids: list[str] = []
    for position, (stream_id, fields) in enumerate(_stream(client, keys.ticks)):
        ids.append(stream_id)
        if "run" in fields:
            endings.append(_ended(fields, position, stream_id))
        else:
            decisions.append(_decision(fields["schedule"], fields, position, stream_id))
    for name, text in _hash(client, keys.last).items():
        last = json.loads(text)
        if last["open"]:
            decisions.append(_decision(name, last, None, None))
    return State(
        decisions,
        endings,
        frozenset(ids),
        _hash(client, keys.schedules),
        {name.decode(): int(score) for name, score in client.zrange(keys.due, 0, -1, withscores=True)},
        frozenset(_hash(client, keys.runs)),
        _hash(client, keys.outstanding),
        list(_left(client, keys.namespace)),
    )


def _stream(client: redis.Redis, key: str) -> Iterator[tuple[str, dict[str, str]]]:
    newest = "-"
    while entries := client.xrange(key, min=newest, count=10_000):
        for stream_id, fields in entries:
            yield stream_id.decode(), {name.decode(): value.decode() for name, value in fields.items()}
        newest = "(" + entries[-1][0].decode()


def _hash(client: redis.Redis, key: str) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in client.hgetall(key).items()}


def _time_of(stream_id: str) -> int:
    return int(stream_id.partition("-")[0])


def _decision(name: str, fields: Mapping[str, Any], position: int | None, stream_id: str | None) -> Decision:
    return Decision(
        schedule=name,
        outcome=fields["outcome"],
        first=int(fields["fire_time"]),
        last=int(fields["fire_time_to"]),
        count=int(fields["count"]),
        reason=fields["reason"],
        message_id=fields["message_id"],
        decided_at=int(fields["decided_at"]),
        lateness=int(fields["lateness_ms"]) if fields["lateness_ms"] else None,
        term=int(fields["term"] or 0),
        position=position,
        stored_at=None if stream_id is None else _time_of(stream_id),
    )


def _ended(fields: Mapping[str, str], position: int, stream_id: str) -> Ended:
    return Ended(
        message_id=fields["run"],
        schedule=fields["schedule"],
        fire_time=int(fields["fire_time"]),
        state=fields["state"],
        reason=fields["error"],
        position=position,
        stored_at=_time_of(stream_id),
    )


def _left(client: redis.Redis, namespace: str) -> Iterator[Left]:
    """Each message in each hash of messages, with the places that point to it."""
    keys = [key.decode() for key in client.scan_iter(f"{namespace}:*", count=1000)]
    hashes = [key for key in keys if key.endswith(".msgs") and ":distcron:" not in key]
    for key in hashes:
        queue = key.removeprefix(f"{namespace}:").removesuffix(".msgs")
        is_dead = queue.endswith(".XQ")
        listed = Counter([] if is_dead else client.lrange(f"{namespace}:{queue}", 0, -1))
        dead = Counter(client.zrange(f"{namespace}:{queue}", 0, -1) if is_dead else [])
        acks = [one for one in keys if ":__acks__." in one and one.endswith(f".{queue}")]
        handed_out = Counter(member for one in acks for member in client.smembers(one))
        for redis_id, data in client.hgetall(key).items():
            message = Message.decode(data)
            places = listed[redis_id], handed_out[redis_id], dead[redis_id]
            yield Left(queue, redis_id.decode(), message.message_id, *places, attempt=message.options.get("retries", 0))
    yield from _letters(client, namespace)


def _letters(client: redis.Redis, namespace: str) -> Iterator[Left]:
    """Dead letters are a place of their own: the third line of what is kept is the message."""
    prefix = f"{namespace}:distcron:default:dead"
    dead = Counter(client.zrange(prefix, 0, -1))
    for id, kept in client.hgetall(f"{prefix}.msgs").items():
        message = Message.decode(kept.split(b"\n", 2)[2])
        attempt = message.options.get("retries", 0)
        yield Left("dead letters", id.decode(), message.message_id, 0, 0, dead[id], attempt=attempt)
