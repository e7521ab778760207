"""Which schedules there are: hundreds of them, of every policy, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dramatiq_distcron import Schedule

from .timetable import Times

__all__ = ["VETOED", "Wanted", "edited", "population"]

#: Schedules whose messages a middleware refuses, where there is one.
VETOED = "veto"

#: Seconds between two fire times; most schedules are of one second, where it is dense.
_STEPS = (1, 1, 1, 1, 1, 2, 2, 3, 5, 15, 60)


@dataclass(frozen=True)
class Wanted:
    """One schedule as it is asked for; ``version`` counts its edits and is what its actor is called with."""

    name: str
    actor: str
    times: Times
    policy: Mapping[str, Any] = field(default_factory=dict)
    source: Literal["code", "api"] = "code"
    version: int = 0

    @property
    def exclusive(self) -> bool:
        """Whether its runs must not overlap."""
        return self.policy.get("overlap", "allow") != "allow"

    def schedule(self) -> Schedule:
        """The same, as a user writes it."""
        return self.times.schedule(name=self.name, args=(self.version,), **self.policy)


_Made = tuple[str, Times, dict[str, Any]]


def population(seed: int, count: int, base: int) -> list[Wanted]:
    """``count`` schedules around the instant ``base`` (UTC ms): two thirds in code, one third put by the API."""
    rng = random.Random(f"{seed} schedules")
    traits = list(_TRAITS)
    weights = [weight for weight, _ in _TRAITS.values()]
    made = []
    for number in range(count):
        # Each trait at least once, then by weight.
        trait = traits[number] if number < len(traits) else rng.choices(traits, weights)[0]
        actor, times, policy = _TRAITS[trait][1](rng, base)
        source: Literal["code", "api"] = "api" if number % 3 == 2 else "code"
        made.append(Wanted(f"{source}-{number:04}-{trait}", actor, times, policy, source))
    return made


def edited(wanted: Wanted, rng: random.Random) -> Wanted:
    """A new version of a schedule: other times, or other policies, or only other arguments."""
    wanted = replace(wanted, version=wanted.version + 1)
    draw = rng.random()
    if draw < 0.5:
        return replace(wanted, times=replace(_times(rng), first=wanted.times.first, last=wanted.times.last))
    if draw < 0.7:
        return replace(wanted, policy={**wanted.policy, "catch_up": rng.choice(["latest", "all", "skip"])})
    if draw < 0.8 and "spread" in wanted.policy:
        return replace(wanted, policy={**wanted.policy, "spread": _spread(rng)})
    return wanted


def _times(rng: random.Random) -> Times:
    draw = rng.random()
    if draw < 0.75:
        return Times("every", rng.choice(_STEPS))
    if draw < 0.85:
        return Times("every", rng.choice(_STEPS), offset=rng.randrange(1000))
    if draw < 0.97:
        # Seven does not divide sixty: the last step of a minute is shorter.
        return Times("seconds", rng.choice([1, 1, 2, 3, 7]))
    return Times("minutes", rng.choice([1, 2]))


def _spread(rng: random.Random) -> float:
    return rng.choice([0.2, 0.5, 1.0, 3.0, 20.0])


def _plain(catch_up: str) -> Callable[[random.Random, int], _Made]:
    return lambda rng, base: ("quick", _times(rng), {"catch_up": catch_up})


def _capped(rng: random.Random, base: int) -> _Made:
    return "quick", _times(rng), {"catch_up": "all", "max_catch_up": rng.randint(1, 4)}


def _graceful(rng: random.Random, base: int) -> _Made:
    grace = rng.choice([0.5, 1, 2, 5])
    return "quick", _times(rng), {"catch_up": rng.choice(["latest", "all"]), "misfire_grace_time": grace}


def _spreading(rng: random.Random, base: int) -> _Made:
    return "quick", _times(rng), {"catch_up": rng.choice(["latest", "all", "skip"]), "spread": _spread(rng)}


def _exclusive(overlap: str, actor: str) -> Callable[[random.Random, int], _Made]:
    return lambda rng, base: (actor, _times(rng), {"overlap": overlap, "catch_up": rng.choice(["latest", "all"])})


def _flaky(rng: random.Random, base: int) -> _Made:
    return "flaky", _times(rng), {"catch_up": "all"}


def _doomed(rng: random.Random, base: int) -> _Made:
    return "doomed", Times("every", rng.choice([2, 5])), {"catch_up": "latest"}


def _expiring(rng: random.Random, base: int) -> _Made:
    return "slow", _times(rng), {"expires": rng.choice([0.3, 1, 3])}


def _narrow(rng: random.Random, base: int) -> _Made:
    return "narrow", Times("every", 1), {"max_queue_length": rng.randint(1, 6), "catch_up": "all"}


def _off(rng: random.Random, base: int) -> _Made:
    return "quick", _times(rng), {"enabled": False}


def _window(rng: random.Random, base: int) -> _Made:
    first = base + rng.randrange(30_000)
    return "quick", replace(_times(rng), first=first, last=first + rng.randrange(60_000)), {"catch_up": "all"}


def _once(rng: random.Random, base: int) -> _Made:
    return "quick", Times("every", rng.choice([30, 3600])), {"run_at_start": True}


#: How often each trait is drawn, and what it makes of it.
_TRAITS: dict[str, tuple[int, Callable[[random.Random, int], _Made]]] = {
    "latest": (15, _plain("latest")),
    "all": (20, _plain("all")),
    "skip": (8, _plain("skip")),
    "cap": (6, _capped),
    "grace": (8, _graceful),
    "spread": (12, _spreading),
    "one": (3, _exclusive("skip", "slow")),
    "buffer": (3, _exclusive("buffer_one", "slow")),
    "quick-one": (4, _exclusive("skip", "quick")),
    "quick-buffer": (4, _exclusive("buffer_one", "quick")),
    "flaky": (3, _flaky),
    "flaky-one": (1, _exclusive("buffer_one", "flaky")),
    "doomed": (1, _doomed),
    "expires": (2, _expiring),
    "narrow": (2, _narrow),
    "off": (1, _off),
    "window": (3, _window),
    "once": (2, _once),
    VETOED: (2, _plain("all")),
}
