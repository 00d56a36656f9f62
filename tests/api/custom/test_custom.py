"""Derivatives that users write: custom_gradient, grad_pass_through, custom_jvp, custom_vjp;
what their rules may return, and which paths are asked for.
"""

import gc
import weakref

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ArgumentError, NotDifferentiableError, RuleError, ShapeError
from gradtape.passes.pipeline import optimise

POINT = np.array([0.3, -1.2])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@gt.custom_gradient
def log1pexp(x):
    e = np.exp(x)

    def grad_fn(upstream):
        return upstream * (1 - 1 / (1 + e))

    return np.log(1 + e), grad_fn


@gt.custom_gradient
def tenfold(x):
    """A gradient that is not that of the body tells which of them was used."""
    return x**2, lambda upstream: 10 * upstream


@pytest.fixture(params=["lazy", "eager", "interpreted"])
def setting(request):
    with gt.config.override(eager=request.param == "eager", jit=request.param != "interpreted"):
        yield


@pytest.mark.usefixtures("setting")
def test_every_way_to_differentiate_takes_the_custom_gradient():
    np.testing.assert_array_equal(gt.grad(lambda x: np.sum(tenfold(x)))(POINT), [10, 10])
    np.testing.assert_array_equal(gt.jit(gt.grad(lambda x: np.sum(gt.jit(tenfold)(x))))(POINT), [10, 10])
    y, pullback = gt.vjp(tenfold, POINT)
    np.testing.assert_allclose(y, POINT**2)
    np.testing.assert_array_equal(pullback(np.array([1.0, 2.0]))[0], [10, 20])
    y, tangent = gt.jvp(tenfold, (POINT,), (np.array([1.0, 2.0]),))
    np.testing.assert_allclose(y, POINT**2)
    np.testing.assert_array_equal(tangent, [10, 20])
    with gt.GradientTape() as tape:
        x = tape.watch(POINT)
        y = np.sum(tenfold(x) * 2)
    np.testing.assert_array_equal(tape.gradient(y, x).numpy(), [20, 20])
    x = gt.constant(POINT)
    with gt.ForwardAccumulator(x, np.array([1.0, 2.0])) as accumulator:
        y = tenfold(x)
    np.testing.assert_array_equal(accumulator.jvp(y).numpy(), [10, 20])


def test_the_gradient_function_is_differentiated():
    s = sigmoid(0.3)
    assert np.isclose(gt.grad(log1pexp)(0.3), s)
    assert np.isclose(gt.grad(gt.grad(log1pexp))(0.3), s * (1 - s))
    assert np.isclose(gt.grad(gt.grad(gt.grad(log1pexp)))(0.3), s * (1 - s) * (1 - 2 * s))
    gt.check_grads(log1pexp, (POINT,), order=3)
    with gt.GradientTape() as outer:
        x = outer.watch(0.3)
        with gt.GradientTape() as tape:
            tape.watch(x)
            y = log1pexp(x)
        first = tape.gradient(y, x)
    assert np.isclose(float(outer.gradient(first, x)), s * (1 - s))


def test_the_gradient_is_used_where_the_body_would_overflow():
    with np.errstate(over="ignore"):
        assert float(gt.grad(log1pexp)(1000.0)) == 1.0


def test_nesting_overrides_the_second_order():
    @gt.custom_gradient
    def cube(x):
        slope = 3 * x**2

        @gt.custom_gradient
        def first_order(unused_x):
            return slope, lambda upstream: 100 * upstream

        return x**3, lambda upstream: upstream * first_order(x)

    assert float(gt.grad(cube)(2.0)) == 12.0
    assert float(gt.grad(gt.grad(cube))(2.0)) == 100.0
    with gt.GradientTape() as outer:
        x = outer.watch(2.0)
        with gt.GradientTape() as tape:
            tape.watch(x)
            y = cube(x)
        slope = tape.gradient(y, x)
    assert (float(slope), float(outer.gradient(slope, x))) == (12.0, 100.0)


