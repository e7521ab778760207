"""Our cron against croniter, in one run: `python benchmarks/cron_speed.py [--expressions FILE]`.

Prints, in microseconds, the median over the expressions of the golden file for: parsing a text never seen before, the
next fire time of a parsed expression at an instant never asked for (croniter: naive, the easier task; ours: with a
zone), and one that was asked before, both as the beat asks and as `schedule.next_after()`. Before, it loads 100,000
schedules of 1,000 expressions, as code writes them and as a beat reads them from the store, and asks each for its first
fire time. At the end: the slowest of odd inputs. The exit code is 1 if one of the limits is not kept;
what takes long is measured by the time of the processor, as the machine may be busy.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from statistics import median
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from croniter import croniter

from dramatiq_distcron import InvalidCronExpression, cron, cron_days, cron_expression, cron_fields, cron_time
from dramatiq_distcron.cron_expression import parse
from dramatiq_distcron.cron_time import next_fire
from dramatiq_distcron.specs import parse_spec
from dramatiq_distcron.zones import load_zone

GOLDEN = Path(__file__).parents[1] / "tests" / "unit" / "data" / "cron-golden.csv"
ZONES = ["Europe/Berlin", "America/New_York", "UTC", "Australia/Lord_Howe", "Asia/Kolkata"]
EPOCH = datetime(1970, 1, 1)
#: A schedule as it is stored: a number for its name, the expression, the zone.
STORED = (
    '{"revision": 1, "format": 1, "source": "api", "name": "tenant:%d", "actor": "job", "queue": "default", "timing": '
    '{"kind": "cron", "expression": "%s", "seconds": null, "timezone": "%s"}, "policy": {"catch_up": "latest"}, '
    '"payload": {"args": [1], "kwargs": {}, "options": {}}, "retired": null, "paused": null, '
    '"fingerprint": "712ff792e341e36c"}'
)
#: The limits that were not kept.
broken: list[str] = []
T = TypeVar("T")


def each(function: Callable[[T], object], arguments: Sequence[T], before: Callable[[], object] = int) -> float:
    """Median microseconds of a call; what is to be done before each one does not count."""
    taken = []
    for argument in arguments:
        before()
        started = time.perf_counter_ns()
        function(argument)
        taken.append(time.perf_counter_ns() - started)
    return median(taken) / 1000


def forget() -> None:
    for cache in (cron_expression._parse, cron_fields.parse_field, cron_days.day_calendar):
        cache.cache_clear()


def compare(texts: Sequence[str], zone: ZoneInfo, rng: random.Random) -> None:
    rows = []
    for text in texts:
        seconds: Any = "last" if len(text.split()) == 6 else None
        spoken = text.replace("5L", "L5")  # croniter's spelling
        theirs = croniter(spoken, EPOCH, implement_cron_bug=True)
        starts = [datetime(2024, 1, 1) + timedelta(seconds=rng.randrange(20 * 365 * 86_400)) for _ in range(50)]
        instants = [int((start - EPOCH).total_seconds()) * 1000 for start in starts]
        times = (
            each(lambda text: croniter(text, EPOCH, implement_cron_bug=True), [spoken] * 20),
            each(lambda text, seconds=seconds: parse(text, seconds=seconds), [text] * 20, forget),  # type: ignore[misc]
            each(lambda start, theirs=theirs: theirs.get_next(datetime, start_time=start), starts),  # type: ignore[misc]
        )
        ours = parse(text, seconds=seconds)
        schedule = cron(text, seconds=seconds, tz=zone.key, name="job")
        aware = [start.replace(tzinfo=timezone.utc) for start in starts]
        fires = [
            each(lambda instant, ours=ours: next_fire(ours, zone, instant), instants)  # type: ignore[misc]
            for _ in range(2)
        ]
        rows.append((*times, *fires, each(schedule.next_after, aware)))
    columns = [median(row[n] for row in rows) for n in range(6)]
    print(f"{len(rows)} expressions, 50 instants each, {zone.key}; medians in microseconds")
    print(f"parse:  croniter {columns[0]:6.1f}   ours {columns[1]:6.1f}   ratio {columns[1] / columns[0]:.2f}")
    print(f"next:   croniter {columns[2]:6.1f}   ours {columns[3]:6.1f}   ratio {columns[3] / columns[2]:.2f}")
    print(f"cached: croniter      -   ours {columns[4]:6.1f}   schedule.next_after() {columns[5]:.1f}")
    within(columns[3] <= 3 * columns[2], "3 x croniter for an uncached next fire time")
    within(columns[5] < 5, "5 microseconds for a cached one")


def many_texts(distinct: int) -> list[str]:
    rng = random.Random(1)
    texts = [f"{rng.randrange(60)} {rng.randrange(24)} * * {rng.choice(['*', '1-5', '0', '*/2'])}" for _ in range(400)]
    return texts + [
        f"*/{rng.randint(2, 30)} {rng.randrange(24)} {rng.randint(1, 28)} * *" for _ in range(distinct - 400)
    ]


def load_many(what: str, count: int, first_fire: Callable[[int], object]) -> None:
    before, started, on_cpu = resident(), time.perf_counter(), time.process_time()
    kept = [first_fire(number) for number in range(count)]
    taken, computing = time.perf_counter() - started, time.process_time() - on_cpu
    grown = (resident() - before) / 1024
    print(f"{len(kept):,} schedules {what}: {taken:.2f} s ({computing:.2f} s of the processor), {grown:.1f} MB")
    within(computing < 10 and grown < 150, "10 s and 150 MB for 100,000 schedules")


def load_in_both_ways(count: int, distinct: int) -> None:
    texts = many_texts(distinct)
    start = datetime(2026, 11, 30, tzinfo=timezone.utc)

    def from_code(number: int) -> object:
        schedule = cron(texts[number % distinct], name=f"tenant:{number}", tz=ZONES[number % len(ZONES)])
        return schedule, schedule.next_after(start)

    def from_store(number: int) -> object:
        text = STORED % (number, texts[number % distinct], ZONES[number % len(ZONES)])
        return parse_spec(text).next_ms(1_764_000_000_000 + number % 60 * 60_000)

    load_many("written in code and first-fired", count, from_code)
    load_many("read from the store and first-fired", count, from_store)


def slowest_odd_input() -> None:
    """Each alone, with nothing remembered, the best of five: the machine may be busy."""
    long = ",".join(str(n % 60) for n in range(64))
    odd = [
        ("0 0 29 2 */7", "UTC", 2088),
        ("0 0 29 2 */7", "Pacific/Apia", 2011),
        ("0 0 30 12 *", "Pacific/Apia", 2011),
        ("* * * * *", "Pacific/Apia", 2011),
        ("0 0 * 2 1#5", "America/New_York", 2044),
        ("0 0 1 1 *", "UTC", 9990),
        (f"{long} * * * *", "Europe/Berlin", 2026),
        ((",".join(["1-59/1"] * 34) + " * * * *")[-256:], "Europe/Berlin", 2026),
        ("x" * 256, "UTC", 2026),
        ("9" * 256, "UTC", 2026),
        ("*/" * 128, "UTC", 2026),
        (" ".join(["1,2,3,4,5,6,7,8,9,10,11,12"] * 5), "Pacific/Apia", 2011),
    ]
    worst = max((min(alone(*case) for _ in range(5)), case) for case in odd)
    print(f"slowest odd input: {worst[0] * 1000:.2f} ms for {worst[1][0][:40]!r} in {worst[1][1]}, {worst[1][2]}")
    within(worst[0] < 0.050, "50 ms for any input of 256 characters")


def alone(text: str, zone: str, year: int) -> float:
    """Seconds of the processor for parsing it and ten fire times from December of that year on."""
    forget()
    cron_time._next_fire.cache_clear()
    after: int | None = int((datetime(year, 12, 1) - EPOCH).total_seconds()) * 1000
    loaded, started = load_zone(zone), time.thread_time()
    try:
        expression = parse(text)
        for _ in range(10):
            after = None if after is None else next_fire(expression, loaded, after)
    except InvalidCronExpression:
        pass
    return time.thread_time() - started


def within(is_so: bool, limit: str) -> None:
    if not is_so:
        print(f"NOT WITHIN: {limit}")
        broken.append(limit)


def resident() -> int:
    """Kilobytes, where the platform tells."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)


def golden_expressions() -> list[str]:
    with GOLDEN.open(encoding="utf-8", newline="") as lines:
        return sorted({row["expression"] for row in csv.DictReader(lines) if row["expected_next_iso"]})


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--expressions", type=Path, help="a file with one expression a line")
    given = arguments.parse_args()
    texts = given.expressions.read_text("utf-8").splitlines() if given.expressions else golden_expressions()
    load_in_both_ways(100_000, 1_000)
    forget()
    for name in ("UTC", "America/New_York"):
        compare(texts, load_zone(name), random.Random(1))
    slowest_odd_input()
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
