"""The cost of an element of each value, in additions, and the values that are better stored than computed again."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Final

from gradtape.ir.graph import Node, Value, extract
from gradtape.ir.types import aval
from gradtape.ir.varying import lengths_vary
from gradtape.kinds.elementwise import Elementwise, Libm
from gradtape.loops.ir import Dtype
from gradtape.lower.schedule.nests import LoopNest
from gradtape.lower.target.vecmath import vector_attribute

STORED: Final = 8.0
"""A value that costs more than this is stored rather than computed at two places: a store, a load and
their cache lines."""

REPEATED: Final = 2.0
"""A value that costs more than this is stored rather than computed once per iteration of a loop that it does
not depend on."""

LONG: Final = 65
"""Iterations of an inner loop from which rows are not blocked (`row_blocking.SHORT`). Functions around it are called for one element after
another: for 1000 rows of 100 numbers, logaddexp of the row sums takes 1.6 microseconds in a loop of its own and 22 around the sums."""

AGAIN: Final = 128
"""Elements whose second read, from the L2 cache, takes as long as one more call of a scalar function: 10 ns."""

NEAR: Final = 2**17
"""Elements that stay in the L2 cache until they are read again."""

LANES: Final = 8
"""Fewer elements are not worth a loop."""


def cost_of(node: Node) -> float:
    """Return the cost of one element, without that of its operands."""
    return node.op.cost if isinstance(node.op, Elementwise) else 0.0


def calls_vector_function(node: Node) -> bool:
    """Return whether a node calls a function of the C library that computes several elements at a time."""
    op = node.op
    return isinstance(op, Elementwise) and any(
        vector_attribute(function, node.out.dtype)[1]
        for function in _functions(op, tuple([value.dtype for value in node.inputs]))
    )


@cache
def _functions(op: Elementwise, dtypes: tuple[Dtype, ...]) -> tuple[Libm, ...]:
    """Return the functions of the C library that a row calls, by itself or by its formula."""
    if isinstance(op.body, Libm):
        return (op.body,)
    if not callable(op.body):
        return ()
    operands = [Value(aval((), dtype)) for dtype in dtypes]
    nodes, _ = extract([op.body(*operands)], operands)
    return tuple(
        function
        for inner in nodes
        if isinstance(inner.op, Elementwise)
        for function in _functions(inner.op, tuple([value.dtype for value in inner.inputs]))
    )


def is_around_long_loop(nest: LoopNest, level: int) -> bool:
    """Return whether a nest has a long loop inside its loop at this level."""
    least = 2 if lengths_vary() else LONG
    return any(axis.extent >= least for axis in nest.axes[level + 1 :])


def reads_again_soon(nest: LoopNest, level: int, calls: int) -> bool:
    """Return whether a nest in a loop of its own reads its rows again in less time than so many functions are called one by one."""
    row = prod(axis.extent for axis in nest.axes[level + 1 :])
    return (
        not lengths_vary()
        and row <= AGAIN * calls
        and row * prod(axis.extent for axis in nest.axes[: level + 1]) <= NEAR
    )
