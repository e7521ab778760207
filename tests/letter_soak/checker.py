"""What must hold when all has come to rest: every letter was kept once and sent back once, and nothing is left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Witnessed", "check", "left_over", "read_ledger"]


@dataclass
class Witnessed:
    """What the workers noted: by message, generation and attempt, under which ids of the queue it was given to them."""

    ran: dict[tuple[int, int, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    done: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    told: set[str] = field(default_factory=set)
    runs: int = 0


def read_ledger(text: str) -> Witnessed:
    seen = Witnessed()
    for line in text.splitlines():
        what, *words = line.split()
        if what == "told":
            seen.told.add(words[0])
            continue
        number, generation, attempt, delivery = words
        if what == "ran":
            seen.runs += 1
            seen.ran[int(number), int(generation), int(attempt)].add(delivery)
        else:
            seen.done[int(number)].add(generation)
    return seen


def left_over(client: Any, namespace: str) -> dict[str, int]:
    """All places where a message or a part of a letter can be, that are not empty."""
    prefix = f"{namespace}:distcron:default:"
    found = {}
    for queue in ("default", "dead_letters"):
        for name in (queue, f"{queue}.DQ"):
            found[f"{name}.msgs"] = client.hlen(f"{namespace}:{name}.msgs")
            found[name] = client.llen(f"{namespace}:{name}")
        found[f"{queue}.XQ"] = client.zcard(f"{namespace}:{queue}.XQ")
    found["given out"] = sum(client.scard(key) for key in client.scan_iter(f"{namespace}:__acks__.*"))
    found["retries"] = client.zcard(f"{prefix}retries")
    found["retries.msgs"] = client.hlen(f"{prefix}retries.msgs")
    for key in client.scan_iter(f"{prefix}dead*"):
        found[key.decode()] = 1
    return {name: count for name, count in found.items() if count}


def check(wanted: Mapping[int, tuple[int, int]], seen: Witnessed, rest: Mapping[str, int]) -> Iterator[str]:
    """Everything that is not as it must be. ``wanted``: how often each message dies, and in how many runs each time."""
    for name, count in rest.items():
        yield f"left over: {count} in {name}"
    for (number, generation, attempt), deliveries in seen.ran.items():
        if len(deliveries) > 1:
            yield (
                f"doubled: try {attempt} of generation {generation} of message {number} was in the queue as "
                f"{sorted(deliveries)}"
            )
    generations = defaultdict(set)
    for number, generation, attempt in seen.ran:
        generations[number].add((generation, attempt))
    for number, (deaths, tries) in wanted.items():
        expected = {(generation, attempt) for generation in range(deaths) for attempt in range(tries)} | {(deaths, 0)}
        if generations[number] != expected:
            yield f"lost or too much: message {number} ran as {sorted(generations[number])}, not {sorted(expected)}"
        if seen.done[number] != {str(deaths)}:
            yield f"lost: message {number} has no success in generation {deaths}, but in {sorted(seen.done[number])}"
    for number in {one for one, _, _ in seen.ran} - set(wanted):
        yield f"unknown: message {number}"
