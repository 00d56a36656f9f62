"""Indices as sums: by how much two of them differ."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Value, number_of
from gradtape.ops.core.elementwise.arithmetic import add, multiply, negative, subtract


def distance(first: Value, second: Value) -> int | None:
    """Return the difference of two integers, where that is a number."""
    form = linear_form(first)
    for atom, factor in linear_form(second).items():
        form[atom] = form.get(atom, 0) - factor
    number = form.pop(None, 0)
    return None if any(form.values()) else number


def linear_form(value: Value) -> dict[Value | None, int]:
    """Return an integer as a sum of multiples of other values; the constant is that of None."""
    total: dict[Value | None, int] = {}
    pending = [(value, 1)]
    while pending:
        value, factor = pending.pop()
        number = number_of(value)
        if number is not None:
            total[None] = total.get(None, 0) + factor * int(number)
            continue
        node = value.node
        if node is not None and node.op in (add, subtract):
            sign = 1 if node.op is add else -1
            pending += [(node.inputs[0], factor), (node.inputs[1], sign * factor)]
        elif node is not None and node.op is negative:
            pending.append((node.inputs[0], -factor))
        elif node is not None and node.op is multiply and _factor(node.inputs) is not None:
            number, other = _factor(node.inputs)  # type: ignore[misc]
            pending.append((other, factor * number))
        else:
            total[value] = total.get(value, 0) + factor
    return total


def _factor(operands: Sequence[Value]) -> tuple[int, Value] | None:
    for x, other in (operands, operands[::-1]):
        number = number_of(x)
        if number is not None:
            return int(number), other
    return None
