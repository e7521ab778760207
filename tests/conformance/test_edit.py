"""Edits: only on what was read, with the record of what was due."""

from __future__ import annotations

import time

from dramatiq_distcron.store.base import Edit, Guard, Instance, Record, Stored
from tests.support import Rig, wait_until


def test_an_edit_of_something_that_changed_meanwhile_is_refused(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    before = rig.store.get(["job"])["job"]
    rig.put("job", 1500)
    assert rig.store.edit(rig.guard, [Edit("job", before, {"name": "job"}, 2000)]) == ["stale"]
    assert rig.score("job") == 1500


def test_an_edit_of_a_cursor_that_moved_meanwhile_is_refused(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    before = rig.store.get(["job"])["job"]
    rig.fire(rig.tick("job", 1000, 2000))
    assert rig.store.edit(rig.guard, [Edit("job", before, {"name": "job"}, 5000)]) == ["stale"]
    assert rig.score("job") == 2000


def test_adding_what_is_there_is_refused(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    assert rig.store.edit(rig.guard, [Edit("job", None, {"name": "job"}, 2000)]) == ["stale"]


def test_an_addition_that_counts_from_before_a_removal_is_refused(rig: Rig) -> None:
    """The schedule may have been there in between, and what it fired would come again."""
    rig.lead()
    addition = Edit("job", None, {"name": "job"}, 2000)
    early = Guard("", 0, rig.store.now())
    wait_until(lambda: rig.store.now() > early.now, "the next millisecond")
    rig.put("job", 1000)
    assert rig.store.edit(rig.guard, [Edit("job", rig.store.get(["job"])["job"], None)]) == ["ok"]
    assert rig.store.edit(early, [addition]) == ["stale"]
    assert rig.store.edit(Guard("leader", 1, early.now), [addition]) is None
    assert rig.store.get(["job"]) == {}
    # What was fired up to this millisecond is not ahead of it.
    assert rig.store.edit(Guard("", 0, rig.store.now()), [addition]) == ["ok"]


def test_a_leader_may_remove_one_and_add_another_at_one_instant(rig: Rig) -> None:
    """Nobody but the leader fires, so it knows what was fired in between."""
    rig.lead()
    rig.put("old", 1000)
    edits = [Edit("old", rig.store.get(["old"])["old"], None), Edit("new", None, {"name": "new"}, 1000)]
    assert rig.store.edit(rig.guard, edits) == ["ok", "ok"]


def test_a_removal_that_is_still_to_come_keeps_nobody_from_adding(rig: Rig) -> None:
    """The store's clock stepped back after it."""
    rig.lead()
    later = rig.store.now() + 3_600_000
    if hasattr(rig.store, "keys"):
        rig.broker.client.set(rig.store.keys.removed, later)
    else:
        rig.store._state.removed = later
    assert rig.store.edit(Guard("", 0, rig.store.now()), [Edit("job", None, {"name": "job"}, 1000)]) == ["ok"]


def test_a_leader_that_lost_the_lease_edits_nothing(rig: Rig) -> None:
    rig.lead("a")
    rig.put("job", 1000)
    rig.store.release("a")
    before = rig.store.get(["job"])["job"]
    assert rig.store.edit(rig.guard, [Edit("job", before, None)]) is None
    assert "job" in rig.store.get(["job"])


def test_every_edit_gives_a_revision_that_was_never_given(rig: Rig) -> None:
    rig.lead()
    seen = [rig.put("job", 1000 + n) for n in range(3)]
    rig.store.edit(rig.guard, [Edit("job", rig.store.get(["job"])["job"], None)])
    seen.append(rig.put("job", 1000))
    assert seen == sorted(set(seen))


def test_what_was_due_under_the_old_spec_is_recorded_with_the_edit(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    before = rig.store.get(["job"])["job"]
    record = Record("missed", 1000, 3000, 3, "edited")
    assert rig.store.edit(rig.guard, [Edit("job", before, {"name": "job"}, 9000, record)]) == ["ok"]
    last = rig.store.last(["job"])["job"]
    assert (last["outcome"], last["count"], last["reason"]) == ("missed", "3", "edited")


def test_removing_a_schedule_puts_its_open_record_into_the_history(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    rig.fire(rig.passing("job", 1000, 2000))
    before = rig.store.get(["job"])["job"]
    record = Record("missed", 2000, 2000, 1, "removed")
    assert rig.store.edit(rig.guard, [Edit("job", before, None, record=record)]) == ["ok"]
    assert [r["reason"] for r in rig.history("job")] == ["", "removed"]
    assert rig.store.get(["job"]) == {}
    assert rig.store.last(["job"]) == {}


def test_a_cursor_that_got_lost_is_seen_and_can_be_given_back(rig: Rig) -> None:
    rig.lead()
    rig.put("job", 1000)
    if hasattr(rig.store, "keys"):
        rig.broker.client.delete(rig.store.keys.due)
    else:
        rig.store._state.due.clear()
    renewed = rig.store.renew("a", 5000, count=True)
    assert (renewed.schedules, renewed.cursors) == (1, 0)
    (stored,) = rig.store.scan()
    assert stored.score is None
    assert rig.store.edit(rig.guard, [Edit("job", stored, {"name": "job"}, 4000)]) == ["ok"]
    assert rig.score("job") == 4000


def test_an_edit_wakes_who_waits(rig: Rig) -> None:
    rig.lead()
    rig.store.wait(0.001)
    rig.put("job", 1000)
    assert rig.store.wait(5) is True


def test_an_edit_by_the_api_asks_for_no_lease(rig: Rig) -> None:
    rig.lead("leader")
    assert rig.store.edit(Guard("", 0, 1), [Edit("job", None, {"name": "job"}, 1000)]) == ["ok"]


def test_a_scan_gives_each_schedule_once(rig: Rig) -> None:
    rig.lead()
    names = {f"job-{n}" for n in range(1200)}
    rig.store.edit(rig.guard, [Edit(name, None, {"name": name}, 1000) for name in sorted(names)])
    found = list(rig.store.scan())
    assert len(found) == 1200
    assert {one.name for one in found} == names
    assert all(isinstance(one, Stored) and one.score == 1000 for one in found)


def test_a_process_is_listed_until_it_leaves_or_is_silent_for_too_long(rig: Rig) -> None:
    rig.store.heartbeat(Instance("a", {"role": "beat", "pid": 1}), keep=60_000)
    rig.store.heartbeat(Instance("b", {"role": "worker", "pid": 2}), keep=60_000)
    assert {one.holder: one.data["pid"] for one in rig.store.instances(keep=60_000)} == {"a": 1, "b": 2}
    rig.store.forget("b")
    time.sleep(0.01)
    rig.store.heartbeat(Instance("c", {}), keep=5)
    assert [one.holder for one in rig.store.instances(keep=60_000)] == ["c"]
