"""The pass on the store in memory, stepped by hand: what is decided is what is committed."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from dramatiq.brokers.stub import StubBroker

from dramatiq_distcron import every, ticks
from dramatiq_distcron import scheduler as scheduler_module
from dramatiq_distcron.store.base import NEVER
from tests.unit.world import BEGIN, World


@pytest.fixture
def world(stub_broker: StubBroker) -> World:
    return World(stub_broker)


# -- overlap ------------------------------------------------------------------------------------------------


def test_while_a_run_is_outstanding_skip_skips(world: World) -> None:
    world.actor(every(10, overlap="skip"))
    for second in (10, 20, 30):
        world.at(second)
    assert world.fired() == [("job", 10)]
    assert world.outcomes("job") == [("enqueued", 10, 10, 1), ("skipped_overlap", 20, 30, 2)]


def test_after_the_run_is_over_the_next_fire_time_is_enqueued(world: World) -> None:
    world.actor(every(10, overlap="skip"))
    world.at(10)
    world.at(20)
    world.end_run("job")
    world.at(30)
    assert world.fired() == [("job", 10), ("job", 30)]
    assert world.runs("job") == ["succeeded", "queued"]


def test_a_tick_that_waits_is_fired_with_its_own_fire_time_when_the_run_is_over(world: World) -> None:
    world.actor(every(10, overlap="buffer_one"))
    for second in (10, 20, 30, 33):
        world.at(second)
    assert world.fired() == [("job", 10)]
    world.end_run("job")
    world.beat.scheduler.resting.woken()
    world.at(34)
    assert world.fired() == [("job", 10), ("job", 30)]
    assert world.outcomes("job") == [("enqueued", 10, 10, 1), ("missed", 20, 20, 1), ("enqueued", 30, 30, 1)]


def test_of_a_backlog_only_the_first_is_enqueued_where_runs_must_not_overlap(world: World) -> None:
    world.actor(every(10, overlap="skip", catch_up="all"))
    assert world.beat
    world.at(45)
    assert world.fired() == [("job", 10)]
    assert world.outcomes("job") == [("enqueued", 10, 10, 1), ("skipped_overlap", 20, 40, 3)]


@pytest.mark.parametrize("overlap", ["skip", "buffer_one"])
def test_a_run_whose_message_is_gone_does_not_block_its_schedule(
    world: World, caplog: pytest.LogCaptureFixture, overlap: Any
) -> None:
    world.actor(every(10, overlap=overlap))
    world.at(10)
    world.gone.add("all")
    world.at(20)
    assert world.fired() == [("job", 10), ("job", 20)]
    assert world.runs("job") == ["dropped", "queued"]
    assert "was given up" in caplog.text


def test_whether_a_run_is_still_there_is_asked_every_few_seconds_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.actor(every(1, overlap="skip"))
    asked = []
    probe = world.store.probe_run

    def counted(*args: Any) -> Any:
        asked.append(args)
        return probe(*args)

    monkeypatch.setattr(world.store, "probe_run", counted)
    for second in range(1, 22):
        world.at(second)
    assert len(asked) == 4


def test_a_run_that_was_never_heard_of_again_is_given_up_after_its_time_out(world: World) -> None:
    world.actor(every(10, overlap="skip", overlap_timeout=60))
    for second in range(10, 80, 10):
        world.at(second)
    assert world.fired() == [("job", 10)]
    world.at(80)
    assert world.fired() == [("job", 10), ("job", 80)]
    assert world.runs("job") == ["dropped", "queued"]


def test_a_schedule_that_waits_makes_the_beat_look_again_within_a_second(world: World) -> None:
    world.actor(every(60, overlap="buffer_one"))
    world.at(60)
    assert world.beat._until_next(world.at(120)) == 1.0


def test_a_beat_does_not_spin_after_a_tick_that_waited_was_fired(world: World) -> None:
    """The wait was over without a wake-up: the run's message was gone."""
    world.actor(every(60, overlap="buffer_one"))
    world.at(60)
    world.at(120)
    world.gone.add("all")
    assert world.at(126).enqueued == 1
    assert world.beat._until_next(world.at(127)) == 5.0


