"""The outbox: a message is in it from the commit until it is known to be in its broker."""

from __future__ import annotations

import pytest

from dramatiq_distcron.store.base import Fire, Record
from tests.support import Rig


def committed(rig: Rig, name: str, score: int = 1000, data: bytes = b"data", **fire: object) -> Fire:
    """A tick whose message is to be published after the commit."""
    record = Record("enqueued", score, score, message_id=f"{name}@{score}")
    return Fire(name, rig.revision(name), score, score + 1000, record, outbox=data)


def test_a_committed_message_is_in_the_outbox_until_it_is_published(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    assert rig.store.outbox(10) == []
    assert rig.fire(committed(rig, "job")) == ["ok"]
    assert rig.store.outbox(10) == [("job@1000", b"data")]
    rig.store.published("job@1000")
    assert rig.store.outbox(10) == []


@pytest.mark.parametrize("data", [b"\x00\xff\xfe", '{"args": ["ü"]}'.encode(), b"\x80\x04}.", b"x" * 100_000])
def test_any_bytes_come_back_as_they_were(rig: Rig, data: bytes) -> None:
    rig.lead()
    rig.put("job", 1000)
    rig.fire(committed(rig, "job", data=data))
    assert rig.store.outbox(10) == [("job@1000", data)]


def test_a_commit_that_is_refused_leaves_nothing_in_the_outbox(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    tick = committed(rig, "job")
    rig.put("job", 1000)
    assert rig.fire(tick) == ["stale"]
    rig.store.release("a")
    assert rig.fire(committed(rig, "job")) is None
    assert rig.store.outbox(10) == []


def test_the_same_commit_sent_twice_is_in_the_outbox_once_and_does_not_come_back(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    tick = committed(rig, "job")
    assert rig.fire(tick) == ["ok"]
    rig.store.published("job@1000")
    assert rig.fire(tick) == ["stale"]
    assert rig.store.outbox(10) == []


def test_publishing_what_is_not_there_does_nothing(rig: Rig) -> None:
    rig.store.published("nobody")
    assert rig.store.outbox(10) == []


def test_a_message_whose_schedule_was_removed_is_still_published(rig: Rig) -> None:
    from dramatiq_distcron.store.base import Edit

    rig.lead()
    rig.put("job", 1000)
    rig.fire(committed(rig, "job"))
    assert rig.store.edit(rig.guard, [Edit("job", rig.store.get(["job"])["job"], None)]) == ["ok"]
    assert rig.store.outbox(10) == [("job@1000", b"data")]


@pytest.mark.parametrize("count", [3, 600, 3000])
def test_who_takes_from_the_outbox_until_it_gives_nothing_has_had_everything(rig: Rig, count: int) -> None:
    """A leader whose broker was away for an hour: it must not stop with messages left in a corner."""
    rig.lead()
    rig.put("job", 1000)
    ticks = [committed(rig, "job", 1000 * (n + 1)) for n in range(count)]
    for start in range(0, count, 100):
        assert rig.fire(*ticks[start : start + 100]) == ["ok"] * len(ticks[start : start + 100])
    taken = set()
    while waiting := rig.store.outbox(50):
        for message_id, _ in waiting:
            rig.store.published(message_id)
            taken.add(message_id)
    assert len(taken) == count
