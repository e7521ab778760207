"""How long the strategies wait."""

from __future__ import annotations

import math
import random
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramatiq_distcron import ConfigurationError, constant, delays, exponential, linear
from dramatiq_distcron.backoff import Backoff

RNG = random.Random(5)
WAITS = st.floats(0, 100_000, allow_nan=False)
CAPS = st.floats(100_000, 1_000_000)
WORDS = st.sampled_from(["full", "equal", "none"])
JITTERS: Any = WORDS | WAITS
ATTEMPTS = st.integers(0, 200) | st.sampled_from([10**6, 10**9])

GIVEN = st.builds(lambda wait, jitter: constant(wait, jitter=jitter), WAITS, JITTERS) | st.builds(
    lambda waits, jitter: delays(*waits, jitter=jitter), st.lists(WAITS, min_size=1, max_size=5), JITTERS
)
GROWING = st.builds(
    lambda base, factor, cap, jitter: exponential(base, factor, cap=cap, jitter=jitter),
    WAITS,
    st.floats(1, 1e6) | st.just(1e308),
    CAPS,
    JITTERS | st.just("decorrelated"),
) | st.builds(
    lambda base, step, cap, jitter: linear(base, step, cap=cap, jitter=jitter),
    WAITS,
    WAITS,
    CAPS,
    JITTERS | st.just("decorrelated"),
)


@given(GIVEN | GROWING, ATTEMPTS, st.integers(), st.none() | WAITS)
def test_every_wait_is_from_its_floor_to_its_cap(
    strategy: Backoff, attempt: int, seed: int, previous: float | None
) -> None:
    floor, most = strategy.bounds(attempt)
    wait = strategy.delay(attempt, rng=random.Random(seed), previous=previous)
    assert 0 <= floor <= wait <= most <= strategy.cap


@given(GIVEN | GROWING, ATTEMPTS, st.integers())
def test_the_same_seed_gives_the_same_waits(strategy: Backoff, attempt: int, seed: int) -> None:
    one, other = random.Random(seed), random.Random(seed)
    first = [strategy.delay(attempt + i, rng=one) for i in range(3)]
    assert first == [strategy.delay(attempt + i, rng=other) for i in range(3)]


@given(GROWING, st.lists(ATTEMPTS, min_size=2, max_size=8))
def test_what_grows_never_shrinks_without_jitter(strategy: Backoff, attempts: list[int]) -> None:
    waits = [strategy.grown(attempt) for attempt in sorted(attempts)]
    assert waits == sorted(waits)


@given(GROWING, st.integers(0, 100))
def test_what_grows_is_strictly_what_it_says_below_the_cap(strategy: Backoff, attempt: int) -> None:
    # In whole numbers: the strategy computes in floats and logarithms.
    exact = Fraction(strategy.base) * Fraction(strategy.factor) ** attempt + Fraction(strategy.step) * attempt
    assert strategy.grown(attempt) == pytest.approx(float(min(Fraction(strategy.cap), exact)), rel=1e-9)


@given(GIVEN | GROWING)
def test_the_millionth_attempt_waits_the_longest_and_overflows_nothing(strategy: Backoff) -> None:
    """Field bugs 97, 98, 99: a chain of retries ended in an OverflowError, or silently at attempt 47."""
    wait = strategy.delay(10**6, rng=RNG, previous=strategy.cap if math.isfinite(strategy.cap) else None)
    assert 0 <= wait <= strategy.cap


@pytest.mark.parametrize("attempt", [16, 40, 47, 60, 1100, 2000, 10**6])
def test_a_chain_of_retries_goes_on_at_the_cap(attempt: int) -> None:
    """Field bugs 97, 98, 99."""
    for strategy in (exponential(5, 10, cap=3600, jitter="none"), linear(600, cap=3600, jitter="none")):
        assert strategy.delay(attempt, rng=RNG) == 3600


