"""Loop nests over the elements of arrays: stores, copies, and what may overlap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from gradtape.errors import DtypeError, InPlaceError
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, Value
from gradtape.kinds.arguments import iteration_order
from gradtape.kinds.operands import as_value, beside
from gradtape.ops.core.elementwise.cast import convert_number, drops_imaginary
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays.index_arithmetic import Extent
from gradtape.procedures.arrays.view import (
    ArrayView,
    Deferred,
    Expression,
    Formula,
    Loads,
    Place,
    Scalar,
    Shape,
    apply,
    as_operand,
)
from gradtape.procedures.builder import ProcedureBuilder

MOST_UNROLLED = 16
"""Loop nests of at most so many iterations are unrolled, such as those over matrices of 3 rows and columns."""

LONGEST_UNROLLED = 7
"""Loops of more iterations stay loops, which run in vectors.

Measured on 300 steps with a product of a matrix and a vector and a tanh of n elements, value and gradient, unrolled and as loops: n = 6
86 and 43 microseconds, n = 8 119 and 22, n = 16 203 and 57 (first call 1.3 s and 0.3 s); on products of matrices of n rows and columns
n = 6 137 and 210, n = 8 176 and 63, n = 16 4504 and 295 (first call 2.5 s and 0.5 s).
"""

Body = Callable[[Sequence[Extent], Loads], None]


def run_nest(
    build: ProcedureBuilder, shape: Shape, body: Body, sources: Sequence[Any] = (), inner: Shape = ()
) -> None:
    """Append a loop nest, the last axis innermost.

    Parameters
    ----------
    build : ProcedureBuilder
        Where statements go.
    shape : tuple of int or Value
        The extents. An axis of extent 1 has no loop, and a nest of a few iterations is unrolled.
    body : callable
        Appends the statements of one iteration, from its indices and the elements that were loaded before.
    sources : sequence of Expression
        What the body reads. What does not depend on the inner loops is loaded before them.
    inner : tuple of int or Value
        The extents of the loops that the body contains.
    """
    if is_unrolled((*shape, *inner)):
        for index in np.ndindex(*shape):  # type: ignore[arg-type] # none is a Value
            body(index, Loads())
        return
    views = {
        view.key: view
        for source in sources
        if isinstance(source, Expression)
        for view in source.views()
        if isinstance(view, ArrayView) and view.ndim == len(shape)
    }
    loads = Loads()
    indices: list[Extent] = []
    with ExitStack() as loops:
        for axis in range(-1, len(shape)):
            if axis >= 0:
                extent = shape[axis]
                single = isinstance(extent, int) and extent == 1
                indices.append(0 if single else loops.enter_context(build.loop(extent)))
            for view in views.values():
                if _depth(view, shape) == axis < len(shape) - 1:
                    view.element([*indices, *[0] * (len(shape) - axis - 1)], loads)
        body(indices, loads)


def is_unrolled(shape: Shape) -> bool:
    """Return whether the loop nest over a shape is unrolled."""
    static = ix.static_shape(shape)
    if static is None:
        return False
    return math.prod(static) <= MOST_UNROLLED and max(static, default=0) <= LONGEST_UNROLLED


def _depth(view: ArrayView, shape: Shape) -> int:
    """Return the innermost axis of a loop nest on which an element of a view depends."""
    moving = [
        axis
        for axis, (stride, extent) in enumerate(zip(view.strides, shape, strict=True))
        if not (isinstance(stride, int) and stride == 0) and not (isinstance(extent, int) and extent == 1)
    ]
    return max(moving, default=-1)


def overlaps_elsewhere(target: ArrayView, source: Any) -> bool:
    """Return whether an expression may read elements of a target at other indices than those at which they are stored."""
    if not isinstance(source, Expression):
        return False
    for view in source.views():
        if isinstance(view, Formula):
            if target.pointer.memory in view.reads:
                return True
        elif view.pointer.memory is target.pointer.memory and not (
            view.key == target.key or are_disjoint(target, view)
        ):
            return True
    return False


def are_disjoint(first: ArrayView, second: ArrayView) -> bool:
    """Return whether two views of one memory are known to have no element in common.

    So are views apart by no multiple of the common divisor of their strides, such as two columns, and those that end before the other
    begins.
    """
    if first.pointer is not second.pointer:
        return False
    gap = ix.difference(second.offset, first.offset)
    if not gap:
        return False
    steps = [
        stride
        for view in (first, second)
        for stride, extent in zip(view.strides, view.shape, strict=True)
        if not (isinstance(extent, int) and extent == 1)
    ]
    static_steps = [step for step in steps if isinstance(step, int)]
    if len(static_steps) == len(steps) and (not static_steps or gap % math.gcd(*static_steps)):
        return True
    reach, other = _span(first), _span(second)
    return (
        reach is not None and other is not None and (other[0] + gap > reach[1] or other[1] + gap < reach[0])
    )


def _span(view: ArrayView) -> tuple[int, int] | None:
    """Return how far the elements of a static view reach from the first one."""
    low = high = 0
    for stride, extent in zip(view.strides, view.shape, strict=True):
        if not (isinstance(stride, int) and isinstance(extent, int)):
            return None
        reach = stride * (extent - 1)
        low, high = low + min(0, reach), high + max(0, reach)
    return low, high


def store(target: ArrayView, source: Any) -> None:
    """Append ``target[...] = source``, as one loop nest where the target does not overlap what is read."""
    build = target.build
    check_writable(target)
    source = as_stored(build, source, target.dtype)
    if isinstance(source, Expression):
        source = without_leading_ones(source, target.ndim).broadcast(target.shape)
        if any(isinstance(extent, int) and extent == 0 for extent in target.shape):
            return
        if isinstance(source, ArrayView) and source.key == target.key:
            return
        if overlaps_elsewhere(target, source):
            source = materialise(source, temporary=True)

    def body(indices: Sequence[Extent], loads: Loads) -> None:
        target.store(indices, element(source, indices, loads))

    run_nest(build, target.shape, body, [source])


def as_stored(build: ProcedureBuilder, operand: Any, dtype: np.dtype[Any]) -> Expression | Value:
    """Return an operand that is stored into elements of a dtype; an error for a number of Python's that does not fit."""
    source: Expression | Value = as_operand(build, beside(operand, dtype))
    if isinstance(source, Literal) and source.aval.weak:
        convert_number(source, dtype)  # which refuses a number that does not fit
        if drops_imaginary(source.dtype, dtype):
            raise DtypeError(
                f"a complex number cannot be written into elements of {dtype}",
                where=here.site,
                remedy="write its real part, or make the array complex first: x = x.astype(complex)",
            )
    return source


