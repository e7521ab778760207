"""What all the verbs on Redis share: the client, the scripts, the keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ...errors import StoreUnavailable
from .connection import Connection
from .keys import Keys
from .replies import is_read_only, mapped_errors, text
from .scripts import Scripts

__all__ = ["Verbs", "answers_of", "chunks"]

Name = TypeVar("Name", str, bytes)

#: How many schedules are read with one command.
CHUNK = 500


class Verbs:
    """Parameters:
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
        replicas: int = 0,
    ) -> None:
        self.where = connection.where
        self.user = connection.user
        self.keys = keys
        self._connection = connection
        self._history_size = history_size
        self._replicas = replicas
        # redis-py's types allow for replies that our own settings rule out.
        self._client: Any = connection.client(timeout)
        self._scripts = Scripts(self._client, dispatch)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns redis-py's errors into ours.

        A server that was demoted keeps its connections open and refuses every write: they are closed, so that the next
        command asks anew where the master is.
        """
        try:
            with mapped_errors(self.where):
                yield
        except StoreUnavailable as error:
            if is_read_only(str(error.__cause__)):
                self._reconnect()
            raise

    def _reconnect(self) -> None:
        pool = getattr(self._client, "connection_pool", None)
        if pool is not None:
            # Those that are in use belong to other threads, which will find out for themselves.
            pool.disconnect(inuse_connections=False)

    def _follow_the_master(self) -> None:
        """Leaves a server that is not the master any more and does not know it yet.

        Sentinel takes seconds to tell one that it has replaced. What is written there meanwhile is lost.
        """

    def now(self) -> int:
        """The server's clock in ms."""
        with self._errors():
            seconds, micros = self._client.time()
        return int(seconds) * 1000 + int(micros) // 1000


def answers_of(reply: Sequence[Any]) -> list[str] | None:
    """The answers to several entries; ``None``: the lease is lost."""
    return None if text(reply[0]) == "lost" else [text(answer) for answer in reply[1:]]


def chunks(names: list[Name]) -> Iterator[list[Name]]:
    """The names, a command's worth at a time."""
    for start in range(0, len(names), CHUNK):
        yield names[start : start + CHUNK]
