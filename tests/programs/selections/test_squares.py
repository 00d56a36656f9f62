"""Squares of what has a kink, where a loop, a branch or an array stands between the two: the second derivative is that of the square."""

from __future__ import annotations

import linecache
import math
import re

import numba
import numpy as np
import pytest

import gradtape as gt
from gradtape.passes.procedures.pipeline import optimise_procedure
from gradtape.procedures.ir import Allocate
from gradtape.statements import walk
from gradtape.transforms.procedures.shadows import with_smooth_squares
from tests.frontend.support import translated


def each(x):
    s = 0.0
    for j in range(len(x)):
        b = abs(x[j])
        s += b * b
    return s


def kept_in_an_array(x):
    y = np.zeros(len(x))
    for j in range(len(x)):
        y[j] = abs(x[j])
    s = 0.0
    for j in range(len(x)):
        s += y[j] * y[j]
    return s


def power_of_an_array(x):
    y = np.zeros(len(x))
    for j in range(len(x)):
        y[j] = math.fabs(x[j])
    return np.sum(y**2)


def product_of_three(x):
    y = np.zeros(len(x))
    for j in range(len(x)):
        y[j] = 2.0 * abs(x[j])
    s = 0.0
    for j in range(len(x)):
        s += 0.25 * y[j] * math.cos(x[j]) * y[j]
    return s


def in_a_branch(x):
    y = np.ones(len(x))
    for j in range(len(x)):
        if x[j] > -3.0:
            y[j] = math.sqrt(x[j] ** 2)
        else:
            y[j] = x[j] + 3.0
    s = 0.0
    for j in range(len(x)):
        s += y[j] ** 2
    return s


def copied(x):
    y = np.zeros(len(x))
    for j in range(len(x)):
        y[j] = np.hypot(x[j], 0.0)
    z = np.zeros(len(x))
    for j in range(len(x)):
        last = y[j]
        z[j] = 0.5 * last
    s = 0.0
    for j in range(len(x)):
        s += 4.0 * z[j] * z[j]
    return s


def arrays_that_change_places(x):
    new = np.zeros(len(x))
    old = np.zeros(len(x))
    for k in range(3):
        for j in range(len(x)):
            new[j] = abs(x[j]) if k < 2 else old[j]
        new, old = old, new
    s = 0.0
    for j in range(len(x)):
        s += old[j] * old[j]
    return s


def in_parallel(x):
    y = np.zeros(len(x))
    for j in numba.prange(len(x)):
        y[j] = abs(x[j])
    s = 0.0
    for j in numba.prange(len(x)):
        s += y[j] * y[j]
    return s


def until(x):
    y = np.zeros(len(x))
    j = 0
    while j < len(x):
        b = abs(x[j])
        y[j] = b
        j += 1
    s = 0.0
    while j > 0:
        j -= 1
        s += y[j] * y[j]
    return s


SUMS = (
    each,
    kept_in_an_array,
    power_of_an_array,
    product_of_three,
    in_a_branch,
    copied,
    arrays_that_change_places,
    in_parallel,
    until,
)
"""The sum of the squares of x near 0."""


def largest(x):
    best = abs(x[0])
    for j in range(len(x)):
        if abs(x[j]) > best:
            best = abs(x[j])
    return best * best


def last(x):
    b = 0.0
    for j in range(len(x)):
        b = abs(x[j])
    return b * b


def one_length(x):
    return np.linalg.norm(x[:3]) * np.linalg.norm(x[:3])


SINGLE = {largest: 0, last: -1}
"""The square of one element near 0, and which."""


def hessians(function, x):
    yield "hessian", gt.hessian(function)(x)
    yield "reverse twice", gt.jacrev(gt.grad(function))(x)
    yield "forward over reverse", gt.jacfwd(gt.grad(function))(x)
    yield "reverse over forward", gt.jacrev(gt.jacfwd(function))(x)
    yield "forward twice", gt.jacfwd(gt.jacfwd(function))(x)
    yield "mapped", gt.vmap(gt.hessian(function))(np.stack([x, x + 1.0]))[0]


