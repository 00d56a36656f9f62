"""Row independence: whether row k of one array depends only on row k of another, by the structure of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from gradtape.ir.graph import Node, Value, extract
from gradtape.ir.op import Op
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.kinds.correlation import Correlation
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.routines.callback import Callback
from gradtape.kinds.routines.matrix import Matrix
from gradtape.kinds.sort import Sort
from gradtape.ops.core.indexing import gather_row
from gradtape.ops.core.shape import expand_row
from gradtape.ops.core.sorting import argsort
from gradtape.transforms.loops.ops import Scan

UNKNOWN: Final = -1
"""The rows may mix; any other number is the axis of the rows."""

Axes = Sequence[int | None]
"""For each operand the axis of the rows; None where the operand does not depend on the source."""


def row_axis(target: Value, source: Value, stop: Callable[[Value], bool]) -> int | None:
    """Return the axis of `target` along which element k depends on row k of `source` alone.

    Returns
    -------
    int or None
        None where `target` does not depend on `source`, `UNKNOWN` where the rows may mix.
    """
    axis_by_value: dict[Value, int] = {source: 0}
    nodes, _ = extract(
        [target], [source], stop=lambda value: (stop(value) and value is not source) or value.node is None
    )
    rows = source.shape[0]
    for node in nodes:
        axes = [axis_by_value.get(operand) for operand in node.inputs]
        known_axes = {axis for axis in axes if axis is not None}
        if not known_axes:
            continue
        rule = next((rule for kind, rule in RULES if isinstance(node.op, kind)), None)
        axis = UNKNOWN if rule is None or UNKNOWN in known_axes else rule(node, axes, rows)
        for out in node.outs:
            axis_by_value[out] = axis
    return axis_by_value.get(target)


def _agreed(axes: Axes) -> int:
    """Return the axis that all operands agree on."""
    known_axes = {axis for axis in axes if axis is not None}
    return known_axes.pop() if len(known_axes) == 1 else UNKNOWN


def _elementwise(node: Node, axes: Axes, rows: int) -> int:
    return _agreed(axes)


def _index_map(node: Node, axes: Axes, rows: int) -> int:
    if node.op is gather_row:
        return _gather(node, axes, rows)
    axis = axes[0]
    assert isinstance(node.op, IndexMap) and axis is not None  # it is the only operand
    image = node.op.axis_images(node)[axis]
    return UNKNOWN if image is None else image


def _gather(node: Node, axes: Axes, rows: int) -> int:
    """Rows that are read in their order stay rows."""
    (axis, *index_axes), indices = axes, node.inputs[1:]
    image = axis
    if axis is not None and axis < len(indices):
        image = _counting_axis(indices[axis], rows)
    elif axis is not None:
        image = axis - len(indices) + indices[0].ndim
    return UNKNOWN if image == UNKNOWN else _agreed((image, *index_axes))


def _counting_axis(index: Value, rows: int) -> int:
    """Return the axis along which an index array is ``arange(rows)``; UNKNOWN where there is none for certain."""
    axes_in_result: Sequence[int] = range(index.ndim)
    while index.node is not None and index.node.op is expand_row:
        axes_in_result = [axes_in_result[axis] for axis in index.node.params["axes"]]
        index = index.node.inputs[0]
    if index.data is None or index.tags:  # a tagged value has other numbers in another call
        return UNKNOWN
    for axis, extent in enumerate(index.shape):
        counted = np.arange(rows).reshape(-1, *[1] * (index.ndim - axis - 1))
        if extent == rows and np.all(index.data == counted):
            return axes_in_result[axis]
    return UNKNOWN


def _accumulate(node: Node, axes: Axes, rows: int) -> int:
    op = node.op
    assert isinstance(op, Accumulate)
    base, v, placing, _ = op.split(axes)
    params, indices = node.params, op.split(node.inputs)[2]
    if indices:
        rank = indices[0].ndim
        leading = {axis for axis in (*placing, v) if axis is not None and axis < rank}
        if not leading:
            return _agreed((base, None if v is None else v - rank + len(indices)))
        a = leading.pop()
        counting_axis = next(
            (k for k, index in enumerate(indices) if _counting_axis(index, rows) == a), UNKNOWN
        )
        is_separate = (
            not leading
            and v in (None, a)
            and counting_axis != UNKNOWN
            and node.out.shape[counting_axis] == rows
        )
        return _agreed((base, counting_axis)) if is_separate else UNKNOWN
    axis = _agreed((base, v))
    if axis == UNKNOWN:
        return UNKNOWN
    is_whole = (
        node.inputs[1].shape[axis] == rows and params["starts"][axis] == 0 and params["strides"][axis] == 1
    )
    return axis if is_whole else UNKNOWN


def _reduction(node: Node, axes: Axes, rows: int) -> int:
    axis, reduced = axes[0], node.params["axes"]
    assert axis is not None
    return UNKNOWN if axis in reduced else axis - sum(each < axis for each in reduced)


def _cumulative(node: Node, axes: Axes, rows: int) -> int:
    axis = _agreed(axes)
    return UNKNOWN if axis == node.params["axis"] else axis


def _sort(node: Node, axes: Axes, rows: int) -> int:
    if node.op is argsort:
        axis = _agreed(axes)
        return UNKNOWN if axis == node.inputs[0].ndim - 1 else axis
    haystack, needles = axes
    return UNKNOWN if haystack is not None or needles is None else needles


def _matrix(node: Node, axes: Axes, rows: int) -> int:
    axis = _agreed(axes)
    return axis if axis < node.inputs[0].ndim - 2 else UNKNOWN


def _callback(node: Node, axes: Axes, rows: int) -> int:
    op = node.op
    assert isinstance(op, Callback)
    axis = _agreed(axes)
    return axis if axis < node.inputs[0].ndim - op.ranks(node.params)[0] else UNKNOWN


def _correlation(node: Node, axes: Axes, rows: int) -> int:
    axis = _agreed(axes)
    return axis if axis < node.out.ndim - node.params["rank"] else UNKNOWN


def _contract(node: Node, axes: Axes, rows: int) -> int:
    params = node.params
    subscripts = {params[name][axis] for name, axis in zip(("x", "y"), axes, strict=True) if axis is not None}
    if len(subscripts) > 1:
        return UNKNOWN
    subscript = subscripts.pop()
    return params["out"].index(subscript) if subscript in params["out"] else UNKNOWN


def _scan(node: Node, axes: Axes, rows: int) -> int:
    """A scan without carries does the same with each element."""
    params = node.params
    elements = axes[params["consts"] :]
    no_carries = not params["carries"] and all(axis is None for axis in axes[: params["consts"]])
    return 0 if no_carries and all(axis in (None, 0) for axis in elements) else UNKNOWN


Rule = Callable[[Node, Axes, int], int]
RULES: tuple[tuple[type[Op], Rule], ...] = (
    (Elementwise, _elementwise),
    (IndexMap, _index_map),
    (Accumulate, _accumulate),
    (Reduction, _reduction),
    (Cumulative, _cumulative),
    (Join, _cumulative),
    (Sort, _sort),
    (Matrix, _matrix),
    (Callback, _callback),
    (Contract, _contract),
    (Correlation, _correlation),
    (Scan, _scan),
)
