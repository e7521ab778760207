"""The verbs that look at the stored schedules, or change them."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..backends import broker_at
from ..durations import utc
from ..errors import ConfigurationError
from ..middleware.distcron import DistCron, install
from .exits import Exit
from .loading import load_app
from .output import ago, instant, print_json, print_table
from .parser import count, duration

if TYPE_CHECKING:
    from ..api.infos import RunInfo, ScheduleInfo, TickInfo

__all__ = ["add_commands"]

_DEFAULT_URL = "redis://127.0.0.1:6379/0"


def add_commands(commands: Any) -> None:
    _add(commands, "list", _list, "show the schedules with their next and last fire times")
    following = _add(commands, "next", _next, "show the next fire times of all schedules, in order")
    following.add_argument("-n", "--limit", type=count, default=10, help="how many (default: 10)")
    _add_named(commands, "show", _show, "show one schedule with all that is stored of it")
    history = _add_named(commands, "history", _history, "show what became of a schedule's fire times, newest first")
    history.add_argument("-n", "--limit", type=count, default=20, help="how many records (default: 20)")
    _add(commands, "status", _status, "show who leads, who stands by, and the server")
    pause = _add_named(commands, "pause", _pause, "let a schedule's fire times pass unfired, until it is resumed")
    pause.add_argument("--reason", metavar="R", default="", help="why, for the history")
    pause.add_argument(
        "--for", metavar="D", dest="duration", type=duration(float), help="end by itself after 90s, 15m, 2h"
    )
    _add_named(commands, "resume", _resume, "let a paused schedule fire again, from now on")
    _add_named(commands, "trigger", _trigger, "enqueue a schedule's message now, beside its fire times")
    _add_named(commands, "remove", _remove, "remove a schedule that came by the API")


def _add_named(commands: Any, name: str, run: Any, summary: str) -> argparse.ArgumentParser:
    parser = _add(commands, name, run, summary)
    parser.add_argument("name", metavar="NAME", help="the schedule")
    return parser


def _add(commands: Any, name: str, run: Any, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:] + "."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    where = parser.add_argument_group("where the state is")
    where.add_argument("--broker", metavar="MODULE[:NAME]", help="the app whose broker says it")
    where.add_argument("--path", "-P", default=["."], nargs="*", help="the module import path (default: .)")
    where.add_argument("--redis-url", metavar="URL", help=f"default: $DISTCRON_REDIS_URL, else {_DEFAULT_URL}")
    where.add_argument("--namespace", metavar="NS", help="prefix of Dramatiq's keys (default: dramatiq)")
    where.add_argument("--app", metavar="APP", help="the app's name, as in DistCron(app=...) (default: default)")
    parser.set_defaults(run=run, parser=parser)
    return parser


def _open(args: argparse.Namespace) -> DistCron:
    """The app's middleware, or one that knows no code and finds the state by its URL."""
    if args.broker:
        if args.redis_url or args.namespace or args.app:
            raise ConfigurationError("--broker says where the state is; leave out --redis-url, --namespace and --app.")
        return load_app(args.broker, (), args.path)
    url = args.redis_url or os.environ.get("DISTCRON_REDIS_URL") or _DEFAULT_URL
    namespace = args.namespace or os.environ.get("DISTCRON_NAMESPACE") or "dramatiq"
    options: Any = {"app": args.app} if args.app else {}
    return install(broker_at(url, namespace), **options)


def _list(args: argparse.Namespace) -> int:
    distcron = _open(args)
    schedules = distcron.schedules.list()
    if args.json:
        print_json({"schedules": [_schedule_json(one) for one in schedules]})
        return Exit.OK
    now = distcron.open_backend().store.now()
    print_table(
        ["SCHEDULE", "WHEN", "ZONE", "ACTOR", "STATE", "NEXT", "LAST", "OUTCOME"],
        [
            (
                one.name,
                one.expression,
                one.timezone or "-",
                one.actor,
                _state_of(one),
                ago(one.next_fire_time, now),
                ago(one.last_fire_time, now),
                one.last_outcome or "-",
            )
            for one in schedules
        ],
    )
    return Exit.OK


def _schedule_json(one: ScheduleInfo) -> dict[str, Any]:
    shown = asdict(one)
    del shown["reason"]
    return {
        **shown,
        "next_fire_time": instant(one.next_fire_time),
        "last_fire_time": instant(one.last_fire_time),
    }


def _next(args: argparse.Namespace) -> int:
    distcron = _open(args)
    coming = [one for one in distcron.schedules.list() if one.next_fire_time is not None]
    coming = sorted(coming, key=lambda one: (one.next_fire_time, one.name))[: args.limit]
    if args.json:
        print_json(
            {
                "next": [
                    {"schedule": one.name, "fire_time": instant(one.next_fire_time), "paused": one.paused}
                    for one in coming
                ]
            }
        )
        return Exit.OK
    now = distcron.open_backend().store.now()
    print_table(
        ["NEXT", "SCHEDULE", "ACTOR", "STATE"],
        [(ago(one.next_fire_time, now), one.name, one.actor, _state_of(one)) for one in coming],
    )
    return Exit.OK


