"""The checkers of the chaos runs can fail: each sees what it is for in a doctored history, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import chaos
from tests.chaos.editor import Trigger
from tests.chaos.history import Decision, Ended, History, Left, State
from tests.chaos.population import Wanted
from tests.chaos.run import check
from tests.chaos.targets import matched
from tests.chaos.timeline import Pause, Timeline
from tests.chaos.timetable import Times
from tests.chaos.witness import Seen

TIMES = [1000, 2000, 3000, 4000, 5000]
END = 9000


def sent(fire_time: int, **changes: Any) -> Decision:
    message_id = f"m{fire_time}"
    made = Decision(
        "x", "enqueued", fire_time, fire_time, 1, "", message_id, fire_time + 5, 5, 1, fire_time, fire_time + 6
    )
    return replace(made, **changes)


def passed(first: int, last: int, outcome: str = "missed", reason: str = "catch_up=latest", **changes: Any) -> Decision:
    made = Decision("x", outcome, first, last, (last - first) // 1000 + 1, reason, "", last + 1005, None, 1, first, END)
    return replace(made, **changes)


def ended(fire_time: int, state: str = "succeeded", **changes: Any) -> Ended:
    made = Ended(f"m{fire_time}", "x", fire_time, state, "", fire_time + 500, fire_time + 500)
    return replace(made, **changes)


def seen(fire_time: int, event: Any = "begun", **changes: Any) -> Seen:
    at = fire_time + (10 if event == "begun" else 20)
    made = Seen(event, at, 7, f"m{fire_time}", f"r{fire_time}", "x", fire_time, 1, 0, 0)
    return replace(made, **changes)


def history(
    decisions: list[Decision] | None = None,
    endings: list[Ended] | None = None,
    saw: list[Seen] | None = None,
    *,
    policy: dict[str, Any] | None = None,
    name: str = "x",
    actor: str = "quick",
    pauses: list[Pause] | None = None,
    bounds: list[int] | None = None,
    removals: list[tuple[int, int]] | None = None,
    version: int = 0,
    left: list[Left] | None = None,
    cursor: int | None = 10_000,
    runs: frozenset[str] = frozenset(),
    **more: Any,
) -> History:
    """Five fire times; unless told otherwise each has its message, its run and its end."""
    wanted = Wanted(name, actor, Times("every", 1), policy or {}, version=version)
    state = State(
        decisions=[sent(time) for time in TIMES] if decisions is None else decisions,
        endings=[ended(time) for time in TIMES] if endings is None else endings,
        stream_ids=frozenset(),
        specs={},
        cursors={} if cursor is None else {name: cursor},
        runs=runs,
        outstanding={},
        left=left or [],
    )
    both = [seen(time, event) for time in TIMES for event in ("begun", "done")]
    # The cursor stands at the next one.
    line = Timeline(name, [*TIMES, 10_000], [(0, wanted)], pauses or [], bounds or [], removals or [])
    more.setdefault("settled", END)
    return History({name: line}, state, both if saw is None else saw, **more)


def without(fire_time: int, **more: Any) -> History:
    """As if this fire time had never been decided."""
    others = [time for time in TIMES if time != fire_time]
    decisions = [*map(sent, others), *more.pop("decisions", [])]
    endings = [*map(ended, others), *more.pop("endings", [])]
    saw = [seen(time, event) for time in others for event in ("begun", "done")] + more.pop("saw", [])
    return history(decisions, endings, saw, **more)


def overlapping(**more: Any) -> History:
    """The run of 3000 is on until after that of 4000 began: by the records, and by what the worker saw."""
    saw = [seen(t, e, at=4015) if (t, e) == (3000, "done") else seen(t, e) for t in TIMES for e in ("begun", "done")]
    endings = [ended(time, position=4100) if time == 3000 else ended(time) for time in TIMES]
    return history(endings=endings, saw=saw, policy={"overlap": "skip"}, **more)


def found(what: History) -> set[str]:
    return {violation.kind for violation in check(what)}


GOOD: dict[str, History] = {
    "all is well": history(),
    "a redelivery has the same id in its queue": history(
        saw=[*(seen(time, event) for time in TIMES for event in ("begun", "done")), seen(5000), seen(5000, "done")]
    ),
    "a retry has another id in its queue": history(
        saw=[
            *(seen(time, event) for time in TIMES for event in ("begun", "done")),
            seen(5000, "failed"),
            seen(5000, redis_id="another", attempt=1),
        ]
    ),
    "a message waits in its queue": history(
        endings=[ended(time) for time in TIMES[:-1]],
        saw=[seen(time, event) for time in TIMES[:-1] for event in ("begun", "done")],
        left=[Left("default", "r5000", "m5000", 1, 0, 0)],
        runs=frozenset({"m5000"}),
    ),
    "a message expired": without(5000, decisions=[sent(5000)], endings=[ended(5000, "dropped", reason="expired")]),
    "a message is dead": without(
        5000,
        decisions=[sent(5000)],
        endings=[ended(5000, "dead")],
        saw=[seen(5000), seen(5000, "failed")],
        left=[Left("default.XQ", "r5000", "m5000", 0, 0, 1)],
    ),
    "a message is dead twice by two retries": without(
        5000,
        decisions=[sent(5000)],
        endings=[ended(5000, "dead")],
        saw=[
            seen(5000),
            seen(5000, "failed"),
            *(seen(5000, "failed", redis_id=one, attempt=1) for one in ("r1", "r2")),
        ],
        left=[Left("default.XQ", one, "m5000", 0, 0, 1, attempt=2) for one in ("r1", "r2")],
    ),
    "a record says why there was none": without(3000, decisions=[passed(3000, 3000)]),
    "a tick is spread to later than the end": without(5000, cursor=END + 1),
    "a tick is spread to after a pause": history(
        [sent(time, decided_at=time + 500, stored_at=time + 8) for time in TIMES],
        policy={"spread": 1},
        pauses=[Pause(1600, 2495, "why")],
    ),
    "a fire time is later than the end": without(5000, settled=4999),
    "a run is beside one of a schedule that was removed": overlapping(removals=[(3400, 3500)]),
    "triggers": history(
        decisions=[*map(sent, TIMES), sent(2500, reason="triggered", term=0, message_id="t")],
        endings=[*map(ended, TIMES), ended(2500, message_id="t")],
        saw=[
            *(seen(time, event) for time in TIMES for event in ("begun", "done")),
            *(seen(2500, event, message_id="t", term=0) for event in ("begun", "done")),
        ],
        triggers=[Trigger("x", "sent", "t"), Trigger("x", "refused"), Trigger("x", "")],
    ),
}


@pytest.mark.parametrize("what", GOOD.values(), ids=GOOD)
def test_of_a_good_history_nothing_is_told(what: History) -> None:
    assert check(what) == []


def again(fire_time: int, **changes: Any) -> History:
    """A second record of a tick, with a message of its own that ran and ended."""
    return history(
        [*map(sent, TIMES), sent(fire_time, position=fire_time + 1, message_id="second", **changes)],
        [*map(ended, TIMES), ended(fire_time, message_id="second")],
        [
            *(seen(time, event) for time in TIMES for event in ("begun", "done")),
            *(seen(fire_time, event, message_id="second") for event in ("begun", "done")),
        ],
    )


DOCTORED: dict[str, tuple[str, History]] = {
    # One message a tick.
    "a tick has two messages": ("duplicate", again(3000)),
    "two records name one message": ("duplicate", history([*map(sent, TIMES), sent(5000, position=5001)])),
    "a message was put into its queue twice": (
        "duplicate",
        history(saw=[*(seen(t, e) for t in TIMES for e in ("begun", "done")), seen(3000, redis_id="another")]),
    ),
    "a message lies in the broker twice": (
        "duplicate",
        history(
            left=[Left("default", "r1", "m9", 1, 0, 0), Left("default.DQ", "r2", "m9", 1, 0, 0)],
            runs=frozenset({"m9"}),
        ),
    ),
    "a message is dead twice without a retry": (
        "duplicate",
        without(
            5000,
            decisions=[sent(5000)],
            endings=[ended(5000, "dead")],
            saw=[seen(5000), seen(5000, "failed")],
            left=[Left("default.XQ", one, "m5000", 0, 0, 1) for one in ("r1", "r2")],
        ),
    ),
    "one trigger made two messages": (
        "duplicate",
        history(
            [*map(sent, TIMES), *(sent(2500, reason="triggered", term=0, message_id=one) for one in "tu")],
            triggers=[Trigger("x", "sent", "t")],
        ),
    ),
    # No message in zero places.
    "a message is nowhere": ("lost", history(endings=[ended(time) for time in TIMES[:-1]])),
    "a message waits without a run": (
        "lost",
        history(endings=[ended(time) for time in TIMES[:-1]], left=[Left("default", "r5000", "m5000", 1, 0, 0)]),
    ),
    "a message is in the hash of its queue and on no list": (
        "lost",
        history(
            endings=[ended(t) for t in TIMES[:-1]],
            left=[Left("default", "r5000", "m5000", 0, 0, 0)],
            runs=frozenset({"m5000"}),
        ),
    ),
    "a message succeeded and nobody did it": ("lost", history(saw=[seen(time) for time in TIMES])),
    "a dead message is not among the dead": ("lost", history(endings=[*map(ended, TIMES[:-1]), ended(5000, "dead")])),
    "a message was given up": (
        "lost",
        history(endings=[*map(ended, TIMES[:-1]), ended(5000, "dropped", reason="its message is gone")]),
    ),
    "a run ended in a way of its own": ("lost", history(endings=[*map(ended, TIMES[:-1]), ended(5000, "lapsed")])),
    "a trigger was sent and left no record": ("lost", history(triggers=[Trigger("x", "sent", "t")])),
    "a message that ended waits": ("left_over", history(left=[Left("default", "r5000", "m5000", 1, 0, 0)])),
    # One end a message.
    "a run ended twice": ("ended_twice", history(endings=[*map(ended, TIMES), ended(3000, position=3600)])),
    "a run ended and is still open": ("ended_twice", history(runs=frozenset({"m3000"}))),
    # Nothing without a record.
    "a message ran and has no record": ("unrecorded", history([sent(time) for time in TIMES[:-1]])),
    "a run ended that was never enqueued": ("unrecorded", history(endings=[*map(ended, TIMES), ended(6000)])),
    "a message is of another term than its record": (
        "unrecorded",
        history([*map(sent, TIMES[:-1]), sent(5000, term=2)]),
    ),
    "a record vanished": ("vanished", history(watched=frozenset({"1-0"}))),
    "a process fell": ("fallen", history(fallen=["beat 1"])),
    "something did not come to its end": ("unfinished", history(unfinished=["the workers"])),
    # Not early.
    "a tick was stored before its time": ("early", history([*map(sent, TIMES[:-1]), sent(5000, stored_at=4999)])),
    "a tick was decided before its time": ("early", history([*map(sent, TIMES[:-1]), sent(5000, decided_at=4999)])),
    "a tick ran before its time": (
        "early",
        history(saw=[*(seen(t, e) for t in TIMES for e in ("begun", "done")), seen(5000, at=4999)]),
    ),
    # Nobody who was followed by another.
    "a deposed leader sent": (
        "deposed",
        history(
            [sent(time, term=2 if time == 2000 else 1) for time in TIMES],
            saw=[seen(t, e, term=2 if t == 2000 else 1) for t in TIMES for e in ("begun", "done")],
        ),
    ),
    # Every target has one outcome.
    "nothing became of a fire time": ("hole", without(3000)),
    "nothing became of the last one": ("hole", without(5000)),
    "a cursor stands at no fire time and one is undecided": ("hole", without(5000, cursor=9 * 10**15)),
    "a cursor is stuck": ("hole", without(5000, cursor=5000)),
    "a removed schedule left one undecided": ("hole", without(5000, cursor=None)),
    "a record is of no fire time": ("phantom", without(3000, decisions=[passed(2500, 3000)])),
    "a record is of a schedule that is not there": ("phantom", history([*map(sent, TIMES), sent(6000, schedule="y")])),
    "a record counts wrongly": ("miscounted", without(3000, decisions=[passed(3000, 3000, count=2)])),
    "a fire time was enqueued and missed": ("decided_twice", history([*map(sent, TIMES), passed(3000, 3000)])),
    "records are in the wrong order": ("disorder", history([sent(t, position=9000 - t) for t in TIMES])),
    "a message has no run": ("no_run", history(saw=[seen(t, e) for t in TIMES[:-1] for e in ("begun", "done")])),
    "a run is one too many": (
        "extra_run",
        history(saw=[*(seen(t, e) for t in TIMES for e in ("begun", "done")), seen(5000, message_id="other")]),
    ),
    "a run began before its message was enqueued": (
        "no_run",
        history([*map(sent, TIMES[:-1]), sent(5000, stored_at=5011)]),
    ),
    # By policy.
    "an unknown outcome": ("unfounded", without(3000, decisions=[passed(3000, 3000, "forgotten")])),
    "an unknown reason": ("unfounded", without(3000, decisions=[passed(3000, 3000, reason="bad luck")])),
    "missed for a newer one that was not due": (
        "unfounded",
        without(3000, decisions=[passed(3000, 3000, decided_at=3999)]),
    ),
    "missed by another policy": ("unfounded", without(3000, decisions=[passed(3000, 3000, reason="catch_up=skip")])),
    "enqueued though a newer one was due": ("unfounded", history([sent(1000, decided_at=2001), *map(sent, TIMES[1:])])),
    "enqueued after its grace time": (
        "unfounded",
        history([*map(sent, TIMES[:-1]), sent(5000, decided_at=5501)], policy={"misfire_grace_time": 0.5}),
    ),
    "missed within its grace time": (
        "unfounded",
        without(
            5000,
            decisions=[passed(5000, 5000, reason="misfire_grace_time=2", decided_at=6999)],
            policy={"misfire_grace_time": 2},
        ),
    ),
    "missed by a cap that was not reached": (
        "unfounded",
        without(
            3000,
            decisions=[passed(3000, 3000, reason="max_catch_up=3", decided_at=5500)],
            policy={"catch_up": "all", "max_catch_up": 3},
        ),
    ),
    "missed by an edit that was not": ("unfounded", without(3000, decisions=[passed(3000, 3000, reason="edited")])),
    "skipped for an overlap that is allowed": (
        "unfounded",
        without(3000, decisions=[passed(3000, 3000, "skipped_overlap", "overlap=skip")]),
    ),
    "paused without a pause": ("unfounded", without(3000, decisions=[passed(3000, 3000, "paused", "why")])),
    "paused after the pause": (
        "unfounded",
        without(3000, decisions=[passed(3000, 3000, "paused", "why")], pauses=[Pause(1500, 3000, "why")]),
    ),
    "enqueued in a pause": ("unfounded", history(pauses=[Pause(1500, 2001, "why")])),
    "enqueued in a pause it was spread into": (
        "unfounded",
        history(
            [sent(time, decided_at=time + 500, stored_at=time + 8) for time in TIMES],
            policy={"spread": 1},
            pauses=[Pause(2200, 2501, "why")],
        ),
    ),
    "enqueued later than its spread may be": (
        "unfounded",
        history([sent(time, decided_at=time + 500, stored_at=time + 8) for time in TIMES], policy={"spread": 0.4}),
    ),
    "due before its fire time": ("unfounded", history([*map(sent, TIMES[:-1]), sent(5000, lateness=6)])),
    "enqueued though switched off": ("unfounded", history(policy={"enabled": False})),
    "enqueued as it was before an edit": ("old_version", history(version=3, bounds=[500])),
    # No overlap.
    "a run was enqueued before the last was over": (
        "overlap",
        history(
            endings=[ended(time, position=4100) if time == 3000 else ended(time) for time in TIMES],
            policy={"overlap": "skip"},
        ),
    ),
    "it was removed before the first, and after the second": (
        "overlap",
        overlapping(removals=[(2000, 3005), (4007, END)]),
    ),
    "two runs were at work at once": (
        "overlap",
        history(
            saw=[
                seen(t, e, **({"at": 4015} if (t, e) == (3000, "done") else {}))
                for t in TIMES
                for e in ("begun", "done")
            ],
            policy={"overlap": "skip"},
        ),
    ),
}


@pytest.mark.parametrize(("kind", "what"), DOCTORED.values(), ids=DOCTORED)
def test_a_doctored_history_is_seen_through(kind: str, what: History) -> None:
    assert kind in found(what)


def test_each_kind_of_violation_is_shown_to_be_found() -> None:
    folder = Path(chaos.__file__).parent
    text = "".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    kinds = {part.split('"')[1] for part in text.split("Violation(")[1:] if part.startswith('"')}
    assert kinds == {kind for kind, _ in DOCTORED.values()}


# -- matching -------------------------------------------------------------------------------------------------

MATCHES: dict[str, tuple[Any, list[int], Any, list[int]]] = {
    "each in its window": ([(0, 9), (10, 19)], [5, 15], [], []),
    "one window is empty": ([(0, 9), (10, 19)], [15], [(0, 9)], []),
    "one run is extra": ([(0, 9)], [3, 5], [], [5]),
    "a run between the windows": ([(0, 9), (20, 29)], [15], [(0, 9), (20, 29)], [15]),
    "the window that closes first is served first": ([(0, 100), (0, 9)], [5, 50], [], []),
    "an endless window": ([(0, None), (0, 9)], [5, 5000], [], []),
    "before any window": ([(10, None)], [9], [(10, None)], [9]),
}


@pytest.mark.parametrize(("windows", "runs", "unmet", "extra"), MATCHES.values(), ids=MATCHES)
def test_runs_are_matched_with_the_windows_they_are_in(
    windows: list[tuple[int, int | None]], runs: list[int], unmet: list[tuple[int, int | None]], extra: list[int]
) -> None:
    left, too_many = matched(windows, runs)
    assert (sorted(left), too_many) == (sorted(unmet), extra)
