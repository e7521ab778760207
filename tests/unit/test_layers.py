"""The layers of the house: a module imports only what is below it (the table of the design, section 5)."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter

import pytest

from dramatiq_distcron.store.redis import scripts
from tests.unit.sources import ROOT, Source, imported_modules, imports, run_time_nodes, sources

#: Lowest first. A name stands for the module and, if it is a package, for all in it; the longest name counts.
#: Modules of one row do not know of each other; those of one package may, without a circle.
LAYERS: list[tuple[str, ...]] = [
    ("errors", "clock", "logs", "version", "waking", "batching"),
    # Expressions, durations, policies: pure.
    ("callables", "suggestions", "durations", "zones", "cron_fields", "resting"),
    ("policies", "cron_days", "cron_slips", "backoff", "retry_after", "retry_budget"),
    ("cron_expression", "retrying"),
    ("cron_time", "describing"),
    ("timings", "clock_changes"),
    ("schedules", "calendar_timing", "apscheduler_cron"),
    ("apscheduler_triggers", "timing_json"),
    ("arguments",),
    # What to do with what is due, and validated settings.
    ("specs", "config", "tick", "letters"),
    ("ticks",),
    # The state.
    ("store",),
    ("store.base",),
    ("store.memory", "store.redis"),
    # Changes of schedules, pure; who is on duty, and how a message gets into the broker.
    ("edits", "lease", "messages", "publishing"),
    ("reconcile", "proving", "outbox", "places"),
    ("backends", "known", "office"),
    ("moving",),
    # What users and faces call.
    ("api",),
    ("middleware",),
    # The pass and the loop.
    ("making", "trouble", "staff"),
    ("scheduler",),
    ("beat",),
    ("testing",),
    # Faces.
    ("_launcher", "_server_binary", "_server_config", "_server_directory", "_server_probe"),
    ("_processes",),
    ("server",),
    ("demo",),
    ("cli",),
    # The package, and what uses it as any app does.
    ("",),
    ("__main__", "demo.app"),
]
RANKS = {name: rank for rank, row in enumerate(LAYERS) for name in row}

CLOCKS = {
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "dramatiq.common.current_millis",
}
#: They wait for processes, which have no store to ask.
WAIT_FOR_PROCESSES = ("demo", "server", "_launcher", "_processes", "_server_probe")


def row_of(module: str) -> str:
    """The name in the table that stands for ``module``."""
    if module == "":
        return ""
    parts = module.split(".")
    candidates = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in candidates if name in RANKS), "?")


def is_in(module: str, *tops: str) -> bool:
    return any(module == top or module.startswith(top + ".") for top in tops)


def each(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """The modules something was found in."""
    return {name: some for name, some in found.items() if some}


def test_every_module_has_a_place_in_the_table() -> None:
    assert [name for name in sources() if row_of(name) == "?"] == []


def test_every_name_in_the_table_is_a_module() -> None:
    assert set(RANKS) <= set(sources())


def test_a_module_imports_only_what_is_below_it_and_so_for_types() -> None:
    assert each({name: _upwards(source) for name, source in sources().items()}) == {}


def _upwards(source: Source) -> list[str]:
    own = row_of(source.name)
    rows = {name: row_of(name) for name in sorted(imported_modules(source))}
    return [name for name, row in rows.items() if row != own and RANKS[row] >= RANKS[own]]


def test_no_modules_import_each_other_in_a_circle_and_not_for_types_either() -> None:
    graph = {name: imported_modules(source) for name, source in sources().items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import circle: {' -> '.join(error.args[1])}")


def test_only_the_store_on_redis_imports_redis() -> None:
    others = {name: source for name, source in sources().items() if not is_in(name, "store.redis")}
    assert each({name: [i for i in imports(source) if is_in(i, "redis")] for name, source in others.items()}) == {}


def test_only_faces_and_the_choice_of_a_backend_import_the_redis_broker() -> None:
    others = {
        name: source for name, source in sources().items() if not is_in(name, "cli", "demo", "backends", "publishing")
    }
    found = {
        name: [i for i in imports(source) if is_in(i, "dramatiq.brokers.redis")] for name, source in others.items()
    }
    assert each(found) == {}


def test_only_one_module_reads_a_clock() -> None:
    others = {name: source for name, source in sources().items() if not is_in(name, "clock", *WAIT_FOR_PROCESSES)}
    assert each({name: clock_reads(source) for name, source in others.items()}) == {}


def clock_reads(source: Source) -> list[str]:
    full_names = _full_names(source)
    return [
        f"line {node.lineno}: {name}"
        for node in run_time_nodes(source.tree)
        if isinstance(node, (ast.Attribute, ast.Name)) and (name := _resolved(node, full_names)) in CLOCKS
    ]


def _full_names(source: Source) -> dict[str, str]:
    """What each imported name stands for."""
    names: dict[str, str] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            names.update({alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return names


def _resolved(node: ast.Attribute | ast.Name, full_names: dict[str, str]) -> str:
    first, dot, rest = ast.unparse(node).partition(".")
    return full_names.get(first, first) + dot + rest


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.monotonic()",
        "from time import time\ntime()",
        "import time as t\nf = t.time_ns",
        "from datetime import datetime as d\nd.now()",
        "import datetime\ndatetime.datetime.now()",
        "from dramatiq.common import current_millis\ncurrent_millis()",
    ],
)
def test_the_search_for_clocks_finds_them_under_other_names(text: str) -> None:
    assert len(clock_reads(Source("ticks", ROOT / "ticks.py", ast.parse(text)))) == 1


def test_the_search_for_imports_sees_functions_and_what_is_for_the_type_checker_if_asked() -> None:
    text = (
        "if TYPE_CHECKING:\n    import redis\nelse:\n    import a\ndef f():\n    from .. import b\n    from .c import d"
    )
    source = Source("store.redis.keys", ROOT / "store" / "redis" / "keys.py", ast.parse(text))
    package = "dramatiq_distcron.store"
    assert imports(source) == {"a", f"{package}.b", f"{package}.redis.c.d"}
    assert imports(source, types=True) == {*imports(source), "redis"}


def test_every_lua_script_is_in_the_package_and_in_use() -> None:
    folder = ROOT / "store" / "redis"
    tables = {**scripts._PARTS, **scripts._EMBEDDING}
    used = {*tables, *(part for parts in tables.values() for part in parts)}
    assert {path.stem for path in folder.glob("*.lua")} == used
    assert set(ROOT.rglob("*.lua")) == set(folder.glob("*.lua"))


def test_every_script_is_an_attribute_that_is_declared() -> None:
    assert set(scripts.Scripts.__annotations__) == {*scripts._PARTS, *scripts._EMBEDDING}
