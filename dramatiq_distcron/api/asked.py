"""What users ask for: a schedule by its name, a message by its id, so many, of this actor. Is it one at all?"""

from __future__ import annotations

from ..errors import ConfigurationError, quoted

__all__ = ["checked_id", "checked_limit", "checked_name", "checked_reason", "checked_which", "is_utf8"]


def checked_name(name: object, verb: str) -> str:
    """The name of a schedule. Raises ``ConfigurationError`` if no schedule could have it."""
    if not _is_storable(name):
        raise ConfigurationError(
            f"{verb}() takes the name of a schedule, not {quoted(name)}. distcron.schedules.list() has the names."
        )
    return name  # type: ignore[return-value]


def checked_id(id: object, verb: str) -> str:
    """The id of a message. Raises ``ConfigurationError`` if no message could have it."""
    if not _is_storable(id):
        raise ConfigurationError(
            f"{verb}() takes the id of a message that waits, not {quoted(id)}. distcron.retries.list() has the ids."
        )
    return id  # type: ignore[return-value]


def checked_limit(limit: object) -> int:
    """How many are wanted. Raises ``ConfigurationError`` if it is no number of things."""
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise ConfigurationError(
            f"limit is how many are returned at most, a whole number from 1, not {quoted(limit)}. Leave it out for 100."
        )
    return limit


def checked_which(what: str, name: object) -> str:
    """The name of the actor or queue (``what``) that is looked for. Raises ``ConfigurationError`` if it is none."""
    if not isinstance(name, str) or not name:
        of_actor = getattr(name, "actor_name", None)
        hint = f" It is called {of_actor!r}." if isinstance(of_actor, str) else " Leave it out to have all."
        raise ConfigurationError(f"{what}= takes the name of one {what}, not {quoted(name)}.{hint}")
    return name


def checked_reason(reason: object) -> str:
    """Why somebody does something. Raises ``ConfigurationError`` if it cannot be written down."""
    if not isinstance(reason, str) or not is_utf8(reason):
        raise ConfigurationError(
            f"reason is a text to be shown, such as reason='unpaid', not {quoted(reason)}. Leave it out if there is "
            "none."
        )
    return reason


def _is_storable(name: object) -> bool:
    """Whether it can be the key of something. Bytes that are no text come from the store as halves of characters."""
    return isinstance(name, str) and is_utf8(name, "surrogateescape")


def is_utf8(text: str, errors: str = "strict") -> bool:
    try:
        text.encode("utf-8", errors)
    except UnicodeEncodeError:
        return False
    return True
