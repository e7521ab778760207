"""From what is written on the command line to the app's middleware."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher, get_close_matches
from functools import reduce
from types import ModuleType
from typing import Any

import dramatiq
import dramatiq.broker
from dramatiq import Actor, Broker, GenericActor

from ..errors import ConfigurationError, ConflictError, DistCronError
from ..logs import get_logger
from ..middleware.distcron import DistCron, get_distcron, installed

__all__ = ["LoadError", "import_app", "load_app", "refuse_others"]


#: Where the code of this package and of Dramatiq lies.
_NOT_THE_APPS = tuple(
    os.path.dirname(place) + os.sep for place in (os.path.dirname(__file__), dramatiq.__file__, importlib.__file__)
)


class LoadError(ConfigurationError):
    """A module cannot be imported, or what was named is not in it."""


def load_app(broker: str, modules: Sequence[str] = (), path: Sequence[str] = (".",)) -> DistCron:
    """Imports the app and returns the middleware of its broker.

    Parameters:
      broker: ``module``, ``module:a_broker`` or ``module:a_function`` that sets the broker up.
      modules: more modules to import, with actors.
      path: folders to import from, before all others.

    Raises:
      LoadError: something cannot be imported or is not there.
      ConflictError: two brokers have schedules, and which one is meant was not said.
      ConfigurationError: the broker has no DistCron middleware, or a schedule cannot be used.
    """
    distcron = import_app(broker, modules, path)
    refuse_others(distcron, broker)
    return distcron


def import_app(broker: str, modules: Sequence[str] = (), path: Sequence[str] = (".",)) -> DistCron:
    """As :func:`load_app`, without a look at other brokers.

    Raises:
      LoadError: something cannot be imported or is not there.
      ConfigurationError: a schedule cannot be used, so that the import ended there.
    """
    sys.path[:0] = [os.path.abspath(folder) for folder in ([path] if isinstance(path, str) else path)]
    name, _, attribute = broker.partition(":")
    module = _import(name)
    found = _named_broker(module, attribute) if attribute else _global_broker(module)
    for more in modules:
        _import(more)
    return _distcron_of(found, module)


def _import(name: str) -> ModuleType:
    _refuse_file(name)
    with _running_the_apps_code(f"Module {name!r} cannot be imported", f"In module {name!r}"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name.partition(".")[0]:
                raise
            looked = ", ".join(dict.fromkeys(sys.path[:3]))
            raise LoadError(
                f"Module {name!r} cannot be imported: {type(error).__name__}: {error}. Looked in {looked} and more; "
                "name its folder with --path."
            ) from error


@contextmanager
def _running_the_apps_code(failed: str, place: str) -> Iterator[None]:
    """Tells what went wrong in the app's own code, and in which line: while it is imported, or its function runs."""
    try:
        yield
    except LoadError:
        raise
    except DistCronError as error:
        where = _where(error)
        raise type(error)(f"{error} ({where})" if where else str(error)) from error
    except SystemExit as error:
        raise LoadError(f"{failed}: it ends the program with sys.exit({error.code!r}).") from None
    except Exception as error:
        told = _undefined_options(place, error) if "actor options are undefined: " in str(error) else ""
        raise LoadError(told or _told_with_line(failed, error)) from error


def _refuse_file(name: str) -> None:
    """Somebody named the file and not the module: ``./app.py``."""
    is_file = name.endswith(".py") and any(os.path.isfile(os.path.join(folder, name)) for folder in sys.path)
    if is_file or "/" in name or os.sep in name:
        module = name.replace(os.sep, "/").removesuffix(".py").removeprefix("./").strip("/").replace("/", ".")
        hint = "its folder goes to --path" if module.startswith(".") or os.path.isabs(name) else f"here: {module}"
        raise LoadError(f"{name!r} is a file. Name the module, as for import; {hint}.")


