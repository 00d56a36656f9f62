"""Methods of the distributions of `scipy.stats`: values against SciPy, derivatives against differences."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats as st
from scipy.stats._distr_params import distcont, distdiscrete

import gradtape as gt
from gradtape.kinds.registry import BORROWED
from gradtape.ops.scipy.stats.quadrature import BREAKS

SHAPES: dict[str, tuple[float, ...]] = {name: shapes for name, shapes in distcont if isinstance(name, str)}
LEVELS = np.array([0.15, 0.45, 0.83])
DENSITIES = ("pdf", "logpdf", "cdf", "logcdf", "sf", "logsf")
QUANTILES = ("ppf", "isf")
CLOSED = "norm expon logistic weibull_min cauchy laplace lognorm gumbel_r uniform pareto genpareto powerlaw johnsonsu"


def arguments(name: str, method: str) -> list[Any]:
    """Return arguments of a method: the point, the shape parameters, loc and scale."""
    distribution = getattr(st, name)
    point = LEVELS if method in QUANTILES else 0.3 + 1.7 * distribution.ppf(LEVELS, *SHAPES[name])
    return [point, *map(np.float64, SHAPES[name]), np.float64(0.3), np.float64(1.7)]


def derivative(function: Callable[..., Any], args: list[Any], place: int) -> tuple[Any, Any]:
    """Return the derivative of the sum in an argument by differences of the sixth order, and an estimate of the error."""
    x = np.asarray(args[place], float)
    h = 1e-3 * np.maximum(np.abs(x), 0.1)

    def slope(k: float) -> Any:
        ends = [function(*args[:place], x + s * k * h, *args[place + 1 :]) for s in (1, -1)]
        return (np.asarray(ends[0]) - np.asarray(ends[1])) / (2 * k * h)

    fine, coarse = (4 * slope(0.5) - slope(1)) / 3, (4 * slope(1) - slope(2)) / 3
    if x.ndim == 0:
        fine, coarse = np.sum(fine), np.sum(coarse)
    return fine, np.abs(fine - coarse)


def check(function: Callable[..., Any], args: list[Any], smooth: list[int]) -> None:
    """Compare the value and the derivatives in some arguments, on a tape."""
    expected = np.asarray(function(*args))
    with gt.GradientTape(persistent=True) as tape:
        given = [tape.watch(arg) if place in smooth else arg for place, arg in enumerate(args)]
        y = function(*given)
    np.testing.assert_allclose(y, expected, rtol=1e-9, atol=1e-13)
    for place in smooth:
        slope, error = derivative(function, args, place)
        found = tape.gradient(y, given[place])
        found = np.zeros_like(args[place]) if found is None else np.asarray(found)
        size = np.maximum(np.abs(slope), np.max(np.abs(expected)))
        assert np.all(np.abs(found - slope) <= 3 * error + 1e-6 * size), (place, found, slope)


@pytest.mark.parametrize("name", CLOSED.split())
def test_methods_with_closed_forms(name: str) -> None:
    for method in (*DENSITIES, *QUANTILES):
        args = arguments(name, method)
        check(getattr(getattr(st, name), method), args, list(range(len(args))))


@pytest.mark.parametrize("name", ["expon", "genpareto", "uniform"])
def test_outside_of_the_support(name: str) -> None:
    x = np.array([-2.0, 0.0, 0.5, 1.0, 1e3, np.inf, -np.inf, np.nan])
    for method in (*DENSITIES, *QUANTILES):
        function = getattr(getattr(st, name), method)
        for scale in (1.0, -1.0):
            expected = function(x, *SHAPES[name], scale=scale)
            with gt.GradientTape() as tape:
                found = function(tape.watch(x), *SHAPES[name], scale=scale)
            np.testing.assert_array_equal(np.isnan(found), np.isnan(expected), err_msg=method)
            np.testing.assert_allclose(found, expected, rtol=1e-14, err_msg=method)


def test_frozen_distributions_and_likelihoods() -> None:
    x = np.random.default_rng(0).gamma(2.0, 1.0, 50)

    def likelihood(a: Any, scale: Any) -> Any:
        return st.gamma(a, scale=scale).logpdf(x).sum()

    value, slopes = gt.value_and_grad(likelihood, argnums=(0, 1))(2.0, 1.5)
    np.testing.assert_allclose(value, st.gamma(2.0, scale=1.5).logpdf(x).sum())
    for place in (0, 1):
        slope, _ = derivative(likelihood, [2.0, 1.5], place)
        np.testing.assert_allclose(slopes[place], slope, rtol=1e-8)


def test_probabilities_without_rules_have_the_derivatives_of_their_integrals() -> None:
    for name, methods in (("skewnorm", ("cdf", "sf", "ppf")), ("foldcauchy", ("isf",))):
        for method in methods:
            args = arguments(name, method)
            check(getattr(getattr(st, name), method), args, list(range(len(args))))


def test_moments() -> None:
    for name in ("gamma", "weibull_min", "lognorm", "exponpow"):
        args = [*map(np.float64, SHAPES[name]), np.float64(0.3), np.float64(1.7)]
        for method in ("mean", "var", "std", "entropy"):
            check(getattr(getattr(st, name), method), args, list(range(len(args))))
    check(lambda a, loc, scale: st.gamma.moment(3, a, loc, scale), [2.0, 0.5, 1.5], [0, 1, 2])
    check(lambda a: np.sum(np.stack(st.gamma.stats(a, moments="mvsk")), axis=0), [np.array([2.0, 3.0])], [0])


DISCRETE: dict[str, tuple[float, ...]] = {
    name: shapes for name, shapes in distdiscrete if isinstance(name, str) and name != "poisson_binom"
}


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_distributions(name: str) -> None:
    """The derivatives are those in shape parameters that are no integers; points and quantiles have none."""
    distribution, shapes = getattr(st, name), DISCRETE[name]
    real = [1 + k for k, shape in enumerate(distribution._shape_info()) if not shape.integrality]
    points = 2 + distribution.ppf(LEVELS, *shapes)
    for method in ("pmf", "logpmf", "cdf", "logcdf", "sf", "ppf"):
        args = [LEVELS if method == "ppf" else points, *shapes, 2]
        args = [np.float64(arg) if place in real else arg for place, arg in enumerate(args)]
        check(getattr(distribution, method), args, [0] if method == "ppf" else real or [])


def test_entropies_and_moments_of_discrete_distributions() -> None:
    check(st.poisson.entropy, [np.float64(3.5)], [0])
    check(st.skellam.entropy, [np.float64(3.5), np.float64(2.0)], [0, 1])
    check(st.nchypergeom_fisher.mean, [140, 80, 60, np.float64(0.5)], [3])
    check(st.zipfian.var, [np.float64(1.25), 10], [0])


@pytest.mark.parametrize(
    "name", ["nct", "ncf", "landau", "kstwobign", "vonmises", "truncnorm", "argus", "genhyperbolic"]
)
def test_distributions_of_compiled_code(name: str) -> None:
    for method in ("pdf", "cdf") if name == "genhyperbolic" else ("pdf", "cdf", "ppf"):
        args = arguments(name, method)
        check(getattr(getattr(st, name), method), args, list(range(len(args))))


GONE = {"scipy.stats._discrete_distns.binom_gen._entropy"}
"""Methods that SciPy 1.18 has no longer."""


def test_rules_stand_on_methods_that_exist() -> None:
    """A rule on an inherited method would hold for all classes that inherit it, so it is not applied."""
    for name in (name for name in BORROWED if name.startswith("scipy.stats.") and ":" not in name):
        if name in GONE and scipy.__version__ >= "1.18":
            continue
        home: Any = None
        found: Any = st
        for part in name.split(".")[2:]:
            home, found = found, getattr(found, part)
        assert not isinstance(home, type) or vars(home)[found.__name__] is found, name


AROUND_ZERO = [
    name
    for name, shapes in SHAPES.items()
    if getattr(st, name).support(*shapes)[0] < 0 < getattr(st, name).support(*shapes)[1]
    # infinite or without a derivative at 0, searched, or slow
    and name not in ("dgamma", "dweibull", "levy_stable", "studentized_range", "dpareto_lognorm")
]


@pytest.mark.parametrize("name", AROUND_ZERO)
def test_probabilities_at_zero_have_the_density_as_their_slope(name: str) -> None:
    """Where formulas change sides, and integrals are divided."""
    distribution, shapes = getattr(st, name), SHAPES[name]
    slope = distribution.pdf(0.0, *shapes)
    for method, sign in (("cdf", 1), ("sf", -1)):
        found = gt.grad(lambda x, method=method: getattr(distribution, method)(x, *shapes))(0.0)
        np.testing.assert_allclose(found, sign * slope, rtol=1e-6, err_msg=method)


def test_what_has_no_derivative_says_so() -> None:
    with pytest.raises(gt.errors.NotDifferentiableError, match=r"kstwo\.pdf has no derivative in its point"):
        gt.grad(lambda x: st.kstwo.pdf(x, 10))(0.3)
    np.testing.assert_allclose(gt.grad(lambda x: st.kstwo.cdf(x, 10))(0.3), st.kstwo.pdf(0.3, 10))


def test_integrals_over_kinks_are_nan_and_not_nearly_right(monkeypatch: pytest.MonkeyPatch) -> None:
    np.testing.assert_allclose(gt.jit(st.crystalball.entropy)(2.0, 3.0), st.crystalball.entropy(2.0, 3.0))
    monkeypatch.delitem(BREAKS, "crystalball")
    assert np.isnan(gt.jit(lambda beta: st.crystalball.entropy(beta, 3.0))(2.0))
    np.testing.assert_allclose(gt.jit(st.kstwo.std)(10.0), st.kstwo.std(10.0), rtol=1e-12)
    np.testing.assert_allclose(gt.jit(st.rice.entropy)(0.8), st.rice.entropy(0.8), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("cauchy", ()),
        ("invgauss", (1.0,)),
        ("nbinom", (4.0, 0.5)),
        ("ncf", (2.0, 3.0, 1.0)),
        ("nct", (2.0, 1.0)),
        ("ncx2", (2.0, 1.0)),
        ("skewnorm", (2.0,)),
        ("zipf", (3.0,)),
    ],
)
@pytest.mark.parametrize("method", ["ppf", "isf"])
def test_quantiles_at_zero_and_one_are_the_limits(name: str, shapes: tuple[float, ...], method: str) -> None:
    """Boost's functions raise errors there, and searches do not end; SciPy's methods do not ask for them."""
    function = getattr(getattr(st, name), method)
    q = np.array([0.0, 0.3, 1.0, np.nan, -1.0])
    expected = function(q, *shapes)
    np.testing.assert_allclose(gt.jit(function)(q, *shapes), expected, rtol=1e-9)
    with gt.GradientTape() as tape:
        found = function(tape.watch(q), *shapes)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    ufunc = getattr(scipy.special._ufuncs, f"_{name}_{method}", None)
    if ufunc is not None:
        parameters = (
            (0.0, 1.0, *shapes) if name in ("cauchy", "skewnorm") else (*shapes, 1.0)[: ufunc.nin - 1]
        )
        slope = gt.grad(lambda q: np.sum(ufunc(q, *parameters)[:3]))(q)
        assert slope[0] == slope[2] == 0.0 and np.isfinite(slope[1])


@pytest.mark.parametrize("name", ["gamma", "beta", "t", "nct", "skewnorm"])
def test_compiled_functions_agree_with_tapes(name: str) -> None:
    for method in ("logpdf", "cdf", "ppf"):
        args = arguments(name, method)
        function = getattr(getattr(st, name), method)
        np.testing.assert_allclose(gt.jit(function)(*args), function(*args), rtol=1e-9)


# Shape parameters at which SciPy takes the limit of a distribution's formulas: the derivatives are those of the limit.
LIMITS = [
    ("genextreme", (0.0,), 0),
    ("genpareto", (0.0,), 0),
    ("kappa4", (0.0, 0.3), 0),
    ("kappa4", (0.5, 0.0), 1),
    ("kappa4", (0.0, 0.0), 0),
    ("kappa4", (0.0, 0.0), 1),
    ("pearson3", (0.0,), 0),
]
AT_LIMITS = ("logpdf", "logcdf", "sf", "ppf", "isf")


def difference_around(function, at, step=0.02):
    """Return a difference of the sixth order, which does not evaluate the function at the point itself."""
    ends = [
        (weight, function(at + k * step), function(at - k * step)) for k, weight in ((1, 45), (2, -9), (3, 1))
    ]
    return sum(weight * (above - below) for weight, above, below in ends) / (60 * step)


@pytest.mark.parametrize(("name", "shapes", "place"), LIMITS)
def test_derivatives_in_shape_parameters_at_the_limit(name, shapes, place):
    distribution = getattr(st, name)
    for method in AT_LIMITS:
        points = np.array([0.35, 0.6]) if method in ("ppf", "isf") else np.array([0.4, 0.9])

        def function(shape, method=method, points=points):
            given = (*shapes[:place], shape, *shapes[place + 1 :])
            return np.asarray(getattr(distribution, method)(points, *given))

        if name == "kappa4" and method in ("ppf", "isf") and place == 0 and shapes[1] == 0.0:
            continue  # SciPy returns NaN for a negative h where k is 0
        with gt.GradientTape() as tape:
            shape = tape.watch(np.full(2, shapes[place]))
            y = getattr(distribution, method)(points, *shapes[:place], shape, *shapes[place + 1 :])
        np.testing.assert_allclose(y, function(shapes[place]), rtol=1e-12)
        np.testing.assert_allclose(
            tape.gradient(y, shape), difference_around(function, shapes[place]), rtol=1e-6, atol=1e-7
        )


def test_second_derivatives_of_compiled_functions():
    slope = gt.grad(
        lambda c: st.kappa4.logpdf(0.7, 0.2, c) + st.genextreme.logpdf(0.5, c) + st.pearson3.logpdf(0.9, c)
    )
    np.testing.assert_allclose(gt.grad(slope)(0.0), difference_around(slope, 0.0), rtol=1e-5)


@pytest.mark.parametrize("shapes", [(), (1.0,), (0.3,)], ids=str)
def test_second_derivatives_of_logistic_densities_hold_at_the_location(shapes):
    """SciPy writes them by the absolute value of the point."""
    density = st.genlogistic if shapes else st.logistic
    (c,) = shapes or (1.0,)
    points = np.array([-800.0, -1.0, 0.0, 1e-9, 800.0, np.inf, -np.inf])
    found = gt.jit(lambda x: density.logpdf(x, *shapes))(points)
    np.testing.assert_allclose(found, density.logpdf(points, *shapes), rtol=1e-15)
    bend = gt.grad(gt.grad(lambda x: density.logpdf(x, *shapes, loc=0.5)))(0.5)
    np.testing.assert_allclose(bend, -(c + 1) / 4, rtol=1e-14)


def test_the_ends_of_supports():
    np.testing.assert_array_equal(gt.jit(st.genpareto.logpdf)(np.ones(1), -1.0), [0.0])
    np.testing.assert_array_equal(gt.jit(st.genextreme.logpdf)(np.array([1.0, 2.0]), 1.0), [0.0, -np.inf])
    np.testing.assert_array_equal(gt.jit(st.genextreme.logpdf)(np.ones(1) * 2, 0.5), [-np.inf])
    np.testing.assert_array_equal(
        gt.jit(st.kappa4.pdf)(np.zeros(1), 1.0, 1.0), st.kappa4.pdf(np.zeros(1), 1.0, 1.0)
    )


def test_von_mises_without_concentration():
    x = np.array([0.3, -1.2])
    with gt.GradientTape(persistent=True) as tape:
        kappa = tape.watch(np.float64(0.0))
        density, below, entropy = (
            st.vonmises.logpdf(x, kappa),
            st.vonmises.cdf(x, kappa),
            st.vonmises.entropy(kappa),
        )
    np.testing.assert_allclose(tape.gradient(density, kappa), np.sum(np.cos(x)))
    np.testing.assert_allclose(tape.gradient(below, kappa), np.sum(np.sin(x)) / (2 * np.pi), rtol=1e-9)
    assert tape.gradient(entropy, kappa) == 0.0


WRITTEN_OUT = """cauchy skewcauchy laplace loglaplace pareto levy levy_l moyal invweibull johnsonsu johnsonsb rice bradford
kappa3 lognorm"""


@pytest.mark.parametrize("name", WRITTEN_OUT.split())
def test_logarithms_of_densities_that_are_written_out(name: str) -> None:
    """They are SciPy's, also at the ends of the support, but do not underflow."""
    distribution, shapes = getattr(st, name), SHAPES[name]
    ends = distribution.support(*shapes)
    x = np.array([*ends, *distribution.ppf(LEVELS, *shapes), -3.0, -1.0, 0.0, 1.0, 2.0, np.inf, np.nan])
    with np.errstate(all="ignore"):
        expected = distribution.logpdf(x, *shapes)
    found = gt.jit(lambda x: distribution.logpdf(x, *shapes))(x)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    args = arguments(name, "logpdf")
    check(distribution.logpdf, args, list(range(len(args))))


