"""What README and docs say is so: their code runs, their commands work, their links and lists are complete."""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dramatiq
import pytest
import redis
from dramatiq.brokers.redis import RedisBroker

import dramatiq_distcron
from dramatiq_distcron import DistCron, cron, every, install, testing
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.cli import _parser
from dramatiq_distcron.cli.exits import Exit, exit_code_of
from dramatiq_distcron.config import DistCronOptions
from dramatiq_distcron.demo.processes import Child
from dramatiq_distcron.demo.proof import Proof
from dramatiq_distcron.errors import DistCronError, ServerError
from dramatiq_distcron.policies import Policy, PolicyOptions
from dramatiq_distcron.schedules import ScheduleOptions
from dramatiq_distcron.server import Server
from dramatiq_distcron.store.redis import Keys
from tests.integration.conftest import Running
from tests.support import wait_until

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


# -- code -----------------------------------------------------------------------------------------------------


def test_the_60_second_start_is_the_quickstart_example() -> None:
    assert blocks(README, "python")[0] == (ROOT / "examples" / "quickstart" / "app.py").read_text("utf-8")


CODE = [(page, number) for page in PAGES for number in range(len(blocks(page, "python")))]


@pytest.mark.parametrize(("page", "number"), CODE, ids=lambda it: page_id(it) if isinstance(it, Path) else str(it))
def test_every_block_of_python_runs(
    page: Path, number: int, redis_broker: RedisBroker, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTCRON_REDIS_URL", server.url)
    distcron = install(redis_broker)
    dramatiq.set_broker(redis_broker)
    known = {"dramatiq": dramatiq, "cron": cron, "every": every, "install": install}
    known |= {"broker": redis_broker, "distcron": distcron, "__name__": "block"}
    exec(compile(blocks(page, "python")[number], f"{page_id(page)}, block {number}", "exec", dont_inherit=True), known)


BEFORE = [(page, text) for page in PAGES for text in blocks(page, "{code-block} python")]


@pytest.mark.parametrize("text", [text for _, text in BEFORE])
def test_code_of_other_schedulers_is_at_least_python(text: str) -> None:
    options, _, code = text.partition("\n\n")
    assert options.startswith(":caption:")
    compile(code, "before", "exec")


# -- commands -------------------------------------------------------------------------------------------------

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
        ended = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, f"{line}\n{ended.stdout}{ended.stderr}"

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


@pytest.mark.parametrize("page", sorted((DOCS / "howto").glob("*.md")), ids=page_id)
def test_every_command_of_a_how_to_works(page: Path, shell: Shell) -> None:
    for line in ("cd examples/quickstart", "dramatiq-distcron beat app"):
        shell.run(line)
    distcron = install(RedisBroker(url=shell.url))
    wait_until(lambda: distcron.status().instances, "a beat that tells of its actors")
    distcron.schedules.put(every(60, name="report:7"), "heartbeat")
    for text in blocks(page, "sh"):
        for line in text.splitlines():
            shell.run(line)
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


#: Every public error but the base of all.
ERROR_NAMES = sorted(
    name
    for name, value in vars(dramatiq_distcron).items()
    if isinstance(value, type) and issubclass(value, DistCronError) and value is not DistCronError
)


def output(*arguments: str, **environ: str) -> str:
    """What the command line prints."""
    command = [sys.executable, "-m", "dramatiq_distcron", *arguments]
    ended = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def declare_job(distcron: DistCron, **options: Any) -> None:
    @dramatiq.actor(broker=distcron.broker, periodic=every(1, **options))
    def job() -> None: ...


def test_the_user_of_the_how_to_on_rights_may_do_all_a_beat_does(server_binary: Path | None) -> None:
    how_to = DOCS / "howto" / "rights.md"
    setuser, keys = blocks(how_to, "text")[:2]
    assert "~dramatiq" in keys
    with Server(server_binary) as server, redis.Redis.from_url(server.url) as admin:
        for fewer_keys in (False, True):
            words = setuser.split()
            if fewer_keys:
                words = [word for word in words if not word.startswith("~")] + keys.split()
            admin.execute_command(*words)
            user, password = words[2], next(word[1:] for word in words if word.startswith(">"))
            url = server.url.replace("://", f"://{user}:{password}@")
            distcron = install(RedisBroker(url=url))
            declare_job(distcron, name="second")
            assert Beat(distcron).run_once()
            for command in (["list"], ["status"], ["trigger", "second"], ["history", "second"]):
                output(*command, DISTCRON_REDIS_URL=url)
            distcron.close()
            distcron.broker.client.close()  # type: ignore[attr-defined]


# -- links and names ------------------------------------------------------------------------------------------


def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in slugs(target)):
            lost.append(link)
    assert lost == []


