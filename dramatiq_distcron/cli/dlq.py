"""The verbs on dead letters."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..durations import parse_duration, utc
from ..errors import ConfigurationError, StoreUnavailable
from ..letters import REASONS
from .exits import Exit
from .output import ago, instant, plural, print_json, print_table, printable
from .parser import count, instant_of
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
    exported = add_command(verbs, "export", _export, "print letters as lines of JSON, arguments and all")
    exported.add_argument("ids", metavar="ID", nargs="*", help="the letters; or use filters; default: all")
    _with_filters(exported)
    imported = add_command(verbs, "import", _import, "keep letters that export printed")
    imported.add_argument("file", metavar="FILE", nargs="?", help="default, or -: standard input")
    adopted = add_command(verbs, "adopt", _adopt, "take over what lies among Dramatiq's own dead messages (.XQ)")
    help = "from this queue; may be repeated (default: those the app declares, or its workers tell of)"
    adopted.add_argument("--queue", dest="queues", metavar="QUEUE", action="append", help=help)


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
    parser.add_argument("-n", "--limit", type=count, help="how many at most, the oldest first")
    return _with_filters(parser)


def _when(text: str) -> Callable[[int], datetime]:
    """An argument type: an instant, or how long ago, which the store's clock decides."""
    try:
        seconds = parse_duration(text)
        return lambda now: utc(max(0, now - round(seconds * 1000)))
    except ConfigurationError:
        pass
    try:
        found = instant_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; nor is it 2h or 3d") from None
    return lambda now: found


def _filters(args: argparse.Namespace, distcron: DistCron) -> dict[str, Any]:
    given = {name: getattr(args, name) for name in _FILTERS if getattr(args, name) is not None}
    for name in ("since", "until"):
        if getattr(args, name) is not None:
            given[name] = getattr(args, name)(distcron.open_backend().store.now())
    return given


# -- looking --------------------------------------------------------------------------------------------------


