"""Who records for our other middlewares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..schedules import ScheduleHost

if TYPE_CHECKING:
    from ..backends import Backend
    from ..config import Settings
    from ..moving import Mover

__all__ = ["Recorder"]


@runtime_checkable
class Recorder(ScheduleHost, Protocol):
    """The middleware that has the store, and the mover of what waits for a retry."""

    settings: Settings
    mover: Mover

    def open_backend(self) -> Backend: ...
