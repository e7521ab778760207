"""1,000 messages fail at one instant: when do they come back, by jitter, and with Dramatiq's own retries?

    python benchmarks/retry_spread.py [--messages 1000] [--base 10]

Real workers on an embedded server. All first runs wait for each other, then fail together. A bin is 100 ms long.
"""

from __future__ import annotations

import argparse
import logging
import threading
import time
import uuid
from collections import Counter
from typing import Any

import dramatiq
from dramatiq import Worker
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import exponential, install
from dramatiq_distcron.server import Server

BIN = 0.1


def times_of(server: Server, messages: int, *, ours: bool, **options: Any) -> list[float]:
    """When the second runs were, in seconds after the failure of all."""
    broker = RedisBroker(url=server.url, namespace=f"bench-{uuid.uuid4().hex[:6]}")
    if ours:
        install(broker)
    back: list[float] = []
    failed = [0]
    all_failed, everybody_back = threading.Event(), threading.Event()

    @dramatiq.actor(broker=broker, **options)
    def work(number: int) -> None:
        message = seen.get_current_message()
        if message.options.get("retries", 0):
            back.append(time.monotonic())
            if len(back) == messages:
                everybody_back.set()
            return
        failed[0] += 1
        if failed[0] == messages:
            all_failed.set()
        raise dramatiq.Retry("all at once")

    seen: Any = dramatiq.middleware.CurrentMessage
    broker.add_middleware(seen())
    for number in range(messages):
        work.send(number)
    worker = Worker(broker, worker_timeout=100, worker_threads=8)
    begun = time.monotonic()
    worker.start()
    all_failed.wait(120)
    lasted = time.monotonic() - begun
    everybody_back.wait(300)
    worker.stop()
    broker.client.close()
    print(f"    (the failures themselves took {lasted:.1f} s)")
    return [instant - begun for instant in back]


def describe(name: str, times: list[float]) -> float:
    """Prints one line; returns the part of the fullest bin."""
    bins = Counter(int(instant / BIN) for instant in times)
    fullest = max(bins.values()) / len(times)
    span = max(times) - min(times)
    print(f"{name:<34} {len(times)} came back over {span:5.1f} s, fullest 100 ms: {fullest:6.1%}", flush=True)
    return fullest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--base", type=float, default=12)
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    base, found = args.base, {}
    with Server() as server:
        for jitter in ("full", "equal", "decorrelated", base):
            name = f"exponential({base:g}, jitter={jitter!r})"
            times = times_of(server, args.messages, ours=True, backoff=exponential(base, jitter=jitter))
            found[jitter] = describe(name, times), max(times) - min(times)
        for name, ours in (("Dramatiq's formula, ours", True), ("Dramatiq's formula, Dramatiq", False)):
            ms = int(base * 500)
            describe(name, times_of(server, args.messages, ours=ours, min_backoff=ms, max_backoff=ms * 10))
        describe("constant, no jitter", times_of(server, args.messages, ours=True, backoff=base / 2))
    good = all(fullest <= 0.05 for fullest, _ in found.values()) and found["full"][1] >= 10
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
