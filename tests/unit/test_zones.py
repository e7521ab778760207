from __future__ import annotations

import re
import zoneinfo
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dramatiq_distcron import zones
from dramatiq_distcron.errors import ScheduleError
from dramatiq_distcron.zones import OffsetSpan, load_zone, offset_changes, span_at, tzdata_version
from tests.unit.cron_reference import DAY, HOUR, changes_in, offset_at

YEAR = 31_556_952


def year(number: int) -> int:
    return (number - 1970) * YEAR


#: All that Python knows, but the one that Debian lets stand for the host's own.
ZONES = sorted(zoneinfo.available_timezones() - {"localtime"})


def test_every_zone_of_this_system_is_loaded() -> None:
    for name in ZONES:
        assert load_zone(name).key == name


@pytest.mark.parametrize("name", ["localtime", "posixrules"])
def test_a_zone_that_is_another_one_on_each_host_is_refused(name: str) -> None:
    with pytest.raises(ScheduleError, match="another one on each host"):
        load_zone(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berlinn", "'Europe/Berlin'"),
        ("europe/berlin", "'Europe/Berlin'"),
        ("Berlin", "'Europe/Berlin'"),
        ("los angeles", "'America/Los_Angeles'"),
        ("Springfield", "use an IANA name"),
        ("America/NewYork", "'America/New_York'"),
        ("Mars/Olympus", "not known"),
        ("", "not known"),
        ("Europe", "not known"),
    ],
)
def test_an_unknown_zone_is_refused_with_what_may_be_meant(name: str, hint: str) -> None:
    with pytest.raises(ScheduleError, match=re.escape(hint)):
        load_zone(name)


@pytest.mark.parametrize(
    "name",
    [
        "../etc/passwd",
        "/usr/share/zoneinfo/UTC",
        "Europe/../Europe/Berlin",
        "Europe//Berlin",
        "./UTC",
        "C:\\Windows",
        "tzdata.zi",
        "zone.tab",
        "UTC\x00",
        "UTC\n",
        "\udcff",
        "x" * 5000,
    ],
)
def test_tricks_with_paths_are_refused(name: str) -> None:
    with pytest.raises(ScheduleError, match="not known"):
        load_zone(name)


@pytest.mark.parametrize("name", ["+02:00", "UTC+2", "GMT+02:00", "-0500", "Z+1"])
def test_a_fixed_offset_is_refused_because_it_knows_no_clock_changes(name: str) -> None:
    with pytest.raises(ScheduleError, match="a fixed offset knows no clock changes"):
        load_zone(name)


@pytest.mark.parametrize("name", ["posix/Europe/Berlin", "right/Europe/Berlin"])
def test_a_variant_that_only_some_hosts_have_is_refused(name: str) -> None:
    with pytest.raises(ScheduleError, match="use 'Europe/Berlin'"):
        load_zone(name)


@pytest.mark.parametrize("name", [None, 2, b"UTC", timezone.utc, timezone(timedelta(hours=2)), ZoneInfo("UTC"), []])
def test_whatever_is_not_text_is_refused(name: Any) -> None:
    with pytest.raises(ScheduleError, match="a time zone is named"):
        load_zone(name)


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("Europe/Berlin", 1890, 2060),
        ("America/New_York", 1880, 2060),
        ("Australia/Lord_Howe", 1890, 2060),
        ("Africa/Casablanca", 1910, 2090),
        ("Africa/Freetown", 1880, 2000),
        ("Asia/Gaza", 1900, 2090),
        ("Pacific/Apia", 1890, 2060),
        ("America/Sao_Paulo", 1910, 2030),
        ("UTC", 1900, 2060),
    ],
)
def test_the_changes_are_those_found_by_looking_at_every_day(name: str, first: int, last: int) -> None:
    zone = load_zone(name)
    found = list(offset_changes(zone, year(first), year(last)))
    assert [span.start for span in found] == changes_in(zone, year(first), year(last))
    for span in found:
        assert span.before == offset_at(zone, span.start - 1)
        assert span.offset == offset_at(zone, span.start) != span.before


