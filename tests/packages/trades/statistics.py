"""Statistics, learning and optimisation."""

from __future__ import annotations

from tests.packages.table import package

PACKAGES = [
    package(
        "lmfit 1.3.4",
        """
        from lmfit import Parameters, lineshapes, models
        x = np.linspace(-3, 3, 41)
        """,
        ("lineshapes.gaussian(x, amplitude=p[0], center=p[1], sigma=p[2])", [2.0, 0.3, 0.8]),
        ("lineshapes.voigt(x, p[0], p[1], p[2], p[3])", [2.0, 0.3, 0.8, 0.5]),
        ("models.ExponentialModel().eval(x=x, amplitude=p[0], decay=p[1])", [2.0, 1.3]),
        (
            """
            model = models.GaussianModel(prefix='g_') + models.LinearModel()
            return model.eval(x=x, g_amplitude=p[0], g_center=p[1], g_sigma=p[2], slope=p[3], intercept=0.1)
            """,
            [2.0, 0.3, 0.8, 0.1],
        ),
        (
            """
            params = Parameters()
            params.add('amplitude', value=p[0], min=0)
            params.add('width', value=p[1])
            params.add('half', expr='amplitude / 2')
            return params['amplitude'].value * np.exp(-x**2 / params['width'].value) + params['half'].value
            """,
            [2.0, 0.8],
        ),
    ),
    package(
        "statsmodels 0.15.0",
        """
        import statsmodels.api as sm
        from statsmodels.miscmodels.count import PoissonGMLE
        from statsmodels.robust import norms
        from statsmodels.tsa.arima_process import arma2ma
        rng = np.random.default_rng(0)
        X = sm.add_constant(rng.normal(size=(40, 2)))
        y = X @ np.array([0.3, 0.5, -0.2]) + rng.normal(size=40)
        counts = rng.poisson(np.exp(X @ np.array([0.3, 0.5, -0.2])))
        """,
        ("sm.Logit((y > 0).astype(float), X).loglike(p)", [0.3, 0.5, -0.2]),
        ("sm.Poisson(counts, X).loglike(p)", [0.3, 0.5, -0.2]),
        ("sm.NegativeBinomial(counts, X).loglike(p)", [0.3, 0.5, -0.2, 0.7]),
        ("sm.OLS(p, X).fit().params", "rng.normal(size=40)"),
        ("norms.TukeyBiweight(c=4.685).rho(p)", [0.3, 1.5, -2.2, 4.0]),
    ),
    package(
        "pyhf 0.7.6",
        """
        import pyhf
        from pyhf.interpolators import code4
        model = pyhf.simplemodels.uncorrelated_background(signal=[5.0, 10.0], bkg=[50.0, 60.0], bkg_uncertainty=[5.0, 12.0])
        data = [55.0, 62.0, *model.config.auxdata]
        """,
        ("model.logpdf(p, data)", [1.0, 1.1, 0.9]),
        ("model.expected_data(p)", [1.0, 1.1, 0.9]),
        ("model.constraint_logpdf(np.array(model.config.auxdata), p)", [1.0, 1.1, 0.9]),
        ("pyhf.infer.mle.twice_nll(p, data, model)", [1.0, 1.1, 0.9]),
        ("pyhf.probability.Poisson(p).log_prob(np.array([3.0, 5.0]))", [2.5, 6.0]),
    ),
    package(
        "lifelines 0.30.0",
        """
        from lifelines import ExponentialFitter, KaplanMeierFitter, LogNormalFitter, WeibullFitter
        from lifelines.utils import concordance_index
        T = np.array([2.0, 5.0, 3.5, 8.0, 1.2])
        t = np.linspace(0.5, 9, 8)
        """,
        ("WeibullFitter()._cumulative_hazard(p, t)", [4.0, 1.3]),
        ("WeibullFitter()._log_hazard(p, t)", [4.0, 1.3]),
        ("LogNormalFitter()._cumulative_hazard(p, t)", [1.0, 0.7]),
        ("ExponentialFitter().fit(p).lambda_", [2.0, 5.0, 3.5, 8.0, 1.2]),
        ("WeibullFitter().fit(p).params_.to_numpy()", [2.0, 5.0, 3.5, 8.0, 1.2]),
    ),
    package(
        "surpyval 0.25",
        """
        import surpyval as surv
        x = np.array([2.0, 5.0, 3.5, 8.0, 1.2])
        """,
        ("surv.Weibull.sf(x, p[0], p[1])", [4.0, 1.3]),
        ("surv.Weibull.log_df(x, p[0], p[1])", [4.0, 1.3]),
        ("surv.LogNormal.ff(x, p[0], p[1])", [1.0, 0.7]),
        ("surv.Gamma.hf(x, p[0], p[1])", [2.0, 0.7]),
        ("surv.Weibull.from_params([p[0], p[1]]).mean()", [4.0, 1.3]),
    ),
    package(
        "reliability 0.9.0",
        """
        from reliability.Distributions import Lognormal_Distribution, Normal_Distribution, Weibull_Distribution
        from reliability.PoF import acceleration_factor
        x = np.array([2.0, 5.0, 3.5, 8.0, 1.2])
        """,
        ("Weibull_Distribution(alpha=p[0], beta=p[1]).SF(x, show_plot=False)", [4.0, 1.3]),
        ("Weibull_Distribution(alpha=4.0, beta=1.3).PDF(p, show_plot=False)", [1.0, 2.5]),
        ("Normal_Distribution(mu=p[0], sigma=p[1]).CDF(x, show_plot=False)", [4.0, 1.3]),
        ("Lognormal_Distribution(mu=p[0], sigma=p[1]).mean", [1.0, 0.5]),
        ("Weibull_Distribution(alpha=p[0], beta=p[1]).quantile(0.1)", [4.0, 1.3]),
    ),
    package(
        "pingouin 0.7.0",
        """
        import pingouin as pg
        y = np.array([2.0, 5.0, 3.5, 8.0, 1.2, 4.4])
        """,
        ("pg.compute_effsize(p, y, eftype='cohen')", [1.0, 4.0, 2.5, 6.0, 1.3, 3.9]),
        ("pg.convert_effsize(p[0], 'cohen', 'pointbiserialr')", [0.4]),
        ("pg.circ_mean(p)", [0.8, 1.5, 3.1, 5.2]),
        ("pg.circ_r(p)", [0.8, 1.5, 3.1, 5.2]),
        ("pg.mad(p)", [1.0, 4.1, 2.5, 6.0, 1.3]),
    ),
    package(
        "properscoring 0.1",
        """
        import properscoring as ps
        observed = np.array([0.1, 0.7])
        """,
        ("ps.crps_gaussian(observed, mu=p[:2], sig=p[2:])", [0.0, 0.5, 1.0, 0.7]),
        ("ps.crps_ensemble(observed, p.reshape(2, 3))", [0.0, 0.5, 1.0, 0.71, 0.2, 0.9]),
        ("ps.crps_ensemble(p[0], p[1:])", [0.3, 0.5, 1.0, 0.71, 0.2]),
        ("ps.brier_score(np.array([1, 0]), p)", [0.3, 0.5]),
        (
            "ps.threshold_brier_score(observed, p.reshape(2, 3), threshold=0.6)",
            [0.0, 0.5, 1.0, 0.71, 0.2, 0.9],
        ),
    ),
    package(
        "autograd-gamma 0.5.0",
        """
        import autograd_gamma as ag
        x = np.array([0.5, 1.5])
        """,
        ("ag.gammainc(p[0], x)", [1.2]),
        ("ag.gammaincc(p, x)", [1.2, 2.0]),
        ("ag.gammaln(p)", [1.2, 2.0]),
        ("ag.betainc(p[0], p[1], np.array([0.3, 0.6]))", [1.2, 2.0]),
        ("ag.gammaincln(p[0], x)", [1.2]),
    ),
    package(
        "scikit-bio 0.7.4",
        """
        from skbio.diversity import alpha
        from skbio.stats import composition
        """,
        ("alpha.shannon(p)", [5.0, 3.0, 2.0, 9.0]),
        ("alpha.simpson(p)", [5.0, 3.0, 2.0, 9.0]),
        ("composition.clr(p)", [0.1, 0.3, 0.4, 0.2]),
        ("composition.ilr(p)", [0.1, 0.3, 0.4, 0.2]),
        ("composition.closure(p)", [5.0, 3.0, 2.0, 9.0]),
    ),
    package(
        "pyriemann 0.12",
        """
        from pyriemann.utils import base, distance, geodesic, mean
        A = np.array([[2.0, 0.3], [0.3, 1.0]])
        """,
        ("base.logm(p.reshape(2, 2) @ p.reshape(2, 2).T + A)", [0.5, 0.3, -0.2, 0.8]),
        ("base.sqrtm(p.reshape(2, 2) @ p.reshape(2, 2).T + A)", [0.5, 0.3, -0.2, 0.8]),
        ("distance.distance_riemann(p.reshape(2, 2) @ p.reshape(2, 2).T + A, A)", [0.5, 0.3, -0.2, 0.8]),
        ("geodesic.geodesic_riemann(A, p.reshape(2, 2) @ p.reshape(2, 2).T + A, 0.3)", [0.5, 0.3, -0.2, 0.8]),
        (
            "mean.mean_logeuclid(np.stack([A, p.reshape(2, 2) @ p.reshape(2, 2).T + A]))",
            [0.5, 0.3, -0.2, 0.8],
        ),
    ),
    package(
        "linearmodels 7.1",
        """
        from linearmodels.iv import IV2SLS, IVLIML
        from linearmodels.iv.covariance import kernel_weight_bartlett, kernel_weight_parzen
        rng = np.random.default_rng(0)
        z = rng.normal(size=(40, 2))
        x = z @ np.array([[0.5], [0.3]]) + rng.normal(size=(40, 1))
        """,
        ("IV2SLS(p, np.ones((40, 1)), x, z).fit().params.to_numpy()", "rng.normal(size=40)"),
        ("IV2SLS.estimate_parameters(x, p.reshape(40, 1), z, 0.0)", "rng.normal(size=40)"),
        ("IVLIML(p, np.ones((40, 1)), x, z).fit().params.to_numpy()", "rng.normal(size=40)"),
        ("kernel_weight_bartlett(4.0, 6) @ p", "rng.normal(size=5)"),
        ("IV2SLS.estimate_parameters(p.reshape(40, 1), x, z, 0.0)", "rng.normal(size=40)"),
    ),
    package(
        "pwlf 2.7.0",
        """
        import pwlf
        x = np.linspace(0.0, 10.0, 21)
        y = np.where(x < 4.0, x, 8.0 - x)
        """,
        ("pwlf.PiecewiseLinFit(x, y).fit_with_breaks([0.0, p[0], 10.0])", [4.3]),
        ("pwlf.PiecewiseLinFit(x, p).fit_with_breaks([0.0, 4.0, 10.0])", "np.sin(np.arange(21.0))"),
        (
            """
            model = pwlf.PiecewiseLinFit(x, y)
            model.fit_with_breaks([0.0, 4.5, 10.0])
            return model.predict(p)
            """,
            [1.0, 3.0, 7.0],
        ),
        (
            """
            model = pwlf.PiecewiseLinFit(x, p)
            model.fit_with_breaks([0.0, 4.0, 10.0])
            return model.calc_slopes()
            """,
            "np.sin(np.arange(21.0))",
        ),
        (
            """
            model = pwlf.PiecewiseLinFit(x, p)
            model.fit_with_breaks([0.0, 4.0, 10.0])
            return model.r_squared()
            """,
            "np.sin(np.arange(21.0))",
        ),
    ),
    package(
        "dcor 0.7",
        """
        import dcor
        a = np.array([[1.0, 2.0], [0.5, -1.0], [3.0, 0.2], [-0.7, 1.1]])
        """,
        ("dcor.distance_correlation(p.reshape(4, 2), a, method='naive')", "rng.normal(size=8)"),
        ("dcor.distance_covariance_sqr(p.reshape(4, 2), a, method='naive')", "rng.normal(size=8)"),
        ("dcor.energy_distance(p.reshape(4, 2), a)", "rng.normal(size=8)"),
        ("dcor.distance_covariance(p.reshape(4, 2), a, method='naive')", "rng.normal(size=8)"),
        ("dcor.u_distance_covariance_sqr(p.reshape(4, 2), a, method='naive')", "rng.normal(size=8)"),
    ),
    package(
        "lmoments3 1.0.8",
        """
        import lmoments3
        from lmoments3 import distr
        """,
        ("lmoments3.lmom_ratios(p, nmom=5)", "rng.gamma(2.0, 3.0, 12)"),
        ("distr.gam.lmom_fit(p)", "rng.gamma(2.0, 3.0, 12)"),
        ("distr.gev.lmom_fit(p)", "rng.gumbel(2.0, 1.0, 14)"),
        ("distr.nor(**distr.nor.lmom_fit(p)).ppf(np.array([0.9, 0.99]))", "rng.normal(2.0, 1.0, 12)"),
        ("distr.gpa.lmom_fit(lmom_ratios=p)", [2.0, 1.0, 0.3]),
    ),
    package(
        "iminuit 2.33.0",
        """
        from iminuit import cost
        from scipy.stats import norm
        data = np.random.default_rng(3).normal(1.0, 0.5, size=40)
        counts, edges = np.histogram(data, bins=6, range=(-1.0, 3.0))
        x = np.linspace(0.0, 1.0, 9)
        """,
        ("cost.LeastSquares(x, np.exp(x), 0.1, lambda x, a, b: a + b * x)(*p)", [0.9, 1.6]),
        ("cost.UnbinnedNLL(data, lambda x, m, s: norm.pdf(x, m, s))(*p)", [0.9, 0.6]),
        ("cost.BinnedNLL(counts, edges, lambda x, m, s: norm.cdf(x, m, s))(*p)", [0.9, 0.6]),
        (
            "cost.ExtendedBinnedNLL(counts, edges, lambda x, n, m, s: n * norm.cdf(x, m, s))(*p)",
            [40.0, 0.9, 0.6],
        ),
        ("cost.NormalConstraint(['a', 'b'], [1.0, 2.0], [0.1, 0.2])(*p)", [1.1, 1.7]),
    ),
    package(
        "pymannkendall 1.4.3",
        """
        import pymannkendall as mk
        """,
        ("mk.sens_slope(p).slope", "np.arange(12) + rng.normal(size=12)"),
        ("mk.seasonal_sens_slope(p, period=4).slope", "np.arange(16) + rng.normal(size=16)"),
        ("mk.original_test(p).slope", "np.arange(12) + rng.normal(size=12)"),
        ("mk.original_test(p).intercept", "np.arange(12) + rng.normal(size=12)"),
        ("mk.pre_whitening_modification_test(p).slope", "np.arange(12) + rng.normal(size=12)"),
    ),
    package(
        "choix 0.4.1",
        """
        import choix
        games = [(1, 0), (0, 4), (3, 1), (2, 3), (4, 2), (0, 3)]
        """,
        ("choix.log_likelihood_pairwise(games, p)", [0.3, -0.2, 0.5, 0.1, -0.7]),
        ("choix.probabilities([0, 1, 2], p)", [0.3, -0.2, 0.5]),
        ("choix.log_likelihood_rankings([[1, 0, 3, 2], [2, 3, 1, 0]], p)", [0.3, -0.2, 0.5, 0.1]),
        ("choix.log_likelihood_top1([(0, (1, 2)), (2, (0, 1, 3))], p)", [0.3, -0.2, 0.5, 0.1]),
        (
            "choix.lsr_pairwise_dense(p.reshape(3, 3), alpha=0.01)",
            [0.0, 2.0, 3.0, 1.0, 0.0, 4.0, 2.0, 1.5, 0.0],
        ),
    ),
    package(
        "ruptures 1.1.10",
        """
        import ruptures as rpt
        from ruptures.metrics import hausdorff
        """,
        ("rpt.costs.CostL2().fit(p).error(2, 9)", "rng.normal(size=12)"),
        ("rpt.costs.CostNormal().fit(p.reshape(10, 2)).error(0, 8)", "rng.normal(size=20)"),
        ("rpt.costs.CostRbf(gamma=0.5).fit(p).error(0, 8)", "rng.normal(size=10)"),
        ("rpt.costs.CostAR(order=2).fit(p).error(3, 12)", "rng.normal(size=15)"),
        ("rpt.Dynp(model='l2', min_size=2, jump=1).fit(p).cost.sum_of_costs([6, 12])", "rng.normal(size=12)"),
    ),
    package(
        "uncertainty-toolbox 0.1.1",
        """
        from uncertainty_toolbox import metrics_accuracy, metrics_calibration, metrics_scoring_rule
        y = np.array([1.1, 0.4, 2.3, 1.7])
        s = np.array([0.3, 0.5, 0.2, 0.4])
        """,
        ("metrics_scoring_rule.nll_gaussian(p[:4], p[4:], y)", [1.0, 0.6, 2.2, 1.5, 0.3, 0.5, 0.2, 0.4]),
        ("metrics_scoring_rule.crps_gaussian(p[:4], p[4:], y)", [1.0, 0.6, 2.2, 1.5, 0.3, 0.5, 0.2, 0.4]),
        ("metrics_scoring_rule.interval_score(p, s, y)", [1.0, 0.6, 2.2, 1.5]),
        ("metrics_calibration.sharpness(p)", [0.3, 0.5, 0.2, 0.4]),
        ("metrics_accuracy.prediction_error_metrics(p, y)", [1.0, 0.65, 2.15, 1.4]),
    ),
]
