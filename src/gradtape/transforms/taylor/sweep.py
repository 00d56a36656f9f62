"""The sweep in Taylor mode: coefficients of targets from those of sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradtape.ir.graph import TraceTag, Value
from gradtape.ir.types import aval
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import reshape
from gradtape.transforms.basis import LinearMap, unit_vectors, unit_vectors_at
from gradtape.transforms.chunks import Bound, applied_in_chunks
from gradtape.transforms.loops.draft import emit_substituted
from gradtape.transforms.taylor import control as control  # enters the rules of loops and branches
from gradtape.transforms.taylor.series import Coefficient, Expansion, Linear, Multilinear, rule_of


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
    along = _second_along(target, source, stop, tag)
    tag.end()
    if along is None:
        return None
    found = applied_in_chunks(along, lambda positions: unit_vectors_at(source, positions), source.size, bound)
    (column,) = along.apply(unit_vectors(source)) if found is None else found
    return None if column is None else reshape(column, source.shape)


def laplacian(
    target: Value, source: Value, stop: Callable[[Value], bool], tag: TraceTag, bound: Bound
) -> Value | None:
    """Append the sum of the second derivatives of a number in each element of `source`; None for zero. Arguments are as above.

    Coefficient 2 is linear in the products of two coefficients 1, so that these are summed over the unit vectors where they arise, and
    the rest is computed once (R. Li et al., "A computational framework for neural network-based variational Monte Carlo with Forward
    Laplacian", Nature Machine Intelligence 6, 2024).
    """
    along = _second_along(target, source, stop, tag)
    if along is None:
        return None
    products = _products(along)
    tag.end()
    if products and bound.size(along, source.size) >= source.size:
        every = LinearMap(along.seed, tuple(products), tag).apply(unit_vectors(source))
        sums = {
            product: reduce_sum(one, axes=(0,))
            for product, one in zip(products, every, strict=True)
            if one is not None
        }
        (total,) = emit_substituted([part for part in along.outs if part is not None], sums)
        return total
    found = applied_in_chunks(along, lambda positions: unit_vectors_at(source, positions), source.size, bound)
    (column,) = along.apply(unit_vectors(source)) if found is None else found
    return None if column is None else reduce_sum(column, axes=(0,))


def _second_along(
    target: Value, source: Value, stop: Callable[[Value], bool], tag: TraceTag
) -> LinearMap | None:
    """Return the map from a direction to the second derivative along it, which is no linear one; None if it is zero."""
    seed = Value(aval(source.shape, source.dtype), tags=(tag,))
    ((_, second),) = taylor([target], [source], [[seed]], 2, stop)
    return None if second is None else LinearMap(seed, (second * 2.0,), tag)


def _products(along: LinearMap) -> list[Value] | None:
    """Return the products of two values that are linear in the seed, if the outs are linear in them; else None."""
    nodes, _ = along.nodes_between()
    degree = {along.seed: 1}
    products: list[Value] = []
    for node in nodes:
        moving = [value for value in node.inputs if value in degree]
        series = Expansion(dict.fromkeys(moving, ()), lambda value: True)
        kind = rule_of(node.op, node, series)
        degrees = [degree[value] for value in moving]
        if kind is Linear and len(set(degrees)) == 1:
            degree.update((out, degrees[0]) for out in node.outs)
        elif kind is Multilinear and degrees == [1, 1]:
            degree.update((out, 2) for out in node.outs)
            products += node.outs
        else:
            return None
    return products if all(degree.get(out) == 2 for out in along.outs if out is not None) else None
