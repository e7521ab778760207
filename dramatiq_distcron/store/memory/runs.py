"""What becomes of a tick's message at the workers, in memory."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from ..base import REMEMBERED, Ending, Guard, Refused, Started
from .letters import LetterVerbs
from .retries import RetryVerbs

__all__ = ["RunVerbs"]

_WEEK = 7 * 86_400_000


class RunVerbs(RetryVerbs, LetterVerbs):
    """The runs of ticks, from being taken up to their end."""

    def start_run(self, message_id: str, worker: str) -> Started | None:
        """A worker takes up a tick's message. ``None``: no run of that message is known."""
        with self._woken:
            run = self._state.runs.get(message_id)
            if run is None:
                return None
            now, before = self._now(), run["state"]
            run.update(state="running", worker=worker)
            run.setdefault("started_at", str(now))
            previous = run.get("previous")
            return Started(before, int(run["at"]), now, int(previous) if previous else None)

    def claim_run(
        self, message_id: str, worker: str, attempt: int, claim: str = "", doubtful: Sequence[str] = ()
    ) -> Started | Refused:
        """A worker asks whether it may run a tick's message, where the broker may deliver copies."""
        with self._woken:
            run = self._state.runs.get(message_id)
            if run is None or attempt < int(run.get("attempt") or 0):
                return Refused()
            if run["state"] == "running" and run.get("claim", "") not in doubtful:
                seen, _ = self._state.instances.get(run["worker"], (None, None))
                if seen is not None and self._now() - seen <= REMEMBERED:
                    return Refused(run["worker"])
            started = self.start_run(message_id, worker)
            assert started is not None
            run.update(attempt=str(attempt), claim=claim)
            # Whoever claims is alive, also one that had no time yet to tell of itself.
            if worker:
                self._state.instances[worker] = (self._now(), self._state.instances.get(worker, (0, None))[1])
            return started

    def settle(self, ending: Ending) -> str:
        """Records the end of a delivery and acks it, or neither: as the store on Redis."""
        with self._woken:
            run = self._state.runs.get(ending.message_id)
            # A run that is over is not this delivery's any more either: what came of it may have been redriven by now.
            if ending.claim and (run is None or ending.claim != run.get("claim", "")):
                return "lost"
            try:
                # The ack first: what another worker has by now must not be recorded by this one.
                if ending.call and not (self._dispatch and self._dispatch(ending.call)):
                    return "lost"
                for call in ending.calls:
                    self._carry_out(call, b"")
            except Exception as error:
                return f"failed {error}"
            if ending.waiting is not None:
                self._put_waiting(ending.waiting)
            if ending.letter is not None:
                self._keep_letter(ending.letter)
            if run is None:
                return "acked"
            if not ending.goes_on:
                self._end_run(ending.message_id, run, ending.state, ending.error)
            elif _step(str(ending.attempt), not ending.state) >= _step(run.get("attempt"), bool(run.get("moved"))):
                moved = "" if ending.state else "1"
                run.update(place=ending.place, rid=ending.redis_id, attempt=str(ending.attempt), claim="", moved=moved)
                run["state"] = ending.state or run["state"]
            return "settled"

    def outbox(self, limit: int, skip: Container[str] = ()) -> list[tuple[str, bytes]]:
        """About ``limit`` of the messages that are committed and not known to be in their broker, without ``skip``."""
        with self._woken:
            return [one for one in self._state.outbox.items() if one[0] not in skip][:limit]

    def published(self, message_id: str) -> None:
        """The message is in its broker."""
        with self._woken:
            self._state.outbox.pop(message_id, None)

    def _is_anywhere(self, run: Mapping[str, str]) -> bool:
        return run["rid"] in self._state.retries or self._is_there(run["place"], run["rid"])

    def probe_run(self, guard: Guard, name: str, message_id: str, longest: int | None) -> str | None:
        """Ends a run that is not there any more.

        ``there``, ``over`` (it ended meanwhile) or ``dropped``; ``None``: the lease is lost.
        """
        with self._woken:
            if not self._admits(guard):
                return None
            run = self._state.runs.get(message_id)
            if run is None:
                if self._state.outstanding.get(name) != message_id:
                    return "over"
                del self._state.outstanding[name]
                return "dropped"
            if "given_up" in run:
                return "over"
            if not self._is_anywhere(run):
                self._end_run(message_id, run, "dropped", "its message is gone")
                return "dropped"
            if longest is not None and self._now() - int(run["at"]) > longest:
                self._give_up(message_id, run)
                return "dropped"
            return "there"

    def _give_up(self, message_id: str, run: dict[str, str]) -> None:
        """Of a message of another broker the entry stays: without its ticket no retry or letter would come of it."""
        self._end_run(message_id, run, "dropped", "overlap_timeout")
        if not run["place"]:
            self._state.runs[message_id] = {**run, "given_up": "1"}

    def sweep_runs(self, guard: Guard, cursor: str, count: int) -> tuple[str, int] | None:
        """Ends all runs that are not there any more: the next cursor, and how many."""
        with self._woken:
            if not self._admits(guard):
                return None
            gone = [(i, run) for i, run in self._state.runs.items() if self._is_forgotten(run)]
            for message_id, run in gone:
                self._end_run(message_id, run, "dropped", "its message is gone")
            return "0", len(gone)

    def _is_forgotten(self, run: Mapping[str, str]) -> bool:
        """Its message is gone, or its ticket was given up a week ago: Dramatiq keeps dead messages for so long."""
        given_up = "given_up" in run and self._now() - int(run["at"]) > _WEEK
        return given_up or not self._is_anywhere(run)

    def outstanding(self, name: str) -> str:
        """The message of the run that holds the schedule up; ``""``: there is none."""
        with self._woken:
            return self._state.outstanding.get(name, "")


def _step(attempt: str | None, moved: bool) -> tuple[int, bool]:
    """Of an attempt first its retry is made, then that leaves the delay queue. What is told late changes nothing."""
    return int(attempt or 0), moved
