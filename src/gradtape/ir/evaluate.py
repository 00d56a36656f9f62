"""Running a graph with NumPy, node by node."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Graph, Value
from gradtape.ir.op import NDArray


class Stopped(Exception):
    """Evaluation has ended before its end, because what wanted it to go on does so no more."""


class _Thread(threading.local):
    """What may stop the evaluations of this thread."""

    def __init__(self) -> None:
        self.is_enough: Callable[[], bool] | None = None


_thread: Final = _Thread()


@contextmanager
def stopped_when(is_enough: Callable[[], bool]) -> Iterator[None]:
    """Stop evaluations inside, between two nodes, once `is_enough` returns True.

    Raises
    ------
    Stopped
        By the evaluation.

    Examples
    --------
    >>> from gradtape.ir.types import FLOAT64, aval
    >>> x = Value(aval((), FLOAT64))
    >>> y = x * 2.0
    >>> with stopped_when(lambda: True):
    ...     compute_outputs(Graph([x], [y.node], [y]), [np.array(1.0)])
    Traceback (most recent call last):
        ...
    gradtape.ir.evaluate.Stopped
    """
    around, _thread.is_enough = _thread.is_enough, is_enough
    try:
        yield
    finally:
        _thread.is_enough = around


def compute_values(graph: Graph, arrays: Sequence[NDArray]) -> dict[Value, NDArray]:
    """Return what each value of the graph comes to."""
    computed: dict[Value, NDArray] = dict(zip(graph.inputs, arrays, strict=True))
    is_enough = _thread.is_enough
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            if is_enough is not None and is_enough():
                raise Stopped
            operands: list[Any] = [computed.get(v, v.data) for v in node.inputs]
            for out, array in zip(node.outs, node.op.evaluate(operands, node.params), strict=True):
                computed[out] = array if array.dtype == out.dtype else array.astype(out.dtype)
    return computed


def compute_outputs(graph: Graph, arrays: Sequence[NDArray]) -> list[NDArray]:
    """Return the outputs of a graph; they may share memory with its inputs."""
    computed = compute_values(graph, arrays)
    return [np.asarray(computed.get(value, value.data)) for value in graph.outputs]
