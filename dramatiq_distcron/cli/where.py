"""Where the state is: the arguments that say it, and the middleware they lead to."""

from __future__ import annotations

import argparse
import os
from typing import Any

from ..backends import broker_at
from ..errors import ConfigurationError
from ..middleware.distcron import DistCron, install
from .loading import load_app
from .parser import Parser, summary

__all__ = ["add_command", "add_named", "open_state"]

_DEFAULT_URL = "redis://127.0.0.1:6379/0"


def add_named(commands: Any, name: str, run: Any, text: str) -> Parser:
    """A command for one schedule."""
    parser = add_command(commands, name, run, text)
    parser.add_argument("name", metavar="NAME", help="the schedule")
    return parser


def add_command(commands: Any, name: str, run: Any, text: str, *, json: bool = True) -> Parser:
    """A command on the stored state."""
    parser: Parser = commands.add_parser(name, **summary(text))
    if json:
        parser.add_argument("--json", action="store_true", help="print one JSON object")
    where = parser.add_argument_group("where the state is")
    where.add_argument("--broker", metavar="MODULE[:NAME]", help="the app whose broker says it")
    where.add_argument("--path", "-P", default=["."], nargs="*", help="the module import path (default: .)")
    where.add_argument("--redis-url", metavar="URL", help=f"default: $DISTCRON_REDIS_URL, else {_DEFAULT_URL}")
    where.add_argument(
        "--namespace", metavar="NS", help="prefix of the keys; default: $DISTCRON_NAMESPACE, else dramatiq"
    )
    where.add_argument("--app", metavar="APP", help="as in DistCron(app=...); default: $DISTCRON_APP, else default")
    parser.set_defaults(run=run, parser=parser)
    return parser


def open_state(args: argparse.Namespace) -> DistCron:
    """The app's middleware, or one that knows no code and finds the state by its URL."""
    if args.broker:
        if args.redis_url or args.namespace or args.app:
            raise ConfigurationError("--broker says where the state is; leave out --redis-url, --namespace and --app.")
        return load_app(args.broker, (), args.path)
    url = args.redis_url or os.environ.get("DISTCRON_REDIS_URL") or _DEFAULT_URL
    namespace = args.namespace or os.environ.get("DISTCRON_NAMESPACE") or "dramatiq"
    options: Any = {"app": args.app} if args.app else {}
    return install(broker_at(url, namespace), **options)