def test_several_arguments_and_nests():
    @gt.custom_gradient
    def f(p, x, label):
        def grad_fn(up_sum, up_product):
            return {"w": 2 * up_sum * np.ones(2), "b": None}, 3 * up_product, None

        return {"sum": np.sum(p["w"]) + p["b"], "times": x * p["b"]}, grad_fn

    def total(p, x):
        y = f(p, x, "a label")
        return y["sum"] + y["times"]

    gp, gx = gt.grad(total, argnums=(0, 1))({"w": np.ones(2), "b": 2.0}, 5.0)
    np.testing.assert_array_equal(gp["w"], [2, 2])
    assert (gp["b"], gx) == (0.0, 3.0)
    # Outputs that are not used have an upstream gradient of zero.
    _, gx = gt.grad(lambda p, x: f(p, x, "")["sum"], argnums=(0, 1))({"w": np.ones(2), "b": 2.0}, 5.0)
    assert gx == 0.0


@pytest.mark.parametrize("wrap", [lambda g: g, lambda g: (g,), lambda g: [g]])
def test_a_single_gradient_may_stand_alone(wrap):
    f = gt.custom_gradient(lambda x: (x * 1.0, lambda up: wrap(7 * up)))
    np.testing.assert_array_equal(gt.grad(lambda x: np.sum(f(x)))(POINT), [7, 7])


def test_gradients_may_be_flat():
    f = gt.custom_gradient(lambda pair, y: (pair[0] + pair[1] + y, lambda up: (up, 2 * up, 3 * up)))
    assert gt.grad(f, argnums=(0, 1))((1.0, 1.0), 1.0) == ((1.0, 2.0), 3.0)


def test_keyword_arguments_are_passed_and_not_differentiated():
    @gt.custom_gradient
    def scaled(x, *, factor):
        return x * factor, lambda up: up * factor

    assert float(gt.grad(lambda x: scaled(x, factor=4.0))(1.0)) == 4.0
    with gt.GradientTape() as tape:
        x, factor = tape.watch((1.0, 4.0))
        y = scaled(x, factor=factor)
    dx, dfactor = tape.gradient(y, (x, factor))
    assert float(dx) == 4.0 and dfactor is None


def test_what_the_body_reads_from_outside_is_a_constant():
    with gt.GradientTape() as tape:
        x, w = tape.watch((2.0, 3.0))
        y = gt.custom_gradient(lambda x: (x * w, lambda up: up * w))(x)
    dx, dw = tape.gradient(y, (x, w))
    assert float(dx) == 3.0 and dw is None


def test_integers_have_no_gradient_and_none_is_zero():
    @gt.custom_gradient
    def pick(x, index):
        def grad_fn(up):
            g = np.zeros_like(x)
            g[index] = up
            return g, None

        return x[index], grad_fn

    np.testing.assert_array_equal(gt.grad(pick)(POINT, np.array(1)), [0, 1])


def test_without_arrays_the_body_runs_as_it_stands():
    seen = []

    @gt.custom_gradient
    def f(x):
        seen.append(type(x))
        return np.sin(x), lambda up: up

    assert type(f(POINT)) is np.ndarray and type(f(0.5)) is np.float64
    assert seen == [np.ndarray, float]


def test_it_works_on_methods_and_keeps_its_name():
    class Layer:
        gain = 2.0

        @gt.custom_gradient
        def apply(self, x):
            """Double."""
            return x * self.gain, lambda up: up * self.gain * 10

    assert float(gt.grad(Layer().apply)(1.0)) == 20.0
    assert (Layer.apply.__name__, Layer.apply.__doc__) == ("apply", "Double.")


def test_the_decorator_may_be_called():
    f = gt.custom_gradient()(lambda x: (x, lambda up: up * 3))
    assert float(gt.grad(f)(1.0)) == 3.0


def test_the_body_does_not_write_into_its_arguments():
    @gt.custom_gradient
    def zero_first(x):
        x[0] = 0.0
        return x, lambda up: up

    with gt.GradientTape() as tape:
        x = tape.watch(POINT)
        y = zero_first(x)
    np.testing.assert_array_equal(x.numpy(), POINT)
    np.testing.assert_array_equal(tape.gradient(y, x).numpy(), [1, 1])


def test_the_body_may_branch():
    @gt.jit
    def f(x):
        @gt.custom_gradient
        def branch(x):
            if x > 0:
                return x, lambda up: up * 2
            return -x, lambda up: up * 5

        return branch(x)

    assert [float(gt.grad(f)(x)) for x in (1.0, -1.0, 2.0)] == [2.0, 5.0, 2.0]


