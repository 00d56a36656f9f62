"""Functions that are computed again for their gradient."""

import gc
import weakref

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ArgumentError, TapeError

X = np.array([0.3, 0.4])
W = np.array([[0.1, 0.2], [0.3, 0.4]])


def layer(x, w, *, gain=1.0):
    return np.tanh(np.sin(x @ w) * gain)


def loss(f):
    return lambda x, w: np.sum(f(x, w, gain=2.0) ** 2)


@pytest.mark.parametrize("make", [gt.recompute_grad, gt.checkpoint])
@pytest.mark.parametrize("settings", [{}, {"eager": True}, {"jit": False}])
def test_derivatives_are_those_of_the_function(make, settings):
    with gt.config.override(**settings):
        f = make(layer)
        plain, again = (gt.grad(loss(g), argnums=(0, 1))(X, W) for g in (layer, f))
        np.testing.assert_allclose(again[0], plain[0])
        np.testing.assert_allclose(again[1], plain[1])
        with gt.GradientTape() as tape:
            x, w = tape.watch((X, W))
            y = loss(f)(x, w)
        np.testing.assert_allclose(tape.gradient(y, w).numpy(), plain[1])
        np.testing.assert_array_equal(f(X, W, gain=2.0), layer(X, W, gain=2.0))


def test_every_order_and_mode():
    gt.check_grads(gt.recompute_grad(layer), (X, W), order=3)


def test_the_function_is_called_again_for_the_gradient():
    calls = []

    def counted(x):
        calls.append(1)
        return np.exp(x)

    f = gt.recompute_grad(counted)
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = np.sum(f(x))
    assert len(calls) == 1
    tape.gradient(y, x)
    assert len(calls) == 2


def test_the_kernel_computes_it_twice():
    def body(x):
        return np.exp(np.sin(x))

    both = gt.value_and_grad(lambda x: np.sum(gt.recompute_grad(body)(x)))
    plain = gt.value_and_grad(lambda x: np.sum(body(x)))
    again, once = (gt.inspect.loops(f, X).count("exp(") for f in (both, plain))
    assert (again, once) == (2, 1)
    assert "barrier" not in gt.inspect.graph(both, X, optimised=True)


def test_a_tape_keeps_no_intermediate_values():
    kept = []

    def body(x):
        middle = np.exp(x)
        kept.append(weakref.ref(middle.value))
        return np.sin(middle)

    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = gt.recompute_grad(body)(x)
        gc.collect()
        assert kept[0]() is None
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), np.cos(np.exp(X)) * np.exp(X))


def closed(x, w):
    """It reads two arrays from outside, one of them made inside, and both depend on the same."""
    twice = 2 * w
    return gt.checkpoint(lambda x: np.tanh(x @ twice) + np.sin(w[0] * 3))(x)


def open_(x, w):
    return np.tanh(x @ (2 * w)) + np.sin(w[0] * 3)


def test_it_differentiates_in_what_it_reads_from_outside():
    gt.check_grads(closed, (X, W), order=2)

    def second(f):
        return gt.grad(lambda x, w: np.sum(gt.grad(lambda w: np.sum(f(x, w)))(w) ** 2), argnums=(0, 1))(X, W)

    for got, expected in zip(second(closed), second(open_), strict=True):
        np.testing.assert_allclose(got, expected)
    with gt.GradientTape() as outer:
        x, w = outer.watch((X, W))
        with gt.GradientTape() as tape:
            tape.watch((x, w))
            y = np.sum(closed(x, w))
        s = np.sum(tape.gradient(y, w) ** 2)
    for got, expected in zip(outer.gradient(s, (x, w)), second(open_), strict=True):
        np.testing.assert_allclose(got.numpy(), expected)


def test_nested_checkpoints():
    inner = gt.recompute_grad(lambda x: np.exp(np.sin(x)))
    outer = gt.recompute_grad(lambda x: inner(x) * inner(2 * x))
    plain = gt.grad(lambda x: np.sum(np.exp(np.sin(x)) * np.exp(np.sin(2 * x))))(X)
    np.testing.assert_allclose(gt.grad(lambda x: np.sum(outer(x)))(X), plain)
    gt.check_grads(outer, (X,), order=2)


def test_results_may_be_nested_and_of_several_dtypes():
    f = gt.recompute_grad(lambda x: {"y": x**2, "order": np.argsort(x), "none": None, "one": 1.0})
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        result = f(x)
    assert result["none"] is None and float(result["one"]) == 1.0
    np.testing.assert_array_equal(result["order"].numpy(), [0, 1])
    np.testing.assert_allclose(tape.gradient(result["y"], x).numpy(), 2 * X)


def test_arguments_are_those_of_the_call():
    data = np.array([1.0, 2.0])
    f = gt.recompute_grad(lambda x, data: x * data)
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = f(x, data)
        data[:] = 0
    np.testing.assert_array_equal(tape.gradient(y, x).numpy(), [1, 2])


def test_without_arrays_the_function_runs_as_it_stands():
    assert type(gt.recompute_grad(np.sin)(X)) is np.ndarray


def test_a_function_that_changes_is_an_error():
    calls = []

    def changing(x):
        calls.append(1)
        return x if len(calls) == 1 else x[:1]

    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = gt.recompute_grad(changing)(x)
    with pytest.raises(TapeError, match="something else"):
        tape.gradient(y, x)


def test_it_takes_functions():
    with pytest.raises(ArgumentError):
        gt.recompute_grad(3)


def test_a_selection_reaches_what_is_computed_again():
    root = gt.checkpoint(np.sqrt)
    x = np.array([1.0, 0.0, 4.0])

    def loss(x):
        return np.sum(np.where(x > 0, root(x), 0.0))

    def repeated(x):
        return gt.scan(lambda c, v: (c + np.where(v > 0, root(v), 0.0), None), 0.0, x)[0]

    for function in (loss, repeated, gt.jit(loss), gt.jit(repeated)):
        np.testing.assert_array_equal(gt.grad(function)(x), [0.5, 0.0, 0.25])
        with gt.GradientTape() as tape:
            watched = tape.watch(x)
            y = function(watched)
        np.testing.assert_array_equal(tape.gradient(y, watched), [0.5, 0.0, 0.25])
