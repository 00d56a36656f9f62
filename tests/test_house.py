"""The structure of the project: no import circles, and folders that one listing shows."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import gradtape

ROOT = Path(gradtape.__file__).parent
PROJECT = Path(__file__).parents[1]

ONE_THING = "gradtape.ir."
"""The package whose modules may name each other: values refer to their ops, and to the tags that follow them."""

MOST_MODULES = 16
"""Python files in a folder, besides its ``__init__``."""


def module_name(path: Path) -> str:
    parts = ("gradtape", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph() -> dict[str, set[str]]:
    """Return which modules each module names in an import anywhere: late and type-only ones count."""
    paths = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}
    graph: dict[str, set[str]] = {name: set() for name in paths}
    for name, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                graph[name].update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                graph[name].update(full if full in paths else node.module for full in inner)
        graph[name] &= paths.keys()
    return graph


def strongly_connected(graph: dict[str, set[str]]) -> list[frozenset[str]]:
    """Return the components with more than one member: who reaches each other (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            first = stack.index(name)
            component = frozenset(stack[first:])
            del stack[first:]
            if len(component) > 1:
                found.append(component)

    for name in graph:
        if name not in index:
            visit(name)
    return found


def test_no_page_or_module_has_the_marks_of_a_conflict() -> None:
    places = [PROJECT / "README.md", PROJECT / "CHANGELOG.md", PROJECT / "CONTRIBUTING.md"]
    for folder, suffix in (
        ("src", "py"),
        ("tests", "py"),
        ("benchmarks", "py"),
        ("docs", "md"),
        ("docs", "py"),
    ):
        places += (PROJECT / folder).rglob(f"*.{suffix}")
    marks = ("<" * 7 + " ", ">" * 7 + " ")
    assert not [
        str(path) for path in places for line in path.read_text().splitlines() if line.startswith(marks)
    ]


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str](), "e": {"a"}}
    assert strongly_connected(graph) == [frozenset({"b", "c"})]


def test_no_import_circles() -> None:
    graph = import_graph()
    assert graph["gradtape.ir.op"] >= {"gradtape.ir.graph"}
    for circle in strongly_connected(graph):
        assert all(name.startswith(ONE_THING) for name in circle), "a circle of imports: " + ", ".join(
            sorted(circle)
        )


def test_folders_are_small() -> None:
    files = [path for folder in ("src", "tests") for path in (PROJECT / folder).rglob("*.py")]
    counts = Counter(path.parent for path in files if path.name != "__init__.py")
    for folder, count in counts.items():
        name = folder.relative_to(PROJECT).as_posix()
        assert count <= MOST_MODULES, f"{name} has {count} Python files"


REFERENCE_COUNTS = {"getrefcount", "Py_IncRef", "Py_DecRef", "py_incref", "py_decref"}


def test_reference_counts_are_read_and_changed_in_one_module() -> None:
    for path in sorted(ROOT.rglob("*.py")):
        used = {
            node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)
        }
        assert not used & REFERENCE_COUNTS or path == ROOT / "reference_counts.py", path.name


COLLECTOR = {"disable", "enable", "freeze"}


def test_the_cycle_collector_is_paused_in_one_module() -> None:
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "gc":
                assert node.attr not in COLLECTOR or path == ROOT / "collector.py", path.name


def _is_text(node: ast.expr) -> bool:
    """Whether an expression is a string, or a collection of strings that is written out."""
    if isinstance(node, ast.Call) and node.args:  # frozenset(("add", "subtract"))
        return _is_text(node.args[0])
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(_is_text, node.elts))
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _asks_for_a_name(node: ast.AST) -> bool:
    """Whether code compares the name of an op, keeps it to compare it later, or compares an op with what a table has under a name."""
    if isinstance(node, ast.Assign):
        return ast.unparse(node.value).endswith("op.name")
    if not isinstance(node, ast.Compare):
        return False
    operands = [node.left, *node.comparators]
    tables = ("PRIMITIVES[", "ROWS[", "UFUNCS[")
    named = any(
        isinstance(one, ast.Attribute) and one.attr == "name" and ast.unparse(one) != "os.name"
        for one in operands
    )
    return (named and any(map(_is_text, operands))) or any(
        ast.unparse(one).startswith(tables) for one in operands
    )


def test_names_of_ops_are_recognised() -> None:
    asking = ['op.name == "add"', 'x.node.op.name in ("a", "b")', "name = node.op.name", 'op is ROWS["add"]']
    fine = ['os.name == "nt"', "op is add", "register.name in known", "names[op] = x.name"]
    for text, expected in (*((text, True) for text in asking), *((text, False) for text in fine)):
        assert any(map(_asks_for_a_name, ast.walk(ast.parse(text)))) is expected, text


def test_facts_of_ops_are_fields_of_their_rows() -> None:
    for folder in ("passes", "transforms", "lower", "runtime", "frontend", "procedures/arrays"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
                assert not _asks_for_a_name(node), f"{where} asks for an op by its name: give its row a field"
