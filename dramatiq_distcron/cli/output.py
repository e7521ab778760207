"""How results are shown: tables for people, one JSON object for programs. Data goes to stdout, logs to stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..durations import iso

if TYPE_CHECKING:
    from ..api.infos import ScheduleInfo

__all__ = ["ago", "instant", "plural", "print_json", "print_table", "printable", "state_of"]


def print_json(data: Any) -> None:
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    ascii_only = encoding != "utf8"
    try:
        text = json.dumps(data, ensure_ascii=ascii_only, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(data), ensure_ascii=ascii_only)
    # Half a character, of a foreign message, is told as JSON tells it.
    print(text.encode("utf-8", "backslashreplace").decode(), flush=True)


def _finite(value: Any) -> Any:
    """With a text for each number that JSON has no word for: Dramatiq's encoder lets arguments be NaN or infinite."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, (list, tuple)) else value


def print_table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Columns as wide as their widest cell; nothing is cut."""
    lines = [[printable(cell) for cell in row] for row in (headers, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip(), flush=True)


def printable(value: Any, *, keep: str = "") -> str:
    """As text in which nothing is left that a terminal would obey, or cannot be encoded; ``keep`` stays."""
    text = "".join(one if one.isprintable() or one in keep else _escaped(one) for one in str(value))
    return text.encode("utf-8", "backslashreplace").decode()


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def instant(ms: int | None) -> str | None:
    """UTC ms as ISO 8601, or nothing."""
    return None if ms is None else iso(ms)


def state_of(one: ScheduleInfo) -> str:
    """How a schedule stands, in a word."""
    return "paused" if one.paused and one.state == "active" else one.state


def ago(ms: int | None, now: int) -> str:
    """An instant as people read it: date and time in UTC, and how far away it is."""
    if ms is None:
        return "-"
    return f"{iso(ms)[:19].replace('T', ' ')}Z ({_distance(ms - now)})"


def _distance(ms: int) -> str:
    length = abs(ms) / 1000
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if length >= size:
            text = f"{length / size:.0f} {unit}"
            break
    else:
        text = f"{length:.0f} s"
    return f"in {text}" if ms >= 0 else f"{text} ago"
