"""Batches of loops and branches: one loop for all elements of a mapped axis.

Where trip counts differ between elements, the loop runs as long as one element needs, and the others keep their carries. The results of an
iteration for elements that are done are discarded, and may be anything. Their derivatives must not be infinite (a factor of zero would
make them NaN): so these elements compute with the numbers of one that is not done, unless no formula in the body has infinite
derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from gradtape.ir.graph import Node, Value, extract, literal
from gradtape.ir.types import BOOL, INT64, INTP, aval
from gradtape.kinds.batching import Shared, in_front
from gradtape.kinds.contract import Contract
from gradtape.ops.core.elementwise.cast import convert, zeros_like
from gradtape.ops.core.elementwise.logic import equal, greater_equal, less, less_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.indexing import gather_row
from gradtape.ops.core.reductions import argmax, reduce_any, reduce_max
from gradtape.ops.core.shape import expand, permute, reshape
from gradtape.transforms.loops.branches import select
from gradtape.transforms.loops.draft import (
    Carry,
    Draft,
    LoopOp,
    LoopOperand,
    LoopOutputs,
    emit_substituted,
    substitute,
)
from gradtape.transforms.loops.ops import Repeat, Scan, Switch, While

Batch: TypeAlias = Callable[[Sequence[Value], Mapping[Value, Value], int], list[Value | Shared]]
"""``(outputs for one element, all elements of the mapped values, size)`` to the outputs for all elements."""

Result: TypeAlias = tuple[Value | Shared, ...]


def batch_loop(
    op: LoopOp, node: Node, operands: Sequence[Value], mapped: Sequence[bool], size: int, batch: Batch
) -> Result:
    """Return the outputs of a loop for every element of the mapped axis."""
    lanes = _Lanes(op, node, operands, mapped, size, batch)
    if isinstance(op, While) and lanes.has_divergent_exit():
        return lanes.until_all_done()
    if isinstance(op, Repeat) and mapped[0]:
        return lanes.up_to_longest(operands[0])
    return lanes.in_lockstep()


class _Lanes:
    """A loop for one element of the mapped axis, and its batched form: each element is a lane."""

    def __init__(
        self,
        op: LoopOp,
        node: Node,
        operands: Sequence[Value],
        mapped: Sequence[bool],
        size: int,
        batch: Batch,
    ) -> None:
        self._op = op
        self._size = size
        self._batch = batch
        self._draft = draft = op.open_draft(node)
        self._count = None if draft.count is None else operands[0]
        consts, inits, elements = draft.split(mapped)
        self._outer = draft.split(operands)
        self._flags = (consts, inits, elements)
        self._inner = {
            operand.inner: self._batched_placeholder(operand.inner)
            for operand, flag in zip(draft.operands, (*consts, *inits, *elements), strict=True)
            if flag
        }
        self._find_mapped_carries()

    def _batched_placeholder(self, value: Value) -> Value:
        return Value(aval((self._size, *value.shape), value.dtype))

    def _find_mapped_carries(self) -> None:
        """Find the carries that differ between lanes in some iteration, by a fixed point."""
        carries = self._draft.carries
        while True:  # terminates: each round but the last finds another carry that differs
            next_carries = self._batch([carry.next_carry for carry in carries], self._inner, self._size)
            newly_active = [
                carry.inner
                for carry, next_carry in zip(carries, next_carries, strict=True)
                if isinstance(next_carry, Value) and carry.inner not in self._inner
            ]
            if not newly_active:
                return
            self._inner.update({inner: self._batched_placeholder(inner) for inner in newly_active})

    def _for_all(self, value: Value, batched: Mapping[Value, Value]) -> Value:
        (result,) = self._batch([value], batched, self._size)
        return result if isinstance(result, Value) else in_front(result.value, self._size)

    def has_divergent_exit(self) -> bool:
        """Return whether the condition differs between lanes."""
        assert self._draft.test is not None
        (test,) = self._batch([self._draft.test], self._inner, self._size)
        return isinstance(test, Value)

    def in_lockstep(self) -> Result:
        """Return the results of a loop whose trip count is the same in all lanes."""
        draft = self._draft
        results = self._batch(draft.body_outputs, self._inner, self._size)
        loop = self._draft_of_operands(draft.index)
        loop.count = self._count
        for carry, start, next_carry, flag in zip(
            draft.carries, self._outer[1], results, self._flags[1], strict=False
        ):
            if carry.inner in self._inner:
                first = start if flag else in_front(start, self._size)
                then = next_carry if isinstance(next_carry, Value) else in_front(next_carry.value, self._size)
                loop.carries.append(Carry(first, self._inner[carry.inner], then))
            else:
                assert isinstance(next_carry, Shared)
                loop.carries.append(Carry(start, carry.inner, next_carry.value))
        count = len(draft.carries)
        ys = results[count : count + len(draft.ys)]
        loop.ys = [_value(each) for each in ys]
        if draft.test is not None:
            loop.test = _value(results[-1])
        outputs = loop.emit()
        finals = [
            end if carry.inner in self._inner else Shared(end)
            for end, carry in zip(outputs.carries, draft.carries, strict=True)
        ]
        return self._arrange(finals, ys, outputs)

    def _arrange(
        self, finals: Sequence[Value | Shared], ys: Sequence[Value | Shared], outputs: LoopOutputs
    ) -> Result:
        """Return the results in the order of the node's outputs."""
        stacks: list[Any] = []
        for stack, inner in zip(outputs.ys, ys, strict=False):
            if isinstance(inner, Shared):
                stacks.append(Shared(stack))
            else:
                stacks.append(_swap_leading_axes(stack) if isinstance(self._op, Scan) else stack)
        count = [] if outputs.trip_count is None else [Shared(outputs.trip_count)]
        return (*finals, *count, *stacks)

    def _draft_of_operands(self, index: Value) -> Draft:
        """Return the loop with its consts and elements, without carries."""
        draft = self._draft
        loop = Draft(self._op, draft.params, index)
        for operand, outer in zip(draft.consts, self._outer[0], strict=True):
            loop.consts.append(LoopOperand(outer, self._inner.get(operand.inner, operand.inner)))
        for operand, outer, flag in zip(draft.elements, self._outer[2], self._flags[2], strict=True):
            swapped = _swap_leading_axes(outer) if flag and isinstance(self._op, Scan) else outer
            loop.elements.append(LoopOperand(swapped, self._inner.get(operand.inner, operand.inner)))
        return loop

    def _map_all_carries(self) -> None:
        """Map all carries: lanes stop after different iterations."""
        for carry in self._draft.carries:
            self._inner.setdefault(carry.inner, self._batched_placeholder(carry.inner))

    def _batched_inits(self) -> list[Value]:
        return [
            start if flag else in_front(start, self._size)
            for start, flag in zip(self._outer[1], self._flags[1], strict=True)
        ]

    def until_all_done(self) -> Result:
        """Return the results of a `while_loop` whose trip count differs between lanes."""
        draft = self._draft
        self._map_all_carries()
        assert draft.test is not None
        lanes = aval((self._size,), BOOL)
        active, trip_counts = Value(lanes), Value(aval((self._size,), INT64))
        next_, ys = self._masked_iteration(active)
        (then,) = substitute([draft.test], {draft.index: draft.index + 1})
        carried = {carry.inner: next_carry for carry, next_carry in zip(draft.carries, next_, strict=True)}
        goes_on = active & self._for_all(then, {**self._inner, **carried})
        loop = self._draft_of_operands(draft.index)
        loop.test = reduce_any(active, axes=(0,))
        zeros = expand(literal(0, INT64), (self._size,), ())
        loop.carries = [
            Carry(self._first_test(), active, goes_on),
            Carry(zeros, trip_counts, trip_counts + convert(active, INT64)),
            *[
                Carry(start, self._inner[carry.inner], next_carry)
                for start, carry, next_carry in zip(self._batched_inits(), draft.carries, next_, strict=True)
            ],
        ]
        loop.ys = [_value(each) for each in ys]
        outputs = loop.emit()
        _, count, *finals = outputs.carries
        stacks = [
            Shared(stack) if isinstance(inner, Shared) else stack
            for stack, inner in zip(outputs.ys, ys, strict=True)
        ]
        return (*finals, count, *stacks)

    def _first_test(self) -> Value:
        """Return which lanes have a first iteration, bool of shape (size,)."""
        draft = self._draft
        assert draft.test is not None
        consts, inits = zip(draft.consts, self._outer[0], strict=True), self._batched_inits()
        outer: dict[Value, Value] = {draft.index: literal(0, INT64)}
        batched: dict[Value, Value] = {}
        for const, operand in consts:
            (batched if const.inner in self._inner else outer)[const.inner] = operand
        batched.update({carry.inner: start for carry, start in zip(draft.carries, inits, strict=True)})
        (test,) = substitute([draft.test], outer)
        return self._for_all(test, batched)

    def up_to_longest(self, counts: Value) -> Result:
        """Return the results of a `repeat` whose trip count (`counts`, int64 of shape (size,)) differs between lanes."""
        draft = self._draft
        self._map_all_carries()
        limits = Value(counts.aval)
        active = less(expand(draft.index, (self._size,), ()), limits)
        next_, ys = self._masked_iteration(active)
        loop = self._draft_of_operands(draft.index)
        longest = reduce_max(counts, axes=(0,)) if self._size else literal(0, INT64)
        loop.count = longest
        loop.consts.append(LoopOperand(counts, limits))
        loop.carries = [
            Carry(start, self._inner[carry.inner], next_carry)
            for start, carry, next_carry in zip(self._batched_inits(), draft.carries, next_, strict=True)
        ]
        loop.ys = [_value(each) for each in ys]
        outputs = loop.emit()
        stacks = [
            Shared(stack) if isinstance(inner, Shared) else stack
            for stack, inner in zip(outputs.ys, ys, strict=True)
        ]
        return (*outputs.carries, *stacks)

    def _masked_iteration(self, active: Value) -> tuple[list[Value], list[Value | Shared]]:
        """Return the next carries of an iteration of the `active` lanes only, and the elements of the stacked outputs."""
        draft = self._draft
        work = [*[carry.next_carry for carry in draft.carries], *draft.ys]
        batched = self._inner
        if not _has_finite_derivatives(work, draft.body_inputs):
            batched = {single: fill_inactive_lanes(active, many) for single, many in batched.items()}
        results = self._batch(work, batched, self._size)
        next_carries = []
        for carry, result in zip(draft.carries, results, strict=False):
            next_carry = result if isinstance(result, Value) else in_front(result.value, self._size)
            next_carries.append(select_lanes(active, next_carry, self._inner[carry.inner]))
        return next_carries, results[len(next_carries) :]


