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
]
