"""Writes to arguments that are read-only: NumPy's error, at each call and in every way of calling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt


def _item(x: Any) -> Any:
    x[0] = 9.0
    return x * 2


def _in_place(x: Any) -> Any:
    x += 1
    return x * 2


def _loop(x: Any) -> Any:
    for i in range(len(x)):
        x[i] = x[i] * 2
    return x * 1


def _view(x: Any) -> Any:
    y = x[1:]
    y[0] = 1.0
    return x * 1


def _reshaped(x: Any) -> Any:
    y = x.reshape(-1)
    y[0] = 5.0
    return x * 1


def _out(x: Any) -> Any:
    np.add(x, 1, out=x)
    return x * 1


def _sorted(x: Any) -> Any:
    x.sort()
    return x * 1


def _filled(x: Any) -> Any:
    x.fill(1.0)
    return x * 1


def _put(x: Any) -> Any:
    np.put(x, [0], 1.0)
    return x * 1


def _flat(x: Any) -> Any:
    x.flat[0] = 1.0
    return x * 1


def _copy(x: Any) -> Any:
    y = x.copy()
    y[0] = 1.0
    return y


def _array(x: Any) -> Any:
    y = np.array(x)
    y[0] = 1.0
    return y


def _astype(x: Any) -> Any:
    y = x.astype(float)
    y[0] = 1.0
    return y


WRITING = (_item, _in_place, _loop, _view, _reshaped, _out, _sorted, _filled, _put, _flat)
NOT_WRITING = (_copy, _array, _astype)


def numbers(writeable: bool = False) -> Any:
    x = np.array([3.0, 1.0, 2.0])
    x.flags.writeable = writeable
    return x


@pytest.mark.parametrize("loops", ["auto", "compile"])
@pytest.mark.parametrize("function", WRITING)
def test_writes_are_refused(function: Any, loops: Any) -> None:
    with gt.config.override(loops=loops):
        with pytest.raises(ValueError, match="read-only"):
            function(numbers())
        total = lambda x: np.sum(function(x))  # noqa: E731
        for transformed in (gt.jit(function), gt.grad(total), gt.jit(gt.grad(total)), gt.jacobian(function)):
            with pytest.raises(ValueError, match="read-only"):
                transformed(numbers())
        rows = np.broadcast_to(numbers(), (2, 3))
        with pytest.raises(ValueError, match="read-only"):
            gt.vmap(function)(rows)


@pytest.mark.parametrize("function", WRITING)
def test_writes_are_refused_after_calls_with_writeable_arrays(function: Any) -> None:
    jitted = gt.jit(function)
    expected = function(numbers(writeable=True))
    for _ in range(3):
        assert np.array_equal(jitted(numbers(writeable=True)), expected)
    for _ in range(2):
        with pytest.raises(ValueError, match="read-only"):
            jitted(numbers())
    assert np.array_equal(jitted(numbers(writeable=True)), expected)


@pytest.mark.parametrize("function", NOT_WRITING)
def test_copies_of_arrays_that_are_read_only_are_written_to(function: Any) -> None:
    x = numbers()
    assert np.array_equal(gt.jit(function)(x), [1.0, 1.0, 2.0])
    assert np.array_equal(gt.grad(lambda x: np.sum(function(x)))(x), [0.0, 1.0, 1.0])
    assert np.array_equal(gt.vmap(function)(np.broadcast_to(x, (2, 3))), [[1.0, 1.0, 2.0]] * 2)
    assert np.array_equal(x, [3.0, 1.0, 2.0])


def test_a_call_that_takes_the_branch_without_a_write_is_not_refused() -> None:
    def f(x: Any, n: Any) -> Any:
        if n > 0:
            x[0] = 5.0
        return x * 2

    jitted = gt.jit(f)
    assert jitted(numbers(writeable=True), 1)[0] == 10.0
    for _ in range(2):
        assert jitted(numbers(), -1)[0] == 6.0
        with pytest.raises(ValueError, match="read-only"):
            jitted(numbers(), 1)


def test_the_error_has_the_line_of_the_write() -> None:
    with pytest.raises(gt.errors.InPlaceError, match=r"test_read_only\.py:14 in _item"):
        gt.jit(_item)(numbers())


WRITES = [
    lambda w: w.__setitem__(0, 1.0),
    lambda w: w.fill(0.0),
    lambda w: np.exp(w, out=w),
    lambda w: w.__iadd__(1.0),
    lambda w: w[0].__setitem__(0, 2.0),
    lambda w: w.T.__setitem__(0, 2.0),
    lambda w: w.ravel().__setitem__(0, 3.0),
    lambda w: w.sort(),
    lambda w: np.put(w, [0], [1.0]),
]


@pytest.mark.parametrize("write", WRITES)
def test_a_tape_watches_a_read_only_array_as_one(write):
    x = np.arange(1.0, 7.0).reshape(2, 3)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        write(x)
    with gt.GradientTape() as tape:
        w = tape.watch(x)
        with pytest.raises(ValueError, match="read-only"):
            write(w)
        copy = w.copy()
        write(copy)
        y = np.sum(w**2)
    np.testing.assert_array_equal(tape.gradient(y, w), 2 * x)
    assert not w.flags.writeable
    assert not w[0].flags.writeable
    assert copy.flags.writeable


def test_second_derivatives_on_tapes():
    x = np.arange(1.0, 4.0)
    x.flags.writeable = False
    with gt.GradientTape() as outer:
        w = outer.watch({"a": x})["a"]
        with gt.GradientTape() as inner:
            inner.watch(w)
            y = np.sum(w**3)
        slope = inner.gradient(y, w)
    np.testing.assert_allclose(outer.jacobian(slope, w), np.diag(6 * x))


@pytest.mark.parametrize(
    "view",
    [
        np.diagonal,
        np.imag,
        np.real,
        np.transpose,
        lambda x: np.diagonal(x)[1:],
        lambda x: np.broadcast_to(x[0], (2, 3)).T,
        lambda x: np.diagonal(x) * 1.0,
        lambda x: np.lib.stride_tricks.as_strided(x, (3, 2), (8, 8), writeable=False),
        lambda x: np.lib.stride_tricks.as_strided(x, (3, 2), (8, 8)),
    ],
)
def test_flags(view):
    x = np.arange(6.0).reshape(2, 3)
    seen = []

    def noted(x):
        seen.append(view(x).flags.writeable)
        return 1.0 * x

    with gt.GradientTape() as tape:
        noted(tape.watch(x))
    gt.jit(noted)(x)
    assert seen == [view(x).flags.writeable] * 2
