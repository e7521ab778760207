"""What the store tells of the past, of its processes, and of whose it is."""

from __future__ import annotations

import time
from typing import Any

import pytest

from dramatiq_distcron.backends import open_backend
from dramatiq_distcron.config import Settings
from dramatiq_distcron.store.base import NO_RUN, Edit, Fire, Guard, Instance, Record
from tests.conformance.hands import Hands
from tests.support import Rig, queued


def shown(rig: Rig, name: str | None = None, limit: int = 1000) -> list[tuple[str, str, str | None]]:
    """Schedule, fire time and state of the run of each record, newest first."""
    return [
        (one.schedule, one.fields["fire_time"], one.run and one.run["state"]) for one in rig.store.history(name, limit)
    ]


# -- history ------------------------------------------------------------------------------------------------


def test_a_history_without_records_is_empty(rig: Rig) -> None:
    assert rig.store.history(None, 10) == []
    assert rig.store.history("job", 10) == []


def test_records_come_newest_first_of_one_schedule_or_of_all(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    rig.put("other", 1000)
    hands.fire("job", 1000)
    hands.fire("other", 1000)
    hands.fire("job", 2000)
    assert shown(rig) == [("job", "2000", "queued"), ("other", "1000", "queued"), ("job", "1000", "queued")]
    assert shown(rig, "other") == [("other", "1000", "queued")]
    assert shown(rig, "nobody") == []


def test_no_more_records_are_given_than_asked_for(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    for n in range(1, 6):
        hands.fire("job", 1000 * n)
    assert shown(rig, limit=2) == [("job", "5000", "queued"), ("job", "4000", "queued")]


def test_the_end_of_a_run_is_told_with_its_tick_and_is_no_record_of_its_own(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    for n in range(1, 5):
        hands.fire("job", 1000 * n)
    messages = hands.take()
    rig.store.settle(hands.ending(messages[0], "succeeded"))
    rig.store.start_run(messages[1].message_id, "worker")
    rig.store.settle(hands.ending(messages[2], "dead", error="ValueError: bad"))
    assert [state for _, _, state in shown(rig)] == ["queued", "dead", "running", "succeeded"]
    assert [state for _, _, state in shown(rig, limit=2)] == ["queued", "dead"]


def test_a_tick_that_died_stays_so_while_the_run_of_the_next_one_is_outstanding(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    hands.fire("job", 1000, run_before=NO_RUN)
    (message,) = hands.take()
    rig.store.settle(hands.ending(message, "dead", error="ValueError: bad"))
    hands.fire("job", 2000, run_before=NO_RUN)
    assert rig.store.outstanding("job")
    assert shown(rig) == [("job", "2000", "queued"), ("job", "1000", "dead")]


def test_many_records_and_ends_are_put_together(rig: Rig, hands: Hands) -> None:
    """More than are read at once, and the ends of runs between them."""
    rig.put("job", 1000)
    ticks = [hands.tick("job", 1000 * n) for n in range(1, 701)]
    for start in range(0, 700, 100):
        assert rig.fire(*ticks[start : start + 100]) == ["ok"] * 100
    for message in hands.take():
        rig.store.settle(hands.ending(message, "succeeded"))
    assert shown(rig) == [("job", str(1000 * n), "succeeded") for n in range(700, 0, -1)]
    assert shown(rig, limit=650)[-1] == ("job", "51000", "succeeded")


def test_a_record_that_sent_nothing_has_no_run(rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    hands.fire("job", 1000, run_before=NO_RUN)
    rig.fire(rig.passing("job", 2000, 3000), rig.passing("job", 3000, 4000, "error"))
    assert shown(rig)[0] == ("job", "2000", None)


def test_what_a_record_holds_comes_back(rig: Rig) -> None:
    rig.lead("leader")
    rig.put("job", 1000)
    record = Record("missed", 1000, 5000, 5, 'why "ü"')
    rig.fire(Fire("job", rig.revision("job"), 1000, 6000, record))
    rig.fire(rig.tick("job", 6000, 7000))
    enqueued, missed = rig.store.history("job", 10)
    assert dict(missed.fields) == {
        "schedule": "job",
        "fire_time": "1000",
        "fire_time_to": "5000",
        "count": "5",
        "outcome": "missed",
        "message_id": "",
        "decided_at": "10000",
        "lateness_ms": "",
        "term": str(rig.guard.term),
        "holder": "leader",
        "reason": 'why "ü"',
    }
    assert (enqueued.fields["message_id"], enqueued.fields["lateness_ms"]) == ("job@6000", "5")


def test_the_oldest_records_go_when_there_are_too_many(rig: Rig) -> None:
    small = Rig(rig.broker, open_backend(rig.broker, Settings(history_size=100)))
    small.lead()
    small.put("job", 1000)
    for start in range(1, 1001, 100):
        small.fire(*(small.tick("job", 1000 * n, 1000 * n + 1000) for n in range(start, start + 100)))
    found = small.history()
    # A stream is cut in whole nodes.
    assert 100 <= len(found) < 500
    assert found[-1]["fire_time"] == "1000000"


def test_the_last_outcome_of_a_schedule_stays_however_old_it_is(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    rig.put("quiet", 1000)
    rig.fire(rig.tick("quiet", 1000, 9000), rig.tick("job", 1000, 2000))
    last = rig.store.last(["quiet", "job", "nobody"])
    assert {name: (fields["outcome"], fields["fire_time_to"]) for name, fields in last.items()} == {
        "quiet": ("enqueued", "1000"),
        "job": ("enqueued", "1000"),
    }


def test_an_open_record_is_no_part_of_the_history_before_it_ends(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    rig.fire(rig.passing("job", 1000, 2000))
    assert rig.store.history("job", 10) == []
    assert rig.store.last(["job"])["job"]["open"] is True
    rig.fire(rig.tick("job", 2000, 3000))
    assert rig.store.last(["job"])["job"]["open"] is False
    assert len(rig.store.history("job", 10)) == 2


# -- whose the state is -------------------------------------------------------------------------------------


def test_the_first_code_base_owns_the_state_and_a_second_learns_whose_it_is(rig: Rig) -> None:
    assert rig.store.claim_owner("shop", adopt=False) == "shop"
    assert rig.store.claim_owner("shop", adopt=False) == "shop"
    assert rig.store.claim_owner("billing", adopt=False) == "shop"


def test_one_that_adopts_the_state_owns_it_from_then_on(rig: Rig) -> None:
    rig.store.claim_owner("shop", adopt=False)
    assert rig.store.claim_owner("läden 夜", adopt=True) == "läden 夜"
    assert rig.store.claim_owner("shop", adopt=False) == "läden 夜"


# -- notices ------------------------------------------------------------------------------------------------


def test_the_latest_notices_are_kept_newest_first_with_their_time(rig: Rig) -> None:
    assert rig.store.notices() == []
    before = rig.store.now()
    for number in range(15):
        rig.store.notice(f"Word {number} ü")
    found = rig.store.notices()
    assert [text for _, text in found] == [f"Word {number} ü" for number in range(14, 4, -1)]
    assert all(before <= at <= rig.store.now() for at, _ in found)


# -- counting, waiting, processes ---------------------------------------------------------------------------


def test_schedules_are_counted(rig: Rig) -> None:
    rig.lead()
    assert rig.store.count() == 0
    rig.put("a")
    rig.put("b")
    assert rig.store.count() == 2
    rig.store.edit(rig.guard, [Edit("a", rig.store.get(["a"])["a"], None)])
    assert rig.store.count() == 1


def test_a_renewal_counts_only_if_it_is_told_to(rig: Rig) -> None:
    rig.lead()
    renewed = rig.store.renew("a", 5000)
    assert (renewed.schedules, renewed.cursors) == (None, None)


def test_who_waits_is_woken_by_who_asks_and_once(rig: Rig) -> None:
    rig.store.wait(0.001)
    rig.store.wake()
    rig.store.wake()
    assert rig.store.wait(5) is True
    assert rig.store.wait(0.001) is False


def test_what_a_process_tells_comes_back_and_the_latest_counts(rig: Rig) -> None:
    rig.store.heartbeat(Instance("a", {"role": "standby", "actors": {"job": "default"}}), keep=60_000)
    rig.store.heartbeat(Instance("a", {"role": "leader", "last_pass_at": None}), keep=60_000)
    (found,) = rig.store.instances(keep=60_000)
    assert (found.holder, dict(found.data)) == ("a", {"role": "leader", "last_pass_at": None})


def test_one_that_was_silent_for_longer_than_asked_for_is_not_listed(rig: Rig) -> None:
    rig.store.heartbeat(Instance("a", {}), keep=60_000)
    time.sleep(0.02)
    assert rig.store.instances(keep=5) == []
    assert len(rig.store.instances(keep=60_000)) == 1


def test_forgetting_a_process_that_is_not_listed_does_nothing(rig: Rig) -> None:
    rig.store.forget("nobody")
    assert rig.store.instances(keep=60_000) == []


# -- queues -------------------------------------------------------------------------------------------------


def test_the_messages_that_wait_on_a_queue_are_counted(rig: Rig, hands: Hands) -> None:
    place = "default"
    if hasattr(rig.store, "keys"):
        place = f"{rig.broker.namespace}:default"
    else:
        rig.store._length = lambda queue: rig.broker.queues[queue].qsize()
    assert rig.store.queue_length(place) == 0
    rig.put("job", 1000)
    rig.fire(rig.tick("job", 1000, 2000), rig.tick("job", 2000, 3000))
    assert rig.store.queue_length(place) == len(queued(rig.broker)) == 2


# -- a commit that is under way -----------------------------------------------------------------------------


def test_the_answers_to_a_commit_that_was_started_come_later(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    answers = rig.store.start_fire(rig.guard, [rig.tick("job", 1000, 2000), rig.tick("job", 1000, 2000)])
    assert answers() == ["ok", "stale"]


def test_a_commit_that_was_started_without_the_lease_is_answered_with_that(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    answers = rig.store.start_fire(Guard("somebody else", 1, 1), [rig.tick("job", 1000, 2000)])
    assert answers() is None
    assert queued(rig.broker) == []


@pytest.mark.parametrize("names", [[], ["nobody"]])
def test_asking_for_schedules_that_are_not_there_gives_nothing(rig: Rig, names: list[str]) -> None:
    assert rig.store.get(names) == {}
    assert rig.store.last(names) == {}


def test_a_scan_of_nothing_is_empty(rig: Rig) -> None:
    found: list[Any] = list(rig.store.scan())
    assert found == []
