"""The store in a process' memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import Instance
from .lease import LeaseVerbs
from .runs import RunVerbs
from .schedules import ScheduleVerbs
from .ticks import TickVerbs

__all__ = ["MemoryStore"]


class MemoryStore(LeaseVerbs, TickVerbs, RunVerbs, ScheduleVerbs):
    """All state of one app in memory. Thread-safe: one verb is one atomic step.

    Parameters:
      now: the store's clock in ms.
      dispatch: carries out one call that was captured, as the script of a Redis broker would, and says how many
        messages it took from the worker that acks.
      is_there: whether a message (place, id) is in the broker; without, every one is.
      length: how many messages wait on a queue.
      expect: told of a call that will be carried out later (1), or that was or will never be (-1).
      history_size: how many records the history keeps.
    """

    def wait(self, seconds: float) -> bool:
        """Blocks until a schedule was edited or the leader left, for ``seconds`` at most."""
        with self._woken:
            woken = self._woken.wait_for(lambda: self._wakes != self._seen, timeout=seconds)
            self._seen = self._wakes
            return woken

    def wake(self) -> None:
        """Wakes everybody who waits."""
        with self._woken:
            self._wake()

    def heartbeat(self, instance: Instance, *, keep: int) -> None:
        """Publishes a process and drops those not heard of for ``keep`` ms."""
        with self._woken:
            now = self._now()
            self._state.instances[instance.holder] = (now, dict(instance.data))
            self._state.instances = {h: (at, d) for h, (at, d) in self._state.instances.items() if at >= now - keep}

    def forget(self, holder: str) -> None:
        """Takes a process that ends off the list."""
        with self._woken:
            self._state.instances.pop(holder, None)

    def instances(self, *, keep: int) -> list[Instance]:
        """The processes heard of within the last ``keep`` ms."""
        with self._woken:
            since = self._now() - keep
            found = self._state.instances.items()
            return [Instance(holder, data, at) for holder, (at, data) in found if at >= since and data is not None]

    def count(self) -> int:
        """How many schedules are stored."""
        return len(self._state.schedules)

    def other_apps(self) -> list[str]:
        """Apps of the same namespace that have schedules: a store in memory is one app's."""
        return []

    def notice(self, text: str) -> None:
        """Keeps a word for whoever asks for the status."""
        with self._woken:
            self._state.notices = [(self._now(), text), *self._state.notices][:10]

    def notices(self) -> list[tuple[int, str]]:
        """The latest words: UTC ms and text, newest first."""
        return list(self._state.notices)

    def server(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        """There is nothing to close."""
