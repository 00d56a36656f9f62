"""Functions that return views of their argument: parts of it, turned arrays, and the real part of real numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gradtape.errors import UnsupportedFunctionError
from gradtape.frontend.numpy.elementwise import part
from gradtape.frontend.numpy.registry import ATTRIBUTES, implements
from gradtape.ir.builder import here
from gradtape.kinds.arguments import one_axis
from gradtape.kinds.registry import FUNCTIONS as RULES
from gradtape.procedures.arrays import shapes
from gradtape.procedures.arrays.graphs import apply_graph
from gradtape.procedures.arrays.indexing import getitem
from gradtape.procedures.arrays.nests import as_view, with_axes
from gradtape.procedures.arrays.view import ArrayView, Expression, as_expression, as_operand
from gradtape.procedures.builder import ProcedureBuilder


def _part(x: Expression, axis: int, key: Any) -> Any:
    return getitem(x, (*[slice(None)] * axis, key))


@implements(np.array_split)
def array_split(build: ProcedureBuilder, ary: Any, indices_or_sections: Any, axis: Any = 0) -> Any:
    x = as_expression(build, ary)
    place = one_axis(axis, x.ndim)
    size = x.shape[place]
    known = isinstance(indices_or_sections, int | Sequence | np.ndarray)
    if not isinstance(size, int) or not known:
        raise UnsupportedFunctionError(
            "an array is split at positions that are known only when the compiled code runs",
            where=here.site,
            remedy="write the parts as slices: x[:n], x[n:]",
        )
    ends = np.cumsum([len(part) for part in np.array_split(np.empty(size), indices_or_sections)])
    if isinstance(indices_or_sections, int):
        return [_part(x, place, slice(int(a), int(b))) for a, b in pairwise([0, *ends])]
    marks = [int(mark) for mark in indices_or_sections]
    return [_part(x, place, slice(a, b)) for a, b in pairwise([0, *marks, size])]


@implements(np.split)
def split(build: ProcedureBuilder, ary: Any, indices_or_sections: Any, axis: Any = 0) -> Any:
    x = as_expression(build, ary)
    size = x.shape[one_axis(axis, x.ndim)]
    if isinstance(indices_or_sections, int) and isinstance(size, int) and size % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(build, ary, indices_or_sections, axis)


def _with_axes(build: ProcedureBuilder, ary: Any, least: int, name: str) -> Expression:
    x = as_expression(build, ary)
    if x.ndim < least:
        raise ValueError(f"{name} only works on arrays of {least} or more dimensions")
    return x


@implements(np.hsplit)
def hsplit(build: ProcedureBuilder, ary: Any, indices_or_sections: Any) -> Any:
    x = _with_axes(build, ary, 1, "hsplit")
    return split(build, x, indices_or_sections, 0 if x.ndim == 1 else 1)


@implements(np.vsplit)
def vsplit(build: ProcedureBuilder, ary: Any, indices_or_sections: Any) -> Any:
    return split(build, _with_axes(build, ary, 2, "vsplit"), indices_or_sections, 0)


@implements(np.dsplit)
def dsplit(build: ProcedureBuilder, ary: Any, indices_or_sections: Any) -> Any:
    return split(build, _with_axes(build, ary, 3, "dsplit"), indices_or_sections, 2)


@implements(np.unstack)
def unstack(build: ProcedureBuilder, x: Any, *, axis: Any = 0) -> Any:
    array = as_expression(build, x)
    place = one_axis(axis, array.ndim)
    count = array.shape[place]
    if not isinstance(count, int):
        raise UnsupportedFunctionError(
            "the number of arrays is known only when the compiled code runs",
            where=here.site,
            remedy="use x[k]",
        )
    return tuple([_part(array, place, k) for k in range(count)])


@implements(np.rollaxis)
def rollaxis(build: ProcedureBuilder, a: Any, axis: Any, start: Any = 0) -> Any:
    x = as_expression(build, a)
    order = np.rollaxis(np.empty(range(1, x.ndim + 1)), axis, start).shape
    return shapes.transpose(x, [extent - 1 for extent in order])


@implements(np.rot90)
def rot90(build: ProcedureBuilder, m: Any, k: Any = 1, axes: Any = (0, 1)) -> Any:
    x = as_expression(build, m)
    first, second = (one_axis(axis, x.ndim) for axis in axes)
    turns = k % 4
    if turns == 0:
        return x
    if turns == 2:
        return shapes.flip(x, (first, second))
    if turns == 1:
        return shapes.swapaxes(shapes.flip(x, second), first, second)
    return shapes.flip(shapes.swapaxes(x, first, second), second)


@implements(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(build: ProcedureBuilder, x: Any) -> Any:
    return shapes.swapaxes(as_expression(build, x), -1, -2)


@implements(np.atleast_3d)
def atleast_3d(build: ProcedureBuilder, x: Any) -> Any:
    array = as_expression(build, x)
    return with_axes(array, shapes.expand_dims(array, {0: (0, 1, 2), 1: (0, 2), 2: (2,)}.get(array.ndim, ())))


@implements(np.real)
def real(build: ProcedureBuilder, val: Any) -> Any:
    operand = as_operand(build, val)
    return part(build, np.real, operand) if operand.dtype.kind == "c" else operand


ATTRIBUTES["real"] = real
ATTRIBUTES["mT"] = matrix_transpose


@implements(np.linalg.matrix_power)
def matrix_power(build: ProcedureBuilder, a: Any, n: Any) -> Any:
    x = as_expression(build, a)
    is_itself = type(n) is int and n == 1 and x.ndim >= 2 and x.shape[-1] == x.shape[-2]
    return x if is_itself else apply_graph(build, RULES[np.linalg.matrix_power], (x, n), {})


@implements(sliding_window_view)
def windows(
    build: ProcedureBuilder,
    x: Any,
    window_shape: Any,
    axis: Any = None,
    *,
    subok: Any = False,
    writeable: Any = False,
) -> Any:
    view = as_view(build, as_expression(build, x), temporary=False)
    extents = window_shape if isinstance(window_shape, tuple | list) else (window_shape,)
    places = range(view.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    if len(places) != len(extents):
        raise ValueError("window_shape and axis must have the same length")
    shape, strides = list(view.shape), list(view.strides)
    for extent, place in zip(extents, [one_axis(place, view.ndim) for place in places], strict=True):
        if not isinstance(shape[place], int) or not isinstance(extent, int | np.integer):
            raise UnsupportedFunctionError(
                "the lengths of windows are known only when the compiled code runs",
                where=here.site,
                remedy="pass the length as a Python number",
            )
        if extent < 0:
            raise ValueError("window_shape cannot contain negative values")
        if extent > shape[place]:
            raise ValueError("window shape cannot be larger than input array shape")
        shape[place] -= int(extent) - 1
        shape.append(int(extent))
        strides.append(view.strides[place])
    return ArrayView(
        build, view.pointer, view.offset, tuple(shape), tuple(strides), bool(writeable) and view.writable
    )


@implements(np.real_if_close)
def real_if_close(build: ProcedureBuilder, a: Any, tol: Any = 100) -> Any:
    operand = as_operand(build, a)
    if operand.dtype.kind == "c":
        raise UnsupportedFunctionError(
            "whether np.real_if_close returns real numbers depends on the values",
            where=here.site,
            remedy="use x.real",
        )
    return operand
