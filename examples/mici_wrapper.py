"""Markov chains with mici and gradtape: densities and constraints are written in NumPy, gradtape computes their derivatives.

    pip install gradtape mici
    python examples/mici_wrapper.py
    python examples/mici_wrapper.py --samples 2000

The first model is a logistic regression. The second one is a density on a torus, the set of points where a constraint is zero.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import gradtape as gt

try:
    import mici
except ImportError:
    sys.exit("This example needs mici: pip install mici")

Function = Callable[..., Any]


def of_density(neg_log_dens: Function) -> dict[str, Function]:
    """The arguments of mici's systems that are derivatives of a density: gradient, Hessian, and product with third derivatives."""
    value_and_gradient = gt.value_and_grad(neg_log_dens)
    hessian = gt.hessian(neg_log_dens)
    third = gt.grad(lambda q, m: np.sum(m * hessian(q)))

    def gradient(q: np.ndarray) -> Any:
        return value_and_gradient(q)[::-1]

    return {
        "grad_neg_log_dens": gradient,
        "hess_neg_log_dens": lambda q: (hessian(q), *gradient(q)),
        "mtp_neg_log_dens": lambda q: (lambda m: third(q, m), hessian(q), *gradient(q)),
    }


def of_constraints(constr: Function) -> dict[str, Function]:
    """The arguments of mici's systems that are derivatives of constraints: Jacobian, and product with second derivatives."""
    jacobian, value = gt.jacobian(constr), gt.jit(constr)
    second = gt.grad(lambda q, m: np.sum(m * jacobian(q)))
    return {
        "jacob_constr": lambda q: (jacobian(q), value(q)),
        "mhp_constr": lambda q: (lambda m: second(q, m), jacobian(q), value(q)),
    }


def regression(samples: int) -> None:
    """Sample the weights of a logistic regression, and compare their mean with the weights behind the data."""
    rng = np.random.default_rng(0)
    weights = np.array([1.0, -2.0, 0.5])
    features = rng.standard_normal((500, 3))
    labels = rng.uniform(size=500) < 1.0 / (1.0 + np.exp(-features @ weights))

    def neg_log_dens(q: np.ndarray) -> float:
        scores = features @ q
        return np.sum(np.logaddexp(0.0, scores)) - np.sum(scores[labels]) + 0.5 * np.sum(q**2) / 25.0

    *_, traces, statistics = mici.sample_hmc_chains(
        n_warm_up_iter=samples // 2,
        n_main_iter=samples,
        init_states=rng.standard_normal((1, 3)),
        neg_log_dens=neg_log_dens,
        backend=None,
        seed=rng,
        trace_funcs=[lambda state: {"weights": state.pos}],
        display_progress=False,
        grad_neg_log_dens=of_density(neg_log_dens)["grad_neg_log_dens"],
    )
    print(f"regression: mean acceptance {statistics['accept_stat'][0].mean():.2f}")
    mean, spread = traces["weights"][0].mean(0), traces["weights"][0].std(0)
    for truth, center, deviation in zip(weights, mean, spread, strict=True):
        print(f"    weight {center:7.3f} +- {deviation:.3f}   (truth {truth})")


def torus(samples: int) -> None:
    """Sample points on a torus uniformly, and compare the mean distance from its axis with the exact one."""
    large, small = 1.0, 0.5

    def constr(q: np.ndarray) -> np.ndarray:
        return np.array([(np.hypot(q[0], q[1]) - large) ** 2 + q[2] ** 2 - small**2])

    def neg_log_dens(q: np.ndarray) -> float:
        return 0.0 * np.sum(q)

    *_, traces, statistics = mici.sample_constrained_hmc_chains(
        n_warm_up_iter=samples // 2,
        n_main_iter=samples,
        init_states=np.array([[large + small, 0.0, 0.0]]),
        neg_log_dens=neg_log_dens,
        constr=constr,
        backend=None,
        seed=np.random.default_rng(1),
        trace_funcs=[lambda state: {"position": state.pos}],
        display_progress=False,
        grad_neg_log_dens=of_density(neg_log_dens)["grad_neg_log_dens"],
        **of_constraints(constr),
    )
    points = traces["position"][0]
    print(f"torus: mean acceptance {statistics['accept_stat'][0].mean():.2f}")
    print(f"    largest violation of the constraint {max(abs(constr(q)[0]) for q in points):.1e}")
    distance = np.hypot(points[:, 0], points[:, 1])
    print(
        f"    mean distance from the axis {distance.mean():.3f}   (exact {large + small**2 / (2 * large):.3f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Sample with mici and derivatives from gradtape.")
    parser.add_argument("--samples", type=int, default=200, help="of each chain (200)")
    options = parser.parse_args()
    if options.samples < 10:
        parser.error("--samples must be at least 10")
    regression(options.samples)
    torus(options.samples)


if __name__ == "__main__":
    main()
