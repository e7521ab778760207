"""The verbs on dead letters."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ..durations import parse_duration, utc
from ..errors import ConfigurationError, StoreUnavailable
from ..letters import REASONS
from .exits import Exit
from .output import ago, instant, print_json, print_table, printable
from .parser import count
from .where import add_command, open_state

if TYPE_CHECKING:
    from ..api.letter_infos import DeadLetter
    from ..api.redriving import Redriven
    from ..middleware.distcron import DistCron

__all__ = ["add_commands"]

_FILTERS = ("actor", "queue", "reason", "error", "fingerprint", "schedule", "text")


def add_commands(commands: Any) -> None:
    summary = "look at dead letters, send them back or throw them away"
    group = commands.add_parser("dlq", help=summary, description=summary[0].upper() + summary[1:] + ".")
    verbs = group.add_subparsers(metavar="VERB", required=True)
    listing = _with_filters(add_command(verbs, "list", _list, "show letters, the newest first"))
    listing.add_argument("-n", "--limit", type=count, default=20, help="how many (default: 20)")
    listing.add_argument("--cursor", help="where the page begins, as the page before said")
    show = add_command(verbs, "show", _show, "show one letter with all that is kept of it")
    show.add_argument("id", metavar="ID", help="the letter, or its message")
    add_command(verbs, "stats", _stats, "show how many letters there are of each kind")
    redrive = _chosen(add_command(verbs, "redrive", _redrive, "send letters back to their queues"))
    redrive.add_argument("--all", action="store_true", help="every letter")
    redrive.add_argument("--rate", type=float, metavar="N", help="how many a second at most")
    redrive.add_argument("--dry-run", action="store_true", help="only count them")
    discard = _chosen(add_command(verbs, "discard", _discard, "drop letters for good"))
    discard.add_argument("--yes", "-y", action="store_true", help="do not ask")
    purge = add_command(verbs, "purge", _purge, "drop every letter for good")
    purge.add_argument("--yes", "-y", action="store_true", help="do not ask")
    _with_filters(add_command(verbs, "export", _export, "print letters as lines of JSON, arguments and all"))
    imported = add_command(verbs, "import", _import, "keep letters that export printed")
    imported.add_argument("file", metavar="FILE", nargs="?", help="default: standard input")
    add_command(verbs, "adopt", _adopt, "take over what lies among Dramatiq's own dead messages (.XQ)")


def _with_filters(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    filters = parser.add_argument_group("which letters")
    for name in ("actor", "queue", "fingerprint", "schedule"):
        filters.add_argument(f"--{name}", metavar=name.upper(), help=f"those of this {name}")
    filters.add_argument("--reason", choices=REASONS, metavar="REASON", help=f"one of {', '.join(REASONS)}")
    filters.add_argument("--error", metavar="CLASS", help="the class of the exception, or a part of its name")
    filters.add_argument("--text", help="found in what is kept beside the message; slow")
    filters.add_argument("--since", metavar="WHEN", type=_when, help="died after: 2h, 3d or an ISO date with a zone")
    filters.add_argument("--until", metavar="WHEN", type=_when, help="died before")
    return parser


def _chosen(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("ids", metavar="ID", nargs="*", help="the letters; or use filters")
    parser.add_argument("-n", "--limit", type=count, help="how many at most")
    return _with_filters(parser)


def _when(text: str) -> Callable[[int], datetime]:
    """An argument type: an instant, or how long ago, which the store's clock decides."""
    try:
        seconds = parse_duration(text)
        return lambda now: utc(now - round(seconds * 1000))
    except ConfigurationError:
        pass
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither 2h or 3d nor a date like 2026-03-29T00:00Z") from None
    if found.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no zone: write {text}Z for UTC, or an offset")
    return lambda now: found.astimezone(timezone.utc)


def _filters(args: argparse.Namespace, distcron: DistCron) -> dict[str, Any]:
    given = {name: getattr(args, name) for name in _FILTERS if getattr(args, name) is not None}
    for name in ("since", "until"):
        if getattr(args, name) is not None:
            given[name] = getattr(args, name)(distcron.open_backend().store.now())
    return given


# -- looking --------------------------------------------------------------------------------------------------


