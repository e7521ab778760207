"""argparse with a suggestion where it has only a complaint, and the types of our arguments."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from ..errors import ConfigurationError
from ..suggestions import did_you_mean

__all__ = ["Parser", "checked"]


class Parser(argparse.ArgumentParser):
    """Options must be written out: an abbreviation would mean something else after the next release."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **settings)

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
        super().error(message)

    def _nearest(self, argument: str) -> str:
        if not argument.startswith("-"):
            return f"See {self.prog} --help."
        return did_you_mean(argument.split("=")[0], self._option_string_actions)


def checked(check: Any) -> Any:
    """An argument type from a check that raises ``ConfigurationError``."""

    def convert(text: str) -> Any:
        try:
            return check(float(text))
        except ConfigurationError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None

    return convert
