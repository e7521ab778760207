"""How a schedule's fire times are dealt with: the options, their checks, and what they resolve to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict

from .durations import Duration, milliseconds
from .errors import ConfigurationError
from .suggestions import did_you_mean

__all__ = ["CatchUp", "Policy", "PolicyOptions", "checked_policy"]

CatchUp = Literal["skip", "latest", "all"]


class PolicyOptions(TypedDict, total=False):
    """The policies, each with a default on ``DistCron`` and its own value on a schedule.

    Attributes:
      catch_up: what to do with fire times that came while no beat was on duty. ``"latest"`` (default) enqueues the
        newest, ``"all"`` each of them, ``"skip"`` none. Whatever is not enqueued is recorded as ``missed``.
      misfire_grace_time: how late, in seconds or as a ``timedelta``, a tick may still be enqueued; ``None``
        (default) sets no limit. The word is APScheduler's.
      max_catch_up: how many fire times ``catch_up="all"`` makes up for, the latest that many (default 100).
    """

    catch_up: CatchUp
    misfire_grace_time: Duration | None
    max_catch_up: int


@dataclass(frozen=True, slots=True)
class Policy:
    """The policies of one schedule, resolved; durations in ms."""

    catch_up: CatchUp = "latest"
    misfire_grace_time: int | None = None
    max_catch_up: int = 100

    def overridden(self, by: Mapping[str, Any]) -> Policy:
        """This policy with the checked options ``by`` on top."""
        return Policy(**{**asdict(self), **by})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Policy:
        """The policy that ``asdict`` gave. Raises ``ConfigurationError`` if a value cannot be used."""
        in_seconds = {
            name: value / 1000 if name in _DURATIONS and value is not None else value for name, value in data.items()
        }
        return cls(**checked_policy(in_seconds))


def checked_policy(options: Mapping[str, Any]) -> dict[str, Any]:
    """The given policy options, each checked, durations in ms.

    Raises:
      ConfigurationError: one of them has a value it cannot have.
    """
    return {name: _CHECKS[name](value, name) for name, value in options.items()}


def _one_of(*allowed: str) -> Callable[[Any, str], str]:
    def check(value: Any, name: str) -> str:
        if value not in allowed:
            hint = did_you_mean(value, allowed) if isinstance(value, str) else f"Known: {', '.join(allowed)}."
            raise ConfigurationError(f"{name} cannot be {value!r}. {hint}")
        return str(value)

    return check


def _optional_duration(value: Any, name: str) -> int | None:
    return None if value is None else milliseconds(value, name)


def _count(least: int, most: int) -> Callable[[Any, str], int]:
    def check(value: Any, name: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ConfigurationError(f"{name} must be a whole number from {least} to {most}, not {value!r}.")
        return value

    return check


_DURATIONS = {"misfire_grace_time"}
_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "catch_up": _one_of("skip", "latest", "all"),
    "misfire_grace_time": _optional_duration,
    "max_catch_up": _count(1, 10_000),
}
