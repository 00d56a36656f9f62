"""The operators under autograd's names: values, conventions, and arguments that stay what they are."""

import sys

import numpy
import pytest

import gradtape.autograd.numpy as np
from gradtape.autograd import (
    deriv,
    elementwise_grad,
    grad,
    grad_and_aux,
    grad_named,
    hessian,
    hessian_vector_product,
    holomorphic_grad,
    jacobian,
    make_ggnvp,
    make_hvp,
    make_jvp,
    make_vjp,
    multigrad_dict,
    tensor_jacobian_product,
    value_and_grad,
)

X = numpy.array([0.5, 1.0, 2.0])


def cube(x):
    return np.sum(x**3)


def test_gradients():
    assert numpy.allclose(grad(cube)(X), 3 * X**2)
    value, gradient = value_and_grad(cube)(X)
    assert numpy.isclose(value, numpy.sum(X**3))
    assert numpy.allclose(gradient, 3 * X**2)
    assert numpy.allclose(elementwise_grad(np.sin)(X), numpy.cos(X))
    assert numpy.isclose(deriv(np.sin)(0.5), numpy.cos(0.5))
    assert grad_named(lambda a, b: a * b**2, "b")(3.0, 2.0) == 12.0
    assert grad(lambda x: x[0] ** 2)(numpy.array([3.0]))[0] == 6.0


def test_second_derivatives():
    assert numpy.allclose(hessian(cube)(X), numpy.diag(6 * X))
    assert numpy.allclose(hessian_vector_product(cube)(X, X), 6 * X**2)
    multiply, gradient = make_hvp(cube)(X)
    assert numpy.allclose(gradient, 3 * X**2)
    assert numpy.allclose(multiply(X), 6 * X**2)
    assert numpy.allclose(grad(grad(grad(np.sin)))(0.5), -numpy.cos(0.5))


def test_jacobians_and_products():
    a = numpy.arange(6.0).reshape(2, 3)
    assert numpy.allclose(jacobian(lambda x: a @ x**2)(X), 2 * a * X)
    assert numpy.allclose(tensor_jacobian_product(lambda x: a @ x)(X, numpy.ones(2)), a.sum(0))
    pull, value = make_vjp(lambda x: a @ x)(X)
    assert numpy.allclose(value, a @ X)
    assert numpy.allclose(pull(numpy.array([1.0, 2.0])), numpy.array([1.0, 2.0]) @ a)
    assert numpy.allclose(make_jvp(lambda x: a @ x)(X)(X)[1], a @ X)
    assert numpy.allclose(make_ggnvp(lambda x: a @ x)(X)(X), a.T @ (a @ X))


def test_several_results_and_arguments():
    gradient, aux = grad_and_aux(lambda x: (x**2, {"twice": 2 * x}))(3.0)
    assert (gradient, aux) == (6.0, {"twice": 6.0})
    assert multigrad_dict(lambda a, b=2.0, *, c=1.0: a * b * c)(3.0) == {"a": 2.0, "b": 3.0, "c": 6.0}
    assert grad(lambda x, y: x * y**2, (0, 1))(3.0, 2.0) == (4.0, 12.0)
    assert grad(lambda p: p["a"] * p["b"][0])({"a": 3.0, "b": [2.0, 1.0]}) == {"a": 2.0, "b": [3.0, 0.0]}


def test_gradients_of_complex_numbers_are_conjugates_of_the_steepest_ascent():
    z = 1.0 + 2.0j
    assert grad(lambda z: np.real(z**2))(z) == 2 * z
    assert grad(lambda z: np.imag(z**2))(z) == -2j * z
    assert numpy.isclose(grad(lambda z: np.abs(z) ** 2)(z), 2 * numpy.conj(z))
    assert holomorphic_grad(lambda z: z**3)(z) == 3 * z**2
    pull, _ = make_vjp(lambda z: z**2)(z)
    assert pull(1.0 + 1.0j) == 2 * z * (1.0 + 1.0j)
    pull, _ = make_vjp(np.conj)(z)
    assert pull(1.0 + 3.0j) == 1.0 - 3.0j
    with pytest.raises(TypeError, match="real scalar-output"):
        grad(lambda z: z**2)(z)


class Model:
    """An object that is no number."""

    def __init__(self, scale):
        self.scale = scale


