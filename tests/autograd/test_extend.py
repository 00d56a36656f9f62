"""Primitives with rules, vector spaces, and the modules beside the operators."""

import importlib
import pkgutil

import numpy
import pytest

import gradtape as gt
import gradtape.autograd
import gradtape.autograd.numpy as np
from gradtape import jit
from gradtape.autograd import checkpoint, deriv, grad, hessian, isinstance, jacobian, make_jvp, make_vjp, type
from gradtape.autograd.extend import (
    JVPNode,
    defjvp,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    notrace_primitive,
    primitive,
    register_notrace,
    vspace,
)
from gradtape.autograd.misc import flatten
from gradtape.autograd.misc.fixed_points import fixed_point
from gradtape.autograd.misc.optimizers import adam, rmsprop, sgd
from gradtape.autograd.numpy.numpy_boxes import ArrayBox
from gradtape.autograd.numpy.numpy_vjps import unbroadcast_f
from gradtape.autograd.scipy import linalg, signal, special, stats
from gradtape.autograd.test_util import check_grads
from gradtape.autograd.tracer import getval, isbox
from gradtape.errors import GradtapeWarning
from gradtape.runtime.compile import kernel, program

X = numpy.array([0.5, 1.0, 2.0])
CALLS = 4
"""As many as a function needs to be recorded, traced, and called as a program that functions share."""


def repeated(function, *args):
    """Return what the calls of a function return, which are equal."""
    results = [function(*args) for _ in range(CALLS)]
    assert all(numpy.allclose(result, results[0]) for result in results)
    return results[0]


def test_all_modules_import():
    names = [info.name for info in pkgutil.walk_packages(gradtape.autograd.__path__, "gradtape.autograd.")]
    assert len(names) > 30
    for name in names:
        importlib.import_module(name)
    assert importlib.import_module("gradtape.autograd.scipy.stats.norm").pdf(0.0) == stats.norm.pdf(0.0)


def test_the_body_of_a_primitive_gets_ndarrays():
    kinds = set()

    @primitive
    def power(x, exponent, options):
        kinds.add(type(x))
        assert options == {"note": "text"}
        return x**exponent

    defvjp(power, lambda result, x, k, options: lambda g: g * k * power(x, k - 1, options), None, None)
    options = {"note": "text"}
    assert numpy.allclose(repeated(grad(lambda x: np.sum(power(x, 3, options))), X), 3 * X**2)
    assert numpy.allclose(repeated(hessian(lambda x: np.sum(power(x, 3, options))), X), numpy.diag(6 * X))
    assert numpy.allclose(repeated(jacobian(lambda x: power(x, 3, options)), X), numpy.diag(3 * X**2))
    assert kinds == {numpy.ndarray}
    assert numpy.allclose(power(X, 2, options), X**2)


def test_rules_in_place_of_the_derivative_of_the_body():
    """The rule counts, not what the body would give: in each call, in reverse and in forward mode."""

    @primitive
    def identity(x):
        return x

    defvjp(identity, lambda result, x: lambda g: g * 1.5)
    assert repeated(grad(identity), 1.0) == 1.5
    assert repeated(deriv(identity), 1.0) == 1.5

    @primitive
    def other(x):
        return x

    defjvp(other, lambda g, result, x: 2.5 * g)
    assert repeated(deriv(other), 1.0) == 2.5
    assert repeated(grad(other), 1.0) == 2.5

    @primitive
    def both(x):
        return x

    defvjp(both, lambda result, x: lambda g: g * 3.0)
    defjvp(both, lambda g, result, x: g * 4.0)
    assert repeated(grad(both), 1.0) == 3.0
    assert repeated(deriv(both), 1.0) == 4.0


