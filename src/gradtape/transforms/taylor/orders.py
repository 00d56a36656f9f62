"""Derivatives of a number in a number, to any order: from one series where that has the values of nested transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import factorial
from typing import Final

from gradtape.errors import NotDifferentiableError
from gradtape.ir.builder import at
from gradtape.ir.graph import Node, Value, extract, literal, next_serial
from gradtape.ir.types import is_inexact
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.kinds.control import followed
from gradtape.kinds.correlation import Correlation
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.routines.matrix import Matrix
from gradtape.transforms.call import GraphCall
from gradtape.transforms.loops.draft import LoopOp
from gradtape.transforms.loops.ops import Switch
from gradtape.transforms.observers import derivative_site
from gradtape.transforms.taylor.series import Coefficient
from gradtape.transforms.taylor.sweep import taylor


def derivatives(
    target: Value, source: Value, order: int, stop: Callable[[Value], bool]
) -> list[Coefficient] | None:
    """Append the derivatives 1, ..., `order` of a number in a number; None stands for a zero.

    The result is None where nested sweeps may have other values. These have masks: a path through what a selection has not taken is no
    path, whatever slopes it has behind. A series has none, so it serves programs that select nothing, or have no infinite slopes.
    """
    survey = _Survey()
    nodes, _ = extract(
        [target], [source], stop=lambda value: value.node is None or stop(value), follow=followed
    )
    survey.visit(nodes, {source})
    if (
        target.dtype != source.dtype
        or survey.has_own_rules
        or (survey.selects and survey.has_infinite_slopes)
    ):
        return None
    try:
        (coefficients,) = taylor([target], [source], [[literal(1, source.dtype)]], order, stop)
    except NotDifferentiableError:  # nested sweeps say which order is missing
        return None
    return [
        None if part is None else part if k < 2 else part * float(factorial(k))
        for k, part in enumerate(coefficients, start=1)
    ]


_KINDS: Final = (Accumulate, Contract, Correlation, Cumulative, IndexMap, Join, Matrix, Reduction)
"""The kinds beside elementwise rows whose tangents forward and reverse mode share."""


@dataclass(slots=True)
class _Survey:
    """What the nodes between a source and a target do that series and nested sweeps may treat differently.

    Attributes
    ----------
    selects : bool
        Whether an operand, or an element of one, may have no path to the output.
    has_infinite_slopes : bool
        Whether a derivative of some order may be infinite.
    has_own_rules : bool
        Whether a node has a rule for reverse mode, or none that is known to agree with that.
    """

    selects: bool = False
    has_infinite_slopes: bool = False
    has_own_rules: bool = False

    def visit(self, nodes: Iterable[Node], active: set[Value]) -> None:
        """Visit nodes in topological order, and add to `active` what depends on its values."""
        for node in nodes:
            operands = followed(node)
            moving = [operand in active for operand in operands]
            if not any(moving) or not any(is_inexact(out.dtype) for out in node.outs):
                continue
            op = node.op
            if isinstance(op, LoopOp):
                self._visit_loop(op, node, active)
                continue
            if isinstance(op, Switch):
                self._visit_branches(node, active)
                continue
            if isinstance(op, GraphCall):
                inside = {own for own, moves in zip(op.graph.inputs, moving, strict=True) if moves}
                self.visit(op.graph.nodes, inside)
                active.update(
                    [out for out, own in zip(node.outs, op.graph.outputs, strict=True) if own in inside]
                )
                continue
            active.update([out for out in node.outs if is_inexact(out.dtype)])
            if isinstance(op, Elementwise):
                self.has_infinite_slopes |= not op.finite_derivatives
            elif not isinstance(op, _KINDS):
                self.has_own_rules = True
                return
            self.selects = self.selects or _selects(node, moving) or _tangent_selects(node, moving)

    def _visit_loop(self, op: LoopOp, node: Node, active: set[Value]) -> None:
        """Visit the body of a loop: a carry that depends on the source after an iteration only has no path from its initial value."""
        draft = op.open_draft(node)
        operands = [*draft.consts, *draft.elements]
        begin = {given.inner for given in operands if given.outer in active}
        moving = {carry.inner for carry in draft.carries if carry.init in active}
        while True:  # terminates: each round but the last adds a carry
            inside = begin | moving
            self.visit(draft.nodes(), inside)
            more = {carry.inner for carry in draft.carries if carry.next_carry in inside} - moving
            if not more:
                break
            moving |= more
        self.selects |= any(carry.inner in moving and carry.init not in active for carry in draft.carries)
        self.selects |= any(
            carry.inner in moving and carry.next_carry not in inside for carry in draft.carries
        )
        active.update([out for out in node.outs if is_inexact(out.dtype)])

    def _visit_branches(self, node: Node, active: set[Value]) -> None:
        """Visit the bodies of a branch: what only one of them computes from the source has no path through the others."""
        reached = []
        for body in node.params["branches"]:
            inside = {own for own, given in zip(body.inputs, node.inputs[1:], strict=True) if given in active}
            self.visit(body.nodes, inside)
            reached.append([out in inside for out in body.outputs])
        for out, flags in zip(node.outs, zip(*reached, strict=True), strict=True):
            if any(flags):
                active.add(out)
                self.selects |= not all(flags)


def _tangent_selects(node: Node, moving: Sequence[bool]) -> bool:
    """Return whether the tangent of a node selects elements of those of its operands, as that of a maximum does."""
    begin = next_serial()
    with at(derivative_site(node, backward=False)):
        directions = [Value(x.aval) if moves else None for x, moves in zip(node.inputs, moving, strict=True)]
        tangents = [tangent for tangent in node.op.jvp(node, directions) if tangent is not None]
    active = {direction for direction in directions if direction is not None}
    made, _ = extract(tangents, active, stop=lambda value: value.node is None or value.node.serial < begin)
    for each in made:
        depends = [operand in active for operand in each.inputs]
        if any(depends):
            active.update(each.outs)
            if _selects(each, depends):
                return True
    return False


def _selects(node: Node, moving: Sequence[bool]) -> bool:
    """Return whether a node computes from elements of the operands that move and from others."""
    op = node.op
    if isinstance(op, Elementwise):
        return op.confine is not None and any(
            rule is not None and moves for rule, moves in zip(op.confine, moving, strict=True)
        )
    if isinstance(op, IndexMap):
        return op.inside is not None
    if isinstance(op, Join | Accumulate):
        return not all(moving[: len(moving) if isinstance(op, Join) else 2])
    return False
