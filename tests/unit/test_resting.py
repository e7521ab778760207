"""Schedules that are passed over for a while, and a store that is away: how long, and who is told."""

from __future__ import annotations

import logging

import pytest

from dramatiq_distcron.errors import StoreUnavailable
from dramatiq_distcron.resting import Resting
from dramatiq_distcron.trouble import Trouble
from tests.support import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def resting(clock: FakeClock) -> Resting:
    return Resting(clock)


def length(resting: Resting, clock: FakeClock, name: str = "job") -> int:
    """How many seconds a schedule rests from now on."""
    seconds = 0
    while name in resting:
        clock.advance(1)
        seconds += 1
    return seconds


# -- after a failure ----------------------------------------------------------------------------------------


def test_nobody_rests_without_a_reason(resting: Resting) -> None:
    assert "job" not in resting
    assert resting.next_look is None


def test_a_schedule_that_fails_rests_and_the_others_do_not(resting: Resting) -> None:
    resting.failed("job", "broken queue")
    assert "job" in resting
    assert "other" not in resting


def test_each_failure_doubles_the_rest_up_to_a_minute(resting: Resting, clock: FakeClock) -> None:
    lengths = []
    for _ in range(8):
        resting.failed("job", "broken queue")
        lengths.append(length(resting, clock))
    assert lengths == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_schedule_that_recovered_rests_shortly_again(resting: Resting, clock: FakeClock) -> None:
    for _ in range(4):
        resting.failed("job", "broken queue")
    resting.recovered("job")
    assert "job" not in resting
    resting.failed("job", "broken queue")
    assert length(resting, clock) == 1


def test_only_a_new_reason_is_worth_a_word(resting: Resting) -> None:
    assert resting.failed("job", "broken queue") is True
    assert resting.failed("job", "broken queue") is False
    assert resting.failed("job", "another reason") is True
    resting.recovered("job")
    assert resting.failed("job", "another reason") is True


def test_a_wake_up_does_not_end_a_rest_after_a_failure(resting: Resting) -> None:
    """Edits of other schedules, many a second perhaps, must not make it try without a pause."""
    resting.failed("job", "broken queue")
    resting.woken()
    assert "job" in resting


# -- waiting for a run to be over ---------------------------------------------------------------------------


def test_a_schedule_that_waits_is_looked_at_again_soon(resting: Resting, clock: FakeClock) -> None:
    resting.waits("job")
    assert "job" in resting
    assert resting.next_look == 1.0
    assert length(resting, clock) == 1


def test_a_wake_up_ends_every_wait_at_once(resting: Resting) -> None:
    resting.waits("job")
    resting.waits("other")
    resting.woken()
    assert "job" not in resting
    assert resting.next_look is None


def test_the_next_look_is_at_the_first_who_waits(resting: Resting, clock: FakeClock) -> None:
    resting.waits("job")
    clock.advance(0.75)
    resting.waits("other")
    assert resting.next_look == 0.25
    clock.advance(10)
    assert resting.next_look == 0.0


def test_the_pass_that_looks_at_those_whose_wait_is_over_ends_their_wait(resting: Resting, clock: FakeClock) -> None:
    """Else a schedule that fired meanwhile would make the beat look again without a pause, for ever."""
    resting.waits("job")
    clock.advance(0.5)
    resting.waits("other")
    clock.advance(0.5)
    assert resting.next_look == 0.0
    resting.begin()
    assert "job" not in resting
    assert "other" in resting
    assert resting.next_look == 0.5


# -- a store that is away -----------------------------------------------------------------------------------


@pytest.fixture
def trouble(clock: FakeClock) -> Trouble:
    return Trouble("redis://somewhere/0", clock, logging.getLogger("tests.trouble"))


AWAY = StoreUnavailable("Redis at redis://somewhere/0 does not answer: refused.")


def words(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_trouble_is_told_at_once_and_in_one_sentence_each(trouble: Trouble, caplog: pytest.LogCaptureFixture) -> None:
    trouble.wait_after(AWAY)
    (word,) = words(caplog)
    assert word == (
        "Redis at redis://somewhere/0 does not answer: refused. Nothing is enqueued meanwhile; trying again."
    )


def test_trouble_that_lasts_is_told_less_and_less_often(
    trouble: Trouble, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    told = []
    for second in range(1200):
        trouble.wait_after(AWAY)
        told += [second] * len(words(caplog))
        clock.advance(1)
    assert told == [0, 5, 15, 35, 75, 155, 315, 615, 915]


def test_it_is_asked_again_soon_and_then_every_two_seconds_and_never_by_all_at_once(trouble: Trouble) -> None:
    pauses = [trouble.wait_after(AWAY) for _ in range(50)]
    for pause, longest in zip(pauses, [0.2, 0.4, 0.8, 1.6, *[2.0] * 46], strict=True):
        assert longest / 2 <= pause <= longest
    assert len(set(pauses[10:])) > 1


def test_the_end_of_trouble_is_told_with_its_length(
    trouble: Trouble, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    trouble.wait_after(AWAY)
    clock.advance(12.34)
    words(caplog)
    trouble.over()
    trouble.over()
    assert words(caplog) == ["redis://somewhere/0 is back after 12.3 s."]


def test_without_trouble_its_end_is_not_told(trouble: Trouble, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    trouble.over()
    assert words(caplog) == []


def test_new_trouble_is_told_at_once_again(
    trouble: Trouble, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        trouble.wait_after(AWAY)
    trouble.over()
    words(caplog)
    assert trouble.wait_after(AWAY) <= 0.2
    assert len(words(caplog)) == 1
