"""The world a search steps through: hosts, a store, queues, clocks, and what may go wrong between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dramatiq_distcron import edits
from dramatiq_distcron.specs import Spec
from dramatiq_distcron.store.base import Guard, Letter
from dramatiq_distcron.store.memory import MemoryStore

from .contents import contents
from .laws import Laws, Run
from .post import Post, essence
from .stepping import Host, Request, StepThread

__all__ = ["START", "Event", "Rules", "Step", "World"]

#: The true time at the beginning, in UTC ms: a multiple of every period that is used.
START = 1_774_746_000_000

#: What a search does next: what happens (``go``, ``land``, ``kill``, ``cut``, ``late``, ``time``), and to whom.
Step = tuple[str, str]


@dataclass(frozen=True)
class Event:
    """Something that happens to all: time passes, a clock steps, a broker delivers twice."""

    label: str
    happen: Callable[[World], None]


@dataclass(frozen=True)
class Rules:
    """How a world is.

    Attributes:
      failing: the first so many attempts at each tick fail.
      once: no attempt may be run twice.
      by_outbox: the broker is none that a commit can put a message into.
      has_workers: there is somebody to take the messages.
      skewed: the store's clock may step.
      overlaps: runs may overlap against the policy, for a reason that is told of.
      copies: and so may a message be in two places.
      gives_up: a letter may be refused, so that its message lies among Dramatiq's own dead ones.
    """

    failing: int = 0
    once: bool = False
    by_outbox: bool = False
    has_workers: bool = False
    skewed: bool = False
    overlaps: bool = False
    copies: bool = False
    gives_up: bool = False


#: In ms: by then nobody is on duty by the time before a step back. Some lives of a lease, since a slow answer hides it.
_FORGOTTEN = 10_000


class World:
    """All there is, in one state. The same steps from the same beginning lead to the same state.

    Parameters:
      rules: how it is.
      store: makes the store of the world's clock and queues.
      events: what happens by itself, in this order, each at any moment.
      faults: how many kills and lost replies there may be.
      struck: the hosts they happen to; all if there is none.
      switches: how often a thread that could go on may be left for another; ``None``: as often as can be.
    """

    def __init__(
        self,
        rules: Rules,
        store: Callable[..., MemoryStore] = MemoryStore,
        events: Sequence[Event] = (),
        *,
        faults: int = 0,
        struck: str = "",
        switches: int | None = 0,
    ) -> None:
        self.rules = rules
        self.elapsed = 0
        self.skew = 0
        #: The latest that somebody on duty may take it for.
        self.latest = START
        self._stepped_back = -_FORGOTTEN
        self.post = Post()
        self.store = store(self.now, self.post.commit, is_there=self._is_there, length=self.post.length)
        self.hosts: dict[str, Host] = {}
        self.threads: dict[str, StepThread] = {}
        self.late: list[Request] = []
        self.events = list(events)
        self.faults_left = faults
        self.struck = struck
        self.switches_left = switches
        self.last = ""
        self.refused: list[str] = []
        self.runs: list[Run] = []
        self.laws = Laws(self)
        self._wakes = 0

    def put(self, *specs: Spec) -> None:
        """Stores schedules before the search begins."""
        guard = Guard("", 0, self.now())
        made = [edits.add(spec, self.now()) for spec in specs]
        request = Request("edit", (guard, made), lambda: self.store.edit(guard, made))
        self._arrive(request)

    def keep(self, letters: Sequence[tuple[Letter, int]]) -> None:
        """Letters from elsewhere are there before the search begins, each since some time."""
        self._arrive(Request("put_letters", (letters,), lambda: self.store.put_letters(letters)))

    def _is_there(self, place: str, redis_id: str) -> bool:
        """Messages of another broker than Redis cannot be looked for; they are taken to be there."""
        return self.rules.by_outbox or self.post.is_there(redis_id)

    # -- clocks -----------------------------------------------------------------------------------------------

    def true_time(self) -> int:
        return START + self.elapsed

    def now(self) -> int:
        """The store's clock, in UTC ms."""
        return self.true_time() + self.skew

    def pass_time(self, ms: int) -> None:
        # Who asked for the time before a step back goes on from there, until it asks again.
        ahead = min(ms, self._ahead())
        self.elapsed += ms
        self.latest = max(self.latest + ahead, self.now())

    def _ahead(self) -> int:
        """How long somebody may still go on from before a step back."""
        return max(0, self._stepped_back + _FORGOTTEN - self.elapsed)

    def step_clock(self, ms: int) -> None:
        """The store's clock is set; no time passes."""
        self.skew += ms
        if ms < 0:
            self._stepped_back = self.elapsed
        self.latest = max(self.latest, self.now())

    # -- what can happen --------------------------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """Everything that can happen next, the most ordinary first."""
        threads = self._movable()
        found = [("land", one.name) for one in threads if one.request is not None and one.request.on_its_way]
        found += [("go", one.name) for one in threads if one.can_go]
        if self.events:
            found.append(("time", self.events[0].label))
        found += [("late", str(index)) for index in range(len(self.late))]
        return found + (self._faults() if self.faults_left else [])

    def _movable(self) -> list[StepThread]:
        """The threads that may move now: the one that moved last comes first."""
        threads = sorted(self.threads.values(), key=lambda one: one.name != self.last)
        if threads and threads[0].name == self.last and threads[0].can_move and self.switches_left == 0:
            return threads[:1]
        return threads

    def _faults(self) -> list[Step]:
        hosts = [one for one in self.hosts.values() if not self.struck or one.name in self.struck]
        living = [one for one in hosts if not one.dead and one.threads]
        cuts = [
            ("cut", one.name)
            for host in living
            for one in host.threads
            if one.request is not None and one.request.lost is not None
        ]
        return cuts + [("kill", host.name) for host in living]

    def take(self, step: Step) -> None:
        """One thing happens."""
        what, name = step
        getattr(self, f"_{what}")(name)
        self._wake()

    def tell(self, step: Step) -> str:
        """What a step is, in words."""
        what, name = step
        thread = self.threads.get(name)
        if what == "late":
            return f"late: {self.late[int(name)].label}"
        if what in ("go", "land", "cut") and thread is not None and thread.request is not None:
            return f"{what} {name}: {thread.request.label}"
        return f"{what}: {name}"

    def _go(self, name: str) -> None:
        thread = self._moves(name)
        request = thread.request
        assert request is not None
        if request.in_flight:
            self._arrive(request)
        thread.go_on(request.reply, request.error)

    def _moves(self, name: str) -> StepThread:
        """It is this thread's turn; counts if it is taken from another one."""
        before = self.threads.get(self.last)
        if self.switches_left is not None and before is not None and before.name != name and before.can_move:
            self.switches_left -= 1
        self.last = name
        return self.threads[name]

    def _arrive(self, request: Request) -> None:
        request.land()
        self.laws.arrived(request)

    def _land(self, name: str) -> None:
        request = self._moves(name).request
        assert request is not None
        self._arrive(request)

    def _late(self, index: str) -> None:
        self._arrive(self.late.pop(int(index)))

    def _time(self, label: str) -> None:
        self.events.pop(0).happen(self)

    def _cut(self, name: str) -> None:
        """The reply does not come. The command may arrive later, or never."""
        self.faults_left -= 1
        thread = self.threads[name]
        request = thread.request
        assert request is not None
        assert request.lost is not None
        self._leave_behind(request)
        self.last = name
        thread.go_on(error=request.lost())

    def _kill(self, name: str) -> None:
        self.faults_left -= 1
        host = self.hosts[name]
        for thread in host.threads:
            if thread.request is not None:
                self._leave_behind(thread.request)
        host.kill()

    def _leave_behind(self, request: Request) -> None:
        if request.in_flight and request.writes:
            self.late.append(request)

    def _wake(self) -> None:
        wakes = self.store._wakes
        if wakes != self._wakes:
            self._wakes = wakes
            for host in self.hosts.values():
                if not host.dead:
                    host.woken()

    def close(self) -> None:
        """Ends all threads."""
        for host in self.hosts.values():
            host.kill()

    # -- which state it is ------------------------------------------------------------------------------------

    def key(self) -> int:
        """Equal for states from which the same things can happen."""
        threads = [
            (one.known(), one.can_go, one.request is not None and one.request.landed)
            for one in self.threads.values()
            if not one.host.dead
        ]
        flags = [event.is_set() for host in self.hosts.values() if not host.dead for event in host.events]
        switches = (self.last, self.switches_left) if self.switches_left is not None else None
        ours = (self.elapsed, self.skew, self.latest, self._ahead(), len(self.events), self.faults_left, switches)
        text = repr((ours, threads, flags, [host.dead or host.known() for host in self.hosts.values()], self.refused))
        text += repr(
            (contents(self.store, presence=self.rules.by_outbox), self.post.key(), sorted(self.runs), self.laws.key())
        )
        text += repr(sorted((one.label, self.essence(one.args)) for one in self.late))
        return hash(self.without_chance(text))

    def without_chance(self, text: str) -> str:
        """The text with every id that was given by chance replaced by what it stands for."""
        names = {id: f"letter of {essence(letter.data)}" for id, (_, letter) in self.store._state.dead.items()}
        # A message that tells of a letter names it.
        names |= {id: _without(name, names) for id, name in self.post.names().items()}
        return _without(text, names)

    def essence(self, what: Any) -> str:
        """A text of a command or an answer that is equal for equal ones."""
        if isinstance(what, list) and what and isinstance(what[0], bytes):
            return repr([essence(data) for data in what])
        text = _DATED.sub("", repr(what))
        return self.without_chance(text) if "#" in text else text


def _without(text: str, names: Mapping[str, str]) -> str:
    return _BY_CHANCE.sub(lambda found: names.get(found.group(), "gone"), text) if "#" in text else text


_BY_CHANCE = re.compile(r"#[\w/]+-\d+\+*")
#: Who decided when is for reading only.
_DATED = re.compile(r"term=\d+, |\"(?:message_timestamp|term|at|previous)\\*\"(?:: ?)\"?\d*\"?")
