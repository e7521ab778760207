"""Dead letters: kept with the end of the delivery or not at all, found by what they are, sent back once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from dramatiq import Message
from dramatiq.brokers.stub import StubBroker

from dramatiq_distcron.places import Places
from dramatiq_distcron.publishing import waiting_form
from dramatiq_distcron.store.base import NEVER, Ending, Graveyard, Letter, Query, Redrive, Waiting
from dramatiq_distcron.store.memory import MemoryStore
from tests.conformance.hands import QUEUE, Hands
from tests.support import Rig, orphans, queued

#: Names that a key, a pattern or a line could take for something else.
ODD = ["a:b", "a:b:c", "::", "*", "[a]", "with space", "line\nbreak", "ü", "☃", "'", '"', "%s", "\x00", "{x}"]


class Letters:
    """Short ways to let messages die."""

    def __init__(self, rig: Rig, hands: Hands) -> None:
        self.rig = rig
        self.hands = hands
        self.store = rig.store

    def letter(self, message: Message[Any], id: str | None = None, **indexed: str) -> Letter:
        indexed = {"actor": "job", "queue": QUEUE, **indexed}
        about = {"message_id": message.message_id, **indexed}
        return Letter(id or f"letter of {message.message_id}", about, message.encode(), list(indexed.items()))

    def ending(self, message: Message[Any], **indexed: str) -> Ending:
        return self.hands.ending(message, "dead", letter=self.letter(message, **indexed))

    def die(self, *names: str, **indexed: str) -> None:
        for message in self.hands.given(*names):
            assert self.store.settle(self.ending(message, **indexed)) == "acked"

    def put(self, name: str, at: int, **indexed: str) -> None:
        """One from elsewhere, which died at some time."""
        message: Message[Any] = Message(QUEUE, "job", (), {}, {}, name, 1)
        assert self.store.put_letters([(self.letter(message, id=name, **indexed), at)]) == 1

    def ids(self, *indexes: tuple[str, str], limit: int = 1000, **query: Any) -> list[str]:
        return [row.id for row in self.store.letters(Query(indexes, **query), limit)]

    def groups(self) -> dict[tuple[str, str], int]:
        return {(one.field, one.value): one.count for one in self.store.groups()}

    def again(self, id: str, queue: str = QUEUE, message_id: str = "again", run: str = "") -> Redrive:
        message: Message[Any] = Message(queue, "job", (), {}, {}, message_id, 1)
        data, calls = waiting_form(self.rig.publisher.capture_plainly(message))
        return Redrive(id, Waiting(message_id, 0, {}, data, calls), run)

    def back(self) -> list[str]:
        return [message.message_id for message in queued(self.rig.broker, QUEUE)]

    def leftovers(self) -> list[str]:
        """Keys of dead letters that still exist."""
        if isinstance(self.store, MemoryStore):
            return list(self.store._state.dead)
        prefix = self.store.keys.dead
        return [key.decode() for key in self.rig.broker.client.scan_iter(f"{prefix}*")]


@pytest.fixture
def letters(rig: Rig, hands: Hands) -> Letters:
    return Letters(rig, hands)


# -- kept -----------------------------------------------------------------------------------------------------


def test_a_letter_is_kept_with_the_ack(letters: Letters, hands: Hands) -> None:
    (message,) = letters.hands.given("m")
    before = letters.store.now()
    assert letters.store.settle(letters.ending(message, error="KeyError")) == "acked"
    assert not hands.is_there(message)
    row = letters.store.letter("letter of m")
    assert (row.about["message_id"], row.about["error"], row.data) == ("m", "KeyError", message.encode())
    assert before <= row.dead_at <= letters.store.now()
    assert letters.store.letters(Query(), 10) == [row]


def test_a_script_that_is_sent_twice_keeps_one_letter(letters: Letters) -> None:
    (message,) = letters.hands.given("m")
    ending = letters.ending(message)
    assert [letters.store.settle(ending) for _ in range(2)] == ["acked", "lost"]
    assert letters.ids() == ["letter of m"]
    # Also when it was sent back meanwhile.
    assert letters.store.redrive([letters.again("letter of m")]) == ["ok"]
    assert letters.store.settle(ending) == "lost"
    assert (letters.ids(), letters.back()) == ([], ["again"])


def test_a_worker_that_lost_its_message_keeps_no_letter(letters: Letters, hands: Hands) -> None:
    """It was taken for dead, and another one has the message."""
    (message,) = letters.hands.given("m")
    assert letters.store.settle(hands.ending(message, "succeeded")) == "acked"
    assert letters.store.settle(letters.ending(message, error="KeyError")) == "lost"
    assert (letters.ids(), letters.groups(), letters.leftovers()) == ([], {}, [])


def test_a_lost_ack_leaves_the_letter_that_was_there_as_it_was(letters: Letters) -> None:
    (message,) = letters.hands.given("m")
    letters.store.settle(letters.ending(message, error="First"))
    before, groups = letters.store.letter("letter of m"), letters.groups()
    assert letters.store.settle(letters.ending(message, error="Second")) == "lost"
    assert (letters.store.letter("letter of m"), letters.groups()) == (before, groups)


def test_whoever_is_to_be_told_is_told_in_the_same_step(letters: Letters, hands: Hands) -> None:
    (message,) = letters.hands.given("m")
    told = letters.rig.publisher.capture_plainly(Message(QUEUE, "told", (), {}, {}, "t", 1))
    ending = hands.ending(message, "dead", letter=letters.letter(message), calls=told.calls)
    assert [letters.store.settle(ending) for _ in range(2)] == ["acked", "lost"]
    assert (letters.ids(), letters.back()) == (["letter of m"], ["t"])


def test_one_who_cannot_be_told_undoes_the_whole_step(
    letters: Letters, hands: Hands, break_queue: Callable[[], None]
) -> None:
    if isinstance(letters.store, MemoryStore):
        # There the ack is the broker's own, after the step.
        hands.ack = lambda message: ()  # type: ignore[method-assign]
    (message,) = letters.hands.given("m")
    told = letters.rig.publisher.capture_plainly(Message("broken", "told", (), {}, {}, "t", 1))
    break_queue()
    ending = hands.ending(message, "dead", letter=letters.letter(message), calls=told.calls)
    assert letters.store.settle(ending).startswith("failed")
    assert (letters.ids(), letters.groups(), letters.leftovers()) == ([], {}, [])
    assert hands.is_there(message)


def test_one_to_be_told_by_others_waits_from_the_same_step_on(letters: Letters, hands: Hands) -> None:
    """Where the broker is not on our Redis."""
    (message,) = letters.hands.given("m")
    ending = hands.ending(message, "dead", letter=letters.letter(message), waiting=Waiting("t", 0, {}, b"data"))
    assert letters.store.settle(ending) == "acked"
    assert letters.store.move_retries(10, hold=1000).taken == [("t", b"data")]


def test_a_letter_that_takes_the_place_of_another_is_not_found_by_what_that_one_was(letters: Letters) -> None:
    """A redelivery dies again, of something else, where ids are deterministic."""
    for error in ("First", "Second"):
        (message,) = letters.hands.given("m")
        letters.store.settle(letters.ending(message, error=error))
    assert (letters.ids(("error", "First")), letters.ids(("error", "Second"))) == ([], ["letter of m"])
    assert letters.groups() == {("actor", "job"): 1, ("queue", QUEUE): 1, ("error", "Second"): 1}
    assert letters.store.drop_letters(["letter of m"]) == 1
    assert letters.leftovers() == []


# -- found ----------------------------------------------------------------------------------------------------


def test_the_newest_come_first_unless_asked_otherwise(letters: Letters) -> None:
    for name, at in [("b", 2000), ("a", 1000), ("c", 3000)]:
        letters.put(name, at)
    assert letters.ids() == ["c", "b", "a"]
    assert letters.ids(oldest_first=True) == ["a", "b", "c"]
    assert letters.ids(limit=2) == ["c", "b"]


def test_a_time_range_includes_its_ends(letters: Letters) -> None:
    for number in range(1, 6):
        letters.put(f"m{number}", number * 1000)
    assert letters.ids(since=2000, until=4000) == ["m4", "m3", "m2"]
    assert letters.ids(since=4001) == ["m5"]
    assert letters.store.count_letters(Query(since=2000, until=4000)) == 3


def test_a_letter_fits_when_it_has_every_value_that_is_asked_for(letters: Letters) -> None:
    letters.put("a", 1000, actor="sync", error="KeyError")
    letters.put("b", 2000, actor="sync", error="TypeError")
    letters.put("c", 3000, actor="mail", error="KeyError")
    assert letters.ids(("actor", "sync")) == ["b", "a"]
    assert letters.ids(("actor", "sync"), ("error", "KeyError")) == ["a"]
    assert letters.ids(("actor", "mail"), ("error", "TypeError")) == []
    assert letters.ids(("actor", "nobody")) == []
    assert letters.store.count_letters(Query([("error", "KeyError")])) == 2


@pytest.mark.parametrize("oldest_first", [False, True])
def test_pages_go_through_all_letters_once_also_through_many_of_one_millisecond(
    letters: Letters, oldest_first: bool
) -> None:
    expected = [(at, f"m{number}") for number, at in enumerate([1000] * 23 + [2000] + [3000] * 11)]
    for at, name in expected:
        letters.put(name, at)
    found: list[tuple[int, str]] = []
    after = None
    while rows := letters.store.letters(Query(oldest_first=oldest_first), 4, after):
        found += [(row.dead_at, row.id) for row in rows]
        after = found[-1]
    assert found == sorted(expected, reverse=not oldest_first)


def test_a_page_goes_on_where_it_was_though_letters_come_and_go(letters: Letters) -> None:
    for number in range(6):
        letters.put(f"m{number}", number)
    first = letters.store.letters(Query(), 2)
    letters.put("new", 10)
    letters.store.drop_letters([first[-1].id, "m2"])
    after = (first[-1].dead_at, first[-1].id)
    assert [row.id for row in letters.store.letters(Query(), 10, after)] == ["m3", "m1", "m0"]


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_found_and_leave_nothing_behind(letters: Letters, name: str) -> None:
    letters.put(name, 1000, actor=name, error="KeyError")
    letters.put("other", 1000, actor="other")
    assert letters.ids(("actor", name)) == [name]
    assert letters.groups()["actor", name] == 1
    assert name in letters.store.dead_values("actor")
    assert letters.store.letter(name).about["actor"] == name
    assert letters.store.drop_letters([name]) == 1
    assert letters.groups() == {("actor", "other"): 1, ("queue", QUEUE): 1}


def test_groups_tell_how_many_and_since_when(letters: Letters) -> None:
    letters.put("a", 1000, error="KeyError")
    letters.put("b", 3000, error="KeyError")
    letters.put("c", 2000, error="TypeError")
    found = [(one.value, one.count, one.first, one.last) for one in letters.store.groups() if one.field == "error"]
    assert found == [("KeyError", 2, 1000, 3000), ("TypeError", 1, 2000, 2000)]
    assert letters.store.dead_values("error") == ["KeyError", "TypeError"]


def test_letters_without_some_values_are_counted(letters: Letters) -> None:
    for number, actor in enumerate(["bill", "bill", "mail", "sync", "a:b"]):
        letters.put(f"m{number}", 1000, actor=actor)
    count = letters.store.count_letters_without
    assert (count("actor", []), count("actor", ["bill"]), count("actor", ["bill", "a:b", "nobody"])) == (5, 3, 2)


def test_many_groups_are_told_of(letters: Letters) -> None:
    for number in range(1203):
        letters.put(f"m{number}", number, schedule=f"tenant:{number}")
    found = [one for one in letters.store.groups() if one.field == "schedule"]
    assert len(found) == 1203
    assert {(one.value, one.first) for one in found} == {(f"tenant:{number}", number) for number in range(1203)}


def test_what_is_not_there_is_not_found(letters: Letters) -> None:
    assert letters.store.letter("nobody") is None
    assert (letters.ids(), letters.groups(), letters.store.dead_values("error")) == ([], {}, [])
    assert letters.store.count_letters(Query()) == 0


def test_a_page_after_a_letter_keeps_to_its_times(letters: Letters) -> None:
    for number in range(6):
        letters.put(f"m{number}", 1000 * number + 1000)
    for oldest_first, beyond in ((False, 9000), (True, 0)):
        query = Query((), 2000, 4000, oldest_first)
        found = [row.id for row in letters.store.letters(query, 10, (beyond, "x"))]
        assert sorted(found) == ["m1", "m2", "m3"]


def test_long_letters_are_read_a_few_at_a_time(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer may be so long that the server, or whoever waits for it, is held up."""
    monkeypatch.setattr("dramatiq_distcron.batching.BATCH_BYTES", 1000)
    for number in range(6):
        message: Message[Any] = Message(QUEUE, "job", ("x" * 900,), {}, {}, f"m{number}", 1)
        letters.store.put_letters([(letters.letter(message, id=f"m{number}"), 1000 + number)])
    asked: list[int] = []
    if not isinstance(letters.store, MemoryStore):
        client: Any = letters.store._client
        hmget = client.hmget
        monkeypatch.setattr(client, "hmget", lambda key, ids: asked.append(len(ids)) or hmget(key, ids))
    assert len(letters.ids()) == 6
    assert all(count == 1 for count in asked)