def without_leading_ones(source: Expression, ndim: int) -> Expression:
    """Return an array without leading axes of extent 1 that a target does not have; NumPy drops them in assignments."""
    from_front = source.ndim - ndim
    if from_front > 0 and all(
        isinstance(extent, int) and extent == 1 for extent in source.shape[:from_front]
    ):
        return drop_axes(source, range(from_front))  # type: ignore[no-any-return]
    return source


def drop_axes(source: Expression, axes: Sequence[int] | range) -> Any:
    """Return an array without some axes of extent 1."""
    kept_axes = [axis for axis in range(source.ndim) if axis not in axes]
    positions = [
        Place(0, kept_axes.index(axis)) if axis in kept_axes else Place(0) for axis in range(source.ndim)
    ]
    return source.remapped(tuple([source.shape[axis] for axis in kept_axes]), positions)


def check_writable(target: ArrayView) -> None:
    if not target.writable:
        raise InPlaceError("assignment destination is read-only", where=here.site, remedy="write to a copy")


def element(source: Any, indices: Sequence[Extent], loads: Loads) -> Value:
    """Return an element of an expression, or the number itself."""
    return source.element(indices, loads) if isinstance(source, Expression) else as_value(source)


def new_array(
    build: ProcedureBuilder,
    shape: Sequence[Any],
    dtype: Any = np.float64,
    zero: bool = False,
    name: str = "array",
    temporary: bool = False,
    axes: Sequence[int] | None = None,
) -> ArrayView:
    """Return a new array. A temporary one of a static shape is made once, before all loops.

    `axes` are its axes from the slowest to the fastest in memory. Another order than C only shows where an array is reshaped, and is
    kept if the builder is told to.
    """
    extents = tuple([ix.extent(extent) for extent in shape])
    if axes is not None and list(axes) != list(range(len(extents))):
        if build.keeps_order:
            transposed = new_array(build, [extents[axis] for axis in axes], dtype, zero, name, temporary)
            return transposed.remapped(extents, [Place(0, axis) for axis in axes])
        build.loses_order = True
    size = ix.product(extents)
    if temporary and not zero and isinstance(size, int):
        with build.at_start():
            pointer = build.allocate(name, size, np.dtype(dtype))
    else:
        pointer = build.allocate(name, size, np.dtype(dtype), zero)
    return ArrayView.of_pointer(build, pointer, extents)


def materialise(source: Any, temporary: bool = False, dtype: Any = None, order: str = "K") -> ArrayView:
    """Return a new array with the elements of an expression; a view is copied.

    The order of its elements in memory is C or F, or that of NumPy's result (K), which only shows where an array is reshaped.
    """
    target = new_array(
        source.build,
        source.shape,
        source.dtype if dtype is None else dtype,
        temporary=temporary,
        axes=memory_order(source, order),
    )
    if order in "KA" and not is_order_known(source):
        source.build.unknown_orders.add(target.pointer.memory)
    store(target, source)
    return target


