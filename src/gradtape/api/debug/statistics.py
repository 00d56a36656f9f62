"""Statistics of gradients over many steps: at which ops they vanish, explode, or are zero."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from gradtape.api.debug.cotangents import Arrival, arrivals
from gradtape.api.debug.unrolled import compute_op_by_op
from gradtape.api.pictures.svg import short_place
from gradtape.api.transforms.jit import running_recorded
from gradtape.errors import ArgumentError
from gradtape.ir.graph import Value
from gradtape.kinds.control import Barrier, Custom
from gradtape.trace.jit.guards import trace_of
from gradtape.trace.source.sites import user_site
from gradtape.transforms.observers import OBSERVERS, Observer, Sweep

MEASURES: Final = ("norm", "mean", "zeros", "nonfinite")
COLUMNS: Final = ("op", "shape", "steps", "norm", "mean |g|", "zeros", "non-finite", "norm over time")
BLOCKS: Final = "▁▂▃▄▅▆▇█"
SPARK_WIDTH: Final = 16
LEGEND_LINES: Final = 14
SHOWN_ROWS: Final = 60
SMALL, LARGE = 1e-6, 1e6


@dataclass(slots=True)
class OpStatistics:
    """Statistics of the gradients at the results of one op, step by step.

    Attributes
    ----------
    label : str
        The name that the user gave the value, or the op and its line.
    shape : tuple of int
        Of the gradient.
    steps : list of int
        The steps with a gradient.
    norm : list of float
        Euclidean norms.
    mean : list of float
        Means of the absolute values.
    zeros, nonfinite : list of float
        Shares of the elements.
    """

    label: str
    shape: tuple[int, ...]
    steps: list[int] = field(default_factory=list)
    norm: list[float] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    zeros: list[float] = field(default_factory=list)
    nonfinite: list[float] = field(default_factory=list)

    def add(self, step: int, gradient: np.ndarray[Any, Any]) -> None:
        """Measure one gradient."""
        size = max(gradient.size, 1)
        magnitude = np.abs(gradient).astype(np.float64)
        with np.errstate(all="ignore"):
            largest = float(np.max(magnitude, initial=0.0))
            # Scaled, since squares overflow where an exploding gradient itself does not yet.
            scaled = magnitude / largest if 0.0 < largest < np.inf else magnitude
            norm = float(np.sqrt(np.sum(scaled**2))) * (largest if 0.0 < largest < np.inf else 1.0)
            mean = float(np.sum(magnitude / size))
        self.steps.append(step)
        self.norm.append(norm)
        self.mean.append(mean)
        self.zeros.append(int(np.sum(magnitude == 0)) / size)
        self.nonfinite.append(int(np.sum(~np.isfinite(magnitude))) / size)

    def verdict(self) -> str:
        """Return "not finite", "dead" (all zeros), "vanishing", "exploding", or an empty text."""
        norm = self.norm[-1]
        if self.nonfinite[-1]:
            return "not finite"
        if self.zeros[-1] == 1.0:
            return "dead"
        return "vanishing" if norm < SMALL else "exploding" if norm > LARGE else ""


class GradientStatistics(Observer):
    """Statistics of gradients per op and step. Made by `gradient_statistics`.

    Attributes
    ----------
    rows : list of OpStatistics
        One per op, in the order of computation, from the sources to the target. A line that runs several times in one step, or in a
        loop, has one for each time.
    steps : int
        The number of gradients that were taken.
    """

    def __init__(self) -> None:
        self._rows: dict[Any, OpStatistics] = {}
        self._pending: list[tuple[int, list[tuple[Any, str, Value]]]] = []
        self._steps = 0

    @property
    def steps(self) -> int:
        return self._steps

    @property
    def rows(self) -> list[OpStatistics]:
        self._measure()
        return list(self._rows.values())

    def see(self, sweep: Sweep) -> None:
        self._measure()
        counts: dict[Any, int] = {}
        sources = {source: k for k, source in enumerate(sweep.sources)}
        if any(trace_of(cotangent.value) is not None for _, cotangent in sweep.arrived()):
            return
        found = []
        for arrival in arrivals(sweep, lambda node: True):
            if arrival.value.node is not None and isinstance(arrival.value.node.op, Barrier):
                continue
            key, label = _identity(arrival, sources.get(arrival.value))
            count = counts[key] = counts.get(key, -1) + 1
            suffix = f" #{count}" if count else ""
            found.append(((key, count), label + suffix, arrival.cotangent.applied()))
        self._pending.append((self._steps, found))
        self._steps += 1

    def _measure(self) -> None:
        """Measure pending gradients. They are computed op by op: unrolled iterations are too large to be compiled.

        This is done when the statistics are read, or at the next step: then the user's gradient is known, and much is computed already.
        """
        for step, found in self._pending:
            compute_op_by_op([gradient for _, _, gradient in found])
            for key, label, gradient in found:
                assert gradient.data is not None
                self._rows.setdefault(key, OpStatistics(label, gradient.shape)).add(step, gradient.data)
        self._pending.clear()

    def _table(self) -> list[tuple[str, ...]]:
        """Return the rows as texts; of many rows only the first and the last."""
        rows = self.rows
        if len(rows) <= SHOWN_ROWS:
            return list(map(_texts, rows))
        half = SHOWN_ROWS // 2
        between = f"... {len(rows) - 2 * half} more rows ..."
        return [*map(_texts, rows[:half]), (between, *[""] * (len(COLUMNS) - 1)), *map(_texts, rows[-half:])]

    def __repr__(self) -> str:
        lines = [COLUMNS, *self._table()]
        widths = [max(len(line[k]) for line in lines) for k in range(len(COLUMNS))]
        drawn = [
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        head = f"gradients of {self.steps} steps, from the sources to the target; numbers of the last step"
        return "\n".join([head, drawn[0], "─" * len(drawn[0]), *drawn[1:]])

    def _repr_html_(self) -> str:
        cell = "padding:.15em .7em;text-align:left;border-bottom:1px solid rgba(127,127,127,.25);font-variant-numeric:tabular-nums"
        head = "".join(f"<th style='{cell};opacity:.7'>{html.escape(title)}</th>" for title in COLUMNS)
        body = "".join(
            "<tr>" + "".join(f"<td style='{cell}'>{html.escape(text)}</td>" for text in line) + "</tr>"
            for line in self._table()
        )
        caption = f"<caption style='text-align:left;opacity:.7'>gradients of {self.steps} steps</caption>"
        return f"<table style='color:inherit;font:inherit;border-collapse:collapse'>{caption}<tr>{head}</tr>{body}</table>"

    def plot(self, measure: str = "norm", *, match: str = "", axes: Any = None) -> Any:
        """Plot a measure of each op over the steps.

        Parameters
        ----------
        measure : {"norm", "mean", "zeros", "nonfinite"}
            What to plot; norms and means on a logarithmic axis.
        match : str
            A regular expression: only rows whose label it matches from the beginning. By default all.
        axes : matplotlib.axes.Axes, optional
            Where to; by default a new figure.

        Returns
        -------
        matplotlib.axes.Axes
        """
        if measure not in MEASURES:
            raise ArgumentError(
                f"plot: unknown measure {measure!r}",
                where=user_site(),
                remedy=f"choose one of {', '.join(MEASURES)}",
            )
        import matplotlib.pyplot as plt

        rows = [row for row in self.rows if re.match(match, row.label)]
        if axes is None:
            _, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
        colours = plt.get_cmap("viridis")(np.linspace(0.0, 0.92, max(len(rows), 2)))
        every = max(1, -(-len(rows) // LEGEND_LINES))
        for number, (row, colour) in enumerate(zip(rows, colours, strict=False)):
            numbers = np.array(getattr(row, measure))
            axes.plot(
                row.steps,
                numbers,
                label="_" if number % every else row.label,
                color=colour,
                marker="o",
                markersize=2.5,
                linewidth=1.2,
            )
            bad = ~np.isfinite(numbers)
            if bad.any():
                axes.plot(np.array(row.steps)[bad], np.full(int(bad.sum()), 1.0), "x", color="crimson")
        if measure in ("norm", "mean") and any(np.any(np.array(getattr(row, measure)) > 0) for row in rows):
            axes.set_yscale("log")
        titles = {
            "norm": "norm",
            "mean": "mean of |gradient|",
            "zeros": "share of zeros",
            "nonfinite": "share of non-finite",
        }
        axes.set(
            xlabel="step",
            ylabel=titles[measure],
            title="Gradients on their way, from the sources (dark) to the target",
        )
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.25)
        if rows:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small", frameon=False)
        return axes


@contextmanager
def gradient_statistics() -> Iterator[GradientStatistics]:
    """Collect statistics of the gradients at all intermediate values inside a `with` block.

    Every gradient that is taken, by a tape or by a jitted function, is a step. For each op the statistics have the norm of the gradient
    at its result, the mean of the absolute values, and the shares of zeros and of non-finite elements. Ops in a `gradtape.scan` or
    another loop have a row for each iteration. Inside the block, jitted functions run op by op. Jacobians with more than one row are
    not observed.

    Returns
    -------
    context manager of GradientStatistics
        Prints as a table; `plot` draws it over the steps.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> slope = gt.grad(lambda x: np.sum(np.tanh(x) ** 2))
    >>> with gt.debug.gradient_statistics() as statistics:
    ...     for scale in (1.0, 10.0):
    ...         g = slope(np.full(3, scale))
    >>> statistics.steps
    2
    >>> [row.verdict() for row in statistics.rows][0]
    'vanishing'
    """
    statistics = GradientStatistics()
    OBSERVERS.add(statistics)
    try:
        with running_recorded():
            yield statistics
    finally:
        OBSERVERS.discard(statistics)


def sparkline(numbers: list[float]) -> str:
    """Return positive numbers as a line of blocks, on a logarithmic scale of at least a decade; "!" for non-finite numbers.

    Examples
    --------
    >>> sparkline([1.0, 10.0, 100.0, float("nan")])
    '▁▅█!'
    """
    shown = numbers[:: max(1, -(-len(numbers) // SPARK_WIDTH))]
    with np.errstate(all="ignore"):
        levels = np.log10(np.array(shown))
    finite = levels[np.isfinite(levels)]
    if not finite.size:
        return "".join("!" if not np.isfinite(number) else BLOCKS[0] for number in shown)
    low, span = float(finite.min()), max(float(np.ptp(finite)), 1.0)
    return "".join(
        "!"
        if not np.isfinite(number)
        else BLOCKS[round(7 * max(0.0, (level - low) / span))]
        if number
        else BLOCKS[0]
        for number, level in zip(shown, levels, strict=True)
    )


def _texts(row: OpStatistics) -> tuple[str, ...]:
    return (
        row.label,
        " x ".join(map(str, row.shape)) or "scalar",
        str(len(row.steps)),
        f"{row.norm[-1]:.2e}",
        f"{row.mean[-1]:.2e}",
        f"{row.zeros[-1]:.0%}",
        f"{row.nonfinite[-1]:.0%}",
        f"{sparkline(row.norm)} {row.verdict()}".rstrip(),
    )


def _identity(arrival: Arrival, source: int | None) -> tuple[Any, str]:
    """Return the key of a value, which is the same in each step, and its label."""
    value = arrival.value
    if source is not None:
        return ("source", source), value.name or f"source {source}"
    suffix = "".join(f", iteration {iteration}" for _, iteration in arrival.iterations)
    if value.name is not None:
        return (value.name, suffix), value.name + suffix
    if value.node is None:
        return ("input", value.shape), "input"
    node = value.node
    site, name = node.site, node.params["rule"].name if isinstance(node.op, Custom) else node.op.name
    if site is None:
        return (name, value.index, suffix), name + suffix
    return (name, site.filename, site.line, value.index, suffix), f"{name} {short_place(site)}{suffix}"
