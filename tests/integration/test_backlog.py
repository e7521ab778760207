"""Taking office after five weeks away, with many schedules by every policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import Middleware

from dramatiq_distcron import DistCron, every, install
from dramatiq_distcron.beat import Beat
from tests.integration.conftest import Running
from tests.support import wait_until

Start = Callable[..., Running]
WEEK = 7 * 86_400_000
#: Of each schedule, in seconds: long enough that none comes while a test counts, on a slow machine too.
PERIOD = 300
#: Name, options, and how many messages such a schedule gets after five weeks.
POLICIES: list[tuple[str, dict[str, Any], int]] = [
    ("latest", {"catch_up": "latest"}, 1),
    ("skip", {"catch_up": "skip"}, 0),
    ("all", {"catch_up": "all"}, 100),
    ("capped", {"catch_up": "all", "max_catch_up": 7}, 7),
    ("grace", {"catch_up": "all", "misfire_grace_time": 2.5 * PERIOD}, 3),
]


def a_thousand(broker: RedisBroker) -> DistCron:
    """Their fire times are twenty seconds ago, so that none comes while the test counts."""
    distcron = install(broker, history_size=100_000)
    anchor = datetime.now(timezone.utc) - timedelta(seconds=20)
    kinds = POLICIES * (1000 // len(POLICIES))
    schedules = [
        every(PERIOD, anchor=anchor, name=f"{name}-{n}", **options) for n, (name, options, _) in enumerate(kinds)
    ]
    dramatiq.actor(lambda: None, broker=broker, actor_name="job", periodic=schedules)
    assert Beat(distcron).run_once()
    return distcron


def put_back(distcron: DistCron, milliseconds: int) -> None:
    """Every cursor, as if no beat had been there since."""
    store: Any = distcron.open_backend().store
    client, due = store._client, store.keys.due
    client.zadd(due, {name: score - milliseconds for name, score in client.zrange(due, 0, -1, withscores=True)})


def undecided(distcron: DistCron) -> int:
    """How many schedules have something due."""
    store: Any = distcron.open_backend().store
    return int(store._client.zcount(store.keys.due, "-inf", store.now()))


class FirstOut(Middleware):
    """Notes how much was still to be done when the first ticks had gone out."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.distcron: DistCron | None = None

    def after_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
        if self.left is None and self.distcron is not None:
            self.left = undecided(self.distcron)


def test_five_weeks_of_a_thousand_schedules_are_worked_off_in_one_term_and_the_first_ticks_do_not_wait_for_the_last(
    redis_broker: RedisBroker, start_beat: Start
) -> None:
    first = FirstOut()
    redis_broker.add_middleware(first)
    first.distcron = distcron = a_thousand(redis_broker)
    put_back(distcron, 5 * WEEK)
    for _ in range(2):
        start_beat(distcron)
    wait_until(lambda: not undecided(distcron), "the backlog to be worked off", seconds=120)
    assert first.left is not None
    assert first.left > 900
    ticks = distcron.schedules.history(limit=100_000)
    assert len({tick.term for tick in ticks}) == 1, "the lease was lost over it"
    found = Counter(tick.schedule for tick in ticks if tick.outcome == "enqueued")
    for name, _, expected in POLICIES:
        assert {found[one] for one in distcron.specs() if one.startswith(f"{name}-")} == {expected}


def test_of_what_five_weeks_away_left_undone_every_fire_time_is_accounted_for(
    redis_broker: RedisBroker, start_beat: Start
) -> None:
    distcron = a_thousand(redis_broker)
    put_back(distcron, 5 * WEEK)
    start_beat(distcron)
    wait_until(lambda: not undecided(distcron), "the backlog to be worked off", seconds=120)
    counted: Counter[str] = Counter()
    for tick in distcron.schedules.history(limit=100_000):
        counted[tick.schedule] += tick.count
    # Each one in five weeks. The cursor was on the first of them; beyond a thousand in one go it is an estimate.
    assert {name for name in distcron.specs() if abs(counted[name] - 5 * WEEK // (1000 * PERIOD)) > 1} == set()
