"""A cron expression in words, with the rule of its two day fields as it is meant."""

from __future__ import annotations

from collections.abc import Sequence

from .cron_expression import CronExpression
from .cron_fields import CronField, DaySpecial, FieldKind

__all__ = ["describe"]

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_NTH = ("first", "second", "third", "fourth", "fifth")
#: How many times of day are listed one by one.
_LISTED = 8
#: How many stretches of hours are spelled out with their minutes.
_SPELLED_OUT = 2


def describe(expression: CronExpression) -> str:
    """One sentence. An ``H`` must be spread before: what it stands for is not known without a name."""
    text = f"{_time(expression)} {_days(expression)}{_months(expression)}"
    return f"{text[0].upper()}{text[1:]}."


# -- the time of day ------------------------------------------------------------------------------------------


def _time(expression: CronExpression) -> str:
    second, minute, hour = expression.second, expression.minute, expression.hour
    if not _is_every(hour) and len(hour.values) * len(minute.values) * len(second.values) <= _LISTED:
        return f"at {_joined(_times_of_day(expression))}"
    minutes = _minutes(minute, hour)
    if second.values == (0,):
        return minutes
    if _is_every(second) and _is_every(minute):
        return f"every second{_hours(hour)}"
    return f"{_evenly(second, 'second')} of {'' if minutes.startswith('every') else 'the minute '}{minutes}"


def _times_of_day(expression: CronExpression) -> list[str]:
    seconds = expression.second.values
    return [
        f"{hour:02}:{minute:02}{'' if seconds == (0,) else f':{second:02}'}"
        for hour in expression.hour.values
        for minute in expression.minute.values
        for second in seconds
    ]


def _minutes(minute: CronField, hour: CronField) -> str:
    if _is_every(minute):
        return f"every minute{_hours(hour)}"
    if _step(minute):
        return f"{_evenly(minute, 'minute')}{_hours(hour)}"
    on_the_hour = minute.values == (0,)
    which = "on the hour" if on_the_hour else f"at {_numbered('minute', minute)}"
    if _is_every(hour):
        return "every hour, on the hour," if on_the_hour else f"{which} of every hour"
    step = _step(hour)
    return f"{which}, every {step} hours from {hour.values[0]:02}:00," if step else f"{which}{_hours(hour)}"


def _evenly(field: CronField, unit: str) -> str:
    """Values of ``field`` that are evenly spread up to its end; others are listed."""
    step, first = _step(field), field.values[0]
    if not step:
        return f"every {unit}" if _is_every(field) else f"at {_numbered(unit, field)}"
    return f"every {step} {unit}s{f' from {unit} {first}' if first else ''}"


def _hours(hour: CronField) -> str:
    """The hours in which something happens again and again."""
    if _is_every(hour):
        return ""
    runs = _runs(hour.values, 1)
    if len(runs) > _SPELLED_OUT:
        return f" in the hours {_numbers(hour)}"
    return f" from {_joined([f'{low:02}:00 to {high:02}:59' for low, high in runs])}"


# -- the days -------------------------------------------------------------------------------------------------


def _days(expression: CronExpression) -> str:
    day, weekday = expression.day, expression.weekday
    if expression.day_rule == "every" or (expression.day_rule == "or" and (_is_every(day) or _is_every(weekday))):
        return "on every day"
    if expression.day_rule == "dom":
        return f"on {_month_days(day)}"
    if expression.day_rule == "dow":
        return f"on {_week_days(weekday, 'every')}"
    if expression.day_rule == "and":
        return f"on {_month_days(day)}, but only if it is {_week_days(weekday, 'a')}"
    return f"on {_month_days(day)}, and also on {_week_days(weekday, 'every')}"


def _month_days(day: CronField) -> str:
    if day.specials:
        return _special_day(day.specials[0])
    step = _step(day)
    if step:
        return f"every {_ordinal(step)} day of the month from the {_ordinal(day.values[0])}"
    return f"{_numbered('day', day)} of the month"


def _special_day(special: DaySpecial) -> str:
    if special.kind == "last":
        return "the last day of the month"
    if special.kind == "last_workday":
        return "the last Monday-to-Friday day of the month"
    return f"the Monday-to-Friday day nearest to day {special.day} of the month"


def _week_days(weekday: CronField, article: str) -> str:
    if weekday.specials:
        return _joined([_special_weekday(special) for special in weekday.specials])
    runs = [_week_run(low, high, article) for low, high in _runs(weekday.values)]
    return _joined(runs, "or" if article == "a" else "and")


def _special_weekday(special: DaySpecial) -> str:
    which = "last" if special.kind == "last_weekday" else _NTH[special.nth - 1]
    return f"the {which} {_WEEKDAYS[special.day]} of the month"


def _week_run(low: int, high: int, article: str) -> str:
    if low == high:
        return f"{article} {_WEEKDAYS[low]}"
    return f"{'a day from ' if article == 'a' else ''}{_WEEKDAYS[low]} to {_WEEKDAYS[high]}"


def _months(expression: CronExpression) -> str:
    month = expression.month
    if _is_every(month):
        return ""
    runs = [
        _MONTHS[low - 1] if low == high else f"{_MONTHS[low - 1]} to {_MONTHS[high - 1]}"
        for low, high in _runs(month.values)
    ]
    # After two kinds of days, it is not the last one alone that it belongs to.
    comma = "," if expression.day_rule in ("and", "or") else ""
    return f"{comma} in {_joined(runs)}"


# -- words ----------------------------------------------------------------------------------------------------


def _is_every(field: CronField) -> bool:
    return field.mask == field.kind.everything


def _step(field: CronField) -> int | None:
    """The step of a field whose values are evenly spread up to its end."""
    values = field.values
    if len(values) < 3:
        return None
    step = values[1] - values[0]
    evenly = values == tuple(range(values[0], _top(field.kind) + 1, step))
    return step if step > 1 and evenly and values[0] - step < field.kind.low else None


def _top(kind: FieldKind) -> int:
    return kind.low + kind.size - 1


def _numbered(unit: str, field: CronField) -> str:
    return f"{unit}{'s' if len(field.values) > 1 else ''} {_numbers(field)}"


def _numbers(field: CronField) -> str:
    return _joined([str(low) if low == high else f"{low} to {high}" for low, high in _runs(field.values)])


def _runs(values: Sequence[int], least: int = 3) -> list[tuple[int, int]]:
    """First and last of each stretch of ``least`` or more neighbours; others stand alone."""
    found: list[tuple[int, int]] = []
    for value in values:
        if found and value == found[-1][1] + 1:
            found[-1] = (found[-1][0], value)
        else:
            found.append((value, value))
    return [
        pair
        for low, high in found
        for pair in ([(low, high)] if high - low + 1 >= least else [(n, n) for n in range(low, high + 1)])
    ]


def _joined(parts: Sequence[str], word: str = "and") -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {word} {parts[-1]}"


def _ordinal(number: int) -> str:
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
