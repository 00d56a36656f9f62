"""Masks of cotangents and tangents through linear nodes: an element is masked if all elements that are added to it are."""

from __future__ import annotations

import cmath
from collections.abc import Callable, Collection, Sequence

from gradtape.ir.builder import emit, emit_all
from gradtape.ir.graph import Literal, Node, Value, extract, literal, number_of
from gradtape.ir.types import FLOAT64, INT64, Shape
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.kinds.control import OwnPullback, visible_inputs
from gradtape.kinds.correlation import Correlation
from gradtape.kinds.cotangent import Cotangent, Tangent
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap, is_zero
from gradtape.kinds.join import Join
from gradtape.kinds.routines.matrix import Matrix
from gradtape.ops.core.correlation import full_correlation
from gradtape.ops.core.cumulative import cumsum, gated_recurrence, recurrence
from gradtape.ops.core.elementwise.cast import convert, zeros_like
from gradtape.ops.core.elementwise.logic import bitwise_and, bitwise_or, greater, not_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.join import full
from gradtape.ops.core.reductions import reduce_any, reduce_sum
from gradtape.ops.core.shape import expand, expand_row, permute


def with_masks(
    seeds: Sequence[Value],
    constant: Collection[Value],
    targets: Sequence[Value],
    sources: Sequence[Value],
    stop: Callable[[Value], bool],
    *,
    are_units: bool = False,
) -> list[Tangent]:
    """Return the seeds of a sweep between targets and sources, in either direction, with masks.

    An element of 0 is zero by selection, since no path begins or ends there. That holds for seeds in `constant`: in others somebody may
    differentiate, and where an element is 0 for once, its derivative is not 0. Where no slope is infinite, masks are not needed.
    Seeds of zeros and ones are a mask of ones: the partial derivatives along a path then do not depend on the seed, until they are masked.
    """
    if not constant:
        return list(map(Tangent, seeds))
    nodes, _ = extract(
        targets, sources, stop=lambda value: stop(value) or value.node is None, follow=visible_inputs
    )
    if not any(map(_may_have_infinite_slope, nodes)):
        return list(map(Tangent, seeds))
    return [
        _with_mask(seed, are_units)
        if seed in constant and not number_of(_unexpanded(seed))
        else Tangent(seed)
        for seed in seeds
    ]


def _with_mask(seed: Value, is_unit: bool) -> Tangent:
    mask = not_equal(seed, 0)
    return (
        Tangent(expand(literal(1, seed.dtype), seed.shape, ()), mask)
        if is_unit
        else Tangent(seed, mask, True)
    )


def constants(seeds: Sequence[Value]) -> set[Value]:
    """Return the seeds that no derivative is taken with respect to."""
    return {seed for seed in seeds if is_constant(seed)}


def is_constant(seed: Value) -> bool:
    """Return whether no derivative is taken with respect to a seed, or what it is computed from."""
    return not any(tag.recording for tag in seed.tags)


def before_infinite_slopes(nodes: Sequence[Node]) -> set[Node]:
    """Return those of some nodes, in topological order, whose outputs a slope that may be infinite depends on, and these slopes."""
    nodes_before: set[Node] = set()
    for node in reversed(nodes):
        if node in nodes_before or _may_have_infinite_slope(node):
            nodes_before.add(node)
            nodes_before.update([operand.node for operand in node.inputs if operand.node is not None])
    return nodes_before


def _may_have_infinite_slope(node: Node) -> bool:
    return isinstance(node.op, Elementwise | OwnPullback) and not node.op.finite_derivatives


def masked_parts(node: Node, cotangent: Cotangent, linear: Sequence[bool]) -> list[Cotangent | None] | None:
    """Return the cotangents of a contraction, correlation, cumulative sum, recurrence or linear solve, with masks; None for others.

    A mask costs a reduction of booleans. It is dropped unless an elementwise node reads it.
    """
    mask, op = cotangent.mask, node.op
    assert mask is not None
    if isinstance(op, Contract):
        return _contraction(node, cotangent, mask, linear)
    if isinstance(op, Correlation):
        return _correlation(node, cotangent, mask, linear)
    if op in (cumsum, recurrence, gated_recurrence):
        return _cumulative(node, cotangent, mask, linear)
    if isinstance(op, Matrix) and op.linear_in is not None and not isinstance(mask, Literal):
        # Each column is solved by itself.
        rows = (mask.ndim - 2,)
        any_row = _spread(emit(reduce_any, [mask], axes=rows), mask.shape, rows)
        parts = op.transpose(node, [cotangent.applied()], linear)
        return [None if part is None else Cotangent(part, any_row) for part in parts]
    return None


