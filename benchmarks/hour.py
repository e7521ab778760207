"""An hour of 100 ticks a second, in a few minutes: does anything grow?

    python benchmarks/hour.py [--seconds 3600] [--schedules 100] [--workers 2]

The real scheduler and store are driven with a clock that jumps a second from pass to pass, while real worker processes
of Dramatiq take up, run and settle the messages. At each tenth: keys and memory of the server, memory, threads and
sockets of the scheduler's process and of the workers.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from pathlib import Path
from typing import Any

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import every, install
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.demo.processes import Child, worker_command
from dramatiq_distcron.server import Server
from dramatiq_distcron.store.base import Acquired

APP = """
import os, dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq_distcron import install
from dramatiq_distcron.demo import leash
broker = RedisBroker(url=os.environ["DISTCRON_REDIS_URL"])
install(broker)
dramatiq.set_broker(broker)

@dramatiq.actor
def job(): ...
"""
#: No pass while so many messages wait: workers that fall behind are none of what is measured.
_AHEAD = 5000


def resident(pid: int) -> float:
    """MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def sockets(pid: int) -> int:
    found = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += os.readlink(link).startswith("socket:")
        except OSError:  # it was closed meanwhile
            continue
    return found


def with_children(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in with_children(int(child)))]


class Hour:
    def __init__(self, server: Server, schedules: int, workers: int, folder: Path) -> None:
        self.broker = RedisBroker(url=server.url)
        self.client: Any = redis.Redis.from_url(server.url)
        distcron = install(self.broker, lease_ttl=60)
        dramatiq.actor(
            lambda: None,
            broker=self.broker,
            actor_name="job",
            periodic=[every(1, name=f"schedule-{n}") for n in range(schedules)],
        )
        self.beat = Beat(distcron)
        assert isinstance(self.beat.lease.acquire(), Acquired)
        self.beat.office.take()
        self.now = self.beat.backend.store.now() // 1000 * 1000
        self.enqueued = 0
        env = {"DISTCRON_REDIS_URL": server.url}
        command = worker_command("hour_app", ("--path", str(folder)), threads=4)
        self.workers = [Child(f"worker {n}", command, env) for n in range(workers)]

    def second(self) -> None:
        """One second of the clock, which is over when every tick of it has its outcome."""
        self.now += 1000
        while True:
            report = self.beat.scheduler.pass_once(self.now)
            self.enqueued += report.enqueued
            if not report.more:
                break
        while self.client.llen(f"{self.broker.namespace}:default") > _AHEAD:
            time.sleep(0.05)

    def line(self) -> str:
        memory = self.client.info("memory")["used_memory"] / 1e6
        store: Any = self.beat.backend.store
        pids = [pid for child in self.workers for pid in with_children(child.pid)]
        return (
            f"{self.enqueued:>8} {self.client.dbsize():>5} {memory:>8.2f} {self.client.xlen(store.keys.ticks):>7} "
            f"{self.client.hlen(store.keys.runs):>6} {resident(os.getpid()):>8.1f} {threads(os.getpid()):>4} "
            f"{sockets(os.getpid()):>4} {sum(map(resident, pids)):>8.1f} {sum(map(threads, pids)):>4} "
            f"{sum(map(sockets, pids)):>4}"
        )

    def drain(self) -> None:
        store: Any = self.beat.backend.store
        while self.client.hlen(store.keys.runs):
            time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"distcron-hour-{os.getpid()}"
    folder.mkdir()
    (folder / "hour_app.py").write_text(APP)
    started = time.monotonic()
    with Server() as server:
        hour = Hour(server, args.schedules, args.workers, folder)
        gc.collect()
        print("                                                   scheduler            workers")
        print(
            f"{'ticks':>8} {'keys':>5} {'MB':>8} {'history':>7} {'runs':>6} {'RSS MB':>8} {'thr':>4} {'sock':>4} "
            f"{'RSS MB':>8} {'thr':>4} {'sock':>4}"
        )
        for second in range(args.seconds):
            hour.second()
            hour.beat.lease.renew()
            if (second + 1) % max(1, args.seconds // 10) == 0:
                hour.drain()
                print(hour.line(), flush=True)
        for worker in hour.workers:
            worker.end()
    print(f"{hour.enqueued} ticks, each run and settled, in {time.monotonic() - started:.0f} s")
    assert hour.enqueued == args.seconds * args.schedules
    (folder / "hour_app.py").unlink()
    for cached in folder.rglob("*.pyc"):
        cached.unlink()
        cached.parent.rmdir()
    folder.rmdir()


if __name__ == "__main__":
    main()
