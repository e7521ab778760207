"""Counting what a backlog missed: `python benchmarks/counting.py`.

For each schedule and backlog: how many fire times were counted, how many there were (up to a million, walked through
one by one), and what the decision took of the processor, nothing remembered, the best of three. The exit code is 1 if
a count up to 1,000 is not exact or a decision takes over 100 ms.
"""

from __future__ import annotations

import sys
import time
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import Any

from dramatiq_distcron import Schedule, any_of, cron, cron_days, cron_time, every
from dramatiq_distcron.policies import Policy
from dramatiq_distcron.specs import Spec
from dramatiq_distcron.ticks import Situation, decide, passed_over

LIMIT = 0.100
NOW = datetime(2026, 11, 30, tzinfo=timezone.utc)
YEAR = timedelta(days=365)
CASES: list[tuple[str, Schedule, timedelta]] = [
    ("each minute, 16 h 40 min", cron("* * * * *"), timedelta(minutes=1000)),
    ("each minute, a week", cron("* * * * *"), timedelta(days=7)),
    ("each minute, a year", cron("* * * * *", tz="Europe/Berlin"), YEAR),
    ("each second, a year", cron("* * * * * *", seconds="first"), YEAR),
    ("each second of one day a year, 9 years", cron("* * * 29 11 *", seconds="first"), 9 * YEAR),
    ("daily, 2 years", cron("0 3 * * *", tz="America/New_York"), 2 * YEAR),
    ("daily, 20 years", cron("0 3 * * *", tz="America/New_York"), 20 * YEAR),
    ("leap days on Sundays, 100 years", cron("0 0 29 2 */7"), 100 * YEAR),
    ("every second, 10 years", every(1), 10 * YEAR),
    (
        "daily, and each second of the last day, 9 years",
        any_of(cron("0 0 * * *"), cron("* * * 29 11 *", seconds="first")),
        9 * YEAR,
    ),
    ("daily for long, then each second", any_of(every(86_400), every(1, anchor=NOW - timedelta(days=1))), 9 * YEAR),
]


def spec_of(schedule: Schedule, policy: Policy) -> Spec:
    timing = schedule.timing.bind("job", "UTC")
    return Spec(name="job", actor="job", queue="default", timing=timing, policy=policy, payload={}, source="code")


def truth(spec: Spec, cursor: int, now: int, at_most: int) -> int:
    count, fire_time = 0, spec.next_ms(cursor - 1)
    while fire_time is not None and fire_time <= now and count < at_most:
        count, fire_time = count + 1, spec.next_ms(fire_time)
    return count


def seconds(spec: Spec, cursor: int, now: int) -> float:
    cron_time._next_fire.cache_clear()
    cron_days.day_calendar.cache_clear()
    started = time.thread_time()
    decide(spec, cursor, now, Situation())
    return time.thread_time() - started


def main() -> None:
    now, broken = int(NOW.timestamp() * 1000), False
    for what, schedule, backlog in CASES:
        spec = spec_of(schedule, Policy())
        cursor = spec.next_ms(now - int(backlog.total_seconds() * 1000))
        assert cursor is not None
        there = truth(spec, cursor, now, 1_000_000)
        counted = passed_over(spec, cursor, now)
        assert counted is not None
        taken = {
            policy: min(seconds(spec_of(schedule, Policy(**options)), cursor, now) for _ in range(3))
            for policy, options in POLICIES.items()
        }
        times = ", ".join(f"{policy} {taken[policy] * 1000:.1f} ms" for policy in taken)
        print(f"{what}: {counted[2]:,} of {there:,}{'+' if there == 1_000_000 else ''}; {times}")
        broken |= (there <= 1000 and counted[2] != there) or max(islice(taken.values(), 2)) > LIMIT
    sys.exit(broken)


POLICIES: dict[str, dict[str, Any]] = {
    "latest": {},
    "all": {"catch_up": "all"},
    "all of 10,000": {"catch_up": "all", "max_catch_up": 10_000},
}

if __name__ == "__main__":
    main()
