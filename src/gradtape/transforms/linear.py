"""Transposition of linear nodes: cotangents of outputs are propagated to inputs, with the masks of selections."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from gradtape.ir.builder import at
from gradtape.ir.graph import Literal, Node, TraceTag, Value, extract, next_serial
from gradtape.ir.types import Shape
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.control import OwnPullback, carried
from gradtape.kinds.cotangent import Cotangent, summed
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.kinds.reduction import Reduction
from gradtape.ops.core.shape import reshape, reshape_row
from gradtape.transforms.masks import masked_parts, narrowed_mask, pushed_through

MOVES = IndexMap | Join | Accumulate | Reduction
"""The kinds whose transposes move, store and sum elements."""


class Cotangents:
    """The cotangents of a reverse sweep so far, summed by value.

    Parameters
    ----------
    barriers : collection of Value
        Values that count as constants: their cotangents are kept, and not propagated.
    """

    __slots__ = ("_at_barriers", "_barriers", "_found")

    def __init__(self, barriers: Collection[Value] = ()) -> None:
        self._found: dict[Value, Cotangent] = {}
        self._at_barriers: dict[Value, Cotangent] = {}
        self._barriers = barriers

    def add(self, value: Value, cotangent: Cotangent) -> None:
        place = self._at_barriers if value in self._barriers else self._found
        before = place.get(value)
        place[value] = cotangent if before is None else summed(before, cotangent)

    def select(self, value: Value, masked: Cotangent | None) -> None:
        """Let what is propagated from a cotangent be zero by selection where another cotangent of the value is, which has a mask."""
        cotangent = self._found.get(value)
        if cotangent is not None and masked is not None and masked.mask is not None:
            self._found[value] = Cotangent(cotangent.value, masked.mask)

    def get(self, value: Value) -> Cotangent | None:
        """Return the cotangent of a value that is to be propagated."""
        return self._found.get(value)

    def arrived(self, value: Value) -> Cotangent | None:
        """Return the cotangent of a value, propagated or not."""
        return self._at_barriers.get(value) or self._found.get(value)

    def items(self) -> tuple[tuple[Value, Cotangent], ...]:
        """Return all cotangents by value, in the order in which the values were reached."""
        return (*self._at_barriers.items(), *self._found.items())

    def of_outputs(self, node: Node) -> list[Cotangent | None]:
        """Return the cotangents of a node's outputs."""
        return [self._found.get(out) for out in node.outs]


def pull_linear(
    targets: Iterable[tuple[Value, Cotangent]], tangents: Sequence[Value], tag: TraceTag
) -> Cotangents:
    """Transpose a linear map: propagate cotangents of values that depend linearly on `tangents` to these.

    Parameters
    ----------
    targets : iterable of (Value, Cotangent)
        Linear values with their cotangents.
    tangents : sequence of Value
        The linear inputs; they carry `tag`, and so does every value that depends on them.
    tag : TraceTag
        The tag of the linear nodes.

    Returns
    -------
    Cotangents
        With one for each of `tangents` that is reached.
    """
    found = Cotangents()
    roots = []
    for value, cotangent in targets:
        found.add(value, cotangent)
        roots.append(value)
    nodes, _ = extract(roots, tangents, stop=lambda value: tag not in value.tags, follow=carried)
    for node in reversed(nodes):
        pull_node(node, [tag in operand.tags for operand in node.inputs], found)
    return found


def pull_node(node: Node, linear: Sequence[bool], found: Cotangents) -> None:
    """Propagate the cotangents of a linear node's outputs to its inputs."""
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
                    mask = narrowed_mask(node, argument, cotangent.mask)
                    same = part is cotangent.value and mask is cotangent.mask
                    found.add(node.inputs[argument], Cotangent(part, mask, cotangent.is_applied and same))
            return
        if isinstance(node.op, OwnPullback):
            for operand, pulled in zip(
                node.inputs, node.op.pull_linear(node, cotangents, linear), strict=True
            ):
                if pulled is not None:
                    found.add(operand, pulled)
            return
        (cotangent, *others) = cotangents
        if (
            not others
            and cotangent is not None
            and (cotangent.mask is not None or isinstance(node.op, MOVES))
        ):
            moved = (
                _through_moves(node, cotangent, linear)
                if isinstance(node.op, MOVES)
                else masked_parts(node, cotangent, linear)
            )
            if moved is not None:
                for operand, pulled in zip(node.inputs, moved, strict=True):
                    if pulled is not None:
                        found.add(operand, pulled)
                return
        applied = [None if cotangent is None else cotangent.applied() for cotangent in cotangents]
        for operand, part in zip(node.inputs, node.op.transpose(node, applied, linear), strict=True):
            if part is not None:
                found.add(operand, Cotangent(part))


def _through_moves(node: Node, cotangent: Cotangent, linear: Sequence[bool]) -> list[Cotangent | None]:
    """Return the cotangents of the inputs of a node whose transpose moves, stores and sums elements, as it does with those of the mask.

    What the transpose is made of is linear in the cotangent: masks are propagated through its nodes as those of tangents are.
    """
    if node.op is reshape_row:  # the transpose may cancel another reshape, and have no nodes
        return [_reshaped(cotangent, node.inputs[0].shape)]
    begin = next_serial()
    parts = node.op.transpose(node, [cotangent.value], linear)
    return pushed_through(begin, {cotangent.value: cotangent}, parts)


def _reshaped(cotangent: Cotangent, shape: Shape) -> Cotangent:
    mask = cotangent.mask
    if mask is not None and not isinstance(mask, Literal):
        mask = reshape(mask, shape)
    return Cotangent(reshape(cotangent.value, shape), mask, cotangent.is_applied)
