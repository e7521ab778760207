"""The only place that talks to Redis."""

from .connection import Connection, masked, refuse_url
from .keys import Keys
from .store import RedisStore

__all__ = ["Connection", "Keys", "RedisStore", "masked", "refuse_url"]
