"""What is kept of a message that died, and the message that is made of it again: pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from dramatiq import ActorNotFound, Message
from dramatiq.middleware import SkipMessage
from hypothesis import given
from hypothesis import strategies as st

from dramatiq_distcron.api.letter_moves import _imported
from dramatiq_distcron.errors import ConfigurationError
from dramatiq_distcron.letters import (
    ABORTED,
    AGE_LIMIT,
    EXHAUSTED,
    HISTORY,
    ORIGIN,
    REASONS,
    REJECTED,
    UNKNOWN_ACTOR,
    about_death,
    adopted,
    guessed_reason,
    indexes_of,
    redriven,
)
from dramatiq_distcron.middleware.retries import HISTORY as RETRIES_HISTORY
from dramatiq_distcron.retrying import ABORTED as RETRYING_ABORTED
from dramatiq_distcron.retrying import EXHAUSTED as RETRYING_EXHAUSTED
from dramatiq_distcron.retrying import POISON, TOO_OLD

HALF = "half a character: \ud800"


def message(**fields: Any) -> Message[Any]:
    given: dict[str, Any] = {
        "queue_name": "default",
        "actor_name": "sync",
        "args": (1, "two"),
        "kwargs": {"three": 3},
        "options": {},
        "message_id": "m",
        "message_timestamp": 1000,
        **fields,
    }
    return Message(**given)


def told(error: BaseException | None = None, reason: str = EXHAUSTED, **fields: Any) -> dict[str, Any]:
    return about_death(message(**fields), error, reason, host="here", version="1")


def raised(make: Any) -> BaseException:
    try:
        make()
    except BaseException as error:
        return error
    raise AssertionError("it raises nothing")


def fail() -> None:
    raise KeyError("x")


def chained() -> None:
    try:
        fail()
    except KeyError as error:
        raise ValueError("y") from error


# -- what is told ---------------------------------------------------------------------------------------------


def test_a_letter_tells_what_died_of_what_and_where() -> None:
    about = told(raised(chained))
    wanted = {"message_id": "m", "actor": "sync", "queue": "default", "reason": EXHAUSTED, "error": "ValueError"}
    assert wanted.items() <= about.items()
    assert about["text"] == "y"
    assert about["errors"] == ["ValueError", "KeyError"]
    assert "KeyError: 'x'" in about["traceback"]
    assert (about["host"], about["version"], about["enqueued_at"]) == ("here", "1", 1000)
    assert about["message"]["args"] == [1, "two"]
    assert about["message"]["kwargs"] == {"three": 3}


def test_the_failures_before_and_the_tick_are_read_off_the_message() -> None:
    attempts = [{"at": number, "error": "KeyError", "text": "x"} for number in range(9)]
    options = {
        "retries": 3,
        HISTORY: {"attempt": 3, "first_failed_at": 5, "attempts": attempts},
        "distcron": {"schedule": "nightly", "fire_time": 7, "term": 1},
    }
    about = told(raised(fail), options=options)
    assert (about["attempts"], about["first_failed_at"], about["schedule"], about["fire_time"]) == (3, 5, "nightly", 7)
    assert about["history"] == attempts[-5:]


def test_the_run_that_an_abort_ended_is_counted_with_those_before() -> None:
    assert told(reason=ABORTED, options={"retries": 2})["attempts"] == 3
    assert told(reason=ABORTED, options={"retries": 2, HISTORY: {"attempt": 2}})["attempts"] == 3
    assert told(reason=AGE_LIMIT, options={"retries": 2})["attempts"] == 2


def test_the_last_run_counts_where_dramatiqs_own_retries_do_not_count_it() -> None:
    assert told(raised(fail), reason=EXHAUSTED, options={"retries": 2})["attempts"] == 3


def test_the_words_of_retries_are_those_of_letters() -> None:
    assert {RETRYING_ABORTED, RETRYING_EXHAUSTED, POISON, TOO_OLD, REJECTED, UNKNOWN_ACTOR, AGE_LIMIT} < set(REASONS)
    assert RETRIES_HISTORY == HISTORY


@pytest.mark.parametrize(
    ("error", "facts", "reason"),
    [
        (ActorNotFound("x"), {}, UNKNOWN_ACTOR),
        (SkipMessage("too old"), {"too_old": True}, AGE_LIMIT),
        (SkipMessage("no"), {}, REJECTED),
        (None, {}, REJECTED),
        (KeyError(), {"aborted": True}, ABORTED),
        (KeyError(), {}, EXHAUSTED),
    ],
)
def test_the_reason_is_guessed_where_other_middlewares_decided(
    error: BaseException | None, facts: dict[str, bool], reason: str
) -> None:
    assert guessed_reason(error, **{"too_old": False, "aborted": False, **facts}) == reason


def test_all_that_is_kept_has_a_size() -> None:
    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
        raise ValueError("z" * 1_000_000)

    huge: Any = {"args": ("a" * 1_000_000,), "kwargs": {"b": ["c"] * 1_000_000}, "actor_name": "d" * 1_000_000}
    options = {"distcron": {"schedule": "s" * 1_000_000}, HISTORY: {"attempts": [{"text": "t" * 1_000_000}] * 1000}}
    about = told(raised(lambda: deep(500)), options=options, **huge)
    assert len(json.dumps(about)) < 30_000
    assert about["traceback"].endswith("z\n")


def test_the_end_of_a_long_traceback_is_kept() -> None:
    def deep(levels: int) -> None:
        deep(levels - 1) if levels % 2 else other(levels - 1)

    def other(levels: int) -> None:
        if levels < 0:
            raise ValueError("the end")
        deep(levels)

    assert told(raised(lambda: deep(200)))["traceback"].endswith("ValueError: the end\n")


def test_an_error_that_cannot_be_told_is_told_as_far_as_possible() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    about = told(raised(lambda: (_ for _ in ()).throw(Mute())))
    assert (about["error"], about["text"]) == ("Mute", "<its text cannot be made>")


def test_a_circle_of_causes_ends() -> None:
    first, second = ValueError(), KeyError()
    first.__cause__, second.__cause__ = second, first
    assert told(first)["errors"] == ["ValueError", "KeyError"]


@pytest.mark.parametrize("where", ["actor_name", "queue_name", "message_id", "args", "option", "error"])
def test_half_a_character_does_no_harm(where: str) -> None:
    fields: dict[str, Any] = {where: (HALF,) if where == "args" else HALF} if where not in ("option", "error") else {}
    options = {"distcron": {"schedule": HALF}, HISTORY: {"attempts": [{"text": HALF}]}, ORIGIN: {"message_id": HALF}}
    about = told(ValueError(HALF) if where == "error" else None, options=options if where == "option" else {}, **fields)
    for field, value in indexes_of(about):
        assert value.encode(), field
    json.dumps(about)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["retries", "traceback", HISTORY, ORIGIN, "distcron", "eta", "redis_message_id", "other"])


@given(options=st.dictionaries(NAMES, ANYTHING), name=ANYTHING, args=st.lists(ANYTHING), kwargs=ANYTHING)
def test_whatever_somebody_else_wrote_into_a_message_makes_a_letter(
    options: Any, name: Any, args: Any, kwargs: Any
) -> None:
    """Foreign messages are kept as they are."""
    foreign = message(options=options, actor_name=name, queue_name=name, message_id=name, args=args, kwargs=kwargs)
    about = about_death(foreign, None, REJECTED, host="", version="")
    assert json.loads(json.dumps(about)) is not None
    assert len(json.dumps(about)) < 60_000
    assert all(value.encode() for _, value in indexes_of(about))
    adopted(foreign)


# -- what is shown --------------------------------------------------------------------------------------------


def shown(redact: Any, **fields: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = about_death(message(**fields), None, REJECTED, host="", version="", redact=redact)[
        "message"
    ]
    return found


def hide(actor: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    return ["…" for _ in args], dict.fromkeys(kwargs, "…")


def test_arguments_can_be_hidden() -> None:
    assert shown(hide)["args"] == ["…", "…"]
    assert shown(hide)["kwargs"] == {"three": "…"}


@pytest.mark.parametrize(
    "redact", [lambda *given: 1 / 0, lambda *given: None, lambda *given: (None, None), lambda: ([], {})]
)
def test_nothing_is_shown_if_hiding_fails(redact: Any) -> None:
    assert (shown(redact)["args"], shown(redact)["kwargs"]) == (["<redact= failed>"], {})


def test_hiding_in_place_does_not_change_the_message() -> None:
    def in_place(actor: str, args: Any, kwargs: Any) -> Any:
        args[0]["password"] = kwargs["token"] = "…"
        return args, kwargs

    given = message(args=({"password": "secret"},), kwargs={"token": "secret"})
    about = about_death(given, None, REJECTED, host="", version="", redact=in_place)
    assert "secret" not in json.dumps(about)
    assert (given.args, given.kwargs) == (({"password": "secret"},), {"token": "secret"})


def test_what_dramatiq_kept_is_hidden_too() -> None:
    assert adopted(message(), hide)["message"]["args"] == ["…", "…"]


def test_an_error_that_is_empty_is_a_cause_as_any_other() -> None:
    class Empty(KeyError):
        def __len__(self) -> int:
            return 0

    error = ValueError("x")
    error.__cause__ = Empty()
    assert told(error)["errors"] == ["ValueError", "Empty"]


def test_arguments_that_are_no_json_are_shown_as_text() -> None:
    assert shown(None, args=(float("nan"),))["args"] == "(nan,)…"
    assert "object" in shown(None, args=(object(),))["args"]
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert isinstance(shown(None, args=(nested,))["args"], str)


# -- fingerprints ---------------------------------------------------------------------------------------------


def test_deaths_of_one_kind_have_one_fingerprint_and_others_another() -> None:
    same = {told(raised(fail), args=(number,))["fingerprint"] for number in range(3)}
    assert len(same) == 1
    other = [told(raised(chained)), told(raised(fail), actor_name="mail"), told(None), told(ValueError("never raised"))]
    assert len(same | {one["fingerprint"] for one in other}) == 5


def test_a_fingerprint_does_not_depend_on_lines_or_words() -> None:
    def failing(line: int) -> BaseException:
        code = compile("\n" * line + "def fail():\n    raise KeyError(line)\n", "/srv/app/tasks.py", "exec")
        names: dict[str, Any] = {"line": line}
        exec(code, names)
        return raised(names["fail"])

    assert len({told(failing(line))["fingerprint"] for line in (0, 7)}) == 1


# -- as a new message -----------------------------------------------------------------------------------------


def test_a_message_that_starts_again_has_no_past_but_its_origin() -> None:
    options = {
        "retries": 20,
        "traceback": "…",
        "requeue_timestamp": 1,
        "eta": 2,
        "redis_message_id": "r",
        HISTORY: {"attempts": []},
        "max_age": 5,
        "distcron": {"schedule": "s"},
    }
    again = redriven(message(options=options, queue_name="default.DQ"), 9000)
    origin = {"message_id": "m", "before": "m", "generation": 1}
    assert again.options == {"max_age": 5, "distcron": {"schedule": "s"}, ORIGIN: origin}
    assert (again.message_timestamp, again.queue_name, again.args, again.kwargs) == (
        9000,
        "default",
        (1, "two"),
        {"three": 3},
    )
    assert again.message_id != "m"


def test_each_generation_links_to_the_first_and_to_the_one_before() -> None:
    first = redriven(message(), 1)
    second = redriven(first, 2)
    assert second.options[ORIGIN] == {"message_id": "m", "before": first.message_id, "generation": 2}
    assert about_death(second, None, REJECTED, host="", version="")["origin"] == second.options[ORIGIN]


def test_what_dramatiq_kept_tells_its_last_error() -> None:
    trace = "Traceback (most recent call last):\n  File ...\nrequests.exceptions.Timeout: no answer: none\n"
    about = adopted(message(options={"retries": 3, "traceback": trace}))
    assert (about["reason"], about["error"], about["errors"]) == (EXHAUSTED, "Timeout", ["Timeout"])
    assert (about["text"], about["attempts"]) == ("no answer: none", 4)
    assert about["traceback"] == trace
    assert (adopted(message())["reason"], adopted(message())["attempts"]) == (REJECTED, 0)


# -- from lines -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "1",
        "{}",
        '{"id": 1, "dead_at": 1, "about": {}, "data": ""}',
        '{"id": "\\ud800", "dead_at": 1, "about": {}, "data": ""}',
        '{"id": "", "dead_at": 1, "about": {}, "data": ""}',
        '{"id": "x", "dead_at": -1, "about": {}, "data": ""}',
        '{"id": "x", "dead_at": 1e400, "about": {}, "data": ""}',
        '{"id": "x", "dead_at": 9000000000000000, "about": {}, "data": ""}',
        '{"id": "x", "dead_at": "1", "about": {}, "data": ""}',
        '{"id": "x", "dead_at": 1, "about": 5, "data": ""}',
        '{"id": "x", "dead_at": 1, "about": {}, "data": "%"}',
        '{"id": "x", "dead_at": 1, "about": {}}',
        "[" * 100_000,
    ],
)
def test_a_line_that_is_none_of_an_export_is_refused(line: str) -> None:
    with pytest.raises(ConfigurationError, match="Line 7 is none that export printed"):
        _imported(7, line)
