"""Forward mode: tangents are propagated through the nodes in topological order, with the masks of selections."""

from __future__ import annotations

import cmath
from collections.abc import Callable, Collection, Sequence

from gradtape.ir.builder import at
from gradtape.ir.graph import Node, Value, extract, next_serial, number_of
from gradtape.ir.types import is_inexact
from gradtape.kinds.control import OwnPullback, visible_inputs
from gradtape.kinds.cotangent import Tangent, summed
from gradtape.kinds.elementwise import Elementwise, Rule, SmoothSquare, scaled
from gradtape.kinds.index_map import IndexMap
from gradtape.transforms.kinks.roots import FlatRoot
from gradtape.transforms.loops.squares import Recomputed, whole_at
from gradtape.transforms.masks import before_infinite_slopes, pushed_through, with_masks
from gradtape.transforms.observers import derivative_site
from gradtape.transforms.shift_invariance import cancelling_shifts


def jvp(
    targets: Sequence[Value],
    sources: Sequence[Value],
    tangents: Sequence[Value],
    stop: Callable[[Value], bool],
    constant: Collection[Value] = (),
    *,
    are_units: bool = False,
) -> list[Value | None]:
    """Append the nodes of the forward sweep from `sources` to `targets`.

    Parameters
    ----------
    targets, sources : sequence of Value
        The values to which and from which tangents are propagated.
    tangents : sequence of Value
        One per source, of its shape.
    stop : callable
        Predicate on values: those that count as constants.
    constant : collection of Value
        Those of the tangents that no derivative is taken with respect to: where they are 0, they are zero by selection.
    are_units : bool, default False
        Whether these are 0 or 1 everywhere.

    Returns
    -------
    list of Value or None
        The tangent of each target; None where it does not depend on a source.
    """
    seeds = with_masks(tangents, constant, targets, sources, stop, are_units=are_units)
    pushed = forward_sweep(targets, sources, seeds, stop, is_last=True)
    return [None if tangent is None else tangent.applied() for tangent in pushed]


def forward_sweep(
    targets: Sequence[Value],
    sources: Sequence[Value],
    tangents: Sequence[Tangent],
    stop: Callable[[Value], bool],
    *,
    is_last: bool = False,
) -> list[Tangent | None]:
    """Append the nodes of `jvp`; tangents may be zero by selection (see `Cotangent`).

    With `is_last` the masks of the results are not read: masks are not reduced behind the last slope that may be infinite.
    """
    pushed: dict[Value, Tangent | None] = dict(zip(sources, tangents, strict=True))
    nodes, _ = extract(
        targets, sources, stop=lambda value: stop(value) or value.node is None, follow=visible_inputs
    )
    constant = cancelling_shifts(nodes, targets, sources)
    known = set(sources)
    ahead = before_infinite_slopes(nodes) if is_last else None

    def is_closed(value: Value) -> bool:
        return value in known or stop(value)

    # Last in, first out. An entry with a value is the tangent of a node whose product was recomputed.
    waiting: list[tuple[Node, Value | None]] = [
        (node, None) for node in reversed(nodes) if not constant or constant.isdisjoint(node.outs)
    ]
    while waiting:
        node, again = waiting.pop()
        if again is not None:
            pushed.setdefault(node.out, pushed.get(again))
            continue
        incoming = [pushed.get(operand) for operand in node.inputs]
        if all(tangent is None for tangent in incoming):
            continue
        if ahead is not None and not isinstance(node.op, Elementwise | IndexMap) and node not in ahead:
            incoming = [tangent and Tangent(tangent.applied()) for tangent in incoming]
        with at(derivative_site(node, backward=False)):
            whole = whole_at(node, is_closed)
            if isinstance(whole, Recomputed):
                waiting.append((node, whole.value))
                waiting += [(one, None) for one in reversed(whole.nodes)]
                continue
            outgoing: Sequence[Tangent | None]
            if whole is None:
                outgoing = push_node(node, incoming)
            else:
                outgoing = [push_whole(whole, list(map(pushed.get, whole.operands)))]
        for out, tangent in zip(node.outs, outgoing, strict=True):
            if out not in pushed:
                pushed[out] = tangent
    return [pushed.get(target) for target in targets]


def push_node(node: Node, incoming: Sequence[Tangent | None]) -> Sequence[Tangent | None]:
    """Return the tangents of a node's outputs, from one per input (None is zero).

    The nodes that `Op.jvp` appends are linear in the tangents: masks are propagated through each of them, as `pull_linear` does in the
    other direction.
    """
    op = node.op
    if isinstance(op, OwnPullback):
        return op.push(node, incoming)
    if isinstance(op, Elementwise) and op.partials is not None:
        return [push_partials(node, op.partials, incoming)]
    return _push_by(lambda values: op.jvp(node, values), incoming)


def push_whole(whole: SmoothSquare | FlatRoot, incoming: Sequence[Tangent | None]) -> Tangent | None:
    """Return the tangent of what is differentiated as one function, from those of what it is computed from."""
    (tangent,) = _push_by(lambda values: (whole.push(values),), incoming)
    return tangent


def _push_by(
    push: Callable[[list[Value | None]], Sequence[Value | None]], incoming: Sequence[Tangent | None]
) -> list[Tangent | None]:
    """Return what a linear map makes of tangents, with masks."""
    begin = next_serial()
    outs = push([None if tangent is None else tangent.value for tangent in incoming])
    return pushed_through(
        begin, {tangent.value: tangent for tangent in incoming if tangent is not None}, outs
    )


def push_partials(
    node: Node,
    partials: Sequence[Rule | None],
    incoming: Sequence[Tangent | None],
    product: Callable[[Value, Value], Value] = scaled,
) -> Tangent | None:
    """Return the sum over the arguments of the partial derivative times the tangent, by `product` where the first is not a number."""
    total: Tangent | None = None
    if not is_inexact(node.out.dtype):
        return None
    for rule, tangent in zip(partials, incoming, strict=True):
        if tangent is None or rule is None:
            continue
        partial = rule(node.out, *node.inputs, **node.params)
        # Zeros times a number are zeros.
        number = number_of(partial)
        applied = tangent.is_applied and number is not None and cmath.isfinite(number)
        multiply = scaled if number is not None else product
        term = Tangent(multiply(partial, tangent.value), tangent.mask, applied)
        total = term if total is None else summed(total, term)
    return total
