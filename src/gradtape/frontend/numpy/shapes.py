"""Shapes, transposes, and arrays that are put together."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.frontend.numpy.registry import ATTRIBUTES, implements, implements_method
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.kinds.registry import FUNCTIONS as RULES
from gradtape.procedures.arrays import creation, shapes
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays.graphs import apply_graph
from gradtape.procedures.arrays.indexing import getitem
from gradtape.procedures.arrays.nests import as_view, is_order_known, materialise, memory_order, with_axes
from gradtape.procedures.arrays.view import ArrayView, Expression, FlatIterator, as_expression, as_operand
from gradtape.procedures.builder import ProcedureBuilder

ATTRIBUTES["shape"] = lambda build, x: x.shape
ATTRIBUTES["ndim"] = lambda build, x: x.ndim
ATTRIBUTES["size"] = lambda build, x: x.size
ATTRIBUTES["dtype"] = lambda build, x: x.dtype
ATTRIBUTES["nbytes"] = lambda build, x: ix.multiply(x.size, x.dtype.itemsize)
ATTRIBUTES["itemsize"] = lambda build, x: x.dtype.itemsize
ATTRIBUTES["T"] = lambda build, x: shapes.transpose(x) if x.ndim else x


def flat(build: ProcedureBuilder, x: Any) -> Any:
    """Return the elements in a row, which are read-only where they are a copy: NumPy's iterator writes to the array."""
    row = shapes.ravel(x)
    return FlatIterator.over(row, row.writable and row.pointer is getattr(x, "pointer", None))


ATTRIBUTES["flat"] = flat


@implements(np.transpose)
def transpose(build: ProcedureBuilder, a: Any, axes: Any = None) -> Any:
    return shapes.transpose(as_expression(build, a), axes)


@implements_method("transpose")
def transpose_method(build: ProcedureBuilder, a: Any, *axes: Any) -> Any:
    order_of_axes: Any = (
        axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], tuple | list)) else axes
    )
    return shapes.transpose(a, order_of_axes or None)


@implements(np.swapaxes, method="swapaxes")
def swapaxes(build: ProcedureBuilder, a: Any, axis1: Any, axis2: Any) -> Any:
    return shapes.swapaxes(as_expression(build, a), axis1, axis2)


@implements(np.moveaxis)
def moveaxis(build: ProcedureBuilder, a: Any, source: Any, destination: Any) -> Any:
    return shapes.moveaxis(as_expression(build, a), source, destination)


@implements(np.flip)
def flip(build: ProcedureBuilder, m: Any, axis: Any = None) -> Any:
    return shapes.flip(as_expression(build, m), axis)


@implements(np.flipud)
def flipud(build: ProcedureBuilder, m: Any) -> Any:
    return shapes.flip(as_expression(build, m), 0)


@implements(np.fliplr)
def fliplr(build: ProcedureBuilder, m: Any) -> Any:
    return shapes.flip(as_expression(build, m), 1)


@implements(np.expand_dims)
def expand_dims(build: ProcedureBuilder, a: Any, axis: Any) -> Any:
    array = as_expression(build, a)
    return with_axes(array, shapes.expand_dims(array, axis))


@implements(np.squeeze, method="squeeze")
def squeeze(build: ProcedureBuilder, a: Any, axis: Any = None) -> Any:
    return shapes.squeeze(as_expression(build, a), axis)


def _reordered(build: ProcedureBuilder, x: ArrayView, reshaped: ArrayView, order: str) -> ArrayView:
    """Return the elements of an array in another shape: where nobody knows whether NumPy's is a view, a copy, and neither may be
    written to while there are both."""
    if is_order_known(x) or sum([extent != 1 for extent in x.shape]) < 2:
        return reshaped
    if order in "KA":
        raise UnsupportedFunctionError(
            f"order={order!r} of an array whose order in memory is not known",
            where=here.site,
            remedy='use order="C" or order="F"',
        )
    if reshaped.pointer.memory is x.pointer.memory:
        reshaped = materialise(reshaped, order="C")
    build.note_copy(reshaped.pointer, x.pointer)
    return reshaped