def variables(*texts: str) -> set[str]:
    return {name for text in texts for name in re.findall(r"\bDISTCRON_[A-Z0-9_]*[A-Z0-9]\b", text)}


def test_every_variable_that_is_mentioned_exists() -> None:
    code = [path.read_text("utf-8") for path in PACKAGE.rglob("*.py")]
    for_tests = [(ROOT / name).read_text("utf-8") for name in ("tests/conftest.py", "tox.ini")]
    of_users = variables(*code)
    for page in PAGES:
        known = of_users | variables(*for_tests) if page.name == "CONTRIBUTING.md" else of_users
        assert variables(page.read_text("utf-8")) <= known, page_id(page)


def test_every_variable_that_exists_is_in_the_reference() -> None:
    code = [path.read_text("utf-8") for path in PACKAGE.rglob("*.py")]
    assert set(first_column(sections(REFERENCE / "settings.md")["Environment variables"])) == variables(*code)


def test_every_test_that_is_named_exists() -> None:
    found = {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    for page in PAGES:
        assert set(re.findall(r"`(test_\w+)`", page.read_text("utf-8"))) <= found, page_id(page)


def constants() -> str:
    """Every text in the package's code, each on a line of its own; what is filled in later is left out."""
    nodes = [node for path in PACKAGE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    return "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_every_message_that_is_explained_is_one_that_is_given() -> None:
    known = constants()
    page = (DOCS / "howto" / "troubleshooting.md").read_text("utf-8")
    cells = re.findall(r"^\| (?!what you see)([^|]+) \|", page, re.MULTILINE)
    quoted = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]
    assert len(quoted) > 30
    assert [text for text in quoted if text not in known] == []


# -- lists that must be complete ------------------------------------------------------------------------------


def commands() -> dict[str, argparse.ArgumentParser]:
    (action,) = (a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(action.choices)


def arguments(parser: argparse.ArgumentParser) -> set[str]:
    """Options as they are written and positional arguments as they are shown."""
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    return {name for action in actions for name in action.option_strings or [str(action.metavar)]}


def test_the_reference_has_every_command_and_no_other() -> None:
    assert sections(REFERENCE / "cli.md").keys() - {"Exit codes"} == commands().keys()
    shown = sections(README)["Command line"]
    assert [name for name in commands() if not re.search(rf"dramatiq-distcron .*\b{name}\b", shown)] == []


@pytest.mark.parametrize("command", sorted(commands()))
def test_the_reference_lists_exactly_the_arguments_of_a_command(command: str) -> None:
    documented = first_column(sections(REFERENCE / "cli.md")[command])
    assert len(documented) == len(set(documented))
    assert set(documented) == arguments(commands()[command])


def test_the_reference_tells_every_exit_code() -> None:
    text = sections(REFERENCE / "cli.md")["Exit codes"]
    documented = {int(code) for code in re.findall(r"^\| (\d) \|", text, re.MULTILINE)}
    assert documented | {Exit.FINDINGS} == set(Exit)
    assert f"{Exit.FINDINGS:d} is kept" in text


ERRORS: list[type[DistCronError]] = [ServerError, *(getattr(dramatiq_distcron, name) for name in ERROR_NAMES)]


@pytest.mark.parametrize("kind", ERRORS)
def test_the_reference_tells_the_exit_code_of_every_error(kind: type[DistCronError]) -> None:
    text = sections(REFERENCE / "cli.md")["Exit codes"]
    documented = {
        name: int(code)
        for code, names in re.findall(r"^\| (\d) \|.*\| (.+) \|$", text, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    assert documented[kind.__name__] == exit_code_of(kind("why"))


def test_the_reference_lists_exactly_the_settings() -> None:
    page = sections(REFERENCE / "settings.md")
    policies = set(PolicyOptions.__annotations__)
    own = set(DistCronOptions.__annotations__) - policies
    assert set(first_column(page["DistCron"])) == own
    assert policies <= set(re.findall(r"`(\w+)`", page["DistCron"].rpartition("\n| ")[2]))
    assert set(first_column(page["Schedules"])) == set(ScheduleOptions.__annotations__) - policies
    assert set(first_column(page["Policies"])) == policies


def test_the_readme_has_every_policy_and_no_other() -> None:
    shown = first_column(sections(README)["How fire times are dealt with"])
    assert {word.partition("=")[0] for word in shown} == set(PolicyOptions.__annotations__)


def test_contributing_names_every_environment_of_tox() -> None:
    environments = set(re.findall(r"^\[testenv:(.+)\]$", (ROOT / "tox.ini").read_text("utf-8"), re.MULTILINE))
    listed = re.search(r"^env_list = (.+)$", (ROOT / "tox.ini").read_text("utf-8"), re.MULTILINE)
    assert listed is not None
    environments |= set(listed[1].split(", "))
    expanded = {name.replace("{5,6,7}", number) for name in environments for number in "567"}
    assert set(first_column((ROOT / "CONTRIBUTING.md").read_text("utf-8"))) == expanded


def test_every_file_of_tests_that_tox_names_exists() -> None:
    named = set(re.findall(r"\btests(?:/[\w.]+)+", (ROOT / "tox.ini").read_text("utf-8")))
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_reference_tells_the_default_of_every_policy() -> None:
    page = sections(REFERENCE / "settings.md")["Policies"]
    documented = dict(re.findall(r"^\| `(\w+)` \| `?(.+?)`? \|", page, re.MULTILINE))
    assert {name: ast.literal_eval(value) for name, value in documented.items()} == asdict(Policy())


def test_the_reference_has_every_public_name() -> None:
    page = (REFERENCE / "api.md").read_text("utf-8")
    documented = set(re.findall(r"^\.\. auto\w+:: (?:[\w.]+\.)?(\w+)$", page, re.MULTILINE))
    assert {*dramatiq_distcron.__all__, *testing.__all__} - {"__version__"} <= documented


def test_the_reference_lists_exactly_the_keys_in_redis() -> None:
    keys = Keys("namespace", "app")
    ours = {key.removeprefix(keys.prefix) for key in keys.types()}
    assert set(first_column((REFERENCE / "redis-keys.md").read_text("utf-8"))) == ours


@pytest.fixture
def output_of(
    redis_broker: RedisBroker, server: Server, start_beat: Callable[[DistCron], Running]
) -> Callable[..., Any]:
    """What a command prints with ``--json`` about an app whose beat runs."""
    distcron = install(redis_broker)
    declare_job(distcron)
    start_beat(distcron)
    wait_until(lambda: distcron.status().instances and distcron.schedules.list(), "a beat")

    def run(*command: str) -> Any:
        where = ("--redis-url", server.url, "--namespace", redis_broker.namespace)
        return json.loads(output(*command, "--json", *where))

    return run


def keys_in(found: Any) -> set[str]:
    """The keys of an object and of those in it."""
    if isinstance(found, list):
        return {key for one in found for key in keys_in(one)}
    if isinstance(found, dict):
        return {*found, *(key for one in found.values() for key in keys_in(one))}
    return set()


def test_the_reference_lists_exactly_the_keys_of_json(output_of: Callable[..., Any]) -> None:
    page = sections(REFERENCE / "json.md")
    documented = {name: first_column(text) for name, text in page.items()}
    assert list(output_of("trigger", "job")) == documented["trigger"]
    (schedule,) = output_of("list")["schedules"]
    assert list(schedule) == documented["list"]
    assert list(output_of("show", "job")) == documented["list"]
    assert list(output_of("next")["next"][0]) == documented["next"]
    tick, *_ = output_of("history", "job")["ticks"]
    assert list(tick) == documented["history"]
    assert keys_in(tick["run"]) <= set(re.findall(r"`(\w+)`", page["history"]))
    status = output_of("status")
    assert list(status) == documented["status"]
    assert keys_in(status) <= set(re.findall(r"`(\w+)`", page["status"]))
    assert list(Proof(0, 0, 0, 0, 0, None, False).to_json()) == documented["demo"]


def test_the_reference_tells_what_a_change_prints_as_json(output_of: Callable[..., Any]) -> None:
    page = sections(REFERENCE / "json.md")["pause, resume and remove"]
    for verb, done in (("pause", "paused"), ("resume", "resumed")):
        assert output_of(verb, "job") == {"schedule": "job", "done": done}
        assert f"`{done}`" in page
    assert first_column(page) == ["schedule", "done"]
