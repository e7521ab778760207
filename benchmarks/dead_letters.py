"""A million dead letters: what keeping one costs, how much memory it takes, how soon a page is there, and how fast
letters go back, beside ``actor.send()`` in a loop.

    python benchmarks/dead_letters.py [--letters 1000000] [--back 30000] [--server PATH]

The letters are those of a real error, of 20 actors, 200 fingerprints and 1,000 schedules. Keeping is measured by the
step of a death, without the run before it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dramatiq
from dramatiq import Message
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import DistCron, install
from dramatiq_distcron.letters import REASONS, about_death, indexes_of
from dramatiq_distcron.server import Server
from dramatiq_distcron.store.base import Letter

BATCH = 500


def an_error() -> BaseException:
    try:
        raise TimeoutError("the other side did not answer in 30 s")
    except TimeoutError as error:
        return error


def letters(count: int, chance: random.Random) -> Iterator[Letter]:
    error = an_error()
    for number in range(count):
        actor = f"actor_{number % 20}"
        options = {
            "distcron": {"schedule": f"tenant:{chance.randrange(1000)}", "fire_time": 1_700_000_000_000, "term": 7}
        }
        message: Message[Any] = Message("default", actor, (number, "someone@example.org"), {}, options)
        about = about_death(message, error, REASONS[number % len(REASONS)], host="worker-7", version="1.0")
        about["fingerprint"] = f"{chance.randrange(200):012x}"
        yield Letter(str(number), about, message.encode(), indexes_of(about))


def keep(distcron: DistCron, count: int) -> None:
    store: Any = distcron.open_backend().store
    client = distcron.broker.client  # type: ignore[attr-defined]
    before = client.info("memory")["used_memory"]
    made = letters(count, random.Random(1))
    chunk = max(BATCH, count // 10)
    print(f"{'letters':>9} {'kept/s':>8} {'us each':>8}")
    for start in range(0, count, chunk):
        seconds, at = 0.0, start
        while at < min(count, start + chunk):
            batch = [(next(made), 1_700_000_000_000 + one) for one in range(at, min(count, at + BATCH))]
            began = time.perf_counter()
            store.put_letters(batch)
            seconds += time.perf_counter() - began
            at += len(batch)
        print(f"{at:>9} {(at - start) / seconds:>8.0f} {1e6 * seconds / (at - start):>8.1f}", flush=True)
    used = client.info("memory")["used_memory"] - before
    print(f"{used / count:.0f} bytes of Redis' memory a letter")


def look(distcron: DistCron) -> None:
    asked: list[dict[str, Any]] = [
        {},
        {"actor": "actor_3"},
        {"reason": "age_limit"},
        {"error": "TimeoutError"},
        {"fingerprint": f"{7:012x}"},
        {"schedule": "tenant:7"},
        {"actor": "actor_3", "schedule": "tenant:7"},
    ]
    for filters in asked:
        taken = []
        for _ in range(20):
            began = time.perf_counter()
            found = distcron.dead_letters.list(limit=20, **filters)
            taken.append(1000 * (time.perf_counter() - began))
        told = f"{statistics.median(taken):6.1f} ms (at most {max(taken):6.1f})"
        print(f"first page {told}, {len(found)} letters: {filters}")
    began = time.perf_counter()
    groups = distcron.dead_letters.stats()
    print(f"stats of {len(groups)} groups {1000 * (time.perf_counter() - began):.0f} ms")


def send_back(distcron: DistCron, actor: dramatiq.Actor[Any, Any], count: int) -> None:
    ratios = []
    print(f"{'round':>5} {'back/s':>8} {'sends/s':>8} {'ratio':>6}")
    for number in range(3):
        began = time.perf_counter()
        done = distcron.dead_letters.redrive(all=True, limit=count // 3)
        back = done.redriven / (time.perf_counter() - began)
        began = time.perf_counter()
        for _ in range(count // 3):
            actor.send(1, "someone@example.org")
        sends = count // 3 / (time.perf_counter() - began)
        ratios.append(back / sends)
        print(f"{number:>5} {back:>8.0f} {sends:>8.0f} {ratios[-1]:>6.2f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f}; at least 3,000 a second are wanted")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--letters", type=int, default=1_000_000)
    parser.add_argument("--back", type=int, default=30_000)
    parser.add_argument("--server", type=Path, default=None, help="which redis-server (default: the wheel's)")
    args = parser.parse_args()
    with Server(args.server) as server:
        broker = RedisBroker(url=server.url)
        distcron = install(broker)
        for number in range(20):
            dramatiq.actor(lambda *given: None, actor_name=f"actor_{number}", broker=broker)
        keep(distcron, args.letters)
        look(distcron)
        send_back(distcron, broker.get_actor("actor_0"), args.back)


if __name__ == "__main__":
    main()
