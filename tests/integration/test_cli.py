"""The command line on real apps and a real server: what it shows, and what it says about bad input."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import dramatiq
import pytest
import redis
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import DistCron, every, install
from dramatiq_distcron.cli import main
from dramatiq_distcron.publishing import tick_id
from dramatiq_distcron.server import Server
from dramatiq_distcron.version import VERSION
from tests.integration.conftest import Running
from tests.support import queued, wait_until

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
SECRET = "sesame"

Capture: TypeAlias = pytest.CaptureFixture[str]
Patch: TypeAlias = pytest.MonkeyPatch


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on stdout."""
        assert self.code == 0, self.err
        return json.loads(self.out)


class App:
    """Modules in a folder of their own, and commands that are run on them in this process."""

    def __init__(self, folder: Path, url: str, namespace: str, capsys: Capture, monkeypatch: Patch) -> None:
        self.folder = folder
        self.url = url
        self.namespace = namespace
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self._count = 0

    def module(self, text: str, name: str | None = None) -> str:
        """Writes a module and returns its name, which no other has."""
        self._count += 1
        name = name or f"app_{self.namespace.replace('-', '_')}_{self._count}"
        (self.folder / f"{name}.py").write_text(text)
        return name

    def stub(self, actors: str = "", head: str = "") -> str:
        """An app on a StubBroker, which needs no server."""
        return self.module(f"{head}{STUB}{actors}")

    def on_redis(self, actors: str = "", url: str | None = None) -> str:
        return self.module(
            "import dramatiq\nfrom dramatiq.brokers.redis import RedisBroker\n"
            "from dramatiq_distcron import cron, every, install\n"
            f"broker = RedisBroker(url={url or self.url!r}, namespace={self.namespace!r})\n"
            f"distcron = install(broker)\ndramatiq.set_broker(broker)\n{actors}"
        )

    def run(self, *argv: str) -> Ran:
        """Runs a command in this process, as if nothing had been loaded before."""
        self._monkeypatch.setattr("dramatiq_distcron.middleware.distcron._everywhere", weakref.WeakSet())
        try:
            code = main([*argv])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        out, err = self._capsys.readouterr()
        return Ran(code, out, err)

    def beat(self, *argv: str) -> Ran:
        """Runs ``beat`` until it has fired what is due."""
        return self.run("beat", *argv, f"--path={self.folder}", "--once")

    def state(self, verb: str, *argv: str) -> Ran:
        """Runs a state verb on the namespace of this test, without the app's code."""
        return self.run(verb, *argv, f"--redis-url={self.url}", f"--namespace={self.namespace}")

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Starts a command as a process."""
        command = [sys.executable, "-W", "error", "-m", "dramatiq_distcron", *argv]
        return subprocess.Popen(
            command, cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
        )

    def refused(self, code: int, *argv: str) -> str:
        """The complaint of a ``beat`` that does not start: one line and no traceback."""
        ran = self.beat(*argv)
        assert (ran.code, ran.out) == (code, "")
        assert ran.err.startswith("dramatiq-distcron: ")
        assert ran.err.count("\n") == 1
        return ran.err.removeprefix("dramatiq-distcron: ").rstrip("\n")


STUB = """\
import dramatiq
from dramatiq.brokers.stub import StubBroker
from dramatiq_distcron import cron, every, install
broker = StubBroker()
distcron = install(broker)
dramatiq.set_broker(broker)
"""
NIGHTLY = """
@dramatiq.actor(periodic=cron("0 3 * * *", tz="Europe/Berlin"))
def nightly(): ...
"""
TWO = """
@dramatiq.actor(periodic=cron("0 3 * * *", name="report:7", tz="Europe/Berlin", args=(7,)), queue_name="reports")
def report(tenant): ...

@dramatiq.actor(periodic=every(hours=1))
def hourly(): ...
"""


@pytest.fixture(autouse=True)
def _own_world(monkeypatch: Patch) -> Iterator[None]:
    """A command changes this process: what it imports, where from, and which middlewares there are."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in [name for name in os.environ if name.startswith("DISTCRON_")]:
        monkeypatch.delenv(name)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("app_", "tasks_", "broken_")):
            del sys.modules[name]
    # A beat freezes what is loaded; here, what is loaded goes.
    gc.unfreeze()


