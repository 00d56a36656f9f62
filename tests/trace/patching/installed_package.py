"""A package as others write them, which `test_installed_packages` runs as a user's module and as an installed package.

Each function of `CALLS` takes a vector of three positive numbers.
"""

from __future__ import annotations

import copy
import functools
import numbers
import operator
import warnings
from collections import namedtuple
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

import attrs
import numpy as np
from numba import njit

CALLS: dict[str, Any] = {}


def call(function: Any) -> Any:
    """Add a function to the calls."""
    CALLS[function.__name__] = function
    return function


@call
def converts(x: Any) -> Any:
    z = np.asarray(x)
    return np.where(np.abs(z) < 1, 0.5 * z**2, np.abs(z) - 0.5)


@call
def converts_by_the_method(x: Any) -> Any:
    return np.sin(x.__array__()) * x


@call
def converts_to_floats(x: Any) -> Any:
    return (
        np.asarray(x, dtype=float) ** 2
        + np.asarray(x, float)[::-1]
        + np.asanyarray(x) * np.ascontiguousarray(x)
    )


@call
def copies(x: Any) -> Any:
    z = np.array(x, dtype=np.float64, copy=True, ndmin=1)
    z[0] = z[1] * z[2]
    return z


@call
def converts_lists(x: Any) -> Any:
    return np.array([[x[0], x[1] ** 2], [1.0, x[2]]]) @ np.asarray([x[1], 2.0])


def _table() -> Any:
    return np.vstack([np.repeat(2.0, 3), np.repeat([7.0, 11.0, 16.0], 1)]).cumsum(axis=1)


@call
def copies_and_writes(x: Any) -> Any:
    weights = np.arange(1.0, 4.0)
    copied = weights.copy()
    copied[1:] = x[1:] ** 2
    return copied * weights


@call
def picks_of_ndarrays(x: Any) -> Any:
    table = _table()
    order = np.argsort(x)
    picked = table[:, order][0] + table[1][order] + table[(1, order)]
    return picked * x + table.flat[order] + table.T.flat[order]


@call
def masks_ndarrays(x: Any) -> Any:
    table = _table()
    return np.sum(table[1][x > np.mean(x)]) * x + sum(table[0][np.where(x > np.mean(x))[0]])


@call
def picks_what_is_written_later(x: Any) -> Any:
    row = _table()[0]
    picked = row[np.argsort(x)]
    row[1] = 100.0
    return picked * x + row[np.argsort(-x)]


@call
def converts_to_complex_numbers(x: Any) -> Any:
    z, w = complex(x[0]), complex(x[1], 2.0 * x[2])
    return np.array([abs(z * w), w.imag * z.real, complex(1.0, x[2]).conjugate().imag])


@call
def sets_parts(x: Any) -> Any:
    z = np.empty(3, dtype=complex)
    z.real = 2.0 * x
    z.imag = x**2
    real = np.zeros(3)
    real.real = x
    return np.abs(z) * real


class NumberLike:
    def __init__(self, number: Any) -> None:
        self.number = number

    def __float__(self) -> float:
        return float(self.number)

    def __complex__(self) -> complex:
        return complex(self.number)


def converts_an_object(x: Any, kind: Any) -> Any:
    return kind(NumberLike(x[0])) * x


@call
def stores(x: Any) -> Any:
    out = np.zeros(3)
    for k in range(3):
        out[k] = np.exp(-x[k])
    out[1:] += x[:2]
    return out


@call
def stores_like(x: Any) -> Any:
    out, full, ones = np.empty_like(x), np.full(3, 2.0), np.ones((3, 2))
    out[:] = x**2
    full[1] = x[0] * x[1]
    ones[:, 0] *= x
    return out + full + ones.sum(axis=1)


class Filter:
    """A filter whose state is made before any data is there."""

    def __init__(self, size: int) -> None:
        self.state = np.zeros((size, 1))
        self.covariance = np.eye(size)
        self.gain = np.zeros((size, size))
        self._z = np.array([[None] * size]).T

    def update(self, z: Any) -> None:
        self._z = copy.deepcopy(z)
        self.covariance = self.covariance * 1.5
        self.covariance[0, 1] = z[0] * z[1]
        self.gain = np.dot(self.covariance, np.linalg.inv(self.covariance + np.eye(3)))
        self.state = self.state + self.gain @ (np.reshape(z, (3, 1)) - self.state)


@call
def filters(x: Any) -> Any:
    one = Filter(3)
    for _ in range(2):
        one.update(x)
    return one.state[:, 0]


@call
def formats(x: Any) -> Any:
    if float(x[0]) < 0:
        raise ValueError(f"got {float(x[0])}")
    return x * 2.0