def test_complex_gradients_follow_the_convention():
    @gt.custom_gradient
    def squared_modulus(z):
        return np.real(z * np.conj(z)), lambda up: up * 2 * z

    assert complex(gt.grad(squared_modulus)(1 + 2j)) == 2 + 4j
    with gt.GradientTape() as tape:
        z = tape.watch(1 + 2j)
        y = squared_modulus(z)
    assert complex(tape.gradient(y, z).numpy()) == 2 + 4j
    _, tangent = gt.jvp(squared_modulus, (1 + 2j,), (1j,))
    assert float(np.real(tangent)) == 4.0


@pytest.mark.parametrize(
    ("returned", "error"),
    [
        (lambda up: (up, up), ValueError),
        (lambda up: [], ValueError),
        (lambda up: {"a": up, "b": up}, ValueError),
        (lambda up: np.ones(3), ShapeError),
        (lambda up: 1.0, ShapeError),
        (lambda up: up * 1j, TypeError),
        (lambda up: "one", TypeError),
    ],
)
def test_gradients_that_do_not_fit(returned, error):
    f = gt.custom_gradient(lambda x: (np.sin(x), returned))
    with gt.GradientTape() as tape:
        x = tape.watch(POINT)
        y = f(x)
    with pytest.raises(error):
        tape.gradient(y, x)


@pytest.mark.parametrize("returned", [1.0, (1.0,), (1.0, 2.0), (1.0, len, 2.0), None])
def test_the_body_must_return_a_pair(returned):
    with pytest.raises(TypeError, match=r"outputs and a gradient function"):
        gt.custom_gradient(lambda x: returned)(gt.constant(1.0))


def test_it_takes_functions():
    with pytest.raises(ArgumentError, match="cannot be called"):
        gt.custom_gradient(3)


def test_an_exception_leaves_the_tape_usable():
    failing = [True]

    @gt.custom_gradient
    def f(x):
        def grad_fn(up):
            if failing[0]:
                raise KeyError("mine")
            return up * 5

        return x * 2, grad_fn

    with gt.GradientTape() as tape:
        x = tape.watch(1.0)
        y = f(x)
        with pytest.raises(KeyError, match="mine"):
            tape.gradient(y, x)
        z = y * 3
    failing[0] = False
    assert float(tape.gradient(z, x)) == 15.0


def test_an_exception_in_the_body_propagates():
    @gt.custom_gradient
    def f(x):
        raise KeyError("mine")

    with gt.GradientTape() as tape:
        x = tape.watch(1.0)
        with pytest.raises(KeyError, match="mine"):
            f(x)
        y = x * 3
    assert float(tape.gradient(y, x)) == 3.0


def test_forward_mode_needs_a_linear_gradient_function():
    clipped = gt.custom_gradient(lambda x: (x * 1.0, lambda up: np.clip(up, -1, 1)))
    assert float(gt.grad(lambda x: 5 * clipped(x))(1.0)) == 1.0
    with pytest.raises(NotDifferentiableError, match="linear"):
        gt.jvp(clipped, (1.0,), (1.0,))
    shifted = gt.custom_gradient(lambda x: (x * 1.0, lambda up: up + 1))
    with pytest.raises(NotDifferentiableError, match="add is not linear"):
        gt.jvp(shifted, (1.0,), (1.0,))
    squared = gt.custom_gradient(lambda x: (x * 1.0, lambda up: up * up))
    with pytest.raises(NotDifferentiableError, match="not linear"):
        gt.jvp(squared, (1.0,), (1.0,))
    inverse = gt.custom_gradient(lambda x: (x * 1.0, lambda up: 1 / up))
    with pytest.raises(NotDifferentiableError, match="divide is not linear"):
        gt.jvp(inverse, (1.0,), (1.0,))

    def looks(up):
        return up if up > 0 else -up

    with pytest.raises(NotDifferentiableError, match="numbers"):
        gt.jvp(gt.custom_gradient(lambda x: (x * 1.0, looks)), (1.0,), (1.0,))


