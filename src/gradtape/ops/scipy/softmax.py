"""``logsumexp`` and its kin: the maximum is taken out first, so that nothing overflows and infinities come
out right."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.types import is_inexact
from gradtape.kinds.arguments import NO_VALUE, as_array, kept_shape, reduced_axes
from gradtape.kinds.elementwise import Elementwise, Parts, elementwise, resolve
from gradtape.kinds.reduction import remaining
from gradtape.kinds.registry import borrows, implements_method, sample
from gradtape.ops.core.elementwise.arithmetic import add, subtract
from gradtape.ops.core.elementwise.cast import convert, stop_gradient
from gradtape.ops.core.elementwise.complex_parts import real
from gradtape.ops.core.elementwise.exponential import exp, exp2
from gradtape.ops.core.elementwise.floats import isfinite
from gradtape.ops.core.elementwise.inverse import log, log2
from gradtape.ops.core.elementwise.logic import equal
from gradtape.ops.core.elementwise.logistic import logaddexp, logaddexp2
from gradtape.ops.core.elementwise.select import where as select
from gradtape.ops.core.elementwise.signs import absolute, sign
from gradtape.ops.core.join import full
from gradtape.ops.core.reductions import reduce_max, reduce_sum
from gradtape.ops.core.shape import reshape, spread
from gradtape.ops.core.shift_rules import DIFFERENCE
from gradtape.ops.numpy.statistics.reductions import initial_value, masked


def _complex_below(x: Parts, m: Parts) -> Parts:
    same = equal(x[0], m[0]) & equal(x[1], m[1])
    return select(same, 0, x[0] - m[0]), select(same, 0, x[1] - m[1])


below = elementwise(
    "below",
    lambda x, m: np.where(x == m, 0, np.subtract(x, m)).astype(x.dtype),
    body=lambda x, m: select(equal(x, m), 0, x - m),
    complex_body=_complex_below,
    tangents=(lambda d, z, x, m: d, lambda d, z, x, m: -d),
    transpose=(lambda ct, x, m: ct, lambda ct, x, m: -ct),
    additive=(0, 1),
    dtypes=lambda *types: resolve(subtract, types),
    domain=((-3.0, 3.0), (3.0, 4.0)),
    edges=((np.inf, np.inf), (-np.inf, -np.inf), (-np.inf, 0.0), (1.0, 1.0), (np.nan, np.nan)),
    kinks="1 in x and -1 in m at infinity as well",
    dtype_samples="df",
    shift=DIFFERENCE,
)
"""``x - m`` for a maximum m: 0 at the maximum, even where that is infinite."""


def inexact(x: Value) -> Value:
    """Return numbers in the floating dtype in which NumPy takes their logarithm."""
    return x if is_inexact(x.dtype) else convert(x, np.result_type(x.dtype, np.float16))


def largest_of(x: Value, axes: tuple[int, ...]) -> Value:
    """Return the shift that avoids overflow: the maximum, for complex numbers that of the real parts."""
    largest = reduce_max(real(x) if x.dtype.kind == "c" else x, axes=axes)
    return stop_gradient(convert(largest, x.dtype))


def log_sum(
    x: Value, axes: tuple[int, ...], power: Elementwise, logarithm: Elementwise, factor: Value | None = None
) -> Value:
    """Return the logarithm of the sum of the powers of some base; the derivative is the softmax."""
    if any(x.shape[axis] == 0 for axis in axes):
        return full(remaining(x.shape, axes), -np.inf, x.dtype)
    if not axes:
        return x
    largest = largest_of(x, axes)  # It cancels: without it the derivative is the softmax.
    terms = power(below(x, spread(largest, x.shape, axes)))
    total = reduce_sum(terms if factor is None else terms * factor, axes=axes)
    return largest + logarithm(total)


def _reduce(row: Elementwise, power: Elementwise, logarithm: Elementwise) -> Any:
    def reduce(
        array: Any,
        axis: Any = 0,
        dtype: Any = None,
        keepdims: bool = False,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Value:
        x = as_array(array)
        x = inexact(x) if dtype is None else convert(x, np.dtype(dtype))
        resolve(row, (x.dtype, x.dtype))
        axes = reduced_axes(axis, x.ndim)
        result = log_sum(masked(x, where, -np.inf), axes, power, logarithm)
        result = reshape(result, kept_shape(x.shape, axes)) if keepdims else result
        return (
            result if initial is NO_VALUE or initial is None else row(initial_value(initial, x.dtype), result)
        )

    return reduce


INFINITE = np.array(
    [[np.inf, 1.0, 2.0], [-np.inf, -np.inf, -np.inf], [-np.inf, 0.0, 800.0], [np.nan, 1.0, 2.0]]
)
SUMS = (
    sample((3, 4)),
    sample((3, 4), axis=1, keepdims=True),
    sample((2, 3), axis=None),
    sample(INFINITE, axis=1),
    sample((3, 4), axis=1, where=np.array([True, False, True, True])),
    sample((3, 4), axis=1, initial=2.0),
)
implements_method("logaddexp", "reduce", samples=SUMS, dtypes="qfD")(_reduce(logaddexp, exp, log))
implements_method("logaddexp2", "reduce", samples=SUMS, dtypes="qfD")(_reduce(logaddexp2, exp2, log2))


@borrows("scipy.special.logsumexp")
def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """Return the logarithm of the sum of the exponentials, with factors `b`, as `scipy.special.logsumexp`."""
    x = as_array(a)
    x = x if is_inexact(x.dtype) else convert(x, np.dtype(float))
    factor = None
    if b is not None:
        factor = convert(as_array(b), x.dtype)
        shape = np.broadcast_shapes(x.shape, factor.shape)
        factor = add(factor, full(shape, 0, x.dtype))
        x = select(equal(factor, 0), convert(as_array(-np.inf), x.dtype), x)
    axes = reduced_axes(axis, x.ndim)
    results = _log_and_sign(x, axes, factor) if return_sign else (log_sum(x, axes, exp, log, factor),)
    found = tuple([reshape(r, kept_shape(x.shape, axes)) if keepdims else r for r in results])
    return found if return_sign else found[0]


def _log_and_sign(x: Value, axes: tuple[int, ...], factor: Value | None) -> tuple[Value, Value]:
    """Return the logarithm of the size of the sum, and its sign (of complex numbers, its direction)."""
    largest = spread(largest_of(x, axes), x.shape, axes)
    terms = exp(below(x, largest))
    total = reduce_sum(terms if factor is None else terms * factor, axes=axes)
    size = absolute(total)
    shift = reduce_max(real(largest) if x.dtype.kind == "c" else largest, axes=axes)
    return shift + log(size), sign(total)


@borrows("scipy.special.softmax")
def softmax(x: Any, axis: Any = None) -> Value:
    """Return the exponentials divided by their sum, as `scipy.special.softmax`."""
    array, largest, axes = _with_largest(x, axis)
    powers = exp(array - spread(largest, array.shape, axes))
    return powers / spread(reduce_sum(powers, axes=axes), array.shape, axes)


@borrows("scipy.special.log_softmax")
def log_softmax(x: Any, axis: Any = None) -> Value:
    """Return the logarithm of `softmax`, as `scipy.special.log_softmax`."""
    array, largest, axes = _with_largest(x, axis)
    shifted = array - spread(select(isfinite(largest), largest, 0), array.shape, axes)
    return shifted - spread(log(reduce_sum(exp(shifted), axes=axes)), shifted.shape, axes)


def _with_largest(x: Any, axis: Any) -> tuple[Value, Value, tuple[int, ...]]:
    array = as_array(x)
    array = array if is_inexact(array.dtype) else convert(array, np.dtype(float))
    axes = reduced_axes(axis, array.ndim)
    return array, largest_of(array, axes), axes
