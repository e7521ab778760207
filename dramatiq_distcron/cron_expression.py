"""Cron expression -> next wall time. Pure: no clock, no zone, no chance.

The rules are those of Debian's cron 3.0pl1 (the project's research page on cron, sections 3 and 6). What is read
differently elsewhere, or would be drawn at random, is refused with a hint instead of guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Literal, NoReturn

from .cron_days import day_calendar, matches_some_day
from .cron_fields import DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, CronField, FieldKind, parse_field
from .cron_slips import slips
from .errors import InvalidCronExpression

__all__ = ["CronExpression", "DayRule", "SecondsField", "parse"]

SecondsField = Literal["first", "last"] | None
DayRule = Literal["every", "dom", "dow", "and", "or"]

MAX_LENGTH = 256

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIVE = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)
_KINDS = {None: _FIVE, "first": (SECOND, *_FIVE), "last": (*_FIVE, SECOND)}
_ON_THE_MINUTE = parse_field(SECOND, "0")

_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = _EPOCH.toordinal()
_FIRST_DAY = date.min.toordinal() - _EPOCH_DAY


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CronExpression:
    """A parsed cron expression; made by `parse`. Immutable, hashable, cheap to share.

    ``text`` is what was written (ends stripped, blanks collapsed), ``normalized`` the canonical five or six fields
    with the same meaning. ``day_rule`` tells which days match: ``every`` day, those of the day-of-month (``dom``)
    or of the day-of-week field (``dow``), or both fields joined by ``and`` or ``or``; the month always counts.
    """

    text: str
    normalized: str
    seconds: SecondsField
    second: CronField
    minute: CronField
    hour: CronField
    day: CronField
    month: CronField
    weekday: CronField
    day_rule: DayRule
    _first: int
    _warnings: tuple[str, ...]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, CronExpression):
            return NotImplemented
        mine = (self.text, self.normalized, self.seconds)
        return mine == (other.text, other.normalized, other.seconds)

    def __hash__(self) -> int:
        return hash((self.text, self.normalized, self.seconds))

    def __repr__(self) -> str:
        seconds = f", seconds={self.seconds!r}" if self.seconds else ""
        return f"CronExpression({self.text!r}{seconds})"

    @property
    def is_wildcard(self) -> bool:
        """Whether clock changes leave it alone: never made up after a gap, never held back in an overlap.

        Debian's rule: the minute or the hour field starts with ``*``. Six fields are not Debian's; they follow
        every real instant and count as wildcard.
        """
        return self.seconds is not None or self.minute.is_star or self.hour.is_star

    @property
    def has_hash(self) -> bool:
        """Whether it contains an ``H`` that `spread` has yet to replace."""
        return self._first < 0

    def warnings(self) -> tuple[str, ...]:
        """Return what is valid but often not meant, one sentence each."""
        return self._warnings

    def spread(self, key: str) -> CronExpression:
        """Return the expression with every ``H`` replaced by values that follow from `key`, the schedule's name.

        They are the same on every host and Python, uniform, and independent from field to field. Raises
        `InvalidCronExpression` if what `key` leads to never fires.
        """
        return _spread(self, key) if self.has_hash else self

    def next_wall(self, after: datetime) -> datetime | None:
        """Return the first matching wall time strictly after `after`; both naive.

        None when there is none up to the year 9999. An aware datetime is refused with `ValueError`, an expression
        with ``H`` in it with `InvalidCronExpression`.
        """
        if after.tzinfo is not None:
            raise ValueError(f"next_wall takes a wall time without a zone, not {after!r}; use next_fire instead")
        since = after - _EPOCH
        found = self.next_wall_second(since.days * 86_400 + since.seconds)
        return None if found is None else _EPOCH + timedelta(seconds=found)

    def next_wall_second(self, after: int) -> int | None:
        """`next_wall` in whole seconds of wall time since 1970-01-01 00:00."""
        if self.has_hash:
            _refuse(
                self.text, "H is derived from the name of the schedule, and there is none", "give it one with name="
            )
        day, second = divmod(after, 86_400)
        matching = self._next_day(max(day, _FIRST_DAY))
        if matching == day:
            found = self._next_in_day(second)
            if found >= 0:
                return day * 86_400 + found
            matching = self._next_day(day + 1)
        return None if matching is None else matching * 86_400 + self._first

    def _next_day(self, day: int) -> int | None:
        calendar = day_calendar(self.day.text, self.month.text, self.weekday.text)
        found = calendar.next_day(day + _EPOCH_DAY)
        return None if found is None else found - _EPOCH_DAY

    def _next_in_day(self, after: int) -> int:
        """Return the first matching second of a day after that second, -1 if none is left."""
        minutes, second = divmod(after, 60)
        hour, minute = divmod(minutes, 60)
        if self.hour.mask >> hour & 1:
            if self.minute.mask >> minute & 1:
                found = _lowest_from(self.second.mask, second + 1)
                if found >= 0:
                    return minutes * 60 + found
            found = _lowest_from(self.minute.mask, minute + 1)
            if found >= 0:
                return hour * 3600 + found * 60 + self._first % 60
        found = _lowest_from(self.hour.mask, hour + 1)
        return found if found < 0 else found * 3600 + self._first % 3600


def parse(expression: str, *, seconds: SecondsField = None) -> CronExpression:
    """Parse a cron expression: five fields, or six with the second ``first`` or ``last`` if `seconds` says so.

    Takes names, ranges, lists, steps, 7 as Sunday, ``n/step``, ``L``, ``LW``, ``15W`` (also ``W15``), ``5#3``,
    ``5L`` (also ``L5``), ``H`` and the aliases from ``@hourly`` to ``@yearly``. Results are shared through a
    bounded cache. Raises `InvalidCronExpression`, and nothing else, for whatever it does not take.
    """
    return _parse(_checked_text(expression), _checked_seconds(seconds))


@lru_cache(maxsize=4096)
def _parse(text: str, seconds: SecondsField) -> CronExpression:
    fields = _parse_fields(text, seconds)
    day, month, weekday = fields[DAY], fields[MONTH], fields[WEEKDAY]
    _check_days(text, day, month, weekday)
    rule = _day_rule(day, weekday)
    warnings = [warning for field in fields.values() for warning in field.warnings]
    minute, hour, second = fields[MINUTE], fields[HOUR], fields.get(SECOND, _ON_THE_MINUTE)
    has_hash = any(field.has_hash for field in fields.values())
    return CronExpression(
        text=text,
        normalized=" ".join(field.text for field in fields.values()),
        seconds=seconds,
        second=second,
        minute=minute,
        hour=hour,
        day=day,
        month=month,
        weekday=weekday,
        day_rule=rule,
        _first=-1 if has_hash else _first_second(hour, minute, second),
        _warnings=(*warnings, *slips(fields), *_rule_warning(text, fields, rule)),
    )


@lru_cache(maxsize=4096)
def _spread(expression: CronExpression, key: str) -> CronExpression:
    fields = {SECOND: expression.second, MINUTE: expression.minute, HOUR: expression.hour}
    fields |= {DAY: expression.day, MONTH: expression.month, WEEKDAY: expression.weekday}
    resolved = " ".join(fields[kind].spread(key) for kind in _KINDS[expression.seconds])
    try:
        found = _parse(resolved, expression.seconds)
    except InvalidCronExpression as error:
        raise InvalidCronExpression(f"{expression.text!r} spread for {key[:80]!r}: {error}") from None
    return replace(found, text=expression.text, _warnings=expression._warnings)


def _parse_fields(text: str, seconds: SecondsField) -> dict[FieldKind, CronField]:
    """Parse the fields, in the order they are written."""
    written = _expand_alias(text, seconds) if text.startswith("@") else text.upper()
    texts, kinds = written.split(" "), _KINDS[seconds]
    if len(texts) != len(kinds):
        _refuse_count(text, len(texts), seconds)
    try:
        return {kind: parse_field(kind, field) for kind, field in zip(kinds, texts, strict=True)}
    except InvalidCronExpression as error:
        raise InvalidCronExpression(f"cron expression {text!r}: {error}") from None


def _refuse(text: str, why: str, instead: str) -> NoReturn:
    raise InvalidCronExpression(f"cron expression {text[:80]!r}: {why}; {instead}")


def _checked_text(expression: object) -> str:
    # The type itself is asked, and a subclass made plain: nothing a caller overrides may run in here.
    if not issubclass(type(expression), str):
        kind = type(expression).__name__
        raise InvalidCronExpression(f"a cron expression is text such as '0 3 * * *', not an object of type {kind}")
    text = str.__str__(expression)
    if len(text) > MAX_LENGTH:
        _refuse(text, f"{len(text)} characters are too many", f"write at most {MAX_LENGTH}, or several schedules")
    if not text.isascii():
        strange = next(char for char in text if not char.isascii())
        _refuse(text, f"{strange!a} is not ASCII", "write plain digits, letters and blanks")
    text = " ".join(filter(None, text.strip(" \t\r\n").replace("\t", " ").split(" ")))
    if not text:
        _refuse(text, "it is empty", "write five fields: minute, hour, day-of-month, month, day-of-week")
    if not text.isprintable():
        _refuse(text, "it contains a line end or a control character", "write it in one line")
    return text


def _checked_seconds(seconds: object) -> SecondsField:
    if seconds is None:
        return None
    text = str.__str__(seconds) if issubclass(type(seconds), str) else ""
    if text == "first":
        return "first"
    if text == "last":
        return "last"
    given = repr(text[:20]) if text else f"an object of type {type(seconds).__name__}"
    raise InvalidCronExpression(f"seconds= is None, 'first' or 'last' (where the second stands), not {given}")


def _expand_alias(text: str, seconds: SecondsField) -> str:
    name = text.lower()
    if name.startswith("@reboot"):
        _refuse(
            text,
            "a start of the machine is not a time, and has no equal here",
            "let what starts your machine do it; run_at_start=True gives one tick when the schedule is stored for the "
            "first time, and none after a restart",
        )
    if name.startswith("@every"):
        _refuse(text, "an interval is not a cron expression", "use every(...)")
    if name not in _ALIASES:
        _refuse(text, "there is no such alias", f"use one of {', '.join(_ALIASES)}")
    if seconds is not None:
        _refuse(text, f"an alias has no second to be the {seconds} field", "leave seconds= out")
    return _ALIASES[name]


def _refuse_count(text: str, count: int, seconds: SecondsField) -> NoReturn:
    fields = f"it has {count} field{'' if count == 1 else 's'}"
    if "TZ=" in text.upper():
        _refuse(text, "a time zone is not part of the expression", "use tz='Europe/Berlin'")
    if count == 7:
        _refuse(text, f"{fields}, and years are not supported", "use start= and end= to bound a schedule")
    if seconds is not None:
        _refuse(text, f"{fields}, but seconds={seconds!r} means six", "add the missing one, or leave seconds= out")
    if count == 6:
        hint = "if one of them is the second, say seconds='first' or seconds='last'"
        _refuse(text, f"{fields} instead of five", hint)
    _refuse(text, f"{fields} instead of five", "write minute, hour, day-of-month, month, day-of-week")


def _check_days(text: str, day: CronField, month: CronField, weekday: CronField) -> None:
    special = day if day.specials else weekday
    other = weekday if day.specials else day
    if special.specials and not other.is_unrestricted:
        why = f"{special.kind.name} {special.text!r} and {other.kind.name} {other.text!r} do not go together"
        _refuse(text, f"{why}: cron has no rule for it, and evaluators differ", "use any_of(cron(...), cron(...))")
    either = not (day.is_star or weekday.is_star)
    if not either and not matches_some_day(day, month):
        why = f"it never fires: no month of {month.text!r} has a day {day.text!r}"
        _refuse(text, why, "use L for the last day of a month, or other months")


def _day_rule(day: CronField, weekday: CronField) -> DayRule:
    joined = day.is_star or weekday.is_star
    every_day, every_weekday = _is_full(day), _is_full(weekday)
    if joined and every_day and every_weekday:
        return "every"
    if joined and every_weekday:
        return "dom"
    if joined and every_day:
        return "dow"
    return "and" if joined else "or"


def _is_full(field: CronField) -> bool:
    return field.mask == field.kind.everything


def _rule_warning(text: str, fields: Mapping[FieldKind, CronField], rule: DayRule) -> tuple[str, ...]:
    if rule not in ("or", "and"):
        return ()
    written = dict(zip(fields, text.split(" "), strict=True))
    both = f"day-of-month {written[DAY]!r} and day-of-week {written[WEEKDAY]!r} are both restricted"
    if rule == "and":
        return (f"{both}: a day matches if both do (cron's rule is AND, as one starts with '*')",)
    all_days = any(_is_full(field) and not field.has_hash for field in (fields[DAY], fields[WEEKDAY]))
    so = "every day matches" if all_days else "a day matches if either does"
    return (f"{both}: {so} (cron's rule is OR, as neither starts with '*')",)


def _first_second(hour: CronField, minute: CronField, second: CronField) -> int:
    lowest = [_lowest_from(field.mask, 0) for field in (hour, minute, second)]
    return lowest[0] * 3600 + lowest[1] * 60 + lowest[2]


def _lowest_from(mask: int, start: int) -> int:
    """Return the lowest bit from `start` on that is set, -1 if none is."""
    rest = mask >> start
    return start + (rest & -rest).bit_length() - 1 if rest else -1
