"""Fits of lifelines by autograd and by `gradtape.autograd`: ``python -m benchmarks.fits``.

lifelines and autograd must be installed. Each fit makes a new fitter. Times are of the processor, in milliseconds: that of the first fit
with autograd, with gradtape and an empty disk cache, and with the disk cache that this process leaves; and the median of later fits.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

FITS = 7


def fits() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of each fit, and what runs it."""
    lifelines: Any = importlib.import_module("lifelines")
    datasets: Any = importlib.import_module("lifelines.datasets")
    mice, prisoners = (
        datasets.load_waltons(),
        datasets.load_rossi()[["week", "arrest", "age", "prio", "fin"]],
    )

    def of_durations(make: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: make().fit(mice["T"], mice["E"])

    def regression(make: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: make().fit(prisoners, "week", "arrest")

    for name in ("Weibull", "Exponential", "LogNormal", "LogLogistic", "GeneralizedGamma"):
        yield name, of_durations(getattr(lifelines, f"{name}Fitter"))
    yield "PiecewiseExponential", of_durations(lambda: lifelines.PiecewiseExponentialFitter([20.0, 40.0]))
    yield "Spline", of_durations(lambda: lifelines.SplineFitter([10.0, 30.0, 60.0]))
    yield (
        "MixtureCure",
        of_durations(lambda: lifelines.MixtureCureFitter(base_fitter=lifelines.ExponentialFitter())),
    )
    for name in ("WeibullAFT", "LogNormalAFT", "LogLogisticAFT"):
        yield name, regression(getattr(lifelines, f"{name}Fitter"))
    yield (
        "GeneralizedGammaRegression",
        regression(lambda: lifelines.GeneralizedGammaRegressionFitter(penalizer=1.0)),
    )
    yield (
        "PiecewiseExponentialRegression",
        regression(lambda: lifelines.PiecewiseExponentialRegressionFitter([20.0, 40.0], penalizer=0.1)),
    )
    yield (
        "CoxPH, spline",
        regression(lambda: lifelines.CoxPHFitter(baseline_estimation_method="spline", n_baseline_knots=3)),
    )


def measure() -> None:
    """Print the first time and the median of the last ones of each fit, as JSON."""
    warnings.simplefilter("ignore")
    found = {}
    for name, fit in fits():
        times = []
        for _ in range(FITS):
            start = time.process_time()
            fit()
            times.append(1000 * (time.process_time() - start))
        found[name] = times[0], statistics.median(times[FITS // 2 :])
    print(json.dumps(found))


def main() -> None:
    if "--gradtape" in sys.argv:
        from gradtape.autograd.redirect import redirect_imports

        redirect_imports()
    if sys.argv[1:]:
        measure()
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GRADTAPE_CACHE_DIR": folder}
        tables = []
        for tool in ("--autograd", "--gradtape", "--gradtape"):
            command = [sys.executable, "-m", "benchmarks.fits", tool]
            run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            tables.append(json.loads(run.stdout.splitlines()[-1]))
    print(f"{'':32}{'autograd: first':>16}{'later':>8}{'gradtape: first':>18}{'cached':>8}{'later':>8}")
    for name in tables[0]:
        (first, later), (own_first, own_later), (cached, _) = (table[name] for table in tables)
        print(f"{name:32}{first:16.0f}{later:8.0f}{own_first:18.0f}{cached:8.0f}{own_later:8.0f}")
    ratios = [
        statistics.median(table[name][0] / tables[0][name][0] for name in table) for table in tables[1:]
    ]
    print(f"median of first fits over autograd's: {ratios[0]:.1f}, cached {ratios[1]:.1f}")


if __name__ == "__main__":
    main()