def test_logarithms_of_densities_do_not_underflow() -> None:
    x = np.array([-1e6, 1e200])
    np.testing.assert_allclose(gt.jit(lambda x: st.laplace.logpdf(x))(x), -np.abs(x) - np.log(2), rtol=1e-15)
    np.testing.assert_allclose(gt.jit(lambda x: st.cauchy.logpdf(x))(x), st.cauchy.logpdf(x), rtol=1e-15)


def test_quantiles_of_compiled_code_have_a_derivative_in_the_level() -> None:
    for name in ("ksone", "kstwo"):
        check(lambda q, name=name: getattr(st, name).ppf(q, 10), [LEVELS], [0])
        check(lambda q, name=name: getattr(st, name).isf(q, 10), [LEVELS], [0])


def test_quantiles_at_the_ends_of_the_support_stay_there() -> None:
    special: Any = pytest.importorskip("scipy.special")
    assert gt.grad(special.gammaincinv)(1.1, 0.0) == 0
    assert gt.grad(special.gammainccinv)(1.1, 1.0) == 0
    assert gt.grad(special.betaincinv)(2.0, 3.0, 1.0) == 0
    assert gt.grad(lambda a: st.dgamma.median(a, 0.3, 1.7))(1.1) == 0


@pytest.mark.parametrize(("alpha", "beta"), [(1.8, -0.5), (1.0, 0.4), (0.8, 0.0)])
def test_stable_distributions(alpha: float, beta: float) -> None:
    x, loc, scale = np.array([-0.7, 0.4, 1.9]), np.float64(0.3), np.float64(1.7)
    smooth = [0, 3, 4] if alpha == 1 else [0, 1, 2, 3, 4]
    for method in (st.levy_stable.pdf, st.levy_stable.cdf):
        check(method, [x, np.float64(alpha), np.float64(beta), loc, scale], smooth)


