"""The checker of the soak of dead letters finds what it is there for."""

from __future__ import annotations

import pytest

from tests.letter_soak.checker import check, read_ledger

#: Message 1 dies twice, in one run each time; message 2 dies once, after two runs.
WANTED = {1: (2, 1), 2: (1, 2)}
GOOD = """\
ran 1 0 0 a
told a
ran 1 1 0 b
ran 1 2 0 c
done 1 2 0 c
ran 2 0 0 d
ran 2 0 1 e
ran 2 1 0 f
done 2 1 0 f
"""


def found(ledger: str, rest: dict[str, int] | None = None) -> list[str]:
    return list(check(WANTED, read_ledger(ledger), rest or {}))


def test_a_good_run_is_good() -> None:
    assert found(GOOD) == []
    # A worker was killed in a run, and another one ran the same delivery again.
    assert found(GOOD + "ran 1 1 0 b\ndone 1 2 0 c\n") == []


@pytest.mark.parametrize(
    ("ledger", "what"),
    [
        (GOOD + "ran 1 1 0 x\n", "doubled: try 0 of generation 1 of message 1"),
        (GOOD.replace("ran 1 2 0 c\ndone 1 2 0 c\n", ""), "lost: message 1 has no success in generation 2"),
        (GOOD.replace("ran 2 0 1 e\n", ""), "lost or too much: message 2 ran as"),
        (GOOD + "ran 1 3 0 x\n", "lost or too much: message 1 ran as"),
        (GOOD + "done 2 0 0 d\n", "lost: message 2 has no success in generation 1"),
        (GOOD + "ran 9 0 0 x\n", "unknown: message 9"),
    ],
)
def test_what_is_lost_or_doubled_is_found(ledger: str, what: str) -> None:
    assert any(one.startswith(what) for one in found(ledger))


def test_what_is_left_over_is_found() -> None:
    assert found(GOOD, {"dead": 3}) == ["left over: 3 in dead"]
