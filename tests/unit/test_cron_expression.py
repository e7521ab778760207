from __future__ import annotations

import copy
import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta, timezone
from enum import Enum
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dramatiq_distcron.cron_days import LAST_DAY, day_calendar
from dramatiq_distcron.cron_expression import CronExpression, parse
from dramatiq_distcron.errors import InvalidCronExpression
from tests.unit.cron_reference import Reference
from tests.unit.cron_strategies import EXAMPLES, days, expressions, fields, parse_unless_it_never_fires

MIDNIGHT = datetime(2024, 1, 1)


def refusal(expression: Any, seconds: Any = None) -> str:
    with pytest.raises(InvalidCronExpression) as caught:
        parse(expression, seconds=seconds)
    return str(caught.value)


def walls(expression: CronExpression, after: datetime, count: int) -> list[datetime]:
    found = []
    for _ in range(count):
        following = expression.next_wall(after)
        if following is None:
            break
        found.append(following)
        after = following
    return found


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("* * * * *", "* * * * *"),
        ("  */5\t*  * * *\n", "*/5 * * * *"),
        ("007 0 * * *", "7 0 * * *"),
        ("0 0 * Jan-mar,DEC mon,WED", "0 0 * 1-3,12 1,3"),
        ("15,45 8-10 * * *", "15,45 8-10 * * *"),
        ("10-50/15 * * * *", "10,25,40 * * * *"),
        ("5/15 * * * *", "5,20,35,50 * * * *"),
        ("59/15 * * * *", "59 * * * *"),
        ("0 0 * 12/3 *", "0 0 * 12 *"),
        ("5-5 * * * *", "5 * * * *"),
        ("5-5/15 3-3 * * *", "5 3 * * *"),
        ("0 0 * MAR-3 MON-1", "0 0 * 3 1"),
        ("0 0 L * *", "0 0 L * *"),
        ("0 0 lw * *", "0 0 LW * *"),
        ("0 0 W15 * *", "0 0 15W * *"),
        ("0 0 * * fri#3", "0 0 * * 5#3"),
        ("0 0 * * L5", "0 0 * * 5L"),
        ("0 0 * * 7L,mon#1,1#1", "0 0 * * 0L,1#1"),
        ("@HOURLY", "0 * * * *"),
        ("@Daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ],
)
def test_what_cron_takes_is_taken(text: str, normalized: str) -> None:
    assert parse(text).normalized == normalized