def test_integrals_over_narrow_peaks_and_supports_with_an_end() -> None:
    for name in ("mielke", "rel_breitwigner"):
        check(getattr(st, name).entropy, [*map(np.float64, SHAPES[name])], list(range(len(SHAPES[name]))))
    check(st.pearson3.sf, [np.array([-1.2, 0.3]), np.float64(-2.0)], [0, 1])


def test_probabilities_of_boxes_have_second_derivatives() -> None:
    """A bound is infinite, where second derivatives of the normal distribution function are no numbers."""

    def one(x: Any, v: Any) -> Any:
        return st.multivariate_normal.cdf(x, 0.5, v)

    def two(x: Any, v: Any) -> Any:
        return st.multivariate_normal.cdf(np.stack([x, 0.3 * x]), [0.5, 0.1], np.eye(2) * v + 0.4)

    for function in (one, two):
        x, v, h = 1.0, 2.0, 1e-4
        for place in (0, 1):
            first = gt.grad(function, argnums=place)
            expected = (first(x, v + h) - first(x, v - h)) / (2 * h)
            np.testing.assert_allclose(gt.grad(first, argnums=1)(x, v), expected, rtol=1e-6)


def test_functions_of_samples_keep_single_precision() -> None:
    x: Any = np.array([0.3, 1.2, 0.7, 2.1, 1.6], np.float32)
    y: Any = np.array([1.1, 0.4, 0.2, 1.9, 0.8], np.float32)
    for function in (st.tmean, st.tstd, st.tsem):
        found = gt.jit(lambda x, function=function: function(x))(x)
        assert np.asarray(found).dtype == np.float32
        np.testing.assert_allclose(found, function(x), rtol=1e-6)
    result = gt.jit(lambda x, y: st.mannwhitneyu(x, y).statistic)(x, y)
    assert np.asarray(result).dtype == np.float32
    assert result == st.mannwhitneyu(x, y).statistic


