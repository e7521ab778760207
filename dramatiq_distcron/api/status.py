"""Who is on duty, and who else is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..backends import Backend

__all__ = ["Leader", "Status", "read_status"]


@dataclass(frozen=True)
class Leader:
    """The holder of the lease, its term, and since when (UTC ms)."""

    holder: str
    term: int
    since: int


@dataclass(frozen=True)
class Status:
    """The app's processes as they told of themselves, and the store's server."""

    leader: Leader | None
    instances: list[Mapping[str, Any]]
    redis: Mapping[str, Any]


def read_status(backend: Backend) -> Status:
    """Reads it from the store. Raises ``StoreUnavailable`` or ``StoreRefused``."""
    store = backend.store
    leader = store.leader()
    instances = [{"holder": one.holder, **one.data} for one in store.instances()]
    return Status(
        leader=Leader(*leader) if leader else None,
        instances=sorted(instances, key=lambda one: str(one.get("started_at"))),
        redis={"url": backend.where, **store.server()},
    )