@call
def converts_numbers(x: Any) -> Any:
    a, b = float(x[0]), float(np.sum(x))
    return a * b + x


@call
def asks_for_items(x: Any) -> Any:
    a, (b, c) = np.sum(x).item(), [x.item(0), x.reshape(3, 1).item((2, 0))]
    text = f"{a:.3f} %d" % (len(x),)
    if not isinstance(a, float) or isinstance(a, np.ndarray) or not text:
        raise TypeError("no number of Python's")
    return a * b * x + c


@call
def multiplies_single_precision(x: Any) -> Any:
    ones = np.ones(3, np.float32)
    scaled = [ones * x[0].item(), ones * float(x[1])]
    if any(part.dtype != np.float32 for part in scaled):
        raise TypeError("numbers of Python's take the precision of arrays")
    return x


@call
def asks_for_lists(x: Any) -> Any:
    (a, b), (c, d) = np.outer(x, x)[:2, :2].tolist()
    return np.array([a * b, c, d] + x.tolist())


@call
def asks_abstract_classes(x: Any) -> Any:
    """Take numbers apart from arrays, as packages do that take both."""
    number, whole = np.sum(x), x.reshape(3, 1)
    if isinstance(number, Iterable | Sized) or not isinstance(number, numbers.Real):
        raise TypeError("NumPy's numbers are real numbers, and no iterables")
    if not isinstance(whole, Iterable) or isinstance(whole, numbers.Number | Sequence):
        raise TypeError("arrays are iterables, and no sequences")
    return x * number


@call
def writes_to_a_number(x: Any) -> Any:
    y, z = np.array(x[0] * 2.0), np.array([x[1]])
    y[~np.isnan(y)] = z * x[2]
    y[np.asarray(y) > 1e9] = 0.0
    return y + x


class Held:
    """An object whose array is made for each that asks."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = np.array(numbers)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.numbers, dtype=dtype, copy=copy)


@call
def converts_objects_without_traced_numbers(x: Any) -> Any:
    return np.array(Held([1.0, 2.0, 3.0]), float) * x + np.asarray(Held([1, 2, 3]))


def validated(data: Any) -> Any:
    """Return data as an array of floats, as a helper of a package does."""
    if not isinstance(data, np.ndarray):
        raise TypeError("no array")
    if not np.issubdtype(data.dtype, np.floating) or data.dtype.kind not in "fc":
        raise TypeError("no floats")
    data = np.array(data, copy=True)
    if data.ndim != 1 or not np.all(np.isfinite(data)):
        raise ValueError("not finite")
    if not data.flags.writeable or not data.flags["C_CONTIGUOUS"]:
        data = data.copy()
    return data


@call
def validates(x: Any) -> Any:
    return np.cumsum(validated(x)) / len(x)


@call
def makes_objects(x: Any) -> Any:
    held = np.empty(3, dtype=object)
    for k in range(3):
        held[k] = x[k] ** 2
    return held[0] + held[1] * held[2]


@call
def sums_objects(x: Any) -> Any:
    held = np.array([x[0], x[1] * 2.0, 3.0], dtype=object)
    return held[0] * held[1] + held[2]


@call
def vectorizes(x: Any) -> Any:
    return np.vectorize(lambda t: t**2 if t > 1 else 2 * t)(x)


def in_units(factor: float) -> Any:
    """Return a decorator that converts arguments and results."""

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            args = tuple(np.asarray(arg) * factor if isinstance(arg, np.ndarray) else arg for arg in args)
            return function(*args, **kwargs) / factor

        return wrapped

    return decorate


@call
@in_units(2.5)
def has_units(x: Any) -> Any:
    return x**2


@functools.cache
def nodes(count: int) -> Any:
    """Return nodes and weights, which are computed once."""
    return np.polynomial.legendre.leggauss(count)


@call
def caches(x: Any) -> Any:
    points, weights = nodes(5)
    return np.sum(weights * np.exp(-x[:, None] * points), axis=1)


class Slotted:
    """An object without a dict."""

    __slots__ = ("_norm", "data")

    def __init__(self, data: Any) -> None:
        self.data = np.asarray(data)
        self._norm = None

    @property
    def norm(self) -> Any:
        """The norm, computed when it is asked for."""
        if self._norm is None:
            self._norm = np.sqrt(np.sum(self.data**2))
        return self._norm


@call
def has_slots(x: Any) -> Any:
    one = Slotted(x)
    return one.norm * one.norm + one.data


class Lazy:
    """An object with attributes that are made later."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __getattr__(self, name: str) -> Any:
        if name != "squares":
            raise AttributeError(name)
        self.squares = self.data**2
        return self.squares

    @functools.cached_property
    def total(self) -> Any:
        """The sum."""
        return np.sum(self.data)


