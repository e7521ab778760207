"""Which dead letters a command means, and what to look at where it finds none."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..api.others import tell_others
from ..durations import parse_duration, utc
from ..errors import ConfigurationError
from ..letters import REASONS
from ..suggestions import did_you_mean
from .output import plural, printable
from .parser import instant_of

if TYPE_CHECKING:
    from ..middleware.distcron import DistCron

__all__ = ["add_filters", "filters_of", "why_none"]

_FILTERS = ("actor", "queue", "reason", "error", "fingerprint", "schedule", "text")
_INDEXED = ("actor", "queue", "error", "fingerprint", "schedule")
#: Without a unit nobody means so many seconds ago: it is a day, or a time since 1970.
_MOST_SECONDS = 10_000_000
#: Longer ago than anything.
_LONGEST = 1e11


def add_filters(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    filters = parser.add_argument_group("which letters")
    for name in ("actor", "queue", "fingerprint", "schedule"):
        filters.add_argument(f"--{name}", metavar=name.upper(), help=f"those of this {name}")
    filters.add_argument("--reason", choices=REASONS, metavar="REASON", help=f"one of {', '.join(REASONS)}")
    filters.add_argument("--error", metavar="CLASS", help="the class of the exception itself, or a part of its name")
    filters.add_argument("--text", help="found in what is kept beside the message; slow")
    filters.add_argument("--since", metavar="WHEN", type=_when, help="died after: 2h, 3d or an ISO date with a zone")
    filters.add_argument("--until", metavar="WHEN", type=_when, help="died before")
    return parser


def _when(text: str) -> Callable[[int], datetime]:
    """An argument type: an instant, or how long ago, which the store's clock decides."""
    try:
        seconds = min(parse_duration(text), _LONGEST)
        if seconds > _MOST_SECONDS and re.fullmatch(r"[\d.]+", text):
            raise argparse.ArgumentTypeError(
                f"{text!r} would be so many seconds ago: write a date like 2026-03-29T00:00Z"
            )
        return lambda now: utc(max(0, now - round(seconds * 1000)))
    except ConfigurationError:
        pass
    try:
        found = instant_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; nor is it 2h or 3d") from None
    return lambda now: found


def filters_of(args: argparse.Namespace, distcron: DistCron) -> dict[str, Any]:
    given = {name: getattr(args, name) for name in _FILTERS if getattr(args, name) is not None}
    for name in ("since", "until"):
        if getattr(args, name) is not None:
            given[name] = getattr(args, name)(distcron.open_backend().store.now())
    return given


def why_none(distcron: DistCron, filters: dict[str, Any]) -> str:
    """What to look at where nothing is found."""
    backend = distcron.open_backend()
    kept = distcron.dead_letters.count()
    if not kept:
        told = (
            f"No dead letters of app {distcron.settings.app!r} are kept in namespace {backend.namespace!r} of "
            f"{backend.where}. {tell_others(backend)}"
        )
        return printable(told.rstrip())
    hints = [_unknown(distcron, name, value) for name, value in filters.items() if name in _INDEXED]
    hint = next(filter(None, hints), "'dramatiq-distcron dlq stats' shows of what kinds they are.")
    return printable(f"None of the {plural(kept, 'letter')} fits. {hint}")


def _unknown(distcron: DistCron, field: str, value: str) -> str:
    known = distcron.open_backend().store.dead_values(field)
    is_there = value in known or (field == "error" and any(value.lower() in one.lower() for one in known))
    return "" if is_there else f"No letter has the {field} {value!r}. {did_you_mean(value, known)}"
