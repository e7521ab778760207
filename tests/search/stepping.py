"""Threads that are stepped by hand: each stops before every command it sends, and goes on when it is told to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

__all__ = ["Host", "Request", "StepEvent", "StepLocal", "StepLock", "StepThread", "ask", "asleep", "current_thread"]


@dataclass
class Request:
    """What a thread waits for.

    Attributes:
      label: what it is, for the trace and for telling states apart.
      args: what it is asked for with, for the laws.
      work: what the server does when the command arrives; ``None``: there is no command, the thread only waits.
      is_ready: whether it can go on at all.
      lost: makes the error the thread sees if the reply does not come; ``None``: replies always come.
      writes: whether a command that is late changes something.
      apart: whether time may pass between the server's doing and the thread's learning of it.
      deadline: when a sleeper wakes by itself, in ms of its clock.
      state: tells all that the thread knows, where that is less than all it ever learned.
      by: the host that asks.
    """

    label: str
    args: tuple[Any, ...] = ()
    work: Callable[[], Any] | None = None
    is_ready: Callable[[], bool] | None = None
    lost: Callable[[], Exception] | None = None
    writes: bool = True
    apart: bool = False
    deadline: float | None = None
    state: Callable[[], Any] | None = None
    landed: bool = False
    reply: Any = None
    error: Exception | None = None
    by: str = ""

    def land(self) -> None:
        """The command arrives at the server."""
        self.landed = True
        try:
            self.reply = self.work() if self.work else None
        except Exception as error:
            self.error = error

    @property
    def on_its_way(self) -> bool:
        """Sent, and arriving at a time of its own."""
        return self.apart and self.in_flight

    @property
    def in_flight(self) -> bool:
        return self.work is not None and not self.landed


class Host:
    """One process of an operating system: its threads die together. Its clocks may be wrong."""

    def __init__(self, world: Any, name: str, *, wall_ahead: int = 0) -> None:
        self.world = world
        self.name = name
        self.wall_ahead = wall_ahead
        self.dead = False
        #: It has something in hand that it does not know of any more.
        self.is_stuck = False
        self.world.hosts[name] = self
        self.threads: list[StepThread] = []
        self.events: list[StepEvent] = []
        self._ids = 0

    def start(self, name: str, program: Callable[[], Any]) -> StepThread:
        """Starts a thread and runs it up to its first command."""
        thread = StepThread(self, name, program)
        self.threads.append(thread)
        self.world.threads[name] = thread
        thread.go_on()
        return thread

    def woken(self) -> None:
        """The store wakes whoever waits."""

    def known(self) -> Any:
        """What its threads share, as far as anything depends on it."""

    def kill(self) -> None:
        """No instruction of it is run any more."""
        self.dead = True
        for thread in self.threads:
            thread.close()

    def monotonic(self) -> float:
        """The clock of elapsed time, in seconds."""
        return self.world.elapsed / 1000  # type: ignore[no-any-return]

    def wall(self) -> int:
        """What the machine believes the time to be, in UTC ms. The product must not care."""
        return self.world.true_time() + self.wall_ahead  # type: ignore[no-any-return]

    def new_id(self, mark: str) -> str:
        """In place of a random id: the same in each run that took the same steps here."""
        self._ids += 1
        return f"{mark}{self.name}-{self._ids}"


class StepThread:
    """One thread of a host."""

    def __init__(self, host: Host, name: str, program: Callable[[], Any]) -> None:
        self.host = host
        self.name = name
        self.request: Request | None = None
        self.failure: BaseException | None = None
        #: The message it works on.
        self.in_hand: Any = None
        #: Stands for all that it ever observed, and so for where it is.
        self.seen = hash(name)
        self._greenlet = _Greenlet(self, program)

    def go_on(self, reply: Any = None, error: Exception | None = None) -> None:
        """Runs it to its next request, or to its end."""
        world = self.host.world
        self.seen = self.known()
        observed = world.essence(reply) if error is None else repr(error)
        label = self.request.label if self.request else ""
        self.seen = hash((self.seen, label, observed, world.elapsed, world.skew))
        self.request = None
        made = self._greenlet.switch(reply) if error is None else self._greenlet.throw(error)
        if not self._greenlet.dead:
            self.request = made

    def known(self) -> int:
        """Stands for all that its next steps can depend on; what its host's threads share is the host's."""
        request = self.request
        if request is None or request.state is None:
            return self.seen
        return hash((self.name, request.label, repr(request.state())))

    def run(self, program: Callable[[], Any]) -> None:
        try:
            program()
        except Exception as failure:
            self.failure = failure

    def close(self) -> None:
        self.request = None
        if self._greenlet and not self._greenlet.dead:
            self._greenlet.throw(GreenletExit())

    @property
    def can_move(self) -> bool:
        """Whether it can go on, or what it sent can arrive."""
        return self.can_go or (self.request is not None and self.request.on_its_way)

    @property
    def can_go(self) -> bool:
        request = self.request
        if request is None or (request.apart and not request.landed):
            return False
        return request.is_ready is None or request.is_ready()


class _Greenlet(greenlet):
    def __init__(self, thread: StepThread, program: Callable[[], Any]) -> None:
        super().__init__(lambda _=None: thread.run(program))
        self.thread = thread


def current_thread() -> StepThread | None:
    """The stepped thread whose code is being run; ``None``: the search itself is at work."""
    return getattr(getcurrent(), "thread", None)


def ask(request: Request) -> Any:
    """Stops this thread until the search lets its request go on; returns the reply."""
    thread = current_thread()
    assert thread is not None, f"{request.label} was asked for outside of a stepped thread"
    if thread.host.dead:
        raise GreenletExit
    request.by = thread.host.name
    return getcurrent().parent.switch(request)


def asleep(
    label: str,
    seconds: float,
    is_woken: Callable[[], bool] = lambda: False,
    state: Callable[[], Any] | None = None,
) -> bool:
    """Sleeps until the host's clock is there, or until it is woken. Returns whether it was."""
    thread = current_thread()
    assert thread is not None
    world = thread.host.world
    deadline = world.elapsed + seconds * 1000
    known = None if state is None else lambda: (max(deadline, world.elapsed), state())
    ask(Request(label, is_ready=lambda: is_woken() or world.elapsed >= deadline, deadline=deadline, state=known))
    return is_woken()


class StepEvent:
    """A ``threading.Event`` of stepped threads."""

    def __init__(self, host: Host, label: str, state: Callable[[], Any] | None = None) -> None:
        self._label = label
        self._is_set = False
        self._state = state
        host.events.append(self)

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        return asleep(self._label, 1e9 if timeout is None else timeout, self.is_set, self._state)


class StepLocal:
    """A ``threading.local`` of stepped threads."""

    def __init__(self) -> None:
        self.__dict__["_values"] = {}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][current_thread(), name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__["_values"][current_thread(), name] = value


class StepLock:
    """A ``threading.Lock`` of stepped threads."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._is_taken = False

    def __enter__(self) -> None:
        if self._is_taken:
            ask(Request(self._label, is_ready=lambda: not self._is_taken))
        self._is_taken = True

    def __exit__(self, *_: object) -> None:
        self._is_taken = False