def batch_switch(
    op: Switch, node: Node, operands: Sequence[Value], mapped: Sequence[bool], size: int, batch: Batch
) -> Result:
    """Return the outputs of a branch for every element of the mapped axis."""
    branches = node.params["branches"]
    inputs, results = [], []
    for branch in branches:
        many = [
            Value(aval((size, *single.shape), single.dtype)) if flag else single
            for single, flag in zip(branch.inputs, mapped[1:], strict=True)
        ]
        inputs.append(many)
        moved = {single: x for single, x, flag in zip(branch.inputs, many, mapped[1:], strict=True) if flag}
        results.append(batch(branch.outputs, moved, size))
    if mapped[0]:
        return _by_element(node, operands, mapped, size, inputs, results)
    shared = [all(isinstance(out, Shared) for out in column) for column in zip(*results, strict=True)]
    outputs = [
        [
            _value(out) if same or isinstance(out, Value) else in_front(out.value, size)
            for out, same in zip(result, shared, strict=True)
        ]
        for result in results
    ]
    outs = select(op, operands[0], operands[1:], inputs, outputs)
    return tuple([Shared(out) if same else out for out, same in zip(outs, shared, strict=True)])


def _by_element(
    node: Node,
    operands: Sequence[Value],
    mapped: Sequence[bool],
    size: int,
    inputs: Sequence[Sequence[Value]],
    results: Sequence[Sequence[Value | Shared]],
) -> Result:
    """Compute each branch that some lane takes, and select."""
    index, last = operands[0], len(results) - 1
    total: list[Value] = []
    for position in reversed(range(len(results))):
        wide = [out if isinstance(out, Value) else in_front(out.value, size) for out in results[position]]
        compare = less_equal if position == 0 else greater_equal if position == last else equal
        is_taken = compare(index, literal(position, INT64))
        of_branch = _branch_outputs(node.op, is_taken, operands[1:], mapped[1:], inputs[position], wide)
        total = (
            of_branch
            if position == last
            else [select_lanes(is_taken, *pair) for pair in zip(of_branch, total, strict=True)]
        )
    return tuple(total)