@call
def is_lazy(x: Any) -> Any:
    one = Lazy(x)
    return one.squares * one.total + one.squares + one.total


@call
def copies_deeply(x: Any) -> Any:
    one = copy.deepcopy(Lazy([x, {"a": x * 2}]))
    one.data[1]["a"] = one.data[1]["a"] * 3
    return one.data[0] * copy.copy(one).data[1]["a"]


@dataclass
class Record:
    """A dataclass."""

    a: Any
    b: Any = field(default_factory=lambda: np.ones(3))

    def __post_init__(self) -> None:
        self.a = np.atleast_1d(np.asarray(self.a, dtype=float))


@call
def has_records(x: Any) -> Any:
    one = Record(x)
    one.b[0] = 3.0
    return one.a * one.b


@attrs.define
class Defined:
    """A class of attrs."""

    a: Any = attrs.field(converter=np.asarray)
    b: float = attrs.field(default=2.0, validator=attrs.validators.gt(0))


@call
def has_attrs(x: Any) -> Any:
    one = Defined(x, b=x[0])
    return attrs.evolve(one, b=3.0).a * one.b


Pair = namedtuple("Pair", "a b")


@call
def has_tuples(x: Any) -> Any:
    one = Pair(x, 2.0)._replace(b=x[1])
    return one.a * one.b


@call
def sets_error_states(x: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = x / (x - x[0])
    return np.where(x == x[0], 1.0, ratio)


@call
def catches_warnings(x: Any) -> Any:
    total = 0.0
    for k in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            total = total + np.log(x[k])
    return total


@call
def attempts(x: Any) -> Any:
    try:
        lower = np.linalg.cholesky(np.outer(x, x) - np.eye(3) * 100)
    except np.linalg.LinAlgError:
        lower = np.linalg.cholesky(np.outer(x, x) + np.eye(3))
    return np.diag(lower)


@call
def iterates(x: Any) -> Any:
    step, guess = 1.0, np.sum(x)
    while abs(step) > 1e-10:
        step = (guess**2 - np.prod(x)) / (2 * guess)
        guess = guess - step
    return guess


@njit
def kernel(x: Any) -> Any:
    """Return running products, by Numba."""
    out = np.zeros(x.shape[0])
    product = 1.0
    for k in range(x.shape[0]):
        product *= x[k]
        out[k] = product
    return out


@call
def calls_numba(x: Any) -> Any:
    return kernel(np.asarray(x))


@call
def reshapes(x: Any) -> Any:
    y = np.atleast_2d(x * 1.0)
    y.shape = (3, 1)
    z = np.atleast_2d(np.zeros((2, 1)))
    z.shape = 2, 1
    return y * x[0] + z[0]


@call
def looks_up(x: Any) -> Any:
    kinds = {"f": 2.0, "i": 1.0}
    return kinds[x.dtype.kind] * x * x.itemsize + x.size + x.ndim


@call
def counts_loops(x: Any) -> Any:
    """Go on for longer than is recorded."""
    y = x[0] * 0.0
    for k in range(3000):
        y = 0.5 * np.sin(y) + 0.1 * x[k % 3]
    return y + x[1]


class Quantity:
    """Numbers with a unit, which are an array for NumPy."""

    __array_priority__ = 10.0

    def __init__(self, data: Any, unit: str) -> None:
        self.data = np.asarray(data)
        self.unit = unit

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.data, dtype=dtype)

    def __mul__(self, other: Any) -> Any:
        return Quantity(self.data * np.asarray(other), self.unit)


@call
def converts_its_objects(x: Any) -> Any:
    return np.asarray(Quantity(x, "m") * Quantity([2.0, 3.0, 4.0], "s"))


@call
def calls_functions_with_its_objects(x: Any) -> Any:
    positive = Quantity(np.where(x > 1.0, x, 0.0), "m")
    flags = Quantity(np.zeros(3), "1")
    places = np.nonzero(Quantity(np.ones(3, bool), "1"))[0]
    return np.take(positive, [2, 1]).sum() * np.cumsum(positive) + np.nonzero(flags)[0].size + x[places]


@call
def calls_operators_of_floats(x: Any) -> Any:
    product, power = float.__mul__, float.__rpow__
    return product(x[0], 2.0) * x + float.__add__(2.5, x[2]) + power(x[2], 3.0)


