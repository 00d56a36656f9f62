"""Derivatives of branches, which are branches of derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.ir.body import Body
from gradtape.ir.graph import Node, Value, extract, literal
from gradtape.ir.types import BOOL, aval, carries_derivatives
from gradtape.kinds.cotangent import Cotangent, Tangent
from gradtape.ops.core.elementwise.cast import convert, zeros_like
from gradtape.ops.core.shape import expand
from gradtape.transforms.jvp import forward_sweep
from gradtape.transforms.loops.draft import make_body, never_stop, placeholder
from gradtape.transforms.vjp import reverse_sweep

Some = Sequence[Value | None]
Derivative = Callable[[Body, list[Value]], list[Value | None]]
"""``(branch, placeholders for the further operands) -> results``."""


def push_switch(node: Node, tangents: Sequence[Tangent | None]) -> list[Tangent | None]:
    """Return the tangents of the outputs of a branch; their masks are further results, as in `pull_switch`."""
    positions = [position for position, tangent in enumerate(tangents[1:]) if tangent is not None]
    moved = [tangent for tangent in tangents[1:] if tangent is not None]
    masks = [tangent.mask for tangent in moved]

    def push(branch: Body, moving: list[Value]) -> list[Value | None]:
        masks_inside = iter(moving[len(moved) :])
        moving_tangents = [
            Tangent(value, None if mask is None else next(masks_inside))
            for value, mask in zip(moving, masks, strict=False)
        ]
        sources = [branch.inputs[position] for position in positions]
        pushed = forward_sweep(branch.outputs, sources, moving_tangents, never_stop)
        values = [None if tangent is None else tangent.applied() for tangent in pushed]
        return [
            *values,
            *[_zero_by_selection(out, end) for out, end in zip(branch.outputs, pushed, strict=True)],
        ]

    seeds = [*[tangent.value for tangent in moved], *[mask for mask in masks if mask is not None]]
    pushed = _derived(node, seeds, push, [*node.outs, *[Value(aval(out.shape, BOOL)) for out in node.outs]])
    count = len(node.outs)
    return [
        None if part is None else Tangent(part, None if zero is None else ~zero, is_applied=True)
        for part, zero in zip(pushed[:count], pushed[count:], strict=True)
    ]


def pull_switch(
    node: Node, cotangents: Sequence[Cotangent | None], is_needed: Sequence[bool]
) -> list[Cotangent | None]:
    """Return the cotangents of the operands of a branch.

    Masks are further operands and results of the branches. Those that no branch reads, or that are not used, are dropped.
    """
    targets = [position for position, cotangent in enumerate(cotangents) if cotangent is not None]
    operands = node.inputs[1:]
    sources = [
        position
        for position, (operand, flag) in enumerate(zip(operands, is_needed[1:], strict=True))
        if flag and carries_derivatives(operand.dtype)
    ]
    present = [cotangent for cotangent in cotangents if cotangent is not None]
    masks = [cotangent.mask for cotangent in present]
    likes = [operands[position] for position in sources]

    def pull(branch: Body, placeholders: list[Value]) -> list[Value | None]:
        masks_inside = iter(placeholders[len(present) :])
        starts = [branch.inputs[position] for position in sources]
        sweep = reverse_sweep(
            [branch.outputs[position] for position in targets],
            starts,
            placeholders[: len(present)],
            never_stop,
            masks=[None if mask is None else next(masks_inside) for mask in masks],
        )
        arrived = dict(sweep.arrived())
        return [*sweep.results, *[_zero_by_selection(start, arrived.get(start)) for start in starts]]

    seeds = [*[cotangent.value for cotangent in present], *[mask for mask in masks if mask is not None]]
    pulled = _derived(node, seeds, pull, [*likes, *[Value(aval(like.shape, BOOL)) for like in likes]])
    by_position = {
        position: Cotangent(part, None if zero_mask is None else ~zero_mask, is_applied=True)
        for position, part, zero_mask in zip(sources, pulled, pulled[len(sources) :], strict=False)
        if part is not None
    }
    return [None, *[by_position.get(position) for position in range(len(operands))]]


def _zero_by_selection(start: Value, end: Cotangent | None) -> Value | None:
    """Return the mask of elements whose cotangent in a branch is zero by selection; None where there are none."""
    if end is None:
        return expand(literal(True), start.shape, ())
    return None if end.mask is None else expand(~end.mask, start.shape, _axes(end.mask))


def _axes(value: Value) -> tuple[int, ...]:
    return tuple(range(value.ndim))


def _derived(
    node: Node, extra_operands: Sequence[Value], derive: Derivative, likes: Sequence[Value]
) -> list[Value | None]:
    """Append the switch of the branches' derivatives; return its results, None for one that no branch has."""
    branches: Sequence[Body] = node.params["branches"]
    inputs, results = [], []
    for branch in branches:
        placeholders = [placeholder(value) for value in extra_operands]
        inputs.append([*branch.inputs, *placeholders])
        results.append(derive(branch, placeholders))
    is_present = [any(result[position] is not None for result in results) for position in range(len(likes))]
    outputs = [
        [
            _convert_or_zeros(value, like)
            for value, like, flag in zip(result, likes, is_present, strict=True)
            if flag
        ]
        for result in results
    ]
    if not any(is_present):
        return [None] * len(likes)
    outs = iter(select(node.op, node.inputs[0], [*node.inputs[1:], *extra_operands], inputs, outputs))
    return [next(outs) if flag else None for flag in is_present]


def select(
    op: Any,
    index: Value,
    operands: Sequence[Value],
    inputs: Sequence[Sequence[Value]],
    outputs: Sequence[Sequence[Value]],
) -> tuple[Value, ...]:
    """Append a switch; operands that no branch reads are not passed to it.

    Parameters
    ----------
    op : Switch
        The op.
    index : Value
        The index of the branch, int64 scalar.
    operands : sequence of Value
        The operands of the branches.
    inputs, outputs : sequence of sequences of Value
        For each branch, the placeholders for the operands, and the results.
    """
    read: set[Value] = set()
    captured: dict[Value, None] = {}
    for placeholders, results in zip(inputs, outputs, strict=True):
        nodes, leaves = extract(results, placeholders)
        read.update(*[each.inputs for each in nodes], results)
        captured.update(dict.fromkeys(leaves))
    used = [
        position
        for position in range(len(operands))
        if any(placeholders[position] in read for placeholders in inputs)
    ]
    bodies = [
        make_body([*[placeholders[position] for position in used], *captured], results)
        for placeholders, results in zip(inputs, outputs, strict=True)
    ]
    outs: tuple[Value, ...] = op(bodies, index, [*[operands[position] for position in used], *captured])
    return outs


def _convert_or_zeros(value: Value | None, like: Value) -> Value:
    if value is None:
        return zeros_like(like)
    return value if value.dtype == like.dtype else convert(value, like.dtype)
