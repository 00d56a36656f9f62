"""Learning, time series and optimisation."""

from __future__ import annotations

from tests.packages.table import package

PACKAGES = [
    package(
        "scikit-learn 1.9.1",
        """
        from sklearn import metrics
        from sklearn.covariance import ledoit_wolf
        from sklearn.gaussian_process.kernels import RBF, Matern, RationalQuadratic
        from sklearn.linear_model import Ridge
        from sklearn.metrics.pairwise import rbf_kernel
        from sklearn.preprocessing import StandardScaler
        rng = np.random.default_rng(0)
        X = rng.normal(size=(20, 3))
        y = X @ np.array([0.3, 0.5, -0.2]) + 0.1 * rng.normal(size=20)
        """,
        ("metrics.mean_squared_error(y, p)", "rng.normal(size=20)"),
        ("rbf_kernel(X, p.reshape(4, 3), gamma=0.5)", "rng.normal(size=12)"),
        ("Matern(length_scale=1.5, nu=1.5)(p.reshape(4, 3))", "rng.normal(size=12)"),
        ("Ridge(alpha=0.5).fit(X, p).coef_", "rng.normal(size=20)"),
        ("StandardScaler().fit_transform(p.reshape(4, 3))", "rng.normal(size=12)"),
        ("metrics.r2_score(y, p)", "rng.normal(size=20)"),
        ("ledoit_wolf(p.reshape(10, 2))[0]", "rng.normal(size=20)"),
    ),
    package(
        "hmmlearn 0.3.3",
        """
        from hmmlearn import hmm, stats
        from hmmlearn.utils import log_normalize, normalize
        X = np.random.default_rng(0).normal(size=(20, 2))
        """,
        (
            "stats.log_multivariate_normal_density(X, p.reshape(2, 2), np.ones((2, 2)), 'diag')",
            [0.0, 0.5, 1.0, -0.3],
        ),
        (
            "stats.log_multivariate_normal_density(X, np.zeros((2, 2)), p.reshape(2, 2), 'diag')",
            [0.8, 1.5, 1.0, 0.3],
        ),
        (
            """
            a = p + 0.0
            normalize(a)
            return a
            """,
            [0.2, 0.5, 1.0],
        ),
        (
            """
            model = hmm.GaussianHMM(n_components=2, covariance_type='diag')
            model.startprob_ = np.array([0.6, 0.4])
            model.transmat_ = np.array([[0.7, 0.3], [0.4, 0.6]])
            model.means_ = p.reshape(2, 2)
            model.covars_ = np.ones((2, 2))
            return model.score(X)
            """,
            [0.0, 0.5, 1.0, -0.3],
        ),
        (
            """
            model = hmm.PoissonHMM(n_components=2)
            model.startprob_ = np.array([0.6, 0.4])
            model.transmat_ = np.array([[0.7, 0.3], [0.4, 0.6]])
            model.lambdas_ = p.reshape(2, 1)
            return model._compute_log_likelihood(np.array([[1], [3], [5]]))
            """,
            [1.5, 4.0],
        ),
    ),
    package(
        "tensorly 0.10.0",
        """
        import tensorly as tl
        from tensorly import cp_to_tensor, tucker_to_tensor
        from tensorly.metrics import RMSE
        from tensorly.tenalg import inner, khatri_rao, mode_dot, multi_mode_dot
        rng = np.random.default_rng(0)
        X = rng.normal(size=(3, 4, 2))
        """,
        ("mode_dot(X, p.reshape(5, 4), mode=1)", "rng.normal(size=20)"),
        ("khatri_rao([p.reshape(3, 2), np.ones((4, 2))])", [1.0, 0.5, 2.0, -1.0, 0.3, 0.7]),
        ("tl.unfold(p.reshape(3, 4, 2), mode=1)", "rng.normal(size=24)"),
        (
            "cp_to_tensor((None, [p.reshape(3, 2), np.ones((4, 2)), np.eye(2)]))",
            [1.0, 0.5, 2.0, -1.0, 0.3, 0.7],
        ),
        ("RMSE(p.reshape(3, 4, 2), X)", "rng.normal(size=24)"),
    ),
    package(
        "POT 0.9.7.post1",
        """
        import ot
        x = np.array([[0.0], [1.0], [2.5]])
        """,
        (
            "ot.sinkhorn(np.array([0.5, 0.3, 0.2]), np.ones(3) / 3, p.reshape(3, 3), reg=1.0)",
            "rng.uniform(0, 2, size=9)",
        ),
        ("ot.dist(p.reshape(3, 2), np.array([[0.0, 0.5], [1.0, 1.0]]))", [1.0, 0.5, 2.0, -1.0, 0.3, 0.7]),
        (
            "ot.sliced_wasserstein_distance(p.reshape(3, 2), np.eye(3, 2), n_projections=10, seed=0)",
            [1.0, 0.5, 2.0, -1.0, 0.3, 0.7],
        ),
        ("ot.wasserstein_1d(p, np.array([0.1, 0.6, 1.7]), p=2)", [0.3, 1.2, 2.7]),
        (
            "ot.gaussian.bures_wasserstein_distance(np.zeros(2), p[:2], np.eye(2), np.diag(p[2:]))",
            [0.3, 1.2, 2.7, 0.6],
        ),
    ),
    package(
        "pykalman 0.11.2",
        """
        from pykalman import KalmanFilter
        from pykalman.standard import _filter_correct, _filter_predict
        z = np.array([0.9, 2.1, 2.9, 4.2])
        """,
        (
            "KalmanFilter(transition_matrices=[[1.0, 1.0], [0.0, 1.0]], observation_matrices=[[1.0, 0.0]]).filter(p)[0]",
            [0.9, 2.1, 2.9, 4.2],
        ),
        (
            "KalmanFilter(transition_matrices=[[1.0, 1.0], [0.0, 1.0]], observation_matrices=[[1.0, 0.0]]).smooth(p)[0]",
            [0.9, 2.1, 2.9, 4.2],
        ),
        (
            "KalmanFilter(transition_matrices=np.array([[p[0]]]), observation_covariance=np.array([[p[1]]])).filter(z)[0]",
            [0.9, 0.5],
        ),
        (
            "KalmanFilter(transition_matrices=np.array([[p[0]]]), observation_covariance=np.array([[p[1]]])).loglikelihood(z)",
            [0.9, 0.5],
        ),
        ("_filter_predict(np.eye(2), np.eye(2) * p[0], np.zeros(2), p[1:], np.eye(2))", [0.1, 1.0, 2.0]),
    ),
    package(
        "emcee 3.1.6",
        """
        from emcee import autocorr
        from emcee.utils import sample_ball
        x = np.random.default_rng(0).normal(size=64)
        """,
        ("autocorr.function_1d(p)", "rng.normal(size=32)"),
        ("autocorr.integrated_time(p, quiet=True)", "np.cumsum(rng.normal(size=64))"),
        ("autocorr.function_1d(p[0] * x + p[1] * x**2)", [1.0, 0.5]),
        ("autocorr.function_1d(np.exp(-p[0] * x**2))", [0.4]),
        ("autocorr.auto_window(np.cumsum(p), 5.0) * p", [0.5, 0.3, 0.2, 0.1]),
    ),
    package(
        "pymoo 0.6.2",
        """
        from pymoo.indicators.hv import HV
        from pymoo.indicators.igd import IGD
        from pymoo.problems import get_problem
        rastrigin, zdt1, dtlz2, bnh = (get_problem(n) for n in ('rastrigin', 'zdt1', 'dtlz2', 'bnh'))
        """,
        ("rastrigin.evaluate(p)", [0.3, -0.7]),
        ("zdt1.evaluate(p)", "rng.uniform(0.1, 0.9, size=30)"),
        ("dtlz2.evaluate(p)", "rng.uniform(0.1, 0.9, size=10)"),
        ("bnh.evaluate(p)", [1.0, 2.0]),
        ("get_problem('ackley', n_var=3).evaluate(p)", [0.3, -0.7, 1.1]),
    ),
    package(
        "deap 1.4.4",
        """
        from deap import benchmarks
        from deap.benchmarks import tools
        """,
        ("benchmarks.rosenbrock(p)", [0.3, -0.7, 1.1]),
        ("benchmarks.ackley(p)", [0.3, -0.7, 1.1]),
        ("benchmarks.schwefel(p)", [30.0, -70.0, 110.0]),
        ("benchmarks.h1(p)", [8.0, 6.0]),
        ("benchmarks.kursawe(p)", [0.3, -0.7, 1.1]),
    ),
    package(
        "opfunu 1.0.4",
        """
        from opfunu import name_based
        """,
        ("name_based.Ackley01(ndim=3).evaluate(p)", [0.3, -0.7, 1.1]),
        ("name_based.Alpine02(ndim=2).evaluate(p)", [3.3, 7.7]),
        ("name_based.Hartmann3(ndim=3).evaluate(p)", [0.3, 0.7, 0.1]),
        ("name_based.Branin01(ndim=2).evaluate(p)", [0.3, 0.7]),
        ("name_based.Griewank(ndim=3).evaluate(p)", [30.0, -7.0, 11.0]),
    ),
    package(
        "SALib 1.6.0",
        """
        from SALib.analyze import sobol
        from SALib.test_functions import Ishigami, Sobol_G
        X = np.random.default_rng(0).uniform(0.1, 0.9, size=(6, 3))
        """,
        ("Ishigami.evaluate(p.reshape(2, 3))", [0.3, -0.7, 1.1, 0.6, 0.2, -1.0]),
        ("Sobol_G.evaluate(p.reshape(2, 3), a=np.array([0.0, 1.0, 4.5]))", [0.3, 0.7, 0.1, 0.6, 0.2, 0.9]),
        ("sobol.first_order(p[:4], p[4:8], p[8:])", "rng.normal(size=12)"),
        ("sobol.total_order(p[:4], p[4:8], p[8:])", "rng.normal(size=12)"),
        ("Ishigami.evaluate(X, A=p[0], B=p[1])", [7.0, 0.1]),
    ),
    package(
        "dtaidistance 2.5.1",
        """
        from dtaidistance import dtw, ed
        from dtaidistance.dtw_barycenter import dba
        y = np.array([0.0, 1.0, 2.0, 0.5, 0.0, 1.3])
        """,
        ("dtw.distance(p, y)", [0.1, 0.3, 1.2, 2.2, 0.4]),
        ("dtw.warping_paths(p, y)[0]", [0.1, 0.3, 1.2, 2.2, 0.4]),
        ("ed.distance(p, y)", [0.1, 0.3, 1.2, 2.2, 0.4, 0.9]),
        ("dtw.lb_keogh(p, y, window=2)", [0.1, 1.3, 2.7, 2.2, 0.4, 0.9]),
        ("dtw.distance(p, y, window=3, penalty=0.1)", [0.1, 0.3, 1.2, 2.2, 0.4]),
    ),
    package(
        "nashpy 0.0.43",
        """
        import nashpy as nash
        from nashpy.learning.replicator_dynamics import get_derivative_of_fitness
        A = np.array([[1.0, -1.0], [-1.0, 1.0]])
        """,
        ("nash.Game(p.reshape(2, 2), -A)[np.array([0.3, 0.7]), np.array([0.6, 0.4])]", [1.0, 0.5, 2.0, -1.0]),
        ("nash.Game(A)[p[:2], p[2:]]", [0.3, 0.7, 0.6, 0.4]),
        (
            "nash.Game(np.array([[3.0, 2.0], [4.0, 1.0]])).replicator_dynamics(y0=p, timepoints=np.linspace(0, 1, 5))",
            [0.3, 0.7],
        ),
        ("get_derivative_of_fitness(p, 0.0, A + 2 * np.eye(2))", [0.3, 0.7]),
        ("nash.Game(p.reshape(2, 2)).linear_program()[0]", [1.0, -0.5, -2.0, 1.0]),
    ),
    package(
        "numdifftools 0.11.2",
        """
        import numdifftools as nd
        from numdifftools.extrapolation import Richardson, convolve, dea3
        """,
        ("nd.Derivative(np.exp)(p)", [0.5, 1.0]),
        ("nd.Gradient(lambda x: np.sum(x**3))(p)", [0.5, 1.0]),
        ("nd.directionaldiff(lambda x: x[0] ** 2 * x[1], p, [1.0, 2.0])", [0.5, 1.0]),
        ("dea3(p[0], p[1], p[2])[0]", [0.5, 0.8, 0.9]),
        ("nd.Hessian(lambda x: np.sum(x**3))(p)", [0.5, 1.0]),
    ),
    package(
        "uncertainties 3.2.3",
        """
        from uncertainties import correlated_values, ufloat, umath, unumpy
        """,
        ("(ufloat(p[0], p[1]) * ufloat(2.0, 0.1)).std_dev", [1.0, 0.2]),
        ("umath.sin(ufloat(p[0], p[1])).nominal_value", [1.0, 0.2]),
        ("unumpy.nominal_values(unumpy.uarray(p, 0.1 * np.ones(3)) ** 2)", [1.0, 0.2, 0.5]),
        ("unumpy.std_devs(np.sin(1.0) * unumpy.uarray([1.0, 2.0], p))", [0.1, 0.2]),
        (
            """
            x, y = correlated_values([1.0, 2.0], np.array([[p[0], 0.1], [0.1, p[1]]]))
            return (x * y).std_dev
            """,
            [0.5, 0.7],
        ),
    ),
    package(
        "pint 0.25.3",
        """
        import pint
        ureg = pint.UnitRegistry()
        """,
        ("(p * ureg.meter).to('inch').magnitude", [1.0, 2.5]),
        ("(ureg.Quantity(p[0], 'km') / ureg.Quantity(p[1], 'hour')).to_base_units().magnitude", [1.0, 2.5]),
        ("np.sin(ureg.Quantity(p, 'degree')).magnitude", [10.0, 25.0]),
        ("ureg.Quantity(p, 'degC').to('kelvin').magnitude", [10.0, 25.0]),
        (
            "np.sum(ureg.Quantity(p, 'J') * ureg.Quantity(np.array([1.0, 3.0]), '1/s')).to('W').m",
            [10.0, 25.0],
        ),
    ),
    package(
        "sympy 1.14.0",
        """
        import sympy as sp
        x, y = sp.symbols('x y')
        """,
        ("sp.lambdify((x, y), sp.sin(x * y) + x**2)(p[0], p[1])", [0.5, 2.0]),
        ("sp.lambdify(x, sp.integrate(x * sp.exp(-x), x))(p)", [0.5, 2.0]),
        ("sp.lambdify((x, y), sp.Matrix([[sp.cos(x), -y], [y, sp.exp(x)]]).inv())(p[0], p[1])", [0.5, 2.0]),
        ("sp.lambdify(x, sp.Piecewise((x**2, x < 1), (2 * x - 1, True)))(p)", [0.5, 2.0]),
        ("sp.lambdify(x, sp.besselj(0, x) + sp.erf(x), modules=['scipy', 'numpy'])(p)", [0.5, 2.0]),
    ),
    package(
        "networkx 3.6.1",
        """
        import networkx as nx
        G = nx.cycle_graph(4)
        edges = list(G.edges)
        def weighted(p):
            H = nx.Graph()
            for (a, b), w in zip(edges, p):
                H.add_edge(a, b, weight=w)
            return H
        """,
        (
            "nx.from_numpy_array(p.reshape(3, 3)).size(weight='weight')",
            [0.5, 1.0, 2.0, 1.0, 0.7, 3.0, 2.0, 3.0, 0.4],
        ),
        ("nx.to_numpy_array(weighted(p))", [1.0, 2.0, 3.0, 0.5]),
        ("nx.laplacian_matrix(weighted(p)).toarray()", [1.0, 2.0, 3.0, 0.5]),
        ("nx.dijkstra_path_length(weighted(p), 0, 2)", [1.0, 2.0, 3.0, 0.5]),
        ("list(nx.pagerank(weighted(p)).values())", [1.0, 2.0, 3.0, 0.5]),
    ),
    package(
        "pandas 3.1.1",
        """
        import pandas as pd
        """,
        ("pd.Series(p).mean()", [1.0, 2.0, 3.5]),
        ("pd.Series(p).rolling(2).sum().to_numpy()[1:]", [1.0, 2.0, 3.5]),
        ("pd.DataFrame({'a': p, 'b': [1.0, 2.0, 3.0]}).corr().to_numpy()", [1.0, 2.0, 3.5]),
        ("pd.Series([1.0, 2.0, 3.0]).dot(p)", [1.0, 2.0, 3.5]),
        ("pd.Series(p).ewm(alpha=0.5).mean().to_numpy()", [1.0, 2.0, 3.5]),
    ),
    package(
        "xarray 2026.9.0",
        """
        import xarray as xr
        data = xr.DataArray(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]]), dims=('x', 'y'))
        """,
        ("xr.DataArray(p, dims='x').mean().values", [1.0, 2.0, 3.5]),
        ("(xr.DataArray(p, dims='y') * data).sum('y').data", [1.0, 2.0, 3.5]),
        ("xr.dot(xr.DataArray(p, dims='y'), data, dim='y').data", [1.0, 2.0, 3.5]),
        ("xr.DataArray(p, dims='x', coords={'x': [0.0, 1.0, 2.0]}).diff('x').data", [1.0, 2.0, 3.5]),
        ("np.sin(xr.DataArray(p, dims='x')).std('x').data", [1.0, 2.0, 3.5]),
    ),
    package(
        "mpmath 1.3.0",
        """
        import mpmath
        """,
        ("mpmath.fp.gamma(p[0])", [2.5]),
        ("mpmath.fp.sin(p[0]) * mpmath.fp.exp(p[1])", [2.5, 0.3]),
        ("mpmath.fp.hyp2f1(p[0], 1.0, 2.0, 0.3)", [0.5]),
        ("mpmath.fp.polyval([1.0, 2.0, 3.0], p[0])", [0.5]),
        ("float(mpmath.quad(lambda t: mpmath.exp(-p[0] * t), [0, 1]))", [0.5]),
    ),
    package(
        "chaospy 4.3.21",
        """
        import chaospy
        q0, q1 = chaospy.variable(2)
        normal = chaospy.Normal(0.5, 1.2)
        """,
        ("normal.pdf(p)", [0.1, 0.7]),
        ("normal.cdf(p)", [0.1, 0.7]),
        ("normal.inv(p)", [0.1, 0.7]),
        ("chaospy.Gamma(2.0, 1.0).pdf(p)", [0.5, 1.7]),
        ("(q0**2 + q0 * q1)(p[0], p[1])", [0.1, 0.7]),
    ),
    package(
        "scikit-fuzzy 0.5.0",
        """
        import skfuzzy as fuzz
        x = np.linspace(0, 10, 21)
        """,
        ("fuzz.gaussmf(x, p[0], p[1])", [5.0, 1.5]),
        ("fuzz.gbellmf(x, p[0], p[1], p[2])", [2.0, 3.0, 5.0]),
        ("fuzz.trimf(x, [p[0], p[1], p[2]])", [1.1, 4.2, 8.3]),
        ("fuzz.defuzz(x, p, 'centroid')", "rng.uniform(0.1, 1, size=21)"),
        ("fuzz.sigmf(x, p[0], p[1])", [5.0, 1.5]),
    ),
    package(
        "bottleneck 1.6.0",
        """
        import bottleneck as bn
        gaps = np.array([0.0, np.nan, 0.0, 0.0, np.nan, 0.0, 0.0, 0.0])
        """,
        ("bn.nanmean(p + gaps)", "rng.normal(size=8)"),
        ("bn.nanstd((p + gaps).reshape(2, 4), axis=1, ddof=1)", "rng.normal(size=8)"),
        ("bn.move_mean(p + gaps, window=3, min_count=1)", "rng.normal(size=8)"),
        ("bn.nanmedian((p + gaps).reshape(2, 4), axis=0)", "rng.normal(size=8)"),
        ("bn.push(p + gaps) * bn.rankdata(p)", "rng.normal(size=8)"),
    ),
    package(
        "einops 0.8.1",
        """
        from einops import einsum, pack, rearrange, reduce, repeat
        other = np.arange(6.0).reshape(3, 2)
        """,
        ("rearrange(p.reshape(2, 3, 2), 'b h w -> h (b w)')", "rng.normal(size=12)"),
        ("reduce(p.reshape(4, 6), '(h 2) (w 3) -> h w', 'mean')", "rng.normal(size=24)"),
        ("repeat(p, 'k -> k c', c=3) * np.arange(3.0)", "rng.normal(size=4)"),
        ("einsum(p.reshape(4, 3), other, 'i k, k j -> i j')", "rng.normal(size=12)"),
        ("pack([p[:6].reshape(2, 3), p[6:]], 'b *')[0]", "rng.normal(size=8)"),
    ),
    package(
        "pymcdm 1.4.0",
        """
        from pymcdm import methods, normalizations, weights
        kinds = np.array([1, -1, 1])
        """,
        ("methods.TOPSIS()(p.reshape(3, 3), np.array([0.5, 0.3, 0.2]), kinds)", "rng.uniform(1, 2, 9)"),
        ("methods.WSM()(p.reshape(3, 3), np.array([0.5, 0.3, 0.2]), kinds)", "rng.uniform(1, 2, 9)"),
        ("weights.entropy_weights(p.reshape(3, 3))", "rng.uniform(1, 2, 9)"),
        ("methods.MOORA()(p.reshape(3, 3), np.array([0.5, 0.3, 0.2]), kinds)", "rng.uniform(1, 2, 9)"),
        ("weights.standard_deviation_weights(p.reshape(3, 3))", "rng.uniform(1, 2, 9)"),
    ),
    package(
        "pysindy 2.1.0",
        """
        import pysindy as ps
        t = np.linspace(0.0, 1.0, 10)
        """,
        ("ps.FiniteDifference(order=2)._differentiate(p.reshape(10, 2), t)", "rng.normal(size=20)"),
        (
            "ps.SmoothedFiniteDifference(smoother_kws=dict(window_length=5))._differentiate(p.reshape(10, 2), t)",
            "rng.normal(size=20)",
        ),
        ("ps.PolynomialLibrary(degree=2).fit_transform(p.reshape(10, 2))", "rng.normal(size=20)"),
        ("ps.FourierLibrary(n_frequencies=2).fit_transform(p.reshape(10, 2))", "rng.normal(size=20)"),
        ("ps.SpectralDerivative()._differentiate(p.reshape(10, 2), t)", "rng.normal(size=20)"),
    ),
    package(
        "MiniSom 2.3.6",
        """
        from minisom import MiniSom
        som = MiniSom(3, 3, 2, sigma=0.8, learning_rate=0.5, random_seed=1)
        data = np.random.default_rng(0).normal(size=(8, 2))
        """,
        ("som.activate(p)", [0.4, -0.2]),
        ("MiniSom(3, 3, 2, activation_distance='cosine', random_seed=1).activate(p)", [0.4, -0.2]),
        ("som.quantization_error(p.reshape(4, 2))", "rng.normal(size=8)"),
        ("som.distance_map(scaling='sum') * p", [1.0, 0.5, 2.0]),
        (
            """
            som = MiniSom(3, 3, 2, sigma=0.8, learning_rate=0.5, random_seed=1)
            for k in range(3):
                som.update(p, som.winner(p), k, 3)
            return som.get_weights()
            """,
            [0.4, -0.2],
        ),
    ),
    package(
        "findiff 0.16.0",
        """
        from findiff import Diff, FinDiff, Gradient, Laplacian, coefficients
        x = np.linspace(0, 1, 20)
        """,
        ("FinDiff(0, x[1] - x[0], 1, acc=4)(p)", "rng.normal(size=20)"),
        ("FinDiff(0, x**2 + x, 2)(p)", "rng.normal(size=20)"),
        ("Diff(0, x[1] - x[0])(p)", "rng.normal(size=20)"),
        ("Laplacian(h=[0.1, 0.1])(p.reshape(6, 6))", "rng.normal(size=36)"),
        ("Gradient(h=[0.1, 0.2])(p.reshape(6, 6))", "rng.normal(size=36)"),
    ),
    package(
        "csaps 1.3.3",
        """
        from csaps import CubicSmoothingSpline, csaps
        x = np.linspace(-5.0, 5.0, 12)
        xi = np.linspace(-4.5, 4.5, 9)
        """,
        ("csaps(x, p, xi, smooth=0.85)", "rng.normal(size=12)"),
        ("csaps(x, np.sin(x), p, smooth=0.85)", [-4.2, 0.3, 2.9]),
        ("csaps(x, p.reshape(2, 12), xi, smooth=0.9)", "rng.normal(size=24)"),
        ("CubicSmoothingSpline(x, p, smooth=0.5, weights=np.arange(1.0, 13.0))(xi)", "rng.normal(size=12)"),
        ("CubicSmoothingSpline(x, p, smooth=0.5).spline(xi, nu=1)", "rng.normal(size=12)"),
    ),
    package(
        "unyt 3.2.0",
        """
        import unyt
        from unyt import unyt_array, unyt_quantity
        """,
        ("(p * unyt.km).to('m').value", [1.0, 2.5]),
        ("(unyt_quantity(p[0], 'kg') * unyt_quantity(p[1], 'm/s**2')).to('N').value", [2.0, 9.81]),
        ("np.sqrt(unyt_array(p, 'm**2')).to('cm').d", [1.0, 2.5]),
        ("(unyt_array(p, 'degC') - unyt_array([1.0, 2.0], 'degC')).value", [20.0, 35.0]),
        ("(0.5 * unyt_quantity(3.0, 'g') * (p * unyt.cm / unyt.s) ** 2).sum().in_base('mks').v", [3.0, 4.0]),
    ),
    package(
        "pylops 2.8.0",
        """
        import pylops
        from pylops.avo.avo import zoeppritz_pp
        from pylops.optimization.basic import cgls
        from pylops.utils.wavelets import ricker
        A = np.random.default_rng(0).normal(size=(8, 5))
        """,
        ("pylops.MatrixMult(A) @ p", "rng.normal(size=5)"),
        ("pylops.FirstDerivative(12, sampling=0.5) * p", "rng.normal(size=12)"),
        (
            "pylops.signalprocessing.Convolve1D(12, h=np.array([1.0, 2.0, 1.0]), offset=1) @ p",
            "rng.normal(size=12)",
        ),
        (
            "pylops.CausalIntegration(12, sampling=0.1).H @ (pylops.Diagonal(np.arange(1.0, 13.0)) @ p)",
            "rng.normal(size=12)",
        ),
        ("cgls(pylops.MatrixMult(A), p, x0=np.zeros(5), niter=5)[0]", "rng.normal(size=8)"),
    ),
]