@implements(np.reshape)
def reshape(build: ProcedureBuilder, a: Any, shape: Any, order: str = "C") -> Any:
    if shape == () and not isinstance(a, Expression | list | tuple | np.ndarray):  # a number stays one
        return a
    build.reads_order = True
    array = as_expression(build, a)
    x = as_view(build, array, temporary=False)
    requested_order = order
    if order == "A":
        order = "F" if shapes.transpose(x).is_contiguous and not x.is_contiguous else "C"
    if order == "C":
        return with_axes(array, _reordered(build, x, shapes.reshape(x, shape), requested_order))
    extents = tuple(shape)[::-1] if isinstance(shape, tuple | list) else shape
    reshaped = shapes.transpose(shapes.reshape(shapes.transpose(x), extents))
    return with_axes(array, _reordered(build, x, reshaped, requested_order))


@implements_method("reshape")
def reshape_method(build: ProcedureBuilder, a: Any, *shape: Any, order: str = "C") -> Any:
    return reshape(build, a, shape[0] if len(shape) == 1 else shape, order)


@implements(np.ravel, method="ravel")
def ravel(build: ProcedureBuilder, a: Any, order: str = "C") -> Any:
    build.reads_order = True
    array = as_expression(build, a)
    view = as_view(build, array, temporary=False)
    if order != "C":
        view = shapes.transpose(view, memory_order(view, order))
    raveled = shapes.ravel(view if view.is_contiguous else materialise(view, order="C"))
    return with_axes(array, _reordered(build, view, raveled, order))


@implements_method("flatten")
def flatten(build: ProcedureBuilder, a: Any, order: str = "C") -> Any:
    if order != "C":
        return materialise(ravel(build, a, order))
    flat = shapes.ravel(a)
    return materialise(flat) if isinstance(a, ArrayView) and flat.pointer is a.pointer else flat


@implements(np.broadcast_to)
def broadcast_to(build: ProcedureBuilder, array: Any, shape: Any) -> Any:
    spread = as_expression(build, array).broadcast(creation.as_shape(shape))
    if isinstance(spread, ArrayView):
        spread.writable = False
    return spread


@implements(np.diagonal, method="diagonal")
def diagonal(build: ProcedureBuilder, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    view = shapes.diagonal(as_expression(build, a), offset, axis1, axis2)
    if isinstance(view, ArrayView):
        view.writable = False
    return view


@implements(np.diag)
def diag(build: ProcedureBuilder, v: Any, k: int = 0) -> Any:
    x = as_expression(build, v)
    if x.ndim != 2:
        return apply_graph(build, RULES[np.diag], (x, k), {})
    return diagonal(build, x, k)


@implements(np.linalg.diagonal)
def diagonal_of_last(build: ProcedureBuilder, x: Any, /, *, offset: int = 0) -> Any:
    return diagonal(build, x, offset, -2, -1)


@implements(np.concatenate)
def concatenate(build: ProcedureBuilder, arrays: Any, axis: Any = 0, dtype: Any = None) -> Any:
    return shapes.concatenate(build, items_of(arrays), axis, dtype)


def items_of(arrays: Any) -> Any:
    """Return a sequence of arrays; that of an array are its items."""
    if not isinstance(arrays, Expression):
        return arrays
    count = arrays.shape[0]
    if isinstance(count, Value):
        raise UnsupportedFunctionError(
            "the number of joined arrays depends on data", where=here.site, remedy="use reshape"
        )
    return [getitem(arrays, k) for k in range(count)]


@implements(np.stack)
def stack(build: ProcedureBuilder, arrays: Any, axis: int = 0, dtype: Any = None) -> Any:
    return creation.stacked(build, [as_expression(build, item) for item in items_of(arrays)], dtype, axis)


@implements(np.shape)
def shape(build: ProcedureBuilder, a: Any) -> Any:
    return as_operand(build, a).shape


@implements(np.size)
def size(build: ProcedureBuilder, a: Any, axis: Any = None) -> Any:
    operand = as_operand(build, a)
    return operand.size if axis is None else operand.shape[axis]


@implements(np.ndim)
def ndim(build: ProcedureBuilder, a: Any) -> Any:
    return as_operand(build, a).ndim
