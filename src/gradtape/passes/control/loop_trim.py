"""Loop trimming: dead carries and outputs are removed, and constant operands and carries are folded into the body."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from gradtape.ir.graph import Graph, Literal, Node, Value, extract
from gradtape.ir.types import BOOL
from gradtape.kinds.index_map import repeated_number
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.shape import expand, expand_row
from gradtape.passes.control.equal_carries import EqualCarries, MergedLoop, source_key
from gradtape.passes.rewrite import rewrite
from gradtape.transforms.loops.batch_before_loop import batched_before_loop
from gradtape.transforms.loops.branches import select
from gradtape.transforms.loops.draft import LoopOp, LoopOperand, LoopOutputs, placeholder, substitute
from gradtape.transforms.loops.licm import hoisted
from gradtape.transforms.loops.ops import Scan, Switch


def trim_loops(graph: Graph) -> Graph:
    """Return the graph in which loops and branches have only operands, carries and outputs that are read."""
    used = {value for node in graph.nodes for value in node.inputs}
    used.update(graph.outputs, [value for value, _ in graph.guards])
    return rewrite(graph, lambda node, inputs: _trimmed(node, inputs, used))


def hoist_invariants(graph: Graph) -> Graph:
    """Return the graph with invariants and code that can be batched moved in front of its loops."""

    def rule(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
        if not isinstance(node.op, LoopOp):
            return None
        draft = node.op.open_draft(node.copy(inputs))
        better = hoisted(draft) or draft
        better = batched_before_loop(better) or better
        return None if better is draft else node.op.outs(better.emit())

    return rewrite(graph, rule)


def _trimmed(node: Node, inputs: tuple[Value, ...], used: Collection[Value]) -> Sequence[Value] | None:
    if not isinstance(node.op, (LoopOp, Switch)):
        return None
    flags = [out in used for out in node.outs]
    if isinstance(node.op, Switch):
        return _trimmed_switch(node, inputs, flags)
    return _Trim(node.op, node.copy(inputs), flags).outs()


class _Trim:
    """Trims a loop whose outputs are used where `flags` is True."""

    def __init__(self, op: LoopOp, node: Node, flags: Sequence[bool]) -> None:
        self._op = op
        self._node = node
        self._draft = draft = op.open_draft(node)
        carries, ys, _ = op.split_outputs(flags, len(draft.carries))
        self._used = [index for index, flag in enumerate(carries) if flag]
        self._used_ys = [index for index, flag in enumerate(ys) if flag]

    def outs(self) -> Sequence[Value] | None:
        """Return the outputs from a smaller loop; None where the loop stays as it is."""
        before = self._node
        self._fold_constants()
        constants = self._remove_constant_carries()
        self._drop_first_selections()
        indices = self._remove_dead_carries(constants)
        outer = self._forward_operands(indices)
        classes = EqualCarries(self._draft)
        merged = MergedLoop(self._draft, classes)
        loop = merged.draft
        if not loop.carries and not loop.ys and loop.test is None:
            finals, stacks = [], []
            trip_count = None
        else:
            outcome = (hoisted(loop) or loop).emit()
            if _is_same(outcome, before):
                return None
            finals = [outcome.carries[index] for index in merged.carries]
            stacks = [outcome.ys[index] for index in merged.ys]
            trip_count = outcome.trip_count
        outer_finals = {**dict(zip(indices, finals, strict=True)), **constants}
        carries = [outer_finals.get(index) for index in range(before.params["carries"])]
        remaining_stacks = iter(stacks)
        ys = [
            outer[index] if index in outer else next(remaining_stacks) if index in self._used_ys else None
            for index in range(self._count_ys())
        ]
        arranged = self._op.arrange_outputs(carries, ys, trip_count)
        return [old if new is None else new for old, new in zip(before.outs, arranged, strict=True)]

    def _count_ys(self) -> int:
        body: Any = self._node.params["body"]
        return len(body.outputs) - int(self._node.params["carries"])

    def _fold_constants(self) -> None:
        """Fold numbers into the body, and make elements that are equal in all iterations consts."""
        draft = self._draft
        becomes: dict[Value, Value] = {}
        if isinstance(self._op, Scan):
            elements = draft.elements
            draft.elements = []
            for operand in elements:
                const = _uniform_elements(operand.outer)
                if const is None:
                    draft.elements.append(operand)
                else:
                    outer, shape, axes = const
                    inner = outer if isinstance(outer, Literal) else placeholder(outer)
                    if inner is not outer:
                        draft.consts.append(LoopOperand(outer, inner))
                    becomes[operand.inner] = expand(inner, shape, axes)
        draft.substitute(becomes)  # first: new consts may be numbers
        becomes = {}
        consts = draft.consts
        draft.consts = []
        for operand in consts:
            number = repeated_number(operand.outer)
            if number is None:
                draft.consts.append(operand)
            else:
                becomes[operand.inner] = expand(number, operand.inner.shape, ())
        draft.substitute(becomes)

    def _remove_constant_carries(self) -> dict[int, Value]:
        """Remove carries that never change; return their values by position."""
        draft = self._draft
        constants: dict[int, Value] = {}
        indices = list(range(len(draft.carries)))
        while True:  # terminates: each round but the last removes a carry
            outer = {const.inner: _number_key(const.outer) for const in draft.consts}
            constant = {
                index: carry
                for index, carry in zip(indices, draft.carries, strict=True)
                if carry.next_carry is carry.inner
                or outer.get(carry.next_carry, _number_key(carry.next_carry)) == _number_key(carry.init)
            }
            if not constant:
                self._places = indices
                return constants
            draft.carries = [
                carry for index, carry in zip(indices, draft.carries, strict=True) if index not in constant
            ]
            indices = [index for index in indices if index not in constant]
            becomes: dict[Value, Value] = {}
            for index, carry in constant.items():
                constants[index] = carry.init
                number = repeated_number(carry.init)
                if number is None:
                    draft.consts.append(LoopOperand(carry.init, carry.inner))
                else:
                    becomes[carry.inner] = expand(number, carry.inner.shape, ())
            draft.substitute(becomes)

    def _drop_first_selections(self) -> None:
        """Replace selections that a carry decides which is one number in the first iteration and the other in all later ones, where the
        first iteration would choose the same number anyway: masks of cotangents that begin as zeros."""
        carries = {carry.inner: carry for carry in self._draft.carries}
        flags = {
            carry.inner: bool(first.data)
            for carry in self._draft.carries
            if carry.inner.dtype == BOOL
            and (first := repeated_number(carry.init)) is not None
            and (later := repeated_number(carry.next_carry)) is not None
            and bool(first.data) != bool(later.data)
        }
        if not flags:
            return
        becomes: dict[Value, Value] = {}
        for node in self._draft.nodes():
            if node.op is where and node.inputs[0] in flags:
                mask, x, y = node.inputs
                at_first, later_on = (x, y) if flags[mask] else (y, x)
                carry = carries.get(later_on)
                begin = None if carry is None else repeated_number(carry.init)
                number = repeated_number(at_first)
                if begin is None or number is None or source_key(begin) != source_key(number):
                    continue
                if later_on.shape == node.out.shape:
                    becomes[node.out] = later_on
        self._draft.substitute(becomes)

    def _remove_dead_carries(self, constants: Collection[int]) -> list[int]:
        """Remove carries that no result depends on; return the positions of the others among the node's."""
        draft = self._draft
        draft.ys = [draft.ys[index] for index in self._used_ys]
        live = {index for index in self._used if index not in constants}
        by_place = dict(zip(self._places, draft.carries, strict=True))
        roots = [*draft.ys, *([] if draft.test is None else [draft.test])]
        inners = draft.body_inputs
        while True:  # terminates: each round but the last finds another live carry
            outputs = [*roots, *[by_place[index].next_carry for index in live]]
            nodes, _ = extract(outputs, inners)
            read = {value for node in nodes for value in node.inputs}.union(outputs)
            newly_active = {index for index, carry in by_place.items() if carry.inner in read} - live
            if not newly_active:
                break
            live |= newly_active
        kept_indices = [index for index in self._places if index in live]
        draft.carries = [by_place[index] for index in kept_indices]
        return kept_indices

    def _forward_operands(self, kept_indices: Sequence[int]) -> dict[int, Value]:
        """Return, by position, stacked outputs that are operands of the loop or numbers, and remove these from the draft."""
        draft = self._draft
        if not isinstance(self._op, Scan):
            return {}
        arrays = {operand.inner: operand.outer for operand in draft.elements}
        consts = {operand.inner: operand.outer for operand in draft.consts}
        length = draft.params["length"]
        forwarded: dict[int, Value] = {}
        ys = []
        for index, value in zip(self._used_ys, draft.ys, strict=True):
            number = repeated_number(value)
            if value in arrays:
                forwarded[index] = arrays[value]
            elif number is not None:
                forwarded[index] = expand(number, (length, *value.shape), ())
            elif value in consts:
                axes = tuple(range(1, value.ndim + 1))
                forwarded[index] = expand(consts[value], (length, *value.shape), axes)
            else:
                ys.append(value)
        draft.ys = ys
        return forwarded