def _show(args: argparse.Namespace) -> int:
    distcron = _open(args)
    one = distcron.schedules.get(args.name)
    if args.json:
        print_json(_schedule_json(one))
        return Exit.OK
    now = distcron.open_backend().store.now()
    rows = {
        "schedule": one.name,
        "when": f"{one.expression} ({one.timezone})" if one.timezone else one.expression,
        "actor": f"{one.actor}, on queue {one.queue!r}",
        "state": _state_of(one),
        "defined in": one.source,
        "next": ago(one.next_fire_time, now),
        "last": f"{ago(one.last_fire_time, now)} {one.last_outcome or ''}",
        "reason": one.reason,
    }
    for name, value in rows.items():
        if value:
            print(f"{name + ':':<12} {value}")
    return Exit.OK


def _state_of(one: ScheduleInfo) -> str:
    return "paused" if one.paused and one.state == "active" else one.state


def _pause(args: argparse.Namespace) -> int:
    distcron = _open(args)
    until = None
    if args.duration is not None:
        until = utc(distcron.open_backend().store.now() + round(args.duration * 1000))
    distcron.schedules.pause(args.name, reason=args.reason, until=until)
    return _say(args, "paused", f"Paused {args.name!r}" + (f" until {until:%Y-%m-%d %H:%M:%S}Z." if until else "."))


def _resume(args: argparse.Namespace) -> int:
    _open(args).schedules.resume(args.name)
    return _say(args, "resumed", f"Resumed {args.name!r}. What came in the pause is not made up for.")


def _remove(args: argparse.Namespace) -> int:
    _open(args).schedules.remove(args.name)
    return _say(args, "removed", f"Removed {args.name!r}.")


def _say(args: argparse.Namespace, done: str, text: str) -> int:
    if args.json:
        print_json({"schedule": args.name, "done": done})
    else:
        print(text)
    return Exit.OK


def _history(args: argparse.Namespace) -> int:
    distcron = _open(args)
    ticks = distcron.schedules.history(args.name, limit=args.limit)
    if args.json:
        print_json({"ticks": [_tick_json(tick) for tick in ticks]})
        return Exit.OK
    if not ticks:
        print("Nothing is recorded yet.")
        return Exit.OK
    now = distcron.open_backend().store.now()
    print_table(
        ["FIRE TIME", "COUNT", "OUTCOME", "LATE", "RUN", "MESSAGE", "REASON"],
        [
            (
                ago(tick.fire_time, now),
                tick.count,
                tick.outcome,
                "-" if tick.lateness_ms is None else f"{tick.lateness_ms} ms",
                tick.run.state if tick.run else "-",
                tick.message_id or "-",
                tick.reason,
            )
            for tick in ticks
        ],
    )
    return Exit.OK


def _tick_json(tick: TickInfo) -> dict[str, Any]:
    return {
        **asdict(tick),
        "fire_time": instant(tick.fire_time),
        "fire_time_to": instant(tick.fire_time_to),
        "decided_at": instant(tick.decided_at),
        "run": tick.run and _run_json(tick.run),
    }


def _run_json(run: RunInfo) -> dict[str, Any]:
    return {**asdict(run), "started_at": instant(run.started_at), "finished_at": instant(run.finished_at)}


def _status(args: argparse.Namespace) -> int:
    distcron = _open(args)
    status = distcron.status()
    leader = status.leader
    if args.json:
        print_json(
            {
                "leader": leader and {**asdict(leader), "since": instant(leader.since)},
                "instances": [_instance_json(one) for one in status.instances],
                "redis": dict(status.redis),
            }
        )
        return Exit.OK
    now = distcron.open_backend().store.now()
    if leader:
        print(f"Leader: {leader.holder}, term {leader.term}, since {ago(leader.since, now)}")
    else:
        print("Leader: none. Start one with: dramatiq-distcron beat BROKER")
    print_table(
        ["ROLE", "HOST", "PID", "VERSION", "STARTED", "LAST PASS", "HOLDER"],
        [
            (
                one["role"],
                one["host"],
                one["pid"],
                one["version"],
                ago(one["started_at"], now),
                ago(one["last_pass_at"], now),
                one["holder"],
            )
            for one in status.instances
        ],
    )
    print("Redis: " + ", ".join(f"{key} {value}" for key, value in status.redis.items() if key != "notices"))
    for notice in status.redis["notices"]:
        print(f"Notice: {notice}")
    return Exit.OK


def _instance_json(one: Any) -> dict[str, Any]:
    shown = {name: one[name] for name in ("holder", "role", "host", "pid", "version")}
    return {**shown, "started_at": instant(one["started_at"]), "last_pass_at": instant(one["last_pass_at"])}


def _trigger(args: argparse.Namespace) -> int:
    message = _open(args).schedules.trigger(args.name)
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
