"""Graphs as typed three-address Python, with the user's lines as comments."""

from __future__ import annotations

import keyword
import re
from typing import Any

import numpy as np

from .graph import Graph, Literal, Site, Value
from .types import Aval, short_dtype


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
    lines = []
    constants = graph.constants()
    for number, value in enumerate(constants):
        names[value] = f"c{number}"
    parameters = ", ".join(f"{names[value]}: {_type(value.aval)}" for value in graph.inputs)
    results = ", ".join(_type(value.aval) for value in graph.outputs)
    lines.append(
        f"def {identifier(graph.name)}({parameters}) -> {results if len(graph.outputs) == 1 else f'({results})'}:"
    )
    lines.extend(f"    {names[value]}: {_type(value.aval)} = constant(...)" for value in constants)
    last = ""
    count = 0
    for node in graph.nodes:
        place = _place(node.site)
        if place and place != last:
            lines.append(f"    # {place}")
            last = place
        for out in node.outs:
            names[out] = _given(out, names) or f"v{count}"
            count += 1
        targets = ", ".join(f"{names[out]}: {_type(out.aval)}" for out in node.outs)
        arguments = [_operand(value, names) for value in node.inputs]
        arguments += [f"{name}={_param(value)}" for name, value in node.params.items()]
        lines.append(f"    {targets} = {node.op.name}({', '.join(arguments)})")
    lines.extend(f"    assert {_operand(value, names)} == {expected}" for value, expected in graph.guards)
    lines.append(f"    return {', '.join(_operand(value, names) for value in graph.outputs)}")
    return "\n".join(lines)


def identifier(name: str) -> str:
    """Return a name as Python can define it: ``grad(f)`` is ``grad_f``.

    Examples
    --------
    >>> identifier("grad(<lambda>)")
    'grad_lambda'
    """
    return re.sub(r"\W+", "_", name).strip("_") or "f"


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
