"""The verbs that change dead letters, or take them elsewhere."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError, StoreUnavailable
from .dlq_filters import filters_of, why_none
from .exits import Exit, sigterm_as_ctrl_c
from .output import plural, print_json, printable
from .where import open_state

if TYPE_CHECKING:
    from ..api.redriving import Redriven

__all__ = ["adopt", "discard", "export", "import_", "purge", "redrive"]


def redrive(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    filters = filters_of(args, distcron)
    _refuse_vague(args, bool(filters), args.all, "--all")
    bar = _Progress(sys.stderr.isatty() and not args.json)
    how = {"all": args.all, "limit": args.limit, "rate": args.rate, "dry_run": args.dry_run}
    try:
        with sigterm_as_ctrl_c():
            done = distcron.dead_letters.redrive(args.ids, progress=bar, **how, **filters)
    except (KeyboardInterrupt, StoreUnavailable):
        bar.end()
        if bar.redriven:
            told = f"It ended early: {plural(bar.redriven, 'letter')} went back. Call it again to go on"
            print(f"{told}{'; a --limit counts anew' if args.limit else ''}.", file=sys.stderr)
        raise
    bar.end()
    if args.json:
        print_json({**asdict(done), "dry_run": args.dry_run})
    else:
        _tell_redriven(done, dry_run=args.dry_run)
    if not (done.redriven or done.gone or done.refused or done.missing):
        print(why_none(distcron, filters), file=sys.stderr)
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
    _tell_refused(done.refused)
    if done.unchecked:
        print("No worker told which actors there are, so nobody checked that theirs still are.", file=sys.stderr)


def _tell_refused(refused: Mapping[str, str]) -> None:
    by_reason = defaultdict(list)
    for id, why in refused.items():
        by_reason[why].append(id)
    for why, ids in by_reason.items():
        print(
            f"{len(ids)} {'stays' if len(ids) == 1 else 'stay'}: {printable(why)} ({_named(ids, 3)})", file=sys.stderr
        )


def _named(ids: Sequence[str], most: int) -> str:
    return f"{', '.join(map(printable, ids[:most]))}{', ...' if len(ids) > most else ''}"


def _tell_missing(ids: Sequence[str]) -> None:
    if ids:
        print(f"Not among the dead letters, perhaps sent back already: {_named(ids, 20)}", file=sys.stderr)


def _refuse_vague(args: argparse.Namespace, filtered: bool, all: bool, how_all: str) -> None:
    """As the API does, in the words of the command line."""
    ways = (bool(args.ids), filtered, all)
    if not any(ways):
        raise ConfigurationError(f"Say which letters: their ids, filters such as --actor sync, or {how_all}.")
    if sum(ways) > 1:
        raise ConfigurationError(f"Say which letters in one way: ids, or filters, or {how_all}.")


def discard(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    filters, letters = filters_of(args, distcron), distcron.dead_letters
    _refuse_vague(args, bool(filters), False, "dlq purge for all")
    missing = letters.missing(args.ids)
    count = len(set(args.ids)) - len(missing) if args.ids else letters.count(**filters)
    _tell_missing(missing)
    if not count and not missing:
        print(why_none(distcron, filters), file=sys.stderr)
    if count:
        _sure(args, f"Drop {plural(min(count, args.limit or count), 'letter')} for good?")
    dropped = letters.discard(args.ids, limit=args.limit, **filters)
    _say(args, {"discarded": dropped, "missing": missing}, f"{plural(dropped, 'letter')} dropped.")
    return Exit.PARTLY if missing else Exit.OK


def purge(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    letters = distcron.dead_letters
    count = letters.count()
    if not count:
        print(why_none(distcron, {}), file=sys.stderr)
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


def export(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    filters = filters_of(args, distcron)
    missing = distcron.dead_letters.missing(args.ids)
    written = 0
    for line in distcron.dead_letters.export(args.ids, **filters):
        print(line)
        written += 1
    print(f"{plural(written, 'letter')} written.", file=sys.stderr)
    if not written and not missing:
        print(why_none(distcron, filters), file=sys.stderr)
    _tell_missing(missing)
    return Exit.PARTLY if missing else Exit.OK


def import_(args: argparse.Namespace) -> int:
    letters = open_state(args).dead_letters
    try:
        with _opened(args.file) as lines:
            new = letters.import_(lines)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{args.file or 'The input'} cannot be read: {error}") from error
    if new:
        print("What was sent back since it was exported is here again, and would run twice.", file=sys.stderr)
    return _say(args, {"imported": new}, f"{plural(new, 'letter')} kept; what was here already is as it was.")


def _opened(file: str | None) -> AbstractContextManager[Iterable[str]]:
    if file not in (None, "-"):
        return open(str(file), encoding="utf-8")
    if sys.stdin is None:
        raise ConfigurationError("There is no input to read: name the file.")
    return nullcontext(sys.stdin)


def adopt(args: argparse.Namespace) -> int:
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
