"""Durations and instants: whole milliseconds, UTC, never a guess."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramatiq_distcron.durations import instant_ms, iso, milliseconds, parse_duration, utc
from dramatiq_distcron.errors import ConfigurationError

UTC = timezone.utc
#: The years 1 to 9999, in ms.
ANY_INSTANT = st.integers(-62_135_596_800_000, 253_402_300_799_999)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (3, 3000),
        (0.5, 500),
        (0.0014, 1),
        (timedelta(seconds=1.5), 1500),
        (timedelta(days=2), 172_800_000),
        (timedelta(microseconds=1999), 1),
    ],
)
def test_numbers_are_seconds_and_the_result_whole_milliseconds(value: Any, expected: int) -> None:
    found = milliseconds(value, "it")
    assert found == expected
    assert type(found) is int


@pytest.mark.parametrize("value", ["5", "5s", None, True, False, [], object, float("nan"), float("inf"), -float("inf")])
def test_what_is_no_duration_is_refused_with_the_name_of_the_setting(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="grace must be a number of seconds or a timedelta"):
        milliseconds(value, "grace")


@pytest.mark.parametrize("value", [-1, -0.001, timedelta(seconds=-1), timedelta(microseconds=-1)])
def test_a_negative_duration_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="grace must be at least 0 s"):
        milliseconds(value, "grace")


def test_a_duration_below_the_minimum_is_refused_and_the_minimum_named() -> None:
    assert milliseconds(1, "it", minimum=1000) == 1000
    with pytest.raises(ConfigurationError, match=r"at least 1 s, not 0\.999"):
        milliseconds(0.999, "it", minimum=1000)


@pytest.mark.parametrize("value", [1e308, 10**400, -(10**400)], ids=["float", "int", "negative"])
def test_a_number_beyond_all_bounds_is_refused_as_any_other(value: Any) -> None:
    with pytest.raises(ConfigurationError):
        milliseconds(value, "it")


@given(st.integers(0, 10**12))
def test_a_number_of_seconds_and_the_timedelta_of_it_are_the_same(ms: int) -> None:
    assert milliseconds(timedelta(milliseconds=ms), "it") == ms
    assert milliseconds(ms / 1000, "it") == ms


@pytest.mark.parametrize("value", [datetime(2026, 3, 29), datetime(2026, 3, 29, fold=1)])
def test_a_naive_datetime_is_refused_with_what_to_do(value: datetime) -> None:
    with pytest.raises(ConfigurationError, match=r"anchor has no time zone.*tzinfo="):
        instant_ms(value, "anchor")


@pytest.mark.parametrize("value", [None, 5, "2026-03-29T00:00:00Z", datetime(2026, 3, 29).date()])
def test_what_is_no_datetime_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="anchor must be a datetime with a time zone"):
        instant_ms(value, "anchor")


@pytest.mark.parametrize(
    "value",
    [
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
    ],
)
def test_an_instant_that_utc_has_no_date_for_is_refused(value: datetime) -> None:
    """It could be stored, and then nobody could list the schedules any more."""
    with pytest.raises(ConfigurationError, match="until is outside the years 1 to 9999 in UTC"):
        instant_ms(value, "until")


def test_an_instant_is_the_same_in_every_zone() -> None:
    berlin = datetime(2026, 7, 1, 9, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    assert instant_ms(berlin, "it") == instant_ms(datetime(2026, 7, 1, 7, 0, tzinfo=UTC), "it")


def test_the_two_passes_of_an_autumn_hour_are_an_hour_apart() -> None:
    first = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert instant_ms(first.replace(fold=1), "it") - instant_ms(first, "it") == 3_600_000


@pytest.mark.parametrize(("micros", "ms"), [(999, 0), (1000, 1), (1999, 1), (999_999, 999)])
def test_an_instant_is_cut_to_the_millisecond(micros: int, ms: int) -> None:
    assert instant_ms(datetime(1970, 1, 1, microsecond=micros, tzinfo=UTC), "it") == ms


def test_an_instant_before_1970_is_cut_downwards_as_well() -> None:
    assert instant_ms(datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC), "it") == -1


@given(ANY_INSTANT)
def test_milliseconds_survive_the_way_to_a_datetime_and_back(ms: int) -> None:
    assert utc(ms).tzinfo is UTC
    assert instant_ms(utc(ms), "it") == ms


@given(ANY_INSTANT)
def test_an_instant_is_written_with_milliseconds_and_a_z(ms: int) -> None:
    text = iso(ms)
    assert len(text) == len("2026-03-29T01:00:00.000Z")
    assert text.endswith("Z")
    assert instant_ms(datetime.fromisoformat(text[:-1] + "+00:00"), "it") == ms


def test_an_instant_is_written_in_utc() -> None:
    assert iso(1_774_746_000_007) == "2026-03-29T01:00:00.007Z"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), ("3d", 259_200), ("1.5", 1.5), ("250ms", 0.25)],
)
def test_the_command_line_has_units_for_durations(text: str, expected: float) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "-1", "1w", "1 h", "h", "1e3", "nan", "٣"])
def test_what_is_no_duration_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(ConfigurationError, match="90s, 15m, 2h or 3d"):
        parse_duration(text)
