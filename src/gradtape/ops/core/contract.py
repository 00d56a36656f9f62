"""Products summed over shared axes: the one contract row, and einsum in terms of it."""

from __future__ import annotations

from gradtape.ir.graph import Value
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import Shape
from gradtape.kinds.contract import Contract, Subscripts
from gradtape.kinds.registry import register
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import expand, permute

contract_row = register(Contract("contract"))


def contract(
    a: Value, b: Value, x: Subscripts, y: Subscripts, out: Subscripts, shape: Shape | None = None
) -> Value:
    """Return ``sum a[x] b[y]`` over the subscripts that `out` lacks.

    Parameters
    ----------
    a, b : Value
        The factors, of one dtype.
    x, y, out : tuple of int
        The subscripts of their axes and of the result's; none repeats within one of them.
    shape : tuple of int, optional
        The result's shape: needed where `out` has subscripts that neither factor has, along which the result is repeated.
    """
    a, x = _sum_alone(a, x, (*y, *out))
    b, y = _sum_alone(b, y, (*x, *out))
    present = tuple(subscript for subscript in out if subscript in x or subscript in y)
    product = contract_row(a, b, x=x, y=y, out=present)
    if present == out:
        return product
    assert shape is not None
    return expand(product, shape, tuple(axis for axis, subscript in enumerate(out) if subscript in present))


def _sum_alone(a: Value, subscripts: Subscripts, others: Subscripts) -> tuple[Value, Subscripts]:
    """Sum over the axes whose subscript nothing else has."""
    axes = tuple(axis for axis, subscript in enumerate(subscripts) if subscript not in others)
    if not axes:
        return a, subscripts
    return reduce_sum(a, axes=axes), tuple(subscript for subscript in subscripts if subscript in others)


def permuted_sum(a: Value, subscripts: Subscripts, out: Subscripts) -> Value:
    """Return `a` summed over the subscripts that `out` lacks and permuted to the order of `out`."""
    a, subscripts = _sum_alone(a, subscripts, out)
    return permute(a, tuple(subscripts.index(subscript) for subscript in out))


PRIMITIVES["contract"] = contract
