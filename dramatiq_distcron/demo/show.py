"""What a run shows of itself: one moving line on a terminal, plain lines elsewhere, the proof at the end."""

from __future__ import annotations

import sys
from typing import TextIO

from .proof import Proof

__all__ = ["Show"]

#: Between two plain progress lines, in seconds.
_SELDOM = 2.0


class Show:
    """Writes to ``stream``; says nothing if ``quiet``."""

    def __init__(self, stream: TextIO = sys.stdout, *, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._moving = not quiet and stream.isatty()
        self._shown_at = float("-inf")
        self._line_is_open = False

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._quiet:
            return
        self._close_line()
        print(text, file=self._stream, flush=True)

    def progress(self, elapsed: float, text: str) -> None:
        """The state of things: rewritten on a terminal, now and then elsewhere."""
        if self._quiet:
            return
        if self._moving:
            self._line_is_open = True
            print(f"\r\x1b[K  {elapsed:4.1f} s  {text}", end="", file=self._stream, flush=True)
        elif elapsed - self._shown_at >= _SELDOM:
            self._shown_at = elapsed
            print(f"  {elapsed:4.1f} s  {text}", file=self._stream, flush=True)

    def proof(self, proof: Proof) -> None:
        """The figures, and what they say."""
        takeover = "-" if proof.takeover_ms is None else f"{proof.takeover_ms} ms"
        self.say("")
        for label, value in (
            ("ticks due", proof.ticks_due),
            ("enqueued", proof.enqueued),
            ("processed", proof.processed),
            ("duplicates", proof.duplicates),
            ("missing", proof.missing),
            ("takeover", takeover),
        ):
            self.say(f"  {label:<12} {value:>8}")
        self.say("")
        if proof.ok:
            self.say("Each tick was enqueued and processed once, though the leader was killed.")
        else:
            self.say("This is not what we promise. Please report it with the lines above.")

    def _close_line(self) -> None:
        if self._line_is_open:
            print(file=self._stream)
            self._line_is_open = False
