"""The methods of `numpy.random.Generator`, which those of `RandomState` and the functions of `numpy.random` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.coverage.cases import Case, Namespace, because, call

SHAPES = np.array([0.8, 1.9, 3.4])
LOCATIONS = np.array([0.4, -1.2, 2.3])
COVARIANCE = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 0.7]])
SQUARE = np.array([[1.3, 0.4, 2.1], [0.7, 1.9, 0.2], [2.4, 0.9, 1.1]])


def seeded(name: str, *rest: Any, **named: Any) -> Callable[..., Any]:
    """Return a method of a generator that has the same seed in each call, as a function of its parameters."""

    def draw(*parameters: Any) -> Any:
        return getattr(np.random.default_rng(7), name)(*parameters, *rest, **named)

    return draw


def with_covariance(factor: Any) -> Any:
    return np.random.default_rng(7).multivariate_normal(LOCATIONS, factor @ factor.T + np.eye(3), 4)


def shuffled(x: Any) -> Any:
    y = x * 1.0
    np.random.default_rng(7).shuffle(y)
    return y


CASES: dict[str, list[Case]] = {
    **{
        name: call(seeded(name), LOCATIONS, SHAPES)
        for name in ("normal", "laplace", "gumbel", "logistic", "lognormal")
    },
    **{
        name: call(seeded(name), SHAPES) for name in ("exponential", "rayleigh", "weibull", "pareto", "power")
    },
    "uniform": call(seeded("uniform"), LOCATIONS, LOCATIONS + SHAPES),
    "triangular": call(seeded("triangular"), LOCATIONS, LOCATIONS + 0.5, LOCATIONS + 2.0),
    "multivariate_normal": call(with_covariance, SQUARE),
    "gamma": call(lambda scale: seeded("gamma")(2.5, scale), SHAPES),
    "choice": call(seeded("choice", 5), LOCATIONS),
    "permutation": call(seeded("permutation"), SQUARE),
    "permuted": call(seeded("permuted", axis=1), SQUARE),
    "shuffle": call(shuffled, LOCATIONS),
}


CONSTANT: dict[str, list[Case]] = {
    **{
        name: call(lambda x, name=name: seeded(name, 3)() + 0.0 * np.sum(np.floor(x)), 1.5)
        for name in ("random", "standard_normal", "standard_exponential", "standard_cauchy")
    },
    "integers": call(lambda x: seeded("integers", 0, 9, 3)() + np.floor(x), 1.5),
    "binomial": call(lambda x: seeded("binomial", 9, 0.3, 3)() + np.floor(x), 1.5),
    "geometric": call(lambda x: seeded("geometric", 0.3, 3)() + np.floor(x), 1.5),
    "hypergeometric": call(lambda x: seeded("hypergeometric", 9, 5, 4, 3)() + np.floor(x), 1.5),
    "logseries": call(lambda x: seeded("logseries", 0.3, 3)() + np.floor(x), 1.5),
    "multinomial": call(lambda x: seeded("multinomial", 9, [0.2, 0.5, 0.3])() + np.floor(x), 1.5),
    "multivariate_hypergeometric": call(
        lambda x: seeded("multivariate_hypergeometric", [5, 3, 7], 4)() + np.floor(x), 1.5
    ),
    "negative_binomial": call(lambda x: seeded("negative_binomial", 4.0, 0.3, 3)() + np.floor(x), 1.5),
    "poisson": call(lambda x: seeded("poisson", 2.5, 3)() + np.floor(x), 1.5),
    "zipf": call(lambda x: seeded("zipf", 2.5, 3)() + np.floor(x), 1.5),
}

REJECTING = (
    "standard_gamma chisquare beta f dirichlet standard_t wald vonmises noncentral_chisquare noncentral_f"
)
"""Samplers whose numbers jump with their parameters for a fixed seed: they follow quantiles, with which tests compare them."""

NUMPY_RANDOM = Namespace(
    "numpy.random",
    sorted(
        name for name in vars(np.random.Generator) if not name.startswith("_") and name != "bit_generator"
    ),
    CASES,
    CONSTANT,
    others=because(
        **{
            "no_numbers": "spawn bytes",
            "followed,_by_implicit_reparameterisation:_compared_with_quantiles_instead_of_differences": REJECTING,
        }
    ),
)
