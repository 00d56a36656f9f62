"""Graphs as typed three-address Python, with the user's lines as comments."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.body import bodies_of
from gradtape.ir.graph import Graph, Literal, Node, Site, Value
from gradtape.ir.types import Aval, short_dtype


def print_graph(graph: Graph) -> str:
    """Return a graph as text.

    Examples
    --------
    >>> from gradtape.ir.builder import at
    >>> from gradtape.ir.graph import Graph, Value
    >>> from gradtape.ir.types import FLOAT64, aval
    >>> x = Value(aval((2,), FLOAT64))
    >>> with at(None):
    ...     y = x * 2.0
    >>> print(print_graph(Graph([x], [y.node], [y])))
    def f(x0: f64[2]) -> f64[2]:
        v0: f64[2] = multiply(x0, 2.0)
        return v0
    """
    names = _input_names(graph)
    constants = graph.constants()
    for number, value in enumerate(constants):
        names[value] = f"c{number}"
    parameters = ", ".join(f"{names[value]}: {_type(value.aval)}" for value in graph.inputs)
    results = ", ".join(_type(value.aval) for value in graph.outputs)
    lines = [
        f"def {identifier(graph.name)}({parameters}) -> {results if len(graph.outputs) == 1 else f'({results})'}:"
    ]
    lines.extend(f"    {names[value]}: {_type(value.aval)} = constant(...)" for value in constants)
    writer = _Writer(lines)
    writer.block(graph, names, "    ")
    lines.extend(f"    assert {_operand(value, names)} == {expected}" for value, expected in graph.guards)
    lines.append(f"    return {', '.join(_operand(value, names) for value in graph.outputs)}")
    return "\n".join(lines)


class _Writer:
    """Writes nodes line by line; values are counted through all bodies."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._last = ""
        self._values = 0
        self._indices = 0

    def block(self, graph: Graph, names: dict[Value, str], indent: str) -> None:
        """Write the nodes of a graph, and enter the names of what they make."""
        for node in graph.nodes:
            place = _place(node.site)
            if place and place != self._last:
                self._lines.append(f"{indent}# {place}")
                self._last = place
            for out in node.outs:
                names[out] = _given(out, names) or f"v{self._values}"
                self._values += 1
            if bodies_of(node):
                self._structured(node, names, indent)
                continue
            targets = ", ".join(f"{names[out]}: {_type(out.aval)}" for out in node.outs)
            self._lines.append(f"{indent}{targets} = {_call(node, names)}")

    def _structured(self, node: Node, names: dict[Value, str], indent: str) -> None:
        if "branches" in node.params:
            self._branches(node, names, indent)
        else:
            self._loop(node, names, indent)

    def _branches(self, node: Node, names: dict[Value, str], indent: str) -> None:
        index, *operands = [_operand(value, names) for value in node.inputs]
        targets = ", ".join(f"{names[out]}: {_type(out.aval)}" for out in node.outs)
        self._lines.append(f"{indent}match {index}:  # {targets}")
        branches = bodies_of(node)
        for number, branch in enumerate(branches):
            case = "_" if number == len(branches) - 1 else str(number)
            self._lines.append(f"{indent}    case {case}:")
            inner = dict(zip(branch.inputs, operands, strict=True))
            self.block(branch, inner, indent + " " * 8)
            self._assign([names[out] for out in node.outs], branch.outputs, inner, indent + " " * 8)

    def _loop(self, node: Node, names: dict[Value, str], indent: str) -> None:
        """Write a loop: carries have the names of the results from the beginning."""
        params, outs = node.params, node.outs
        body, *conditions = bodies_of(node)
        carries: int = params["carries"]
        operands = [_operand(value, names) for value in node.inputs]
        trip_count = "" if "length" in params or conditions else operands.pop(0)
        first, second = params["consts"], params["consts"] + carries
        left = outs[len(outs) - len(body.outputs) + carries :]
        for out, start in zip(outs, operands[first:second], strict=False):
            self._lines.append(f"{indent}{names[out]}: {_type(out.aval)} = {start}")
        for out in left:
            empty = "[]" if out.dtype.kind == "O" else "empty()"
            self._lines.append(f"{indent}{names[out]}: {_type(out.aval)} = {empty}")
        index = names[outs[carries]] if conditions else f"i{self._indices}"
        self._indices += not conditions
        carried = [names[out] for out in outs[:carries]]
        elements = [f"{array}[{index}]" for array in operands[second:]]
        inner = dict(zip(body.inputs, [index, *operands[:first], *carried, *elements], strict=True))
        deeper = indent + "    "
        if conditions:
            self._lines.append(f"{indent}{index}: {_type(outs[carries].aval)} = 0")
            limit = "True" if params["limit"] is None else f"{index} < {params['limit']}"
            self._lines.append(f"{indent}while {limit}:{_policy_note(params)}")
            (condition,) = conditions
            test = dict(zip(condition.inputs, inner.values(), strict=True))
            self.block(condition, test, deeper)
            self._lines.append(f"{deeper}if not {_operand(condition.outputs[0], test)}: break")
        else:
            count = f"range({params.get('length', trip_count)})"
            count = f"reversed({count})" if params["reverse"] else count
            self._lines.append(f"{indent}for {index} in {count}:{_policy_note(params)}")
        self.block(body, inner, deeper)
        targets = [*carried, *[f"{names[out]}[{index}]" for out in left]]
        self._assign(targets, body.outputs, inner, deeper)
        if conditions:
            self._lines.append(f"{deeper}{index} += 1")

    def _assign(
        self, targets: Sequence[str], values: Sequence[Value], names: dict[Value, str], indent: str
    ) -> None:
        results = ", ".join(_operand(value, names) for value in values)
        self._lines.append(f"{indent}{', '.join(targets)} = {results}" if targets else f"{indent}pass")


