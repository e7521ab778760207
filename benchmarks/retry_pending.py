"""100,000 pending retries with mixed delays: how late are those that are due, while the far ones wait?

    python benchmarks/retry_pending.py [--pending 100000] [--due 5000] [--seconds 20]

Most are an hour away, as many as ``--due`` are due within ``--seconds``, in random order. Lateness is from the due time
to the run. Then the same messages in Dramatiq's delay queue, with a worker of the same threads.
"""

from __future__ import annotations

import argparse
import logging
import random
import threading
import time
import uuid
from typing import Any

import dramatiq
from dramatiq import Message, Worker
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import install
from dramatiq_distcron.publishing import waiting_form
from dramatiq_distcron.server import Server
from dramatiq_distcron.store.base import Ending, Waiting

FAR = 3_600_000


class Side:
    """A broker, and how late its messages ran."""

    def __init__(self, server: Server, delays: list[int], *, ours: bool) -> None:
        self.broker: Any = RedisBroker(url=server.url, namespace=f"bench-{uuid.uuid4().hex[:6]}")
        self.distcron = install(self.broker) if ours else None
        self.late: list[float] = []
        self._wanted = sum(delay < FAR for delay in delays)
        self._all = threading.Event()
        self.work = dramatiq.actor(self._run, actor_name="work", broker=self.broker)

    def _run(self, due: int) -> None:
        self.late.append(time.time() - due / 1000)
        if len(self.late) == self._wanted:
            self._all.set()

    def fill(self, delays: list[int], lead: int) -> None:
        """``lead`` ms from now on, the delays begin."""
        begin = time.time_ns() // 1_000_000 + lead
        for delay in delays:
            message = self.work.message(begin + delay)
            left = begin + delay - time.time_ns() // 1_000_000
            if self.distcron is None:
                self.broker.enqueue(message, delay=left)
            else:
                self._wait(message, left)

    def _wait(self, message: Message[Any], left: int) -> None:
        assert self.distcron is not None
        backend = self.distcron.open_backend()
        data, calls = waiting_form(backend.publisher.capture_plainly(message))
        about = {"id": message.message_id, "actor": "work", "queue": "default"}
        waiting = Waiting(message.message_id, left, about, data, calls)
        backend.store.settle(Ending(message.message_id, "retrying", goes_on=True, waiting=waiting))

    def run(self, seconds: float) -> None:
        worker = Worker(self.broker, worker_timeout=100, worker_threads=8)
        worker.start()
        self._all.wait(seconds)
        threading.Thread(target=worker.stop, daemon=True).start()

    def describe(self, name: str) -> float:
        late = sorted(self.late)
        missing = self._wanted - len(late)
        if not late:
            print(f"{name:<24} none of {self._wanted} ran")
            return float("inf")
        at = [late[min(len(late) - 1, int(len(late) * part))] for part in (0.5, 0.99)]
        words = f"{name:<24} late: p50 {at[0] * 1000:.0f} ms, p99 {at[1] * 1000:.0f} ms, most {late[-1] * 1000:.0f} ms"
        print(f"{words}; {missing} of {self._wanted} did not run in time", flush=True)
        return float("inf") if missing else at[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pending", type=int, default=100_000)
    parser.add_argument("--due", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--lead", type=float, default=90, help="seconds to store all of them in (default: 90)")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rng = random.Random(1)
    near = [rng.randrange(int(args.seconds * 1000)) for _ in range(args.due)]
    delays = near + [FAR + rng.randrange(FAR) for _ in range(args.pending - args.due)]
    rng.shuffle(delays)
    p99 = []
    with Server() as server:
        for name, ours in (("the waiting set", True), ("Dramatiq's delay queue", False)):
            side = Side(server, delays, ours=ours)
            began = time.monotonic()
            side.fill(delays, int(args.lead * 1000))
            print(f"    ({args.pending} were stored in {time.monotonic() - began:.0f} s)", flush=True)
            time.sleep(max(0.0, args.lead - (time.monotonic() - began) - 1))
            side.run(args.seconds + 15)
            p99.append(side.describe(name))
            side.broker.client.flushdb()
    return 0 if p99[0] <= 1.0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
