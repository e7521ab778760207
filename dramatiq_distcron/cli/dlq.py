"""The verbs on dead letters."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from . import dlq_changes
from .dlq_filters import add_filters, filters_of, why_none
from .exits import Exit
from .output import ago, instant, print_json, print_table, printable
from .parser import count, summary
from .where import add_command, open_state

if TYPE_CHECKING:
    from ..api.letter_infos import DeadLetter
    from ..middleware.distcron import DistCron
    from ..store.base import Group

__all__ = ["add_commands"]

#: So many kinds are shown, the most frequent ones, and so much of the text of each.
_KINDS, _SHOWN = 20, 80


def add_commands(commands: Any) -> None:
    group = commands.add_parser("dlq", **summary("look at dead letters, send them back or throw them away"))
    verbs = group.add_subparsers(metavar="VERB", required=True)
    listing = add_filters(add_command(verbs, "list", _list, "show letters, the newest first"))
    listing.add_argument("-n", "--limit", type=count, default=20, help="how many (default: 20)")
    listing.add_argument("--cursor", help="where the page begins, as the page before said")
    show = add_command(verbs, "show", _show, "show one letter with all that is kept of it")
    show.add_argument("id", metavar="ID", help="the letter, or its message")
    add_command(verbs, "stats", _stats, "show how many letters there are of each kind")
    redrive = _chosen(add_command(verbs, "redrive", dlq_changes.redrive, "send letters back to their queues"))
    redrive.add_argument("--all", action="store_true", help="every letter")
    redrive.add_argument("--rate", type=float, metavar="N", help="how many a second at most")
    redrive.add_argument("--dry-run", action="store_true", help="only count them")
    discard = _chosen(add_command(verbs, "discard", dlq_changes.discard, "drop letters for good; all of them: purge"))
    discard.add_argument("--yes", "-y", action="store_true", help="do not ask")
    purge = add_command(verbs, "purge", dlq_changes.purge, "drop every letter for good")
    purge.add_argument("--yes", "-y", action="store_true", help="do not ask")
    text = "print letters as lines of JSON, arguments and all"
    exported = add_command(verbs, "export", dlq_changes.export, text, json=False)
    exported.add_argument("ids", metavar="ID", nargs="*", help="the letters; or use filters; default: all")
    add_filters(exported)
    imported = add_command(verbs, "import", dlq_changes.import_, "keep letters that export printed")
    imported.add_argument("file", metavar="FILE", nargs="?", help="default, or -: standard input")
    text = "take over what lies among Dramatiq's own dead messages (.XQ)"
    adopted = add_command(verbs, "adopt", dlq_changes.adopt, text)
    help = "from this queue; may be repeated (default: those the app declares, or its workers tell of)"
    adopted.add_argument("--queue", dest="queues", metavar="QUEUE", action="append", help=help)


def _chosen(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("ids", metavar="ID", nargs="*", help="the letters; or use filters")
    parser.add_argument("-n", "--limit", type=count, help="how many at most, the oldest first")
    return add_filters(parser)


# -- looking --------------------------------------------------------------------------------------------------


def _list(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    filters = filters_of(args, distcron)
    page = distcron.dead_letters.fill(limit=args.limit, cursor=args.cursor, **filters)
    # Programs ask often, and all keys would be walked through for one that finds nothing at all.
    if page.cursor is None and not page.letters and (filters or not args.json):
        print(why_none(distcron, filters), file=sys.stderr)
    if args.json:
        print_json({"dead_letters": [_brief(one) for one in page.letters], "cursor": page.cursor})
        return Exit.OK
    now = distcron.open_backend().store.now()
    print_table(
        ["LETTER", "DIED", "ACTOR", "QUEUE", "REASON", "ERROR", "RUNS"],
        [
            (one.id, ago(one.dead_at, now), one.actor, one.queue, one.reason, one.error or "-", one.attempts)
            for one in page.letters
        ],
    )
    if page.cursor is not None:
        print(f"There may be more: --cursor {page.cursor}", file=sys.stderr)
    return Exit.OK


def _brief(one: DeadLetter) -> dict[str, Any]:
    names = ("id", "actor", "queue", "reason", "error", "attempts", "schedule", "fingerprint", "message")
    times = {name: instant(getattr(one, name)) for name in ("first_failed_at", "dead_at", "fire_time")}
    return {**{name: getattr(one, name) for name in names}, **times}


def _show(args: argparse.Namespace) -> int:
    one = open_state(args).dead_letters.get(args.id)
    # Not asdict(), which goes down into the arguments.
    shown = {field.name: getattr(one, field.name) for field in fields(one)} | {
        name: instant(getattr(one, name)) for name in ("first_failed_at", "dead_at", "fire_time", "enqueued_at")
    }
    shown["history"] = [{**attempt, "at": instant(attempt.get("at"))} for attempt in one.history]
    if args.json:
        print_json(shown)
        return Exit.OK
    trace = shown.pop("traceback")
    for name, value in shown.items():
        print(f"{name.replace('_', ' '):16} {printable(_readable(value))}")
    if trace:
        print(f"\n{printable(trace.rstrip(), keep=chr(10))}")
    return Exit.OK


def _readable(value: Any) -> str:
    if value is None or value in ((), ""):
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return ", caused by ".join(value)
    return json.dumps(value, ensure_ascii=False)


def _stats(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    groups = distcron.dead_letters.stats()
    total = distcron.dead_letters.count()
    if args.json:
        print_json(
            {
                "total": total,
                "groups": [{**asdict(one), "first": instant(one.first), "last": instant(one.last)} for one in groups],
            }
        )
        return Exit.OK
    if not total:
        print(why_none(distcron, {}), file=sys.stderr)
    now = distcron.open_backend().store.now()
    kinds = sorted((one for one in groups if one.field == "fingerprint"), key=lambda one: -one.count)
    print_table(
        ["KIND", "COUNT", "FIRST", "LAST", "THE NEWEST"],
        [(one.value, one.count, *_when(one, now), _newest(distcron, one.value)) for one in kinds[:_KINDS]],
    )
    if len(kinds) > _KINDS:
        print(f"and {len(kinds) - _KINDS} kinds more.")
    print()
    print_table(
        ["BY", "VALUE", "COUNT", "FIRST", "LAST"],
        [(one.field, one.value, one.count, *_when(one, now)) for one in groups if one.field != "fingerprint"],
    )
    print(f"\n{total} in all.")
    return Exit.OK


def _when(one: Group, now: int) -> tuple[str, str]:
    return ago(one.first, now), ago(one.last, now)


def _newest(distcron: DistCron, fingerprint: str) -> str:
    """What a kind is about, by its newest letter."""
    found = distcron.dead_letters.list(fingerprint=fingerprint, limit=1)
    if not found:
        return "-"
    (one,) = found
    text = one.text if len(one.text) <= _SHOWN else f"{one.text[:_SHOWN]}..."
    return f"{one.actor}, {one.reason}" + (f", {one.error}: {text}" if one.error else f": {text}" if text else "")