def is_order_known(source: Expression) -> bool:
    """Return whether it is known in which order the elements of an array stand in memory, or would stand if it is stored."""
    unknown = source.build.unknown_orders
    views = [view for view in source.views() if isinstance(view, ArrayView)]
    if unknown and source.ndim > 1 and any(view.pointer.memory in unknown for view in views):
        return False
    if isinstance(source, ArrayView) or source.ndim < 2 or all(view.is_contiguous for view in views):
        return True
    strides = [stride for view in views for stride in view.strides]
    return ix.static_shape(source.shape) is not None and ix.static_shape(strides) is not None


def span_of_strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """Return where the first element of an array with strides stands in the least memory for it, and how many elements this has."""
    if 0 in shape:
        return 0, 0
    reach = [stride * (extent - 1) for stride, extent in zip(strides, shape, strict=True)]
    return -sum([far for far in reach if far < 0]), sum(map(abs, reach)) + 1


def memory_order(source: Expression, order: str) -> Sequence[int]:
    """Return the axes of a new array, from the slowest to the fastest, in order C or F, or in that of NumPy's result of an elementwise
    expression (K). The latter is C order for dynamic shapes; that of arrays that are F-contiguous only (A) is F."""
    if order == "A":
        in_columns = range(source.ndim)[::-1]
        return in_columns if _is_fortran(source) else range(source.ndim)
    if order != "K":
        return range(source.ndim)[:: -1 if order == "F" else 1]
    return common_order(source.shape, [source])


def _is_fortran(source: Expression) -> bool:
    """Return whether an array is F-contiguous and not C-contiguous, or would be if it is stored."""
    axes = range(source.ndim)[::-1]
    if isinstance(source, ArrayView):
        positions = [Place(0, axis) for axis in axes]
        turned = source.remapped(tuple([source.shape[axis] for axis in axes]), positions)
        return turned.is_contiguous and not source.is_contiguous
    longer = [axis for axis in axes if source.shape[axis] != 1]
    return len(longer) > 1 and [axis for axis in memory_order(source, "K") if axis in longer] == longer


def common_order(shape: Sequence[Extent], sources: Sequence[Expression]) -> Sequence[int]:
    """Return the axes of an array that NumPy fills from expressions of its shape, from the slowest to the fastest in memory: C order for
    dynamic shapes."""
    ndim = len(shape)
    strides = [
        [0 if extent == 1 else stride for stride, extent in zip(view.strides, view.shape, strict=True)]
        for source in sources
        for view in source.views()
        if isinstance(view, ArrayView) and view.ndim == ndim
    ]
    static = all(isinstance(stride, int) for view_strides in strides for stride in view_strides)
    if ndim < 2 or not static or ix.static_shape(shape) is None:
        return range(ndim)
    return iteration_order(ndim, strides)  # type: ignore[arg-type] # none is a Value


def as_view(build: ProcedureBuilder, operand: Any, temporary: bool = True) -> ArrayView:
    """Return an operand as an array in memory: a view as it is, anything else materialised."""
    operand = as_operand(build, operand)
    if isinstance(operand, ArrayView):
        return operand
    if isinstance(operand, Expression):
        return materialise(operand, temporary)
    view = new_array(build, (), operand.dtype, temporary=temporary)
    view.store((), operand)
    return view


def with_axes(number: Any, reshaped: Any) -> Any:
    """Return a number that was reshaped, to be read only: of an array of rank 0 NumPy's is a view, and these are numbers here."""
    if (
        isinstance(number, ArrayView)
        or number.ndim
        or not isinstance(reshaped, Expression)
        or not reshaped.ndim
    ):
        return reshaped
    view = as_view(reshaped.build, reshaped, temporary=False)
    return ArrayView(view.build, view.pointer, view.offset, view.shape, view.strides, writable=False)


def as_contiguous(view: ArrayView) -> ArrayView:
    """Return an array whose elements stand one after the other in row-major order, a copy if need be."""
    return view if view.is_contiguous else materialise(view, order="C")


def update(function: Any, target: ArrayView, source: Any) -> None:
    """Append an augmented assignment, such as ``target += source`` for `np.add`."""
    result = apply(target.build, function, target, source)
    check_same_kind(result.dtype, target.dtype, function)
    if result.ndim > target.ndim:
        raise InPlaceError(
            f"a result of {result.ndim} axes does not fit a target of {target.ndim}", where=here.site
        )
    store(target, result)


def check_same_kind(source: Any, target: Any, function: Any) -> None:
    """Raise the error of NumPy for an in-place operation whose result does not fit its target."""
    if not np.can_cast(source, target, "same_kind"):
        raise TypeError(
            f"Cannot cast ufunc '{getattr(function, '__name__', function)}' output from {source!r} to {target!r} "
            "with casting rule 'same_kind'"
        )


def value_of(source: Any) -> Scalar | Expression:
    """Return an array without axes as its element."""
    if isinstance(source, Deferred | Formula) and source.ndim == 0:
        return source.element((), Loads())
    return source  # type: ignore[no-any-return]
