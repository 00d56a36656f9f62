"""What SciPy's solvers return has the derivatives of its equations: on tapes and in compiled functions, up to the second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize as so
import scipy.optimize.elementwise as se

import gradtape as gt
from gradtape.runtime.compile.cache import disk

TIGHT = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14}


def cubic(x: Any, p: Any) -> Any:
    return x**3 + p * x - 1


def system(x: Any, p: Any) -> Any:
    return np.array([x[0] ** 2 + p * x[1] - 3, x[0] - x[1] * p])


def bowl(x: Any, p: Any) -> Any:
    return (x[0] - p) ** 2 + (x[1] - p**2) ** 2 + 0.1 * x[0] ** 4


def best(p: Any, **options: Any) -> Any:
    return so.minimize(lambda x: bowl(x, p), np.zeros(2), **{"tol": 1e-8, **options})


def stops(x: Any, p: Any) -> Any:
    return np.array([x[0] - p, x[1] - x[0] * p, x[0] * x[1] - 1])


TIMES = np.linspace(0.0, 2.0, 9)


def decay(t: Any, height: Any, rate: Any) -> Any:
    return height * np.exp(-rate * t)


def fitted(p: Any, **options: Any) -> Any:
    return so.curve_fit(
        decay, TIMES, 1.5 * np.exp(-p * TIMES) + 0.1 * np.sin(9 * p * TIMES), **(TIGHT | options)
    )


WEIGHTS = np.array([1.0, 2.0])


def searched(p: Any) -> Any:
    found = se.bracket_root(cubic, -0.2, 0.1, xmin=-1.0, args=(p,))
    return se.find_root(cubic, found.bracket, args=(p,)).x


def own_loss(z: Any) -> Any:
    return np.stack([np.log1p(z), 1 / (1 + z), -1 / (1 + z) ** 2])


CASES: dict[str, tuple[Callable[[Any], Any], float]] = {
    "brentq": (lambda p: so.brentq(cubic, 0, 2, args=(p,)), 2.0),
    "brenth with a closure": (lambda p: so.brenth(lambda x: cubic(x, p), 0, 2), 2.0),
    "bisect, from a traced point": (lambda p: so.bisect(cubic, 0.1 * p, 2, args=(p,)), 2.0),
    "ridder": (lambda p: so.ridder(cubic, 0, 2, args=p), 2.0),
    "toms748": (lambda p: so.toms748(lambda x: np.exp(x) - p, 0, 2), 2.0),
    "find_root": (lambda p: se.find_root(cubic, (0.0, 2.0), args=(p,)).x, 2.0),
    "find_root of several, in brackets that are searched": (
        lambda p: np.sum(searched(p * np.array([1.0, 0.3]))),
        2.0,
    ),
    "newton": (lambda p: so.newton(cubic, 0.5, args=(p,)), 2.0),
    "root_scalar in a bracket": (lambda p: so.root_scalar(cubic, (p,), bracket=[0, 2]).root, 2.0),
    "root_scalar by secants": (lambda p: so.root_scalar(cubic, (p,), x0=0.4, x1=0.6).root, 2.0),
    "root": (lambda p: so.root(system, np.ones(2), (p,)).x @ WEIGHTS, 2.0),
    "fsolve": (lambda p: so.fsolve(lambda x: list(system(x, p)), [1.0, 1.0]) @ WEIGHTS, 2.0),
    "fixed_point": (lambda p: so.fixed_point(lambda x: np.cos(p * x), 0.5), 1.0),
    "minimize": (lambda p: best(p).x @ WEIGHTS, 0.7),
    "minimize, the minimum": (lambda p: best(p).fun, 0.7),
    "minimize with bounds": (lambda p: best(p, bounds=[(0, 0.3), (None, None)]).x @ WEIGHTS, 0.7),
    "minimize with a traced bound": (
        lambda p: best(p, bounds=so.Bounds([-1.0, -1.0], [1.0, 0.5 * p])).x @ WEIGHTS,
        0.7,
    ),
    "minimize without gradients": (
        lambda p: best(p, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-14}).x @ WEIGHTS,
        0.7,
    ),
    "minimize with Hessians": (lambda p: best(p, method="trust-exact").x @ WEIGHTS, 0.7),
    "minimize_scalar": (lambda p: so.minimize_scalar(lambda x: (x - p) ** 2 + 0.1 * x**4).x, 0.7),
    "least_squares": (lambda p: so.least_squares(stops, np.ones(2), args=(p,), **TIGHT).x @ WEIGHTS, 0.7),
    "least_squares, the cost": (lambda p: so.least_squares(stops, np.ones(2), args=(p,), **TIGHT).cost, 0.7),
    "least_squares, the gradient at a bound": (
        lambda p: so.least_squares(stops, np.zeros(2), args=(p,), bounds=(-2, 0.3), **TIGHT).grad @ WEIGHTS,
        0.7,
    ),
    "least_squares with a loss of one's own": (
        lambda p: (
            so.least_squares(stops, np.ones(2), args=(p,), loss=own_loss, f_scale=0.5, **TIGHT).x @ WEIGHTS
        ),
        0.7,
    ),
    "curve_fit": (lambda p: fitted(p)[0] @ WEIGHTS, 0.7),
    "curve_fit, the covariance": (lambda p: np.sum(fitted(p)[1] * 100), 0.7),
    "curve_fit, weighted": (
        lambda p: fitted(p, sigma=0.1 * (1 + p * TIMES), p0=[1.0, 1.0], absolute_sigma=True)[0] @ WEIGHTS,
        0.7,
    ),
}

GIVEN_DERIVATIVES = {"minimize with Hessians"}
"""Only compiled functions give SciPy the derivatives that the method needs."""


@pytest.mark.parametrize("name", CASES)
def test_solvers_in_compiled_functions(name: str) -> None:
    function, p = CASES[name]
    reference = CASES["minimize"][0] if name in GIVEN_DERIVATIVES else function
    value, slope = gt.value_and_grad(function)(p)
    np.testing.assert_allclose(value, reference(p), rtol=2e-6, atol=1e-7)
    h = 2e-3
    np.testing.assert_allclose(slope, (reference(p + h) - reference(p - h)) / (2 * h), rtol=2e-4, atol=2e-4)
    curvature = gt.grad(gt.grad(function))(p)
    h = 2e-4
    slopes = [float(gt.grad(function)(p + d)) for d in (h, -h)]
    np.testing.assert_allclose(curvature, (slopes[0] - slopes[1]) / (2 * h), rtol=1e-4, atol=1e-4)
    _, pushed = gt.jvp(function, (p,), (1.0,))
    np.testing.assert_allclose(pushed, slope, rtol=1e-9)


@pytest.mark.parametrize("name", [name for name in CASES if name not in GIVEN_DERIVATIVES])
def test_solvers_on_tapes(name: str) -> None:
    function, p = CASES[name]
    with gt.GradientTape() as tape:
        watched = tape.watch(p)
        value = function(watched)
    np.testing.assert_allclose(value, function(p), rtol=1e-7)
    np.testing.assert_allclose(tape.gradient(value, watched), gt.grad(function)(p), rtol=1e-4, atol=1e-5)


def test_what_has_not_converged_is_said() -> None:
    def early(p: Any) -> Any:
        return so.minimize(lambda x: bowl(x, p), np.zeros(2), options={"maxiter": 1}).x[0]

    with gt.GradientTape() as tape:
        p = tape.watch(0.7)
        with pytest.warns(gt.errors.GradtapeWarning, match="has not converged"):
            early(p)
    with pytest.warns(gt.errors.GradtapeWarning, match="has not converged"):
        gt.jit(early)(0.7)


def test_what_is_not_followed_is_refused() -> None:
    def own(p: Any) -> Any:
        return so.minimize(lambda x: np.sum((x - p) ** 2), np.zeros(2), method=lambda *a, **k: None).x[0]

    with pytest.raises(gt.errors.UnsupportedFunctionError, match=r"scipy\.optimize\.minimize"):
        gt.grad(own)(0.7)


@pytest.mark.parametrize(
    ("solve", "match"),
    [
        (lambda p: so.minimize(lambda x: np.sum((x - p) ** 2), np.zeros(2), method="BFGZ"), "method 'BFGZ'"),
        (lambda p: so.minimize_scalar(lambda x: (x - p) ** 2, method="gold"), "method 'gold'"),
        (lambda p: so.root(lambda x: x - p, np.zeros(2), method="hybrid"), "method 'hybrid'"),
        (lambda p: so.root_scalar(lambda x: x - p, bracket=(-5, 5), method="brent"), "method 'brent'"),
        (lambda p: so.linprog([p, 1.0], A_ub=-np.eye(2), b_ub=np.ones(2), method="any"), "method 'any'"),
        (lambda p: so.least_squares(lambda x: x - p, np.zeros(2), method="lmm"), "method 'lmm'"),
        (lambda p: so.least_squares(lambda x: x - p, np.zeros(2), loss="hubr"), "loss 'hubr'"),
        (
            lambda p: so.curve_fit(lambda t, a: a * t, np.ones(3), p * np.ones(3), method="any"),
            "method 'any'",
        ),
        (lambda p: so.fixed_point(lambda x: np.cos(x * p), np.ones(2), method="any"), "method 'any'"),
    ],
)
def test_misspelt_names_are_errors_where_nothing_reads_the_result(
    solve: Callable[[Any], Any], match: str
) -> None:
    def ignored(p: Any) -> Any:
        solve(p)
        return p

    with pytest.raises(gt.errors.ArgumentError, match=match):
        gt.grad(ignored)(0.7)


def test_a_loss_that_reads_traced_arrays_is_refused_in_compiled_functions() -> None:
    def loss(p: Any) -> Any:
        return lambda z: np.stack([p * z, p + 0 * z, 0 * z])

    with pytest.raises(gt.errors.UnsupportedFunctionError, match="loss that reads traced"):
        gt.grad(lambda p: so.least_squares(lambda x: x - p, np.zeros(2), loss=loss(p)).x[0])(0.7)


def test_a_singular_jacobian_counts_for_derivatives_only() -> None:
    def root(p: Any) -> Any:
        return so.fsolve(lambda x: np.array([x[0] + x[1] - p, x[0] + x[1] - p]), np.zeros(2))

    np.testing.assert_allclose(np.sum(gt.jit(root)(1.0)), 1.0)
    with pytest.raises(gt.errors.SingularJacobianError, match="singular at the solution"):
        gt.grad(lambda p: np.sum(root(p)))(1.0)
    with gt.GradientTape() as tape:
        p = tape.watch(1.0)
        x = root(p)
    np.testing.assert_allclose(np.sum(x.numpy()), 1.0)
    with pytest.raises(gt.errors.SingularJacobianError):
        float(tape.gradient(x, p))


def test_third_derivatives() -> None:
    def root(p: Any) -> Any:
        return so.brentq(lambda x: x**2 - p, 0.1, 4.0)

    third = gt.grad(gt.grad(gt.grad(root)))
    np.testing.assert_allclose(third(2.0), 3 / 8 * 2.0**-2.5, rtol=1e-9)


def test_vmap_solves_one_problem_for_each_element() -> None:
    p = np.array([1.0, 2.0, 3.0])
    root = CASES["brentq"][0]
    np.testing.assert_allclose(gt.vmap(root)(p), [root(one) for one in p])
    np.testing.assert_allclose(gt.vmap(gt.grad(root))(p), [gt.grad(root)(one) for one in p])


def test_custom_root_of_nested_unknowns() -> None:
    def optimality(x: Any, p: Any) -> Any:
        return {"a": x["a"] ** 2 - p["b"], "c": x["c"] - x["a"] * p["d"]}

    def solver(init: Any, p: Any) -> Any:
        a = np.sqrt(p["b"])
        return {"a": a, "c": a * p["d"]}

    solve = gt.custom_root(optimality, solver)
    init = {"a": 1.0, "c": np.zeros(2)}

    def total(p: Any) -> Any:
        x = solve(init, p)
        return x["a"] + np.sum(x["c"])

    p = {"b": 2.0, "d": np.array([0.3, 0.7])}
    slopes = gt.grad(total)(p)
    np.testing.assert_allclose(slopes["b"], (1 + 1.0) / (2 * np.sqrt(2)))
    np.testing.assert_allclose(slopes["d"], np.full(2, np.sqrt(2)))


def test_a_solver_that_reads_traced_arrays_is_refused() -> None:
    def total(p: Any) -> Any:
        return gt.custom_root(lambda x: x - p, lambda init: p * 1.0)(0.0)

    with pytest.raises(gt.errors.ArgumentError, match="reads a traced array from outside"):
        gt.grad(total)(1.0)


def test_callback_is_called_each_time() -> None:
    seen = []

    def look(x: Any, y: Any) -> Any:
        seen.append((x, y))
        return {"sum": x + y.sum(), "twice": 2 * y}

    like = {"sum": 0.0, "twice": np.zeros(2)}

    @gt.jit
    def f(x: Any, y: Any) -> Any:
        found = gt.callback(look, like, x, gt.stop_gradient(y))
        return found["sum"] * found["twice"]

    for x in (1.0, 2.0):
        np.testing.assert_array_equal(f(x, np.ones(2)), np.full(2, 2 * (x + 2)))
    assert [x for x, _ in seen] == [1.0, 2.0]


@pytest.mark.parametrize("looped", [False, True])
def test_kernels_that_call_functions_of_this_process_are_not_stored(
    looped: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADTAPE_CACHE_DIR", str(tmp_path))
    before = disk.statistics.stores

    def called(x: Any) -> Any:
        return gt.callback(np.sin, 0.0, x) * 1.25

    def loop(x: Any) -> Any:
        return gt.fori_loop(0, 3, lambda i, c: called(c), x)

    gt.jit(loop if looped else called)(0.3)
    assert disk.statistics.stores == before


def test_callbacks_have_no_derivative_in_silence() -> None:
    with pytest.raises(gt.errors.NotDifferentiableError, match=r"gt\.callback has no derivative"):
        gt.grad(lambda x: gt.callback(np.sin, 0.0, x))(1.0)


def test_a_callback_with_another_shape_is_refused() -> None:
    with pytest.raises(gt.errors.ShapeError, match="result_like"):
        gt.jit(lambda x: gt.callback(lambda x: np.zeros(3), 0.0, x))(1.0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "solution",
    [
        lambda p: so.root(lambda x: x**2 - p, np.ones(1)).x[0],
        lambda p: so.root(lambda x: x**2 - p, np.ones(1), method="lm").x[0],
        lambda p: so.fsolve(lambda x: x**2 - p, 1.0)[0],
        lambda p: so.minimize(lambda x: (x[0] - p) ** 2, np.ones(1)).x[0],
        lambda p: so.minimize_scalar(lambda x: (x - p) ** 2).x,
        lambda p: gt.custom_root(lambda x, p: x - p, lambda init, p: init)(1.0, p),
    ],
)
def test_what_solves_no_equation_has_no_derivative(solution: Any) -> None:
    """Where the equations are NaN, SciPy returns the point from which it has started."""
    assert np.isnan(gt.grad(solution)(np.nan))
    assert np.isnan(gt.jvp(solution, (np.nan,), (1.0,))[1])


@pytest.mark.filterwarnings("ignore")
def test_the_roots_of_other_elements_have_their_derivatives() -> None:
    slopes = gt.jacobian(lambda p: so.newton(lambda x: x**2 - p, np.ones(3)))(np.array([2.0, np.nan, 3.0]))
    np.testing.assert_allclose(np.diagonal(slopes), [0.5 / np.sqrt(2), np.nan, 0.5 / np.sqrt(3)])


@pytest.mark.parametrize("method", ["L-BFGS-B", "TNC", "SLSQP"])
def test_a_gradient_that_is_nan_where_a_method_stops_is_reported(method: str) -> None:
    """At the bound from which they start, 0 * inf; they take it for a minimum."""

    def fun(x: Any, p: Any) -> Any:
        return np.sum((x - p) ** 2) + np.sum(np.sqrt(x) * np.cbrt(x))

    def solve(p: Any) -> Any:
        return so.minimize(fun, np.zeros(1), args=(p,), method=method, bounds=[(0.0, 5.0)]).x

    with pytest.warns(gt.errors.GradtapeWarning, match="the residual is nan"):
        gt.jit(solve)(np.ones(1))


def test_a_solver_in_a_loop() -> None:
    """Its rule runs when the body of the loop is differentiated, before there are numbers."""
    solve = gt.custom_root(
        lambda x, p: x**3 + p * x - 1, lambda init, p: so.brentq(lambda x: x**3 + p * x - 1, 0, 2)
    )

    def repeated(p: Any) -> Any:
        return gt.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, solve(0.0, p + x)), (0, 0.0 * p))[1]

    h = 1e-5
    difference = (repeated(2 + h) - repeated(2 - h)) / (2 * h)
    np.testing.assert_allclose(gt.grad(repeated)(2.0), difference, rtol=1e-6)
    np.testing.assert_allclose(gt.jvp(repeated, (2.0,), (1.0,))[1], difference, rtol=1e-6)


def test_a_solver_in_the_function_of_another() -> None:
    """What the inner one is called with is a constant: its limits are no parameters of the outer one's equations."""

    def inner(q: Any) -> Any:
        return so.brentq(cubic, 0, 2, args=(q,), xtol=1e-14)

    def outer(p: Any) -> Any:
        return so.brentq(lambda y: y + inner(y + p) - 2, 0, 3, xtol=1e-14)

    h = 1e-4
    slope = gt.grad(outer)
    np.testing.assert_allclose(slope(1.0), (outer(1 + h) - outer(1 - h)) / (2 * h), rtol=1e-6)
    np.testing.assert_allclose(gt.grad(slope)(1.0), (slope(1 + h) - slope(1 - h)) / (2 * h), rtol=1e-6)


