"""Bounds-check elimination: comparisons and extrema of indices that the trip counts of loops decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from gradtape.ir.graph import Node, Value, literal, number_of
from gradtape.ir.op import Op
from gradtape.ir.types import BOOL
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.logic import equal, greater, greater_equal, less, less_equal, not_equal
from gradtape.procedures.affine import linear_form
from gradtape.procedures.ir import Check, For, Procedure, Statement
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.traversal import walk
from gradtape.records import replaced

DEEPEST: Final = 16
"""Loops whose numbers are replaced by their bounds, one after the other."""

Greatest: TypeAlias = Callable[[Value, Value], "int | None"]
"""A bound of the difference of two integers."""


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
    rewriter = _Decider({s.index: s.count for s in walk(procedure.body) if isinstance(s, For)})
    body = rewriter.block(procedure.body)
    if not rewriter.count:
        return procedure
    return replaced(procedure, body=body, results=[rewriter.content(result) for result in procedure.results])


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
        self._depths = {index: depth for depth, index in enumerate(counts)}

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        found = super().block(statements)
        return [s for s in found if not (isinstance(s, Check) and number_of(s.condition) == 1)]

    def made(self, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
        bounds = COMPARISONS.get(node.op)
        if bounds is not None and inputs[0].dtype.char in "lq" and inputs[0].dtype == inputs[1].dtype:
            holds = bounds(inputs[0], inputs[1], self._greatest)
            if holds is not None:
                self.count += 1
                return (literal(holds, BOOL),)
        if (
            node.op in (minimum, maximum)
            and inputs[0].dtype.char in "lq"
            and inputs[0].dtype == inputs[1].dtype
        ):
            is_first_less = _is_less(inputs[0], inputs[1], self._greatest)
            if is_first_less is not None:
                self.count += 1
                return (inputs[0 if is_first_less is (node.op is minimum) else 1],)
        return super().made(node, inputs)

    def _greatest(self, first: Value, second: Value) -> int | None:
        """Return a bound of the difference of two integers, None if there is none."""
        form = linear_form(first)
        for atom, factor in linear_form(second).items():
            form[atom] = form.get(atom, 0) - factor
        for _ in range(DEEPEST):
            form = {atom: factor for atom, factor in form.items() if factor}
            inner = [atom for atom in form if atom is not None and atom in self._counts]
            if not inner:
                break
            # The innermost first: its trip count may depend on others.
            index = max(inner, key=self._depths.__getitem__)
            factor = form.pop(index)
            if factor > 0:
                for atom, times in linear_form(self._counts[index] - literal(1, index.dtype)).items():
                    form[atom] = form.get(atom, 0) + factor * times
        number = form.pop(None, 0)
        return None if form else number


def _is_less(first: Value, second: Value, greatest: Greatest) -> bool | None:
    most = greatest(first, second)
    if most is not None and most < 0:
        return True
    most = greatest(second, first)
    return False if most is not None and most <= 0 else None


def _differs(first: Value, second: Value, greatest: Greatest) -> bool | None:
    is_less, is_greater = _is_less(first, second, greatest), _is_less(second, first, greatest)
    if is_less or is_greater:
        return True
    return False if is_less is False and is_greater is False else None


def _negated(holds: bool | None) -> bool | None:
    return None if holds is None else not holds


COMPARISONS: Final[dict[Op, Callable[[Value, Value, Greatest], bool | None]]] = {
    less: lambda x, y, greatest: _is_less(x, y, greatest),
    greater: lambda x, y, greatest: _is_less(y, x, greatest),
    greater_equal: lambda x, y, greatest: _negated(_is_less(x, y, greatest)),
    less_equal: lambda x, y, greatest: _negated(_is_less(y, x, greatest)),
    equal: lambda x, y, greatest: _negated(_differs(x, y, greatest)),
    not_equal: lambda x, y, greatest: _differs(x, y, greatest),
}
"""By row, whether it holds for two integers in all iterations, or in none; None where that is not known."""
