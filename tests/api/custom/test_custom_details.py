"""Custom derivatives: what their rules may return, and which paths are asked for."""

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ArgumentError, NotDifferentiableError, RuleError, ShapeError

POINT = np.array([0.5, -1.5, 2.0])


def with_backward(function, backward):
    """Give a function a reverse rule whose residuals are its arguments."""
    rule = gt.custom_vjp(function)
    rule.defvjp(lambda *args: (function(*args), args), backward)
    return rule


def gradient_on_tape(function, *args):
    with gt.GradientTape() as tape:
        args = tape.watch(args)
        y = function(*args)
    return tape.gradient(y, args)


# Arguments


def test_defaults_are_arguments_of_reverse_rules_too():
    seen = []

    def power(x, n=3.0):
        return x**n

    def backward(residuals, cotangent):
        seen.append(len(residuals))
        x, n = residuals
        return cotangent * n * x ** (n - 1), None

    f = with_backward(power, backward)
    assert float(gt.grad(f)(2.0)) == 12.0
    assert float(gt.grad(lambda x: f(n=2.0, x=x))(3.0)) == 6.0
    assert float(gt.grad(gt.grad(f))(2.0)) == 12.0
    assert set(seen) == {2}


def test_forward_rules_get_defaults_without_keywords():
    @gt.custom_jvp
    def scaled(x, factor=4.0):
        return x * factor

    @scaled.defjvp
    def rule(primals, tangents):
        x, factor = primals
        return x * factor, tangents[0] * factor

    assert float(gt.grad(scaled)(1.0)) == 4.0
    assert float(gt.jvp(scaled, (1.0,), (1.0,))[1]) == 4.0


def test_options_by_name_only_keep_their_defaults():
    f = with_backward(lambda x, *, factor=2.0: x * factor, lambda residuals, cotangent: (2.0 * cotangent,))
    assert float(gt.grad(lambda x: f(x=x))(3.0)) == 2.0
    with pytest.raises(RuleError, match="no position: factor"):
        f(1.0, factor=3.0)


def test_numpys_own_functions_have_the_arguments_of_the_call():
    for function, args in ((np.sin, (0.5,)), (np.sum, (POINT,))):
        f = with_backward(
            function, lambda residuals, cotangent: (7.0 * cotangent * np.ones_like(residuals[0]),)
        )
        np.testing.assert_array_equal(gt.grad(f)(*args), 7.0 * np.ones_like(args[0]))


def test_rules_per_argument_are_functions():
    f = gt.custom_jvp(lambda x, y: x * y)
    with pytest.raises(ArgumentError, match="defjvps got a int"):
        f.defjvps(3, None)


# What rules return


@pytest.mark.parametrize("jit", [False, True])
def test_rules_may_return_sparse_gradients(jit):
    def picked(x):
        return np.sum(x[np.array([0, 0, 2])])

    def slices(upstream):
        return gt.IndexedSlices(np.ones(3) * upstream, [0, 0, 2], (3,))

    own = gt.custom_gradient(lambda x: (picked(x), slices))
    reverse = with_backward(picked, lambda residuals, cotangent: (slices(cotangent),))
    for f in (own, reverse):
        slope = gt.grad(f)
        np.testing.assert_array_equal((gt.jit(slope) if jit else slope)(POINT), [2, 0, 1])
        np.testing.assert_array_equal(gradient_on_tape(f, POINT)[0], [2, 0, 1])
    beside = gt.custom_gradient(lambda x, y: (picked(x) * y, lambda up: (slices(up), None)))
    np.testing.assert_array_equal(gt.grad(beside)(POINT, 2.0), [2, 0, 1])


def test_variables_may_have_sparse_gradients():
    table = gt.Variable(np.ones((3, 2)))

    @gt.custom_gradient
    def rows(x):
        def grad_fn(upstream, variables):
            return None, [gt.IndexedSlices(upstream * np.ones((1, 2)), [1], (3, 2))]

        return np.sum(table[1]) * x, grad_fn

    with gt.GradientTape() as tape:
        y = rows(tape.watch(2.0))
    np.testing.assert_array_equal(gt.asarray(tape.gradient(y, table)), [[0, 0], [1, 1], [0, 0]])


@pytest.mark.parametrize("returned", [(1.0, 2.0), [1.0, 2.0, 3.0], {"a": 1.0, "b": 2.0}])
def test_too_many_gradients_for_one_argument_are_counted(returned):
    f = gt.custom_gradient(lambda x: (np.sum(x), lambda upstream: returned))
    with pytest.raises(RuleError, match=f"returned {len(returned)} gradients for 1 argument\n"):
        gt.grad(f)(POINT)