@call
def converts_objects(x: Any) -> Any:
    held = np.empty((2, 2), dtype=object)
    held[0, 0], held[0, 1] = x[0], x[1]
    held[1, 0], held[1, 1] = 1.0, x[2]
    return np.linalg.inv(np.asarray(held, dtype=float))


@call
def adds_objects(x: Any) -> Any:
    return np.sum(np.array([x, 2 * x], dtype=object) ** 2)


@call
def writes_through_views(x: Any) -> Any:
    made = np.zeros((2, 3))
    first = made[0]
    first[:] = x
    made[1, 1:] = first[:2] ** 2
    return made.sum(axis=0) + made.T[1, 1]


@call
def asks_for_types(x: Any) -> Any:
    parts = [
        np.array([part]) if isinstance(part, int | float | complex | np.number) else part
        for part in (x[0], np.sum(x), x)
    ]
    return np.concatenate(parts)


takes_numbers = functools.partial(operator.methodcaller("__array__"))
"""Stands for a compiled function: a call of it has no frame."""


takes_a_number = functools.partial(operator.methodcaller("__float__"))
"""The same for one that takes a number."""


def calls_compiled_code_with_a_number(x: Any) -> Any:
    return takes_a_number(x[0]) * x[1]


def calls_compiled_code(x: Any) -> Any:
    return takes_numbers(x).sum()


def reads_text(x: Any) -> Any:
    """Round by text, as packages do that print what they compute."""
    return float(f"{x[0]:.6f}") * x


@call
def takes_types(x: Any) -> Any:
    if type(x) is not np.ndarray or type(x[0]) in (np.ndarray, list):
        raise TypeError("x must be a numpy array of numbers")
    return x * (2.0 if type(np.sum(x)) in (float, np.float64) else 1.0)


@call
def takes_types_in_a_class(x: Any) -> Any:
    return _Weighing(x).total()


class _Weighing:
    def __init__(self, x: Any) -> None:
        self.x = x if type(x) is np.ndarray else np.zeros(3)

    @property
    def weight(self) -> Any:
        return {np.ndarray: 2.0}.get(type(self.x), 1.0)

    @functools.lru_cache(maxsize=None)  # noqa: B019, UP033 - as packages do
    def total(self) -> Any:
        return np.sum(self.x**2) * self.weight


@functools.lru_cache
def _cached_product(a: Any, b: Any, scale: float = 1.0) -> Any:
    return a * b * scale


class _Cached:
    @functools.lru_cache(maxsize=None)  # noqa: B019, UP033 - as packages do
    def scaled(self, a: Any) -> Any:
        return 3.0 * a


def caches_results(x: Any) -> Any:
    same = _cached_product(2.0, 3.0) + _cached_product(2.0, 3.0)
    return (
        _cached_product(x[0], x[1], scale=x[2])
        + _cached_product(float(x[0]), 2.0)
        + _Cached().scaled(x[1])
        + same
    )


def refuses_types(x: Any) -> Any:
    """Refuse what is no array by its class, which it asks for in a way that no name of `type` shows."""
    kind = type
    if kind(x) is not np.ndarray:
        raise ValueError("x must be a numpy array")
    return x * 2.0


class Level:
    """A number that is also an array."""

    def __init__(self, number: float) -> None:
        self.number = number

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.number, dtype)


class Stored:
    """An object whose class hides a slot of its base."""

    __slots__ = ("number",)

    def __init__(self, number: float) -> None:
        self.number = number


class Hiding(Stored):
    """An object that computes what its base stores."""

    @property
    def number(self) -> float:  # type: ignore[override]
        return 3.0

    def __init__(self) -> None:
        pass


class Stateful:
    """An object with numbers that its methods read and write."""

    power = 2

    def __init__(self) -> None:
        self.scale = 2.0
        self.mean = np.zeros(3)
        self.level = Level(0.5)
        self.settings: dict[str, Any] = {"shift": 1.0, "weights": [1.0, 2.0]}
        self.fixed = Hiding()
        self.cache: Any = None
        self.is_begun = False
        self.steps = 0

    def __call__(self, x: Any) -> Any:
        if self.cache is None:
            self.cache = Level(4.0)
        shift = self.settings["shift"] * self.settings["weights"][1]
        return (
            self.scale * np.sum(x**self.power)
            + self.level.number * shift
            + self.fixed.number * self.cache.number
        )

    def update(self, x: Any) -> Any:
        self.mean = 0.5 * self.mean + 0.5 * x
        return self.scale * np.sum(self.mean * x)

    def count(self, x: Any) -> Any:
        self.mean = self.mean + 1.0
        self.steps += 1
        first = not self.is_begun
        self.is_begun = True
        return np.sum(x * self.mean) * (10.0 if first else 1.0)
