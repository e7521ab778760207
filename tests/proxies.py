"""A TCP proxy in front of a server: what a network does to requests and replies, as a test asks for it."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TypeAlias

__all__ = ["Proxy"]

#: Told of each request's bytes; whether the reply to it is lost.
Loses: TypeAlias = Callable[[bytes], bool]

_POLL_SECONDS = 0.05
_CHUNK = 1 << 16


def nothing_is_lost(request: bytes) -> bool:
    return False


class Proxy:
    """Forwards to ``port`` of the loopback interface.

    A lost reply is the last of its connection: what comes after it could be taken for it. The request is carried out.

    Parameters:
      port: where to.
      tls: if given, clients speak TLS with the proxy; what it forwards is plain.
    """

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._to = port
        self._tls = tls
        self._stopped = threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'rediss' if tls else 'redis'}://127.0.0.1:{self.port}/0"
        #: Which replies are lost.
        self.loses: Loses = nothing_is_lost
        #: How many were.
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Ends every connection, in the middle of whatever is under way."""
        for pair in list(self._pairs):
            self._close(pair)

    def close(self) -> None:
        self._stopped.set()
        self._listener.close()
        self.cut()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._stopped.is_set():
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            pair = client, socket.create_connection(("127.0.0.1", self._to))
        except OSError:
            client.close()
            return
        self._pairs.append(pair)
        with suppress(OSError, ValueError):
            self._forward(*pair)
        self._close(pair)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        losing = False
        while True:
            # What TLS has read ahead is not seen by select.
            ahead = [client] if isinstance(client, ssl.SSLSocket) and client.pending() else []
            for ready in ahead or select.select([client, server], [], [], _POLL_SECONDS)[0]:
                data = ready.recv(_CHUNK)
                if not data:
                    return
                if ready is client:
                    losing = losing or self._is_lost(data)
                    server.sendall(data)
                elif not losing:
                    client.sendall(data)

    def _is_lost(self, request: bytes) -> bool:
        if not self.loses(request):
            return False
        self.lost += 1
        return True

    def _close(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with suppress(ValueError):
            self._pairs.remove(pair)
        for one in pair:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
