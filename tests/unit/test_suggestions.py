"""Did you mean …?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramatiq_distcron.errors import ConfigurationError
from dramatiq_distcron.suggestions import did_you_mean, refuse_unknown


@pytest.mark.parametrize(
    ("word", "meant"),
    [("catchup", "catch_up"), ("lease_tll", "lease_ttl"), ("nmae", "name"), ("misfire_grace", "misfire_grace_time")],
)
def test_the_closest_word_is_suggested(word: str, meant: str) -> None:
    known = ["catch_up", "lease_ttl", "name", "misfire_grace_time", "max_catch_up"]
    assert did_you_mean(word, known) == f"Did you mean {meant!r}?"


def test_without_a_close_word_all_are_listed_in_order() -> None:
    assert did_you_mean("xyz", ["b", "c", "a"]) == "Known: a, b, c."


def test_of_very_many_words_the_first_ones_are_listed() -> None:
    told = did_you_mean("xyz", [f"{number:04}" for number in range(5000)])
    assert told.startswith("Known: 0000, 0001, ")
    assert told.endswith("0029 and 4970 more.")


def test_where_nothing_is_known_it_says_so() -> None:
    assert did_you_mean("x", []) == "None is known."


@given(st.text(), st.sets(st.text(min_size=1)))
def test_any_word_gets_a_sentence(word: str, known: set[str]) -> None:
    assert did_you_mean(word, known).endswith((".", "?"))


@given(st.sets(st.text(min_size=1), min_size=1))
def test_a_known_word_is_its_own_suggestion(known: set[str]) -> None:
    word = sorted(known)[0]
    assert did_you_mean(word, known) == f"Did you mean {word!r}?"


def test_an_unknown_option_is_refused_with_place_and_suggestion() -> None:
    with pytest.raises(ConfigurationError, match=r"cron\(\) has no option 'nam'. Did you mean 'name'\?"):
        refuse_unknown({"nam": None}, ["name", "args"], "cron()")


def test_no_unknown_option_is_fine() -> None:
    refuse_unknown({}, [], "cron()")