def test_other_arguments_stay_what_they_are():
    kinds = []

    def loss(x, name, model, count, mask, options):
        kinds.append((type(name), type(model), type(count)))
        assert name == "sum"
        assert isinstance(mask, numpy.ndarray)
        total = 0.0
        for _ in range(count):
            total = total + model.scale * np.sum(x[mask]) * options["weight"]
        return total

    mask = numpy.array([True, False, True])
    for count in (1, 2, 3):
        gradient = grad(loss)(X, "sum", Model(2.0), count, mask, options={"weight": 3.0})
        assert numpy.allclose(gradient, 6.0 * count * mask)
    assert set(kinds) == {(str, Model, int)}


def test_integers_are_taken_as_floats():
    assert numpy.allclose(grad(lambda x: np.sum(x**2))(numpy.array([1, 2])), [2.0, 4.0])


def test_results_without_derivative_have_zeros():
    assert grad(lambda x: np.sum(x > 1.0))(X).tolist() == [0.0, 0.0, 0.0]
    assert grad(lambda x: 3.0)(1.0) == 0.0


def test_gradients_that_are_kept_are_compiled_with_their_constants():
    weights = numpy.linspace(0.0, 1.0, 20_000)  # more than what functions made anew may share

    def weighted_loss(x):
        return np.sum(weights * np.sin(x) ** 2)

    x = numpy.full(20_000, 0.3)
    for operator in (grad(weighted_loss), value_and_grad(weighted_loss)):
        first = operator(x)
        again = [operator(x) for _ in range(3)]
        assert "weighted_loss" not in names_called(lambda f=operator, all_=again: all_.append(f(x)))
        for result in again:
            for part, expected in zip(as_tuple(result), as_tuple(first), strict=True):
                numpy.testing.assert_allclose(part, expected)


@pytest.mark.parametrize("operator", [grad, value_and_grad])
def test_gradients_whose_other_arguments_stay_are_compiled(operator):
    def scaled_loss(scale, x, options, power=2):
        return scale * np.sum(options["weights"] * x**power)

    kept, options = operator(scaled_loss, 1), {"weights": numpy.arange(3.0)}
    first = kept(2.0, X, options, power=3)
    again = [kept(2.0, X, options, power=3) for _ in range(3)]
    assert "scaled_loss" not in names_called(lambda: again.append(kept(2.0, X, options, power=3)))
    for result in again:
        for part, expected in zip(as_tuple(result), as_tuple(first), strict=True):
            numpy.testing.assert_allclose(part, expected)
    options["weights"] = options["weights"] + 1.0  # what is captured is read again
    expected = 2.0 * 3 * X**2 * numpy.arange(1.0, 4.0)
    numpy.testing.assert_allclose(as_tuple(kept(2.0, X, options, power=3))[-1], expected)
    options["weights"][:] = 1.0
    numpy.testing.assert_allclose(as_tuple(kept(2.0, X, options, power=3))[-1], 6 * X**2)
    numpy.testing.assert_allclose(as_tuple(kept(3.0, X, options, power=3))[-1], 9 * X**2)
    numpy.testing.assert_allclose(as_tuple(kept(3.0, X, {"weights": 2.0}, power=2))[-1], 12 * X)


def test_a_failure_does_not_end_compilation():
    def loss(x, bound):
        if len(bound) == 0:
            raise ValueError("no bound")
        return np.sum(x**2) * bound[0]

    kept, bound = grad(loss), [2.0]
    numpy.testing.assert_allclose(kept(X, bound), 4 * X)
    bound.clear()
    for _ in range(2):
        with pytest.raises(ValueError, match="no bound"):
            kept(X, bound)
    bound.append(3.0)
    numpy.testing.assert_allclose(kept(X, bound), 6 * X)
    assert "loss" not in names_called(lambda: kept(X, bound))


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_kept_gradients_have_autograds_errors_and_conventions(calls):
    for _ in range(calls):
        with pytest.raises(TypeError, match="Grad only applies to real scalar-output functions"):
            grad(cube_of_each)(X)
    kept, of_complex, with_axis = (
        grad(cube_of_each),
        grad(lambda z: abs(z) ** 2),
        value_and_grad(sum_as_array),
    )
    for _ in range(calls):
        with pytest.raises(TypeError, match="Grad only applies to real scalar-output functions"):
            kept(X)
        assert of_complex(1.0 + 2.0j) == 2.0 - 4.0j
        value, slope = with_axis(X)
        assert value.shape == (1,)
        numpy.testing.assert_allclose(slope, 3 * X**2)


def names_called(function):
    """Return the names of the Python functions that a call runs."""
    names = []
    sys.setprofile(lambda frame, *_: names.append(frame.f_code.co_name))
    try:
        function()
    finally:
        sys.setprofile(None)
    return names


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def cube_of_each(x):
    return x**3


def sum_as_array(x):
    return np.sum(x**3, keepdims=True)
