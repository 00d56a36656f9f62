"""The functions of `scipy.stats`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.stats as stats

from tests.coverage.cases import Case, Namespace, because, call, public_functions

U = np.array([0.31, 1.24, 0.72, 0.95, 2.1, 1.63, 0.48, 1.07])
V = np.array([1.13, 0.45, 0.27, 0.66, 1.9, 0.84, 1.42, 0.58])
W = np.array([0.9, 1.7, 1.32, 0.41, 2.4, 1.01, 0.77, 1.51])
EXPECTED = U * np.sum(V) / np.sum(U)
LONG = np.linspace(-1.3, 2.1, 24) + 0.4 * np.cos(3.0 * np.arange(24))


def first(function: Callable[..., Any], *arrays: Any) -> list[Case]:
    """Return the case of a function without second derivatives."""
    return call(function, *arrays, second=False)


def significance(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a test's statistic and p-value as a function of its samples."""

    def both(*samples: Any) -> Any:
        result = function(*samples)
        return result.statistic, result.pvalue

    return both


def tested(function: Callable[..., Any], *samples: Any) -> list[Case]:
    """Return the case of a statistical test."""
    return first(significance(function), *samples)


def fitted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the slope and intercept of a regression."""

    def line(x: Any, y: Any) -> Any:
        result = function(x, y)
        return result.slope, result.intercept

    return line


MEASURED: dict[str, list[Case]] = {
    **{
        name: call(getattr(stats, name), U)
        for name in [
            "zscore",
            "gzscore",
            "skew",
            "kurtosis",
            "gmean",
            "hmean",
            "tmean",
            "tvar",
            "tstd",
            "tsem",
            "iqr",
            "sem",
            "variation",
            "gstd",
            "kstatvar",
            "circmean",
            "circvar",
            "circstd",
            "median_abs_deviation",
            "differential_entropy",
            "entropy",
            "obrientransform",
            "lmoment",
        ]
    },
    "moment": call(lambda a: stats.moment(a, 3), U),
    "kstat": call(lambda a: stats.kstat(a, 3), U),
    "trim_mean": call(lambda a: stats.trim_mean(a, 0.2), U),
    # sorted: the order of what they return is that of np.partition, which is not specified
    "trim1": call(lambda a: np.sort(stats.trim1(a, 0.2)), U),
    "trimboth": call(lambda a: np.sort(stats.trimboth(a, 0.2)), U),
    "tmin": call(lambda a: stats.tmin(a, 0.4), U),
    "tmax": call(lambda a: stats.tmax(a, 2.0), U),
    "pmean": call(lambda a: stats.pmean(a, 1.5), U),
    "zmap": call(stats.zmap, U, V),
    "describe": first(lambda a: list(stats.describe(a)[1:]), U),
    "quantile": call(lambda a: stats.quantile(a, np.array([0.2, 0.65])), U),
    "scoreatpercentile": call(lambda a: stats.scoreatpercentile(a, 30), U),
    "expectile": first(lambda a: stats.expectile(a, 0.3), U),
    "sigmaclip": call(lambda a: stats.sigmaclip(a)[0], U),
    "boxcox": first(lambda a: stats.boxcox(a, 0.4), U),
    "boxcox_llf": first(lambda lam, a: stats.boxcox_llf(lam, a), 0.4, U),
    "yeojohnson": first(lambda a: stats.yeojohnson(a, 0.4), LONG),
    "yeojohnson_llf": first(lambda lam, a: stats.yeojohnson_llf(lam, a), 0.4, LONG),
    # the solvers of SciPy stop before differences of what they return are as exact as derivatives
    "boxcox_normmax": call(stats.boxcox_normmax, U, second=False, rtol=2e-3, searched=1e-7),
    "yeojohnson_normmax": call(stats.yeojohnson_normmax, LONG, second=False, rtol=2e-3, searched=1e-7),
    "directional_stats": first(lambda a: stats.directional_stats(a).mean_direction, np.stack([U, V], 1)),
    "wasserstein_distance": call(stats.wasserstein_distance, U, V),
    "energy_distance": call(stats.energy_distance, U, V),
    "wasserstein_distance_nd": first(
        stats.wasserstein_distance_nd, np.stack([U, V], 1)[:3], np.stack([V, W], 1)[:3]
    ),
    "linregress": first(lambda x, y: list(stats.linregress(x, y)), U, V),
    "theilslopes": first(lambda x, y: stats.theilslopes(y, x)[:2], U, V),
    "siegelslopes": first(lambda x, y: stats.siegelslopes(y, x)[:2], U, V),
    **{
        name: tested(getattr(stats, name), U, V)
        for name in ("pearsonr", "pointbiserialr", "ttest_ind", "ttest_rel")
    },
    "ttest_1samp": tested(lambda a: stats.ttest_1samp(a, 0.8), U),
    "ttest_ind_from_stats": first(
        lambda m, s, n, t: list(stats.ttest_ind_from_stats(m, s, 8, n, t, 9)), 1.1, 0.6, 0.8, 0.7
    ),
    **{
        name: tested(getattr(stats, name), U, V, W)
        for name in ("f_oneway", "bartlett", "levene", "alexandergovern")
    },
    "chisquare": tested(lambda o, e: stats.chisquare(o, e, sum_check=False), U, EXPECTED),
    "power_divergence": tested(
        lambda o, e: stats.power_divergence(o, e * (np.sum(o) / np.sum(e)), lambda_="cressie-read"),
        U,
        EXPECTED,
    ),
    **{
        name: tested(getattr(stats, name), LONG)
        for name in ("jarque_bera", "skewtest", "kurtosistest", "normaltest")
    },
    "shapiro": tested(stats.shapiro, U),
    "anderson": first(lambda a: stats.anderson(a).statistic, U),
    "cramervonmises": tested(lambda a: stats.cramervonmises(a, "norm"), LONG),
    "kstest": tested(lambda a: stats.kstest(a, "norm"), LONG),
    "ks_1samp": tested(lambda a: stats.ks_1samp(a, stats.norm.cdf), LONG),
    "combine_pvalues": tested(stats.combine_pvalues, np.array([0.1, 0.35, 0.62])),
    "false_discovery_control": first(stats.false_discovery_control, np.array([0.1, 0.35, 0.62])),
    "binned_statistic": first(lambda x, v: stats.binned_statistic(x, v, bins=3, range=(0, 2.5))[0], U, V),
    "binned_statistic_2d": first(
        lambda x, v: stats.binned_statistic_2d(x, W, v, bins=2, range=((0, 2.5), (0, 2.5)))[0], U, V
    ),
    "binned_statistic_dd": first(
        lambda x, v: stats.binned_statistic_dd([x], v, bins=2, range=[(0, 2.5)])[0], U, V
    ),
    "probplot": first(lambda a: stats.probplot(a)[1], U),
    "ppcc_max": call(stats.ppcc_max, LONG, second=False, rtol=2e-3, searched=1e-7),
    "epps_singleton_2samp": tested(stats.epps_singleton_2samp, U, V),
    "bayes_mvs": first(lambda a: [list(r) for r in stats.bayes_mvs(a)], U),
    "mvsdist": first(lambda a: [r.mean() for r in stats.mvsdist(a)], U),
    "tukey_hsd": first(lambda a, b: stats.tukey_hsd(a, b).statistic, U, V),
    "dunnett": first(lambda a, b: stats.dunnett(a, control=b).statistic, U, V),
    "multiscale_graphcorr": first(lambda a, b: stats.multiscale_graphcorr(a, b, reps=2).statistic, U, V),
}


def symmetric(matrix: Any) -> Any:
    """Return a symmetric matrix: a density of matrices has derivatives in those only."""
    return (matrix + np.swapaxes(matrix, -1, -2)) / 2


def unit(x: Any) -> Any:
    """Return a vector of unit length."""
    return x / np.sqrt(np.sum(x * x))


SPREAD = np.array([[2.4, 0.5, -0.3], [0.5, 1.9, 0.4], [-0.3, 0.4, 1.6]])
MEAN = np.array([0.3, -0.5, 1.1])
POINTS = np.array([[0.2, 0.4, -1.0], [1.3, 0.1, 0.6]])
SHARES = np.array([0.2, 0.5, 0.3])
COUNTS = [3, 4, 1]


def both(distribution: Any, *methods: str) -> Callable[..., Any]:
    """Return several methods of a distribution as one function of their arguments."""
    return lambda *args: [getattr(distribution, method)(*args) for method in methods]


MULTIVARIATE: dict[str, list[Case]] = {
    "multivariate_normal": first(
        lambda x, m, s: [
            *both(stats.multivariate_normal, "pdf", "logpdf")(x, m, symmetric(s)),
            stats.multivariate_normal(m, symmetric(s)).entropy(),
            stats.multivariate_normal.cdf(x[:, :2], m[:2], symmetric(s)[:2, :2]),
        ],
        POINTS,
        MEAN,
        SPREAD,
    ),
    "multivariate_t": first(
        lambda x, m, s, df: [
            *both(stats.multivariate_t, "pdf", "logpdf")(x, m, symmetric(s), df),
            stats.multivariate_t.entropy(m, symmetric(s), df),
        ],
        POINTS,
        MEAN,
        SPREAD,
        4.3,
    ),
    "dirichlet": first(
        lambda x, a: [
            *both(stats.dirichlet, "pdf", "logpdf")(x / np.sum(x), a),
            *both(stats.dirichlet, "entropy", "mean", "var", "cov")(a),
        ],
        SHARES,
        U[:3],
    ),
    "wishart": first(
        lambda x, df, s: [
            *both(stats.wishart, "pdf", "logpdf")(symmetric(x), df, symmetric(s)),
            *both(stats.wishart, "entropy", "mean", "var", "mode")(df, symmetric(s)),
        ],
        SPREAD + 1.0,
        5.2,
        SPREAD,
    ),
    "invwishart": first(
        lambda x, df, s: [
            *both(stats.invwishart, "pdf", "logpdf")(symmetric(x), df, symmetric(s)),
            *both(stats.invwishart, "entropy", "mean", "var", "mode")(df, symmetric(s)),
        ],
        SPREAD + 1.0,
        7.2,
        SPREAD,
    ),
    "matrix_normal": first(
        lambda x, m, r, s: [
            *both(stats.matrix_normal, "pdf", "logpdf")(x, m, symmetric(r), symmetric(s)),
            stats.matrix_normal.entropy(rowcov=symmetric(r), colcov=symmetric(s)),
        ],
        POINTS,
        POINTS[::-1],
        SPREAD[:2, :2],
        SPREAD,
    ),
    "matrix_t": first(
        lambda x, m, r, s: stats.matrix_t.logpdf(x, m, symmetric(r), symmetric(s), 4.5),
        POINTS,
        POINTS[::-1],
        SPREAD[:2, :2],
        SPREAD,
    ),
    "multinomial": first(
        lambda p: [
            *both(stats.multinomial, "pmf", "logpmf")(COUNTS, 8, p / np.sum(p)),
            *both(stats.multinomial, "entropy", "cov")(8, p / np.sum(p)),
        ],
        SHARES,
    ),
    "dirichlet_multinomial": first(
        lambda a: [
            *both(stats.dirichlet_multinomial, "pmf", "logpmf")(COUNTS, a, 8),
            *both(stats.dirichlet_multinomial, "mean", "var", "cov")(a, 8),
        ],
        U[:3],
    ),
    "vonmises_fisher": first(
        lambda x, m, k: [
            *both(stats.vonmises_fisher, "pdf", "logpdf")(unit(x), unit(m), k),
            stats.vonmises_fisher.entropy(unit(m), k),
        ],
        POINTS[0],
        MEAN,
        2.3,
    ),
    "normal_inverse_gamma": first(
        lambda x, v, m, r, a, b: [
            *both(stats.normal_inverse_gamma, "pdf", "logpdf")(x, v, m, r, a, b),
            *both(stats.normal_inverse_gamma, "mean", "var")(m, r, a, b),
        ],
        *(0.3, 1.2, 0.1, 1.5, 3.2, 0.8),
    ),
    "gaussian_kde": first(
        lambda data, x, weights, width: [
            stats.gaussian_kde(data)(x),
            *both(stats.gaussian_kde(data, width, weights), "pdf", "logpdf")(x),
            stats.gaussian_kde(data).integrate_box_1d(0.2, x[0]),
            stats.gaussian_kde(data).integrate_gaussian(x[:1], x[1:, None]),
            stats.gaussian_kde(data).integrate_kde(stats.gaussian_kde(data**2)),
            stats.gaussian_kde([data, weights]).logpdf([x, x]),
        ],
        U,
        U[:2] + 0.3,
        W,
        0.4,
    ),
    "Normal": first(
        lambda x, m, s: [
            *both(stats.Normal(mu=m, sigma=s), "pdf", "logpdf", "cdf", "logccdf")(x),
            *both(stats.Normal(mu=m, sigma=s), "mean", "variance", "entropy")(),
        ],
        U,
        0.3,
        1.2,
    ),
    "Uniform": first(
        lambda x, a, b: both(stats.Uniform(a=a, b=b), "pdf", "cdf", "icdf")(x), SHARES + 0.2, 0.3, 1.2
    ),
    "Mixture": first(
        lambda x, m: stats.Mixture([stats.Normal(mu=m, sigma=1.0), stats.Normal(mu=1.0, sigma=2.0)]).pdf(x),
        U,
        0.7,
    ),
    "make_distribution": first(
        lambda x, a: both(stats.make_distribution(stats.gamma)(a=a), "logpdf", "cdf")(x), U, 1.7
    ),
    "chi2_contingency": tested(stats.chi2_contingency, POINTS + 2.0),
    "bootstrap": first(
        lambda a: list(stats.bootstrap((a,), np.mean, n_resamples=9, rng=1).confidence_interval), U
    ),
    "permutation_test": first(
        lambda a, b: (
            stats.permutation_test(
                (a, b), lambda x, y: np.mean(x) - np.mean(y), n_resamples=9, rng=1
            ).statistic
        ),
        U,
        V,
    ),
    "monte_carlo_test": first(
        lambda a: stats.monte_carlo_test(a, stats.norm.rvs, np.mean, n_resamples=9).statistic, U
    ),
    "goodness_of_fit": first(
        lambda a: stats.goodness_of_fit(stats.norm, a, n_mc_samples=5, rng=1).statistic, U
    ),
    "poisson_means_test": first(lambda n, m: stats.poisson_means_test(3, n, 4, m).pvalue, 10.0, 12.0),
    "ppcc_plot": first(lambda a: stats.ppcc_plot(a, -1, 1, N=3)[1], LONG),
}
MEASURED.update(MULTIVARIATE)
MEASURED["truncate"] = first(
    lambda x, m: stats.truncate(stats.Normal(mu=m, sigma=1.0), 0.0, 2.5).pdf(x), U, 0.3
)

STEPS: dict[str, list[Case]] = {
    "rankdata": call(stats.rankdata, U),
    "tiecorrect": call(stats.tiecorrect, np.array([1.0, 2.5, 2.5, 4.0])),
    "percentileofscore": call(lambda a: stats.percentileofscore(a, 1.0), U),
    "cumfreq": call(lambda a: stats.cumfreq(a, 3, (0, 2.5))[0], U),
    "relfreq": call(lambda a: stats.relfreq(a, 3, (0, 2.5))[0], U),
    "mode": call(lambda a: stats.mode(a).count, U),
    **{
        name: call(significance(getattr(stats, name)), U, V)
        for name in [
            "spearmanr",
            "kendalltau",
            "somersd",
            "ranksums",
            "mannwhitneyu",
            "wilcoxon",
            "ks_2samp",
            "cramervonmises_2samp",
            "ansari",
            "mood",
            "kruskal",
            "brunnermunzel",
            "chatterjeexi",
            "spearmanrho",
        ]
    },
    **{name: call(significance(getattr(stats, name)), U, V, W) for name in ("fligner", "friedmanchisquare")},
    "weightedtau": call(lambda a, b: stats.weightedtau(a, b).statistic, U, V),
    "logrank": call(significance(stats.logrank), U, V),
    "bws_test": call(lambda a, b: stats.bws_test(a, b).statistic, U, V),
    "median_test": call(lambda a, b: stats.median_test(a, b)[0], U, V),
    "page_trend_test": call(lambda a: stats.page_trend_test(a).statistic, np.stack([U, V, W])),
    "anderson_ksamp": call(lambda a, b: stats.anderson_ksamp([a, b], variant="midrank").statistic, U, V),
    "quantile_test": call(lambda a: stats.quantile_test(a, q=1.0, p=0.4).statistic, U),
    "ecdf": call(lambda a: stats.ecdf(a).cdf.probabilities, U),
}

REFUSED = because(
    the_solution_of_its_linear_program_is_not_unique="wasserstein_distance_nd",
    its_p_values_are_random="dunnett multiscale_graphcorr",
)
PUBLIC = sorted(
    [
        name
        for name in public_functions(stats)
        if not isinstance(getattr(stats, name), stats.rv_continuous | stats.rv_discrete)
    ]
    + ["Mixture", "Normal", "Uniform", "gaussian_kde"]
)
SCIPY_STATS = Namespace(
    "scipy.stats",
    PUBLIC,
    {name: cases for name, cases in MEASURED.items() if name not in REFUSED},
    {name: cases for name, cases in STEPS.items() if name not in REFUSED},
    REFUSED,
    {name: cases for name, cases in {**MEASURED, **STEPS}.items() if name in REFUSED},
    {
        name: "tests of tables of counts, random matrices and plots"
        for name in PUBLIC
        if name not in {*MEASURED, *STEPS, *REFUSED}
    },
)
