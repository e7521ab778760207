"""The exception tree. Every message says what is wrong, why, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dramatiq import errors as dramatiq_errors
from dramatiq.middleware import MiddlewareError

__all__ = [
    "AccessDenied",
    "BrokerConnectionError",
    "ConfigurationError",
    "ConflictError",
    "DistCronError",
    "InvalidCronExpression",
    "NotFoundError",
    "RunOutstanding",
    "ScheduleError",
    "ServerError",
    "StoreRefused",
    "StoreUnavailable",
    "WrongSlot",
    "quoted",
]

if TYPE_CHECKING:
    from dramatiq.errors import BrokerConnectionError
else:
    # Its name in Dramatiq 2.0 was ConnectionError, and 2.1 warns of that one.
    BrokerConnectionError = getattr(dramatiq_errors, "BrokerConnectionError", None) or dramatiq_errors.ConnectionError


#: So much of a value is shown in a message.
_SHOWN = 100


def quoted(value: object) -> str:
    """What somebody gave us, as it is shown in a message: it may be of any size and depth, and have any ``repr``."""
    try:
        text = repr(value)
    except Exception:
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class DistCronError(Exception):
    """Base class of every error this package raises on purpose."""


# MiddlewareError is the one class Dramatiq lets out of a hook: anything else raised while an actor is being
# declared would be logged, swallowed, and the bad schedule would surface at 03:00.
class ConfigurationError(DistCronError, MiddlewareError, ValueError):
    """A setting, a schedule or an option that cannot be used as given."""


class ScheduleError(ConfigurationError):
    """A schedule that cannot be used: bad zone, bad option, never fires."""


class InvalidCronExpression(ScheduleError):
    """A cron expression that is not accepted.

    Every expression that is refused is refused with this class, whatever is wrong with it.
    """


class ConflictError(ConfigurationError):
    """Two settings that exclude each other: names, brokers, middlewares, code bases."""


class RunOutstanding(DistCronError):
    """The schedule lets no run begin before the last one is over, and that one is not."""


class NotFoundError(DistCronError, LookupError):
    """A schedule, message or letter of that name or id does not exist."""


class ServerError(DistCronError):
    """An embedded server could not be found or did not start."""


class StoreUnavailable(DistCronError):
    """The store did not answer, so what became of the request is not known: ask, don't assume."""


class StoreRefused(DistCronError):
    """The store answered, and the answer is no: missing right, wrong type, out of memory."""


class AccessDenied(StoreRefused):
    """The store does not let us in: user or password are not those it knows."""


class WrongSlot(StoreRefused):
    """The store is a cluster, and the keys are not where they were asked for, or not together."""


class SettlePostponed(MiddlewareError, BrokerConnectionError):
    """The end of a delivery could not be recorded; the worker keeps the message and asks again.

    Both parents are needed: ``MiddlewareError`` lets it out of the hook, ``BrokerConnectionError`` makes the
    worker's own loop repeat the hook instead of acknowledging the message.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)  # type: ignore[no-untyped-call]
