"""What a store must do: one verb, one atomic step.

Whatever may happen between two verbs (a kill, a pause, a lost reply) is thought of; nothing happens inside one.
Instants are UTC milliseconds as integers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from ..retry_budget import RetryBudget

__all__ = [
    "ANY_RUN",
    "NEVER",
    "NO_RUN",
    "REMEMBERED",
    "Acquired",
    "Answers",
    "DuePage",
    "DueRow",
    "Edit",
    "Ending",
    "Fire",
    "Graveyard",
    "Group",
    "Guard",
    "DATA",
    "Held",
    "History",
    "Instance",
    "Letter",
    "LetterRow",
    "Moved",
    "Query",
    "Record",
    "Redrive",
    "Refused",
    "Renewed",
    "Started",
    "Store",
    "Stored",
    "Waiting",
    "WaitingRow",
]

#: The cursor of a schedule that has no further fire time: after every date, and exact as a float. Such a
#: schedule keeps its place, so that there are as many cursors as schedules and a lost cursor is seen by counting.
NEVER: Final = 9_000_000_000_000_000
#: How long a process that tells nothing of itself is believed to be there, in ms.
REMEMBERED: Final = 60_000
#: The outstanding run does not matter to this tick (overlap ``allow``).
ANY_RUN: Final = "*"
#: In a call, the place of the encoded message.
DATA: Final = 1
#: The tick was decided on the fact that no run is outstanding.
NO_RUN: Final = ""


@dataclass(frozen=True, slots=True)
class Acquired:
    """The lease is ours, as ``term``."""

    term: int
    now: int


@dataclass(frozen=True, slots=True)
class Held:
    """Somebody else holds the lease for ``expires_in`` more milliseconds unless it is renewed."""

    holder: str
    expires_in: int


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lease is still ours. If they were counted: stored schedules and cursors must be equally many."""

    now: int
    schedules: int | None = None
    cursors: int | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """Whose write it is. A leader's write is refused unless ``holder`` has the lease; ``""`` asks for none."""

    holder: str
    term: int
    now: int


class DueRow(NamedTuple):
    """A schedule whose cursor is due. ``revision`` is that of its spec (``""``: it was not stored by us).

    ``score`` is ``None`` if it is no time: somebody else wrote it. ``outstanding`` is the message of the run that holds
    it up, if any, and ``enqueued`` the fire time of its last tick that got a message.
    """

    name: str
    score: int | None
    revision: int | str
    outstanding: str
    enqueued: int | None = None


@dataclass(frozen=True, slots=True)
class DuePage:
    """What is due, oldest first, and when the next one will be (``None``: nothing else is stored)."""

    rows: Sequence[DueRow]
    next_score: int | None


@dataclass(slots=True)
class Record:
    """What became of one fire time, or of several equal ones from ``fire_time`` to ``fire_time_to``."""

    outcome: str
    fire_time: int
    fire_time_to: int
    count: int = 1
    reason: str = ""
    message_id: str = ""
    lateness: int | None = None


class Fire(NamedTuple):
    """One move of one cursor: a tick with its message, or a record without one.

    ``score`` is the cursor it was decided on (``None``: a manual trigger, which moves none) and ``new_score`` the
    next one. ``calls`` puts the message into the broker. ``revision`` is the one of the spec it was decided on
    (``""``: it has none).
    """

    name: str
    revision: int | str
    score: int | None
    new_score: int
    record: Record
    run_before: str = ANY_RUN
    run: str = ""
    outbox: bytes = b""
    calls: Sequence[Sequence[Any]] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """A schedule as it is stored: ``spec`` is its JSON, ``score`` its cursor (``None``: it got lost)."""

    name: str
    spec: str
    score: int | None
    revision: int | str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of one schedule, made on ``before`` (``None``: it did not exist) and refused if that has changed.

    ``spec`` is the new one without a revision (the store gives it); ``None`` removes the schedule. ``record`` says
    what became of the fire times that were due under the old spec.
    """

    name: str
    before: Stored | None
    spec: Mapping[str, Any] | None
    score: int = NEVER
    record: Record | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """A worker took up a tick's message: in which state its run was, and when it was enqueued; UTC ms.

    ``previous`` is the fire time of the schedule's tick before it that got a message.
    """

    before: str
    enqueued_at: int
    now: int
    previous: int | None


@dataclass(frozen=True, slots=True)
class Refused:
    """This delivery may not run: it is a copy, or ``holder`` is at it."""

    holder: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that is to come back to its queue in ``delay`` ms.

    ``key`` is its own, ``data`` the encoded message. ``calls`` put it into its queue, with ``DATA`` where the message
    goes; without, it is published by whoever takes it. ``about`` is what can be told of it without decoding it, and
    with ``budget`` (name, floor, burst) it takes a token of that budget.
    """

    key: str
    delay: int
    about: Mapping[str, Any]
    data: bytes
    calls: Sequence[Sequence[Any]] = ()