@pytest.mark.parametrize("n", [1, 3, 40])
@pytest.mark.parametrize("function", [*SUMS, *SINGLE], ids=lambda function: function.__name__)
def test_second_derivatives(function, n):
    expected = 2.0 * np.eye(n)
    if function in SINGLE:
        expected[np.arange(n) != SINGLE[function] % n] = 0.0
    x = np.zeros(n)
    for form, loops in ((function, "compile"), (numba.njit(function), "auto")):
        with gt.config.override(loops=loops):
            for way, found in hessians(form, x):
                np.testing.assert_allclose(found, expected, atol=1e-14, err_msg=f"{loops}: {way}")


@pytest.mark.parametrize("function", [*SUMS, *SINGLE], ids=lambda function: function.__name__)
def test_derivatives_elsewhere(function):
    x = np.array([0.4, -1.2, 0.0, 2.5, -2.5])
    smooth = (lambda x: x @ x) if function is not product_of_three else (lambda x: x * np.cos(x) @ x)
    if function in SINGLE:
        place = 3 if function is largest else -1
        smooth = lambda x: x[place] ** 2  # noqa: E731
    with gt.config.override(loops="compile"):
        np.testing.assert_allclose(gt.jit(function)(x), smooth(x), rtol=1e-15)
        np.testing.assert_allclose(gt.grad(function)(x), gt.grad(smooth)(x), rtol=1e-14)
        np.testing.assert_allclose(gt.hessian(function)(x), gt.hessian(smooth)(x), rtol=1e-13, atol=1e-14)


def test_loops_with_a_policy():
    for policy in ("sqrt", "2", "treeverse:2"):
        with gt.config.override(loops="compile", reroll_checkpoint=policy):
            np.testing.assert_array_equal(gt.hessian(kept_in_an_array)(np.zeros(5)), 2.0 * np.eye(5))


def test_roots_that_are_squared():
    """The slope of the root is infinite, that of its square is 1."""

    def total(x):
        y = np.zeros(len(x))
        for j in range(len(x)):
            y[j] = math.sqrt(x[j])
        s = 0.0
        for j in range(len(x)):
            s += y[j] * y[j]
        return s

    def at_once(x):
        s = 0.0
        for j in range(len(x)):
            s += math.sqrt(x[j]) ** 2
        return s

    with gt.config.override(loops="compile"):
        for function in (total, at_once):
            for derive in (gt.grad, gt.jacfwd):
                np.testing.assert_array_equal(derive(function)(np.zeros(4)), np.ones(4))


def test_float32():
    with gt.config.override(loops="compile"):
        found = gt.hessian(kept_in_an_array)(np.zeros(3, np.float32))
        np.testing.assert_array_equal(found, 2.0 * np.eye(3))


def test_equal_products_of_elements_that_are_loaded_twice():
    with gt.config.override(loops="compile"):
        np.testing.assert_array_equal(gt.hessian(one_length)(np.zeros(3)), 2.0 * np.eye(3))


def test_values_are_computed_as_before():
    """The shadow is dead where no derivative is taken."""

    def arrays(procedure):
        return sum(isinstance(statement, Allocate) for statement in walk(optimise_procedure(procedure).body))

    plain = translated(kept_in_an_array, np.zeros(30)).procedure
    squared = with_smooth_squares(plain)
    assert squared is not plain
    assert arrays(squared) == arrays(plain)


def test_what_has_no_kink_is_not_changed():
    def smooth(x):
        y = np.zeros(len(x))
        for j in range(len(x)):
            y[j] = math.exp(x[j])
        s = 0.0
        for j in range(len(x)):
            s += y[j] * y[j]
        return s

    procedure = translated(smooth, np.zeros(30)).procedure
    assert with_smooth_squares(procedure) is procedure


WEIGHTS = np.array([1.0, 2.0, 3.0])
PRODUCTS = [
    (lambda x: (2.0 * np.abs(x)) ** 2, 8.0),
    (lambda x: np.square(-np.abs(x)), 2.0),
    (lambda x: (np.abs(x) / 2.0) ** 2, 0.5),
    (lambda x: (np.abs(x) * WEIGHTS) ** 2, 2.0 * WEIGHTS**2),
    (lambda x: (np.abs(x) * 3.0) * (3.0 * np.abs(x)), 18.0),
    (lambda x: -((np.linalg.norm(x) / -4.0) ** 2), -0.125),
    (lambda x: np.abs(x) * np.exp(x) * np.abs(x), 2.0),
    (lambda x: (np.cos(x) * np.abs(x)) ** 2, 2.0),
]