@pytest.fixture
def app(tmp_path: Path, server: Server, namespace: str, capsys: Capture, monkeypatch: Patch) -> App:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return App(tmp_path, server.url, namespace, capsys, monkeypatch)


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    client = redis.Redis.from_url(server.url)
    yield client
    client.close()


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


# -- apps that cannot be loaded -----------------------------------------------------------------------------


def test_a_module_that_is_not_there_is_named_with_where_it_was_looked_for(app: App) -> None:
    message = app.refused(2, "app_of_nobody")
    assert message.startswith("Module 'app_of_nobody' cannot be imported: ModuleNotFoundError: No module named")
    assert str(app.folder) in message
    assert "--path" in message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import module_of_nobody", "ModuleNotFoundError: No module named 'module_of_nobody'"),
        ("x = (", "SyntaxError"),
        ("\n\n1 / 0", "ZeroDivisionError: division by zero"),
        ("raise KeyError('DATABASE_URL')", "KeyError: 'DATABASE_URL'"),
    ],
)
def test_a_module_that_fails_is_named_with_the_error_and_the_line(app: App, text: str, told: str) -> None:
    name = app.module(text)
    message = app.refused(2, name)
    assert message.startswith(f"Module {name!r} cannot be imported: {told}")
    assert re.search(r"\.py, line \d+\)|line \d+\)", message)


def test_the_line_is_that_of_the_app(app: App) -> None:
    name = app.module("\n\n1 / 0")
    assert f"{app.folder / name}.py, line 3" in app.refused(2, name)


def test_a_module_that_ends_the_process_is_no_silent_success(app: App) -> None:
    """A script without ``if __name__ == "__main__"``: a supervisor would think that all is well."""
    name = app.module("import sys\nsys.exit(0)")
    assert name in app.refused(2, name)


def test_a_second_module_that_fails_is_named(app: App) -> None:
    broken = app.module("1 / 0")
    assert f"Module {broken!r} cannot be imported" in app.refused(2, app.stub(NIGHTLY), broken)


@pytest.mark.parametrize("broker", ["", ":broker", "..", ".app"])
def test_a_name_that_is_no_module_is_refused(app: App, broker: str) -> None:
    assert "cannot be imported" in app.refused(2, broker)


def test_a_module_that_sets_no_broker_is_refused_with_what_to_do(app: App) -> None:
    name = app.module("x = 1")
    message = app.refused(2, name)
    assert message == (
        f"Module {name!r} sets no broker: call dramatiq.set_broker(broker) in it, or name the broker: {name}:broker."
    )


def test_a_module_that_has_a_broker_and_does_not_set_it_is_refused_with_the_names_found(app: App) -> None:
    name = app.module(STUB.replace("dramatiq.set_broker(broker)", "second = StubBroker()"))
    message = app.refused(2, name)
    assert "sets no broker" in message
    assert f"It has {name}:broker and {name}:second." in message


def test_a_name_that_is_not_in_the_module_is_refused_with_the_names_found(app: App) -> None:
    name = app.stub(NIGHTLY)
    assert app.refused(2, f"{name}:borker") == f"Module {name!r} has no 'borker'. It has {name}:broker."


def test_something_that_is_no_broker_is_refused_with_the_names_found(app: App) -> None:
    name = app.stub("x = 5\n")
    assert app.refused(2, f"{name}:x") == f"{name}:x is not a broker but 5. It has {name}:broker."


def test_a_function_that_fails_is_refused_with_its_error(app: App) -> None:
    name = app.module("def setup():\n    raise RuntimeError('no database')\n")
    assert app.refused(2, f"{name}:setup") == f"{name}:setup() failed: RuntimeError: no database"


def test_a_broker_without_the_middleware_is_refused_with_what_to_do(app: App) -> None:
    name = app.module(
        "import dramatiq\nfrom dramatiq.brokers.stub import StubBroker\ndramatiq.set_broker(StubBroker())\n"
    )
    message = app.refused(2, name)
    assert message.startswith("StubBroker has no DistCron middleware. Call dramatiq_distcron.install(broker)")


def test_if_another_broker_of_the_module_is_meant_it_is_named(app: App) -> None:
    name = app.stub("dramatiq.set_broker(StubBroker())\n")
    assert f"It has {name}:broker." in app.refused(2, name)


def test_a_bad_cron_expression_of_an_actor_is_refused_with_the_reason(app: App) -> None:
    name = app.stub('@dramatiq.actor(periodic=cron("0 3 30 2 *"))\ndef job(): ...\n')
    message = app.refused(2, name)
    assert "'0 3 30 2 *'" in message
    assert "it never fires" in message


