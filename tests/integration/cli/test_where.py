"""Where the state is: what the command line, the environment and the app say, and what happens if nobody is there."""

from __future__ import annotations

import pytest

from dramatiq_distcron.server import Server
from tests.integration.cli.apps import SECRET, TWO, App, Patch


@pytest.mark.parametrize("argv", [["list"], ["history", "x"], ["status"], ["trigger", "x"]], ids=lambda argv: argv[0])
@pytest.mark.parametrize("mode", [[], ["--json"]], ids=["table", "json"])
def test_without_redis_a_verb_says_where_it_looked_and_not_with_which_password(
    app: App, closed_port: int, argv: list[str], mode: list[str]
) -> None:
    ran = app.run(*argv, *mode, f"--redis-url=redis://user:{SECRET}@127.0.0.1:{closed_port}/2")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith(
        f"dramatiq-distcron: Redis at redis://user:***@127.0.0.1:{closed_port}/2 does not answer:"
    )
    assert ran.err.count("\n") == 1
    assert SECRET not in ran.err


def test_a_socket_that_is_not_there_is_named(app: App) -> None:
    ran = app.run("list", f"--redis-url=unix://{app.folder}/none.sock?db=3")
    assert ran.code == 3
    assert f"Redis at unix://{app.folder}/none.sock?db=3 does not answer" in ran.err


def test_a_wrong_password_is_told_without_it(app: App, server: Server) -> None:
    ran = app.run("list", f"--redis-url=redis://nobody:{SECRET}@127.0.0.1:{server.port}/0")
    assert ran.code == 3
    assert "does not let us in" in ran.err
    assert SECRET not in ran.err


def test_the_url_may_come_from_the_environment(app: App, closed_port: int, monkeypatch: Patch) -> None:
    monkeypatch.setenv("DISTCRON_REDIS_URL", f"redis://127.0.0.1:{closed_port}/0")
    assert f"Redis at redis://127.0.0.1:{closed_port}/0" in app.run("list").err


@pytest.mark.parametrize("url", ["http://127.0.0.1/0", "127.0.0.1:6379", "redis://127.0.0.1:port/0"])
def test_what_is_no_url_of_a_redis_is_refused_with_the_reason(app: App, url: str) -> None:
    ran = app.run("list", f"--redis-url={url}")
    assert (ran.code, ran.out) == (2, "")
    assert f"{url!r} is not the URL of a Redis, such as 'redis://" in ran.err


@pytest.mark.parametrize("url", ["http://:{}@127.0.0.1/0", "redis://user:{}@127.0.0.1:port/0", "rediss:/u:{}@host"])
def test_a_url_that_is_wrong_is_told_without_its_password(app: App, url: str) -> None:
    ran = app.run("list", f"--redis-url={url.format(SECRET)}")
    assert ran.code in (2, 3)
    assert SECRET not in ran.err


@pytest.mark.parametrize("sign", "/?#")
def test_a_password_that_must_be_written_otherwise_in_a_url_is_not_told_in_part(app: App, sign: str) -> None:
    ran = app.run("list", f"--redis-url=redis://:{SECRET}{sign}{SECRET}@127.0.0.1:6379/0")
    assert ran.code == 2
    assert "must be written as '%2F'" in ran.err
    assert SECRET not in ran.err


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (
            "redis://:{}@127.0.0.1/0?ssl_cert_reqs=none",
            "ssl_cert_reqs is for TLS: leave that out, or make the URL rediss",
        ),
        ("unix://:{}@/redis.sock?ssl_ca_certs=/ca.pem", "ssl_ca_certs is for TLS: leave that out"),
        ("rediss://:{}@127.0.0.1/0?ssl_cert_reqs=sometimes", "Invalid SSL Certificate Requirements Flag: sometimes."),
        ("rediss://:{}@127.0.0.1/0?ssl_strange=1", "unexpected keyword argument 'ssl_strange'"),
    ],
)
def test_settings_that_no_connection_can_be_made_with_are_refused_with_the_reason(
    app: App, url: str, told: str
) -> None:
    url = url.format(SECRET)
    by_url = app.run("list", f"--redis-url={url}")
    by_app = app.beat(app.on_redis(TWO, url=url))
    for ran in (by_url, by_app):
        assert ran.code == 2
        assert told in ran.err
        assert SECRET not in ran.err


@pytest.mark.parametrize("option", ["--redis-url=redis://h", "--namespace=ns", "--app=shop"])
def test_two_ways_to_say_where_the_state_is_are_refused(app: App, option: str) -> None:
    ran = app.run("list", "--broker", app.on_redis(TWO), f"--path={app.folder}", option)
    assert (ran.code, ran.out) == (2, "")
    assert "--broker says where the state is" in ran.err


def test_what_the_command_line_says_is_stronger_than_the_environment(app: App, monkeypatch: Patch) -> None:
    app.beat(app.on_redis(TWO))
    monkeypatch.setenv("DISTCRON_NAMESPACE", "of-another-app")
    ran = app.state("list", "--json")
    assert [one["name"] for one in ran.json["schedules"]] == ["hourly", "report:7"]


def test_the_namespace_and_the_app_may_come_from_the_environment(app: App, monkeypatch: Patch) -> None:
    monkeypatch.setenv("DISTCRON_NAMESPACE", app.namespace)
    monkeypatch.setenv("DISTCRON_APP", "shop")
    app.beat(app.on_redis(TWO))
    ran = app.run("list", "--json", f"--redis-url={app.url}")
    assert [one["name"] for one in ran.json["schedules"]] == ["hourly", "report:7"]


def test_apps_of_one_namespace_do_not_see_each_other(app: App) -> None:
    app.beat(app.on_redis(TWO))
    assert app.state("list", "--json", "--app=other").json == {"schedules": []}


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ("redis='redis://127.0.0.1:1/0'", 5, "both must be on the same Redis"),
        ("redis='http://127.0.0.1/0'", 2, "must be the URL of a Redis"),
        ("namespace='other'", 5, "differs from the broker's namespace"),
    ],
)
def test_settings_that_do_not_fit_the_broker_are_refused_with_what_to_do(
    app: App, options: str, code: int, told: str
) -> None:
    assert told in app.refused(code, app.on_redis(TWO, options=f", {options}"))


def test_a_beat_without_redis_ends_with_its_own_code_if_it_should_run_once(app: App, closed_port: int) -> None:
    ran = app.beat(app.on_redis(TWO, url=f"redis://:{SECRET}@127.0.0.1:{closed_port}/0"))
    assert ran.code == 3
    assert f"Redis at redis://:***@127.0.0.1:{closed_port}/0 does not answer" in ran.err
    assert SECRET not in ran.err + ran.out


def test_a_beat_that_never_had_the_lease_does_not_say_that_it_could_not_give_it_back(
    app: App, closed_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    app.beat(app.on_redis(TWO, url=f"redis://127.0.0.1:{closed_port}/0"))
    assert "could not be given back" not in caplog.text
