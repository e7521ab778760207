"""What three idle beats with ten daily schedules cost: Redis commands and processor time.

    python benchmarks/idle.py [--seconds 30]

Real processes on an embedded server. Commands inside scripts are counted as well.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import redis

from dramatiq_distcron.demo.processes import Child, beat_command
from dramatiq_distcron.server import Server

APP = """
import os, dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq_distcron import cron, install
broker = RedisBroker(url=os.environ["DISTCRON_REDIS_URL"])
install(broker)
dramatiq.set_broker(broker)
# Twelve hours away from now, so that none fires while we look.
hour = (int(os.environ["HOUR"]) + 12) % 24

@dramatiq.actor(periodic=[cron(f"{minute} {hour} * * *", name=f"daily-{minute}") for minute in range(10)])
def daily(): ...
"""


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    args = parser.parse_args()
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"distcron-idle-{os.getpid()}"
    folder.mkdir()
    (folder / "idle_app.py").write_text(APP)
    with Server() as server:
        client = redis.Redis.from_url(server.url)
        env = {"DISTCRON_REDIS_URL": server.url, "HOUR": time.strftime("%H", time.gmtime())}
        beats = [Child(f"beat {n}", beat_command("idle_app", "--path", str(folder)), env) for n in range(3)]
        time.sleep(5)
        before, cpu_before = client.info("commandstats"), sum(cpu_seconds(beat.pid) for beat in beats)
        started = time.monotonic()
        time.sleep(args.seconds)
        elapsed = time.monotonic() - started
        after, cpu_after = client.info("commandstats"), sum(cpu_seconds(beat.pid) for beat in beats)
        calls = {
            name: after[name]["calls"] - before.get(name, {"calls": 0})["calls"]
            for name in after
            if name != "cmdstat_info"
        }
        for name, count in sorted(calls.items(), key=lambda item: -item[1]):
            if count:
                print(f"  {name.removeprefix('cmdstat_'):<16} {count / elapsed:6.2f} /s")
        sent = calls["cmdstat_evalsha"] + calls.get("cmdstat_xread", 0)
        print(f"sent by the beats: {sent / elapsed:.2f} commands/s")
        print(f"in all, with those inside scripts: {sum(calls.values()) / elapsed:.2f} commands/s (wanted: under 10)")
        print(f"processor time of the three: {(cpu_after - cpu_before) / elapsed * 100:.2f} % of one core")
        for beat in beats:
            beat.end()
    (folder / "idle_app.py").unlink()
    for cached in folder.rglob("*.pyc"):
        cached.unlink()
        cached.parent.rmdir()
    folder.rmdir()


if __name__ == "__main__":
    main()