def _list(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    page = distcron.dead_letters.fill(limit=args.limit, cursor=args.cursor, **_filters(args, distcron))
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
    elif not page.letters:
        print(_of_none(distcron, args), file=sys.stderr)
    return Exit.OK


def _of_none(distcron: DistCron, args: argparse.Namespace) -> str:
    """What to look at where nothing is found."""
    kept = distcron.dead_letters.count()
    if not kept:
        return f"No dead letters of app {distcron.settings.app!r} are kept here."
    return f"None of the {plural(kept, 'letter')} fits. 'dramatiq-distcron dlq stats' shows of what kinds they are."


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
        print(f"{name.replace('_', ' '):16} {printable(_readable(value))}")
    if trace:
        print(f"\n{printable(trace.rstrip(), keep=chr(10))}")
    return Exit.OK


def _readable(value: Any) -> str:
    if value is None or value == ():
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
    _refuse_vague(args, bool(filters), args.all, "--all")
    bar = _Progress(sys.stderr.isatty() and not args.json)
    how = {"all": args.all, "limit": args.limit, "rate": args.rate, "dry_run": args.dry_run}
    try:
        done = distcron.dead_letters.redrive(args.ids, progress=bar, **how, **filters)
    except (KeyboardInterrupt, StoreUnavailable):
        bar.end()
        if bar.redriven:
            print(
                f"It ended early: {plural(bar.redriven, 'letter')} went back. Call it again to go on.", file=sys.stderr
            )
        raise
    bar.end()
    if args.json:
        print_json({**asdict(done), "dry_run": args.dry_run})
    else:
        _tell_redriven(done, dry_run=args.dry_run)
    _tell_missing(done.missing)
    return Exit.PARTLY if done.refused or done.missing else Exit.OK


class _Progress:
    """How far it is, on a terminal."""

    def __init__(self, visible: bool) -> None:
        self.redriven = 0
        self._visible = visible
        self._told = False

    def __call__(self, done: Redriven) -> None:
        self.redriven = done.redriven
        if self._visible:
            self._told = True
            told = f"\r{done.redriven} sent back, {len(done.refused)} refused"
            print(told, end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._told:
            print(file=sys.stderr)


def _tell_redriven(done: Redriven, *, dry_run: bool) -> None:
    print(f"{plural(done.redriven, 'letter')} {'would go' if dry_run else 'went'} back.")
    if done.gone:
        print(f"{done.gone} more were sent back or dropped by somebody else meanwhile.")
    for id, why in list(done.refused.items())[:20]:
        print(f"{printable(id)} stays: {printable(why)}", file=sys.stderr)
    if len(done.refused) > 20:
        print(f"and {len(done.refused) - 20} more stay.", file=sys.stderr)
    if done.unchecked:
        print("No worker told which actors there are, so nobody checked that theirs still are.", file=sys.stderr)


def _tell_missing(ids: Sequence[str]) -> None:
    if ids:
        named = ", ".join(printable(id) for id in ids[:20])
        print(f"Not among the dead letters: {named}{', ...' if len(ids) > 20 else ''}", file=sys.stderr)


def _refuse_vague(args: argparse.Namespace, filtered: bool, all: bool, how_all: str) -> None:
    """As the API does, in the words of the command line."""
    ways = (bool(args.ids), filtered, all)
    if not any(ways):
        raise ConfigurationError(f"Say which letters: their ids, filters such as --actor sync, or {how_all}.")
    if sum(ways) > 1:
        raise ConfigurationError(f"Say which letters in one way: ids, or filters, or {how_all}.")


def _discard(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    filters, letters = _filters(args, distcron), distcron.dead_letters
    _refuse_vague(args, bool(filters), False, "dlq purge for all")
    missing = letters.missing(args.ids)
    count = len(set(args.ids)) - len(missing) if args.ids else letters.count(**filters)
    if count:
        _sure(args, f"Drop {plural(min(count, args.limit or count), 'letter')} for good?")
    dropped = letters.discard(args.ids, limit=args.limit, **filters)
    _tell_missing(missing)
    _say(args, {"discarded": dropped, "missing": missing}, f"{plural(dropped, 'letter')} dropped.")
    return Exit.PARTLY if missing else Exit.OK


def _purge(args: argparse.Namespace) -> int:
    letters = open_state(args).dead_letters
    count = letters.count()
    if count:
        _sure(args, f"Drop all {plural(count, 'letter')} for good?")
    dropped = letters.purge() if count else 0
    return _say(args, {"purged": dropped}, f"{plural(dropped, 'letter')} dropped.")


def _sure(args: argparse.Namespace, question: str) -> None:
    """Asks on a terminal. Raises ``ConfigurationError`` where nobody can be asked, or the answer is no."""
    if args.yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigurationError(f"{question} Say so with --yes: there is no terminal to ask on.")
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:
        print(file=sys.stderr)
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise ConfigurationError("Nothing was dropped.")


def _export(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    filters = _filters(args, distcron)
    missing = distcron.dead_letters.missing(args.ids)
    for line in distcron.dead_letters.export(args.ids, **filters):
        print(line)
    _tell_missing(missing)
    return Exit.PARTLY if missing else Exit.OK


def _import(args: argparse.Namespace) -> int:
    letters = open_state(args).dead_letters
    try:
        with _opened(args.file) as lines:
            new = letters.import_(lines)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{args.file or 'The input'} cannot be read: {error}") from error
    return _say(args, {"imported": new}, f"{plural(new, 'letter')} kept; what was here already is as it was.")


def _opened(file: str | None) -> AbstractContextManager[Iterable[str]]:
    if file not in (None, "-"):
        return open(str(file), encoding="utf-8")
    if sys.stdin is None:
        raise ConfigurationError("There is no input to read: name the file.")
    return nullcontext(sys.stdin)


def _adopt(args: argparse.Namespace) -> int:
    done = open_state(args).dead_letters.adopt(args.queues)
    if args.json:
        print_json({"adopted": done.adopted, "queues": done.queues, "left": done.left})
        return Exit.OK
    queues = ", ".join(f"{printable(name)} ({count})" for name, count in sorted(done.queues.items()))
    print(f"{plural(done.adopted, 'dead message')} taken over. Looked into: {queues}.")
    if done.left:
        print(f"{done.left} that cannot be decoded here stay where they are.", file=sys.stderr)
    return Exit.OK


def _say(args: argparse.Namespace, done: dict[str, Any], text: str) -> int:
    if args.json:
        print_json(done)
    else:
        print(text)
    return Exit.OK
