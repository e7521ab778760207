"""The only place that talks to Redis."""

from .connection import Connection
from .keys import Keys
from .replies import is_passing, mapped_errors, masked, refuse_url
from .store import RedisStore, Touched

__all__ = ["Connection", "Keys", "RedisStore", "Touched", "is_passing", "mapped_errors", "masked", "refuse_url"]