def _contraction(
    node: Node, cotangent: Cotangent, mask: Value, linear: Sequence[bool]
) -> list[Cotangent | None]:
    out = node.params["out"]
    linear_operand, own_subscripts = (0, node.params["x"]) if linear[0] else (1, node.params["y"])
    # A product that is selected as a whole is not multiplied by a possibly infinite operand; if elements are selected, the other operand
    # counts for the selected elements too.
    is_one_mask = all(subscript in own_subscripts for subscript in out) and _unexpanded(mask).ndim == 0
    part = node.op.transpose(node, [cotangent.value if is_one_mask else cotangent.applied()], linear)[
        linear_operand
    ]
    assert part is not None
    applied = cotangent.is_applied or not is_one_mask
    pulled = Cotangent(
        part, _operand_mask(mask, out, own_subscripts, node.inputs[linear_operand].shape), applied
    )
    return [pulled if k == linear_operand else None for k in range(2)]


def _unexpanded(value: Value) -> Value:
    """Return an array without its expansions."""
    while value.node is not None and value.node.op is expand_row:
        value = value.node.inputs[0]
    return value


def _operand_mask(
    mask: Value, out: Sequence[int], own_subscripts: Sequence[int], shape: Shape
) -> Value | None:
    """Return where the cotangent of an operand with `own_subscripts` is not zero by selection, from a mask with the subscripts `out`.

    None where they have no subscript in common: one selected element would be enough for all.
    """
    subscripts = list(out)
    while mask.node is not None and mask.node.op is expand_row:
        subscripts = [subscripts[axis] for axis in mask.node.params["axes"]]
        mask = mask.node.inputs[0]
    summed = tuple([axis for axis, subscript in enumerate(subscripts) if subscript not in own_subscripts])
    if summed and len(summed) == len(subscripts):
        return None
    if summed:
        mask = emit(reduce_any, [mask], axes=summed)
        subscripts = [subscript for subscript in subscripts if subscript in own_subscripts]
    order = sorted(range(len(subscripts)), key=lambda axis: own_subscripts.index(subscripts[axis]))
    if order != list(range(len(order))):
        mask = permute(mask, tuple(order))
    if mask.shape == shape:
        return mask
    axes = tuple([own_subscripts.index(subscripts[axis]) for axis in order])
    return expand(mask, shape, axes)


def _correlation(
    node: Node, cotangent: Cotangent, mask: Value, linear: Sequence[bool]
) -> list[Cotangent | None]:
    """Return the cotangent of one operand: an element of the array is masked if all windows with it are, one of the kernel if all are."""
    linear_operand, rank = 0 if linear[0] else 1, node.params["rank"]
    shape = node.inputs[linear_operand].shape
    single = _unexpanded(mask)
    is_one_mask = single.ndim == 0
    part = node.op.transpose(node, [cotangent.value if is_one_mask else cotangent.applied()], linear)[
        linear_operand
    ]
    assert part is not None
    windows = tuple(range(len(shape) - rank, len(shape)))
    pulled: Value | None
    if is_one_mask:
        pulled = expand(single, shape, ())
    elif linear_operand == 0:
        unit_kernel = full(node.inputs[1].shape, 1.0, FLOAT64)
        pulled = greater(full_correlation(convert(mask, FLOAT64), unit_kernel, rank), 0.0)
    elif rank == len(shape):
        pulled = None
    else:
        pulled = _spread(emit(reduce_any, [mask], axes=windows), shape, windows)
    pulled_part = Cotangent(part, pulled, is_applied=not is_one_mask)
    return [pulled_part if k == linear_operand else None for k in range(2)]


def _cumulative(
    node: Node, cotangent: Cotangent, mask: Value, linear: Sequence[bool]
) -> list[Cotangent | None] | None:
    """Return the cotangent of the operand of a cumulative op: an element is not masked if one of those after it is not."""
    op = node.op
    assert isinstance(op, Cumulative)
    if isinstance(mask, Literal) or (op is not cumsum and linear[0]):
        return None
    axis, reverse = node.params["axis"], node.params["reverse"]
    if op is gated_recurrence:
        gates = not_equal(node.inputs[0], 0.0)
        single = node.copy((convert(gates, FLOAT64), node.inputs[1]))
        *_, hits = op.transpose(single, [convert(mask, FLOAT64)], linear)
    else:
        hits = cumsum(convert(mask, INT64), axis=axis, reverse=not reverse)
    assert hits is not None
    counts = greater(hits, 0)
    if op is recurrence and not _is_finite_number(node.inputs[0]):
        factors = node.inputs[0]
        safe = where(counts, factors, zeros_like(factors))
        node = node.copy((safe, *node.inputs[1:]))
    *others, part = op.transpose(node, [cotangent.applied()], linear)
    assert part is not None
    return [*[None for _ in others], Cotangent(part, counts, is_applied=True)]


