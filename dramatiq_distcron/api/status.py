"""Who is on duty, and who else is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..durations import iso
from ..letters import DLQ_ACTOR, dlq_queue
from ..store.base import REMEMBERED, Query

if TYPE_CHECKING:
    from ..backends import Backend
    from ..store.base import Instance, Store

__all__ = ["Leader", "Status", "read_status"]


@dataclass(frozen=True)
class Leader:
    """The holder of the lease, its term, and since when (UTC ms)."""

    holder: str
    term: int
    since: int


@dataclass(frozen=True)
class Status:
    """The app's processes as they told of themselves, and the store's server.

    ``dead_letters``: how many are ``kept``, and whether some worker's handlers are ``told`` of new ones, on which
    ``queue``.
    """

    leader: Leader | None
    instances: list[Mapping[str, Any]]
    redis: Mapping[str, Any]
    dead_letters: Mapping[str, Any]


def read_status(backend: Backend, app: str) -> Status:
    """Reads it from the store. Raises ``StoreUnavailable`` or ``StoreRefused``."""
    store = backend.store
    leader = store.leader()
    instances = [
        {"holder": one.holder, **one.data, "role": _role(one, leader), "last_seen_at": one.seen}
        for one in store.instances(keep=REMEMBERED)
    ]
    return Status(
        leader=Leader(*leader) if leader else None,
        instances=sorted(instances, key=lambda one: str(one.get("started_at"))),
        redis={
            "url": backend.where,
            **store.server(),
            "notices": [f"{iso(at)} {text}" for at, text in store.notices()],
        },
        dead_letters={"kept": store.count_letters(Query()), "told": is_heard(store), "queue": dlq_queue(app)},
    )


def is_heard(store: Store) -> bool:
    """Whether a worker consumes the queue of the actor that tells of dead letters."""
    return any(
        one.data.get("actors", {}).get(DLQ_ACTOR) in one.data.get("queues", ())
        for one in store.instances(keep=REMEMBERED)
    )


def _role(one: Instance, leader: tuple[str, int, int] | None) -> str:
    """What it told of itself, unless the lease knows better: a killed leader tells nothing any more."""
    if leader is not None and one.holder == leader[0]:
        return "leader"
    return "standby" if one.data.get("role") == "leader" else str(one.data.get("role"))
