"""What becomes of a failed run: the decision alone, by the options of message, actor and middleware."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from dramatiq import Retry

from dramatiq_distcron import ConfigurationError, RetryAfter, constant, delays, exponential
from dramatiq_distcron.durations import LONGEST
from dramatiq_distcron.retrying import ABORTED, EXHAUSTED, TOO_OLD, Again, End, Failure, chooser, decide

DEFAULTS = {"max_retries": 20, "min_backoff": 15_000, "max_backoff": 604_800_000, "retry_when": None}


class Limited(Exception):
    pass


class VeryLimited(Limited):
    pass


def decided(
    failure: Failure | None = None,
    message: Mapping[str, Any] | None = None,
    actor: Mapping[str, Any] | None = None,
    **defaults: Any,
) -> Again | End:
    given = {**(actor or {})}
    for level in (given, defaults):
        if level.get("backoff") is not None:
            level["backoff"] = chooser(level["backoff"], "here")
    failure = failure or Failure(ValueError("no"), 0)
    return decide(failure, message or {}, given, {**DEFAULTS, **defaults}, random.Random(1))


def delay_of(verdict: Again | End) -> int:
    assert isinstance(verdict, Again)
    return verdict.delay


# -- whether there is another try -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "throws", [ValueError, (KeyError, ValueError), ((KeyError, (Exception,)),), KeyError | ValueError]
)
def test_what_an_actor_throws_on_purpose_is_not_retried(throws: Any) -> None:
    assert decided(actor={"throws": throws}) == End(ABORTED)
    assert decided(message={"throws": throws}) == End(ABORTED)


def test_the_throws_of_the_message_replace_those_of_the_actor() -> None:
    assert isinstance(decided(message={"throws": KeyError}, actor={"throws": ValueError}), Again)


def test_throws_that_are_no_classes_are_passed_over() -> None:
    assert isinstance(decided(message={"throws": "ValueError"}), Again)


@pytest.mark.parametrize(
    ("limit", "retries", "goes_on"),
    [
        (3, 2, True),
        (3, 3, False),
        (0, 0, False),
        (-1, 0, False),
        (None, 10**6, True),
        (False, 0, False),
        (True, 0, True),
        (True, 1, False),
    ],
)
def test_the_limit_of_retries_is_dramatiqs(limit: Any, retries: int, goes_on: bool) -> None:
    """Field bugs 99 (for ever is for ever) and 101 (no more than configured)."""
    verdict = decided(Failure(ValueError(), retries), actor={"max_retries": limit})
    assert verdict == End(EXHAUSTED, limit) if not goes_on else isinstance(verdict, Again)


def test_the_limit_is_the_messages_then_the_actors_then_the_middlewares() -> None:
    failure = Failure(ValueError(), 5)
    assert decided(failure, {"max_retries": 5}, {"max_retries": 9}, max_retries=9) == End(EXHAUSTED, 5)
    assert decided(failure, {}, {"max_retries": 5}, max_retries=9) == End(EXHAUSTED, 5)
    assert decided(failure, {}, {}, max_retries=5) == End(EXHAUSTED, 5)
    assert isinstance(decided(failure, {"max_retries": None}, {"max_retries": 5}, max_retries=5), Again)


def test_a_limit_of_the_message_that_cannot_be_is_passed_over() -> None:
    assert decided(Failure(ValueError(), 5), {"max_retries": "five"}, {"max_retries": 5}) == End(EXHAUSTED, 5)


def test_retry_when_decides_instead_of_the_limit() -> None:
    asked: list[tuple[int, BaseException]] = []

    def when(retries: int, error: BaseException) -> bool:
        asked.append((retries, error))
        return retries < 50

    error = ValueError()
    assert isinstance(decided(Failure(error, 49), {"max_retries": 1}, {"retry_when": when}), Again)
    assert decided(Failure(error, 50), {}, {"retry_when": when}, max_retries=99) == End(EXHAUSTED, 99)
    assert asked == [(49, error), (50, error)]
    assert decided(Failure(error, 50), {}, {}, retry_when=when, max_retries=None) == End(EXHAUSTED, None)
    # An actor can take the middleware's back.
    assert isinstance(decided(Failure(error, 50), {}, {"retry_when": None}, retry_when=when, max_retries=99), Again)


def test_a_retry_when_that_fails_leaves_it_to_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert isinstance(decided(actor={"retry_when": lambda retries, error: 1 / 0}), Again)
    assert "max_retries decides" in caplog.text


@pytest.mark.parametrize(("age", "ends"), [(50_000, False), (50_001, True)])
def test_no_retry_comes_later_than_the_oldest_age(age: int, ends: bool) -> None:
    failure = Failure(ValueError(), 2, age=age)
    for levels in (
        {"message": {"max_retry_age": 60_000}, "actor": {"backoff": 10, "max_retry_age": 1}},
        {"actor": {"backoff": 10, "max_retry_age": 60_000}, "max_retry_age": 1},
        {"actor": {"backoff": 10}, "max_retry_age": 60_000},
    ):
        verdict = decided(failure, **levels)  # type: ignore[arg-type]
        assert verdict == (End(TOO_OLD, 20) if ends else Again(10_000))


# -- the wait -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "ms"),
    [
        (Retry(delay=1234), 1234),
        (Retry(delay=0), 0),
        (Retry(delay=-5), 0),
        (Retry(delay=12.9), 12),  # type: ignore[arg-type]
        (Retry(delay=timedelta(seconds=2)), 2000),  # type: ignore[arg-type]
        (Retry(delay=10**30), LONGEST),
        (Retry(delay=float("inf")), LONGEST),  # type: ignore[arg-type]
        (RetryAfter(3), 3000),
        (RetryAfter("7"), 7000),
    ],
)
def test_a_retry_with_a_delay_is_retried_after_it_whatever_the_backoff(error: Exception, ms: int) -> None:
    assert decided(Failure(error, 0), {"backoff": 99}, {"backoff": exponential(50)}, max_backoff=1) == Again(ms)


@pytest.mark.parametrize(
    "error", [Retry(), RetryAfter(None), RetryAfter("soon"), Retry(delay="5"), Retry(delay=float("nan"))]
)  # type: ignore[arg-type]
def test_a_retry_without_a_delay_that_can_be_falls_back_to_the_backoff(error: Exception) -> None:
    assert decided(Failure(error, 0), {}, {"backoff": 9}) == Again(9000)


def test_a_retry_after_uses_up_a_retry_as_every_failure_does() -> None:
    assert decided(Failure(RetryAfter(1), 3), actor={"max_retries": 3}) == End(EXHAUSTED, 3)


def test_each_level_that_says_anything_about_the_wait_decides_alone() -> None:
    formula = {"min_backoff": 1000, "max_backoff": 1_000_000}
    assert decided(None, {"backoff": 7}, formula, backoff=9) == Again(7000)
    assert decided(None, {}, {"backoff": 7}, backoff=9) == Again(7000)
    assert decided(None, {}, {}, backoff=9) == Again(9000)
    assert 1000 <= delay_of(decided(None, formula, {"backoff": 7}, backoff=9)) <= 2000
    assert 1000 <= delay_of(decided(None, {}, formula, backoff=9)) <= 2000
    assert 1000 <= delay_of(decided(None, {"min_backoff": 1000}, {"backoff": 7})) <= 2000


@pytest.mark.parametrize(
    ("backoff", "waits"), [(60, [60, 60, 60]), ([1, 5, 9], [1, 5, 9]), ([2.5], [2.5, 2.5, 2.5]), (0, [0, 0, 0])]
)
def test_a_message_says_its_backoff_in_numbers(backoff: Any, waits: list[float]) -> None:
    found = [decided(Failure(ValueError(), attempt), {"backoff": backoff}) for attempt in range(3)]
    assert found == [Again(int(wait * 1000)) for wait in waits]


@pytest.mark.parametrize("backoff", ["fast", [], {}, {"ValueError": 5}, True, -5, [1, "x"], float("nan"), object()])
def test_a_backoff_of_a_message_that_cannot_be_costs_no_message(backoff: Any) -> None:
    assert 15_000 <= delay_of(decided(None, {"backoff": backoff})) <= 30_000


@pytest.mark.parametrize("returned", ["5", float("nan"), float("inf"), -1, object(), 10**12])
def test_a_function_that_returns_no_wait_leaves_it_to_the_formula(returned: Any) -> None:
    assert 15_000 <= delay_of(decided(None, {}, {"backoff": lambda attempt, error: returned})) <= 30_000


def test_a_function_that_fails_leaves_it_to_the_formula() -> None:
    assert 15_000 <= delay_of(decided(None, {}, {"backoff": lambda attempt, error: 1 / 0})) <= 30_000


def test_a_function_that_says_nothing_leaves_it_to_the_next_level() -> None:
    assert decided(None, {}, {"backoff": lambda attempt, error: None}, backoff=4) == Again(4000)


def test_a_function_gets_the_attempt_from_zero_and_the_error() -> None:
    assert decided(Failure(ValueError("ab"), 3), {}, {"backoff": lambda n, error: n + len(str(error))}) == Again(5000)


def test_of_a_mapping_the_nearest_class_of_the_error_counts() -> None:
    by_class = {Exception: 9, Limited: delays(60, 120), OSError: lambda attempt, error: 3}
    for error, wait in ((VeryLimited(), 60), (Limited(), 60), (TimeoutError(), 3), (ValueError(), 9)):
        assert decided(Failure(error, 0), {}, {"backoff": by_class}) == Again(wait * 1000)
    assert decided(Failure(Limited(), 1), {}, {"backoff": by_class}) == Again(120_000)


def test_an_error_that_a_mapping_does_not_know_is_left_to_the_next_level() -> None:
    assert decided(None, {}, {"backoff": {Limited: 60}}, backoff=4) == Again(4000)
    assert 15_000 <= delay_of(decided(None, {}, {"backoff": {Limited: 60}})) <= 30_000


def test_a_strategy_is_told_the_wait_before() -> None:
    told: list[Any] = []

    class Mine:
        def delay(self, attempt: int, *, rng: Any, previous: Any = None, exception: Any = None) -> float:
            told.append((attempt, previous, type(exception)))
            return 1

    decided(Failure(ValueError(), 4, previous=2500), {}, {"backoff": Mine()})
    assert told == [(4, 2.5, ValueError)]


def test_the_formula_has_dramatiqs_bounds_at_every_attempt() -> None:
    """Field bugs 94 (never below min_backoff) and 95 (0 is 0)."""
    for attempt, low, high in ((0, 1000, 2000), (1, 2000, 4000), (5, 30_000, 60_000), (10**6, 30_000, 60_000)):
        failure = Failure(ValueError(), attempt)
        options = {"min_backoff": 1000, "max_backoff": 60_000, "max_retries": None}
        waits = [delay_of(decided(failure, {}, options)) for _ in range(300)]
        assert low <= min(waits) <= max(waits) <= high
    assert decided(None, {}, {"min_backoff": 0, "max_backoff": 0}) == Again(0)


def test_the_formula_never_waits_longer_than_dramatiqs_seven_days() -> None:
    assert delay_of(decided(Failure(ValueError(), 40), {}, {"max_backoff": 10**12}, max_retries=None)) <= 604_800_000


# -- what backoff= may be -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "backoff", ["exponential", type, {"ValueError": 5}, {ValueError: "x"}, {int: 5}, [], ["5"], True, object()]
)  # fmt: skip
def test_what_is_no_backoff_is_refused_with_whose_it_is(backoff: Any) -> None:
    with pytest.raises(ConfigurationError):
        chooser(backoff, "backoff of actor 'x'")


def test_a_mapping_may_hold_any_form_also_another_mapping() -> None:
    choose = chooser({OSError: {TimeoutError: constant(3)}, ValueError: [4]}, "here")
    rng = random.Random(1)
    assert choose(0, TimeoutError(), rng, None) == 3
    assert choose(0, OSError(), rng, None) is None
    assert choose(0, ValueError(), rng, None) == 4
