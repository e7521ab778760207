"""What a pass costs when nothing is due, with 100 and with 100,000 stored schedules.

    python benchmarks/idle_pass.py [--few 100] [--many 100000] [--rounds 2000]

Two apps on one embedded server, their passes in turn, so that whatever else the machine does hits both alike. Bytes and
commands are the server's own count.
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid
from typing import Any

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import every, install
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.server import Server
from dramatiq_distcron.store.base import Acquired


class App:
    """A leader with stored schedules of which none is due."""

    def __init__(self, server: Server, schedules: int) -> None:
        broker = RedisBroker(url=server.url, namespace=f"bench-{uuid.uuid4().hex[:6]}")
        distcron = install(broker, lease_ttl=3600)
        actor: Any = dramatiq.actor(lambda: None, broker=broker, actor_name="job")
        started = time.perf_counter()
        distcron.schedules.put_many((every(days=400, name=f"schedule-{n}"), actor) for n in range(schedules))
        print(f"{schedules} schedules were put in {time.perf_counter() - started:.1f} s", flush=True)
        self.schedules = schedules
        self.seconds: list[float] = []
        self._beat = Beat(distcron)
        assert isinstance(self._beat.lease.acquire(), Acquired)
        started = time.perf_counter()
        self._beat.office.take()
        print(f"  and office was taken in {time.perf_counter() - started:.2f} s", flush=True)

    def idle(self) -> None:
        started = time.perf_counter()
        report = self._beat.scheduler.pass_once()
        self.seconds.append(time.perf_counter() - started)
        assert (report.enqueued, report.recorded, report.more) == (0, 0, False)

    def renew(self) -> None:
        renewed = self._beat.lease.renew(count=True)
        assert renewed is not None
        assert renewed.schedules == self.schedules


def traffic(client: Any, app: App, passes: int) -> tuple[float, float]:
    """Commands and bytes of one pass, in and out."""
    before = client.info("stats")
    for _ in range(passes):
        app.idle()
    after = client.info("stats")
    sent = sum(after[key] - before[key] for key in ("total_net_input_bytes", "total_net_output_bytes"))
    return (after["total_commands_processed"] - before["total_commands_processed"] - 1) / passes, sent / passes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", type=int, default=100)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2000)
    args = parser.parse_args()
    with Server() as server, redis.Redis.from_url(server.url) as client:
        few, many = App(server, args.few), App(server, args.many)
        for number in range(args.rounds):
            for app in (few, many) if number % 2 else (many, few):
                app.idle()
                if number % 50 == 0:
                    app.renew()
        middles = [statistics.median(app.seconds) for app in (few, many)]
        for app, middle in zip((few, many), middles, strict=True):
            commands, sent = traffic(client, app, 500)
            print(
                f"{app.schedules:>7} schedules: median {middle * 1e6:.0f} µs a pass, "
                f"{commands:.2f} commands and {sent:.0f} bytes, with those of the count"
            )
        print(f"ratio of the medians {middles[1] / middles[0]:.2f} (about 1 is wanted)")


if __name__ == "__main__":
    main()
