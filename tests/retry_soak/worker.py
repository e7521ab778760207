"""``python -m tests.retry_soak.worker``: one worker process of the app. It is made to be killed."""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import Any

import dramatiq
from dramatiq import Worker
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AgeLimit, CurrentMessage, Retries

from dramatiq_distcron import RetryAfter, RetryBudget, delays, exponential, install
from dramatiq_distcron.server import die_with_parent

#: How often a message that must not succeed is tried.
TRIES = 4


def broker_of(url: str, namespace: str, *, doubled: bool = False) -> RedisBroker:
    """The broker of the app.

    Parameters:
      doubled: with Dramatiq's own retries, which enqueue first and ack second: the checker must find them out.
    """
    broker = RedisBroker(
        url=url,
        namespace=namespace,
        middleware=[AgeLimit(), CurrentMessage(), Retries()],
        # A killed worker's messages go to the others soon.
        heartbeat_timeout=3000,
        maintenance_chance=100_000,
    )
    if not doubled:
        install(broker)
    return broker


class Ledger:
    """What this process ran, a line each, on disk before anything comes of it."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, what: str, number: int, attempt: int, delivery: str) -> None:
        os.write(self._file, f"{what} {number} {attempt} {delivery}\n".encode())


def declare(broker: RedisBroker, ledger: Ledger, *, doubled: bool = False) -> None:
    """The actors: some fail a few times, some always, each with another way to wait."""
    ways: dict[str, dict[str, Any]] = {
        "full": {"backoff": exponential(0.05, cap=0.5)},
        "given": {"backoff": delays(0, 0.05, 0.2)},
        "asked": {},
        "shared": {"backoff": 0.05, "retry_budget": RetryBudget("soak", floor=300, burst=100)},
    }
    if doubled:
        ways = {name: {"min_backoff": 50, "max_backoff": 500} for name in ways}
    for name, options in ways.items():
        dramatiq.actor(
            _job(name, ledger),
            actor_name=name,
            broker=broker,
            max_retries=TRIES - 1,
            on_retry_exhausted="told",
            **options,
        )

    @dramatiq.actor(broker=broker, actor_name="told")
    def told(message: dict[str, Any], counts: dict[str, Any]) -> None:
        ledger.note("told", message["args"][0], message["options"]["retries"], _delivery())


def _job(name: str, ledger: Ledger) -> Any:
    def run(number: int, failures: int) -> None:
        message = CurrentMessage.get_current_message()
        assert message is not None
        attempt = message.options.get("retries", 0)
        ledger.note("ran", number, attempt, _delivery())
        if attempt < failures:
            raise RetryAfter(0.05, jitter=0.1) if name == "asked" else dramatiq.Retry("as told")
        ledger.note("done", number, attempt, _delivery())

    return run


def _delivery() -> str:
    message = CurrentMessage.get_current_message()
    assert message is not None
    return str(message.options["redis_message_id"])


def main() -> None:
    die_with_parent(os.getppid())
    logging.disable(logging.CRITICAL)
    doubled = "SOAK_DOUBLED" in os.environ
    broker = broker_of(os.environ["SOAK_URL"], os.environ["SOAK_NAMESPACE"], doubled=doubled)
    declare(broker, Ledger(os.environ["SOAK_LEDGER"]), doubled=doubled)
    worker = Worker(broker, worker_timeout=100, worker_threads=4)
    told_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told_to_end.set())
    worker.start()
    told_to_end.wait()
    worker.stop()


if __name__ == "__main__":
    main()
