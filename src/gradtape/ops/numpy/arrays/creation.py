"""Arrays made from nothing: ``zeros_like`` and its kin, and the functions that take ``like=``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.errors import ArgumentError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import FLOAT64, INT64, INTP
from gradtape.ir.varying import lengths_vary
from gradtape.kinds.arguments import as_array, as_int, as_shape, concrete, one_axis, promoted
from gradtape.kinds.elementwise import promotion_type, result_dtype
from gradtape.kinds.operands import as_value, broadcast_to, number_dtype
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.elementwise.cast import convert, convert_number
from gradtape.ops.core.elementwise.exponential import cos
from gradtape.ops.core.elementwise.floats import ceil, floor
from gradtape.ops.core.elementwise.inverse import log10
from gradtape.ops.core.elementwise.logic import equal
from gradtape.ops.core.elementwise.power import power
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute
from gradtape.ops.core.join import full
from gradtape.ops.core.lengths import as_number, by_diagonals, count_to, on_diagonal
from gradtape.ops.core.shape import reshape
from gradtape.ops.numpy.arrays.shape import moved


def asked_dtype(dtype: Any, otherwise: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that the user chose."""
    return otherwise if dtype is None else number_dtype(dtype)


def _like(fill: int) -> Callable[..., Value]:
    def traced(
        a: Any,
        dtype: Any = None,
        order: Any = "K",
        subok: bool = True,
        shape: Any = None,
        *,
        device: Any = None,
    ) -> Value:
        x = as_array(a)
        return full(x.shape if shape is None else as_shape(shape), fill, asked_dtype(dtype, x.dtype))

    return traced


LIKE = (
    sample((2, 3)),
    sample((2, 3), dtype=int),
    sample((2, 3), shape=(4,)),
    sample((2,), shape=3, dtype="f4"),
)
implements(np.zeros_like, samples=LIKE)(_like(0))
implements(np.empty_like)(_like(0))
implements(np.ones_like, samples=LIKE)(_like(1))


@implements(
    np.full_like,
    samples=(
        sample((2, 3), 2.5),
        sample((2, 3), (3,)),
        sample((2,), 1, dtype=int),
        sample((2,), 3, shape=(2, 2)),
    ),
)
def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: Any = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Value:
    """Follow `numpy.full_like`."""
    x = as_array(a)
    return full(x.shape if shape is None else as_shape(shape), fill_value, asked_dtype(dtype, x.dtype))


def _filled(fill: int) -> Callable[..., Value]:
    def traced(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None) -> Value:
        return full(as_shape(shape), fill, asked_dtype(dtype, FLOAT64))

    return traced


implements(np.zeros, np.empty)(_filled(0))
implements(np.ones)(_filled(1))


@implements(np.full)
def full_(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None) -> Value:
    """Follow `numpy.full`."""
    fill = as_value(fill_value)
    return full(as_shape(shape), fill_value, asked_dtype(dtype, fill.dtype))


def _by_numpy(function: Any) -> Callable[..., Value]:
    """Functions of plain numbers: NumPy computes the array, which is a constant."""

    def traced(*args: Any, **kwargs: Any) -> Value:
        plain = [concrete(arg, "argument")[()] if isinstance(arg, Value) else arg for arg in args]
        named = {
            name: concrete(arg, name)[()] if isinstance(arg, Value) else arg for name, arg in kwargs.items()
        }
        return as_array(function(*plain, **named))

    return traced


for _function in (
    np.fromfunction,
    np.fromiter,
    np.frombuffer,
    np.loadtxt,
    np.genfromtxt,
):
    implements(_function)(_by_numpy(_function))
for _name in ("fromfile", "fromstring"):
    implements(getattr(np, _name))(_by_numpy(getattr(np, _name)))


@implements(np.eye)
def eye(
    N: Any,
    M: Any = None,
    k: Any = 0,
    dtype: Any = float,
    order: str = "C",
    *,
    device: Any = None,
    like: Any = None,
) -> Value:
    """Follow `numpy.eye`."""
    rows = as_int(N, "N")
    columns = rows if M is None else as_int(M, "M")
    return by_diagonals((rows, columns), on_diagonal(as_int(k, "k")), asked_dtype(dtype, FLOAT64))


