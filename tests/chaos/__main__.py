"""``python -m tests.chaos``: one run, its report, and an exit code that says whether the promise was kept."""

from __future__ import annotations

import argparse
import json
import pickle
import random
import sys
from pathlib import Path

from .cluster import Settings
from .faults import KINDS
from .planted import BUGS
from .report import as_json, lines
from .run import run


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long things go wrong (default: 60)")
    parser.add_argument("--seed", type=int, help="of schedules, edits and faults (default: any)")
    parser.add_argument("--schedules", type=int, default=300)
    parser.add_argument("--beats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lease", type=float, default=3.0, help="life of the lease in seconds (default: 3)")
    parser.add_argument("--pace", type=float, default=1.2, help="seconds between two faults, about (default: 1.2)")
    parser.add_argument("--faults", nargs="*", choices=list(KINDS), default=list(KINDS), metavar="KIND", help=_kinds())
    parser.add_argument("--server", type=Path, help="binary of the server (default: what is found)")
    parser.add_argument("--hooked", action="store_true", help="with a middleware that listens to what is enqueued")
    parser.add_argument("--planted", choices=list(BUGS), default="", help="with this bug built in")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the figures to a file, one line a run")
    parser.add_argument("--dump", type=Path, metavar="FILE", help="keep the outcome, pickled, for a closer look")
    return parser


def _kinds() -> str:
    return f"only these kinds of faults: {', '.join(KINDS)}"


def main() -> int:
    args = _parser().parse_args()
    seed = random.SystemRandom().randrange(10**6) if args.seed is None else args.seed
    settings = Settings(
        seconds=args.seconds,
        seed=seed,
        schedules=args.schedules,
        beats=args.beats,
        workers=args.workers,
        lease=args.lease,
        faults=tuple(args.faults),
        pace=args.pace,
        binary=args.server,
        hooked=args.hooked,
        planted=args.planted,
    )
    print(f"seed {seed}", flush=True)
    outcome = run(settings, lambda text: print(text, flush=True))
    print("\n".join(lines(outcome)))
    if args.dump:
        args.dump.write_bytes(pickle.dumps(outcome))
    if args.json:
        with args.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(as_json(outcome)) + "\n")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