def _list(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    page = distcron.dead_letters.page(limit=args.limit, cursor=args.cursor, **_filters(args, distcron))
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
    if page.cursor is not None and page.letters:
        print(f"There may be more: --cursor {page.cursor}", file=sys.stderr)
    return Exit.OK


def _brief(one: DeadLetter) -> dict[str, Any]:
    names = ("id", "actor", "queue", "reason", "error", "attempts", "schedule", "fingerprint", "message")
    times = {name: instant(getattr(one, name)) for name in ("first_failed_at", "dead_at", "fire_time")}
    return {**{name: getattr(one, name) for name in names}, **times}


def _show(args: argparse.Namespace) -> int:
    one = open_state(args).dead_letters.get(args.id)
    shown = asdict(one) | {
        name: instant(getattr(one, name)) for name in ("first_failed_at", "dead_at", "fire_time", "enqueued_at")
    }
    shown["history"] = [{**attempt, "at": instant(attempt.get("at"))} for attempt in one.history]
    if args.json:
        print_json(shown)
        return Exit.OK
    trace = shown.pop("traceback")
    for name, value in shown.items():
        print(f"{name.replace('_', ' '):16} {'-' if value is None else printable(value)}")
    if trace:
        print(f"\n{printable(trace.rstrip(), keep=chr(10))}")
    return Exit.OK


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
    now = distcron.open_backend().store.now()
    print_table(
        ["BY", "VALUE", "COUNT", "FIRST", "LAST"],
        [(one.field, one.value, one.count, ago(one.first, now), ago(one.last, now)) for one in groups],
    )
    print(f"\n{total} in all.")
    return Exit.OK


# -- changing -------------------------------------------------------------------------------------------------


def _redrive(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    filters = _filters(args, distcron)
    bar = _Progress(sys.stderr.isatty() and not args.json)
    how = {"all": args.all, "limit": args.limit, "rate": args.rate, "dry_run": args.dry_run}
    try:
        done = distcron.dead_letters.redrive(args.ids, progress=bar, **how, **filters)
    except (KeyboardInterrupt, StoreUnavailable):
        print(f"\nIt ended early: {bar.redriven} letters were sent back. Call it again to go on.", file=sys.stderr)
        raise
    if args.json:
        print_json({**asdict(done), "dry_run": args.dry_run})
    else:
        _tell_redriven(done, dry_run=args.dry_run)
    return Exit.PARTLY if done.refused else Exit.OK


class _Progress:
    """How far it is, on a terminal."""

    def __init__(self, visible: bool) -> None:
        self.redriven = 0
        self._visible = visible

    def __call__(self, done: Redriven) -> None:
        self.redriven = done.redriven
        if self._visible:
            told = f"\r{done.redriven} sent back, {len(done.refused)} refused"
            print(told, end="", file=sys.stderr, flush=True)


def _tell_redriven(done: Redriven, *, dry_run: bool) -> None:
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(f"{done.redriven} letters {'would be' if dry_run else 'were'} sent back.")
    if done.gone:
        print(f"{done.gone} were gone by then.")
    for id, why in list(done.refused.items())[:20]:
        print(f"{printable(id)} stays: {printable(why)}", file=sys.stderr)
    if len(done.refused) > 20:
        print(f"and {len(done.refused) - 20} more stay.", file=sys.stderr)


def _discard(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    filters = _filters(args, distcron)
    _sure(args, "Drop these letters for good?")
    dropped = distcron.dead_letters.discard(args.ids, limit=args.limit, **filters)
    return _say(args, {"discarded": dropped}, f"{dropped} letters were dropped.")


def _purge(args: argparse.Namespace) -> int:
    letters = open_state(args).dead_letters
    _sure(args, f"Drop all {letters.count()} letters for good?")
    dropped = letters.purge()
    return _say(args, {"purged": dropped}, f"{dropped} letters were dropped.")


def _sure(args: argparse.Namespace, question: str) -> None:
    """Asks on a terminal. Raises ``ConfigurationError`` where nobody can be asked, or the answer is no."""
    if args.yes:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{question} Say so with --yes: there is no terminal to ask on.")
    if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        raise ConfigurationError("Nothing was dropped.")


def _export(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    for line in distcron.dead_letters.export(**_filters(args, distcron)):
        print(line)
    return Exit.OK


def _import(args: argparse.Namespace) -> int:
    letters = open_state(args).dead_letters
    try:
        if args.file is None:
            new = letters.import_(sys.stdin)
        else:
            with open(args.file, encoding="utf-8") as lines:
                new = letters.import_(lines)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{args.file or 'The input'} cannot be read: {error}") from error
    return _say(args, {"imported": new}, f"{new} letters were new.")


def _adopt(args: argparse.Namespace) -> int:
    adopted = open_state(args).dead_letters.adopt()
    return _say(args, {"adopted": adopted}, f"{adopted} dead messages were taken over.")


def _say(args: argparse.Namespace, done: dict[str, Any], text: str) -> int:
    if args.json:
        print_json(done)
    else:
        print(text)
    return Exit.OK
