"""What must hold of messages that die: each has one letter, one message that tells of it, and one way on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dramatiq import Message

from dramatiq_distcron.letters import DLQ_ACTOR, DLQ_QUEUE, ORIGIN
from dramatiq_distcron.middleware.delivered import DEAD

from .post import decoded, named
from .stepping import Request

__all__ = ["Deaths"]


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
        #: The letters there are.
        self._letters: set[str] = set()
        #: Message ids of letters that were dropped.
        self._dropped: set[str] = set()
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
        if before == now.keys():
            return
        self._of.update((id, letter.about["message_id"]) for id, (_, letter) in now.items())
        if request.label == "drop_letters":
            self._dropped |= {self._of[id] for id in before - now.keys()}
        self._letters = set(now)

    def _messages(self) -> Iterator[Message[Any]]:
        """Every message in a queue, in a worker's hands, in the outbox, or among those that wait."""
        state = self.world.store._state
        yield from self.world.post.messages()
        yield from map(decoded, state.outbox.values())
        yield from (decoded(waiting.data) for _, waiting in state.retries.values())

    def key(self) -> Any:
        return (
            sorted(self._of.items()),
            sorted(self._dropped),
            sorted(self.redriven),
            sorted(self._notices.items()),
            sorted(self._told.items()),
        )

    # -- the laws ---------------------------------------------------------------------------------------------

    def broken(self, sent: Sequence[Message[Any]]) -> Iterator[str]:
        """What does not hold in this state. ``sent``: the messages there ever were."""
        for _, redis_id in self.world.post.dead:
            yield f"{redis_id} was given up to Dramatiq's own dead messages"
        there = Counter(message.message_id for message in self._messages())
        if self._is_strict and max(there.values(), default=0) > 1:
            yield f"{there.most_common(1)} are in several places"
        if not self._of and not any(one.get("state") == DEAD for one in self.world.store._ticks):
            return
        ends = {one["run"]: one["state"] for one in self.world.store._ticks if "run" in one}
        letters = Counter(self._of[id] for id in self._letters)
        going_on = Counter(one.options[ORIGIN]["before"] for one in self.redriven.values())
        for message in sent:
            id = message.message_id
            for law in self._places(id, ends.get(id, "under way"), letters[id], going_on[id], there[id]):
                yield f"{named(message)} {law}"
        yield from self._tellings({message.message_id: named(message) for message in sent})

    @property
    def _is_strict(self) -> bool:
        """Another broker may deliver anything twice."""
        return not (self.world.rules.by_outbox or self.world.rules.copies)

    def _places(self, id: str, end: str, letters: int, going_on: int, there: int) -> Iterator[str]:
        """A message that died is one letter, or was redriven once, or dropped; one that did not is none of these."""
        if letters > 1 or going_on > 1:
            yield f"has {letters} letters, and {going_on} messages were made of one"
        ways = letters + going_on + (id in self._dropped)
        if end != DEAD and ways:
            yield f"has a letter, and its run is {end}"
        if end == DEAD and ways != 1:
            told = f"{letters} letters, {going_on} messages made of one, {int(id in self._dropped)} dropped"
            yield f"died, and is not in one place: {told}"
        if ways and there and self._is_strict:
            yield "has a letter, and is in its queue as well"

    def _tellings(self, names: Mapping[str, str]) -> Iterator[str]:
        """From its death on there is one message that tells of a letter, until it told."""
        made = Counter(self._notices.values())
        there = Counter(self._notices[one.message_id] for one in self._messages() if one.actor_name == DLQ_ACTOR)
        for id in {*self._of.values(), *made}:
            if made[id] != 1:
                yield f"{made[id]} messages were made to tell of the letter of {names.get(id, id)}"
            count = there[id] + self._told[id]
            if not count or (count > 1 and self._is_strict):
                yield f"{count} messages tell of the letter of {names.get(id, id)}, or did"
