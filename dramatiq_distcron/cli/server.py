"""``server``, ``dev`` and ``demo``: what needs no Redis of your own."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from ..demo.processes import Child, beat_command, worker_command
from ..demo.run import SHORTEST, run
from ..demo.show import Show
from ..errors import ConfigurationError
from ..server import Server
from ..waking import Wake
from .beat import DEV_SERVER, add_app_arguments
from .exits import Exit
from .output import print_json
from .parser import count, duration, summary
from .signals import sigterm_as_ctrl_c, stopped_by_signal

__all__ = ["add_commands"]

_DEV = """\
Runs a server of its own, one beat and one worker process for your app, until Ctrl-C. The app finds the server in the
environment:

  broker = RedisBroker(url=os.environ["DISTCRON_REDIS_URL"])
"""


def add_commands(commands: Any) -> None:
    demo = commands.add_parser("demo", **summary("see a leader killed and no tick lost or doubled; needs no Redis"))
    demo.add_argument(
        "--duration", metavar="S", type=duration(_length), default=20.0, help="about how long (default: 20 s)"
    )
    demo.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    demo.set_defaults(run=_demo, parser=demo)

    server = commands.add_parser("server", **summary("run an embedded server in the foreground and print its URL"))
    server.add_argument("--port", type=_port, help="the port on 127.0.0.1 (default: a free one)")
    server.add_argument("--directory", metavar="DIR", help="keep the data there (default: keep nothing)")
    server.set_defaults(run=_server, parser=server)

    dev = commands.add_parser(
        "dev", help="run an embedded server, one beat and one worker process for your app", description=_DEV
    )
    add_app_arguments(dev)
    dev.set_defaults(run=_dev, parser=dev)


def _port(text: str) -> int:
    port = count(text)
    if port > 65_535:
        raise argparse.ArgumentTypeError(f"{text} is no port: they go from 1 to 65535")
    return port


def _length(seconds: float) -> float:
    if not SHORTEST <= seconds <= 3600:
        raise ConfigurationError(f"must be from {SHORTEST:g} s to 1 h, so that there is time for a takeover")
    return seconds


def _demo(args: argparse.Namespace) -> int:
    show = Show(quiet=args.json)
    with sigterm_as_ctrl_c():
        proof = run(args.duration, show)
    if args.json:
        print_json(proof.to_json())
    else:
        show.proof(proof)
    return Exit.OK if proof.ok else Exit.KILLED


def _server(args: argparse.Namespace) -> int:
    stopped = stopped_by_signal()
    with Server(port=args.port, directory=args.directory) as server:
        print(server.url, flush=True)
        while not stopped.wait(0.5):
            if not server.alive:
                print(f"The server ended by itself.\n{server.log_tail()}", file=sys.stderr)
                return Exit.KILLED
    return Exit.OK


def _dev(args: argparse.Namespace) -> int:
    stopped = stopped_by_signal()
    path = ["--path", *args.path]
    with Server() as server, ExitStack() as stack:
        print(f"Server: {server.url}, version {server.version}")
        print(f"In another terminal: export DISTCRON_REDIS_URL={server.url}", flush=True)
        env = {"DISTCRON_REDIS_URL": server.url, "REDIS_URL": server.url, DEV_SERVER: server.url}
        pid_file = os.path.join(stack.enter_context(tempfile.TemporaryDirectory(prefix="distcron-dev-")), "beat.pid")
        command = [*beat_command(args.broker, *args.modules, "--pid-file", pid_file), *path]
        beat = Child("beat", command, env, echo=True)
        stack.callback(beat.end)
        # No worker before the beat has found the app good: it would bury the reason under its own complaint, and
        # take messages from wherever the app looks for them.
        if not _until(lambda: os.path.exists(pid_file), beat, stopped):
            return Exit.OK if stopped.is_set() else beat.wait()
        modules = [*args.modules, "dramatiq_distcron.demo.leash"]
        worker = Child("worker", [*worker_command(args.broker, modules), *path], env, echo=True)
        stack.callback(worker.end)
        # Both are told before one is waited for: a beat should not go on for workers that leave.
        stack.callback(worker.terminate)
        stack.callback(beat.terminate)
        ended = _until_one_ends([beat, worker], stopped)
        if ended is not None:
            print(f"The {ended.name} ended by itself.", file=sys.stderr)
            return Exit.KILLED
    return Exit.OK


def _until(is_so: Callable[[], bool], child: Child, stopped: Wake) -> bool:
    """Waits for it. False: the child ended, or we are to."""
    while not is_so():
        if not child.alive or stopped.wait(0.05):
            return False
    return True


def _until_one_ends(children: list[Child], stopped: Wake) -> Child | None:
    while not stopped.wait(0.5):
        for child in children:
            if not child.alive:
                return child
    return None
