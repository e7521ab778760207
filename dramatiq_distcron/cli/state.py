"""The verbs that look at the stored schedules."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..api.others import tell_others
from .exits import Exit
from .output import ago, instant, print_json, print_table, state_of
from .parser import count
from .where import add_command, add_named, open_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..api.infos import RunInfo, ScheduleInfo, TickInfo
    from ..api.status import Status
    from ..middleware.distcron import DistCron

__all__ = ["add_commands"]

#: What `list` leaves out.
_ONLY_IN_SHOW = ("args", "kwargs", "policy", "reason", "encoder")
#: So much of an error is shown in a table.
_SHOWN = 100


def add_commands(commands: Any) -> None:
    add_command(commands, "list", _list, "show the schedules with their next and last fire times")
    following = add_command(commands, "next", _next, "show the next fire times of all schedules, in order")
    following.add_argument("-n", "--limit", type=count, default=10, help="how many (default: 10)")
    add_named(commands, "show", _show, "show one schedule, with the reason if it is paused or disabled")
    history = add_command(commands, "history", _history, "show what became of fire times, newest first")
    history.add_argument("name", metavar="NAME", nargs="?", help="the schedule (default: all)")
    history.add_argument("-n", "--limit", type=count, default=20, help="how many records (default: 20)")
    add_command(commands, "status", _status, "show who leads, who stands by, and the server")


def _list(args: argparse.Namespace) -> int:
    distcron = open_state(args)
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
                state_of(one),
                ago(one.next_fire_time, now),
                ago(one.last_fire_time, now),
                one.last_outcome or "-",
            )
            for one in schedules
        ],
    )
    _hint(distcron, empty=not schedules)
    return Exit.OK


def _hint(distcron: DistCron, *, empty: bool) -> None:
    """Why there may be nothing to see, to those who look for it."""
    backend = distcron.open_backend()
    if empty:
        others = tell_others(backend)
        print(
            f"No schedule is stored for app {distcron.settings.app!r} in namespace {backend.namespace!r} of "
            f"{backend.where}. {others or 'Is it the right one?'} See --redis-url, --namespace and --app.",
            file=sys.stderr,
        )
    elif backend.store.leader() is None:
        print("Nobody leads, so nothing is fired. Start one with: dramatiq-distcron beat BROKER", file=sys.stderr)


def _schedule_json(one: ScheduleInfo) -> dict[str, Any]:
    shown = asdict(one)
    for name in _ONLY_IN_SHOW:
        del shown[name]
    return {
        **shown,
        "next_fire_time": instant(one.next_fire_time),
        "last_fire_time": instant(one.last_fire_time),
    }


def _next(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    schedules = distcron.schedules.list()
    coming = [one for one in schedules if one.state == "active" and one.next_fire_time is not None]
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
        [(ago(one.next_fire_time, now), one.name, one.actor, state_of(one)) for one in coming],
    )
    if not schedules:
        _hint(distcron, empty=True)
    return Exit.OK


def _show(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    one = distcron.schedules.get(args.name)
    if args.json:
        print_json({**_schedule_json(one), **{name: getattr(one, name) for name in _ONLY_IN_SHOW}})
        return Exit.OK
    store = distcron.open_backend().store
    now, held = store.now(), one.policy.get("overlap", "allow") != "allow" and store.outstanding(one.name)
    rows = {
        "schedule": one.name,
        "when": f"{one.expression} ({one.timezone})" if one.timezone else one.expression,
        "actor": f"{one.actor}, on queue {one.queue!r}",
        "state": state_of(one),
        "called with": _call(one),
        "policies": ", ".join(f"{name}={value!r}" for name, value in one.policy.items()),
        "defined in": one.source,
        "next": ago(one.next_fire_time, now),
        "last": f"{ago(one.last_fire_time, now)} {one.last_outcome or ''}".rstrip(),
        "waits for": held and f"the end of message {held}",
        "reason": one.reason,
    }
    for name, value in rows.items():
        if value:
            print(f"{name + ':':<12} {value}")
    return Exit.OK


def _call(one: ScheduleInfo) -> str:
    """The arguments of the actor, as they are written in Python."""
    if one.encoder:
        return f"arguments that {one.encoder} encoded"
    named = (one.kwargs or {}).items()
    return ", ".join([*map(repr, one.args or ()), *(f"{name}={value!r}" for name, value in named)])


def _history(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    ticks = distcron.schedules.history(args.name, limit=args.limit)
    if args.json:
        print_json({"ticks": [_tick_json(tick) for tick in ticks]})
        return Exit.OK
    if not ticks:
        print("Nothing is recorded yet.")
        if not distcron.open_backend().store.count():
            _hint(distcron, empty=True)
        return Exit.OK
    now = distcron.open_backend().store.now()
    print_table(
        ["SCHEDULE", "FIRE TIME", "COUNT", "OUTCOME", "LATE", "RUN", "MESSAGE", "REASON"],
        [
            (
                tick.schedule,
                ago(tick.fire_time, now),
                tick.count,
                tick.outcome,
                "-" if tick.lateness_ms is None else f"{tick.lateness_ms} ms",
                tick.run.state if tick.run else "-",
                (tick.run.message_id if tick.run else tick.message_id) or "-",
                _why(tick),
            )
            for tick in ticks
        ],
    )
    return Exit.OK


def _why(tick: TickInfo) -> str:
    """Why it came to this outcome, and why its run did."""
    error = tick.run.error if tick.run and tick.run.error else ""
    return "; ".join(filter(None, (tick.reason, error if len(error) <= _SHOWN else f"{error[:_SHOWN]}...")))


def _tick_json(tick: TickInfo) -> dict[str, Any]:
    return {
        **asdict(tick),
        "fire_time": instant(tick.fire_time),
        "fire_time_to": instant(tick.fire_time_to),
        "decided_at": instant(tick.decided_at),
        "run": tick.run and _run_json(tick.run),
    }


def _run_json(run: RunInfo) -> dict[str, Any]:
    times = {"started_at": instant(run.started_at), "finished_at": instant(run.finished_at)}
    return {"state": run.state, **times, "error": run.error}


def _status(args: argparse.Namespace) -> int:
    distcron = open_state(args)
    status = distcron.status()
    if args.json:
        print_json(
            {
                "leader": status.leader and {**asdict(status.leader), "since": instant(status.leader.since)},
                "instances": [_instance_json(one) for one in status.instances],
                "redis": dict(status.redis),
                "dead_letters": dict(status.dead_letters),
            }
        )
        return Exit.OK
    now = distcron.open_backend().store.now()
    _tell_leader(distcron, status, now)
    columns = ["ROLE", "HOST", "PID", "VERSION", "STARTED", "LAST PASS", "HEARD OF", "HOLDER"]
    print_table(columns, [_instance_row(one, now) for one in status.instances])
    _tell_store(status)
    return Exit.OK


def _tell_leader(distcron: DistCron, status: Status, now: int) -> None:
    if status.leader:
        since = ago(status.leader.since, now)
        print(f"Leader: {status.leader.holder}, term {status.leader.term}, since {since}")
    else:
        print("Leader: none. Start one with: dramatiq-distcron beat BROKER")
        if not distcron.open_backend().store.count():
            _hint(distcron, empty=True)
    for one in status.instances:
        if one["role"] == "leader" and one.get("disabled"):
            print(f"Disabled: the leader was started with {one['disabled']}, so nothing is enqueued.")


def _instance_row(one: Mapping[str, Any], now: int) -> tuple[Any, ...]:
    times = (ago(one[name], now) for name in ("started_at", "last_pass_at", "last_seen_at"))
    return one["role"], one["host"], one["pid"], one["version"], *times, one["holder"]


def _tell_store(status: Status) -> None:
    kept, told = status.dead_letters["kept"], status.dead_letters["told"]
    queue = status.dead_letters["queue"]
    print(f"Dead letters: {kept}{'' if told else f', and no worker consumes the queue {queue} to tell of them'}")
    print("Redis: " + ", ".join(f"{key} {value}" for key, value in status.redis.items() if key != "notices"))
    for notice in status.redis["notices"]:
        print(f"Notice: {notice}")


def _instance_json(one: Any) -> dict[str, Any]:
    shown = {name: one[name] for name in ("holder", "role", "host", "pid", "version")}
    times = {name: instant(one[name]) for name in ("started_at", "last_pass_at", "last_seen_at")}
    return {**shown, **times, "disabled": one.get("disabled") or None}
