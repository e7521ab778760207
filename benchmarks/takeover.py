"""How long nobody leads after a SIGKILL, and what becomes of the ticks of the gap.

    python benchmarks/takeover.py [--kills 30] [--schedules 20]

The leader of three real beats is killed again and again, anywhere in a second; another beat takes its place. Nobody
takes the messages away, so that in the end each second of each schedule is looked for: once, and none left out.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
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
install(broker, catch_up="all")
dramatiq.set_broker(broker)

@dramatiq.actor(periodic=[every(1, name=f"schedule-{n}") for n in range(int(os.environ["SCHEDULES"]))])
def job(): ...
"""
BEATS = 3
LEASE = 3000


class Beats:
    """Three beats, and what the store tells of them."""

    def __init__(self, server: Server, schedules: int, folder: Path) -> None:
        (folder / "takeover_app.py").write_text(APP)
        self.client: Any = redis.Redis.from_url(server.url)
        self.store = install(RedisBroker(url=server.url, middleware=[])).open_backend().store
        self._command = beat_command("takeover_app", "--path", str(folder))
        self._env = {"DISTCRON_REDIS_URL": server.url, "SCHEDULES": str(schedules)}
        self._children: list[Child] = []

    def fill(self) -> None:
        """As many as there should be, one of them leading and the others standing by."""
        self._children = [child for child in self._children if child.alive]
        while len(self._children) < BEATS:
            self._children.append(Child("beat", self._command, self._env))
        await_(lambda: sorted(self.roles()) == ["leader", *["standby"] * (BEATS - 1)])

    def roles(self) -> list[str]:
        alive = {child.pid for child in self._children if child.alive}
        return [one.data["role"] for one in self.store.instances(keep=60_000) if one.data["pid"] in alive]

    def kill_the_leader(self) -> int:
        """Returns for how many ms nobody led."""
        holder, term, _ = self.store.leader() or ("", 0, 0)
        pids = {one.holder: one.data["pid"] for one in self.store.instances(keep=60_000)}
        asked = self.store.now()
        next(child for child in self._children if child.pid == pids[holder]).kill()
        await_(lambda: (self.store.leader() or ("", term))[1] > term)
        found = self.store.leader()
        assert found is not None
        return int(found[2]) - asked

    def end(self) -> None:
        for child in self._children:
            child.end()

    def ticks(self) -> Counter[tuple[str, int]]:
        options = [json.loads(data)["options"]["distcron"] for data in self.client.hvals("dramatiq:default.msgs")]
        return Counter((tick["schedule"], tick["fire_time"]) for tick in options)


def await_(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "waited a minute in vain"
        time.sleep(0.005)


def lost(ticks: Counter[tuple[str, int]]) -> int:
    """How many seconds are left out between the first and the last of each schedule."""
    times: dict[str, list[int]] = {}
    for name, fire_time in ticks:
        times.setdefault(name, []).append(fire_time)
    return sum(len(range(min(found), max(found) + 1, 1000)) - len(found) for found in times.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--schedules", type=int, default=20)
    args = parser.parse_args()
    gaps = []
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        beats = Beats(server, args.schedules, Path(folder))
        for _ in range(args.kills):
            beats.fill()
            time.sleep(1 + random.random())
            gaps.append(beats.kill_the_leader())
        beats.fill()
        time.sleep(2)
        beats.end()
        ticks = beats.ticks()
    print(f"{args.kills} kills, lease {LEASE} ms: nobody led for")
    print(f"  median {statistics.median(gaps):.0f} ms, worst {max(gaps)} ms (wanted: at most {LEASE + 500})")
    print(f"  all {sorted(gaps)}")
    print(
        f"{len(ticks)} ticks: {sum(count > 1 for count in ticks.values())} doubled, {lost(ticks)} lost (wanted: 0, 0)"
    )


if __name__ == "__main__":
    main()
