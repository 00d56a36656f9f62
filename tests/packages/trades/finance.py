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
        ("risk_models.cov_to_corr(np.outer(p, p) + covariance)", [0.3, 0.5, 0.2]),
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
]
