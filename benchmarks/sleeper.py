"""A leader that is stopped (SIGSTOP) in the middle of a burst, and woken long after its lease: what does it still send?

    python benchmarks/sleeper.py [--rounds 5] [--schedules 3000] [--seconds 20]

Two real beats, thousands of schedules due at the same instants. As soon as some of a burst are enqueued the leader is
stopped; the other one takes over and does the rest; then the first one is woken. Counted is what was recorded under
the old term after that, and each tick of each schedule in the queue.
"""

from __future__ import annotations

import argparse
import json
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import install
from dramatiq_distcron.demo.processes import Child, beat_command
from dramatiq_distcron.server import Server

APP = """
import os, dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq_distcron import every, install
from dramatiq_distcron.demo import leash
broker = RedisBroker(url=os.environ["DISTCRON_REDIS_URL"])
install(broker, catch_up="all", history_size=10_000_000)
dramatiq.set_broker(broker)

@dramatiq.actor(periodic=[every(STEP, name=f"schedule-{n}") for n in range(int(os.environ["SCHEDULES"]))])
def job(): ...
""".replace("STEP", str(STEP := 10))


class Bench:
    def __init__(self, server: Server, schedules: int, folder: Path) -> None:
        (folder / "sleeper_app.py").write_text(APP)
        self.schedules = schedules
        self.client: Any = redis.Redis.from_url(server.url)
        self.store: Any = install(RedisBroker(url=server.url, middleware=[])).open_backend().store
        env = {"DISTCRON_REDIS_URL": server.url, "SCHEDULES": str(schedules)}
        command = beat_command("sleeper_app", "--path", str(folder))
        self.beats = [Child(f"beat {n}", command, env) for n in range(2)]
        await_(lambda: self.enqueued() >= schedules, 0.1)

    def round(self, seconds: float) -> str:
        """Returns what came of it, as a line."""
        await_(lambda: self.enqueued() % self.schedules == 0 and len(self.instances()) == 2, 0.1)
        sleeper, term = self.leader()
        before = self.enqueued()
        await_(lambda: self.enqueued() >= before + self.schedules // 10, 0)
        sleeper.send_signal(signal.SIGSTOP)
        # What it had sent by then has arrived.
        time.sleep(0.5)
        done = self.enqueued() - before
        time.sleep(seconds)
        woken = self.store.now()
        sleeper.send_signal(signal.SIGCONT)
        time.sleep(STEP + 2)
        late = len([one for one in self.recorded_since(woken) if one == term])
        took_over = len([one for one in self.recorded_since(0) if one > term])
        return f"stopped after {done} of {self.schedules}; the next terms sent {took_over}; woken, it sent {late}"

    def instances(self) -> dict[str, int]:
        return {one.holder: one.data["pid"] for one in self.store.instances(keep=60_000)}

    def leader(self) -> tuple[Child, int]:
        holder, term, _ = self.store.leader()
        return next(beat for beat in self.beats if beat.pid == self.instances()[holder]), term

    def enqueued(self) -> int:
        return int(self.client.llen("dramatiq:default"))

    def recorded_since(self, instant: int) -> list[int]:
        """The terms of all ticks that were recorded since then, by the stamps of the server."""
        entries = self.client.xrange(self.store.keys.ticks, min=instant)
        return [int(fields[b"term"]) for _, fields in entries if fields.get(b"message_id")]

    def ticks(self) -> Counter[tuple[str, int]]:
        options = [json.loads(data)["options"]["distcron"] for data in self.client.hvals("dramatiq:default.msgs")]
        return Counter((tick["schedule"], tick["fire_time"]) for tick in options)


def await_(is_so: Callable[[], bool], pause: float) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, "waited two minutes in vain"
        time.sleep(pause)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--schedules", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        bench = Bench(server, args.schedules, Path(folder))
        for number in range(args.rounds):
            print(f"{number}: {bench.round(args.seconds)} (wanted: 0)", flush=True)
        for beat in bench.beats:
            beat.end()
        ticks = bench.ticks()
    times = {fire_time for _, fire_time in ticks}
    due = args.schedules * len(range(min(times), max(times) + 1, STEP * 1000))
    doubled = sum(count > 1 for count in ticks.values())
    print(f"{due} ticks due: {doubled} doubled, {due - len(ticks)} lost (wanted: 0, 0)")


if __name__ == "__main__":
    main()