def _is_finite_number(value: Value) -> bool:
    """Return whether an array is one number everywhere, by which zeros stay zeros."""
    number = number_of(_unexpanded(value))
    return number is not None and cmath.isfinite(number)


def _spread(reduced: Value, shape: Shape, axes: Sequence[int]) -> Value:
    """Return an array that was reduced along some axes, repeated along these."""
    kept_axes = tuple([axis for axis in range(len(shape)) if axis not in axes])
    return expand(reduced, shape, kept_axes)


def narrowed_mask(node: Node, argument: int, mask: Value | None) -> Value | None:
    """Return the mask of the cotangent of an operand of an elementwise node, from the mask of the output's."""
    assert isinstance(node.op, Elementwise)
    rule = None if node.op.confine is None else node.op.confine[argument]
    if rule is None:
        return mask
    confined = rule(*node.inputs)
    return confined if mask is None else bitwise_and(mask, confined)


def pushed_through(
    begin: int, pushed: dict[Value, Tangent], outs: Sequence[Value | None]
) -> list[Tangent | None]:
    """Return (co)tangents with masks that are linear in others: through the nodes that were appended since the serial `begin`."""
    results = [out for out in outs if out is not None]
    nodes, _ = extract(
        results, list(pushed), stop=lambda value: value.node is None or value.node.serial < begin
    )
    for node in nodes:
        parts = [pushed.get(operand) for operand in node.inputs]
        if any(part is not None for part in parts):
            outputs = zip(node.outs, pushed_linear(_on_values(node, parts), parts), strict=True)
            pushed.update({out: tangent for out, tangent in outputs if tangent is not None})
    return [None if out is None else pushed.get(out, Tangent(out)) for out in outs]


def _on_values(node: Node, parts: Sequence[Tangent | None]) -> Node:
    """Return a node whose operands are the values of tangents: these are others than its own where masks have been applied."""
    operands = tuple([x if part is None else part.value for x, part in zip(node.inputs, parts, strict=True)])
    if operands == node.inputs:
        return node
    changed = emit_all(node.op, operands, **node.params)[0].node
    assert changed is not None
    return changed


def pushed_linear(node: Node, parts: Sequence[Tangent | None]) -> tuple[Tangent | None, ...]:
    """Return the tangents of the outputs of a node that is linear in the operands for which `parts` has tangents.

    The operands are the values of these tangents. Other operands are constants. Among terms, those are zeros, which are zero by selection,
    or were computed from a tangent that is a number: what is linear has no other constant terms.
    """
    op = node.op
    if len(node.outs) == 1:
        if isinstance(op, Elementwise):
            return (_pushed_row(node, op, _with_numbers(node, op.additive, parts)),)
        first = parts[0]
        if isinstance(op, IndexMap) and first is not None:
            mask = _moved(node, first.mask)
            return (Tangent(node.out, mask, first.is_applied or (mask is not None and first.mask is None)),)
        if op is reduce_sum and first is not None:
            mask = first.mask
            if mask is not None and not isinstance(mask, Literal):
                mask = emit(reduce_any, [mask], **node.params)
            return (Tangent(_on_applied(node, parts)[0], mask, is_applied=True),)
        if isinstance(op, Join | Accumulate):
            count = len(node.inputs) if isinstance(op, Join) else 2
            masks = [_written(x, part) for x, part in zip(node.inputs[:count], parts, strict=False)]
            if any(mask is not None for mask in masks):
                combined = _combined(node, masks)
                return (Tangent(_on_applied(node, parts)[0], combined, is_applied=True),)
        if isinstance(op, Contract):
            return (_pushed_contraction(node, parts),)
        if op in (cumsum, recurrence, gated_recurrence):
            return (_pushed_cumulative(node, parts),)
        last = parts[-1]
        if isinstance(op, Matrix) and op.linear_in is not None and last is not None and parts[0] is None:
            mask = last.mask
            if mask is not None and not isinstance(mask, Literal) and mask.shape == node.out.shape:
                rows = (mask.ndim - 2,)
                mask = _spread(emit(reduce_any, [mask], axes=rows), mask.shape, rows)
                return (Tangent(_on_applied(node, parts)[0], mask),)
    return tuple(map(Tangent, _on_applied(node, parts)))


def _with_numbers(
    node: Node, terms: Sequence[int], parts: Sequence[Tangent | None]
) -> Sequence[Tangent | None]:
    """Return the tangents of the operands, with those that were computed from numbers."""
    return [
        Tangent(x) if part is None and position in terms and not is_zero(x) else part
        for position, (x, part) in enumerate(zip(node.inputs, parts, strict=True))
    ]


