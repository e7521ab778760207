"""The app of the soak, and its two kinds of processes, which are made to be killed.

``python -m tests.letter_soak.app worker|redriver``
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import Any

import dramatiq
import dramatiq.worker
from dramatiq import Message, Worker
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AgeLimit, CurrentMessage, Retries

from dramatiq_distcron import DistCron, DistCronError, install
from dramatiq_distcron.letters import ORIGIN, redriven
from dramatiq_distcron.server import die_with_parent
from dramatiq_distcron.store.base import Query

#: The actors, and how their messages die.
ACTORS: dict[str, dict[str, Any]] = {
    "exhausted": {"max_retries": 0},
    "aborted": {"max_retries": 5, "throws": (KeyError,)},
    "twice": {"max_retries": 1, "backoff": 0.02},
}


class Ledger:
    """What this process ran, a line each, on disk before anything comes of it."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def app_of(url: str, namespace: str, ledger: Ledger) -> DistCron:
    """Its actors die in as many generations as their message says, and then succeed."""
    broker = RedisBroker(
        url=url,
        namespace=namespace,
        middleware=[AgeLimit(), CurrentMessage(), Retries()],
        # A killed worker's messages go to the others soon.
        heartbeat_timeout=3000,
        maintenance_chance=100_000,
        socket_timeout=2,
    )
    distcron = install(broker)
    for name, options in ACTORS.items():
        dramatiq.actor(_job(ledger), actor_name=name, broker=broker, **options)
    distcron.dead_letters.handler(lambda letter: ledger.note("told", letter.id))
    return distcron


def _job(ledger: Ledger) -> Any:
    def run(number: int, deaths: int) -> None:
        message = CurrentMessage.get_current_message()
        assert message is not None
        generation = message.options.get(ORIGIN, {}).get("generation", 0)
        where = (number, generation, message.options.get("retries", 0), message.options["redis_message_id"])
        ledger.note("ran", *where)
        if generation < deaths:
            raise KeyError(number)
        ledger.note("done", *where)

    return run


def redrive(distcron: DistCron, *, doubled: bool) -> None:
    """Sends back all there is.

    Parameters:
      doubled: as most tools do it, in two steps: the checker must find that out.
    """
    if not doubled:
        distcron.dead_letters.redrive(all=True, limit=200)
        return
    store: Any = distcron.open_backend().store
    for row in store.letters(Query(oldest_first=True), 200):
        distcron.broker.enqueue(redriven(Message.decode(row.data), store.now()))
        store.drop_letters([row.id])


def main() -> None:
    die_with_parent(os.getppid())
    logging.disable(logging.CRITICAL)
    dramatiq.worker.POST_PROCESS_MESSAGE_RETRY_DELAY_SECS = 0.1  # type: ignore[assignment]
    dramatiq.worker.CONSUMER_RESTART_DELAY_SECS = 0.1  # type: ignore[assignment]
    distcron = app_of(os.environ["SOAK_URL"], os.environ["SOAK_NAMESPACE"], Ledger(os.environ["SOAK_LEDGER"]))
    told_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told_to_end.set())
    if sys.argv[1] == "worker":
        worker = Worker(distcron.broker, worker_timeout=100, worker_threads=4)
        worker.start()
        told_to_end.wait()
        worker.stop()
        return
    while not told_to_end.wait(0.05):
        try:
            redrive(distcron, doubled="SOAK_DOUBLED" in os.environ)
        except (DistCronError, dramatiq.errors.BrokerConnectionError):
            continue


if __name__ == "__main__":
    main()
