"""Throw random input at what reads schedules: `python benchmarks/fuzz_cron.py --count 1000000 --seed 1`.

Of ten inputs nine go to the cron parser, the rest are names of zones. It ends with an error unless only
`InvalidCronExpression` (of a zone: `ScheduleError`) comes out, everything that is accepted can be told in words and has
rising fire times in any zone, and no single call takes 50 ms of the processor.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from dramatiq_distcron import cron_days, cron_expression, cron_fields, cron_time
from dramatiq_distcron.cron_expression import CronExpression, parse
from dramatiq_distcron.cron_time import next_fire
from dramatiq_distcron.describing import describe
from dramatiq_distcron.errors import InvalidCronExpression, ScheduleError
from dramatiq_distcron.zones import load_zone

LIMIT = 0.050
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"]
SEEDS = [
    "* * * * *",
    "*/5 * * * *",
    "0 3 * * 1-5",
    "15,45 8-18 1-15 * mon",
    "0 0 29 2 */7",
    "0 0 31 2,4,6,9,11 0",
    "0 0 */32,1-7 * 2",
    "0 0 L * *",
    "0 0 LW 2 *",
    "0 9 15W * *",
    "0 0 * 2 1#5",
    "0 0 * * FRI#1,5L",
    "H H(0-7) * * *",
    "H/15 * * JAN-MAR/2 SUN",
    "@daily",
    "30 0 12 * * *",
    "* * * * * 10-20/5",
]
TOKENS = ["*", "*/", "/", "-", ",", "#", "L", "W", "LW", "H", "H(0-29)", "R", "?", "@", "~", "MON", "feb", "7", "0"]
TOKENS += ["59", "60", "31", "2", "29", "30", "99999999999999999999", " ", "  ", "\t", "\n", "\x00", "\u0661", "\uff11"]
ZONE_SEEDS = [*ZONES, "../etc/passwd", "", "Europe/", "posix/UTC", "+02:00", "europe/berlin", "x" * 300]
OTHERS: list[Any] = [None, True, 5, 1.5, b"* * * * *", (), ["*"], {}, object(), str, parse, float("nan"), 10**400]
T = TypeVar("T")


class Slowest:
    """Keeps the slowest call of each kind, by the time of the processor: the machine may be busy.

    What looks slow is tried again, with nothing remembered.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, tuple[float, str]] = {}

    def call(self, kind: str, shown: object, function: Callable[[], T]) -> T:
        started = time.thread_time()
        try:
            return function()
        finally:
            seconds = time.thread_time() - started
            if seconds > LIMIT / 10:
                seconds = min(self.again(function) for _ in range(5))
            if seconds > self.seconds.get(kind, (0.0, ""))[0]:
                self.seconds[kind] = (seconds, repr(shown)[:120])

    @staticmethod
    def again(function: Callable[[], object]) -> float:
        caches = (cron_expression._parse, cron_fields.parse_field, cron_days.day_calendar, cron_time._next_fire)
        for cache in caches:
            cache.cache_clear()
        started = time.thread_time()
        try:
            function()
        except ScheduleError:
            pass
        return time.thread_time() - started


def random_field(rng: random.Random) -> str:
    values = ["*", "*", str(rng.randint(0, 12)), rng.choice([*TOKENS, str(rng.randint(0, 60))])]
    values.append(f"{rng.randint(1, 4)}-{rng.randint(3, 24)}")
    items = [rng.choice(values) + rng.choice(["", "", f"/{rng.randint(0, 70)}"]) for _ in range(rng.randint(1, 2))]
    return ",".join(items)


def mutated(rng: random.Random, text: str) -> str:
    for _ in range(rng.randint(0, 3)):
        at = rng.randint(0, len(text))
        until = at + rng.randint(0, 2)
        text = text[:at] + rng.choice(["", rng.choice(TOKENS), chr(rng.randint(32, 126))]) + text[until:]
    return text


