"""Bounds-check elimination: comparisons and extrema of indices that the trip counts of loops decide."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Node, Value, literal, number_of
from gradtape.ir.op import Op
from gradtape.ir.types import BOOL, INT64
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.logic import equal, greater, greater_equal, less, less_equal, not_equal
from gradtape.procedures.arrays.index_arithmetic import at_least
from gradtape.procedures.ir import Check, For, Procedure, Statement
from gradtape.procedures.rewrite import Rewriter
from gradtape.statements import walk


def decide_comparisons(procedure: Procedure) -> Procedure:
    """Return the procedure with comparisons replaced that hold, or do not, in all iterations; the same one where there are none.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder("triangle")
    >>> n, total = build.scalar("n", "int64"), build.variable("total", 0)
    >>> with build.loop(n) as i:
    ...     with build.loop(n - 1 - i) as j:
    ...         with build.branch(j + 1 < n):
    ...             build.assign(total, build.read(total) + 1)
    >>> decided = decide_comparisons(build.finish([build.read(total)]))
    >>> bool(decided.body[1].body[0].body[0].condition.data)
    True
    """
    decider = _Decider({s.index: s.count for s in walk(procedure.body) if isinstance(s, For)})
    decided = decider.rewritten(procedure)
    return decided if decider.count else procedure


class _Decider(Rewriter):
    """Replaces comparisons by what they are in all iterations.

    Parameters
    ----------
    counts : dict of Value to Value
        The trip count by the number of the iteration: where this is known, it is less than that.

    Attributes
    ----------
    count : int
        Of the comparisons that were replaced.
    """

    def __init__(self, counts: dict[Value, Value]) -> None:
        super().__init__()
        self.count = 0
        self._counts = counts

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        return [
            s for s in super().block(statements) if not (isinstance(s, Check) and number_of(s.condition) == 1)
        ]

    def made(self, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
        if len(inputs) == 2 and all(x.dtype == INT64 for x in inputs):
            decided = self._decided(node.op, *inputs)
            if decided is not None:
                self.count += 1
                return (decided,)
        return super().made(node, inputs)

    def _decided(self, op: Op, x: Value, y: Value) -> Value | None:
        """Return what a comparison or an extremum is in all iterations; None where that is not known."""
        if op in (greater, less_equal):
            x, y = y, x
        if op in (less, greater, less_equal, greater_equal):
            holds = self._is_less(x, y)
            return None if holds is None else literal(holds is (op in (less, greater)), BOOL)
        if op in (minimum, maximum):
            holds = self._is_less(x, y)
            return None if holds is None else x if holds is (op is minimum) else y
        if op in (equal, not_equal):
            orders = self._is_less(x, y), self._is_less(y, x)
            if True in orders or orders == (False, False):
                return literal((True in orders) is (op is not_equal), BOOL)
        return None

    def _is_less(self, x: Value, y: Value) -> bool | None:
        if at_least(y, x + literal(1, INT64), self._counts):
            return True
        return False if at_least(x, y, self._counts) else None