def _number_key(value: Value) -> Any:
    number = repeated_number(value)
    return source_key(value) if number is None else (source_key(number), value.shape)


def _is_same(outcome: LoopOutputs, node: Node) -> bool:
    """Return whether a loop is unchanged; a loop without carries may still have a trip count."""
    new = next(
        (value for value in (*outcome.carries, *outcome.ys, outcome.trip_count) if value is not None), None
    )
    return (
        new is not None
        and new.node is not None
        and new.node.inputs == node.inputs
        and new.node.params == node.params
    )


def _uniform_elements(array: Value) -> tuple[Value, tuple[int, ...], tuple[int, ...]] | None:
    """Return ``(value, shape, axes)`` of the expansion that each element along the leading axis is, where all are equal."""
    node = array.node
    if node is None or node.op is not expand_row or 0 in node.params["axes"]:
        return None
    return node.inputs[0], array.shape[1:], tuple(axis - 1 for axis in node.params["axes"])


def _trimmed_switch(node: Node, inputs: tuple[Value, ...], flags: Sequence[bool]) -> Sequence[Value] | None:
    """Return the outputs of a switch with the unused ones removed, and numbers among the operands folded into the branches."""
    branches = node.params["branches"]
    numbers = [repeated_number(operand) for operand in inputs[1:]]
    if all(flags) and not any(number is not None for number in numbers):
        return None
    outputs = []
    for branch in branches:
        becomes = {
            inner: expand(number, inner.shape, ())
            for inner, number in zip(branch.inputs, numbers, strict=True)
            if number is not None
        }
        used = [out for out, flag in zip(branch.outputs, flags, strict=True) if flag]
        outputs.append(substitute(used, becomes))
    outs = iter(select(node.op, inputs[0], inputs[1:], [branch.inputs for branch in branches], outputs))
    return [next(outs) if flag else old for old, flag in zip(node.outs, flags, strict=True)]