def test_the_run_of_a_tick_remembers_the_fire_time_before_it(world: World) -> None:
    world.actor(every(10, catch_up="all"))
    assert world.beat
    world.at(10)
    world.at(40)
    previous = [world.store._state.runs[message.message_id]["previous"] for message in world.messages()]
    begin = int(BEGIN.timestamp())
    assert previous == ["", f"{begin + 10}000", f"{begin + 20}000", f"{begin + 30}000"]


# -- backpressure -------------------------------------------------------------------------------------------


def test_ticks_are_skipped_while_the_queue_is_full(world: World) -> None:
    world.actor(every(10, max_queue_length=2))
    for second in (10, 20, 30, 40):
        world.at(second)
    assert world.fired() == [("job", 10), ("job", 20)]
    assert world.outcomes("job")[-1] == ("skipped_backpressure", 30, 40, 2)
    world.broker.queues["default"].get_nowait()
    world.at(50)
    assert world.fired() == [("job", 20), ("job", 50)]


def test_schedules_of_one_queue_share_its_room_within_a_pass(world: World) -> None:
    world.actor(*(every(10, name=f"job-{n}", max_queue_length=3) for n in range(5)))
    report = world.at(10)
    assert (report.enqueued, report.recorded) == (3, 2)
    assert world.lengths_asked == ["default"]


def test_another_queue_has_room_of_its_own(world: World) -> None:
    world.actor(every(10, max_queue_length=1))
    world.actor(every(10, max_queue_length=1), name="other", queue_name="reports")
    assert world.at(10).enqueued == 2


def test_the_length_of_a_queue_is_asked_for_anew_in_each_pass(world: World) -> None:
    world.actor(every(10, max_queue_length=3))
    world.at(10)
    world.at(20)
    assert world.lengths_asked == ["default", "default"]


# -- start, end, run_at_start, enabled ----------------------------------------------------------------------


def test_a_schedule_fires_from_its_start_to_its_end_both_included(world: World) -> None:
    world.actor(every(10, start=BEGIN + timedelta(seconds=20), end=BEGIN + timedelta(seconds=40)))
    for second in range(0, 70, 10):
        world.at(second)
    assert world.fired() == [("job", 20), ("job", 30), ("job", 40)]
    assert world.stored("job").score == NEVER
    assert world.distcron.schedules.get("job").state == "finished"


def test_a_schedule_that_runs_at_its_start_does_so_once_and_not_after_a_restart(world: World) -> None:
    world.actor(every(10, run_at_start=True))
    assert world.beat
    world.at(3)
    world.restart()
    world.at(4)
    world.at(10)
    assert world.fired() == [("job", 0), ("job", 10)]


def test_a_schedule_that_is_not_enabled_records_its_fire_times(world: World) -> None:
    world.actor(every(10, enabled=False))
    for second in (10, 20, 30):
        world.at(second)
    assert world.fired() == []
    assert world.outcomes("job") == [("disabled", 10, 30, 3)]
    (tick,) = world.distcron.schedules.history("job")
    assert tick.reason == "enabled=False"


