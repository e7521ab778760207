"""A bad network: TCP proxies that cut, delay, hold up, and swallow what passes. One event loop in one thread."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

__all__ = ["Link", "Network", "Proxy"]

HOST = "127.0.0.1"


class Network:
    """The loop all proxies run in. Use as a context manager."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._proxies: list[Proxy] = []
        self._thread = threading.Thread(target=self.loop.run_forever, name="chaos-network", daemon=True)

    def __enter__(self) -> Network:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def proxy(self, upstream: int) -> Proxy:
        """A proxy of its own for one process, to the port ``upstream``."""
        made = Proxy(self.loop, upstream)
        self._proxies.append(made)
        asyncio.run_coroutine_threadsafe(made.listen(), self.loop).result(10)
        return made

    async def _close(self) -> None:
        for proxy in self._proxies:
            proxy.close()
        # The transports close in the turns after this one; one that was on its way to the server may yet be made.
        while any(proxy.links or proxy.transports for proxy in self._proxies):
            for transport in [one for proxy in self._proxies for one in proxy.transports]:
                transport.abort()
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)


class Proxy:
    """Between one process and the server. The methods may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, upstream: int) -> None:
        self.upstream = upstream
        self.port = 0
        #: To which commands a reply was swallowed, by the beginning of the request.
        self.swallowed: Counter[bytes] = Counter()
        self.links: set[Link] = set()
        #: All that are open, also of links that are done with.
        self.transports: set[Any] = set()
        self.delay = 0.0
        self.held = self.deaf = self.torn = False
        #: Part of a request, and what to do when one with it comes by.
        self.trap: tuple[bytes, Callable[[Link], None]] | None = None
        self._loop = loop
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        self._server = await self._loop.create_server(lambda: _Side(Link(self), False), HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """To be called in the loop."""
        if self._server is not None:
            self._server.close()
        self._cut()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def cut(self) -> None:
        """Ends every connection at once."""
        self._do(self._cut)

    def set_delay(self, seconds: float) -> None:
        """Whatever passes from now on takes so much longer, in each direction."""
        self._do(lambda: setattr(self, "delay", seconds))

    def undelay(self) -> None:
        self.set_delay(0)

    def hold(self) -> None:
        """Nothing passes; it arrives after ``let_go``, also if the one who sent it has given up."""
        self._do(lambda: setattr(self, "held", True))

    def let_go(self) -> None:
        self._do(self._let_go)

    def swallow(self) -> None:
        """Requests pass, replies do not."""
        self._do(lambda: setattr(self, "deaf", True))

    def stop_swallowing(self) -> None:
        """Connections that lost a reply are cut: what comes after it would be taken for it."""
        self._do(self._stop_swallowing)

    def tear(self) -> None:
        """The next request arrives by half, and then its connection is cut."""
        self._do(lambda: setattr(self, "torn", True))

    def set_trap(self, part: bytes, strike: Callable[[Link], None]) -> None:
        """At the next request with this part, before it is passed on, ``strike`` is called in the loop."""
        self._do(lambda: setattr(self, "trap", (part, strike)))

    def lift_trap(self) -> None:
        self._do(lambda: setattr(self, "trap", None))

    def heal(self) -> None:
        """As if nothing had been."""
        self.lift_trap()
        self.set_delay(0)
        self.let_go()
        self.stop_swallowing()
        self._do(lambda: setattr(self, "torn", False))

    def _do(self, work: Callable[[], Any]) -> None:
        done = threading.Event()

        def run() -> None:
            try:
                work()
            finally:
                done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait(10)

    def _cut(self) -> None:
        for link in list(self.links):
            link.abort()

    def _let_go(self) -> None:
        self.held = False
        for link in list(self.links):
            link.flush()

    def _stop_swallowing(self) -> None:
        self.deaf = False
        for link in list(self.links):
            if link.lost_a_reply:
                link.abort()


class _Side(asyncio.Protocol):
    """One of the two connections of a link."""

    def __init__(self, link: Link, is_server: bool) -> None:
        self.link = link
        self.is_server = is_server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.link.proxy.transports.add(transport)
        self.link.made(self, transport)

    def data_received(self, data: bytes) -> None:
        self.link.carry(data, self.is_server)

    def connection_lost(self, error: Exception | None) -> None:
        self.link.proxy.transports.discard(self._transport)
        self.link.lost(self)


class Link:
    """A client's connection and ours to the server."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.lost_a_reply = False
        self._asked = b""
        self._client: Any = None
        self._server: Any = None
        #: What waits, by direction: when it is due, and the bytes; no bytes for the end.
        self._waiting: tuple[deque[tuple[float, bytes]], deque[tuple[float, bytes]]] = (deque(), deque())

    def made(self, side: _Side, transport: Any) -> None:
        if side.is_server:
            self._server = transport
            if self not in self.proxy.links:
                # Its client went away meanwhile.
                transport.abort()
                return
            self.flush()
            return
        self._client = transport
        self.proxy.links.add(self)
        self.proxy._loop.create_task(self._connect())

    async def _connect(self) -> None:
        loop = self.proxy._loop
        try:
            await loop.create_connection(lambda: _Side(self, True), HOST, self.proxy.upstream)
        except OSError:
            self.abort()

    def carry(self, data: bytes, is_reply: bool) -> None:
        proxy = self.proxy
        if not is_reply:
            self._asked = data[:80]
            self._spring(data)
        if is_reply and (proxy.deaf or self.lost_a_reply):
            self.lost_a_reply = True
            proxy.swallowed[self._asked] += 1
            return
        if proxy.torn and not is_reply:
            proxy.torn = False
            self._tear(data)
            return
        waiting = self._waiting[is_reply]
        target = self._client if is_reply else self._server
        if not (proxy.held or proxy.delay or waiting or target is None):
            _write(target, data)
            return
        self._put_off(data, is_reply)

    def _spring(self, data: bytes) -> None:
        trap = self.proxy.trap
        if trap is not None and trap[0] in data:
            self.proxy.trap = None
            trap[1](self)

    def _put_off(self, data: bytes, is_reply: bool) -> None:
        loop = self.proxy._loop
        self._waiting[is_reply].append((loop.time() + self.proxy.delay, data))
        loop.call_later(self.proxy.delay, self.flush)

    def flush(self) -> None:
        """Passes on what is due, in order."""
        if self.proxy.held:
            return
        now = self.proxy._loop.time()
        for waiting, target in zip(self._waiting, (self._server, self._client), strict=True):
            while target is not None and waiting and waiting[0][0] <= now + 0.001:
                _, data = waiting.popleft()
                if data:
                    _write(target, data)
                else:
                    target.close()

    def _tear(self, data: bytes) -> None:
        if self._server is not None:
            _write(self._server, data[: len(data) // 2])
            self._server.close()
        self.abort()

    def lost(self, side: _Side) -> None:
        """One end is gone. What is still under way to the other one arrives there."""
        if side.is_server or self._server is None or not self._waiting[False]:
            self.abort()
        else:
            self.proxy._loop.call_soon(self._put_off, b"", False)

    def abort(self) -> None:
        self.proxy.links.discard(self)
        for transport in (self._client, self._server):
            # A torn one is closing, so that half of its request arrives.
            if transport is not None and not transport.is_closing():
                transport.abort()


def _write(transport: Any, data: bytes) -> None:
    if not transport.is_closing():
        transport.write(data)