def test_forward_mode_transposes():
    matrix = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    @gt.custom_gradient
    def f(x):
        def grad_fn(up, up_rest):
            g = up @ matrix
            g[0] += 2 * up_rest[0]
            return np.where(np.array([True, False]), 7 * g, g)

        return (matrix @ x, np.concatenate([2 * x[:1], x])), grad_fn

    _, pullback = gt.vjp(f, POINT)
    rng = np.random.default_rng(0)
    direction, weights = rng.normal(size=2), (rng.normal(size=3), rng.normal(size=3))
    _, tangents = gt.jvp(f, (POINT,), (direction,))
    forward = sum(np.dot(t, w) for t, w in zip(tangents, weights, strict=True))
    assert np.isclose(forward, np.dot(pullback(weights)[0], direction))


def test_nothing_of_it_is_left_in_a_kernel():
    graph = gt.inspect.graph(gt.value_and_grad(log1pexp), 1.0)
    assert "custom_call(" in graph and "rule=log1pexp" in graph
    assert "custom_call(" not in gt.inspect.graph(gt.value_and_grad(log1pexp), 1.0, optimised=True)
    traced = gt.grad(lambda x: gt.recompute_grad(log1pexp)(x) * log1pexp(x))
    traced(0.5)
    (specialisation,) = traced.site.specialisations()
    names = {node.op.name for node in specialisation.graph.nodes}
    assert "barrier" in names
    left = {node.op.name for node in optimise(specialisation.graph, check=True).nodes}
    assert not left & {"barrier", "custom_call"}
    first, second = (gt.value_and_grad(lambda x: log1pexp(x) - 0.4375) for _ in range(2))
    first(1.0)
    second(1.0)
    kernels = [f.site.specialisations()[0].program.kernel for f in (first, second)]
    assert kernels[0] is kernels[1]


def test_what_the_gradient_function_holds_is_let_go():
    held = []

    @gt.custom_gradient
    def f(x):
        e = np.exp(x)
        held.append(weakref.ref(e))
        return e, lambda up: up * e

    for _ in range(3):
        with gt.GradientTape() as tape:
            x = tape.watch(1.0)
            y = f(x)
        tape.gradient(y, x).numpy()
        del tape, x, y
    gc.collect()
    assert [ref() for ref in held] == [None] * 3


def test_grad_pass_through():
    rounded = gt.grad_pass_through(np.round)
    np.testing.assert_array_equal(gt.grad(lambda x: np.sum(3 * rounded(x)))(POINT), [3, 3])
    value, tangent = gt.jvp(rounded, (POINT,), (np.array([1.0, 2.0]),))
    np.testing.assert_array_equal(value, np.round(POINT))
    np.testing.assert_array_equal(tangent, [1, 2])
    np.testing.assert_array_equal(rounded(POINT), np.round(POINT))
    both = gt.grad_pass_through(lambda x, y, *, k: (np.sign(x) * k, np.floor(y)))
    assert gt.grad(lambda x, y: both(x, y, k=9.0)[0] * 2 + both(x, y, k=9.0)[1], (0, 1))(1.5, 2.5) == (2, 1)
    with pytest.raises(ShapeError):
        gt.grad(gt.grad_pass_through(np.sum))(POINT)
    with pytest.raises(RuleError):
        gt.grad(lambda x: gt.grad_pass_through(lambda x: (x, x))(x)[0])(1.0)


# JAX's way: custom_jvp


@gt.custom_jvp
def product(x, y):
    return np.sin(x) * y


