"""Before the first tick: does the embedding fit this Dramatiq, and are we allowed to do what a commit does?

A right that is missing or a script that does not fit is found here, at start, and not at 03:00.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .errors import ConflictError, StoreRefused, WrongSlot

if TYPE_CHECKING:
    from .publishing import RedisPublisher
    from .store.redis import RedisStore, Touched

__all__ = ["prove"]


def prove(store: RedisStore, publisher: RedisPublisher, queues: Iterable[str], logger: logging.Logger) -> None:
    """Runs Dramatiq's script dry for each queue and asks for the rights to our own commands.

    Raises:
      ConflictError: the commit would fail; the message says which right or which key, and what to do.
      StoreUnavailable: the store does not answer.
    """
    try:
        touched = _without_rights_refused(store, publisher, queues)
        _refuse_wrong_types(store)
        # A node that has every slot says that they are several only if it is asked for two at once.
        store.read_due(0, skip=0, limit=1)
    except WrongSlot as error:
        raise ConflictError(str(error)) from error
    for queue, commands in touched.items():
        _tell_broken(queue, commands, logger)


# -- rights ---------------------------------------------------------------------------------------------------


def _without_rights_refused(
    store: RedisStore, publisher: RedisPublisher, queues: Iterable[str]
) -> dict[str, list[Touched]]:
    """What Dramatiq's script does for each queue. Raises ``ConflictError`` if we may not do that, or our own."""
    try:
        # A wrong password, say, is no fault of Dramatiq's script.
        store.now()
        touched = {queue: _dry_run(store, publisher, queue) for queue in queues}
        refused = store.refused_commands(*_beside(touched.values()))
    except StoreRefused as error:
        if not _is_about_rights(error):
            raise
        raise _missing(store, [str(error)]) from error
    of_dramatiq = [f"{one.command} {one.key}" for found in touched.values() for one in found if one.allowed == "no"]
    if refused or of_dramatiq:
        raise _missing(store, [*refused, *of_dramatiq])
    return touched


def _dry_run(store: RedisStore, publisher: RedisPublisher, queue: str) -> list[Touched]:
    try:
        touched = store.dry_run(publisher.trial(queue))
    except WrongSlot:
        raise
    except StoreRefused as error:
        if _is_about_rights(error):
            raise
        raise ConflictError(
            f"Dramatiq's script does not fit into the step that decides a tick: {error}. "
            "This version of dramatiq is not supported; please report it."
        ) from error
    if not any(one.command in ("rpush", "lpush", "zadd", "xadd") for one in touched):
        raise ConflictError("Dramatiq's script would not put a message anywhere; please report this version of it.")
    return touched


def _beside(touched: Iterable[list[Touched]]) -> list[tuple[str, ...]]:
    """What we do with the list of a queue: measure it, and take a message out again if the commit fails after it."""
    lists = {one.key for commands in touched for one in commands if one.command == "rpush"}
    return [command for key in sorted(lists) for command in (("llen", key), ("lrem", key, "-1", "x"))]


def _is_about_rights(error: StoreRefused) -> bool:
    return "NOPERM" in str(error) or "permission" in str(error)


def _missing(store: RedisStore, refused: list[str]) -> ConflictError:
    """Says what is refused ("command key", or the server's words), and the line that grants it."""
    commands = [_command_in(one) for one in refused]
    rights = [f"+{command}" for command in dict.fromkeys(commands) if command]
    namespace = store.keys.namespace
    line = " ".join(["ACL SETUSER", store.user, f"~{namespace}", f"~{namespace}:*", *rights])
    return ConflictError(
        f"The Redis user {store.user!r} may not do what a commit does: {', '.join(dict.fromkeys(refused))}. "
        f"Grant it: {line} (the how-to on rights has the whole line)."
    )


def _command_in(refused: str) -> str:
    quoted = re.search(r"'([a-z|]+)' command", refused)
    if quoted:
        return quoted[1]
    command = refused.partition(" ")[0]
    # Anything else is a sentence of the server's.
    return command if command.islower() else ""


# -- keys -----------------------------------------------------------------------------------------------------


def _refuse_wrong_types(store: RedisStore) -> None:
    wrong = store.wrong_types()
    if wrong:
        raise ConflictError(
            f"Keys of ours hold something else: {'; '.join(wrong)}. Another program writes to them: give this app "
            "another name with DistCron(app=...), or remove the keys."
        )


def _tell_broken(queue: str, touched: list[Touched], logger: logging.Logger) -> None:
    for one in touched:
        if one.kind not in _WANTED.get(one.command, (one.kind,)):
            logger.error(
                "Queue %r cannot take messages: its key %s is a %s. Its ticks stay due.", queue, one.key, one.kind
            )


_WANTED = {
    "hset": ("hash", "none", ""),
    "rpush": ("list", "none", ""),
    "zadd": ("zset", "none", ""),
}