def _branch_outputs(
    op: Any,
    is_taken: Value,
    operands: Sequence[Value],
    mapped: Sequence[bool],
    placeholders: Sequence[Value],
    outputs: Sequence[Value],
) -> list[Value]:
    """Return the outputs of a branch for the lanes that take it, and arbitrary numbers for the others."""
    is_finite = _has_finite_derivatives(outputs, placeholders)
    if is_finite and not any(isinstance(node.op, Contract) for node in extract(outputs, placeholders)[0]):
        return emit_substituted(outputs, dict(zip(placeholders, operands, strict=True)))
    safe_operands = [
        fill_inactive_lanes(is_taken, operand) if flag and not is_finite else operand
        for operand, flag in zip(operands, mapped, strict=True)
    ]
    zeros = [zeros_like(out) for out in outputs]
    any_lane = convert(reduce_any(is_taken, axes=(0,)), INT64)
    return list(select(op, any_lane, safe_operands, [placeholders, placeholders], [zeros, outputs]))


def select_lanes(mask: Value, x: Value, y: Value) -> Value:
    """Return, for each lane, `x` or `y`."""
    wide = mask if x.ndim == 1 else expand(mask, x.shape, (0,))
    return where(wide, x, y)


def fill_inactive_lanes(active: Value, x: Value) -> Value:
    """Return `x` in which lanes that are not active have the numbers of the first one that is."""
    if not x.shape[0]:
        return x
    first = argmax(convert(active, INTP), axes=(0,))
    first_element = gather_row(x, reshape(first, (1,)))
    return select_lanes(active, x, in_front(reshape(first_element, x.shape[1:]), x.shape[0]))


def _has_finite_derivatives(outputs: Sequence[Value], inputs: Sequence[Value]) -> bool:
    """Return whether no derivative of the outputs of any order is infinite where the inputs are finite."""
    return all(node.op.finite_derivatives for node in extract(outputs, inputs)[0])


def _value(result: Value | Shared) -> Value:
    return result.value if isinstance(result, Shared) else result


def _swap_leading_axes(x: Value) -> Value:
    """Return an array with the mapped axis and the loop's in the other order."""
    return permute(x, (1, 0, *range(2, x.ndim)))
