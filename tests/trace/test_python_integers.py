"""Python numbers that are arguments, and do not fit the integer dtype of an array that they meet: NumPy's error, at each call."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from tests.support.ways import by_tape

NUMBERS = (1, 3, 300, -1)
PIXELS = np.array([1, 2, 250], np.uint8)


def _filled(a: Any, n: Any) -> Any:
    b = a.copy()
    b.fill(n)
    return b


def _assigned(a: Any, n: Any) -> Any:
    b = a.copy()
    b[0] = n
    return b


def _assigned_list(a: Any, n: Any) -> Any:
    b = a.copy()
    b[:2] = [n, 1]
    return b


def _masked(a: Any, n: Any) -> Any:
    b = a.copy()
    b[b > 1] = n
    return b


def _in_place(a: Any, n: Any) -> Any:
    b = a.copy()
    b += n
    return b


def _out(a: Any, n: Any) -> Any:
    b = a.copy()
    np.add(a, n, out=b)
    return b


def _put(a: Any, n: Any) -> Any:
    b = a.copy()
    np.put(b, [0], n)
    return b


def _diagonal(a: Any, n: Any) -> Any:
    b = np.outer(a, a)
    np.fill_diagonal(b, n)
    return b


def _elements(a: Any, n: Any) -> Any:
    b = a.copy()
    for i in range(len(a)):
        b[i] = b[i] + n
    return b


def _stored(a: Any, n: Any) -> Any:
    b = np.zeros(len(a), np.uint8)
    for i in range(len(a)):
        b[i] = i * n
    return b


def _repeated(a: Any, n: Any) -> Any:
    b = a.copy()
    for _ in range(3):
        b = np.maximum(b, n)
    return b


def _truncated(a: Any, n: Any) -> Any:
    b = a.copy()
    for i in range(len(a)):
        b[i] = n * 1.5
    return b


def _clipped_again(a: Any, n: Any) -> Any:
    b = a.copy()
    for _ in range(3):
        b = np.clip(b, -n, n)
    return b


def _added_at(a: Any, n: Any) -> Any:
    b = a.copy()
    np.add.at(b, [0], n)
    return b


PROGRAMS = {
    "add": lambda a, n: a + n,
    "subtract": lambda a, n: n - a,
    "multiply": lambda a, n: a * n,
    "bits": lambda a, n: a & n,
    "maximum": np.maximum,
    "of an element": lambda a, n: a[0] + n,
    "computed": lambda a, n: a + (n + 1),
    "dtype": lambda a, n: np.multiply(a, n, dtype=np.uint8),
    "where": lambda a, n: np.where(a > 1, a, n),  # which wraps
    "less": lambda a, n: a < n,
    "equal": lambda a, n: a == n,
    "clip": lambda a, n: np.clip(a, n, n),
    "clip to both sides": lambda a, n: np.clip(a, -n, n),
    "clip from below": lambda a, n: a.clip(n),
    "clip from above": lambda a, n: np.clip(a, None, n),
    "full_like": np.full_like,
    "array": lambda a, n: np.array(n, a.dtype),
    "array of a list": lambda a, n: np.array([n, 1], a.dtype),
    "asarray": lambda a, n: np.asarray(n).astype(a.dtype),  # which wraps
    "scalar": lambda a, n: a + np.uint8(n),
    "initial": lambda a, n: a.sum(initial=n),
    "insert": lambda a, n: np.insert(a, 0, n),
    "append": np.append,
    "fill": _filled,
    "assign": _assigned,
    "assign a list": _assigned_list,
    "assign by a mask": _masked,
    "in place": _in_place,
    "out": _out,
    "put": _put,
    "fill_diagonal": _diagonal,
    "add.at": _added_at,
    "elements": _elements,
    "store": _stored,
    "repeat": _repeated,
    "truncate": _truncated,
    "clip again": _clipped_again,
}


def outcome(function: Any, *args: Any) -> str:
    """Return the dtype and the numbers of a result, or the class of the error."""
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(function(*args))
    except Exception as error:
        return type(error).__name__
    return f"{result.dtype} {result.tolist()}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_numbers_that_do_not_fit_raise_the_error_of_numpy(program: str) -> None:
    function = PROGRAMS[program]
    jitted = gt.jit(function)
    for n in NUMBERS:
        assert outcome(jitted, PIXELS.copy(), n) == outcome(function, PIXELS.copy(), n), n
        assert outcome(gt.jit(function), PIXELS.copy(), n) == outcome(function, PIXELS.copy(), n), n


@pytest.mark.parametrize("loops", ["trace", "compile"])
@pytest.mark.parametrize("function", [_elements, _stored, _repeated, _truncated, _clipped_again])
def test_numbers_are_checked_in_loops(function: Any, loops: Any) -> None:
    with gt.config.override(loops=loops):
        jitted = gt.jit(function)
        for n in NUMBERS:
            assert outcome(jitted, PIXELS.copy(), n) == outcome(function, PIXELS.copy(), n), n


@pytest.mark.parametrize(
    ("dtype", "n"),
    [(np.int8, 128), (np.int8, -129), (np.uint64, -1), (np.int32, 2**40), (np.int32, -(2**31))],
)
def test_limits_of_dtypes(dtype: Any, n: int) -> None:
    a = np.ones(2, dtype)
    assert outcome(gt.jit(lambda a, n: a + n), a, n) == outcome(lambda a, n: a + n, a, n)


def test_numbers_are_checked_in_bodies_under_vmap_and_in_gradients() -> None:
    for f in (
        gt.jit(lambda a, n: gt.fori_loop(0, 3, lambda i, c: c + (i + n), a)),
        gt.jit(lambda a, n: gt.cond(a[0] > 0, lambda a, n: a + n, lambda a, n: a, a, n)),
        gt.vmap(lambda a, n: a + n, in_axes=(0, None)),
        lambda a, n: gt.grad(lambda x, a, n: np.sum(x * (a + n)))(2.0, a, n),
    ):
        f(PIXELS, 3)
        with pytest.raises(OverflowError, match="out of bounds for uint8"):
            f(PIXELS, 300)


def test_captured_numbers_are_checked_at_each_call() -> None:
    n = 3
    f = gt.jit(lambda a: a + n)
    assert f(PIXELS).tolist() == [4, 5, 253]
    n = 300
    with pytest.raises(OverflowError, match="Python integer 300 out of bounds for uint8"):
        f(PIXELS)
    n = 4
    assert f(PIXELS).tolist() == [5, 6, 254]


def test_floats_are_checked_where_they_are_written() -> None:
    f = gt.jit(_assigned)
    assert f(PIXELS, 2.7).tolist() == [2, 2, 250]
    for n in (300.7, -2.7, np.inf):
        with pytest.raises(OverflowError):
            f(PIXELS, n)
    with pytest.raises(ValueError, match="NaN"):
        f(PIXELS, np.nan)


def test_numbers_that_fit_by_their_bounds_are_not_checked() -> None:
    def f(a: Any) -> Any:
        b = np.zeros(len(a), np.int32)
        for i in range(len(a)):
            b[i] = 2 * i + 1
        return b

    with gt.config.override(loops="compile"):
        compiled = gt.jit(f)
        assert compiled(np.zeros(40)).tolist() == list(range(1, 81, 2))
        assert "OverflowError" not in gt.inspect.graph(compiled, np.zeros(40))


def test_loops_with_checks_are_compiled() -> None:
    with gt.config.override(loops="compile"):
        compiled = gt.jit(_elements)
        compiled(PIXELS, 3)
        assert "raise OverflowError" in gt.inspect.graph(compiled, PIXELS, 3)


def _inserted_list(a: Any, n: Any) -> Any:
    return np.insert(a, 0, [n, 1])


def _placed(a: Any, n: Any) -> Any:
    b = a.copy()
    np.place(b, b > 1, [n, 1])
    return b


def _put_list(a: Any, n: Any) -> Any:
    b = a.copy()
    np.put(b, [0, 1], [n, 1])
    return b


def _put_mask_list(a: Any, n: Any) -> Any:
    b = a.copy()
    np.putmask(b, b > 1, [n, 1])
    return b


def _put_along(a: Any, n: Any) -> Any:
    b = a.copy()
    np.put_along_axis(b, np.array([0, 1]), [n, 1], 0)
    return b


def _diagonal_list(a: Any, n: Any) -> Any:
    b = np.outer(a, a)
    np.fill_diagonal(b, [n, 1, 1])
    return b


def _product_with_dtype(a: Any, n: Any) -> Any:
    return np.multiply(a, n, dtype=np.uint8)


def _padded(a: Any, n: Any) -> Any:
    return np.pad(a.astype(np.int8), 1, constant_values=n)


def _padded_pairs(a: Any, n: Any) -> Any:
    return np.pad(np.outer(a, a).astype(np.uint8), 1, constant_values=((n, 1), (2, 3)))


def _padded_unsigned(a: Any, n: Any) -> Any:
    """NumPy writes its own scalars, which wrap."""
    return np.pad(a, 1, constant_values=(n, 1))


BY_ITEM = (
    _inserted_list,
    _placed,
    _put_list,
    _put_mask_list,
    _put_along,
    _diagonal_list,
    _product_with_dtype,
    _padded,
    _padded_pairs,
    _padded_unsigned,
)


def _outcome(function: Any, *args: Any) -> Any:
    try:
        made = np.asarray(function(*args))
        return made.tolist(), made.dtype
    except OverflowError:
        return OverflowError


@pytest.mark.parametrize("function", BY_ITEM)
def test_items_of_lists(function: Any) -> None:
    jitted = gt.jit(function)
    translated = gt.jit(lambda a, n: function(a, n))
    for n in NUMBERS:
        expected = _outcome(function, PIXELS, n)
        assert _outcome(jitted, PIXELS, n) == expected
        with gt.config.override(loops="compile"):
            assert _outcome(translated, PIXELS, n) == expected
        with gt.config.override(jit=False):
            assert _outcome(gt.jit(lambda a, n: function(a, n)), PIXELS, n) == expected


@pytest.mark.parametrize(
    "function", [lambda a, n: a + n, _assigned, _filled, lambda a, n: np.insert(a, 0, n)]
)
def test_numbers_without_compilation(function: Any) -> None:
    with gt.config.override(jit=False):
        for n in NUMBERS:
            assert _outcome(gt.jit(function), PIXELS, n) == _outcome(function, PIXELS, n)


CASTS = [
    lambda a, x: np.multiply(a, x, dtype=np.uint8),
    lambda a, x: np.multiply(a, x, dtype=np.uint8, casting="unsafe"),
    lambda a, x: np.add(a, np.array([1.5, 2.0, 3.0]), dtype=np.int64),
    lambda a, x: np.add(a * 1j, x, dtype=np.float64),
    lambda a, x: np.sqrt(a, dtype=np.int64),
    lambda a, x: np.sqrt(a, dtype=np.float32),
    lambda a, x: np.less(a, x, dtype=np.uint8),
    lambda a, x: np.negative(a * x, dtype=np.float32),
    lambda a, x: np.power(a, x, dtype=np.int8),
    lambda a, x: np.ldexp(a * x, 2, dtype=np.float32),
    lambda a, x: np.multiply.outer(a, x, dtype=np.uint8),
    lambda a, x: np.multiply.outer(a, a, dtype=np.int16),
    lambda a, x: np.add(a, 2, dtype=np.float32),
    lambda a, x: np.logical_and(a, x, dtype=np.bool_),
]


@pytest.mark.parametrize("function", CASTS)
def test_dtypes_of_ufuncs(function: Any) -> None:
    """The loop that NumPy chooses for ``dtype=``, or its error."""

    def outcome(function: Any, *args: Any) -> Any:
        try:
            made = np.asarray(function(*args))
            return np.round(made, 5).tolist(), made.dtype
        except TypeError as error:
            assert type(error) is not TypeError or "No loop" in str(error)
            return TypeError

    expected = outcome(function, PIXELS, 2.7)
    assert outcome(gt.jit(function), PIXELS, 2.7) == expected
    with gt.config.override(loops="compile"):
        assert outcome(gt.jit(lambda a, x: function(a, x)), PIXELS, 2.7) == expected
    with gt.config.override(jit=False):
        assert outcome(gt.jit(lambda a, x: function(a, x)), PIXELS, 2.7) == expected
    with gt.GradientTape() as tape:
        x = tape.watch(2.7)
        assert outcome(lambda a: function(a, x), PIXELS) == expected


def _in_a_condition(a: Any, n: Any) -> Any:
    return gt.while_loop(
        lambda s, n: np.any(s < n * 100) & (np.max(a + n) < 250), lambda s, n: (s + 1.0, n + 60), (0.0, n)
    )[0]


@pytest.mark.parametrize("n", [3, 10, 60, 200, 300])
def test_conditions_of_loops(n: int) -> None:
    def by_python(a: Any, n: Any) -> Any:
        s = 0.0
        while s < n * 100 and np.max(a + n) < 250:
            s, n = s + 1.0, n + 60
        return s

    pixels = np.array([1, 2, 3], np.uint8)
    expected = _outcome(by_python, pixels, n)
    jitted = gt.jit(_in_a_condition)
    jitted(pixels, 10)
    for function in (
        _in_a_condition,
        jitted,
        lambda a, n: gt.fori_loop(0, 2, lambda i, s: _in_a_condition(a, n), 0.0),
    ):
        assert _outcome(function, pixels, n) == expected
    slope = _outcome(gt.grad(lambda x, n: x * _in_a_condition(pixels, n)), 2.0, n)
    assert slope == (OverflowError if expected is OverflowError else expected)


def test_checks_in_conditions() -> None:
    def halved(x: Any) -> Any:
        def goes_on(s: Any) -> Any:
            if s < 0.0:
                raise ValueError("negative")
            return s > 0.5

        return gt.while_loop(goes_on, lambda s: 2.0 * s - 3.5, x)

    ways = (
        halved,
        gt.jit(halved),
        lambda x: gt.vmap(halved)(np.array([x, 0.1]))[0],
        lambda x: gt.fori_loop(0, 2, lambda i, s: halved(s), x),
        lambda x: gt.jvp(halved, (x,), (1.0,))[0],
    )
    for way in ways:
        assert way(2.0) == 0.5
        with pytest.raises(ValueError, match="negative"):
            way(3.0)
    assert gt.grad(halved)(2.0) == 2.0


# Integers that no integer dtype holds


def _taylor(x: Any, n: Any) -> Any:
    total = 0.0
    for k in range(15, 26):
        factor = math.factorial(k)
        total = total + x**k / (factor if type(n) is int else float(factor)) * n
    return total


def _stored(x: Any, n: Any) -> Any:
    y = np.zeros(3)
    y[0] = n
    y[1] = x
    return np.sum(y * x)


def _added_in_place(x: Any, n: Any) -> Any:
    y = x * 1.0
    y += n
    return y * y


LONG: dict[str, Any] = {
    "Taylor series": _taylor,
    "stored": _stored,
    "in place": _added_in_place,
    "left": lambda x, n: n * x * x,
    "right": lambda x, n: x * x * n,
    "after a short one": lambda x, n: x * 3 * n * x,
    "power": lambda x, n: x ** abs(n),
    "condition": lambda x, n: np.where(x < n, x * x, 0.0),
    "branch of where": lambda x, n: np.where(x > 5, n, x * x),
    "clip": lambda x, n: np.clip(x * x, -n, n),
    "maximum": lambda x, n: np.maximum(x * x, n),
}


@pytest.mark.parametrize("loops", ["trace", "compile"])
@pytest.mark.parametrize("name", LONG)
def test_long_integers_beside_floats_are_floats(name: str, loops: Any) -> None:
    x = 0.5
    for n in (2**63, 10**30, -(2**63) - 1):
        value = LONG[name](x, n)
        results = []
        for number in (n, float(n)):
            function = functools.partial(LONG[name], n=number)
            with gt.config.override(loops=loops):
                results.append(
                    [
                        gt.jit(function)(x),
                        gt.vmap(function)(np.array([x, x]))[1],
                        gt.grad(function)(x),
                        gt.jvp(function, (x,), (1.0,))[1],
                        by_tape(function, x),
                        gt.hessian(function)(x),
                    ]
                )
        np.testing.assert_allclose(results[0][:2], value, rtol=1e-12)
        np.testing.assert_allclose(*results, rtol=1e-14)


def test_long_integers_keep_the_dtype_of_arrays() -> None:
    for x in (np.ones(2, np.float32), np.ones(2, np.complex64)):
        y = gt.jit(lambda x: x * 10**30)(x)
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, x * 10**30)


def test_long_integers_elsewhere_name_the_remedy() -> None:
    remedy = "does not fit in 64 bits: pass float"
    for function in (lambda x: x * 10**30, lambda x: x + 2**63):
        for x in (3, np.arange(3)):
            with pytest.raises(OverflowError, match=remedy):
                gt.jit(function)(x)
    for transform in (gt.jit, gt.grad):
        with pytest.raises(OverflowError, match=f"an argument is the integer {10**30}, which {remedy}"):
            transform(lambda x: x * 2.0)(10**30)
