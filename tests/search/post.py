"""The queues of a Redis broker in memory: what Dramatiq's script does, told in Python from its behaviour.

A message is listed in its queue or in the hands of a process that fetched it, and its body is kept until it is acked
or dead. Processes that were not heard of for a while lose what they have in hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from dramatiq import Message

from dramatiq_distcron.letters import ORIGIN

__all__ = ["Post", "decoded", "essence", "generation_of", "named"]

#: Where the arguments of a command begin in a call.
_OWN = 8


@lru_cache(maxsize=10_000)
def decoded(data: bytes) -> Message[Any]:
    return Message.decode(data)


@lru_cache(maxsize=10_000)
def essence(data: bytes) -> Any:
    """What of a message anybody acts on."""
    message = decoded(data)
    options = message.options
    copied = options["redis_message_id"].endswith("+")
    doubtful = tuple(options.get("distcron", {}).get("doubtful", ()))
    return message.message_id, message.args, options.get("retries"), options.get("eta"), copied, doubtful


def generation_of(message: Any) -> int:
    """How often a message was redriven."""
    return int(message.options.get(ORIGIN, {}).get("generation", 0))


def named(message: Message[Any]) -> str:
    """A tick's message in words."""
    tick = message.options["distcron"]
    return f"{'the redriven ' if generation_of(message) else ''}{tick['schedule']} of {tick['fire_time']}"


class Post:
    """All queues of one broker.

    Attributes:
      listed: ids by queue, oldest first.
      bodies: (queue, id) → data.
      hands: (process, queue) → ids it fetched.
      heard: process → when it was heard of, by its own clock.
      dead: (queue, id) → when it was given up, and data, of messages that were.
      committed: the messages that came with a commit, ever.
      lost_hands: the processes that were taken for dead.
    """

    def __init__(self) -> None:
        self.listed: dict[str, list[str]] = {}
        self.bodies: dict[tuple[str, str], bytes] = {}
        self.hands: dict[tuple[str, str], list[str]] = {}
        self.heard: dict[str, int] = {}
        self.dead: dict[tuple[str, str], tuple[int, bytes]] = {}
        self.committed: list[Message[Any]] = []
        self.lost_hands: set[str] = set()

    # -- what a store needs of it -----------------------------------------------------------------------------

    def commit(self, call: Sequence[Any]) -> int:
        """Carries out a call that is part of a commit; says how many messages it took from the process that acks."""
        if call[0] == "enqueue":
            self.committed.append(decoded(call[_OWN + 1]))
        reply = self.dispatch(call)
        return reply if isinstance(reply, int) else 0

    def is_there(self, redis_id: str) -> bool:
        return any(one == redis_id for _, one in self.bodies)

    def length(self, queue: str) -> int:
        return len(self.listed.get(queue, ()))

    # -- the script -------------------------------------------------------------------------------------------

    def dispatch(self, call: Sequence[Any]) -> Any:
        """One call of Dramatiq's script, given what the broker gives to it."""
        command, timestamp, queue, process = call[0], int(call[1]), str(call[2]), str(call[3])
        self.heard[process] = timestamp
        if str(call[6]) == "1":
            self._maintain(queue, timestamp - int(call[4]))
            self._forget_dead(queue, timestamp - int(call[5]))
        return self._commands[command](self, queue, process, *call[_OWN:])

    def _maintain(self, queue: str, silent_since: int) -> None:
        for process in [one for one, at in self.heard.items() if at <= silent_since]:
            for redis_id in self.hands.pop((process, queue), []):
                self.lost_hands.add(process)
                if (queue, redis_id) in self.bodies:
                    self.listed.setdefault(queue, []).append(redis_id)
            if not any(owner == process for owner, _ in self.hands):
                del self.heard[process]

    def _forget_dead(self, queue: str, died_until: int) -> None:
        for one in [one for one, (at, _) in self.dead.items() if one[0] == queue and at <= died_until]:
            del self.dead[one]

    def _enqueue(self, queue: str, process: str, redis_id: str, data: bytes) -> None:
        self.bodies[queue, redis_id] = data
        self.listed.setdefault(queue, []).append(redis_id)

    def _fetch(self, queue: str, process: str, count: int) -> list[bytes | None]:
        listed = self.listed.get(queue, [])
        taken = [listed.pop(0) for _ in range(min(int(count), len(listed)))]
        if taken:
            self.hands.setdefault((process, queue), []).extend(taken)
        return [self.bodies.get((queue, redis_id)) for redis_id in taken]

    def _requeue(self, queue: str, process: str, *redis_ids: str) -> None:
        for redis_id in redis_ids:
            if self._take_out_of_hand(queue, process, redis_id) and (queue, redis_id) in self.bodies:
                self.listed.setdefault(queue, []).append(redis_id)

    def _ack(self, queue: str, process: str, redis_id: str) -> int:
        taken = self._take_out_of_hand(queue, process, redis_id)
        if taken:
            self.bodies.pop((queue, redis_id), None)
        return taken

    def _nack(self, queue: str, process: str, redis_id: str) -> int:
        taken = self._take_out_of_hand(queue, process, redis_id)
        if taken and (queue, redis_id) in self.bodies:
            self.dead[queue.removesuffix(".DQ"), redis_id] = self.heard[process], self.bodies.pop((queue, redis_id))
        return taken

    def _take_out_of_hand(self, queue: str, process: str, redis_id: str) -> int:
        hand = self.hands.get((process, queue), [])
        if redis_id not in hand:
            return 0
        hand.remove(redis_id)
        if not hand:
            del self.hands[process, queue]
        return 1

    _commands: dict[str, Callable[..., Any]] = {
        "enqueue": _enqueue,
        "fetch": _fetch,
        "requeue": _requeue,
        "ack": _ack,
        "nack": _nack,
    }

    # -- what a search needs of it ----------------------------------------------------------------------------

    def has_work(self, queue: str, now: int, timeout: int) -> bool:
        """Whether a fetch at ``now`` would get something: listed, or in hands that are taken for dead."""
        if self.listed.get(queue):
            return True
        return any(
            self.heard.get(process, 0) <= now - timeout and hand
            for (process, of), hand in self.hands.items()
            if of == queue
        )

    def messages(self) -> Iterator[Message[Any]]:
        """Every message that is somewhere and not dead."""
        return (decoded(data) for data in self.bodies.values())

    def copy_of(self, queue: str) -> None:
        """A broker that delivers at least once does so twice: the oldest message of a queue."""
        for (of, redis_id), data in self.bodies.items():
            if of == queue:
                copy = decoded(data).copy(options={"redis_message_id": f"{redis_id}+"})
                self._enqueue(queue, "", f"{redis_id}+", copy.encode())
                return

    def names(self) -> dict[str, str]:
        """For each id in use one that tells what it stands for: ids are given by chance."""
        found: dict[str, str] = {}
        counts: Counter[Any] = Counter()
        for (queue, redis_id), data in self.bodies.items():
            what = queue, essence(data)
            counts[what] += 1
            found[redis_id] = f"{what} {counts[what]}"
        return found

    def key(self) -> Any:
        """Equal for equal states."""
        return (
            sorted((queue, ids) for queue, ids in self.listed.items() if ids),
            sorted(self.bodies),
            sorted((owner, sorted(ids)) for owner, ids in self.hands.items()),
            sorted((process, self.heard[process]) for process, _ in self.hands),
            sorted(self.dead),
            sorted(self.lost_hands),
        )
