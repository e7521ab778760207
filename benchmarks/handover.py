"""How long nobody leads: after SIGTERM (clean hand-over) and after SIGKILL (the lease must end).

    python benchmarks/handover.py [--rounds 10]

Real processes on an embedded server; a fresh standby is started in each round.
"""

from __future__ import annotations

import argparse
import statistics
import time

from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import install
from dramatiq_distcron.demo.processes import Child, beat_command
from dramatiq_distcron.server import Server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    with Server() as server:
        distcron = install(RedisBroker(url=server.url, middleware=[]))
        store = distcron.open_backend().store
        count = 0

        def start() -> Child:
            nonlocal count
            count += 1
            return Child(
                f"beat {count}", beat_command("dramatiq_distcron.demo.app"), {"DISTCRON_REDIS_URL": server.url}
            )

        def standbys() -> int:
            return sum(one.data["role"] == "standby" for one in store.instances(keep=60_000))

        leader = start()
        while store.leader() is None:
            time.sleep(0.01)
        for how in ("SIGTERM", "SIGKILL"):
            gaps = []
            for _ in range(args.rounds):
                standby = start()
                while not standbys():
                    time.sleep(0.01)
                time.sleep(0.5)
                asked = store.now()
                leader.terminate() if how == "SIGTERM" else leader.kill()
                while (found := store.leader()) is None or found[2] < asked:
                    time.sleep(0.001)
                gaps.append(found[2] - asked)
                leader.end()
                leader = standby
                while standbys():
                    time.sleep(0.05)
            print(
                f"{how}: median {statistics.median(gaps):.0f} ms, worst {max(gaps)} ms, all {sorted(gaps)} "
                f"(wanted: {'median under 200' if how == 'SIGTERM' else 'worst under 3500'})"
            )
        leader.end()


if __name__ == "__main__":
    main()
