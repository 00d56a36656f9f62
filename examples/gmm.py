"""Fit a mixture of Gaussians: the log posterior in plain NumPy, its gradient with gradtape, the fit with SciPy.

    python examples/gmm.py
    python examples/gmm.py --plot fit.png

Objective, data and expected results are those of the ADBench suite: see data/README.md.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from gmm_data import DATA, Mixture, Wishart, load, relative_errors
from scipy.cluster.vq import kmeans2
from scipy.optimize import OptimizeResult, minimize
from scipy.special import multigammaln

import gradtape as gt

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None

TOLERANCE = 1e-10


def triangular(q: np.ndarray, lower: np.ndarray) -> np.ndarray:
    k, d = q.shape
    columns, rows = np.triu_indices(d, 1)
    factors = np.zeros((k, d, d), like=q)
    factors[:, rows, columns] = lower
    factors[:, range(d), range(d)] = np.exp(q)
    return factors


def logsumexp(terms: np.ndarray) -> np.ndarray:
    top = np.max(terms, axis=0)
    return top + np.log(np.sum(np.exp(terms - top), axis=0))


def log_prior(q: np.ndarray, lower: np.ndarray, prior: Wishart) -> float:
    k, d = q.shape
    v = d + prior.m + 1
    normaliser = v * d * np.log(prior.gamma / np.sqrt(2)) - multigammaln(v / 2, d)
    squares = np.sum(np.exp(q) ** 2) + np.sum(lower**2)
    return k * normaliser - 0.5 * prior.gamma**2 * squares + prior.m * np.sum(q)


def log_posterior(mixture: Mixture, points: np.ndarray, prior: Wishart) -> float:
    alpha, mu, q, lower = mixture
    d = points.shape[1]
    scaled = triangular(q, lower) @ (points.T - mu[:, :, np.newaxis])
    log_weights = alpha - logsumexp(alpha) + np.sum(q, axis=1) - d / 2 * np.log(2 * np.pi)
    log_densities = logsumexp(log_weights[:, np.newaxis] - 0.5 * np.sum(scaled**2, axis=1))
    return np.sum(log_densities) + log_prior(q, lower, prior)


value_and_gradient = gt.value_and_grad(log_posterior)


def say(what: str, text: str) -> None:
    print(f"{what:20}{text}")


def rate(function: Callable[[], object], seconds: float = 0.5) -> float:
    """Calls per second."""
    calls, start = 0, time.perf_counter()
    while not calls or time.perf_counter() - start < seconds:
        function()
        calls += 1
    return calls / (time.perf_counter() - start)


def fit(start: Mixture, points: np.ndarray, prior: Wishart, iterations: int) -> tuple[Mixture, float]:
    """Maximise the log posterior."""
    ends = np.cumsum([block.size for block in start])[:-1]
    bar = tqdm(total=iterations, desc="fit") if tqdm else None
    history: list[float] = []

    def unpack(theta: np.ndarray) -> Mixture:
        blocks = zip(np.split(theta, ends), start, strict=True)
        return Mixture(*(block.reshape(old.shape) for block, old in blocks))

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = value_and_gradient(unpack(theta), points, prior)
        return -value, -np.concatenate([block.ravel() for block in gradient])

    def show(intermediate_result: OptimizeResult) -> None:
        history.append(-intermediate_result.fun)
        if bar:
            bar.set_postfix_str(f"log posterior {history[-1]:.2f}", refresh=False)
            bar.update()
        elif len(history) % 20 == 0:
            say("fit", f"iteration {len(history)}: log posterior {history[-1]:.2f}")

    theta = np.concatenate([block.ravel() for block in start])
    options = {"maxiter": iterations, "maxfun": 2 * iterations}
    best = minimize(objective, theta, jac=True, method="L-BFGS-B", callback=show, options=options)
    if bar:
        bar.close()
    return unpack(best.x), -best.fun


def plot(mixtures: dict[str, Mixture], points: np.ndarray, path: Path) -> None:
    """Points, and each component's weight and ellipses of one and two standard deviations."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        sys.exit("--plot needs matplotlib: pip install matplotlib")
    angles = np.linspace(0, 2 * np.pi, 200)
    circle = np.array([np.cos(angles), np.sin(angles)])
    figure = Figure(figsize=(11, 5.5), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, (title, mixture) in zip(panels, mixtures.items(), strict=True):
        axes.set(title=title, aspect="equal")
        axes.scatter(*points.T, s=4, color="0.7")
        weights = np.exp(mixture.alpha - logsumexp(mixture.alpha))
        outlines = np.linalg.solve(triangular(mixture.q, mixture.lower), circle)
        for i, (weight, centre, outline) in enumerate(zip(weights, mixture.mu, outlines, strict=True)):
            axes.annotate(f"{weight:.2f}", centre, color=f"C{i}", ha="center", va="center", weight="bold")
            for sigmas in (1, 2):
                axes.plot(*(centre[:, np.newaxis] + sigmas * outline), color=f"C{i}", lw=2 / sigmas)
    figure.savefig(path, dpi=120)
    say("plot", str(path))


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit a mixture of Gaussians with gradients from gradtape.")
    parser.add_argument("--data", type=Path, help="a file in ADBench's format (one of those in data/)")
    parser.add_argument("--iterations", type=int, default=200, help="of L-BFGS-B (200)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the fit of two-dimensional data")
    options = parser.parse_args()
    path = options.data or DATA / ("gmm_d2_K5_n1000.txt" if options.plot else "gmm_d10_K25_n1000.txt")
    mixture, points, prior = load(path)
    (n, d), k, size = points.shape, len(mixture.alpha), sum(block.size for block in mixture)
    if options.plot and d != 2:
        parser.error(f"--plot draws two dimensions, {path} has {d}")

    say("data", f"{path.stem}: {n} points, {d} dimensions, {k} components, {size} parameters")
    value, gradient = value_and_gradient(mixture, points, prior)
    say("log posterior", f"{value:.10f}")
    errors = relative_errors(path.stem, value, gradient)
    say("relative errors", ", ".join(f"{name} {error:.0e}" for name, error in errors.items()) or "not known")
    if not all(error < TOLERANCE for error in errors.values()):
        sys.exit(f"The results differ from those expected by more than {TOLERANCE:.0e}.")

    say("value and gradient", f"{rate(lambda: value_and_gradient(mixture, points, prior)):.1f} calls/s")
    plain = rate(lambda: log_posterior(mixture, points, prior))
    reason = f"extrapolated: {plain:.0f} plain NumPy values/s / ({size} parameters + 1)"
    say("finite differences", f"{plain / (size + 1):.2f} calls/s, {reason}")

    centres, _ = kmeans2(points, k, minit="++", seed=0)
    spread = np.tile(-np.log(points.std(axis=0)), (k, 1))
    start = Mixture(np.zeros(k), centres, spread, np.zeros_like(mixture.lower))
    fitted, best = fit(start, points, prior, options.iterations)
    say("fit", f"log posterior {log_posterior(start, points, prior):.2f} -> {best:.2f}")
    if options.plot:
        plot({"before": start, "after": fitted}, points, options.plot)


if __name__ == "__main__":
    main()
