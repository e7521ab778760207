"""The commands of a host: to the store and to the broker, each with a stop before it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import redis

from dramatiq_distcron.errors import StoreUnavailable

from .stepping import Host, Request, ask, current_thread

__all__ = ["SteppedScript", "SteppedStore"]

#: Commands that change nothing.
_READS = {
    "now", "get", "last", "history", "read_due", "queue_length", "outstanding", "outbox", "instances", "leader",
    "letters", "letter", "count_letters", "count_letters_without", "dead_values", "graveyard",
}  # fmt: skip
#: Commands without a stop, because they touch what no decision is made on: they commute with all others.
_ALONE = {"count", "forget", "wake", "notice", "claim_owner", "heartbeat", "instances"}


def _host() -> Host:
    thread = current_thread()
    assert thread is not None
    return thread.host


def _no_reply() -> Exception:
    return StoreUnavailable("the reply was lost")


def _no_broker() -> Exception:
    return redis.ConnectionError("the reply was lost")


class SteppedStore:
    """The store as the host sees it whose code is being run.

    Parameters:
      presence_matters: whether anything is decided on who is there.
      quiet: further commands that commute with all others, because nothing here writes what they read.
      dated: commands where time may pass between their doing and our learning of it.
    """

    where = "memory"

    def __init__(
        self, *, presence_matters: bool = False, quiet: Collection[str] = (), dated: Collection[str] = ()
    ) -> None:
        self._dated = dated
        self._alone = {*_ALONE, *quiet} - ({"heartbeat", "instances"} if presence_matters else set())

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        work = getattr(_host().world.store, verb)
        return work if verb in self._alone else lambda *args, **options: self._ask(verb, work, *args, **options)

    def _ask(self, verb: str, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        request = Request(
            verb,
            args,
            lambda: work(*args, **options),
            lost=_no_reply,
            writes=verb not in _READS,
            apart=verb in self._dated,
        )
        return ask(request)

    def settle(self, ending: Any) -> Any:
        return self._ask("settle", _host().world.store.settle, ending)

    def redrive(self, letters: Any) -> Any:
        return self._ask("redrive", _host().world.store.redrive, letters)

    def graveyard(self, keys: Any, after: int, limit: int) -> Any:
        return self._ask("graveyard", _host().world.store.graveyard, keys, after, limit)

    def adopt(self, keys: Any, letters: Any) -> Any:
        return self._ask("adopt", _host().world.store.adopt, keys, letters)

    def put_letters(self, letters: Any) -> Any:
        return self._ask("put_letters", _host().world.store.put_letters, letters)

    def scan(self) -> Any:
        """All at one instant."""
        store = _host().world.store
        return store.scan() if "scan" in self._alone else self._ask("scan", lambda: list(store.scan()))

    def start_fire(self, guard: Any, fires: Any) -> Callable[[], Any]:
        """Sends it; it arrives at any time from now on, also when we are dead."""
        store = _host().world.store
        request = Request("fire", (guard, fires), lambda: store.fire(guard, fires), lost=_no_reply, apart=True)
        return lambda: ask(request)


class SteppedScript:
    """Dramatiq's script as the host sees it whose code is being run.

    Parameters:
      timeout: after how many ms of silence a process is taken for dead.
    """

    def __init__(self, timeout: int) -> None:
        self.timeout = timeout

    def __call__(self, *, args: Sequence[Any], keys: Sequence[Any]) -> Any:
        command, queue = args[0], args[2]
        host = _host()
        post = host.world.post
        is_ready = state = None
        if command == "fetch":
            # A worker with nothing in hand knows nothing.
            state = lambda: queue  # noqa: E731
            # It waits for a message where the real one asks again and again.
            is_ready = lambda: post.has_work(queue, host.wall(), self.timeout)  # noqa: E731
        # A fetch whose reply is lost leaves messages in a live worker's hands; that is Dramatiq's own, and told of.
        lost = None if command == "fetch" else _no_broker
        return ask(Request(command, (queue, *args[8:]), lambda: self._run(host, args), is_ready, lost, state=state))

    def _run(self, host: Host, args: Sequence[Any]) -> Any:
        # The command carries the time at which it was sent; waiting for a message is asking again and again.
        if args[0] == "fetch":
            args = [args[0], host.wall(), *args[2:]]
        return host.world.post.dispatch(args)
