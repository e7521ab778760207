"""Periodic jobs for Dramatiq that stay safe on many machines."""

from .api.letter_infos import DeadLetter
from .apscheduler_triggers import from_apscheduler
from .backoff import constant, delays, exponential, linear
from .errors import (
    ConfigurationError,
    ConflictError,
    DistCronError,
    InvalidCronExpression,
    NotFoundError,
    RunOutstanding,
    ScheduleError,
    StoreRefused,
    StoreUnavailable,
)
from .middleware.dead_letters import DeadLetters
from .middleware.distcron import DistCron, get_distcron, install
from .middleware.retention import Retention
from .middleware.retries import BackoffRetries
from .retry_after import RetryAfter
from .retry_budget import RetryBudget
from .schedules import Schedule, any_of, at, cron, every
from .tick import Tick, current_tick
from .version import VERSION as __version__

__all__ = [
    # The middleware
    "DistCron",
    "get_distcron",
    "install",
    # Schedules
    "Schedule",
    "any_of",
    "at",
    "cron",
    "every",
    "from_apscheduler",
    # Retries
    "BackoffRetries",
    "RetryAfter",
    "RetryBudget",
    "constant",
    "delays",
    "exponential",
    "linear",
    # Dead letters
    "DeadLetter",
    "DeadLetters",
    "Retention",
    # In an actor
    "Tick",
    "current_tick",
    # Errors
    "ConfigurationError",
    "ConflictError",
    "DistCronError",
    "InvalidCronExpression",
    "NotFoundError",
    "RunOutstanding",
    "ScheduleError",
    "StoreRefused",
    "StoreUnavailable",
    "__version__",
]
