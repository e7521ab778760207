"""The arguments and message options of schedules: do they fit their actor, and can they be stored?"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from dramatiq import GenericActor, get_encoder
from dramatiq.encoder import Encoder, JSONEncoder

from .errors import ConfigurationError, ScheduleError

if TYPE_CHECKING:
    from dramatiq import Actor

    from .schedules import Schedule

__all__ = ["checked_payload", "decode_payload", "encode_payload", "refuse_misfit"]

#: Of a message, what a schedule determines.
_PARTS = ("args", "kwargs", "options")


def refuse_misfit(schedule: Schedule, actor: Actor[Any, Any]) -> None:
    """Raises ``ConfigurationError`` if ``actor`` cannot be called with the schedule's arguments."""
    fn: Any = actor.fn
    try:
        # One that is a class takes whatever it is called with, and hands it on.
        signature = inspect.signature(fn.perform if isinstance(fn, GenericActor) else fn)
    except (TypeError, ValueError):
        # Written in C, say: it does not tell.
        return
    try:
        signature.bind(*schedule.args, **schedule.kwargs)
    except TypeError as error:
        name = schedule.name or actor.actor_name
        raise ConfigurationError(
            f"Schedule {name!r} does not fit its actor {actor.actor_name}{signature}: {error}. Give it what the actor "
            "needs with args=(...) or kwargs={...}."
        ) from error


def encode_payload(
    schedule: Schedule, name: str, actor: str, queue: str, encoder: Encoder | None = None
) -> dict[str, Any]:
    """Arguments and message options in a form JSON can hold, made with the encoder messages are made with.

    Raises:
      ConfigurationError: they cannot be encoded, or not be decoded again, so no worker would ever get them.
    """
    encoder = encoder or get_encoder()
    plain = {"args": list(schedule.args), "kwargs": dict(schedule.kwargs), "options": dict(schedule.options)}
    # Some encoders look at more of a message than its arguments.
    message = {"queue_name": queue, "actor_name": actor, "message_id": name, "message_timestamp": 0, **plain}
    try:
        encoded = encoder.encode(cast(Any, message))
        decoded: Mapping[str, Any] = encoder.decode(encoded)
    except Exception as error:
        raise ConfigurationError(
            f"The arguments of schedule {name!r} cannot be encoded by {type(encoder).__name__} and decoded again: "
            f"{error}. Use arguments it can encode, or set another encoder with dramatiq.set_encoder()."
        ) from error
    if type(encoder) is JSONEncoder:
        return {part: decoded[part] for part in _PARTS}
    return {"encoder": type(encoder).__name__, "encoded": base64.b64encode(encoded).decode()}


def decode_payload(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments and message options again, as ``{"args", "kwargs", "options"}``.

    Raises:
      ScheduleError: they cannot be decoded, or were encoded with an encoder this process does not use.
    """
    if "encoded" not in payload:
        return payload
    encoder = get_encoder()
    if type(encoder).__name__ != payload.get("encoder"):
        raise ScheduleError(
            f"The arguments were encoded with {payload.get('encoder')}, and this process uses "
            f"{type(encoder).__name__}. Load the app's code (--broker MODULE) so that its encoder is set."
        )
    try:
        message: Mapping[str, Any] = encoder.decode(base64.b64decode(payload["encoded"]))
        return checked_payload({part: message.get(part) for part in _PARTS})
    except Exception as error:
        raise ScheduleError(f"The arguments cannot be decoded: {type(error).__name__}: {error}") from error


def checked_payload(payload: Any) -> Mapping[str, Any]:
    """Raises ``ScheduleError`` if it is not what a message can be made of."""
    good = (
        isinstance(payload, Mapping)
        and isinstance(payload.get("args"), (list, tuple))
        and isinstance(payload.get("kwargs"), Mapping)
        and isinstance(payload.get("options"), Mapping)
    )
    if not good:
        raise ScheduleError("Its arguments are not of the form {'args': [...], 'kwargs': {...}, 'options': {...}}.")
    return payload  # type: ignore[no-any-return]