def test_no_change_of_any_zone_is_shorter_than_the_search_can_see() -> None:
    for name in ZONES:
        zone = load_zone(name)
        found = [span.start for span in offset_changes(zone, year(1999), year(2002))]
        assert found == changes_in(zone, year(1999), year(2002)), name


def test_a_span_holds_its_instant_and_its_ends_are_the_changes() -> None:
    berlin = load_zone("Europe/Berlin")
    spring, autumn = 1_711_846_800, 1_729_990_800
    assert span_at(berlin, spring).start == spring
    assert span_at(berlin, spring)[2:] == (2 * HOUR, HOUR)
    assert span_at(berlin, spring - 1).end == spring
    assert span_at(berlin, spring - 1).offset == HOUR
    assert span_at(berlin, autumn)[2:] == (HOUR, 2 * HOUR)


def test_the_pieces_of_time_fit_together() -> None:
    apia = load_zone("Pacific/Apia")
    span = span_at(apia, year(1800))
    while span.end < year(2100):
        following = span_at(apia, span.end)
        assert following.start <= span.end < following.end
        assert following.before == (span.offset if following.start == span.end else following.before)
        for instant in (span.start, span.end - 1):
            assert offset_at(apia, instant) == span.offset
        span = following


def test_a_change_just_before_a_piece_begins_is_still_seen() -> None:
    for name in ("Europe/Berlin", "America/New_York", "Pacific/Apia", "Africa/Casablanca"):
        zone = load_zone(name)
        for change in changes_in(zone, year(1990), year(2060)):
            for later in (0, 1, HOUR, 3 * HOUR, DAY):
                span = span_at(zone, change + later)
                assert span.start == change, (name, change, later)
                assert span.before == offset_at(zone, change - 1)


@pytest.mark.parametrize("instant", [-(10**15), -62_135_596_801, 253_402_300_800, 10**15])
def test_instants_beyond_the_calendar_have_an_offset_too(instant: int) -> None:
    span = span_at(load_zone("America/New_York"), instant)
    assert span.start <= instant < span.end
    assert abs(span.offset) < DAY


def test_many_threads_see_the_same_spans() -> None:
    zone = load_zone("Europe/Lisbon")
    zones._block.cache_clear()
    instants = [year(1970) + n * 7919 * HOUR % (90 * YEAR) for n in range(2000)]
    with ThreadPoolExecutor(8) as pool:
        found: list[OffsetSpan] = list(pool.map(lambda instant: span_at(zone, instant), instants))
    assert found == [span_at(zone, instant) for instant in instants]


def test_the_memory_for_spans_is_bounded() -> None:
    zone = load_zone("Europe/Berlin")
    size = zones._block.cache_parameters()["maxsize"]
    assert size is not None
    for n in range(10):
        span_at(zone, n * 4 * YEAR)
    assert zones._block.cache_info().currsize <= size


def test_the_version_of_the_zone_data_is_told_with_its_place() -> None:
    assert re.fullmatch(r"(20[0-9]{2}[a-z]+\S*|unknown) \(.+\)", tzdata_version())


def test_the_version_comes_from_the_place_zoneinfo_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoneinfo, "TZPATH", (str(tmp_path / "nothing"), str(tmp_path)))
    assert "package tzdata" in tzdata_version()
    (tmp_path / "UTC").write_bytes(b"TZif")
    assert tzdata_version() == f"unknown ({tmp_path})"
    (tmp_path / "tzdata.zi").write_text("# version 2031a\nR A\n", encoding="utf-8")
    assert tzdata_version() == f"2031a ({tmp_path})"
    (tmp_path / "+VERSION").write_text("2031b\n", encoding="utf-8")
    assert tzdata_version() == f"2031b ({tmp_path})"