def test_rules_for_several_arguments():
    def rule(argnum, result, args, kwargs):
        return lambda g: g * args[1 - argnum]

    @primitive
    def times(x, y):
        return x * y

    defvjp_argnum(times, rule)
    assert repeated(grad(times, (0, 1)), 3.0, 2.0) == (2.0, 3.0)

    @primitive
    def total(parts):
        return parts["a"] * 2.0 + parts["b"][0]

    defvjp_argnums(total, lambda argnums, result, args, kwargs: lambda g: [{"a": 2.0 * g, "b": [g]}])
    gradient = grad(total)({"a": 1.0, "b": [3.0]})
    assert gradient == {"a": 2.0, "b": [1.0]}

    @primitive
    def difference(x, y):
        return x - y

    defjvp_argnums(
        difference, lambda argnums, gs, *_: sum(g if k == 0 else -g for k, g in zip(argnums, gs, strict=True))
    )
    assert repeated(make_jvp(difference, 1)(1.0, 2.0), 1.0) == (-1.0, -1.0)


def test_complex_rules_are_bilinear():
    @primitive
    def square(z):
        return z * z

    defvjp(square, lambda result, z: lambda g: 2 * z * g)
    z = 1.0 + 2.0j
    assert make_vjp(square)(z)[0](1.0 + 1.0j) == 2 * z * (1.0 + 1.0j)
    assert repeated(grad(lambda z: np.real(square(z))), z) == 2 * z
    assert repeated(grad(lambda x: np.real(square(x * (1.0 + 1.0j)))), 1.0) == 0.0


def test_an_argument_without_a_rule():
    @primitive
    def scaled(x, y):
        return x * y

    defvjp(scaled, lambda result, x, y: lambda g: g * y)
    assert grad(scaled)(3.0, 2.0) == 2.0
    with pytest.raises(NotImplementedError, match=r"argnum 1.*pass defvjp a rule"):
        grad(scaled, 1)(3.0, 2.0)
    own = primitive(numpy.sin)
    defvjp(own, lambda result, x: lambda g: 5.0 * g)
    assert grad(own)(1.0) == 5.0
    assert grad(np.sin)(1.0) == numpy.cos(1.0)


def cube(x):
    return x**3


@pytest.mark.parametrize("fun", [numpy.sin, linalg.cholesky_banded, numpy.linalg.det, cube])
@pytest.mark.parametrize("define", [defvjp, defjvp])
def test_functions_that_are_no_primitives_keep_their_derivatives(define, fun):
    """Packages give rules to those that autograd has none for."""
    with pytest.warns(
        GradtapeWarning, match=f"(?s){fun.__name__} is not a primitive.*own = primitive"
    ) as said:
        define(fun, lambda *_: lambda g: numpy.nan * g)
    assert said[0].filename == __file__
    bands = numpy.array([[1.0, 2.0], [4.0, 4.0]])
    assert numpy.all(numpy.isfinite(grad(lambda x: numpy.sum(fun(x)))(bands)))


@pytest.mark.parametrize("transform", [lambda f: f, jit])
def test_rules_that_are_set_again(transform):
    """A rule that replaces another one, or the derivative of the body, counts in functions that were compiled before."""

    @primitive
    def identity(x):
        return factor["body"] * x

    factor = {"body": 2.0, "rule": 3.0}
    slope = transform(grad(lambda x: np.sum(identity(x))))
    assert repeated(slope, X).tolist() == [2.0] * 3
    factor["body"] = 1.0
    assert repeated(slope, X).tolist() == [1.0] * 3
    defvjp(identity, lambda result, x: lambda g: factor["rule"] * g)
    assert repeated(slope, X).tolist() == [3.0] * 3
    factor["rule"] = 4.0
    assert repeated(slope, X).tolist() == [4.0] * 3
    defvjp(identity, lambda result, x: lambda g: 5.0 * g)
    assert repeated(slope, X).tolist() == [5.0] * 3
    tangent = transform(lambda x: make_jvp(identity)(x)(X)[1])
    assert repeated(tangent, X).tolist() == (5.0 * X).tolist()
    defjvp(identity, lambda g, result, x: 6.0 * g)
    assert repeated(tangent, X).tolist() == (6.0 * X).tolist()