@pytest.mark.parametrize(
    ("field", "weekdays"),
    [
        ("0", {0}),
        ("7", {0}),
        ("sun", {0}),
        ("7-7", {0}),
        ("SUN-SUN", {0}),
        ("0-7", {0, 1, 2, 3, 4, 5, 6}),
        ("5-7", {5, 6, 0}),
        ("1-7/2", {1, 3, 5, 0}),
        ("2-7/5", {2, 0}),
        ("0-7/3", {0, 3, 6}),
        ("*/7", {0}),
        ("*/2", {0, 2, 4, 6}),
        ("6/1", {6, 0}),
        ("1/2", {1, 3, 5, 0}),
        ("MON-1", {1}),
    ],
)
def test_sunday_is_0_and_7_in_every_form(field: str, weekdays: set[int]) -> None:
    assert set(parse(f"0 0 * * {field}").weekday.values) == weekdays


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("*/100 * * * *", (0,)),
        ("*/60 * * * *", (0,)),
        ("*/99999999999999999999 * * * *", (0,)),
        ("0-59/61 * * * *", (0,)),
        ("10-20/50 * * * *", (10,)),
        ("7/100 * * * *", (7,)),
    ],
)
def test_a_step_larger_than_its_field_means_the_first_value_only(text: str, minutes: tuple[int, ...]) -> None:
    assert parse(text).minute.values == minutes


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("* * * *", "4 fields instead of five"),
        ("* * * * * *", "seconds='first' or seconds='last'"),
        ("* * * * * * 2030", "years are not supported"),
        ("0 0 1 1 * * * *", "8 fields"),
        ("60 * * * *", "minute goes from 0 to 59"),
        ("* 24 * * *", "hour goes from 0 to 23"),
        ("* * 0 * *", "day-of-month goes from 1 to 31"),
        ("* * 32 * *", "day-of-month goes from 1 to 31"),
        ("0 1 0/10 * *", "'0/10': 0 is out of range"),
        ("* * * 13 *", "month goes from 1 to 12"),
        ("* * * * 8", "day-of-week goes from 0 to 7"),
        ("-1 * * * *", "'-1' is not a value"),
        ("+5 * * * *", "'+5' is not a value"),
        ("1_0 * * * *", "'1_0' is not a value"),
        ("1,,2 * * * *", "'1,,2': a value is missing"),
        ("5- * * * *", "a value is missing"),
        ("*-5 * * * *", "'*' is not a value"),
        ("1-2-3 * * * *", "'2-3' is not a value"),
        ("*/0 * * * *", "a step of 0 never moves on"),
        ("*/x * * * *", "step 'X' is not a number"),
        ("*/-5 * * * *", "step '-5' is not a number"),
        ("* * * JANUARY *", "write JAN"),
        ("* * * * MONDAY", "write MON"),
        ("MON * * * *", "'MON' is not a value"),
        ("* * * MON *", "'MON' is not a value"),
        ("\u0663 * * * *", "is not ASCII"),
        ("\uff15 * * * *", "is not ASCII"),
        ("0\u00a00 * * *", "'\\xa0' is not ASCII"),
        ("0 0 *\n* *", "line end or a control character"),
        ("0 0 * * *\x00", "line end or a control character"),
        ("0 0 * * *; rm", "6 fields"),
        ("CRON_TZ=UTC 0 0 * * *", "tz="),
    ],
)
def test_what_is_not_cron_is_refused_with_a_hint(text: str, hint: str) -> None:
    assert hint in refusal(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("50-10 * * * *", "write 50-59,0-10"),
        ("50-10/5 * * * *", "write 50-59/5,0-10/5"),
        ("0 22-2 * * *", "write 22-23,0-2"),
        ("0 0 * NOV-FEB *", "write NOV-DEC,JAN-FEB"),
        ("0 0 * 12-1 *", "write 12,1"),
        ("0 8 * * FRI-MON", "write FRI-SAT,SUN-MON"),
        ("0 8 * * FRI-SUN", "write 5-7"),
        ("0 8 * * 7-1", "write 0-1"),
    ],
)
def test_a_reversed_range_is_refused_with_a_hint(text: str, hint: str) -> None:
    message = refusal(text)
    assert "runs backwards" in message
    assert message.endswith(hint)


@pytest.mark.parametrize("text", ["50-59,0-10 * * * *", "0 22-23,0-2 * * *", "0 0 * 11-12,1-2 *", "0 8 * * 5-6,0-1"])
def test_the_hint_for_a_reversed_range_is_valid(text: str) -> None:
    parse(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("R * * * *", "write H"),
        ("* * R/5 * *", "write H"),
        ("R(0-29)/10 * * * *", "write H"),
        ("0~30 * * * *", "write H"),
        ("0 0 ? * MON", "write '*'"),
        ("0 0 * * ?", "write '*'"),
        ("@reboot", "run_at_start"),
        ("@every 5m", "use every(...)"),
        ("@fortnightly", "use one of @hourly"),
        ("@", "use one of @hourly"),
    ],
)
def test_what_other_dialects_have_is_refused_by_name(text: str, hint: str) -> None:
    assert hint in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "0 0 15 * 1#1",
        "0 0 */2 * 1#1",
        "0 0 1-31 * 1#1",
        "0 0 15W * 1",
        "0 0 15W * */2",
        "0 0 L * 1-5",
        "0 0 L * 0-6",
        "0 0 L * 5L",
        "0 0 1 * 5L",
        "0 0 1,L * *",
        "0 0 15,20W * *",
        "0 0 L,LW * *",
        "0 0 * * 1,5#3",
        "0 0 * * 5L,*",
    ],
)
def test_combinations_that_evaluators_get_wrong_are_refused(text: str) -> None:
    assert "any_of(" in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "0 0 * * L",
        "0 0 * * 5#0",
        "0 0 * * 5#6",
        "0 0 * * 5#",
        "0 0 * * #1",
        "0 0 * * *#2",
        "0 0 * * 1-5#2",
        "0 0 * * 5L/2",
        "0 0 * * 8L",
        "0 0 L-3 * *",
        "0 0 L/2 * *",
        "0 0 WL * *",
        "0 0 W * *",
        "0 0 0W * *",
        "0 0 32W * *",
        "0 0 1-5W * *",
        "L * * * *",
        "0 0 * L *",
        "0 0 5L * *",
        "0 0 * * 15W",
    ],
)
def test_malformed_special_days_are_refused(text: str) -> None:
    assert text in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "0 0 30 2 *",
        "0 0 31 2 *",
        "0 0 30-31 FEB *",
        "0 0 31 4 *",
        "0 0 31 4,6,9,11 *",
        "0 0 31 2,4,6,9,11 *",
        "0 0 31 4 */2",
        "0 0 31 4 *,1",
        "0 0 H(30-31) 2 *",
    ],
)
def test_impossible_dates_are_refused_because_they_never_fire(text: str) -> None:
    assert "it never fires" in refusal(text)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("0 0 31 2 0", datetime(2024, 2, 4)),
        ("* * 31 2 1", datetime(2024, 2, 5)),
        ("0 0 29 2 */7", datetime(2032, 2, 29)),
        ("0 0 30 2,3 *", datetime(2024, 3, 30)),
        ("0 0 * 2 1#5", datetime(2044, 2, 29)),
        ("0 0 29-31 2 *", datetime(2024, 2, 29)),
    ],
)
def test_rare_dates_are_not_taken_for_impossible(text: str, first: datetime) -> None:
    assert parse(text).next_wall(MIDNIGHT) == first


