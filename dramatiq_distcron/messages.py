"""The message of a tick or of a manual trigger, as it is made before it is on its way."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

from dramatiq import Actor, Message

from .arguments import decode_payload
from .errors import ScheduleError
from .specs import Spec

__all__ = ["schedule_message", "tick_id"]

#: The namespace of our message ids (RFC 4122, version 5).
_IDS = bytes.fromhex("6f2a4c0e4a3b5d0c9a571f3f0f2b7d11")


def _parts(spec: Spec) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
    """Arguments and message options for one message alone: a hook may change what it is given, and the spec serves
    every later tick."""
    payload = decode_payload(spec.payload)
    try:
        return tuple(_own(payload["args"])), _own(payload["kwargs"]), _own(payload["options"])
    except Exception as error:
        # What was stored before its depth was looked at, or what another encoder made and will not be copied.
        raise ScheduleError(
            f"The arguments cannot be copied into a message: {type(error).__name__}: {error}"
        ) from error


def _own(value: Any) -> Any:
    return copy.deepcopy(value) if value else type(value)()


def tick_id(namespace: str, app: str, schedule: str, fire_time: int) -> str:
    """The message id of a tick: the same whoever computes it. A UUID of version 5 (RFC 4122)."""
    digest = hashlib.sha1(_IDS + f"{namespace}\n{app}\n{schedule}\n{fire_time}".encode(), usedforsecurity=False)
    h = digest.hexdigest()
    variant = "89ab"[int(h[16], 16) & 3]
    return f"{h[:8]}-{h[8:12]}-5{h[13:16]}-{variant}{h[17:20]}-{h[20:32]}"


def schedule_message(
    spec: Spec, actor: Actor[Any, Any] | None, *, message_id: str, fire_time: int, term: int, now: int
) -> Message[Any]:
    """The message of a tick or of a manual trigger, stamped with the store's time.

    Parameters:
      actor: builds the message if its code is loaded; without, it is built from what is stored.
      fire_time, now: UTC ms.

    Raises:
      ScheduleError: the stored arguments cannot be decoded here, or not be copied.
    """
    args, kwargs, options = _parts(spec)
    options = {**options, "distcron": {"schedule": spec.name, "fire_time": fire_time, "term": term}}
    if spec.policy.expires is not None:
        options["expires"] = spec.policy.expires
    if actor is None or type(actor).message_with_options is Actor.message_with_options:
        queue = spec.queue if actor is None else actor.queue_name
        return Message(queue, spec.actor, args, kwargs, options, message_id, now)
    message = actor.message_with_options(args=args, kwargs=kwargs, **options)
    return message.copy(message_id=message_id, message_timestamp=now)
