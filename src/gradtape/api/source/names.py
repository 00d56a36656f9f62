"""The user's names and lines: what statement a node came from, and which value is assigned to which name there."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.body import bodies_of
from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.kinds.control import Structured
from gradtape.ops.core.elementwise.arithmetic import add
from gradtape.transforms.observers import DerivativeSite

Key = int


class Statement(NamedTuple):
    """A statement of the user's code.

    Attributes
    ----------
    filename, line
        Where it begins.
    text : str
        In one line.
    target : str
        The name that it assigns to; empty where it assigns to none, or to several.
    """

    filename: str
    line: int
    text: str
    target: str


@lru_cache(maxsize=64)
def _parsed(filename: str, source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def statement_of(node: Node) -> Statement | None:
    """Return the statement that a node came from, if its source is known."""
    site = node.site
    if site is None or isinstance(site, str) or site.function == "<module>":
        return None
    return _statement(site.filename, site.line, site.function.partition(" ")[0])


def is_derivative(node: Node) -> bool:
    """Return whether a node computes a derivative of the user's line, and not what stands there."""
    return isinstance(node.site, DerivativeSite)


@lru_cache(maxsize=4096)
def _statement(filename: str, line: int, function: str) -> Statement | None:
    lines = linecache.getlines(filename)
    if not 0 < line <= len(lines):
        return None
    module_text = "".join(lines)
    module = _parsed(filename, module_text)
    smallest: Any = None
    kind: Any = ast.Lambda if function == "<lambda>" else ast.stmt
    for part in ast.walk(module) if module is not None else ():
        if not isinstance(part, kind) or not part.lineno <= line <= (part.end_lineno or part.lineno):
            continue
        if smallest is None or _extent(part) <= _extent(smallest):
            smallest = part
    if smallest is None:
        return Statement(filename, line, lines[line - 1].strip(), "")
    if isinstance(smallest, ast.Lambda):
        return Statement(filename, smallest.lineno, " ".join(ast.unparse(smallest.body).split()), "")
    if hasattr(smallest, "body"):
        return Statement(filename, line, lines[line - 1].strip(), "")
    text = ast.get_source_segment(module_text, smallest) or lines[line - 1]
    return Statement(filename, smallest.lineno, " ".join(text.split()), _target(smallest))


def _extent(part: Any) -> tuple[int, int]:
    return part.end_lineno - part.lineno, part.end_col_offset - part.col_offset


def _target(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target: ast.expr = statement.targets[0]
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign):
        target = statement.target
    else:
        return ""
    return target.id if isinstance(target, ast.Name) else ""


