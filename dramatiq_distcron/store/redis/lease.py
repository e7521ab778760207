"""The lease: one script a verb."""

from __future__ import annotations

from ..base import Acquired, Held, Renewed
from .replies import raw, text
from .verbs import Verbs

__all__ = ["LeaseVerbs"]


class LeaseVerbs(Verbs):
    """Acquire, renew, release, and who has it."""

    def acquire(self, holder: str, ttl: int) -> Acquired | Held:
        k = self.keys
        # Before: a standby has been idle, and the leader may have left the server it is at.
        self._follow_the_master()
        with self._errors():
            reply = self._scripts.lease_acquire(keys=[k.lease, k.term, k.since], args=[holder, ttl])
        if text(reply[0]) == "acquired":
            return Acquired(term=int(reply[1]), now=int(reply[2]))
        return Held(holder=text(reply[1]), expires_in=int(reply[2]))

    def renew(self, holder: str, ttl: int, *, count: bool = False) -> Renewed | None:
        k = self.keys
        with self._errors():
            reply = self._scripts.lease_renew(keys=[k.lease, k.schedules, k.due], args=[holder, ttl, int(count)])
        self._follow_the_master()
        return None if text(reply[0]) == "lost" else Renewed(*(int(number) for number in reply[1:]))

    def release(self, holder: str) -> bool:
        with self._errors():
            return bool(self._scripts.lease_release(keys=[self.keys.lease, self.keys.wake], args=[holder]))

    def claim_owner(self, owner: str, *, adopt: bool) -> str:
        """Makes the state that of the code base ``owner`` if it is nobody's, or if told to. Returns whose it is."""
        with self._errors():
            if adopt:
                self._client.set(self.keys.owner, raw(owner))
            else:
                self._client.set(self.keys.owner, raw(owner), nx=True)
            return text(self._client.get(self.keys.owner))

    def leader(self) -> tuple[str, int, int] | None:
        """Who leads: holder id, term, since when in ms."""
        k = self.keys
        with self._errors():
            holder, term, since = self._client.mget(k.lease, k.term, k.since)
        return (text(holder), _number(term), _number(since)) if holder else None


def _number(value: bytes | None) -> int:
    """What is shown only: a foreign value is no reason to show nothing."""
    return int(value) if value and value.isdigit() else 0