@pytest.mark.parametrize("c", [0.0, 0.02, -0.029, 0.031, 0.3, -0.2])
def test_moments_of_extreme_values_at_shapes_around_zero(c):
    """SciPy takes the limit at 0, whose derivative was 0."""

    def moments(c):
        return np.stack(st.genextreme.stats(c, moments="mvsk"))

    np.testing.assert_allclose(gt.jit(moments)(c), moments(c), rtol=1e-6)
    h = 1e-2
    near = (8 * (moments(c + h) - moments(c - h)) - (moments(c + 2 * h) - moments(c - 2 * h))) / (12 * h)
    np.testing.assert_allclose(gt.jacobian(moments)(c)[:3], near[:3], rtol=1e-3)


def test_derivatives_of_integrals_that_are_not_known_are_not_zero(monkeypatch):
    monkeypatch.delitem(BREAKS, "crystalball")
    entropy = gt.value_and_grad(lambda beta: st.crystalball.entropy(beta, 3.0))
    assert np.isnan(
        entropy(2.0)
    ).all()  # the density has a kink, at which the sum over nodes converges slowly


MADE = {
    "ncx2": ({"df": 2.4, "nc": 1.2}, "ccdf iccdf entropy"),
    "ncf": ({"dfn": 3.4, "dfd": 9.7, "nc": 0.7}, "pdf ccdf kurtosis"),
    "nct": ({"df": 6.4, "nc": 0.7}, "pdf ccdf kurtosis"),
    "skewnorm": ({"a": 1.4}, "cdf icdf"),
    "invgauss": ({"mu": 1.4}, "icdf iccdf"),
    "landau": ({}, "iccdf"),
    "cauchy": ({}, "iccdf"),
    "kstwobign": ({}, "cdf"),
    "nbinom": ({"n": 4.0, "p": 0.4}, "pmf cdf kurtosis"),
}


