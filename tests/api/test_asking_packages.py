"""Packages that ask arrays for their numbers: those that show or check them take arrays on tapes, and errors have a remedy for each."""

from __future__ import annotations

import functools
import pickle
import statistics
from collections.abc import Callable
from typing import Any

import matplotlib
import numba
import numpy as np
import pytest
from matplotlib.figure import Figure

import gradtape as gt
from gradtape import errors
from tests.support.ways import Function, expect

matplotlib.use("Agg")

DRAWING: dict[str, Callable[[Any, Any, Any], Any]] = {
    "plot": lambda ax, x, z: ax.plot(x, x**2, label=f"{x[0]:.1f}"),
    "scatter": lambda ax, x, z: ax.scatter(x, x, c=x, s=10 * x),
    "fill_between": lambda ax, x, z: ax.fill_between(x, x, x**2, where=x > 1),
    "contour": lambda ax, x, z: (ax.contour(z), ax.contourf(x, x, z)),
    "image": lambda ax, x, z: (ax.imshow(z), ax.pcolormesh(x, x, z)),
    "bar": lambda ax, x, z: ax.bar_label(ax.bar([0, 1, 2], x)),
    "hist": lambda ax, x, z: ax.hist(x),
    "errorbar": lambda ax, x, z: (
        ax.errorbar(x, x, yerr=[x, x]),
        ax.errorbar([1, 2, 3], x, xerr=0.1, yerr=0.1),
    ),
    "lines": lambda ax, x, z: (ax.axhline(x[0]), ax.vlines(x, 0, x[1]), ax.axline((0, x[0]), slope=x[1])),
    "limits": lambda ax, x, z: (ax.set_xlim(x[0], x[2]), ax.set_xticks(x), ax.annotate("a", (x[0], x[1]))),
}


@pytest.mark.parametrize("kind", DRAWING)
def test_matplotlib_draws_arrays(kind: str) -> None:
    def draw(x: Any) -> None:
        figure = Figure()
        DRAWING[kind](figure.add_subplot(), x, np.outer(x, x))
        figure.canvas.draw()

    numbers = np.array([1.0, 2.0, 4.0])
    draw(gt.constant(numbers))
    with gt.GradientTape() as tape:
        x = tape.watch(numbers)
        draw(x)
        y = np.sum(x**2)
    np.testing.assert_array_equal(tape.gradient(y, x), 2 * numbers)


def test_arrays_of_objects_are_refused_elsewhere() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(np.ones(2))
        for operation in (lambda y: x + y, lambda y: y - x):
            expect(errors.DtypeError, lambda f=operation: f(np.array([1, None])), "dtype object")


def test_arrays_are_checked_on_tapes() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(np.array([1.5, 2.5]))
        np.testing.assert_allclose(x, [1.5, 2.5])
        np.testing.assert_array_less(x, x + 1)
        y = np.sum(x**2)
    np.testing.assert_allclose(tape.gradient(y, x), [3.0, 5.0])


cached = functools.lru_cache(lambda x: x * 2.0)
ufunc = np.frompyfunc(lambda x: x, 1, 1)
vectorized = numba.vectorize(lambda x, y: x + y)

FORMAT = "%.3f"

REMEDIES: dict[str, tuple[type[Exception], Function, str]] = {
    "matplotlib": (errors.ConcretizationError, lambda x: Figure().add_subplot().plot(x), "plot what the function returns"),
    "np.testing": (errors.ConcretizationError, lambda x: np.testing.assert_allclose(x, x), "check what the function returns"),
    "statistics": (errors.ConcretizationError, lambda x: statistics.mean(x), "np.mean(x)"),
    "pickle": (errors.ConcretizationError, lambda x: pickle.dumps(x), "pickle what the function returns"),
    "formatting": (errors.ConcretizationError, lambda x: FORMAT % x[0], "gt.print('{:.3f}', x)"),
    "tolist": (errors.ConcretizationError, lambda x: x.tolist(), "list(x)"),
    "frompyfunc": (errors.UnsupportedFunctionError, lambda x: ufunc(x), "np.vectorize(f)(x)"),
    "numba.vectorize": (errors.UnsupportedFunctionError, lambda x: vectorized.reduce(x), "@numba.njit"),
    "lru_cache": (TypeError, lambda x: cached(x[0]), "f.__wrapped__(x)"),
    "a set": (TypeError, lambda x: set(x), "np.unique(x)"),
    "a seed": (errors.DtypeError, lambda x: np.random.default_rng(x).normal(), "pass generators"),
    "seeding": (errors.UnsupportedFunctionError, lambda x: np.random.seed(0), "default_rng(seed)"),
    "a column": (IndexError, lambda x: x["a"], "dict(df.items())"),
    "a method of pandas": (AttributeError, lambda x: x.rolling(2), "before the call"),
}  # fmt: skip


@pytest.mark.parametrize("case", REMEDIES)
def test_errors_have_the_remedy_for_what_was_called(case: str) -> None:
    error, function, remedy = REMEDIES[case]
    raised = expect(error, lambda: gt.jit(function)(np.array([1.5, 2.5])), remedy)
    assert "np.stack" not in str(raised) and "site-packages" not in str(raised)
    where = getattr(raised, "where", None)
    assert where is None or where.filename == __file__


def test_fractions_of_watched_numbers_are_refused() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(np.array([1.5, 2.5]))
        expect(errors.ConcretizationError, lambda: statistics.mean(x), "np.mean(x)")
    assert statistics.fmean(gt.constant([1.5, 2.5])) == 2.0
    assert gt.constant(1.5).as_integer_ratio() == (3, 2)


@pytest.mark.parametrize(
    ("factor", "matrix"),
    [
        (np.linalg.inv, np.ones((2, 2))),
        (lambda k: np.linalg.solve(k, np.ones(2)), np.ones((2, 2))),
        (np.linalg.cholesky, np.array([[1.0, 2.0], [2.0, 1.0]])),
    ],
)
def test_a_handler_of_an_error_computes(factor: Function, matrix: Any) -> None:
    def total(x: Any) -> Any:
        try:
            return np.sum(factor(matrix * x))
        except np.linalg.LinAlgError:
            return np.sum(factor(matrix * x + 4.0 * np.eye(2)))

    with gt.GradientTape() as tape:
        x = tape.watch(1.0)
        y = total(x)
    expected = gt.grad(lambda x: np.sum(factor(matrix * x + 4.0 * np.eye(2))))(1.0)
    np.testing.assert_allclose(tape.gradient(y, x), expected)
    np.testing.assert_allclose(gt.grad(total)(1.0), expected)


def test_the_type_of_an_array_makes_arrays() -> None:
    x = gt.constant([1.0, 2.0])
    np.testing.assert_array_equal(type(x)([x, 2 * x]), [[1.0, 2.0], [2.0, 4.0]])
    made = np.broadcast_arrays(x, 3.0, None, "a")
    assert [part.shape for part in made] == [(2,)] * 4
