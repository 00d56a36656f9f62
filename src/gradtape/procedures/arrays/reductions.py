"""Sums, products, extrema and tests over axes; one loop nest computes an expression and reduces it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Value, literal
from gradtape.ir.types import BOOL, FLOAT64, INT64
from gradtape.kinds.arguments import NO_VALUE, one_axis, reduced_axes
from gradtape.kinds.operands import as_value, conform
from gradtape.ops.core.elementwise.arithmetic import add, multiply
from gradtape.ops.core.elementwise.cast import with_tangent_of
from gradtape.ops.core.elementwise.complex_parts import conjugate, real
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.floats import isnan
from gradtape.ops.core.elementwise.logic import equal, greater, less, truth
from gradtape.ops.core.elementwise.select import where as select
from gradtape.ops.numpy.linalg.norms import root
from gradtape.ops.numpy.statistics.reductions import check_mask_of_extremum, limits, sum_dtype
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays.index_arithmetic import Extent
from gradtape.procedures.arrays.indexing import unselected
from gradtape.procedures.arrays.nests import is_unrolled, materialise, new_array, run_nest, store
from gradtape.procedures.arrays.view import (
    ArrayView,
    Expression,
    Formula,
    Loads,
    Place,
    Shape,
    apply,
    as_expression,
)
from gradtape.procedures.builder import ProcedureBuilder

Combine = Callable[[Value, Value], Value]


def reduce(
    x: Expression,
    combine: Combine,
    neutral: Any,
    dtype: Any,
    axis: Any,
    keepdims: bool,
    lift: Callable[[Value], Value] = lambda value: value,
) -> Any:
    """Reduce over axes: a number where no axis is left, otherwise a new array.

    Parameters
    ----------
    x : Expression
        What is reduced.
    combine : callable
        The monoid, on two numbers.
    neutral : number
        Its neutral element.
    dtype : numpy.dtype
        In which it is computed.
    axis, keepdims
        As NumPy's.
    lift : callable
        What is done with each element first.
    """
    build = x.build
    unmasked = unselected(x)
    if unmasked is not None:
        dtype = np.dtype(dtype)
        chosen = apply(build, _selection(lift, neutral, dtype), unmasked[1], unmasked[0])
        result = reduce(chosen, combine, neutral, dtype, None, False)
        return (
            result
            if not keepdims
            else apply(build, np.positive, as_expression(build, result)).broadcast((1,))
        )
    axes = reduced_axes(axis, x.ndim)
    kept_axes = [k for k in range(x.ndim) if k not in axes]
    dtype = np.dtype(dtype)

    def term(indices: Sequence[Extent], loads: Loads) -> Value:
        return conform(as_value(lift(x.element(indices, loads))), dtype, ())

    if not kept_axes:
        result = _total(x, term, combine, neutral, dtype)
        if not keepdims:
            return result
        out = new_array(build, (1,) * x.ndim, dtype)
        out.store((0,) * x.ndim, result)
        return out
    shape = tuple([x.shape[k] for k in kept_axes])
    out = new_array(build, shape, dtype)
    inner = tuple([x.shape[k] for k in axes])
    if x.ndim - 1 in axes or _is_short(x.shape[x.ndim - 1]) or is_unrolled(inner):

        def each(outer: Sequence[Extent], loads: Loads) -> None:
            part = x.remapped(inner, _partial_places(x.ndim, kept_axes, outer))
            total = lambda indices, loads: conform(as_value(lift(part.element(indices, loads))), dtype, ())  # noqa: E731
            out.store(outer, _total(part, total, combine, neutral, dtype))

        run_nest(build, shape, each, inner=inner)
    else:  # rows are added to the result one after the other, so that memory is read in order
        store(out, np.asarray(neutral, dtype)[()])
        order = [*axes, *kept_axes]
        turned = x.remapped(
            tuple([x.shape[k] for k in order]), [Place(0, order.index(k)) for k in range(x.ndim)]
        )

        def step(indices: Sequence[Extent], loads: Loads) -> None:
            element = conform(as_value(lift(turned.element(indices, loads))), dtype, ())
            target = indices[len(axes) :]
            out.store(target, combine(out.element(target, Loads()), element))

        run_nest(build, turned.shape, step, [turned])
    if keepdims:
        wide = tuple([1 if k in axes else x.shape[k] for k in range(x.ndim)])
        return out.remapped(wide, [Place(0, k) for k in kept_axes])
    return out


def _selection(lift: Callable[[Value], Value], neutral: Any, dtype: Any) -> Callable[..., Value]:
    """Return the function of a truth value and an element that is the term of a reduction of selected elements."""

    def term(holds: Value, element: Value) -> Value:
        return select(holds, conform(as_value(lift(element)), dtype, ()), np.asarray(neutral, dtype)[()])

    return term


def _is_short(extent: Extent) -> bool:
    return isinstance(extent, int) and extent <= 4


def _partial_places(ndim: int, kept_axes: Sequence[int], outer: Sequence[Extent]) -> list[Place]:
    """Return places that fix the kept axes, and leave the other ones in their order."""
    fixed = dict(zip(kept_axes, outer, strict=True))
    free = [k for k in range(ndim) if k not in fixed]
    return [Place(fixed[k]) if k in fixed else Place(0, free.index(k)) for k in range(ndim)]


def _total(x: Expression, term: Any, combine: Combine, neutral: Any, dtype: Any) -> Value:
    """Return all terms combined."""
    build = x.build
    start = as_value(np.asarray(neutral, dtype)[()])
    if is_unrolled(x.shape):
        terms = [term(index, Loads()) for index in np.ndindex(*x.shape)]  # type: ignore[arg-type] # they are numbers
        total = terms[0] if terms else start
        for one in terms[1:]:
            total = combine(total, one)
        return conform(as_value(total), dtype, ())
    total_so_far = build.variable("total", start, dtype)

    def body(indices: Sequence[Extent], loads: Loads) -> None:
        element = term(indices, loads)
        build.assign(total_so_far, combine(build.read(total_so_far), element))

    run_nest(build, x.shape, body, [x])
    return build.read(total_so_far)  # type: ignore[no-any-return]


def _selected(x: Expression, where: Any, otherwise: Any) -> Expression:
    if where is NO_VALUE or where is True:
        return x
    chosen = apply(x.build, np.where, where, x, np.asarray(otherwise, x.dtype)[()])
    if not (chosen.ndim == x.ndim and all(map(ix.same, chosen.shape, x.shape))):
        raise ValueError("the mask of a reduction has more elements than the array")
    return chosen  # type: ignore[no-any-return]


def _with_initial(combine: Combine, result: Any, initial: Any) -> Any:
    if initial is NO_VALUE or initial is None:
        return result
    if isinstance(result, Expression):
        return apply(result.build, combine, result, initial)
    return combine(result, as_value(initial))


def sum_(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = NO_VALUE,
) -> Any:
    """Follow `numpy.sum`."""
    dtype = sum_dtype(x.dtype) if dtype is None else np.dtype(dtype)
    return _with_initial(add, reduce(_selected(x, where, 0), add, 0, dtype, axis, keepdims), initial)


def prod(
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = NO_VALUE,
    where: Any = NO_VALUE,
) -> Any:
    """Follow `numpy.prod`."""
    dtype = sum_dtype(x.dtype) if dtype is None else np.dtype(dtype)
    return _with_initial(
        multiply, reduce(_selected(x, where, 1), multiply, 1, dtype, axis, keepdims), initial
    )


def extremum(x: Expression, largest: bool, axis: Any, keepdims: bool, initial: Any, where: Any) -> Any:
    """Reduce to the largest or the smallest element."""
    low, high = limits(x.dtype)
    start = low if largest else high
    combine = maximum if largest else minimum
    axes = reduced_axes(axis, x.ndim)
    check_mask_of_extremum(combine, where, initial)
    if initial is NO_VALUE:
        check_not_empty(x, axes, f"reduction operation {combine.name}")
    share = _extremum_with_shares if x.dtype.kind == "f" else reduce
    result = share(_selected(x, where, start), combine, start, x.dtype, axes, keepdims)
    return _with_initial(combine, result, initial)


def _extremum_with_shares(
    x: Expression, combine: Combine, start: Any, dtype: Any, axes: Sequence[int], keepdims: bool
) -> Any:
    """Return an extremum of which elements that tie share the derivative equally.

    Its value is the plain reduction, and its derivative that of the mean of the elements that equal it, which only derivatives compute.
    Those elements are recognised by their value: what is not in memory is stored as it is computed, since the same formula may be rounded
    in another way in another loop.
    """
    build = x.build
    unmasked = unselected(x)
    if unmasked is not None:
        x = apply(build, _selection(lambda value: value, start, dtype), unmasked[1], unmasked[0])
        axes = tuple(range(x.ndim))
    elements = x
    if not isinstance(x, ArrayView):
        elements = new_array(build, x.shape, dtype, temporary=True)
        x = _StoredWhenComputed(x, elements)
    kept_axes = [k for k in range(x.ndim) if k not in axes]
    wide = tuple([x.shape[k] if k in kept_axes else 1 for k in range(x.ndim)])
    best = reduce(x, combine, start, dtype, axes, False)
    level = best.remapped(wide, [Place(0, k) for k in kept_axes]) if kept_axes else best

    def sum_where_equal(value: Callable[[Value], Value]) -> Any:
        terms = apply(build, lambda x, best: select(equal(x, best), value(x), 0.0), elements, level)
        return reduce(terms, add, 0, dtype, axes, False)

    mean = divided(build, sum_where_equal(lambda x: x), sum_where_equal(lambda x: literal(1, dtype)))
    result = apply(build, with_tangent_of, best, mean)
    if not keepdims:
        return result
    if unmasked is not None:
        wide = (1,)
    return as_expression(build, result).remapped(wide, [Place(0, k) for k in kept_axes])


class _StoredWhenComputed(Expression):
    """An expression whose elements are stored in an array when they are computed."""

    def __init__(self, x: Expression, target: ArrayView) -> None:
        self.build, self.shape, self.dtype = x.build, x.shape, x.dtype
        self.x, self.target = x, target

    def remapped(self, shape: Shape, places: Sequence[Place]) -> _StoredWhenComputed:
        return _StoredWhenComputed(self.x.remapped(shape, places), self.target.remapped(shape, places))

    def element(self, indices: Sequence[Extent], loads: Loads) -> Value:
        value = self.x.element(indices, loads)
        self.target.store(indices, value)
        return value

    def views(self) -> Iterator[ArrayView | Formula]:
        return self.x.views()


def check_not_empty(x: Expression, axes: Sequence[int], operation: str) -> None:
    """Fail, now or when the code runs, if there is nothing to reduce."""
    size = ix.product([x.shape[k] for k in axes])
    if isinstance(size, int):
        if size == 0:
            raise ValueError(f"zero-size array to {operation} which has no identity")
    elif not ix.at_least(size, 1, x.build.counts):
        x.build.check(
            as_value(greater(size, 0)), "ValueError", f"zero-size array to {operation} which has no identity"
        )


def max_(
    x: Any, axis: Any = None, keepdims: bool = False, initial: Any = NO_VALUE, where: Any = NO_VALUE
) -> Any:
    """Follow `numpy.max`."""
    return extremum(x, True, axis, keepdims, initial, where)


def min_(
    x: Any, axis: Any = None, keepdims: bool = False, initial: Any = NO_VALUE, where: Any = NO_VALUE
) -> Any:
    """Follow `numpy.min`."""
    return extremum(x, False, axis, keepdims, initial, where)


def any_(x: Any, axis: Any = None, keepdims: bool = False, where: Any = NO_VALUE) -> Any:
    """Follow `numpy.any`."""
    return reduce(_selected(x, where, 0), lambda a, b: a | b, False, BOOL, axis, keepdims, truth)


def all_(x: Any, axis: Any = None, keepdims: bool = False, where: Any = NO_VALUE) -> Any:
    """Follow `numpy.all`."""
    return reduce(_selected(x, where, 1), lambda a, b: a & b, True, BOOL, axis, keepdims, truth)


def count_nonzero(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Follow `numpy.count_nonzero`."""
    return reduce(x, add, 0, INT64, axis, keepdims, truth)


