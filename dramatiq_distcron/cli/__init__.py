"""The command line. It parses, calls, and shows; it decides nothing."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence

from dramatiq_distcron.cli import beat, changes, dlq, explain, retries, server, state
from dramatiq_distcron.cli.exits import Exit, exit_code_of
from dramatiq_distcron.cli.parser import Parser
from dramatiq_distcron.errors import DistCronError, StoreUnavailable
from dramatiq_distcron.middleware.distcron import installed
from dramatiq_distcron.version import VERSION

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    args = _parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names and reasons are the users'; what this terminal cannot show must not end a command.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return int(args.run(args))
    except DistCronError as error:
        by_default = isinstance(error, StoreUnavailable) and getattr(args, "redis_url", "") is None and not args.broker
        by_default = by_default and not os.environ.get("DISTCRON_REDIS_URL")
        hint = ". Say where it is with --redis-url or DISTCRON_REDIS_URL." if by_default else ""
        print(f"dramatiq-distcron: {str(error).rstrip('.') if hint else error}{hint}", file=sys.stderr)
        return exit_code_of(error)
    except KeyboardInterrupt:
        return Exit.KILLED
    except BrokenPipeError:
        # Whoever read our output (head, less) has seen enough; the interpreter would try again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO):
            raise
        print(f"dramatiq-distcron: the output cannot be written: {error.strerror}", file=sys.stderr)
        return Exit.KILLED
    finally:
        for distcron in installed():
            distcron.close()


def _parser() -> Parser:
    parser = Parser(
        prog="dramatiq-distcron",
        description="Periodic jobs for Dramatiq that stay safe on many machines.",
        epilog="Each command explains itself: dramatiq-distcron beat --help",
    )
    parser.add_argument("--version", action="version", version=VERSION)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    for face in (beat, server, state, changes, explain, retries, dlq):
        face.add_commands(commands)
    return parser
