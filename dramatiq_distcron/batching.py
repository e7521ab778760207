"""How much goes into one command: so many things, and no more bytes than a server carries out in passing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

__all__ = ["BATCH_BYTES", "batches"]

T = TypeVar("T")

#: A command ends when what it carries is longer than this.
BATCH_BYTES = 1_000_000


def batches(items: Iterable[T], most: int, length: Callable[[T], int] = lambda item: 0) -> Iterator[list[T]]:
    """The items in turn, ``most`` at a time, or fewer if their ``length`` in bytes adds up."""
    batch: list[T] = []
    size = 0
    for item in items:
        batch.append(item)
        size += length(item)
        if len(batch) == most or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
