"""Price options by Monte Carlo and get their Greeks in the same run: a Python loop over the days, differentiated by gradtape.

    python examples/greeks.py
    python examples/greeks.py --paths 200000 --days 60

The underlying follows a geometric Brownian motion. The European call is compared with the formula of F. Black and M. Scholes (1973);
for the Asian call, whose payoff depends on the mean over the days, there is no formula. The derivatives are those of each path
(M. Broadie and P. Glasserman, "Estimating security price derivatives using simulation", 1996).
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr

import gradtape as gt

NAMES = ("delta", "vega", "rho", "theta")
MARKET = (100.0, 0.2, 0.05, 1.0)  # spot, volatility, rate, years
STRIKE = 105.0


def paths(
    spot: float, volatility: float, rate: float, years: float, normals: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The price at the end, and its mean over the days, of each path; `normals` has a row per day."""
    day = years / len(normals)
    price = spot * np.ones(normals.shape[1])
    total = np.zeros(normals.shape[1])
    for normal in normals:
        price = price * np.exp((rate - volatility**2 / 2) * day + volatility * np.sqrt(day) * normal)
        total = total + price
    return price, total / len(normals)


def european(spot: float, volatility: float, rate: float, years: float, normals: np.ndarray) -> float:
    end, _ = paths(spot, volatility, rate, years, normals)
    return np.exp(-rate * years) * np.mean(np.maximum(end - STRIKE, 0))


def asian(spot: float, volatility: float, rate: float, years: float, normals: np.ndarray) -> float:
    _, mean = paths(spot, volatility, rate, years, normals)
    return np.exp(-rate * years) * np.mean(np.maximum(mean - STRIKE, 0))


def black_scholes(spot: float, volatility: float, rate: float, years: float) -> float:
    spread = volatility * np.sqrt(years)
    d = (np.log(spot / STRIKE) + rate * years) / spread + spread / 2
    return spot * ndtr(d) - STRIKE * np.exp(-rate * years) * ndtr(d - spread)


def batches(
    payoff: Callable[..., float], count: int, draw: Callable[[], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Price and Greeks, and their standard errors, from independent batches of paths."""
    priced = gt.value_and_grad(payoff, argnums=(0, 1, 2, 3))
    rows = []
    for _ in range(count):
        price, (delta, vega, rho, decay) = priced(*MARKET, draw())
        rows.append([price, delta, vega, rho, -decay])  # theta is the derivative with respect to elapsed time
    return np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / np.sqrt(count)


def main() -> None:
    parser = argparse.ArgumentParser(description="Greeks by Monte Carlo with gradients from gradtape.")
    parser.add_argument("--paths", type=int, default=40_000, help="in all (40000)")
    parser.add_argument("--days", type=int, default=252, help="steps of each path (252)")
    parser.add_argument("--batches", type=int, default=20, help="for the standard errors (20)")
    options = parser.parse_args()
    half = options.paths // options.batches // 2
    if half < 1 or options.days < 1 or options.batches < 2:
        parser.error("--days must be at least 1, --batches 2, and --paths two for each batch")

    price, (delta, vega, rho, decay) = gt.value_and_grad(black_scholes, argnums=(0, 1, 2, 3))(*MARKET)
    exact = [price, delta, vega, rho, -decay]
    for title, payoff, known in (("European call", european, exact), ("Asian call", asian, None)):
        generator = np.random.default_rng(0)

        def draw(generator: np.random.Generator = generator) -> np.ndarray:
            normals = generator.standard_normal((options.days, half))
            return np.concatenate([normals, -normals], axis=1)  # antithetic paths

        begin = time.perf_counter()
        means, errors = batches(payoff, options.batches, draw)
        print(f"{title}: {2 * half * options.batches} paths in {time.perf_counter() - begin:.2f} s")
        for place, name in enumerate(("price", *NAMES)):
            formula = "" if known is None else f"   Black-Scholes {known[place]:9.4f}"
            print(f"  {name:6} {means[place]:9.4f} +- {errors[place]:.4f}{formula}")


if __name__ == "__main__":
    main()
