"""Creation functions, copies and conversions."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.frontend.numpy.registry import implements, implements_method
from gradtape.ir.graph import Literal
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import FUNCTIONS as RULES
from gradtape.ops.core.elementwise.cast import convert
from gradtape.procedures.arrays import creation, shapes
from gradtape.procedures.arrays.graphs import apply_graph
from gradtape.procedures.arrays.indexing import getitem, number_of
from gradtape.procedures.arrays.nests import check_same_kind, materialise, memory_order, store
from gradtape.procedures.arrays.view import ArrayView, Expression, apply, as_operand
from gradtape.procedures.builder import ProcedureBuilder


def _axes(shape: Any, order: str) -> range:
    ndim = len(creation.as_shape(shape))
    return range(ndim)[::-1] if order == "F" else range(ndim)


@implements(np.zeros)
def zeros(
    build: ProcedureBuilder, shape: Any, dtype: Any = float, order: str = "C", *, like: Any = None
) -> Any:
    return creation.zeros(build, shape, float if dtype is None else dtype, _axes(shape, order))


@implements(np.empty, np.ndarray)
def empty(
    build: ProcedureBuilder, shape: Any, dtype: Any = float, order: str = "C", *, like: Any = None
) -> Any:
    return creation.empty(build, shape, float if dtype is None else dtype, _axes(shape, order))


@implements(np.ones)
def ones(
    build: ProcedureBuilder, shape: Any, dtype: Any = float, order: str = "C", *, like: Any = None
) -> Any:
    return creation.full(build, shape, 1, float if dtype is None else dtype, _axes(shape, order))


@implements(np.full)
def full(
    build: ProcedureBuilder,
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "C",
    *,
    like: Any = None,
) -> Any:
    return creation.full(build, shape, fill_value, dtype, _axes(shape, order))


def _like(x: Any, dtype: Any, shape: Any) -> tuple[Any, Any, Any]:
    """Return shape, dtype and axes of a new array like another one."""
    dtype = x.dtype if dtype is None else dtype
    if shape is not None or not isinstance(x, Expression):
        return (x.shape if shape is None else shape), dtype, None
    return x.shape, dtype, memory_order(x, "K")


@implements(np.zeros_like)
def zeros_like(build: ProcedureBuilder, a: Any, dtype: Any = None, shape: Any = None) -> Any:
    return creation.zeros(build, *_like(as_operand(build, a), dtype, shape))


@implements(np.empty_like)
def empty_like(build: ProcedureBuilder, prototype: Any, dtype: Any = None, shape: Any = None) -> Any:
    return creation.empty(build, *_like(as_operand(build, prototype), dtype, shape))


@implements(np.ones_like)
def ones_like(build: ProcedureBuilder, a: Any, dtype: Any = None, shape: Any = None) -> Any:
    return full_like(build, a, 1, dtype, shape)


@implements(np.full_like)
def full_like(build: ProcedureBuilder, a: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    shape, dtype, axes = _like(as_operand(build, a), dtype, shape)
    return creation.full(build, shape, fill_value, dtype, axes)


@implements(np.eye)
def eye(build: ProcedureBuilder, N: Any, M: Any = None, k: Any = 0, dtype: Any = float) -> Any:
    return creation.eye(build, N, M, k, dtype)


@implements(np.identity)
def identity(build: ProcedureBuilder, n: Any, dtype: Any = None) -> Any:
    return creation.eye(build, n, dtype=float if dtype is None else dtype)


implements(np.arange)(creation.arange)


@implements(np.linspace)
def linspace(
    build: ProcedureBuilder,
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
) -> Any:
    if dtype is not None or isinstance(start, Expression) or isinstance(stop, Expression):
        given = (start, stop, num, endpoint, retstep, dtype)
        return apply_graph(build, RULES[np.linspace], given, {})
    return creation.linspace(build, start, stop, num, endpoint, retstep)


@implements(np.array)
def array(
    build: ProcedureBuilder,
    object: Any,
    dtype: Any = None,
    copy: Any = True,
    order: str = "K",
    ndmin: int = 0,
) -> Any:
    made = _in_order(build, creation.array(build, object, dtype, copy is True), order)
    axes = (None,) * (ndmin - np.ndim(made))
    return getitem(made, (*axes, ...)) if axes else made


@implements(np.asarray, np.asanyarray)
def asarray(
    build: ProcedureBuilder, a: Any, dtype: Any = None, order: str | None = None, copy: Any = None
) -> Any:
    return _in_order(build, creation.array(build, a, dtype, copy is True), order)


@implements(np.ascontiguousarray)
def ascontiguousarray(build: ProcedureBuilder, a: Any, dtype: Any = None) -> Any:
    return asarray(build, a, dtype, "C")


@implements(np.asfortranarray)
def asfortranarray(build: ProcedureBuilder, a: Any, dtype: Any = None) -> Any:
    return asarray(build, a, dtype, "F")


def _in_order(build: ProcedureBuilder, made: Any, order: str | None) -> Any:
    """Return an array itself if it is in order C or F already, or if any other order is asked for; else a copy in this order."""
    if order not in ("C", "F"):
        return made
    build.reads_order = True
    if not isinstance(made, ArrayView):
        return made
    in_order = made if order == "C" else shapes.transpose(made)
    return made if in_order.is_contiguous else materialise(made, order=order)


@implements(np.require)
def require(build: ProcedureBuilder, a: Any, dtype: Any = None, requirements: Any = None) -> Any:
    wanted = {name[0].upper() for name in requirements or () if name}  # C and F, of more names than these
    convert = ascontiguousarray if "C" in wanted else asfortranarray if "F" in wanted else asarray
    return convert(build, a, dtype)


@implements(np.copy)
def copy(build: ProcedureBuilder, a: Any, order: str = "K") -> Any:
    a = as_operand(build, a)
    return materialise(a, order=order) if isinstance(a, Expression) else creation.full(build, (), a)


@implements_method("copy")
def copy_method(build: ProcedureBuilder, a: Any, order: str = "C") -> Any:
    return copy(build, a, order) if isinstance(a, Expression) else a


@implements(np.astype, method="astype")
def astype(build: ProcedureBuilder, x: Any, dtype: Any, copy: bool = True) -> Any:
    dtype = np.dtype(dtype)
    if isinstance(x, ArrayView) and x.dtype == dtype:
        return materialise(x) if copy else x
    return apply(build, lambda value: convert(as_value(value), dtype), x)


@implements(np.copyto)
def copyto(
    build: ProcedureBuilder, dst: Any, src: Any, casting: str = "same_kind", where: Any = True
) -> None:
    source = as_operand(build, src)
    is_python_integer = isinstance(source, Literal) and source.aval.weak and source.dtype.kind == "i"
    if casting != "unsafe" and not (is_python_integer and dst.dtype.kind in "iu"):
        check_same_kind(source.dtype, dst.dtype, np.copyto)
    store(dst, source if where is True else apply(build, np.where, where, source, dst))


@implements_method("fill")
def fill(build: ProcedureBuilder, a: Any, value: Any) -> None:
    store(a, number_of(value, a.dtype))


@implements_method("item")
def item(build: ProcedureBuilder, a: Any, *index: Any) -> Any:
    if not isinstance(a, Expression):
        return a
    if index:
        key = index[0] if len(index) == 1 else index
        return getitem(a, key) if isinstance(key, tuple) else getitem(shapes.ravel(a), key)
    if a.size != 1:
        raise ValueError("can only convert an array of size 1 to a Python scalar")
    view = materialise(a, temporary=True) if not isinstance(a, ArrayView) else a
    return build.load(view.pointer, view.offset)