def test_structures_are_shown_as_one_writes_them():
    f = with_backward(lambda d: d["a"], lambda residuals, cotangent: ([cotangent],))
    with pytest.raises(RuleError, match=r"structure \[\*\], but its argument has \{'a': \*\}"):
        gt.grad(f)({"a": 1.0})


def test_a_constant_is_no_linear_map():
    f = gt.custom_jvp(lambda x: 2.0 * x)
    f.defjvp(lambda primals, tangents: (2.0 * primals[0], np.full(3, 2.0)))
    np.testing.assert_array_equal(gt.jvp(f, (POINT,), (POINT,))[1], [2, 2, 2])
    with pytest.raises(NotDifferentiableError, match="constant other than zero"):
        gt.grad(lambda x: np.sum(f(x)))(POINT)
    g = gt.custom_gradient(lambda x: (2.0 * x, lambda upstream: np.full(3, 2.0)))
    np.testing.assert_array_equal(gt.grad(lambda x: np.sum(g(x)))(POINT), [2, 2, 2])
    with pytest.raises(NotDifferentiableError, match="constant other than zero"):
        gt.jvp(g, (POINT,), (POINT,))


def test_a_gradient_function_that_needs_variables_gets_none_if_none_are_read():
    fixed = gt.Variable(3.0, trainable=False)
    f = gt.custom_gradient(lambda x: (x * fixed, lambda upstream, variables: (upstream * fixed, variables)))
    assert float(gt.grad(f)(2.0)) == 3.0
    assert float(gt.grad(gt.custom_gradient(lambda x: (x * 1.0, np.negative)))(2.0)) == -1.0


@pytest.mark.parametrize("jit", [False, True])
def test_tangents_that_stand_for_any_can_be_printed(jit):
    seen = []
    f = gt.custom_jvp(lambda x: x**2)

    @f.defjvp
    def rule(primals, tangents):
        seen.append(f"{tangents} {tangents[0]} {tangents[0] * 2!r}")
        return primals[0] ** 2, 2 * primals[0] * tangents[0]

    slope = gt.grad(f)
    assert float((gt.jit(slope) if jit else slope)(3.0)) == 6.0
    assert seen[0].count("traced") == 3


# Paths


def test_what_stop_gradient_cuts_is_not_asked_for():
    def cut(x, y):
        factor = gt.stop_gradient(y)
        outside = with_backward(lambda x: x * factor, lambda residuals, cotangent: (cotangent * factor,))
        inside = with_backward(
            lambda x: x * gt.stop_gradient(y), lambda residuals, cotangent: (cotangent * gt.stop_gradient(y),)
        )
        return outside(x) + inside(x)

    assert [float(g) for g in gt.grad(cut, argnums=(0, 1))(2.0, 3.0)] == [6.0, 0.0]
    x, y = gradient_on_tape(cut, 2.0, 3.0)
    assert (float(x), y) == (6.0, None)


def test_what_has_no_derivative_is_not_asked_for():
    def stepped(x, y):
        steps = y.astype(int)
        f = with_backward(lambda x: x * steps, lambda residuals, cotangent: (cotangent * steps,))
        return f(x) + y

    assert [float(g) for g in gt.grad(stepped, argnums=(0, 1))(2.0, 3.5)] == [3.0, 1.0]


# grad_pass_through


def test_numbers_among_the_arguments_need_no_results():
    clipped = gt.grad_pass_through(np.clip)
    slope = gt.grad(lambda x: np.sum(clipped(x, 0.0, 1.0) * POINT))
    np.testing.assert_array_equal(slope(POINT), POINT)
    np.testing.assert_array_equal(gt.jit(slope)(POINT), POINT)
    both = gt.grad_pass_through(lambda x, y: (np.sign(x), y))
    np.testing.assert_array_equal(gt.grad(lambda x: np.sum(both(x, 3.0)[0] * POINT))(POINT), POINT)


def test_results_that_are_no_arguments_are_refused_in_its_own_name():
    with pytest.raises(
        ShapeError, match=r"grad_pass_through: sum returned arrays of shape \(\) for arguments"
    ):
        gt.grad(gt.grad_pass_through(np.sum))(POINT)
    with pytest.raises(
        RuleError, match=r"returned arrays of shape \(3,\), \(3,\) for arguments of shape \(3,\)"
    ):
        gt.grad(lambda x: np.sum(gt.grad_pass_through(lambda x: (x, x))(x)[0]))(POINT)