class Shouting(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError

    def __str__(self) -> str:
        raise RuntimeError

    def __repr__(self) -> str:
        raise RuntimeError


class Night(str, Enum):
    THREE = "0 3 * * *"


@pytest.mark.parametrize("value", [None, 5, 1.5, True, b"* * * * *", ["*"] * 5, object(), str, {}, parse])
def test_whatever_is_not_text_is_refused_with_the_one_error(value: object) -> None:
    assert "is text such as" in refusal(value)


@pytest.mark.parametrize("value", ["", "middle", "First", 1, True, [], b"first", object()])
def test_whatever_is_not_a_place_for_the_second_is_refused_with_the_one_error(value: object) -> None:
    assert "seconds= is None, 'first' or 'last'" in refusal("* * * * * *", value)


def test_subclasses_of_str_are_taken_as_the_text_they_hold() -> None:
    assert parse(Shouting("0 3 * * *")).text == "0 3 * * *"
    assert parse(Night.THREE).text == "0 3 * * *"
    assert parse("0 3 * * * 0", seconds=Shouting("last")).seconds == "last"  # type: ignore[arg-type]


def test_over_long_input_is_refused() -> None:
    assert "257 characters are too many" in refusal("*" * 257)
    assert "65 items are too many" in refusal(",".join("1" * 65) + " * * * *")
    parse(",".join(str(n % 60) for n in range(64)) + " * * * *")


def test_every_refusal_quotes_the_expression() -> None:
    assert "'0 0 * * MOO'" in refusal("0  0\t* * MOO ")


@pytest.mark.parametrize(("mode", "text"), [("first", "30 0 12 * * *"), ("last", "0 12 * * * 30")])
def test_a_second_stands_where_it_is_said_to(mode: Any, text: str) -> None:
    expression = parse(text, seconds=mode)
    assert expression.normalized == text
    assert walls(expression, MIDNIGHT, 2) == [datetime(2024, 1, 1, 12, 0, 30), datetime(2024, 1, 2, 12, 0, 30)]


def test_five_fields_where_six_are_said_are_refused() -> None:
    assert "seconds='first' means six" in refusal("0 12 * * *", "first")
    assert "leave seconds= out" in refusal("@daily", "last")


@pytest.mark.parametrize(
    ("text", "seconds", "wildcard"),
    [
        ("0 3 * * *", None, False),
        ("0-59 1 * * *", None, False),
        ("1,*/5 1 * * *", None, False),
        ("H H * * *", None, False),
        ("* 3 * * *", None, True),
        ("*/100 3 * * *", None, True),
        ("0 * * * *", None, True),
        ("0 */2 * * *", None, True),
        ("*,5 3 * * *", None, True),
        ("@hourly", None, True),
        ("@daily", None, False),
        ("0 3 * * * 0", "last", True),
    ],
)
def test_a_star_at_the_start_of_minute_or_hour_makes_a_wildcard(text: str, seconds: Any, wildcard: bool) -> None:
    assert parse(text, seconds=seconds).is_wildcard is wildcard


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("0 0 * * *", "every"),
        ("0 0 * 6 *", "every"),
        ("0 0 1-31 * *", "every"),
        ("0 0 13 * *", "dom"),
        ("0 0 L * *", "dom"),
        ("0 0 13 * */1", "dom"),
        ("0 0 * * 5", "dow"),
        ("0 0 */1 * 5#2", "dow"),
        ("0 0 13 * 5", "or"),
        ("0 0 1-31 * FRI", "or"),
        ("0 0 13 * 0-6", "or"),
        ("0 0 1,*/10 * 3", "or"),
        ("0 0 */2 * MON", "and"),
        ("0 0 1-7 * */2", "and"),
        ("0 0 */32,1-7 * 2", "and"),
    ],
)
def test_the_day_rule_follows_the_star_at_the_start(text: str, rule: str) -> None:
    assert parse(text).day_rule == rule


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("*/100 * * * *", "step is larger"),
        ("*/7 * * * *", "7 does not divide 60"),
        ("0 */5 * * *", "5 does not divide 24"),
        ("H/7 * * * *", "7 does not divide 60"),
        ("H/90 * * * *", "only one value matches"),
        ("5/7 * * * *", "7 does not divide 60, so the last gap is 11 and not 7"),
        ("20/15 * * * *", "it begins at 20, so the last gap is 30 and not 15"),
        ("59/15 * * * *", "so only 59 matches"),
        ("0 0 1 */5 *", "5 does not divide 12"),
        ("0 0 * * */2", "so the last gap is 1 and not 2"),
        ("0 0 * * 1/2", "so the last gap is 1 and not 2"),
        ("0 0 */32,1-7 * MON", "day-of-month '*/32,1-7' and day-of-week 'MON' are both restricted"),
        ("0 0 */15 * *", "counts anew each month"),
        ("0 0 */2 * 1", "both do"),
        ("0 0 13 * 5", "either does"),
        ("0 0 1-31 * 5", "every day matches"),
        ("0 0 H * 0-6", "every day matches"),
        ("0 0 H * H", "a day matches if either does"),
        (
            "* 3 * * *",
            "minute '*' beside hour '3': all 60 minutes match, and it fires in each; for once write 0",
        ),
        ("* */2 * * *", "minute '*' beside hour '*/2'"),
        ("*/1 9,17 * * *", "minute '*' beside hour '9,17'"),
        ("0 0 31 * *", "day-of-month '31': a month without such a day is passed over; L is the last day of each"),
        ("0 0 15,30 * *", "day-of-month '15,30': a month without such a day is passed over"),
        ("0 0 29 1,2 *", "day-of-month '29': a month without such a day is passed over"),
    ],
)
def test_what_is_often_not_meant_is_warned_about(text: str, part: str) -> None:
    assert any(part in warning for warning in parse(text).warnings())


