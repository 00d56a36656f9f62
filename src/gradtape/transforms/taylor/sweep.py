"""The sweep in Taylor mode: coefficients of targets from those of sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradtape.ir.graph import TraceTag, Value
from gradtape.ir.types import aval
from gradtape.ops.core.shape import reshape
from gradtape.transforms.basis import LinearMap, unit_vectors, unit_vectors_at
from gradtape.transforms.chunks import Bound, applied_in_chunks
from gradtape.transforms.taylor import control as control  # enters the rules of loops and branches
from gradtape.transforms.taylor.series import Coefficient, Expansion


def taylor(
    targets: Sequence[Value],
    sources: Sequence[Value],
    coefficients: Sequence[Sequence[Coefficient]],
    order: int,
    stop: Callable[[Value], bool],
) -> list[list[Coefficient]]:
    """Append the nodes that compute the series of `targets` in one variable.

    Parameters
    ----------
    targets, sources : sequence of Value
        The values to which and from which series are propagated.
    coefficients : sequence of sequences of (Value or None)
        Per source, its coefficients 1, 2, ..., of its shape; None, and those that are missing, are zero.
    order : int
        The highest order.
    stop : callable
        Predicate on values: those that count as constants.

    Returns
    -------
    list of lists of (Value or None)
        Coefficients 1, ..., `order` of each target; None where one is zero.

    Notes
    -----
    A. Griewank and A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 13 (Taylor arithmetic).
    """
    return Expansion(dict(zip(sources, coefficients, strict=True)), stop).coefficients(targets, order)


def hessian_diagonal(
    target: Value, source: Value, stop: Callable[[Value], bool], tag: TraceTag, bound: Bound
) -> Value | None:
    """Append the second derivatives of a number in each element of `source`, in its shape; None for zero.

    They are twice coefficient 2 along unit vectors, many at a time. `tag` is the tag of values that depend on these.
    """
    seed = Value(aval(source.shape, source.dtype), tags=(tag,))
    ((_, second),) = taylor([target], [source], [[seed]], 2, stop)
    along = LinearMap(seed, (None if second is None else second * 2.0,), tag)
    tag.end()
    if second is None:
        return None
    found = applied_in_chunks(along, lambda positions: unit_vectors_at(source, positions), source.size, bound)
    (column,) = along.apply(unit_vectors(source)) if found is None else found
    return None if column is None else reshape(column, source.shape)
