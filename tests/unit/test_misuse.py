"""Whatever a public function is given: it takes it, or says in an error of ours what it takes. By a table."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker

from dramatiq_distcron import (
    BackoffRetries,
    ConfigurationError,
    DeadLetters,
    DistCron,
    DistCronError,
    NotFoundError,
    Retention,
    RetryAfter,
    RetryBudget,
    Schedule,
    ScheduleError,
    any_of,
    at,
    constant,
    cron,
    delays,
    every,
    exponential,
    from_apscheduler,
    get_distcron,
    install,
    linear,
)
from dramatiq_distcron.testing import MemoryStore, SettableClock, run_ticks
from tests.support import Shy, nested
from tests.unit.world import BEGIN, World


def in_itself() -> list[Any]:
    found: list[Any] = []
    found += [found, found]
    return found


ODD: dict[str, Any] = {
    "None": None,
    "True": True,
    "0": 0,
    "5": 5,
    "-1": -1,
    "1.5": 1.5,
    "huge": 10**400,
    "nan": math.nan,
    "inf": math.inf,
    "decimal": Decimal(5),
    "empty": "",
    "x": "x",
    "lines": "a\nb",
    "half": "\ud800",
    "long": "x" * 5000,
    "bytes": b"",
    "list": [],
    "dict": {},
    "set": {1},
    "nested": nested(900),
    "deep": nested(100_000),
    "in itself": in_itself(),
    "object": object(),
    "shy": Shy(),
    "function": lambda *args: None,
    "class": int,
    "naive": datetime(2026, 1, 1),
    "aware": BEGIN,
    "first": datetime.min.replace(tzinfo=timezone.utc),
    "last": datetime.max.replace(tzinfo=timezone.utc),
    "negative": timedelta(seconds=-5),
    "longest": timedelta.max,
}
TEXTS = "empty x lines half long"
POSITIVE = "5 1.5"
DURATION = f"0 {POSITIVE}"
INSTANT = "aware first last"
ENCODABLE = f"None True 0 5 -1 1.5 huge nan inf {TEXTS} list dict"
#: What Dramatiq takes for nothing, and so do we.
NOTHING = "None 0 empty bytes list dict"

Call = Callable[[World, Any], object]
CASES: dict[str, tuple[Call, str]] = {}


def case(name: str, call: Call, takes: str = "") -> None:
    """``takes`` names the odd values that are none to ``call``."""
    CASES[name] = (call, takes)


# -- distcron.schedules and distcron.retries ----------------------------------------------------------------

for verb in ("get", "remove", "pause", "resume", "trigger"):
    case(f"schedules.{verb}(_)", lambda world, odd, verb=verb: getattr(world.distcron.schedules, verb)(odd))
case("schedules.history(_)", lambda world, odd: world.distcron.schedules.history(odd), "None")
case("schedules.history(limit=_)", lambda world, odd: world.distcron.schedules.history(limit=odd), "5 huge")
case("schedules.put(_, actor)", lambda world, odd: world.distcron.schedules.put(odd, "job"))
case("schedules.put(schedule, _)", lambda world, odd: world.distcron.schedules.put(every(5, name="q"), odd))
case("schedules.put_many(_)", lambda world, odd: world.distcron.schedules.put_many(odd), "list")
case("schedules.put_many([_])", lambda world, odd: world.distcron.schedules.put_many([odd]))
case(
    "schedules.pause(reason=_)",
    lambda world, odd: world.distcron.schedules.pause("t", reason=odd),
    "empty x lines long",
)
case("schedules.pause(until=_)", lambda world, odd: world.distcron.schedules.pause("t", until=odd), "None last")
for verb in ("run_now", "cancel"):
    case(f"retries.{verb}(_)", lambda world, odd, verb=verb: getattr(world.distcron.retries, verb)(odd))
for which in ("actor", "queue"):
    case(
        f"retries.list({which}=_)",
        lambda world, odd, which=which: world.distcron.retries.list(**{which: odd}),
        "None x lines half long",
    )
case("retries.list(limit=_)", lambda world, odd: world.distcron.retries.list(limit=odd), "5 huge")


# -- distcron.dead_letters --------------------------------------------------------------------------------------

for verb in ("get", "redrive", "discard"):
    case(f"dead_letters.{verb}(_)", lambda world, odd, verb=verb: getattr(world.distcron.dead_letters, verb)(odd))
case("dead_letters.export(_)", lambda world, odd: list(world.distcron.dead_letters.export(odd)), "x lines long list")
case("dead_letters.missing(_)", lambda world, odd: world.distcron.dead_letters.missing(odd), "x lines long list")
case("dead_letters.import_(_)", lambda world, odd: world.distcron.dead_letters.import_(odd), "empty list bytes dict")
case("dead_letters.import_([_])", lambda world, odd: world.distcron.dead_letters.import_([odd]), "empty")
case("dead_letters.adopt(_)", lambda world, odd: world.distcron.dead_letters.adopt(odd))
case("dead_letters.page(cursor=_)", lambda world, odd: world.distcron.dead_letters.page(cursor=odd), "None")
for verb in ("list", "page", "fill"):
    case(
        f"dead_letters.{verb}(limit=_)",
        lambda world, odd, verb=verb: getattr(world.distcron.dead_letters, verb)(limit=odd),
        "5 huge",
    )
for verb in ("list", "count", "export"):
    for which in ("actor", "queue", "error", "fingerprint", "schedule", "text"):
        case(
            f"dead_letters.{verb}({which}=_)",
            lambda world, odd, verb=verb, which=which: getattr(world.distcron.dead_letters, verb)(**{which: odd}),
            "None x lines long",
        )
    case(
        f"dead_letters.{verb}(reason=_)",
        lambda world, odd, verb=verb: getattr(world.distcron.dead_letters, verb)(reason=odd),
        "None",
    )
    for which in ("since", "until"):
        case(
            f"dead_letters.{verb}({which}=_)",
            lambda world, odd, verb=verb, which=which: getattr(world.distcron.dead_letters, verb)(**{which: odd}),
            f"None 0 5 {INSTANT}",
        )
case("dead_letters.redrive(all=_)", lambda world, odd: world.distcron.dead_letters.redrive(all=odd), "True")
for which in ("limit", "rate"):
    case(
        f"dead_letters.redrive({which}=_)",
        lambda world, odd, which=which: world.distcron.dead_letters.redrive(all=True, **{which: odd}),
        "None 5 huge" if which == "limit" else "None 5 1.5 huge inf",
    )
case(
    "dead_letters.redrive(progress=_)",
    lambda world, odd: world.distcron.dead_letters.redrive(all=True, progress=odd),
    "None function class",
)
for verb in ("handler", "on_drop"):
    case(
        f"dead_letters.{verb}(_)",
        lambda world, odd, verb=verb: getattr(world.distcron.dead_letters, verb)(odd),
        "function class",
    )
for name, takes in {
    "max_age": "None 5 1.5",
    "max_count": "None 5 huge",
    "per_actor": "None dict",
    "redact": "None function class",
}.items():
    case(f"DeadLetters({name}=_)", lambda world, odd, name=name: DeadLetters(**{name: odd}), takes)
    if name.startswith("max"):
        case(f"Retention({name}=_)", lambda world, odd, name=name: Retention(**{name: odd}), takes)


def put_and_trigger(world: World, **options: Any) -> None:
    world.distcron.schedules.put(every(5, name="q", **options), "job")
    world.distcron.schedules.trigger("q")


case("arguments that are put and triggered", lambda world, odd: put_and_trigger(world, args=(odd,)), ENCODABLE)
case(
    "message options that are put and triggered",
    lambda world, odd: put_and_trigger(world, options={"a": odd}),
    ENCODABLE,
)

# -- the middleware -----------------------------------------------------------------------------------------

case("install(_)", lambda world, odd: install(odd))
case("get_distcron(_)", lambda world, odd: get_distcron(odd))
OF_POLICIES = {
    "catch_up": "",
    "overlap": "",
    "misfire_grace_time": f"None {POSITIVE}",
    "overlap_timeout": f"None {POSITIVE}",
    "spread": f"None {POSITIVE}",
    "expires": f"None {POSITIVE}",
    "max_catch_up": "5",
    "max_queue_length": "None 5",
    "start": f"None {INSTANT}",
    "end": f"None {INSTANT}",
    "enabled": "True",
    "run_at_start": "True",
}
OF_DISTCRON = {
    "redis": "None",
    "app": "x",
    "namespace": "None x long",
    "tz": "",
    "lease_ttl": POSITIVE,
    "history_size": "",
    "wait_replicas": "0 5",
}
for name, takes in {**OF_POLICIES, **OF_DISTCRON}.items():
    case(f"DistCron({name}=_)", lambda world, odd, name=name: DistCron(**{name: odd}), takes)
OF_RETRIES = {
    "max_retries": "None True 0 5 -1 1.5 huge inf",
    "min_backoff": f"None {DURATION}",
    "max_backoff": f"None {DURATION}",
    "max_retry_age": f"None {DURATION}",
    "max_deliveries": "None 5 huge",
    "retry_when": "None function class",
    "backoff": f"None {DURATION} dict function",
    "retry_budget": "None x",
}
for name, takes in {**OF_RETRIES, "rng": "None"}.items():
    case(f"BackoffRetries({name}=_)", lambda world, odd, name=name: BackoffRetries(**{name: odd}), takes)


def declare(world: World, **options: Any) -> None:
    dramatiq.actor(lambda: None, actor_name="other", broker=world.broker, **options)


OF_ACTORS = {"throws": f"{NOTHING} class", "on_retry_exhausted": f"{NOTHING} {TEXTS}", "periodic": "list"}
for name, takes in {**OF_RETRIES, **OF_ACTORS}.items():
    case(f"@actor({name}=_)", lambda world, odd, name=name: declare(world, **{name: odd}), takes)
case("@actor(periodic=[_])", lambda world, odd: declare(world, periodic=[odd]))

# -- schedules ----------------------------------------------------------------------------------------------

OF_SCHEDULES = {**OF_POLICIES, "name": "None x", "args": "list", "kwargs": "dict", "options": "dict"}
for name, takes in {**OF_SCHEDULES, "tz": "None", "seconds": "None"}.items():
    case(f"cron({name}=_)", lambda world, odd, name=name: cron("0 3 * * *", **{name: odd}), takes)
case("cron(_)", lambda world, odd: cron(odd))
case("every(_)", lambda world, odd: every(odd), POSITIVE)
case("every(anchor=_)", lambda world, odd: every(60, anchor=odd), f"None {INSTANT}")
for name in ("weeks", "days", "hours", "minutes", "seconds"):
    case(f"every({name}=_)", lambda world, odd, name=name: every(**{name: odd}), POSITIVE)
case("at(_)", lambda world, odd: at(odd), INSTANT)
case("any_of(schedule, _)", lambda world, odd: any_of(every(60), odd))
case("from_apscheduler(_)", lambda world, odd: from_apscheduler(odd))
case("Schedule(_)", lambda world, odd: Schedule(odd))
case("Schedule(name=_)", lambda world, odd: Schedule(every(60).timing, name=odd), "None x")
case("every.next_after(_)", lambda world, odd: every(60).next_after(odd), INSTANT)
case("cron.next_after(_)", lambda world, odd: cron("0 3 * * *", tz="Europe/Berlin").next_after(odd), INSTANT)
case("schedule(_)", lambda world, odd: every(60)(odd))

# -- retries ------------------------------------------------------------------------------------------------

RNG = random.Random(1)
GROWS = exponential(jitter="decorrelated")
for jitter_of in (exponential, linear):
    case(f"{jitter_of.__name__}(base=_)", lambda world, odd, of=jitter_of: of(odd), DURATION)
    case(f"{jitter_of.__name__}(cap=_)", lambda world, odd, of=jitter_of: of(1, cap=odd), POSITIVE)
    case(f"{jitter_of.__name__}(jitter=_)", lambda world, odd, of=jitter_of: of(jitter=odd), DURATION)
case("exponential(factor=_)", lambda world, odd: exponential(factor=odd), POSITIVE)
case("linear(step=_)", lambda world, odd: linear(step=odd), f"None {DURATION}")
case("constant(_)", lambda world, odd: constant(odd), DURATION)
case("constant(jitter=_)", lambda world, odd: constant(5, jitter=odd), DURATION)
case("delays(_)", lambda world, odd: delays(odd), DURATION)
case("delays(jitter=_)", lambda world, odd: delays(5, jitter=odd), DURATION)
for name, growth in {
    "exponential": exponential(),
    "linear": linear(),
    "delays": delays(5),
    "decorrelated": GROWS,
}.items():
    case(f"{name}.delay(_)", lambda world, odd, of=growth: of.delay(odd, rng=RNG), "True 0 5 huge")
    case(f"{name}.bounds(_)", lambda world, odd, of=growth: of.bounds(odd), "True 0 5 huge")
    case(f"{name}.grown(_)", lambda world, odd, of=growth: of.grown(odd), "True 0 5 huge")
case("delay(rng=_)", lambda world, odd: exponential().delay(1, rng=odd))
case("delay(previous=_)", lambda world, odd: GROWS.delay(1, rng=RNG, previous=odd), "None True 0 5 -1 1.5 huge nan inf")
case("RetryAfter(_)", lambda world, odd: RetryAfter(odd), f"None -1 {DURATION} {TEXTS} {INSTANT} negative")
case("RetryAfter(cap=_)", lambda world, odd: RetryAfter(5, cap=odd), DURATION)
case("RetryAfter(jitter=_)", lambda world, odd: RetryAfter(5, jitter=odd), DURATION)
case("RetryAfter(message=_)", lambda world, odd: RetryAfter(5, message=odd), TEXTS)
case("RetryBudget(_)", lambda world, odd: RetryBudget(odd), "None x")
case("RetryBudget(ratio=_)", lambda world, odd: RetryBudget(ratio=odd), DURATION)
case("RetryBudget(floor=_)", lambda world, odd: RetryBudget(floor=odd), POSITIVE)
case("RetryBudget(burst=_)", lambda world, odd: RetryBudget(burst=odd), POSITIVE)

# -- testing ------------------------------------------------------------------------------------------------

case("run_ticks(_)", lambda world, odd: run_ticks(odd, BEGIN, BEGIN))
case("run_ticks(start=end=_)", lambda world, odd: run_ticks(world.broker, odd, odd), INSTANT)
case("run_ticks(end=_)", lambda world, odd: run_ticks(empty().broker, BEGIN, odd), "aware last")
case("SettableClock(_)", lambda world, odd: SettableClock(odd), INSTANT)
case("SettableClock.set(_)", lambda world, odd: SettableClock(BEGIN).set(odd), INSTANT)
case("SettableClock.advance(_)", lambda world, odd: SettableClock(BEGIN).advance(odd), DURATION)
case("MemoryStore(_)", lambda world, odd: MemoryStore(odd), "function class")
case("MemoryStore(history_size=_)", lambda world, odd: MemoryStore(lambda: 0, history_size=odd), "5")


def empty() -> World:
    """No schedule at all: even a period to the end of time has no tick."""
    return World(StubBroker())


def world_of(broker: StubBroker) -> World:
    world = World(broker)
    world.actor(every(60, name="nightly"))
    world.beat.office.take()
    world.distcron.schedules.put(every(60, name="t"), "job")
    return world


def outcome(call: Call, odd: Any) -> str:
    """``taken``, ``refused`` or what went wrong."""
    world = world_of(StubBroker())
    before = dict(world.store._state.schedules)
    try:
        call(world, odd)
    except DistCronError as error:
        kept = world.store._state.schedules == before and not world.messages()
        return (
            ("refused" if len(str(error)) < 700 else f"refused in {len(str(error))} characters")
            if kept
            else "half done"
        )
    except Exception as error:
        return f"raised {error!r}"
    return "taken"


@pytest.mark.parametrize("name", CASES)
def test_a_public_function_takes_what_it_should_and_refuses_the_rest_in_words_of_ours(name: str) -> None:
    call, takes = CASES[name]
    assert set(takes.split()) <= ODD.keys()
    found = {odd: outcome(call, value) for odd, value in ODD.items()}
    wanted = {odd: "taken" if odd in takes.split() else "refused" for odd in ODD}
    assert {odd: found[odd] for odd in ODD if found[odd] != wanted[odd]} == {}


# -- in words ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda distcron: distcron.schedules.pause(None),
            r"pause\(\) takes the name of a schedule, not None\. .*schedules\.list\(\) has the names",
        ),
        (lambda distcron: distcron.schedules.history(limit=0), r"limit is how many .* from 1, not 0\. Leave it out"),
        (
            lambda distcron: distcron.schedules.pause("nightly", reason=None),
            r"reason is a text .* reason='unpaid', not None\. Leave it out",
        ),
        (
            lambda distcron: distcron.retries.run_now(5),
            r"run_now\(\) takes the id of a message that waits, not 5\. .*retries\.list\(\) has the ids",
        ),
        (
            lambda distcron: distcron.retries.list(actor=distcron.broker.actors["job"]),
            r"actor= takes the name of one actor, not .*\. It is called 'job'\.",
        ),
        (lambda distcron: distcron.retries.list(queue=""), r"queue= takes the name of one queue, .* to have all\."),
        (lambda distcron: install(type(distcron.broker)), r"install\(\) takes a broker, such as RedisBroker"),
        (lambda distcron: Schedule("0 3 * * *"), r"A schedule is made by cron\('0 3 \* \* \*'\), every\(60\)"),
        (lambda distcron: cron("0 3 * * *", args=(nested(101),)), r"args is nested more than 100 deep.*flatter"),
    ],
)  # fmt: skip
def test_it_is_told_what_to_give(stub_broker: StubBroker, call: Callable[[DistCron], Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        call(world_of(stub_broker).distcron)


def test_a_name_that_could_be_one_and_is_not_there_is_not_found(stub_broker: StubBroker) -> None:
    with pytest.raises(NotFoundError, match=r"There is no schedule ''\. Known: nightly, t\."):
        world_of(stub_broker).distcron.schedules.get("")


def test_another_name_for_a_schedule_is_checked_as_its_first_one() -> None:
    schedule = every(60, name="a")
    assert replace(schedule, name="b").name == "b"
    with pytest.raises(ScheduleError, match="1 to 200 printable characters"):
        replace(schedule, name="two\nlines")


# -- arguments that are nested ----------------------------------------------------------------------------------


@pytest.mark.parametrize("nest", [nested(98), {"a": [({"b": nested(94)},)]}, [[1] * 3] * 100_000], ids=lambda _: "")
def test_arguments_that_are_nested_as_deep_as_they_may_be_get_through(stub_broker: StubBroker, nest: Any) -> None:
    world = world_of(stub_broker)
    put_and_trigger(world, args=(nest,))
    assert len(world.messages()) == 1


def test_what_was_stored_too_deep_is_refused_by_trigger_and_recorded_by_the_beat(stub_broker: StubBroker) -> None:
    """By a version that did not look at it."""
    world = world_of(stub_broker)
    world.distcron.schedules.put(every(10, name="q", args=("here",)), "job")
    text = world.store._state.schedules["q"].replace('"here"', "[" * 900 + "]" * 900)
    world.store._state.schedules["q"] = text
    with pytest.raises(ScheduleError, match=r"(cannot be copied into a message|cannot be read): RecursionError"):
        world.distcron.schedules.trigger("q")
    world.at(10)
    assert world.messages() == []
    assert [outcome for outcome, *_ in world.outcomes("q")] in (["error"], ["disabled"])


# -- after its end ----------------------------------------------------------------------------------------------


def test_a_distcron_that_was_closed_opens_again_when_it_is_asked(stub_broker: StubBroker) -> None:
    distcron = world_of(stub_broker).distcron
    distcron.close()
    assert distcron.status().leader is not None
    assert [one.name for one in distcron.schedules.list()] == ["nightly", "t"]
    assert distcron.retries.list() == []


@pytest.mark.parametrize("ask", [DistCron.status, lambda one: one.schedules, lambda one: one.retries.list()])
def test_a_distcron_on_no_broker_says_so(ask: Callable[[DistCron], Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"is on no broker yet: use install\(broker\)"):
        ask(DistCron())