@pytest.mark.parametrize(
    "text",
    [
        "*/15 * * * *",
        "0 9-17/3 * * 1-5",
        "0 0 1 */3 *",
        "5/15 * * * *",
        "0 0 L * *",
        "H H * * *",
        "@daily",
        "0 0 * * */7",
        "* * * * *",
        "* 8-18 * * 1-5",
        "* 22,23,0 * * *",
        "*/5 3 * * *",
        "0 0 31 1,12 *",
        "0 0 30 4 *",
        "0 0 29 2 *",
        "0 0 29-31 * *",
        "0 0 25-31 * *",
        "0 0 28 * *",
        "0 0 H(30-31) * *",
    ],
)
def test_what_is_usual_is_not_warned_about(text: str) -> None:
    assert parse(text).warnings() == ()


def test_a_month_without_the_day_is_not_passed_over_where_weekdays_match_besides() -> None:
    (warning,) = parse("0 0 31 * 1").warnings()
    assert "either does" in warning


@pytest.mark.parametrize(("text", "part"), [("* 5 3 * * *", "second '*' beside minute '5'"), ("0 * 3 * * *", "minute")])
def test_a_field_that_was_left_open_is_warned_about_with_seconds_too(text: str, part: str) -> None:
    assert any(warning.startswith(part) for warning in parse(text, seconds="first").warnings())


