"""Forward mode as a context."""

import gc

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import (
    ArgumentError,
    DtypeError,
    IntegerInputError,
    ShapeError,
    StructureError,
    UnconnectedError,
)

POINT = np.array([0.3, -1.2])
DIRECTION = np.array([1.0, 2.0])


@pytest.mark.parametrize("settings", [{}, {"eager": True}, {"jit": False}])
def test_directional_derivative(settings):
    with gt.config.override(**settings):
        x = gt.constant(POINT)
        with gt.ForwardAccumulator(x, DIRECTION) as accumulator:
            y = np.sin(x) * x
            inside = accumulator.jvp(y)
        expected = (np.cos(POINT) * POINT + np.sin(POINT)) * DIRECTION
        np.testing.assert_allclose(inside.numpy(), expected)
        np.testing.assert_allclose(accumulator.jvp(y).numpy(), expected)


def test_the_tangent_of_a_primal_is_its_own():
    x = gt.constant(POINT)
    with gt.ForwardAccumulator(x, DIRECTION) as accumulator:
        pass
    np.testing.assert_array_equal(accumulator.jvp(x).numpy(), DIRECTION)


def test_nests_of_primals_and_targets():
    p = {"w": gt.constant(POINT), "b": gt.constant(2.0)}
    with gt.ForwardAccumulator(p, {"w": [1.0, 0.0], "b": 1.0}) as accumulator:
        y = np.sum(p["w"]) * p["b"]
        z = p["b"] ** 2
    result = accumulator.jvp({"y": y, "rest": (z, gt.constant(1.0))})
    assert np.isclose(float(result["y"]), 2.0 + np.sum(POINT))
    assert float(result["rest"][0]) == 4.0 and result["rest"][1] is None


def test_what_was_computed_before_is_not_connected():
    x = gt.constant(POINT)
    before = x * 2
    with gt.ForwardAccumulator(x, DIRECTION) as accumulator:
        y = before * 1.0
    outside = x * 3
    assert accumulator.jvp([before, y, outside]) == [None, None, None]
    for zeros in accumulator.jvp([before, y], unconnected_gradients="zero"):
        np.testing.assert_array_equal(zeros.numpy(), [0, 0])
    with pytest.raises(UnconnectedError, match=r"target\[1\]"):
        accumulator.jvp([x, before], unconnected_gradients="raise")
    with pytest.raises(ValueError, match="bad"):
        accumulator.jvp(x, unconnected_gradients="bad")


def test_entering_again_continues():
    x = gt.constant(POINT)
    accumulator = gt.ForwardAccumulator(x, DIRECTION)
    with accumulator:
        y = x * 2
        with pytest.raises(ValueError, match="recording already"):
            accumulator.__enter__()
    with accumulator:
        z = y * 3
    np.testing.assert_allclose(accumulator.jvp(z).numpy(), 6 * DIRECTION)
    assert repr(accumulator) == "<ForwardAccumulator: not recording>"


def test_integer_results_have_no_tangent():
    x = gt.constant(POINT)
    with gt.ForwardAccumulator(x, DIRECTION) as accumulator:
        order = np.argsort(x)
        cut = gt.stop_gradient(x)
    assert accumulator.jvp(order) is None and accumulator.jvp(cut) is None


def test_nesting_gives_higher_orders():
    x = gt.constant(3.0)
    with gt.ForwardAccumulator(x, 1.0) as outer:
        with gt.ForwardAccumulator(x, 1.0) as inner:
            y = x**3
        first = inner.jvp(y)
    assert (float(first), float(outer.jvp(first)), float(outer.jvp(y))) == (27.0, 18.0, 27.0)
    with gt.ForwardAccumulator(x, 1.0) as alone:
        first = alone.jvp(x**3)
    assert alone.jvp(first) is None


def test_no_perturbation_confusion():
    """d/dx (x d/dy (x + y)) = 1, not 2."""
    x = gt.constant(1.0)
    with gt.ForwardAccumulator(x, 1.0) as outer:
        y = gt.constant(1.0)
        with gt.ForwardAccumulator(y, 1.0) as inner:
            z = x + y
        product = x * inner.jvp(z)
    assert float(outer.jvp(product)) == 1.0


