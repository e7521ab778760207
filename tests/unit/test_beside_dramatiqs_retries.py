"""An app that switches from Dramatiq's Retries needs no edits: every option of it means the same, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import patch

import dramatiq
import pytest
from dramatiq import Message, Retry
from dramatiq.broker import MessageProxy
from dramatiq.brokers.stub import StubBroker
from dramatiq.encoder import PickleEncoder
from dramatiq.errors import RateLimitExceeded
from dramatiq.middleware import Middleware, Retries
from hypothesis import given
from hypothesis import strategies as st

from dramatiq_distcron import BackoffRetries, install
from dramatiq_distcron.middleware.marks import marks_of
from tests.support import queued

BACKOFFS = st.sampled_from([0, 1, 50, 1000, 15_000, 10**6, 10**12])
LIMITS = st.sampled_from([None, 0, 1, 3, 20, False, True, -1])
WHEN = st.sampled_from([None, lambda retries, error: retries < 2, lambda retries, error: isinstance(error, KeyError)])
THROWS = st.sampled_from([None, ValueError, (KeyError, OSError), ()])
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "retries": st.sampled_from([0, 1, 2, 3, 19, 20, 21, 40, 10**6]),
        "max_retries": LIMITS,
        "min_backoff": BACKOFFS,
        "max_backoff": BACKOFFS,
        "throws": THROWS,
        "on_retry_exhausted": st.sampled_from(["told", "also_told"]),
    },
)
ACTOR = st.fixed_dictionaries(
    {},
    optional={
        "max_retries": LIMITS,
        "min_backoff": BACKOFFS,
        "max_backoff": BACKOFFS,
        "retry_when": WHEN,
        "throws": THROWS,
        "on_retry_exhausted": st.just("told"),
    },
)
MIDDLEWARE = st.fixed_dictionaries(
    {}, optional={"max_retries": LIMITS, "min_backoff": BACKOFFS, "max_backoff": BACKOFFS, "retry_when": WHEN}
)
ERRORS = st.sampled_from(
    [ValueError("x"), KeyError("y"), Retry(), Retry(delay=0), Retry(delay=777), RateLimitExceeded("z"), TimeoutError()]
)


class Delays(Middleware):
    """Which delay a message was enqueued with."""

    def __init__(self) -> None:
        self.of: dict[str, int | None] = {}

    def after_enqueue(self, broker: Any, message: Message[Any], delay: int | None) -> None:
        self.of[message.message_id] = delay


@pytest.fixture(scope="module", autouse=True)
def _messages_may_name_classes() -> Iterator[None]:
    before = dramatiq.get_encoder()
    dramatiq.set_encoder(PickleEncoder())
    yield
    dramatiq.set_encoder(before)


def failed_run(
    ours: bool, message: Mapping[str, Any], actor: Mapping[str, Any], middleware: Mapping[str, Any], error: Exception
) -> Any:
    """What becomes of a failed run: the delay of its retry, who was told what of its end, what the message tells."""
    delays = Delays()
    broker = StubBroker(middleware=[Retries(**middleware), delays])
    if ours:
        install(broker)
    for name in ("told", "also_told"):
        dramatiq.actor(lambda *args: None, actor_name=name, broker=broker, queue_name="ends")
    job = dramatiq.actor(lambda: None, actor_name="job", broker=broker, **actor)
    proxy = MessageProxy(job.message_with_options(**message).copy(message_id="m"))
    with patch("dramatiq.common.uniform", lambda low, high: (low + high) / 2):
        broker.emit_before("process_message", proxy)
        proxy.stuff_exception(error)
        broker.emit_after("process_message", proxy, exception=error)
    broker.emit_before("nack" if proxy.failed else "ack", proxy)
    planned = marks_of(proxy).planned if ours else None
    delay = planned.delay if planned else delays.of.get("m")
    ends = [(one.actor_name, one.args[0]["message_id"], one.args[1]) for one in queued(broker, "ends")]
    told = {name: proxy.options.get(name) for name in ("retries", "max_retries", "min_backoff", "max_backoff")}
    return proxy.failed, delay, ends, told, "traceback" in proxy.options, "requeue_timestamp" in proxy.options


@given(MESSAGE, ACTOR, MIDDLEWARE, ERRORS)
def test_a_failed_run_ends_as_with_dramatiqs_retries_whatever_the_options(
    message: dict[str, Any], actor: dict[str, Any], middleware: dict[str, Any], error: Exception
) -> None:
    # Dramatiq takes a 0 of the middleware for unset; to us 0 is 0 (field bug 95).
    middleware = {name: value for name, value in middleware.items() if value != 0 or "backoff" not in name}
    theirs = failed_run(False, message, actor, middleware, error)
    ours = failed_run(True, message, actor, middleware, error)
    assert ours == theirs


@pytest.mark.parametrize("name", ["min_backoff", "max_backoff"])
def test_a_zero_of_the_middleware_is_zero(name: str) -> None:
    """Field bug 95: 0 is treated as unset. The one place where ours differs from Dramatiq's."""
    assert failed_run(True, {}, {}, {"max_backoff": 0}, ValueError())[1] != 0
    with_ours = BackoffRetries(**{name: 0})  # type: ignore[arg-type]
    assert getattr(with_ours, name) == 0
