"""Polynomials as arrays of coefficients, the highest power first."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.types import FLOAT64, is_inexact
from gradtape.kinds.arguments import as_array, as_int
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.registry import FUNCTIONS, borrows, implements, sample
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import conjugate, real
from gradtape.ops.core.elementwise.logic import less_equal
from gradtape.ops.core.elementwise.signs import absolute
from gradtape.ops.core.indexing import getitem
from gradtape.ops.core.join import full, join
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.edit import count_of_leading, trimmed
from gradtape.ops.numpy.arrays.shape import atleast_1d
from gradtape.ops.numpy.linalg.factors import is_zero
from gradtape.ops.numpy.statistics.calculus import convolve


def _coefficients(p: Any) -> Value:
    coefficients = as_array(p.coeffs if isinstance(p, np.poly1d) else p)
    if coefficients.ndim == 0:
        raise TypeError("the coefficients of a polynomial are an array, not a number")
    return coefficients


@implements(
    np.polyval,
    samples=(sample((4,), (2, 3)), sample([1, 2, 0.5], (3,)), sample((3,), 2.0), sample((1,), (2,))),
)
def polyval(p: Any, x: Any) -> Value:
    """Follow `numpy.polyval`, by Horner's rule."""
    coefficients, points = _coefficients(p), as_array(x)
    dtype = np.result_type(coefficients.dtype, points.dtype)
    if coefficients.shape[0] == 0:
        return full(points.shape, 0, points.dtype)
    first = convert(getitem(coefficients, 0), dtype)
    value = broadcast_to(first, np.broadcast_shapes(first.shape, points.shape))
    for k in range(1, coefficients.shape[0]):
        value = value * points + getitem(coefficients, k)
    return value


def _sum(a1: Any, a2: Any, sign: int) -> Value:
    first: Value = atleast_1d(a1)
    second: Value = atleast_1d(a2)
    difference = second.shape[0] - first.shape[0]
    if difference > 0:
        first = join([full((difference,), 0, first.dtype), first], 0)
    elif difference < 0:
        second = join([full((-difference,), 0, second.dtype), second], 0)
    return first + second if sign > 0 else first - second


@implements(np.polymul)
def polymul(a1: Any, a2: Any) -> Value:
    """Follow `numpy.polymul`; leading coefficients that are zero are cut off only where they are no part of a derivative."""
    return convolve(
        *[_without_leading_zeros(np.atleast_1d(a) if not isinstance(a, Value) else a) for a in (a1, a2)]
    )


def _without_leading_zeros(coefficients: Any) -> Any:
    if isinstance(coefficients, Value):
        vector: Value = atleast_1d(coefficients)
        if is_inexact(vector.dtype):
            return vector
        kept = getitem(vector, trimmed(vector, "f"))
        return kept if kept.size else getitem(vector, slice(-1, None))
    kept = np.trim_zeros(coefficients, "f")
    return kept if kept.size else coefficients[-1:]


@implements(np.roots)
def roots(p: Any) -> Value:
    """Follow `numpy.roots`: the eigenvalues of the companion matrix. In a trace, how many coefficients at the ends are zero is guarded."""
    coefficients: Value = atleast_1d(p)
    if coefficients.ndim != 1:
        raise ValueError("Input must be a rank-1 array.")
    coefficients = coefficients if is_inexact(coefficients.dtype) else convert(coefficients, FLOAT64)
    (kept,) = trimmed(coefficients)
    inner = getitem(coefficients, kept)
    zeros = coefficients.size - kept.indices(coefficients.size)[1] if inner.size else 0
    degree = inner.size - 1
    if degree < 1:
        return full((zeros,), 0, coefficients.dtype if zeros else FLOAT64)
    first = reshape(-getitem(inner, slice(1, None)) / getitem(inner, 0), (1, degree))
    shifts = as_array(np.eye(degree - 1, degree, dtype=coefficients.dtype))
    found = _eigenvalues(join([first, shifts], 0))
    return join([found, full((zeros,), 0, found.dtype)], 0) if zeros else found


