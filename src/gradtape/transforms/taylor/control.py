"""Series through loops and branches: the same loop with the coefficients as further operands, carries and outputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from gradtape.ir.graph import Node, Value
from gradtape.ir.types import is_inexact
from gradtape.ops.core.elementwise.cast import zeros_like
from gradtape.transforms.loops.branches import select
from gradtape.transforms.loops.draft import Carry, LoopOp, LoopOperand, never_stop, placeholder
from gradtape.transforms.loops.ops import Switch
from gradtape.transforms.taylor.series import Build, Coefficient, Expansion, Series, rule_of


class AllAtOnce(Series):
    """A node that computes the coefficients of all orders together."""

    def extend(self, k: int) -> None:
        """Append the node again with all coefficients up to k."""
        by_output = self.all_orders(k)
        self.orders[1:] = [[orders[j] for orders in by_output] for j in range(k)]

    @abstractmethod
    def all_orders(self, k: int) -> Sequence[Sequence[Coefficient]]:
        """Return coefficients 1, ..., k of each output."""


class LoopSeries(AllAtOnce):
    """A loop."""

    def all_orders(self, k: int) -> Sequence[Sequence[Coefficient]]:
        """Return coefficients of the outputs.

        A carry has a series if its initial value has one, or if the body gives it one in some iteration: that is found by a fixed point.
        """
        op = self.base.op
        assert isinstance(op, LoopOp)
        draft = op.open_draft(self.base)
        orders = range(1, k + 1)
        incoming = [[self.expansion.coefficient(operand, j) for j in orders] for operand in self.node.inputs]
        consts, inits, elements = draft.split(incoming)
        sources: dict[Value, list[Coefficient]] = {}
        for mine, series in ((draft.consts, consts), (draft.elements, elements)):
            for operand, parts in zip(tuple(mine), series, strict=True):
                if any(part is not None for part in parts):
                    inside = [None if part is None else placeholder(operand.inner) for part in parts]
                    sources[operand.inner] = list(inside)
                    mine.extend(
                        [
                            LoopOperand(part, inner)
                            for part, inner in zip(parts, inside, strict=True)
                            if part is not None and inner is not None
                        ]
                    )
        carries = tuple(draft.carries)
        moving = {
            carry.inner: [placeholder(carry.inner) for _ in orders]
            for carry, parts in zip(carries, inits, strict=True)
            if any(part is not None for part in parts)
        }
        while True:  # terminates: each round but the last finds another carry with a series
            ends = Expansion({**sources, **moving}, never_stop).coefficients(
                [*[carry.next_carry for carry in carries], *draft.ys], k
            )
            newly_moving = {
                carry.inner: [placeholder(carry.inner) for _ in orders]
                for carry, parts in zip(carries, ends, strict=False)
                if carry.inner not in moving
                and is_inexact(carry.inner.dtype)
                and any(part is not None for part in parts)
            }
            if not newly_moving:
                break
            moving.update(newly_moving)
        first = len(draft.carries)
        for carry, parts, last in zip(carries, inits, ends, strict=False):
            draft.carries.extend(
                [
                    Carry(
                        zeros_like(carry.init) if part is None else part,
                        inner,
                        zeros_like(carry.inner) if end is None else end,
                    )
                    for part, inner, end in zip(parts, moving.get(carry.inner, ()), last, strict=False)
                ]
            )
        of_ys = ends[len(carries) :]
        count = len(draft.ys)
        draft.ys.extend([part for parts in of_ys for part in parts if part is not None])
        outputs = draft.emit()
        carried, stacked = iter(outputs.carries[first:]), iter(outputs.ys[count:])
        end_of = [
            [next(carried) for _ in orders] if carry.inner in moving else [None] * k for carry in carries
        ]
        ys_of = [[None if part is None else next(stacked) for part in parts] for parts in of_ys]
        by_order = [
            op.arrange_outputs([parts[j] for parts in end_of], [parts[j] for parts in ys_of])
            for j in range(k)
        ]
        return list(zip(*by_order, strict=True))


class SwitchSeries(AllAtOnce):
    """A branch: the series of each of its graphs."""

    def all_orders(self, k: int) -> Sequence[Sequence[Coefficient]]:
        node = self.base
        orders = range(1, k + 1)
        incoming = [
            [self.expansion.coefficient(operand, j) for j in orders] for operand in self.node.inputs[1:]
        ]
        present_parts = [part for parts in incoming for part in parts if part is not None]
        inputs, results = [], []
        for branch in node.params["branches"]:
            inside = [
                [None if part is None else placeholder(branch_input) for part in parts]
                for branch_input, parts in zip(branch.inputs, incoming, strict=True)
            ]
            sources = {
                branch_input: parts
                for branch_input, parts in zip(branch.inputs, inside, strict=True)
                if any(part is not None for part in parts)
            }
            ends = Expansion(sources, never_stop).coefficients(branch.outputs, k)
            inputs.append([*branch.inputs, *[part for parts in inside for part in parts if part is not None]])
            results.append([part for parts in ends for part in parts])
        present = [any(part is not None for part in parts) for parts in zip(*results, strict=True)]
        likes = [out for out in node.outs for _ in orders]
        if not any(present):
            return [[None] * k for _ in node.outs]
        outputs = [
            [
                zeros_like(like) if part is None else part
                for part, like, flag in zip(parts, likes, present, strict=True)
                if flag
            ]
            for parts in results
        ]
        outs = iter(select(node.op, node.inputs[0], [*node.inputs[1:], *present_parts], inputs, outputs))
        found = [next(outs) if flag else None for flag in present]
        return [found[start : start + k] for start in range(0, len(found), k)]


@rule_of.register
def _loop(op: LoopOp, node: Node, expansion: Expansion) -> Build:
    return LoopSeries


@rule_of.register
def _switch(op: Switch, node: Node, expansion: Expansion) -> Build:
    return SwitchSeries
