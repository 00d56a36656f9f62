"""Nodes without a kernel: each is a call of NumPy inside a compiled program, with a warning that has its line."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
from scipy import signal

import gradtape as gt
from gradtape.errors import CompileWarning, LoweringError
from gradtape.runtime.compile.kernel import kernels

A, B = np.array([12, 18, 7]), np.array([8, 27, 3])
X = np.linspace(0.5, 1.0, 3)


def line_of(function: Any, offset: int) -> str:
    return f"{function.__code__.co_firstlineno + offset} in {function.__name__}"


def mixed(x: Any, a: Any, b: Any) -> Any:
    y = np.sin(x) * np.gcd(a, b)
    return np.sum(y * y)


def reduced_pairs(s: Any) -> Any:
    return gt.fori_loop(0, 10, lambda i, s: s + np.gcd(s, i + 6), s)


def long_loop(a: Any) -> Any:
    s = a[0]
    for k in range(len(a)):
        if np.gcd(a[k], 4) > 1:
            s = s + np.gcd(s, a[k])
    return s


def assert_compiled(function: Any) -> None:
    assert "interpreter" not in str(gt.inspect.explain(function))


def test_one_operation_is_called_back_with_a_warning_that_has_its_line() -> None:
    function = gt.jit(mixed)
    with pytest.warns(CompileWarning, match="gcd of int64 has no kernel") as caught:
        assert function(X, A, B) == pytest.approx(mixed(X, A, B), rel=1e-14)
    assert len(caught) == 1 and line_of(mixed, 1) in str(caught[0].message)
    assert caught[0].filename == __file__
    assert_compiled(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert function(X, B, A) == pytest.approx(mixed(X, B, A), rel=1e-14)


def test_derivatives_around_it_are_compiled() -> None:
    gradient = gt.grad(mixed)
    with pytest.warns(CompileWarning, match="gcd"):
        found = gradient(X, A, B)
    np.testing.assert_allclose(found, 2 * np.sin(X) * np.cos(X) * np.gcd(A, B) ** 2, rtol=1e-13)
    assert_compiled(gradient)


def test_in_a_loop_and_in_a_procedure() -> None:
    loop = gt.jit(reduced_pairs)
    with pytest.warns(CompileWarning, match="gcd of int64"):
        assert loop(np.int64(8)) == 27
    assert_compiled(loop)
    function = gt.jit(long_loop)
    with gt.config.override(loops="compile"), pytest.warns(CompileWarning, match="gcd of int64") as caught:
        assert function(np.arange(50)) == long_loop(np.arange(50))
    assert line_of(long_loop, 3) in str(caught[0].message)
    assert_compiled(function)


def test_an_error_of_numpy_is_raised_by_each_call() -> None:
    function = gt.jit(lambda a, n: a**n + 1)
    with pytest.warns(CompileWarning, match="power of int64"):
        np.testing.assert_array_equal(function(A, np.array([0, 1, 2])), A ** np.array([0, 1, 2]) + 1)
    for _ in range(2):
        with pytest.raises(ValueError, match="negative integer powers"):
            function(A, np.array([0, -1, 2]))
    np.testing.assert_array_equal(function(A, np.array([2, 1, 2])), A ** np.array([2, 1, 2]) + 1)


def test_machine_code_from_the_disk_warns_again(tmp_path: Path) -> None:
    with gt.config.override(disk_cache=True, cache_dir=str(tmp_path)):
        for origin in ("compiled", "loaded"):
            kernels.clear()
            function = gt.jit(mixed)
            with pytest.warns(CompileWarning, match="gcd of int64") as caught:
                assert function(X, A, B) == pytest.approx(mixed(X, A, B), rel=1e-14)
            assert line_of(mixed, 1) in str(caught[0].message)
            assert origin in str(gt.inspect.explain(function))


def test_in_the_background_and_in_threads() -> None:
    with gt.config.override(compile="background"), warnings.catch_warnings():
        warnings.simplefilter("ignore", CompileWarning)
        function = gt.jit(lambda x, a, b: mixed(x, a, b) + 1.0)
        expected = mixed(X, A, B) + 1.0
        found: list[Any] = []
        threads = [
            threading.Thread(target=lambda: found.extend(function(X, A, B) for _ in range(200)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 800
    np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize(("function", "line"), [(mixed, 1), (long_loop, 3)])
def test_c_refuses_it_with_its_line(function: Any, line: int, tmp_path: Path) -> None:
    integers = gt.spec((3,), np.int64)
    specs = (gt.spec((3,)), integers, integers) if function is mixed else (gt.spec((60,), np.int64),)
    with (
        gt.config.override(loops="auto" if function is mixed else "compile"),
        pytest.raises(LoweringError, match="gcd cannot be exported") as caught,
    ):
        gt.export(function, *specs, path=tmp_path / "f.c")
    assert line_of(function, line) in str(caught.value)


def test_a_program_of_a_dtype_without_kernels_warns() -> None:
    function = gt.jit(lambda x: np.sin(x) * 2)
    x = np.array([0.5, 1.0], np.float16)
    with pytest.warns(CompileWarning, match="runs on the interpreter"):
        found = function(x)
    np.testing.assert_array_equal(found, np.sin(x) * 2)


RNG = np.random.default_rng(5)
Z = RNG.normal(size=(4, 5)) + 1j * RNG.normal(size=(4, 5))
SPECIAL = Z.copy()
SPECIAL[0, 1], SPECIAL[1, 2], SPECIAL[2, 3] = complex(np.nan, 1), complex(1, np.nan), complex(np.nan, np.nan)
SPECIAL[3, 0], SPECIAL[0, 0], SPECIAL[3, 3] = complex(np.inf, -1), complex(2, np.nan), complex(2, np.nan)

ALONG = {
    "prod": lambda z: (
        np.prod(z),
        np.prod(z, axis=0),
        np.prod(z, axis=1),
        np.prod(z[:0]),
        np.prod(z[:1], axis=0),
    ),
    "cumprod": lambda z: (
        np.cumprod(z),
        np.cumprod(z, axis=0),
        np.cumprod(z[:, :1], axis=1),
        np.cumprod(z[:0], axis=0),
    ),
    "extrema": lambda z: (np.max(z), np.min(z, axis=0), np.max(z, axis=1), np.ptp(z, axis=0)),
    "places": lambda z: (np.argmax(z), np.argmin(z, axis=0), np.argmax(z, axis=1)),
    "running": lambda z: (np.maximum.accumulate(z, axis=1), np.minimum.accumulate(z, axis=0)),
    "sorted": lambda z: (
        np.sort(z),
        np.sort(z, axis=0),
        np.sort(z, axis=None),
        np.argsort(z, axis=1, stable=True),
    ),
    "searched": lambda z: (
        np.searchsorted(np.sort(z[0]), z),
        np.searchsorted(np.sort(z[1]), z[2], side="right"),
    ),
}


@pytest.mark.parametrize(
    "data", [Z, np.round(Z), Z.astype(np.complex64), SPECIAL], ids=["plain", "ties", "single", "nan"]
)
@pytest.mark.parametrize("name", ALONG)
def test_complex_numbers_along_axes_are_compiled(name: str, data: Any) -> None:
    function = gt.jit(ALONG[name])
    with np.errstate(all="ignore"):
        expected = ALONG[name](data)
    for found, right in zip(function(data), expected, strict=True):
        assert found.dtype == right.dtype
        np.testing.assert_allclose(found, right, rtol=1e-5 if data.dtype == np.complex64 else 1e-13)
    assert_compiled(function)


@pytest.mark.parametrize(
    "name",
    ["gamma", "loggamma", "rgamma", "psi", "erf", "erfc", "erfi", "dawsn", "exp1", "spence", "wrightomega"],
)
def test_complex_special_functions_are_compiled(name: str) -> None:
    ufunc = getattr(scipy.special, name)
    function = gt.jit(lambda z: ufunc(z) * 2)
    for data in (Z, Z.astype(np.complex64)):
        found, right = function(data), ufunc(data) * 2
        assert found.dtype == right.dtype
        np.testing.assert_allclose(found, right, rtol=1e-5 if data.dtype == np.complex64 else 1e-14)
    assert_compiled(function)


def test_filters_are_compiled() -> None:
    designs = [
        lambda w: signal.butter(4, w),
        lambda w: signal.cheby1(4, 1.0, w),
        lambda w: signal.ellip(4, 1.0, 40.0, w),
        lambda w: signal.bode(([w], [1.0, 0.5, w]), w=np.linspace(0.5, 2.0, 20))[1:],
    ]
    for design in designs:
        function = gt.jit(design)
        for w in (np.float64(0.3), np.float64(0.4)):
            for found, right in zip(function(w), design(w), strict=True):
                np.testing.assert_allclose(found, right, rtol=1e-9)
        assert_compiled(function)
