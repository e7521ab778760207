"""The package's own source, read for the tests that hold its shape."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import dramatiq_distcron

PACKAGE = dramatiq_distcron.__name__
ROOT = Path(dramatiq_distcron.__file__).parent


@dataclass(frozen=True)
class Source:
    """One module: ``name`` is its dotted path inside the package, ``""`` for the package itself."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def parts(self) -> list[str]:
        return self.name.split(".") if self.name else []

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


@lru_cache(maxsize=1)
def sources() -> dict[str, Source]:
    """Every module of the package by name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Source(name, path, ast.parse(path.read_text("utf-8")))
    return found


def run_time_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node below ``tree`` that is not for the type checker alone, in functions as well."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield other
                yield from run_time_nodes(other)
        else:
            yield node
            yield from run_time_nodes(node)


def imports(source: Source, *, types: bool = False) -> set[str]:
    """The absolute names of what a module imports at run time; ``from a import b`` gives ``a.b``.

    With ``types`` also of what it imports for the type checker alone.
    """
    found: set[str] = set()
    for node in ast.walk(source.tree) if types else run_time_nodes(source.tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(source, node)
            found.update(f"{origin}.{alias.name}" for alias in node.names)
    return found


def _origin(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    above = source.parts if source.is_package else source.parts[:-1]
    base = above[: len(above) - node.level + 1]
    return ".".join([PACKAGE, *base, *([node.module] if node.module else [])])


def imported_modules(source: Source) -> set[str]:
    """The modules of ours among the imports, those for types included."""
    known = sources()
    found: set[str] = set()
    for name in imports(source, types=True):
        if name != PACKAGE and not name.startswith(PACKAGE + "."):
            continue
        inner = name[len(PACKAGE) + 1 :]
        # The last part may be a module or something that is in one.
        found.add(inner if inner in known else inner.rpartition(".")[0])
    return found - {source.name}
