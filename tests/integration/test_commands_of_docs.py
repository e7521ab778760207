"""What README and docs tell users to type works, in its order."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dramatiq import Message
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import DistCron, every, install
from dramatiq_distcron.cli import _parser
from dramatiq_distcron.cli.exits import Exit
from dramatiq_distcron.demo.processes import Child
from dramatiq_distcron.letters import about_death, indexes_of
from dramatiq_distcron.server import Server
from dramatiq_distcron.store.base import Letter
from tests.integration.pages import (
    DOCS,
    README,
    ROOT,
    blocks,
    page_id,
)
from tests.support import wait_until

#: Two that a stranger runs as they stand; .ci/run does the same in a clean clone.
AS_THEY_STAND = ["pip install '.[demo]' && dramatiq-distcron demo", "pip install tox && tox"]
#: Left out here, and where they run instead.
ELSEWHERE = {
    "pip install '.[demo]'": "tests/build, .ci/run",
    AS_THEY_STAND[0]: "tests/process/test_demo.py, .ci/run",
    AS_THEY_STAND[1]: ".ci/run",
    # Of a user of that page.
    "DISTCRON_REDIS_URL=redis://beat:secret@127.0.0.1:6379/0 dramatiq-distcron beat app --once": "the test of its user",
}
#: Those that go on until they are stopped, and what they say when they work. The first is stopped at once, as it has
#: a server of its own; the others go on to the end of the page.
LASTING = {
    "dramatiq-distcron dev app": "Worker process is ready",
    "dramatiq app": "Worker process is ready",
    "dramatiq app --processes 1": "Worker process is ready",
    "dramatiq-distcron beat app": "Leading since|Standing by",
    "DISTCRON_DISABLED=1 dramatiq-distcron beat app": "Standing by",
}
#: Those that ask before they do it.
ASKING = (["dlq", "discard"], ["dlq", "purge"])


def test_the_two_commands_of_a_stranger_are_blocks_of_their_own() -> None:
    found = [text.strip() for text in blocks(README, "sh")]
    run = (ROOT / ".ci" / "run").read_text("utf-8")
    for command in AS_THEY_STAND:
        assert found.count(command) == 1
        assert f'"{command}"' in run


class Shell:
    """Runs the commands of a page, in order, in a copy of the examples, on a server of the test."""

    def __init__(self, folder: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._environ = environ
        self.url = environ["DISTCRON_REDIS_URL"]
        self._chdir = monkeypatch.chdir
        self.lasting: list[Child] = []

    def run(self, line: str) -> None:
        words = shlex.split(line, comments=True)
        command = shlex.join(words)
        if not words or line.strip() in ELSEWHERE or words[0] == "export":
            return
        if words[0] == "cd":
            self._folder = self._folder / words[1]
            assert self._folder.is_dir(), line
            return
        self._chdir(self._folder)
        if command in LASTING:
            self._start(command, words)
            return
        environ, words = self._with_variables(words)
        words, file = (words[:-2], words[-1]) if ">" in words else (words, None)
        # On a terminal it would ask.
        words += ["--yes"] if words[1:3] in ASKING else []
        ended = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, f"{line}\n{ended.stdout}{ended.stderr}"
        if file:
            self.write(file, ended.stdout)

    def _with_variables(self, words: list[str]) -> tuple[dict[str, str], list[str]]:
        """The environment with the variables that stand before a command, and the command."""
        count = next(at for at, word in enumerate(words) if "=" not in word)
        return self._environ | dict(word.split("=", 1) for word in words[:count]), words[count:]

    def _start(self, command: str, words: list[str]) -> None:
        environ, words = self._with_variables(words)
        child = Child(command, words, environ)
        self.lasting.append(child)
        wait_until(lambda: re.search(LASTING[command], child.output()) or not child.alive, command)
        assert child.alive, child.output()
        if words[1] == "dev":
            self.stop(child)
            self.lasting.remove(child)

    @staticmethod
    def stop(child: Child) -> None:
        child.send_signal(signal.SIGTERM)
        assert child.wait() == 0, f"{child.name}\n{child.output()}"

    def write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text, "utf-8")

    def stop_all(self) -> None:
        for child in self.lasting:
            self.stop(child)

    def close(self) -> None:
        for child in self.lasting:
            child.end()


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    with Server() as server:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        monkeypatch.setenv("PATH", path)
        environ = {**os.environ, "DISTCRON_REDIS_URL": server.url, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        shell = Shell(tmp_path, environ, monkeypatch)
        yield shell
        shell.close()


#: The process ids in the tutorial's output, by the place of the beat among those that were started.
PIDS = {"10346": 0, "10360": 1}
#: What the tutorial does before there is a server of the test's own.
SET_UP = ("python3 -m venv", ". /tmp/distcron", "pip install", "dramatiq-distcron server", "export")


class Reader:
    """Does what the tutorial says, in its order. Where it waits for some seconds, we wait for what is to come then."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.beats: list[Child] = []

    def follow(self, line: str) -> None:
        words = shlex.split(line)
        if words[0] == "kill":
            self._signal(self.beats[PIDS[words[2]]], words[1])
        elif words[0] == "sleep":
            self._await(self.beats[-1], "Leading since")
        else:
            self.shell.run(line)
            self.beats += [one for one in self.shell.lasting if "beat" in one.name and one not in self.beats]

    def _signal(self, beat: Child, name: str) -> None:
        if name != "-9":
            beat.send_signal(signal.Signals[f"SIG{name[1:]}"])
        else:
            beat.kill()
            self.shell.lasting.remove(beat)
            self._await(self.beats[-1], "Leading since")
            # As the text says before it freezes the other one.
            self.follow("dramatiq-distcron beat app")
        if name == "-CONT":
            self._await(beat, "Standing by.*Leading since.*Standing by")

    @staticmethod
    def _await(beat: Child, said: str) -> None:
        wait_until(lambda: re.search(said, beat.output(), re.DOTALL), said)