@pytest.mark.parametrize("jitter", ["full", "equal", "none", "decorrelated"])
def test_zero_is_zero(jitter: Any) -> None:
    """Field bug 95: 0 is treated as unset."""
    for strategy in (exponential(0, cap=0, jitter=jitter), exponential(0, jitter=jitter), linear(0, jitter=jitter)):
        assert [strategy.delay(attempt, rng=RNG) for attempt in (0, 1, 50, 10**6)] == [0, 0, 0, 0]
    assert constant(0).delay(3, rng=RNG) == 0
    assert delays(0, 5).delay(0, rng=RNG) == 0


def test_the_cap_holds_after_the_jitter() -> None:
    strategies = [exponential(8, cap=10, jitter=j) for j in ("full", "equal", "decorrelated", 5)]  # type: ignore[arg-type]
    for strategy in strategies:
        waits = [strategy.delay(attempt, rng=RNG, previous=9) for attempt in range(5) for _ in range(200)]
        assert max(waits) <= 10


def test_an_added_duration_is_the_classic_two_to_the_n_and_a_bit() -> None:
    classic = exponential(1, 2, jitter=timedelta(seconds=1))
    for attempt in range(10):
        waits = [classic.delay(attempt, rng=RNG) for _ in range(200)]
        assert 2**attempt <= min(waits) <= max(waits) <= 2**attempt + 1
        assert max(waits) - min(waits) > 0.8


def test_full_starts_at_zero_and_equal_at_the_half_and_both_end_at_the_grown_wait() -> None:
    for jitter, floor in (("full", 0.0), ("equal", 40.0)):
        strategy = exponential(10, jitter=jitter)  # type: ignore[arg-type]
        assert strategy.bounds(3) == (floor, 80.0)
        waits = [strategy.delay(3, rng=RNG) for _ in range(2000)]
        assert min(waits) == pytest.approx(floor, abs=2)
        assert max(waits) == pytest.approx(80, abs=2)


def test_decorrelated_is_drawn_from_the_base_to_three_times_the_wait_before() -> None:
    strategy = exponential(1, cap=100, jitter="decorrelated")
    after_ten = [strategy.delay(7, rng=RNG, previous=10) for _ in range(2000)]
    assert min(after_ten) == pytest.approx(1, abs=0.5)
    assert max(after_ten) == pytest.approx(30, abs=0.5)
    assert max(strategy.delay(7, rng=RNG) for _ in range(500)) <= 3


def test_given_waits_come_in_order_and_the_last_repeats() -> None:
    waits = delays(60, timedelta(minutes=5), 3600)
    assert [waits.delay(attempt, rng=RNG) for attempt in range(5)] == [60, 300, 3600, 3600, 3600]


def test_linear_grows_by_its_step_or_its_base() -> None:
    assert [linear(10, 5, jitter="none").grown(attempt) for attempt in range(3)] == [10, 15, 20]
    assert [linear(10, jitter="none").grown(attempt) for attempt in range(3)] == [10, 20, 30]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: exponential(-1), "at least 0"),
        (lambda: exponential("15"), "number of seconds"),
        (lambda: exponential(float("nan")), "number of seconds"),
        (lambda: exponential(factor=0.5), "must not shrink"),
        (lambda: exponential(factor=True), "factor"),
        (lambda: exponential(factor=math.inf), "factor"),
        (lambda: exponential(20, cap=10), "shorter than the first wait"),
        (lambda: exponential(jitter="ful"), "Did you mean 'full'"),
        (lambda: exponential(jitter=-1), "at least 0"),
        (lambda: exponential(jitter=True), "jitter must be"),
        (lambda: exponential(jitter=None), "jitter must be"),
        (lambda: linear(step=-5), "at least 0"),
        (lambda: constant(5, jitter="decorrelated"), "cannot be decorrelated"),
        (lambda: delays(), "at least one wait"),
        (lambda: delays(5, None), "number of seconds"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_made(make: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        make()


def test_a_thousand_first_retries_are_spread_over_the_whole_wait() -> None:
    """Field bug 93: tasks that collided once collide again after a fixed wait."""
    rng = random.Random(9)
    strategy = exponential(10)
    bins = [int(strategy.delay(0, rng=rng) / 0.1) for _ in range(1000)]
    assert max(bins.count(one) for one in set(bins)) <= 50
    assert max(bins) - min(bins) >= 95