def random_input(rng: random.Random) -> Any:
    way = rng.random()
    if way < 0.45:
        return mutated(rng, rng.choice(SEEDS))
    if way < 0.75:
        return " ".join(random_field(rng) for _ in range(rng.choice([5, 5, 5, 6, 4, 7])))
    if way < 0.85:
        return "".join(rng.choice(TOKENS) for _ in range(rng.randint(0, 30)))
    if way < 0.90:
        return "".join(chr(rng.randrange(rng.choice([128, 0x110000]))) for _ in range(rng.randint(0, 20)))
    if way < 0.97:
        return long_input(rng)
    return rng.choice(OTHERS)


def long_input(rng: random.Random) -> str:
    """As many items as the limits let through, where the work is."""
    fields = []
    for low, high in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7)):
        items = [f"{rng.randint(low, high)}/{rng.randint(1, 9)}" for _ in range(rng.randint(1, 14))]
        fields.append(",".join(items))
    return " ".join(fields)[: rng.choice([256, 256, 300])]


def check(rng: random.Random, slowest: Slowest) -> str:
    if rng.random() < 0.1:
        return check_zone(rng, slowest)
    value = random_input(rng)
    six = isinstance(value, str) and len(value.split()) == 6
    seconds: Any = rng.choice(["first", "last"] if six else [None] * 20 + ["first", "last", "middle", 5, []])
    try:
        expression = slowest.call("parse", value, lambda: parse(value, seconds=seconds))
        if expression.has_hash:
            expression = expression.spread(str(rng.random()))
    except InvalidCronExpression:
        return "refused"
    assert slowest.call("describe", value, lambda: describe(expression)).endswith(".")
    assert all(isinstance(warning, str) for warning in expression.warnings())
    check_times(rng, slowest, expression)
    return "accepted"


def check_zone(rng: random.Random, slowest: Slowest) -> str:
    value = rng.choice([*ZONE_SEEDS, *OTHERS])
    if isinstance(value, str):
        value = mutated(rng, value)
    try:
        zone = slowest.call("load_zone", value, lambda: load_zone(value))
    except ScheduleError:
        return "zone refused"
    assert zone.key == value
    return "zone accepted"


def check_times(rng: random.Random, slowest: Slowest, expression: CronExpression) -> None:
    assert parse(expression.normalized, seconds=expression.seconds).normalized == expression.normalized
    wall = datetime.min + timedelta(seconds=rng.randrange(315_537_897_599))
    slowest.call("next_wall", (expression, wall), lambda: expression.next_wall(wall))
    zone, after = load_zone(rng.choice(ZONES)), rng.choice([rng.randrange(0, 2**42), rng.randrange(-(2**47), 2**48)])
    for _ in range(2):
        found = slowest.call("next_fire", (expression, zone, after), lambda: next_fire(expression, zone, after))  # noqa: B023
        if found is None:
            return
        assert found > after, (expression, zone, after, found)
        after = found


def soak(count: int, seed: int) -> tuple[Slowest, Counter[str]]:
    """Throws `count` inputs; whatever is not as it should be raises."""
    rng, slowest, outcomes = random.Random(seed), Slowest(), Counter[str]()
    for _ in range(count):
        outcomes[check(rng, slowest)] += 1
    return slowest, outcomes


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--count", type=int, default=100_000)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    started = time.perf_counter()
    slowest, outcomes = soak(given.count, given.seed)
    print(f"{given.count:,} inputs, seed {given.seed}, {time.perf_counter() - started:.0f} s")
    print(", ".join(f"{outcome} {count:,}" for outcome, count in sorted(outcomes.items())) + ", odd errors 0")
    for kind, (seconds, shown) in slowest.seconds.items():
        print(f"slowest {kind}: {seconds * 1000:.2f} ms for {shown}")
    assert all(seconds < LIMIT for seconds, _ in slowest.seconds.values()), f"a call took more than {LIMIT} s"


if __name__ == "__main__":
    main()
