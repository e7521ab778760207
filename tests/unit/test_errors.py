"""What somebody gave us, as it is shown in a message."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from dramatiq_distcron import ConfigurationError, cron, every, exponential
from dramatiq_distcron.errors import AccessDenied, quoted
from dramatiq_distcron.store.redis import mapped_errors
from tests.support import Shy, nested


def test_a_value_is_shown_as_it_is_written() -> None:
    assert [quoted("a"), quoted(5), quoted(None)] == ["'a'", "5", "None"]


def test_of_a_long_value_the_beginning_is_shown() -> None:
    assert quoted("x" * 5000) == "'" + "x" * 99 + "..."


def test_of_a_value_that_cannot_be_shown_the_type_is() -> None:
    assert quoted(Shy()) == "an object of type Shy"
    # Some interpreters can show it.
    assert quoted(nested(100_000)) in ("an object of type list", "[" * 100 + "...")


@pytest.mark.parametrize("value", [Shy(), nested(100_000), "x" * 10**6], ids=["shy", "nested", "long"])
@pytest.mark.parametrize(
    "refuses",
    [
        lambda value: cron(value),
        lambda value: every(value),
        lambda value: exponential(value),
        lambda value: cron("0 3 * * *", name=value),
        lambda value: cron("0 3 * * *", overlap=value),
        lambda value: cron("0 3 * * *", start=value),
    ],
    ids=["cron", "every", "exponential", "name", "overlap", "start"],
)
def test_what_is_refused_is_refused_in_a_few_words_whatever_it_is(refuses: Any, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        refuses(value)
    assert len(str(caught.value)) < 500


def test_a_server_that_reads_no_long_command_of_those_it_does_not_know_lets_nobody_in() -> None:
    with pytest.raises(AccessDenied, match="does not let us in"), mapped_errors("here"):
        raise redis.ResponseError("Protocol error: unauthenticated multibulk length")
