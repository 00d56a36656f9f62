"""Sinking into branches: accumulations of multiples of a number that only one branch makes other than zero are moved into it.

The reverse of ``if near: energy += f(d)`` gives d an adjoint in that branch alone, and what computed d gets multiples of it behind the
branch. The other branch has nothing to add.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from gradtape.ir.graph import Literal, Value, extract
from gradtape.kinds.elementwise import Elementwise
from gradtape.ops.core.elementwise.arithmetic import add, divide, multiply, negative, subtract
from gradtape.ops.core.elementwise.select import where
from gradtape.passes.procedures.fusion import is_sequential
from gradtape.procedures.affine import linear_form
from gradtape.procedures.dataflow import free_sums, unsummed
from gradtape.procedures.ir import (
    Assign,
    Content,
    For,
    If,
    Load,
    Memory,
    Pointer,
    Procedure,
    Read,
    Statement,
    Store,
    Variable,
    While,
)
from gradtape.procedures.rewrite import BlockPass
from gradtape.procedures.traversal import assigned, leaves_of
from gradtape.records import replaced
from gradtape.statements import walk

COSTLY: Final = 20.0
"""Additions in the time of a term above which a branch costs less."""


def sink_into_branches(procedure: Procedure) -> Procedure:
    """Return the procedure with accumulations in the branch that they depend on; the same procedure where there are none.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder("sunk")
    >>> x, out = build.array("x", (5,)), build.variable("out", 0.0)
    >>> with build.loop(5) as i:
    ...     held, slope = build.load(x, i), build.variable("slope", 0.0)
    ...     with build.branch(held > 1.0):
    ...         build.assign(slope, held * held)
    ...     build.assign(out, build.read(out) + 2.0 * build.read(slope))
    >>> loop = sink_into_branches(build.finish([build.read(out)])).body[1]
    >>> [type(statement).__name__ for statement in loop.body]
    ['Load', 'Assign', 'If']
    """
    return _Sinking(procedure).rewritten(procedure)


class _Sinking(BlockPass):
    """Sinks accumulations, in inner blocks first."""

    def __init__(self, procedure: Procedure) -> None:
        super().__init__()
        self._sums = free_sums(procedure.body)
        self._index: Value | None = None  # of the innermost loop around
        self._uses: Counter[Content] = Counter()
        for statement in walk(procedure.body):
            self._uses.update(leaves_of(statement))
        for result in procedure.results:
            if isinstance(result, Value):
                self._uses.update(extract([result])[1])

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        body = super().block(statements)
        for position, branch in enumerate(body):
            if isinstance(branch, If):
                changed = self._sunk(body[:position], branch, body[position + 1 :])
                if changed is not None:
                    self.count += 1
                    return [*body[:position], *changed]
        return body

    def replacements(self, statement: Statement) -> list[Statement]:
        if not isinstance(statement, For):
            return super().replacements(statement)
        outside, self._index = self._index, statement.index
        body = self._with_lazy_terms(statement, self.block(statement.body))
        self._index = outside
        return [replaced(statement, body=body)]

    def _with_lazy_terms(self, loop: For, body: list[Statement]) -> list[Statement]:
        """Return the body of a loop; costly terms that are added under a condition are computed under it, where no vectors are possible."""
        if any(isinstance(s, For | While) for s in walk(body)) or not is_sequential(loop):
            return body
        sunk: list[Statement] = []
        for statement in body:
            branch = self._lazy(statement, body) if isinstance(statement, Assign) else None
            self.count += branch is not None
            sunk.append(statement if branch is None else branch)
        return sunk

    def _lazy(self, statement: Assign, body: Sequence[Statement]) -> If | None:
        """Return ``s += x if condition else 0`` as a branch, if nothing else needs what is costly in `x`."""
        total = statement.value
        term = self._sums.get(total) if isinstance(total, Value) else None
        if term is None or term.node is None or term.node.op is not where:
            return None
        assert isinstance(total, Value) and total.node is not None
        condition, first, second = term.node.inputs
        if _is_zero(first) is _is_zero(second):
            return None
        chosen = second if _is_zero(first) else first
        others = [x for s in walk(body) if s is not statement for x in s.uses() if isinstance(x, Value)]
        nodes, _ = extract([chosen])
        shared = set(extract([condition, *others])[0])
        cost = sum(x.op.cost for x in nodes if isinstance(x.op, Elementwise) and x not in shared)
        if cost < COSTLY:
            return None
        added = total.node.copy(tuple([chosen if x is term else x for x in total.node.inputs])).out
        block: list[Statement] = [Assign(statement.variable, added)]
        return If(condition, [], block) if chosen is second else If(condition, block, [])

    def _sunk(
        self, before: Sequence[Statement], branch: If, after: Sequence[Statement]
    ) -> list[Statement] | None:
        """Return a branch with the statements moved into it, and those that stay after it; None if nothing is moved."""
        for is_first, branch_body, other in (
            (True, branch.then, branch.otherwise),
            (False, branch.otherwise, branch.then),
        ):
            zeros = self._zeros(before, branch_body, other, after)
            moved = self._moved(zeros, after) if zeros else []
            if moved and not self._is_better_selected(branch, moved):
                unmoved = [s for s in after if s not in moved]
                then = [*branch.then, *moved] if is_first else branch.then
                otherwise = branch.otherwise if is_first else [*branch.otherwise, *moved]
                return [If(branch.condition, then, otherwise), *unmoved]
        return None

    def _is_better_selected(self, branch: If, moved: Sequence[Statement]) -> bool:
        """Return whether vectors of selected numbers would become stores under masks: of neighbours, behind mere arithmetic."""
        if not all(isinstance(s, Read | Assign | If) for s in walk([branch])):
            return False
        return any(isinstance(s, Store) and abs(linear_form(s.index).get(self._index, 0)) == 1 for s in moved)

    def _zeros(
        self,
        before: Sequence[Statement],
        branch_body: Sequence[Statement],
        other: Sequence[Statement],
        after: Sequence[Statement],
    ) -> set[Value]:
        """Return the leaves behind a branch that are zero unless `branch_body` has run."""
        changed = assigned(branch_body) - assigned([*other, *after])
        zeros: set[Variable] = set()
        for statement in before:
            for variable in assigned([statement]):
                is_zero = isinstance(statement, Assign) and _is_zero(statement.value)
                (zeros.add if is_zero else zeros.discard)(variable)
        return {
            s.out
            for s in after
            if isinstance(s, Read) and isinstance(s.out, Value) and s.variable in changed & zeros
        }

    def _moved(self, zeros: set[Value], after: Sequence[Statement]) -> list[Statement]:
        """Return the accumulations of multiples of zeros, with what they load; none if they cannot change places with what stays."""
        makers = {s.out: s for s in after if isinstance(s, Load | Read)}
        moved: set[Statement] = set()
        for statement in after:
            if not isinstance(statement, Assign | Store):
                continue
            value = statement.value
            if not isinstance(value, Value) or value not in self._sums:
                continue
            if all(_vanishes(term, zeros) for term in unsummed(value, self._sums)[1]):
                load = makers.get(unsummed(value, self._sums)[0])
                if load is not None and self._uses[load.out] == 1:
                    moved |= {statement, load}
        if not moved:
            return []
        used = Counter([leaf for s in moved for leaf in leaves_of(s)])
        elsewhere = {zero for zero in zeros if self._uses[zero] > used[zero]}
        if elsewhere:  # in what stays behind the branch, in a block there, or among the results
            return self._moved(zeros - elsewhere, after) if zeros > elsewhere else []
        moved.update([s for s in after if isinstance(s, Read) and s.out in zeros])
        stays = [s for s in after if s not in moved]
        defined = {x for s in walk(stays) for x in s.defines()}
        touched = _touched(stays)
        for statement in moved:
            if not defined.isdisjoint(leaves_of(statement)) or not touched.isdisjoint(_touched([statement])):
                return []
        return [s for s in after if s in moved]


def _touched(statements: Sequence[Statement]) -> set[Memory | Variable]:
    """Return the memories and variables that statements use, with the blocks in them."""
    touched: set[Memory | Variable] = set()
    for s in walk(statements):
        if isinstance(s, Read | Assign):
            touched.add(s.variable)
        touched.update([x.memory for x in s.uses() if isinstance(x, Pointer)])
    return touched


def _is_zero(value: Content) -> bool:
    return isinstance(value, Literal) and value.data is not None and bool(value.data == 0)


def _vanishes(value: Value, zeros: set[Value]) -> bool:
    """Return whether a value is a multiple of a zero, or a sum of such."""
    if value in zeros or _is_zero(value):
        return True
    node = value.node
    if node is None:
        return False
    if node.op is multiply:
        return any(_vanishes(x, zeros) for x in node.inputs)
    if node.op is add or node.op is subtract or node.op is negative:
        return all(_vanishes(x, zeros) for x in node.inputs)
    if node.op is divide:
        return _vanishes(node.inputs[0], zeros)
    return node.op is where and all(_vanishes(x, zeros) for x in node.inputs[1:])
