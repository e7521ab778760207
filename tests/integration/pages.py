"""The pages of the documentation, read for the tests that hold them to the truth."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import dramatiq

import dramatiq_distcron
from dramatiq_distcron import DistCron, every

ROOT = Path(__file__).parents[2]
PACKAGE = Path(dramatiq_distcron.__file__).parent
README = ROOT / "README.md"
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")})


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of these languages, in their order."""
    fence = re.compile(rf"^```(?:{'|'.join(map(re.escape, languages))})\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [found[1] for found in fence.finditer(page.read_text("utf-8"))]


def prose(page: Path) -> str:
    """The text without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def sections(page: Path) -> dict[str, str]:
    """What stands under each heading of the second level."""
    parts = re.split(r"^## (.+)\n", page.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def first_column(text: str) -> list[str]:
    """The words in code in the first column of the tables in ``text``."""
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    return [word for cell in cells for word in re.findall(r"`([^`]+)`", cell)]


def output(*arguments: str, **environ: str) -> str:
    """What the command line prints."""
    command = [sys.executable, "-m", "dramatiq_distcron", *arguments]
    ended = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def declare_job(distcron: DistCron, **options: Any) -> None:
    @dramatiq.actor(broker=distcron.broker, periodic=every(1, **options))
    def job() -> None: ...
