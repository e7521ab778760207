"""``explain``: what a cron expression means. ``check``: whether an app's schedules are as they should be."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dramatiq.asyncio import async_to_sync
from dramatiq.middleware import AsyncIO

from ..clock import wall_ms
from ..clock_changes import clock_change_warnings, year_around
from ..cron_expression import CronExpression, parse
from ..cron_time import next_fire
from ..describing import describe
from ..durations import instant_ms, utc
from ..errors import ConfigurationError
from ..middleware.distcron import refuse_doubled
from ..zones import load_zone
from .beat import add_app_arguments
from .exits import Exit
from .loading import LoadError, import_app, refuse_others
from .output import ago, instant, plural, print_json, print_table
from .parser import count, instant_of, summary

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from dramatiq import Actor

    from ..middleware.distcron import DistCron
    from ..schedules import Schedule
    from ..specs import Spec

__all__ = ["add_commands"]

#: Whose times ``explain`` shows for an H, unless it is told a name.
_SOMEBODY = "example"
#: Options of Celery's entries, which Dramatiq would take and pass over.
_CELERYS = {
    "countdown": "a tick's time is its schedule's",
    "expires": "give the schedule expires=",
    "priority": "give the actor priority=",
    "queue": "give the actor queue_name=",
}
#: What is after a schedule that cannot even be made is not looked at.
_ENDED = "The import ended there, so there may be more: mend it, and check again"
#: So many fire times are shown at most.
_MOST = 10_000


def add_commands(commands: Any) -> None:
    explain = commands.add_parser("explain", **summary("say what a cron expression means, and when it fires next"))
    explain.add_argument("expression", metavar="EXPRESSION", help="the expression, in quotes")
    explain.add_argument("--tz", metavar="ZONE", default="UTC", help="the zone it is read in (default: UTC)")
    explain.add_argument("-n", "--limit", type=_some, default=5, help="how many fire times (default: 5)")
    explain.add_argument("--from", metavar="INSTANT", dest="start", help="after which instant (default: now)")
    explain.add_argument("--seconds", choices=["first", "last"], help="six fields, and where the seconds are")
    explain.add_argument("--name", metavar="NAME", help="the schedule's name, which H is derived from")
    explain.add_argument("--json", action="store_true", help="print one JSON object")
    explain.too_many = "Quote the expression: explain '0 3 * * *'."
    explain.set_defaults(run=_explain, parser=explain)

    check = commands.add_parser("check", **summary("validate all schedules of an app; exit code 6 on findings"))
    add_app_arguments(check)
    check.add_argument("--warnings-ok", action="store_true", help="what is valid but often not meant is no finding")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.set_defaults(run=_check, parser=check)


def _some(text: str) -> int:
    """An argument type: as many as one can want to read, for each is computed."""
    found = count(text)
    if found > _MOST:
        raise argparse.ArgumentTypeError(f"{text} fire times are too many; ask for at most {_MOST}")
    return found


# -- explain --------------------------------------------------------------------------------------------------


def _explain(args: argparse.Namespace) -> int:
    zone = load_zone(args.tz)
    written = parse(args.expression, seconds=args.seconds)
    expression = written.spread(args.name or _SOMEBODY)
    start = wall_ms() if args.start is None else _instant(args.start)
    times = _next_times(expression, zone, start, args.limit)
    warnings = [*written.warnings(), *clock_change_warnings(expression, zone, *year_around(zone, start // 1000))]
    if written.has_hash and not args.name:
        warnings.insert(0, f"H follows from the schedule's name, here {_SOMEBODY!r}; give yours with --name")
    if args.json:
        print_json(
            {
                "expression": expression.text,
                "timezone": zone.key,
                "description": describe(expression),
                "next": [instant(time) for time in times],
                "warnings": warnings,
            }
        )
        return Exit.OK
    print(describe(expression))
    rows = [(_local(time, zone), *ago(time, start).removesuffix(")").split(" (")) for time in times]
    print_table([f"NEXT IN {zone.key}", "UTC", ""], rows)
    for warning in warnings:
        print(f"Note: {warning}.")
    return Exit.OK


def _next_times(expression: CronExpression, zone: ZoneInfo, start: int, limit: int) -> list[int]:
    found: list[int] = []
    after: int | None = start
    while len(found) < limit and after is not None:
        after = next_fire(expression, zone, after)
        if after is not None:
            found.append(after)
    return found


def _instant(text: str) -> int:
    try:
        return instant_ms(instant_of(text), "--from")
    except ValueError as error:
        raise ConfigurationError(f"--from takes an instant with its zone, and {error}.") from None


def _local(time: int, zone: ZoneInfo) -> str:
    try:
        return utc(time).astimezone(zone).strftime("%a %Y-%m-%d %H:%M:%S %z")
    except OverflowError:
        # There it is the year 0, or 10000, which no datetime can name.
        return utc(time).strftime("%a %Y-%m-%d %H:%M:%S +0000")


# -- check ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """A schedule that can be used, when it fires next, and what is often not meant by it."""

    spec: Spec
    next: int | None
    warnings: tuple[str, ...]


def _check(args: argparse.Namespace) -> int:
    try:
        distcron = import_app(args.broker, args.modules, args.path)
    except LoadError:
        raise
    except ConfigurationError as error:
        return _show_check(args, [], [f"{str(error).removesuffix('.')}. {_ENDED}"])
    try:
        refuse_doubled(distcron.broker)
        if distcron.settings.redis is not None:
            # Another one than the broker's? This connects to nothing yet.
            distcron.open_backend()
        refuse_others(distcron, args.broker)
    except ConfigurationError as error:
        return _show_check(args, [], [str(error)])
    rows, findings = _rows_of(distcron, wall_ms())
    findings += [f"{row.spec.name}: it never fires again" for row in rows if row.next is None]
    if not args.warnings_ok:
        findings += [f"{row.spec.name}: {warning}" for row in rows for warning in row.warnings]
    if not distcron.declared():
        findings = ["there are no schedules; name the modules that declare periodic actors after the broker"]
    return _show_check(args, rows, findings)


def _rows_of(distcron: DistCron, now: int) -> tuple[list[_Row], list[str]]:
    """The schedules of an app by name, and why others cannot be used: one of these does not hide the rest."""
    rows: list[_Row] = []
    findings: list[str] = []
    for actor, schedule in distcron.declared():
        name = schedule.name or actor.actor_name
        try:
            spec = distcron.spec_of(actor, schedule)
        except ConfigurationError as error:
            findings.append(f"{name}: {str(error).removesuffix('.')} ({_place(actor)})")
        else:
            warnings = (*schedule.notes, *spec.timing.warnings(), *_idle(spec, schedule), *_beside(actor, schedule))
            rows.append(_Row(spec, spec.next_ms(now), warnings))
    return sorted(rows, key=lambda row: row.spec.name), findings


def _idle(spec: Spec, schedule: Schedule) -> Iterator[str]:
    """Policies that it was given and that do nothing."""
    if "overlap_timeout" in schedule.policy and spec.policy.overlap == "allow":
        yield "overlap_timeout does nothing with overlap='allow', where no run is waited for"
    if "max_catch_up" in schedule.policy and spec.policy.catch_up != "all":
        yield f"max_catch_up does nothing with catch_up={spec.policy.catch_up!r}; it is for 'all'"


def _beside(actor: Actor[Any, Any], schedule: Schedule) -> Iterator[str]:
    """What its messages are given, or need, and the app does not have."""
    broker = actor.broker
    for option in sorted(schedule.options.keys() & _CELERYS.keys() - broker.actor_options):
        yield f"options has {option!r}, which Dramatiq does not know: {_CELERYS[option]}"
    if _is_awaited_by_dramatiq(actor.fn) and not any(isinstance(one, AsyncIO) for one in broker.middleware):
        yield f"its actor {actor.actor_name!r} is async and cannot run: the broker has no AsyncIO middleware"
    told = actor.options.get("on_retry_exhausted")
    if told is not None and told not in broker.actors:
        yield f"on_retry_exhausted={told!r} names no actor of the modules that were loaded"


def _is_awaited_by_dramatiq(fn: Any) -> bool:
    """Whether it is Dramatiq's wrapper of an ``async`` function. Another decorator may run one in its own way."""
    return getattr(fn, "__globals__", {}).get("__name__") == async_to_sync.__module__


