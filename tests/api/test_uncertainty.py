"""Error propagation, and standard errors of fits: against formulas, samples and SciPy."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

import gradtape as gt
from gradtape.errors import ArgumentError, DtypeError, ShapeError, SingularJacobianError, StructureError

MEAN = {"a": 0.3, "b": np.array([2.0, 1.0])}
COVARIANCE = np.array([[0.01, 0.005, 0.0], [0.005, 0.04, -0.01], [0.0, -0.01, 0.09]])
T = np.linspace(0.0, 4.0, 9)
Y = 2 * np.exp(-0.7 * T) + np.array([3, -1, 2, -2, 1, 0, -1, 2, -2]) / 50
START = {"height": 1.0, "rate": 1.0}


def model(x: Any) -> Any:
    return {"y": np.exp(x["a"]) * x["b"][0], "z": x["b"] ** 2}


def residuals(x: Any) -> Any:
    return x["height"] * np.exp(-x["rate"] * T) - Y


def residuals_of_vector(x: Any) -> Any:
    return x[0] * np.exp(-x[1] * T) - Y


def fitted() -> Any:
    return gt.scipy.least_squares(residuals, START, ftol=1e-14, xtol=1e-14, gtol=1e-14)


# Propagation


def test_first_order_is_the_jacobian_on_both_sides() -> None:
    found = gt.propagate(model, MEAN, COVARIANCE)
    slopes = np.array([[2 * np.exp(0.3), np.exp(0.3), 0], [0, 4, 0], [0, 0, 2]])
    np.testing.assert_allclose(found.covariance, slopes @ COVARIANCE @ slopes.T, rtol=1e-12)
    np.testing.assert_allclose(found.standard_deviation["z"], np.sqrt(np.diag(found.covariance))[1:])
    np.testing.assert_allclose(found.mean["z"], [4.0, 1.0])
    np.testing.assert_allclose(np.diag(found.correlation), 1.0)


def test_second_order_is_exact_for_squares() -> None:
    found = gt.propagate(lambda x: x**2, np.array([2.0, 1.0]), COVARIANCE[1:, 1:], order=2)
    mean, c = np.array([2.0, 1.0]), COVARIANCE[1:, 1:]
    np.testing.assert_allclose(found.mean, mean**2 + np.diag(c))
    np.testing.assert_allclose(found.covariance, 4 * c * np.outer(mean, mean) + 2 * c**2)


def test_samples_stand_beside() -> None:
    found = gt.propagate(model, MEAN, COVARIANCE, order=2, samples=100_000, rng=np.random.default_rng(5))
    for name in ("y", "z"):
        difference = np.abs(found.samples.mean[name] - found.mean[name])
        assert np.all(difference < 6 * found.samples.standard_error[name] + 2e-3)
        np.testing.assert_allclose(
            found.samples.standard_deviation[name], found.standard_deviation[name], rtol=0.02
        )
    again = gt.propagate(model, MEAN, COVARIANCE, order=2, samples=100_000, rng=5)
    np.testing.assert_array_equal(again.samples.covariance, found.samples.covariance)


# Values and standard deviations of uncertainties 3.2.3 for x = ufloat(0.2, 0.01), y = ufloat(1, 0.1), after the examples of its manual.
UNCERTAINTIES: dict[str, tuple[Callable[[Any, Any], Any], float, float]] = {
    "square": (lambda x, y: x**2, 0.04000000000000001, 0.004),
    "sine": (lambda x, y: np.sin(x**2), 0.03998933418663417, 0.003996800426643912),
    "difference with itself": (lambda x, y: x - x, 0.0, 0.0),
    "sum": (lambda x, y: 2 * x + y * x, 0.6000000000000001, 0.0360555127546399),
    "logarithm": (lambda x, y: np.log(y) / x, 0.0, 0.5),
    "power": (lambda x, y: y**x, 1.0, 0.020000000000000004),
    "angle": (lambda x, y: np.arctan2(y, x), 1.373400766945016, 0.02150065362980567),
    "root": (lambda x, y: np.sqrt(x * y), 0.4472135954999579, 0.025),
}


@pytest.mark.parametrize("name", UNCERTAINTIES)
def test_results_are_those_of_the_package_uncertainties(name: str) -> None:
    f, mean, deviation = UNCERTAINTIES[name]
    found = gt.propagate(lambda a: f(a["x"], a["y"]), {"x": 0.2, "y": 1.0}, {"x": 1e-4, "y": 1e-2})
    np.testing.assert_allclose(found.mean, mean, rtol=1e-15)
    np.testing.assert_allclose(found.standard_deviation, deviation, rtol=1e-14)


def test_correlated_results_are_the_inputs_of_the_next_function() -> None:
    first = gt.propagate(
        lambda a: np.stack([a[0], a[1], a[0] + 2 * a[1]]), np.array([1.0, 10.0]), np.full(2, 0.01)
    )
    np.testing.assert_allclose(
        first.covariance, [[0.01, 0.0, 0.01], [0.0, 0.01, 0.02], [0.01, 0.02, 0.05]], rtol=1e-14
    )
    next_ = gt.propagate(
        lambda a: np.stack([a[2] - (a[0] + 2 * a[1]), a[0] * a[1] / a[2]]), first.mean, first.covariance
    )
    np.testing.assert_allclose(next_.mean, [0.0, 0.47619047619047616])
    np.testing.assert_allclose(next_.standard_deviation, [0.0, 0.0453520408127835], atol=1e-8)


@pytest.mark.parametrize(
    "given",
    [{"a": 0.01, "b": 0.04}, {"a": 0.01, "b": np.array([0.04, 0.04])}, np.diag([0.01, 0.04, 0.04])],
)
def test_variances_have_the_containers_of_the_mean(given: Any) -> None:
    found = gt.propagate(model, MEAN, given)
    np.testing.assert_allclose(found.standard_deviation["z"], [0.8, 0.4])


def test_a_singular_covariance_is_one() -> None:
    found = gt.propagate(lambda x: x[0] - x[1], np.ones(2), np.ones((2, 2)), samples=100)
    assert found.standard_deviation == 0
    assert found.samples.standard_deviation < 1e-7


def test_further_arguments_have_no_errors() -> None:
    assert gt.propagate(lambda x, k: k * x, 1.0, 0.04, args=(3.0,)).standard_deviation == pytest.approx(0.6)


def test_the_error_of_a_design_has_a_derivative() -> None:
    def error(mean: Any) -> Any:
        return gt.propagate(lambda x: x[0] * x[1], mean, 0.1 * np.eye(2), order=1).standard_deviation

    mean = np.array([1.0, 2.0])
    expected = np.sqrt(0.1) * mean / np.hypot(1, 2)
    np.testing.assert_allclose(gt.grad(error)(mean), expected)
    with gt.GradientTape() as tape:
        x = tape.watch(mean)
        y = error(x)
    np.testing.assert_allclose(tape.gradient(y, x), expected)


def test_a_table() -> None:
    lines = repr(gt.propagate(model, MEAN, COVARIANCE, samples=100)).splitlines()
    assert len(lines) == 4
    assert [line.split()[0] for line in lines[1:]] == ["['y']", "['z'][0]", "['z'][1]"]
    assert "of 100 samples" in lines[0]
    assert repr(gt.propagate(lambda x: x, np.ones(50), 1.0)).endswith("... and 30 more")


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: gt.propagate(model, MEAN, np.eye(2)), ShapeError, r"pass a matrix of shape \(3, 3\)"),
        (lambda: gt.propagate(model, MEAN, -np.eye(3)), ArgumentError, "negative eigenvalues"),
        (lambda: gt.propagate(model, MEAN, np.triu(np.ones((3, 3)))), ArgumentError, "not symmetric"),
        (lambda: gt.propagate(np.sin, 1.0, -0.1), ArgumentError, "a variance is -0.1"),
        (
            lambda: gt.propagate(model, MEAN, {"a": 1.0}),
            StructureError,
            "the covariance does not match the mean",
        ),
        (lambda: gt.propagate(np.sin, np.ones(3), np.ones(2)), ShapeError, r"has the shape \(2,\)"),
        (
            lambda: gt.propagate(np.sin, 1j, 0.1),
            DtypeError,
            "gt.propagate: mean has an array of dtype complex128",
        ),
        (lambda: gt.propagate(np.sin, 1.0, 0.1, order=3), ArgumentError, "order=1 or order=2"),
        (lambda: gt.propagate(np.sin, 1.0, 0.1, samples=0.5), ArgumentError, "samples is 0.5"),
    ],
)
def test_mistakes_of_propagate(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# Standard errors


def test_a_linear_fit_has_the_covariance_of_the_textbook() -> None:
    rng = np.random.default_rng(2)
    design, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    fit = gt.scipy.least_squares(lambda x: design @ x - y, np.zeros(3))
    best, square, *_ = np.linalg.lstsq(design, y)
    expected = square / 27 * np.linalg.inv(design.T @ design)
    for information in ("expected", "observed"):
        found = gt.scipy.uncertainty(fit, information=information)
        np.testing.assert_allclose(found.covariance, expected, rtol=1e-8)
        width = scipy.stats.t.ppf(0.975, 27) * np.sqrt(np.diag(expected))
        np.testing.assert_allclose(found.interval[1], best + width, rtol=1e-7)
        # The likelihood of a linear model is a parabola: the profile has the same ends.
        np.testing.assert_allclose(
            found.profile(1).interval, (best - width)[1] + [0, 2 * width[1]], rtol=1e-6
        )
    absolute = gt.scipy.uncertainty(fit, absolute=True, level=0.9)
    np.testing.assert_allclose(absolute.covariance, np.linalg.inv(design.T @ design), rtol=1e-8)
    half = scipy.stats.norm.ppf(0.95) * absolute.standard_error
    np.testing.assert_allclose(absolute.interval[0], best - half, rtol=1e-7)


def test_curve_fit_and_plain_scipy_agree() -> None:
    pair = gt.scipy.curve_fit(lambda t, height, rate: height * np.exp(-rate * t), T, Y, START)
    plain = scipy.optimize.least_squares(residuals_of_vector, [1.0, 1.0], xtol=1e-12, ftol=1e-12, gtol=1e-12)
    found = [gt.scipy.uncertainty(fit).covariance for fit in (pair, plain, fitted())]
    np.testing.assert_allclose(found[0], found[2], rtol=1e-4)
    np.testing.assert_allclose(found[1], found[2], rtol=1e-4)


def test_observed_information_has_the_curvature_of_the_model() -> None:
    found = gt.scipy.uncertainty(fitted(), information="observed")
    best = np.array([found.x["height"], found.x["rate"]])
    curves = gt.hessian(lambda x: np.sum(residuals_of_vector(x) ** 2) / 2)(best)
    variance = np.sum(residuals_of_vector(best) ** 2) / 7
    np.testing.assert_allclose(found.covariance, variance * np.linalg.inv(curves), rtol=1e-8)


def test_the_profile_of_an_exponential_rate() -> None:
    data = np.array([0.2, 1.1, 0.7, 2.9, 0.4, 1.6])
    n, total = len(data), np.sum(data)
    fit = gt.scipy.minimize(lambda x: x["rate"] * total - n * np.log(x["rate"]), {"rate": 1.0}, tol=1e-12)
    found = gt.scipy.uncertainty(fit)
    assert found.standard_error["rate"] == pytest.approx(n / total / np.sqrt(n), rel=1e-6)

    def excess(rate: float) -> float:
        best = n / total
        deviance = 2 * (rate * total - n * np.log(rate) - (best * total - n * np.log(best)))
        return float(deviance - scipy.stats.chi2.ppf(0.95, 1))

    low, high = found.profile("rate").interval
    assert low == pytest.approx(scipy.optimize.brentq(excess, 0.05, n / total), rel=1e-6)
    assert high == pytest.approx(scipy.optimize.brentq(excess, n / total, 9.0), rel=1e-6)


def test_each_point_of_a_profile_is_a_minimum_over_the_others() -> None:
    profile = gt.scipy.uncertainty(fitted()).profile("rate")
    assert np.all(np.diff(profile.values) > 0)
    for value, x in zip(profile.values, profile.x, strict=True):
        height = np.sum(Y * np.exp(-value * T)) / np.sum(np.exp(-2 * value * T))
        np.testing.assert_allclose(x, [height, value], rtol=1e-6)


def test_a_flat_side_of_a_profile_has_no_end() -> None:
    # Both ends of a logistic curve are horizontal: a steep step fits as well as a vertical one.
    t = np.array([-2.0, -1.0, 1.0, 2.0])
    y = np.array([0.1, -0.1, 1.1, 0.9])
    fit = gt.scipy.least_squares(lambda x: 1 / (1 + np.exp(-np.exp(x[0]) * t)) - y, np.array([0.5]))
    low, high = gt.scipy.uncertainty(fit).profile(0).interval
    assert np.isfinite(low) and high == np.inf


def test_an_unknown_at_its_bound_is_constant() -> None:
    bounds = ({"height": 0.0, "rate": 0.8}, np.inf)
    for fit in (
        gt.scipy.least_squares(residuals, START, bounds=bounds),
        gt.scipy.minimize(lambda x: np.sum(residuals(x) ** 2), START, bounds=bounds),
    ):
        found = gt.scipy.uncertainty(fit)
        assert found.standard_error["rate"] == 0
        assert found.standard_error["height"] > 0
        assert "at its bound" in repr(found)


@pytest.mark.parametrize("method", ["l-bfgs-b", "slsqp", "tnc", "trust-constr", "cobyla"])
def test_methods_that_stop_before_a_bound(method: str) -> None:
    def fitted_within(low: float) -> Any:
        return gt.scipy.minimize(
            lambda x: np.sum(residuals_of_vector(x) ** 2) / (2 * 0.04**2),
            np.ones(2),
            bounds=[(None, None), (low, None)],
            method=method,
            tol=1e-8,
        )

    at, inside = [gt.scipy.uncertainty(fitted_within(low)) for low in (0.8, 0.7165)]
    assert at.standard_error[1] == 0
    slope = np.exp(-0.8 * T)
    assert at.standard_error[0] == pytest.approx(0.04 / np.sqrt(slope @ slope), rel=1e-4)
    assert inside.standard_error[1] > 0.01  # the minimum is at 0.71686


def test_the_interval_of_a_profile_ends_at_a_bound() -> None:
    fit = gt.scipy.least_squares(residuals, START, bounds=({"height": 0.0, "rate": 0.7}, np.inf))
    low, high = gt.scipy.uncertainty(fit).profile("rate").interval
    assert low == 0.7
    assert high == pytest.approx(0.762, abs=1e-3)


def test_pairs_of_bounds_with_open_ends() -> None:
    fits = [
        gt.scipy.minimize(lambda x: np.sum(residuals_of_vector(x) ** 2), np.ones(2), bounds=bounds)
        for bounds in ([(0, None), (None, None)], [(None, 9.0), (0.0, None)], (0.0, np.inf), None)
    ]
    errors = [gt.scipy.uncertainty(fit).standard_error for fit in fits]
    assert np.all(errors[-1] > 0)
    for error in errors:
        np.testing.assert_allclose(error, errors[-1], rtol=1e-4)
    at_bound = gt.scipy.minimize(
        lambda x: np.sum(residuals_of_vector(x) ** 2), np.ones(2), bounds=[(None, None), (0.8, None)]
    )
    assert (gt.scipy.uncertainty(at_bound).standard_error > 0).tolist() == [True, False]


def logistic() -> tuple[Any, Any]:
    dose = np.linspace(-2.0, 2.0, 30)
    dies = (np.sin(40 * dose) < np.tanh(1.5 * dose - 0.3)).astype(float)
    return lambda x: np.sum(np.log(1 + np.exp(x[0] + x[1] * dose)) - dies * (x[0] + x[1] * dose)), None


def gamma_regression() -> tuple[Any, Any]:
    z = np.linspace(-1.0, 1.0, 40)
    y = np.exp(0.3 + 0.5 * z) * (1.1 + np.sin(30 * z))

    def loss(x: Any) -> Any:
        k = np.exp(x[2])
        rate = k / np.exp(x[0] + x[1] * z)
        return -np.sum(k * np.log(rate) + (k - 1) * np.log(y) - rate * y - scipy.special.gammaln(k))

    return loss, None


def decay() -> tuple[Any, Any]:
    return lambda x: np.sum((x[0] * np.exp(-x[1] * T) + x[2] - Y) ** 2) / (2 * 0.04**2), None


def weights() -> tuple[Any, Any]:
    """Two of the four stand at their bounds."""
    a = 1.1 + np.sin(np.outer(np.arange(20), [1.0, 2.0, 3.5, 5.0]))
    y = a @ [1.0, 0.03, 2.0, -0.1] + 0.3 * np.cos(7 * np.arange(20))
    return lambda x: np.sum((a @ x - y) ** 2) / (2 * 0.2**2), [(0, None)] * 4


def correlated() -> tuple[Any, Any]:
    s = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.7])
    v = 3 * s / (2 + s) + 0.003 * np.array([1, -2, 1, 1, -2, 1])
    return lambda x: np.sum((x[0] * s / (x[1] + s) - v) ** 2) / (2 * 0.01**2), None


@pytest.mark.parametrize("model", [logistic, gamma_regression, decay, weights, correlated])
def test_profiles_against_minimisation_anew(model: Callable[[], tuple[Any, Any]]) -> None:
    """At an end of an interval the others are minimised anew, from the estimate and by SciPy's differences."""
    loss, bounds = model()
    count = {"logistic": 2, "correlated": 2, "weights": 4}.get(model.__name__, 3)
    fit = gt.scipy.minimize(loss, np.ones(count), bounds=bounds, tol=1e-12)
    found = gt.scipy.uncertainty(fit)
    threshold = scipy.stats.chi2.ppf(0.95, 1)
    for number in range(count):
        others = np.flatnonzero(np.arange(count) != number)
        for end in found.profile(number).interval:

            def rest(part: Any, number: int = number, end: float = end, others: Any = others) -> Any:
                return loss(np.insert(part, number, end))

            limits = None if bounds is None else [bounds[k] for k in others]
            again = scipy.optimize.minimize(
                rest,
                fit.x[others],
                method="L-BFGS-B",
                bounds=limits,
                options={"ftol": 1e-15, "maxiter": 10_000},
            )
            deviance = 2 * (again.fun - fit.fun)
            if bounds is not None and end == 0.0:
                assert deviance <= threshold
            else:
                assert deviance == pytest.approx(threshold, rel=1e-4)


