"""``python -m tests.letter_soak``: one run, and an exit code that says whether every letter was sent back once."""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

from .run import Plan, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.letter_soak", description=__doc__)
    parser.add_argument("--messages", type=int, default=6000, help="each dies twice, about (default: 6000)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pace", type=float, default=0.5, help="seconds between two faults, about (default: 0.5)")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--doubled", action="store_true", help="redrive in two steps: shows what is found then")
    parser.add_argument("--server", type=Path, help="binary of the server (default: what is found)")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    plan = Plan(args.messages, args.workers, args.pace, seed, args.doubled, binary=args.server)
    outcome = run(plan, lambda text: print(text, flush=True))
    print(f"{outcome.messages} messages, {outcome.letters} letters, {outcome.runs} runs")
    print(f"{outcome.kills} kills, {outcome.cuts} cuts, {outcome.seconds:.0f} s, {len(outcome.violations)} violations")
    for kind, count in Counter(one.partition(":")[0] for one in outcome.violations).items():
        print(f"  {count} x {kind}")
    print("\n".join(outcome.violations[:20]))
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
