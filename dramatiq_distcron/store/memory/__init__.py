"""The store in a process' memory: for ``StubBroker``, for unit tests, and for the search through interleavings.

It behaves as the one on Redis does; one suite of tests runs on both.
"""

from .store import MemoryStore

__all__ = ["MemoryStore"]
