"""Three ways to be told of a dead letter: in the log, by an alert for each new kind, and by a webhook."""

import json
import logging
import os
import urllib.request

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import DeadLetter, install

broker = RedisBroker(url=os.environ.get("DISTCRON_REDIS_URL", "redis://127.0.0.1:6379/0"))
distcron = install(broker)
dramatiq.set_broker(broker)


@distcron.dead_letters.handler
def log(letter: DeadLetter) -> None:
    logging.getLogger("dead_letters").error(
        "%s died: %s %s: %s", letter.actor, letter.reason, letter.error, letter.text, extra={"letter": letter.id}
    )


@distcron.dead_letters.handler
def alert(letter: DeadLetter) -> None:
    """Wakes somebody for the first letter of a kind, and not for the next thousand."""
    if distcron.dead_letters.count(fingerprint=letter.fingerprint, until=letter.dead_at - 1) == 0:
        print(f"ALERT: a new kind of death: {letter.actor}, {letter.error}: {letter.text}", flush=True)


@distcron.dead_letters.handler
def webhook(letter: DeadLetter) -> None:
    """An answer other than 2xx raises, and the letter is told of again later."""
    told = {"id": letter.id, "actor": letter.actor, "reason": letter.reason, "error": letter.error}
    request = urllib.request.Request(
        os.environ["WEBHOOK_URL"],
        data=json.dumps(told).encode(),
        # Who is told twice, after a crash, can see that it is the same letter.
        headers={"Content-Type": "application/json", "Idempotency-Key": letter.id},
    )
    urllib.request.urlopen(request, timeout=10).close()


@dramatiq.actor(max_retries=0)
def sync(repository: str) -> None:
    raise TimeoutError(f"{repository} did not answer")
