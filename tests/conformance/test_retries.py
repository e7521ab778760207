"""Messages that wait for their retry: recorded with the ack or not at all, and back in their queue once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from dramatiq import Message

from dramatiq_distcron import RetryBudget
from dramatiq_distcron.publishing import waiting_form
from dramatiq_distcron.store.base import NO_RUN, Ending, Waiting
from dramatiq_distcron.store.memory import MemoryStore
from tests.conformance.hands import QUEUE, Hands
from tests.support import Rig, orphans, queued

FAR = 3_600_000


class Retries:
    """Short ways to fail messages."""

    def __init__(self, rig: Rig, hands: Hands) -> None:
        self.rig = rig
        self.hands = hands
        self.store = rig.store

    def waiting(self, message: Message[Any], delay: int = 0, queue: str = QUEUE, **about: Any) -> Waiting:
        retry = message.copy(queue_name=queue, options={"retries": 1})
        data, calls = waiting_form(self.rig.publisher.capture_plainly(retry))
        about = {"id": message.message_id, "actor": "job", "queue": queue, **about}
        return Waiting(f"key of {message.message_id}", delay, about, data, calls)

    def ending(self, message: Message[Any], delay: int = 0, **about: Any) -> Ending:
        waiting = self.waiting(message, delay, **about)
        return self.hands.ending(message, "retrying", goes_on=True, redis_id=waiting.key, attempt=1, waiting=waiting)

    def fail(self, *names: str, delay: int = 0, **about: Any) -> None:
        for message in self.hands.given(*names):
            assert self.store.settle(self.ending(message, delay, **about)) == "acked"

    def names(self) -> list[str]:
        """What waits, by message."""
        return [str(row.about.get("id")) for row in self.store.retries(10_000)]

    def back(self) -> list[str]:
        """What is in the queue."""
        return [message.message_id for message in queued(self.rig.broker, QUEUE)]


@pytest.fixture
def retries(rig: Rig, hands: Hands) -> Retries:
    return Retries(rig, hands)


# -- recorded -------------------------------------------------------------------------------------------------


def test_a_retry_is_recorded_with_the_ack(retries: Retries, hands: Hands) -> None:
    (message,) = retries.hands.given("m")
    assert retries.store.settle(retries.ending(message, FAR, attempt=1, error="ValueError")) == "acked"
    assert not hands.is_there(message)
    (row,) = retries.store.retries(10)
    assert (row.key, row.about["id"], row.about["error"]) == ("key of m", "m", "ValueError")
    assert Message.decode(row.data).options["retries"] == 1
    assert 0 < row.due - retries.store.now() <= FAR


def test_a_script_that_is_sent_twice_records_one_retry(retries: Retries) -> None:
    (message,) = retries.hands.given("m")
    ending = retries.ending(message)
    assert [retries.store.settle(ending) for _ in range(2)] == ["acked", "lost"]
    assert retries.store.move_retries(10).moved == 1
    # Also when the retry has gone back meanwhile.
    assert retries.store.settle(ending) == "lost"
    assert (retries.names(), retries.back()) == ([], ["m"])


def test_a_worker_that_lost_its_message_leaves_no_retry(retries: Retries, hands: Hands) -> None:
    """It was taken for dead, and another one has the message."""
    (message,) = retries.hands.given("m")
    assert retries.store.settle(hands.ending(message, "succeeded")) == "acked"
    assert retries.store.settle(retries.ending(message)) == "lost"
    assert retries.store.count_retries() == 0


def test_a_lost_ack_leaves_the_retry_that_was_there_as_it_was(retries: Retries) -> None:
    (message,) = retries.hands.given("m")
    retries.store.settle(retries.ending(message, FAR, error="first"))
    (before,) = retries.store.retries(10)
    assert retries.store.settle(retries.ending(message, 0, error="second")) == "lost"
    assert retries.store.retries(10) == [before]


def test_a_retry_at_once_goes_back_in_the_step_of_the_ack(retries: Retries) -> None:
    (message,) = retries.hands.given("m")
    again = retries.rig.publisher.capture_plainly(message.copy(options={"retries": 1}))
    ending = retries.hands.ending(message, "retrying", goes_on=True, calls=again.calls)
    assert [retries.store.settle(ending) for _ in range(2)] == ["acked", "lost"]
    assert retries.back() == ["m"]


def test_a_message_that_goes_into_a_broken_queue_undoes_the_whole_step(
    retries: Retries, hands: Hands, break_queue: Callable[[], None]
) -> None:
    """What is to tell of an end, where its queue cannot take it."""
    if isinstance(retries.store, MemoryStore):
        # There the ack is the broker's own, after the step.
        hands.ack = lambda message: ()  # type: ignore[method-assign]
    (message,) = retries.hands.given("m")
    told = retries.rig.publisher.capture_plainly(Message("broken", "told", (), {}, {}, "t", 1))
    break_queue()
    ending = hands.ending(message, "retrying", goes_on=True, waiting=retries.waiting(message), calls=told.calls)
    assert retries.store.settle(ending).startswith("failed")
    assert hands.is_there(message)
    assert retries.store.count_retries() == 0
    assert retries.store.retry("key of m") is None


def test_the_run_of_a_tick_goes_on_with_its_retry(retries: Retries, rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    message_id = hands.fire("job", 1000, run_before=NO_RUN)
    (message,) = hands.take()
    rig.store.start_run(message_id, "worker")
    assert rig.store.settle(retries.ending(message, FAR)) == "settled"
    assert rig.store.outstanding("job") == message_id
    (run,) = [one.run for one in rig.store.history(None, 10)]
    assert run is not None
    assert run["state"] == "retrying"


def test_a_waiting_retry_is_not_taken_for_a_run_that_is_gone(retries: Retries, rig: Rig, hands: Hands) -> None:
    rig.put("job", 1000)
    message_id = hands.fire("job", 1000, run_before=NO_RUN)
    (message,) = hands.take()
    ending = retries.ending(message, FAR)
    rig.store.settle(Ending(**{**_fields(ending), "place": hands.place()}))
    assert rig.store.probe_run(rig.guard, "job", message_id, None) == "there"
    assert rig.store.sweep_runs(rig.guard, "0", 100) == ("0", 0)
    rig.store.drop_retry("key of " + message_id)
    assert rig.store.probe_run(rig.guard, "job", message_id, None) == "dropped"


def _fields(ending: Ending) -> dict[str, Any]:
    return {name: getattr(ending, name) for name in Ending.__dataclass_fields__}


# -- back in their queues -------------------------------------------------------------------------------------


def test_what_is_due_goes_back_and_what_is_not_waits(retries: Retries) -> None:
    retries.fail("far", delay=FAR)
    retries.fail("a", "b")
    found = retries.store.move_retries(10)
    assert (found.moved, found.put_off, found.failed) == (2, 0, "")
    assert sorted(retries.back()) == ["a", "b"]
    assert retries.names() == ["far"]
    assert found.next_due == retries.store.retries(10)[0].due
    assert abs(found.now - retries.store.now()) < 60_000


def test_what_went_back_can_be_run_and_acked_as_any_message(retries: Retries, hands: Hands) -> None:
    retries.fail("m")
    retries.store.move_retries(10)
    (message,) = hands.take()
    assert (message.message_id, message.options["retries"]) == ("m", 1)
    retries.rig.store.settle(hands.ending(message, "succeeded"))
    assert not hands.is_there(message)


def test_no_more_are_moved_than_were_asked_for(retries: Retries) -> None:
    retries.fail(*(str(number) for number in range(7)))
    assert [retries.store.move_retries(3).moved for _ in range(4)] == [3, 3, 1, 0]
    assert len(set(retries.back())) == 7


def test_nothing_waits_and_nothing_is_moved(retries: Retries) -> None:
    found = retries.store.move_retries(10)
    assert (found.moved, found.next_due, found.failed) == (0, None, "")


def test_a_broken_queue_keeps_its_retry_and_holds_up_no_other(
    retries: Retries, break_queue: Callable[[], None]
) -> None:
    retries.fail("broken", queue="broken")
    retries.fail("m")
    before = retries.store.retries(1)[0]
    break_queue()
    found = retries.store.move_retries(10)
    assert (found.moved, bool(found.failed)) == (1, True)
    assert retries.back() == ["m"]
    (row,) = retries.store.retries(10)
    assert row[2:] == before[2:]
    assert row.due > retries.store.now()
    if not isinstance(retries.store, MemoryStore):
        assert retries.rig.broker.client.hlen(f"{retries.rig.broker.namespace}:broken.msgs") == 0
        assert orphans(retries.rig.broker, QUEUE) == 0


def test_those_that_are_taken_stay_until_they_are_said_to_be_published(retries: Retries) -> None:
    retries.fail("a", "b")
    found = retries.store.move_retries(10, hold=FAR)
    assert sorted(key for key, _ in found.taken) == ["key of a", "key of b"]
    assert {Message.decode(data).message_id for _, data in found.taken} == {"a", "b"}
    assert (found.moved, retries.back(), len(retries.names())) == (2, [], 2)
    # Nobody else gets them meanwhile.
    assert retries.store.move_retries(10, hold=FAR).taken == []
    assert [retries.store.drop_retry("key of a") for _ in range(2)] == [True, False]
    assert retries.names() == ["b"]


def test_those_that_were_taken_and_not_published_are_due_again(retries: Retries) -> None:
    retries.fail("a")
    assert len(retries.store.move_retries(10, hold=0).taken) == 1
    assert len(retries.store.move_retries(10, hold=0).taken) == 1


# -- by hand --------------------------------------------------------------------------------------------------


def test_one_that_is_hurried_goes_back_at_the_next_look_whatever_its_budget(retries: Retries) -> None:
    retries.fail(*(str(number) for number in range(3)), delay=FAR, budget=["b", 0.001, 1])
    assert retries.store.hurry_retry("key of 2")
    assert retries.store.hurry_retry("key of 1")
    assert retries.store.retry("key of 2").due == 0
    found = retries.store.move_retries(10)
    assert (found.moved, found.put_off) == (2, 0)
    assert sorted(retries.back()) == ["1", "2"]
    assert not retries.store.hurry_retry("key of 2")
    assert not retries.store.hurry_retry("nothing")


def test_one_that_is_cancelled_is_gone_and_the_run_of_its_tick_dropped(
    retries: Retries, rig: Rig, hands: Hands
) -> None:
    rig.put("job", 1000)
    message_id = hands.fire("job", 1000, run_before=NO_RUN)
    (message,) = hands.take()
    rig.store.settle(retries.ending(message, FAR))
    assert rig.store.drop_retry("key of " + message_id, cancelled=True)
    assert rig.store.count_retries() == 0
    assert rig.store.outstanding("job") == NO_RUN
    (run,) = [one.run for one in rig.store.history(None, 10) if one.fields["message_id"] == message_id]
    assert run is not None
    assert (run["state"], run["error"]) == ("dropped", "its retry was cancelled")
    assert not rig.store.drop_retry("key of " + message_id, cancelled=True)


def test_pages_of_what_waits_come_in_the_order_of_their_time(retries: Retries) -> None:
    for number in (3, 1, 2, 0, 4):
        retries.fail(str(number), delay=FAR + number * 1000)
    assert retries.names() == ["0", "1", "2", "3", "4"]
    assert [row.about["id"] for row in retries.store.retries(2, 2)] == ["2", "3"]
    assert retries.store.count_retries() == 5


# -- budgets --------------------------------------------------------------------------------------------------


def standing(retries: Retries, name: str = "b") -> tuple[int, int]:
    budget = retries.store.budgets()[name]
    return int(budget["taken"]), int(budget["put_off"])


def test_a_spent_budget_puts_off_and_drops_nothing(retries: Retries) -> None:
    names = [str(number) for number in range(5)]
    retries.fail(*names, budget=["b", 0.001, 2])
    found = retries.store.move_retries(10)
    assert (found.moved, found.put_off) == (2, 3)
    assert sorted([*retries.back(), *retries.names()]) == names
    assert standing(retries) == (2, 3)
    now = retries.store.now()
    # They ask again soon, each in its turn.
    dues = [row.due for row in retries.store.retries(10)]
    assert len(set(dues)) == 3
    assert all(now - 60_000 < due <= now + 1100 for due in dues)


def test_one_without_a_budget_passes_by_those_whose_budget_is_spent(retries: Retries) -> None:
    retries.fail("a", "b", "c", budget=["b", 0.001, 1])
    retries.fail("free")
    retries.store.move_retries(10)
    assert "free" in retries.back()


def test_successes_earn_retries_up_to_the_burst(retries: Retries) -> None:
    budget = RetryBudget("b", ratio=0.5, floor=0.001, burst=3)
    retries.fail(*"abcdef", budget=["b", 0.001, 3])
    assert retries.store.move_retries(10).moved == 3
    retries.store.earn([(budget, 4), (budget, 0)])
    assert retries.store.budgets()["b"]["tokens"] == pytest.approx(2, abs=0.2)
    retries.store.earn([(budget, 1000)])
    assert retries.store.budgets()["b"]["tokens"] == 3


def test_budgets_of_two_names_know_nothing_of_each_other(retries: Retries) -> None:
    retries.fail("a", "b", budget=["one", 0.001, 1])
    retries.fail("c", "d", budget=["two", 0.001, 1])
    assert retries.store.move_retries(10).moved == 2
    assert (standing(retries, "one"), standing(retries, "two")) == ((1, 1), (1, 1))


# -- deliveries -----------------------------------------------------------------------------------------------


def test_deliveries_are_counted_until_one_ends(retries: Retries) -> None:
    store = retries.store
    assert [store.count_delivery("x"), store.count_delivery("x"), store.count_delivery("y")] == [1, 2, 1]
    store.forget_delivery("x")
    store.forget_delivery("nothing")
    assert [store.count_delivery("x"), store.count_delivery("y")] == [1, 2]