def _on_applied(node: Node, parts: Sequence[Tangent | None]) -> Sequence[Value]:
    """Return the outputs of a node on tangents whose masks are applied."""
    operands = tuple(
        [x if part is None else part.applied() for x, part in zip(node.inputs, parts, strict=True)]
    )
    return node.outs if operands == node.inputs else emit_all(node.op, operands, **node.params)


def _pushed_row(node: Node, op: Elementwise, parts: Sequence[Tangent | None]) -> Tangent:
    """Return the tangent of an elementwise node: the mask is narrowed by selections, and the union of those of terms."""
    flags = [part is not None for part in parts]
    present_parts = [part for part in parts if part is not None]
    is_whole = all(part.mask is None for part in present_parts)
    if is_whole and (op.confine is None or sum(flags) == len(op.additive)):
        return Tangent(node.out)
    masks = [
        narrowed_mask(node, argument, part.mask) for argument, part in enumerate(parts) if part is not None
    ]
    mask = masks[0]
    for other in masks[1:]:
        if mask is None or other is None:
            mask = None
        elif mask is not other:
            mask = bitwise_or(mask, other)
    out = node.out
    if op.confine is None and len(present_parts) > 1 and not all(part.is_applied for part in present_parts):
        (out,) = _on_applied(node, parts)
        return Tangent(out, mask, is_applied=True)
    finite = bool(op.additive) or all(
        is_part or _is_finite_factor(x) for is_part, x in zip(flags, node.inputs, strict=True)
    )
    applied = finite and all(part.mask is None or part.is_applied for part in present_parts)
    return Tangent(out, mask, applied)


def _is_finite_factor(value: Value) -> bool:
    """Return whether a value is a number by which zeros stay zeros, as factor and as divisor."""
    number = number_of(_unexpanded(value))
    return number is not None and number != 0 and cmath.isfinite(number)


def _moved(node: Node, mask: Value | None) -> Value | None:
    """Return a mask whose elements are moved as those of the tangent."""
    assert isinstance(node.op, IndexMap)
    if mask is None and node.op.inside is not None:  # zeros around the elements are zero by selection
        mask = expand(literal(True), node.inputs[0].shape, ())
    if mask is None or isinstance(mask, Literal):
        return mask
    return emit(node.op, [mask, *node.inputs[1:]], **node.params)


def _written(operand: Value, part: Tangent | None) -> Value | None:
    """Return the mask of an operand of a node that puts arrays together; None where nothing is zero by selection."""
    if is_zero(operand if part is None else part.value):
        return literal(False)
    return None if part is None else part.mask


def _combined(node: Node, masks: Sequence[Value | None]) -> Value:
    """Return the mask of a join or an accumulation, from those of the operands."""
    wholes = [
        mask
        if mask is not None and not isinstance(mask, Literal)
        else expand(literal(True) if mask is None else mask, operand.shape, ())
        for mask, operand in zip(masks, node.inputs, strict=False)
    ]
    indices = node.inputs[len(wholes) :]
    if isinstance(node.op, Accumulate) and node.op.combine == "add":
        counts = [convert(mask, FLOAT64) for mask in wholes]
        return not_equal(emit(node.op, [*counts, *indices], **node.params), 0.0)
    return emit(node.op, [*wholes, *indices], **node.params)


def _pushed_contraction(node: Node, parts: Sequence[Tangent | None]) -> Tangent:
    (out,) = _on_applied(node, parts)
    present_operand = 0 if parts[0] is not None else 1
    part = parts[present_operand]
    assert part is not None
    if part.mask is None or isinstance(part.mask, Literal) or parts[1 - present_operand] is not None:
        return Tangent(out)
    own_subscripts = node.params["y" if present_operand else "x"]
    return Tangent(out, _operand_mask(part.mask, own_subscripts, node.params["out"], out.shape))


def _pushed_cumulative(node: Node, parts: Sequence[Tangent | None]) -> Tangent:
    """Return the tangent of a cumulative sum or a recurrence: an element is not masked if one of those before it is not."""
    (out,) = _on_applied(node, parts)
    last = parts[-1]
    mask = None if last is None or any(part is not None for part in parts[:-1]) else last.mask
    if mask is None or isinstance(mask, Literal):
        return Tangent(out)
    if node.op is gated_recurrence:
        gates = convert(not_equal(node.inputs[0], 0.0), FLOAT64)
        hits = emit(node.op, [gates, convert(mask, FLOAT64)], **node.params)
    else:
        hits = cumsum(convert(mask, INT64), axis=node.params["axis"], reverse=node.params["reverse"])
    return Tangent(out, greater(hits, 0))