@pytest.mark.parametrize(
    ("name", "method"), [(name, m) for name, (_, all_) in MADE.items() for m in all_.split()]
)
def test_methods_of_made_distributions_have_derivatives_in_parameters(name: str, method: str) -> None:
    parameters = MADE[name][0]
    made = st.make_distribution(getattr(st, name))
    point = {"pmf": [2, 5]}.get(method, [0.8, 1.7] if name != "nbinom" else [2, 5])
    points = [np.array([0.3, 0.6] if method.endswith("cdf") and method[0] == "i" else point)]
    points = points if method[-1] == "f" else []

    def total(*args: Any) -> Any:
        given = dict(zip(parameters, args[len(points) :], strict=True))
        return np.sum(getattr(made(**given), method)(*args[: len(points)]))

    args = [*points, *map(np.float64, parameters.values())]
    smooth = [k for k, arg in enumerate(args) if arg.dtype.kind == "f"]
    value, slopes = gt.value_and_grad(total, argnums=tuple(smooth))(*args)
    np.testing.assert_allclose(value, total(*args), rtol=1e-8)
    for place, found in zip(smooth, slopes, strict=True):
        direction = np.ones_like(args[place])

        def moved(h: float, place: int = place, direction: Any = direction) -> Any:
            return total(*args[:place], args[place] + h * direction, *args[place + 1 :])

        step = 1e-3
        slope = (8 * (moved(step) - moved(-step)) - (moved(2 * step) - moved(-2 * step))) / (12 * step)
        np.testing.assert_allclose(np.sum(found), slope, rtol=3e-6, atol=1e-7)


