"""The only place that talks to Redis."""

from .connection import Connection
from .keys import Keys
from .store import RedisStore

__all__ = ["Connection", "Keys", "RedisStore"]