def test_many_letters_of_one_moment_are_all_found_once(letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dramatiq_distcron.store.redis.letters.CHUNK", 4)
    for number in range(30):
        letters.put(f"m{number:02}", 1000 if number < 25 else 2000, error="KeyError")
    for query in (Query(), Query([("actor", "job"), ("error", "KeyError")]), Query(oldest_first=True)):
        found: list[str] = []
        after = None
        while rows := letters.store.letters(query, 7, after):
            found += [row.id for row in rows]
            after = (rows[-1].dead_at, rows[-1].id)
        assert len(found) == 30
        assert sorted(found) == [f"m{number:02}" for number in range(30)]


# -- dropped and put ------------------------------------------------------------------------------------------


def test_what_is_dropped_leaves_no_trace(letters: Letters) -> None:
    letters.die("a", "b", error="KeyError")
    assert letters.store.drop_letters(["letter of a", "nobody", "letter of b", "letter of a"]) == 2
    assert (letters.ids(), letters.groups(), letters.leftovers()) == ([], {}, [])


def test_a_letter_that_is_there_already_is_left_as_it_is(letters: Letters) -> None:
    letters.put("m", 1000, error="First")
    before = letters.store.letter("m")
    message: Message[Any] = Message(QUEUE, "job", (), {}, {}, "m", 1)
    assert letters.store.put_letters([(letters.letter(message, id="m", error="Second"), 2000)]) == 0
    assert letters.store.letter("m") == before
    assert letters.store.dead_values("error") == ["First"]


def test_of_letters_of_one_id_that_come_together_the_first_is_kept_and_counted(letters: Letters) -> None:
    message: Message[Any] = Message(QUEUE, "job", (), {}, {}, "m", 1)
    both = [(letters.letter(message, id="m", error=error), 1000) for error in ("First", "Second")]
    assert letters.store.put_letters(both) == 1
    assert letters.store.dead_values("error") == ["First"]


@pytest.mark.parametrize("data", [b"", b"\n", b"\x00\xff\xfe\n\n", b"\x80\x04}.", b"x" * 300_000])
def test_any_bytes_come_back_as_they_were(letters: Letters, data: bytes) -> None:
    letters.store.put_letters([(Letter("m", {"text": "two\nlines"}, data, [("actor", "job")]), NEVER - 1)])
    row = letters.store.letter("m")
    assert (row.data, row.about["text"], row.dead_at) == (data, "two\nlines", NEVER - 1)


# -- sent back ------------------------------------------------------------------------------------------------


def test_a_letter_goes_back_once(letters: Letters) -> None:
    letters.die("a", "b")
    script = [letters.again(f"letter of {name}", message_id=f"{name} again") for name in ("a", "b")]
    assert letters.store.redrive(script) == ["ok", "ok"]
    # Sent twice, or by two processes.
    assert letters.store.redrive(script) == ["gone", "gone"]
    assert letters.back() == ["a again", "b again"]
    assert (letters.ids(), letters.leftovers()) == ([], [])


def test_a_letter_whose_queue_is_broken_stays_as_it_was_and_the_others_go(
    letters: Letters, break_queue: Callable[[], None]
) -> None:
    letters.die("a", "b", "c", error="KeyError")
    rows, groups = letters.store.letters(Query([("error", "KeyError")]), 10), letters.groups()
    script = [letters.again("letter of a"), letters.again("letter of b", "broken"), letters.again("letter of c")]
    break_queue()
    answers = letters.store.redrive(script)
    assert (answers[0], answers[2]) == ("ok", "ok")
    assert answers[1].startswith("failed")
    assert letters.store.letters(Query([("error", "KeyError")]), 10) == [one for one in rows if one.id == "letter of b"]
    assert letters.groups() == dict.fromkeys(groups, 1)
    if not isinstance(letters.rig.broker, StubBroker):
        assert orphans(letters.rig.broker, QUEUE) == 0
        assert letters.rig.broker.client.hlen(f"{letters.rig.broker.namespace}:broken.msgs") == 0


def test_a_letter_of_another_broker_goes_among_those_that_wait_for_a_mover(letters: Letters) -> None:
    letters.die("m")
    about = {"id": "again", "actor": "job", "queue": QUEUE}
    redrive = Redrive("letter of m", Waiting("again", 0, about, b"\x00data\n"))
    assert [letters.store.redrive([redrive]) for _ in range(2)] == [["ok"], ["gone"]]
    (row,) = letters.store.retries(10)
    assert (row.key, row.about["actor"], row.data) == ("again", "job", b"\x00data\n")
    assert letters.store.move_retries(10, hold=1000).taken == [("again", b"\x00data\n")]
    assert letters.ids() == []


def test_the_run_of_a_ticks_message_begins_with_the_step(letters: Letters) -> None:
    letters.die("m")
    run = '{"schedule": "s", "place": "", "rid": "r", "fire_time": "1000", "state": "queued", "at": "5"}'
    assert letters.store.redrive([letters.again("letter of m", run=run)]) == ["ok"]
    started = letters.store.start_run("again", "worker")
    assert (started.before, started.enqueued_at) == ("queued", 5)


def test_a_letter_that_is_gone_begins_no_run(letters: Letters) -> None:
    assert letters.store.redrive([letters.again("nobody", run='{"state": "queued", "at": "5"}')]) == ["gone"]
    assert letters.store.start_run("again", "worker") is None
    assert letters.back() == []


def test_a_letter_whose_run_must_be_alone_goes_back_if_it_is(letters: Letters, hands: Hands) -> None:
    letters.die("a", "b")
    run = json.dumps(
        {"schedule": "nightly", "queue": QUEUE, "place": "", "rid": "", "fire_time": "1", "state": "queued"}
    )
    first = letters.again("letter of a", run=run)._replace(alone="nightly")
    second = letters.again("letter of b", message_id="later", run=run)._replace(alone="nightly")
    assert letters.store.redrive([first, second]) == ["ok", "outstanding again"]
    assert (letters.ids(), letters.back()) == (["letter of b"], ["again"])
    (message,) = hands.take()
    assert letters.store.settle(hands.ending(message, "succeeded")) == "settled"
    assert letters.store.redrive([second]) == ["ok"]


@pytest.mark.parametrize("alone", ["job", ""])
def test_the_history_tells_how_the_newest_run_of_a_tick_stands(
    letters: Letters, hands: Hands, rig: Rig, alone: str
) -> None:
    def told() -> list[tuple[str, str]]:
        runs = [one.run for one in letters.store.history("job", 10)]
        return [(run.get("run", "its own"), run["state"]) for run in runs if run]

    rig.put("job")
    first = hands.fire("job", run_before="")
    assert told() == [("its own", "queued")]
    (message,) = hands.take()
    letters.store.settle(letters.ending(message))
    assert told() == [(first, "dead")]
    begun = {"place": hands.place(), "rid": "r", "schedule": "job", "fire_time": "1000", "state": "queued", "at": "5"}
    again = letters.again(letters.ids()[0], run=json.dumps({**begun, "first": first}))
    assert letters.store.redrive([again._replace(alone=alone)]) == ["ok"]
    # Where nothing is held up, nobody looks for it.
    assert told() == [("again", "queued") if alone else (first, "dead")]
    letters.store.start_run("again", "worker")
    assert told() == [("again", "running") if alone else (first, "dead")]
    (message,) = hands.take()
    assert letters.store.settle(hands.ending(message, "succeeded")) == "settled"
    assert told() == [("again", "succeeded")]


# -- Dramatiq's own -------------------------------------------------------------------------------------------


def buried(rig: Rig, names: Iterable[str]) -> Graveyard:
    """Messages that Dramatiq moved to its own dead ones."""
    for name in names:
        rig.broker.enqueue(Message(QUEUE, "job", (), {}, {}, name, 1))
    for message in rig.broker.do_fetch(QUEUE, 1000):
        rig.broker.do_nack(QUEUE, Message.decode(message).options["redis_message_id"])
    keys = Places(rig.store, rig.publisher).graveyard(QUEUE)
    assert keys is not None
    return keys


@pytest.fixture
def on_redis(rig: Rig) -> Rig:
    if isinstance(rig.broker, StubBroker):
        assert Places(rig.store, rig.publisher).graveyard(QUEUE) is None
    return rig


def test_dramatiqs_dead_messages_are_taken_over_once(letters: Letters, on_redis: Rig) -> None:
    if isinstance(on_redis.broker, StubBroker):
        assert letters.store.adopt(Graveyard("", ""), []) == 0
        return
    keys = buried(on_redis, ["a", "b"])
    assert keys == (f"{on_redis.broker.namespace}:{QUEUE}.XQ", f"{on_redis.broker.namespace}:{QUEUE}.XQ.msgs")
    rows = letters.store.graveyard(keys, 0, 10)
    found = [(letters.letter(Message.decode(data), id=id), at) for id, at, data in rows]
    assert [letters.store.adopt(keys, found) for _ in range(2)] == [2, 0]
    assert letters.store.graveyard(keys, 0, 10) == []
    assert {row.about["message_id"] for row in letters.store.letters(Query(), 10)} == {"a", "b"}
    assert [row.dead_at for row in letters.store.letters(Query(oldest_first=True), 10)] == sorted(
        at for _, at, _ in rows
    )
    assert on_redis.broker.client.exists(*keys) == 0


def test_dramatiqs_dead_messages_are_read_with_their_ids_though_somebody_takes_them_over_meanwhile(
    letters: Letters, on_redis: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose message is gone would be told of as one that cannot be decoded, and so many others passed over."""
    if isinstance(on_redis.broker, StubBroker):
        return
    keys = buried(on_redis, ["a", "b"])
    client: Any = letters.store._client
    execute = client.execute_command

    def taken_after(command: Any, *args: Any, **options: Any) -> Any:
        reply = execute(command, *args, **options)
        if command != "SCRIPT LOAD":
            on_redis.broker.client.delete(*keys)
        return reply

    monkeypatch.setattr(client, "execute_command", taken_after)
    rows = letters.store.graveyard(keys, 0, 10)
    assert sorted(Message.decode(data).message_id for _, _, data in rows) == ["a", "b"]
