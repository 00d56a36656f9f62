"""Products summed over shared axes: the one contract row, and einsum in terms of it."""

from __future__ import annotations

from gradtape.ir.graph import Value
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import Shape
from gradtape.kinds.contract import Contract, Letters
from gradtape.kinds.registry import register
from gradtape.ops.core.reductions import reduce_sum
from gradtape.ops.core.shape import expand, permute

contract_row = register(Contract("contract"))


def contract(a: Value, b: Value, x: Letters, y: Letters, out: Letters, shape: Shape | None = None) -> Value:
    """Return ``sum a[x] b[y]`` over the letters that `out` lacks.

    Parameters
    ----------
    a, b : Value
        The factors, of one dtype.
    x, y, out : tuple of int
        The letters of their axes and of the result's; none repeats within one of them.
    shape : tuple of int, optional
        The result's shape: needed where `out` has letters that neither factor has, along which the result is repeated.
    """
    a, x = _sum_alone(a, x, (*y, *out))
    b, y = _sum_alone(b, y, (*x, *out))
    present = tuple(letter for letter in out if letter in x or letter in y)
    product = contract_row(a, b, x=x, y=y, out=present)
    if present == out:
        return product
    assert shape is not None
    return expand(product, shape, tuple(axis for axis, letter in enumerate(out) if letter in present))


def _sum_alone(a: Value, letters: Letters, others: Letters) -> tuple[Value, Letters]:
    """Sum over the axes whose letter nothing else has."""
    axes = tuple(axis for axis, letter in enumerate(letters) if letter not in others)
    if not axes:
        return a, letters
    return reduce_sum(a, axes=axes), tuple(letter for letter in letters if letter in others)


def permuted_sum(a: Value, letters: Letters, out: Letters) -> Value:
    """Return `a` summed over the letters that `out` lacks and permuted to the order of `out`."""
    a, letters = _sum_alone(a, letters, out)
    return permute(a, tuple(letters.index(letter) for letter in out))


PRIMITIVES["contract"] = contract