@implements(np.identity)
def identity(n: Any, dtype: Any = None, *, like: Any = None) -> Value:
    """Follow `numpy.identity`."""
    return eye(n, dtype=dtype)


@implements(np.tri)
def tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, *, like: Any = None) -> Value:
    """Follow `numpy.tri`."""
    rows = as_int(N, "N")
    columns = rows if M is None else as_int(M, "M")
    last = as_int(k, "k")
    return by_diagonals((rows, columns), lambda d: d <= last, asked_dtype(dtype, FLOAT64))


@implements(np.arange)
def arange(*args: Any, dtype: Any = None, device: Any = None, **named: Any) -> Value:
    """Follow `numpy.arange`: the number of elements is a guard, start and step have derivatives."""
    placed = args if len(args) > 1 or "stop" in named else (0, *args)
    given = {"start": 0, "step": 1, **dict(zip(("start", "stop", "step"), placed, strict=False)), **named}
    numbers = [as_array(given[name], name) for name in ("start", "stop", "step")]
    if all(number.dtype.kind in "biu" for number in numbers):
        first, last, by = [as_int(given[name], "a bound") for name in ("start", "stop", "step")]
        if not lengths_vary():
            return as_array(np.arange(first, last, by, dtype=dtype))
        counted = count_to(len(range(first, last, by)), INT64) * numbers[2] + numbers[0]
        return convert(counted, asked_dtype(dtype, INT64))
    start, stop, step = [convert(number, FLOAT64) for number in numbers]
    count = as_int(convert(ceil((stop - start) / step), INTP), "the number of elements")
    steps = count_to(max(count, 0), FLOAT64)
    made = start + steps * ((start + step) - start)  # NumPy steps by the rounded difference of the first two
    return made if dtype is None else convert(made, asked_dtype(dtype, made.dtype))


def _converted(a: Any, dtype: Any, ndmin: int, copy: Any = None) -> Value:
    if dtype is None:
        made = x = as_array(a)
    else:
        x = as_value(a)
        wanted = asked_dtype(dtype, x.dtype)
        made = convert_number(a if wanted.kind in "iu" else x, wanted)
    if copy is False and made is not a:
        raise ArgumentError(
            "copy=False, and a copy cannot be avoided",
            where=here.site,
            remedy="omit copy: np.asarray copies only where necessary",
        )
    x = made
    return reshape(x, (1,) * (ndmin - x.ndim) + x.shape) if x.ndim < ndmin else x


@implements(np.array)
def array(
    object: Any,
    dtype: Any = None,
    *,
    copy: Any = True,
    order: Any = "K",
    subok: bool = False,
    ndmin: int = 0,
    ndmax: int = 0,
) -> Value:
    """Follow `numpy.array`."""
    return _converted(object, dtype, ndmin, copy)


@implements(np.asarray, np.asanyarray)
def asarray(a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None) -> Value:
    """Follow `numpy.asarray`."""
    return _converted(a, dtype, 0, copy)


@implements(np.ascontiguousarray, np.asfortranarray)
def ascontiguousarray(a: Any, dtype: Any = None) -> Value:
    """Follow `numpy.ascontiguousarray`, which makes a number an array of rank 1."""
    return _converted(a, dtype, 1)


@implements(np.require)
def require(a: Any, dtype: Any = None, requirements: Any = None) -> Value:
    """Follow `numpy.require`."""
    return _converted(a, dtype, 0)


def _steps(start: Value, num: int, endpoint: bool) -> tuple[Value, int]:
    """Return 0, 1, ..., num-1 along a new first axis in front of those of `start`, and the number of
    steps."""
    steps = count_to(num, start.dtype if start.dtype.kind == "f" else FLOAT64)
    return reshape(steps, (num, *[1] * start.ndim)), (num - 1 if endpoint else num)


def _count(num: Any) -> int:
    count = as_int(num, "num")
    if count < 0:
        raise ValueError(f"Number of samples, {count}, must be non-negative.")
    return count


