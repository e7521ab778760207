"""The checker of the retry soak finds every kind of what must not be."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.retry_soak.checker import Rest, check, read_ledger
from tests.retry_soak.worker import TRIES

#: One that succeeds at its second try, and one that never does.
WANTED = {1: 1, 2: TRIES}
GOOD = ["ran 1 0 a", "ran 1 1 b", "done 1 1 b", *(f"ran 2 {n} c{n}" for n in range(TRIES)), "told 2 4 t"]


def kinds(lines: list[str], dead: Mapping[int, int] | None = None, others: Mapping[str, int] | None = None) -> set[str]:
    rest = Rest({2: 1} if dead is None else dead, others or {})
    return {one.partition(":")[0] for one in check(WANTED, read_ledger("\n".join(lines)), rest)}


def test_a_run_as_it_must_be_has_no_violation() -> None:
    assert kinds(GOOD) == set()


def test_a_redelivery_of_the_same_try_is_no_violation() -> None:
    assert kinds([*GOOD, "ran 1 1 b", "done 1 1 b", "ran 2 0 c0", "told 2 4 t"]) == set()


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        (["ran 1 1 other"], "doubled"),
        (["ran 1 2 d"], "lost or doubled"),
        (["ran 2 4 d"], "lost or doubled"),
        (["told 2 4 other"], "wrong end"),
        (["told 1 1 t"], "wrong end"),
        (["done 2 3 c3"], "lost"),
        (["done 9 0 z"], "unknown"),
    ],
)
def test_what_there_is_too_much_is_found(more: list[str], kind: str) -> None:
    assert kinds([*GOOD, *more]) == {kind}


@pytest.mark.parametrize(
    ("missing", "kind"), [("ran 1 1 b", "lost or doubled"), ("done 1 1 b", "lost"), ("told 2 4 t", "wrong end")]
)
def test_what_is_missing_is_found(missing: str, kind: str) -> None:
    assert kinds([line for line in GOOD if line != missing]) == {kind}


@pytest.mark.parametrize("dead", [{}, {2: 2}, {1: 1, 2: 1}])
def test_a_dead_letter_too_many_or_too_few_is_found(dead: dict[int, int]) -> None:
    assert kinds(GOOD, dead) == {"wrong end"}


def test_what_is_left_anywhere_is_found() -> None:
    assert kinds(GOOD, others={"waiting": 1}) == {"left over"}
