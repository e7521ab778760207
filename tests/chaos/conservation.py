"""The conservation checker: each message is counted in every place it can be, and found once in all of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from .history import Decision, History, Left

__all__ = ["Violation", "check_conservation"]


@dataclass(frozen=True)
class Violation:
    """Something that must not be. ``kind`` is one word for the report."""

    kind: str
    schedule: str
    detail: str


def check_conservation(history: History) -> Iterator[Violation]:
    """One message a tick, one end a message, and none in zero places."""
    yield from _doubled_ticks(history)
    yield from _doubled_deliveries(history)
    yield from _unrecorded(history)
    yield from _ended_twice(history)
    yield from _without_end(history)
    yield from _ends_nobody_saw(history)
    yield from _left_over(history)
    yield from _early(history)
    yield from _terms(history)
    yield from _triggers(history)
    for stream_id in sorted(history.watched - history.state.stream_ids):
        yield Violation("vanished", "", f"record {stream_id} was seen and is gone")
    for words in history.fallen:
        yield Violation("fallen", "", words)
    for what in history.unfinished:
        yield Violation("unfinished", "", f"waited in vain for {what}")


def _sent(history: History) -> list[Decision]:
    return [one for one in history.state.decisions if one.message_id]


def _doubled_ticks(history: History) -> Iterator[Violation]:
    ticks = Counter((one.schedule, one.first) for one in _sent(history) if one.is_tick)
    for (schedule, fire_time), count in ticks.items():
        if count > 1:
            yield Violation("duplicate", schedule, f"{count} messages were recorded for {fire_time}")
    for message_id, count in Counter(one.message_id for one in _sent(history)).items():
        if count > 1:
            yield Violation("duplicate", "", f"message {message_id} was recorded {count} times")


def _doubled_deliveries(history: History) -> Iterator[Violation]:
    """What the workers were given: one message for a tick, and that was put into its queue once.

    A redelivery keeps the id in the queue. A retry gets a new one, and is told by its attempt.
    """
    by_hand = {one.message_id for one in _sent(history) if not one.is_tick}
    messages: dict[tuple[str, int], set[str]] = defaultdict(set)
    enqueues: dict[str, set[str]] = defaultdict(set)
    for seen in history.seen:
        if seen.message_id not in by_hand:
            messages[seen.schedule, seen.fire_time].add(seen.message_id)
        if seen.attempt == 0:
            enqueues[seen.message_id].add(seen.redis_id)
    for (schedule, fire_time), ids in messages.items():
        if len(ids) > 1:
            yield Violation("duplicate", schedule, f"workers were given {len(ids)} messages for {fire_time}: {ids}")
    for message_id, redis_ids in enqueues.items():
        if len(redis_ids) > 1:
            yield Violation("duplicate", "", f"message {message_id} was put into its queue as {sorted(redis_ids)}")


def _unrecorded(history: History) -> Iterator[Violation]:
    sent = {one.message_id: one for one in _sent(history)}
    for seen in history.seen:
        record = sent.get(seen.message_id)
        if record is None:
            yield Violation("unrecorded", seen.schedule, f"message {seen.message_id} ran and has no record")
        elif (record.schedule, record.first, record.term) != (seen.schedule, seen.fire_time, seen.term):
            yield Violation("unrecorded", seen.schedule, f"message {seen.message_id} differs from its record {record}")


def _ended_twice(history: History) -> Iterator[Violation]:
    sent = {one.message_id for one in _sent(history)}
    for (message_id, schedule), count in Counter((e.message_id, e.schedule) for e in history.state.endings).items():
        if count > 1:
            yield Violation("ended_twice", schedule, f"the run of {message_id} ended {count} times")
        if message_id not in sent:
            yield Violation("unrecorded", schedule, f"the run of {message_id} ended and was never enqueued")
        if message_id in history.state.runs:
            yield Violation("ended_twice", schedule, f"the run of {message_id} ended and is still open")


def _without_end(history: History) -> Iterator[Violation]:
    """What has no end yet must be where a worker finds it."""
    ended = {one.message_id for one in history.state.endings}
    waiting = {one.message_id for one in history.state.left if one.listed + one.handed_out == 1}
    for one in _sent(history):
        if one.message_id in ended:
            continue
        if one.message_id not in waiting:
            yield Violation("lost", one.schedule, f"message {one.message_id} of {one.first} is nowhere")
        elif one.message_id not in history.state.runs:
            yield Violation("lost", one.schedule, f"message {one.message_id} of {one.first} waits and has no run")


def _ends_nobody_saw(history: History) -> Iterator[Violation]:
    done = {one.message_id for one in history.seen if one.event == "done"}
    failed = {one.message_id for one in history.seen if one.event == "failed"}
    dead = {one.message_id for one in history.state.left if one.dead == 1}
    for one in history.state.endings:
        if one.state == "succeeded" and one.message_id not in done:
            yield Violation("lost", one.schedule, f"{one.message_id} ended as succeeded, and no worker did it")
        if one.state == "dead" and not (one.message_id in failed and one.message_id in dead):
            yield Violation("lost", one.schedule, f"{one.message_id} ended as dead, and is not among the dead letters")
        # No queue is flushed in a run, so that no message may be given up because it is gone.
        if one.state == "dropped" and not one.reason.startswith("expired"):
            yield Violation("lost", one.schedule, f"{one.message_id} was dropped: {one.reason!r}")
        if one.state not in ("succeeded", "dead", "dropped"):
            yield Violation("lost", one.schedule, f"{one.message_id} ended as {one.state!r}")


def _left_over(history: History) -> Iterator[Violation]:
    ended = {one.message_id: one.state for one in history.state.endings}
    for one in history.state.left:
        if _places(one) != 1:
            yield Violation("lost", "", f"{one} is in {_places(one)} places")
        elif one.dead == 0 and one.message_id in ended:
            yield Violation("left_over", "", f"{one} waits, and its run ended as {ended[one.message_id]}")
    # Of retries there may be two: Dramatiq enqueues one and acks what it comes from in two steps.
    copies = Counter(one.message_id for one in history.state.left if one.attempt == 0)
    for message_id, count in copies.items():
        if count > 1:
            yield Violation("duplicate", "", f"message {message_id} lies in the broker {count} times")


def _places(left: Left) -> int:
    return left.listed + left.handed_out + left.dead


def _early(history: History) -> Iterator[Violation]:
    """By the server's own stamp, and by the worker's clock."""
    for one in history.state.decisions:
        if one.stored_at is not None and one.stored_at < one.last and one.is_tick:
            yield Violation("early", one.schedule, f"{one.outcome} of {one.last} was stored at {one.stored_at}")
        if one.decided_at < one.last or (one.lateness or 0) < 0:
            yield Violation("early", one.schedule, f"{one.outcome} of {one.last} was decided at {one.decided_at}")
    for seen in history.seen:
        if seen.at < seen.fire_time:
            yield Violation("early", seen.schedule, f"the tick of {seen.fire_time} ran at {seen.at}")


def _terms(history: History) -> Iterator[Violation]:
    """A leader that was followed by another sends nothing any more."""
    ticks = [one for one in _sent(history) if one.is_tick and one.position is not None]
    for before, after in pairwise(sorted(ticks, key=lambda one: one.position or 0)):
        if after.term < before.term:
            yield Violation("deposed", after.schedule, f"term {after.term} sent {after.first} after term {before.term}")


def _triggers(history: History) -> Iterator[Violation]:
    recorded = Counter(one.message_id for one in _sent(history) if not one.is_tick)
    unknown = sum(one.answer == "" for one in history.triggers)
    sent = [one for one in history.triggers if one.answer == "sent"]
    for one in sent:
        if not recorded[one.message_id]:
            yield Violation("lost", one.name, f"trigger {one.message_id} was sent and has no record")
    if len(recorded) > len(sent) + unknown:
        yield Violation("duplicate", "", f"{len(recorded)} triggers came of {len(sent)} sent and {unknown} unanswered")
