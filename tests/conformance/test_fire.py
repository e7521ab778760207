"""The commit: a tick's message, its record and the move of the cursor are one step, or none."""

from __future__ import annotations

from typing import Any

from dramatiq_distcron.store.base import NEVER, NO_RUN, Fire, Record
from tests.support import Rig, queued


def test_a_tick_is_in_its_queue_and_recorded_and_the_cursor_has_moved(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    assert rig.fire(rig.tick("job", 1000, 2000)) == ["ok"]
    assert [message.message_id for message in queued(rig.broker)] == ["job@1000"]
    assert rig.score("job") == 2000
    (record,) = rig.history("job")
    assert record["outcome"] == "enqueued"
    assert record["fire_time"] == "1000"
    assert record["message_id"] == "job@1000"
    assert record["lateness_ms"] == "5"
    assert record["holder"] == "a"


def test_the_same_commit_sent_twice_does_nothing_the_second_time(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    tick = rig.tick("job", 1000, 2000)
    assert rig.fire(tick) == ["ok"]
    assert rig.fire(tick) == ["stale"]
    assert len(queued(rig.broker)) == 1
    assert len(rig.history("job")) == 1


def test_without_the_lease_nothing_is_fired(rig: Rig) -> None:
    rig.lead("a")
    rig.put("job", 1000)
    tick = rig.tick("job", 1000, 2000)
    rig.store.release("a")
    rig.store.acquire("b", 5000)
    assert rig.fire(tick) is None
    assert queued(rig.broker) == []
    assert rig.score("job") == 1000


def test_an_edit_between_decision_and_commit_stops_the_tick(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000, args=["old"])
    tick = rig.tick("job", 1000, 2000)
    rig.put("job", 1000, args=["new"])
    assert rig.fire(tick) == ["stale"]
    assert queued(rig.broker) == []


def test_a_cursor_that_went_away_and_came_back_is_not_the_same(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    tick = rig.tick("job", 1000, 2000)
    rig.put("job", 5000)
    rig.put("job", 1000)
    assert rig.fire(tick) == ["stale"]


def test_a_schedule_that_was_removed_and_added_again_is_not_the_same(rig: Rig) -> None:
    from dramatiq_distcron.store.base import Edit

    rig.lead()
    rig.put("job", 1000)
    tick = rig.tick("job", 1000, 2000)
    before = rig.store.get(["job"])["job"]
    assert rig.store.edit(rig.guard, [Edit("job", before, None)]) == ["ok"]
    assert rig.fire(tick) == ["stale"]
    rig.put("job", 1000)
    assert rig.fire(tick) == ["stale"]
    assert queued(rig.broker) == []


def test_a_chain_of_ticks_of_one_schedule_fires_in_one_commit(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    assert rig.fire(*(rig.tick("job", at, at + 1000) for at in (1000, 2000, 3000))) == ["ok"] * 3
    assert rig.score("job") == 4000
    assert [message.message_id for message in queued(rig.broker)] == ["job@1000", "job@2000", "job@3000"]


def test_one_broken_queue_keeps_its_own_schedule_back_and_no_other(rig: Rig, break_queue: Any) -> None:
    rig.lead()
    for number in range(100):
        rig.put(f"job-{number}", 1000)
    ticks = [rig.tick(f"job-{n}", 1000, 2000, queue="broken" if n == 50 else "default") for n in range(100)]
    break_queue()
    answers = rig.fire(*ticks)
    assert answers is not None
    assert [n for n, answer in enumerate(answers) if answer != "ok"] == [50]
    assert answers[50].startswith("failed")
    assert rig.score("job-50") == 1000
    assert rig.history("job-50") == []
    assert rig.store.last(["job-50"]) == {}
    assert len(queued(rig.broker)) == 99
    assert {rig.score(f"job-{n}") for n in range(100) if n != 50} == {2000}


def test_a_chain_that_fails_in_the_middle_keeps_what_was_before_and_nothing_after(rig: Rig, break_queue: Any) -> None:
    rig.lead()
    rig.put("job", 1000)
    ticks = [
        rig.tick("job", at, at + 1000, queue="broken" if at == 3000 else "default") for at in (1000, 2000, 3000, 4000)
    ]
    break_queue()
    answers = rig.fire(*ticks)
    assert answers is not None
    assert answers[:2] == ["ok", "ok"]
    assert answers[2].startswith("failed")
    assert answers[3] == "stale"
    assert rig.score("job") == 3000
    assert [record["fire_time"] for record in rig.history("job")] == ["1000", "2000"]
    assert rig.store.last(["job"])["job"]["fire_time"] == "2000"
    assert [message.message_id for message in queued(rig.broker)] == ["job@1000", "job@2000"]


def test_equal_outcomes_without_a_message_are_one_record(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    for at in (1000, 2000, 3000):
        assert rig.fire(rig.passing("job", at, at + 1000, reason="r")) == ["ok"]
    last = rig.store.last(["job"])["job"]
    assert (last["fire_time"], last["fire_time_to"], last["count"]) == ("1000", "3000", "3")
    assert rig.history("job") == []
    assert rig.fire(rig.tick("job", 4000, 5000)) == ["ok"]
    assert [(r["outcome"], r["count"]) for r in rig.history("job")] == [("missed", "3"), ("enqueued", "1")]


def test_another_reason_begins_another_record(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    rig.fire(rig.passing("job", 1000, 2000, reason="one"), rig.passing("job", 2000, 3000, reason="other"))
    assert [(r["reason"], r["count"]) for r in rig.history("job")] == [("one", "1")]
    assert rig.store.last(["job"])["job"]["reason"] == "other"


def test_a_failing_tick_leaves_an_open_record_as_it_was(rig: Rig, break_queue: Any) -> None:
    rig.lead()
    rig.put("job", 1000)
    rig.fire(rig.passing("job", 1000, 2000, reason="r"))
    tick = rig.tick("job", 2000, 3000, queue="broken")
    break_queue()
    (answer,) = rig.fire(tick) or [""]
    assert answer.startswith("failed")
    assert rig.history("job") == []
    assert rig.fire(rig.passing("job", 2000, 3000, reason="r")) == ["ok"]
    assert rig.store.last(["job"])["job"]["count"] == "2"


def test_a_schedule_without_a_next_fire_time_keeps_a_cursor_that_is_never_due(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    assert rig.fire(rig.tick("job", 1000, NEVER)) == ["ok"]
    assert rig.score("job") == NEVER
    page = rig.store.read_due(10**15, skip=0, limit=10)
    assert list(page.rows) == []
    assert page.next_score is None


def test_a_manual_trigger_leaves_the_cursor_alone_and_asks_for_no_lease(rig: Rig) -> None:
    rig.lead("leader")
    rig.put("job", 1000)
    rig.guard = rig.guard.__class__("", 0, 10_000)
    tick = rig.tick("job", 777, NEVER, message_id="by-hand")._replace(score=None)
    assert rig.fire(tick) == ["ok"]
    assert rig.score("job") == 1000
    assert [message.message_id for message in queued(rig.broker)] == ["by-hand"]


def test_a_manual_trigger_is_no_decided_fire_time(rig: Rig) -> None:
    """A cursor that gets lost is restored after the last decided one: a trigger in between would hide a tick."""
    rig.lead()
    rig.put("job", 1000)
    rig.fire(rig.passing("job", 1000, 2000))
    assert rig.fire(rig.tick("job", 777_000, NEVER, message_id="by-hand")._replace(score=None)) == ["ok"]
    assert rig.store.last(["job"])["job"]["fire_time_to"] == "1000"
    assert [record["message_id"] for record in rig.history("job")] == ["by-hand"]
    rig.put("other", 1000)
    assert rig.fire(rig.tick("other", 777_000, NEVER, message_id="too")._replace(score=None)) == ["ok"]
    assert rig.store.last(["other"]) == {}


def test_a_tick_decided_on_no_run_is_stopped_by_a_run_that_began_meanwhile(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    tick = rig.tick("job", 1000, 2000, run_before=NO_RUN, run="{}")
    other = rig.tick("job", 777, NEVER, message_id="by-hand", run_before=NO_RUN, run="{}")._replace(score=None)
    assert rig.fire(other) == ["ok"]
    assert rig.fire(tick) == ["stale"]
    assert len(queued(rig.broker)) == 1
    (row,) = rig.store.read_due(1000, skip=0, limit=10).rows
    assert row.outstanding == "by-hand"


def test_due_schedules_are_read_oldest_first_in_pages(rig: Rig) -> None:
    rig.lead()
    for name, score in (("c", 3000), ("a", 1000), ("b", 2000), ("later", 9000), ("latest", 9500)):
        rig.put(name, score)
    page = rig.store.read_due(5000, skip=0, limit=2)
    assert [row.name for row in page.rows] == ["a", "b"]
    assert page.next_score == 9000
    assert [row.name for row in rig.store.read_due(5000, skip=2, limit=2).rows] == ["c"]
    assert page.rows[0].revision == rig.revision("a")


def test_names_and_reasons_in_any_script_come_back_as_they_were(rig: Rig) -> None:
    name = 'nächtlich "quoted" \\ 夜 🌙 %s \t"open":true'
    rig.lead()
    rig.put(name, 1000)
    rig.fire(rig.passing(name, 1000, 2000, reason='"open":true ü'))
    rig.fire(rig.tick(name, 2000, 3000))
    assert [(r["schedule"], r["reason"]) for r in rig.history(name)] == [(name, '"open":true ü'), (name, "")]
    (row,) = rig.store.read_due(3000, skip=0, limit=1).rows
    assert row.name == name


def test_an_unknown_schedule_is_stale(rig: Rig) -> None:
    rig.lead()
    fire = Fire("nobody", 1, 1000, 2000, Record("missed", 1000, 1000))
    assert rig.fire(fire) == ["stale"]


def test_a_schedule_whose_spec_is_rubbish_can_be_moved_out_of_the_way(rig: Rig) -> None:
    rig.lead()
    if hasattr(rig.store, "keys"):
        rig.broker.client.hset(rig.store.keys.schedules, "job", "{rubbish")
        rig.broker.client.zadd(rig.store.keys.due, {"job": 1000})
    else:
        rig.store._state.schedules["job"] = "{rubbish"
        rig.store._state.due["job"] = 1000
    (row,) = rig.store.read_due(1000, skip=0, limit=1).rows
    assert row.revision == ""
    assert rig.fire(Fire("job", "", 1000, NEVER, Record("disabled", 1000, 1000, reason="rubbish"))) == ["ok"]
    assert rig.score("job") == NEVER
