"""The lists of the reference are complete, and have nothing that is not there."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import dramatiq
import pytest
from dramatiq.broker import MessageProxy
from dramatiq.brokers.redis import RedisBroker
from dramatiq.brokers.stub import StubBroker

import dramatiq_distcron
from dramatiq_distcron import BackoffRetries, DistCron, RetryBudget, install, testing
from dramatiq_distcron.cli import _parser
from dramatiq_distcron.cli.exits import Exit, exit_code_of
from dramatiq_distcron.config import DistCronOptions
from dramatiq_distcron.demo.proof import Proof
from dramatiq_distcron.errors import DistCronError, ServerError
from dramatiq_distcron.policies import Policy, PolicyOptions
from dramatiq_distcron.schedules import ScheduleOptions
from dramatiq_distcron.server import Server
from dramatiq_distcron.store.redis import Keys
from tests.integration.conftest import Running
from tests.integration.pages import (
    README,
    REFERENCE,
    ROOT,
    declare_job,
    first_column,
    output,
    sections,
)
from tests.support import wait_until

#: Every public error but the base of all.
ERROR_NAMES = sorted(
    name
    for name, value in vars(dramatiq_distcron).items()
    if isinstance(value, type) and issubclass(value, DistCronError) and value is not DistCronError
)


def commands() -> dict[str, argparse.ArgumentParser]:
    (action,) = (a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(action.choices)


def arguments(parser: argparse.ArgumentParser) -> set[str]:
    """Options as they are written and positional arguments as they are shown."""
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    for group in [action for action in actions if isinstance(action, argparse._SubParsersAction)]:
        # Its verbs are told in one table.
        return set[str]().union(*(arguments(verb) for verb in group.choices.values()))
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
    assert documented == set(Exit)


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


def test_the_reference_lists_exactly_the_options_of_retries() -> None:
    options, rest = sections(REFERENCE / "settings.md")["Retries"].split("Strategies, in seconds", 1)
    made_with = set(inspect.signature(BackoffRetries).parameters) - {"rng"}
    assert set(first_column(options)) == made_with | BackoffRetries().actor_options
    assert set(inspect.signature(RetryBudget).parameters) <= set(first_column(rest))


def test_the_reference_lists_exactly_what_a_failed_message_and_a_waiting_one_tell(stub_broker: StubBroker) -> None:
    distcron = install(stub_broker)
    job = dramatiq.actor(lambda: None, actor_name="job", broker=stub_broker)
    proxy = MessageProxy(job.message())
    stub_broker.emit_after("process_message", proxy, exception=ValueError())
    stub_broker.emit_before("ack", proxy)
    page = first_column(sections(REFERENCE / "settings.md")["What a failed message carries"])
    assert page == list(proxy.options["distcron_retries"])
    (waiting,) = distcron.retries.list()
    listed = first_column(sections(REFERENCE / "json.md")["retries list"])
    assert set(listed) == {"retries", "waiting", "budgets", *vars(waiting)}


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
    assert list(output_of("show", "job")) == [*documented["list"], *documented["show"]]
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
