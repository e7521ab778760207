"""A little of the soak of ``benchmarks/fuzz_cron.py``; ``tox -e fuzz`` runs a million inputs."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SOAK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "fuzz_cron.py"))["soak"]


@pytest.mark.parametrize("seed", [11, 12])
def test_whatever_is_thrown_at_it_only_our_own_error_comes_out(seed: int) -> None:
    _, outcomes = SOAK(2000, seed)
    assert outcomes.keys() == {"accepted", "refused", "zone accepted", "zone refused"}
    assert min(outcomes.values()) > 5
