"""Budgets of retries, and their buckets in memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramatiq_distcron import ConfigurationError, RetryBudget
from dramatiq_distcron.retry_budget import Bucket


@pytest.mark.parametrize(
    "options",
    [
        {"ratio": -0.1},
        {"ratio": 11},
        {"ratio": float("nan")},
        {"floor": 0},
        {"floor": "1"},
        {"burst": 0},
        {"burst": True},
        {"name": ""},
        {"name": "x" * 101},
        {"name": 5},
    ],
)
def test_a_budget_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        RetryBudget(**options)


def test_a_full_bucket_gives_its_burst_and_then_what_the_floor_brings() -> None:
    bucket = Bucket(3, 0)
    assert [bucket.take(0) is None for _ in range(5)] == [True, True, True, False, False]
    bucket.fill(floor=0.5, burst=3, now=1999)
    assert bucket.take(1999) is not None
    bucket.fill(floor=0.5, burst=3, now=2000)
    assert bucket.take(2000) is None
    assert (bucket.taken, bucket.put_off) == (4, 3)


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    bucket = Bucket(1, 0)
    bucket.fill(floor=100, burst=3, now=1_000_000)
    assert bucket.tokens == 3


def test_a_clock_that_steps_back_earns_and_costs_nothing() -> None:
    bucket = Bucket(0, 10_000)
    bucket.fill(floor=1, burst=5, now=5_000)
    assert bucket.tokens == 0
    bucket.fill(floor=1, burst=5, now=6_000)
    assert bucket.tokens == 1


def test_those_that_are_put_off_ask_one_after_the_other() -> None:
    bucket = Bucket(0, 0)
    assert [bucket.take(0) for _ in range(4)] == [1000, 1002, 1004, 1006]
    assert bucket.take(500) == 1500


@given(st.integers(1, 100_000))
def test_nobody_waits_for_more_than_a_minute_before_asking_again(count: int) -> None:
    bucket = Bucket(0, 0, line=min(count * 2, 200_000))
    places = [bucket.take(0) for _ in range(50)]
    assert all(place is not None and 1000 <= place <= 60_000 for place in places)


def test_a_long_line_is_walked_faster_and_not_all_at_one_time() -> None:
    bucket = Bucket(0, 0)
    places = [bucket.take(0) or 0 for _ in range(100_000)]
    busiest = max(places.count(place) for place in set(places[::997]))
    assert busiest <= 5
