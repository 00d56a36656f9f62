"""What names hold: numbers and their dtypes, tuples, lists, functions, arrays that are bound anew."""

from __future__ import annotations

import cmath
import collections
import functools
import math
import operator

import numba
import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import UnsupportedCodeError
from tests.frontend.support import check, run, translated

X = np.array([0.5, -1.5, 2.0, 3.0, -0.25])
WEIGHTS = np.array([1.0, 2.0, 3.0])
FACTOR = 2.5
Point = collections.namedtuple("Point", "x y")


def swap(x, steps):
    a, b = x[0], x[1]
    for _ in range(steps):
        a, b = b, a + b
    return a


def swap_arrays(x, steps):
    a = x.copy()
    b = np.zeros(len(x))
    for _ in range(steps):
        for i in range(len(x)):
            b[i] = 0.5 * a[i] + a[i - 1]
        a, b = b, a
    return a


def rebound(x, steps):
    y = x
    for _ in range(steps):
        y = 0.5 * y + x[::-1]
    return y, x


def rebound_shifted(x, steps):
    y = x.copy()
    for _ in range(steps):
        y[1:-1] = y[:-2] + 0.25 * y[2:]
    return y


def previous(x, steps):
    old = x.copy()
    new = x.copy()
    total = 0.0
    for _ in range(steps):
        old = new
        new = 0.5 * old + 1.0
        for i in range(len(x)):
            total += abs(new[i] - old[i])
    return new, old, total


def fresh_rows(x, steps):
    best = x.copy()
    for t in range(steps):
        new = np.empty(len(x))
        for i in range(len(x)):
            new[i] = best[i - 1] * 0.5 + t
        best = new
    return best


def zeros_in_loop(x, steps):
    total = 0.0
    for t in range(steps):
        counts = np.zeros(3)
        for i in range(len(x)):
            counts[i % 3] += x[i] * t
        for j in range(3):
            total = 0.5 * total + counts[j]
    return total


def chosen_array(x, steps):
    y = x[::-1].copy()
    z = x.copy()
    if x[0] > 0.0:
        w = y
    else:
        w = z
    w[0] = 100.0
    return w, y, z


def pointer_to_rows(x, steps):
    m = x.reshape(5, 1) * x
    row = m[0]
    total = 0.0
    for i in range(1, 5):
        total += row[i]
        row = m[i]
    return total + row[0]


def expressions_before_writes(x, steps):
    y = x[::-1].copy()
    y[:], x[:] = x * 2.0, y * 3.0
    z = (x * 2.0) + overwritten(x)
    return x, y, z


def overwritten(x):
    x[:] = 1.0
    return x


def loop_over_expression(x, steps):
    total = 0.0
    for v in x * 2.0:
        x[1:] += 1.0
        total = 0.5 * total + v
    for i, (v, w) in enumerate(zip(x + 1.0, x, strict=True)):
        x[4] = i
        total += v * w
    return total


def late_cells(x, steps):
    scale = 2.0
    f = lambda y: y * scale  # noqa: E731
    first = f(x[0])
    scale = 3.0
    for _ in range(steps):
        scale *= 1.5
        first += f(x[1])
    return first, f(x[2])


def tuples(x, steps):
    state = (x[0], x[1], 3)
    for _ in range(steps):
        a, b, n = state
        state = (b, a * 0.5, n + 1)
    return state[0] + state[2], state


def tuple_loop(x, steps):
    total = 0.0
    for _name, f in (("a", math.sin), ("b", math.cos)):
        total += f(x[0])
    for k in range(3):
        total += (1.0, x[1], x[2])[k]
    return total


def named(x, steps):
    p = Point(x[0], x[1])
    for _ in range(steps):
        p = Point(p.y, p.x + 0.5)
    return p.x, p


def lists(x, steps):
    items = [x[0], 2.0]
    items.append(x[1])
    for k in range(3):
        items.append(items[k] * 2.0)
    items[0] = 7.0
    squares = [v * v for v in items]
    total = 0.0
    for v in squares:
        total += v
    return total, items, len(items)


def comprehensions(x, steps):
    total = x[0]
    for k in range(steps):
        items = [v * v * k for v in (x[0], x[1], total)]
        for v in items:
            total += v
        total += sum([v * 0.5 for v in items])
    return total


def closures(x, steps):
    scale = x[1]

    def f(y, power=2):
        return scale * y**power

    g = lambda y: f(y) + f(y, power=3)  # noqa: E731
    total = 0.0
    for v in x:
        total += g(v)
    return total


def globals_and_partials(x, steps):
    total = FACTOR * x[0]
    for i in range(3):
        total += WEIGHTS[i] * x[i]
    return functools.partial(operator.mul, 3.0)(total)


def helper(y, n=2, *rest):
    for r in rest:
        y = y + r
    return y * n


