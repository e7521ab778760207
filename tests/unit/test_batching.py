"""How much goes into one command."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dramatiq_distcron.batching import BATCH_BYTES, batches


def test_a_batch_ends_with_its_number_or_its_bytes() -> None:
    assert list(batches(range(5), 2)) == [[0, 1], [2, 3], [4]]
    half = BATCH_BYTES // 2 + 1
    assert list(batches([1, half, half, 1, BATCH_BYTES + 1, 1], 100, int)) == [
        [1, half, half],
        [1, BATCH_BYTES + 1],
        [1],
    ]


@given(st.lists(st.integers(0, 2 * BATCH_BYTES)), st.integers(1, 9))
def test_no_item_is_left_out_and_only_the_last_of_a_batch_is_beyond_its_bytes(lengths: list[int], most: int) -> None:
    found = list(batches(lengths, most, int))
    assert [one for batch in found for one in batch] == lengths
    assert all(len(batch) <= most and sum(batch[:-1]) <= BATCH_BYTES for batch in found)
