"""While a search runs, nothing but the search moves: no clock, no chance, no sleep, no log."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from dramatiq_distcron.specs import Spec

from .graves import graveyard
from .stepping import Host, asleep, current_thread

__all__ = ["still"]

_ids = itertools.count()


def _host() -> Host | None:
    thread = current_thread()
    return thread.host if thread else None


def _new_id(mark: str = "#") -> str:
    host = _host()
    return host.new_id(mark) if host else f"{mark}outside-{next(_ids)}"


def _wall() -> int:
    host = _host()
    return host.wall() if host else 0


def _backoff(attempts: int, *, factor: int = 5, jitter: bool = True, max_backoff: int = 2000, **_: Any) -> Any:
    return attempts + 1, min(factor * 2**attempts, max_backoff)


_time = SimpleNamespace(
    sleep=lambda seconds: asleep("sleeping", seconds),
    time=lambda: _wall() / 1000,
    monotonic=lambda: 0.0,
    monotonic_ns=lambda: 0,
)
_uuid = SimpleNamespace(uuid4=lambda: _new_id("!"))
_redriven = SimpleNamespace(uuid4=lambda: _new_id("~"))
_notices = SimpleNamespace(uuid4=_new_id)
_claims = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=_new_id("?")))


class _Fingerprint:
    """``Spec.fingerprint``, computed once for each spec."""

    def __get__(self, spec: Any, owner: type) -> str:
        made: str = spec.__dict__.setdefault("_fingerprint", "") or _fingerprint(spec)
        spec.__dict__["_fingerprint"] = made
        return made


_fingerprint = cast(Any, Spec.fingerprint).fget
_replaced = {
    "dramatiq.brokers.redis.uuid4": _new_id,
    "dramatiq.brokers.redis.current_millis": _wall,
    "dramatiq.brokers.redis.compute_backoff": _backoff,
    "dramatiq.brokers.redis.time": _time,
    "dramatiq.message.uuid": _notices,
    "dramatiq.message.time": _time,
    "dramatiq.worker.current_millis": _wall,
    "dramatiq.worker.time": _time,
    "dramatiq.middleware.retries.time": _time,
    "dramatiq.middleware.retries.compute_backoff": _backoff,
    "dramatiq.middleware.retries.traceback": SimpleNamespace(format_exc=lambda limit: ""),
    "dramatiq_distcron.publishing.os": SimpleNamespace(urandom=lambda size: SimpleNamespace(hex=_new_id)),
    "dramatiq_distcron.retrying.compute_backoff": _backoff,
    "dramatiq_distcron.letters.uuid": _redriven,
    "dramatiq_distcron.letters.traceback": SimpleNamespace(format_exception=lambda error: "", walk_tb=lambda tb: ()),
    "dramatiq_distcron.middleware.telling.traceback": SimpleNamespace(format_exception=lambda error, limit: ""),
    "dramatiq_distcron.api.triggering.uuid": _uuid,
    # Between two attempts anything may happen as it is.
    "dramatiq_distcron.api.schedules.time": SimpleNamespace(sleep=lambda seconds: None),
    "dramatiq_distcron.middleware.settle.uuid": _claims,
    "dramatiq_distcron.specs.Spec.fingerprint": _Fingerprint(),
    "dramatiq_distcron.places.Places.graveyard": graveyard,
    "dramatiq_distcron.trouble.random": SimpleNamespace(uniform=lambda low, high: low),
}


@contextmanager
def still() -> Iterator[None]:
    """Stops everything that would make two runs of the same steps differ."""
    level = logging.root.manager.disable
    with ExitStack() as stack:
        for target, stand_in in _replaced.items():
            stack.enter_context(mock.patch(target, stand_in))
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(level)
