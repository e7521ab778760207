"""The verbs on messages that wait for their retry."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..api.others import tell_others
from .exits import Exit
from .output import ago, instant, plural, print_json, print_table, printable
from .parser import count, summary
from .where import add_command, open_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..api.retries import RetryInfo
    from ..middleware.distcron import DistCron

__all__ = ["add_commands"]


def add_commands(commands: Any) -> None:
    group = commands.add_parser(
        "retries", **summary("look at the messages that wait for their retry, hurry or cancel them")
    )
    verbs = group.add_subparsers(metavar="VERB", required=True)
    listing = add_command(verbs, "list", _list, "show the waiting messages and the retry budgets")
    listing.add_argument("--actor", help="only those of this actor")
    listing.add_argument("--queue", help="only those for this queue")
    listing.add_argument("-n", "--limit", type=count, default=50, help="how many (default: 50)")
    run_now = add_command(verbs, "run-now", _run_now, "make a message due at once, whatever its budget says")
    which = run_now.add_mutually_exclusive_group(required=True)
    which.add_argument("id", metavar="ID", nargs="?", help="the message")
    which.add_argument("--all", action="store_true", help="every waiting message")
    cancel = add_command(verbs, "cancel", _cancel, "drop a waiting message for good")
    cancel.add_argument("id", metavar="ID", help="the message")


def _list(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    found = distcron.retries.list(actor=args.actor, queue=args.queue, limit=args.limit)
    waiting, budgets = distcron.retries.count(), distcron.retries.budgets()
    # Programs ask often, and all keys would be walked through for one that finds nothing at all.
    if not found and (waiting or not args.json):
        print(_why_none(distcron, waiting), file=sys.stderr)
    if args.json:
        print_json(
            {
                "retries": [_json(one) for one in found],
                "waiting": waiting,
                "budgets": [{"name": name, **_counts(budget)} for name, budget in sorted(budgets.items())],
            }
        )
        return Exit.OK
    now = distcron.open_backend().store.now()
    print_table(
        ["MESSAGE", "ACTOR", "QUEUE", "FAILED", "ERROR", "DUE", "BUDGET"],
        [_row(one, now, budgets) for one in found],
    )
    if 0 < len(found) < waiting:
        print(f"{waiting} messages wait in all.", file=sys.stderr)
    if budgets:
        print()
        print_table(
            ["BUDGET", "TOKENS", "TAKEN", "PUT OFF"],
            [(name, *_counts(budget).values()) for name, budget in sorted(budgets.items())],
        )
    return Exit.OK


def _why_none(distcron: DistCron, waiting: int) -> str:
    """What to look at where no message waits."""
    if waiting:
        return f"None of the {plural(waiting, 'message')} that wait fits."
    backend = distcron.open_backend()
    told = f"No message of app {distcron.settings.app!r} waits in namespace {backend.namespace!r} of {backend.where}."
    return printable(f"{told} {tell_others(backend)}".rstrip())


def _row(one: RetryInfo, now: int, budgets: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    failed, budget = f"{one.attempt or '?'}x", budgets.get(one.budget or "")
    is_spent = budget is not None and budget["tokens"] < 1
    shown = f"{one.budget}, spent" if is_spent else one.budget or "-"
    return one.id, one.actor, one.queue, failed, one.error or "-", _due(one, now), shown


def _due(one: RetryInfo, now: int) -> str:
    return "now, by hand" if one.due_at == 0 else ago(one.due_at, now)


def _json(one: RetryInfo) -> dict[str, Any]:
    return {
        **asdict(one),
        "first_failed_at": instant(one.first_failed_at),
        "due_at": instant(one.due_at or None),
        "fire_time": instant(one.fire_time),
    }


def _counts(budget: Mapping[str, float]) -> dict[str, Any]:
    return {"tokens": round(budget["tokens"], 3), "taken": int(budget["taken"]), "put_off": int(budget["put_off"])}


def _run_now(args: argparse.Namespace) -> int:
    retries = open_state(args).retries
    if args.all:
        return _say(args, {"hurried": retries.run_all_now()}, "{hurried} messages are due now.")
    retries.run_now(args.id)
    return _say(args, {"id": args.id, "done": "run_now"}, "Message {id} is due now.")


def _cancel(args: argparse.Namespace) -> int:
    open_state(args).retries.cancel(args.id)
    return _say(args, {"id": args.id, "done": "cancelled"}, "Message {id} is dropped.")


def _say(args: argparse.Namespace, done: dict[str, Any], text: str) -> int:
    if args.json:
        print_json(done)
    else:
        print(text.format(**done))
    return Exit.OK
