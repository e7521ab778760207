"""Sending a commit while the next one is made."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import redis
from redis.commands.core import Script

from ...logs import get_logger

__all__ = ["Courier"]


class Courier:
    """Sends a script and waits for its reply in a thread of its own, so that meanwhile the next one can be made.

    One at a time. The caller waits until the script is sent, and only then goes on: the interpreter's lock would else
    keep the thread from sending for as long as the caller computes.

    Parameters:
      client: of the store.
      replicas: how many replicas are to have the commit before it counts as done.
      patience: how long they have for that, in ms.
    """

    def __init__(self, client: Any, replicas: int = 0, patience: int = 500) -> None:
        self.logger = get_logger(__name__, type(self))
        self._client = client
        self._replicas = replicas
        self._patience = patience
        # A cluster's client knows which of its nodes to ask; we don't.
        self._connection: Any = (
            None if isinstance(client, redis.RedisCluster) else client.connection_pool.make_connection()
        )
        self._leave_it = threading.Event()
        self._went_to: tuple[str, int] | None = None
        self._start_thread()

    def _start_thread(self) -> None:
        self._pid = os.getpid()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="distcron-commit")

    def start(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Future[Any]:
        """Sends ``script``; the future has its reply, or raises what redis-py raises."""
        if self._pid != os.getpid():
            # A fork has no thread of its parent's, and must not speak on its parent's connection.
            self._connection = self._connection and self._client.connection_pool.make_connection()
            self._start_thread()
        if self._connection is None:
            return self._thread.submit(script, keys=keys, args=args)
        packed = self._connection.pack_command("EVALSHA", script.sha, len(keys), *keys, *args)
        sent = threading.Event()
        future = self._thread.submit(self._exchange, packed, sent, script)
        sent.wait()
        return future

    def is_elsewhere_than(self, master: tuple[str, int]) -> bool:
        """Whether the last script went to another server."""
        return self._went_to is not None and self._went_to != master

    def reconnect(self) -> None:
        """Before the next script: this server is no master any more, so it is asked anew where that is."""
        self._leave_it.set()

    def close(self) -> None:
        """Closes the connection, after what is under way; it is opened again for the next."""
        if self._connection is not None and self._pid == os.getpid():
            self._thread.submit(self._connection.disconnect).result()

    def _exchange(self, packed: Any, sent: threading.Event, script: Script) -> Any:
        try:
            self._connect()
            self._connection.send_packed_command(packed)
            sent.set()
            reply = self._receive(packed, script)
            if self._replicas:
                self._wait_for_replicas()
            return reply
        except redis.ResponseError:
            raise
        except BaseException:
            # What is still under way on it would be taken for the next reply.
            self._connection.disconnect()
            raise
        finally:
            sent.set()

    def _connect(self) -> None:
        if self._leave_it.is_set():
            self._leave_it.clear()
            self._connection.disconnect()
        # Sending would connect too, but to no master that Sentinel is asked for.
        self._connection.connect()
        if self._was_closed():
            self._connection.disconnect()
            self._connection.connect()
        self._went_to = getattr(self._connection, "host", ""), getattr(self._connection, "port", 0)

    def _was_closed(self) -> bool:
        """Whether the server ended the connection while it was idle: nothing is asked, so there is nothing to read."""
        try:
            return bool(self._connection.can_read())
        except (redis.ConnectionError, redis.TimeoutError, OSError):
            return True

    def _receive(self, packed: Any, script: Script) -> Any:
        try:
            return self._connection.read_response()
        except redis.exceptions.NoScriptError:
            # It was not run: the server is another one, or was restarted.
            self._connection.send_command("SCRIPT", "LOAD", script.script)
            self._connection.read_response()
            self._connection.send_packed_command(packed)
            return self._connection.read_response()

    def _wait_for_replicas(self) -> None:
        """The commit cannot be taken back: if a replica is late, that is told, and a failover may lose it."""
        self._connection.send_command("WAIT", self._replicas, self._patience)
        got = int(self._connection.read_response())
        if got < self._replicas:
            self.logger.warning("%d of %d replicas had the commit after %d ms.", got, self._replicas, self._patience)
            # They may have been given another master.
            self.reconnect()
