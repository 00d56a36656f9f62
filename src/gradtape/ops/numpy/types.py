"""Questions about types and about equality."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.types import BOOL, INT64
from gradtape.kinds.arguments import as_array, concrete
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.complex_parts import imag, real
from gradtape.ops.core.elementwise.floats import isnan
from gradtape.ops.core.elementwise.logic import equal, less
from gradtape.ops.core.elementwise.signs import fabs
from gradtape.ops.core.join import full
from gradtape.ops.numpy.elementwise import isclose
from gradtape.ops.numpy.statistics.reductions import all_


def stand_in(argument: Any) -> Any:
    """Return what promotes like an argument: an empty array, or a Python number for a weak value."""
    if not isinstance(argument, Value):
        return argument
    if argument.aval.weak:
        return {"i": int, "f": float, "c": complex, "b": bool}[argument.dtype.kind](0)
    return np.broadcast_to(np.zeros((), argument.dtype), argument.shape)


@implements(np.result_type, samples=(sample((2,), "f4"), sample((2,), 1.0), sample((2,), np.ones(2, "i1"))))
def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """Follow `numpy.result_type`."""
    return np.result_type(*map(stand_in, arrays_and_dtypes))


@implements(np.can_cast)
def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """Follow `numpy.can_cast`."""
    return np.can_cast(from_.dtype if isinstance(from_, Value) else from_, to, casting)


@implements(np.common_type, samples=(sample((2,)), sample((2,), (3,)), sample((2,), np.ones(2, "f"))))
def common_type(*arrays: Any) -> Any:
    """Follow `numpy.common_type`."""
    return np.common_type(*map(stand_in, arrays))


@implements(np.min_scalar_type)
def min_scalar_type(a: Any, /) -> np.dtype[Any]:
    """Follow `numpy.min_scalar_type`, for which a scalar's number must be known."""
    return a.dtype if isinstance(a, Value) and a.ndim else np.min_scalar_type(concrete(a, "a"))


@implements(np.iscomplexobj, samples=(sample((2,)),))
def iscomplexobj(x: Any) -> bool:
    """Follow `numpy.iscomplexobj`."""
    return as_array(x).dtype.kind == "c"


@implements(np.isrealobj, samples=(sample((2,)),))
def isrealobj(x: Any) -> bool:
    """Follow `numpy.isrealobj`."""
    return not iscomplexobj(x)


@implements(np.real_if_close, samples=(sample((2,)),), dtypes="qf")
def real_if_close(a: Any, tol: Any = 100) -> Value:
    """Follow `numpy.real_if_close`; in a trace, whether a complex array is close to a real one is guarded."""
    x = as_array(a)
    if x.dtype.kind != "c":
        return x
    largest = tol * float(np.finfo(x.dtype).eps) if tol > 1 else tol
    close = convert(all_(less(fabs(imag(x)), largest)), INT64)
    return real(x) if concrete(close, "a") else x


@implements(
    np.allclose,
    samples=(
        sample((2, 3), (3,)),
        sample(np.array([1.0, np.nan]), np.array([1.0 + 1e-9, np.nan]), equal_nan=True),
        sample(np.array([1.0, np.nan]), np.array([1.0, 2.0]), equal_nan=True),
        sample(np.array([1.0, 2.0]), np.array([1.0, np.nan]), equal_nan=True),
        sample(np.ones(2), np.ones(2)),
    ),
    smooth=False,
)
def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Value:
    """Follow `numpy.allclose`."""
    return all_(isclose(a, b, rtol, atol, equal_nan))


@implements(
    np.array_equal,
    samples=(
        sample((2, 3), (3,)),
        sample((2, 3), (2, 3)),
        sample(np.array([1.0, np.nan]), np.array([1.0, np.nan]), equal_nan=True),
        sample(np.array([1.0, np.nan]), np.array([1.0, 2.0]), equal_nan=True),
        sample(np.ones(2), np.ones(2)),
    ),
    smooth=False,
)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Value:
    """Follow `numpy.array_equal`."""
    x, y = as_array(a1), as_array(a2)
    if x.shape != y.shape:
        return full((), False, BOOL)
    same = equal(x, y)
    if equal_nan and x.dtype.kind in "fc" and y.dtype.kind in "fc":
        same = same | (isnan(x) & isnan(y))
    return all_(same)


@implements(
    np.array_equiv,
    samples=(sample((2, 3), (3,)), sample((2, 3), (2,)), sample(np.ones((2, 2)), np.ones(2))),
    smooth=False,
)
def array_equiv(a1: Any, a2: Any) -> Value:
    """Follow `numpy.array_equiv`."""
    x, y = as_array(a1), as_array(a2)
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return full((), False, BOOL)
    return all_(equal(x, y))