def count_along(x: Expression, axis: Any) -> Extent:
    """Return the number of elements that a reduction combines."""
    return ix.product([x.shape[k] for k in reduced_axes(axis, x.ndim)])


def as_number(count: Extent, dtype: Any) -> Any:
    """Return an extent as a factor of numbers of a dtype."""
    return count if isinstance(count, int) else conform(count, np.dtype(dtype), ())


def divided(build: ProcedureBuilder, x: Any, y: Any) -> Any:
    return apply(build, np.true_divide, x, y)


def mean(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, where: Any = NO_VALUE) -> Any:
    """Follow `numpy.mean`."""
    if dtype is None:
        dtype = x.dtype if x.dtype.kind in "fc" else FLOAT64
    total = sum_(x, axis, dtype, keepdims, where=where)
    if where is NO_VALUE or where is True:
        part = np.dtype(dtype) if np.dtype(dtype).kind == "f" else FLOAT64
        return divided(x.build, total, as_number(count_along(x, axis), part))
    shown = as_expression(x.build, where).broadcast(x.shape)
    return divided(x.build, total, count_nonzero(shown, axis, keepdims))


def var(x: Any, axis: Any = None, dtype: Any = None, ddof: Any = 0, keepdims: bool = False) -> Any:
    """Follow `numpy.var`."""
    build = x.build
    if dtype is not None:
        x = apply(build, lambda value: conform(value, np.dtype(dtype), ()), x)
    centre = mean(x, axis, dtype, keepdims=True)
    centre = materialise(centre) if isinstance(centre, Expression) else centre
    deviation = apply(build, np.subtract, x, centre)
    if deviation.dtype.kind == "c":
        squares = apply(build, lambda z: real(z * conjugate(z)), deviation)
    else:
        squares = apply(build, np.square, deviation)
    part = squares.dtype
    count = as_number(count_along(x, axis), part)
    if isinstance(count, int) and isinstance(ddof, int):
        free: Any = max(count - ddof, 0)
    else:
        free = maximum(as_value(count) - as_value(ddof), 0)
    return divided(build, sum_(squares, axis, None, keepdims), free)


