"""Transposition of linear nodes: cotangents of outputs are propagated to inputs, with the masks of selections."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from gradtape.ir.builder import at, emit
from gradtape.ir.graph import Literal, Node, TraceTag, Value, extract
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import Shape
from gradtape.kinds.control import OwnPullback, carried
from gradtape.kinds.cotangent import Cotangent
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.logic import bitwise_and, bitwise_or, not_equal
from gradtape.ops.core.indexing import gather_row
from gradtape.ops.core.reductions import reduce_any, reduce_sum
from gradtape.ops.core.shape import reshape, reshape_row
from gradtape.transforms.masks import masked_parts


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
        place[value] = cotangent if before is None else _sum(before, cotangent)

    def select_nonzero(self, value: Value) -> None:
        """Let what is propagated from a cotangent of zero be zero by selection.

        A cotangent that was in memory has lost its mask. That of an element that was not selected is zero, and an infinite slope would
        make NaN of it.
        """
        cotangent = self._found.get(value)
        if cotangent is not None and cotangent.mask is None and not isinstance(cotangent.value, Literal):
            self._found[value] = Cotangent(cotangent.value, not_equal(cotangent.value, 0))

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


def _sum(a: Cotangent, b: Cotangent) -> Cotangent:
    add = PRIMITIVES["add_stacks" if a.value.dtype.kind == "O" else "add"]
    if a.mask is b.mask:
        return Cotangent(add(a.value, b.value), a.mask, a.is_applied and b.is_applied)
    if a.mask is None or b.mask is None:
        return Cotangent(add(a.applied(), b.applied()))
    return Cotangent(add(a.applied(), b.applied()), bitwise_or(a.mask, b.mask), is_applied=True)


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
                    mask = _narrowed_mask(node, argument, cotangent.mask)
                    same = part is cotangent.value and mask is cotangent.mask
                    found.add(node.inputs[argument], Cotangent(part, mask, cotangent.is_applied and same))
            return
        if isinstance(node.op, OwnPullback):
            for operand, pulled in zip(node.inputs, node.op.pull(node, cotangents, linear), strict=True):
                if pulled is not None:
                    found.add(operand, pulled)
            return
        if len(cotangents) == 1 and cotangents[0] is not None and cotangents[0].mask is not None:
            moved = _through_index_maps(node, cotangents[0], linear) or masked_parts(
                node, cotangents[0], linear
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


def _through_index_maps(
    node: Node, cotangent: Cotangent, linear: Sequence[bool]
) -> list[Cotangent | None] | None:
    """Return the cotangents of the inputs of a node whose transpose consists of index maps and sums, which are applied to the mask too.

    None for other nodes, such as matrix products (see `masked_parts`).
    """
    if node.op is reshape_row:  # the transpose may cancel another reshape, and have no nodes
        return [_reshaped(cotangent, node.inputs[0].shape)]
    if node.op is gather_row:
        return _gathered(node, cotangent, linear)
    pulled: list[Cotangent | None] = []
    whole: Sequence[Value | None] | None = None
    for argument, part in enumerate(node.op.transpose(node, [cotangent.value], linear)):
        if part is None:
            pulled.append(None)
            continue
        path = _index_path(part, cotangent.value)
        if path is None:
            return None
        mask = _mask_along(path, cotangent.mask)
        sums = any(step.op is reduce_sum for step in path)
        if sums:
            whole = whole or node.op.transpose(node, [cotangent.applied()], linear)
            part = whole[argument]
            assert part is not None
        pulled.append(Cotangent(part, mask, sums or cotangent.is_applied))
    return pulled


def _gathered(node: Node, cotangent: Cotangent, linear: Sequence[bool]) -> list[Cotangent | None]:
    """Return the cotangents of the inputs of a gather: zero by selection where all elements that are added are."""
    part, *others = node.op.transpose(node, [cotangent.applied()], linear)
    assert part is not None
    mask = cotangent.mask
    if mask is not None and not isinstance(mask, Literal):
        hits, *_ = node.op.transpose(node, [convert(mask, part.dtype)], linear)
        mask = not_equal(hits, 0.0)
    return [Cotangent(part, mask, is_applied=True), *[None for _ in others]]


def _reshaped(cotangent: Cotangent, shape: Shape) -> Cotangent:
    mask = cotangent.mask
    if mask is not None and not isinstance(mask, Literal):
        mask = reshape(mask, shape)
    return Cotangent(reshape(cotangent.value, shape), mask, cotangent.is_applied)


def _index_path(end: Value, start: Value) -> list[Node] | None:
    """Return the nodes from `start` to `end`, if each is an index map or a sum along axes; else None."""
    path: list[Node] = []
    while end is not start:
        node = end.node
        if node is None or not (isinstance(node.op, IndexMap) or node.op is reduce_sum):
            return None
        path.append(node)
        end = node.inputs[0]
    return path[::-1]


def _mask_along(path: Sequence[Node], mask: Value | None) -> Value | None:
    """Apply the nodes of a path to a mask: a sum is selected where one of its elements is."""
    if mask is None or isinstance(mask, Literal):
        return mask
    for node in path:
        op = reduce_any if node.op is reduce_sum else node.op
        mask = emit(op, [mask, *node.inputs[1:]], **node.params)
    return mask


def _narrowed_mask(node: Node, argument: int, mask: Value | None) -> Value | None:
    """Return the mask of the cotangent of an operand of an elementwise node, from the mask of the output's."""
    assert isinstance(node.op, Elementwise)
    rule = None if node.op.confine is None else node.op.confine[argument]
    if rule is None:
        return mask
    own = rule(*node.inputs)
    return own if mask is None else bitwise_and(mask, own)