@product.defjvp
def product_rule(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return product(x, y), np.cos(x) * dx * y + np.sin(x) * dy


def with_rule(function, rule, **options):
    made = gt.custom_jvp(function, **options)
    made.defjvp(rule)
    return made


@pytest.mark.usefixtures("setting")
def test_a_forward_rule_serves_both_modes():
    twice = with_rule(lambda x: x**2, lambda p, t: (p[0] ** 2, 10 * t[0]))
    np.testing.assert_array_equal(gt.jvp(twice, (POINT,), (np.ones(2),))[1], [10, 10])
    np.testing.assert_array_equal(gt.grad(lambda x: np.sum(twice(x)))(POINT), [10, 10])
    with gt.GradientTape() as tape:
        x = tape.watch(POINT)
        y = twice(x)
    np.testing.assert_array_equal(tape.gradient(y, x).numpy(), [10, 10])


def test_a_forward_rule_is_differentiated():
    gt.check_grads(product, (POINT, np.array([2.0, 3.0])), order=3)
    assert repr(product) == "<gradtape.custom_jvp of product>"


def test_forward_rules_per_argument():
    f = gt.custom_jvp(lambda x, y, z: x * y + z)
    f.defjvps(lambda dx, out, x, y, z: dx * y, None, lambda dz, out, x, y, z: 5 * dz)
    assert gt.grad(f, argnums=(0, 1, 2))(2.0, 3.0, 4.0) == (3.0, 0.0, 5.0)
    f.defjvps(lambda dx, out, x, y, z: dx)
    with pytest.raises(RuleError, match="1 rules for 3 arguments"):
        gt.grad(f)(2.0, 3.0, 4.0)


def test_arguments_that_are_not_differentiated_in():
    apply = gt.custom_jvp(lambda function, x: function(x), nondiff_argnums=0)
    apply.defjvp(lambda function, primals, tangents: (function(primals[0]), 10 * tangents[0]))
    assert float(gt.grad(lambda x: apply(np.sin, x))(0.5)) == 10.0
    with pytest.raises(ArgumentError, match="nondiff_argnums"):
        apply.defjvps(lambda *args: None)
    for wrong in ("x", -1, (0, 1.0)):
        with pytest.raises(ArgumentError, match="nondiff_argnums"):
            gt.custom_jvp(np.sin, nondiff_argnums=wrong)
    with pytest.raises(ArgumentError, match="called with 1 arguments"):
        with_rule(np.sin, product_rule, nondiff_argnums=3)(1.0)


def test_keywords_and_defaults_become_positions():
    seen = []

    @gt.custom_jvp
    def power(x, n=3):
        return x**n

    @power.defjvp
    def rule(primals, tangents):
        seen.append(len(primals))
        x, n = primals
        return power(x, n), n * x ** (n - 1) * tangents[0]

    assert float(gt.grad(lambda x: power(n=2, x=x))(3.0)) == 6.0
    assert float(gt.grad(lambda x: power(x=x))(3.0)) == 27.0
    assert set(seen) == {2}
    only = with_rule(lambda x, *, k: x * k, rule)
    with pytest.raises(TypeError, match="no position: k"):
        only(1.0, k=2.0)


def test_tangents_have_the_structure_of_the_primals():
    seen = []

    def rule(primals, tangents):
        seen.append(tangents)
        return primals[0]["a"], tangents[0]["a"]

    f = with_rule(lambda p, label, n, c: p["a"], rule)
    gt.jvp(lambda a: f({"a": a, "b": POINT}, "label", np.array([1, 2]), gt.constant(1.0)), (POINT,), (POINT,))
    p, label, n, c = seen[0]
    np.testing.assert_array_equal(p["b"], [0, 0])
    np.testing.assert_array_equal(n, [0, 0])
    assert label is None and float(c) == 0.0


@pytest.mark.parametrize(
    ("returned", "error"),
    [
        (lambda p, t: t[0], RuleError),
        (lambda p, t: (p[0], (t[0],)), RuleError),
        (lambda p, t: (p[0], np.ones(3)), ShapeError),
        (lambda p, t: (p[0], t[0] * 1j), TypeError),
    ],
)
def test_forward_rules_that_do_not_fit(returned, error):
    with pytest.raises(error):
        gt.jvp(with_rule(np.sin, returned), (POINT,), (POINT,))


@pytest.mark.parametrize(
    "tangent",
    [
        lambda t: t**2,
        lambda t: t * t,
        lambda t: t + 1,
        lambda t: np.where(t > 0, t, 0.0),
        lambda t: np.max(t),
    ],
)
def test_reverse_mode_needs_a_linear_rule(tangent):
    f = with_rule(np.sum, lambda p, t: (np.sum(p[0]), np.sum(tangent(t[0]))))
    gt.jvp(f, (POINT,), (POINT,))
    with pytest.raises(NotDifferentiableError, match="not linear"):
        gt.grad(f)(POINT)


def test_zeros_are_linear():
    def rule(p, t):
        whole = np.stack([t[0], np.zeros(2), t[0] * 0])
        return p[0], np.where(p[0] > 0, np.sum(whole, axis=0) + 0.0, np.zeros_like(t[0]))

    f = with_rule(lambda x: x, rule)
    np.testing.assert_array_equal(gt.grad(lambda x: np.sum(f(x)))(POINT), [1, 0])


def test_a_rule_may_use_functions_with_rules():
    """The way of JAX's linear solves: the rule solves again, for the tangents."""
    calls = []

    @gt.custom_jvp
    def solve(a, b):
        calls.append(1)
        return b / a

    @solve.defjvp
    def rule(primals, tangents):
        (a, b), (da, db) = primals, tangents
        x = solve(a, b)
        return x, solve(a, db - da * x)

    a, b = np.array([2.0, 4.0]), np.array([1.0, 3.0])
    gt.check_grads(solve, (a, b), order=3)
    assert len(calls) > 3


def test_missing_rules_and_captured_arrays():
    with pytest.raises(RuleError, match=r"no derivative rule"):
        gt.custom_jvp(np.sin)(1.0)
    with pytest.raises(RuleError, match=r"defvjp\(fwd, bwd\)"):
        gt.custom_vjp(np.sin)(1.0)

    def outer(x, w):
        return with_rule(lambda x: x * w, lambda p, t: (p[0] * w, t[0] * w))(x)

    assert float(gt.grad(outer)(2.0, 3.0)) == 3.0
    for differentiate in (
        gt.grad(outer, argnums=1),
        lambda x, w: gt.jvp(lambda w: outer(x, w), (w,), (1.0,)),
    ):
        with pytest.raises(NotDifferentiableError, match="from outside"):
            differentiate(2.0, 3.0)


# JAX's way: custom_vjp


def reverse(function, fwd, bwd, **options):
    made = gt.custom_vjp(function, **options)
    made.defvjp(fwd, bwd)
    return made


@pytest.mark.usefixtures("setting")
def test_a_reverse_rule():
    f = reverse(lambda x, y: np.sin(x) * y, lambda x, y: (np.sin(x) * y, y), lambda y, ct: (10 * ct, ct * y))
    np.testing.assert_array_equal(gt.grad(lambda x: np.sum(f(x, POINT)))(POINT), [10, 10])
    np.testing.assert_allclose(gt.grad(lambda y: np.sum(f(POINT, y)))(POINT), POINT)
    np.testing.assert_array_equal(gt.jvp(lambda x: f(x, POINT), (POINT,), (POINT,))[1], 10 * POINT)


def test_the_forward_rule_may_call_the_function():
    f = gt.custom_vjp(lambda x, y: {"a": np.sin(x) * y, "b": x})

    def fwd(x, y):
        return f(x, y), (x, y)

    def bwd(residuals, ct):
        x, y = residuals
        return ct["a"] * np.cos(x) * y + ct["b"], ct["a"] * np.sin(x)

    f.defvjp(fwd, bwd)
    gt.check_grads(f, (POINT, np.array([2.0, 3.0])), order=3)
    assert repr(f).startswith("<gradtape.custom_vjp")


def test_the_forward_rule_runs_only_when_somebody_follows():
    ran = []

    def fwd(x):
        ran.append("fwd")
        return np.sin(x), np.cos(x)

    f = reverse(lambda x: np.sin(x), fwd, lambda cos, ct: (ct * cos,))
    f(gt.constant(1.0))
    gt.jit(lambda x: f(x))(1.0)
    assert not ran
    assert np.isclose(gt.grad(f)(1.0), np.cos(1.0))
    assert ran == ["fwd"]


def test_gradient_clipping():
    clip = gt.custom_vjp(lambda low, high, x: x)
    clip.defvjp(lambda low, high, x: (x, (low, high)), lambda limits, ct: (None, None, np.clip(ct, *limits)))
    grad = gt.grad(lambda x: 5 * clip(-1.0, 1.0, x))
    assert float(grad(1.0)) == 1.0
    with pytest.raises(NotDifferentiableError, match="forward mode of"):
        gt.jvp(lambda x: clip(-1.0, 1.0, x), (1.0,), (1.0,))


def test_reverse_rules_without_some_arguments():
    apply = reverse(
        lambda function, x, order: function(x) * order,
        lambda function, x, order: (function(x) * order, x),
        lambda function, order, x, ct: (ct * order * 10,),
        nondiff_argnums=(0, 2),
    )
    assert float(gt.grad(lambda x: apply(np.sin, x, 3))(0.5)) == 30.0


@pytest.mark.parametrize(
    ("returned", "error"),
    [
        (lambda ct: ct, RuleError),
        (lambda ct: (ct, ct), RuleError),
        (lambda ct: ((ct,),), RuleError),
        (lambda ct: (np.ones(3),), ShapeError),
    ],
)
def test_backward_rules_that_do_not_fit(returned, error):
    f = reverse(np.sin, lambda x: (np.sin(x), None), lambda _, ct: returned(ct))
    with pytest.raises(error):
        gt.vjp(f, POINT)[1](POINT)


def test_forward_rules_must_return_a_pair():
    f = reverse(np.sin, lambda x: np.sin(x), lambda _, ct: (ct,))
    with pytest.raises(RuleError, match="not a pair"):
        gt.grad(f)(1.0)


def test_rules_on_methods():
    class Model:
        @gt.custom_jvp
        def scaled(self, x):
            return x * 2

        scaled.defjvp(lambda primals, tangents: (primals[1] * 2, tangents[1] * 20))

    assert float(gt.grad(Model().scaled)(1.0)) == 20.0


def test_copies_of_a_call_have_gradients_of_their_own():
    """Recomputation puts other arrays in place of what is read from outside: then a gradient function made before is of no use."""

    def loss(w, x):
        return np.sum(gt.recompute_grad(lambda x: x * log1pexp(w))(x))

    assert np.isclose(gt.grad(loss)(0.3, 2.0), 2 * sigmoid(0.3))
    gt.check_grads(loss, (0.3, POINT), order=2)


TRIPLE = np.array([0.5, -1.5, 2.0])


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
    for function, args in ((np.sin, (0.5,)), (np.sum, (TRIPLE,))):
        f = with_backward(
            function, lambda residuals, cotangent: (7.0 * cotangent * np.ones_like(residuals[0]),)
        )
        np.testing.assert_array_equal(gt.grad(f)(*args), 7.0 * np.ones_like(args[0]))


def test_rules_per_argument_are_functions():
    f = gt.custom_jvp(lambda x, y: x * y)
    with pytest.raises(ArgumentError, match="defjvps got an int"):
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
        np.testing.assert_array_equal((gt.jit(slope) if jit else slope)(TRIPLE), [2, 0, 1])
        np.testing.assert_array_equal(gradient_on_tape(f, TRIPLE)[0], [2, 0, 1])
    beside = gt.custom_gradient(lambda x, y: (picked(x) * y, lambda up: (slices(up), None)))
    np.testing.assert_array_equal(gt.grad(beside)(TRIPLE, 2.0), [2, 0, 1])


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
        gt.grad(f)(TRIPLE)


def test_structures_are_shown_as_one_writes_them():
    f = with_backward(lambda d: d["a"], lambda residuals, cotangent: ([cotangent],))
    with pytest.raises(RuleError, match=r"structure \[\*\], but its argument has \{'a': \*\}"):
        gt.grad(f)({"a": 1.0})


def test_a_constant_is_no_linear_map():
    f = gt.custom_jvp(lambda x: 2.0 * x)
    f.defjvp(lambda primals, tangents: (2.0 * primals[0], np.full(3, 2.0)))
    np.testing.assert_array_equal(gt.jvp(f, (TRIPLE,), (TRIPLE,))[1], [2, 2, 2])
    with pytest.raises(NotDifferentiableError, match="constant other than zero"):
        gt.grad(lambda x: np.sum(f(x)))(TRIPLE)
    g = gt.custom_gradient(lambda x: (2.0 * x, lambda upstream: np.full(3, 2.0)))
    np.testing.assert_array_equal(gt.grad(lambda x: np.sum(g(x)))(TRIPLE), [2, 2, 2])
    with pytest.raises(NotDifferentiableError, match="constant other than zero"):
        gt.jvp(g, (TRIPLE,), (TRIPLE,))


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
    slope = gt.grad(lambda x: np.sum(clipped(x, 0.0, 1.0) * TRIPLE))
    np.testing.assert_array_equal(slope(TRIPLE), TRIPLE)
    np.testing.assert_array_equal(gt.jit(slope)(TRIPLE), TRIPLE)
    both = gt.grad_pass_through(lambda x, y: (np.sign(x), y))
    np.testing.assert_array_equal(gt.grad(lambda x: np.sum(both(x, 3.0)[0] * TRIPLE))(TRIPLE), TRIPLE)


def test_results_that_are_no_arguments_are_refused_in_its_own_name():
    with pytest.raises(
        ShapeError, match=r"grad_pass_through: sum returned arrays of shape \(\) for arguments"
    ):
        gt.grad(gt.grad_pass_through(np.sum))(TRIPLE)
    with pytest.raises(
        RuleError, match=r"returned arrays of shape \(3,\), \(3,\) for arguments of shape \(3,\)"
    ):
        gt.grad(lambda x: np.sum(gt.grad_pass_through(lambda x: (x, x))(x)[0]))(TRIPLE)


@pytest.mark.parametrize("transform", [gt.jit, gt.grad])
@pytest.mark.parametrize("kind", ["checkpoint", "custom_gradient", "custom_vjp", "custom_jvp", "custom_root"])
def test_what_they_read_is_looked_at_in_each_call(kind, transform):
    factor = 2.0

    def body(x):
        return factor * np.sum(x**2)

    if kind == "checkpoint":
        function = gt.checkpoint(body)
    elif kind == "custom_gradient":
        function = gt.custom_gradient(lambda x: (body(x), lambda upstream: upstream * 2 * factor * x))
    elif kind == "custom_vjp":
        function = gt.custom_vjp(body)
        function.defvjp(lambda x: (body(x), x), lambda x, cotangent: (cotangent * 2 * factor * x,))
    elif kind == "custom_jvp":
        function = gt.custom_jvp(body)
        function.defjvp(
            lambda primals, tangents: (body(*primals), 2 * factor * np.sum(primals[0] * tangents[0]))
        )
    else:
        solve = gt.custom_root(lambda x, p: x - body(p), lambda start, p: body(p))

        def function(x):
            return solve(0.0, x)

    made, x = transform(lambda x: function(x)), np.array([1.0, 2.0])
    first = np.array(made(x))
    factor = 3.0
    np.testing.assert_allclose(made(x), 1.5 * first)


def _squared_with_pullback():
    square = gt.custom_vjp(lambda x: x * x)
    square.defvjp(lambda x: (x * x, x), lambda x, ct: (2.0 * x * ct,))
    return square


def _squared_with_forward_rule():
    square = gt.custom_jvp(lambda x: x * x)
    square.defjvp(lambda primals, tangents: (primals[0] * primals[0], 2.0 * primals[0] * tangents[0]))
    return square


@pytest.mark.parametrize("loops", ["trace", "compile"])
@pytest.mark.parametrize("make", [_squared_with_pullback, _squared_with_forward_rule])
def test_second_derivatives_of_rules_in_loops(make, loops):
    """A rule that is compiled from its code could not be transposed."""
    square = make()
    x = np.array([1.5, 2.0])

    def fourth_powers(x):
        return np.sum(gt.scan(lambda c, _: (square(c), None), x, np.arange(2.0))[0])

    with gt.config.override(loops=loops):
        for derive in (gt.hessian, lambda f: gt.jacfwd(gt.grad(f)), lambda f: gt.jacrev(gt.grad(f))):
            np.testing.assert_allclose(derive(fourth_powers)(x), np.diag(12.0 * x**2))


def test_terms_of_a_rule_that_are_computed_from_a_tangent_that_is_a_number():
    """The term ``tp * 2.0`` is a number where the tangent is 1: its elements are not zero by selection."""
    free = np.array([True, False])

    @gt.custom_jvp
    def combined(p, v):
        return p * np.array([2.0, 0.0]) + v

    @combined.defjvp
    def rule(primals, tangents):
        (p, v), (tp, tv) = primals, tangents
        change = np.where(free, tp * 2.0, 0.0) + np.where(free, 0.0, tv)
        return combined(p, v), change * np.where(np.isnan(v), np.nan, 1.0)

    def function(p):
        return np.sqrt(combined(p, np.where(free, 0.0, 3.0 * p)) + 1.0)

    expected = [1.0, 1.5] / np.sqrt([2.4, 3.1])
    np.testing.assert_allclose(gt.jvp(function, (0.7,), (1.0,))[1], expected)
    np.testing.assert_allclose(gt.jacobian(function)(0.7), expected)
    np.testing.assert_allclose(
        gt.jit(lambda p, t: gt.jvp(function, (p,), (t,))[1])(0.7, np.float64(1.0)), expected
    )
    np.testing.assert_allclose([gt.grad(lambda p, k=k: function(p)[k])(0.7) for k in range(2)], expected)
