"""What README and docs say is so: their code runs, their links and names are right."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import dramatiq
import pytest
import redis
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import cron, every, get_distcron, install
from dramatiq_distcron.beat import Beat
from dramatiq_distcron.server import Server
from tests.integration.pages import (
    DOCS,
    PACKAGE,
    PAGES,
    README,
    REFERENCE,
    ROOT,
    blocks,
    declare_job,
    first_column,
    output,
    page_id,
    prose,
    sections,
)


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


#: What a page may say it assumes, and the names that gives.
ASSUMED: dict[str, dict[str, object]] = {
    "assume a broker that is set": {},
    "import cron, every`": {"cron": cron, "every": every},
}


#: All but the front page, whose block is an excerpt and says so.
COMPLETE = [page for page in PAGES if blocks(page, "python") and "This is an excerpt" not in prose(page)]


@pytest.mark.parametrize("page", COMPLETE, ids=page_id)
def test_the_first_block_of_a_page_needs_nothing_but_what_the_page_says_it_assumes(
    page: Path, redis_broker: RedisBroker, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTCRON_REDIS_URL", server.url)
    text = prose(page)
    monkeypatch.setattr("dramatiq.broker.global_broker", None)
    if "assume a broker that is set" in text:
        install(redis_broker)
        dramatiq.set_broker(redis_broker)
    known: dict[str, object] = {"__name__": "block"}
    if "`distcron` is what `install` returned" in text:
        known["distcron"] = get_distcron(redis_broker)
    for said, names in ASSUMED.items():
        known |= names if said in text else {}
    exec(compile(blocks(page, "python")[0], page_id(page), "exec", dont_inherit=True), known)


BEFORE = [(page, text) for page in PAGES for text in blocks(page, "{code-block} python")]


@pytest.mark.parametrize("text", [text for _, text in BEFORE])
def test_code_of_other_schedulers_is_at_least_python(text: str) -> None:
    options, _, code = text.partition("\n\n")
    assert options.startswith(":caption:")
    compile(code, "before", "exec")


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


#: What is told of the tests is told here only.
INSIDE = ("CONTRIBUTING.md", "guarantees.md")


def test_every_variable_that_is_mentioned_exists() -> None:
    code = [path.read_text("utf-8") for path in PACKAGE.rglob("*.py")]
    of_tests = [path for path in (ROOT / "tests").rglob("*.py") if path.name != "test_readme.py"]
    for_tests = [path.read_text("utf-8") for path in (*of_tests, ROOT / "tox.ini")]
    of_users = variables(*code)
    for page in PAGES:
        known = of_users | variables(*for_tests) if page.name in INSIDE else of_users
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


def test_every_what_if_names_the_test_that_holds_its_answer() -> None:
    text = (DOCS / "explanation" / "guarantees.md").read_text("utf-8")
    tables = re.findall(r"^\| what if … \| then \| tests \|\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert len(tables) >= 5
    rows = [row for table in tables for row in table.splitlines()]
    assert [row for row in rows if not re.fullmatch(r"\| .+ \| .+ \| (`test_\w+`(, )?)+ \|", row)] == []


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
