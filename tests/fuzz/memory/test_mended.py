"""Programs in which random programs have found wrong answers, as NumPy runs them, in all ways."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
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


def _pairs(x: Any) -> Any:
    return np.stack([x, 2 * x, 3 * x]).transpose(0, 2, 1)


LAID_OUT_BY_NUMPY: dict[str, Callable[[Any], Any]] = {
    "sort": lambda x: np.sort(x, axis=0),
    "partition": lambda x: np.partition(x, 1, axis=0),
    "cumsum": lambda x: np.cumsum(x, axis=0),
    "cumprod": lambda x: np.cumprod(x, axis=1),
    "x.cumsum": lambda x: x.cumsum(axis=0),
    "nancumsum": lambda x: np.nancumsum(x, axis=1),
    "accumulate": lambda x: np.maximum.accumulate(x, axis=1),
    "add.reduce": lambda x: np.add.reduce(_pairs(x), axis=0),
    "roll": lambda x: np.roll(x, 1, axis=0),
    "diff": lambda x: np.diff(x, axis=0),
    "pad": lambda x: np.pad(x, 1),
    "concatenate": lambda x: np.concatenate([x, x]),
    "stack": lambda x: np.stack([x, x], axis=2),
    "vstack": lambda x: np.vstack([x, x]),
    "dstack": lambda x: np.dstack([x, x]),
    "block": lambda x: np.block([[x, x], [x, x]]),
    "tile": lambda x: np.tile(x, (2, 1)),
    "delete": lambda x: np.delete(x, 0, axis=0),
    "insert": lambda x: np.insert(x, 0, 1.0, axis=0),
    "append": lambda x: np.append(x, x, axis=0),
    "gradient": lambda x: np.gradient(x, axis=0),
    "kron": lambda x: np.kron(x, x),
    "sum": lambda x: np.sum(np.stack([x, x]).T, axis=2),
    "max": lambda x: np.max(_pairs(x), axis=0),
    "mean": lambda x: np.mean(_pairs(x), axis=1, keepdims=True),
    "median": lambda x: np.median(_pairs(x), axis=0),
    "std": lambda x: np.std(_pairs(x), axis=0),
    "trapezoid": lambda x: np.trapezoid(_pairs(x), axis=0),
    "outer": lambda x: np.outer(x[:, 0], x[0]).T * 1,
    "unwrap": lambda x: np.unwrap(x, axis=0),
    "fft": lambda x: np.fft.fft(x, axis=0).real,
    "take": lambda x: np.take(x, [1, 0], axis=0),
    "repeat": lambda x: x.repeat(2, axis=1),
    "solve": lambda x: np.linalg.solve(np.eye(len(x)) * 2, x),
    "qr": lambda x: np.linalg.qr(x)[0],
    "zeros_like": lambda x: np.zeros_like(x) + x,
    "copy": lambda x: np.copy(x),
    "astype": lambda x: x.astype(np.float32),
    "einsum": lambda x: np.einsum("ij,jk->ki", x, x.T),
    "expand_dims": lambda x: np.expand_dims(x, 0) * 1,
}
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "C": lambda x: x,
    "transposed": lambda x: x.T.copy().T,
    "reversed": lambda x: x[::-1].copy()[::-1],
    "broadcast": lambda x: np.broadcast_to(x[0], x.shape),
}


@pytest.mark.parametrize("name", LAID_OUT_BY_NUMPY)
def test_a_reshape_is_a_view_where_numpys_is_one(name: str) -> None:
    """In code compiled from its source results of all functions had been taken for C-ordered: writes reached arrays, or did not."""

    def written(x: Any) -> Any:
        y = LAID_OUT_BY_NUMPY[name](x)
        z = y.reshape(-1)
        z[1] = 70.0
        return y * 1, z * 1

    def in_memory_order(x: Any) -> Any:
        return LAID_OUT_BY_NUMPY[name](x).ravel("K") * 1

    def flattened(x: Any) -> Any:
        y = LAID_OUT_BY_NUMPY[name](x)
        z = np.ravel(y)
        y[0] = 7.0
        return y * 1, z * 1, y.flatten("A")

    x = np.array([[3.0, 1.0, 4.0], [1.5, 9.0, 2.0], [6.0, 5.0, 3.5], [8.0, 9.5, 7.0]])
    for layout, function in itertools.product(LAYOUTS, (written, in_memory_order, flattened)):
        argument = LAYOUTS[layout](x)
        with gt.config.override(loops="compile", jit=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = function(argument)
            try:
                found = gt.jit(function)(argument)
            except (gt.errors.InPlaceError, gt.errors.UnsupportedFunctionError):
                assert layout == "broadcast"  # where NumPy's functions differ
                continue
        for mine, numpys in zip(_as_tuple(found), _as_tuple(expected), strict=True):
            np.testing.assert_allclose(mine, numpys, rtol=1e-12, err_msg=f"{layout}, {function.__name__}")


def _as_tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


COLUMNS = np.asfortranarray(np.arange(12.0).reshape(3, 4))


def _captured(x: Any) -> Any:
    y = COLUMNS * x[0, 0]
    z = y.reshape(-1)
    z[1] = 70.0
    return y * 1, z * 1


def _some_rows(x: Any) -> Any:
    count = 0
    for k in range(len(x)):
        if x[k, 0] > 2:
            count += 1
    y = x[:count].T * 2
    z = y.reshape(-1)
    z[1] = 70.0
    return np.sum(y * y), np.sum(z * np.arange(1.0, 1.0 + len(z)))


def _large_rows(x: Any) -> Any:
    y = np.sort(x.T, axis=0)
    for k in range(len(x)):
        if x[k, 0] > 2:
            y = y + 1
    return y


def _result_of_a_loop(x: Any) -> Any:
    y = _large_rows(x)
    z = y.reshape(-1)
    z[1] = 70.0
    return y * 1, z * 1


def _real_part(x: Any) -> Any:
    c = x * (1 + 2j)
    y = c.real
    y[0] = 5.0
    return np.abs(c), y * 1


def _imaginary_part(x: Any) -> Any:
    c = np.fft.fft(x, axis=0)
    y = np.imag(c)
    y[0] += 5.0
    return np.abs(c), y * 1


@pytest.mark.parametrize(
    "function",
    [_captured, _some_rows, _result_of_a_loop, _real_part, _imaginary_part],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("loops", ["auto", "compile"])
def test_writes_reach_what_numpys_reach(function: Any, loops: str) -> None:
    x = np.array([[3.0, 1.0, 4.0], [1.5, 9.0, 2.0], [6.0, 5.0, 3.5], [8.0, 9.5, 7.0]])
    for layout, make in LAYOUTS.items():
        expected = function(make(x))
        with gt.config.override(loops=loops, jit=False):
            found = gt.jit(function)(make(x))
        for mine, numpys in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, numpys, rtol=1e-12, atol=1e-12, err_msg=layout)


@pytest.mark.parametrize("name", ["copy", "sort", "astype", "zeros_like"])
def test_copies_of_repeated_elements_are_in_the_order_of_numpy(name: str) -> None:
    x = np.broadcast_to(np.arange(3.0), (4, 3))

    def written(x: Any) -> Any:
        y = LAID_OUT_BY_NUMPY[name](x)
        z = y.reshape(-1)
        z[1] = 70.0
        return y * 1

    assert np.array_equal(gt.jit(written)(x), written(x))


def _diagonal_written(x: Any) -> Any:
    d = np.diag(x)
    x[0, 0] = 50.0
    return d * 1


def _last_diagonal_written(x: Any) -> Any:
    d = np.linalg.diagonal(x, offset=1)
    x[0, 1] = 50.0
    return d * 1


def _diagonal_made(x: Any) -> Any:
    return np.diag(x[0], 1) + np.diag(x[:, 0], k=-1)


def _real_if_close(x: Any) -> Any:
    c = x * (1 + 0j)
    r = np.real_if_close(c)
    c[0] = 9.0
    return r * 1


def _real_already(x: Any) -> Any:
    r = np.real_if_close(x)
    x[0] = 9.0
    return r * 1


def _conjugate_of_real(x: Any) -> Any:
    z = x.conj()
    z[0] = 9.0
    return x * 1


def _first_power(x: Any) -> Any:
    z = np.linalg.matrix_power(x, 1)
    x[0, 0] = 9.0
    return z * 1


def _windows(x: Any) -> Any:
    w = np.lib.stride_tricks.sliding_window_view(x, 2, axis=1)
    x[1] = 9.0
    return w * 1


def _slice_of_flat(x: Any) -> Any:
    z = x.flat[1:4]
    z[0] = 9.0
    x[0, 2] = 7.0
    return np.sum(x) + z


def _elements_of_flat(x: Any) -> Any:
    x.flat[2:4] = x.flat[0:2]
    x.flat[0] = x.flat[-1]
    return x * 1


@pytest.mark.parametrize(
    "function",
    [
        _diagonal_written,
        _last_diagonal_written,
        _diagonal_made,
        _real_if_close,
        _real_already,
        _conjugate_of_real,
        _first_power,
        _windows,
        _slice_of_flat,
        _elements_of_flat,
    ],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("loops", LOOPS)
def test_views_and_copies_are_numpys(function: Any, loops: Any) -> None:
    x = np.arange(1.0, 10.0).reshape(3, 3)
    weights = np.cos(np.arange(function(x.copy()).size)).reshape(function(x.copy()).shape)

    def total(x: Any) -> Any:
        return np.sum(function(x * 1) * weights)

    expected = [(total(x + 0.5 * unit) - total(x - 0.5 * unit)) for unit in np.eye(9).reshape(9, 3, 3)]
    for jit in (True, False):
        with gt.config.override(loops=loops, jit=jit):
            np.testing.assert_array_equal(gt.jit(function)(x.copy()), function(x.copy()))
    with gt.config.override(loops=loops):
        np.testing.assert_allclose(gt.grad(total)(x).ravel(), expected, rtol=1e-9, atol=1e-9)
    with gt.GradientTape() as tape:
        found = function(tape.watch(x) * 1)
    np.testing.assert_array_equal(found.numpy(), function(x.copy()))