@pytest.mark.parametrize("loops", ["trace", "compile"])
@pytest.mark.parametrize(("function", "curvature"), PRODUCTS)
def test_products_that_are_squared(function, curvature, loops):
    def total(x):
        return np.sum(function(x))

    with gt.config.override(loops=loops):
        for way, found in hessians(total, np.zeros(3)):
            np.testing.assert_allclose(found, curvature * np.eye(3), atol=1e-14, err_msg=way)
    with gt.GradientTape() as outer:
        x = outer.watch(np.zeros(3))
        with gt.GradientTape() as inner:
            inner.watch(x)
            y = total(x)
        slope = inner.gradient(y, x)
    np.testing.assert_allclose(outer.jacobian(slope, x), curvature * np.eye(3), atol=1e-14)


@pytest.mark.parametrize("loops", ["trace", "compile"])
def test_products_elsewhere(loops):
    x = np.array([0.5, -1.25, 2.0])
    with gt.config.override(loops=loops):
        for function, smooth in (
            (lambda x: np.sum((np.abs(x) / -2.0) ** 2), lambda x: np.sum(x * x / 4.0)),
            (lambda x: np.sum((np.abs(x) * np.exp(x)) ** 2), lambda x: np.sum((x * np.exp(x)) ** 2)),
        ):
            np.testing.assert_allclose(gt.grad(function)(x), gt.grad(smooth)(x), rtol=1e-14)
            np.testing.assert_allclose(gt.jacfwd(function)(x), gt.grad(smooth)(x), rtol=1e-14)
            np.testing.assert_allclose(gt.hessian(function)(x), gt.hessian(smooth)(x), rtol=1e-13, atol=1e-14)


KINKS = (
    "abs({})",
    "math.fabs({})",
    "np.hypot({}, 0.0)",
    "math.sqrt({} ** 2)",
    "2.0 * abs({})",
    "-abs({})",
    "abs({}) / 3.0",
)
SQUARES = (
    "s += y[j] * y[j]",
    "s += y[j] ** 2",
    "s += 0.5 * y[j] * np.cos(x[j]) * y[j]",
    "t = y[j]\n        s += t * t * x[j] + t ** 2",
    "s += np.square(y[j]) * (1.0 + x[j])",
)


def random_program(seed):
    """Return the text of a function in which values with a kink count by their squares only."""
    rng = np.random.default_rng(seed)

    def pick(*items):
        return items[rng.integers(len(items))]

    kink = pick(*KINKS)
    lines = ["n = len(x)", "y = np.zeros(n)", "z = np.ones(n)", "last = 0.0", "s = 0.0"]
    lines.append(pick("for j in range(n):", "j = -1\n    while j < n - 1:\n        j += 1"))
    if rng.random() < 0.3:
        lines += [f"    if x[j] > {pick('-5.0', '0.5')}:", f"        y[j] = {kink.format('x[j]')}"]
        lines += ["    else:", f"        y[j] = {pick(*KINKS).format('x[j - 1]')}"]
    else:
        lines.append(f"    y[j] = {kink.format('x[j]')}")
    if rng.random() < 0.5:
        lines.append(f"    last = {pick('y[j]', kink.format('x[j]'), '0.5 * y[j]')}")
        if rng.random() < 0.5:
            lines.append("    s += last * last * (j + 1.0)")
    if rng.random() < 0.4:
        lines += [f"    z[j] = {pick('', '-')}y[j]", "    y[j] = z[j] * 0.5"]
    if rng.random() < 0.3:
        lines.append("y, z = z, y")
    lines += ["for j in range(n):", f"    {pick(*SQUARES)}", "s += last * last"]
    lines.append(pick("return s", "return s * s + s", "return np.sin(s)"))
    return "def program(x):\n    " + "\n    ".join(lines) + "\n"


def without_kinks(text):
    text = re.sub(r"np\.hypot\(([^,]*), 0\.0\)", r"(\1)", text)
    text = re.sub(r"math\.sqrt\((x\[[^\]]*\]) \*\* 2\)", r"(\1)", text)
    return re.sub(r"(math\.fabs|\babs)\(", "(", text)


