"""A bound on the work of one compilation, counted in steps: a compiler that does not converge stops with an error.

A step is a node that a pass looks at, or an element that the scheduler visits. Steps rather than seconds, so that a program that
compiles on one machine compiles on every machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Final

from gradtape.errors import CompileBudgetError
from gradtape.ir.body import bodies_of
from gradtape.ir.graph import Graph

STEPS_PER_NODE: Final = 2_000
"""Steps that a compilation may take for each node of the graph, those of loop bodies included. The most demanding programs of the tests,
unrolled stencils, take 190; a straight line takes 30."""

STEPS: Final = 50_000
"""Steps that any compilation may take besides: the smallest graphs take up to 3,500."""


NODES: Final = 30_000
"""Nodes of a graph up to which it is compiled: a straight line of so many takes half a minute, and NumPy computes it in a tenth of a
second."""


class _Work(threading.local):
    """The steps that are left for what this thread compiles."""

    def __init__(self) -> None:
        self.left = inf
        self.limit = inf
        self.name = ""


_work: Final = _Work()

_spent: Final = [0]
"""Steps of all compilations of this process, for progress bars."""


def spend(steps: int) -> None:
    """Take note of work done.

    Raises
    ------
    CompileBudgetError
        Where a compilation has used up its budget.
    """
    _work.left -= steps
    _spent[0] += steps
    if _work.left < 0:
        raise CompileBudgetError(
            f"compiling {_work.name} took more than {_work.limit:,.0f} steps and was stopped",
            why="a pass of the compiler does not converge on this program, or the program is rewritten into a far larger one",
            remedy="please report it with the program; until then it runs on the interpreter, or write the repeated part as gt.scan",
        )


@contextmanager
def budget(graph: Graph) -> Iterator[None]:
    """Bound the work in a block by the size of a graph; inside another bound, that one holds.

    Raises
    ------
    CompileBudgetError
        For a graph of more than `NODES` nodes.
    """
    if _work.left < inf:
        yield
        return
    size = graph_size(graph)
    if size > NODES:
        raise CompileBudgetError(
            f"{graph.name} is a straight line of {size:,} operations, more than the {NODES:,} that are compiled",
            why="each iteration of a Python loop or recursion was recorded by itself, because its iterations differ in structure",
            remedy="compute with whole arrays, or write the loop as gt.scan, gt.fori_loop or gt.while_loop, which are compiled once; "
            "otherwise the interpreter runs it, and there is nothing to do",
        )
    _work.limit = _work.left = STEPS + STEPS_PER_NODE * size
    _work.name = graph.name
    try:
        yield
    finally:
        _work.left = inf


def allow(size: int) -> None:
    """Extend the bound of what is being compiled by nodes that its graph does not show: those of a procedure."""
    if _work.left < inf:
        _work.limit += STEPS_PER_NODE * size
        _work.left += STEPS_PER_NODE * size


def steps_since_now() -> Callable[[], int]:
    """Return what counts the steps that compilations take from now on."""
    begin = _spent[0]
    return lambda: _spent[0] - begin


def graph_size(graph: Graph) -> int:
    """Return the number of nodes of a graph, of all bodies in it, and of the graphs that nodes stand for."""
    return sum(
        1
        + sum(map(graph_size, bodies_of(node)))
        + (0 if node.op.graph is None else graph_size(node.op.graph))
        for node in graph.nodes
    )