class WaitingRow(NamedTuple):
    """A message that waits for its retry: when it is due in UTC ms (0: at once, by hand), and what is known of it."""

    key: str
    due: int
    about: Mapping[str, Any]
    data: bytes


class Moved(NamedTuple):
    """What a look at the waiting messages came to: the store's clock in ms, how many went back to their queues.

    ``put_off``: their budget is spent. ``failed``: why some could not be moved. ``taken``: those that the caller must
    publish. ``next_due``: when the next is due in ms.
    """

    now: int
    moved: int = 0
    put_off: int = 0
    failed: str = ""
    next_due: int | None = None
    taken: Sequence[tuple[str, bytes]] = ()


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that died: ``data`` as it was encoded, ``about`` what is told of it, ``indexes`` how it is found."""

    id: str
    about: Mapping[str, Any]
    data: bytes
    indexes: Sequence[tuple[str, str]] = ()


class LetterRow(NamedTuple):
    """A stored letter, and when it died in UTC ms."""

    id: str
    dead_at: int
    about: Mapping[str, Any]
    data: bytes


@dataclass(frozen=True, slots=True)
class Group:
    """The letters that have ``value`` in an indexed ``field``: how many, and when the first and the last died."""

    field: str
    value: str
    count: int
    first: int
    last: int


class Graveyard(NamedTuple):
    """Where Dramatiq keeps the dead messages of a queue: a sorted set by time, and a hash."""

    ids: str
    messages: str


@dataclass(frozen=True, slots=True)
class Query:
    """Which letters: those that have every indexed value, and died from ``since`` to ``until`` (UTC ms)."""

    indexes: Sequence[tuple[str, str]] = ()
    since: int = 0
    until: int = NEVER
    oldest_first: bool = False


class Redrive(NamedTuple):
    """A letter that goes back as a new message, whose id is the key of ``waiting``: into its queue at once if that has
    calls, else among those that wait, for whoever publishes them.

    ``run`` is that of the new message, if it is a tick's. With ``alone``, the name of its schedule, it goes back only
    if no other run of that is outstanding.
    """

    id: str
    waiting: Waiting
    run: str = ""
    alone: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """What becomes of a message, and of a tick's run, when a delivery of it ends.

    ``goes_on``: with a message of ``place`` and ``redis_id`` (a retry), else it is over. ``call`` acks the delivered
    message; without, that is somebody else's work. With ``claim``, nothing is done unless that delivery has the run.
    ``waiting`` is its retry, ``letter`` what is kept of it if it died, and ``calls`` put further messages into the
    broker, in the same step.
    """

    message_id: str
    state: str
    error: str = ""
    goes_on: bool = False
    place: str = ""
    redis_id: str = ""
    attempt: int = 0
    call: Sequence[Any] = ()
    claim: str = ""
    waiting: Waiting | None = None
    letter: Letter | None = None
    calls: Sequence[Sequence[Any]] = ()


@dataclass(frozen=True, slots=True)
class Instance:
    """The heartbeat of one beat or worker process, and when the store heard it; UTC ms."""

    holder: str
    data: Mapping[str, Any]
    seen: int = 0


class History(NamedTuple):
    """One record of the history and, if a message was sent, how its run stands: the newest, if it was redriven."""

    schedule: str
    fields: Mapping[str, str]
    run: Mapping[str, str] | None = None


def sent_with(run: Mapping[str, str]) -> str:
    """The message that a tick was sent with, of a run with its own (``run``): it may be of a letter sent back."""
    return run.get("first") or run["run"]


#: Waits for the answers to a commit that was started; ``None``: the guard's holder does not have the lease.
Answers: TypeAlias = Callable[[], "list[str] | None"]


class Store(Protocol):
    """Every state of ours. Raises ``StoreUnavailable`` (unknown outcome) or ``StoreRefused`` (nothing was done)."""

    def now(self) -> int: ...

    # The lease.
    def acquire(self, holder: str, ttl: int) -> Acquired | Held: ...

    def renew(self, holder: str, ttl: int, *, count: bool = False) -> Renewed | None: ...

    def release(self, holder: str) -> bool: ...

    def claim_owner(self, owner: str, *, adopt: bool) -> str: ...

    def leader(self) -> tuple[str, int, int] | None: ...

    # Ticks.
    def read_due(self, now: int, *, skip: int, limit: int) -> DuePage: ...

    def fire(self, guard: Guard, fires: Sequence[Fire]) -> list[str] | None: ...

    def start_fire(self, guard: Guard, fires: Sequence[Fire]) -> Answers: ...

    def queue_length(self, place: str) -> int: ...

    # Runs.
    def start_run(self, message_id: str, worker: str) -> Started | None: ...

    def claim_run(
        self, message_id: str, worker: str, attempt: int, claim: str = "", doubtful: Sequence[str] = ()
    ) -> Started | Refused: ...

    def settle(self, ending: Ending) -> str: ...

    def probe_run(self, guard: Guard, name: str, message_id: str, longest: int | None) -> str | None: ...

    def sweep_runs(self, guard: Guard, cursor: str, count: int) -> tuple[str, int] | None: ...

    def outstanding(self, name: str) -> str: ...

    # Messages that wait for their retry.
    def move_retries(self, limit: int, *, hold: int | None = None) -> Moved: ...

    def retries(self, limit: int, offset: int = 0) -> list[WaitingRow]: ...

    def retry(self, key: str) -> WaitingRow | None: ...

    def hurry_retry(self, key: str) -> bool: ...

    def drop_retry(self, key: str, *, cancelled: bool = False) -> bool: ...

    def count_retries(self) -> int: ...

    def earn(self, earnings: Sequence[tuple[RetryBudget, int]]) -> None: ...

    def budgets(self) -> dict[str, Mapping[str, float]]: ...

    # Deliveries of messages whose actor counts them.
    def count_delivery(self, key: str) -> int: ...

    def forget_delivery(self, key: str) -> None: ...

    # Dead letters.
    def letters(self, query: Query, limit: int, after: tuple[int, str] | None = None) -> list[LetterRow]: ...

    def letter(self, id: str) -> LetterRow | None: ...

    def count_letters(self, query: Query) -> int: ...

    def count_letters_without(self, field: str, values: Sequence[str]) -> int: ...

    def groups(self) -> list[Group]: ...

    def put_letters(self, letters: Sequence[tuple[Letter, int]]) -> int: ...

    def drop_letters(self, ids: Sequence[str]) -> int: ...

    def dead_values(self, field: str) -> list[str]: ...

    def graveyard(self, keys: Graveyard, after: int, limit: int) -> list[tuple[str, int, bytes | None]]: ...

    def adopt(self, keys: Graveyard, letters: Sequence[tuple[Letter, int]]) -> int: ...

    def redrive(self, letters: Sequence[Redrive]) -> list[str]: ...

    # Messages that are committed and not yet in their broker.
    def outbox(self, limit: int, skip: Container[str] = ()) -> list[tuple[str, bytes]]: ...

    def published(self, message_id: str) -> None: ...

    # Schedules.
    def edit(self, guard: Guard, edits: Sequence[Edit]) -> list[str] | None: ...

    def get(self, names: Iterable[str]) -> dict[str, Stored]: ...

    def scan(self) -> Iterable[Stored]: ...

    def strays(self) -> list[str]: ...

    def last(self, names: Sequence[str]) -> dict[str, Mapping[str, str]]: ...

    def history(self, name: str | None, limit: int) -> list[History]: ...

    # Waking and watching.
    def wait(self, seconds: float) -> bool: ...

    def wake(self) -> None: ...

    def heartbeat(self, instance: Instance, *, keep: int) -> None: ...

    def forget(self, holder: str) -> None: ...

    def instances(self, *, keep: int) -> list[Instance]: ...

    def count(self) -> int: ...

    def other_apps(self) -> list[str]: ...

    def notice(self, text: str) -> None: ...

    def notices(self) -> list[tuple[int, str]]: ...

    def server(self) -> Mapping[str, Any]: ...

    def close(self) -> None: ...
