"""A bound on the work of one compilation, counted in steps: a compiler that does not converge stops with an error.

A step is a node that a pass looks at, or an element that the scheduler follows. Steps rather than seconds, so that a program that
compiles on one machine compiles on every machine.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Final

from ..errors import CompileBudgetError
from .body import bodies_of
from .graph import Graph

STEPS_PER_NODE: Final = 2_000
"""Steps that a compilation may take for each node of the graph, those of loop bodies included. The most demanding programs of the tests,
unrolled stencils, take 190; a straight line takes 30."""

STEPS: Final = 50_000
"""Steps that any compilation may take besides: the smallest graphs take up to 3,500."""


class _Work(threading.local):
    """The steps that are left for what this thread compiles."""

    def __init__(self) -> None:
        self.left = inf
        self.limit = inf
        self.name = ""


_work: Final = _Work()


def spend(steps: int) -> None:
    """Take note of work done.

    Raises
    ------
    CompileBudgetError
        Where a compilation has used up its budget.
    """
    _work.left -= steps
    if _work.left < 0:
        raise CompileBudgetError(
            f"compiling {_work.name} took more than {_work.limit:,.0f} steps and was stopped",
            why="a pass of the compiler does not converge on this program, or the program is rewritten into a far larger one",
            remedy="please report it with the program; until then it runs on the interpreter, or write the repeated part as gt.scan",
        )


@contextmanager
def budget(graph: Graph) -> Iterator[None]:
    """Bound the work of what is inside by the size of a graph; inside of another bound that one holds."""
    if _work.left < inf:
        yield
        return
    _work.limit = _work.left = STEPS + STEPS_PER_NODE * graph_size(graph)
    _work.name = graph.name
    try:
        yield
    finally:
        _work.left = inf


def steps_left() -> float:
    """Return the steps that are left; infinity outside of a compilation."""
    return _work.left


def graph_size(graph: Graph) -> int:
    """Return the number of nodes of a graph and of all bodies in it."""
    return len(graph.nodes) + sum(graph_size(body) for node in graph.nodes for body in bodies_of(node))
