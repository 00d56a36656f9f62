"""Programs in which random programs have found wrong answers, as NumPy runs them, in all ways."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import gradtape as gt

LOOPS = ("trace", "compile")


def _diagonal(x: Any) -> Any:
    y = np.einsum("ii->i", x)
    y[0] = 7.0
    return x * 1


def _moved(x: Any) -> Any:
    y = np.einsum("...i->i...", x)
    y[0] = 7.0
    return x * 1


def _implicit(x: Any) -> Any:
    y = np.einsum("i...", x)
    y[0, 1] = 7.0
    return x * 1


def _diagonal_of_last(x: Any) -> Any:
    y = np.einsum("...ii->...i", x)
    y[0] = 7.0
    return x * 1


@pytest.mark.parametrize("loops", LOOPS)
@pytest.mark.parametrize("function", [_diagonal, _moved, _implicit, _diagonal_of_last])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_einsum_without_a_sum_is_a_view(function: Any, order: Any, loops: Any) -> None:
    x = np.arange(9.0).reshape(3, 3).copy(order=order)
    with gt.config.override(loops=loops):
        assert np.array_equal(gt.jit(function)(x), function(x.copy(order="K")))


SELECTIONS = {
    "columns": lambda x: x[:, [0, 0]],
    "rows and columns": lambda x: x[[0, 1]][:, [1, 2]],
    "transposed": lambda x: x[:, np.array([2, 0])].T,
    "rows": lambda x: x[[0, 2], :],
    "rows of rows": lambda x: x[np.array([[0, 1], [1, 0]])],
    "columns of columns": lambda x: x[:, np.array([[0, 1], [1, 0]])],
    "with a new axis": lambda x: x[:, None, [0, 1]],
    "three axes": lambda x: np.stack([x, 2 * x])[:, [2, 0]],
}


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_selected_elements_are_in_the_order_of_numpy_in_translated_code(name: str, order: Any) -> None:
    x = np.arange(9.0).reshape(3, 3).copy(order=order)

    def ravelled(x: Any) -> Any:
        return SELECTIONS[name](x).ravel("K")

    def written(x: Any) -> Any:
        y = SELECTIONS[name](x)
        z = y.reshape(-1)
        z[0] = 9.0
        return y * 1

    with gt.config.override(loops="compile"):
        for function in (ravelled, written):
            assert np.array_equal(gt.jit(function)(x), function(x))


@pytest.mark.parametrize("loops", LOOPS)
def test_vectorized_functions_keep_the_layout(loops: Any) -> None:
    def f(x: Any) -> Any:
        return np.vectorize(lambda t: 2 * t)(x).ravel("K")

    def g(x: Any) -> Any:
        return f(x.T)

    x = np.arange(6.0).reshape(2, 3)
    with gt.config.override(loops=loops):
        for function in (f, g):
            for argument in (x, np.asfortranarray(x)):
                assert np.array_equal(gt.jit(function)(argument), function(argument))


def test_bessel_functions_of_half_precision_have_it() -> None:
    x = np.array([0.5, 1.5, 3.0], np.float16)
    with pytest.warns(gt.errors.CompileWarning, match="float16"):
        result = gt.jit(np.i0)(x)
    assert result.dtype == np.i0(x).dtype == np.float16
    assert np.allclose(result, np.i0(x), rtol=2e-3)
    assert gt.jit(np.i0)(x.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("dtype", [int, float])
def test_complex_numbers_of_a_tape_are_written_by_their_real_part(dtype: Any) -> None:
    b = np.zeros(2, dtype)
    with gt.GradientTape() as tape:
        z = tape.watch(np.complex128(2 + 3j)) * 1
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            b[0] = z
    assert np.exceptions.ComplexWarning in [one.category for one in shown]
    assert b.tolist() == [2, 0]
