"""What is stored of a schedule: everything a beat needs to fire it, also one that has not loaded the app's code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from typing import Any, Literal

from .arguments import checked_payload, encode_payload
from .errors import ScheduleError, quoted
from .policies import Policy
from .schedules import Schedule
from .timing_json import UnknownKind, timing_from_json
from .timings import Timing
from .zones import UnknownZone

__all__ = [
    "FORMAT",
    "NotForUs",
    "Pause",
    "Retired",
    "Source",
    "Spec",
    "parse_spec",
    "resolve",
]

#: The form specs are written in. One of a newer form is left alone.
FORMAT = 1

Source = Literal["code", "api"]


class NotForUs(ScheduleError):
    """The spec can be used elsewhere, and not here: by a newer version, or with newer data on time zones."""


@dataclass(frozen=True)
class Retired:
    """Since when the code of the leader does not know the schedule, and where its cursor was; UTC ms."""

    at: int
    cursor: int


@dataclass(frozen=True)
class Pause:
    """Since when a schedule is paused, why, and until when if that was said; UTC ms."""

    since: int
    reason: str = ""
    until: int | None = None


@dataclass(frozen=True)
class Spec:
    """One schedule with everything resolved: names, zone, policies, encoded arguments.

    ``outbox``: its messages go into the outbox, because the app's broker is not on the Redis of its state.
    """

    name: str
    actor: str
    queue: str
    timing: Timing
    policy: Policy = field(default_factory=Policy)
    payload: Mapping[str, Any] = field(default_factory=dict)
    source: Source = "code"
    retired: Retired | None = None
    paused: Pause | None = None
    outbox: bool = False

    # -- its times ------------------------------------------------------------------------------------------

    @property
    def times(self) -> tuple[Any, ...]:
        """What its fire times and scores depend on: a cursor of one spec is right for another with the same."""
        return self.timing, self.policy.start, self.policy.end, self.policy.spread

    def next_ms(self, after: int) -> int | None:
        """The first fire time strictly after ``after``, within start and end; UTC ms."""
        return self.timing.next_within(after, self.policy.start, self.policy.end)

    def score_of(self, fire_time: int) -> int:
        """When the tick of ``fire_time`` is to be enqueued: later by its part of the spread.

        The part is smaller than the gap to the next fire time, so scores rise as fire times do, and it depends on
        nothing but the schedule's name and the tick: hosts that differed would enqueue it each at its own time.
        """
        if not self.policy.spread:
            return fire_time
        following = self.next_ms(fire_time)
        width = self.policy.spread if following is None else min(self.policy.spread, following - fire_time)
        digest = hashlib.sha256(f"{self.name}\n{fire_time}".encode()).digest()
        return fire_time + int.from_bytes(digest[:8], "big") % width

    def fire_time_of(self, score: int) -> int:
        """The fire time whose tick is to be enqueued at ``score``; the score itself if it is none of ours."""
        if not self.policy.spread:
            return score
        found = self._last_until(score, self.policy.spread)
        return score if found is None or self.score_of(found) != score else found

    def _last_until(self, score: int, within: int) -> int | None:
        """The last fire time up to ``score``, if it is less than ``within`` before it."""
        found = self.next_ms(score - within)
        if found is None or found > score:
            return None
        # A spread may be much longer than the gap between fire times: then they are halved and not walked through.
        none_after = score
        while (following := self.next_ms(found)) is not None and following <= none_after:
            middle = (following + none_after) // 2
            later = self.next_ms(middle)
            if later is not None and later <= none_after:
                found = later
            else:
                found, none_after = following, middle
        return found

    # -- how it is stored -----------------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """Equal for equal behaviour: what reconciling compares."""
        return hashlib.sha256(_canonical(self._behaviour()).encode()).hexdigest()[:16]

    def _behaviour(self) -> dict[str, Any]:
        return {
            "actor": self.actor,
            "queue": self.queue,
            "timing": self.timing.to_json(),
            "policy": asdict(self.policy),
            # Encoded, equal values may differ (a pickled set does): that is one edit too many, and never a stale one.
            "payload": dict(self.payload),
            **({"outbox": True} if self.outbox else {}),
        }

    def to_json(self) -> dict[str, Any]:
        """The stored form, without the revision, which the store gives."""
        # Format and source come first: those who look for one of them need not read on.
        return {
            "format": FORMAT,
            "source": self.source,
            "name": self.name,
            **self._behaviour(),
            "retired": asdict(self.retired) if self.retired else None,
            "paused": asdict(self.paused) if self.paused else None,
            "fingerprint": self.fingerprint,
        }


def resolve(
    schedule: Schedule, *, name: str, actor: str, queue: str, tz: str, policy: Policy, source: Source = "code"
) -> Spec:
    """The spec of a schedule, with the app's defaults filled in.

    Raises:
      ConfigurationError: its arguments cannot be encoded by the broker's encoder.
    """
    return Spec(
        name=name,
        actor=actor,
        queue=queue,
        timing=schedule.timing.bind(name, tz),
        policy=policy.overridden(schedule.policy),
        payload=encode_payload(schedule, name, actor, queue),
        source=source,
    )


# Specs are read again with every due tick; a standby that has read them once takes over without parsing.
@lru_cache(maxsize=20_000)
def parse_spec(text: str) -> Spec:
    """The spec in its stored form ``text``.

    Raises:
      NotForUs: another beat may be able to use it.
      ScheduleError: it cannot be used; the message says why.
    """
    try:
        data = json.loads(text)
        if data["format"] > FORMAT:
            raise NotForUs(f"It has form {data['format']}; this version knows forms up to {FORMAT}.")
        return _from_json(data)
    except UnknownZone as error:
        raise NotForUs(f"Its zone cannot be used on this host: {error}") from error
    except UnknownKind as error:
        raise NotForUs(str(error)) from error
    except ScheduleError:
        raise
    except Exception as error:
        raise ScheduleError(f"It cannot be read: {type(error).__name__}: {error}") from error


def _from_json(data: Mapping[str, Any]) -> Spec:
    unknown = set(data["policy"]) - {one.name for one in fields(Policy)}
    if unknown:
        raise NotForUs(f"It has policies this version does not know: {', '.join(sorted(unknown))}.")
    payload = data["payload"]
    return Spec(
        name=_text(data, "name"),
        actor=_text(data, "actor"),
        queue=_text(data, "queue"),
        timing=timing_from_json(data["timing"]).bind(data["name"], "UTC"),
        policy=Policy.from_json(data["policy"]),
        payload=payload if "encoded" in payload else checked_payload(payload),
        source=_text(data, "source"),  # type: ignore[arg-type]
        retired=Retired(int(data["retired"]["at"]), int(data["retired"]["cursor"])) if data["retired"] else None,
        paused=_pause(data.get("paused")),
        outbox=data.get("outbox") is True,
    )


def _pause(data: Mapping[str, Any] | None) -> Pause | None:
    if data is None:
        return None
    until = data["until"]
    return Pause(int(data["since"]), str(data["reason"]), None if until is None else int(until))


def _text(data: Mapping[str, Any], field_name: str) -> str:
    value = data[field_name]
    if not isinstance(value, str):
        raise ScheduleError(f"Its {field_name} is not a text but {quoted(value)}.")
    return value


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
