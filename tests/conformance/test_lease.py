"""The lease: one holder, a term that only rises, a holder that can be asked for."""

from __future__ import annotations

import time

from dramatiq_distcron.store.base import Acquired, Held
from tests.support import Rig


def test_the_first_who_asks_gets_the_lease_and_the_second_learns_who_has_it(rig: Rig) -> None:
    first = rig.store.acquire("a", 5000)
    second = rig.store.acquire("b", 5000)
    assert isinstance(first, Acquired)
    assert isinstance(second, Held)
    assert second.holder == "a"
    assert 0 < second.expires_in <= 5000


def test_a_first_term_is_the_time_so_that_a_flush_never_lowers_it(rig: Rig) -> None:
    assert abs(rig.store.acquire("a", 5000).term - rig.store.now()) < 5000


def test_each_acquisition_raises_the_term(rig: Rig) -> None:
    first = rig.store.acquire("a", 5000)
    rig.store.release("a")
    second = rig.store.acquire("b", 5000)
    rig.store.release("b")
    third = rig.store.acquire("a", 5000)
    assert first.term < second.term < third.term


def test_asking_again_after_a_lost_reply_keeps_the_term(rig: Rig) -> None:
    first = rig.store.acquire("a", 5000)
    again = rig.store.acquire("a", 5000)
    assert isinstance(again, Acquired)
    assert again.term == first.term


def test_the_holder_renews_and_another_does_not(rig: Rig) -> None:
    rig.store.acquire("a", 5000)
    assert rig.store.renew("a", 5000) is not None
    assert rig.store.renew("b", 60_000) is None
    assert rig.store.acquire("b", 5000).expires_in <= 5000


def test_a_late_renewal_leaves_the_next_holder_untouched(rig: Rig) -> None:
    rig.store.acquire("a", 30)
    time.sleep(0.05)
    successor = rig.store.acquire("b", 5000)
    assert isinstance(successor, Acquired)
    assert rig.store.renew("a", 60_000) is None
    assert rig.store.release("a") is False
    assert rig.store.leader() == ("b", successor.term, successor.now)


def test_a_lease_ends_by_itself(rig: Rig) -> None:
    rig.store.acquire("a", 30)
    time.sleep(0.05)
    assert rig.store.leader() is None
    assert isinstance(rig.store.acquire("b", 5000), Acquired)


def test_a_lease_that_lasts_longer_than_ours_is_cut_to_ours(rig: Rig) -> None:
    """The clock of the server stepped back: without the cut nobody is on duty for the length of the step."""
    rig.store.acquire("a", 3_600_000)
    assert rig.store.acquire("b", 3000).expires_in <= 3000
    assert rig.store.acquire("b", 3000).expires_in <= 3000


def test_a_release_wakes_who_waits(rig: Rig) -> None:
    rig.store.wait(0.001)
    rig.store.acquire("a", 5000)
    rig.store.release("a")
    assert rig.store.wait(5) is True
    assert rig.store.wait(0.001) is False


def test_renewal_tells_how_many_schedules_and_cursors_there_are(rig: Rig) -> None:
    rig.lead()
    rig.put("one")
    rig.put("two")
    renewed = rig.store.renew("a", 5000, count=True)
    assert (renewed.schedules, renewed.cursors) == (2, 2)
