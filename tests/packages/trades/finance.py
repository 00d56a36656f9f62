"""Finance."""

from __future__ import annotations

from tests.packages.table import package

PACKAGES = [
    package(
        "numpy-financial 1.0.0",
        """
        import numpy_financial as npf
        """,
        ("npf.fv(p[0] / 12, 10 * 12, p[1], p[2])", [0.05, -100.0, -100.0]),
        ("npf.pmt(p[0] / 12, 12 * 15, p[1])", [0.075, 200000.0]),
        ("npf.npv(p[0], p[1:])", [0.08, -40000.0, 5000.0, 8000.0, 12000.0, 30000.0]),
        ("npf.irr(p)", [-100.0, 39.0, 59.0, 55.0, 20.0]),
        ("npf.nper(p[0] / 12, p[1], p[2])", [0.07, -150.0, 8000.0]),
    ),
    package(
        "pyportfolioopt 1.6.0",
        """
        from pypfopt import objective_functions, risk_models
        from pypfopt.black_litterman import BlackLittermanModel
        rng = np.random.default_rng(0)
        mean = np.array([0.08, 0.12, 0.1])
        root = rng.normal(size=(3, 3))
        covariance = 0.01 * (root @ root.T + np.eye(3))
        """,
        ("objective_functions.portfolio_variance(p, covariance)", [0.3, 0.5, 0.2]),
        ("objective_functions.portfolio_return(p, mean)", [0.3, 0.5, 0.2]),
        ("objective_functions.sharpe_ratio(p, mean, covariance, risk_free_rate=0.02)", [0.3, 0.5, 0.2]),
        ("objective_functions.quadratic_utility(p, mean, covariance, risk_aversion=2)", [0.3, 0.5, 0.2]),
        ("risk_models.cov_to_corr(np.outer(p, p) + covariance).to_numpy()", [0.3, 0.5, 0.2]),
    ),
    package(
        "empyrical-reloaded 0.7.1",
        """
        import empyrical
        market = np.array([0.01, 0.02, -0.01, 0.015, -0.02, 0.005, 0.012, -0.004])
        """,
        ("empyrical.sharpe_ratio(p)", "rng.normal(0.001, 0.01, size=30)"),
        ("empyrical.max_drawdown(p)", "rng.normal(0.001, 0.01, size=30)"),
        ("empyrical.annual_return(p)", "rng.normal(0.001, 0.01, size=30)"),
        ("empyrical.alpha_beta(p, market)", [0.012, 0.018, -0.02, 0.01, -0.015, 0.0, 0.02, -0.01]),
        ("empyrical.sortino_ratio(p, required_return=0.0005)", "rng.normal(0.001, 0.01, size=30)"),
    ),
    package(
        "vollib 1.0.11",
        """
        from vollib import black_scholes as bs
        from vollib.black import black
        from vollib.black_scholes.greeks import analytical
        from vollib.black_scholes.implied_volatility import implied_volatility
        """,
        ("bs.black_scholes('c', p[0], p[1], p[2], p[3], p[4])", [100.0, 90.0, 0.5, 0.01, 0.2]),
        ("analytical.delta('p', p[0], 90.0, p[1], 0.01, p[2])", [100.0, 0.5, 0.2]),
        ("analytical.vega('c', p[0], 90.0, p[1], 0.01, p[2])", [100.0, 0.5, 0.2]),
        ("black('c', p[0], p[1], p[2], 0.01, 0.5)", [100.0, 90.0, 0.2]),
        ("implied_volatility(p[0], p[1], 90.0, 0.5, 0.01, 'c')", [12.1, 100.0]),
    ),
    package(
        "pysabr 0.4.1",
        """
        from pysabr import Hagan2002LognormalSABR, Hagan2002NormalSABR, black
        from pysabr.models.hagan_2002_lognormal_sabr import lognormal_vol
        from pysabr.models.hagan_2002_normal_sabr import normal_vol
        """,
        (
            "Hagan2002LognormalSABR(f=2.5271e-2, shift=0.03, t=10.0, v_atm_n=p[0], beta=0.5, rho=p[1], volvol=p[2]).lognormal_vol(0.02)",
            [0.0065, -0.25, 0.31],
        ),
        ("lognormal_vol(p[0], 0.0253, 10.0, p[1], 0.5, p[2], p[3])", [0.02, 0.04, -0.25, 0.31]),
        ("normal_vol(p[0], 0.0253, 10.0, p[1], 0.5, p[2], p[3])", [0.02, 0.04, -0.25, 0.31]),
        ("black.lognormal_call(p[0], p[1], 10.0, p[2], 0.01, cp='call')", [0.02, 0.0253, 0.25]),
        ("black.normal_call(p[0], p[1], 10.0, p[2], 0.01, cp='call')", [0.02, 0.0253, 0.0065]),
    ),
    package(
        "arch 8.0.0",
        """
        from arch import arch_model
        from arch.univariate import GARCH, ConstantMean, Normal, StudentsT
        from arch.univariate.recursions_python import garch_recursion_python
        y = np.random.default_rng(0).normal(size=60)
        model = arch_model(y, rescale=False)
        bounds = np.tile([1e-6, 1e6], (60, 1))
        """,
        ("Normal().loglikelihood([], y, p)", "rng.uniform(0.5, 1.5, size=60)"),
        ("Normal().loglikelihood([], y, p, individual=True)", "rng.uniform(0.5, 1.5, size=60)"),
        ("StudentsT().loglikelihood([p[0]], y, np.ones(60))", [8.0]),
        ("GARCH(p=1, q=1).compute_variance(p, y, np.zeros(60), 1.0, bounds)", [0.1, 0.1, 0.8]),
        ("model._loglikelihood(p, np.ones(60), 1.0, bounds)", [0.01, 0.1, 0.1, 0.8]),
    ),
    package(
        "quantecon 0.11.4",
        """
        import quantecon as qe
        """,
        ("qe.solve_discrete_lyapunov(np.array([[p[0], 0.1], [0.0, p[1]]]), np.eye(2))", [0.5, 0.3]),
        (
            "qe.solve_discrete_riccati(np.array([[p[0]]]), np.array([[1.0]]), np.array([[p[1]]]), np.array([[0.5]]))",
            [0.9, 1.2],
        ),
        (
            "qe.LQ(Q=np.array([[p[0]]]), R=np.array([[p[1]]]), A=np.array([[0.9]]), B=np.array([[1.0]]), beta=0.95).stationary_values()[1]",
            [0.5, 1.2],
        ),
        (
            "qe.MarkovChain(np.array([[1 - p[0], p[0]], [p[1], 1 - p[1]]])).stationary_distributions",
            [0.3, 0.2],
        ),
        ("qe.gth_solve(np.array([[1 - p[0], p[0]], [p[1], 1 - p[1]]]))", [0.3, 0.2]),
        ("qe.ARMA(p[0], p[1], 1.0).impulse_response(8)", [0.5, -0.8]),
        ("qe.hamilton_filter(p, 2, 3)[0][4:]", "np.cumsum(rng.normal(size=30))"),
    ),
    package(
        "ffn 1.4.1",
        """
        import ffn
        import pandas as pd
        days = pd.date_range('2024-01-01', periods=12)
        """,
        (
            "ffn.to_returns(pd.Series(p, index=days)).to_numpy()[1:]",
            "100 * np.exp(np.cumsum(rng.normal(0, 0.01, size=12)))",
        ),
        (
            "ffn.calc_total_return(pd.Series(p, index=days))",
            "100 * np.exp(np.cumsum(rng.normal(0, 0.01, size=12)))",
        ),
        (
            "ffn.calc_max_drawdown(pd.Series(p, index=days))",
            "100 * np.exp(np.cumsum(rng.normal(0, 0.01, size=12)))",
        ),
        (
            "ffn.calc_sharpe(pd.Series(p, index=days), rf=0.0, nperiods=252)",
            "rng.normal(0.001, 0.01, size=12)",
        ),
        ("ffn.core.annualize(p[0], p[1], one_year=365.0)", [0.1, 200.0]),
    ),
    package(
        "quantstats 0.0.86",
        """
        import pandas as pd
        import quantstats as qs
        days = pd.date_range('2024-01-01', periods=30)
        """,
        ("qs.stats.sharpe(pd.Series(p, index=days))", "rng.normal(0.001, 0.01, size=30)"),
        ("qs.stats.volatility(pd.Series(p, index=days))", "rng.normal(0.001, 0.01, size=30)"),
        ("qs.stats.comp(pd.Series(p, index=days))", "rng.normal(0.001, 0.01, size=30)"),
        ("qs.stats.max_drawdown(pd.Series(p, index=days))", "rng.normal(0.001, 0.01, size=30)"),
        ("qs.stats.expected_return(pd.Series(p, index=days))", "rng.normal(0.001, 0.01, size=30)"),
    ),
    package(
        "financepy 1.0.1",
        """
        from financepy.models.black_scholes_analytic import bs_delta, bs_value
        from financepy.models.sabr import vol_function_sabr
        from financepy.utils.global_types import OptionTypes
        from financepy.utils.math import normcdf
        call = OptionTypes.EUROPEAN_CALL.value
        """,
        ("bs_value(p[0], p[1], 90.0, p[2], 0.0, p[3], call)", [100.0, 0.5, 0.01, 0.2]),
        ("bs_delta(p[0], p[1], 90.0, p[2], 0.0, p[3], call)", [100.0, 0.5, 0.01, 0.2]),
        ("vol_function_sabr(p, 0.043, 0.05, 2.0)", [0.2, 0.5, -0.8, 0.9]),
        ("normcdf(p[0])", [0.7]),
        ("bs_value(p, 0.5, 90.0, 0.01, 0.0, 0.2, call)", [80.0, 100.0]),
    ),
    package(
        "pyfeng 0.5.0",
        """
        import pyfeng as pf
        strikes = np.arange(80.0, 121.0, 10.0)
        """,
        ("pf.Bsm(sigma=p[0], intr=p[1], divr=0.1).price(strikes, p[2], 1.2)", [0.2, 0.05, 100.0]),
        ("pf.Bsm(sigma=0.2, intr=0.05).impvol(p, strikes[1:4], 100.0, 1.2)", [19.0, 11.5, 6.5]),
        ("pf.Norm(sigma=p[0]).delta(strikes, p[1], 1.2)", [20.0, 100.0]),
        (
            "pf.SabrHagan2002(sigma=p[0], vov=p[1], rho=p[2], beta=0.9).price(strikes, 100.0, 2.0)",
            [0.4, 0.6, -0.25],
        ),
        (
            "pf.BsmSpreadKirk(np.array([p[0], p[1]]), rho=p[2]).price(np.array([5.0, 10.0]), np.array([100.0, 96.0]), 1.0)",
            [0.2, 0.1, 0.5],
        ),
    ),
    package(
        "nelson-siegel-svensson 0.5.0",
        """
        from nelson_siegel_svensson import NelsonSiegelCurve, NelsonSiegelSvenssonCurve
        from nelson_siegel_svensson.calibrate import betas_ns_ols, betas_nss_ols, calibrate_ns_ols
        t = np.array([0.5, 1.0, 2.0, 5.0, 10.0, 30.0])
        rates = np.array([0.010, 0.012, 0.018, 0.025, 0.028, 0.030])
        """,
        ("NelsonSiegelCurve(p[0], p[1], p[2], p[3]).zero(t)", [0.028, -0.03, -0.04, 1.1]),
        ("NelsonSiegelSvenssonCurve(*p)(t)", [0.028, -0.03, -0.04, -0.015, 1.1, 4.0]),
        ("NelsonSiegelSvenssonCurve(*p).forward(t)", [0.028, -0.03, -0.04, -0.015, 1.1, 4.0]),
        ("betas_ns_ols(p[0], t, p[1:])[0].beta1", [2.0, 0.010, 0.012, 0.018, 0.025, 0.028, 0.030]),
        ("calibrate_ns_ols(t, p, tau0=1.0)[0](t)", [0.010, 0.012, 0.018, 0.025, 0.028, 0.030]),
    ),
    package(
        "ta 0.11.0",
        """
        import pandas as pd
        import ta
        low = pd.Series(np.linspace(9.0, 10.0, 30))
        volume = pd.Series(np.linspace(100.0, 200.0, 30))
        """,
        ("ta.trend.sma_indicator(pd.Series(p), window=5).to_numpy()[5:]", "10 + rng.normal(size=30)"),
        (
            "ta.trend.macd(pd.Series(p), window_slow=10, window_fast=4, fillna=True).to_numpy()",
            "10 + rng.normal(size=30)",
        ),
        ("ta.volatility.bollinger_hband(pd.Series(p), window=5).to_numpy()[5:]", "10 + rng.normal(size=30)"),
        ("ta.momentum.roc(pd.Series(p), window=3).to_numpy()[3:]", "10 + rng.normal(size=30)"),
        ("ta.others.cumulative_return(pd.Series(p)).to_numpy()", "10 + rng.normal(size=30)"),
    ),
]
