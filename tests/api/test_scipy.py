"""SciPy's optimisers with nested unknowns: all methods, bounds and constraints, sparse derivatives, and errors that name the argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize as so

import gradtape as gt

START = {"a": np.zeros(2), "b": 3.0}


def misfit(x: Any, p: Any = 1.0) -> Any:
    return np.sum((x["a"] - np.array([1.0, 2.0])) ** 2) + (x["b"] - x["a"][0]) ** 4 + p * x["b"] ** 2


METHODS = "BFGS L-BFGS-B Newton-CG trust-exact trust-krylov trust-constr Nelder-Mead SLSQP COBYLA"


@pytest.mark.parametrize("method", [None, *METHODS.split()])
def test_methods(method: str | None) -> None:
    found = gt.scipy.minimize(misfit, START, method=method, tol=1e-6)
    assert found.x.keys() == START.keys()
    np.testing.assert_allclose(found.x["a"], [0.75, 2.0], atol=1e-3)
    np.testing.assert_allclose(found.x["b"], 0.25, atol=1e-3)


def test_arguments_are_not_compiled_in() -> None:
    ends = [gt.scipy.minimize(misfit, START, (p,), tol=1e-9).x["b"] for p in (1.0, 2.0)]
    expected = [
        so.minimize(lambda v, p=p: misfit({"a": v[:2], "b": v[2]}, p), np.ones(3)).x[2] for p in (1.0, 2.0)
    ]
    np.testing.assert_allclose(ends, expected, atol=1e-4)


def test_bounds() -> None:
    found = gt.scipy.minimize(misfit, START, bounds=(0.5, {"a": 0.9, "b": 10.0}))
    assert found.x["b"] == 0.5 and found.x["a"][1] == 0.9
    found = gt.scipy.minimize(lambda x: np.sum((x - 1) ** 2), np.zeros(3), bounds=[(0, 0.5)] * 3)
    np.testing.assert_array_equal(found.x, np.full(3, 0.5))


@pytest.mark.parametrize("solve", [gt.scipy.minimize, gt.nlp])
def test_a_bound_of_none_is_no_bound(solve: Any) -> None:
    def distance(x: Any) -> Any:
        return (x["a"] - 2) ** 2 + np.sum((x["b"] + 1) ** 2)

    start = {"a": 1.0, "b": np.zeros(2)}
    mixed = {"a": None, "b": np.array([None, -0.5], object)}
    for bounds, expected in (
        ((0.0, None), (2, 0, 0)),
        ((None, 1.0), (1, -1, -1)),
        ((None, None), (2, -1, -1)),
        ((mixed, {"a": 1.5, "b": None}), (1.5, -1, -0.5)),
    ):
        found = solve(distance, start, bounds=bounds).x
        np.testing.assert_allclose([found["a"], *found["b"]], expected, atol=1e-6)
    fit = gt.scipy.minimize(lambda x: np.sum((x - 1) ** 2), np.zeros(2), bounds=(0.1, None))
    assert np.all(gt.scipy.uncertainty(fit).standard_error > 0)  # neither is at a bound
    with pytest.raises(gt.errors.ArgumentError, match="upper bounds have a NaN"):
        solve(distance, start, bounds=(0.0, {"a": 1.0, "b": np.array([1.0, np.nan])}))


def test_a_run_that_ends_at_nan_names_the_place_and_the_op() -> None:
    def of_log(x: Any) -> Any:
        return 1e-3 * x["far"] ** 2 - np.log(x["scale"]) + 100 * x["scale"]

    with np.errstate(all="ignore"), pytest.warns(gt.errors.GradtapeWarning) as caught:
        gt.scipy.minimize(of_log, {"scale": 1.0, "far": 1e3}, method="BFGS")
    text = str(caught[0].message)
    assert "function is nan: x = {'scale': -" in text and "log" in text and "bounds=" in text, text
    assert caught[0].filename == __file__


@pytest.mark.parametrize("method", ["SLSQP", "trust-constr"])
def test_constraints(method: str) -> None:
    equal = {"type": "eq", "fun": lambda x: x["a"][0] - x["b"]}
    found = gt.scipy.minimize(misfit, START, method=method, constraints=equal)
    np.testing.assert_allclose(found.x["a"][0], found.x["b"], atol=1e-6)
    box = so.NonlinearConstraint(lambda x: x["a"], 0, 0.5)
    found = gt.scipy.minimize(misfit, START, method=method, constraints=[box])
    np.testing.assert_allclose(found.x["a"], [0.5, 0.5], atol=1e-4)


def chain(x: Any) -> Any:
    return np.concatenate([x[1:] - x[:-1] ** 2, 1 - x[:-1]])


def test_sparse_where_sparse() -> None:
    start = np.full(600, 0.9)
    found = gt.scipy.least_squares(chain, start, max_nfev=2)
    assert hasattr(found.jac, "indptr")
    dense = gt.scipy.least_squares(chain, start[:5])
    assert isinstance(dense.jac, np.ndarray)
    np.testing.assert_allclose(dense.x, np.ones(5), atol=1e-6)
    asked = gt.scipy.least_squares(chain, start[:5], sparse=True)
    assert hasattr(asked.jac, "indptr")
    hessians = gt.scipy.minimize(
        lambda x: np.sum(chain(x) ** 2), start[:6], method="trust-constr", sparse=True, tol=1e-9
    )
    np.testing.assert_allclose(hessians.x, np.ones(6), atol=1e-5)


def test_root_and_curve_fit() -> None:
    found = gt.scipy.root(lambda x, p: (x[0] ** 2 - p * x[1], x[1] - x[0]), (2.0, 1.0), (3.0,))
    np.testing.assert_allclose(found.x, [3.0, 3.0])
    t = np.linspace(0.0, 2.0, 9)

    def decay(t: Any, height: Any, rate: Any) -> Any:
        return height * np.exp(-rate * t)

    noisy = decay(t, 2.0, 0.7) + 0.01 * np.sin(9 * t)
    best, covariance = gt.scipy.curve_fit(decay, t, noisy, {"height": 1.0, "rate": 1.0}, bounds=(0.0, 5.0))
    expected, wanted = so.curve_fit(decay, t, noisy, bounds=(0.0, 5.0))
    np.testing.assert_allclose([best["height"], best["rate"]], expected, rtol=1e-5)
    np.testing.assert_allclose(covariance, wanted, rtol=1e-4)
    np.testing.assert_allclose(gt.scipy.curve_fit(decay, t, noisy)[0], expected, rtol=1e-5)


def test_solutions_have_derivatives() -> None:
    def lowest(p: Any) -> Any:
        return gt.scipy.minimize(lambda x: misfit(x, p), START, tol=1e-8).x["b"]

    slope, h = gt.grad(lowest)(1.0), 1e-3
    np.testing.assert_allclose(slope, (lowest(1 + h) - lowest(1 - h)) / (2 * h), rtol=1e-3)
    with gt.GradientTape() as tape:
        p = tape.watch(1.0)
        end = lowest(p)
    np.testing.assert_allclose(tape.gradient(end, p), slope, rtol=1e-4)


def test_an_interrupt_ends_it() -> None:
    def stop(x: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gt.scipy.minimize(misfit, START, callback=stop)
    assert gt.scipy.minimize(misfit, START).success


def test_errors_name_the_argument() -> None:
    with pytest.raises(gt.errors.ShapeError, match="1 numbers for 2 unknowns"):
        gt.scipy.root(lambda x: x[:1], np.zeros(2))
    with pytest.raises(gt.errors.NonScalarOutputError):
        gt.scipy.minimize(lambda x: x, np.zeros(2))
    with pytest.raises(gt.errors.DtypeError, match="x0 has an array of dtype complex128"):
        gt.scipy.minimize(misfit, np.zeros(2) + 1j)
    with pytest.raises(gt.errors.ArgumentError, match="bounds must be a pair"):
        gt.scipy.minimize(misfit, START, bounds=3)
    with pytest.raises(gt.errors.StructureError, match="lower bounds"):
        gt.scipy.minimize(misfit, START, bounds=({"a": 1.0}, 2.0))
    with pytest.raises(gt.errors.ArgumentError, match="a constraint is an int"):
        gt.scipy.minimize(misfit, START, constraints=5)
    wrong = {"type": "ineq", "fun": misfit, "arg": 3.0}
    for transform in (lambda f: f, gt.jit, gt.grad):
        with pytest.raises(gt.errors.ArgumentError, match="a constraint has the unknown key 'arg'"):
            transform(lambda t: gt.scipy.minimize(lambda x: x**2 * t, 1.0, constraints=[wrong]).x)(2.0)


def test_constraints_and_bounds_of_trust_constr_with_nested_unknowns() -> None:
    """The Jacobians of the constraints are a list of unequal matrices."""
    target = {"a": np.array([2.0]), "b": np.array([3.0])}

    def distance(p):
        return np.sum((p["a"] - target["a"]) ** 2) + np.sum((p["b"] - target["b"]) ** 2)

    total = so.NonlinearConstraint(lambda p: p["a"][0] + p["b"][0], -np.inf, 3.0)
    found = gt.scipy.minimize(
        distance, {"a": np.array([0.5]), "b": np.array([0.5])}, method="trust-constr", constraints=[total]
    )
    assert set(found.x) == set(found.grad) == {"a", "b"}
    np.testing.assert_allclose([found.x["a"][0], found.x["b"][0]], [1.0, 2.0], atol=1e-3)
    plain = gt.scipy.minimize(
        lambda x: np.sum((x - np.array([2.0, 3.0])) ** 2),
        np.array([0.5, 0.5]),
        method="trust-constr",
        bounds=[(0, 1.5), (0, 5)],
        constraints=[so.NonlinearConstraint(lambda x: x[0] + x[1], -np.inf, 3.0)],
    )
    np.testing.assert_allclose(plain.x, [1.0, 2.0], atol=1e-3)
    assert len(plain.jac) == 2


@pytest.mark.parametrize("x0", [[2, 3.0], [np.float64(2.0), np.int64(3)], np.array([2.0, 3.0])])
def test_a_list_of_numbers_is_an_array_as_in_scipy(x0: Any) -> None:
    target = np.array([1.0, 4.0])

    def cost(x: Any) -> Any:
        return (x - target) @ (x - target)

    points = np.linspace(0.0, 1.0, 5)
    found = {
        "minimize": gt.scipy.minimize(cost, x0).x,
        "bounds": gt.scipy.minimize(cost, x0, bounds=([0.0, 0.0], [9.0, 9.0])).x,
        "pairs": gt.scipy.minimize(cost, x0, bounds=[(0.0, 9.0), (None, 9.0)]).x,
        "least_squares": gt.scipy.least_squares(lambda x: x - target, x0).x,
        "root": gt.scipy.root(lambda x: x**2 - target**2, x0).x,
        "curve_fit": gt.scipy.curve_fit(lambda t, a, b: a * t + b, points, points + 4.0, x0)[0],
        "nlp": gt.nlp(cost, x0).x,
        "propagate": gt.propagate(lambda x: x * target / np.array([2.0, 3.0]), x0, np.eye(2)).mean,
    }
    for name, x in found.items():
        assert type(x) is np.ndarray, name
        np.testing.assert_allclose(x, target, rtol=1e-5, err_msg=name)


def test_lists_of_arrays_and_tuples_stay_containers() -> None:
    found = gt.scipy.minimize(lambda x: np.sum((x[0] - 1.0) ** 2) + (x[1] - 2.0) ** 2, [np.zeros(2), 0.0]).x
    assert type(found) is list and found[0].shape == (2,)
    assert type(gt.scipy.minimize(lambda x: x[0] ** 2 + (x[1] - 2.0) ** 2, (1.0, 0.0)).x) is tuple


def test_a_list_of_traced_numbers_is_an_array() -> None:
    def end(a: Any) -> Any:
        return gt.scipy.minimize(lambda x: np.sum((x - a) ** 4 + (x - a) ** 2), [a + 0.5, a - 0.5]).x[0]

    assert gt.grad(end)(2.0) == pytest.approx(1.0)
    assert gt.jit(gt.grad(end))(2.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda x0: gt.scipy.minimize(lambda x: np.sum(x**2), x0),
        lambda x0: gt.scipy.root(lambda x: x * 2.0 - 1, x0),
        lambda x0: gt.scipy.least_squares(lambda x: x - 1, x0),
        lambda x0: gt.nlp(lambda x: np.sum(x**2), x0),
    ],
)
def test_tuples_that_are_used_as_arrays_are_named(call: Any) -> None:
    with pytest.raises(
        gt.errors.DtypeError, match=r"argument x is a tuple of length 2[^$]*pass np.array\(x\)"
    ):
        call((1.0, 2.0))
    with pytest.raises(gt.errors.ArgumentError, match="x0 is None"):
        call(None)
