"""Functions of samples in `scipy.stats`: values against SciPy, for sizes, ties and options beyond those of the coverage table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats as st

import gradtape as gt

RNG = np.random.default_rng(5)
TIES = RNG.integers(0, 4, (3, 7)).astype(float)


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
def test_ranks_with_ties(method: str) -> None:
    for axis in (0, 1, None):

        def ranks(x: Any, axis: int | None = axis) -> Any:
            return st.rankdata(x, method, axis=axis)

        np.testing.assert_array_equal(gt.jit(ranks)(TIES), ranks(TIES))
    nans = np.where(TIES == 0, np.nan, TIES)
    for policy in ("propagate", "omit"):
        expected = st.rankdata(nans, method, axis=1, nan_policy=policy)
        found = gt.jit(lambda x: st.rankdata(x, method, axis=1, nan_policy=policy))(nans)  # noqa: B023
        np.testing.assert_array_equal(found, expected)
    assert gt.jit(lambda x: st.rankdata(x, method))(np.zeros(0)).shape == (0,)


@pytest.mark.parametrize("size", [3, 4, 5, 11, 12, 30])
def test_the_statistic_of_shapiro_and_wilk_by_the_size(size: int) -> None:
    x = np.exp(RNG.normal(size=size))

    def test(x: Any) -> Any:
        return np.stack(list(st.shapiro(x)))

    np.testing.assert_allclose(gt.jit(test)(x), test(x), rtol=1e-9)
    gt.check_grads(lambda x: test(x)[0], (x,), order=1)


@pytest.mark.parametrize("shift", [0.0, 0.8, 4.0])
def test_the_statistic_of_cramer_and_von_mises(shift: float) -> None:
    def test(x: Any) -> Any:
        result = st.cramervonmises(x, "norm", args=(shift,))
        return np.stack([result.statistic, result.pvalue])

    x = RNG.normal(size=12)
    np.testing.assert_allclose(gt.jit(test)(x), test(x), rtol=1e-8, atol=1e-12)


def test_repeated_medians() -> None:
    x, y = RNG.normal(size=(2, 6))
    for method in ("hierarchical", "separate"):

        def line(x: Any, y: Any, method: str = method) -> Any:
            return np.stack(list(st.siegelslopes(y, x, method=method)))

        np.testing.assert_allclose(gt.jit(line)(x, y), line(x, y), rtol=1e-12)
    x[3] = x[1]
    if hasattr(st._stats_mstats_common, "siegelslopes_pythran"):  # compiled before SciPy 1.18
        with pytest.raises(gt.errors.UnsupportedFunctionError, match="same x"):
            gt.jit(line)(x, y)
    else:
        np.testing.assert_allclose(gt.jit(line)(x, y), line(x, y), rtol=1e-12)


def test_statistics_of_ranks_are_constants() -> None:
    x, y = RNG.normal(size=(2, 8))
    for name in ("kendalltau", "mannwhitneyu", "wilcoxon", "weightedtau", "cramervonmises_2samp", "ranksums"):
        function = getattr(st, name)
        compiled = gt.jit(lambda x, y: (function(x, y).statistic, function(x, y).pvalue))  # noqa: B023
        for scale in (1.0, -1.0):
            expected = function(scale * x, y)
            np.testing.assert_allclose(
                compiled(scale * x, y), (expected.statistic, expected.pvalue), err_msg=name
            )
        np.testing.assert_array_equal(gt.grad(lambda x: function(x, y).statistic * x[0])(x)[1:], 0)  # noqa: B023
    assert gt.jit(lambda x: st.wilcoxon(x, y, method="asymptotic").zstatistic)(x).shape == ()
    table = np.stack([x, y])
    found = gt.jit(lambda t: st.mannwhitneyu(t, t[::-1], axis=1).pvalue)(table)
    np.testing.assert_allclose(found, st.mannwhitneyu(table, table[::-1], axis=1).pvalue)
    assert gt.jit(lambda x: st.somersd(x, y).statistic)(x) == st.somersd(x, y).statistic


def test_the_likelihood_of_a_transformation_with_a_number_at_the_mean() -> None:
    """The logarithm of a deviation that is zero has no finite derivative, and none is needed."""
    slope = gt.grad(lambda x: st.boxcox_llf(0.5, x))(np.array([1.0, 4.0, 9.0]))
    assert np.isfinite(slope).all()


def test_clipping_follows_the_standard() -> None:
    clip = st._stats_py.array_namespace(np.zeros(1)).clip
    x = np.array([-2.0, 0.5, np.nan, 3.0])
    for low, high in ((0.0, 1.0), (None, 1.0), (np.nan, None), (np.array([0, 1, 2, 3.5]), None)):
        np.testing.assert_array_equal(gt.jit(lambda x: clip(x, low, high))(x), clip(x, low, high))  # noqa: B023


def along(function: Any, x: Any) -> Any:
    """Return the value of a function of one array, its derivative along a direction, and differences for it, in jit."""
    direction = np.cos(np.arange(float(x.size))).reshape(x.shape)
    value, slope = gt.value_and_grad(function)(x)
    difference = (function(x + 1e-4 * direction) - function(x - 1e-4 * direction)) / 2e-4
    return value, np.sum(slope * direction), difference


@pytest.mark.parametrize(
    ("function", "shift"),
    [
        (lambda x: st.boxcox(x)[1], 0.0),
        (lambda x: st.boxcox_normmax(x, method="all")[0], 0.0),
        (lambda x: st.yeojohnson(x)[1], 1.0),
        (lambda x: np.sum(np.stack(st.logistic.fit(x))), 0.0),
    ],
    ids=["boxcox", "boxcox by correlation", "yeojohnson", "a solver that starts at a tuple"],
)
def test_fits_in_jitted_functions(function: Any, shift: float) -> None:
    x = np.array([0.2, 0.5, 0.9, 1.7, 1.2, 3.1]) - shift
    value, slope, difference = along(function, x)
    np.testing.assert_allclose(value, function(x), rtol=1e-6)
    np.testing.assert_allclose(slope, difference, rtol=2e-3)


def test_parameters_at_a_bound_and_other_optimisers_are_refused() -> None:
    x = np.array([0.2, 0.5, 0.9, 1.7])
    for given in ({"ymax": 0.3}, {"optimizer": lambda function: None}):
        with pytest.raises(gt.errors.UnsupportedFunctionError, match="boxcox_normmax"):
            gt.jit(lambda x: st.boxcox_normmax(x, **given))(x)  # noqa: B023


def test_transforms_of_yeo_and_johnson_at_their_special_parameters() -> None:
    x = np.array([-1.3, -0.2, 0.0, 0.8, 2.5])
    for power in (0.0, 2.0, 0.4):
        transform = gt.jit(lambda x: st.yeojohnson(x, power))  # noqa: B023
        np.testing.assert_allclose(transform(x), st.yeojohnson(x, power), rtol=1e-12)
    assert gt.grad(lambda x: st.yeojohnson(x, 0.4)[2])(x)[2] == 1.0


def test_nans_are_left_out_along_an_axis_in_jitted_functions() -> None:
    numbers = np.array([[0.3, np.nan, 1.2, -0.4, 0.9], [1.1, 0.2, np.nan, np.nan, -1.3]])
    for function in (st.kurtosis, st.sem, st.iqr):
        found = gt.jit(lambda x: function(x, axis=1, nan_policy="omit"))(numbers)  # noqa: B023
        np.testing.assert_allclose(found, function(numbers, axis=1, nan_policy="omit"), rtol=1e-12)
    slope, intercept, *ends = gt.jit(lambda x: tuple(st.theilslopes(x)[:4]))(numbers[0][[0, 2, 3, 4]])
    np.testing.assert_allclose((slope, intercept, *ends), st.theilslopes(numbers[0][[0, 2, 3, 4]])[:4])


def test_truncated_normal_and_binomial_distributions_of_arrays() -> None:
    levels = np.array([0.2, 0.5, 0.9])
    for function in (
        lambda x: st.truncnorm.ppf(x, -1.2, 2.3),
        lambda x: st.binom(7, x).entropy(),
        lambda x: st.Binomial(n=6, p=x).pmf(2) + st.Binomial(n=6, p=x).cdf(3),
    ):
        np.testing.assert_allclose(gt.jit(function)(levels), function(levels), rtol=1e-9)


@pytest.mark.parametrize("iterative", [False, True])
@pytest.mark.parametrize("method", ["CD", "WD", "MD", "L2-star"])
def test_discrepancies(method: str, iterative: bool) -> None:
    points = np.random.default_rng(1).random((5, 3))
    direction, h = np.cos(np.arange(15.0)).reshape(5, 3), 1e-6

    def discrepancy(points: Any) -> Any:
        return st.qmc.discrepancy(points, method=method, iterative=iterative)

    value, slopes = gt.value_and_grad(discrepancy)(points)
    np.testing.assert_allclose(value, discrepancy(points), rtol=1e-12)
    slope = (discrepancy(points + h * direction) - discrepancy(points - h * direction)) / (2 * h)
    np.testing.assert_allclose(np.sum(slopes * direction), slope, rtol=1e-6)
