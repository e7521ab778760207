"""The lease in memory."""

from __future__ import annotations

from ..base import Acquired, Held, Renewed
from .base import Verbs

__all__ = ["LeaseVerbs"]


class LeaseVerbs(Verbs):
    """Acquire, renew, release, and who has it."""

    def acquire(self, holder: str, ttl: int) -> Acquired | Held:
        with self._woken:
            state, now = self._state, self._now()
            if state.lease is not None and state.lease_until > now and state.lease != holder:
                state.lease_until = min(state.lease_until, now + ttl)
                return Held(state.lease, state.lease_until - now)
            if state.lease != holder or state.lease_until <= now:
                state.term = state.term + 1 if state.term else now
                state.since = now
            state.lease, state.lease_until = holder, now + ttl
            return Acquired(state.term, now)

    def renew(self, holder: str, ttl: int, *, count: bool = False) -> Renewed | None:
        with self._woken:
            now = self._now()
            if not self._holds(holder, now):
                return None
            self._state.lease_until = now + ttl
            if not count:
                return Renewed(now)
            return Renewed(now, len(self._state.schedules), len(self._state.due))

    def release(self, holder: str) -> bool:
        with self._woken:
            if not self._holds(holder, self._now()):
                return False
            self._state.lease = None
            self._wake()
            return True

    def claim_owner(self, owner: str, *, adopt: bool) -> str:
        """Makes the state that of the code base ``owner`` if it is nobody's, or if told to. Returns whose it is."""
        with self._woken:
            if adopt or self._state.owner is None:
                self._state.owner = owner
            return self._state.owner

    def leader(self) -> tuple[str, int, int] | None:
        """Who leads: holder id, term, since when in ms."""
        with self._woken:
            state = self._state
            if state.lease is None or state.lease_until <= self._now():
                return None
            return state.lease, state.term, state.since