def test_rules_of_one_mode():
    """What has no derivative in one mode keeps that of the other one."""

    @primitive
    def square(x):
        return x * x

    defvjp(square, lambda result, x: lambda g: 2.0 * x * g)
    register_notrace(JVPNode, square)
    assert repeated(grad(square), 3.0) == 6.0
    assert repeated(deriv(square), 3.0) == 0.0


def test_no_derivative():
    flat = notrace_primitive(lambda x: np.floor(x))
    assert grad(lambda x: x * flat(x))(2.5) == 2.0
    assert grad(lambda x: x * getval(x))(3.0) == 3.0
    assert not isbox(X)
    seen = []

    def f(x):
        seen.append((isbox(x), isinstance(x, ArrayBox), isinstance(x, numpy.ndarray), type(x)))
        return np.sum(x)

    grad(f)(X)
    assert seen[0] == (True, True, True, numpy.ndarray)


def test_generators_and_views_of_dicts():
    parts = {"a": 1.0, "b": 3.0}
    assert grad(lambda x: np.sum(np.stack(k * x for k in parts.values())))(X).tolist() == [4.0] * 3
    for join in (np.concatenate, np.vstack, np.hstack, np.column_stack, np.stack):
        assert grad(lambda x, join=join: np.sum(join({"a": x, "b": 2 * x}.values())))(X).tolist() == [3.0] * 3


def test_vector_spaces():
    space = vspace({"a": 1.0, "b": [X, 1.0 + 2.0j]})
    assert space.size == 6
    assert space.zeros()["b"][0].tolist() == [0.0, 0.0, 0.0]
    assert space.ones()["b"][1] == 1.0 + 1.0j
    assert len(list(space.standard_basis())) == 6
    assert vspace(X) == vspace(2 * X) != vspace(X[:2])
    with pytest.raises(TypeError, match="vector space"):
        vspace("text")


def test_unbroadcast():
    pull = unbroadcast_f(numpy.ones((1, 3)), lambda g: g)
    assert pull(numpy.ones((2, 4, 3))).tolist() == [[8.0, 8.0, 8.0]]


def test_flatten():
    vector, unflatten = flatten({"b": [X, 2.0], "a": 1.0})
    assert vector.tolist() == [1.0, 0.5, 1.0, 2.0, 2.0]
    assert unflatten(vector)["b"][0].tolist() == X.tolist()
    assert grad(lambda p: np.sum(flatten(p)[0] ** 2))({"a": 3.0}) == {"a": 6.0}


@pytest.mark.parametrize("optimize", [sgd, rmsprop, adam])
def test_optimizers(optimize):
    target = {"a": X, "b": 2.0}
    loss = grad(lambda p, i: np.sum((p["a"] - X) ** 2) + (p["b"] - 2.0) ** 2)
    found = optimize(loss, {"a": numpy.zeros(3), "b": 0.0}, num_iters=300, step_size=0.05)
    assert numpy.allclose(found["a"], target["a"], atol=0.1)
    assert numpy.allclose(found["b"], target["b"], atol=0.1)


def test_fixed_point():
    def root(a):
        return fixed_point(lambda a: lambda x: 0.5 * (x + a / x), a, 1.0, lambda x, y: abs(x - y), 1e-12)

    assert numpy.isclose(repeated(grad(root), 3.0), 0.5 / 3**0.5)
    assert numpy.isclose(grad(grad(root))(3.0), -0.25 * 3**-1.5)


def test_checks():
    check_grads(lambda x, y: np.sin(x) * y)(X, 2.0)
    wrong = primitive(lambda x: 2.0 * x)
    defvjp(wrong, lambda result, x: lambda g: 2.1 * g)
    with pytest.raises(AssertionError, match="VJP"):
        check_grads(wrong, modes=["rev"])(1.0)


def test_scipy_and_checkpoints():
    assert numpy.allclose(grad(lambda x: np.sum(special.gammaln(x)))(X), special.digamma(X))
    slope = grad(lambda m: np.sum(stats.norm.logpdf(X, m, 2.0)))(1.0)
    assert numpy.isclose(slope, numpy.sum(X - 1.0) / 4.0)
    assert numpy.allclose(grad(checkpoint(lambda x: np.sum(x**2)))(X), 2 * X)


