"""What the soaks share: what a run is told, and the command line that starts one."""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["Outcome", "Plan", "Say", "soak"]

Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """``pace``: seconds between two faults, about; ``doubled`` builds the known bug in."""

    messages: int
    workers: int
    pace: float
    seed: int = 0
    doubled: bool = False
    patience: float = 900.0
    binary: Path | None = None


class Outcome(Protocol):
    """A run, and everything that was not as it must be."""

    @property
    def violations(self) -> list[str]: ...

    def told(self) -> str:
        """What happened, in a line or two."""
        ...


def soak(what: str, usual: Plan, doubled: str, run: Callable[[Plan, Say], Outcome]) -> int:
    """One run as the command line says, and an exit code that tells whether all was as it must be."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--messages", type=int, default=usual.messages, help="how many")
    parser.add_argument("--workers", type=int, default=usual.workers, help="how many processes")
    parser.add_argument("--pace", type=float, default=usual.pace, help="seconds between two faults, about")
    parser.add_argument("--seed", type=int, help="repeats a run; without it one is drawn, and printed")
    parser.add_argument("--doubled", action="store_true", help=f"{doubled}: shows what is found then")
    parser.add_argument("--server", type=Path, help="binary of the server; without it what is found")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    plan = Plan(args.messages, args.workers, args.pace, seed, args.doubled, binary=args.server)
    outcome = run(plan, lambda text: print(text, flush=True))
    print(f"{outcome.told()}, {len(outcome.violations)} violations")
    for kind, count in Counter(one.partition(":")[0] for one in outcome.violations).items():
        print(f"  {count} x {kind}")
    print("\n".join(outcome.violations[:20]))
    return 1 if outcome.violations else 0
