"""Sums of multiples: of the values that an index is made of, of products of these, of the numbers of iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from gradtape.ir.graph import Node, Value, extract, number_of
from gradtape.ops.core.elementwise.arithmetic import add, multiply, negative, subtract

K = TypeVar("K")


def plus(first: Mapping[K, int], second: Mapping[K, int], factor: int = 1) -> dict[K, int]:
    """Return a sum plus a multiple of another one, without terms that cancel.

    Examples
    --------
    >>> plus({"i": 2, "j": 1}, {"j": 1, "k": 1}, -1)
    {'i': 2, 'k': -1}
    """
    total = dict(first)
    for term, count in second.items():
        count = total.pop(term, 0) + factor * count
        if count:
            total[term] = count
    return total


def distance(first: Value, second: Value) -> int | None:
    """Return the difference of two integers, where that is a number."""
    return difference(linear_form(first), linear_form(second))


def difference(first: Mapping[Value | None, int], second: Mapping[Value | None, int]) -> int | None:
    """Return the difference of two sums, where that is a number."""
    form = plus(first, second, -1)
    number = form.pop(None, 0)
    return None if any(form.values()) else number


def linear_form(value: Value) -> dict[Value | None, int]:
    """Return an integer as a sum of multiples of other values; the constant is that of None."""
    nodes, _ = extract([value], stop=lambda x: not x.is_made, follow=_terms)
    total: dict[Value | None, int] = {value: 1}
    for node in reversed(nodes):  # each once, when its factor is known: sums may share their terms
        inputs = _terms(node)
        if not inputs:
            continue
        whole = total.pop(node.out, 0)
        for x, sign in zip(inputs, (1, -1 if node.op is subtract else 1), strict=False):
            factor = -whole if node.op is negative else sign * whole
            if node.op is multiply:
                factor *= _factor(node.inputs)[0]  # type: ignore[index]
            total[x] = total.get(x, 0) + factor
    for term in list(total):
        number = None if term is None else number_of(term)
        if number is not None:
            total[None] = total.get(None, 0) + int(number) * total.pop(term)
    return total


def _terms(node: Node) -> Sequence[Value]:
    """Return the values of which a node is a sum of multiples; none where it is none."""
    if node.op in (add, subtract, negative):
        return node.inputs
    if node.op is multiply:
        number = _factor(node.inputs)
        return () if number is None else (number[1],)
    return ()


def _factor(operands: Sequence[Value]) -> tuple[int, Value] | None:
    for x, other in (operands, operands[::-1]):
        number = number_of(x)
        if number is not None:
            return int(number), other
    return None
