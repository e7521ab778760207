"""What must hold of messages that die: each has one letter, one message that tells of it, and one way on.

Letters come with a death, by an import, or out of Dramatiq's own dead messages. They go back as a message, or are
dropped. So what came is what is there and what went; what went because it was old or too much was announced before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from dramatiq import Message

from dramatiq_distcron.letters import DLQ_ACTOR, DLQ_QUEUE, ORIGIN
from dramatiq_distcron.middleware.delivered import DEAD

from .post import decoded, named
from .stepping import Request

__all__ = ["Deaths"]


#: The commands by which letters come that nobody here died of.
_FROM_ELSEWHERE = ("put_letters", "adopt")


class _Places(NamedTuple):
    """Where a message that died is or went, and how often."""

    letters: int
    going_on: int
    dropped: int
    buried: int


class Deaths:
    """The laws of dead letters in one world.

    Parameters:
      world: what they are about.
    """

    def __init__(self, world: Any) -> None:
        self.world = world
        #: Every redriven message there ever was, by its id.
        self.redriven: dict[str, Message[Any]] = {}
        #: Whose letters they are or were: message ids, by the letters' ids.
        self._of: dict[str, str] = {}
        #: The letters there are, and Dramatiq's own dead messages.
        self._letters: dict[str, Any] = {}
        self._graves: dict[str, str] = {}
        #: The messages that died in a worker of ours.
        self._died: set[str] = set()
        #: How often a message's letter came from elsewhere, and was dropped, or forgotten by Dramatiq.
        self._brought: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        #: How many letters came or went by each command, and how many people were told of.
        self._moved: Counter[str] = Counter()
        self._counted: Counter[str] = Counter()
        #: What each host announced that it will drop, if it looks after the limits.
        self._announced: dict[str, set[str]] = {}
        self._purging: set[str] = set()
        self._broken = ""
        #: Of which message's letter each message tells, by its id; and the same by its id in Redis, if it was queued.
        self._notices: dict[str, str] = {}
        self._queued: dict[str, str] = {}
        #: How often somebody was told of a message's letter.
        self._told: Counter[str] = Counter()

    # -- what is noted as it happens --------------------------------------------------------------------------

    def arrived(self, request: Request) -> None:
        """A command was carried out: what later laws need to know of it."""
        self._see_letters(request)
        for message in self._messages():
            if ORIGIN in message.options:
                self.redriven.setdefault(message.message_id, message)
            if message.actor_name == DLQ_ACTOR:
                of = self._of.get(message.args[0], "nobody")
                self._notices[message.message_id] = of
                self._queued[message.options.get("redis_message_id", "")] = of
        if request.label == "ack" and request.reply and request.args[0] == DLQ_QUEUE:
            self._told[self._queued[request.args[1]]] += 1

    def _see_letters(self, request: Request) -> None:
        before, now = self._letters, self.world.store._state.dead
        if before != now:
            self._of.update((id, letter.about["message_id"]) for id, (_, letter) in now.items())
            self._see_comings(request.label, now.keys() - before.keys())
            self._see_goings(request, before.keys() - now.keys())
            if request.label in _FROM_ELSEWHERE and any(now.get(id) != one for id, one in before.items()):
                self._broken = f"a letter is not what it was before {request.label}"
            self._letters = dict(now)
        self._see_graves(request.label)

    def _see_comings(self, verb: str, came: Set[str]) -> None:
        self._moved[verb] += len(came)
        if verb == "put_letters":
            self._brought.update(self._of[id] for id in came)
        elif verb != "adopt":
            self._died |= {self._of[id] for id in came}

    def _see_goings(self, request: Request, went: Set[str]) -> None:
        self._moved[request.label] += len(went)
        if request.label != "drop_letters":
            return
        self._dropped.update(self._of[id] for id in went)
        if request.by in self._purging:
            self._purging.remove(request.by)
            self._announced[request.by] = set(self._letters)
        silently = went - self._announced.get(request.by, went)
        if silently:
            self._broken = f"{sorted(silently)} were dropped by {request.by}, which had not said so"

    def _see_graves(self, verb: str) -> None:
        """Dramatiq gives messages up, and forgets them after a week. Who adopts must have them."""
        dead = self.world.post.dead
        if dead.keys() == self._graves.keys():
            return
        now = {one: decoded(data).message_id for one, (_, data) in dead.items()}
        self._brought.update(now[one] for one in now.keys() - self._graves.keys())
        if verb != "adopt":
            self._dropped.update(self._graves[one] for one in self._graves.keys() - now.keys())
        self._graves = now

    def announce(self, host: str, ids: Iterable[str] = ()) -> None:
        """A host that looks after the limits tells what it is about to drop."""
        self._announced.setdefault(host, set()).update(ids)

    def purge(self, host: str) -> None:
        """A host is about to drop all that is there when it begins with that."""
        self._purging.add(host)

    def count(self, verb: str, number: int) -> None:
        """A human is told that so many letters came or went by a command."""
        self._counted[verb] += number

    def refuse(self, why: str) -> None:
        """Somebody else saw that a law is broken."""
        self._broken = why

    def has(self, message_id: str) -> bool:
        """Whether it lies among Dramatiq's own dead messages, or did."""
        return message_id in self._brought

    def _messages(self) -> Iterator[Message[Any]]:
        """Every message in a queue, in a worker's hands, in the outbox, or among those that wait."""
        state = self.world.store._state
        yield from self.world.post.messages()
        yield from map(decoded, state.outbox.values())
        yield from (decoded(waiting.data) for _, waiting in state.retries.values())

    def key(self) -> Any:
        return (
            sorted(self._of.items()),
            sorted(self._brought.items()),
            sorted(self._dropped.items()),
            sorted(self._moved.items()),
            sorted(self._counted.items()),
            sorted((host, sorted(ids)) for host, ids in self._announced.items()),
            sorted(self._purging),
            self._broken,
            sorted(self.redriven),
            sorted(self._notices.items()),
            sorted(self._told.items()),
        )

    # -- the laws ---------------------------------------------------------------------------------------------

    def broken(self, sent: Sequence[Message[Any]]) -> Iterator[str]:
        """What does not hold in this state. ``sent``: the messages there ever were."""
        if self._broken:
            yield self._broken
        for _, redis_id in self.world.post.dead if not self.world.rules.gives_up else ():
            yield f"{redis_id} was given up to Dramatiq's own dead messages"
        there = Counter(message.message_id for message in self._messages())
        if self._is_strict and max(there.values(), default=0) > 1:
            yield f"{there.most_common(1)} are in several places"
        names = {message.message_id: named(message) for message in sent}
        yield from self._fates(names, there)
        yield from self._tellings(names)
        for verb, number in self._counted.items():
            if number > self._moved[verb]:
                yield f"people were told of {number} letters by {verb}, and there were {self._moved[verb]}"

    def _fates(self, names: Mapping[str, str], there: Mapping[str, int]) -> Iterator[str]:
        ends = {one["run"]: one["state"] for one in self.world.store._ticks if "run" in one}
        if not self._of and not self._brought and DEAD not in ends.values():
            return
        letters = Counter(self._of[id] for id in self._letters)
        going_on = Counter(one.options[ORIGIN]["before"] for one in self.redriven.values())
        buried = Counter(self._graves.values())
        for id in {**names, **self._brought}:
            places = _Places(letters[id], going_on[id], self._dropped[id], buried[id])
            for law in self._places(id, ends.get(id, "under way"), places, there.get(id, 0)):
                yield f"{names.get(id, id)} {law}"

    @property
    def _is_strict(self) -> bool:
        """Another broker may deliver anything twice."""
        return not (self.world.rules.by_outbox or self.world.rules.copies)

    def _places(self, id: str, end: str, places: _Places, there: int) -> Iterator[str]:
        """A message that died is one letter, or was redriven once, or dropped; one that did not is none of these.

        It may have been brought from elsewhere, also again: so often it is in one place more.
        """
        came = int(end == DEAD) + self._brought[id]
        if places.letters > 1 or places.going_on > max(1, came):
            yield f"has {places.letters} letters, and {places.going_on} messages were made of one"
        if not came and any(places):
            yield f"has a letter, and its run is {end}"
        elif sum(places) != came:
            yield f"died, and is not in one place: {places}, and it came {came} times"
        if any(places) and there and self._is_strict:
            yield "has a letter, and is in its queue as well"

    def _tellings(self, names: Mapping[str, str]) -> Iterator[str]:
        """From its death on there is one message that tells of a letter, until it told."""
        made = Counter(self._notices.values())
        there = Counter(self._notices[one.message_id] for one in self._messages() if one.actor_name == DLQ_ACTOR)
        for id in {*self._died, *made}:
            if made[id] != 1:
                yield f"{made[id]} messages were made to tell of the letter of {names.get(id, id)}"
            count = there[id] + self._told[id]
            if not count or (count > 1 and self._is_strict):
                yield f"{count} messages tell of the letter of {names.get(id, id)}, or did"
