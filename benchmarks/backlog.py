"""Taking office after a week: 1,000 schedules of one minute, by every policy.

    python benchmarks/backlog.py [--schedules 1000] [--days 7] [--lease 3]

A beat as the command runs it, on an embedded server; in Redis each cursor is put back by the days. What must be
enqueued is computed from the policies and compared.
"""

from __future__ import annotations

import argparse
import threading
import time
import uuid
from collections import Counter
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import cron, install
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.server import Server

MINUTE, DAY = 60_000, 86_400_000
#: Name, options, and how many messages such a schedule gets.
POLICIES: list[tuple[str, dict[str, Any], int]] = [
    ("latest", {"catch_up": "latest"}, 1),
    ("skip", {"catch_up": "skip"}, 0),
    ("all", {"catch_up": "all"}, 100),
    ("capped", {"catch_up": "all", "max_catch_up": 7}, 7),
    ("grace", {"catch_up": "all", "misfire_grace_time": 45.5 * 60}, 46),
]


def put_back(store: Any, milliseconds: int) -> None:
    """Every cursor, as if no beat had been there since."""
    client, due = store._client, store.keys.due
    cursors = {name: score - milliseconds for name, score in client.zrange(due, 0, -1, withscores=True)}
    client.zadd(due, cursors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--lease", type=float, default=3)
    args = parser.parse_args()
    with Server() as server:
        broker = RedisBroker(url=server.url, namespace=f"bench-{uuid.uuid4().hex[:6]}")
        distcron = install(broker, lease_ttl=args.lease, history_size=1_000_000)
        kinds = [POLICIES[number % len(POLICIES)] for number in range(args.schedules)]
        schedules = [cron("* * * * *", name=f"{kind[0]}-{n}", **kind[1]) for n, kind in enumerate(kinds)]
        dramatiq.actor(lambda: None, broker=broker, actor_name="job", periodic=schedules)
        assert Beat(distcron).run_once()
        store: Any = distcron.open_backend().store
        while not 10 < store.now() / 1000 % 60 < 15:
            # No minute may begin while we count, nor one that began so shortly before that a beat counts as there.
            time.sleep(0.2)
        put_back(store, args.days * DAY // MINUTE * MINUTE)
        beat = Beat(distcron)
        thread = threading.Thread(target=beat.run)
        asked = store.now()
        thread.start()
        due, queue = store.keys.due, f"{broker.namespace}:default"
        while not store._client.llen(queue):
            time.sleep(0.002)
        first = store.now()
        while store._client.zcount(due, "-inf", asked):
            time.sleep(0.01)
        done = store.now()
        term = beat.lease.term
        beat.stop()
        thread.join()
        ticks = distcron.schedules.history(limit=1_000_000)
        assert {tick.term for tick in ticks} == {term}, "the lease was lost"
        since = beat.lease.since
        print(f"office taken {since - asked} ms after the start")
        print(f"first messages in the queue {first - since} ms after that (wanted: under 1000)")
        print(f"all of {args.schedules} schedules decided {done - since} ms after taking office, in one term")
        report(ticks, Counter(kind[0] for kind in kinds))


def report(ticks: list[Any], schedules: Counter[str]) -> None:
    enqueued = [tick for tick in ticks if tick.outcome == "enqueued"]
    for name, _, expected in POLICIES:
        found = Counter(tick.schedule for tick in enqueued if tick.schedule.startswith(name + "-"))
        wanted = expected * schedules[name]
        print(f"  {name:<7} {schedules[name]:>4} schedules, {sum(found.values()):>6} messages, {wanted:>6} wanted")
        assert sum(found.values()) == wanted
        assert set(found.values()) <= {expected}


if __name__ == "__main__":
    main()