@implements(
    np.linspace,
    samples=(
        sample((), (), 5),
        sample((), 2.0, 4, endpoint=False),
        sample((2,), (3, 1), 3),
        sample((2,), 1.0, 3, axis=-1, retstep=True),
        sample((), (), 1),
        sample((), (), 0),
        sample((), 3, 4, dtype=int),
        sample((), (), 5, dtype="f4"),
    ),
)
def linspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: Any = 0,
    *,
    device: Any = None,
) -> Any:
    """Follow `numpy.linspace`."""
    count = _count(num)
    ends = as_value(start, "start"), as_value(stop, "stop")
    common = result_dtype(*[promotion_type(end.aval) for end in ends], float)
    first, last = (convert(as_array(end), common) for end in ends)
    delta = last - first
    first = broadcast_to(first, delta.shape)
    steps, divisions = _steps(delta, count, endpoint)
    if divisions > 0:
        step = delta / as_number(divisions)
        points = first + steps * step
        if endpoint and count > 1:
            points = where(equal(steps, float(count - 1)), broadcast_to(last, delta.shape), points)
    else:
        step = convert(as_array(np.nan), common)
        points = first + steps * delta
    wanted = asked_dtype(dtype, common)
    if wanted.kind in "iu":
        points = floor(points)
    points = convert(moved(points, (0,), (one_axis(axis, points.ndim),)), wanted)
    return (points, step) if retstep else points


@implements(
    np.logspace,
    samples=(sample((), (), 5), sample((), 2.0, 4, base=2.0), sample((2,), (2,), 3, axis=1)),
    dtypes="?bBqf",
)
def logspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: Any = 0,
) -> Value:
    """Follow `numpy.logspace`."""
    result = power(base, linspace(start, stop, num, endpoint, axis=axis))
    return result if dtype is None else convert(result, asked_dtype(dtype, result.dtype))


@implements(
    np.geomspace,
    samples=(
        sample(np.array(0.5), np.array(8.0), 5),
        sample(np.array([1.0, 2.0]), np.array([3.0, 4.0]), 3, axis=-1),
        sample(np.array(-0.5), np.array(-8.0), 4, endpoint=False),
    ),
    dtypes="qfD",
)
def geomspace(
    start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: Any = None, axis: Any = 0
) -> Value:
    """Follow `numpy.geomspace`."""
    count = _count(num)
    first, last, _ = promoted(start, stop, 0.0)
    shape = np.broadcast_shapes(first.shape, last.shape)
    first, last = broadcast_to(first, shape), broadcast_to(last, shape)
    # As NumPy does, the first end is turned to a positive real number: the spiral has no negligible parts then.
    sign = first / absolute(first) if first.dtype.kind == "c" else where(first < 0, -1.0, 1.0)
    points = power(10.0, linspace(log10(first / sign), log10(last / sign), count, endpoint)) * sign
    index = reshape(count_to(count), (count, *[1] * len(shape)))
    points = where(equal(index, 0), first, points)
    if endpoint and count > 1:
        points = where(equal(index, count - 1), last, points)
    points = moved(points, (0,), (one_axis(axis, points.ndim),))
    return convert(points, asked_dtype(dtype, first.dtype))


def _window(of_centre: Callable[[Value, Any], Value]) -> Callable[[Any], Value]:
    def traced(M: Any) -> Value:
        count = as_int(M, "M")
        if count <= 1:
            return full((max(count, 0),), 1, FLOAT64)
        last = as_number(count - 1)
        return of_centre(count_to(count, FLOAT64) * 2.0 - last, last)

    return traced


WINDOWS: Final[dict[Callable[..., Any], Callable[[Any], Value]]] = {
    np.bartlett: _window(lambda n, last: 1.0 - absolute(n / last)),
    np.blackman: _window(
        lambda n, last: 0.42 + 0.5 * cos(np.pi * n / last) + 0.08 * cos(2.0 * np.pi * n / last)
    ),
    np.hamming: _window(lambda n, last: 0.54 + 0.46 * cos(np.pi * n / last)),
    np.hanning: _window(lambda n, last: 0.5 + 0.5 * cos(np.pi * n / last)),
}
"""NumPy's windows for lengths that vary: its own code puts the number of elements into an array, and looks at it."""