def calls(x, steps):
    return helper(x[0]) + helper(x[1], 3) + helper(x[1], 3, x[2], 1.0) + helper(n=4, y=x[3])


def factorial(n, x):
    if n <= 1:
        return x
    return n * factorial(n - 1, x)


def recursion(x, steps):
    return factorial(5, x[0])


def numbers(x, steps):
    n = int(x[3]) + 4
    a = n // 3 + n % 3 - (-n) // 3 + (-n) % 3 + n**2 + 2**n
    b = n / 3 + x[0] // 0.3 + x[1] % 0.7 + x[0] ** 2 + 2.0**n + abs(-n) + (n & 5) + (n << 2) + (n >> 1) + (~n)
    c = round(x[2] * 1.3) + math.floor(x[1]) + math.ceil(x[1]) + int(x[1]) + divmod(n, 4)[1]
    d = max(x[0], x[1], 0.1) + min(n, 3) + max(n, 2.5) + pow(x[0], 2) + float(n) + bool(n) + True
    return a, b, c, d, x[0] > 1.0, not n


def functions_of_math(x, steps):
    total = 0.0
    for v in x:
        total += math.exp(-v) + math.log(abs(v)) + math.atan2(v, 2.0) + math.hypot(v, 1.0) + math.tanh(v)
        total += (
            math.erf(v) + math.pow(abs(v), 1.5) + math.log1p(v * v) + math.copysign(1.0, v) + math.fabs(v)
        )
        total += (
            math.log(v * v, 2.0) + math.pi + np.sin(v) + np.maximum(v, 0.0) + np.sign(v) + math.gamma(2.5)
        )
    return total


def single_precision(x, steps):
    y = x.astype(np.float32)
    s = 0.0
    for v in y:
        s += 2.0 * v
    return s, np.float32(3.0) * y[0], np.float64(y[0]) + s


def integers(x, steps):
    k = np.zeros(3, dtype=np.int64)
    for i in range(len(x)):
        k[i % 3] += i
    return k, k[0] / 2, np.int32(k[1])


def complex_numbers(x, steps):
    z = 0.1 + 0.2j
    for v in x:
        z = z * z + complex(v, 0.5) * 0.1
    return z.real, z.imag, abs(z), z.conjugate()


def attributes(x, steps):
    m = np.zeros((len(x), 3))
    n, k = m.shape
    for i in range(n):
        for j in range(k):
            m[i, j] = i - j * x[i]
    return m.T[2, 1] + m.size + m.ndim + x.shape[0], m.T, m.sum(), m


def bools(x, steps):
    mask = x > 0.0
    count = 0
    for b in mask:
        if b:
            count += 1
    both = mask[0] and x[1] < 0.0
    return count + (x[0] > 0) + (x[1] > 0) + both


def mutates(x, steps):
    x[0] = 3.0
    for i in range(1, len(x)):
        x[i] += x[i - 1]
    return x[-1]


def range_object(x, steps):
    r = range(1, 4)
    total = 0.0
    for i in r:
        total += x[i]
    return total + len(r) + r[1] + (2 in r)


def conditions_on_types(x, steps):
    if isinstance(x, np.ndarray) and not isinstance(steps, float):
        return x[0] + steps
    return 0.0


FUNCTIONS = [
    swap,
    swap_arrays,
    rebound,
    rebound_shifted,
    previous,
    fresh_rows,
    zeros_in_loop,
    chosen_array,
    pointer_to_rows,
    expressions_before_writes,
    loop_over_expression,
    late_cells,
    tuples,
    tuple_loop,
    named,
    lists,
    comprehensions,
    closures,
    globals_and_partials,
    calls,
    recursion,
    numbers,
    functions_of_math,
    integers,
    complex_numbers,
    attributes,
    bools,
    mutates,
    range_object,
    conditions_on_types,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_values_are_pythons(function, steps):
    check(function, X.copy(), steps)


def test_dtypes_are_numpys():
    found = run(single_precision, X, 1)
    wanted = single_precision(X, 1)
    for have, want in zip(found, wanted, strict=True):
        assert np.asarray(have).dtype == np.asarray(want).dtype
        np.testing.assert_allclose(have, want, rtol=1e-6)


def numbers_of_python_and_numpy(x, w):
    out = np.zeros_like(x)
    for i in range(len(x)):
        out[i] = x[i] * w
    return (
        out * np.sqrt(w),
        out * math.sqrt(w),
        out * math.log(w),
        x[0] * np.exp(w),
        x * np.maximum(w, 1.0),
        x * np.abs(w),
        x * abs(w),
        out * float(w),
        out * complex(w),
        x * cmath.exp(w),
        x * np.float64(w),
        w * x,
    )


@pytest.mark.parametrize("w", [2, 2.0, np.float64(2.0), np.float32(2.0)], ids=lambda w: type(w).__name__)
def test_numbers_of_python_take_the_dtype_of_arrays_and_those_of_numpy_do_not(w):
    x = np.array([1.0, 2.0], np.float32)
    found, wanted = gt.jit(numbers_of_python_and_numpy)(x, w), numbers_of_python_and_numpy(x, w)
    assert [np.asarray(one).dtype for one in found] == [np.asarray(one).dtype for one in wanted]
    for have, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-6)