def _place(actor: Actor[Any, Any]) -> str:
    """Where an actor is defined."""
    code = getattr(inspect.unwrap(actor.fn), "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}" if code else f"actor {actor.actor_name}"


def _show_check(args: argparse.Namespace, rows: list[_Row], findings: list[str]) -> int:
    if args.json:
        print_json({"schedules": [_json(row) for row in rows], "findings": findings})
    else:
        _print_rows(rows)
        for finding in findings:
            print(f"Finding: {finding.removesuffix('.')}.")
        print(f"{plural(len(rows), 'schedule')}, {plural(len(findings), 'finding')}.")
    return Exit.FINDINGS if findings else Exit.OK


def _print_rows(rows: list[_Row]) -> None:
    now = wall_ms()
    table = [
        (row.spec.name, row.spec.timing.expression, row.spec.timing.timezone or "-", row.spec.actor, ago(row.next, now))
        for row in rows
    ]
    if table:
        print_table(["SCHEDULE", "WHEN", "ZONE", "ACTOR", "NEXT"], table)


def _json(row: _Row) -> dict[str, Any]:
    spec = row.spec
    return {
        "name": spec.name,
        "actor": spec.actor,
        "kind": spec.timing.kind,
        "expression": spec.timing.expression,
        "timezone": spec.timing.timezone,
        "next_fire_time": instant(row.next),
        "warnings": list(row.warnings),
    }
