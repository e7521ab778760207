"""What must hold when all has come to rest: every message ended once, and no retry existed twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .worker import TRIES

__all__ = ["QUEUES", "Rest", "Witnessed", "check", "read_ledger", "read_rest"]


#: Where messages of the run can be: those of dead letters tell of them.
QUEUES = ("default", "default.DQ", "dead_letters", "dead_letters.DQ")


@dataclass
class Witnessed:
    """What the workers noted: by message and attempt, under which ids of the queue it was given to them."""

    ran: dict[tuple[int, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    told: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    done: set[int] = field(default_factory=set)
    runs: int = 0


@dataclass(frozen=True)
class Rest:
    """What is left in the broker: how often each message is dead, and what is in any other place."""

    dead: Mapping[int, int]
    others: Mapping[str, int]


def read_ledger(text: str) -> Witnessed:
    seen = Witnessed()
    for line in text.splitlines():
        what, number, attempt, delivery = line.split()
        if what == "ran":
            seen.runs += 1
            seen.ran[int(number), int(attempt)].add(delivery)
        elif what == "told":
            seen.told[int(number)].add(delivery)
        else:
            seen.done.add(int(number))
    return seen


def read_rest(client: Any, namespace: str, decode: Any) -> Rest:
    """Looks at all places where a message can be."""
    others = {}
    for queue in QUEUES:
        others[f"data of {queue}"] = client.hlen(f"{namespace}:{queue}.msgs")
        others[queue] = client.llen(f"{namespace}:{queue}")
    others["given out"] = sum(client.scard(key) for key in client.scan_iter(f"{namespace}:__acks__.*"))
    prefix = f"{namespace}:distcron:default:"
    others["waiting"] = client.zcard(f"{prefix}retries")
    others["data of waiting"] = client.hlen(f"{prefix}retries.msgs")
    kept = [value.split(b"\n", 2)[2] for value in client.hvals(f"{prefix}dead.msgs")]
    dead = [decode(data).args[0] for data in [*kept, *client.hvals(f"{namespace}:default.XQ.msgs")]]
    return Rest(Counter(dead), {name: count for name, count in others.items() if count})


def check(wanted: Mapping[int, int], seen: Witnessed, rest: Rest) -> Iterator[str]:
    """Everything that is not as it must be. ``wanted`` says how often each message is to fail."""
    for name, count in rest.others.items():
        yield f"left over: {count} in {name}"
    for (number, attempt), deliveries in seen.ran.items():
        if len(deliveries) > 1:
            yield f"doubled: try {attempt} of message {number} was in the queue as {sorted(deliveries)}"
    for number, failures in wanted.items():
        yield from _check_end(number, failures, seen, rest)
    for number in {*rest.dead, *seen.told, *seen.done} - set(wanted):
        yield f"unknown: message {number}"


def _check_end(number: int, failures: int, seen: Witnessed, rest: Rest) -> Iterator[str]:
    succeeds = failures < TRIES
    tries = failures + 1 if succeeds else TRIES
    found = [attempt for attempt in range(TRIES + 2) if (number, attempt) in seen.ran]
    if found != list(range(tries)):
        yield f"lost or doubled: message {number} was tried as {found}, not {tries} times"
    if (number in seen.done) != succeeds:
        yield f"lost: message {number} has {'no ' if succeeds else 'a '}success"
    if rest.dead.get(number, 0) != (0 if succeeds else 1):
        yield f"wrong end: message {number} is dead {rest.dead.get(number, 0)} times"
    if len(seen.told.get(number, ())) != (0 if succeeds else 1):
        yield f"wrong end: of message {number} was told as {sorted(seen.told.get(number, ()))}"
