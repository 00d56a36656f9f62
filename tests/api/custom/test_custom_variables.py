"""Variables in functions with derivatives of their own, and in forward mode."""

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ArgumentError, IntegerInputError, NotDifferentiableError, RuleError, ShapeError


def test_gradients_of_variables_come_from_the_gradient_function():
    w, b = gt.Variable([2.0, 3.0], name="w"), gt.Variable(1.0, name="b")
    seen = []

    @gt.custom_gradient
    def f(x):
        def grad_fn(upstream, variables):
            seen.append([v.name for v in variables])
            return upstream * 10 * np.ones(2), [upstream * 20 * np.ones(2), None]

        return np.sum(x * w) + b, grad_fn

    with gt.GradientTape() as tape:
        x = tape.watch(np.array([1.0, 1.0]))
        y = f(x) * 1.0
    dx, dw, db = tape.gradient(y, (x, w, b), unconnected_gradients="zero")
    assert float(y) == 6.0 and seen == [["w", "b"]]
    np.testing.assert_array_equal(dw.numpy(), [20, 20])
    assert float(db) == 0.0
    np.testing.assert_array_equal(dx.numpy(), [10, 10])


def test_gradients_of_variables_are_differentiated():
    w = gt.Variable(2.0)

    @gt.custom_gradient
    def f(x):
        w_now = w.value()
        return x * w_now**2, lambda up, variables: (up * w_now**2, [up * 2 * x * w_now])

    with gt.GradientTape() as outer:
        with gt.GradientTape() as tape:
            y = f(gt.constant(3.0))
        first = tape.gradient(y, w)
    assert float(first) == 12.0
    assert float(outer.gradient(first, w)) == 6.0


def test_they_work_without_arguments_and_in_compiled_functions():
    w = gt.Variable(2.0)

    @gt.custom_gradient
    def f():
        return w * 3.0, lambda up, **kwargs: ([], [7.0 * up])

    @gt.jit
    def compiled():
        with gt.GradientTape() as tape:
            y = f()
        return tape.gradient(y, w)

    with gt.GradientTape() as tape:
        y = f()
    assert float(tape.gradient(y, w)) == 7.0
    assert float(compiled()) == 7.0


def test_a_gradient_function_must_take_the_variables():
    w, frozen = gt.Variable(2.0), gt.Variable(5.0, trainable=False)
    with pytest.raises(TypeError, match="does not take them"):
        gt.custom_gradient(lambda x: (x * w, lambda up: up))(gt.constant(1.0))
    f = gt.custom_gradient(lambda x: (x * frozen, lambda up: up * 10))
    assert float(gt.grad(f)(1.0)) == 10.0


@pytest.mark.parametrize("returned", [lambda up: up, lambda up: (up, [up, up]), lambda up: (up, up)])
def test_gradients_of_variables_that_do_not_fit(returned):
    w = gt.Variable(2.0)
    f = gt.custom_gradient(lambda x: (x * w, lambda up, variables: returned(up)))
    with gt.GradientTape() as tape:
        y = f(gt.constant(1.0))
    with pytest.raises(RuleError):
        tape.gradient(y, w)


def test_pass_through_and_rules_read_variables():
    w = gt.Variable(2.5)
    rounded = gt.grad_pass_through(lambda x: np.round(x * w))
    scaled = gt.custom_jvp(lambda x: x * w)
    scaled.defjvp(lambda primals, tangents: (scaled(*primals), tangents[0] * w * 10))
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(1.0)
        y, z = rounded(x), scaled(x)
    assert float(tape.gradient(y, x)) == 1.0 and tape.gradient(y, w) is None
    assert float(tape.gradient(z, x)) == 25.0
    with pytest.raises(NotDifferentiableError, match="from outside"):
        tape.gradient(z, w)


def test_recomputation_differentiates_in_variables():
    w = gt.Variable([0.1, 0.2])
    layer = gt.recompute_grad(lambda x: np.tanh(x * w) * w)

    def gradients(f):
        with gt.GradientTape() as outer:
            x = outer.watch(0.7)
            with gt.GradientTape() as tape:
                tape.watch(x)
                y = np.sum(f(x))
            dx, dw = tape.gradient(y, (x, w))
            s = dx**2 + np.sum(dw**2)
        return [g.numpy() for g in (dx, dw, *outer.gradient(s, (x, w)))]

    for got, expected in zip(gradients(layer), gradients(lambda x: np.tanh(x * w) * w), strict=True):
        np.testing.assert_allclose(got, expected)


def test_recomputation_is_about_the_values_of_the_call():
    w = gt.Variable(2.0)
    f = gt.recompute_grad(lambda x: x * w**2)
    with gt.GradientTape() as tape:
        y = f(gt.constant(3.0))
    w.assign(100.0)
    assert float(tape.gradient(y, w)) == 12.0


def test_forward_mode_in_variables():
    w, x = gt.Variable([1.0, 2.0]), gt.constant(3.0)
    with gt.ForwardAccumulator((w, x), (np.array([1.0, 0.0]), 1.0)) as accumulator:
        y = np.sum(w**2) * x
        z = w * 1.0
    assert float(accumulator.jvp(y)) == 2 * 3 + 5
    np.testing.assert_array_equal(accumulator.jvp(z).numpy(), [1, 0])
    np.testing.assert_array_equal(accumulator.jvp(w).numpy(), [1, 0])
    assert accumulator.jvp(w * 1.0) is None


def test_forward_over_reverse_in_variables():
    w = gt.Variable([1.0, 2.0])
    with gt.ForwardAccumulator(w, np.array([1.0, 0.0])) as accumulator:
        with gt.GradientTape() as tape:
            y = np.sum(w**3) * w[1]
        gradient = tape.gradient(y, w)
    np.testing.assert_allclose(accumulator.jvp(gradient).numpy(), [12, 3])


def test_variables_in_compiled_functions_have_tangents():
    w = gt.Variable(2.0)
    f = gt.jit(lambda x: x * w**2)
    f(1.0)
    with gt.ForwardAccumulator(w, 1.0) as accumulator:
        y = f(3.0)
    assert float(accumulator.jvp(y)) == 12.0


@pytest.mark.parametrize(
    ("primals", "tangents", "error"),
    [
        (lambda w: (w, w), (1.0, 1.0), ArgumentError),
        (lambda w: w, np.ones(3), ShapeError),
        (lambda w: gt.Variable([1, 2]), np.array([1, 2]), IntegerInputError),
    ],
)
def test_wrong_variables(primals, tangents, error):
    with pytest.raises(error):
        gt.ForwardAccumulator(primals(gt.Variable(1.0)), tangents)
