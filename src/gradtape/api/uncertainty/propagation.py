"""`propagate`: mean and covariance of the results of a function of uncertain inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gradtape.api.operands import generator_of
from gradtape.api.solvers.nested import Program, Unknowns, compiled_jacobian, nested, vector_of
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.functional import jacfwd, jacobian
from gradtape.api.transforms.jit import jit
from gradtape.api.transforms.vmap import vmap
from gradtape.errors import ArgumentError, ShapeError
from gradtape.habits import suggests_keywords
from gradtape.trace.array.handle import Handle
from gradtape.trace.patching.opaque import traced_parts
from gradtape.trace.source.sites import user_site
from gradtape.trees import TreeSpec, flatten, place_of_leaf, spread_prefix

Function = Callable[..., Any]

ROUNDING: Final = 1e-10
"""How far below zero an eigenvalue of a covariance may be, as a part of the largest: its elements are rounded."""

SHOWN: Final = 20
"""How many results a table shows."""


@dataclass(frozen=True, eq=False, repr=False)
class Samples:
    """Mean and covariance of a function's results at random inputs.

    Attributes
    ----------
    count : int
        How many inputs were drawn.
    mean : nest of ndarray
        The mean of the results.
    covariance : ndarray
        Their covariance, as one matrix.
    standard_deviation : nest of ndarray
        The square roots of its diagonal.
    standard_error : nest of ndarray
        That of `mean`: standard deviation / sqrt(count).
    """

    count: int
    mean: Any
    covariance: Any
    standard_deviation: Any
    standard_error: Any

    def __repr__(self) -> str:
        return f"<{self.count} samples: mean {self.mean!r}, standard deviation {self.standard_deviation!r}>"


@dataclass(frozen=True, eq=False, repr=False)
class Propagated:
    """What `propagate` returns.

    Attributes
    ----------
    mean : nest of ndarray
        The mean of the results, in their containers.
    covariance : ndarray
        Their covariance: a row and a column for each number of the results, in order.
    standard_deviation : nest of ndarray
        The square roots of its diagonal, in the containers of the results.
    order : int
        1 or 2.
    samples : Samples or None
        The same by samples, if they were requested.
    """

    mean: Any
    covariance: Any
    standard_deviation: Any
    order: int
    samples: Samples | None = None

    @property
    def correlation(self) -> Any:
        """The covariance divided by the standard deviations; NaN where one is 0."""
        scale = np.sqrt(np.diagonal(self.covariance))
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.covariance / (scale[:, None] * scale)

    def __repr__(self) -> str:
        means, deviations = vector_of(self.mean), vector_of(self.standard_deviation)
        if any(isinstance(part, Handle) for part in (means, deviations)):
            return f"<{self.order}. order propagation in a traced function: {len(means)} results>"
        columns = [means, deviations]
        titles = ["mean", "± std"]
        if self.samples is not None:
            columns += [vector_of(self.samples.mean), vector_of(self.samples.standard_deviation)]
            titles += [f"of {self.samples.count} samples", "± std"]
        names = names_of(self.mean)
        width = max(map(len, names[:SHOWN]), default=0)
        lines = [f"{'':{width}}" + "".join(f"  {title:>16}" for title in titles)]
        for row, name in enumerate(names[:SHOWN]):
            lines.append(f"{name:{width}}" + "".join(f"  {column[row]:16.6g}" for column in columns))
        if len(names) > SHOWN:
            lines.append(f"... and {len(names) - SHOWN} more")
        return "\n".join(lines)


def names_of(tree: Any) -> list[str]:
    """Return a name for each number of a nest, as one would write it: ``['rate'][2]``."""
    names = []
    for position, leaf in enumerate(flatten(tree)[0]):
        place = place_of_leaf(tree, position)
        names += [
            f"{place}[{', '.join(map(str, index))}]" if index else place
            for index in np.ndindex(np.shape(leaf))
        ]
    return names


@suggests_keywords
def propagate(
    f: Function,
    mean: Any,
    covariance: Any,
    *,
    args: Sequence[Any] = (),
    order: int = 1,
    samples: int = 0,
    rng: Any = 0,
) -> Propagated:
    """Return mean and covariance of a function of uncertain inputs: the propagation of errors.

    Parameters
    ----------
    f : callable
        ``f(x, *args)``: NumPy code. It returns an array, a number or nested arrays.
    mean : nest of array_like
        The mean of the inputs, of n floating numbers in all; a list of numbers is an array. `x` has its containers and
        shapes.
    covariance : array_like of shape (n, n), or nest of array_like
        The covariance of the inputs, in the order of the numbers in `mean`; or variances of independent inputs, in the containers of
        `mean` or the outer ones of these: ``{"length": 0.01, "angles": 1e-4}``.
    args : sequence
        Further arguments, which have no errors.
    order : {1, 2}
        1: `f` is linearised, J C J'. 2: `f` is replaced by a quadratic function of Gaussian inputs, which shifts the mean as well.
    samples : int
        The number of Gaussian inputs that are drawn as a check. 0: none.
    rng : numpy.random.Generator or seed
        The generator of the samples, or its seed.

    Returns
    -------
    Propagated
        With `mean`, `covariance`, `standard_deviation`, `correlation` and `samples`. It prints as a table.

    Raises
    ------
    ShapeError
        If the covariance does not fit the mean.
    ArgumentError
        If it is not symmetric, or has negative eigenvalues; for an unknown order.

    See Also
    --------
    gradtape.scipy.uncertainty : Standard errors of a fit, whose covariance is the input of this.

    Notes
    -----
    With the Jacobian J and the Hessians H_i of the results, for Gaussian inputs: mean_i = f_i + tr(H_i C) / 2 and
    covariance_ij = (J C J')_ij + tr(H_i C H_j C) / 2 (JCGM 100:2008, "Guide to the Expression of Uncertainty in Measurement", 5.1.2 and
    5.2.2; G. W. Oehlert, "A Note on the Delta Method", 1992). On tapes and in compiled functions mean and covariance have derivatives.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> def area(x):
    ...     return x["length"] * x["width"]
    >>> found = gt.propagate(area, {"length": 3.0, "width": 2.0}, {"length": 0.01, "width": 0.04})
    >>> print(f"{found.mean:.3f} {found.standard_deviation:.3f}")
    6.000 0.632
    """
    check_callable(f, "gt.propagate")
    if order not in (1, 2):
        raise ArgumentError(
            f"gt.propagate: order is {order!r}", where=user_site(), remedy="order=1 or order=2"
        )
    if type(samples) is not int or samples < 0 or samples == 1:
        raise ArgumentError(
            f"gt.propagate: samples is {samples!r}", where=user_site(), remedy="samples=10_000, or 0 for none"
        )
    inputs = Unknowns(mean, "gt.propagate", "mean")
    matrix = _covariance_matrix(covariance, mean, inputs)
    whole, numbers = Program(f, inputs, _results), Program(f, inputs, _numbers)
    vector = inputs.vector
    if any(True for _ in traced_parts((f, mean, covariance, args))):
        results = whole.traced(vector, *args)
        value, slopes = vector_of(results), jacobian(lambda x: numbers.traced(x, *args))(vector)
        curves = hessians(lambda x: numbers.traced(x, *args))(vector) if order == 2 else None
    else:
        results = whole.compiled(jit)(vector, *args)
        value, slopes = vector_of(results), numbers.compiled(compiled_jacobian)(vector, *args)
        curves = numbers.compiled(_compiled_hessians)(vector, *args) if order == 2 else None
    spread = slopes @ matrix @ slopes.T
    if curves is not None:
        weighted = curves @ matrix
        value = value + np.trace(weighted, axis1=1, axis2=2) / 2
        spread = spread + np.einsum("ikl,jlk->ij", weighted, weighted) / 2
    leaves, spec = flatten(results)
    shapes = tuple(np.shape(leaf) for leaf in leaves)
    drawn = _sampled(numbers, inputs.vector, matrix, samples, rng, args, shapes, spec) if samples else None
    return Propagated(
        nested(value, shapes, spec), spread, nested(np.sqrt(np.diagonal(spread)), shapes, spec), order, drawn
    )


def hessians(function: Function) -> Function:
    """Return the Hessians of all numbers of a vector: of shape (results, inputs, inputs)."""
    return jacfwd(jacobian(function))


def _compiled_hessians(function: Function) -> Function:
    return jit(hessians(function))


def _compiled_map(function: Function) -> Function:
    return jit(lambda points, *args: vmap(lambda point: function(point, *args))(points))


def _results(function: Function, x: Any, *args: Any) -> Any:
    return function(x, *args)


def _numbers(function: Function, x: Any, *args: Any) -> Any:
    return vector_of(function(x, *args))


def _sampled(
    program: Program,
    mean: Any,
    covariance: Any,
    count: int,
    rng: Any,
    args: Sequence[Any],
    shapes: tuple[tuple[int, ...], ...],
    spec: TreeSpec,
) -> Samples:
    if any(isinstance(part, Handle) for part in (mean, covariance)):
        raise ArgumentError(
            "gt.propagate: samples are drawn where the mean and the covariance have numbers",
            where=user_site(),
            why="on a tape, or in a compiled function, they are traced",
            remedy="call it outside, or with samples=0",
        )
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))  # root @ root.T is the covariance, which may be singular
    points = mean + generator_of(rng, "gt.propagate: rng").standard_normal((count, len(mean))) @ root.T
    results = program.compiled(_compiled_map)(points, *args)
    spread = np.atleast_2d(np.cov(results, rowvar=False))
    deviations = np.sqrt(np.diagonal(spread))
    nests = [
        nested(part, shapes, spec)
        for part in (np.mean(results, axis=0), deviations, deviations / np.sqrt(count))
    ]
    return Samples(count, nests[0], spread, nests[1], nests[2])


def _covariance_matrix(given: Any, mean: Any, inputs: Unknowns) -> Any:
    """Return the covariance of the inputs as a matrix, checked where it has numbers."""
    count = len(inputs.vector)
    if not isinstance(given, Handle) and not isinstance(given, dict) and _shape_of(given) == (count, count):
        given = np.asarray(given, float)
    if np.shape(given) != (count, count) or np.shape(mean) == (count, count):
        return np.diag(_variances(given, mean, inputs))
    if not isinstance(given, Handle):
        values = np.linalg.eigvalsh(given)
        if not np.allclose(given, given.T, rtol=1e-8, atol=0) or np.any(
            values < -ROUNDING * np.max(np.abs(values), initial=0)
        ):
            raise ArgumentError(
                "gt.propagate: the covariance is not symmetric, or has negative eigenvalues",
                where=user_site(),
                why=f"its eigenvalues lie between {values.min():.3g} and {values.max():.3g}",
                remedy="pass a covariance matrix; variances of independent inputs have the containers of the mean",
            )
    return given


def _shape_of(thing: Any) -> tuple[int, ...] | None:
    try:
        return tuple(np.shape(thing))
    except ValueError:  # a nest whose parts have different shapes
        return None


def _variances(given: Any, mean: Any, inputs: Unknowns) -> Any:
    """Return the variances of independent inputs as a vector."""
    single = len(inputs.shapes) == 1 and not isinstance(given, dict)
    parts = (
        [given]
        if single and isinstance(mean, Handle | np.ndarray | float | int | np.generic)
        else spread_prefix(given, mean, "the covariance", "the mean", user_site())
    )
    vectors = []
    for part, shape in zip(parts, inputs.shapes, strict=True):
        array = part if isinstance(part, Handle) else np.asarray(part, float)
        if np.shape(array) not in ((), shape):
            count = len(inputs.vector)
            raise ShapeError(
                f"gt.propagate: the covariance has the shape {np.shape(array)}, and the mean {shape}",
                where=user_site(),
                remedy=f"pass a matrix of shape ({count}, {count}), or variances like the mean",
            )
        if not isinstance(array, Handle) and np.any(array < 0):
            raise ArgumentError(
                f"gt.propagate: a variance is {np.min(array):.3g}",
                where=user_site(),
                remedy="pass squares of standard deviations",
            )
        vectors.append(np.reshape(array + np.zeros(shape), -1))
    return np.concatenate(vectors or [np.zeros(0)])
