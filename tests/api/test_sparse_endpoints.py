"""Sparse arrays as what is differentiated, what is differentiated in, and as weights."""

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ShapeError, UnconnectedError

SHAPE = (5, 2)


def slices(values=None, indices=(1, 3)):
    return gt.IndexedSlices(np.arange(4.0).reshape(2, 2) if values is None else values, indices, SHAPE)


def check(found, values, indices=(1, 3)):
    assert isinstance(found, gt.IndexedSlices)
    np.testing.assert_allclose(found.values, values)
    np.testing.assert_array_equal(found.indices, indices)
    assert found.dense_shape == SHAPE


@pytest.mark.parametrize("choice", ["none", "zero", "raise"])
def test_a_gradient_in_a_sparse_array_has_its_places(choice, recwarn):
    with gt.GradientTape(persistent=True) as tape:
        given = tape.watch({"table": slices(), "rest": [np.ones(2)]})
        loss = np.sum(gt.asarray(given["table"]) ** 2) * np.sum(given["rest"][0])
    assert not recwarn.list
    found = tape.gradient(loss, given, unconnected_gradients=choice)
    check(found["table"], 4.0 * np.arange(4.0).reshape(2, 2))
    np.testing.assert_allclose(found["rest"][0], [14, 14])
    check(tape.gradient(loss, given["table"], unconnected_gradients=choice), found["table"].values)


def test_sparse_arrays_without_influence():
    with gt.GradientTape(persistent=True) as tape:
        given = tape.watch([slices()])
        loss = gt.constant(1.0) * 2.0
    assert tape.gradient(loss, given) == [None]
    check(tape.gradient(loss, given, unconnected_gradients="zero")[0], np.zeros((2, 2)))
    with pytest.raises(UnconnectedError):
        tape.gradient(loss, given, unconnected_gradients="raise")


def test_the_values_of_a_sparse_target_are_summed():
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(np.ones((2, 2)))
        target = slices(3.0 * x)
        whole = 3.0 * x
    np.testing.assert_allclose(tape.gradient([target], x), np.full((2, 2), 3.0))
    for seed in (slices(np.full((2, 2), 2.0)), np.full((2, 2), 2.0)):
        np.testing.assert_allclose(tape.gradient(target, x, output_gradients=seed), np.full((2, 2), 6.0))
    # For an array, a sparse weight is the array that it stands for.
    seed = gt.IndexedSlices(np.ones((1, 2)), [1], (2, 2))
    np.testing.assert_allclose(tape.gradient(whole, x, output_gradients=seed), [[0, 0], [3, 3]])
    with pytest.raises(ShapeError):
        tape.gradient(whole, x, output_gradients=slices())


def test_grad_in_a_sparse_argument():
    def loss(table, w):
        return np.sum(gt.asarray(table) ** 2) * w

    for slope in (gt.grad(loss), gt.jit(gt.grad(loss))):
        check(slope(slices(), 2.0), 4.0 * np.arange(4.0).reshape(2, 2))
    table, w = gt.grad(loss, argnums=(0, 1))(slices(), 2.0)
    check(table, 4.0 * np.arange(4.0).reshape(2, 2))
    assert float(w) == 14.0


@pytest.mark.parametrize("jit", [False, True])
def test_the_tangent_of_a_sparse_result_has_its_places(jit):
    def function(x):
        return {"rows": slices(2.0 * x), "none": None, "sum": np.sum(x)}

    def both(x, d):
        return gt.jvp(function, (x,), (d,))

    y, tangent = (gt.jit(both) if jit else both)(np.ones((2, 2)), np.full((2, 2), 3.0))
    check(y["rows"], np.full((2, 2), 2.0))
    check(tangent["rows"], np.full((2, 2), 6.0))
    assert (tangent["none"], float(tangent["sum"])) == (None, 12.0)


def test_forward_over_a_sparse_gradient():
    table = gt.constant(np.ones(SHAPE))
    with gt.ForwardAccumulator(table, np.ones(SHAPE)) as accumulator:
        with gt.GradientTape() as tape:
            tape.watch(table)
            loss = np.sum(table[[1, 3]] ** 3)
        gradient = tape.gradient(loss, table)
    check(accumulator.jvp(gradient), np.full((2, 2), 6.0))
    check(accumulator.jvp([gradient, None], unconnected_gradients="raise")[0], np.full((2, 2), 6.0))
