"""The lease as a process knows it: trusted too short rather than too long, and renewed only while something moves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramatiq_distcron.errors import StoreRefused, StoreUnavailable
from dramatiq_distcron.lease import Keeper, Lease, Progress
from dramatiq_distcron.store.base import Acquired, Held, Renewed
from dramatiq_distcron.store.memory import MemoryStore
from tests.support import FakeClock

TTL = 3000
TRUST = 2.7
STORE_TIME = 1_774_746_000_000


class World:
    """Our clock, the store's clock, and requests whose ways there and back take their time."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.step = 0
        self.way_there = self.way_back = 0.0
        self.failure: Exception | None = None
        self.requests = 0
        self.memory = MemoryStore(self.now_there)

    def now_there(self) -> int:
        return STORE_TIME + self.step + round((self.clock.seconds - 1000.0) * 1000)

    def _asked(self, verb: Callable[[], Any]) -> Any:
        self.requests += 1
        self.clock.advance(self.way_there)
        reply = verb()
        self.clock.advance(self.way_back)
        if self.failure:
            raise self.failure
        return reply

    def now(self) -> Any:
        return self._asked(self.memory.now)

    def acquire(self, holder: str, ttl: int) -> Any:
        return self._asked(lambda: self.memory.acquire(holder, ttl))

    def renew(self, holder: str, ttl: int, **settings: Any) -> Any:
        return self._asked(lambda: self.memory.renew(holder, ttl, **settings))

    def release(self, holder: str) -> Any:
        return self._asked(lambda: self.memory.release(holder))

    def lease(self, holder: str = "me") -> Lease:
        store: Any = self
        return Lease(store, self.clock, holder, TTL)

    def trust_left(self, lease: Lease) -> float:
        """How long ``lease`` stays trusted from now on, in steps of a millisecond."""
        before, left = self.clock.seconds, 0
        while lease.trusted:
            left += 1
            self.clock.seconds = before + left / 1000
        self.clock.seconds = before
        return left / 1000


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def lease(world: World) -> Lease:
    return world.lease()


# -- trust --------------------------------------------------------------------------------------------------


def test_before_anything_is_asked_nothing_is_trusted(lease: Lease) -> None:
    assert not lease.trusted


def test_an_acquired_lease_is_trusted_for_its_life_minus_a_margin(world: World, lease: Lease) -> None:
    assert isinstance(lease.acquire(), Acquired)
    assert world.trust_left(lease) == pytest.approx(TRUST, abs=0.002)


def test_trust_ends_before_the_lease_does(world: World, lease: Lease) -> None:
    lease.acquire()
    world.clock.advance(world.trust_left(lease))
    assert not lease.trusted
    assert world.memory.leader() is not None


@pytest.mark.parametrize(("there", "back"), [(1.0, 0.0), (0.0, 1.0), (0.5, 0.5)])
def test_trust_counts_from_the_start_of_the_request(world: World, lease: Lease, there: float, back: float) -> None:
    world.way_there, world.way_back = there, back
    lease.acquire()
    assert world.trust_left(lease) == pytest.approx(TRUST - 1.0, abs=0.002)


def test_a_reply_that_takes_longer_than_the_lease_gives_no_trust(world: World, lease: Lease) -> None:
    world.way_back = 3.0
    assert isinstance(lease.acquire(), Acquired)
    assert not lease.trusted


def test_a_renewal_prolongs_trust(world: World, lease: Lease) -> None:
    lease.acquire()
    world.clock.advance(2.0)
    assert isinstance(lease.renew(), Renewed)
    assert world.trust_left(lease) == pytest.approx(TRUST, abs=0.002)


def test_a_slow_renewal_does_not_prolong_trust_beyond_its_request(world: World, lease: Lease) -> None:
    lease.acquire()
    world.clock.advance(1.0)
    world.way_back = 1.5
    assert isinstance(lease.renew(), Renewed)
    assert world.trust_left(lease) == pytest.approx(TRUST - 1.5, abs=0.002)


def test_an_error_in_a_renewal_leaves_the_trust_that_is_left(world: World, lease: Lease) -> None:
    lease.acquire()
    world.clock.advance(1.0)
    world.failure = StoreUnavailable("cut off")
    with pytest.raises(StoreUnavailable):
        lease.renew()
    assert world.trust_left(lease) == pytest.approx(TRUST - 1.0, abs=0.002)


def test_an_error_in_an_acquisition_means_standby(world: World, lease: Lease) -> None:
    lease.acquire()
    world.failure = StoreUnavailable("cut off")
    with pytest.raises(StoreUnavailable):
        lease.acquire()
    assert not lease.trusted


def test_a_lease_that_somebody_else_holds_is_not_trusted(world: World, lease: Lease) -> None:
    world.lease("other").acquire()
    reply = lease.acquire()
    assert isinstance(reply, Held)
    assert reply.holder == "other"
    assert not lease.trusted