def _undefined_options(place: str, error: Exception) -> str:
    """Dramatiq's own words on an option that no middleware has lead away from a slip of the pen. Empty: it is none."""
    options = re.findall(r"\w+", str(error).partition("undefined: ")[2].partition(". Did")[0])
    if "periodic" in options:
        return (
            f"{place} an actor with periodic= is declared before its broker has the DistCron middleware "
            f"({_where(error)}). Call install(broker) and dramatiq.set_broker(broker) before the actors, or give "
            "the actor its broker with @dramatiq.actor(broker=...)."
        )
    known = {"periodic", *getattr(dramatiq.broker.global_broker, "actor_options", ())}
    near = [(one, close) for one in options if (close := get_close_matches(one, known, n=2))]
    if not near:
        return ""
    wrong, close = near[0]
    # max_retry is nearer to max_retry_age than to max_retries, and hardly ever meant so.
    meant = " or ".join(repr(one) for one in close if _likeness(wrong, one) > _likeness(wrong, close[0]) - 0.05)
    return f"{place} an actor has the option {wrong!r}, which does not exist ({_where(error)}). Did you mean {meant}?"


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()


def _told_with_line(failed: str, error: Exception) -> str:
    # A SyntaxError says itself where it is.
    where = "" if isinstance(error, SyntaxError) else _where(error)
    text = f"{failed}: {type(error).__name__}: {error}"
    return f"{text} ({where})." if where else f"{text}."


def _where(error: Exception) -> str:
    """The last line of the app's own code on the way to the error, if there is one."""
    # Nobody finds a line in <string>, which a dataclass makes, nor in <frozen ...>.
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_APPS)]
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else ""


def _named_broker(module: ModuleType, attribute: str) -> Broker:
    try:
        found = reduce(getattr, attribute.split("."), module)
    except AttributeError:
        raise LoadError(f"Module {module.__name__!r} has no {attribute!r}.{_brokers_hint(module)}") from None
    if isinstance(found, Broker):
        return found
    if isinstance(found, (Actor, GenericActor)):
        # It can be called, but that would run it.
        raise LoadError(f"{module.__name__}:{attribute} is an actor and not a broker.{_brokers_hint(module)}")
    if callable(found):
        called = f"{module.__name__}:{attribute}()"
        with _running_the_apps_code(f"{called} failed", f"In {called}"):
            made: Any = found()
        return made if isinstance(made, Broker) else _global_broker(module)
    raise LoadError(f"{module.__name__}:{attribute} is not a broker but {found!r}.{_brokers_hint(module)}")


def _global_broker(module: ModuleType) -> Broker:
    # get_broker() would make one up, on a RabbitMQ that nobody spoke of.
    found = dramatiq.broker.global_broker
    if found is None:
        raise LoadError(
            f"Module {module.__name__!r} sets no broker: call dramatiq.set_broker(broker) in it, or name the broker: "
            f"{module.__name__}:broker.{_brokers_hint(module)}"
        )
    return found


def _brokers_hint(module: ModuleType) -> str:
    names = sorted(name for name, value in vars(module).items() if isinstance(value, Broker))
    return f" Brokers in it: {', '.join(f'{module.__name__}:{name}' for name in names)}." if names else ""


def _distcron_of(broker: Broker, module: ModuleType) -> DistCron:
    try:
        return get_distcron(broker)
    except ConfigurationError as error:
        raise LoadError(f"{error}{_brokers_hint(module)}") from None


def refuse_others(distcron: DistCron, broker: str) -> None:
    """Schedules on another broker would never be fired, and nobody would notice.

    Raises:
      ConflictError: there are some, and ``broker``, as it was written, does not say which one is meant.
    """
    others = [other for other in installed() if other is not distcron and other.specs()]
    if not others:
        return
    names = ", ".join(sorted(name for other in others for name in other.specs()))
    text = f"Another broker has schedules too, which this beat does not fire: {names}."
    if not broker.partition(":")[2]:
        raise ConflictError(f"{text} Say which one is meant, as module:broker, and run a beat for each.")
    get_logger(__name__, DistCron).warning("%s Run a beat for it as well.", text)
