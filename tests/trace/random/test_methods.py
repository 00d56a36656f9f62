"""Every method of NumPy's generators: the numbers and states of NumPy, and derivatives against differences with the same seed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import GradtapeWarning, UnsupportedFunctionError
from gradtape.trace.random.generators import NOT_DRAWS
from gradtape.trace.random.samplers import DISCRETE

KINDS = {"Generator": np.random.default_rng, "RandomState": np.random.RandomState}

C = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 0.7]])
PROBABILITIES = np.array([0.2, 0.5, 0.3])
ROWS = np.array([0.8, 1.9, 3.4])


class Trial(NamedTuple):
    """A call of a method with parameters that are traced, and that are differentiated in unless the numbers are discrete.

    Attributes
    ----------
    parameters : tuple
        By position.
    named : dict
        Further arguments.
    second : bool
        Whether second derivatives are tested.
    """

    parameters: tuple[Any, ...]
    named: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it
    second: bool = True


LOCATED = (Trial((0.4, 1.3), {"size": 4}), Trial((np.array([0.4, -1.0]), 1.3)), Trial((0.3, 1.2)))
SHAPED = (Trial((1.7,), {"size": 4}), Trial((ROWS,), {"size": (2, 3)}), Trial((2.3,)))
TRIALS: dict[str, tuple[Trial, ...]] = {
    "normal": (*LOCATED, Trial((0.5,), {"size": 3})),
    "uniform": LOCATED,
    "laplace": LOCATED,
    "gumbel": LOCATED,
    "logistic": LOCATED,
    "lognormal": LOCATED,
    "exponential": SHAPED,
    "rayleigh": SHAPED,
    "weibull": SHAPED,
    "pareto": SHAPED,
    "power": SHAPED,
    "triangular": (Trial((-1.0, 0.3, 2.0), {"size": 9}),),
    "standard_gamma": (*SHAPED, Trial((0.3,), {"size": 4})),
    "gamma": (Trial((1.7, 0.8), {"size": 4}), Trial((ROWS, 1.5))),
    "chisquare": SHAPED,
    "beta": (Trial((1.7, 0.8), {"size": 4}), Trial((ROWS, 2.5))),
    "f": (Trial((3.0, 5.0), {"size": 4}), Trial((ROWS + 1.0, 4.5))),
    "standard_t": (Trial((3.0,), {"size": 4}), Trial((ROWS,))),
    "dirichlet": (Trial((ROWS,), {"size": 4}), Trial((ROWS / 100.0,), {"size": 4}, False), Trial((ROWS,))),
    "wald": (Trial((1.3, 0.8), {"size": 5}), Trial((ROWS, 2.0))),
    "vonmises": (Trial((0.3, 1.8), {"size": 5}),),
    "noncentral_chisquare": (Trial((3.0, 1.2), {"size": 4}, False),),
    "noncentral_f": (Trial((3.0, 7.0, 1.2), {"size": 3}, False),),
    "multivariate_normal": (Trial((ROWS, C), {"size": 4}), Trial((ROWS, C))),
    "binomial": (Trial((9, 0.3), {"size": 4}),),
    "choice": (Trial((ROWS,), {"size": 5}), Trial((ROWS,)), Trial((3, 5, True, PROBABILITIES))),
    "geometric": (Trial((0.3,), {"size": 4}),),
    "hypergeometric": (Trial((9, 5, 4), {"size": 4}),),
    "integers": (Trial((3, 9), {"size": 4}), Trial((3,))),
    "logseries": (Trial((0.4,), {"size": 4}),),
    "multinomial": (Trial((9, PROBABILITIES), {"size": 4}),),
    "multivariate_hypergeometric": (Trial((np.array([5, 3, 7]), 4), {"size": 4}),),
    "negative_binomial": (Trial((4.0, 0.3), {"size": 4}),),
    "permutation": (Trial((ROWS,)), Trial((C,))),
    "permuted": (Trial((C,)), Trial((C,), {"axis": 1})),
    "poisson": (Trial((ROWS,)), Trial((2.5,), {"size": 4})),
    "randint": (Trial((3, 9), {"size": 4}),),
    "random_integers": (),
    "shuffle": (),
    "zipf": (Trial((2.5,), {"size": 4}),),
}
"""Traced calls."""

CONSTANT: dict[str, tuple[Trial, ...]] = {
    "random": (Trial((3,)), Trial(())),
    "standard_normal": (Trial((3,)), Trial(())),
    "standard_exponential": (Trial((3,)),),
    "standard_cauchy": (Trial((3,)),),
    "random_sample": (Trial((3,)),),
    "rand": (Trial((2, 3)),),
    "randn": (Trial((2, 3)),),
    "seed": (),
}
"""Calls of methods without parameters that could be traced."""

PASSED_THROUGH = {"choice", "permutation", "permuted"}
"""Methods that return elements of their argument: the derivatives are those of the elements."""


def methods(kind: str) -> list[str]:
    made = type(KINDS[kind](0))
    return [name for name in vars(made) if not name.startswith("_") and callable(vars(made)[name])]


ALL = [(kind, name) for kind in KINDS for name in methods(kind) if name not in NOT_DRAWS]


def test_the_table_is_complete() -> None:
    missing = {name for _, name in ALL} - TRIALS.keys() - CONSTANT.keys()
    assert not missing, f"methods without trials: {missing}"


def state(rng: Any) -> str:
    return str(
        rng.bit_generator.state if isinstance(rng, np.random.Generator) else rng.get_state(legacy=False)
    )


def traced_places(name: str, trial: Trial) -> tuple[int, ...]:
    """Return the positions of float parameters; integers and shapes stay as they are."""
    return tuple(k for k, x in enumerate(trial.parameters) if np.asarray(x).dtype.kind == "f")


TRACED = [
    pytest.param(kind, name, trial, id=f"{kind}-{name}-{number}")
    for kind, name in ALL
    for number, trial in enumerate(TRIALS.get(name, ())[: 4 if kind == "Generator" else 1])
]

OTHER_FORMULAS = {"pareto", "power", "dirichlet", "multivariate_normal"}
"""Methods of `RandomState` that are not those of `Generator` with other noise."""

DIFFERENTIATED = [
    pytest.param(kind, name, trial, id=f"{kind}-{name}-{number}")
    for kind, name in ALL
    if name not in DISCRETE - PASSED_THROUGH and (kind == "Generator" or name in OTHER_FORMULAS)
    for number, trial in enumerate(TRIALS.get(name, ())[:2])
]


@pytest.mark.parametrize(("kind", "name", "trial"), TRACED)
@pytest.mark.filterwarnings("ignore:.*draws from a distribution with a watched parameter")
def test_numbers_are_those_of_numpy(kind: str, name: str, trial: Trial) -> None:
    rng, plain = KINDS[kind](3), KINDS[kind](3)

    def call(source: Any, *parameters: Any) -> Any:
        return getattr(source, name)(*parameters, **trial.named)

    parameters = [x if isinstance(x, bool | int) else np.asarray(x)[()] for x in trial.parameters]
    compiled = gt.jit(
        lambda *given: call(rng, *given),
        static_argnums=tuple(
            k for k, x in enumerate(parameters) if type(x) in (bool, int) and name == "choice"
        ),
    )
    for _ in range(2):
        expected = call(plain, *parameters)
        np.testing.assert_allclose(compiled(*parameters), expected, rtol=1e-13, atol=1e-15)
        assert state(rng) == state(plain)
    with gt.GradientTape():
        found = call(rng, *[gt.constant(x) if np.asarray(x).dtype.kind == "f" else x for x in parameters])
    np.testing.assert_allclose(found, call(plain, *parameters), rtol=1e-13, atol=1e-15)
    assert state(rng) == state(plain)


@pytest.mark.parametrize(("kind", "name", "trial"), DIFFERENTIATED)
def test_derivatives_are_differences_with_the_same_seed(kind: str, name: str, trial: Trial) -> None:
    places = traced_places(name, trial)
    if name in PASSED_THROUGH and places != (0,):
        return
    rng = KINDS[kind](5)

    def loss(source: Any, *moved: Any) -> Any:
        given = list(trial.parameters)
        for place, x in zip(places, moved, strict=True):
            given[place] = x
        drawn = getattr(source, name)(*given, **trial.named)
        weights = np.cos(1.7 * np.arange(np.size(drawn)) + 0.4).reshape(np.shape(drawn))
        return np.sum(weights * np.sin(drawn))

    start = [np.asarray(trial.parameters[place]) for place in places]
    direction = [np.cos(2.0 * np.arange(x.size) + k).reshape(x.shape) for k, x in enumerate(start)]
    if name == "multivariate_normal":
        direction[1] = 0.5 * (direction[1] + direction[1].T)

    def at(h: float) -> float:
        return float(loss(KINDS[kind](5), *[x + h * d for x, d in zip(start, direction, strict=True)]))

    gradients = gt.grad(lambda *moved: loss(rng, *moved), argnums=tuple(range(len(places))))(*start)
    slope = sum(np.sum(g * d) for g, d in zip(gradients, direction, strict=True))
    # The numbers of samplers by rejection jump for some parameters nearby: the quantiles do not, see test_samples.py.
    if name in SMOOTH:
        h = 1e-4
        expected = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
        assert np.isclose(slope, expected, rtol=1e-7, atol=1e-8)
    tape_rng = KINDS[kind](5)
    with gt.GradientTape() as tape:
        watched = [tape.watch(x) for x in start]
        value = loss(tape_rng, *watched)
    pulled = tape.gradient(value, watched)
    assert np.isclose(sum(np.sum(np.asarray(g) * d) for g, d in zip(pulled, direction, strict=True)), slope)


SMOOTH = PASSED_THROUGH | {
    *("normal", "uniform", "laplace", "gumbel", "logistic", "lognormal", "exponential", "rayleigh"),
    *("weibull", "pareto", "power", "triangular", "multivariate_normal"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CONSTANT)
def test_methods_without_parameters(kind: str, name: str) -> None:
    rng, plain = KINDS[kind](3), KINDS[kind](3)
    if not hasattr(rng, name):
        return
    for trial in CONSTANT[name]:
        compiled = gt.jit(lambda x, trial=trial: x * getattr(rng, name)(*trial.parameters))
        for _ in range(2):
            np.testing.assert_array_equal(compiled(2.0), 2.0 * getattr(plain, name)(*trial.parameters))
            assert state(rng) == state(plain)


@pytest.mark.parametrize("name", sorted(NOT_DRAWS))
def test_what_is_no_draw_is_refused(name: str) -> None:
    for kind in KINDS:
        rng = KINDS[kind](3)
        if hasattr(rng, name):
            with pytest.raises(UnsupportedFunctionError, match=name):
                gt.jit(lambda x, rng=rng: (getattr(rng, name)(), x)[1])(1.0)


def test_discrete_draws_warn_where_a_derivative_misses_them() -> None:
    rng = np.random.default_rng(0)
    with pytest.warns(GradtapeWarning, match=r"Generator\.poisson .* the derivative does not see it"):
        assert gt.grad(lambda lam: lam * rng.poisson(lam, 3).sum())(2.0) > 0
    compiled = gt.jit(lambda lam: lam * rng.poisson(lam, 3).sum())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(2.0)
    for function in (compiled, lambda lam: lam * rng.poisson(lam, 3).sum()):
        with gt.GradientTape() as tape, pytest.warns(GradtapeWarning, match="poisson"):
            lam = tape.watch(np.float64(2.0))
            function(lam)


def test_shuffle_of_a_traced_array() -> None:
    rng, plain = np.random.default_rng(0), np.random.default_rng(0)

    def shuffled(x: Any, source: Any) -> Any:
        y = x * 2.0
        source.shuffle(y)
        return y

    np.testing.assert_array_equal(gt.jit(lambda x: shuffled(x, rng))(ROWS), shuffled(ROWS, plain))
    assert state(rng) == state(plain)


def test_equal_eigenvalues_keep_expectations_right() -> None:
    """The variance of a sum of two numbers moves with their covariance, also where the matrix is a multiple of the identity."""
    rng = np.random.default_rng(0)

    def second_moment(c: Any) -> Any:
        cov = np.stack([np.stack([1.0, c]), np.stack([c, 1.0])])
        x = rng.multivariate_normal(np.zeros(2), cov, 20_000)
        return np.mean(x[:, 0] * x[:, 1])

    assert np.isclose(gt.grad(second_moment)(0.0), 1.0, atol=0.05)


def second_derivatives(function: Callable[..., Any]) -> Any:
    return gt.grad(gt.grad(function))


@pytest.mark.parametrize("name", ["gamma", "beta", "standard_t", "wald"])
def test_second_derivatives_of_samples_are_those_of_expectations(name: str) -> None:
    """The mean of x**2 has a second derivative in a parameter that is known."""
    rng = np.random.default_rng(1)
    calls: dict[str, tuple[Callable[[Any], Any], float, float]] = {
        "gamma": (lambda a: rng.gamma(a, 1.0, 4000) ** 2, 3.0, 2.0),  # a + a**2
        "beta": (lambda a: rng.beta(a, 2.0, 4000), 3.0, -4.0 / 125.0),  # a / (a + 2)
        "standard_t": (lambda df: rng.standard_t(df, 4000) ** 2, 12.0, 4.0 / 1000.0),  # df / (df - 2)
        "wald": (lambda m: rng.wald(m, 9.0, 4000) ** 2, 1.0, 2.0 + 6.0 / 9.0),  # m**2 + m**3 / scale
    }
    call, at, expected = calls[name]
    found = second_derivatives(lambda p: np.mean(call(p)))(at)
    assert np.isclose(found, expected, rtol=0.1, atol=0.005)


def test_keyword_arguments_of_the_name_method() -> None:
    def draw(generator: Any, x: Any) -> Any:
        normal = generator.multivariate_normal(np.array([x, 0.0]), C[:2, :2], method="cholesky")
        return normal, generator.standard_exponential(3, method="inv")

    traced, plain = np.random.default_rng(3), np.random.default_rng(3)
    for got, expected in zip(gt.jit(lambda x: draw(traced, x))(0.3), draw(plain, 0.3), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["f4", "F", "i2"])
@pytest.mark.parametrize("method", ["choice", "permutation", "permuted", "shuffle"])
def test_elements_keep_their_dtype(method: str, dtype: str) -> None:
    def function(x: Any) -> Any:
        rng = np.random.default_rng(3)
        if method == "shuffle":
            x = x * x.dtype.type(1)
            rng.shuffle(x)
            return x
        return getattr(rng, method)(x)

    x = np.arange(6).astype(dtype)
    results = [gt.jit(function)(x)]
    if x.dtype.kind != "i":
        with gt.GradientTape() as tape:
            results.append(function(tape.watch(x)))
    for found in results:
        np.testing.assert_array_equal(found, function(x))
        assert found.dtype == x.dtype
