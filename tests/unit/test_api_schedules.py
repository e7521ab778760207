"""What users call on ``distcron.schedules``, on the store in memory."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker
from dramatiq.encoder import PickleEncoder
from dramatiq.middleware import Middleware, MiddlewareError

from dramatiq_distcron import at, cron, every, install
from dramatiq_distcron.api.schedules import Schedules
from dramatiq_distcron.errors import (
    ConfigurationError,
    ConflictError,
    NotFoundError,
    RunOutstanding,
    ScheduleError,
    StoreRefused,
    StoreUnavailable,
)
from dramatiq_distcron.letters import DLQ_ACTOR, DLQ_QUEUE
from dramatiq_distcron.publishing import Vetoed
from dramatiq_distcron.specs import FORMAT, NotForUs
from dramatiq_distcron.store.base import NEVER, Instance
from tests.unit.world import BEGIN, World


@pytest.fixture
def world(stub_broker: StubBroker) -> World:
    """An app with an actor ``job`` and one schedule in its code, ``nightly``."""
    world = World(stub_broker)
    world.actor(every(60, name="nightly"))
    assert world.beat
    return world


@pytest.fixture
def schedules(world: World) -> Schedules:
    return world.distcron.schedules


def names(world: World) -> list[str]:
    return [one.name for one in world.distcron.schedules.list()]


# -- put ----------------------------------------------------------------------------------------------------


def test_a_schedule_that_was_put_fires_without_a_restart(world: World, schedules: Schedules) -> None:
    schedules.put(every(10, name="report:7", args=(7,)), "job")
    world.at(10)
    (message,) = world.messages()
    assert (message.actor_name, message.args) == ("job", (7,))
    assert world.fired() == [("report:7", 10)]


def test_a_put_that_stalled_while_others_put_fired_and_removed_the_same_repeats_nothing(
    world: World, schedules: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = world.distcron.open_backend().store
    instants = [store.now()]
    schedules.put(every(10, name="x", catch_up="all"), "job")
    for second in (10, 20, 30):
        world.at(second)
    schedules.remove("x")
    world.at(31)
    fired = world.fired()
    # It had looked, and asked for the time, before all that.
    present = store.now
    monkeypatch.setattr(store, "now", lambda: instants.pop() if instants else present())
    schedules.put(every(10, name="x", catch_up="all"), "job")
    world.at(40)
    assert world.fired() == [*fired, ("x", 40)]


def test_two_edits_while_the_clock_is_behind_repeat_nothing_also_if_it_was_over_in_between(
    world: World, schedules: Schedules
) -> None:
    schedules.put(every(10, name="x"), "job")
    for second in (10, 20, 30):
        world.at(second)
    world.at(5)
    schedules.put(at(BEGIN, name="x"), "job")
    world.at(6)
    schedules.put(every(10, name="x"), "job")
    for second in (10, 20, 30, 40):
        world.at(second)
    assert world.fired() == [("x", 10), ("x", 20), ("x", 30), ("x", 40)]


def test_what_was_put_is_listed_as_it_is(world: World, schedules: Schedules, stub_broker: StubBroker) -> None:
    schedules.put(cron("0 7 * * 1-5", name="report:7", tz="Europe/Berlin"), stub_broker.actors["job"])
    info = schedules.get("report:7")
    assert (info.actor, info.queue, info.source, info.state) == ("job", "default", "api", "active")
    assert (info.kind, info.expression, info.timezone) == ("cron", "0 7 * * 1-5", "Europe/Berlin")


def test_without_a_name_it_has_that_of_its_actor(world: World, schedules: Schedules) -> None:
    schedules.put(every(10), "job")
    assert names(world) == ["job", "nightly"]


def test_the_defaults_of_the_app_hold_for_what_is_put(stub_broker: StubBroker) -> None:
    world = World(stub_broker, tz="Asia/Tokyo", overlap="skip", expires=60)
    world.actor()
    world.distcron.schedules.put(cron("0 3 * * *", name="own", overlap="buffer_one"), "job")
    spec = world.spec("own")
    assert spec["timing"]["timezone"] == "Asia/Tokyo"
    assert (spec["policy"]["overlap"], spec["policy"]["expires"]) == ("buffer_one", 60_000)


def test_putting_the_same_again_keeps_the_cursor_and_takes_the_new_arguments(
    world: World, schedules: Schedules
) -> None:
    schedules.put(every(10, name="report:7", args=("old",)), "job")
    before = world.stored("report:7").score
    world.clock.advance(25)
    schedules.put(every(10, name="report:7", args=("new",)), "job")
    assert world.stored("report:7").score == before
    world.at(25)
    assert [message.args for message in world.messages()] == [("new",)]


def test_putting_other_times_records_what_was_due_and_never_fires_the_old_ones(
    world: World, schedules: Schedules
) -> None:
    schedules.put(every(10, name="report:7", args=("old",)), "job")
    world.clock.advance(35)
    schedules.put(every(7, name="report:7", args=("new",)), "job")
    world.at(42)
    fired = [(m.args, m.options["distcron"]["fire_time"]) for m in world.messages()]
    begin = int(BEGIN.timestamp()) * 1000
    assert [args for args, _ in fired] == [("new",)]
    assert all(fire_time > begin + 35_000 for _, fire_time in fired)
    assert world.outcomes("report:7")[0] == ("missed", 10, 30, 3)
    assert schedules.history("report:7")[-1].reason == "edited"


def test_a_paused_schedule_that_is_put_stays_paused(world: World, schedules: Schedules) -> None:
    schedules.put(every(10, name="report:7"), "job")
    schedules.pause("report:7", reason="unpaid")
    for again in (every(10, name="report:7", args=(1,)), every(7, name="report:7")):
        schedules.put(again, "job")
        assert schedules.get("report:7").paused


def test_a_lost_cursor_of_one_that_is_put_comes_back_after_what_was_decided_last(
    world: World, schedules: Schedules
) -> None:
    schedules.put(every(10, name="report:7", catch_up="all"), "job")
    world.at(10)
    world.store._state.due.pop("report:7")
    world.clock.advance(25)
    schedules.put(every(10, name="report:7", catch_up="all", args=("new",)), "job")
    world.at(35)
    assert world.fired() == [("report:7", 10), ("report:7", 20), ("report:7", 30)]


# -- what cannot be put -------------------------------------------------------------------------------------


def test_an_actor_that_nobody_knows_is_refused_with_the_nearest_name(world: World, schedules: Schedules) -> None:
    with pytest.raises(ConfigurationError, match=r"No actor 'jbo' is declared here .* Did you mean 'job'\?"):
        schedules.put(every(10), "jbo")
    assert names(world) == ["nightly"]


def test_an_actor_that_a_running_process_told_of_may_be_named(world: World, schedules: Schedules) -> None:
    world.store.heartbeat(Instance("w1", {"role": "worker", "actors": {"elsewhere": "slow"}}), keep=60_000)
    schedules.put(every(10, name="report:7"), "elsewhere")
    info = schedules.get("report:7")
    assert (info.actor, info.queue) == ("elsewhere", "slow")
    with pytest.raises(ConfigurationError, match="Did you mean 'elsewhere'"):
        schedules.put(every(10), "elsewher")


def test_the_actor_that_tells_of_dead_letters_is_not_offered(world: World, schedules: Schedules) -> None:
    told = {"role": "worker", "actors": {DLQ_ACTOR: DLQ_QUEUE, "elsewhere": "slow"}}
    world.store.heartbeat(Instance("w1", told), keep=60_000)
    with pytest.raises(ConfigurationError, match="No actor") as refused:
        schedules.put(every(10), f"{DLQ_ACTOR}s")
    assert f"'{DLQ_ACTOR}'" not in str(refused.value)


@pytest.mark.parametrize("argument", [object(), {1, 2}, datetime(2026, 1, 1), b"bytes"])
def test_arguments_that_cannot_be_encoded_are_refused_before_anything_is_stored(
    world: World, schedules: Schedules, argument: Any
) -> None:
    with pytest.raises(ConfigurationError, match="The arguments of schedule 'report:7' cannot be encoded"):
        schedules.put(every(10, name="report:7", args=(argument,)), "job")
    assert names(world) == ["nightly"]


class OneWay(PickleEncoder):
    """Encodes what it cannot decode."""

    def decode(self, data: bytes) -> Any:
        raise ValueError("no way back")


def test_arguments_that_cannot_be_decoded_again_are_refused_before_anything_is_stored(
    world: World, schedules: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat would find that out at its first tick, when nobody looks."""
    monkeypatch.setattr("dramatiq.message.global_encoder", OneWay())
    with pytest.raises(ConfigurationError, match=r"cannot be encoded by OneWay and decoded again: no way back"):
        schedules.put(every(10, name="report:7", args=({1},)), "job")
    assert names(world) == ["nightly"]


