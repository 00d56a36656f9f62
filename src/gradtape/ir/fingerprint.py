"""The identity of a graph: equal for graphs that one kernel serves, in this process and in any other."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from gradtape.ir.graph import Graph, Literal, Value


def fingerprint(graph: Graph) -> str:
    """Return a digest of a graph's ops, parameters, types and wiring.

    Inputs and captured constants count by shape and dtype, since their data are bound when a kernel is
    loaded; numbers in the program text count by their bits. Types of inner values follow from these and
    are left out.

    Examples
    --------
    >>> from gradtape.ir.graph import Graph, Value
    >>> from gradtape.ir.types import FLOAT64, aval
    >>> x = Value(aval((2,), FLOAT64))
    >>> y, z = x * 2.0, x * 3.0
    >>> fingerprint(Graph([x], [y.node], [y])) == fingerprint(Graph([x], [z.node], [z]))
    False
    """
    names: dict[Value, str] = {value: f"x{k}" for k, value in enumerate(graph.inputs)}
    parts = [",".join([_type(value) for value in graph.inputs])]
    append = parts.append
    count = 0

    def leaf(value: Value) -> str:
        if isinstance(value, Literal):
            assert value.data is not None
            name = str(value.data.dtype.char) + value.data.tobytes().hex()
        else:
            name = f"c{len(names)}:{_type(value)}"
        names[value] = name
        return name

    for node in graph.nodes:
        wiring = ",".join([names.get(value) or leaf(value) for value in node.inputs])
        params = node.params
        if params:
            append(f"{node.op.name}({wiring}){describe_parameters(params)}")
        else:
            append(f"{node.op.name}({wiring})")
        for out in node.outs:
            names[out] = str(count)
            count += 1
    append("->" + ",".join([names.get(value) or leaf(value) for value in graph.outputs]))
    for value, expected in graph.guards:
        append(f"guard {names.get(value) or leaf(value)}=={expected}")
    digest: str = hashlib.blake2b("\n".join(parts).encode(), digest_size=20).hexdigest()
    return digest


def _type(value: Value) -> str:
    return f"{value.dtype.char}{value.shape}"


def describe_parameters(params: dict[str, Any]) -> str:
    """Return the parameters of a node as text that says all of them."""
    return ";".join([f"{name}={_param(params[name])}" for name in sorted(params)])


def _param(value: Any) -> str:
    """Return a parameter as text that says all of it: repr would abridge an array."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str}{value.shape}{value.tobytes().hex()}"
    if isinstance(value, np.dtype):
        text: str = value.str
        return text
    return repr(value)
