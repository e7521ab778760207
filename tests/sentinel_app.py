"""An app on Sentinel: schedules of one second, whose runs are noted in a file, outside of Redis."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import CurrentMessage
from redis.sentinel import Sentinel

from dramatiq_distcron import every, install

ports = [int(port) for port in os.environ["TEST_SENTINELS"].split(",")]
sentinel = Sentinel([("127.0.0.1", port) for port in ports], socket_timeout=1)
broker = RedisBroker(client=sentinel.master_for("service"), namespace=os.environ["TEST_NAMESPACE"])
broker.add_middleware(CurrentMessage())
install(broker, wait_replicas=int(os.environ["TEST_WAIT_REPLICAS"]))
dramatiq.set_broker(broker)


def note(what: str) -> None:
    """One write to a file that is appended to: whole, whoever else writes."""
    file = os.open(os.environ["TEST_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{what}\n".encode())
    os.close(file)


@dramatiq.actor(
    periodic=[every(1, name=f"job-{number}", catch_up="all") for number in range(int(os.environ["TEST_SCHEDULES"]))]
)
def job() -> None:
    message = CurrentMessage.get_current_message()
    tick = message.options["distcron"]
    note(f"{tick['schedule']} {tick['fire_time']} {message.options['redis_message_id']}")


@dramatiq.actor
def sent(number: int) -> None:
    note(f"sent {number} -")
