"""Our Lua scripts, and how Dramatiq's own is embedded in those that put messages into queues.

Nothing of Dramatiq's key layout is copied: the source that the running broker uses becomes a function in ours,
whose parameters shadow what a script is given. The third one lets us watch its commands, or run it dry.
"""

from __future__ import annotations

from importlib.resources import files

import redis
from redis.commands.core import Script

__all__ = ["Scripts"]

_PARTS = {
    "lease_acquire": (),
    "lease_renew": (),
    "lease_release": (),
    "read_due": (),
    "rights": (),
    "heartbeat": (),
    "start_run": (),
    "claim_run": (),
    "edit": ("journal", "history"),
    "earn": ("budgets",),
    "take_retries": ("budgets",),
    "drop_retry": ("journal", "runs"),
    "count_delivery": (),
    "count_without": (),
    "put_letters": ("journal", "letters"),
    "drop_letters": ("journal", "letters"),
    "graveyard": (),
    "adopt": ("journal", "letters"),
    "probe_run": ("journal", "runs"),
    "sweep_runs": ("journal", "runs"),
}
_EMBEDDING = {
    "fire": ("journal", "history"),
    "settle": ("journal", "runs", "letters"),
    "redrive": ("journal", "letters"),
    "move_retries": ("journal", "budgets"),
    "dry_run": (),
}


def _source(name: str) -> str:
    return (files(__package__) / f"{name}.lua").read_text("utf-8")


def _join(name: str, parts: tuple[str, ...], head: str = "") -> str:
    return head + "\n".join(_source(part) for part in (*parts, name))


class Scripts:
    """Every script, registered on one client. One attribute a verb.

    Parameters:
      client: the client they are sent with.
      dispatch: source of Dramatiq's script; ``""`` where the broker is not on this Redis.
    """

    lease_acquire: Script
    lease_renew: Script
    lease_release: Script
    read_due: Script
    rights: Script
    heartbeat: Script
    edit: Script
    start_run: Script
    claim_run: Script
    probe_run: Script
    sweep_runs: Script
    fire: Script
    settle: Script
    earn: Script
    move_retries: Script
    take_retries: Script
    drop_retry: Script
    count_delivery: Script
    count_without: Script
    put_letters: Script
    drop_letters: Script
    graveyard: Script
    adopt: Script
    redrive: Script
    dry_run: Script

    def __init__(self, client: redis.Redis, dispatch: str = "") -> None:
        embedded = f"local function dispatch(KEYS, ARGV, redis)\n{dispatch}\nend\n"
        for name, parts in _PARTS.items():
            setattr(self, name, client.register_script(_join(name, parts)))
        for name, parts in _EMBEDDING.items():
            setattr(self, name, client.register_script(_join(name, parts, embedded)))
