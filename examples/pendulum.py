"""Calibrate a damped, driven pendulum to noisy angles: a plain Python loop of RK4 steps, its Jacobian from gradtape, the fit with SciPy.

    python examples/pendulum.py
    python examples/pendulum.py --steps 2000 --plot fit.png

The model: angle' = speed, speed' = drive - damping * speed - stiffness * sin(angle).
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from scipy.optimize import OptimizeResult, least_squares

import gradtape as gt

NAMES = ("angle", "speed", "damping", "stiffness", "drive")
TRUTH = np.array([1.0, 0.2, 0.15, 9.81, 0.3])
START = np.array([0.6, 0.0, 0.5, 8.0, 0.0])
STEP = 0.01  # seconds


def simulate(parameters: np.ndarray, steps: int) -> np.ndarray:
    """Angles after each step."""
    angle, speed, damping, stiffness, drive = parameters

    def slope(angle: float, speed: float) -> tuple[float, float]:
        return speed, drive - damping * speed - stiffness * np.sin(angle)

    angles = []
    for _ in range(steps):
        a1, s1 = slope(angle, speed)
        a2, s2 = slope(angle + STEP / 2 * a1, speed + STEP / 2 * s1)
        a3, s3 = slope(angle + STEP / 2 * a2, speed + STEP / 2 * s2)
        a4, s4 = slope(angle + STEP * a3, speed + STEP * s3)
        angle = angle + STEP / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
        speed = speed + STEP / 6 * (s1 + 2 * s2 + 2 * s3 + s4)
        angles.append(angle)
    return np.stack(angles)


simulated = gt.jit(simulate, static_argnums=1)
sensitivities = gt.jacfwd(simulated)


def calibrate(measured: np.ndarray, noise: float) -> OptimizeResult:
    """Fit all parameters and both starting values at once."""
    steps = len(measured)
    return least_squares(
        lambda p: (simulated(p, steps) - measured) / noise,
        START,
        jac=lambda p: sensitivities(p, steps) / noise,
    )


def plot(measured: np.ndarray, fitted: np.ndarray, path: Path) -> None:
    """Measured angles, and the pendulum before and after the fit."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        sys.exit("--plot needs matplotlib: pip install matplotlib")
    times = STEP * np.arange(1, len(measured) + 1)
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(times, measured, ".", ms=3, color="0.7", label="measured")
    axes.plot(times, simulated(START, len(times)), "--", label="before")
    axes.plot(times, simulated(fitted, len(times)), label="after")
    axes.set(xlabel="seconds", ylabel="angle")
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description="Calibrate a pendulum with derivatives from gradtape.")
    parser.add_argument("--steps", type=int, default=1000, help="of 0.01 seconds (1000)")
    parser.add_argument("--noise", type=float, default=0.02, help="standard deviation of the angles (0.02)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the fit")
    options = parser.parse_args()
    if options.steps < len(NAMES) or options.noise <= 0:
        parser.error(f"--steps must be at least {len(NAMES)} and --noise positive")

    noise = options.noise * np.random.default_rng(0).standard_normal(options.steps)
    measured = simulate(TRUTH, options.steps) + noise
    begin = time.perf_counter()
    result = calibrate(measured, options.noise)
    seconds = time.perf_counter() - begin
    errors = np.sqrt(np.diag(np.linalg.inv(result.jac.T @ result.jac)))
    print(f"{options.steps} steps, {result.nfev} simulations, {result.njev} Jacobians in {seconds:.2f} s")
    for name, truth, value, error in zip(NAMES, TRUTH, result.x, errors, strict=True):
        print(f"{name:10} {value:8.4f} +- {error:.4f}   (truth {truth})")
    print(f"chi squared per measurement: {2 * result.cost / options.steps:.3f}")
    if options.plot:
        plot(measured, result.x, options.plot)


if __name__ == "__main__":
    main()
