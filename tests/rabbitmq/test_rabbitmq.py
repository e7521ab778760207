"""Real beats and Dramatiq's own workers on a real RabbitMQ, with the state in Redis: crashes at every step."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from tests.rabbitmq.conftest import Site
from tests.rabbitmq.node import Node
from tests.support import wait_until

# One that waits for the node to start, and for a retry that was put off twice.
pytestmark = pytest.mark.timeout(300)


def assert_each_tick_ran_once(site: Site) -> None:
    assert site.noted("ran") == Counter(site.enqueued())
    times = sorted(tick.fire_time for tick in site.distcron.schedules.history("job", limit=10_000))
    assert times == list(range(times[0], times[-1] + 1, 1000)), "a tick has no record"


def stop_beats(*beats: object) -> None:
    for beat in beats:
        beat.send_signal(signal.SIGTERM)  # type: ignore[attr-defined]
        assert beat.wait() == 0, beat.output()  # type: ignore[attr-defined]


def test_each_tick_is_run_once_by_the_workers(site: Site) -> None:
    beat, worker = site.beat(TEST_TICKS="1"), site.worker()
    wait_until(lambda: len(site.noted("ran")) >= 3, "some runs")
    stop_beats(beat)
    site.await_rest()
    assert_each_tick_ran_once(site)
    assert "Traceback" not in beat.output() + worker.output()
    assert {tick.run.state for tick in site.distcron.schedules.history("job") if tick.run} == {"succeeded"}


# -- the beat is killed -------------------------------------------------------------------------------------


def test_a_beat_that_is_killed_between_commit_and_publishing_leaves_it_to_the_next(site: Site) -> None:
    first = site.beat(TEST_TICKS="1", TEST_CRASH="before_enqueue")
    wait_until(lambda: not first.alive, "the crash")
    (crashed,) = site.noted("crashed")
    assert crashed in site.enqueued()
    assert site.outbox() >= 1
    assert not site.declared() or site.peek() == []
    second = site.beat(TEST_TICKS="1")
    site.worker()
    wait_until(lambda: site.noted("ran")[crashed], "the message of the crash is run")
    stop_beats(second)
    site.await_rest()
    assert_each_tick_ran_once(site)


def test_a_beat_that_is_killed_between_publishing_and_noting_publishes_twice_and_one_runs(site: Site) -> None:
    first = site.beat(TEST_TICKS="1", TEST_CRASH="after_enqueue")
    wait_until(lambda: not first.alive, "the crash")
    (crashed,) = site.noted("crashed")
    assert site.peek() == [crashed]
    # A slow start may have made two ticks due at once.
    assert crashed in site.unpublished()
    second = site.beat(TEST_TICKS="1")
    wait_until(lambda: site.peek().count(crashed) == 2, "the second message")
    worker = site.worker()
    wait_until(lambda: site.noted("ran")[crashed], "the message of the crash is run")
    stop_beats(second)
    site.await_rest()
    assert_each_tick_ran_once(site)
    assert "was skipped" in worker.output()


def test_a_copy_that_is_delivered_while_the_first_runs_is_put_off_and_dropped(site: Site) -> None:
    first = site.beat(TEST_CRASH="after_enqueue")
    message_id = site.trigger("slow")
    wait_until(lambda: not first.alive, "the crash")
    site.beat()
    wait_until(lambda: site.peek() == [message_id] * 2, "the second message")
    site.worker()
    wait_until(lambda: site.peek(".DQ") or site.noted("crashed")[message_id], "the copy")
    site.notes.set("go", "on")
    site.await_rest()
    assert site.noted("began") == site.noted("ran") == {message_id: 1}
    assert site.run_of(message_id) == "succeeded"


# -- a worker is killed -------------------------------------------------------------------------------------


def test_a_worker_that_is_killed_in_mid_run_has_its_message_run_again(site: Site) -> None:
    site.beat()
    first = site.worker()
    message_id = site.trigger("slow")
    wait_until(lambda: site.noted("began"), "the run begins")
    first.kill()
    second = site.worker()
    wait_until(lambda: site.noted("began")[message_id] == 1 and "was skipped" in second.output(), "it is put off")
    site.pass_a_minute_for(first)
    site.notes.set("go", "on")
    site.await_rest()
    assert site.noted("began") == {message_id: 2}
    assert site.noted("ran") == {message_id: 1}
    assert site.run_of(message_id) == "succeeded"


@pytest.mark.parametrize("step", ["before_ack", "after_ack"])
def test_a_worker_that_is_killed_around_its_ack_does_not_have_it_run_a_second_time(site: Site, step: str) -> None:
    """``before_ack`` of another middleware comes before ours: there the end is not recorded, and it may run again."""
    site.beat()
    site.worker(TEST_CRASH=step)
    message_id = site.trigger("job")
    wait_until(lambda: site.noted("crashed"), "the crash")
    worker = site.worker()
    if step == "before_ack":
        wait_until(lambda: "was skipped" in worker.output(), "it is put off")
        site.pass_a_minute_for(worker)
    site.await_rest()
    assert site.noted("ran") == {message_id: 2 if step == "before_ack" else 1}
    assert site.run_of(message_id) == "succeeded"


# -- retries ------------------------------------------------------------------------------------------------


def test_a_retry_waits_in_redis_and_its_run_goes_on(site: Site) -> None:
    site.beat()
    site.worker()
    message_id = site.trigger("flaky")
    site.await_rest()
    assert site.noted("ran") == {message_id: 3}
    assert site.attempts("ran") == [0, 1, 2]
    assert site.run_of(message_id) == "succeeded"
    assert site.retries() == 0


def test_a_retry_outlives_the_worker_that_recorded_it_and_is_run_once_by_another(site: Site) -> None:
    site.beat()
    worker = site.worker(TEST_BACKOFF="2")
    message_id = site.trigger("waiting")
    (waiting,) = wait_until(lambda: site.distcron.retries.list(), "the retry")
    assert (waiting.id, waiting.schedule, waiting.attempt) == (message_id, "waiting", 1)
    worker.kill()
    site.worker(TEST_BACKOFF="2")
    site.await_rest()
    assert site.attempts("ran") == [0, 1]
    assert site.run_of(message_id) == "succeeded"


def test_a_message_that_is_no_ticks_is_retried_as_well(site: Site) -> None:
    site.worker(TEST_BACKOFF="0.05")
    site.send_directly("plain")
    wait_until(lambda: site.notes.lrange("plain", 0, -1) == ["0", "1", "2"], "the retries")
    site.await_rest()


def test_a_message_that_always_fails_is_dead_once_and_not_in_rabbitmqs_dead_letter_queue_too(site: Site) -> None:
    site.beat()
    site.worker()
    message_id = site.trigger("dying")
    site.await_rest()
    assert site.noted("ran") == {message_id: 2}
    assert site.run_of(message_id) == "dead"
    (letter,) = site.distcron.dead_letters.list()
    assert (letter.message_id, letter.schedule, letter.reason) == (message_id, "dying", "retries_exhausted")
    assert site.peek(".XQ") == []


# -- dead letters -------------------------------------------------------------------------------------------


def test_every_death_has_exactly_one_record_and_is_told_once(site: Site) -> None:
    """Field bug 106: retries are spent, and nothing is dead."""
    worker = site.worker()
    ids = {actor: site.send_directly(actor) for actor in ("fragile", "aged", "gone")}
    wait_until(lambda: site.distcron.dead_letters.count() == 3, "the letters")
    reasons = {one.message_id: one.reason for one in site.distcron.dead_letters.list()}
    assert reasons == {ids["fragile"]: "retries_exhausted", ids["aged"]: "age_limit", ids["gone"]: "unknown_actor"}
    wait_until(lambda: len(site.noted("told")) == 3, "the handler")
    assert site.noted("told") == Counter(one.id for one in site.distcron.dead_letters.list())
    site.await_rest()
    assert site.peek(".XQ") == []
    assert "Failed to" not in worker.output().replace("Failed to process", "")


def test_a_message_that_is_delivered_twice_and_dies_twice_has_one_record(site: Site) -> None:
    site.worker()
    message_id = site.send_directly("fragile", times=2)
    wait_until(lambda: len(site.noted("told")) == 1 and site.noted("died")[message_id] == 2, "both deaths")
    site.await_rest()
    assert [one.message_id for one in site.distcron.dead_letters.list()] == [message_id]


def test_letters_go_back_to_rabbitmq_by_the_url_of_the_state_alone(site: Site) -> None:
    site.worker()
    message_id = site.send_directly("fragile")
    wait_until(lambda: site.distcron.dead_letters.count(), "the letter")
    site.notes.set("whole", "1")
    assert site.distcron.dead_letters.redrive(all=True).redriven == 1
    wait_until(lambda: site.noted("healed"), "the run")
    site.await_rest()
    assert list(site.noted("healed").values()) == [1]
    assert message_id not in site.noted("healed")
    assert site.distcron.dead_letters.count() == 0


def test_a_tick_that_died_goes_back_with_a_ticket_of_its_own(site: Site) -> None:
    site.beat()
    site.worker()
    message_id = site.trigger("dying")
    wait_until(lambda: site.distcron.dead_letters.count(), "the letter")
    assert site.distcron.dead_letters.redrive(schedule="dying").redriven == 1
    # It dies again, as a message of the next generation.
    wait_until(lambda: len(site.noted("ran")) == 2 and site.distcron.dead_letters.count(), "the second death")
    site.await_rest()
    (letter,) = site.distcron.dead_letters.list()
    assert letter.origin == {"message_id": message_id, "before": message_id, "generation": 1}
    assert list(site.noted("ran").values()) == [2, 2]


# -- RabbitMQ is in trouble ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_while_rabbitmq_is_away_ticks_are_committed_and_run_when_it_is_back(site: Site, rabbit: Node, how: str) -> None:
    # That it stays the leader is a matter of RabbitMQ, and not of how much of the processor it gets.
    beat = site.beat(TEST_TICKS="1", TEST_LEASE="30")
    site.worker()
    wait_until(lambda: len(site.noted("ran")) >= 2, "some runs")
    rabbit.stop() if how == "stop" else rabbit.kill()
    try:
        before = len(site.enqueued())
        wait_until(lambda: len(site.enqueued()) >= before + 3 and site.outbox() >= 2, "ticks go on")
        (term,) = {tick.term for tick in site.distcron.schedules.history("job")}
    finally:
        rabbit.start()
    wait_until(lambda: not site.outbox(), "the outbox is published")
    stop_beats(beat)
    site.await_rest()
    assert site.distcron.schedules.history("job")[0].term == term
    assert_each_tick_ran_once(site)


def test_while_rabbitmq_answers_nobody_ticks_are_committed_and_the_beat_can_leave(site: Site, rabbit: Node) -> None:
    beat = site.beat(TEST_TICKS="1")
    site.worker()
    wait_until(lambda: len(site.noted("ran")) >= 2, "some runs")
    rabbit.pause()
    try:
        before = len(site.enqueued())
        wait_until(lambda: len(site.enqueued()) >= before + 4, "ticks go on")
        assert site.outbox() >= 2
        stop_beats(beat)
    finally:
        rabbit.resume()
    another = site.beat(TEST_TICKS="1")
    wait_until(lambda: not site.outbox(), "the outbox is published")
    stop_beats(another)
    site.await_rest()
    assert_each_tick_ran_once(site)


@pytest.mark.parametrize("end", ["on", "fail"])
def test_a_run_whose_ack_fails_is_not_run_again_and_its_retry_is_not_lost(site: Site, rabbit: Node, end: str) -> None:
    site.beat()
    site.worker()
    message_id = site.trigger("slow")
    wait_until(lambda: site.noted("began"), "the run begins")
    rabbit.restart()
    site.notes.set("go", end)
    site.await_rest()
    assert site.noted("ran") == {message_id: 2 if end == "fail" else 1}
    assert site.run_of(message_id) == "succeeded"


def test_a_run_that_fails_while_rabbitmq_is_away_has_its_retry(site: Site, rabbit: Node) -> None:
    site.beat()
    worker = site.worker()
    message_id = site.trigger("slow")
    wait_until(lambda: site.noted("began"), "the run begins")
    rabbit.stop()
    try:
        site.notes.set("go", "fail")
        wait_until(site.retries, "the retry is recorded")
        wait_until(lambda: "could not be published" in worker.output(), "it cannot be published")
    finally:
        rabbit.start()
    site.await_rest()
    assert site.attempts("ran") == [0, 1]
    assert site.run_of(message_id) == "succeeded"


def test_a_message_that_rabbitmq_cannot_route_is_noticed_and_published_again(site: Site) -> None:
    """Without publisher confirms it would be gone."""
    site.beat()
    site.trigger("job")
    wait_until(lambda: site.declared() and not site.outbox(), "the first message")
    site.delete_queue()
    message_id = site.trigger("job")
    wait_until(lambda: not site.outbox(), "the second message")
    assert site.peek() == [message_id]


def test_a_connection_that_died_of_idleness_costs_no_message(site: Site) -> None:
    beat = site.beat(TEST_AMQP_URL=f"{site.rabbit.url}?heartbeat=1")
    first = site.trigger("job")
    wait_until(lambda: site.declared() and site.peek() == [first], "the first message")
    wait_until(lambda: "missed heartbeats from client" in site.rabbit.log(), "the connection is dropped")
    second = site.trigger("job")
    wait_until(lambda: site.peek() == [first, second], "the second message")
    assert beat.alive


# -- Redis is in trouble ------------------------------------------------------------------------------------


def test_a_run_that_ends_while_the_state_is_away_is_recorded_when_it_is_back(site: Site) -> None:
    site.beat()
    worker = site.worker()
    message_id = site.trigger("slow")
    wait_until(lambda: site.noted("began"), "the run begins")
    site.state.pause()
    site.notes.set("go", "on")
    wait_until(lambda: "could not be recorded" in worker.output(), "its end cannot be recorded")
    site.state.resume()
    site.await_rest()
    assert site.noted("ran") == {message_id: 1}
    assert site.run_of(message_id) == "succeeded"


def test_a_message_that_arrives_while_the_state_is_away_is_put_off_and_holds_no_other_up(site: Site) -> None:
    beat = site.beat()
    ids = {site.trigger("job") for _ in range(5)}
    wait_until(lambda: site.declared() and len(site.peek()) == 5, "the messages")
    site.state.pause()
    worker = site.worker()
    wait_until(lambda: "is put off" in worker.output(), "they are put off")
    site.send_directly("aside")
    wait_until(lambda: site.notes.get("aside"), "another message runs meanwhile")
    assert site.noted("ran") == {}
    site.state.resume()
    site.await_rest()
    assert site.noted("ran") == Counter(ids)
    assert beat.alive