def test_a_renewal_that_finds_another_holder_ends_trust_at_once(world: World, lease: Lease) -> None:
    lease.acquire()
    world.memory.release("me")
    world.memory.acquire("other", TTL)
    assert lease.renew() is None
    assert not lease.trusted


def test_a_late_renewal_ends_trust_and_leaves_the_successor_alone(world: World, lease: Lease) -> None:
    lease.acquire()
    world.clock.advance(3.5)
    successor = world.lease("other")
    successor.acquire()
    assert lease.renew() is None
    assert successor.trusted
    assert world.memory.leader() == ("other", successor.term, successor.since)


def test_a_refused_commit_ends_trust(lease: Lease) -> None:
    lease.acquire()
    lease.lost()
    assert not lease.trusted


def test_a_release_ends_trust_before_the_store_is_asked(world: World, lease: Lease) -> None:
    lease.acquire()
    world.failure = StoreUnavailable("cut off")
    with pytest.raises(StoreUnavailable):
        lease.release()
    assert not lease.trusted


def test_a_released_lease_is_free_for_the_next(world: World, lease: Lease) -> None:
    lease.acquire()
    lease.release()
    assert isinstance(world.lease("other").acquire(), Acquired)


# -- the term -----------------------------------------------------------------------------------------------


def test_a_term_ends_with_the_lease_and_the_next_is_higher(world: World, lease: Lease) -> None:
    lease.acquire()
    first, since = lease.term, lease.since
    world.clock.advance(10)
    lease.acquire()
    assert lease.term > first
    assert lease.since == since + 10_000


def test_a_renewal_keeps_the_term_and_since_when(world: World, lease: Lease) -> None:
    lease.acquire()
    before = (lease.term, lease.since)
    world.clock.advance(1)
    lease.renew()
    assert (lease.term, lease.since) == before


def test_somebody_elses_term_is_not_ours(world: World, lease: Lease) -> None:
    lease.acquire()
    mine = lease.term
    world.clock.advance(10)
    world.lease("other").acquire()
    lease.acquire()
    assert lease.term == mine


# -- the store's clock --------------------------------------------------------------------------------------


def test_now_is_the_stores_clock(world: World, lease: Lease) -> None:
    assert lease.now() == STORE_TIME
    world.clock.advance(1.5)
    assert lease.now() == STORE_TIME + 1500
    assert world.requests == 1


waits = st.integers(0, 5000).map(lambda n: n / 1024)


@given(st.lists(st.tuples(waits, waits, waits), min_size=1, max_size=10))
def test_now_is_never_ahead_of_the_stores_clock(delays: list[tuple[float, float, float]]) -> None:
    """A tick that is due by our idea of now is due by the store's."""
    world = World()
    lease = world.lease()
    for pause, world.way_there, world.way_back in delays:
        lease.acquire()
        assert lease.now() <= world.now_there()
        world.clock.advance(pause)
        assert lease.now() <= world.now_there()


@given(waits, waits)
def test_now_is_late_by_no_more_than_the_way_back(there: float, back: float) -> None:
    world = World()
    lease = world.lease()
    world.way_there, world.way_back = there, back
    lease.acquire()
    assert world.now_there() - lease.now() <= back * 1000 + 2


@pytest.mark.parametrize(("step", "told"), [(-3_600_000, "-3600.0 s"), (2000, "+2.0 s")])
def test_a_step_of_the_stores_clock_is_told(
    world: World, lease: Lease, caplog: pytest.LogCaptureFixture, step: int, told: str
) -> None:
    lease.acquire()
    world.step = step
    lease.renew()
    assert f"stepped by {told}" in caplog.text
    assert lease.now() == STORE_TIME + step


@pytest.mark.parametrize("step", [-900, 0, 900])
def test_a_small_step_is_followed_in_silence(
    world: World, lease: Lease, caplog: pytest.LogCaptureFixture, step: int
) -> None:
    lease.acquire()
    world.step = step
    lease.renew()
    assert caplog.text == ""
    assert lease.now() == STORE_TIME + step


def test_a_step_is_told_once(world: World, lease: Lease, caplog: pytest.LogCaptureFixture) -> None:
    lease.acquire()
    world.step = -60_000
    lease.renew()
    lease.renew()
    assert len(caplog.records) == 1


def test_a_slow_reply_is_no_step_of_the_clock(world: World, lease: Lease, caplog: pytest.LogCaptureFixture) -> None:
    """The clock may be anywhere between the request and the reply, and so may the answer."""
    lease.acquire()
    world.way_back = 1.4
    lease.renew()
    world.way_back = 0.0
    lease.renew()
    assert caplog.text == ""


# -- progress -----------------------------------------------------------------------------------------------