def test_a_result_is_shared_immutable_and_a_plain_value() -> None:
    expression = parse("0 3 * * *")
    assert parse(" 0 3  * * *") is expression
    assert copy.deepcopy(expression) == pickle.loads(pickle.dumps(expression)) == expression
    assert hash(copy.deepcopy(expression)) == hash(expression)
    assert expression != parse("0 4 * * *")
    assert expression != "0 3 * * *"
    assert repr(expression) == "CronExpression('0 3 * * *')"
    with pytest.raises(AttributeError):
        expression.text = "0 4 * * *"  # type: ignore[misc]


@given(st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_the_normalized_text_means_the_same(data: st.DataObject) -> None:
    expression = parse_unless_it_never_fires(data.draw(expressions()))
    if expression is None:
        return
    again = parse(expression.normalized)
    assert again.normalized == expression.normalized
    assert again.is_wildcard == expression.is_wildcard
    assert again.day_rule == expression.day_rule
    start = data.draw(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)))
    assert walls(again, start, 3) == walls(expression, start, 3)


@given(days(), st.one_of(st.just("*"), st.just("2"), fields(1, 12)), st.integers(1, LAST_DAY), st.integers(0, 9))
@settings(max_examples=EXAMPLES, deadline=None)
def test_the_days_agree_with_the_reference_in_every_year(
    fields: tuple[str, str], month: str, start: int, near: int
) -> None:
    text = f"0 0 {fields[0]} {month} {fields[1]}"
    reference = Reference(text)
    expression = parse_unless_it_never_fires(text)
    if expression is None:
        assert not any(reference.runs_on(date(2000, 1, 1) + timedelta(days=n)) for n in range(365 * 8))
        return
    calendar = day_calendar(expression.day.text, expression.month.text, expression.weekday.text)
    if near:
        start = start % 50_000 + 700_000
    span = range(start, min(start + 120, LAST_DAY + 1))
    following = None
    for day in reversed(span):
        if reference.runs_on(date.fromordinal(day)):
            following = day
        found = calendar.next_day(day)
        assert found == following if following else found is None or found > span[-1]


def test_wall_times_are_strictly_rising_and_whole() -> None:
    expression = parse("*/20 9 * * *")
    assert expression.next_wall(datetime(2024, 1, 1, 9, 0)) == datetime(2024, 1, 1, 9, 20)
    assert expression.next_wall(datetime(2024, 1, 1, 8, 59, 59, 999_999)) == datetime(2024, 1, 1, 9, 0)
    assert expression.next_wall(datetime(2024, 1, 1, 9, 0, 0, 1)) == datetime(2024, 1, 1, 9, 20)
    assert expression.next_wall(datetime(2024, 1, 1, 9, 40)) == datetime(2024, 1, 2, 9, 0)


def test_an_aware_datetime_is_refused() -> None:
    with pytest.raises(ValueError, match="without a zone"):
        parse("* * * * *").next_wall(datetime(2024, 1, 1, tzinfo=timezone.utc))


@pytest.mark.parametrize("text", ["* * * * *", "0 0 1 1 *", "0 0 29 2 *", "0 0 29 2 */7", "0 0 LW * *", "0 0 13 * 5"])
def test_the_ends_of_time_are_none_and_not_an_error(text: str) -> None:
    expression = parse(text)
    assert expression.next_wall(datetime.max) is None
    first = expression.next_wall(datetime.min)
    assert first is not None
    assert first.year <= 28
    latest = walls(expression, datetime(9930, 1, 1), 3)
    assert latest == sorted(set(latest))
    assert len(walls(expression, datetime(9999, 12, 31, 23, 57), 3)) == (2 if text == "* * * * *" else 0)


def test_a_leap_day_is_found_across_the_year_2100_and_on_the_day_itself() -> None:
    expression = parse("0 9 29 2 *")
    assert expression.next_wall(datetime(2096, 3, 1)) == datetime(2104, 2, 29, 9)
    assert expression.next_wall(datetime(2028, 2, 29)) == datetime(2028, 2, 29, 9)
    assert expression.next_wall(datetime(2028, 2, 29, 9)) == datetime(2032, 2, 29, 9)


def test_the_13th_or_a_friday_are_61_days_of_2026() -> None:
    found = walls(parse("0 0 13 * 5"), datetime(2025, 12, 31, 23, 59), 80)
    assert sum(wall.year == 2026 for wall in found) == 61


