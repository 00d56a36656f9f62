"""Shift invariance: values that are subtracted and added again, such as the maximum in a log-sum-exp, need no derivative."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from typing import Final

from gradtape.ir.graph import Node, Value
from gradtape.ir.types import carries_derivatives
from gradtape.kinds.contract import Contract
from gradtape.kinds.control import visible_inputs
from gradtape.kinds.index_map import IndexMap
from gradtape.ops.core.elementwise.cast import stop_gradient
from gradtape.ops.core.elementwise.extrema import clip
from gradtape.ops.core.shape import expand_row, permute_row, reshape_row
from gradtape.ops.core.shift_rules import (
    DIFFERENCE,
    Axes,
    Exponential,
    NotAShift,
    Product,
    Shift,
    ShiftRule,
    Shifts,
    added,
    extremum,
    finite_number,
    negated,
    reduced_extremum,
    selection,
)
from gradtape.transforms.activity import active_values

VIEWS: Final = frozenset((expand_row, reshape_row, permute_row))
"""Index maps with all elements of their operand."""

EXTREMA: Final = frozenset((extremum, reduced_extremum, selection))
"""Shift rules of rows that user code subtracts from an exponent without broadcasting."""


def cancelling_shifts(
    nodes: Sequence[Node], targets: Collection[Value], sources: Collection[Value]
) -> set[Value]:
    """Return values on which the targets do not depend mathematically, although they are computed with them.

    Parameters
    ----------
    nodes : sequence of Node
        The nodes between sources and targets, in topological order.
    targets, sources : collection of Value
        The targets and sources of the derivative.

    Returns
    -------
    set of Value
        The derivatives through each of these values add up to zero, and may be left out.

    Notes
    -----
    The proof follows a candidate m through the nodes, by the shift rules of the rows. Each value that is computed with it must be
    ``u + k m`` or ``u exp(k m)``, with a number k and a value u that does not depend on m; where k becomes 0, m cancels. So
    ``m + log(sum(exp(x - m)))`` and ``e / sum(e)`` for ``e = exp(x - m)`` are found, and their gradients. Infinities and NaN are those of
    the sums and quotients themselves.
    """
    if not any(isinstance(node.op.shift, Exponential) for node in nodes):
        return set()
    active = active_values(nodes, sources)
    candidates = _candidates(nodes, sources, active)
    if not candidates:
        return set()
    target_set = set(targets)
    readers: dict[Value, list[int]] = {}
    for position, node in enumerate(nodes):
        for value in visible_inputs(node):
            if value in active:
                readers.setdefault(value, []).append(position)
    return {value for value in candidates if _cancels(value, nodes, readers, target_set)}


def _candidates(
    nodes: Sequence[Node], sources: Collection[Value], active: Collection[Value]
) -> dict[Value, None]:
    candidates: dict[Value, None] = {}
    for node in nodes:
        if node.op.shift is not DIFFERENCE:
            continue
        x, m = node.inputs
        if x not in active or m not in active:
            continue
        root = _root(m)
        maker = root.node
        if maker is None or root in sources or root.dtype.kind != "f":
            continue
        if maker.op.shift in EXTREMA or maker.op is clip or (m.node is not None and m.node.op is expand_row):
            candidates[root] = None
    return candidates


def _root(value: Value) -> Value:
    """Return the value of which another is a view or a multiple."""
    while value.node is not None:
        node = value.node
        rule = node.op.shift
        multiple = isinstance(rule, Product) and finite_number(node.inputs[1]) is not None
        if not multiple and node.op not in VIEWS and rule is not negated:
            break
        value = node.inputs[0]
    return value


def _cancels(
    value: Value, nodes: Sequence[Node], readers: dict[Value, list[int]], targets: set[Value]
) -> bool:
    """Return whether no target changes when a value is shifted; `readers` are the positions of the nodes that read each value."""
    axes = tuple(None if extent == 1 else axis for axis, extent in enumerate(value.shape))
    shifted: dict[Value, Shift] = {value: Shift(None, 1, axes)}
    pending = list(readers.get(value, ()))
    previous = -1
    while pending:
        position = heappop(pending)
        if position == previous:
            continue
        previous = position
        node = nodes[position]
        outs = [out for out in node.outs if carries_derivatives(out.dtype)]
        if not outs or node.op is stop_gradient:
            continue
        shifts = [shifted.get(operand) for operand in visible_inputs(node)]
        if not any(shifts):
            continue
        try:
            shift = _through(node, shifts)
        except NotAShift:
            return False
        if shift is not None:
            if outs[0] in targets:
                return False
            shifted[outs[0]] = shift
            for reader in readers.get(outs[0], ()):
                heappush(pending, reader)
    return value not in targets


def _through(node: Node, shifts: Shifts) -> Shift | None:
    """Return the shift of the output of a node, None if it does not change.

    Raises
    ------
    NotAShift
        Where the output changes in another way.
    """
    rule: ShiftRule | None = node.op.shift
    if rule is not None:
        return rule(node, shifts)
    if isinstance(node.op, Contract):
        return _contract(node, shifts)
    if isinstance(node.op, IndexMap):
        return _index_map(node, node.op, shifts)
    raise NotAShift


def _contract(node: Node, shifts: Shifts) -> Shift | None:
    """Return the shift of a product that is summed over subscripts which are no axes of m."""
    x, y, out = node.params["x"], node.params["y"], node.params["out"]
    total: Shift | None = None
    for subscripts, shift in zip((x, y), shifts, strict=True):
        if shift is not None:
            shift_of_subscripts = dict(zip(subscripts, shift.axes, strict=True))
            if not shift.base or any(
                shift_of_subscripts[subscript] is not None for subscript in subscripts if subscript not in out
            ):
                raise NotAShift
            total = added(
                total, shift._replace(axes=tuple(shift_of_subscripts.get(subscript) for subscript in out)), 1
            )
    return total


def _index_map(node: Node, op: IndexMap, shifts: Shifts) -> Shift | None:
    shift = shifts[0]
    assert shift is not None  # indices are integers
    if op.inside is not None and not shift.base:
        raise NotAShift
    axes: Axes = (None,) * node.out.ndim
    if any(shift_axis is not None for shift_axis in shift.axes):
        images = op.axis_images(node)
        if any(
            shift_axis is not None and image is None
            for shift_axis, image in zip(shift.axes, images, strict=True)
        ):
            raise NotAShift
        placed = dict(zip(images, shift.axes, strict=True))
        axes = tuple([placed.get(axis) for axis in range(node.out.ndim)])
    return shift._replace(axes=axes)
