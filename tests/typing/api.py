"""The public names as users type them. Never run: mypy --strict reads it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import dramatiq
from apscheduler.triggers.cron import CronTrigger
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import (
    BackoffRetries,
    DeadLetter,
    DeadLetters,
    DistCron,
    Retention,
    RetryAfter,
    RetryBudget,
    Schedule,
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

broker = RedisBroker(url="redis://127.0.0.1:6379/0")
distcron: DistCron = install(broker, tz="Europe/Berlin", lease_ttl=timedelta(seconds=3), catch_up="latest")
dramatiq.set_broker(broker)


@dramatiq.actor(periodic=cron("*/5 * * * *", tz="Europe/Berlin", catch_up="all", max_catch_up=10))
def refresh() -> None: ...


@cron("0 3 * * *", name="nightly")
@every(minutes=5, name="often", args=(1,), options={"max_retries": 3})
@dramatiq.actor
def add(x: int) -> int:
    return x + 1


result: int = add(1)
message: dramatiq.Message[int] = add.send(1)

schedule: Schedule = every(timedelta(hours=1), anchor=datetime(2026, 1, 1, tzinfo=timezone.utc))
once: Schedule = at(datetime(2026, 12, 24, 18, tzinfo=timezone.utc), name="once")
either: Schedule = any_of(cron("0 9 * * 1-5"), cron("0 12 * * 6"), once, catch_up="skip")
taken_over: Schedule = from_apscheduler(CronTrigger(hour=3, timezone="Europe/Berlin"), name="taken over")
said: Schedule = from_apscheduler(CronTrigger(hour=3), anchored=True)
warnings: tuple[str, ...] = either.warnings()
following: datetime | None = schedule.next_after(datetime.now(timezone.utc))

found: DistCron = get_distcron()
names: Sequence[str] = [one.name for one in found.schedules.list()]
outcomes: Sequence[str] = [tick.outcome for tick in found.schedules.history("nightly", limit=10)]
triggered: dramatiq.Message[object] = found.schedules.trigger("nightly")
leader = found.status().leader
term: int | None = leader.term if leader else None

broker.add_middleware(
    DeadLetters(
        max_age=timedelta(days=90),
        max_count=None,
        per_actor={"bill": Retention(max_age=None)},
        redact=lambda actor, args, kwargs: (["…" for _ in args], {}),
    )
)


@distcron.dead_letters.handler
def alert(letter: DeadLetter) -> None:
    name: str = letter.actor
    last: str | None = letter.error
    print(name, last, letter.message["args"])


@distcron.dead_letters.on_drop
def save(letters: list[DeadLetter]) -> None: ...


sent_back: int = distcron.dead_letters.redrive(actor="sync", error="Timeout", limit=100, rate=50).redriven
dropped: int = distcron.dead_letters.discard(["a", "b"]) + distcron.dead_letters.purge()
page: list[DeadLetter] = distcron.dead_letters.page(limit=10, since=datetime.now(timezone.utc)).letters

cron("0 3 * * *", catchup="all")  # type: ignore[call-arg]
at("2026-12-24")  # type: ignore[arg-type]
any_of("0 9 * * *", "0 12 * * *")  # type: ignore[arg-type]
DistCron(lease_tll=3)  # type: ignore[call-arg]


@dramatiq.actor(
    max_retries=8,
    throws=(ValueError,),
    retry_budget="github",
    backoff={ConnectionError: constant(60), TimeoutError: exponential(2, cap=300, jitter="full"), KeyError: [1, 5]},
)
def sync(repo: str) -> None:
    raise RetryAfter("120", cap=timedelta(hours=1), jitter=5)


retries: BackoffRetries = BackoffRetries(
    backoff=delays(60, 300, 3600),
    max_retry_age=timedelta(days=1),
    retry_budget=RetryBudget("github", ratio=0.2),
    max_deliveries=3,
)
steps: float = linear(10, 5, jitter=timedelta(seconds=1)).grown(3)
waiting: Sequence[str] = [one.id for one in found.retries.list(actor="sync")]
hurried: int = found.retries.run_all_now()
exponential(2, jitter="ful")  # type: ignore[arg-type]
RetryBudget("github", 0.2)  # type: ignore[call-arg]