def test_a_name_that_the_code_defines_is_refused(world: World, schedules: Schedules) -> None:
    before = world.stored("nightly")
    with pytest.raises(ConflictError, match="Schedule 'nightly' is defined in code, which is the truth for it"):
        schedules.put(every(10, name="nightly"), "job")
    assert world.stored("nightly") == before


def test_a_name_that_the_code_defined_once_may_be_taken_over(world: World, schedules: Schedules) -> None:
    retire_nightly(world)
    schedules.put(every(10, name="nightly"), "job")
    info = schedules.get("nightly")
    assert (info.source, info.state) == ("api", "active")


def retire_nightly(world: World) -> None:
    """Another version of the code leads, which has another schedule instead."""
    del world.distcron._declared["nightly"]
    world.distcron.add_schedule(world.broker.actors["job"], every(3600, name="other"))
    world.restart()
    assert world.distcron.schedules.get("nightly").state == "retired"


def test_one_that_cannot_be_read_is_written_anew(world: World, schedules: Schedules) -> None:
    world.store._state.schedules["bad"] = "{rubbish"
    world.store._state.due["bad"] = NEVER
    schedules.put(every(10, name="bad"), "job")
    world.at(10)
    assert world.fired() == [("bad", 10)]


def put_newer(schedules: Schedules) -> None:
    schedules.put(every(10, name="newer"), "job")