def compiled(text, name):
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names = {"np": np, "math": math, "__name__": "programs"}
    exec(compile(text, name, "exec"), names)
    return names["program"]


def test_random_programs(exhaustive):
    for seed in range(100 if exhaustive else 3):
        text = random_program(seed)
        x = np.random.default_rng(seed).choice([0.0, 0.0, 0.7, -1.2], 4)
        function = compiled(text, f"<squares {seed}>")
        smooth = compiled(without_kinks(text), f"<squares without kinks {seed}>")
        with gt.config.override(loops="compile"):
            expected = gt.hessian(smooth)(x)
            for found in (
                gt.hessian(function)(x),
                gt.jacrev(gt.grad(function))(x),
                gt.jacfwd(gt.jacfwd(function))(x),
            ):
                np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=text)


def sorted_twice(x):
    return np.sum(np.sort(np.abs(x)) * np.sort(np.abs(x)))


def sorted_multiples(x):
    return np.sum(np.sort(-0.5 * np.sort(np.abs(x))) ** 2) * 4.0


def sorted_and_joined(x):
    return np.sum(np.concatenate([np.sort(np.abs(x)), np.ones(2)]) ** 2)


def two_norms(x):
    first = np.linalg.norm(x)
    return first * np.linalg.norm(x)


def dot_of_equal_arrays(x):
    return np.dot(np.sort(np.abs(x)), np.sort(np.abs(x)))


CALLED = (
    lambda x: np.sum(np.sort(np.abs(x)) ** 2),
    lambda x: np.sum(np.pad(np.abs(x), 1) ** 2),
    lambda x: np.sum(np.partition(np.abs(x), 0) ** 2),
    lambda x: np.sum(np.sort(np.abs(x))[::-1] ** 2),
    sorted_twice,
    sorted_multiples,
    sorted_and_joined,
    dot_of_equal_arrays,
    two_norms,
)
"""The sum of the squares of x near 0, by functions that procedures call as a whole or by loops that are equal."""


@pytest.mark.parametrize("loops", ["trace", "compile"])
@pytest.mark.parametrize("function", CALLED)
def test_squares_of_what_functions_move(function, loops):
    with gt.config.override(loops=loops):
        hessian = gt.hessian(function)
        for n in (3, 40):
            np.testing.assert_allclose(hessian(np.zeros(n)), 2.0 * np.eye(n), atol=1e-14)
        np.testing.assert_allclose(gt.jacfwd(gt.jacfwd(function))(np.zeros(3)), 2.0 * np.eye(3), atol=1e-14)
        x = np.array([0.5, -1.25, 2.0])
        np.testing.assert_allclose(gt.grad(function)(x), 2 * x, rtol=1e-14)
        np.testing.assert_allclose(hessian(x), 2 * np.eye(3), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("loops", ["trace", "compile"])
def test_norms_that_are_loops_of_their_own(loops):
    with gt.config.override(loops=loops):
        np.testing.assert_allclose(gt.hessian(two_norms)(np.zeros(300)), 2.0 * np.eye(300), atol=1e-14)


def test_arrays_that_change_between_two_norms_are_not_taken_for_equal():
    def changed(x):
        y = x * 1.0
        first = np.linalg.norm(y)
        y[0] = 3.0
        return first * np.linalg.norm(y)

    def other(x):
        return np.sum(np.sort(np.abs(x)) * np.sort(np.abs(2.0 * x)))

    x = np.linspace(0.5, 2.0, 20)
    for loops in ("trace", "compile"):
        with gt.config.override(loops=loops):
            for function in (changed, other):
                assert gt.jit(function)(x) == pytest.approx(function(x), rel=1e-14)
                slope = [(function(x + d) - function(x - d)) / 2e-6 for d in 1e-6 * np.eye(20)]
                np.testing.assert_allclose(gt.grad(function)(x), slope, rtol=1e-7)
                gradient = gt.grad(function)
                curvature = [(gradient(x + d) - gradient(x - d)) / 2e-5 for d in 1e-5 * np.eye(20)]
                np.testing.assert_allclose(gt.hessian(function)(x), curvature, atol=1e-5)
