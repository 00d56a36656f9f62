"""Which parts decide how strong a transistor amplifier is? Sensitivities of a differential-algebraic equation to fifteen parts.

    python examples/amplifier.py
    python examples/amplifier.py --tolerance 0.1 --plot band.png

Two transistors and eight nodes: M y' = f(t, y), where the matrix M of the five capacitors has rank 5. It is problem II-1 of F. Mazzia,
C. Magherini, "Test Set for Initial Value Problem Solvers", 2008 (E. Hairer, G. Wanner, "Solving Ordinary Differential Equations II").
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import gradtape as gt

NAMES = ("source", *[f"R{k}" for k in range(1, 10)], *[f"C{k}" for k in range(1, 6)])
PARTS = np.array([1000.0, *[9000.0] * 9, *[k * 1e-6 for k in range(1, 6)]])  # ohms, farads
SUPPLY, FREQUENCY, END, ALPHA = 6.0, 100.0, 0.2, 0.99  # volts, hertz, seconds
TIMES = np.linspace(END - 2 / FREQUENCY, END, 121)
REFERENCE = 1.2369958680915  # the output at the end, from the test set


def capacitances(parts):
    """The mass matrix: each capacitor connects two nodes, or a node and the ground."""
    c, matrix = -parts[10:], np.zeros((8, 8))
    for k, node in ((0, 0), (2, 3), (4, 6)):
        matrix[node, node] = matrix[node + 1, node + 1] = c[k]
        matrix[node, node + 1] = matrix[node + 1, node] = -c[k]
    matrix[2, 2], matrix[5, 5] = c[1], c[3]
    return matrix


def currents(t, y, r):
    """The current out of each node, without that through the capacitors."""
    first, second = (1e-6 * (np.exp((y[k] - y[k + 1]) / 0.026) - 1) for k in (1, 4))
    return [
        (y[0] - 0.1 * np.sin(2 * np.pi * FREQUENCY * t)) / r[0],
        (y[1] - SUPPLY) / r[2] + y[1] / r[1] + (1 - ALPHA) * first,
        y[2] / r[3] - first,
        (y[3] - SUPPLY) / r[4] + ALPHA * first,
        (y[4] - SUPPLY) / r[6] + y[4] / r[5] + (1 - ALPHA) * second,
        y[5] / r[7] - second,
        (y[6] - SUPPLY) / r[8] + ALPHA * second,
        y[7] / r[9],
    ]


def output(parts):
    """The voltage at the output in the last two periods."""
    one, two = (SUPPLY / (parts[k + 1] / parts[k] + 1) for k in (1, 5))
    options = {"t_eval": TIMES, "mass_matrix": capacitances(parts), "rtol": 1e-7, "atol": 1e-7}
    start = [0.0, one, one, SUPPLY, two, two, SUPPLY, 0.0]
    return gt.scipy.solve_ivp(currents, (0.0, END), start, args=(parts,), **options).y[7]


def plot(voltage, spread, tolerance, path):
    """The output, and its band if all parts have this tolerance."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        sys.exit("--plot needs matplotlib: pip install matplotlib")
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes, milliseconds, label = figure.subplots(), 1e3 * TIMES, f"parts within {100 * tolerance:g} %"
    low, high = voltage - 2 * spread, voltage + 2 * spread
    axes.plot(milliseconds, np.sin(2 * np.pi * FREQUENCY * TIMES), "--", color="0.6", label="input, times 10")
    axes.plot(milliseconds, voltage, color="#0072B2", label="output")
    axes.fill_between(milliseconds, low, high, color="#0072B2", alpha=0.25, linewidth=0, label=label)
    axes.set(xlabel="milliseconds", ylabel="volts")
    figure.legend(frameon=False, loc="outside upper center", ncols=3)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description="Sensitivities of a transistor amplifier with gradtape.")
    parser.add_argument("--tolerance", type=float, default=0.05, help="of parts, two deviations (0.05)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the output with its band")
    options = parser.parse_args()
    if not 0.001 <= options.tolerance <= 0.2:
        parser.error("--tolerance must be at least 0.001 and at most 0.2: the band is linear in the parts")

    begin = time.perf_counter()
    voltage, slopes = gt.jit(lambda p: (output(p), gt.jacfwd(output)(p)))(PARTS)
    print(f"output and slopes in {len(PARTS)} parts: {time.perf_counter() - begin:.1f} s with compilation")
    print(f"output at the end {voltage[-1]:.7f} (reference {REFERENCE:.7f})")
    high, low = voltage.argmax(), voltage.argmin()
    shares = (slopes[high] - slopes[low]) * PARTS / (voltage[high] - voltage[low])
    print(f"from peak to peak {voltage[high] - voltage[low]:.3f} V, by one percent more of")
    for k in np.argsort(-np.abs(shares))[:6]:
        print(f"  {NAMES[k]:6} {shares[k]:+.3f} %")
    spread = np.sqrt((slopes * PARTS * options.tolerance / 2) ** 2 @ np.ones(len(PARTS)))
    print(f"standard deviation of the output: at most {spread.max():.3f} V")
    if options.plot:
        plot(voltage, spread, options.tolerance, options.plot)


if __name__ == "__main__":
    main()