def test_a_bad_schedule_is_found_by_the_place_it_is_at(app: App) -> None:
    """With 50 modules of tasks, the expression alone does not say where it is."""
    name = app.stub('\n@dramatiq.actor(periodic=cron("61 * * * *"))\ndef job(): ...\n')
    message = app.refused(2, name)
    assert name in message


def test_a_schedule_given_as_text_is_refused_with_what_to_write(app: App) -> None:
    name = app.stub('@dramatiq.actor(periodic="0 3 * * *")\ndef job(): ...\n')
    assert "Did you mean periodic=cron('0 3 * * *')?" in app.refused(2, name)


@pytest.mark.parametrize(
    ("actors", "told"),
    [
        ('@dramatiq.actor(periodic=cron("0 3 * * *", catchup="all"))\ndef job(): ...', "Did you mean 'catch_up'?"),
        ("@dramatiq.actor(periodic=every(60, overlap='skip'))\ndef job(): ...", "every() has no option 'overlap'"),
        ("install(StubBroker(), lease_tll=3)", "DistCron() has no option 'lease_tll'. Did you mean 'lease_ttl'?"),
        ("install(StubBroker(), lease_ttl=0.1)", "lease_ttl=0.1 is shorter than it can be renewed"),
        ("install(StubBroker(), app='a b')", "app must be a short name"),
        ("install(broker)", "has a DistCron middleware already"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_a_suggestion(app: App, actors: str, told: str) -> None:
    code = 5 if "already" in told else 2
    assert told in app.refused(code, app.stub(actors))


def test_two_schedules_of_one_name_are_refused_and_both_actors_named(app: App) -> None:
    name = app.stub(
        '@dramatiq.actor(periodic=cron("0 3 * * *", name="x"))\ndef one(): ...\n'
        '@dramatiq.actor(periodic=cron("0 4 * * *", name="x"))\ndef other(): ...\n'
    )
    assert "Two schedules are named 'x': one of actor 'one' and one of 'other'" in app.refused(5, name)


def test_arguments_that_cannot_be_encoded_are_refused_with_the_schedule(app: App) -> None:
    name = app.stub("@dramatiq.actor(periodic=every(60, args=(object(),)))\ndef job(): ...\n")
    assert "The arguments of schedule 'job' cannot be encoded by JSONEncoder" in app.refused(2, name)


@pytest.mark.parametrize("broker", ["broker = StubBroker()\ndramatiq.set_broker(broker)", ""], ids=["set", "not set"])
def test_an_actor_before_the_middleware_is_refused_with_the_line_and_what_to_do(app: App, broker: str) -> None:
    name = app.module(
        "import dramatiq\nfrom dramatiq.brokers.stub import StubBroker\nfrom dramatiq_distcron import cron, install\n"
        f"{broker}\n{NIGHTLY}\ninstall(StubBroker())\n"
    )
    message = app.refused(2, name)
    assert f"In module {name!r} an actor with periodic= is declared before its broker has the DistCron" in message
    assert f"{app.folder / name}.py, line " in message
    assert "Call install(broker) and dramatiq.set_broker(broker) before the actors" in message


def test_the_decorator_before_the_middleware_is_refused_with_what_to_do(app: App) -> None:
    name = app.module(
        "import dramatiq\nfrom dramatiq.brokers.stub import StubBroker\nfrom dramatiq_distcron import cron\n"
        "dramatiq.set_broker(StubBroker())\n@cron('0 3 * * *')\n@dramatiq.actor\ndef job(): ...\n"
    )
    assert "The broker of actor 'job' has no DistCron middleware. Call" in app.refused(2, name)


def test_a_broker_that_cannot_be_served_is_refused_with_the_reason(app: App) -> None:
    name = app.module(
        "import dramatiq\nfrom dramatiq_distcron import cron, install\n"
        "class Carrier(dramatiq.Broker):\n"
        "    def declare_queue(self, queue_name): pass\n"
        f"broker = Carrier()\ninstall(broker)\ndramatiq.set_broker(broker)\n{NIGHTLY}"
    )
    message = app.refused(5, name)
    assert message.startswith("Carrier cannot be served: ")
    assert "must be dramatiq.brokers.redis.RedisBroker" in message


SECOND_BROKER = """
other = StubBroker()
install(other)
@dramatiq.actor(periodic=cron("0 4 * * *"), broker=other)
def elsewhere(): ...
"""


def test_two_brokers_with_schedules_are_refused_if_only_a_module_is_named(app: App) -> None:
    message = app.refused(5, app.stub(NIGHTLY + SECOND_BROKER))
    assert message.startswith("Another broker has schedules too, which this beat does not fire: elsewhere.")
    assert "Say which one is meant, as module:broker" in message


@pytest.mark.parametrize(("broker", "shown"), [("broker", "nightly"), ("other", "elsewhere")])
def test_with_a_broker_named_its_schedules_run_and_the_others_are_told(
    app: App, caplog: pytest.LogCaptureFixture, broker: str, shown: str
) -> None:
    ran = app.beat(f"{app.stub(NIGHTLY + SECOND_BROKER)}:{broker}")
    assert ran.code == 0
    assert ran.out.splitlines()[1].startswith(shown)
    assert "which this beat does not fire" in caplog.text


def test_a_second_broker_without_schedules_is_no_conflict(app: App) -> None:
    assert app.beat(app.stub(NIGHTLY + "install(StubBroker())\n")).code == 0


def test_without_schedules_it_runs_and_warns_with_the_modules_scanned(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    name, more = app.stub("@dramatiq.actor\ndef plain(): ...\n"), app.module("x = 1")
    ran = app.beat(name, more)
    assert ran.code == 0
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(f"No schedules were found. Modules scanned: {name}, {more}, with the actors plain.")
    assert f"dramatiq-distcron beat {name} MODULE" in warning


# -- where Redis is -----------------------------------------------------------------------------------------


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
    name = app.on_redis(TWO)
    text = (app.folder / f"{name}.py").read_text()
    (app.folder / f"{name}.py").write_text(text.replace("install(broker)", f"install(broker, {options})"))
    assert told in app.refused(code, name)


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


# -- what a beat shows --------------------------------------------------------------------------------------


def test_at_its_start_a_beat_shows_the_schedules_with_their_next_times_and_how_to_try_one(app: App) -> None:
    name = app.on_redis(TWO)
    ran = app.beat(name)
    assert (ran.code, ran.err) == (0, "")
    head, *rows, hint = ran.out.splitlines()
    assert head.split() == ["SCHEDULE", "WHEN", "ZONE", "ACTOR", "NEXT"]
    (hourly,) = [row for row in rows if row.startswith("hourly")]
    (report,) = [row for row in rows if row.startswith("report:7")]
    assert "every 1:00:00" in hourly
    assert re.search(r"0 3 \* \* \* +Europe/Berlin +report +\d{4}-\d\d-\d\d 0[12]:00:00Z \(in .+\)$", report)
    first = rows[0].split()[0]
    assert hint == f"Try one: dramatiq-distcron trigger {first!r} --broker {name}"


def test_the_command_it_shows_works(app: App) -> None:
    name = app.on_redis("@dramatiq.actor(periodic=every(hours=1))\ndef hourly(): ...\n")
    hint = app.beat(name).out.splitlines()[-1]
    argv = hint.removeprefix("Try one: dramatiq-distcron ").replace("'", "").split()
    assert app.run(*argv, f"--path={app.folder}").code == 0


def test_one_that_runs_beside_a_leader_does_nothing_and_says_so(
    app: App, redis_broker: RedisBroker, start_beat: Callable[..., Running]
) -> None:
    running = start_beat(install(redis_broker))
    wait_until(lambda: running.beat.lease.trusted, "a leader")
    ran = app.beat(app.on_redis(TWO))
    assert ran.code == 0
    assert ran.err == "Another beat is on duty; nothing was done.\n"


def test_a_function_may_set_the_broker_up(app: App) -> None:
    body = "".join(f"    {line}\n" for line in STUB.splitlines())
    name = app.module(f"def setup():\n{body}    return broker\n")
    assert app.beat(f"{name}:setup").code == 0


def test_a_broker_may_be_deeper_in_the_module(app: App) -> None:
    assert app.beat(f"{app.stub(NIGHTLY + 'class config:' + chr(10) + '    b = broker')}:config.b").code == 0


def test_more_modules_bring_more_schedules(app: App) -> None:
    name = app.stub(NIGHTLY)
    more = app.module(
        "import dramatiq\nfrom dramatiq_distcron import every\n@dramatiq.actor(periodic=every(60))\ndef m(): ...\n"
    )
    out = app.beat(name, more).out
    assert [line.split()[0] for line in out.splitlines()[1:-1]] == ["m", "nightly"]


# -- list, history, status, trigger -------------------------------------------------------------------------


@pytest.fixture
def shop(app: App) -> App:
    """An app whose beat ran once."""
    assert app.beat(app.on_redis(TWO)).code == 0
    return app


def set_due(app: App, client: Any, name: str, fire_time: int) -> None:
    client.zadd(f"{app.namespace}:distcron:default:due", {name: fire_time})


def assert_iso(*values: Any) -> None:
    for value in values:
        assert ISO.fullmatch(value), value


def test_list_in_json_has_exactly_the_keys_it_promises(shop: App) -> None:
    found = shop.state("list", "--json").json
    assert set(found) == {"schedules"}
    hourly, report = found["schedules"]
    assert set(report) == {
        "name", "actor", "queue", "kind", "expression", "timezone", "next_fire_time", "last_fire_time",
        "last_outcome", "paused", "source", "state",
    }  # fmt: skip
    assert set(hourly) == set(report)


def test_list_in_json_tells_what_is_stored(shop: App) -> None:
    hourly, report = shop.state("list", "--json").json["schedules"]
    assert_iso(report["next_fire_time"], hourly["next_fire_time"])
    assert (report["name"], report["actor"], report["queue"]) == ("report:7", "report", "reports")
    assert (report["kind"], report["expression"], report["timezone"]) == ("cron", "0 3 * * *", "Europe/Berlin")
    assert (report["last_fire_time"], report["last_outcome"], report["paused"]) == (None, None, False)
    assert (report["source"], report["state"]) == ("code", "active")
    assert (hourly["kind"], hourly["expression"], hourly["timezone"]) == ("every", "every 1:00:00", None)


def test_list_shows_the_same_to_people(shop: App) -> None:
    head, hourly, report = shop.state("list").out.splitlines()
    assert head.split() == ["SCHEDULE", "WHEN", "ZONE", "ACTOR", "STATE", "NEXT", "LAST", "OUTCOME"]
    assert hourly.startswith("hourly")
    assert re.search(r"report:7 +0 3 \* \* \* +Europe/Berlin +report +active +\d{4}-.*Z \(in .+\) +- +-$", report)


def test_list_of_nothing_is_an_empty_list(app: App) -> None:
    assert app.state("list", "--json").json == {"schedules": []}
    assert app.state("list").code == 0


def test_a_schedule_that_the_code_no_longer_knows_is_listed_as_retired(shop: App) -> None:
    shop.beat(shop.on_redis("@dramatiq.actor(periodic=every(hours=1))\ndef hourly(): ...\n"))
    states = {one["name"]: one["state"] for one in shop.state("list", "--json").json["schedules"]}
    assert states == {"hourly": "active", "report:7": "retired"}


def test_a_schedule_that_cannot_be_read_is_listed_as_disabled(shop: App, client: Any) -> None:
    client.hset(f"{shop.namespace}:distcron:default:schedules", "bad", "{rubbish")
    schedules = {one["name"]: one for one in shop.state("list", "--json").json["schedules"]}
    assert schedules["bad"]["state"] == "disabled"
    assert shop.state("list").code == 0


def test_history_in_json_has_exactly_the_keys_it_promises(shop: App, client: Any) -> None:
    week = 7 * 86_400_000
    fire_time = int(client.time()[0]) * 1000 // week * week
    weekly = "@dramatiq.actor(periodic=every(weeks=1))\ndef weekly(): ...\n"
    shop.beat(shop.on_redis(weekly))
    set_due(shop, client, "weekly", fire_time - 5 * week)
    assert shop.beat(shop.on_redis(weekly)).code == 0
    found = shop.state("history", "weekly", "--json").json
    assert set(found) == {"ticks"}
    enqueued, missed = found["ticks"]
    for tick in (enqueued, missed):
        assert set(tick) == {
            "schedule", "fire_time", "fire_time_to", "count", "outcome", "message_id", "decided_at", "lateness_ms",
            "term", "holder", "reason", "run",
        }  # fmt: skip
        assert_iso(tick["fire_time"], tick["fire_time_to"], tick["decided_at"])
    assert (missed["outcome"], missed["count"], missed["reason"]) == ("missed", 5, "catch_up=latest")
    assert (missed["message_id"], missed["lateness_ms"]) == (None, None)
    assert (enqueued["outcome"], enqueued["count"], enqueued["fire_time"]) == ("enqueued", 1, enqueued["fire_time_to"])
    assert enqueued["message_id"] == tick_id(shop.namespace, "default", "weekly", fire_time)
    assert enqueued["lateness_ms"] >= 0
    assert enqueued["term"] == missed["term"] > 0
    assert re.fullmatch("[0-9a-f]{32}", enqueued["holder"])


def test_list_tells_the_last_outcome(shop: App, client: Any) -> None:
    set_due(shop, client, "hourly", 3_600_000)
    shop.beat(shop.on_redis(TWO))
    hourly, _ = shop.state("list", "--json").json["schedules"]
    assert hourly["last_outcome"] == "enqueued"
    assert_iso(hourly["last_fire_time"])


def test_history_shows_the_same_to_people(shop: App) -> None:
    shop.state("trigger", "hourly")
    head, row = shop.state("history", "hourly").out.splitlines()
    assert head.split() == ["FIRE", "TIME", "COUNT", "OUTCOME", "LATE", "MESSAGE", "REASON"]
    assert re.search(r"Z \((.+ ago|in 0 s)\) +1 +enqueued +0 ms +[0-9a-f-]{36} +triggered$", row)


def test_history_shows_the_newest_first_and_not_more_than_asked_for(shop: App) -> None:
    ids = [shop.state("trigger", "hourly", "--json").json["message_id"] for _ in range(3)]
    shown = [tick["message_id"] for tick in shop.state("history", "hourly", "--json", "-n", "2").json["ticks"]]
    assert shown == ids[:0:-1]


def test_history_of_a_schedule_that_never_fired_is_empty(shop: App) -> None:
    assert shop.state("history", "hourly", "--json").json == {"ticks": []}


@pytest.mark.parametrize("verb", ["history", "trigger", "show", "pause", "resume", "remove"])
@pytest.mark.parametrize("mode", [[], ["--json"]], ids=["table", "json"])
def test_a_schedule_that_is_not_there_is_told_with_the_nearest_name(shop: App, verb: str, mode: list[str]) -> None:
    ran = shop.state(verb, "report7", *mode)
    assert (ran.code, ran.out) == (7, "")
    assert ran.err == "dramatiq-distcron: There is no schedule 'report7'. Did you mean 'report:7'?\n"


def test_where_no_schedule_is_it_is_told(app: App) -> None:
    ran = app.state("trigger", "report:7")
    assert (ran.code, ran.err) == (7, "dramatiq-distcron: There is no schedule 'report:7'. None is known.\n")


def test_trigger_enqueues_the_message_of_the_schedule_without_the_apps_code(
    shop: App, redis_broker: RedisBroker
) -> None:
    ran = shop.state("trigger", "report:7", "--json")
    assert set(ran.json) == {"schedule", "message_id", "actor", "queue"}
    assert (ran.json["schedule"], ran.json["actor"], ran.json["queue"]) == ("report:7", "report", "reports")
    (message,) = queued(redis_broker, "reports")
    assert (message.message_id, message.actor_name, message.args) == (ran.json["message_id"], "report", (7,))
    assert message.options["distcron"]["schedule"] == "report:7"


def test_trigger_leaves_the_fire_times_alone(shop: App) -> None:
    before = shop.state("list", "--json").json["schedules"][0]["next_fire_time"]
    shop.state("trigger", "hourly")
    assert shop.state("list", "--json").json["schedules"][0]["next_fire_time"] == before


def test_trigger_tells_people_what_it_did(shop: App) -> None:
    out = shop.state("trigger", "report:7").out
    assert re.fullmatch(r"Enqueued report on 'reports' as message [0-9a-f-]{36}\.\n", out)


def test_verbs_work_with_the_apps_code_as_well(shop: App, redis_broker: RedisBroker) -> None:
    name = shop.on_redis(TWO)
    where = ("--broker", name, f"--path={shop.folder}")
    assert len(shop.run("list", "--json", *where).json["schedules"]) == 2
    assert shop.run("trigger", "hourly", *where).code == 0
    assert [message.actor_name for message in queued(redis_broker)] == ["hourly"]


def test_a_trigger_that_a_middleware_refuses_is_an_error_of_one_line(shop: App) -> None:
    name = shop.on_redis(
        "from dramatiq.middleware import Middleware, MiddlewareError\n"
        "class Veto(Middleware):\n"
        "    def before_enqueue(self, broker, message, delay): raise MiddlewareError('not paid')\n"
        f"broker.add_middleware(Veto())\n{TWO}"
    )
    ran = shop.run("trigger", "hourly", "--broker", name, f"--path={shop.folder}")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.endswith("A middleware refused the message: MiddlewareError: not paid\n")
    assert ran.err.count("\n") == 1


def test_status_without_a_leader_says_so(app: App, server: Server) -> None:
    found = app.state("status", "--json").json
    assert set(found) == {"leader", "instances", "redis"}
    assert (found["leader"], found["instances"]) == (None, [])
    assert found["redis"]["url"] == server.url
    assert found["redis"]["server"] in ("redis", "valkey")
    assert found["redis"]["version"] == server.version
    assert "Leader: none. Start one with: dramatiq-distcron beat BROKER" in app.state("status").out


@pytest.fixture
def leader(app: App, redis_broker: RedisBroker, start_beat: Callable[..., Running]) -> Running:
    distcron: DistCron = install(redis_broker)

    @dramatiq.actor(broker=redis_broker, periodic=every(3600))
    def hourly() -> None: ...

    running = start_beat(distcron)
    wait_until(lambda: app.state("status", "--json").json["instances"], "a beat that told of itself")
    return running


def test_status_in_json_has_exactly_the_keys_it_promises(app: App, leader: Running) -> None:
    found = app.state("status", "--json").json
    assert set(found["leader"]) == {"holder", "term", "since"}
    (instance,) = found["instances"]
    assert set(instance) == {"holder", "role", "host", "pid", "version", "started_at", "last_pass_at"}


def test_status_tells_who_leads_and_since_when(app: App, leader: Running) -> None:
    found = app.state("status", "--json").json
    assert_iso(found["leader"]["since"])
    assert (found["leader"]["holder"], found["leader"]["term"]) == (leader.beat.holder, leader.beat.lease.term)
    (instance,) = found["instances"]
    assert_iso(instance["started_at"], instance["last_pass_at"])
    assert (instance["holder"], instance["role"], instance["pid"]) == (leader.beat.holder, "leader", os.getpid())
    assert (instance["host"], instance["version"]) == (socket.gethostname(), VERSION)


def test_status_shows_the_same_to_people(app: App, leader: Running) -> None:
    who, head, row, server = app.state("status").out.splitlines()
    assert who.startswith(f"Leader: {leader.beat.holder}, term {leader.beat.lease.term}, since 2")
    assert head.split() == ["ROLE", "HOST", "PID", "VERSION", "STARTED", "LAST", "PASS", "HOLDER"]
    assert row.startswith("leader ")
    assert row.endswith(leader.beat.holder)
    assert server.startswith("Redis: ")


def test_status_shows_no_password(app: App, server: Server, client: Any, namespace: str) -> None:
    client.execute_command("ACL", "SETUSER", namespace, "on", f">{SECRET}", "~*", "+@all")
    try:
        where = f"--redis-url=redis://{namespace}:{SECRET}@127.0.0.1:{server.port}/0"
        for mode in ([], ["--json"]):
            ran = app.run("status", where, *mode)
            assert ran.code == 0
            assert f"redis://{namespace}:***@127.0.0.1:{server.port}/0" in ran.out
            assert SECRET not in ran.out + ran.err
    finally:
        client.execute_command("ACL", "DELUSER", namespace)


def test_a_missing_right_is_told_with_what_was_refused(app: App, server: Server, client: Any, namespace: str) -> None:
    client.execute_command("ACL", "SETUSER", namespace, "on", f">{SECRET}", "~*", "+@all", "-hscan")
    try:
        ran = app.run("list", f"--redis-url=redis://{namespace}:{SECRET}@127.0.0.1:{server.port}/0")
        assert ran.code == 3
        assert "hscan" in ran.err.lower()
        assert ran.err.count("\n") == 1
    finally:
        client.execute_command("ACL", "DELUSER", namespace)


# -- beats as processes -------------------------------------------------------------------------------------


def line_of(process: subprocess.Popen[str], what: str) -> str:
    """The first line of the log that contains ``what``."""
    assert process.stderr is not None
    for line in process.stderr:
        if what in line:
            return line
    raise AssertionError(f"it ended with {process.wait()} and did not say {what!r}")


Start: TypeAlias = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(app: App) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def do(*argv: str) -> subprocess.Popen[str]:
        running.append(app.start(*argv))
        return running[-1]

    yield do
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_beat_ends_well_when_it_is_told_to(app: App, start: Start, number: signal.Signals) -> None:
    process = start("beat", app.stub(NIGHTLY))
    line_of(process, "Leading since")
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in err


def test_a_beat_keeps_its_pid_file_as_long_as_it_runs(app: App, start: Start) -> None:
    file = app.folder / "beat.pid"
    process = start("beat", app.stub(NIGHTLY), "--pid-file", str(file))
    line_of(process, "Leading since")
    assert file.read_text().strip() == str(process.pid)
    process.terminate()
    process.communicate(timeout=20)
    assert not file.exists()


def test_a_second_beat_does_not_take_the_pid_file_of_the_first(app: App, start: Start) -> None:
    file, name = app.folder / "beat.pid", app.stub(NIGHTLY)
    first = start("beat", name, "--pid-file", str(file))
    line_of(first, "Leading since")
    ran = app.beat(name, "--pid-file", str(file))
    assert ran.code == 4
    assert f"a beat runs as process {first.pid}" in ran.err
    assert file.read_text().strip() == str(first.pid)


def test_a_pid_file_that_is_something_else_or_cannot_be_written_is_refused(app: App) -> None:
    other = app.folder / "important"
    other.write_text("data")
    name = app.stub(NIGHTLY)
    assert "is not a pid file" in app.refused(4, name, "--pid-file", str(other))
    assert "cannot be written" in app.refused(4, name, "--pid-file", str(app.folder / "missing" / "beat.pid"))
    assert other.read_text() == "data"


def test_the_pid_file_of_a_beat_that_was_killed_is_taken_over(app: App, start: Start) -> None:
    file, name = app.folder / "beat.pid", app.stub(NIGHTLY)
    first = start("beat", name, "--pid-file", str(file))
    line_of(first, "Leading since")
    first.kill()
    first.communicate()
    assert file.exists()
    assert app.beat(name, "--pid-file", str(file)).code == 0
    assert not file.exists()


def test_the_log_goes_to_stderr_and_the_schedules_to_stdout(app: App, start: Start) -> None:
    out, err = start("beat", app.stub(NIGHTLY), "--once").communicate(timeout=20)
    assert out.startswith("SCHEDULE")
    assert "nightly" not in err.partition("Schedules added")[0]
    assert re.search(r"\[PID \d+\] \[MainThread\] \[dramatiq_distcron\.\S+\] \[INFO\] ", err)


def test_the_log_may_be_json_lines_in_a_file(app: App, start: Start) -> None:
    file = app.folder / "beat.log"
    process = start("beat", app.stub(NIGHTLY), "--once", "--log-file", str(file), "--log-format", "json")
    assert process.communicate(timeout=20)[1] == ""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)


def test_a_log_file_that_cannot_be_written_is_refused_in_one_line(app: App, start: Start) -> None:
    process = start("beat", app.stub(NIGHTLY), "--once", "--log-file", str(app.folder / "missing" / "beat.log"))
    _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "Traceback" not in err
    assert "beat.log" in err


def test_with_logging_left_to_the_app_nothing_is_set_up(app: App, start: Start) -> None:
    _, err = start("beat", app.stub(NIGHTLY), "--once", "--skip-logging").communicate(timeout=20)
    assert err == ""


def test_verbose_shows_more(app: App, start: Start) -> None:
    head = "import logging\nlogging.getLogger('app').debug('from the app')\n"
    quiet, loud = (
        start("beat", app.stub(NIGHTLY, head=head), "--once", *more).communicate(timeout=20)[1] for more in ([], ["-v"])
    )
    assert "from the app" not in quiet
    assert "from the app" in loud


def test_without_redis_a_beat_names_it_at_once_and_waits(app: App, start: Start, closed_port: int) -> None:
    process = start("beat", app.on_redis(TWO, url=f"redis://:{SECRET}@127.0.0.1:{closed_port}/0"))
    line = line_of(process, "does not answer")
    assert f"redis://:***@127.0.0.1:{closed_port}/0" in line
    assert process.poll() is None
    process.terminate()
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert SECRET not in line + out + err


def test_a_reader_that_has_seen_enough_is_no_error(shop: App, start: Start) -> None:
    process = start("list", f"--redis-url={shop.url}", f"--namespace={shop.namespace}")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate(timeout=20)[1] == ""
    assert process.returncode == 0
