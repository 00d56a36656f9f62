"""Sports, tests, customers, brains, rockets and aircraft."""

from __future__ import annotations

from tests.packages.table import package

PACKAGES = [
    package(
        "trueskill 0.4.5",
        """
        import trueskill
        from trueskill import Rating, TrueSkill
        env = TrueSkill(draw_probability=0.1)
        """,
        ("[r.mu for r in trueskill.rate_1vs1(Rating(p[0], p[1]), Rating(30.0, 6.0))]", [25.0, 8.0]),
        ("trueskill.quality_1vs1(Rating(p[0], p[1]), Rating(30.0, 6.0))", [25.0, 8.0]),
        (
            """
            teams = [(Rating(p[0], 8.0), Rating(22.0, 7.0)), (Rating(30.0, p[1]), Rating(20.0, 5.0))]
            return [player.sigma for team in trueskill.rate(teams) for player in team]
            """,
            [25.0, 6.0],
        ),
        ("env.expose(Rating(p[0], p[1]))", [25.0, 6.0]),
        ("[r.mu for r in env.rate_1vs1(Rating(p[0], p[1]), Rating(28.0, 6.0), drawn=True)]", [25.0, 8.0]),
    ),
    package(
        "girth 0.8.0",
        """
        import girth
        from girth.unidimensional.dichotomous.partial_integrals import _compute_partial_integral
        answers = (np.random.default_rng(0).random((6, 50)) > 0.5).astype(int)
        difficulty = np.linspace(-1.0, 1.0, 6)
        theta = np.linspace(-3.0, 3.0, 21)
        """,
        ("girth.ability_eap(answers, difficulty + p[0], p[1])", [0.1, 1.2]),
        ("girth.ability_map(answers[:, :4], difficulty, p[0])", [1.2]),
        ("girth.mml_approx(answers, p[0])", [1.2]),
        ("_compute_partial_integral(theta, p[0], p[1], answers[0], np.zeros(50, bool))", [0.2, 1.2]),
        ("girth.ability_3pl_eap(answers, difficulty, p[0] * np.ones(6), p[1] * np.ones(6))", [1.2, 0.2]),
    ),
    package(
        "lifetimes 0.11.3",
        """
        from lifetimes import BetaGeoFitter, GammaGammaFitter, ParetoNBDFitter
        frequency, recency = np.array([2.0, 5.0, 0.0, 8.0]), np.array([10.0, 20.0, 0.0, 33.0])
        age = np.array([30.0, 30.0, 28.0, 35.0])
        names = ('r', 'alpha', 'a', 'b')
        """,
        (
            "BetaGeoFitter._negative_log_likelihood(p, frequency, recency, age, np.ones(4), 0.0)",
            [-0.7, 1.4, -0.2, 0.9],
        ),
        (
            """
            fitter = BetaGeoFitter()
            fitter.params_ = dict(zip(names, p))
            return fitter.conditional_expected_number_of_purchases_up_to_time(10.0, frequency, recency, age)
            """,
            [0.5, 4.0, 0.8, 2.5],
        ),
        (
            """
            fitter = BetaGeoFitter()
            fitter.params_ = dict(zip(names, p))
            return fitter.conditional_probability_alive(frequency, recency, age)
            """,
            [0.5, 4.0, 0.8, 2.5],
        ),
        (
            """
            fitter = GammaGammaFitter()
            fitter.params_ = dict(zip(('p', 'q', 'v'), p))
            return fitter.conditional_expected_average_profit(np.array([2.0, 5.0, 1.0]), np.array([20.0, 31.0, 12.0]))
            """,
            [6.0, 4.0, 15.0],
        ),
        (
            """
            fitter = ParetoNBDFitter()
            fitter.params_ = dict(zip(('r', 'alpha', 's', 'beta'), p))
            return fitter.expected_number_of_purchases_up_to_time(12.0)
            """,
            [0.5, 10.0, 0.6, 12.0],
        ),
    ),
    package(
        "neurodsp 2.3.0",
        """
        from neurodsp import filt, spectral, timefrequency
        noise = 0.1 * np.random.default_rng(0).normal(size=300)
        wave = np.sin(0.5 * np.arange(300))
        """,
        ("spectral.compute_spectrum_welch(p[0] * wave + noise, 100.0, nperseg=100)[1]", [1.0]),
        ("filt.filter_signal(p[0] * wave + noise, 100.0, 'bandpass', (8, 12), remove_edges=False)", [1.0]),
        ("filt.filter_signal_iir(p * wave[:50], 100.0, 'lowpass', 20, 4)", "1.0 + rng.normal(size=50)"),
        ("timefrequency.amp_by_time(p[0] * wave + noise, 100.0, (8, 12), remove_edges=False)", [1.0]),
        ("timefrequency.compute_wavelet_transform(p[0] * wave + noise, 100.0, np.array([5.0, 10.0]))", [1.0]),
    ),
    package(
        "rocketpy 1.13.0",
        """
        from rocketpy import Function
        from rocketpy.mathutils.vector_matrix import Matrix, Vector
        burn = np.linspace(0.0, 4.0, 6)
        """,
        ("Function(np.column_stack([burn, p]), interpolation='spline')(1.5)", [0.0, 3.0, 5.0, 4.0, 2.0, 0.0]),
        (
            "Function(np.column_stack([burn, p]), interpolation='akima').integral(0, 4)",
            [0.0, 3.0, 5.0, 4.0, 2.0, 0.0],
        ),
        ("Function(lambda x: p[0] * x**2 + p[1]).differentiate(1.5)", [2.0, 1.0]),
        ("list((Vector([p[0], p[1], 3.0]) ^ Vector([0.3, 0.2, p[2]])).unit_vector)", [1.0, 2.0, 0.1]),
        (
            "[x for row in Matrix.transformation(list(p)).inverse.components for x in row]",
            [1.0, 0.1, 0.2, 0.3],
        ),
    ),
    package(
        "openap 2.6.2",
        """
        import openap
        from openap import aero
        """,
        ("aero.cas2tas(p[0], p[1])", [150.0, 8000.0]),
        ("aero.atmos(p)", [500.0, 9000.0, 12000.0]),
        ("openap.Drag('A320').clean(mass=p[0], tas=p[1], alt=p[2])", [60000.0, 380.0, 30000.0]),
        ("openap.Thrust('A320', 'CFM56-5B4').climb(tas=p[0], alt=p[1], roc=p[2])", [380.0, 25000.0, 1200.0]),
        ("openap.FuelFlow('A320').enroute(mass=p[0], tas=p[1], alt=p[2])", [60000.0, 380.0, 30000.0]),
    ),
    package(
        "catsim 0.21.0",
        """
        from catsim import irt
        items = np.array([[1.2, 0.3, 0.1, 1.0], [0.8, -0.5, 0.2, 1.0], [1.5, 1.0, 0.15, 0.95]])
        """,
        ("irt.icc(p[0], p[1], p[2], p[3])", [0.5, 1.2, 0.3, 0.1]),
        ("irt.inf(p[0], p[1], p[2], p[3])", [0.5, 1.2, 0.3, 0.1]),
        ("irt.log_likelihood(p[0], [True, False, True], items)", [0.5]),
        ("irt.test_info(p[0], items)", [0.5]),
        ("irt.inf_hpc(p[0], p[1:].reshape(2, 4))", [0.5, 1.2, 0.3, 0.1, 1.0, 0.8, -0.5, 0.2, 0.95]),
    ),
    package(
        "bctpy 0.6.1",
        """
        import bct

        def weights(p):
            w = np.zeros((4, 4))
            w[np.triu_indices(4, 1)] = p
            return w + w.T
        """,
        ("bct.strengths_und(weights(p))", [0.5, 0.2, 0.7, 0.9, 0.4, 0.3]),
        ("bct.clustering_coef_wu(weights(p))", [0.5, 0.2, 0.7, 0.9, 0.4, 0.3]),
        ("bct.transitivity_wu(weights(p))", [0.5, 0.2, 0.7, 0.9, 0.4, 0.3]),
        ("bct.pagerank_centrality(weights(p), 0.85)", [0.5, 0.2, 0.7, 0.9, 0.4, 0.3]),
        ("bct.efficiency_wei(weights(p))", [0.5, 0.2, 0.7, 0.9, 0.4, 0.3]),
    ),
]
