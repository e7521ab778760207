"""Where else there are schedules: for those who find none where they look."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..backends import Backend

__all__ = ["tell_others"]

#: So many apps are named at most.
_NAMED = 10


def tell_others(backend: Backend) -> str:
    """A sentence with the other apps of the namespace that have schedules; ``""``: there are none to tell of."""
    apps = backend.store.other_apps()
    if not apps:
        return ""
    more = f" and {len(apps) - _NAMED} more" if len(apps) > _NAMED else ""
    names = ", ".join(repr(app) for app in apps[:_NAMED])
    return f"In namespace {backend.namespace!r} there are schedules of app {names}{more}: is it one of these?"
