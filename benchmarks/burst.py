"""10,000 schedules of 1,000 expressions due at one instant, beside ``actor.send()`` in a loop.

    python benchmarks/burst.py [--schedules 10000] [--rounds 5]

Both run in this process, against the same embedded server, one after the other in each round.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import uuid

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import cron, install
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.server import Server
from dramatiq_distcron.store.base import Acquired


def expressions(count: int) -> list[str]:
    """Distinct expressions that all fire at minute 0 of every hour."""
    found = []
    for number in range(count):
        hour, day, month = number % 23, 1 + number // 23 % 30, ("*", "1-12")[number // 690 % 2]
        found.append(f"0 0-{hour},{hour + 1}-23 1-{day},{day + 1}-31 {month} *")
    assert len(set(found)) == count
    return found


def declare(broker: RedisBroker, schedules: int) -> dramatiq.Actor:
    texts = expressions(min(1000, schedules))

    @dramatiq.actor(
        broker=broker, periodic=[cron(texts[i % len(texts)], name=f"schedule-{i}") for i in range(schedules)]
    )
    def work() -> None:
        pass

    return work


def fire_all(beat: Beat, instant: int) -> tuple[float, int]:
    started = time.perf_counter()
    enqueued, more = 0, True
    while more:
        report = beat.scheduler.pass_once(instant)
        enqueued += report.enqueued
        more = report.more
        if not beat.lease.trusted:
            beat.lease.renew()
    return time.perf_counter() - started, enqueued


def send_all(actor: dramatiq.Actor, count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        actor.send()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    ratios = []
    with Server() as server:
        broker = RedisBroker(url=server.url, namespace=f"bench-{uuid.uuid4().hex[:6]}")
        distcron = install(broker)
        actor = declare(broker, args.schedules)
        beat = Beat(distcron)
        assert isinstance(beat.lease.acquire(), Acquired)
        beat.office.take()
        # As the command does.
        gc.collect()
        gc.freeze()
        hour = 3_600_000
        instant = (beat.backend.store.now() // hour + 1) * hour
        print(f"{'round':>5} {'ticks':>7} {'beat s':>8} {'ticks/s':>9} {'send s':>8} {'sends/s':>9} {'ratio':>6}")
        for number in range(args.rounds):
            beat.lease.acquire()
            seconds, enqueued = fire_all(beat, instant + number * hour)
            assert enqueued == args.schedules, enqueued
            sending = send_all(actor, args.schedules)
            ratios.append(sending / seconds)
            print(
                f"{number:>5} {enqueued:>7} {seconds:>8.3f} {enqueued / seconds:>9.0f} {sending:>8.3f} "
                f"{args.schedules / sending:>9.0f} {ratios[-1]:>6.2f}"
            )
    print(f"median ratio {statistics.median(ratios):.2f} (at least 3 is wanted)")


if __name__ == "__main__":
    main()
