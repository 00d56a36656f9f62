"""Walking linear nodes backwards: cotangents, and the masks that selections leave on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..ir.builder import at
from ..ir.graph import OPERATORS, Mark, Node, Value, extract
from ..kinds.control import Structured, carried
from ..kinds.cotangent import Cotangent
from ..kinds.elementwise import Elementwise


class Cotangents:
    """The cotangents met so far on a walk backwards, summed up by value.

    Parameters
    ----------
    barriers : collection of Value
        Values that count as constants: what arrives at them is kept, and not handed on.
    """

    __slots__ = ("_barriers", "_found", "_kept")

    def __init__(self, barriers: Collection[Value] = ()) -> None:
        self._found: dict[Value, Cotangent] = {}
        self._kept: dict[Value, Cotangent] = {}
        self._barriers = barriers

    def add(self, value: Value, cotangent: Cotangent) -> None:
        place = self._kept if value in self._barriers else self._found
        before = place.get(value)
        place[value] = cotangent if before is None else _sum(before, cotangent)

    def get(self, value: Value) -> Cotangent | None:
        """Return the cotangent that is to be handed on."""
        return self._found.get(value)

    def arrived(self, value: Value) -> Cotangent | None:
        """Return the cotangent of a value, whether or not it is to be handed on."""
        return self._kept.get(value) or self._found.get(value)

    def items(self) -> tuple[tuple[Value, Cotangent], ...]:
        """Return all of them, in the order in which they were first met."""
        return (*self._kept.items(), *self._found.items())

    def of_outputs(self, node: Node) -> list[Cotangent | None]:
        """Return the cotangents of a node's outputs."""
        return [self._found.get(out) for out in node.outs]


def _sum(a: Cotangent, b: Cotangent) -> Cotangent:
    add = OPERATORS["add_stacks" if a.value.dtype.kind == "O" else "add"]
    if a.mask is b.mask:
        return Cotangent(add(a.value, b.value), a.mask)
    if a.mask is None or b.mask is None:
        return Cotangent(add(a.applied(), b.applied()))
    return Cotangent(add(a.applied(), b.applied()), OPERATORS["bitwise_or"](a.mask, b.mask))


def pull_linear(
    targets: Iterable[tuple[Value, Cotangent]], tangents: Sequence[Value], mark: Mark
) -> Cotangents:
    """Transpose: from cotangents of values that depend linearly on `tangents` to cotangents of these.

    Parameters
    ----------
    targets : iterable of (Value, Cotangent)
        Linear values, and what is to be pulled back from each.
    tangents : sequence of Value
        The linear inputs; they carry `mark`, and so does every value that depends on them.
    mark : Mark
        Tells the linear half of the nodes from the rest.

    Returns
    -------
    Cotangents
        Holding one for each of `tangents` that is reached.
    """
    found = Cotangents()
    roots = []
    for value, cotangent in targets:
        found.add(value, cotangent)
        roots.append(value)
    nodes, _ = extract(roots, tangents, stop=lambda value: mark not in value.marks, follow=carried)
    for node in reversed(nodes):
        pull_node(node, [mark in operand.marks for operand in node.inputs], found)
    return found


def pull_node(node: Node, linear: Sequence[bool], found: Cotangents) -> None:
    """Pull the cotangents of a linear node's outputs back to its inputs."""
    cotangents = found.of_outputs(node)
    if all(cotangent is None for cotangent in cotangents):
        return
    with at(node.site):
        if isinstance(node.op, Elementwise):
            (cotangent,) = cotangents
            assert cotangent is not None
            parts = node.op.transpose(node, [cotangent.value], linear)
            for argument, part in enumerate(parts):
                if part is not None:
                    found.add(
                        node.inputs[argument], Cotangent(part, _confined(node, argument, cotangent.mask))
                    )
            return
        if isinstance(node.op, Structured):
            for operand, pulled in zip(node.inputs, node.op.pull(node, cotangents, linear), strict=True):
                if pulled is not None:
                    found.add(operand, pulled)
            return
        applied = [None if cotangent is None else cotangent.applied() for cotangent in cotangents]
        for operand, part in zip(node.inputs, node.op.transpose(node, applied, linear), strict=True):
            if part is not None:
                found.add(operand, Cotangent(part))


def _confined(node: Node, argument: int, mask: Value | None) -> Value | None:
    assert isinstance(node.op, Elementwise)
    rule = None if node.op.confine is None else node.op.confine[argument]
    if rule is None:
        return mask
    own = rule(*node.inputs)
    return own if mask is None else OPERATORS["bitwise_and"](mask, own)