@pytest.mark.parametrize("mode", ["full", "valid", "same"])
def test_convolve(mode):
    from scipy.signal import convolve

    rng = numpy.random.default_rng(0)
    a, b = rng.standard_normal((5, 6)), rng.standard_normal((3, 2))
    assert numpy.allclose(signal.convolve(a, b, mode=mode), convolve(a, b, mode=mode))
    images, kernels = rng.standard_normal((2, 3, 5, 6)), rng.standard_normal((3, 4, 2, 3))
    result = signal.convolve(images, kernels, axes=([2, 3], [2, 3]), dot_axes=([1], [0]), mode=mode)
    expected = [
        [sum(convolve(images[n, c], kernels[c, k], mode=mode) for c in range(3)) for k in range(4)]
        for n in range(2)
    ]
    assert numpy.allclose(result, expected)
    assert numpy.allclose(grad(lambda x: np.sum(signal.convolve(x, b)))(a), numpy.sum(b))
    with pytest.raises(ValueError, match="choose 'full', 'valid' or 'same'"):
        signal.convolve(a, b, mode="fulll")


@pytest.mark.parametrize("axes", [(0, 1), (-1, -2)])
@pytest.mark.parametrize("offset", [-2, 0, 1])
def test_diagonals(offset, axes):
    for values in (X, numpy.outer([1.0, 2.0], X)):
        whole = np.make_diagonal(values, offset, *axes)
        assert numpy.array_equal(numpy.diagonal(whole, offset, *axes), values)
        assert numpy.sum(whole) == numpy.sum(values)
    assert numpy.allclose(
        jacobian(lambda x: np.make_diagonal(x, offset, *axes).diagonal(offset, *axes))(X), numpy.eye(3)
    )


@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize("unit", [1.0, 1.0j])
def test_eigenvalues_depend_on_one_triangle(uplo, unit):
    """As autograd's, and as differences in single elements say."""
    rng = numpy.random.default_rng(0)
    a = rng.standard_normal((2, 3, 3)) + unit * rng.standard_normal((2, 3, 3))

    def loss(a):
        values, vectors = np.linalg.eigh(a, uplo)
        return (
            np.sum(np.sin(values)) + np.sum(np.abs(vectors) ** 4) + np.sum(np.linalg.eigvalsh(a, uplo) ** 3)
        )

    values, vectors = np.linalg.eigh(a, uplo)
    expected, directions = numpy.linalg.eigh(a, uplo)
    assert numpy.allclose(values, expected)
    assert numpy.allclose(abs(vectors), abs(directions))
    check_grads(loss, modes=["rev"], order=1)(a)
    gradient = grad(loss)(a)
    assert not numpy.any(numpy.triu(gradient, 1) if uplo == "L" else numpy.tril(gradient, -1))
    with pytest.raises(ValueError, match="UPLO"):
        np.linalg.eigh(a, "X")


def test_primitives_share_the_kernels_of_other_traces(monkeypatch):
    compiled = []
    real = kernel.compile_graph
    monkeypatch.setattr(program, "compile_graph", lambda *args, **kw: compiled.append(1) or real(*args, **kw))

    @primitive
    def cube(x):
        return x**3

    defvjp(cube, lambda ans, x: lambda g: 3 * g * x**2)

    def slope(scale):
        return gt.jit(gt.grad(lambda x: numpy.sum(cube(x) * scale)))

    for k in range(3):  # another function each time, and the same program
        numpy.testing.assert_allclose(
            slope(numpy.arange(3.0) + k)(numpy.arange(3.0)),
            3 * (numpy.arange(3.0) + k) * numpy.arange(3.0) ** 2,
        )
        if k == 0:  # an earlier test of the same process may have compiled this program, too
            compiled.clear()
    assert not compiled
