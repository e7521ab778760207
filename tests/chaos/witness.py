"""What the workers really saw: each run writes to a file that nobody's death takes away.

One line an event, one ``write`` a line, appended: a process that is killed leaves whole lines.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Seen", "Witness", "read_all"]

Event = Literal["begun", "done", "failed"]


@dataclass(frozen=True)
class Seen:
    """What one worker process saw of one delivery: it began, it was done, or it failed, at ``at`` (UTC ms).

    ``redis_id`` is the message's id in its queue: each enqueue gives a new one. ``attempt`` counts its retries.
    """

    event: Event
    at: int
    pid: int
    message_id: str
    redis_id: str
    schedule: str
    fire_time: int
    term: int
    attempt: int
    version: int


class Witness:
    """Writes down the events of one process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pid = 0
        self._file = -1

    def saw(self, event: Event, message_id: str, options: dict[str, object], version: int) -> None:
        """Notes an event of the delivery of a message with these options."""
        tick = options["distcron"]
        assert isinstance(tick, dict)
        now = time.time_ns() // 1_000_000
        seen = Seen(
            event,
            now,
            os.getpid(),
            message_id,
            str(options["redis_message_id"]),
            tick["schedule"],
            tick["fire_time"],
            tick["term"],
            int(str(options.get("retries", 0))),
            version,
        )
        os.write(self._mine(), ("\t".join(str(value) for value in astuple(seen)) + "\n").encode())

    def _mine(self) -> int:
        # After a fork the file must be another one.
        if self._pid != os.getpid():
            self._pid = os.getpid()
            path = self._folder / f"seen-{self._pid}-{time.monotonic_ns()}.tsv"
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return self._file


def read_all(folder: Path) -> list[Seen]:
    """Everything that was seen, oldest first."""
    found = [seen for path in folder.glob("seen-*.tsv") for seen in _read(path)]
    return sorted(found, key=lambda seen: seen.at)


def _read(path: Path) -> Iterator[Seen]:
    for line in path.read_text("utf-8").splitlines():
        event, at, pid, message_id, redis_id, schedule, fire_time, term, attempt, version = line.split("\t")
        assert event in ("begun", "done", "failed"), line
        yield Seen(
            event,  # type: ignore[arg-type]
            int(at),
            int(pid),
            message_id,
            redis_id,
            schedule,
            int(fire_time),
            int(term),
            int(attempt),
            int(version),
        )
