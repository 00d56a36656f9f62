"""The NumPy interpreter: evaluates any graph, node by node. It is the fallback where there is no kernel, and the oracle of tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtape.ir.evaluate import compute_values
from gradtape.ir.graph import Graph, Value
from gradtape.ir.op import NDArray


def interpret(graph: Graph, arrays: Sequence[NDArray]) -> list[NDArray]:
    """Compute the outputs of a graph with NumPy.

    Parameters
    ----------
    graph : Graph
        What to run; its guards are not looked at.
    arrays : sequence of ndarray
        One per input.

    Returns
    -------
    list of ndarray
        One per output, none of which shares memory with an input.

    Examples
    --------
    >>> from gradtape.ir.graph import Graph, Value
    >>> from gradtape.ir.types import FLOAT64, aval
    >>> x = Value(aval((2,), FLOAT64))
    >>> y = x * 2.0
    >>> interpret(Graph([x], [y.node], [y]), [np.array([1.0, 2.0])])
    [array([2., 4.])]
    """
    computed = compute_values(graph, arrays)
    return [np.array(computed.get(value, value.data)) for value in graph.outputs]


def missed_guards(graph: Graph, computed: dict[Value, NDArray]) -> list[tuple[int, int]]:
    """Return the positions of guards that do not hold, with the actual numbers."""
    missed = []
    for position, (value, expected) in enumerate(graph.guards):
        array = computed.get(value, value.data)
        assert array is not None
        if int(array) != expected:
            missed.append((position, int(array)))
    return missed
