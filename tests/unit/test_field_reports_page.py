"""The page of the field's reports: none is left out, and each that is kept right names the tests that keep it so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "explanation" / "field-reports.md").read_text("utf-8")
#: Those of the list, which has gaps.
NUMBERS = [number for number in range(1, 120) if number % 4]
_ROW = re.compile(r"^\| (\d+) \| \[[^]]+\]\(https://\S+\) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
ROWS = [(int(number), set(re.findall(r"`(test_\w+)`", tests))) for number, tests in _ROW.findall(PAGE)]
ELSEWHERE = [int(number) for number in re.findall(r"\[(\d+)\]\(https://", PAGE)]


def functions() -> dict[str, str]:
    """Every test, with the beginning of what is in it."""
    found: dict[str, str] = {}
    for path in TESTS.rglob("test_*.py"):
        parts = re.split(r"^def (test_\w+)", path.read_text("utf-8"), flags=re.MULTILINE)
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            found[name] = found.get(name, "") + body
    return found


def test_each_report_has_one_row_or_is_left_to_another_page() -> None:
    assert sorted([number for number, _ in ROWS] + ELSEWHERE) == NUMBERS


@pytest.mark.parametrize(("number", "named"), ROWS, ids=[str(number) for number, _ in ROWS])
def test_each_report_is_kept_right_by_tests_that_exist(number: int, named: set[str]) -> None:
    assert named
    assert named <= set(functions())


def test_what_a_test_says_it_is_about_is_what_the_page_says() -> None:
    kept = dict(ROWS)
    for path in TESTS.rglob("test_field_reports.py"):
        found = re.findall(r'^def (test_\w+)(?:(?!^def ).)*?"""([\d, ]+): ', path.read_text("utf-8"), re.M | re.S)
        assert found
        for name, numbers in found:
            for number in numbers.split(","):
                assert name in kept[int(number)], f"{name} is about {number}"
