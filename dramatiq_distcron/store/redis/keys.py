"""Which keys our state is in. All of them share the broker's namespace, and with it its cluster slot."""

from __future__ import annotations

import re

__all__ = ["Keys"]

_HASH_TAG = re.compile(r"\{[^{}]+\}")


class Keys:
    """The key map of one app: ``<namespace>:distcron:<app>:…``, as told in the reference of the Redis keys."""

    def __init__(self, namespace: str, app: str) -> None:
        self.namespace = namespace
        self.app = app
        self.prefix = f"{namespace}:distcron:{app}:"
        self.owner = self.prefix + "owner"
        self.lease = self.prefix + "lease"
        self.term = self.prefix + "term"
        self.since = self.prefix + "term.since"
        self.schedules = self.prefix + "schedules"
        self.revisions = self.prefix + "schedules.revisions"
        self.revision = self.prefix + "revision"
        self.removed = self.prefix + "removed"
        self.due = self.prefix + "due"
        self.last = self.prefix + "last"
        self.enqueued = self.prefix + "last.enqueued"
        self.ticks = self.prefix + "ticks"
        self.runs = self.prefix + "runs"
        self.outstanding = self.prefix + "outstanding"
        self.outbox = self.prefix + "outbox"
        self.retries = self.prefix + "retries"
        self.retries_data = self.prefix + "retries.msgs"
        self.budgets = self.prefix + "budgets"
        self.deliveries = self.prefix + "deliveries:"
        self.dead = self.prefix + "dead"
        self.dead_data = self.prefix + "dead.msgs"
        self.dead_groups = self.prefix + "dead.groups"
        self.dead_by = self.prefix + "dead.by:"
        self.instances = self.prefix + "instances"
        self.instances_data = self.prefix + "instances.data"
        self.notices = self.prefix + "notices"
        self.wake = self.prefix + "wake"

    @property
    def has_hash_tag(self) -> bool:
        """Whether all keys are in one cluster slot."""
        return bool(_HASH_TAG.search(self.namespace))

    def types(self) -> dict[str, str]:
        """What each key holds."""
        strings = (self.owner, self.lease, self.term, self.since, self.revision, self.removed)
        hashes = (
            self.schedules,
            self.revisions,
            self.last,
            self.enqueued,
            self.runs,
            self.outstanding,
            self.outbox,
            self.retries_data,
            self.budgets,
            self.dead_data,
            self.instances_data,
        )
        return {
            **dict.fromkeys(strings, "string"),
            **dict.fromkeys(hashes, "hash"),
            **dict.fromkeys((self.due, self.retries, self.dead, self.instances), "zset"),
            self.dead_groups: "set",
            **dict.fromkeys((self.ticks, self.wake, self.notices), "stream"),
        }

    def commands(self) -> list[tuple[str, ...]]:
        """One example of each command that a beat sends, to ask for the rights to them."""
        commands = [
            ("time",),
            ("script", "load", "return 1"),
            ("type", self.lease),
            ("xread", "streams", self.wake, "0"),
        ]
        for key, kind in self.types().items():
            commands += [(command, key, *rest) for command, *rest in _COMMANDS[kind]]
        return commands


_COMMANDS: dict[str, list[tuple[str, ...]]] = {
    "string": [("get",), ("mget",), ("set", "x"), ("pexpire", "1"), ("pttl",), ("del",)],
    "hash": [
        ("hget", "x"),
        ("hexists", "x"),
        ("hset", "x", "x"),
        ("hdel", "x"),
        ("hmget", "x"),
        ("hscan", "0"),
        ("hlen",),
    ],
    "zset": [
        ("zscore", "x"),
        ("zmscore", "x"),
        ("zadd", "1", "x"),
        ("zrem", "x"),
        ("zcard",),
        ("zrangebyscore", "0", "1"),
        ("zcount", "0", "1"),
    ],
    # Only those who keep or look at dead letters use it.
    "set": [],
    "stream": [("xadd", "*", "x", "x"), ("xdel", "0-1"), ("xrevrange", "+", "-")],
}
