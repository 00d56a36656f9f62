"""Convolutions and filters: what gradtape takes for a value and for a gradient, in units of SciPy's own call.

SciPy and gradtape take turns in one process, on one thread; a figure is the median of the ratios of neighbouring runs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import report
import scipy.ndimage as nd
import scipy.signal

import gradtape as gt

COLUMNS = ("function", "arrays", "SciPy us", "value / SciPy", "gradient / SciPy", "error")
RNG = np.random.default_rng(0)
SIGNAL, LONG = RNG.normal(size=10_000), RNG.normal(size=100_000)
IMAGE = RNG.normal(size=(256, 256))
TAPS, PLATE = RNG.normal(size=64), RNG.normal(size=(7, 7))
B, A = scipy.signal.butter(4, 0.2)
SOS = scipy.signal.butter(6, 0.2, output="sos")
PLACES = RNG.uniform(2, 250, (2, 20_000))


class Work(NamedTuple):
    """A call of SciPy's, and the arrays that it is differentiated in."""

    function: Callable[..., Any]
    arrays: Sequence[Any]


WORKS = {
    "convolve": Work(lambda x, w: scipy.signal.convolve(x, w, method="direct"), (SIGNAL, TAPS)),
    "convolve2d": Work(lambda x, w: scipy.signal.convolve2d(x, w, "same"), (IMAGE, PLATE)),
    "fftconvolve": Work(lambda x, w: scipy.signal.fftconvolve(x, w), (LONG, SIGNAL)),
    "fftconvolve 2d": Work(lambda x, w: scipy.signal.fftconvolve(x, w, "same"), (IMAGE, IMAGE[:64, :64])),
    "correlate": Work(lambda x, w: scipy.signal.correlate(x, w, "valid", "direct"), (SIGNAL, TAPS)),
    "lfilter": Work(lambda x: scipy.signal.lfilter(B, A, x), (LONG,)),
    "lfilter of coefficients": Work(lambda b, a: scipy.signal.lfilter(b, a, LONG), (B, A)),
    "lfilter of rows": Work(lambda x: scipy.signal.lfilter(B, A, x), (IMAGE,)),
    "sosfilt": Work(lambda x: scipy.signal.sosfilt(SOS, x), (LONG,)),
    "filtfilt": Work(lambda x: scipy.signal.filtfilt(B, A, x), (LONG,)),
    "savgol_filter": Work(lambda x: scipy.signal.savgol_filter(x, 15, 3), (LONG,)),
    "welch": Work(lambda x: scipy.signal.welch(x, nperseg=256)[1], (LONG,)),
    "stft": Work(lambda x: np.abs(scipy.signal.stft(x, nperseg=256)[2]) ** 2, (LONG,)),
    "resample_poly": Work(lambda x: scipy.signal.resample_poly(x, 3, 2), (LONG,)),
    "ndimage.gaussian_filter": Work(lambda x: nd.gaussian_filter(x, 2.0), (IMAGE,)),
    "ndimage.correlate": Work(lambda x, w: nd.correlate(x, w), (IMAGE, PLATE)),
    "ndimage.uniform_filter": Work(lambda x: nd.uniform_filter(x, 9), (IMAGE,)),
    "ndimage.maximum_filter": Work(lambda x: nd.maximum_filter(x, 5), (IMAGE,)),
    "ndimage.median_filter": Work(lambda x: nd.median_filter(x, 3), (IMAGE,)),
    "ndimage.map_coordinates": Work(lambda x, p: nd.map_coordinates(x, p), (IMAGE, PLACES)),
    "ndimage.map_coordinates linear": Work(lambda x, p: nd.map_coordinates(x, p, order=1), (IMAGE, PLACES)),
}


def measure(name: str, rounds: int) -> list[str]:
    """Return the line of a work."""
    work = WORKS[name]

    def total(*arrays: Any) -> Any:
        return np.sum(work.function(*arrays))

    value = gt.jit(work.function)
    gradient = gt.grad(total, argnums=tuple(range(len(work.arrays))))
    calls = (work.function, value, gradient)
    expected = np.asarray(work.function(*work.arrays))
    error = float(np.max(np.abs(np.asarray(value(*work.arrays)) - expected)) / np.max(np.abs(expected)))
    for call in calls:
        call(*work.arrays)
    seconds: list[list[float]] = [[], [], []]
    for _ in range(rounds):
        for call, found in zip(calls, seconds, strict=True):
            begun = time.perf_counter()
            call(*work.arrays)
            found.append(time.perf_counter() - begun)
    plain, ours, slopes = (statistics.median(found) for found in seconds)
    shapes = ", ".join("x".join(map(str, np.shape(array))) for array in work.arrays)
    figures = f"{plain * 1e6:.0f}", f"{ours / plain:.2f}", f"{slopes / plain:.2f}", f"{error:.0e}"
    return [name, shapes, *figures]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--works", default=",".join(WORKS), help="names, with commas between them")
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    print(report.table(COLUMNS, 2, [measure(name, options.rounds) for name in options.works.split(",")]))


if __name__ == "__main__":
    main()