def _mixture(q: Any, m: Any, w: Any) -> Any:
    return st.Mixture([st.Normal(mu=m, sigma=1.2), st.Normal()], weights=[w, 1 - w]).icdf(q)


MADE_GAMMA = st.make_distribution(st.gamma)


def _two(m: Any, w: Any) -> Any:
    return st.Mixture([st.Normal(mu=m, sigma=1.2), st.Normal()], weights=[w, 1 - w])


SEARCHED = {
    "mixture": (_mixture, (0.3, 0.4, 0.3)),
    "mixture at a level that is not traced": (lambda m, w: _mixture(0.3, m, w), (0.4, 0.3)),
    "logarithm of mixture": (lambda q, m, w: _two(m, w).ilogccdf(q), (-0.8, 0.4, 0.3)),
    "absolute value": (lambda q: st.abs(st.Normal(mu=0.4, sigma=1.7)).icdf(q), (0.3,)),
    "gamma": (lambda q, a: MADE_GAMMA(a=a).ilogccdf(q), (-0.8, 2.3)),
    "uniform": (
        lambda q, a, b: np.sum(st.Uniform(a=a, b=b).ilogcdf(q * np.array([1.0, 0.3]))),
        (-0.8, 0.4, 1.7),
    ),
    "entropy of mixture": (lambda m, w: _two(m, w).entropy(), (0.4, 0.3)),
    "logarithm of an entropy": (lambda m, w: np.real(_two(m, w).logentropy()), (0.4, 0.3)),
    "mode of mixture": (lambda m, w: _two(m, w).mode(), (0.4, 0.3)),
    "mode": (lambda a: np.sum(MADE_GAMMA(a=a * np.array([1.0, 2.0])).mode()), (2.4,)),
    "mode at an end": (lambda a: MADE_GAMMA(a=a).mode(), (1.0,)),
}


