"""``dramatiq-distcron beat``: runs the schedules."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from ..beat import Beat
from ..clock import wall_ms
from ..config import checked_lease_ttl
from ..errors import ConflictError
from ..letters import DLQ_ACTOR
from ..logs import get_logger
from ..version import VERSION
from ..zones import tzdata_version
from .exits import Exit
from .loading import load_app
from .logging_setup import set_up_logging
from .output import ago, print_table
from .parser import duration
from .pid_file import pid_file
from .signals import stopping_signals

if TYPE_CHECKING:
    from ..middleware.distcron import DistCron

__all__ = ["DEV_SERVER", "add_app_arguments", "add_commands"]

#: The server that ``dev`` runs, told to its beat.
DEV_SERVER = "DISTCRON_DEV_SERVER"

_DESCRIPTION = """\
Runs the schedules of an app. Start it on as many hosts as you like: one of them leads, the others stand by, and each
tick is enqueued once, whoever is killed or cut off.

examples:
  # Fire the schedules of the actors in ./app.py
  $ dramatiq-distcron beat app

  # With a broker named "broker" in it, and more modules with actors
  $ dramatiq-distcron beat app:broker app.tasks
"""


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("beat", help="run the schedules of an app", description=_DESCRIPTION)
    add_app_arguments(parser)
    parser.add_argument("--version", action="version", version=VERSION)
    parser.add_argument("--verbose", "-v", action="count", default=0, help="turn on verbose log output")
    parser.add_argument("--pid-file", metavar="F", help="write our pid to a file (default: no pid file)")
    parser.add_argument("--log-file", metavar="F", help="write the log to a file (default: stderr)")
    parser.add_argument("--log-format", choices=["text", "json"], default="text", help="how the log looks")
    parser.add_argument("--skip-logging", action="store_true", help="leave logging to the app's own set-up")
    parser.add_argument(
        "--lease-ttl",
        metavar="S",
        type=duration(checked_lease_ttl),
        help="life of the lease in seconds: how long after a kill a standby takes over (default: DistCron's, 3)",
    )
    parser.add_argument(
        "--adopt", action="store_true", help="take over the state of another code base with this app's name"
    )
    parser.add_argument("--once", action="store_true", help="fire what is due now, then end")
    parser.set_defaults(run=_run, parser=parser)


def add_app_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that say which app; they are periodiq's and Dramatiq's."""
    parser.add_argument("broker", metavar="BROKER", help="the broker to use (eg: 'module' or 'module:a_broker')")
    parser.add_argument("modules", metavar="MODULE", nargs="*", default=[], help="additional python modules to import")
    parser.add_argument("--path", "-P", default=["."], nargs="*", help="the module import path (default: .)")


def _run(args: argparse.Namespace) -> int:
    if not args.skip_logging:
        set_up_logging(args.verbose, args.log_file, args.log_format)
    distcron = load_app(args.broker, args.modules, args.path)
    get_logger(__name__, Beat).info("Time zones: %s.", tzdata_version())
    _refuse_elsewhere(distcron)
    _warn_of_disabled(distcron)
    _warn_of_memory(distcron)
    owner = args.broker.partition(":")[0]
    beat = Beat(distcron, owner=owner, adopt=args.adopt, lease_ttl=args.lease_ttl)
    # What is loaded stays: the collector need not walk through it after each thousand ticks.
    gc.collect()
    gc.freeze()
    with pid_file(args.pid_file):
        _show_schedules(distcron, args)
        if args.once:
            return _once(beat)
        _stop_on_signals(beat)
        beat.run()
    return Exit.OK


def _refuse_elsewhere(distcron: DistCron) -> None:
    """Started by ``dev``, for its own server: an app that looks elsewhere might be meant for production."""
    server = os.environ.get(DEV_SERVER)
    if not server:
        return
    where = distcron.open_backend().where
    if where not in (server, "memory"):
        raise ConflictError(
            f"The app's broker is at {where}, and dev runs its own server at {server}: nothing was started, so that "
            'nothing is touched there. Let the app find it: RedisBroker(url=os.environ["DISTCRON_REDIS_URL"]).'
        )


def _warn_of_disabled(distcron: DistCron) -> None:
    if distcron.settings.disabled:
        get_logger(__name__, Beat).warning(
            "%s: if this beat leads, nothing is enqueued, and each fire time is recorded as disabled.",
            distcron.settings.disabled,
        )


def _warn_of_memory(distcron: DistCron) -> None:
    if distcron.open_backend().where == "memory":
        get_logger(__name__, Beat).warning(
            "The broker is a %s: its messages stay in this process, and no worker sees them. It is meant for tests.",
            type(distcron.broker).__name__,
        )


def _once(beat: Beat) -> int:
    if not beat.run_once():
        print("Another beat is on duty; nothing was done.", file=sys.stderr)
    return Exit.OK


def _show_schedules(distcron: DistCron, args: argparse.Namespace) -> None:
    specs = distcron.specs()
    if not specs:
        scanned = ", ".join([args.broker.partition(":")[0], *args.modules])
        get_logger(__name__, Beat).warning(
            "No schedules were found. Modules scanned: %s, with the actors %s. Name the modules that declare periodic "
            "actors after the broker: dramatiq-distcron beat %s MODULE ...",
            scanned,
            ", ".join(sorted(set(distcron.broker.actors) - {DLQ_ACTOR})) or "(none)",
            args.broker,
        )
        return
    # Only for reading; what is fired goes by the store's clock.
    now = wall_ms()
    rows = sorted(
        (spec.timing.next_ms(now) or 0, name, spec.timing.expression, spec.timing.timezone or "-", spec.actor)
        for name, spec in specs.items()
    )
    print_table(
        ["SCHEDULE", "WHEN", "ZONE", "ACTOR", "NEXT"],
        [(name, when, zone, actor, ago(at or None, now)) for at, name, when, zone, actor in rows],
    )
    app = distcron.settings.app
    if os.environ.get(DEV_SERVER) and app != "default":
        print(f"In another terminal: export DISTCRON_APP={app}")
    print(f"Try one: dramatiq-distcron trigger {rows[0][1]!r} --broker {args.broker}", flush=True)


def _stop_on_signals(beat: Beat) -> None:
    def stop(number: int, frame: Any) -> None:
        if beat.is_stopping:
            raise SystemExit(Exit.KILLED)
        beat.stop()

    for number in stopping_signals():
        signal.signal(number, stop)
