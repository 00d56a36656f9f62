"""Functions of the C library that stand around long loops: whether they are computed apart, several elements at a time."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Final

from gradtape.ir.graph import Value
from gradtape.lower.schedule.costs import calls_vector_function
from gradtape.lower.schedule.nests import Root

LONG: Final = 65
"""Turns of an inner loop from which rows are not computed side by side (`loops.batch.SHORT`). Functions around it are called for one
element after another: for 1000 rows of 100 numbers, logaddexp of the row sums takes 1.6 microseconds in a loop of its own and 22 around
the sums."""

AGAIN: Final = 128
"""Elements of a row that are read again, from the second cache, in the time that a function of one element takes longer: 10 ns."""

NEAR: Final = 2**17
"""Elements that stay in the second cache until they are read again."""

LANES: Final = 8
"""Fewer elements are not worth a loop."""


def is_around(root: Root, level: int) -> bool:
    """Return whether a root has a long loop inside of its loop at this level."""
    return any(axis.extent >= LONG for axis in root.axes[level + 1 :])


def reads_again_soon(root: Root, level: int, calls: int) -> bool:
    """Return whether a root that is left to a loop of its own reads its rows again sooner than so many functions are called one by one."""
    row = prod(axis.extent for axis in root.axes[level + 1 :])
    return row <= AGAIN * calls and row * prod(axis.extent for axis in root.axes[: level + 1]) <= NEAR


def functions_of_rows(roots: Iterable[Root]) -> set[Value]:
    """Return what roots compute once per row with functions, and what is better stored before."""
    chosen: set[Value] = set()
    for root in roots:
        calls: dict[Value, int] = {}
        inner: set[Value] = set()
        for value in root.outside:
            assert value.node is not None
            operands = [operand for operand in value.node.inputs if operand in calls]
            count = calls_vector_function(value.node) + sum(calls[operand] for operand in operands)
            if count:
                calls[value] = count
                inner.update(operands)
        for value, count in calls.items():
            level = root.outside[value]
            rows = prod(axis.extent for axis in root.axes[: level + 1])
            anew = any(len(read.axes) > level + 1 for read in root.reads)
            soon = not anew or reads_again_soon(root, level, count)
            if value not in inner and rows >= LANES and soon:
                chosen.add(value)
    return chosen
