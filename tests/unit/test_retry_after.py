"""The wait a server asks for."""

from __future__ import annotations

import pickle
import random
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from dramatiq import Retry
from hypothesis import example, given
from hypothesis import strategies as st

from dramatiq_distcron import ConfigurationError, RetryAfter

NOON = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
NOW = int(NOON.timestamp() * 1000)


def delay(when: Any, **options: Any) -> int | None:
    found: int | None = RetryAfter(when, now=lambda: NOW, **options).delay
    return found


@pytest.mark.parametrize(
    ("when", "ms"),
    [
        (30, 30_000),
        (0.25, 250),
        (timedelta(minutes=2), 120_000),
        (NOON + timedelta(seconds=90), 90_000),
        ((NOON + timedelta(seconds=90)).astimezone(timezone(timedelta(hours=-5))), 90_000),
        ("120", 120_000),
        (" 120 ", 120_000),
        ("0", 0),
        ("00000000000000000000120", 120_000),
        ("Mon, 30 Nov 2026 12:01:00 GMT", 60_000),
        ("Mon, 30 Nov 2026 12:01:00 -0000", 60_000),
        ("Mon, 30 Nov 2026 13:01:00 +0100", 60_000),
        ("Monday, 30-Nov-26 12:01:00 GMT", 60_000),
        ("Mon Nov 30 12:01:00 2026", 60_000),
    ],
)
def test_every_form_a_server_may_use_is_understood(when: Any, ms: int) -> None:
    assert delay(when) == ms


@pytest.mark.parametrize(
    "when", [-5, -0.1, timedelta(days=-1), NOON - timedelta(hours=1), "Mon, 30 Nov 2020 00:00:00 GMT"]
)
def test_what_lies_in_the_past_is_retried_at_once(when: Any) -> None:
    assert delay(when) == 0


@pytest.mark.parametrize("when", [10**9, "9" * 5000, timedelta(days=400), "Mon, 30 Nov 2099 12:00:00 GMT"])
def test_no_server_is_believed_beyond_the_cap(when: Any) -> None:
    assert delay(when) == 86_400_000
    assert delay(when, cap=timedelta(minutes=10)) == 600_000


@pytest.mark.parametrize("when", [None, "", "soon", "1.5", "-5", "Mon, 99 Nov 2026 12:00:00 GMT", "²"])
def test_without_a_readable_time_the_backoff_decides(when: Any) -> None:
    assert delay(when) is None
    assert RetryAfter(when).spread(random.Random(1)) is None


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ \d+:\d+:\d+ [-+A-Z0-9]*", fullmatch=True))
@example("Mon, 30 Nov 99999999999 12:00:00 GMT")
@example("Mon, 30 Nov 2026 12:00:00 +99999999")
@example("Fri, 31 Dec 9999 23:59:59 -0100")
def test_whatever_a_server_says_costs_no_message(text: str) -> None:
    found = delay(text)
    assert found is None or 0 <= found <= 86_400_000


@pytest.mark.parametrize(
    "when", [float("inf"), float("nan"), datetime(2026, 11, 30), True, b"120", [1], object()]
)  # fmt: skip
def test_what_the_caller_made_wrongly_is_refused(when: Any) -> None:
    with pytest.raises(ConfigurationError):
        RetryAfter(when)


def test_jitter_is_added_and_the_cap_holds_after_it() -> None:
    rng = random.Random(3)
    waits = [RetryAfter(10, jitter=5).spread(rng) or 0 for _ in range(300)]
    assert 10_000 <= min(waits) < 11_000
    assert 14_000 < max(waits) <= 15_000
    assert {RetryAfter(10, jitter=5, cap=10).spread(rng) for _ in range(20)} == {10_000}


def test_it_is_a_retry_to_dramatiq_and_can_be_sent_to_another_process() -> None:
    error = RetryAfter("120")
    assert isinstance(error, Retry)
    assert str(error) == "Retry-After: 120"
    assert str(RetryAfter(5, message="slow down")) == "slow down"
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.delay, str(copy)) == (Retry, 120_000, "Retry-After: 120")
