"""The processes of a run: a server, beats and workers, each behind a proxy of its own."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from dramatiq_distcron.demo.processes import Child, beat_command, worker_command
from dramatiq_distcron.server import Server
from dramatiq_distcron.store.redis import Keys

from .proxy import Network, Proxy

__all__ = ["Cluster", "Post", "Settings"]

APP = "tests.chaos.app"


@dataclass(frozen=True)
class Settings:
    """Of one run. Durations are in seconds; ``lease`` is the life of the lease.

    ``patience`` is how long each thing may take to come to its end after the faults.
    """

    seconds: float = 60.0
    seed: int = 1
    schedules: int = 300
    beats: int = 3
    workers: int = 2
    threads: int = 16
    lease: float = 3.0
    heartbeat: float = 20.0
    faults: tuple[str, ...] = ()
    pace: float = 1.2
    patience: float = 120.0
    binary: Path | None = None
    hooked: bool = False
    planted: str = ""


class Post:
    """A place for one process: whoever fills it next has the same proxy."""

    def __init__(self, kind: Literal["beat", "worker"], number: int, proxy: Proxy) -> None:
        self.kind = kind
        self.name = f"{kind} {number}"
        self.proxy = proxy
        self.child: Child | None = None
        #: Whether it was told to end, and until when its place stays empty then.
        self.told = False
        self.empty_until = 0.0
        self.stopped = False
        #: Whether nobody is to come any more.
        self.closed = False

    def signal(self, number: signal.Signals) -> None:
        """To the whole group: Dramatiq's worker is a child of its main process."""
        if self.child is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.child.pid, number)


class Cluster:
    """Starts everything; ends everything at the end of the stack."""

    def __init__(self, settings: Settings, folder: Path, base: int, server: Server, stack: ExitStack) -> None:
        self.settings = settings
        self.server = server
        assert server.port is not None
        network = stack.enter_context(Network())
        self.posts = [
            *(Post("beat", number, network.proxy(server.port)) for number in range(settings.beats)),
            *(Post("worker", number, network.proxy(server.port)) for number in range(settings.workers)),
        ]
        self.editors_proxy = network.proxy(server.port)
        self.proxies = [*(post.proxy for post in self.posts), self.editors_proxy]
        self.keys = Keys("dramatiq", "default")
        # Past the proxies, and with patience for a server that is paused, but without asking again and again.
        self.direct = redis.Redis.from_url(server.url, socket_timeout=2 * settings.lease, retry=Retry(NoBackoff(), 0))
        stack.callback(self.direct.close)
        self.fallen: list[str] = []
        self.started = 0
        self._environment = {
            "CHAOS_FOLDER": str(folder),
            "CHAOS_SEED": str(settings.seed),
            "CHAOS_SCHEDULES": str(settings.schedules),
            "CHAOS_BASE": str(base),
            "CHAOS_LEASE": str(settings.lease),
            "CHAOS_HEARTBEAT_TIMEOUT": str(int(settings.heartbeat * 1000)),
            "CHAOS_HOOKED": "1" if settings.hooked else "",
            "CHAOS_PLANTED": settings.planted,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        stack.callback(self._end_all)

    def beats(self) -> list[Post]:
        return [post for post in self.posts if post.kind == "beat"]

    def workers(self) -> list[Post]:
        return [post for post in self.posts if post.kind == "worker"]

    def fill(self, post: Post) -> None:
        """Starts a process at a post that has none."""
        if post.child is not None and post.child.alive:
            return
        command = beat_command(APP) if post.kind == "beat" else worker_command(APP, threads=self.settings.threads)
        post.child = Child(post.name, command, {**self._environment, "CHAOS_REDIS_URL": post.proxy.url})
        post.told = post.stopped = False
        self.started += 1

    def kill(self, post: Post, pause: float = 0.0) -> None:
        """SIGKILL, the whole group. Another one comes after ``pause`` seconds."""
        if post.child is not None:
            post.told, post.empty_until = True, time.monotonic() + pause
            post.signal(signal.SIGKILL)
            post.child.kill()

    def terminate(self, post: Post, pause: float = 0.0) -> None:
        """SIGTERM; it may take its time."""
        if post.child is not None:
            post.told, post.empty_until = True, time.monotonic() + pause
            post.child.terminate()

    def end(self, post: Post, patience: float) -> None:
        """SIGTERM, and SIGKILL if that is not enough."""
        self.terminate(post)
        if post.child is not None:
            post.child.end(patience)

    def close(self, posts: Sequence[Post], patience: float) -> None:
        """Ends the processes at these posts for good."""
        for post in posts:
            post.closed = True
            self.end(post, patience)

    def look_after(self) -> None:
        """Puts another one where one ended, and notes those that ended without being told to, or badly."""
        for post in self.posts:
            if post.child is None or post.child.alive or post.closed or time.monotonic() < post.empty_until:
                continue
            code = post.child.wait()
            # One that is told so early that it knows no signals yet ends by SIGTERM itself.
            if not (post.told and code in (0, -signal.SIGKILL, -signal.SIGTERM)):
                self.fallen.append(f"{post.name} ended with {code}, told: {post.told}\n{post.child.output()}")
            self.fill(post)

    def leader(self) -> Post | None:
        """The post of the leader, as far as it told of itself."""
        try:
            holder = self.direct.get(self.keys.lease)
            data = self.direct.hget(self.keys.instances_data, holder.decode()) if holder else None
        except redis.RedisError:
            return None
        pid = _pid_of(data)
        return next((post for post in self.beats() if post.child is not None and post.child.pid == pid), None)

    def now(self) -> int:
        """The server's clock, UTC ms."""
        seconds, micros = self.direct.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def outputs(self) -> str:
        """The last words of everybody, for a run that failed."""
        return "\n".join(f"--- {post.name}\n{post.child.output()}" for post in self.posts if post.child is not None)

    def _end_all(self) -> None:
        for post in self.posts:
            post.signal(signal.SIGCONT)
            self.kill(post)


def _pid_of(data: bytes | None) -> int | None:
    return json.loads(data)["pid"] if data else None