def test_many_threads_get_the_same_days() -> None:
    text = "0 0 2-30/4 * 3"
    starts = [MIDNIGHT + timedelta(days=17 * n % 900) for n in range(900)]
    day_calendar.cache_clear()
    expression = parse(text)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(expression.next_wall, starts))
    assert found == [expression.next_wall(start) for start in starts]


def test_a_hash_must_be_spread_before_it_has_a_time() -> None:
    with pytest.raises(InvalidCronExpression, match="name of the schedule"):
        parse("H 3 * * *").next_wall(MIDNIGHT)


def test_a_spread_depends_on_the_key_alone() -> None:
    assert parse("H H * * *").has_hash
    assert parse("H H * * *").spread("nightly").normalized == "0 4 * * *"
    assert parse("H/15 H(0-7) H * H").spread("nightly").normalized == "0,15,30,45 4 8 * 4"
    assert parse("H H H * * *", seconds="first").spread("n\udcff\u00e4chtlich").normalized == "45 42 12 * * *"


def test_a_spread_keeps_the_text_and_the_warnings() -> None:
    expression = parse("H/7 3 * * *")
    spread = expression.spread("nightly")
    assert spread.text == "H/7 3 * * *"
    assert spread.warnings() == expression.warnings() != ()
    assert not spread.has_hash
    assert spread.spread("other") is spread
    assert spread != expression.spread("weekly")


def test_a_spread_reaches_all_minutes_of_the_day_evenly() -> None:
    expression = parse("H H * * *")
    count = Counter(expression.spread(f"job-{n}").normalized for n in range(20_000))
    assert len(count) == 1_440
    expected = 20_000 / 1_440
    chi_square = sum((seen - expected) ** 2 / expected for seen in count.values())
    assert 1_250 < chi_square < 1_640


@pytest.mark.parametrize(
    ("field", "low", "high", "gap"), [("H/15", 0, 59, 15), ("H(0-29)/10", 0, 29, 10), ("H(30-59)", 30, 59, 0)]
)
def test_a_spread_stays_in_its_range(field: str, low: int, high: int, gap: int) -> None:
    firsts = set()
    for n in range(300):
        values = parse(f"{field} * * * *").spread(f"job-{n}").minute.values
        assert low <= values[0]
        assert values[-1] <= high
        assert not gap or {b - a for a, b in pairwise(values)} == {gap}
        firsts.add(values[0])
    assert len(firsts) == (gap or 30)


def test_a_spread_of_long_lists_is_no_longer_than_the_list() -> None:
    spread = parse("H/1,H/1,H(5-9)/2,7 H/1,23 H/1 * *").spread("nightly")
    assert spread.minute.values == tuple(range(60))
    assert spread.hour.values == tuple(range(24))


def test_a_hashed_day_exists_in_every_month() -> None:
    for n in range(200):
        spread = parse("0 0 H 2 *").spread(f"job-{n}")
        assert spread.day.values[0] <= 28


def test_a_spread_that_never_fires_is_refused() -> None:
    expression = parse("0 0 31 H(1-2) *")
    outcomes = set()
    for n in range(50):
        try:
            outcomes.add(expression.spread(f"job-{n}").normalized)
        except InvalidCronExpression as error:
            outcomes.add("never fires" if "never fires" in str(error) else str(error))
    assert outcomes == {"0 0 31 1 *", "never fires"}


@pytest.mark.parametrize("text", ["H(5-1) * * * *", "H(0-60) * * * *", "H() * * * *", "H/0 * * * *", "H-5 * * * *"])
def test_a_malformed_hash_is_refused(text: str) -> None:
    refusal(text)


@given(st.one_of(st.text(max_size=40), st.text("0123456789*/-,LWH#@ ?RMONFEB()", max_size=40)))
@settings(max_examples=EXAMPLES, deadline=None)
def test_only_the_one_error_leaves_the_parser(text: str) -> None:
    for seconds in (None, "first", "last"):
        try:
            expression = parse(text, seconds=seconds)
        except InvalidCronExpression:
            continue
        assert expression.has_hash or expression.next_wall(MIDNIGHT) is not None


def test_a_start_of_the_machine_is_refused_with_what_run_at_start_really_does() -> None:
    with pytest.raises(
        InvalidCronExpression, match=r"no equal here.*stored for the first time, and none after a restart"
    ):
        parse("@reboot")
