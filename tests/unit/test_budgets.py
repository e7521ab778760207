"""A sense of proportion: how long a function or module may be, and how deep (the design, section 5)."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable
from typing import TypeAlias

from tests.unit.sources import sources

FUNCTION_LINES = 50
NESTING = 3
MODULE_CODE_LINES = 300

_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def functions(tree: ast.AST) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]


def length(function: Function) -> int:
    """Its lines from ``def`` on, without its docstring."""
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1 - len(docstring_lines(function))


def docstring_lines(node: ast.AST) -> set[int]:
    first = getattr(node, "body", [None])[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        assert first.end_lineno is not None
        return set(range(first.lineno, first.end_lineno + 1))
    return set()


def depth(node: ast.AST) -> int:
    """How many blocks deep its deepest statement is. An ``elif`` is no deeper than its ``if``."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, depth(child) + (isinstance(child, _BLOCKS) and not is_elif))
    return deepest


def code_lines(text: str) -> int:
    """Lines with code: without blank ones, comments and docstrings."""
    tree = ast.parse(text)
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS)):
            lines -= docstring_lines(node)
    return len(lines)


def over(limit: int, measure: Callable[[Function], int]) -> dict[str, int]:
    """The functions of the package that measure more than ``limit``."""
    measured = {
        f"{name}.{function.name}, line {function.lineno}": measure(function)
        for name, source in sources().items()
        for function in functions(source.tree)
    }
    return {name: value for name, value in measured.items() if value > limit}


def test_no_function_is_longer_than_a_screen() -> None:
    assert over(FUNCTION_LINES, length) == {}


def test_no_function_is_nested_too_deep() -> None:
    assert over(NESTING, depth) == {}


def test_no_module_is_too_long() -> None:
    measured = {name: code_lines(source.path.read_text("utf-8")) for name, source in sources().items()}
    assert {name: lines for name, lines in measured.items() if lines > MODULE_CODE_LINES} == {}


def test_every_module_begins_with_what_it_is_for() -> None:
    assert [name for name, source in sources().items() if not ast.get_docstring(source.tree)] == []


def test_the_yardstick_counts_blocks_and_not_elifs() -> None:
    text = "def f():\n  if a:\n    pass\n  elif b:\n    pass\n  elif c:\n    for x in y:\n      with z: pass\n"
    assert depth(functions(ast.parse(text))[0]) == 3


def test_the_yardstick_counts_lines_of_code_alone() -> None:
    module = '"""Doc."""\n\n# comment\nx = [\n    1,\n]\n\n'
    function = 'def f():\n    """Doc\n\n    more."""\n    return """a\n\n    b"""\n'
    assert code_lines(module + function) == 7
    assert length(functions(ast.parse(function))[0]) == 4