@pytest.mark.parametrize("value", ["1", "true", "YES", " on "])
def test_an_app_that_is_switched_off_enqueues_nothing_and_says_who_did_it(
    stub_broker: StubBroker, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("DISTCRON_DISABLED", value)
    world = World(stub_broker)
    world.actor(every(10), every(10, name="second", catch_up="all"))
    world.at(35)
    assert world.fired() == []
    assert world.outcomes("job") == world.outcomes("second") == [("disabled", 10, 30, 3)]
    assert world.distcron.schedules.history("job")[0].reason == f"DISTCRON_DISABLED={value.strip().lower()}"


def test_when_it_is_switched_on_again_nothing_of_that_time_is_caught_up(
    stub_broker: StubBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTCRON_DISABLED", "1")
    off = World(stub_broker)
    off.actor(every(10, catch_up="all"))
    off.at(35)
    monkeypatch.delenv("DISTCRON_DISABLED")
    other = StubBroker()
    on = World(other)
    on.actor(every(10, catch_up="all"))
    on.store._state = off.store._state
    on.store._state.lease = None
    on.at(40)
    assert on.fired() == [("job", 40)]
    other.close()


# -- spread -------------------------------------------------------------------------------------------------


def test_a_spread_tick_is_fired_at_its_score_with_its_nominal_fire_time(world: World) -> None:
    world.actor(every(60, spread=60))
    assert world.beat
    score = ((world.stored("job").score or 0) - int(BEGIN.timestamp() * 1000)) / 1000
    assert 60 < score < 120
    world.at(score - 0.001)
    assert world.fired() == []
    world.at(score)
    assert world.fired() == [("job", 60)]
    assert world.distcron.schedules.history("job")[0].lateness_ms == 0


def test_spread_schedules_of_one_instant_are_fired_one_after_the_other(world: World) -> None:
    world.actor(*(every(600, name=f"job-{n}", spread=600) for n in range(50)))
    assert world.beat
    counts = [world.at(second).enqueued for second in range(600, 1200, 60)]
    assert sum(counts) + world.at(1199.999).enqueued == 50
    assert max(counts) < 20


# -- what cannot be used, and what changed meanwhile --------------------------------------------------------


def test_a_schedule_of_an_actor_that_is_not_declared_is_disabled_with_the_reason(
    world: World, stub_broker: StubBroker
) -> None:
    world.actor(every(10))
    assert world.beat
    del stub_broker.actors["job"]
    world.at(10)
    (tick,) = world.distcron.schedules.history("job")
    assert (tick.outcome, tick.reason) == ("disabled", "actor 'job' is not declared here")
    assert world.fired() == []


def test_a_schedule_that_was_edited_between_decision_and_commit_is_decided_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.actor(every(10, name="stored by code"))
    world.distcron.schedules.put(every(10, name="job"), "job")
    commit = world.store.start_fire

    def edited_before(*args: Any) -> Any:
        monkeypatch.setattr(world.store, "start_fire", commit)
        world.distcron.schedules.put(every(10, name="job", args=("new",)), "job")
        return commit(*args)

    assert world.beat
    monkeypatch.setattr(world.store, "start_fire", edited_before)
    report = world.at(10)
    assert (report.stale, report.more) == (1, True)
    world.at(10)
    assert [message.args for message in world.messages() if message.options["distcron"]["schedule"] == "job"] == [
        ("new",)
    ]


def test_one_whose_ticks_cannot_be_decided_rests_and_the_others_fire(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.actor(every(10, name="bad"), every(10, name="good"))

    def poisoned(spec: Any, *args: Any) -> Any:
        if spec.name == "bad":
            raise OverflowError("far too far")
        return ticks.decide(spec, *args)

    monkeypatch.setattr(scheduler_module, "decide", poisoned)
    world.at(10)
    world.at(10)
    assert world.fired() == [("good", 10)]
    assert caplog.text.count("its ticks cannot be decided") == 1


def test_a_sweep_ends_runs_whose_messages_are_gone_and_says_so(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    world.actor(every(10))
    world.at(10)
    assert world.beat.scheduler.sweep() == 0
    world.gone.add("all")
    assert world.beat.scheduler.sweep() == 1
    assert world.runs("job") == ["dropped"]
    assert "1 runs were given up" in caplog.text


def test_a_sweep_of_one_that_lost_the_lease_ends_nothing(world: World) -> None:
    world.actor(every(10))
    world.at(10)
    world.gone.add("all")
    world.store.release(world.beat.holder)
    assert world.beat.scheduler.sweep() == 0
    assert not world.beat.lease.trusted
    assert world.runs("job") == ["queued"]
