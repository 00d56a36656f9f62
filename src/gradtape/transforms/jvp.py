"""Forward mode: tangents are propagated through the nodes in topological order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradtape.ir.builder import at
from gradtape.ir.graph import Value, extract
from gradtape.kinds.control import followed
from gradtape.transforms.observers import derivative_site
from gradtape.transforms.shift_invariance import cancelling_shifts


def jvp(
    targets: Sequence[Value],
    sources: Sequence[Value],
    tangents: Sequence[Value],
    stop: Callable[[Value], bool],
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

    Returns
    -------
    list of Value or None
        The tangent of each target; None where it does not depend on a source.
    """
    pushed: dict[Value, Value | None] = dict(zip(sources, tangents, strict=True))
    nodes, _ = extract(
        targets, sources, stop=lambda value: stop(value) or value.node is None, follow=followed
    )
    constant = cancelling_shifts(nodes, targets, sources)
    for node in nodes:
        if constant and not constant.isdisjoint(node.outs):
            continue
        incoming = [pushed.get(operand) for operand in node.inputs]
        if any(tangent is not None for tangent in incoming):
            with at(derivative_site(node, backward=False)):
                outgoing = node.op.jvp(node, incoming)
            for out, tangent in zip(node.outs, outgoing, strict=True):
                if out not in pushed:
                    pushed[out] = tangent
    return [pushed.get(target) for target in targets]
