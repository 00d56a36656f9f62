"""Results written into the caller's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape import errors
from tests.support.ways import PAIR, expect


def test_a_result_is_written() -> None:
    f = gt.jit(lambda x: 2 * x)
    buffer = np.empty(2)
    for _ in range(3):
        buffer[:] = 0
        assert f(PAIR, out=buffer) is buffer
        np.testing.assert_array_equal(buffer, 2 * PAIR)
    assert f.site.traces == 1
    np.testing.assert_array_equal(f(PAIR, out=None), 2 * PAIR)
    wide = np.zeros(4)
    f(PAIR, out=wide[::2])
    np.testing.assert_array_equal(wide, [2.0, 0.0, 4.0, 0.0])
    single = np.zeros(2, np.float32)
    f(PAIR, out=single)
    np.testing.assert_array_equal(single, 2 * PAIR)


def test_out_may_be_an_argument() -> None:
    x = np.arange(5.0)
    f = gt.jit(lambda x: x[::-1] + np.cumsum(x))
    expected = f(x)
    f(x, out=x)
    np.testing.assert_array_equal(x, expected)


def test_nests_of_results() -> None:
    f = gt.jit(lambda x: {"y": x * 2, "parts": (np.sum(x), None, [x])})
    out = {"y": np.empty(2), "parts": (np.empty(()), None, [np.empty(2)])}
    f(PAIR, out=out)
    np.testing.assert_array_equal(out["y"], 2 * PAIR)
    assert out["parts"][0] == 3.0
    np.testing.assert_array_equal(out["parts"][2][0], PAIR)
    expect(errors.StructureError, lambda: f(PAIR, out=np.empty(2)), "out")


@pytest.mark.parametrize(
    "function",
    [
        gt.grad(lambda x: np.sum(x**2)),
        gt.jit(lambda x: 2 * x),
        gt.vmap(lambda x: 2 * x),
        gt.jit(np.multiply),
        gt.jit(np.cumsum),
    ],
    ids=["grad", "jit", "vmap", "a ufunc", "a function of NumPy's"],
)
def test_transforms_write_too(function: Any) -> None:
    buffer = np.empty(2)
    args = (PAIR, 2.0) if function.__name__ == "multiply" else (PAIR,)
    assert function(*args, out=buffer) is buffer
    np.testing.assert_array_equal(buffer, function(*args))


def test_a_parameter_of_the_users_own() -> None:
    assert gt.jit(lambda x, out: x + out)(1.0, out=2.0) == 3.0
    assert gt.jit(lambda x, **options: x + options["out"])(1.0, out=2.0) == 3.0
    assert gt.grad(lambda x, *, out=1.0: x * out)(1.0, out=3.0) == 3.0


def test_arrays_and_variables_take_results() -> None:
    f = gt.jit(lambda x: 2 * x)
    array, variable = gt.constant(np.zeros(2)), gt.Variable(np.zeros(2))
    f(PAIR, out=array)
    f(PAIR, out=variable)
    np.testing.assert_array_equal(array, 2 * PAIR)
    np.testing.assert_array_equal(variable, 2 * PAIR)
    with gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        y = gt.constant(np.zeros(2))
        f(x, out=y)
    np.testing.assert_array_equal(tape.gradient(y, x), [2.0, 2.0])


def test_a_captured_array_takes_the_result_of_each_call() -> None:
    f, buffer = gt.jit(lambda x: 2 * x), np.zeros(2)
    whole = gt.jit(lambda x: f(x, out=buffer) + 1)
    for k in range(3):
        np.testing.assert_array_equal(whole(PAIR + k), 2 * (PAIR + k) + 1)
        np.testing.assert_array_equal(buffer, 2 * (PAIR + k))


def test_a_traced_result_does_not_leave_by_out() -> None:
    f, buffer = gt.jit(lambda x: 2 * x), np.zeros(2)
    with gt.GradientTape() as tape:
        x = tape.watch(PAIR)
        expect(errors.InPlaceError, lambda: f(x, out=buffer), "traced")
    np.testing.assert_array_equal(buffer, 0)


def test_what_cannot_take_a_result() -> None:
    f, pair = gt.jit(lambda x: 2 * x), gt.jit(lambda x: (x, 2 * x))
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    same = np.zeros(3)
    expect(errors.ShapeError, lambda: f(PAIR, out=np.zeros(3)), "(3,)", "(2,)")
    expect(errors.ShapeError, lambda: f(PAIR, out=np.zeros((1, 2))), "(1, 2)")
    expect(errors.DtypeError, lambda: f(PAIR, out=np.zeros(2, int)), "int64", "float64")
    expect(errors.DtypeError, lambda: f(PAIR * 1j, out=np.zeros(2)), "complex128")
    expect(errors.DtypeError, lambda: f(PAIR, out=3.0), "float", "np.empty")
    expect(errors.InPlaceError, lambda: f(PAIR, out=frozen), "read-only")
    expect(errors.DtypeError, lambda: f(PAIR, out=[np.zeros(2)]), "list")
    expect(errors.StructureError, lambda: pair(PAIR, out=np.zeros(2)), "out")
    expect(errors.ArgumentError, lambda: pair(PAIR, out=(same[:2], same[1:])), "share memory")
    expect(
        errors.DtypeError,
        lambda: gt.jit(lambda x: (x, "text"))(PAIR, out=(frozen.copy(), frozen.copy())),
        "str",
    )
    before = np.zeros(2)
    expect(errors.ShapeError, lambda: pair(PAIR, out=(before, np.zeros(3))))
    np.testing.assert_array_equal(before, 0)