@borrows("numpy.polynomial.polyutils.trimcoef")
def trimcoef(c: Any, tol: Any = 0) -> Value:
    """Follow `numpy.polynomial.polyutils.trimcoef`. In a trace, how many coefficients are cut off is guarded."""
    if isinstance(tol, int | float) and tol < 0:
        raise ValueError("tol must be non-negative")
    coefficients: Value = atleast_1d(c)
    coefficients = coefficients if is_inexact(coefficients.dtype) else convert(coefficients, FLOAT64)
    small = less_equal(absolute(getitem(coefficients, slice(None, None, -1))), tol)
    count = count_of_leading(small)
    if count == coefficients.size:
        return getitem(coefficients, slice(0, 1)) * 0
    return getitem(coefficients, slice(0, coefficients.size - count))


PAIRS = (sample((3,), (2,)), sample((2,), (4,)), sample((2,), (2,)), sample((), (2,)))


@implements(np.polyadd, samples=PAIRS)
def polyadd(a1: Any, a2: Any) -> Value:
    """Follow `numpy.polyadd`."""
    return _sum(a1, a2, 1)


@implements(np.polysub, samples=PAIRS, dtypes="bBqf")
def polysub(a1: Any, a2: Any) -> Value:
    """Follow `numpy.polysub`."""
    return _sum(a1, a2, -1)


@implements(
    np.polyder,
    samples=(sample((4,)), sample((4,), 2), sample((2,), 3), sample((3,), 0), sample((3,), -1)),
    dtypes="bBqf",
)
def polyder(p: Any, m: Any = 1) -> Value:
    """Follow `numpy.polyder`."""
    times = as_int(m, "m")
    if times < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    coefficients = _coefficients(p)
    for _ in range(times):
        degree = coefficients.shape[0] - 1
        powers = np.arange(max(degree, 0), 0, -1)
        coefficients = getitem(coefficients, slice(None, -1)) * as_array(powers)
    return coefficients


@implements(
    np.polyint,
    samples=(
        sample((3,)),
        sample((3,), 2, [1.0, 2.0]),
        sample((3,), 3, [1.0, 2.0]),
        sample((3,), 1, 4.0),
        sample((3,), 2, 4.0),
        sample((2,), 0),
        sample((3,), -1),
    ),
)
def polyint(p: Any, m: Any = 1, k: Any = None) -> Value:
    """Follow `numpy.polyint`."""
    times = as_int(m, "m")
    if times < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    if times == 0:
        return as_array(p)
    constants = full((times,), 0, FLOAT64) if k is None else atleast_1d(k)
    if constants.shape[0] == 1 and times > 1:
        constants = broadcast_to(reshape(constants, ()), (times,))
    if constants.shape[0] < times:
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    coefficients = _coefficients(p)
    for step in range(times):
        divided = coefficients / as_array(np.arange(coefficients.shape[0], 0, -1))
        last = getitem(constants, slice(step, step + 1))
        dtype = np.result_type(divided.dtype, last.dtype)
        coefficients = join([convert(divided, dtype), convert(last, dtype)], 0)
    return coefficients


def _eigenvalues(matrix: Value) -> Value:
    if matrix.size == 1:
        return reshape(matrix, (1,))
    return cast(Value, FUNCTIONS[np.linalg.eigvals](matrix))


@implements(np.poly, samples=(sample((3,)), sample((1,)), sample(np.ones((2, 3)))), dtypes="qf")
def poly(seq_of_zeros: Any) -> Value:
    """Follow `numpy.poly`: coefficients are real for real matrices, and for zeros whose conjugates are zeros too, which is guarded."""
    zeros = as_array(seq_of_zeros)
    if zeros.ndim == 0:
        raise TypeError("the zeros of a polynomial are an array, not a number")
    of_real_matrix = False
    if zeros.ndim == 2 and zeros.shape[0] == zeros.shape[1] and zeros.size:
        of_real_matrix = zeros.dtype.kind != "c"
        zeros = _eigenvalues(zeros)
    if zeros.ndim != 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    zeros = zeros if is_inexact(zeros.dtype) else convert(zeros, FLOAT64)
    dtype = zeros.dtype
    if zeros.size == 0:
        return as_array(1.0)
    result = full((1,), 1, dtype)
    for k in range(zeros.size):
        factor = join([full((1,), 1, dtype), -getitem(zeros, slice(k, k + 1))], 0)
        result = convolve(result, factor)
    if dtype.kind == "c" and (of_real_matrix or _in_conjugate_pairs(zeros)):
        return real(result)
    return result


def _in_conjugate_pairs(zeros: Value) -> bool:
    order = FUNCTIONS[np.sort]
    return is_zero(order(zeros) - order(conjugate(zeros)))
