"""Products summed over shared subscripts: ``einsum`` and what the other products are made of."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gradtape.errors import ShapeError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.ir.types import Shape
from gradtape.kinds.arguments import as_array, promoted
from gradtape.kinds.contract import Subscripts
from gradtape.kinds.registry import implements, sample
from gradtape.ops.core.contract import contract, permuted_sum
from gradtape.ops.core.join import cast_as_asked
from gradtape.ops.core.shape import diagonal_of, expand, reshape


def product(a: Value, x: Subscripts, b: Value, y: Subscripts, out: Subscripts) -> Value:
    """Return ``sum a[x] b[y]`` over the subscripts that `out` lacks.

    The subscripts of an operand differ from each other; an axis of extent 1 meets any extent. Where nothing is
    summed over, the product is an
    elementwise one, which fuses with what surrounds it.
    """
    extents = common_extents([(a.shape, x), (b.shape, y)])
    a, x = drop_ones(a, x, extents)
    b, y = drop_ones(b, y, extents)
    if all(subscript in out for subscript in x if subscript in y):
        a, x = permuted_sum(a, x, _in_order(out, x)), _in_order(out, x)
        b, y = permuted_sum(b, y, _in_order(out, y)), _in_order(out, y)
        shape = tuple(extents[subscript] for subscript in out)
        wide = [
            expand(v, shape, tuple(out.index(k) for k in subscripts)) for v, subscripts in ((a, x), (b, y))
        ]
        return wide[0] * wide[1]
    numbers = {subscript: k for k, subscript in enumerate(dict.fromkeys((*x, *y)))}
    return contract(a, b, *[tuple(numbers[k] for k in subscripts) for subscripts in (x, y, out)])


def _in_order(out: Subscripts, subscripts: Subscripts) -> Subscripts:
    return tuple(subscript for subscript in out if subscript in subscripts)


def common_extents(operands: Sequence[tuple[Shape, Subscripts]]) -> dict[int, int]:
    """Return the extent of each subscript.

    Raises
    ------
    ShapeError
        Where two axes with the same subscript have different extents, neither of them 1.
    """
    extents: dict[int, int] = {}
    for shape, subscripts in operands:
        for subscript, extent in zip(subscripts, shape, strict=True):
            before = extents.get(subscript, 1)
            if before != 1 and extent not in (1, before):
                shapes = " and ".join(str(each) for each, _ in operands)
                raise ShapeError(
                    f"shapes {shapes} do not match: a contracted or shared axis has lengths "
                    f"{before} and {extent}",
                    where=here.site,
                    remedy="transpose an operand, or check which axes are contracted",
                )
            extents[subscript] = extent if before == 1 else before
    return extents


def drop_ones(a: Value, subscripts: Subscripts, extents: dict[int, int]) -> tuple[Value, Subscripts]:
    """Remove the axes of extent 1 along which the operand is to be repeated."""
    kept = tuple(axis for axis, subscript in enumerate(subscripts) if a.shape[axis] == extents[subscript])
    if len(kept) == a.ndim:
        return a, subscripts
    return reshape(a, tuple(a.shape[axis] for axis in kept)), tuple(subscripts[axis] for axis in kept)


def without_repeats(a: Value, subscripts: Subscripts) -> tuple[Value, Subscripts]:
    """Take the diagonal of every pair of axes with the same subscript."""
    for subscript in dict.fromkeys(subscripts):
        while subscripts.count(subscript) > 1:
            first = subscripts.index(subscript)
            second = subscripts.index(subscript, first + 1)
            extents = a.shape[first], a.shape[second]
            if extents[0] != extents[1]:
                raise ShapeError(
                    f"dimensions in single operand for a repeated letter don't match ({extents[0]} "
                    f"!= {extents[1]})",
                    where=here.site,
                    remedy="a letter that repeats takes the diagonal, which needs axes of one extent",
                )
            a = diagonal_of(a, first, second)
            subscripts = (*[k for axis, k in enumerate(subscripts) if axis not in (first, second)], subscript)
    return a, subscripts


def contract_all(operands: Sequence[Value], terms: Sequence[Subscripts], out: Subscripts) -> Value:
    """Return the product of all operands summed over the subscripts that `out` lacks, two operands at a time."""
    pairs = [without_repeats(a, subscripts) for a, subscripts in zip(operands, terms, strict=True)]
    extents = common_extents([(a.shape, subscripts) for a, subscripts in pairs])
    pairs = [drop_ones(a, subscripts, extents) for a, subscripts in pairs]
    for places in _path(pairs, out):
        chosen = [pairs.pop(place) for place in sorted(places, reverse=True)]
        while len(chosen) > 1:
            (b, y), (a, x) = chosen[:2]
            chosen = chosen[2:]
            later = {subscript for _, subscripts in (*pairs, *chosen) for subscript in subscripts}
            kept = tuple(k for k in dict.fromkeys((*x, *y)) if k in later or k in out)
            kept = kept if pairs or chosen else out
            chosen.insert(0, (product(a, x, b, y, kept), kept))
        pairs.append(chosen[0])
    return permuted_sum(*pairs[0], out)


def _path(pairs: Sequence[tuple[Value, Subscripts]], out: Subscripts) -> Sequence[tuple[int, ...]]:
    """Return which operands to multiply in which order."""
    if len(pairs) <= 2:
        return [tuple(range(len(pairs)))]
    import opt_einsum  # a lazy import: few programs need it, and it takes as long as a tenth of NumPy's

    symbols = {
        subscript: opt_einsum.get_symbol(k)
        for k, subscript in enumerate(dict.fromkeys(k for _, t in pairs for k in t))
    }
    terms = ",".join("".join(symbols[k] for k in term) for _, term in pairs)
    text = f"{terms}->{''.join(symbols[k] for k in out)}"
    path: Sequence[tuple[int, ...]]
    path, _ = opt_einsum.contract_path(text, *[a.shape for a, _ in pairs], shapes=True, optimize="auto")
    return path


ELLIPSIS = -1
"""The subscripts of the axes that an ellipsis stands for are this and the numbers below it, from the right."""


@lru_cache(maxsize=1024)
def read_subscripts(text: str, ranks: tuple[int, ...]) -> tuple[list[Subscripts], Subscripts]:
    """Read ``"ij,jk->ik"``; operands of these ranks follow.

    Raises
    ------
    ValueError
        Where NumPy raises it: a strange character, too few subscripts, a subscript of the result that no operand
        has.
    """
    text = text.replace(" ", "")
    left, arrow, right = text.partition("->")
    if any(not (c.isalpha() and c.isascii()) and c not in ".,->" for c in text):
        wrong = next(c for c in text if not (c.isalpha() and c.isascii()) and c not in ".,->")
        raise ValueError(f"Character {wrong} is not a valid symbol.")
    if "-" in left + right or ">" in left + right or "," in right:
        raise ValueError("Subscripts can only contain one '->'.")
    terms = [_split_ellipsis(term) for term in left.split(",")]
    return complete_terms(terms, _split_ellipsis(right) if arrow else None, ranks)


def _split_ellipsis(term: str) -> list[Any]:
    before, dots, after = term.partition("...")
    if "." in before + after:
        raise ValueError(
            "einstein sum subscripts string contains a '.' that is not part of an ellipsis ('...')"
        )
    return [*map(ord, before), *([Ellipsis] if dots else []), *map(ord, after)]


def complete_terms(
    terms: Sequence[Sequence[Any]], out: Sequence[Any] | None, ranks: Sequence[int]
) -> tuple[list[Subscripts], Subscripts]:
    """Replace ellipses by subscripts and find the subscripts of the result where they are not given."""
    if len(terms) != len(ranks):
        raise ValueError("Number of einsum subscripts must be equal to the number of operands.")
    full: list[Subscripts] = []
    longest = 0
    for term, rank in zip(terms, ranks, strict=True):
        dots = rank - sum(1 for subscript in term if subscript is not Ellipsis)
        if dots < 0 or (dots and Ellipsis not in term):
            raise ValueError(
                "operand has more dimensions than subscripts given in einstein sum, but no '...' "
                "ellipsis provided to broadcast"
                " the extra dimensions."
                if dots > 0
                else "einstein sum subscripts string contains too many subscripts for operand"
            )
        longest = max(longest, dots)
        full.append(_replaced(term, dots))
    counts: dict[int, int] = {}
    for subscript in (subscript for term in full for subscript in term):
        counts[subscript] = counts.get(subscript, 0) + 1
    if out is None:
        single = sorted(
            subscript for subscript, count in counts.items() if count == 1 and subscript > ELLIPSIS
        )
        return full, (*range(ELLIPSIS - longest + 1, ELLIPSIS + 1), *single)
    result = _replaced(out, longest)
    for subscript in result:
        if subscript not in counts or result.count(subscript) > 1:
            raise ValueError(
                f"einstein sum subscripts string includes output subscript {chr(subscript)!r} "
                + ("which never appeared in an input" if subscript not in counts else "multiple times")
            )
    if longest and Ellipsis not in out:
        raise ValueError(
            "output has no ellipsis '...' although an operand's broadcasts over further dimensions"
        )
    return full, result


def _replaced(term: Sequence[Any], dots: int) -> Subscripts:
    subscripts: list[int] = []
    for subscript in term:
        subscripts.extend(range(ELLIPSIS - dots + 1, ELLIPSIS + 1) if subscript is Ellipsis else (subscript,))
    return tuple(subscripts)


def read_operands(operands: tuple[Any, ...]) -> tuple[list[Value], list[Subscripts], Subscripts]:
    """Read either way to call einsum: subscripts first, or a list of axis numbers after each operand."""
    if not operands:
        raise ValueError(
            "must specify the einstein sum subscripts string and at least one operand, or at least "
            "one operand and its list"
        )
    if isinstance(operands[0], str):
        arrays = [as_array(operand) for operand in operands[1:]]
        return arrays, *read_subscripts(operands[0], tuple(a.ndim for a in arrays))
    pairs, out = operands[: len(operands) // 2 * 2], operands[-1] if len(operands) % 2 else None
    arrays = [as_array(operand) for operand in pairs[::2]]
    return arrays, *complete_terms(list(pairs[1::2]), out, [a.ndim for a in arrays])


@implements(
    np.einsum,
    samples=(
        sample("ij,jk->ik", (2, 3), (3, 4)),
        sample("ij,jk", (2, 3), (3, 4)),
        sample("ba", (2, 3)),
        sample("ii->i", np.arange(9.0).reshape(3, 3)),
        sample("ii", (3, 3)),
        sample("iij->j", (3, 3, 2)),
        sample("ij->", (2, 3)),
        sample("i,j->ji", (2,), (3,)),
        sample("ij,ij->i", (2, 3), (2, 3)),
        sample("bij,bjk->bik", (2, 3, 2), (2, 2, 3)),
        sample("...ij,...jk->...ik", (2, 3, 2), (2, 3)),
        sample("...i,i...", (2, 3), (3, 2)),
        sample("i...->...", (2, 3)),
        sample("ij,jk,kl->il", (2, 3), (3, 2), (2, 4)),
        sample("i,i,i->", (3,), (3,), (3,)),
        sample("ij,j,i->ij", (2, 3), (3,), (2,), optimize=True),
        sample("i,i->i", (1,), (3,)),
        sample("ij,jj->ij", (2, 3), (3, 3)),
        sample("ij,k->i", (2, 3), (4,)),
        sample("i,->i", (3,), ()),
        sample("ij,jk->ik", (2, 3), (4, 2)),
        sample("ij->ik", (2, 3)),
        sample("...i->i", (2, 3)),
        sample("ij->ii", (2, 3)),
        sample("i$->i", (2, 3)),
        sample("i-j", (2, 3)),
        sample("i>j", (2, 3)),
        sample("ij->i,j", (2, 3)),
        sample((2, 3), [0, 1], (3, 4), [1, 2]),
        sample((2, 3), [0, 1], (3, 4), [1, 2], [2, 0]),
        sample((2, 3), [4, 1], (3, 4), [1, 0]),
        sample((2, 3), [Ellipsis, 0], (3,), [0], [Ellipsis]),
        sample("ki,kj->ji", (2, 3), (2, 4)),
        sample("kji,jl->lik", (2, 3, 4), (3, 5)),
        sample("cab,dac->bcad", (2, 3, 4), (5, 3, 2)),
        sample("ba,c->acb", (2, 3), (4,)),
        sample("bca,ac->abc", (2, 3, 4), (4, 3)),
        sample("ijk", (2, 3)),
        sample("ij,jk->ik", (2, 3), np.ones((3, 2), "f"), dtype="f8"),
    ),
)
def einsum(
    *operands: Any, optimize: Any = False, dtype: Any = None, order: Any = "K", casting: Any = "safe"
) -> Value:
    """Follow `numpy.einsum`; how to multiply more than two operands is always optimised."""
    arrays, terms, out = read_operands(operands)
    return contract_all(
        promoted(*arrays) if dtype is None else cast_as_asked(arrays, dtype, casting), terms, out
    )


@implements(np.einsum_path, samples=(sample("ij,jk,kl->il", (2, 3), (3, 2), (2, 4)),))
def einsum_path(*operands: Any, optimize: Any = "greedy", einsum_call: bool = False) -> Any:
    """Follow `numpy.einsum_path`, which looks at shapes alone."""
    stand_ins = [
        np.broadcast_to(np.zeros((), v.dtype), v.shape) if isinstance(v, Value) else v for v in operands
    ]
    arguments: dict[str, Any] = {"optimize": optimize, "einsum_call": einsum_call}
    return np.einsum_path(*stand_ins, **arguments)
