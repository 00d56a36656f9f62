"""Gradients over 10 million rows on two local workers: ``python benchmarks/clusters.py [ROWS]``.

Prints the time of a step, and how much more it is than the work of the partitions: their gradients, which each worker computes one after
the other for those that it holds, while the other one does the same; the sum of both is divided by the workers. Steps and this work take
turns. `slowest` is the worker that takes longer: no step is shorter.
"""

from __future__ import annotations

import statistics
import sys
import time
import uuid
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

import gradtape as gt
from gradtape.api.clusters.placement import placement

WORKERS, COLUMNS, CLUSTERS, ROUNDS = 2, 10, 5, 15


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
        f"{'work':<20} {'partitions':>10} {'step':>8} {'parts / workers':>16} {'slowest':>8} {'overhead':>9}   (ms, median of {ROUNDS})"
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
                held = placement([[part] for part in data.to_delayed().ravel()])
                assert held is not None  # all partitions are in memory
                steps, alone, slowest = [], [], []
                for number in range(ROUNDS + 1):
                    begin = time.perf_counter()
                    both(params, data)
                    steps.append(time.perf_counter() - begin)
                    work = (name, function, params)
                    waiting = held.submit(_alone, f"alone-{uuid.uuid4()}", [work] * len(held.shares))
                    seconds = client.gather(waiting)
                    alone.append(sum(seconds) / WORKERS)
                    slowest.append(max(seconds))
                    if not number:  # compiles
                        steps, alone, slowest = [], [], []
                ratio = statistics.median([a / b for a, b in zip(steps, alone, strict=True)])
                step, mine, last = map(statistics.median, (steps, alone, slowest))
                print(
                    f"{name:<20} {chunks:>10} {1e3 * step:>8.0f} {1e3 * mine:>16.0f} {1e3 * last:>8.0f} {100 * (ratio - 1):>8.1f}%",
                    flush=True,
                )


def _alone(work: Any, *blocks: Any) -> float:
    """Return the time of the gradients of the partitions that a worker holds."""
    name, function, params = work
    # A function of __main__ arrives anew with each task, and has no module that could keep what it compiles.
    made: dict[str, Any] = sys.__dict__.setdefault("gradients_of_clusters", {})
    both = made.setdefault(name, gt.value_and_grad(function, argnums=0))
    begin = time.perf_counter()
    for block in blocks:
        both(params, block)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