def test_functions_of_numba_are_called():
    @numba.njit
    def square(y):
        return y * y

    @numba.njit
    def f(x):
        total = 0.0
        for i in numba.prange(len(x)):
            total += square(x[i])
        return total

    np.testing.assert_allclose(run(f, X), np.sum(X**2))


def bisected(x):
    """Refine where the halves differ, as adaptive quadrature does."""

    def refined(low, high, level):
        middle = 0.5 * (low + high)
        parts = math.sin(x * low) + math.sin(x * high)
        if level == 0 or abs(parts - 2 * math.sin(x * middle)) < 1e-3:
            return (high - low) * parts / 2
        return refined(low, middle, level - 1) + refined(middle, high, level - 1)

    return refined(0.0, 2.0, 30)


@pytest.mark.parametrize("loops", ["auto", "compile", "trace"])
def test_a_recursion_that_branches_is_run_where_it_is_too_large_to_be_compiled(loops):
    with pytest.raises(UnsupportedCodeError, match="refined calls itself more than 512 times"):
        translated(bisected, 1.5)
    h = 1e-6
    with gt.config.override(loops=loops):
        value, slope = gt.value_and_grad(bisected)(1.5)
    np.testing.assert_allclose(value, bisected(1.5), rtol=1e-12)
    np.testing.assert_allclose(slope, (bisected(1.5 + h) - bisected(1.5 - h)) / (2 * h), rtol=1e-7)


def shallow(x, level=5):
    return math.sin(x) if level == 0 else shallow(0.5 * x, level - 1) + shallow(x + 1.0, level - 1)


def test_small_trees_of_calls_are_compiled_in_loops_too():
    def summed(x):
        total = 0.0
        for k in range(20):
            total += shallow(x) * k
        return total

    check(summed, 0.7)


def test_a_recursion_without_a_known_end_is_refused():
    def down(x):
        return x if x < 0.0 else down(x - 1.0)

    with pytest.raises(UnsupportedCodeError, match="calls itself"):
        run(lambda x: factorial(int(x), x), 3.0)
    assert down(1.0) < 0.0


def powers(n, base):
    total = 0
    k = 0
    while k < n:
        total = total + base**k + 3**k + 2**k + k**2
        k += 1
    return total


def exchanged(x, n):
    pair = (x[0], x[1])
    for k in range(n):
        pair = (pair[1], pair[0] * 2) if k < 100 else (pair[0],)
    return pair[0]


def longer(x, n):
    items = (x[0],)
    for _ in range(n):
        items = (*items, x[1])
    return items[-1] * len(items)


def another_kind(x, n):
    pair = (x[0], x[1])
    for _ in range(n):
        pair = [pair[1], pair[0] * 2] if isinstance(pair, tuple) else (pair[1], pair[0] * 3)
    return pair[0]


VALUES = {
    "powers of an integer": (powers, 7, 4),
    "powers of a number": (powers, 7, 2.0),
    "a pair": (exchanged, np.array([1.0, 2.0]), 5),
    "a tuple that grows": (longer, np.array([1.0, 2.0]), 5),
    "a tuple that becomes a list": (another_kind, np.array([1.0, 2.0]), 5),
}


@pytest.mark.parametrize("loops", ["trace", "compile"])
@pytest.mark.parametrize("name", VALUES)
def test_values_that_loops_carry(name, loops):
    f, *args = VALUES[name]
    with gt.config.override(loops=loops):
        found = gt.jit(f)(*args)
    np.testing.assert_allclose(found, f(*args))
    assert np.asarray(found).dtype == np.asarray(f(*args)).dtype


@pytest.mark.parametrize("dtype", ["f4", "c8", "i1", "u4", "f8", "b1"])
def test_numbers_of_python_are_strong_in_arrays_of_lists(dtype):
    x = np.ones(3, dtype)

    def numbers(x):
        return np.array([x[0], 1.0]), np.array([[x[0], 1], [2, x[1]]]), np.stack([x[0], 2])

    def operand(x):
        return x[:2] * [1.0, 2.0]

    for way in ("trace", "compile"):
        with gt.config.override(loops=way):
            for one, other in zip(gt.jit(numbers)(x), numbers(x), strict=True):
                assert one.dtype == other.dtype, way
                np.testing.assert_array_equal(one, other)
            assert gt.jit(operand)(x).dtype == operand(x).dtype
