"""argparse with a suggestion where it has only a complaint, and the types of our arguments."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from difflib import get_close_matches
from typing import Any, NoReturn, TypeVar

from ..durations import parse_duration
from ..errors import ConfigurationError
from ..suggestions import did_you_mean

__all__ = ["Parser", "count", "duration", "instant_of", "summary"]

T = TypeVar("T")


class Parser(argparse.ArgumentParser):
    """Options must be written out: an abbreviation would mean something else after the next release."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **settings)
        #: What is wrong, most of the time, if there is a word too many.
        self.too_many = ""
        self._given: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            asked: Parser = getattr(parsed, "parser", self)
            asked.error(f"unrecognized arguments: {' '.join(unknown)}. {asked._nearest(unknown[0])}")
        return parsed

    def error(self, message: str) -> NoReturn:
        wrong = re.match(r".*invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if wrong:
            choices = [choice.strip(" '") for choice in wrong[2].split(",")]
            message = f"{wrong[1]!r} is not known here. {did_you_mean(wrong[1], choices)}"
        if message.endswith("are required: BROKER") and {"-P", "--path"} & set(self._given):
            message += ". --path takes all words up to the next option, so put BROKER before it"
        super().error(message)

    def _nearest(self, argument: str) -> str:
        if not argument.startswith("-"):
            return self.too_many or f"See {self.prog} --help."
        # Without the dashes, which all of them have in common.
        options = {option.lstrip("-"): option for option in self._option_string_actions}
        close = get_close_matches(argument.split("=")[0].lstrip("-"), options, n=1)
        return f"Did you mean {options[close[0]]!r}?" if close else f"See {self.prog} --help."


def summary(text: str) -> dict[str, str]:
    """What a command does, for the list of all commands and for its own help."""
    return {"help": text, "description": f"{text[0].upper()}{text[1:]}."}


def duration(check: Callable[[float], T]) -> Callable[[str], T]:
    """An argument type: a duration (90, 90s, 15m, 2h, 3d), and what ``check`` makes of its seconds."""

    def convert(text: str) -> T:
        try:
            return check(parse_duration(text))
        except ConfigurationError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def instant_of(text: str) -> datetime:
    """An instant of a command line: ISO 8601 with a zone. Raises ``ValueError`` with what to write."""
    # A day and a zone would be read as a day and a time.
    day = re.fullmatch(r"(\d{4}-\d\d-\d\d)(Z|[+-]\d\d:\d\d)?", text)
    written = f"{day[1]}T00:00{day[2] or ''}" if day else text
    try:
        found = datetime.fromisoformat(written.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"{text!r} is no date like 2026-03-29T00:00Z or 2026-03-29T02:00+02:00") from None
    if found.tzinfo is None:
        raise ValueError(f"{text!r} has no zone: write {written}Z for UTC, or an offset")
    try:
        return found.astimezone(timezone.utc)
    except OverflowError:
        raise ValueError(f"{text!r} is outside the years 1 to 9999 in UTC") from None


def count(text: str) -> int:
    """An argument type: a whole number from 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)
