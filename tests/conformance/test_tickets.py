"""Tickets: where a broker may deliver copies of a message, one delivery at a time may run it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dramatiq_distcron.store.base import (
    REMEMBERED,
    Ending,
    Fire,
    Instance,
    Letter,
    Query,
    Record,
    Refused,
    Started,
    Waiting,
)
from tests.support import Rig

ID = "job@1000"


@pytest.fixture
def fired(rig: Rig) -> Rig:
    """A tick that was committed, with its message in the outbox."""
    rig.lead()
    rig.put("job")
    run = {"schedule": "job", "queue": "default", "place": "", "rid": "", "fire_time": "1000", "state": "queued"}
    record = Record("enqueued", 1000, 1000, message_id=ID, lateness=5)
    fire = Fire("job", rig.revision("job"), 1000, 2000, record, "", json.dumps(run | {"at": "1005"}), b"message")
    assert rig.fire(fire) == ["ok"]
    return rig


def claim(rig: Rig, worker: str, claim: str, attempt: int = 0) -> str:
    """In which state the run was, or ``copy``, or who is at it."""
    claimed = rig.store.claim_run(ID, worker, attempt, claim)
    if isinstance(claimed, Refused):
        return claimed.holder or "copy"
    assert isinstance(claimed, Started)
    return claimed.before


def end(rig: Rig, claim: str) -> str:
    answer: str = rig.store.settle(Ending(ID, "succeeded", claim=claim))
    return answer


def retry(rig: Rig, claim: str, attempt: int = 1) -> str:
    answer: str = rig.store.settle(Ending(ID, "retrying", goes_on=True, attempt=attempt, claim=claim))
    return answer


def ends(rig: Rig) -> list[str]:
    return [one.run["state"] for one in rig.store.history("job", 10) if one.run and "run" in one.run]


def test_the_message_waits_in_the_outbox_until_it_is_published(fired: Rig) -> None:
    assert fired.store.outbox(10) == [(ID, b"message")]
    fired.store.published(ID)
    assert fired.store.outbox(10) == []


def test_messages_that_are_to_be_passed_over_do_not_hide_the_others_in_the_outbox(fired: Rig) -> None:
    for number in range(1500):
        fires = Fire(
            "job", fired.revision("job"), None, 0, Record("enqueued", 1, 1, message_id=f"m{number}"), outbox=b"x"
        )
        assert fired.fire(fires) == ["ok"]
    passed_over = {f"m{number}" for number in range(1500)}
    assert fired.store.outbox(10, passed_over) == [(ID, b"message")]
    assert len(fired.store.outbox(10)) >= 10


def test_a_first_delivery_gets_the_ticket_and_a_copy_beside_it_does_not(fired: Rig) -> None:
    assert claim(fired, "w1", "c1") == "queued"
    assert claim(fired, "w2", "c2") == "w1"
    assert claim(fired, "w1", "c3") == "w1"


def test_without_a_ticket_it_is_a_copy(fired: Rig) -> None:
    claim(fired, "w1", "c1")
    assert end(fired, "c1") == "settled"
    assert claim(fired, "w2", "c2") == "copy"


def test_only_the_delivery_that_claimed_last_ends_the_run(fired: Rig) -> None:
    claim(fired, "w1", "c1")
    fired.store.forget("w1")
    assert claim(fired, "w2", "c2") == "running"
    assert end(fired, "c1") == "lost"
    assert claim(fired, "w3", "c3") == "w2"
    assert end(fired, "c2") == "settled"
    assert ends(fired) == ["succeeded"]


def test_a_death_that_is_told_again_brings_no_letter_back_that_was_dealt_with_meanwhile(fired: Rig) -> None:
    claim(fired, "w1", "c1")
    notice = Waiting("notice", 0, {"id": "notice"}, b"notice")
    death = Ending(ID, "dead", claim="c1", letter=Letter("letter", {}, b"message"), waiting=notice)
    assert fired.store.settle(death) == "settled"
    assert (fired.store.drop_letters(["letter"]), fired.store.drop_retry("notice")) == (1, True)
    assert fired.store.settle(death) == "lost"
    assert (fired.store.letters(Query(), 10), fired.store.count_retries(), ends(fired)) == ([], 0, ["dead"])


def test_a_run_that_was_given_up_may_go_on_and_its_death_has_a_letter(fired: Rig) -> None:
    """Its schedule is freed, and its end is told once; without its ticket the message would be lost."""
    claim(fired, "w1", "c1")
    assert give_up(fired) == "dropped"
    assert (fired.store.outstanding("job"), give_up(fired)) == ("", "over")
    assert fired.store.settle(Ending(ID, "dead", claim="c1", letter=Letter("letter", {}, b"message"))) == "settled"
    assert ([row.id for row in fired.store.letters(Query(), 10)], ends(fired)) == (["letter"], ["dropped"])
    assert claim(fired, "w2", "c2") == "copy"


def test_a_retry_of_a_run_that_was_given_up_has_its_ticket(fired: Rig) -> None:
    claim(fired, "w1", "c1")
    give_up(fired)
    assert retry(fired, "c1") == "settled"
    assert claim(fired, "w2", "c2", attempt=1) == "retrying"
    assert fired.store.settle(Ending(ID, "succeeded", claim="c2")) == "settled"
    assert (ends(fired), ends_written(fired)) == (["dropped"], 1)


def test_a_ticket_that_was_given_up_and_is_not_asked_for_any_more_is_forgotten_in_the_end(fired: Rig) -> None:
    claim(fired, "w1", "c1")
    give_up(fired)
    enqueue(fired, fired.store.now())
    assert fired.store.sweep_runs(fired.guard, "0", 100) == ("0", 0)
    enqueue(fired, fired.store.now() - 8 * 86_400_000)
    assert fired.store.sweep_runs(fired.guard, "0", 100) == ("0", 1)
    assert (claim(fired, "w2", "c2"), ends(fired)) == ("copy", ["dropped"])


def ends_written(rig: Rig) -> int:
    """The history shows one for each run, however many there are."""
    store: Any = rig.store
    if hasattr(store, "keys"):
        return sum(b"run" in fields for _, fields in rig.broker.client.xrange(store.keys.ticks))
    return sum("run" in record for record in store._ticks)


def give_up(rig: Rig) -> str | None:
    return rig.store.probe_run(rig.guard, "job", ID, 0)


def enqueue(rig: Rig, at: int) -> None:
    """The run was enqueued then."""
    store: Any = rig.store
    if hasattr(store, "keys"):
        run = json.loads(rig.broker.client.hget(store.keys.runs, ID))
        rig.broker.client.hset(store.keys.runs, ID, json.dumps({**run, "at": str(at)}))
    else:
        store._state.runs[ID]["at"] = str(at)


def test_a_retry_that_is_told_twice_does_not_disturb_the_retry_that_runs(fired: Rig) -> None:
    claim(fired, "w1", "c1")
    assert retry(fired, "c1") == "settled"
    assert claim(fired, "w1", "c2", attempt=1) == "retrying"
    assert retry(fired, "c1") == "lost"
    assert claim(fired, "w2", "c3", attempt=1) == "w1"
    assert end(fired, "c2") == "settled"


@pytest.mark.parametrize("is_alive", [True, False])
def test_an_earlier_attempt_is_a_copy_too_while_its_retry_runs_and_when_whoever_ran_it_is_dead(
    fired: Rig, is_alive: bool
) -> None:
    """It was put off while the first attempt ran, and would have been run again: found by the search at random."""
    claim(fired, "w1", "c1")
    assert claim(fired, "w2", "c2") == "w1"
    retry(fired, "c1")
    assert claim(fired, "w3", "c3", attempt=1) == "retrying"
    if not is_alive:
        fired.store.forget("w3")
    assert claim(fired, "w2", "c4", attempt=0) == "copy"
    assert claim(fired, "w2", "c5", attempt=1) == ("w3" if is_alive else "running")


def test_an_earlier_attempt_is_a_copy_as_soon_as_a_retry_is_on_its_way(fired: Rig) -> None:
    claim(fired, "w1", "c1")
    retry(fired, "c1")
    assert claim(fired, "w2", "c2", attempt=0) == "copy"
    assert claim(fired, "w2", "c3", attempt=1) == "retrying"


def test_a_worker_that_just_claimed_is_alive_before_its_first_heartbeat(fired: Rig) -> None:
    claim(fired, "w1", "c1")
    assert fired.store.instances(keep=REMEMBERED) == []
    assert claim(fired, "w2", "c2") == "w1"


def test_the_claim_of_a_worker_that_left_lapses(fired: Rig) -> None:
    fired.store.heartbeat(Instance("w1", {"role": "worker"}), keep=REMEMBERED)
    claim(fired, "w1", "c1")
    fired.store.forget("w1")
    assert claim(fired, "w2", "c2") == "running"


def test_a_run_that_ended_meanwhile_is_over_and_not_given_up(fired: Rig) -> None:
    claim(fired, "w1", "c1")
    end(fired, "c1")
    assert fired.store.probe_run(fired.guard, "job", ID, None) == "over"
    assert ends(fired) == ["succeeded"]


def test_a_claim_whose_answer_did_not_come_is_taken_over_by_the_delivery_that_knows_of_it(fired: Rig) -> None:
    assert claim(fired, "w1", "lost") == "queued"
    assert claim(fired, "w1", "other") == "w1"
    again = fired.store.claim_run(ID, "w2", 0, "second", ["never arrived", "lost"])
    assert isinstance(again, Started)
    assert isinstance(fired.store.claim_run(ID, "w3", 0, "a copy", ["never arrived", "lost"]), Refused)
    assert end(fired, "lost") == "lost"
    assert end(fired, "second") == "settled"


def test_a_claim_to_end_a_run_keeps_nobody_away(fired: Rig) -> None:
    assert claim(fired, "", "first") == "queued"
    assert claim(fired, "", "second") == "running"
    assert end(fired, "first") == "lost"
    assert end(fired, "second") == "settled"
