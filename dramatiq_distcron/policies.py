"""How a schedule's fire times are dealt with: the options, their checks, and what they resolve to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal, TypedDict

from .durations import LAST_INSTANT, Duration, instant_ms, milliseconds
from .errors import ConfigurationError, quoted
from .suggestions import did_you_mean

__all__ = ["CatchUp", "Overlap", "Policy", "PolicyOptions", "checked_policy"]

CatchUp = Literal["skip", "latest", "all"]
Overlap = Literal["allow", "skip", "buffer_one"]


class PolicyOptions(TypedDict, total=False):
    """The policies, each with a default on ``DistCron`` and its own value on a schedule.

    Durations are seconds or a ``timedelta``.

    Attributes:
      catch_up: what to do with fire times that came while no beat was on duty. ``"latest"`` (default) enqueues the
        newest, ``"all"`` each of them, ``"skip"`` none. Whatever is not enqueued is recorded as ``missed``.
      misfire_grace_time: how late a tick may still be enqueued; ``None`` (default) sets no limit. The word is
        APScheduler's.
      max_catch_up: how many fire times ``catch_up="all"`` makes up for, the latest that many (default 100).
      overlap: what to do while the run before is not over, its retries included. ``"allow"`` (default) enqueues,
        ``"skip"`` records ``skipped_overlap``, ``"buffer_one"`` lets the newest tick wait until it may.
      overlap_timeout: after how long a run that was never heard of again holds nothing up any more; ``None``
        (default): as long as its message exists. A killed worker or a flushed queue needs no time-out.
      spread: moves each tick by its own part of this duration, so that many schedules of one instant do not hit at
        once. It is derived from the schedule's name and the tick, the same on every host, and ends before the next
        fire time. The tick keeps its nominal fire time.
      expires: a message that no worker took up within this time after it was enqueued is dropped unrun. Only its
        first delivery counts: retries, and runs interrupted by a kill, go on.
      start, end: aware datetimes; there are no fire times before the one and after the other.
      enabled: ``False`` enqueues nothing and records ``disabled``.
      max_queue_length: while the queue has this many messages or more, ticks are recorded as
        ``skipped_backpressure``.
      run_at_start: a schedule that is stored for the first time has an extra tick at once.
    """

    catch_up: CatchUp
    misfire_grace_time: Duration | None
    max_catch_up: int
    overlap: Overlap
    overlap_timeout: Duration | None
    spread: Duration | None
    expires: Duration | None
    start: datetime | None
    end: datetime | None
    enabled: bool
    max_queue_length: int | None
    run_at_start: bool


@dataclass(frozen=True, slots=True)
class Policy:
    """The policies of one schedule, resolved; durations in ms, instants in UTC ms."""

    catch_up: CatchUp = "latest"
    misfire_grace_time: int | None = None
    max_catch_up: int = 100
    overlap: Overlap = "allow"
    overlap_timeout: int | None = None
    spread: int | None = None
    expires: int | None = None
    start: int | None = None
    end: int | None = None
    enabled: bool = True
    max_queue_length: int | None = None
    run_at_start: bool = False

    def overridden(self, by: Mapping[str, Any]) -> Policy:
        """This policy with the checked options ``by`` on top.

        Raises:
          ConfigurationError: it would never fire, because it ends before it starts.
        """
        made = Policy(**{**asdict(self), **by})
        if made.start is not None and made.end is not None and made.end < made.start:
            raise ConfigurationError("A schedule whose end is before its start never fires.")
        return made

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Policy:
        """The policy that ``asdict`` gave. Raises ``ConfigurationError`` if a value cannot be used."""
        values: dict[str, Any] = {n: _STORED.get(n, _CHECKS[n])(value, n) for n, value in data.items()}
        return cls(**values)


def checked_policy(options: Mapping[str, Any]) -> dict[str, Any]:
    """The given policy options, each checked, durations and instants in ms.

    Raises:
      ConfigurationError: one of them has a value it cannot have.
    """
    return {name: _CHECKS[name](value, name) for name, value in options.items()}


def _one_of(*allowed: str) -> Callable[[Any, str], str]:
    def check(value: Any, name: str) -> str:
        if value not in allowed:
            hint = did_you_mean(value, allowed) if isinstance(value, str) else f"Known: {', '.join(allowed)}."
            raise ConfigurationError(f"{name} cannot be {quoted(value)}. {hint}")
        return str(value)

    return check


def _duration(minimum: int = 0) -> Callable[[Any, str], int | None]:
    def check(value: Any, name: str) -> int | None:
        return None if value is None else milliseconds(value, name, minimum=minimum)

    return check


#: A tick that is on time is some ms late: with less than this one of two was missed on an idle machine.
_SHORTEST_GRACE = 100


def _grace(value: Any, name: str) -> int | None:
    found = _duration()(value, name)
    if found is not None and found < _SHORTEST_GRACE:
        raise ConfigurationError(
            f"{name} must be at least {_SHORTEST_GRACE / 1000:g} s, not {quoted(value)}: also a tick that is on time "
            "is some milliseconds late, and would be missed. To make up for nothing, use catch_up='skip'."
        )
    return found


def _instant(value: Any, name: str) -> int | None:
    return None if value is None else instant_ms(value, name)


def _stored_ms(value: Any, name: str) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LAST_INSTANT
    if value is not None and not whole:
        raise ConfigurationError(f"{name} is stored as {quoted(value)}, which is no time in ms.")
    return value  # type: ignore[no-any-return]


def _stored_duration(value: Any, name: str) -> int | None:
    if (found := _stored_ms(value, name)) is not None and found < 0:
        raise ConfigurationError(f"{name} is stored as {quoted(value)}, and no duration is below zero.")
    return found


def _count(least: int, most: int) -> Callable[[Any, str], int]:
    def check(value: Any, name: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ConfigurationError(f"{name} must be a whole number from {least} to {most}, not {quoted(value)}.")
        return value

    return check


def _optional_count(value: Any, name: str) -> int | None:
    return None if value is None else _count(1, 10**9)(value, name)


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, not {quoted(value)}.")
    return value


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "catch_up": _one_of("skip", "latest", "all"),
    "misfire_grace_time": _grace,
    "max_catch_up": _count(1, 10_000),
    "overlap": _one_of("allow", "skip", "buffer_one"),
    "overlap_timeout": _duration(minimum=1000),
    "spread": _duration(minimum=1),
    "expires": _duration(minimum=1),
    "start": _instant,
    "end": _instant,
    "enabled": _flag,
    "max_queue_length": _optional_count,
    "run_at_start": _flag,
}
#: Those that are stored in another form than they are given in.
_STORED = {
    **dict.fromkeys(("misfire_grace_time", "overlap_timeout", "spread", "expires"), _stored_duration),
    **dict.fromkeys(("start", "end"), _stored_ms),
}
