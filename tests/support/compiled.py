"""Compiled functions: their graphs, and a program that many passes change."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Graph
from gradtape.trace.lazy import force, gradient_cache


def graph_of(jitted: Any, *args: Any) -> Graph:
    """Return the graph that a compiled function has recorded for some arguments."""
    jitted(*args)
    made = jitted.site.specialisations()
    graph: Graph = made[-1].graph
    return graph


def mixture(mu: Any, q: Any, x: Any) -> Any:
    """The log-likelihood of points `x` (n, d) under K Gaussians; the points lie along the last axis of every intermediate."""
    scaled = q @ (x.T - mu[:, :, None])
    energy = -0.5 * np.sum(scaled**2, axis=1)
    top = np.max(energy, axis=0)
    return np.sum(top + np.log(np.sum(np.exp(energy - top), axis=0)))


def forget_structures() -> None:
    """Forget which regions have been met, so that numbers are literals again where they were inputs."""
    for table in (force._structures, force._programs, force._plans):
        table.clear()
    for other in (gradient_cache._structures, gradient_cache._templates):
        other.clear()
