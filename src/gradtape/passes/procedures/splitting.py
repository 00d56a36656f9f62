"""Index-set splitting: loops are cut where comparisons of their index change, so that no iteration tests what all of a piece agree on.

The pieces run one after the other, so that the order of iterations stays. A piece of one iteration is no loop. What the comparisons are in
each piece is decided by `gradtape.passes.procedures.bounds`. (Griebl, Feautrier and Lengauer, "Index set splitting", Int. J. Parallel
Programming 28, 2000.)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from gradtape.ir.graph import Node, Value, extract, literal, number_of
from gradtape.ir.types import INT64
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.logic import equal, greater, greater_equal, less, less_equal, not_equal
from gradtape.procedures.affine import linear_form, plus
from gradtape.procedures.builder import leaf
from gradtape.procedures.ir import Allocate, Apply, For, Pop, Procedure, Push, Statement, While
from gradtape.procedures.rewrite import BlockPass, Rewriter
from gradtape.statements import walk
from gradtape.transforms.procedures.checkpoint import StatementCopy

MOST_PIECES: Final = 16
"""Pieces of a loop: the border of each slice of a vector of parameters is one."""

MOST_CODE: Final = 1600
"""Statements and operations in all pieces of a loop, before the tests are decided: more take the compiler longer than the tests take the
program.

Measured on the gradient of an LSTM of 16 cells, whose four gates are parts of one vector: as procedures 4.0 times the time of loops of the
graph with 400, 1.1 with 1600.
"""


def split_loops(procedure: Procedure) -> Procedure:
    """Return the procedure with loops cut where comparisons of their index change; the same one where there are none.

    Examples
    --------
    >>> from gradtape.ops.core.elementwise.select import where
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder("steps")
    >>> total = build.variable("total", 0.0)
    >>> with build.loop(9) as i:
    ...     build.assign(total, build.read(total) + where(i < 4, 1.0, 2.0))
    >>> split = split_loops(build.finish([build.read(total)]))
    >>> [int(loop.count.data) for loop in split.body if isinstance(loop, For)]
    [4, 5]
    """
    return _Splitting().rewritten(procedure)


class _Splitting(BlockPass):
    """Splits the loops of a procedure, inner ones first."""

    def replacements(self, statement: Statement) -> list[Statement]:
        (loop,) = super().replacements(statement)
        if not isinstance(loop, For):
            return [loop]
        trips = number_of(loop.count)
        inside = list(walk(loop.body))
        if (
            trips is None
            or loop.parallel
            or any(isinstance(s, While | Allocate | Apply | Push | Pop) for s in inside)
        ):
            return [loop]
        nodes, _ = extract([x for s in inside for x in s.uses() if isinstance(x, Value)])
        borders = sorted({b for node in nodes for b in _borders(node, loop.index) if 0 < b < trips})
        pieces = len(borders) + 1
        if pieces == 1 or pieces > MOST_PIECES or pieces * (len(inside) + len(nodes)) > MOST_CODE:
            return [loop]
        self.count += 1
        return [s for low, high in pairwise([0, *borders, int(trips)]) for s in piece_of(loop, low, high)]


def _borders(node: Node, index: Value) -> Iterator[int]:
    """Yield the iterations from which on a comparison has, or two numbers of which one is chosen have, another order."""
    if node.op not in COMPARISONS or node.inputs[0].dtype.char not in "lq":
        return
    first, second = map(linear_form, node.inputs)
    form = plus(first, second, -1)
    offset, factor = form.pop(None, 0), form.pop(index, 0)
    if not factor or any(form.values()):
        return
    for more in COMPARISONS[node.op]:
        yield _border(factor, offset + more)


def _border(factor: int, offset: int) -> int:
    """Return the iteration from which on ``factor * i + offset < 0`` is another than before."""
    return -(offset // factor) if factor > 0 else offset // -factor + 1


COMPARISONS: Final = {
    less: (0,),
    greater_equal: (0,),
    minimum: (0,),
    maximum: (0,),
    less_equal: (-1,),
    greater: (-1,),
    equal: (0, -1),
    not_equal: (0, -1),
}
"""By row of integers x and y, the numbers c for which ``x - y + c < 0`` decides it, or is part of that."""


def piece_of(loop: For, low: int, high: int) -> list[Statement]:
    """Return the iterations of a loop from `low` to before `high`."""
    others = Rewriter()
    index = leaf(INT64)
    if high - low == 1:
        others.becomes[loop.index] = literal(low, INT64)
        return StatementCopy(others, {}).block(loop.body)
    others.becomes[loop.index] = index + literal(low, INT64) if low else index
    body = StatementCopy(others, {}).block(loop.body)
    return [For(index, literal(high - low, INT64), body, False, loop.site)]
