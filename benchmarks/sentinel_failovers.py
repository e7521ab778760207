"""What failovers of Sentinel cost: ticks that were doubled or lost, next to messages that were just sent.

    python benchmarks/sentinel_failovers.py [--failovers 20] [--schedules 50]

Three sentinels, a master and two replicas on the loopback interface; two beats and a worker process, which notes each
run in a file. For each way to fail over: without anything, with `DistCron(wait_replicas=1)`, and with the server's own
`min-replicas-to-write 1`.

Sentinels may elect twice for one failover: then two servers take writes for about ten seconds, and those of one are
lost. It is counted how often that was so.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from dramatiq import Message
from dramatiq.brokers.redis import RedisBroker

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dramatiq_distcron.demo.processes import Child, beat_command, worker_command
from dramatiq_distcron.server import Server
from tests.topologies import Sentinels

APP = "tests.sentinel_app"
#: wait_replicas of DistCron, min-replicas-to-write of the server.
SETTINGS = [(0, 0), (1, 0), (0, 1)]
WAYS = {"SIGKILL of the master": Sentinels.kill_the_master, "SENTINEL FAILOVER": Sentinels.fail_over}


@dataclass
class Sender:
    """Just sends, as any code would, and remembers what Redis said yes to."""

    broker: RedisBroker
    sent: set[int] = field(default_factory=set)
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        number = 0
        while not self.stopped.wait(0.01):
            number += 1
            with suppress(redis.RedisError):
                self.broker.enqueue(Message("default", "sent", (number,), {}, {}))
                self.sent.add(number)


class Run:
    """One row of the table."""

    def __init__(self, sentinels: Sentinels, way: str, replicas: int, args: argparse.Namespace, folder: str) -> None:
        self.sentinels = sentinels
        self.way = way
        self.failovers: int = args.failovers
        self.notes = Path(folder) / "notes"
        self.namespace = f"bench-{random.randrange(10**9)}"
        self.env = {
            "TEST_SENTINELS": ",".join(str(one.port) for one in sentinels.sentinels),
            "TEST_NAMESPACE": self.namespace,
            "TEST_WAIT_REPLICAS": str(replicas),
            "TEST_SCHEDULES": str(args.schedules),
            "TEST_NOTES": str(self.notes),
        }
        self.elected_twice = 0
        self.broker: Any = RedisBroker(client=sentinels.client(), namespace=self.namespace, middleware=[])

    def measure(self) -> str:
        sender = Sender(self.broker)
        with ExitStack() as stack:
            beats = [Child(f"beat {n}", beat_command(APP), self.env) for n in range(2)]
            worker = Child("worker", worker_command(APP, ["dramatiq_distcron.demo.leash"], threads=8), self.env)
            for child in (worker, *beats):
                stack.callback(child.end)
            thread = threading.Thread(target=sender.run, daemon=True)
            self.await_runs(1)
            thread.start()
            for number in range(self.failovers):
                self.fail_over_once(number)
            sender.stopped.set()
            thread.join()
            for beat in beats:
                beat.end()
            self.await_silence()
        return self.count(sender)

    def fail_over_once(self, number: int) -> None:
        # Anywhere in a second, which is when the ticks are due.
        time.sleep(2 + random.random())
        old = WAYS[self.way](self.sentinels)
        self.sentinels.await_another(old)
        time.sleep(1)
        self.elected_twice += sum(is_master(one) for one in self.sentinels.servers if one is not old) > 1
        self.sentinels.await_whole()
        self.await_runs(len(self.runs()) + 1)
        print(f"{self.way}: {number + 1} done", file=sys.stderr, flush=True)

    def runs(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def await_runs(self, count: int) -> None:
        while len(self.runs()) < count:
            time.sleep(0.05)

    def await_silence(self) -> None:
        seen = -1
        while seen != len(self.runs()):
            seen = len(self.runs())
            time.sleep(3)

    def count(self, sender: Sender) -> str:
        runs = Counter(tuple(line.split(" ")) for line in self.runs())
        messages: dict[tuple[str, int], set[str]] = {}
        for name, number, redis_id in runs:
            messages.setdefault((name, int(number)), set()).add(redis_id)
        for message in self.left():
            tick = message.options.get("distcron")
            key = (tick["schedule"], tick["fire_time"]) if tick else ("sent", message.args[0])
            messages.setdefault(key, set()).add(message.options["redis_message_id"])
        ticks = {key: ids for key, ids in messages.items() if key[0] != "sent"}
        due = sum(len(range(min(times), max(times) + 1, 1000)) for times in times_of(ticks))
        lost = sender.sent - {number for name, number in messages if name == "sent"}
        again = sum(count > 1 for (name, *_), count in runs.items() if name != "sent")
        doubled = sum(len(ids) > 1 for ids in ticks.values())
        counted = (due, due - len(ticks), doubled, again, len(sender.sent), len(lost))
        return f"{self.failovers} | {self.elected_twice} | " + " | ".join(f"{number:,}" for number in counted) + " |"

    def left(self) -> list[Message[Any]]:
        """What is in Redis and was not run: with a worker that never got the reply to its fetch, say."""
        return [Message.decode(data) for data in self.broker.client.hvals(f"{self.namespace}:default.msgs")]


def is_master(server: Server) -> bool:
    with redis.Redis.from_url(server.url) as client:
        return bool(client.info("replication")["role"] == "master")


def times_of(ticks: dict[tuple[str, int], set[str]]) -> list[list[int]]:
    times: dict[str, list[int]] = {}
    for name, time_ in ticks:
        times.setdefault(name, []).append(time_)
    return list(times.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failovers", type=int, default=20)
    parser.add_argument("--schedules", type=int, default=50)
    args = parser.parse_args()
    columns = ["failover by", "`wait_replicas`", "`min-replicas-to-write`", "failovers", "elected twice", "ticks due"]
    columns += ["lost", "with two messages", "messages run twice", "plain sends confirmed", "lost"]
    print("|", " | ".join(columns), "|", flush=True)
    for way in WAYS:
        for wait, least in SETTINGS:
            with tempfile.TemporaryDirectory() as folder, Sentinels(None, min_replicas_to_write=least) as sentinels:
                row = Run(sentinels, way, wait, args, folder).measure()
            print(f"| {way} | {wait} | {least} | {row}", flush=True)


if __name__ == "__main__":
    main()
