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
from gradtape.kinds.control import visible_inputs
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
    path, whatever slopes it has behind. A series has none, so it serves programs without slopes behind selections that may be infinite;
    those before a selection are in coefficients that it does not take.
    """
    survey = _Survey()
    nodes, _ = extract(
        [target], [source], stop=lambda value: value.node is None or stop(value), follow=visible_inputs
    )
    survey.visit(nodes, _Reach({source}, set()))
    if target.dtype != source.dtype or survey.is_refused:
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
class _Reach:
    """The values that depend on the source (`active`), and those of them that do so behind a selection (`selected`)."""

    active: set[Value]
    selected: set[Value]

    def moving(self, operands: Sequence[Value]) -> list[bool]:
        return [operand in self.active for operand in operands]

    def has_selected(self, operands: Iterable[Value]) -> bool:
        return not self.selected.isdisjoint(operands)

    def add(self, outs: Iterable[Value], is_selected: bool) -> None:
        """Add what is computed from values of these."""
        inexact = [out for out in outs if is_inexact(out.dtype)]
        self.active.update(inexact)
        if is_selected:
            self.selected.update(inexact)

    def inside(self, pairs: Iterable[tuple[Value, Value]]) -> _Reach:
        """Return the reached inputs of a body, from pairs of a value outside and its input."""
        pairs = list(pairs)
        return _Reach(
            {inner for outer, inner in pairs if outer in self.active},
            {inner for outer, inner in pairs if outer in self.selected},
        )


class _Survey:
    """Finds nodes between a source and a target that series and nested sweeps may treat differently.

    Attributes
    ----------
    is_refused : bool
        Whether there is one: a slope behind a selection that may be infinite, or a rule that is for reverse mode, or is not known to be
        the same in both modes.
    """

    def __init__(self) -> None:
        self.is_refused = False

    def visit(self, nodes: Iterable[Node], reach: _Reach) -> None:
        """Visit nodes in topological order, and add what they compute to `reach`."""
        for node in nodes:
            moving = reach.moving(visible_inputs(node))
            if not any(moving) or not any(is_inexact(out.dtype) for out in node.outs):
                continue
            op = node.op
            if isinstance(op, LoopOp):
                self._visit_loop(op, node, reach)
            elif isinstance(op, Switch):
                self._visit_branches(node, reach)
            elif isinstance(op, GraphCall):
                inside = reach.inside(zip(node.inputs, op.graph.inputs, strict=True))
                self.visit(op.graph.nodes, inside)
                for out, inner in zip(node.outs, op.graph.outputs, strict=True):
                    if inner in inside.active:
                        reach.add([out], inner in inside.selected)
            elif not isinstance(op, (Elementwise, *_KINDS)):
                self.is_refused = True
            else:
                behind = reach.has_selected(node.inputs)
                if behind and isinstance(op, Elementwise) and not op.finite_derivatives:
                    self.is_refused = True
                reach.add(node.outs, behind or _selects(node, moving) or _tangent_selects(node, moving))
            if self.is_refused:
                return

    def _visit_loop(self, op: LoopOp, node: Node, reach: _Reach) -> None:
        """Visit the body of a loop: where a carry depends on the source in some iterations only, those select."""
        draft = op.open_draft(node)
        start = reach.inside([(operand.outer, operand.inner) for operand in draft.operands])
        while not self.is_refused:  # terminates: each round but the last adds a carry
            inside = _Reach(set(start.active), set(start.selected))
            self.visit(draft.nodes(), inside)
            carries = [carry for carry in draft.carries if {carry.inner, carry.next_carry} & inside.active]
            active = {carry.inner for carry in carries}
            selected = {
                carry.inner
                for carry in carries
                if carry.next_carry in inside.selected
                or carry.next_carry not in inside.active
                or carry.init not in reach.active
            }
            if active <= start.active and selected <= start.selected:
                reach.add(node.outs, bool(inside.selected))
                return
            start.active |= active
            start.selected |= selected

    def _visit_branches(self, node: Node, reach: _Reach) -> None:
        """Visit the bodies of a branch: what only one of them computes from the source has no path through the others."""
        inside = []
        for body in node.params["branches"]:
            inside.append(reach.inside(zip(node.inputs[1:], body.inputs, strict=True)))
            self.visit(body.nodes, inside[-1])
        for position, out in enumerate(node.outs):
            ends = [body.outputs[position] for body in node.params["branches"]]
            flags = [end in each.active for end, each in zip(ends, inside, strict=True)]
            if any(flags):
                selected = any(end in each.selected for end, each in zip(ends, inside, strict=True))
                reach.add([out], selected or not all(flags))


def _tangent_selects(node: Node, moving: Sequence[bool]) -> bool:
    """Return whether the tangent of a node selects elements of those of its operands, as that of a maximum does."""
    begin = next_serial()
    with at(derivative_site(node, backward=False)):
        directions = [Value(x.aval) if moves else None for x, moves in zip(node.inputs, moving, strict=True)]
        tangents = [tangent for tangent in node.op.jvp(node, directions) if tangent is not None]
    active = {direction for direction in directions if direction is not None}
    tangent_nodes, _ = extract(
        tangents, active, stop=lambda value: value.node is None or value.node.serial < begin
    )
    for each in tangent_nodes:
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