@pytest.mark.parametrize("way", ["jit", "tape"])
@pytest.mark.parametrize("name", SEARCHED)
def test_quantiles_and_modes_that_are_searched_have_derivatives(name: str, way: str) -> None:
    function, numbers = SEARCHED[name]
    args = [np.float64(number) for number in numbers]
    if way == "jit":
        value, slopes = gt.value_and_grad(function, argnums=tuple(range(len(args))))(*args)
    else:
        with gt.GradientTape() as tape:
            given = [tape.watch(arg) for arg in args]
            value = function(*given)
        slopes = tape.gradient(value, given)
    np.testing.assert_allclose(value, function(*args), rtol=1e-7, atol=1e-12)
    for place, found in enumerate(slopes):
        slope, error = derivative(function, args, place)
        if name == "mode at an end":
            slope, error = 0.0, 0.0
        np.testing.assert_allclose(0.0 if found is None else found, slope, atol=3 * error + 2e-5)


def test_methods_of_the_new_infrastructure_make_no_branches_on_numbers() -> None:
    """Arguments outside the domain are replaced without asking whether there are any, so that one trace serves all."""
    x = np.array([-np.inf, -1.0, 0.5, np.inf, np.nan])
    made = MADE_GAMMA
    for method in ("pdf", "logpdf", "cdf", "logccdf"):

        def compute(x: Any, a: Any, method: str = method) -> Any:
            return getattr(made(a=a), method)(x)

        compiled = gt.jit(compute)
        for points in (x, np.array([0.5, 1.0, 2.0, 3.0, 4.0])):
            np.testing.assert_allclose(compiled(points, 0.3), compute(points, 0.3), rtol=1e-12)
        slope = gt.grad(lambda a, compute=compute: compute(x, a)[2])(0.3)
        np.testing.assert_allclose(slope, gt.grad(lambda a, compute=compute: compute(x[2], a))(0.3))
        assert "guard" not in gt.inspect.graph(compiled, x, 0.3)
    level = np.array([0.0, 0.2, 1.0, -0.1, 1.2, np.nan])
    for method in ("icdf", "iccdf"):
        function = getattr(st.Uniform(a=0.3, b=1.0), method)
        np.testing.assert_allclose(gt.jit(lambda q, function=function: function(q))(level), function(level))
    k = np.array([-1.0, 0.0, 1.0, 2.5, 4.0, 50.0, np.inf, np.nan])
    for method in ("pmf", "logpmf", "cdf", "ccdf", "logcdf"):
        function = getattr(st.Binomial(n=4, p=0.3), method)
        np.testing.assert_allclose(
            gt.jit(lambda k, function=function: function(k))(k), function(k), rtol=1e-10
        )


def test_entropies_of_discrete_distributions_have_second_derivatives() -> None:
    """Far from the centre masses underflow."""
    for entropy, at in ((st.poisson.entropy, 2.7), (st.logser.entropy, 0.3)):
        slope = gt.grad(entropy)
        np.testing.assert_allclose(gt.grad(slope)(at), difference_around(slope, at, 1e-3), rtol=1e-6)


def test_moments_of_a_kolmogorov_statistic_are_constants_of_a_whole_number() -> None:
    value, slopes = gt.value_and_grad(lambda loc, scale: st.ksone.mean(6, loc, scale), argnums=(0, 1))(
        0.3, 1.7
    )
    mean = st.ksone.mean(6)
    np.testing.assert_allclose([value, *slopes], [0.3 + 1.7 * mean, 1.0, mean], rtol=1e-10)
    entropy, slope = gt.value_and_grad(lambda scale: st.ksone.entropy(6, 0.0, scale))(1.7)
    np.testing.assert_allclose([entropy, slope], [st.ksone.entropy(6, 0.0, 1.7), 1 / 1.7], rtol=1e-10)


