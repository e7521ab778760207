"""Ticks whose actor no worker that runs knows: the beat was deployed before the workers."""

from __future__ import annotations

import logging

import pytest
from dramatiq.brokers.stub import StubBroker

from dramatiq_distcron import every
from dramatiq_distcron.staff import Staff
from dramatiq_distcron.store.base import REMEMBERED, Instance
from tests.unit.world import World


@pytest.fixture
def world(stub_broker: StubBroker) -> World:
    return World(stub_broker)


def staff_of(world: World) -> Staff:
    return Staff(world.store, world.clock)


def tell(world: World, holder: str, role: str, *actors: str) -> None:
    data = {"role": role, "actors": dict.fromkeys(actors, "default")}
    world.store.heartbeat(Instance(holder, data), keep=REMEMBERED)


def test_a_schedule_whose_actor_no_worker_knows_is_warned_of_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    tell(world, "a beat", "leader", "old", "new")
    tell(world, "a worker", "worker", "old")
    staff = staff_of(world)
    for _ in range(3):
        staff.enqueued({"nightly": "new", "hourly": "old"})
        world.clock.advance(60)
        tell(world, "a worker", "worker", "old")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "'nightly' was enqueued, and no worker that tells of itself knows its actor 'new'" in record.message


def test_one_worker_that_knows_the_actor_is_enough(world: World, caplog: pytest.LogCaptureFixture) -> None:
    tell(world, "a worker", "worker", "old")
    tell(world, "another", "worker", "new")
    staff_of(world).enqueued({"nightly": "new"})
    assert caplog.records == []


def test_without_any_worker_nothing_is_said_as_the_messages_wait(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    tell(world, "a beat", "leader", "old")
    staff_of(world).enqueued({"nightly": "new"})
    assert caplog.records == []


def test_the_workers_are_not_asked_for_with_each_tick(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(world.store, "instances", lambda keep: asked.append(keep) or [])
    staff = staff_of(world)
    for _ in range(10):
        staff.enqueued({"nightly": "new"})
        world.clock.advance(1)
    assert len(asked) == 2


def test_one_that_comes_right_after_the_workers_were_asked_for_is_not_forgotten(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    tell(world, "a worker", "worker", "old")
    staff = staff_of(world)
    staff.enqueued({"nightly": "new"})
    staff.enqueued({"daily": "newer"})
    assert len(caplog.records) == 1
    world.clock.advance(6)
    staff.enqueued({})
    assert "'daily'" in caplog.records[1].message


def test_a_pass_tells_the_actors_of_what_it_enqueued(world: World) -> None:
    world.actor(every(10, name="often"), every(3600, name="seldom"))
    assert world.beat
    assert world.at(10).actors == {"often": "job"}