def test_a_region_has_its_points_at_the_same_distance() -> None:
    found = gt.scipy.uncertainty(fitted())
    steps = found.region("height", "rate", points=7) - [found.x["height"], found.x["rate"]]
    distances = np.einsum("ki,ij,kj->k", steps, np.linalg.inv(found.covariance), steps)
    np.testing.assert_allclose(distances, 2 * scipy.stats.f.ppf(0.95, 2, 7))


def test_predictions_have_errors() -> None:
    found = gt.scipy.uncertainty(fitted())
    half_life = found.propagate(lambda x: np.log(2) / x["rate"])
    expected = np.log(2) / found.x["rate"] ** 2 * found.standard_error["rate"]
    assert half_life.standard_deviation == pytest.approx(expected)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(8)
    covered = 0
    for _ in range(200):
        y = 2 * np.exp(-0.7 * T) + 0.05 * rng.normal(size=len(T))
        fit = gt.scipy.least_squares(lambda x, y: x[0] * np.exp(-x[1] * T) - y, np.ones(2), (y,))
        low, high = gt.scipy.uncertainty(fit, level=0.9).interval
        covered += low[1] <= 0.7 <= high[1]
    assert 165 <= covered <= 195  # 180 +- 3.5 standard deviations


LOSSES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "soft_l1": (lambda u: u / np.sqrt(1 + u**2), lambda u: (1 + u**2) ** -1.5),
    "huber": (lambda u: np.clip(u, -1, 1), lambda u: (np.abs(u) <= 1) * 1.0),
    "cauchy": (lambda u: u / (1 + u**2), lambda u: (1 - u**2) / (1 + u**2) ** 2),
    "arctan": (lambda u: u / (1 + u**4), lambda u: (1 - 3 * u**4) / (1 + u**4) ** 2),
}
"""By SciPy's name: the derivative of half of the loss of u**2 in u, and the derivative of that."""


