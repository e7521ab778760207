"""Where a queue's messages lie in the broker, learned from Dramatiq's own script and never assumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .publishing import RedisPublisher
from .store.base import Graveyard
from .store.redis import RedisStore

if TYPE_CHECKING:
    from .publishing import Publisher
    from .store.base import Store

__all__ = ["Place", "Places"]


@dataclass(frozen=True)
class Place:
    """The hash that holds the messages of a queue, and the list of those that wait; ``""``: there is no such thing."""

    messages: str = ""
    waiting: str = ""


class Places:
    """The places of the queues of one broker; each is asked for once.

    Parameters:
      store, publisher: of the broker.
    """

    def __init__(self, store: Store, publisher: Publisher) -> None:
        self._store = store
        self._publisher = publisher
        self._known: dict[str, Place] = {}

    def of(self, queue: str) -> Place:
        """Where the messages of ``queue`` lie. Raises ``StoreUnavailable`` if it must be asked for and cannot be."""
        if queue not in self._known:
            self._known[queue] = self._learn(queue)
        return self._known[queue]

    def graveyard(self, queue: str) -> Graveyard | None:
        """Where Dramatiq keeps the queue's dead messages; ``None`` if that is not on our Redis."""
        if not isinstance(self._store, RedisStore) or not isinstance(self._publisher, RedisPublisher):
            return None
        nack = self._publisher.end_call("nack", queue, {"redis_message_id": "distcron_trial"})
        touched = self._store.dry_run(nack)
        ids = [one.key for one in touched if one.command == "zadd"]
        messages = [one.key for one in touched if one.command == "hset"]
        # The first sorted set is that of the heartbeats.
        return Graveyard(ids[-1], messages[-1]) if len(ids) > 1 and messages else None

    def _learn(self, queue: str) -> Place:
        if not isinstance(self._store, RedisStore):
            return Place(waiting=queue)
        if not isinstance(self._publisher, RedisPublisher):
            return Place()
        keys = {one.command: one.key for one in self._store.dry_run(self._publisher.trial(queue))}
        return Place(keys.get("hset", ""), keys.get("rpush", ""))
