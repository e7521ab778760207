"""Apps that cannot be loaded: each is refused in one line that says what to do."""

from __future__ import annotations

import re

import pytest

from tests.integration.cli.apps import NIGHTLY, STUB, App


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
    assert f"Brokers in it: {name}:broker, {name}:second." in message


def test_a_name_that_is_not_in_the_module_is_refused_with_the_names_found(app: App) -> None:
    name = app.stub(NIGHTLY)
    assert app.refused(2, f"{name}:borker") == f"Module {name!r} has no 'borker'. Brokers in it: {name}:broker."


def test_something_that_is_no_broker_is_refused_with_the_names_found(app: App) -> None:
    name = app.stub("x = 5\n")
    assert app.refused(2, f"{name}:x") == f"{name}:x is not a broker but 5. Brokers in it: {name}:broker."


def test_a_function_that_fails_is_refused_with_its_error_and_the_line(app: App) -> None:
    name = app.module("def setup():\n    raise RuntimeError('no database')\n")
    message = app.refused(2, f"{name}:setup")
    assert message == f"{name}:setup() failed: RuntimeError: no database ({app.folder}/{name}.py, line 2)."


@pytest.mark.parametrize("code", ["0", "3", "'no configuration'"])
def test_a_function_that_ends_the_process_is_refused_as_a_module_that_does(app: App, code: str) -> None:
    name = app.module(f"import sys\ndef setup():\n    sys.exit({code})\n")
    assert app.refused(2, f"{name}:setup") == f"{name}:setup() failed: it ends the program with sys.exit({code})."


SETUP = """
def setup():
    broker = StubBroker()
    dramatiq.set_broker(broker)
"""


def test_a_function_that_declares_periodic_actors_before_the_middleware_is_told_so(app: App) -> None:
    name = app.stub(SETUP + "    dramatiq.actor(periodic=every(5))(print)\n    install(broker)\n")
    message = app.refused(2, f"{name}:setup")
    assert message.startswith(f"In {name}:setup() an actor with periodic= is declared before its broker has the")
    assert re.search(r"\.py, line \d+\)", message)


def test_an_option_that_is_misspelt_in_a_function_is_told_with_the_nearest(app: App) -> None:
    name = app.stub(SETUP + "    install(broker)\n    dramatiq.actor(peridoic=None)(print)\n")
    message = app.refused(2, f"{name}:setup")
    assert message.startswith(f"In {name}:setup() an actor has the option 'peridoic', which does not exist (")
    assert message.endswith("Did you mean 'periodic'?")


def test_a_schedule_that_is_refused_in_a_function_is_told_with_the_line(app: App) -> None:
    name = app.stub(SETUP + '    cron("61 * * * *")\n')
    assert re.search(r"minute goes from 0 to 59 \(.*\.py, line \d+\)$", app.refused(2, f"{name}:setup"))


def test_a_broker_without_the_middleware_is_refused_with_what_to_do(app: App) -> None:
    name = app.module(
        "import dramatiq\nfrom dramatiq.brokers.stub import StubBroker\ndramatiq.set_broker(StubBroker())\n"
    )
    message = app.refused(2, name)
    assert message.startswith("StubBroker has no DistCron middleware. Call dramatiq_distcron.install(broker)")


def test_if_another_broker_of_the_module_is_meant_it_is_named(app: App) -> None:
    name = app.stub("dramatiq.set_broker(StubBroker())\n")
    assert f"Brokers in it: {name}:broker." in app.refused(2, name)


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
    ("given", "told"),
    [
        ("30", "Did you mean periodic=every(30)?"),
        ("__import__('datetime').timedelta(60)", "Did you mean periodic=every(datetime.timedelta(days=60))?"),
        ("CronTrigger(hour=3)", "Give a trigger of APScheduler 3 to from_apscheduler(trigger)."),
        ("CronSpec()", "Import cron from dramatiq_distcron, and not from periodiq."),
        ("object()", ">."),
    ],
)
def test_a_schedule_of_another_package_is_refused_with_what_to_write(app: App, given: str, told: str) -> None:
    name = app.stub(
        "from apscheduler.triggers.cron import CronTrigger\nclass CronSpec: __module__ = 'periodiq'\n"
        f"@dramatiq.actor(periodic={given})\ndef job(): ...\n"
    )
    assert f"{told} (" in app.refused(2, name)