def robust_fit(loss: Any, start: Any = START, scale: float = 0.05) -> Any:
    return gt.scipy.least_squares(
        residuals, start, loss=loss, f_scale=scale, ftol=1e-15, xtol=1e-15, gtol=1e-15
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_robust_losses_have_the_sandwich(loss: str) -> None:
    slope, curve = LOSSES[loss]
    fit = robust_fit(loss)
    best = np.array([fit.x["height"], fit.x["rate"]])
    slopes, u = gt.jacobian(residuals_of_vector)(best), residuals_of_vector(best) / 0.05
    gradients = 0.05 * slope(u)[:, None] * slopes
    bends = gt.hessian(residuals_of_vector)(best)
    expected = {"expected": slopes.T @ (curve(u)[:, None] * slopes)}
    expected["observed"] = expected["expected"] + np.tensordot(0.05 * slope(u), bends, 1)
    for information, bread in expected.items():
        found = gt.scipy.uncertainty(fit, information=information)
        covariance = np.linalg.inv(bread) @ (gradients.T @ gradients) @ np.linalg.inv(bread) * 9 / 7
        np.testing.assert_allclose(found.covariance, covariance, rtol=1e-7)
        assert found.degrees_of_freedom == 7 and found.information == information


def test_a_function_as_loss_is_the_loss_of_that_name() -> None:
    def cauchy(z: Any) -> Any:
        return np.stack([np.log1p(z), 1 / (1 + z), -1 / (1 + z) ** 2])

    for information in ("expected", "observed"):
        one, other = (
            gt.scipy.uncertainty(robust_fit(loss), information=information) for loss in (cauchy, "cauchy")
        )
        np.testing.assert_allclose(one.covariance, other.covariance, rtol=1e-9)


def test_a_robust_loss_without_outliers_has_the_covariance_for_unequal_variances() -> None:
    fit = robust_fit("soft_l1", scale=1e6)
    slopes = gt.jacobian(residuals_of_vector)(np.array([fit.x["height"], fit.x["rate"]]))
    inverse = np.linalg.inv(slopes.T @ slopes)
    expected = inverse @ slopes.T @ np.diag(fit.fun**2) @ slopes @ inverse * 9 / 7
    np.testing.assert_allclose(gt.scipy.uncertainty(fit).covariance, expected, rtol=1e-6)


def test_standard_errors_of_robust_fits_are_the_spread_of_estimates() -> None:
    rng = np.random.default_rng(3)
    t = np.linspace(-1, 1, 60)
    estimates, errors = [], []
    for _ in range(200):
        noise = 0.1 * rng.normal(size=60) * np.where(rng.random(60) < 0.1, 10.0, 1.0)
        fit = gt.scipy.least_squares(
            lambda x, y: x[0] + x[1] * t - y, np.zeros(2), (1 + t + noise,), loss="huber", f_scale=0.15
        )
        estimates.append(fit.x)
        errors.append(gt.scipy.uncertainty(fit).standard_error)
    spread, stated = np.std(estimates, axis=0), np.sqrt(np.mean(np.square(errors), axis=0))
    np.testing.assert_allclose(stated, spread, rtol=0.15)  # the spread of 200 is known to 5 %


def test_a_robust_fit_with_an_unknown_at_its_bound() -> None:
    bounds = ({"height": 0.0, "rate": 0.8}, np.inf)
    fit = gt.scipy.least_squares(residuals, START, bounds=bounds, loss="soft_l1", f_scale=0.05)
    found = gt.scipy.uncertainty(fit)
    assert found.standard_error["rate"] == 0 and found.standard_error["height"] > 0
    assert found.degrees_of_freedom == 8


def test_a_pickled_result_keeps_what_needs_no_function() -> None:
    fit = pickle.loads(pickle.dumps(fitted()))
    found = gt.scipy.uncertainty(fit)
    np.testing.assert_allclose(found.covariance, gt.scipy.uncertainty(fitted()).covariance)
    with pytest.raises(ArgumentError, match="was pickled"):
        found.profile("rate")
    with pytest.raises(ArgumentError, match="was pickled"):
        gt.scipy.uncertainty(fit, information="observed")


def test_what_the_data_leave_open_is_named() -> None:
    fit = gt.scipy.least_squares(lambda x: x["a"] * x["b"] * np.exp(-T) - Y, {"a": 1.0, "b": 2.0})
    with pytest.raises(SingularJacobianError, match=r"stays the same along (?=.*\['a'\]).*\['b'\]"):
        gt.scipy.uncertainty(fit)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: gt.scipy.uncertainty(scipy.optimize.minimize(lambda x: x @ x, [1.0])), "gt.scipy.minimize"),
        (lambda: gt.scipy.uncertainty(3), "an int"),
        (lambda: gt.scipy.uncertainty(fitted(), level=95), "level=0.95 for 95 %"),
        (lambda: gt.scipy.uncertainty(fitted(), information="fisher"), "unknown information 'fisher'"),
        (lambda: gt.scipy.uncertainty(robust_fit("huber"), absolute=True), "omit absolute"),
        (lambda: gt.scipy.uncertainty(robust_fit("huber")).profile("rate"), "no profile likelihood"),
        (
            lambda: gt.scipy.uncertainty(
                scipy.optimize.least_squares(residuals_of_vector, [1.0, 1.0], loss="cauchy", f_scale=0.02)
            ),
            "the loss of the fit is not known",
        ),
        (lambda: gt.scipy.uncertainty(pickle.loads(pickle.dumps(robust_fit("arctan")))), "was pickled"),
        (
            lambda: gt.scipy.uncertainty(
                gt.scipy.minimize(
                    lambda x: x @ x, np.ones(2), constraints={"type": "eq", "fun": lambda x: x[0] - 1}
                )
            ),
            "constraints",
        ),
        (
            lambda: gt.scipy.uncertainty(
                gt.scipy.minimize(lambda x: x @ x, np.ones(2)), information="expected"
            ),
            "no expected information",
        ),
        (
            lambda: gt.scipy.uncertainty(gt.scipy.least_squares(lambda x: x - 1, np.ones(2))),
            "no degree of freedom",
        ),
        (
            lambda: gt.scipy.uncertainty(gt.scipy.minimize(lambda x: np.cos(x[0]), np.zeros(1))),
            "not a minimum",
        ),
        (lambda: gt.scipy.uncertainty(fitted()).profile("slope"), "no number 'slope'"),
        (lambda: gt.scipy.uncertainty(fitted()).region(0, 2), "no number 2"),
    ],
)
def test_mistakes_of_uncertainty(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()
