"""The runs of ticks: recorded with the tick, ended with the ack of its message or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from dramatiq import Message

from dramatiq_distcron.store.base import (
    ANY_RUN,
    NO_RUN,
    REMEMBERED,
    Edit,
    Ending,
    Guard,
    Instance,
    Refused,
    Started,
)
from tests.conformance.hands import Hands
from tests.support import Rig

NOBODY = Guard("somebody else", 1, 10_000)


@pytest.fixture
def job(rig: Rig, hands: Hands) -> Message[Any]:
    """The message of a tick whose run holds its schedule up, in a worker's hands."""
    rig.put("job", 1000)
    hands.fire("job", 1000, run_before=NO_RUN)
    (message,) = hands.take()
    return message


def state_of(rig: Rig, message_id: str) -> str | None:
    """How the run of a message stands, by the history."""
    (run,) = [one.run for one in rig.store.history(None, 1000) if one.fields["message_id"] == message_id]
    return None if run is None else run["state"]


def run_of(rig: Rig, message_id: str) -> Any:
    (run,) = [one.run for one in rig.store.history(None, 1000) if one.fields["message_id"] == message_id]
    return run


# -- from the commit on -------------------------------------------------------------------------------------


def test_a_run_is_queued_from_the_commit_of_its_tick_on(rig: Rig, job: Message[Any]) -> None:
    assert state_of(rig, job.message_id) == "queued"
    assert rig.store.outstanding("job") == job.message_id
    (row,) = rig.store.read_due(5000, skip=0, limit=10).rows
    assert (row.outstanding, row.enqueued) == (job.message_id, 1000)


