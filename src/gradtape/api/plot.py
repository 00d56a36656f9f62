"""Plots of derivatives, by Matplotlib: each function returns the axes that it draws in."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from gradtape.api.inspect.sparsity import sparsity as _sparsity
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.functional import jacobian as _jacobian
from gradtape.errors import ArgumentError, ShapeError
from gradtape.habits import answering as _answering
from gradtape.habits import suggests_keywords
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, flatten_with_none, place_of_leaf

Function = Callable[..., Any]
BAD: Final = "crimson"
"""The colour of values that are None, NaN or infinite."""
UNITS: Final = (("seconds", 1.0), ("milliseconds", 1e3), ("microseconds", 1e6))
SHORT: Final = (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9))
"""Units of time, and how many of them a second has."""


@suggests_keywords
def jacobian(function: Function, *args: Any, ax: Any = None) -> Any:
    """Draw the Jacobian of a function: results downwards, arguments to the right.

    Parameters
    ----------
    function : callable
        NumPy code with one array as its result, or nested arrays, which stand one below the other.
    *args : array_like or nests of them
        Its arguments, of floats; they stand side by side.
    ax : matplotlib.axes.Axes, optional
        Where to draw, by default a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        With a colour bar: negative elements are blue, positive ones red, and those that are not finite are crimson crosses.

    Raises
    ------
    ArgumentError
        If `function` cannot be called, or has no arguments.
    ImportError
        Without Matplotlib.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> axes = gt.plot.jacobian(lambda x: np.cumsum(np.sin(x)), np.linspace(0.0, 3.0, 8))
    >>> axes.get_title()
    'Jacobian, 8 x 8'
    """
    check_callable(function, "gt.plot.jacobian")
    if not args:
        raise ArgumentError(
            "gt.plot.jacobian got no arguments of the function",
            where=user_site(),
            remedy="pass them after the function: gt.plot.jacobian(f, x)",
        )
    sizes = [np.size(leaf) for leaf in flatten(list(args))[0]]

    def vector(*args: Any) -> Any:
        return np.concatenate([np.reshape(leaf, -1) for leaf in flatten(function(*args))[0]])

    parts = flatten(list(_jacobian(vector, argnums=tuple(range(len(args))))(*args)))[0]
    matrix = np.concatenate(
        [np.reshape(part, (-1, size)) for part, size in zip(parts, sizes, strict=True)], axis=1
    )
    ax = _axes(ax)
    finite = np.isfinite(matrix)
    largest = float(np.max(np.abs(matrix), initial=0.0, where=finite)) or 1.0
    image = ax.imshow(
        np.where(finite, matrix, 0.0),
        cmap="RdBu_r",
        vmin=-largest,
        vmax=largest,
        aspect="auto",
        interpolation="nearest",
    )
    rows, columns = np.nonzero(~finite)
    ax.plot(columns, rows, "x", color=BAD)
    for edge in np.cumsum(sizes)[:-1]:
        ax.axvline(edge - 0.5, color="k", linewidth=0.5)
    ax.figure.colorbar(image, ax=ax)
    ax.set(xlabel="argument", ylabel="result", title=f"Jacobian, {matrix.shape[0]} x {matrix.shape[1]}")
    return ax


@suggests_keywords
def sparsity(function: Function, *args: Any, ax: Any = None) -> Any:
    """Draw the sparsity pattern of a Jacobian or Hessian; elements of one colour are computed by the same product.

    Parameters
    ----------
    function : callable
        What `gradtape.sparse_jacobian` or `gradtape.sparse_hessian` returned, or a function, which stands for its sparse Jacobian.
    *args : array_like or nests of them
        The arguments of the function.
    ax : matplotlib.axes.Axes, optional
        Where to draw, by default a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        Without Matplotlib.

    See Also
    --------
    gradtape.inspect.sparsity : The same as text.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.plot.sparsity(lambda x: x[1:] * x[:-1], np.ones(6)).get_title()
    '5 x 6, 10 elements, products: 2 of columns'
    """
    return _sparsity(function, *args).plot(_axes(ax))


@suggests_keywords
def gradient_flow(gradients: Any, *, ax: Any = None) -> Any:
    """Draw the size of the gradients of nested parameters: which vanish, explode, or are missing.

    Parameters
    ----------
    gradients : nest of array_like or None
        As `gradtape.grad` or a tape returns them.
    ax : matplotlib.axes.Axes, optional
        Where to draw, by default a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        One bar for each array, on a logarithmic axis, with the mean of the absolute values and a mark at the largest. What is None, zero
        or not finite is said beside it.

    Raises
    ------
    ImportError
        Without Matplotlib.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> layers = {"first": np.array([1e-6, 2e-6]), "last": np.ones(3), "unused": None}
    >>> axes = gt.plot.gradient_flow(layers)
    >>> [label.get_text() for label in axes.get_yticklabels()]
    ["['first']", "['last']", "['unused']"]
    """
    leaves, _ = flatten_with_none(gradients)
    names = [
        place_of_leaf(gradients, number, none_is_leaf=True) or "gradient" for number in range(len(leaves))
    ]
    ax = _axes(ax)
    for number, leaf in enumerate(leaves):
        size = np.abs(np.asarray([] if leaf is None else leaf))
        finite = size[np.isfinite(size)]
        said = (
            "None"
            if leaf is None
            else f"{size.size - finite.size} of {size.size} not finite"
            if finite.size < size.size
            else "zero"
            if not finite.any()
            else ""
        )
        if finite.any():
            ax.barh(number, float(np.mean(finite)), color="C0")
            ax.plot(float(np.max(finite)), number, "|", color="C1", markersize=12)
        if said:
            ax.annotate(said, (0.01, number), xycoords=("axes fraction", "data"), va="center", color=BAD)
    ax.set_xscale("log")
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set(xlabel="mean of |gradient|; largest at the mark", title="Gradients by parameter")
    return ax


@suggests_keywords
def convergence(values: Any, *, best: float | None = None, ax: Any = None) -> Any:
    """Draw the distance of the values of an optimisation from the best one, on a logarithmic axis.

    Parameters
    ----------
    values : sequence of float, or dict of these
        The values of the objective, in the order of the iterations; a dict has one sequence for each method.
    best : float, optional
        The value at the optimum, by default the smallest of all that are finite.
    ax : matplotlib.axes.Axes, optional
        Where to draw, by default a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ShapeError
        If values are not a sequence of numbers.
    ImportError
        Without Matplotlib.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> axes = gt.plot.convergence({"gradient descent": 0.5 ** np.arange(20), "Newton": [1.0, 0.1, 1e-4, 0.0]})
    >>> axes.get_ylabel()
    'value - 0'
    """
    several = values if isinstance(values, Mapping) else {"": values}
    lines = {str(name): np.asarray(line, float) for name, line in several.items()}
    for name, line in lines.items():
        if line.ndim != 1 or not line.size:
            raise ShapeError(
                f"gt.plot.convergence: values{f' of {name!r}' if name else ''} have the shape {line.shape}",
                where=user_site(),
                remedy="pass the values of the iterations, one after the other: gt.plot.convergence(values)",
            )
    finite = np.concatenate([line[np.isfinite(line)] for line in lines.values()])
    lowest = best if best is not None else float(np.min(finite, initial=np.inf))
    ax = _axes(ax)
    for name, line in lines.items():
        distance = np.where(line > lowest, line - lowest, np.nan)  # no logarithm at the optimum itself
        ax.plot(distance, marker=".", label=name)
    ax.set_yscale("log")
    ax.set(xlabel="iteration", ylabel=f"value - {lowest:.6g}", title="Convergence")
    ax.grid(alpha=0.25)
    if any(lines):
        ax.legend(frameon=False)
    return ax


@suggests_keywords
def speed(functions: Mapping[str, Function], *args: Any, repeat: int = 15, ax: Any = None) -> Any:
    """Compare the run times of functions in this process, and draw the medians.

    Parameters
    ----------
    functions : dict of callable
        The functions, by names. The first is the measure of the others.
    *args
        The arguments of each of them.
    repeat : int, default 15
        How many times each is measured, in turns, after a first call that is not. Short calls are repeated until a millisecond has gone.
    ax : matplotlib.axes.Axes, optional
        Where to draw, by default a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        One bar for each function, with its time, and how many times as fast as the first it is.

    Raises
    ------
    ArgumentError
        If there are no functions, or `repeat` is not positive.
    ImportError
        Without Matplotlib.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> f = lambda x: np.sum(np.sin(x) ** 2)
    >>> axes = gt.plot.speed({"NumPy": f, "compiled": gt.jit(f)}, np.ones(1000), repeat=3)
    >>> len(axes.patches)
    2
    """
    if not isinstance(functions, Mapping) or not functions or repeat < 1:
        raise ArgumentError(
            f"gt.plot.speed: functions is {functions!r}, repeat is {repeat!r}",
            where=user_site(),
            remedy='pass functions by names, and how many times to measure: gt.plot.speed({"NumPy": f, "gradtape": g}, x, repeat=15)',
        )
    times: dict[str, list[float]] = {str(name): [] for name in functions}
    counts = {}
    for name, function in functions.items():
        check_callable(function, "gt.plot.speed")
        function(*args)
        counts[str(name)] = max(1, int(1e-3 / max(_seconds(function, args, 1), 1e-7)))
    for _ in range(repeat):
        for name, function in functions.items():
            times[str(name)].append(_seconds(function, args, counts[str(name)]))
    medians = {name: statistics.median(each) for name, each in times.items()}
    first, longest = next(iter(medians.values())), max(medians.values())
    unit, scale = next(pair for pair in UNITS if longest * pair[1] >= 1 or pair is UNITS[-1])
    ax = _axes(ax, (6.4, 1.2 + 0.5 * len(medians)))
    bars = ax.barh(list(medians), [scale * time for time in medians.values()], height=0.6)
    said = [_readable(time) for time in medians.values()]
    said[1:] = [
        f"{each}, {_digits(first / time)} x"
        for each, time in zip(said[1:], [*medians.values()][1:], strict=True)
    ]
    ax.bar_label(bars, said, padding=4)
    ax.invert_yaxis()
    ax.margins(x=0.4)
    ax.set(xlabel=unit, title=f"Median of {repeat} measurements")
    return ax


def _readable(seconds: float) -> str:
    unit, scale = next((unit, scale) for unit, scale in SHORT if seconds * scale >= 1 or scale == 1e9)
    return f"{_digits(seconds * scale)} {unit}"


def _digits(number: float) -> str:
    """Return three digits, or more before the point, without an exponent."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _seconds(function: Function, args: Sequence[Any], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        function(*args)
    return (time.perf_counter() - begin) / count


def _axes(ax: Any, size: tuple[float, float] | None = None) -> Any:
    if ax is not None:
        return ax
    try:
        pyplot: Any = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError(
            "gt.plot draws with Matplotlib, which is not installed: pip install 'gradtape[examples]'"
        ) from error
    return pyplot.subplots(figsize=size, layout="constrained")[1]


__getattr__, __dir__ = _answering("gradtape.plot", globals())
