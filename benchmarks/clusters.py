"""Gradients over 10 million rows on two local workers: ``python -P benchmarks/clusters.py [ROWS]``.

Without ``-P`` Dask would take ``benchmarks/sparse.py`` for the package sparse.

Prints the time of a step, and how much more it is than the work of the partitions, divided by the workers.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

import gradtape as gt

WORKERS, COLUMNS, CLUSTERS = 2, 10, 5


def logistic(params: Any, data: Any) -> Any:
    """Return the negative log-likelihood of a logistic regression; the first column holds the classes."""
    y, x = data[:, 0] > 0, data[:, 1:]
    z = x @ params["w"] + params["b"]
    return np.sum(np.logaddexp(0.0, z) - y * z)


def mixture(params: Any, data: Any) -> Any:
    """Return the negative log-likelihood of a mixture of Gaussians with diagonal covariances."""
    scaled = (data[:, None, :] - params["means"]) * np.exp(-params["log_scales"])
    logs = params["logits"] - np.sum(params["log_scales"], 1) - 0.5 * np.sum(scaled**2, 2)
    highest = np.max(logs, 1, keepdims=True)
    total = highest[:, 0] + np.log(np.sum(np.exp(logs - highest), 1))
    return -np.sum(total) + len(data) * np.log(np.sum(np.exp(params["logits"])))


def main() -> None:
    """Print a table."""
    rows = int(float(sys.argv[1])) if sys.argv[1:] else 10_000_000
    rng = np.random.default_rng(0)
    works = {
        "logistic regression": (logistic, {"w": np.zeros(COLUMNS - 1), "b": 0.0}),
        "Gaussian mixture": (
            mixture,
            {
                "means": rng.normal(size=(CLUSTERS, COLUMNS)),
                "log_scales": np.zeros((CLUSTERS, COLUMNS)),
                "logits": np.zeros(CLUSTERS),
            },
        ),
    }
    print(
        f"{'work':<20} {'partitions':>10} {'step':>8} {'parts / workers':>16} {'overhead':>9}   (ms, median of 7)"
    )
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        for chunks in (40, 8):
            data = (
                da.random.default_rng(0)
                .normal(size=(rows, COLUMNS), chunks=(rows // chunks, COLUMNS))
                .persist()
            )
            wait(data)
            for name, (function, params) in works.items():
                both = gt.dask.value_and_grad(function)
                both(params, data)
                local = client.gather(
                    client.map(_alone, [(function, params)] * WORKERS, [rows // chunks] * WORKERS, pure=False)
                )
                alone = chunks / WORKERS * statistics.median(local)
                steps = []
                for _ in range(7):
                    begin = time.perf_counter()
                    both(params, data)
                    steps.append(time.perf_counter() - begin)
                step = statistics.median(steps)
                print(
                    f"{name:<20} {chunks:>10} {1e3 * step:>8.0f} {1e3 * alone:>16.0f} {100 * (step / alone - 1):>8.1f}%"
                )


def _alone(work: Any, rows: int) -> float:
    """Return the time that the gradient of one partition takes on a worker, while the others do the same."""
    function, params = work
    block = np.random.default_rng(0).normal(size=(rows, COLUMNS))
    both = gt.value_and_grad(function, argnums=0)
    both(params, block)
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        both(params, block)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


if __name__ == "__main__":
    main()
