"""Products of vectors and matrices, as loops in the order of memory; large ones of static shapes go to BLAS."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from string import ascii_letters
from typing import Any

import numpy as np

from gradtape.errors import ShapeError
from gradtape.ir.builder import here
from gradtape.kinds.operands import as_value, conform
from gradtape.kinds.registry import FUNCTIONS, UFUNCS
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.arrays.graphs import apply_graph
from gradtape.procedures.arrays.index_arithmetic import Extent
from gradtape.procedures.arrays.nests import as_view, is_unrolled, new_array, run_nest
from gradtape.procedures.arrays.reductions import sum_
from gradtape.procedures.arrays.shapes import reshape, transpose
from gradtape.procedures.arrays.view import (
    ArrayView,
    Expression,
    Loads,
    Place,
    apply,
    as_operand,
    common_shape,
)
from gradtape.procedures.builder import ProcedureBuilder

LARGE = 2**20
"""Products of at least so many multiplications in all, of static shapes, are array computations."""

WORTH_A_CALL = 2**12
"""So are those with so many multiplications for each matrix: array computations multiply in tiles, or by BLAS.

Measured on 50 steps with a product of matrices of n rows and columns, value and gradient, by loops and by array computations: n = 12 130
and 180 microseconds, n = 16 105 and 77, n = 32 547 and 366, n = 64 3850 and 2110 (first call 2.0 s and 0.5 s), n = 80 34700 and 5200.
"""

SHORT = 8
"""Products with fewer rows, columns or terms are loops."""


def dot(build: ProcedureBuilder, a: Any, b: Any) -> Any:
    """Follow `numpy.dot`."""
    x, y = as_operand(build, a), as_operand(build, b)
    if not (isinstance(x, Expression) and isinstance(y, Expression) and x.ndim and y.ndim):
        return apply(build, np.multiply, x, y)
    if y.ndim <= 2:
        return matmul(build, x, y)
    letters = "abcdefghijklmnopqrstuvwxy"
    left, right = letters[: x.ndim - 1] + "z", letters[x.ndim - 1 :][: y.ndim - 2] + "z" + letters[-1]
    return einsum(build, f"{left},{right}->{left[:-1]}{right.replace('z', '')}", x, y)


def matmul(build: ProcedureBuilder, a: Any, b: Any) -> Any:
    """Follow `numpy.matmul`; a product of two vectors is a number."""
    x, y = as_operand(build, a), as_operand(build, b)
    if not (isinstance(x, Expression) and isinstance(y, Expression) and x.ndim and y.ndim):
        raise ValueError("matmul: an input operand does not have enough dimensions")
    check_equal(build, x.shape[-1], y.shape[-2 if y.ndim > 1 else 0], "matmul")
    if x.ndim == 1 and y.ndim == 1:
        return sum_(apply(build, np.multiply, x, y), dtype=np.result_type(x.dtype, y.dtype))
    if x.ndim > 2 and y.ndim == 2:
        rows = ix.product(x.shape[:-1])
        return reshape(matmul(build, reshape(x, (rows, x.shape[-1])), y), (*x.shape[:-1], y.shape[-1]))
    if x.ndim > 1 and y.ndim > 1 and _is_large(build, x, y):
        return apply_graph(build, UFUNCS["matmul"], (x, y), {})
    if x.ndim == 2 and y.ndim == 1:
        return matrix_vector(as_view(build, x), as_view(build, y))
    if x.ndim == 1 and y.ndim == 2:
        return matrix_vector(transpose(as_view(build, y)), as_view(build, x))
    return batched_matmul(build, as_view(build, x), as_view(build, y))


def _is_large(build: ProcedureBuilder, x: Expression, y: Expression) -> bool:
    """Return whether an array computation is worth its call for a product of matrices of static shapes."""
    if ix.static_shape(x.shape) is None or ix.static_shape(y.shape) is None:
        return False
    batch = common_shape(build, [x.shape[:-2], y.shape[:-2]])
    return _is_worth_a_call(batch, (x.shape[-2], x.shape[-1], y.shape[-1]))


def _is_worth_a_call(batch: Sequence[Extent], extents: Sequence[Extent]) -> bool:
    """Return whether products of matrices with these rows, terms and columns are array computations."""
    sizes, count = ix.static_shape(tuple(extents)), ix.static_shape(tuple(batch))
    if sizes is None or count is None or min(sizes) < SHORT:
        return False
    work = math.prod(sizes)
    return work >= WORTH_A_CALL or work * math.prod(count) >= LARGE


def check_equal(build: ProcedureBuilder, x: Extent, y: Extent, operation: str) -> None:
    """Fail, now or when the code runs, if two extents differ."""
    same = ix.is_equal(x, y)
    if same is False:
        raise ShapeError(f"{operation}: inner dimensions do not match: {x} and {y}", where=here.site)
    if same is not True:
        build.check(as_value(same), "ValueError", f"{operation}: inner dimensions do not match")


def matrix_vector(a: ArrayView, x: ArrayView) -> ArrayView:
    """Return ``a @ x``, by rows or by columns as the matrix stands in memory."""
    build = a.build
    dtype = np.result_type(a.dtype, x.dtype)
    rows, columns = a.shape
    if _is_one(a.strides[0]) and not _is_one(a.strides[1]) and not _is_few(rows):
        result = new_array(build, (rows,), dtype, zero=True)

        def columns_from(start: Extent, count: int) -> None:
            def step(indices: Sequence[Extent], loads: Loads) -> None:
                (i,) = indices
                total = result.element((i,), Loads())
                for k, factor in zip(places, factors, strict=True):
                    total = total + a.element((i, k), Loads()) * factor
                result.store((i,), total)

            places = [ix.add(start, offset) for offset in range(count)]
            factors = [x.element((k,), Loads()) for k in places]
            run_nest(build, (rows,), step)

        in_groups(build, columns, columns_from)
        return result

    result = new_array(build, (rows,), dtype)

    def row(indices: Sequence[Extent], loads: Loads) -> None:
        line = a.remapped((columns,), [Place(indices[0]), Place(0, 0)])
        result.store(indices, sum_(apply(build, np.multiply, line, x), dtype=dtype))

    run_nest(build, (rows,), row, inner=(columns,))
    return result


TOGETHER = 4
"""As many rows are added to a row of a result at once: it is loaded and stored that much less."""


def in_groups(build: ProcedureBuilder, count: Extent, body: Callable[[Extent, int], None]) -> None:
    """Append ``body(k, n)`` for groups of `n` indices that begin at k, and the last ones one by one."""
    groups = ix.floor_divide(count, TOGETHER)
    done = ix.multiply(groups, TOGETHER)
    if not (isinstance(groups, int) and groups == 0):
        with build.loop(groups) as group:
            body(ix.multiply(group, TOGETHER), TOGETHER)
    remainder = ix.subtract(count, done)
    if not (isinstance(remainder, int) and remainder == 0):
        with build.loop(remainder) as k:
            body(ix.add(done, k), 1)


def _is_one(stride: Extent) -> bool:
    return isinstance(stride, int) and stride == 1


def _is_few(extent: Extent) -> bool:
    return isinstance(extent, int) and extent <= 4


def batched_matmul(build: ProcedureBuilder, a: ArrayView, b: ArrayView) -> Any:
    """Return products of matrices: for each row of the result, rows of `b` are added up."""
    left = a.remapped((1, *a.shape), [Place(0, k + 1) for k in range(a.ndim)]) if a.ndim == 1 else a
    right = b.remapped((*b.shape, 1), [Place(0, k) for k in range(b.ndim)]) if b.ndim == 1 else b
    batch = common_shape(build, [left.shape[:-2], right.shape[:-2]])
    m, p, n = left.shape[-2], left.shape[-1], right.shape[-1]
    left, right = left.broadcast((*batch, m, p)), right.broadcast((*batch, p, n))
    dtype = np.result_type(a.dtype, b.dtype)
    unrolled = is_unrolled((*batch, m, p, n))
    by_rows = _is_one(right.strides[-1]) or not _is_one(right.strides[-2])
    out = new_array(build, (*batch, m, n), dtype, zero=by_rows and not unrolled)
    if by_rows and not unrolled:

        def rows_of_result(outer: Sequence[Extent], loads: Loads) -> None:
            def rows_from(start: Extent, count: int) -> None:
                def step(indices: Sequence[Extent], loads: Loads) -> None:
                    index = (*outer, indices[0])
                    total = out.element(index, Loads())
                    for k, factor in zip(places, factors, strict=True):
                        total = total + conform(
                            factor * right.element((*outer[:-1], k, indices[0]), Loads()), dtype, ()
                        )
                    out.store(index, total)

                places = [ix.add(start, offset) for offset in range(count)]
                factors = [left.element((*outer, k), Loads()) for k in places]
                run_nest(build, (n,), step)

            in_groups(build, p, rows_from)

        run_nest(build, (*batch, m), rows_of_result, inner=(p, n))
        return _without_added(out, a, b)

    def each(indices: Sequence[Extent], loads: Loads) -> None:
        row = left.remapped((p,), [*[Place(i) for i in indices[:-1]], Place(0, 0)])
        column = right.remapped((p,), [*[Place(i) for i in indices[:-2]], Place(0, 0), Place(indices[-1])])
        out.store(indices, sum_(apply(build, np.multiply, row, column), dtype=dtype))

    run_nest(build, out.shape, each, inner=(p,))
    return _without_added(out, a, b)


def _without_added(out: ArrayView, a: ArrayView, b: ArrayView) -> ArrayView:
    """Return a product without the axis that a vector was given."""
    kept_axes = [
        k
        for k in range(out.ndim)
        if not (a.ndim == 1 and k == out.ndim - 2) and not (b.ndim == 1 and k == out.ndim - 1)
    ]
    if len(kept_axes) == out.ndim:
        return out
    positions = [Place(0, kept_axes.index(k)) if k in kept_axes else Place(0) for k in range(out.ndim)]
    return out.remapped(tuple([out.shape[k] for k in kept_axes]), positions)


def outer(build: ProcedureBuilder, function: Any, a: Any, b: Any) -> Any:
    """Apply a ufunc to all pairs of elements, as a deferred expression."""
    x, y = as_operand(build, a), as_operand(build, b)
    if isinstance(x, Expression) and isinstance(y, Expression):
        x = x.remapped((*x.shape, *[1] * y.ndim), [Place(0, k) for k in range(x.ndim)])
    return apply(build, function, x, y)


def einsum(build: ProcedureBuilder, subscripts: Any, *operands: Any) -> Any:
    """Follow `numpy.einsum`: a large product goes to BLAS, others are a loop nest."""
    arrays: list[Any] = [as_operand(build, x) if isinstance(x, Expression) else x for x in operands]
    if len(arrays) == 1 and isinstance(subscripts, str) and isinstance(arrays[0], Expression):
        subscripts = _with_letters(subscripts, arrays[0].ndim)  # the result may be a view
    extents = _extents_by_letter(build, subscripts, arrays)
    if extents is None:
        return apply_graph(build, FUNCTIONS[np.einsum], (subscripts, *arrays), {})
    operand_subscripts, arrow, result = subscripts.replace(" ", "").partition("->")
    terms = operand_subscripts.split(",")
    if not arrow:
        letters = "".join(terms)
        result = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    summed = [letter for letter in extents if letter not in result]
    order = [*result, *summed]
    shape = tuple([extents[letter] for letter in order])
    work = ix.product(shape)
    is_large = isinstance(work, int) and work >= LARGE and len(arrays) > 1
    if is_large or (len(arrays) == 2 and _is_matrix_product(extents, terms, result)):
        return apply_graph(build, FUNCTIONS[np.einsum], (subscripts, *arrays), {})
    spread = []
    for term, x in zip(terms, arrays, strict=True):
        x = as_view(build, x) if len(term) < len(order) else x
        positions = [
            Place(0) if extent == 1 and extents[letter] != 1 else Place(0, order.index(letter))
            for letter, extent in zip(term, x.shape, strict=True)
        ]
        spread.append(x.remapped(shape, positions))
    total = spread[0]
    for x in spread[1:]:
        total = apply(build, np.multiply, total, x)
    axes = tuple(range(len(result), len(order)))
    return sum_(total, axis=axes, dtype=total.dtype) if axes else total


def _with_letters(subscripts: str, ndim: int) -> str:
    """Return the subscripts of one operand with letters in place of an ellipsis; as they are, if NumPy refuses them."""
    operand_subscripts, arrow, result = subscripts.replace(" ", "").partition("->")
    letters = operand_subscripts.replace("...", "", 1)
    if not arrow:
        result = "..." + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    unused = [letter for letter in ascii_letters if letter not in subscripts]
    count = ndim - len(letters)
    if "..." not in operand_subscripts or "..." not in result or not 0 <= count <= len(unused):
        return subscripts
    names = "".join(unused[:count])
    return f"{operand_subscripts.replace('...', names)}->{result.replace('...', names)}"


def _is_matrix_product(extents: dict[str, Extent], terms: Sequence[str], result: str) -> bool:
    """Return whether the product of two arrays is one of matrices that is worth a call."""
    static = ix.static_shape(tuple(extents.values()))
    if static is None:
        return False
    sizes = dict(zip(extents, static, strict=True))
    first, second, third = set(terms[0]), set(terms[1]), set(result)
    batch = first & second & third
    parts = [(first & third) - batch, (first & second) - batch, (second & third) - batch]
    if not all(parts) or set().union(batch, *parts) != set(extents):
        return False
    groups = [math.prod([sizes[letter] for letter in part]) for part in parts]
    return _is_worth_a_call([sizes[letter] for letter in batch], groups)


def _extents_by_letter(
    build: ProcedureBuilder, subscripts: Any, arrays: Sequence[Any]
) -> dict[str, Extent] | None:
    """Return the extent of each letter of plain subscripts, which have no ellipsis; None for others."""
    if not isinstance(subscripts, str) or not all(isinstance(x, Expression) for x in arrays):
        return None
    operand_subscripts, _, result = subscripts.replace(" ", "").partition("->")
    terms = operand_subscripts.split(",")
    plain = all(term.isalpha() or not term for term in terms) and (result.isalpha() or not result)
    if not plain or [len(term) for term in terms] != [x.ndim for x in arrays]:
        return None
    extents: dict[str, Extent] = {}
    for term, x in zip(terms, arrays, strict=True):
        for letter, extent in zip(term, x.shape, strict=True):
            if letter in extents and extents[letter] != 1:
                if extent != 1:
                    check_equal(build, extents[letter], extent, "einsum")
            else:
                extents[letter] = extent
    return extents if set(result) <= set(extents) and len(set(result)) == len(result) else None


def tensordot(build: ProcedureBuilder, a: Any, b: Any, axes: Any = 2) -> Any:
    """Follow `numpy.tensordot`."""
    x, y = as_operand(build, a), as_operand(build, b)
    assert isinstance(x, Expression) and isinstance(y, Expression)
    if isinstance(axes, int):
        first, second = list(range(x.ndim - axes, x.ndim)), list(range(axes))
    else:
        first, second = ([k] if isinstance(k, int) else list(k) for k in axes)
    first, second = [k % x.ndim for k in first], [k % y.ndim for k in second]
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    left = [next(letters) for _ in range(x.ndim)]
    right = [left[first[second.index(k)]] if k in second else next(letters) for k in range(y.ndim)]
    result = [letter for k, letter in enumerate(left) if k not in first]
    result += [letter for k, letter in enumerate(right) if k not in second]
    return einsum(build, f"{''.join(left)},{''.join(right)}->{''.join(result)}", x, y)
