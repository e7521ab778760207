"""Before the first tick: does the embedding fit this Dramatiq, and are we allowed to do what a commit does?

A right that is missing or a script that does not fit is found here, at start, and not at 03:00.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .errors import ConflictError, StoreRefused, WrongSlot

if TYPE_CHECKING:
    from .publishing import RedisPublisher
    from .store.redis import RedisStore

__all__ = ["prove"]


def prove(store: RedisStore, publisher: RedisPublisher, queues: Iterable[str], logger: logging.Logger) -> None:
    """Runs Dramatiq's script dry for each queue and asks for the rights to our own commands.

    Raises:
      ConflictError: the commit would fail; the message says which right or which key, and what to do.
      StoreUnavailable: the store does not answer.
    """
    try:
        _refuse_missing_rights(store, publisher, queues, logger)
        _refuse_wrong_types(store)
        # A node that has every slot says that they are several only if it is asked for two at once.
        store.read_due(0, skip=0, limit=1)
    except WrongSlot as error:
        raise ConflictError(str(error)) from error


def _refuse_missing_rights(
    store: RedisStore, publisher: RedisPublisher, queues: Iterable[str], logger: logging.Logger
) -> None:
    try:
        refused = [*store.refused_commands(), *_refused_of_dramatiq(store, publisher, queues, logger)]
    except WrongSlot:
        raise
    except StoreRefused as error:
        if "NOPERM" not in str(error) and "permission" not in str(error):
            raise
        refused = [str(error)]
    if refused:
        namespace = store.keys.namespace
        raise ConflictError(
            f"The Redis user may not do what a commit does: {', '.join(dict.fromkeys(refused))}. Grant it these "
            f"commands on the keys {namespace} and {namespace}:* (see the how-to on rights)."
        )


def _refuse_wrong_types(store: RedisStore) -> None:
    wrong = store.wrong_types()
    if wrong:
        raise ConflictError(
            f"Keys of ours hold something else: {'; '.join(wrong)}. Another program writes to them: give this app "
            "another name with DistCron(app=...), or remove the keys."
        )


def _refused_of_dramatiq(
    store: RedisStore, publisher: RedisPublisher, queues: Iterable[str], logger: logging.Logger
) -> list[str]:
    refused = []
    for queue in queues:
        try:
            touched = store.dry_run(publisher.trial(queue))
        except WrongSlot:
            raise
        except StoreRefused as error:
            if "NOPERM" in str(error) or "permission" in str(error):
                raise
            raise ConflictError(
                f"Dramatiq's script does not fit into the step that decides a tick: {error}. "
                "This version of dramatiq is not supported; please report it."
            ) from error
        if not any(one.command in ("rpush", "lpush", "zadd", "xadd") for one in touched):
            raise ConflictError("Dramatiq's script would not put a message anywhere; please report this version of it.")
        refused += [f"{one.command} {one.key}" for one in touched if one.allowed == "no"]
        for one in touched:
            if one.kind not in _WANTED.get(one.command, (one.kind,)):
                logger.error(
                    "Queue %r cannot take messages: its key %s is a %s. Its ticks stay due.", queue, one.key, one.kind
                )
    return refused


_WANTED = {
    "hset": ("hash", "none", ""),
    "rpush": ("list", "none", ""),
    "zadd": ("zset", "none", ""),
}
