"""Somebody who edits schedules all the time, over a bad network, and writes down what was asked and answered."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from dramatiq_distcron import NotFoundError, RunOutstanding, StoreUnavailable, install
from dramatiq_distcron.api.schedules import Schedules
from dramatiq_distcron.backends import Backend
from dramatiq_distcron.store.base import Edit, Guard

from .planted import mark_of_the_commit
from .population import Wanted, edited
from .timeline import Attempt

__all__ = ["Editor", "Trigger"]

QUEUES = {"quick": "default", "slow": "slow", "narrow": "narrow", "flaky": "flaky", "doomed": "flaky"}


@dataclasses.dataclass(frozen=True)
class Trigger:
    """A schedule was run by hand. ``answer`` is ``sent``, ``refused``, or ``""`` for "nobody knows"."""

    name: str
    answer: str
    message_id: str = ""


class _Recording:
    """A store that writes down every edit that goes through it, before it is sent and after."""

    def __init__(self, store: Any, note: Callable[[Guard, Edit, str], None]) -> None:
        self._store = store
        self._note = note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def edit(self, guard: Guard, edits: Sequence[Edit]) -> list[str] | None:
        answers = [""] * len(edits)
        try:
            answers = self._store.edit(guard, edits)
        finally:
            for one, answer in zip(edits, answers, strict=True):
                self._note(guard, one, answer)
        return answers


class Editor:
    """The only one who edits: adds, changes, pauses, resumes, removes and triggers, one after the other.

    Parameters:
      url: of the server, through a proxy.
      wanted: every schedule there is.
      lease: its life in seconds; the store's patience depends on it.
    """

    def __init__(self, url: str, wanted: Sequence[Wanted], seed: int, lease: float) -> None:
        self.attempts: list[Attempt] = []
        self.triggers: list[Trigger] = []
        self.done: Counter[str] = Counter()
        self._rng = random.Random(f"{seed} edits")
        self._wanted = {one.name: one for one in wanted}
        self._asked: Wanted | None = None
        #: What may not be there, and what must be put next, so that no two edits look alike.
        self._absent = {one.name for one in wanted if one.source == "api"}
        self._unknown: set[str] = set()
        self._broker = RedisBroker(url=url, middleware=[])
        self._distcron = install(self._broker, lease_ttl=lease, history_size=10_000_000)
        self._declare()
        backend = self._distcron.open_backend()
        recording: Backend = dataclasses.replace(backend, store=_Recording(backend.store, self._note))
        self._schedules = Schedules(self._broker, self._distcron.settings, lambda: recording)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-editor", daemon=True)

    def _declare(self) -> None:
        for name, queue in QUEUES.items():
            dramatiq.actor(lambda version: None, actor_name=name, queue_name=queue, broker=self._broker)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._distcron.close()
        self._broker.client.close()

    def script_names(self) -> dict[str, str]:
        """What scripts are called, by their digest in Redis."""
        scripts = vars(self._distcron.open_backend().store._scripts)  # type: ignore[attr-defined]
        ours = {script.sha: name for name, script in scripts.items()}
        return {**ours, self._broker.scripts["dispatch"].sha: "dramatiq"}

    def marks(self, bug: str) -> dict[str, str]:
        """What is in the requests by which processes with this bug send a script, by its name."""
        text = self._distcron.open_backend().store._scripts.fire.script  # type: ignore[attr-defined]
        by_name = {name: digest for digest, name in self.script_names().items()}
        return {**by_name, "fire": mark_of_the_commit(bug, text)}

    def put_all(self, share: float) -> None:
        """Puts this share of the API's schedules at once."""
        names = [one.name for one in self._wanted.values() if one.source == "api"]
        for name in names[: int(len(names) * share)]:
            self._put(name)

    # -- what it does ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        name = ""
        while not self._stopped.wait(self._rng.uniform(0.02, 0.4)):
            # Often the same one again, so that edits meet what those before them left: put after remove, and so on.
            if not name or self._rng.random() < 0.7:
                name = self._rng.choice(list(self._wanted))
            kind, work = self._choose(name)
            try:
                work(name)
            except StoreUnavailable:
                self.done[f"{kind}, unanswered"] += 1
                self._unknown.add(name)
            except NotFoundError:
                self.done["of one that is not there"] += 1
            else:
                self.done[kind] += 1

    def _choose(self, name: str) -> tuple[str, Callable[[str], None]]:
        from_api = self._wanted[name].source == "api"
        if from_api and (name in self._absent or name in self._unknown):
            return "put", self._put
        if name in self._unknown:
            return "pause", self._pause
        draw = self._rng.random()
        if draw < 0.15:
            return "trigger", self._trigger
        if draw < 0.35 or not from_api:
            return ("pause", self._pause) if self._rng.random() < 0.4 else ("resume", self._resume)
        return ("remove", self._remove) if draw < 0.45 else ("put", self._put)

    def _put(self, name: str) -> None:
        wanted = self._wanted[name] = edited(self._wanted[name], self._rng)
        self._asked = wanted
        self._schedules.put(wanted.schedule(), wanted.actor)
        self._absent.discard(name)
        self._unknown.discard(name)

    def _remove(self, name: str) -> None:
        self._asked = None
        self._schedules.remove(name)
        self._absent.add(name)

    def _pause(self, name: str) -> None:
        """Each with a reason of its own, so that each record tells which pause it was."""
        until = None
        if self._rng.random() < 0.4:
            until = datetime.now(timezone.utc) + timedelta(seconds=self._rng.uniform(0.5, 8))
        self._asked = self._wanted[name]
        self._schedules.pause(name, reason=f"pause {len(self.attempts)}", until=until)
        self._unknown.discard(name)

    def _resume(self, name: str) -> None:
        self._asked = self._wanted[name]
        self._schedules.resume(name)

    def _trigger(self, name: str) -> None:
        trigger = Trigger(name, "")
        try:
            trigger = Trigger(name, "sent", self._schedules.trigger(name).message_id)
        except RunOutstanding:
            trigger = Trigger(name, "refused")
        finally:
            self.triggers.append(trigger)

    def _note(self, guard: Guard, edit: Edit, answer: str) -> None:
        before = edit.before
        self.attempts.append(
            Attempt(
                edit.name,
                guard.now,
                before.spec if before else None,
                before.score if before else None,
                edit.spec,
                answer,
                None if edit.spec is None else self._asked,
            )
        )