def test_where_runs_may_overlap_a_run_is_recorded_and_holds_nothing_up(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    message_id = hands.fire("job", 1000, run_before=ANY_RUN)
    assert state_of(rig, message_id) == "queued"
    assert rig.store.outstanding("job") == NO_RUN


def test_a_tick_without_a_run_has_none(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    rig.fire(rig.tick("job", 1000, 2000))
    assert state_of(rig, "job@1000") is None
    assert rig.store.start_run("job@1000", "worker") is None


def test_a_tick_that_is_not_committed_leaves_no_run(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    tick = hands.tick("job", 1000, run_before=NO_RUN)
    rig.put("job", 1000)
    assert rig.fire(tick) == ["stale"]
    assert rig.store.start_run(tick.record.message_id, "worker") is None
    assert rig.store.outstanding("job") == NO_RUN


def test_a_broken_queue_leaves_no_run_and_puts_back_what_was_outstanding_and_enqueued(
    rig: Rig, hands: Hands, break_queue: Any
) -> None:
    rig.put("job", 1000)
    first = hands.fire("job", 1000, run_before=NO_RUN)
    broken = rig.tick("job", 2000, 3000, queue="broken", run_before=first)
    tick = broken._replace(run=hands.tick("job", 2000).run)
    break_queue()
    (answer,) = rig.fire(tick) or [""]
    assert answer.startswith("failed")
    assert rig.store.start_run(tick.record.message_id, "worker") is None
    (row,) = rig.store.read_due(2000, skip=0, limit=10).rows
    assert (row.score, row.outstanding, row.enqueued) == (2000, first, 1000)
    assert state_of(rig, first) == "queued"


def test_of_a_chain_each_run_is_the_one_before_to_the_next(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    first = hands.tick("job", 1000, run_before=NO_RUN)
    second = hands.tick("job", 2000, run_before=first.record.message_id)
    third = hands.tick("job", 3000, run_before=first.record.message_id)
    assert rig.fire(first, second, third) == ["ok", "ok", "stale"]
    assert rig.store.outstanding("job") == second.record.message_id


def test_removing_a_schedule_frees_its_name_and_lets_the_run_go_on(rig: Rig, hands: Hands, job: Message[Any]) -> None:
    rig.store.edit(rig.guard, [Edit("job", rig.store.get(["job"])["job"], None)])
    assert rig.store.outstanding("job") == NO_RUN
    rig.put("job", 2000)
    (row,) = rig.store.read_due(2000, skip=0, limit=10).rows
    assert (row.outstanding, row.enqueued) == (NO_RUN, None)
    later = hands.fire("job", 2000, run_before=NO_RUN, at=6000)
    assert rig.store.settle(hands.ending(job, "succeeded")) == "settled"
    assert rig.store.outstanding("job") == later


# -- which fire time was enqueued last ----------------------------------------------------------------------


def test_the_fire_time_enqueued_last_is_that_of_the_last_tick_with_a_message(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    hands.fire("job", 1000)
    rig.fire(rig.passing("job", 2000, 3000))
    (row,) = rig.store.read_due(3000, skip=0, limit=10).rows
    assert row.enqueued == 1000


def test_a_trigger_is_no_tick_that_another_can_follow(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    rig.fire(rig.tick("job", 777, 9000, message_id="by-hand")._replace(score=None))
    (row,) = rig.store.read_due(1000, skip=0, limit=10).rows
    assert row.enqueued is None


def test_an_edit_keeps_the_fire_time_enqueued_last(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    hands.fire("job", 1000)
    rig.put("job", 5000, args=["new"])
    (row,) = rig.store.read_due(5000, skip=0, limit=10).rows
    assert row.enqueued == 1000


# -- a worker takes it up -----------------------------------------------------------------------------------


def test_a_worker_that_takes_a_message_up_learns_how_its_run_stood(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    message_id = hands.fire("job", 1000, at=5000, previous="700")
    before, now = rig.store.now(), rig.store.now
    started = rig.store.start_run(message_id, "worker")
    assert isinstance(started, Started)
    assert (started.before, started.enqueued_at, started.previous) == ("queued", 5000, 700)
    assert before <= started.now <= now()
    assert state_of(rig, message_id) == "running"


def test_a_first_tick_has_none_before_it(rig: Rig, job: Message[Any]) -> None:
    started = rig.store.start_run(job.message_id, "worker")
    assert started is not None
    assert started.previous is None


def test_a_run_that_is_taken_up_again_began_when_it_was_taken_up_first(rig: Rig, job: Message[Any]) -> None:
    first = rig.store.start_run(job.message_id, "killed")
    began = run_of(rig, job.message_id)["started_at"]
    while rig.store.now() == first.now:
        pass
    again = rig.store.start_run(job.message_id, "next")
    assert again is not None
    assert again.before == "running"
    assert run_of(rig, job.message_id)["started_at"] == began


def test_of_a_message_that_is_no_ticks_no_run_is_known(rig: Rig) -> None:
    assert rig.store.start_run("nobody", "worker") is None


# -- a delivery ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "error"), [("succeeded", ""), ("dead", "ValueError: ü\n\x00"), ("dropped", "late")])
def test_a_run_ends_with_the_ack_of_its_message(
    rig: Rig, hands: Hands, job: Message[Any], state: str, error: str
) -> None:
    started = rig.store.start_run(job.message_id, "worker")
    assert rig.store.settle(hands.ending(job, state, error=error)) == "settled"
    assert not hands.is_there(job)
    assert rig.store.outstanding("job") == NO_RUN
    run = run_of(rig, job.message_id)
    assert (run["state"], run["error"], run["started_at"]) == (state, error, str(started.now))
    assert int(run["finished_at"]) >= started.now


def test_a_run_that_was_never_taken_up_can_end_too(rig: Rig, hands: Hands, job: Message[Any]) -> None:
    rig.store.settle(hands.ending(job, "dropped"))
    assert (run_of(rig, job.message_id)["state"], run_of(rig, job.message_id)["started_at"]) == ("dropped", "")


def test_a_message_that_is_not_this_workers_any_more_ends_nothing(rig: Rig, hands: Hands, job: Message[Any]) -> None:
    """It was taken for dead and its message given to another, or its question was sent twice."""
    assert rig.store.settle(hands.ending(job, "succeeded")) == "settled"
    assert rig.store.settle(hands.ending(job, "dead", error="twice")) == "lost"
    assert state_of(rig, job.message_id) == "succeeded"


def test_a_delivery_that_was_lost_leaves_the_run_as_it_was(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    message_id = hands.fire("job", 1000, run_before=NO_RUN)
    (message,) = hands.take()
    rig.store.start_run(message_id, "other worker")
    call = hands.ack(message)
    hands.flush()
    assert rig.store.settle(Ending(message_id, "dead", "lost", call=call)) == "lost"
    assert state_of(rig, message_id) == "running"
    assert rig.store.outstanding("job") == message_id


def test_a_message_without_a_run_is_acked_and_nothing_is_recorded(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    rig.fire(rig.tick("job", 1000, 2000))
    (message,) = hands.take()
    assert rig.store.settle(hands.ending(message, "succeeded")) == "acked"
    assert not hands.is_there(message)
    assert len(rig.history()) == 1


def test_where_the_ack_is_somebody_elses_only_the_record_is_made(rig: Rig, hands: Hands, job: Message[Any]) -> None:
    assert rig.store.settle(Ending(job.message_id, "succeeded")) == "settled"
    assert hands.is_there(job)
    assert state_of(rig, job.message_id) == "succeeded"
    assert rig.store.settle(Ending(job.message_id, "succeeded")) == "acked"


def test_a_run_goes_on_with_its_retry(rig: Rig, hands: Hands, job: Message[Any]) -> None:
    rig.store.start_run(job.message_id, "worker")
    retry = hands.ending(job, "retrying", goes_on=True, place=hands.place(), redis_id="the retry", attempt=1)
    assert rig.store.settle(retry) == "settled"
    assert not hands.is_there(job)
    assert state_of(rig, job.message_id) == "retrying"
    assert rig.store.outstanding("job") == job.message_id
    again = rig.store.start_run(job.message_id, "worker")
    assert again is not None
    assert again.before == "retrying"


def test_a_message_that_only_moves_to_another_queue_keeps_its_state(rig: Rig, hands: Hands, job: Message[Any]) -> None:
    """A retry that leaves the delay queue."""
    rig.store.settle(hands.ending(job, "retrying", goes_on=True, place=hands.place(), redis_id="delayed", attempt=1))
    rig.store.settle(Ending(job.message_id, "", goes_on=True, place=hands.place(), redis_id="moved", attempt=1))
    assert state_of(rig, job.message_id) == "retrying"


def test_the_end_of_a_run_wakes_who_waits_for_it(rig: Rig, hands: Hands, job: Message[Any]) -> None:
    rig.store.wait(0.001)
    rig.store.settle(hands.ending(job, "succeeded"))
    assert rig.store.wait(5) is True


def test_the_end_of_a_run_that_nobody_waits_for_wakes_nobody(rig: Rig, hands: Hands) -> None:
    """A beat of thousands of ticks a second must not be woken by each of their ends."""
    rig.put("job", 1000)
    hands.fire("job", 1000, run_before=ANY_RUN)
    (message,) = hands.take()
    rig.store.wait(0.001)
    rig.store.settle(hands.ending(message, "succeeded"))
    assert rig.store.wait(0.001) is False


def test_a_retry_wakes_nobody(rig: Rig, hands: Hands, job: Message[Any]) -> None:
    rig.store.wait(0.001)
    rig.store.settle(hands.ending(job, "retrying", goes_on=True, place="p", redis_id="r", attempt=1))
    assert rig.store.wait(0.001) is False


def test_the_end_of_an_older_run_does_not_free_the_schedule(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    first = hands.fire("job", 1000, run_before=NO_RUN)
    second = hands.fire("job", 2000, run_before=first)
    messages = {message.message_id: message for message in hands.take()}
    rig.store.settle(hands.ending(messages[first], "succeeded"))
    assert rig.store.outstanding("job") == second
    rig.store.settle(hands.ending(messages[second], "succeeded"))
    assert rig.store.outstanding("job") == NO_RUN


# -- tickets, where the broker may deliver copies -----------------------------------------------------------


def alive(rig: Rig, worker: str) -> None:
    rig.store.heartbeat(Instance(worker, {}), keep=REMEMBERED)


def test_the_first_delivery_has_the_ticket(rig: Rig, job: Message[Any]) -> None:
    claimed = rig.store.claim_run(job.message_id, "w1", 0)
    assert isinstance(claimed, Started)
    assert (claimed.before, claimed.enqueued_at) == ("queued", 5000)
    assert state_of(rig, job.message_id) == "running"


def test_a_copy_is_refused_while_a_living_worker_is_at_it(rig: Rig, job: Message[Any]) -> None:
    alive(rig, "w1")
    rig.store.claim_run(job.message_id, "w1", 0)
    assert rig.store.claim_run(job.message_id, "w2", 0) == Refused("w1")


def test_a_redelivery_may_run_when_the_worker_that_had_it_is_gone(rig: Rig, job: Message[Any]) -> None:
    rig.store.claim_run(job.message_id, "left", 0)
    rig.store.forget("left")
    claimed = rig.store.claim_run(job.message_id, "w2", 0)
    assert isinstance(claimed, Started)
    assert claimed.before == "running"


def test_a_redelivery_may_run_when_the_worker_that_had_it_was_silent_for_too_long(rig: Rig, job: Message[Any]) -> None:
    alive(rig, "killed")
    rig.store.claim_run(job.message_id, "killed", 0)
    silent_for(rig, "killed", REMEMBERED - 1000)
    assert rig.store.claim_run(job.message_id, "w2", 0) == Refused("killed")
    silent_for(rig, "killed", REMEMBERED + 1)
    assert isinstance(rig.store.claim_run(job.message_id, "w2", 0), Started)


def silent_for(rig: Rig, worker: str, ms: int) -> None:
    """As if a process had told of itself so long ago."""
    at = rig.store.now() - ms
    if hasattr(rig.store, "keys"):
        rig.broker.client.zadd(rig.store.keys.instances, {worker: at})
    else:
        rig.store._state.instances[worker] = (at, {})


def test_a_copy_after_the_end_is_refused_for_good(rig: Rig, hands: Hands, job: Message[Any]) -> None:
    rig.store.claim_run(job.message_id, "w1", 0)
    rig.store.settle(hands.ending(job, "succeeded"))
    assert rig.store.claim_run(job.message_id, "w2", 0) == Refused()


def test_a_copy_of_an_earlier_attempt_is_refused_while_its_retry_is_on_its_way(rig: Rig, job: Message[Any]) -> None:
    rig.store.claim_run(job.message_id, "w1", 0)
    rig.store.settle(Ending(job.message_id, "retrying", goes_on=True, place="", redis_id="", attempt=2))
    assert rig.store.claim_run(job.message_id, "w2", 0) == Refused()
    assert rig.store.claim_run(job.message_id, "w2", 1) == Refused()
    claimed = rig.store.claim_run(job.message_id, "w2", 2)
    assert isinstance(claimed, Started)
    assert claimed.before == "retrying"


def test_what_is_no_ticks_message_has_no_ticket(rig: Rig) -> None:
    assert rig.store.claim_run("nobody", "w1", 0) == Refused()


# -- runs that are not there any more -----------------------------------------------------------------------


def probe(rig: Rig, message_id: str, longest: int | None = None) -> str | None:
    answer: str | None = rig.store.probe_run(rig.guard, "job", message_id, longest)
    return answer


def test_a_run_whose_message_is_there_goes_on(rig: Rig, hands: Hands, job: Message[Any]) -> None:
    assert probe(rig, job.message_id) == "there"
    rig.store.start_run(job.message_id, "worker")
    assert probe(rig, job.message_id) == "there"
    assert rig.store.outstanding("job") == job.message_id


def test_a_run_whose_message_is_gone_is_dropped_and_frees_its_schedule(
    rig: Rig, hands: Hands, job: Message[Any]
) -> None:
    hands.flush()
    assert probe(rig, job.message_id) == "dropped"
    assert rig.store.outstanding("job") == NO_RUN
    run = run_of(rig, job.message_id)
    assert (run["state"], run["error"]) == ("dropped", "its message is gone")


def test_a_run_goes_on_as_long_as_its_retry_is_there(rig: Rig, hands: Hands, job: Message[Any]) -> None:
    rig.put("other", 1000)
    retry = hands.tick("other", 1000)
    assert rig.fire(retry) == ["ok"]
    redis_id = hands.redis_id(retry.calls[0])
    rig.store.settle(hands.ending(job, "retrying", goes_on=True, place=hands.place(), redis_id=redis_id, attempt=1))
    assert not hands.is_there(job)
    assert probe(rig, job.message_id) == "there"
    hands.flush()
    assert probe(rig, job.message_id) == "dropped"


def test_a_step_that_is_told_after_a_later_one_does_not_take_the_run_back(
    rig: Rig, hands: Hands, job: Message[Any]
) -> None:
    """Chaos, seed 42: that a retry had left the delay queue was told when it had failed, and been followed, already."""
    rig.put("other", 1000)
    retry = hands.tick("other", 1000)
    assert rig.fire(retry) == ["ok"]
    redis_id = hands.redis_id(retry.calls[0])
    rig.store.settle(Ending(job.message_id, "retrying", "", True, hands.place(), redis_id, attempt=2))
    late = hands.ending(job, "running", goes_on=True, place=hands.place(), redis_id="gone", attempt=1)
    assert rig.store.settle(late) == "settled"
    assert not hands.is_there(job)
    assert probe(rig, job.message_id) == "there"
    assert state_of(rig, job.message_id) == "retrying"


def test_that_a_retry_was_made_and_is_told_after_it_left_the_delay_queue_changes_nothing(
    rig: Rig, hands: Hands, job: Message[Any]
) -> None:
    """Chaos, seed 65: the settle of what failed was held up in the network for longer than its retry was delayed."""
    rig.put("other", 1000)
    retry = hands.tick("other", 1000)
    assert rig.fire(retry) == ["ok"]
    redis_id = hands.redis_id(retry.calls[0])
    rig.store.settle(Ending(job.message_id, "", "", True, hands.place(), redis_id, attempt=1))
    late = hands.ending(job, "retrying", goes_on=True, place=hands.place(), redis_id="delayed", attempt=1)
    assert rig.store.settle(late) == "settled"
    assert not hands.is_there(job)
    assert probe(rig, job.message_id) == "there"


def test_a_run_that_is_older_than_its_time_out_is_given_up_though_its_message_is_there(
    rig: Rig, hands: Hands, job: Message[Any]
) -> None:
    age = rig.store.now() - 5000
    assert probe(rig, job.message_id, age + 60_000) == "there"
    assert probe(rig, job.message_id, age - 1000) == "dropped"
    assert run_of(rig, job.message_id)["error"] == "overlap_timeout"
    assert rig.store.outstanding("job") == NO_RUN
    assert hands.is_there(job)


def test_a_schedule_that_is_held_up_by_a_run_nobody_knows_is_freed(rig: Rig, hands: Hands, job: Message[Any]) -> None:
    if hasattr(rig.store, "keys"):
        rig.broker.client.delete(rig.store.keys.runs)
    else:
        rig.store._state.runs.clear()
    assert probe(rig, job.message_id) == "dropped"
    assert rig.store.outstanding("job") == NO_RUN


def test_a_probe_of_what_is_not_outstanding_any_more_frees_nothing(rig: Rig, hands: Hands, job: Message[Any]) -> None:
    assert probe(rig, "over already") == "over"
    assert rig.store.outstanding("job") == job.message_id


def test_one_without_the_lease_gives_no_run_up(rig: Rig, hands: Hands, job: Message[Any]) -> None:
    hands.flush()
    assert rig.store.probe_run(NOBODY, "job", job.message_id, None) is None
    assert rig.store.sweep_runs(NOBODY, "0", 100) is None
    assert state_of(rig, job.message_id) == "queued"


def sweep(rig: Rig) -> int:
    """Sweeps through all runs."""
    ended: int = 0
    cursor = "0"
    while True:
        cursor, count = rig.store.sweep_runs(rig.guard, cursor, 100)
        ended += count
        if cursor == "0":
            return ended


def test_a_sweep_ends_the_runs_whose_messages_are_gone_and_no_others(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    rig.put("other", 1000)
    gone = [hands.fire("job", 1000 * n, run_before=ANY_RUN) for n in range(1, 4)]
    hands.take()
    hands.flush()
    there = hands.fire("other", 1000, run_before=NO_RUN)
    assert sweep(rig) == 3
    assert {state_of(rig, one) for one in gone} == {"dropped"}
    assert state_of(rig, there) == "queued"
    assert rig.store.outstanding("other") == there
    assert sweep(rig) == 0


def test_a_sweep_frees_a_schedule_and_wakes_who_waits(rig: Rig, hands: Hands, job: Message[Any]) -> None:
    hands.flush()
    rig.store.wait(0.001)
    assert sweep(rig) == 1
    assert rig.store.outstanding("job") == NO_RUN
    assert rig.store.wait(5) is True


def test_a_sweep_goes_through_many_runs_in_parts(rig: Rig, hands: Hands) -> None:
    for number in range(600):
        rig.put(f"job-{number}", 1000)
    for start in range(0, 600, 100):
        assert rig.fire(*(hands.tick(f"job-{n}", 1000) for n in range(start, start + 100))) == ["ok"] * 100
    hands.take()
    hands.flush()
    assert sweep(rig) == 600


def test_a_run_at_a_place_that_cannot_be_looked_at_is_left_to_its_end(rig: Rig, hands: Hands) -> None:
    """Brokers beside Redis: whether a message is there can only be told by its end."""
    if not hasattr(rig.store, "keys"):
        rig.store._is_there = lambda place, redis_id: place == ""
    rig.put("job", 1000)
    message_id = hands.fire("job", 1000, run_before=NO_RUN, place="")
    hands.take()
    hands.flush()
    assert probe(rig, message_id) == "there"
    assert sweep(rig) == 0