def test_a_pass_that_makes_no_step_for_long_is_stuck_until_it_makes_one(world: World) -> None:
    progress = Progress(world.clock, 30.0)
    stuck = []
    for seconds in (30.0, 0.1):
        world.clock.advance(seconds)
        stuck.append(progress.stuck)
    progress.made()
    assert [*stuck, progress.stuck] == [False, True, False]


# -- the keeper ---------------------------------------------------------------------------------------------


class Watched:
    """A keeper that is turned by hand, and what it reports."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lease = world.lease()
        self.progress = Progress(world.clock, 30.0)
        self.told: list[Renewed | None] = []
        self.keeper = Keeper(self.lease, self.progress, self.told.append)

    def turn(self) -> float:
        return self.keeper._turn()


@pytest.fixture
def watched(world: World) -> Watched:
    return Watched(world)


def test_a_standby_renews_nothing(watched: Watched) -> None:
    assert watched.turn() == pytest.approx(1.0)
    assert watched.told == []
    assert watched.world.requests == 0


def test_a_leader_renews_three_times_in_the_life_of_a_lease(watched: Watched) -> None:
    watched.lease.acquire()
    for _ in range(20):
        watched.world.clock.advance(watched.turn())
        watched.progress.made()
        assert watched.lease.trusted
    assert len(watched.told) == 20
    assert all(isinstance(renewed, Renewed) for renewed in watched.told)


def test_the_state_is_counted_at_once_and_then_now_and_then(watched: Watched) -> None:
    """Counting finds what was evicted, and costs two commands."""
    watched.lease.acquire()
    for _ in range(11):
        watched.turn()
    counted = [n for n, renewed in enumerate(watched.told) if renewed and renewed.schedules is not None]
    assert counted == [0, 5, 10]


def test_a_lost_lease_is_told_and_not_asked_for_again(watched: Watched) -> None:
    watched.lease.acquire()
    watched.world.memory.release("me")
    watched.turn()
    watched.turn()
    assert watched.told == [None]


@pytest.mark.parametrize("error", [StoreUnavailable("cut off"), StoreRefused("OOM")])
def test_after_an_error_it_tries_again_soon_while_trust_lasts(
    watched: Watched, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    watched.lease.acquire()
    watched.world.failure = error
    pause = watched.turn()
    assert pause == pytest.approx(0.3)
    assert f"could not be renewed; it is tried again until it ends: {error}" in caplog.text
    watched.world.clock.advance(TRUST)
    watched.world.requests = 0
    watched.turn()
    assert watched.world.requests == 0


def test_a_renewal_after_an_error_prolongs_as_any_other(watched: Watched) -> None:
    watched.lease.acquire()
    watched.world.failure = StoreUnavailable("cut off")
    watched.world.clock.advance(watched.turn())
    watched.world.failure = None
    watched.turn()
    assert watched.world.trust_left(watched.lease) == pytest.approx(TRUST, abs=0.002)


def test_a_stuck_pass_is_not_kept_in_office(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.lease.acquire()
    watched.world.clock.advance(31.0)
    watched.lease.acquire()
    requests = watched.world.requests
    watched.turn()
    assert watched.world.requests == requests
    assert watched.told == []
    assert "The pass is stuck" in caplog.text


def test_a_stuck_pass_loses_the_lease_to_a_standby(watched: Watched) -> None:
    watched.lease.acquire()
    for _ in range(100):
        watched.world.clock.advance(watched.turn())
    assert not watched.lease.trusted
    assert isinstance(watched.world.lease("other").acquire(), Acquired)


def test_a_stuck_pass_is_complained_about_once_and_again_after_it_moved(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        watched.world.clock.advance(31.0)
        watched.lease.acquire()
        watched.turn()
        watched.turn()
        watched.progress.made()
        watched.turn()
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2


def test_the_thread_goes_on_after_an_error_that_nobody_thought_of(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    renewals = threading.Semaphore(0)
    world.memory.now()
    lease = Lease(world.memory, world.clock, "me", 30)

    def fail(renewed: Renewed | None) -> None:
        renewals.release()
        raise RuntimeError("nobody thought of this")

    lease.acquire()
    keeper = Keeper(lease, Progress(world.clock, 30.0), fail)
    keeper.start()
    try:
        assert renewals.acquire(timeout=10)
        assert renewals.acquire(timeout=10)
    finally:
        keeper.stop()
        keeper.join(10)
    assert not keeper.is_alive()
    assert "failed unexpectedly; it goes on" in caplog.text


def test_the_thread_ends_when_it_is_told_to(world: World) -> None:
    keeper = Keeper(world.lease(), Progress(world.clock, 30.0), lambda renewed: None)
    keeper.start()
    keeper.stop()
    keeper.join(10)
    assert not keeper.is_alive()
    assert keeper.daemon
