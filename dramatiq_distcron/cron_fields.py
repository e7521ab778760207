"""The grammar of one field of a cron expression: text -> the values it names.

The rules are those of Debian's cron 3.0pl1 (section 3 of the project's research page on cron), plus four things
Debian does not have and crontabs found in the field do: ``n/step``, ``L``, ``W`` and ``#``, and the hashed ``H``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Literal, NamedTuple, NoReturn

from .errors import InvalidCronExpression

__all__ = [
    "DAY",
    "HOUR",
    "MINUTE",
    "MONTH",
    "SECOND",
    "WEEKDAY",
    "CronField",
    "DaySpecial",
    "FieldKind",
    "parse_field",
]

MAX_ITEMS = 64

_APART = "use any_of(cron(...), cron(...))"

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_NUMBER = re.compile(r"[0-9]+")
_HASH = re.compile(r"H(?:\(([^()-]*)-([^()-]*)\))?")
_NEAREST = re.compile(r"(?:([0-9]+)W|W([0-9]+))")


@dataclass(frozen=True, slots=True, eq=False)
class FieldKind:
    """What may stand in a field: ``low`` to ``high`` as written (7 is Sunday), of which ``size`` are different."""

    name: str
    low: int
    high: int
    size: int
    hash_high: int
    names: tuple[str, ...] = ()

    @property
    def everything(self) -> int:
        """The mask of all values."""
        return ((1 << self.size) - 1) << self.low


SECOND = FieldKind("second", 0, 59, 60, 59)
MINUTE = FieldKind("minute", 0, 59, 60, 59)
HOUR = FieldKind("hour", 0, 23, 24, 23)
# A hashed day stays below 29, so that it exists in every month.
DAY = FieldKind("day-of-month", 1, 31, 31, 28)
MONTH = FieldKind("month", 1, 12, 12, 12, _MONTHS)
WEEKDAY = FieldKind("day-of-week", 0, 7, 7, 6, _WEEKDAYS)


class DaySpecial(NamedTuple):
    """A day that is found anew in each month.

    ``last`` (``L``), ``last_workday`` (``LW``), ``workday`` (``15W``: Monday to Friday nearest to that day, never
    leaving the month; a day the month does not have counts as its last), ``nth`` (``5#3``: third Friday) and
    ``last_weekday`` (``5L``: last Friday).
    """

    kind: Literal["last", "last_workday", "workday", "nth", "last_weekday"]
    day: int = 0
    nth: int = 0

    @property
    def text(self) -> str:
        """The canonical spelling."""
        spelling = {"last": "L", "last_workday": "LW", "workday": f"{self.day}W", "nth": f"{self.day}#{self.nth}"}
        return spelling.get(self.kind, f"{self.day}L")


@dataclass(frozen=True, slots=True)
class CronField:
    """One parsed field. ``mask`` has bit n set when value n matches (Sunday is 0).

    ``is_star`` says that the field *starts* with ``*``, which Debian's rules for days and for clock changes ask
    about; the canonical ``text`` keeps it. A field with ``H`` has a mask of all values it can become.
    """

    kind: FieldKind
    text: str
    mask: int
    is_star: bool = False
    has_hash: bool = False
    specials: tuple[DaySpecial, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[int, ...]:
        """The matching values in rising order; empty when the field holds ``specials``."""
        return tuple(n for n in range(self.mask.bit_length()) if self.mask >> n & 1)

    @property
    def is_unrestricted(self) -> bool:
        """Whether it is a star field that leaves nothing out."""
        return self.is_star and self.mask == self.kind.everything

    def spread(self, key: str) -> str:
        """Return the field's text with each ``H`` replaced by values that follow from `key` alone."""
        items = self.text.split(",")
        return ",".join(_spread(self.kind, item, f"{n} {key}") for n, item in enumerate(items))


class _Item(NamedTuple):
    mask: int
    warning: str | None = None


@lru_cache(maxsize=4096)
def parse_field(kind: FieldKind, text: str) -> CronField:
    """Parse one field (ASCII, no blanks, upper case).

    Raises `InvalidCronExpression` without naming the whole expression: the caller knows it.
    """
    items = text.split(",")
    if len(items) > MAX_ITEMS:
        _refuse(kind, f"{text[:20]}...", f"{len(items)} items are too many", f"use ranges, or at most {MAX_ITEMS}")
    if "" in items:
        _refuse(kind, text, "a value is missing next to a comma", "remove the comma or fill the value in")
    specials = [special for item in items if (special := _special(kind, item))]
    if specials:
        return _special_field(kind, text, items, specials)
    parsed = [_item(kind, item) for item in items]
    mask = _mask(kind, parsed)
    warnings = tuple(item.warning for item in parsed if item.warning)
    if any(item.startswith("H") for item in items):
        return CronField(kind, text, mask, has_hash=True, warnings=warnings)
    is_star = text.startswith("*")
    return CronField(kind, _canonical(kind, mask, is_star), mask, is_star, warnings=warnings)


def _refuse(kind: FieldKind, item: str, why: str, instead: str) -> NoReturn:
    raise InvalidCronExpression(f"{kind.name} field, {item!r}: {why}; {instead}")


def _mask(kind: FieldKind, items: Iterable[_Item]) -> int:
    mask = 0
    for item in items:
        mask |= item.mask
    if kind is WEEKDAY:
        mask = mask & 0x7F | mask >> 7
    return mask


def _special_field(kind: FieldKind, text: str, items: list[str], specials: list[DaySpecial]) -> CronField:
    if len(specials) < len(items):
        _refuse(kind, text, "'L', 'W' and '#' do not mix with plain days in one list", _APART)
    if kind is DAY and len(items) > 1:
        _refuse(kind, text, "'L' and 'W' stand alone, not in a list", _APART)
    ordered = tuple(sorted(set(specials)))
    return CronField(kind, ",".join(special.text for special in ordered), 0, specials=ordered)


def _special(kind: FieldKind, item: str) -> DaySpecial | None:
    if kind is DAY:
        return _special_day(item)
    if kind is WEEKDAY and "#" in item:
        return _nth_weekday(item)
    if kind is WEEKDAY and (item.startswith("L") or item.endswith("L")):
        return _last_weekday(item)
    return None


def _special_day(item: str) -> DaySpecial | None:
    if item == "L":
        return DaySpecial("last")
    if item == "LW":
        return DaySpecial("last_workday")
    if item == "WL" or item.startswith(("L-", "L/")):
        _refuse(DAY, item, "there is only L (last day) and LW (last Monday-to-Friday day)", "use one of these")
    nearest = _NEAREST.fullmatch(item)
    if nearest is None:
        return None
    return DaySpecial("workday", _value(DAY, nearest[1] or nearest[2], item))


def _nth_weekday(item: str) -> DaySpecial:
    weekday, _, nth = item.partition("#")
    if nth not in ("1", "2", "3", "4", "5"):
        _refuse(WEEKDAY, item, "'#' needs 1 to 5 after it", "write FRI#3 for the third Friday")
    return DaySpecial("nth", _value(WEEKDAY, weekday, item) % 7, int(nth))


def _last_weekday(item: str) -> DaySpecial:
    weekday = item[1:] if item.startswith("L") else item[:-1]
    if not weekday:
        _refuse(WEEKDAY, item, "L needs its weekday here", "write 5L for the last Friday, SAT for every Saturday")
    return DaySpecial("last_weekday", _value(WEEKDAY, weekday, item) % 7)


def _item(kind: FieldKind, item: str) -> _Item:
    base, slash, step_text = item.partition("/")
    step = _step(kind, item, step_text) if slash else None
    hashed = _HASH.fullmatch(base)
    if hashed:
        low, high = _hash_bounds(kind, item, hashed)
        return _Item(_bits(low, high, 1), _step_warning(kind, item, low, high, step))
    if base == "*":
        low, high = kind.low, kind.high
    elif "-" in base and not base.startswith("-"):
        low, high = _bounds(kind, item, base)
    else:
        low = _value(kind, base, item)
        high = kind.high if step else low
    return _Item(_bits(low, high, step or 1), _step_warning(kind, item, low, high, step))


def _bits(low: int, high: int, step: int) -> int:
    mask = 0
    for value in range(low, high + 1, step):
        mask |= 1 << value
    return mask


def _step(kind: FieldKind, item: str, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        _refuse(kind, item, f"the step {text!r} is not a number", "write for example */2")
    step = int(text)
    if step == 0:
        _refuse(kind, item, "a step of 0 never moves on", "write a step of 1 or more")
    return step


def _bounds(kind: FieldKind, item: str, base: str) -> tuple[int, int]:
    first, _, last = base.partition("-")
    low, high = _value(kind, first, item), _value(kind, last, item)
    if low > high:
        _refuse(kind, item, "the range runs backwards, so cron never matches it", _forward(kind, item, low, high))
    return low, high


def _forward(kind: FieldKind, item: str, low: int, high: int) -> str:
    base, slash, step = item.partition("/")
    names = kind.names if base.replace("-", "").isalpha() else ()
    if kind is WEEKDAY and high == 0:
        return f"Sunday at the end of a range is 7: write {_range_text(low, 7)}"
    top = min(kind.high, kind.low + kind.size - 1)
    if low > top:
        return f"Sunday at the start of a range is 0: write {_range_text(0, high)}"
    first, second = _range_text(low - kind.low, top - kind.low, names), _range_text(0, high - kind.low, names)
    if not names:
        first, second = _range_text(low, top), _range_text(kind.low, high)
    return f"write {first}{slash}{step},{second}{slash}{step}"


def _range_text(low: int, high: int, names: Sequence[str] = ()) -> str:
    first, last = (names[low], names[high]) if names else (str(low), str(high))
    return first if low == high else f"{first}-{last}"


def _value(kind: FieldKind, token: str, item: str) -> int:
    if token in kind.names:
        return kind.low + kind.names.index(token)
    if not _NUMBER.fullmatch(token):
        _refuse(kind, item, *_why_unknown(kind, token))
    value = int(token)
    if not kind.low <= value <= kind.high:
        _refuse(kind, item, f"{token[:20]} is out of range", f"{kind.name} goes from {kind.low} to {kind.high}")
    return value


def _why_unknown(kind: FieldKind, token: str) -> tuple[str, str]:
    if not token:
        return "a value is missing", "remove the stray sign or fill the value in"
    if "?" in token:
        return "'?' is not cron's", "write '*' instead"
    if token == "R" or token.startswith("R(") or "~" in token:
        return "a random value would differ from host to host", "write H, which is spread by the schedule's name"
    if token.startswith("H"):
        return "H is not used like this", "write H, H/15, H(0-29) or H(0-29)/10"
    if token[:3] in kind.names:
        return f"{token!r} is not a name that is known here", f"write {token[:3]}"
    if "L" in token or "W" in token or "#" in token:
        return "L and 15W belong to the day of the month, 5#3 and 5L to the day of the week", "write one by itself"
    named = f" or a name from {kind.names[0]} to {kind.names[-1]}" if kind.names else ""
    return f"{token!r} is not a value", f"write a number from {kind.low} to {kind.high}{named}"


def _hash_bounds(kind: FieldKind, item: str, hashed: re.Match[str]) -> tuple[int, int]:
    if hashed[1] is None:
        return kind.low, kind.hash_high
    return _bounds(kind, item, f"{hashed[1]}-{hashed[2]}")


def _spread(kind: FieldKind, item: str, key: str) -> str:
    base, _, step = item.partition("/")
    hashed = _HASH.fullmatch(base)
    if hashed is None:
        return item
    low, high = _hash_bounds(kind, item, hashed)
    choices = min(int(step), high - low + 1) if step else high - low + 1
    # Each field takes its own digest, so that minute and hour are independent of each other.
    digest = sha256(f"{kind.name} {key}".encode("utf-8", "surrogatepass")).digest()
    first = low + int.from_bytes(digest[:8], "big") % choices
    return f"{first}-{high}/{step}" if step else str(first)


def _step_warning(kind: FieldKind, item: str, low: int, high: int, step: int | None) -> str | None:
    if step is None:
        return None
    hashed = item.startswith("H")
    if low + step > high:
        one = "one value" if hashed else str(low)
        return f"{kind.name} '{item}': the step is larger than what it steps over, so only {one} matches"
    if "-" in item and (low, high) != (kind.low, kind.high):
        return None
    if kind is DAY and step > 1:
        return f"{kind.name} '{item}' counts anew each month, so the gap at a month's end is not {step} days"
    divides = f"{step} does not divide {kind.size}"
    if hashed:
        return f"{kind.name} '{item}': {divides}, so the last gap is another one" if kind.size % step else None
    # A 7 that stands for the Sunday it began with is not the last value.
    last = range(low, min(high, low + kind.size - 1) + 1, step)[-1]
    gap = low + kind.size - last
    if gap == step:
        return None
    why = divides if kind.size % step else f"it begins at {low}"
    return f"{kind.name} '{item}': {why}, so the last gap is {gap} and not {step}"


def _canonical(kind: FieldKind, mask: int, is_star: bool) -> str:
    if not is_star:
        return _list_text(mask)
    if mask == kind.everything:
        return "*"
    for step in range(2, kind.size + 1):
        if _bits(kind.low, kind.low + kind.size - 1, step) == mask:
            return f"*/{step}"
    # The first value alone keeps the star in front; the rest follows as a list.
    return f"*/{kind.size},{_list_text(mask & ~(1 << kind.low))}"


def _list_text(mask: int) -> str:
    parts: list[str] = []
    low = 0
    while mask >> low:
        if mask >> low & 1:
            high = low
            while mask >> high + 1 & 1:
                high += 1
            parts += [f"{low}-{high}"] if high > low + 1 else [str(n) for n in range(low, high + 1)]
            low = high
        low += 1
    return ",".join(parts)