def test_complex_roots() -> None:
    def root(p: Any) -> Any:
        found = so.newton(lambda z: z**3 - p, np.array([1.0, -0.5 + 0.8j]), fprime=lambda z: 3 * z**2)
        return np.sum(np.real(found) + 2 * np.imag(found))

    third = 2 ** (1 / 3)
    np.testing.assert_allclose(gt.jit(root)(2.0), third * (0.5 + np.sqrt(3)))
    np.testing.assert_allclose(gt.grad(root)(2.0), third * (0.5 + np.sqrt(3)) / 6)


@pytest.mark.parametrize("find", [so.fsolve, lambda f, x: so.root(f, x).x, so.newton])
def test_a_start_alone_is_traced(find: Any) -> None:
    value, slope = gt.value_and_grad(lambda x: np.sum(find(lambda y: y**2 - 2, x)))(np.array([1.0, 2.0]))
    np.testing.assert_allclose(value, np.sqrt(8))
    np.testing.assert_array_equal(slope, np.zeros(2))


def test_fits_with_errors_that_the_function_makes() -> None:
    """Nobody writes to them, although each look at such an array makes a constant."""

    def fit(p: Any) -> Any:
        sigma = np.full(9, 0.3)
        return so.curve_fit(decay, TIMES, 1.5 * np.exp(-p * TIMES), p0=[1.0, 1.0], sigma=sigma)[0][1]

    np.testing.assert_allclose(gt.grad(fit)(0.7), 1.0, rtol=1e-5)


def test_a_root_at_the_end_of_an_interval_is_found_before_those_inside() -> None:
    def root(p: Any) -> Any:
        return se.find_root(lambda x, p: x**3 + np.exp(-x) - p, (0.0, 4.0), args=(p,)).x

    levels = np.array([1.0, 3.0])
    np.testing.assert_allclose(gt.jit(root)(levels), root(levels), rtol=1e-14)
    np.testing.assert_allclose(gt.grad(lambda p: np.sum(root(p)))(levels)[0], -1.0)