def test_a_value_that_a_dataclass_refuses_is_told_with_the_apps_line(app: App) -> None:
    name = app.stub("from dramatiq_distcron import RetryBudget\nRetryBudget('a', ratio=-1)\n")
    assert re.search(rf"{name}\.py, line \d+\)$", app.refused(2, name))


def test_an_actor_in_the_place_of_the_broker_is_refused_and_not_run(app: App) -> None:
    name = app.stub("@dramatiq.actor\ndef job(): raise SystemExit(99)\n")
    assert app.refused(2, f"{name}:job") == f"{name}:job is an actor and not a broker. Brokers in it: {name}:broker."


def test_a_class_of_an_actor_in_the_place_of_the_broker_is_not_run_either(app: App) -> None:
    job = """
class Job(dramatiq.GenericActor):
    def perform(self): raise SystemExit(77)
"""
    name = app.stub(job)
    assert app.refused(2, f"{name}:Job") == f"{name}:Job is an actor and not a broker. Brokers in it: {name}:broker."


@pytest.mark.parametrize(
    ("actors", "told"),
    [
        ('@dramatiq.actor(periodic=cron("0 3 * * *", catchup="all"))\ndef job(): ...', "Did you mean 'catch_up'?"),
        ("@dramatiq.actor(periodic=every(60, overlop='skip'))\ndef job(): ...", "Did you mean 'overlap'?"),
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
    name = app.stub("@dramatiq.actor(periodic=every(60, args=(object(),)))\ndef job(it): ...\n")
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


def test_a_broker_on_no_redis_is_refused_with_how_to_say_where_the_state_is(app: App) -> None:
    name = app.module(
        "import dramatiq\nfrom dramatiq_distcron import cron, install\n"
        "class Carrier(dramatiq.Broker):\n"
        "    def declare_queue(self, queue_name): pass\n"
        f"broker = Carrier()\ninstall(broker)\ndramatiq.set_broker(broker)\n{NIGHTLY}"
    )
    message = app.refused(5, name)
    assert message == (
        "Carrier is not on Redis, and the state of the schedules is: say where with install(broker, "
        "redis='redis://...') or DISTCRON_REDIS_URL."
    )


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
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    (warning,) = [text for text in told if "StubBroker" not in text]
    assert warning.startswith(f"No schedules were found. Modules scanned: {name}, {more}, with the actors plain.")
    assert f"dramatiq-distcron beat {name} MODULE" in warning


def test_a_file_is_refused_with_the_name_of_its_module(app: App) -> None:
    name = app.stub(NIGHTLY)
    for given in (f"{name}.py", f"./{name}.py", f"./{name}"):
        assert app.refused(2, given) == f"{given!r} is a file. Name the module, as for import; here: {name}."
    assert app.refused(2, "shop/tasks.py").endswith("here: shop.tasks.")
    assert app.refused(2, f"{app.folder}/{name}.py").endswith("its folder goes to --path.")
    assert app.refused(2, name, f"./{name}.py").endswith(f"here: {name}.")


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("peridoic", "'periodic'"),
        ("max_retris", "'max_retries'"),
        ("max_retry", "'max_retry_age' or 'max_retries'"),
    ],
)
def test_an_option_of_an_actor_that_is_misspelt_is_told_with_the_nearest(app: App, option: str, meant: str) -> None:
    name = app.stub(f"@dramatiq.actor({option}=None)\ndef job(): ...\n")
    message = app.refused(2, name)
    assert message.startswith(f"In module {name!r} an actor has the option {option!r}, which does not exist (")
    assert message.endswith(f"Did you mean {meant}?")
    assert re.search(r"\.py, line \d+\)", message)


def test_an_option_that_is_like_none_is_told_in_dramatiqs_words(app: App) -> None:
    name = app.stub("@dramatiq.actor(zzz=1)\ndef job(): ...\n")
    assert "The following actor options are undefined: zzz" in app.refused(2, name)
