"""Waking others, telling of oneself, and whether everything fits."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import StoreRefused
from ..base import Instance
from .replies import text
from .verbs import Verbs

__all__ = ["Touched", "WatchVerbs"]


#: So many keys are looked at for other apps, at most, and so many in one step.
_LOOKED_AT, _AT_ONCE = 200_000, 1000


def _literally(text_: str) -> str:
    """As a pattern that stands for itself."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", text_)


@dataclass(frozen=True)
class Touched:
    """One command of Dramatiq's script: its key, that key's type now, and ``yes``/``no``/``unknown``: allowed?"""

    command: str
    key: str
    kind: str
    allowed: str


class WatchVerbs(Verbs):
    """What is neither a tick's nor a schedule's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiter: Any = None
        self._woken = "$"

    # -- does it fit? ---------------------------------------------------------------------------------------

    def dry_run(self, call: Sequence[Any]) -> list[Touched]:
        """What Dramatiq's script would do with ``call``, without doing it."""
        with self._errors():
            reply = self._scripts.dry_run(keys=[self.keys.namespace], args=call)
        return [Touched(*(text(part) for part in entry[:4])) for entry in reply]

    def refused_commands(self, *more: tuple[str, ...]) -> list[str]:
        """Our own commands, and ``more``, that this user may not send; none before Redis 7.0, which cannot tell."""
        args: list[Any] = []
        waiting = [("wait", "0", "0")] if self._replicas else []
        for command in [*self.keys.commands(), *waiting, *more]:
            args += [command[0], len(command) - 1, *command[1:]]
        with self._errors():
            return [text(refused).strip() for refused in self._scripts.rights(keys=[self.keys.lease], args=args)]

    def wrong_types(self) -> list[str]:
        """Those of our keys that hold something else than they should."""
        with self._errors():
            return [
                f"{key} is a {text(found)}, not a {kind}"
                for key, kind in self.keys.types().items()
                if (found := self._client.type(key)) not in (b"none", kind.encode())
            ]

    # -- waking and watching --------------------------------------------------------------------------------

    def wait(self, seconds: float) -> bool:
        """Blocks until a schedule was edited or the leader left, for ``seconds`` at most."""
        if self._waiter is None:
            # It must outlast the block, unlike every other command of ours.
            self._waiter = self._connection.client(seconds + 5)
        with self._errors():
            if self._woken == "$":
                self._woken = self._newest_wake()
            reply: Any = self._waiter.xread({self.keys.wake: self._woken}, block=max(1, int(seconds * 1000)))
        if not reply:
            return False
        self._woken = text(reply[0][1][-1][0])
        return True

    def wake(self) -> None:
        """Wakes everybody who waits."""
        with self._errors():
            self._client.xadd(self.keys.wake, {"why": "asked"}, maxlen=1, approximate=False)

    def _newest_wake(self) -> str:
        newest = self._waiter.xrevrange(self.keys.wake, count=1)
        return text(newest[0][0]) if newest else "0-0"

    def heartbeat(self, instance: Instance, *, keep: int) -> None:
        """Publishes a process and drops those not heard of for ``keep`` ms."""
        k = self.keys
        data = json.dumps(dict(instance.data))
        with self._errors():
            self._scripts.heartbeat(keys=[k.instances, k.instances_data], args=[instance.holder, data, keep])

    def forget(self, holder: str) -> None:
        """Takes a process that ends off the list."""
        with self._errors():
            self._client.zrem(self.keys.instances, holder)
            self._client.hdel(self.keys.instances_data, holder)

    def instances(self, *, keep: int) -> list[Instance]:
        """The processes heard of within the last ``keep`` ms."""
        since = self.now() - keep
        with self._errors():
            seen = dict(self._client.zrangebyscore(self.keys.instances, since, "+inf", withscores=True))
            data = self._client.hmget(self.keys.instances_data, list(seen)) if seen else []
        return [
            Instance(text(holder), json.loads(told), int(at))
            for (holder, at), told in zip(seen.items(), data, strict=True)
            if told is not None
        ]

    def count(self) -> int:
        """How many schedules are stored."""
        with self._errors():
            return int(self._client.hlen(self.keys.schedules))

    def other_apps(self) -> list[str]:
        """Apps of the same namespace that have schedules, as far as they are among the keys that are looked at.

        For those who find nothing: nobody keeps a list of apps, so the keys of the server are walked through, up to
        ``_LOOKED_AT`` of them. None, if we may not do that.
        """
        client, before = self._client, self.keys.prefix.removesuffix(f"{self.keys.app}:")
        if self._connection.is_cluster:
            # They are all in one slot.
            client = client.get_redis_connection(client.get_node_from_key(self.keys.schedules))
        found: set[str] = set()
        at = 0
        try:
            for _ in range(_LOOKED_AT // _AT_ONCE):
                with self._errors():
                    at, some = client.scan(at, match=f"{_literally(before)}*:schedules", count=_AT_ONCE)
                found.update(text(key).removeprefix(before).removesuffix(":schedules") for key in some)
                if at == 0:
                    break
        except StoreRefused:
            return []
        # The index of a queue that is called so is no app's.
        return sorted(app for app in found - {self.keys.app} if ":" not in app)

    def notice(self, text_: str) -> None:
        """Keeps a word for whoever asks for the status."""
        # A name in it may be none, and is no reason to keep silent.
        text_ = text_.encode("utf-8", "backslashreplace").decode()
        with self._errors():
            self._client.xadd(self.keys.notices, {"at": self.now(), "text": text_}, maxlen=10, approximate=False)

    def notices(self) -> list[tuple[int, str]]:
        """The latest words: UTC ms and text, newest first."""
        with self._errors():
            found = self._client.xrevrange(self.keys.notices, count=10)
        return [(int(fields[b"at"]), text(fields[b"text"])) for _, fields in found]

    def server(self) -> Mapping[str, Any]:
        """What kind of server it is; only what we may ask for."""
        try:
            with self._errors():
                info = self._client.info("server")
        except StoreRefused:
            return {}
        name = "valkey" if "valkey_version" in info else "redis"
        return {"server": name, "version": info.get("valkey_version", info.get("redis_version"))}
