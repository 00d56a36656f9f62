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
from scipy.fft._pocketfft import pypocketfft
from scipy.linalg import blas
from scipy.spatial import _voronoi
from scipy.special import cython_special

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
    "np.testing": (errors.ConcretizationError, lambda x: np.testing.assert_allclose(x, x), "check the results outside"),
    "statistics": (errors.ConcretizationError, lambda x: statistics.mean(x), "np.mean(x)"),
    "pickle": (errors.ConcretizationError, lambda x: pickle.dumps(x), "pickle the results"),
    "formatting": (errors.ConcretizationError, lambda x: FORMAT % x[0], "gt.print('{:.3f}', x)"),
    "frompyfunc": (errors.UnsupportedFunctionError, lambda x: ufunc(x), "np.vectorize(f)(x)"),
    "numba.vectorize": (errors.UnsupportedFunctionError, lambda x: vectorized.reduce(x), "@numba.njit"),
    "lru_cache": (TypeError, lambda x: cached(x[0]), "f.__wrapped__(x)"),
    "a set": (TypeError, lambda x: set(x), "np.unique(x)"),
    "a seed": (errors.DtypeError, lambda x: np.random.default_rng(x).normal(), "pass generators"),
    "a column": (IndexError, lambda x: x["a"], "dict(df.items())"),
    "a method of pandas": (AttributeError, lambda x: x.rolling(2), "pd.Series(x)"),
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


EXTENSIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "memory view": (
        lambda x: _voronoi.sort_vertices_of_regions(x, [[1]]),
        "scipy.spatial._voronoi",
    ),
    "fused types": (lambda x: cython_special.gamma(x[0]), "scipy.special.cython_special"),
    "pybind11": (lambda x: pypocketfft.c2c(x), "scipy.fft._pocketfft.pypocketfft"),
}
"""Functions of extension modules that raise errors of their own for traced arrays, with their modules."""


def _on_tape(function: Callable[[Any], Any], x: Any) -> None:
    with gt.GradientTape() as tape:
        function(tape.watch(x))


def _in_forward_mode(function: Callable[[Any], Any], x: Any) -> None:
    primal = gt.constant(x)
    with gt.ForwardAccumulator(primal, x):
        function(primal)


@pytest.mark.parametrize("kind", EXTENSIONS)
def test_errors_of_extension_modules_say_what_to_do(kind: str) -> None:
    function, module = EXTENSIONS[kind]
    x = np.arange(1.0, 5.0)
    for call in (
        lambda: gt.jit(function)(x),
        lambda: gt.grad(gt.jit(function))(x),
        lambda: gt.vjp(function, x),
        lambda: gt.jvp(function, (x,), (x,)),
        lambda: gt.vmap(function)(x[None]),
        lambda: _on_tape(function, x),
        lambda: _in_forward_mode(function, x),
    ):
        with pytest.raises(TypeError) as caught:
            call()
        (note,) = [note for note in caught.value.__notes__ if "what to do" in note]
        assert f"this function of {module} is compiled" in note and "gt.callback" in note
        assert f"{__file__}:{function.__code__.co_firstlineno}" in note


def test_the_note_names_the_line_of_a_block_that_calls_an_extension_module_itself() -> None:
    with pytest.raises(TypeError) as caught, gt.GradientTape() as tape:
        x = tape.watch(np.ones(3))
        pypocketfft.c2c(x)
    (note,) = caught.value.__notes__
    assert f"{__file__}:{caught.tb.tb_lineno} in " in note and "while a tape recorded" in note


def test_arrays_that_extension_modules_convert_have_the_same_remedy() -> None:
    expect(errors.ConcretizationError, lambda: gt.jit(lambda x: blas.ddot(x, x))(np.ones(3)), "gt.callback")


def test_other_errors_have_no_note_about_extension_modules() -> None:
    def wrong_call(x: Any) -> Any:
        return np.sum(x, nothing=x)

    def text(x: Any) -> Any:
        return x * int("z", x.ndim + 9)  # fails in C code of Python

    def own(x: Any) -> Any:
        raise TypeError("of the user")

    for function in (wrong_call, text, own):
        for call in (lambda f=function: gt.jit(f)(np.ones(3)), lambda f=function: _on_tape(f, np.ones(3))):
            with pytest.raises((TypeError, ValueError)) as caught:
                call()
            notes = getattr(caught.value, "__notes__", ())
            assert not any("is compiled" in note for note in notes)


def test_callback_calls_an_extension_module() -> None:
    @gt.jit
    def spectrum(x: Any) -> Any:
        return gt.callback(pypocketfft.c2c, np.zeros(4, complex), x + 0j)

    x = np.arange(4.0)
    np.testing.assert_allclose(spectrum(x), np.fft.fft(x), atol=1e-15)