class Origins:
    """Which values of a derived program the user's own function computes, and how the user calls them.

    Parameters
    ----------
    graph : Graph or None
        The program of the function itself; None where it is not known.
    """

    def __init__(self, graph: Graph | None) -> None:
        self._numbers: dict[Any, Key] = {}
        self._names: dict[Key, str] = {}
        self._own: set[Key] = set()
        self._types: dict[Statement, set[tuple[int, ...]]] = defaultdict(set)
        if graph is not None:
            for block, keys in self._blocks(graph):
                self._own.update(keys.values())
                for value, name in _assigned(block):
                    self._names.setdefault(keys[value], name)
                    statement = statement_of(value.node) if value.node is not None else None
                    if statement is not None:
                        self._types[statement].add(value.shape)
        self.is_known = graph is not None

    def _blocks(self, graph: Graph) -> Iterator[tuple[Graph, dict[Value, Key]]]:
        """Iterate over a graph and the bodies in it, with the keys of their values."""
        stack: list[tuple[Graph, bool]] = [(graph, True)]
        while stack:
            block, is_outermost = stack.pop()
            yield block, self._keys(block, is_outermost)
            stack.extend((body, False) for node in block.nodes for body in bodies_of(node))

    def _keys(self, graph: Graph, is_outermost: bool) -> dict[Value, Key]:
        """Return numbers that are equal for values that are computed in the same way."""
        keys: dict[Value, Key] = {}
        for position, value in enumerate(graph.inputs):
            keys[value] = self._number(("input", position if is_outermost else value.aval))
        for node in graph.nodes:
            inputs = tuple([self._leaf(value) if value not in keys else keys[value] for value in node.inputs])
            for out in node.outs:
                if isinstance(node.op, Structured):
                    facts: Any = (
                        node.op.name,
                        repr(node.site),
                        node.params.get("reverse"),
                        out.index,
                        out.aval,
                    )
                else:
                    facts = node.op.name, repr(node.params), inputs, out.index
                keys[out] = self._number(facts)
        return keys

    def _leaf(self, value: Value) -> Key:
        data = value.data
        if data is None:
            return self._number(("value", value.aval))
        number = data.item() if isinstance(value, Literal) else data.tobytes() if data.nbytes < 1e6 else None
        return self._number((value.shape, repr(number)))

    def _number(self, facts: Any) -> Key:
        return self._numbers.setdefault(facts, len(self._numbers))

    def named(self, graph: Graph, *, is_outermost: bool, spread: bool) -> tuple[dict[Value, str], set[Value]]:
        """Return the names of values of a derived program, and which of them the user's function computes itself."""
        keys = self._keys(graph, is_outermost)
        user_values = {out for node in graph.nodes if not is_derivative(node) for out in node.outs}
        names = {value: self._names[key] for value, key in keys.items() if key in self._names}
        names.update(self._derivatives(graph, user_values, spread))
        return names, user_values

    def _derivatives(self, graph: Graph, user_values: set[Value], spread: bool) -> dict[Value, str]:
        """Return the names of derivatives: what enters the derivative of a statement from another one is that of what it assigns.

        Forwards, it is what leaves it.
        """
        entering: dict[str, dict[Value, None]] = defaultdict(dict)
        for node in graph.nodes:
            user = statement_of(node)
            if user is None or node.op is add or all(out in user_values for out in node.outs):
                continue  # additions collect what reaches an earlier value
            for value in dict.fromkeys(node.inputs):
                if (
                    value.node is None
                    or value in user_values
                    or isinstance(value, Literal)
                    or value in graph.inputs
                ):
                    continue
                maker = statement_of(value.node)
                if maker == user or maker is None:
                    continue
                site = node.site
                statement = user if isinstance(site, DerivativeSite) and site.backward else maker
                shapes = self._types.get(statement, ())
                fits = value.shape in shapes or (
                    spread and any(value.shape[len(value.shape) - len(shape) :] == shape for shape in shapes)
                )
                if statement.target and fits and value.dtype.kind in "fc":
                    entering[statement.target][value] = None
        return {next(iter(values)): f"d_{name}" for name, values in entering.items() if len(values) == 1}


def _assigned(graph: Graph) -> Iterator[tuple[Value, str]]:
    """Iterate over the values that are assigned to names: those of a statement that it does not use itself."""
    by_statement: dict[Statement, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        statement = statement_of(node)
        if statement is not None and statement.target and not is_derivative(node):
            by_statement[statement].append(node)
    for statement, nodes in by_statement.items():
        used = {value for node in nodes for value in node.inputs}
        for node in nodes:
            if len(node.outs) == 1 and node.out not in used:
                yield node.out, statement.target


def capture_name(array: np.ndarray[Any, Any], function: Any) -> str:
    """Return the name by which a function knows an array from outside; empty if it knows none such."""
    try:
        variables = inspect.getclosurevars(function)
    except (TypeError, ValueError):
        return ""
    for name, content in {**variables.globals, **variables.nonlocals}.items():
        alike = isinstance(content, np.ndarray) and content.shape == array.shape
        if alike and content.dtype == array.dtype and content.tobytes() == array.tobytes():
            return name
    return ""


def counts_of_uses(graph: Graph, further: Sequence[Value] = ()) -> Counter[Value]:
    """Return how often each value of a graph is an operand, or a result."""
    uses: Counter[Value] = Counter()
    for node in graph.nodes:
        uses.update(node.inputs)
    uses.update(graph.outputs)
    uses.update(further)
    return uses