def test_forward_over_reverse():
    x = gt.constant(POINT)
    with gt.ForwardAccumulator(x, DIRECTION) as accumulator:
        with gt.GradientTape() as tape:
            tape.watch(x)
            y = np.sum(x**3) * x[1]
        gradient = tape.gradient(y, x)
    got = accumulator.jvp(gradient).numpy()
    _, expected = gt.jvp(gt.grad(lambda x: np.sum(x**3) * x[1]), (POINT,), (DIRECTION,))
    np.testing.assert_allclose(got, expected)


def test_reverse_over_forward():
    x = gt.constant(POINT)
    with gt.GradientTape() as tape:
        tape.watch(x)
        with gt.ForwardAccumulator(x, DIRECTION) as accumulator:
            y = np.sum(x**3) * x[1]
        slope = accumulator.jvp(y)
    _, expected = gt.jvp(gt.grad(lambda x: np.sum(x**3) * x[1]), (POINT,), (DIRECTION,))
    np.testing.assert_allclose(tape.gradient(slope, x).numpy(), expected)


def test_in_a_compiled_function():
    @gt.jit
    def slope(x, v):
        with gt.ForwardAccumulator(x, v) as accumulator:
            y = np.sum(np.sin(x))
        return accumulator.jvp(y)

    assert np.isclose(slope(POINT, DIRECTION), np.dot(np.cos(POINT), DIRECTION))
    x = gt.constant(POINT)
    f = gt.jit(lambda x: np.sum(np.sin(x)))
    with gt.ForwardAccumulator(x, DIRECTION) as accumulator:
        y = f(x)
    assert np.isclose(float(accumulator.jvp(y)), np.dot(np.cos(POINT), DIRECTION))


def test_in_place_syntax():
    x = gt.constant(POINT)
    with gt.ForwardAccumulator(x, DIRECTION) as accumulator:
        y = x * 1.0
        y[0] = 5.0 * x[1]
        x += 1.0
    np.testing.assert_allclose(accumulator.jvp(y).numpy(), [10.0, 2.0])
    np.testing.assert_allclose(accumulator.jvp(x).numpy(), DIRECTION)


def test_complex_tangents():
    z = gt.constant(1 + 2j)
    with gt.ForwardAccumulator(z, np.complex128(1j)) as accumulator:
        y = z * z
    assert complex(accumulator.jvp(y).numpy()) == 2 * (1 + 2j) * 1j


def test_an_exception_ends_the_recording():
    x = gt.constant(POINT)
    accumulator = gt.ForwardAccumulator(x, DIRECTION)
    with pytest.raises(KeyError), accumulator:
        y = x * 2
        raise KeyError
    np.testing.assert_allclose(accumulator.jvp(y).numpy(), 2 * DIRECTION)


@pytest.mark.parametrize(
    ("primals", "tangents", "error"),
    [
        (lambda x: x, np.ones(3), ShapeError),
        (lambda x: x, 1.0, ShapeError),
        (lambda x: x, np.ones(2, np.float32), ArgumentError),
        (lambda x: x, np.ones(2, int), ArgumentError),
        (lambda x: x, None, StructureError),
        (lambda x: (x, x), (DIRECTION, DIRECTION), ArgumentError),
        (lambda x: {"a": x}, {"b": DIRECTION}, StructureError),
        (lambda x: [x], DIRECTION, StructureError),
        (lambda x: POINT, DIRECTION, ArgumentError),
        (lambda x: 1.0, 1.0, ArgumentError),
        (lambda x: "x", DIRECTION, DtypeError),
        (lambda x: gt.constant([1, 2]), np.array([1, 2]), IntegerInputError),
    ],
)
def test_wrong_primals_and_tangents(primals, tangents, error):
    with pytest.raises(error) as caught:
        gt.ForwardAccumulator(primals(gt.constant(POINT)), tangents)
    assert caught.value.remedy and caught.value.where.filename == __file__


@pytest.mark.parametrize(("target", "error"), [(None, DtypeError), (POINT, ArgumentError), ("y", DtypeError)])
def test_wrong_targets(target, error):
    with gt.ForwardAccumulator(gt.constant(POINT), DIRECTION) as accumulator, pytest.raises(error):
        accumulator.jvp(target)


def test_accumulators_leave_nothing_behind():
    x = gt.constant(POINT)
    for _ in range(5):
        with gt.ForwardAccumulator(x, DIRECTION) as accumulator:
            y = np.sin(x)
        accumulator.jvp(y)
        del accumulator
    gc.collect()
    assert len(x.value.tags) <= 1
