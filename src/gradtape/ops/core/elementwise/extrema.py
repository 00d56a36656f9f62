"""The larger, the smaller, and the nearest within bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value, literal, number_of
from gradtape.kinds.elementwise import Instruction, Parts, elementwise, is_opposite, result_dtype
from gradtape.ops.core.elementwise.floats import complex_isnan, isnan
from gradtape.ops.core.elementwise.logic import (
    complex_greater_equal,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
)
from gradtape.ops.core.elementwise.select import complex_where, where
from gradtape.ops.core.shift_rules import extremum

inf, nan = np.inf, np.nan
PAIR = ((-3.0, 3.0), (-3.0, 3.0))
EDGES = ((1.0, 1.0), (nan, 1.0), (1.0, nan), (nan, nan), (inf, -inf), (inf, inf), (0.0, 1.0))
NUMBERS = "dfblBQ?"


def _shared(d: Value, x: Value, y: Value) -> Value:
    """Return the tangent of an operand that is chosen: half of it where the two tie."""
    return where(equal(x, y), literal(0.5, d.dtype), literal(1.0, d.dtype)) * d


def _complex_maximum(x: Parts, y: Parts) -> Parts:
    return complex_where(complex_isnan(x) | complex_greater_equal(x, y), x, y)


def _complex_minimum(x: Parts, y: Parts) -> Parts:
    return complex_where(complex_isnan(x) | complex_greater_equal(y, x), x, y)


def _magnitude_of_pair(x: Value, y: Value) -> Value | None:
    """The larger or the smaller one of two opposite numbers is either of them up to its sign."""
    return x if is_opposite(x, y) else None


maximum = elementwise(
    "maximum",
    np.maximum,
    body=Instruction("llvm.maximum", "llvm.smax", "llvm.umax", "or"),
    is_idempotent=True,
    complex_body=_complex_maximum,
    tangents=(
        lambda d, z, x, y: where(less(x, y), 0.0, _shared(d, x, y)),
        lambda d, z, x, y: where(less(y, x), 0.0, _shared(d, x, y)),
    ),
    finite_derivatives=True,
    magnitude_of=_magnitude_of_pair,
    domain=PAIR,
    edges=EDGES,
    slopes=(
        ((1.0, 1.0), (0.5, 0.5)),
        ((inf, inf), (0.5, 0.5)),
        ((2.0, 1.0), (1.0, 0.0)),
        ((1.0, 2.0), (0.0, 1.0)),
    ),
    kinks="ties 0.5 each",
    dtype_samples=NUMBERS,
    shift=extremum,
)
minimum = elementwise(
    "minimum",
    np.minimum,
    body=Instruction("llvm.minimum", "llvm.smin", "llvm.umin", "and"),
    is_idempotent=True,
    complex_body=_complex_minimum,
    tangents=(
        lambda d, z, x, y: where(less(y, x), 0.0, _shared(d, x, y)),
        lambda d, z, x, y: where(less(x, y), 0.0, _shared(d, x, y)),
    ),
    finite_derivatives=True,
    magnitude_of=_magnitude_of_pair,
    domain=PAIR,
    edges=EDGES,
    slopes=(
        ((1.0, 1.0), (0.5, 0.5)),
        ((-inf, -inf), (0.5, 0.5)),
        ((2.0, 1.0), (0.0, 1.0)),
        ((1.0, 2.0), (1.0, 0.0)),
    ),
    kinks="ties 0.5 each",
    dtype_samples=NUMBERS,
    shift=extremum,
)
fmax = elementwise(
    "fmax",
    np.fmax,
    body=lambda x, y: where(greater_equal(x, y) | isnan(y), x, y),
    complex_body=lambda x, y: complex_where(complex_isnan(y) | complex_greater_equal(x, y), x, y),
    tangents=(
        lambda d, z, x, y: where(greater_equal(x, y) | isnan(y), _shared(d, x, y), 0.0),
        lambda d, z, x, y: where(greater_equal(y, x) | isnan(x), _shared(d, x, y), 0.0),
    ),
    finite=True,
    magnitude_of=_magnitude_of_pair,
    domain=PAIR,
    edges=EDGES,
    slopes=(
        ((1.0, 1.0), (0.5, 0.5)),
        ((nan, 1.0), (0.0, 1.0)),
        ((1.0, nan), (1.0, 0.0)),
        ((2.0, 1.0), (1.0, 0.0)),
    ),
    kinks="ties 0.5 each; NaN is ignored",
    dtype_samples=NUMBERS,
    shift=extremum,
)
fmin = elementwise(
    "fmin",
    np.fmin,
    body=lambda x, y: where(greater_equal(y, x) | isnan(y), x, y),
    complex_body=lambda x, y: complex_where(complex_isnan(y) | complex_greater_equal(y, x), x, y),
    tangents=(
        lambda d, z, x, y: where(greater_equal(y, x) | isnan(y), _shared(d, x, y), 0.0),
        lambda d, z, x, y: where(greater_equal(x, y) | isnan(x), _shared(d, x, y), 0.0),
    ),
    finite=True,
    magnitude_of=_magnitude_of_pair,
    domain=PAIR,
    edges=EDGES,
    slopes=(
        ((1.0, 1.0), (0.5, 0.5)),
        ((nan, 1.0), (0.0, 1.0)),
        ((1.0, nan), (1.0, 0.0)),
        ((2.0, 1.0), (0.0, 1.0)),
    ),
    kinks="ties 0.5 each; NaN is ignored",
    dtype_samples=NUMBERS,
    shift=extremum,
)


def _clip_dtypes(x: Any, low: Any, high: Any) -> tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]:
    out = result_dtype(x, low, high)
    return (out, out, out), out


def _clip_body(x: Value, low: Value, high: Value) -> Value:
    raised = x if number_of(low) == -inf else maximum(x, low)
    return raised if number_of(high) == inf else minimum(raised, high)


clip = elementwise(
    "clip",
    np.clip,
    body=_clip_body,
    complex_body=lambda x, low, high: _complex_minimum(_complex_maximum(x, low), high),
    tangents=(
        lambda d, z, x, low, high: where(less(x, low) | greater(x, high), 0.0, d),
        lambda d, z, x, low, high: where(less(x, low) & less_equal(low, high), d, 0.0),
        lambda d, z, x, low, high: where(greater(x, high) | greater(low, high), d, 0.0),
    ),
    dtypes=_clip_dtypes,
    finite=True,
    domain=((-3.0, 3.0), (-2.0, -0.5), (0.5, 2.0)),
    edges=(
        (1.0, 1.0, 2.0),
        (2.0, 1.0, 2.0),
        (nan, 0.0, 1.0),
        (0.5, nan, 1.0),
        (0.5, 2.0, 1.0),
        (inf, -1.0, 1.0),
        (-inf, -inf, inf),
    ),
    slopes=(
        ((1.0, 1.0, 2.0), (1.0, 0.0, 0.0)),
        ((2.0, 1.0, 2.0), (1.0, 0.0, 0.0)),
        ((0.0, 1.0, 2.0), (0.0, 1.0, 0.0)),
        ((3.0, 1.0, 2.0), (0.0, 0.0, 1.0)),
        ((0.0, 2.0, 1.0), (0.0, 0.0, 1.0)),
        ((inf, -inf, inf), (1.0, 0.0, 0.0)),
    ),
    kinks="1 on the closed interval",
    dtype_samples="dfbl",
)