def std(x: Any, axis: Any = None, dtype: Any = None, ddof: Any = 0, keepdims: bool = False) -> Any:
    """Follow `numpy.std`."""
    return apply(x.build, root, var(x, axis, dtype, ddof, keepdims))


def position(x: Expression, largest: bool, axis: Any = None, keepdims: bool = False) -> Any:
    """Return where the first largest or smallest element is; a NaN counts as beyond all others."""
    build = x.build
    check_not_empty(x, reduced_axes(axis, x.ndim), "argmax or argmin")
    if axis is None or x.ndim == 0:
        result: Any = _position(x, largest)
        if not keepdims:
            return result
        out = new_array(build, (1,) * x.ndim, INT64)
        out.store((0,) * x.ndim, result)
        return out
    run = one_axis(axis, x.ndim)
    if x.ndim == 1:
        return _position(x, largest)
    kept_axes = [k for k in range(x.ndim) if k != run]
    shape = tuple([x.shape[k] for k in kept_axes])
    out = new_array(build, shape, INT64)

    def each(outer: Sequence[Extent], loads: Loads) -> None:
        out.store(
            outer, _position(x.remapped((x.shape[run],), _partial_places(x.ndim, kept_axes, outer)), largest)
        )

    run_nest(build, shape, each, inner=(x.shape[run],))
    if keepdims:
        wide = tuple([1 if k == run else x.shape[k] for k in range(x.ndim)])
        return out.remapped(wide, [Place(0, k) for k in kept_axes])
    return out


