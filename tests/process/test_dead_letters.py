"""Dead letters under kills and cuts: a short run of the soak (``tox -e soak-letters`` is the long one)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.letter_soak.run import run
from tests.soaks import Plan


@pytest.mark.timeout(300)
def test_under_kills_and_cuts_no_letter_is_lost_and_each_is_sent_back_once(server_binary: Path | None) -> None:
    outcome = run(Plan(messages=900, workers=2, pace=0.2, seed=7, patience=200, binary=server_binary))
    assert outcome.violations == []
    assert outcome.kills + outcome.cuts > 0
    assert outcome.letters > 1500
