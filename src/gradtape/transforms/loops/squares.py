"""Squares of what a loop reads from outside: where that has a kink, a further operand holds the square (ADR 145)."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from gradtape.ir.body import Body, make_body
from gradtape.ir.graph import Literal, Node, Value, extract
from gradtape.kinds.elementwise import has_kink, is_same, smooth_square
from gradtape.kinds.operands import conform
from gradtape.ops.core.elementwise.arithmetic import multiply
from gradtape.ops.core.elementwise.cast import with_tangent_of
from gradtape.transforms.loops.draft import never_stop, placeholder, substitute


def with_outer_squares(
    body: Body, consts: Sequence[Value], elements: Sequence[Value] = ()
) -> tuple[Body, list[Value], list[Value]]:
    """Return the body of a loop, its consts and its elements, where the squares of those with a kink are further operands.

    In ``s + y[i] * y[i]`` the body does not see that ``y`` is ``abs(x)``: by the chain rule the second derivative at 0 would be 0, not 2.
    The products keep their values, and have the derivatives of the squares outside, which transforms recognise. In a primal these are dead.

    Parameters
    ----------
    body : Body
        Its inputs are the index, the consts, the carries, and one element of each array.
    consts, elements : sequence of Value
        The operands outside.
    """
    first = len(body.inputs) - len(elements)
    inner = (*body.inputs[1 : 1 + len(consts)], *body.inputs[first:])
    outer = dict(zip(inner, (*consts, *elements), strict=True))
    kinked = {
        own: value
        for own, value in outer.items()
        if value.dtype.kind in "fc" and not isinstance(value, Literal) and has_kink(value, ())
    }
    if not kinked:
        return body, list(consts), list(elements)
    equal = _equal(kinked, [set(body.inputs[1 : 1 + len(consts)]), set(body.inputs[first:])])
    outputs = substitute(body.outputs, equal)
    becomes, squares = _replaced(extract(outputs, body.inputs)[0], kinked)
    if not becomes:
        return body, list(consts), list(elements)
    more = {own: squares[own] for own in inner if own in squares}
    more_consts = [own for own in more if own in body.inputs[1 : 1 + len(consts)]]
    more_elements = [own for own in more if own not in more_consts]
    inputs = [
        *body.inputs[: 1 + len(consts)],
        *[more[own] for own in more_consts],
        *body.inputs[1 + len(consts) :],
        *[more[own] for own in more_elements],
    ]
    changed = make_body(inputs, substitute(outputs, becomes), body.name)
    return (
        changed,
        [*consts, *[multiply(outer[own], outer[own]) for own in more_consts]],
        [*elements, *[multiply(outer[own], outer[own]) for own in more_elements]],
    )


def _equal(kinked: Mapping[Value, Value], groups: Sequence[Container[Value]]) -> dict[Value, Value]:
    """Return by input of a body an earlier one that is the same number: a rolled loop has an input for each place that reads an array."""
    found: dict[Value, Value] = {}
    for group in groups:
        seen: list[Value] = []
        for own in kinked:
            if own in group:
                other = next((one for one in seen if is_same(kinked[one], kinked[own])), None)
                if other is None:
                    seen.append(own)
                else:
                    found[own] = other
    return found


def _replaced(
    nodes: Sequence[Node], kinked: Mapping[Value, Value]
) -> tuple[dict[Value, Value], dict[Value, Value]]:
    """Return what products in a body become, and the placeholders of the squares of its inputs that they read."""
    becomes: dict[Value, Value] = {}
    squares: dict[Value, Value] = {}
    for node in nodes:
        square = smooth_square(node, never_stop, kinked)
        if square is None or kinked.keys().isdisjoint(square.others):
            continue
        values: dict[Value, Value] = {}
        for value in (*[kink.out for kink in square.kinks], *square.others):
            if value in kinked and value not in squares:
                squares[value] = placeholder(value)
            values[value] = squares[value] if value in kinked else multiply(value, value)
        product = square.assembled(values)
        assert product is not None
        becomes[node.out] = with_tangent_of(node.out, conform(product, node.out.dtype, node.out.shape))
    return becomes, squares
