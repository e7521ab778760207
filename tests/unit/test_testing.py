"""What users' tests call: the ticks of any period in no time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.redis import RedisBroker
from dramatiq.brokers.stub import StubBroker

from dramatiq_distcron import Schedule, cron, every, install
from dramatiq_distcron.errors import ConfigurationError
from dramatiq_distcron.testing import RanTick, run_ticks

MIDNIGHT = datetime(2026, 11, 30, tzinfo=timezone.utc)


@pytest.fixture
def broker(stub_broker: StubBroker) -> StubBroker:
    install(stub_broker)
    return stub_broker


def declare(broker: Any, *schedules: Schedule, name: str = "job") -> None:
    dramatiq.actor(lambda *args: None, actor_name=name, broker=broker, periodic=list(schedules))


def after(seconds: float) -> datetime:
    return MIDNIGHT + timedelta(seconds=seconds)


def shown(ticks: list[RanTick]) -> list[tuple[str, float, str]]:
    return [(tick.schedule, (tick.fire_time - MIDNIGHT).total_seconds(), tick.outcome) for tick in ticks]


def test_every_fire_time_from_the_start_up_to_and_without_the_end_is_fired_in_order(broker: StubBroker) -> None:
    declare(broker, every(20, name="often"), every(30, name="seldom"))
    assert shown(run_ticks(broker, MIDNIGHT, after(60))) == [
        ("often", 0, "enqueued"),
        ("seldom", 0, "enqueued"),
        ("often", 20, "enqueued"),
        ("seldom", 30, "enqueued"),
        ("often", 40, "enqueued"),
    ]


def test_a_year_of_nights_has_one_tick_each_whatever_the_clocks_do(broker: StubBroker) -> None:
    declare(broker, cron("30 2 * * *", tz="Europe/Berlin"))
    ticks = run_ticks(broker, datetime(2026, 1, 1, tzinfo=timezone.utc), datetime(2027, 1, 1, tzinfo=timezone.utc))
    assert len(ticks) == 365
    assert {tick.outcome for tick in ticks} == {"enqueued"}


def test_a_tick_has_the_message_that_was_put_on_its_queue(broker: StubBroker) -> None:
    declare(broker, every(60, args=(7,)))
    (tick,) = run_ticks(broker, MIDNIGHT, after(1))
    assert tick.message is not None
    assert (tick.message.actor_name, tick.message.args) == ("job", (7,))
    assert broker.queues["default"].qsize() == 1


def test_without_a_worker_no_run_is_over_and_what_is_skipped_has_its_reason(broker: StubBroker) -> None:
    declare(broker, every(10, overlap="skip"))
    ticks = run_ticks(broker, MIDNIGHT, after(40))
    assert shown(ticks) == [("job", 0, "enqueued"), ("job", 10, "skipped_overlap")]
    assert (ticks[1].fire_time_to, ticks[1].reason, ticks[1].message) == (after(30), "overlap=skip", None)


def test_a_second_period_may_come_before_the_first(broker: StubBroker) -> None:
    declare(broker, every(60))
    later = run_ticks(broker, after(3600), after(3601))
    earlier = run_ticks(broker, MIDNIGHT, after(1))
    assert shown(earlier) + shown(later) == [("job", 0, "enqueued"), ("job", 3600, "enqueued")]


def test_schedules_that_came_by_the_api_are_fired_too(broker: StubBroker) -> None:
    declare(broker)
    install_of = next(one for one in broker.middleware if hasattr(one, "schedules"))
    install_of.schedules.put(every(60, name="tenant"), "job")
    assert shown(run_ticks(broker, MIDNIGHT, after(1))) == [("tenant", 0, "enqueued")]


def test_a_spread_tick_is_fired_with_its_nominal_fire_time(broker: StubBroker) -> None:
    declare(broker, every(60, spread=30))
    assert shown(run_ticks(broker, MIDNIGHT, after(120))) == [("job", 0, "enqueued"), ("job", 60, "enqueued")]


def test_a_broker_whose_messages_workers_would_take_is_refused() -> None:
    broker = RedisBroker(url="redis://127.0.0.1:1/0")
    install(broker)
    with pytest.raises(ConfigurationError, match="is for StubBroker"):
        run_ticks(broker, MIDNIGHT, after(1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "period", [(MIDNIGHT.replace(tzinfo=None), MIDNIGHT), (MIDNIGHT, MIDNIGHT.replace(tzinfo=None))]
)
def test_a_naive_instant_is_refused(broker: StubBroker, period: tuple[datetime, datetime]) -> None:
    with pytest.raises(ConfigurationError, match="time zone"):
        run_ticks(broker, *period)


def test_all_of_a_long_period_is_told_of_also_beyond_what_a_history_keeps(stub_broker: StubBroker) -> None:
    install(stub_broker, history_size=100)
    declare(stub_broker, every(1))
    assert len(run_ticks(stub_broker, MIDNIGHT, after(300))) == 300


def test_a_tick_that_waits_for_a_run_ends_no_simulation(broker: StubBroker) -> None:
    """Nobody works, so the first run is never over: what came after it is told of all the same."""
    declare(broker, every(1, overlap="buffer_one"))
    ticks = run_ticks(broker, MIDNIGHT, after(10))
    assert [(tick.outcome, tick.fire_time_to) for tick in ticks] == [
        ("enqueued", MIDNIGHT),
        ("skipped_overlap", after(8)),
    ]


def test_a_period_that_ends_before_it_starts_is_refused(broker: StubBroker) -> None:
    declare(broker, every(60))
    with pytest.raises(ConfigurationError, match=r"ends before it starts.*The start comes first"):
        run_ticks(broker, after(60), MIDNIGHT)
    assert run_ticks(broker, MIDNIGHT, MIDNIGHT) == []


def test_the_extra_tick_of_a_start_is_just_before_the_first_period(broker: StubBroker) -> None:
    declare(broker, every(60, run_at_start=True))
    assert shown(run_ticks(broker, MIDNIGHT, after(1))) == [("job", -0.001, "enqueued"), ("job", 0, "enqueued")]
    assert shown(run_ticks(broker, after(60), after(61))) == [("job", 60, "enqueued")]


def test_what_is_skipped_in_a_row_is_one_tick_over_several_calls(broker: StubBroker) -> None:
    declare(broker, every(10, overlap="skip"))
    run_ticks(broker, MIDNIGHT, after(40))
    (tick,) = run_ticks(broker, after(40), after(80))
    assert (tick.fire_time, tick.fire_time_to) == (after(10), after(70))