@pytest.mark.parametrize(
    "verb",
    [put_newer, lambda s: s.remove("newer"), lambda s: s.pause("newer"), lambda s: s.resume("newer")],
    ids=["put", "remove", "pause", "resume"],
)
def test_one_of_a_newer_version_is_left_alone(world: World, schedules: Schedules, verb: Any) -> None:
    world.store._state.schedules["newer"] = text = json.dumps({"revision": 1, "format": FORMAT + 1})
    world.store._state.due["newer"] = NEVER
    with pytest.raises(NotForUs, match=f"It has form {FORMAT + 1}"):
        verb(schedules)
    assert world.stored("newer").spec == text


def test_a_schedule_that_is_put_when_its_time_has_passed_is_warned_of_once(
    schedules: Schedules, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be taken for one that will run. What fired already may be put again and again."""
    moment_ago, soon = at(BEGIN - timedelta(seconds=1), name="late"), at(BEGIN + timedelta(seconds=1), name="soon")
    for _ in range(2):
        schedules.put_many([(moment_ago, "job"), (soon, "job")])
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "'late' was put, and never fires: it has no fire time to come."
    ]
    assert schedules.get("late").state == "finished"
    schedules.put(at(BEGIN - timedelta(days=1), name="soon"), "job")
    assert "'soon' was put, and never fires" in caplog.text


def test_a_schedule_that_fired_may_be_put_again_without_a_warning(
    world: World, schedules: Schedules, caplog: pytest.LogCaptureFixture
) -> None:
    once = at(BEGIN + timedelta(seconds=10), name="once")
    schedules.put(once, "job")
    world.at(10)
    schedules.put(once, "job")
    world.at(20)
    assert world.fired() == [("once", 10)]
    assert "never fires" not in caplog.text


# -- put_many -----------------------------------------------------------------------------------------------


def test_many_schedules_are_put_at_once(world: World, schedules: Schedules) -> None:
    schedules.put_many((every(10, name=f"report:{n}", args=(n,)), "job") for n in range(250))
    assert len(names(world)) == 251
    world.at(10)
    world.at(10)
    assert sorted(message.args[0] for message in world.messages()) == list(range(250))


def test_putting_none_at_all_does_nothing(world: World, schedules: Schedules) -> None:
    schedules.put_many([])
    assert names(world) == ["nightly"]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ((every(10, name="bad", args=(object(),)), "job"), ConfigurationError),
        ((every(10, name="bad"), "nobody"), ConfigurationError),
        ((every(10, name="report:1"), "job"), ConflictError),
        ((every(10, name="nightly"), "job"), ConflictError),
    ],
    ids=["arguments", "actor", "twice", "code"],
)
def test_if_one_of_many_cannot_be_put_none_is(
    world: World, schedules: Schedules, bad: Any, error: type[Exception]
) -> None:
    good = [(every(10, name=f"report:{n}"), "job") for n in range(150)]
    with pytest.raises(error):
        schedules.put_many([*good, bad])
    assert names(world) == ["nightly"]


# -- remove -------------------------------------------------------------------------------------------------


def test_a_schedule_that_was_removed_fires_no_more_and_its_history_stays(world: World, schedules: Schedules) -> None:
    schedules.put(every(10, name="report:7"), "job")
    world.at(10)
    world.clock.advance(15)
    schedules.remove("report:7")
    world.at(40)
    assert world.fired() == [("report:7", 10)]
    assert world.outcomes("report:7") == [("enqueued", 10, 10, 1), ("missed", 20, 20, 1)]
    with pytest.raises(NotFoundError):
        schedules.get("report:7")


def test_one_that_the_code_defines_cannot_be_removed(world: World, schedules: Schedules) -> None:
    with pytest.raises(ConflictError, match="defined in code, which would bring it back: remove it there, or pause it"):
        schedules.remove("nightly")
    assert names(world) == ["nightly"]


def test_one_that_the_code_does_not_know_any_more_can(world: World, schedules: Schedules) -> None:
    retire_nightly(world)
    schedules.remove("nightly")
    assert names(world) == ["other"]


def test_one_that_cannot_be_read_can_be_removed(world: World, schedules: Schedules) -> None:
    world.store._state.schedules["bad"] = "{rubbish"
    world.store._state.due["bad"] = 1000
    schedules.remove("bad")
    assert names(world) == ["nightly"]


@pytest.mark.parametrize("verb", ["remove", "pause", "resume", "trigger", "get", "history"])
def test_a_schedule_that_is_not_there_is_told_with_the_nearest_name(schedules: Schedules, verb: str) -> None:
    with pytest.raises(NotFoundError, match=r"There is no schedule 'nightli'. Did you mean 'nightly'\?"):
        getattr(schedules, verb)("nightli")


def test_one_that_is_not_enabled_is_shown_as_disabled(schedules: Schedules) -> None:
    schedules.put(every(10, name="report:7", enabled=False), "job")
    assert schedules.get("report:7").state == "disabled"


# -- pause and resume ---------------------------------------------------------------------------------------


def test_a_paused_schedule_records_its_fire_times_and_goes_on_when_it_is_resumed(
    world: World, schedules: Schedules
) -> None:
    schedules.put(every(10, name="report:7", catch_up="all"), "job")
    schedules.pause("report:7", reason="unpaid")
    for second in (10, 20, 30):
        world.at(second)
    schedules.resume("report:7")
    world.at(40)
    assert world.fired() == [("report:7", 40)]
    assert world.outcomes("report:7")[0] == ("paused", 10, 30, 3)
    assert schedules.history("report:7")[-1].reason == "unpaid"


def test_a_pause_with_an_end_is_over_by_itself_and_is_not_shown_any_longer(world: World, schedules: Schedules) -> None:
    schedules.put(every(10, name="report:7"), "job")
    schedules.pause("report:7", until=BEGIN + timedelta(seconds=25))
    world.at(20)
    assert schedules.get("report:7").paused
    world.at(30)
    assert world.fired() == [("report:7", 30)]
    assert not schedules.get("report:7").paused
    assert not any(one.paused for one in schedules.list())


def test_why_and_until_when_a_schedule_is_paused_is_shown_as_long_as_it_is(world: World, schedules: Schedules) -> None:
    schedules.put(every(10, name="report:7"), "job")
    schedules.pause("report:7", reason="unpaid", until=BEGIN + timedelta(seconds=25))
    assert schedules.get("report:7").reason == f"unpaid (until {BEGIN + timedelta(seconds=25):%Y-%m-%dT%H:%M:%S}.000Z)"
    schedules.pause("report:7", reason="unpaid")
    assert schedules.get("report:7").reason == "unpaid"
    schedules.pause("report:7", until=BEGIN + timedelta(seconds=25))
    assert schedules.get("report:7").reason == f"until {BEGIN + timedelta(seconds=25):%Y-%m-%dT%H:%M:%S}.000Z"
    world.at(30)
    assert schedules.get("report:7").reason == ""


@pytest.mark.parametrize("until", [datetime(2026, 1, 1), "tomorrow", 5])
def test_the_end_of_a_pause_must_be_an_instant(world: World, schedules: Schedules, until: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"until (has no time zone|must be a datetime with a time zone)"):
        schedules.pause("nightly", until=until)
    assert not schedules.get("nightly").paused


def test_a_pause_of_what_the_code_defines_outlasts_restarts_and_edits_of_the_code(
    world: World, schedules: Schedules
) -> None:
    schedules.pause("nightly", reason="holiday")
    world.restart()
    world.distcron._declared["nightly"] = (world.broker.actors["job"], every(30, name="nightly"))
    world.restart()
    world.at(60)
    assert world.fired() == []
    assert schedules.get("nightly").paused


def test_resuming_what_is_not_paused_changes_nothing(world: World, schedules: Schedules) -> None:
    before = world.stored("nightly")
    schedules.resume("nightly")
    assert world.stored("nightly") == before


def test_a_retired_schedule_can_be_paused_and_resumed_and_stays_retired(world: World, schedules: Schedules) -> None:
    retire_nightly(world)
    schedules.pause("nightly")
    schedules.resume("nightly")
    world.at(180)
    assert world.fired() == []
    assert schedules.get("nightly").state == "retired"


# -- trigger ------------------------------------------------------------------------------------------------


def test_a_trigger_enqueues_the_message_now_and_leaves_the_fire_times_alone(world: World, schedules: Schedules) -> None:
    schedules.put(every(10, name="report:7", args=(7,), expires=60), "job")
    world.clock.advance(3)
    before = world.stored("report:7")
    message = schedules.trigger("report:7")
    (sent,) = world.messages()
    assert (sent.message_id, sent.args, sent.options["expires"]) == (message.message_id, (7,), 60_000)
    assert world.fired() == [("report:7", 3)]
    assert world.stored("report:7") == before
    (tick,) = schedules.history("report:7")
    assert (tick.outcome, tick.reason, tick.run and tick.run.state) == ("enqueued", "triggered", "queued")


def test_a_trigger_is_a_humans_wish_and_goes_through_where_all_is_switched_off(
    stub_broker: StubBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTCRON_DISABLED", "1")
    schedules = install(stub_broker).schedules
    dramatiq.actor(lambda: None, actor_name="job", broker=stub_broker)
    schedules.put(every(10, name="tenant"), "job")
    schedules.trigger("tenant")
    assert stub_broker.queues["default"].qsize() == 1


def test_each_trigger_has_an_id_of_its_own(world: World, schedules: Schedules) -> None:
    assert len({schedules.trigger("nightly").message_id for _ in range(5)}) == 5


@pytest.mark.parametrize("overlap", ["skip", "buffer_one"])
def test_a_trigger_beside_an_outstanding_run_is_refused(world: World, schedules: Schedules, overlap: Any) -> None:
    schedules.put(every(10, name="report:7", overlap=overlap), "job")
    world.at(10)
    (first,) = world.messages()
    with pytest.raises(RunOutstanding, match=f"with overlap='{overlap}' .* message {first.message_id} is not"):
        schedules.trigger("report:7")
    assert len(world.messages()) == 1
    world.end_run("report:7")
    schedules.trigger("report:7")
    assert len(world.messages()) == 2


def test_the_run_of_a_trigger_holds_the_next_tick_up(world: World, schedules: Schedules) -> None:
    schedules.put(every(10, name="report:7", overlap="skip"), "job")
    schedules.trigger("report:7")
    world.at(10)
    assert world.outcomes("report:7")[-1] == ("skipped_overlap", 10, 10, 1)
    world.end_run("report:7")
    world.at(20)
    assert world.fired()[-1] == ("report:7", 20)


def test_where_runs_may_overlap_a_trigger_is_never_refused(world: World, schedules: Schedules) -> None:
    schedules.put(every(10, name="report:7"), "job")
    world.at(10)
    schedules.trigger("report:7")
    assert len(world.messages()) == 2
    assert world.store.outstanding("report:7") == ""


def test_a_trigger_of_a_schedule_that_changed_meanwhile_sends_the_new_arguments(
    world: World, schedules: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedules.put(every(10, name="report:7", args=("old",)), "job")
    fire = world.store.fire

    def after_an_edit(*args: Any) -> Any:
        monkeypatch.setattr(world.store, "fire", fire)
        schedules.put(every(10, name="report:7", args=("new",)), "job")
        return fire(*args)

    monkeypatch.setattr(world.store, "fire", after_an_edit)
    schedules.trigger("report:7")
    assert [message.args for message in world.messages()] == [("new",)]


def test_a_trigger_that_a_middleware_refuses_sends_nothing(world: World, schedules: Schedules) -> None:
    class Veto(Middleware):
        def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            raise MiddlewareError("not paid")

    world.broker.add_middleware(Veto())
    with pytest.raises(Vetoed, match="not paid"):
        schedules.trigger("nightly")
    assert world.messages() == []
    assert schedules.history("nightly") == []


def test_a_trigger_whose_message_the_store_cannot_put_in_its_queue_is_an_error(
    world: World, schedules: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(call: Any) -> None:
        raise KeyError("queue")

    monkeypatch.setattr(world.store, "_dispatch", broken)
    with pytest.raises(StoreRefused, match="Schedule 'nightly' was not triggered: failed"):
        schedules.trigger("nightly")
    assert schedules.history("nightly") == []


def test_a_trigger_of_what_cannot_be_read_is_refused_with_the_reason(world: World, schedules: Schedules) -> None:
    world.store._state.schedules["bad"] = "{rubbish"
    with pytest.raises(ScheduleError, match="It cannot be read"):
        schedules.trigger("bad")


def test_a_trigger_of_a_schedule_that_changes_each_time_ends_with_what_to_do(
    world: World, schedules: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.store, "fire", lambda guard, fires: ["stale" for _ in fires])
    with pytest.raises(StoreUnavailable, match=r"'nightly' was not triggered: it changed each time .* Try again"):
        schedules.trigger("nightly")


@pytest.mark.parametrize("verb", ["pause", "resume", "trigger"])
def test_what_cannot_be_used_here_is_refused_by_its_name(world: World, schedules: Schedules, verb: str) -> None:
    world.store._state.schedules["bad"] = "{rubbish"
    with pytest.raises(ScheduleError, match=r"Schedule 'bad' cannot be used here\. It cannot be read"):
        getattr(schedules, verb)("bad")


def test_what_only_a_newer_version_can_use_is_not_removed(world: World, schedules: Schedules) -> None:
    world.store._state.schedules["new"] = '{"revision":1,"format":99}'
    with pytest.raises(ScheduleError, match=r"Schedule 'new' cannot be used here\. It has form 99"):
        schedules.remove("new")


def test_hooks_run_for_a_trigger_as_for_any_message(world: World, schedules: Schedules) -> None:
    seen: list[str] = []

    class Telling(Middleware):
        def before_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            seen.append("before")

        def after_enqueue(self, broker: Any, message: Any, delay: Any) -> None:
            seen.append("after")

    world.broker.add_middleware(Telling())
    world.beat.backend.publisher.begin()
    schedules.trigger("nightly")
    assert seen == ["before", "after"]


# -- others edit at the same time ---------------------------------------------------------------------------


def test_an_edit_that_met_another_is_made_again_on_the_new_state(
    world: World, schedules: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedules.put(every(10, name="report:7"), "job")
    edit = world.store.edit

    def after_another(*args: Any) -> Any:
        monkeypatch.setattr(world.store, "edit", edit)
        schedules.put(every(10, name="report:7", args=("other",)), "job")
        return edit(*args)

    monkeypatch.setattr(world.store, "edit", after_another)
    schedules.pause("report:7", reason="unpaid")
    assert world.spec("report:7")["paused"]["reason"] == "unpaid"
    assert world.spec("report:7")["payload"]["args"] == ["other"]


def test_an_edit_that_never_fits_ends_with_an_error(
    world: World, schedules: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cursor that was set by hand may not compare with what is read of it."""
    pauses: list[float] = []
    monkeypatch.setattr("dramatiq_distcron.api.schedules.time.sleep", pauses.append)
    monkeypatch.setattr(world.store, "edit", lambda guard, edits: ["stale" for _ in edits])
    with pytest.raises(StoreUnavailable, match=r"'report:7' .* changed each time"):
        schedules.put(every(10, name="report:7"), "job")
    # Chance is in them, so that two who met do not meet again.
    assert len(set(pauses)) > len(pauses) / 2
    assert max(pauses) <= 0.05


def test_what_the_store_refuses_is_told_with_the_schedule(
    world: World, schedules: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.store, "edit", lambda guard, edits: ["failed OOM" for _ in edits])
    with pytest.raises(StoreRefused, match=r"refused 1 of 1 schedules\. 'report:7': failed OOM"):
        schedules.put(every(10, name="report:7"), "job")


# -- looking at them ----------------------------------------------------------------------------------------


def test_schedules_are_listed_by_name(world: World, schedules: Schedules) -> None:
    schedules.put_many((every(10, name=name), "job") for name in ("z", "a", "M"))
    assert names(world) == ["M", "a", "nightly", "z"]


def test_the_history_of_all_begins_with_the_newest_and_holds_what_goes_on(world: World, schedules: Schedules) -> None:
    schedules.put(every(10, name="report:7", enabled=False), "job")
    schedules.put(every(25, name="other"), "job")
    for second in (10, 20, 25, 30):
        world.at(second)
    found = [(tick.schedule, tick.outcome, tick.count) for tick in schedules.history()]
    assert found == [("report:7", "disabled", 3), ("other", "enqueued", 1)]
    assert len(schedules.history(limit=1)) == 1


def test_a_schedule_that_cannot_be_read_is_listed_with_the_reason_and_what_can_be_guessed(
    world: World, schedules: Schedules
) -> None:
    world.store._state.schedules["bad"] = json.dumps({"format": 1, "actor": "job", "queue": "q", "source": "api"})
    info = schedules.get("bad")
    assert (info.state, info.actor, info.queue, info.source) == ("disabled", "job", "q", "api")
    assert info.reason.startswith("It cannot be read")
    assert "bad" in names(world)


def test_the_next_fire_time_of_a_spread_schedule_is_the_nominal_one(world: World, schedules: Schedules) -> None:
    schedules.put(every(60, name="report:7", spread=60), "job")
    assert schedules.get("report:7").next_fire_time == int(BEGIN.timestamp() * 1000) + 60_000


def test_times_before_an_instant_with_another_zone_are_the_same(world: World, schedules: Schedules) -> None:
    tokyo = timezone(timedelta(hours=9))
    schedules.pause("nightly", until=(BEGIN + timedelta(seconds=30)).astimezone(tokyo))
    assert world.spec("nightly")["paused"]["until"] == int(BEGIN.timestamp() * 1000) + 30_000


def test_an_actor_object_need_not_be_of_this_broker(world: World, schedules: Schedules) -> None:
    """Its name is what counts: it must be declared here, or known from a running process."""
    other = StubBroker()

    @dramatiq.actor(broker=other)
    def job() -> None: ...

    schedules.put(every(10, name="report:7"), job)
    assert schedules.get("report:7").actor == "job"
    other.close()


# -- what cannot be put ----------------------------------------------------------------------------------------


def plain_function() -> None: ...


@pytest.mark.parametrize(
    ("schedule", "actor", "told"),
    [
        ("0 3 * * *", "job", r"Did you mean cron\('0 3 \* \* \*'\)\?"),
        (60, "job", r"such as cron\(.*not 60\."),
        ([every(60)], "job", "each with one actor, not"),
        ("job", every(60), "The schedule comes first, then the actor"),
        (every(60), plain_function, "plain_function is no actor: put @dramatiq.actor above it"),
        (every(60), None, "takes an actor or its name beside the schedule. It is not None"),
    ],
)
def test_what_is_no_schedule_with_an_actor_is_refused_with_what_to_write(
    world: World, schedules: Schedules, schedule: Any, actor: Any, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        schedules.put(schedule, actor)
    assert names(world) == ["nightly"]


@pytest.mark.parametrize(
    "pairs",
    [{"job": every(60)}, {every(60): "job"}, (every(60), "job"), every(60), None, "job", [(every(60), "job", 1)], [[]]],
    ids=lambda pairs: type(pairs).__name__,
)
def test_what_is_no_pairs_is_refused_with_what_to_write(world: World, schedules: Schedules, pairs: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"put_many\(\) takes pairs of a schedule and an actor"):
        schedules.put_many(pairs)
    assert names(world) == ["nightly"]


def test_a_loop_that_gives_no_names_is_refused_at_its_second_schedule(world: World, schedules: Schedules) -> None:
    schedules.put(every(60, args=(7,)), "job")
    with pytest.raises(ConfigurationError, match=r"stored with other arguments.*name='job:7'"):
        schedules.put(every(60, args=(8,)), "job")
    with pytest.raises(ConflictError, match=r"give each name="):
        schedules.put_many((every(60, args=(tenant,)), "job") for tenant in (7, 8))
    world.at(60)
    assert [message.args for message in world.messages() if message.args] == [(7,)]


def test_a_schedule_without_a_name_is_put_again_as_it_was_or_with_other_times(
    world: World, schedules: Schedules
) -> None:
    schedules.put(every(60, args=(7,)), "job")
    schedules.put(every(60, args=(7,)), "job")
    schedules.put(every(90, args=(7,)), "job")
    assert schedules.get("job").expression == "every 0:01:30"


def test_with_the_actors_name_given_it_takes_other_arguments(world: World, schedules: Schedules) -> None:
    schedules.put(every(60, args=(7,)), "job")
    schedules.put(every(60, name="job", args=(8,)), "job")
    world.at(60)
    assert [message.args for message in world.messages() if message.args] == [(8,)]


def test_a_pause_that_is_over_before_it_begins_is_refused(world: World, schedules: Schedules) -> None:
    for until in (BEGIN, BEGIN - timedelta(days=1)):
        with pytest.raises(ConfigurationError, match="has passed"):
            schedules.pause("nightly", until=until)
    assert not schedules.get("nightly").paused


def test_resume_tells_whether_it_was_paused(world: World, schedules: Schedules) -> None:
    assert not schedules.resume("nightly")
    schedules.pause("nightly")
    assert schedules.resume("nightly")


def test_a_schedule_is_shown_with_its_arguments_and_the_policies_that_are_no_defaults(
    world: World, schedules: Schedules
) -> None:
    end = datetime(2030, 1, 1, tzinfo=timezone.utc)
    dramatiq.actor(lambda number, x: None, actor_name="other", broker=world.broker)
    schedules.put(every(60, name="a", args=(7,), kwargs={"x": [1]}, spread=30, overlap="skip", end=end), "other")
    info = schedules.get("a")
    assert (info.args, info.kwargs, info.encoder) == ([7], {"x": [1]}, None)
    assert info.policy == {"spread": 30, "overlap": "skip", "end": "2030-01-01T00:00:00.000Z"}
    assert schedules.get("nightly").policy == {}


def test_arguments_of_another_encoder_are_not_shown_but_its_name_is(world: World, schedules: Schedules) -> None:
    before = dramatiq.get_encoder()
    dramatiq.set_encoder(PickleEncoder())
    try:
        schedules.put(every(60, name="a", args=(7,)), "job")
    finally:
        dramatiq.set_encoder(before)
    info = schedules.get("a")
    assert (info.args, info.kwargs, info.encoder) == (None, None, "PickleEncoder")