def test_errors_that_functions_of_scipy_set_are_raised() -> None:
    """Where a quantile overflows, Boost sets an error of Python's, also in the middle of a compiled loop."""
    q = np.array([0.2, 1e-300, 0.3])
    with pytest.raises(OverflowError, match="too large to represent"):
        st.ncf.isf(q, 2, 3, 1)
    for function in (
        gt.jit(lambda q: st.ncf.isf(q, 2, 3, 1)),
        gt.grad(lambda q: st.ncf.isf(q, 2, 3, 1).sum()),
    ):
        with pytest.raises(OverflowError, match="too large to represent"):
            function(q)
        assert np.isfinite(function(np.array([0.2, 0.4, 0.3]))).all()


def test_loops_that_call_scalar_functions_are_not_forced_to_be_vectors() -> None:
    """LLVM would print a remark for each."""
    text = gt.inspect.llvm(gt.jit(lambda x: st.ncf.pdf(x, 2.0, 3.0, 1.0)), np.linspace(0.1, 2.0, 12))
    assert "vectorize.width" not in text


def test_masks_have_an_element_for_each_lane(capfd: pytest.CaptureFixture[str]) -> None:
    """LLVM does not vectorise loops over lanes with one byte for all of them, and prints a remark."""
    made = st.make_distribution(st.ncf)

    def total(x: Any, a: Any, b: Any, nc: Any) -> Any:
        return np.sum(made(dfn=a, dfd=b, nc=nc).pdf(x))

    slope = gt.grad(total, argnums=(0, 1, 2, 3))
    given = np.array([0.4, 0.9, 1.7, 0.6, 1.3]), 2.3, 5.1, 0.4
    with gt.config.override(disk_cache=False):
        compiled = slope(*given)
    assert re.search("_lanes_.*np.bool_", gt.inspect.loops(slope, *given)) and not capfd.readouterr().err
    with gt.config.override(jit=False):
        expected = gt.grad(total, argnums=(0, 1, 2, 3))(*given)
    for found, wanted in zip(compiled, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


ENDS = np.array([-np.inf, -2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 1e6, 1e300, np.inf, np.nan])


@pytest.mark.parametrize(
    ("name", "methods"),
    [
        ("alpha", "pdf logpdf"),
        ("invgauss", "pdf logpdf"),
        ("johnsonsb", "pdf logpdf"),
        ("norminvgauss", "pdf logpdf"),
        ("skewnorm", "cdf sf"),
    ],
)
def test_ends_of_supports_and_far_tails(name: str, methods: str) -> None:
    """The support of some of SciPy's densities is open: they are zero at its ends."""
    distribution, shapes = getattr(st, name), SHAPES[name]
    for method in methods.split():
        function = getattr(distribution, method)
        with np.errstate(all="ignore"):
            expected = function(ENDS, *shapes)
        found = gt.jit(lambda x, function=function: function(x, *shapes))(ENDS)
        np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=method)


def test_the_tail_of_landau() -> None:
    for method in ("pdf", "cdf", "sf"):
        check(getattr(st.landau, method), [np.array([-2.0, 0.3, 5.0, 640.0, 1e5])], [0])
    check(st.landau.ppf, [np.array([0.01, 0.9, 0.98])], [0])


EXPECTATIONS = {
    "normal": lambda m, s: st.norm.expect(lambda x: x * x, loc=m, scale=s),
    "half line": lambda c, s: st.expon(scale=s).expect(lambda x: np.exp(-c * x)),
    "conditional": lambda a, b: st.beta.expect(np.sin, args=(a, b), ub=0.7, conditional=True),
    "moving bounds": lambda m, s: st.uniform.expect(np.sin, loc=m, scale=s),
}


@pytest.mark.parametrize("name", EXPECTATIONS)
def test_expectations(name: str) -> None:
    """Infinite bounds are products of infinity with the scale, of which the derivative was NaN."""
    function, args = EXPECTATIONS[name], [np.float64(0.3), np.float64(1.2)]
    value, slopes = gt.value_and_grad(function, argnums=(0, 1))(*args)
    np.testing.assert_allclose(value, function(*args), rtol=1e-9)
    for place, found in enumerate(slopes):
        slope, error = derivative(function, args, place)
        np.testing.assert_allclose(found, slope, rtol=1e-7, atol=3 * error + 1e-9)
