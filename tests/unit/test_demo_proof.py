"""The proof at the end of the demonstration: pure counting."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramatiq_distcron.demo.proof import Proof, TickKey, due_ticks, end_of_play, prove

ticks = st.tuples(st.sampled_from("abc"), st.integers(0, 9).map(lambda n: n * 1000))
DUE: set[TickKey] = {("a", 1000), ("a", 2000), ("b", 1000)}


def proved(enqueued: list[TickKey], succeeded: list[TickKey], due: set[TickKey] = DUE) -> Proof:
    return prove(due, enqueued, succeeded, takeover_ms=900, leader_killed=True)


def test_what_is_due_goes_from_the_first_fire_time_to_the_end() -> None:
    assert due_ticks({"a": 1000, "b": 2000}, 3500) == {
        ("a", 1000),
        ("a", 2000),
        ("a", 3000),
        ("b", 2000),
        ("b", 3000),
    }


def test_a_fire_time_at_the_very_end_is_due() -> None:
    assert due_ticks({"a": 1000}, 2000) == {("a", 1000), ("a", 2000)}


def test_nothing_is_due_of_a_schedule_that_never_fired() -> None:
    assert due_ticks({}, 5000) == set()
    assert due_ticks({"a": 6000}, 5000) == set()


def test_what_a_beat_fires_after_it_was_told_to_end_is_due_as_well() -> None:
    assert end_of_play(2500, [("a", 2000), ("b", 2000), ("b", 3000), ("a", 3000)]) == 3000


def test_what_only_one_schedule_still_fired_makes_the_others_miss_nothing() -> None:
    assert end_of_play(2500, [("a", 3000), ("a", 4000), ("b", 3000), ("b", 2000)]) == 3000
    assert end_of_play(2500, [("a", 3000), ("b", 2000)]) == 2500
    assert end_of_play(2500, []) == 2500


def test_if_each_tick_is_enqueued_and_processed_once_all_is_well() -> None:
    proof = proved(sorted(DUE), sorted(DUE))
    assert proof == Proof(3, 3, 3, 0, 0, 900, True)
    assert proof.ok


def test_a_tick_that_was_not_enqueued_is_missing_once() -> None:
    proof = proved([("a", 1000), ("b", 1000)], [("a", 1000), ("b", 1000)])
    assert (proof.missing, proof.duplicates, proof.ok) == (1, 0, False)


def test_a_message_that_was_not_processed_is_missing() -> None:
    proof = proved(sorted(DUE), [("a", 1000)])
    assert (proof.enqueued, proof.processed, proof.missing, proof.ok) == (3, 1, 2, False)


def test_a_tick_that_was_enqueued_twice_is_a_duplicate() -> None:
    proof = proved([*sorted(DUE), ("a", 1000)], sorted(DUE))
    assert (proof.enqueued, proof.duplicates, proof.ok) == (4, 1, False)


def test_a_tick_that_ran_twice_is_a_duplicate() -> None:
    proof = proved(sorted(DUE), [*sorted(DUE), ("a", 1000), ("a", 1000)])
    assert (proof.processed, proof.duplicates, proof.ok) == (3, 2, False)


def test_a_run_without_a_message_does_not_hide_a_missing_one() -> None:
    proof = proved([("a", 1000), ("b", 1000)], sorted(DUE))
    assert proof.missing == 1


def test_without_a_takeover_there_is_no_time_for_it() -> None:
    proof = prove(DUE, sorted(DUE), sorted(DUE), takeover_ms=None, leader_killed=False)
    assert proof.to_json()["takeover_ms"] is None


def test_the_proof_in_json_has_exactly_the_keys_it_promises() -> None:
    assert proved(sorted(DUE), sorted(DUE)).to_json() == {
        "ticks_due": 3,
        "enqueued": 3,
        "processed": 3,
        "duplicates": 0,
        "missing": 0,
        "takeover_ms": 900,
        "leader_killed": True,
        "ok": True,
    }


@given(st.sets(ticks, min_size=1), st.lists(ticks), st.lists(ticks))
def test_it_is_well_only_if_what_was_due_was_enqueued_and_ran_once(
    due: set[TickKey], enqueued: list[TickKey], succeeded: list[TickKey]
) -> None:
    proof = prove(due, enqueued, succeeded, takeover_ms=1, leader_killed=True)
    messages, runs = Counter(enqueued), Counter(succeeded)
    once = all(messages[tick] == 1 and runs[tick] == 1 for tick in due)
    others_at_most_once = all(count == 1 for count in (*messages.values(), *runs.values()))
    assert proof.ok == (once and others_at_most_once)


@pytest.mark.parametrize("interval", [1000, 2000])
def test_what_is_due_depends_on_the_interval(interval: int) -> None:
    assert len(due_ticks({"a": 0}, 4000, interval)) == 4000 // interval + 1
