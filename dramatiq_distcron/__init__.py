"""Periodic jobs for Dramatiq that stay safe on many machines."""

from .errors import (
    ConfigurationError,
    ConflictError,
    DistCronError,
    InvalidCronExpression,
    NotFoundError,
    ScheduleError,
    StoreRefused,
    StoreUnavailable,
)
from .middleware.distcron import DistCron, get_distcron, install
from .schedules import Schedule, cron, every
from .version import VERSION as __version__

__all__ = [
    # The middleware
    "DistCron",
    "get_distcron",
    "install",
    # Schedules
    "Schedule",
    "cron",
    "every",
    # Errors
    "ConfigurationError",
    "ConflictError",
    "DistCronError",
    "InvalidCronExpression",
    "NotFoundError",
    "ScheduleError",
    "StoreRefused",
    "StoreUnavailable",
    "__version__",
]
