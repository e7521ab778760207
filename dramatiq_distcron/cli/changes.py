"""The verbs that change stored schedules, or run one."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ..durations import utc
from ..errors import ConfigurationError
from .exits import Exit
from .output import print_json, state_of
from .parser import duration
from .where import add_named, open_state

__all__ = ["add_commands"]

#: In seconds: 36500 days.
_LONGEST_PAUSE = 36_500 * 86_400


def add_commands(commands: Any) -> None:
    pause = add_named(commands, "pause", _pause, "let a schedule's fire times pass unfired, until it is resumed")
    pause.add_argument("--reason", metavar="R", default="", help="why, for the history")
    pause.add_argument(
        "--for", metavar="D", dest="duration", type=duration(_length), help="end by itself after 90s, 15m, 2h"
    )
    pause.too_many = "Quote a reason of several words; a duration is one word: --for 15m."
    add_named(commands, "resume", _resume, "let a paused schedule fire again, from now on")
    add_named(commands, "trigger", _trigger, "enqueue a schedule's message now, beside its fire times")
    add_named(commands, "remove", _remove, "remove a schedule that came by the API")


def _length(seconds: float) -> float:
    if not 0 < seconds <= _LONGEST_PAUSE:
        raise ConfigurationError("a pause lasts more than 0 s and at most 36500d; without --for it lasts until resume")
    return seconds


def _pause(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    until = None
    if args.duration is not None:
        until = utc(distcron.open_backend().store.now() + round(args.duration * 1000))
    distcron.schedules.pause(args.name, reason=args.reason, until=until)
    return _say(args, "paused", f"Paused {args.name!r}" + (f" until {until:%Y-%m-%d %H:%M:%S}Z." if until else "."))


def _resume(args: argparse.Namespace) -> int:
    if open_state(args).schedules.resume(args.name):
        return _say(args, "resumed", f"Resumed {args.name!r}. What came in the pause is not made up for.")
    return _say(args, "resumed", f"{args.name!r} was not paused. Nothing was changed.")


def _remove(args: argparse.Namespace) -> int:
    open_state(args).schedules.remove(args.name)
    return _say(args, "removed", f"Removed {args.name!r}.")


def _say(args: argparse.Namespace, done: str, text: str) -> int:
    if args.json:
        print_json({"schedule": args.name, "done": done})
    else:
        print(text)
    return Exit.OK


def _trigger(args: argparse.Namespace) -> int:
    schedules = open_state(args).schedules
    # Before it is run: somebody may remove it right after.
    state = state_of(schedules.get(args.name))
    message = schedules.trigger(args.name)
    if state != "active":
        print(f"The schedule is {state}: it was run this once, and does not fire by itself.", file=sys.stderr)
    if args.json:
        print_json(
            {
                "schedule": args.name,
                "message_id": message.message_id,
                "actor": message.actor_name,
                "queue": message.queue_name,
            }
        )
    else:
        print(f"Enqueued {message.actor_name} on {message.queue_name!r} as message {message.message_id}.")
    return Exit.OK