def test_every_command_of_the_tutorial_works(shell: Shell) -> None:
    page = DOCS / "tutorial.md"
    shell.write("app.py", blocks(page, "python")[0])
    reader = Reader(shell)
    for text in blocks(page, "sh"):
        for line in text.splitlines():
            if not line.startswith(SET_UP):
                reader.follow(line)
                if line == "dramatiq-distcron beat app":
                    # A second one in terminal 4, as the text says.
                    reader.follow(line)
    assert len(reader.beats) == 3
    assert all(pid in page.read_text("utf-8").split("## Kill the leader")[0] for pid in PIDS)
    shell.stop_all()


def die(distcron: DistCron) -> str:
    """The id of a dead letter."""
    message: Message[Any] = Message("default", "heartbeat", (), {}, {})
    about = about_death(message, None, "rejected", host="here", version="1")
    letter = Letter(message.message_id, about, message.encode(), indexes_of(about))
    distcron.open_backend().store.put_letters([(letter, 1_700_000_000_000)])
    return message.message_id


@pytest.mark.parametrize("page", sorted((DOCS / "howto").glob("*.md")), ids=page_id)
def test_every_command_of_a_how_to_works(page: Path, shell: Shell) -> None:
    for line in ("cd examples/quickstart", "dramatiq-distcron beat app"):
        shell.run(line)
    distcron = install(RedisBroker(url=shell.url))
    wait_until(lambda: distcron.status().instances, "a beat that tells of its actors")
    distcron.schedules.put(every(60, name="report:7"), "heartbeat")
    for text in blocks(page, "sh"):
        for line in text.splitlines():
            shell.run(re.sub(r"\bID\b", lambda _: die(distcron), line))
    shell.stop_all()


@pytest.mark.parametrize("page", [README, ROOT / "examples" / "quickstart" / "README.md"], ids=page_id)
def test_every_command_of_the_readme_works(page: Path, shell: Shell) -> None:
    for text in blocks(page, "sh", "console"):
        for line in text.replace("$ ", "").splitlines():
            shell.run(line)
    # The last one is a trigger.
    worker = next(child for child in shell.lasting if child.name == "dramatiq app")
    wait_until(lambda: "the nightly report" in worker.output(), "the triggered report")
    shell.stop_all()


def test_every_command_of_a_unit_or_a_container_is_one_that_there_is() -> None:
    page = DOCS / "howto" / "deploy.md"
    (unit,) = blocks(page, "ini")
    commands = [shlex.split(line) for line in re.findall(r"^ExecStart=\S+/bin/(.+)$", unit, re.MULTILINE)]
    for text in blocks(page, "yaml"):
        commands += [json.loads(found) for found in re.findall(r"command: (\[.+\])", text)]
    ours = [words[1:] for words in commands if words[0] == "dramatiq-distcron"]
    assert len(ours) == 3
    for words in ours:
        assert _parser().parse_args(words).broker == "app"


def test_a_unit_is_not_restarted_for_what_trying_again_does_not_mend() -> None:
    (unit,) = blocks(DOCS / "howto" / "deploy.md", "ini")
    codes = re.search(r"^RestartPreventExitStatus=(.+)$", unit, re.MULTILINE)
    assert codes is not None
    assert {int(code) for code in codes[1].split()} == {Exit.IMPORT, Exit.CONFLICT}
