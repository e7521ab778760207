"""Our cron against croniter, in one run: `python benchmarks/cron_speed.py [--expressions FILE]`.

Prints, in microseconds, the median over the expressions of the golden file for: parsing a text never seen before, the
next fire time of a parsed expression at an instant never asked for (croniter: naive, the easier task; ours: with a
zone), and one that was asked before. Then it loads 100,000 schedules of 1,000 expressions.
"""

from __future__ import annotations

import argparse
import csv
import random
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from croniter import croniter

from dramatiq_distcron import cron_days, cron_expression, cron_fields
from dramatiq_distcron.cron_expression import parse
from dramatiq_distcron.cron_time import next_fire
from dramatiq_distcron.zones import load_zone

GOLDEN = Path(__file__).parents[1] / "tests" / "unit" / "data" / "cron-golden.csv"
ZONES = ["Europe/Berlin", "America/New_York", "UTC", "Australia/Lord_Howe", "Asia/Kolkata"]
EPOCH = datetime(1970, 1, 1)
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
        fires = [
            each(lambda instant, ours=ours: next_fire(ours, zone, instant), instants)  # type: ignore[misc]
            for _ in range(2)
        ]
        rows.append((*times, *fires))
    columns = [median(row[n] for row in rows) for n in range(5)]
    print(f"{len(rows)} expressions, 50 instants each, {zone.key}; medians in microseconds")
    print(f"parse:  croniter {columns[0]:6.1f}   ours {columns[1]:6.1f}   ratio {columns[1] / columns[0]:.2f}")
    print(f"next:   croniter {columns[2]:6.1f}   ours {columns[3]:6.1f}   ratio {columns[3] / columns[2]:.2f}")
    print(f"cached: croniter      -   ours {columns[4]:6.1f}")


def load_many(count: int, distinct: int) -> None:
    rng = random.Random(1)
    texts = [f"{rng.randrange(60)} {rng.randrange(24)} * * {rng.choice(['*', '1-5', '0', '*/2'])}" for _ in range(400)]
    texts += [f"*/{rng.randint(2, 30)} {rng.randrange(24)} {rng.randint(1, 28)} * *" for _ in range(distinct - 400)]
    zones = [load_zone(name) for name in ZONES]
    before, started = resident(), time.perf_counter()
    fires = [next_fire(parse(texts[n % distinct]), zones[n % len(zones)], 1_717_000_000_000) for n in range(count)]
    taken = time.perf_counter() - started
    print(f"{len(fires):,} schedules of {distinct:,} expressions parsed and first-fired in {taken:.2f} s")
    print(f"resident memory grew by {(resident() - before) / 1024:.1f} MB")


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
    load_many(100_000, 1_000)
    forget()
    for name in ("UTC", "America/New_York"):
        compare(texts, load_zone(name), random.Random(1))


if __name__ == "__main__":
    main()