def argmax(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Follow `numpy.argmax`."""
    return position(x, True, axis, keepdims)


def argmin(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Follow `numpy.argmin`."""
    return position(x, False, axis, keepdims)


def first_extremum(x: Expression, largest: bool) -> Value:
    """Return what Python's ``max`` or ``min`` returns for the elements of an array of one axis: the first of equal ones.

    A NaN counts as neither larger nor smaller than any number.
    """
    check_not_empty(x, (0,), "max" if largest else "min")
    return x.element((_position(x, largest, nan_wins=False),), Loads())


def _position(x: Expression, largest: bool, nan_wins: bool = True) -> Value:
    build = x.build
    best = build.variable("best", x.element((0,) * x.ndim, Loads()), x.dtype)
    best_position = build.variable("place", 0, INT64)
    strides = ix.row_major(x.shape)

    def body(indices: Sequence[Extent], loads: Loads) -> None:
        element, so_far = x.element(indices, loads), build.read(best)
        better = greater(element, so_far) if largest else less(element, so_far)
        if nan_wins and x.dtype.kind in "fc":
            better = better | (isnan(element) & ~isnan(so_far))
        before = build.read(best_position)
        build.assign(best, select(better, element, so_far))
        build.assign(best_position, select(better, _flat(indices, strides), before))

    run_nest(build, x.shape, body, [x])
    return build.read(best_position)  # type: ignore[no-any-return]


def accumulate(x: Expression, combine: Combine, neutral: Any, dtype: Any, axis: Any) -> Any:
    """Return the prefixes of a reduction along an axis; without one, of the elements in row-major order."""
    build = x.build
    dtype = np.dtype(dtype)
    if axis is None and x.ndim == 1:
        axis = 0
    if axis is None:
        out = new_array(build, (x.size,), dtype)
        strides = ix.row_major(x.shape)
        accumulate_line(
            x, lambda indices, total: out.store((_flat(indices, strides),), total), combine, neutral, dtype
        )
        return out
    run = one_axis(axis, x.ndim)
    out = new_array(build, x.shape, dtype)
    kept_axes = [k for k in range(x.ndim) if k != run]

    def each(outer: Sequence[Extent], loads: Loads) -> None:
        places = _partial_places(x.ndim, kept_axes, outer)
        line, target = (array.remapped((x.shape[run],), places) for array in (x, out))
        accumulate_line(line, target.store, combine, neutral, dtype)

    run_nest(build, tuple([x.shape[k] for k in kept_axes]), each, inner=(x.shape[run],))
    return out


def _flat(indices: Sequence[Extent], strides: Sequence[Extent]) -> Extent:
    """Return the position of an element in row-major order."""
    at: Extent = 0
    for index, stride in zip(indices, strides, strict=True):
        at = ix.add(at, ix.multiply(index, stride))
    return at


def accumulate_line(line: Expression, store_at: Any, combine: Combine, neutral: Any, dtype: Any) -> None:
    """Store the prefixes of the elements of an array."""
    build = line.build
    so_far = build.variable("total", as_value(np.asarray(neutral, dtype)[()]), dtype)

    def body(indices: Sequence[Extent], loads: Loads) -> None:
        total = combine(build.read(so_far), conform(line.element(indices, loads), dtype, ()))
        build.assign(so_far, total)
        store_at(indices, total)

    run_nest(build, line.shape, body, [line])


def cumsum(x: Any, axis: Any = None, dtype: Any = None) -> Any:
    """Follow `numpy.cumsum`."""
    return accumulate(x, add, 0, sum_dtype(x.dtype) if dtype is None else dtype, axis)


def cumprod(x: Any, axis: Any = None, dtype: Any = None) -> Any:
    """Follow `numpy.cumprod`."""
    return accumulate(x, multiply, 1, sum_dtype(x.dtype) if dtype is None else dtype, axis)