def _policy_note(params: dict[str, Any]) -> str:
    policy = params.get("policy")
    return "" if policy is None else f"  # policy {policy!r}"


def _call(node: Node, names: dict[Value, str]) -> str:
    arguments = [_operand(value, names) for value in node.inputs]
    arguments += [f"{name}={_param(value)}" for name, value in node.params.items()]
    return f"{node.op.name}({', '.join(arguments)})"


def identifier(name: str) -> str:
    """Return a name as Python can define it: ``grad(f)`` is ``grad_f``.

    Examples
    --------
    >>> identifier("grad(<lambda>)")
    'grad_lambda'
    >>> identifier("<lambda>")
    'lambda_'
    """
    found = re.sub(r"\W+", "_", name).strip("_") or "f"
    return f"{found}_" if keyword.iskeyword(found) else found


def _input_names(graph: Graph) -> dict[Value, str]:
    names: dict[Value, str] = {}
    for number, value in enumerate(graph.inputs):
        names[value] = _given(value, names) or f"x{number}"
    return names


def _given(value: Value, names: dict[Value, str]) -> str:
    """Return the name that the user gave a value, if it can stand in the program."""
    name = value.name or ""
    usable = name.isidentifier() and not keyword.iskeyword(name) and name not in names.values()
    return name if usable and not re.fullmatch(r"[cvx]\d+", name) else ""


def _type(type_: Aval) -> str:
    if type_.dtype.kind == "O":
        return "stack"
    return f"{short_dtype(type_.dtype)}[{','.join(map(str, type_.shape))}]"


def _operand(value: Value, names: dict[Value, str]) -> str:
    if isinstance(value, Literal):
        assert value.data is not None
        number = repr(value.data.item())
        plain = value.dtype in (np.dtype(float), np.dtype(np.int64), np.dtype(bool))
        return number if plain or value.aval.weak else f"{short_dtype(value.dtype)}({number})"
    return names[value]


def _param(value: Any) -> str:
    return short_dtype(value) if isinstance(value, np.dtype) else repr(value)


def _place(site: Any) -> str:
    if not isinstance(site, Site):
        return "" if site is None else str(site)
    return f"{site.filename.rpartition('/')[2]}:{site.line}"
