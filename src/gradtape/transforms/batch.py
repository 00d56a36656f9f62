"""Batching: the nodes for one element become nodes for all elements of a mapped axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gradtape.ir.builder import at, emit_all
from gradtape.ir.graph import Node, Value, extract
from gradtape.kinds.batching import Shared, all_in_front, batch_node, in_front
from gradtape.kinds.control import Barrier, Custom, OwnPullback, Rule, pulled_by_value
from gradtape.kinds.cotangent import Cotangent
from gradtape.ops.core.reductions import reduce_sum
from gradtape.transforms import one_hot
from gradtape.transforms.call import GraphCall, inlined
from gradtape.transforms.loops.batch import batch_loop, batch_switch
from gradtape.transforms.loops.draft import LoopOp
from gradtape.transforms.loops.ops import Switch
from gradtape.transforms.loops.squares import with_squares
from gradtape.transforms.one_hot import OneHot


def batch(
    outputs: Sequence[Value],
    mapped: Mapping[Value, Value | OneHot],
    size: int,
    stop: Callable[[Value], bool],
) -> list[Value | None]:
    """Append the nodes that compute `outputs` for every element of a mapped axis.

    Parameters
    ----------
    outputs : sequence of Value
        Values of one element.
    mapped : mapping of Value to Value or OneHot
        For each value of one element, those of all elements: of its shape with the mapped axis in front.
    size : int
        The extent of the mapped axis.
    stop : callable
        Predicate on values: those that do not depend on the mapped axis.

    Returns
    -------
    list of Value or None
        For each output, its values for all elements, the mapped axis in front; None where it does not depend on the mapped axis.

    Notes
    -----
    Nodes that do not depend on the mapped axis are shared, and computed once. A. Agarwal and I. Ganichev,
    "Auto-Vectorizing TensorFlow Graphs: Jacobians, Auto-Batching and Beyond", 2019.
    """
    results = batch_or_share(outputs, mapped, size, stop)
    return [
        result
        if isinstance(result, Value)
        else None
        if result.value is output
        else in_front(result.value, size)
        for result, output in zip(results, outputs, strict=True)
    ]


def batch_or_share(
    outputs: Sequence[Value],
    mapped: Mapping[Value, Value | OneHot],
    size: int,
    stop: Callable[[Value], bool],
) -> list[Value | Shared]:
    """Do what `batch` does, and return values that do not depend on the mapped axis as `Shared`."""
    return batch_more(outputs, dict(mapped), size, stop)


def batch_more(
    outputs: Sequence[Value],
    batched: dict[Value, Value | OneHot | Shared],
    size: int,
    stop: Callable[[Value], bool],
) -> list[Value | Shared]:
    """Do what `batch_or_share` does, and enter all values that are computed for it in `batched`, for the next time."""
    nodes, _ = extract(outputs, batched, stop=lambda value: stop(value) or value.node is None)
    for node in nodes:
        of_operands = [batched.get(operand, Shared(operand)) for operand in node.inputs]
        flags = [not isinstance(operand, Shared) for operand in of_operands]
        operands = [operand.value if isinstance(operand, Shared) else operand for operand in of_operands]
        if any(flags):
            with at(node.site):
                outs = _outputs(node, operands, flags, size)
            for single, batched_out in zip(node.outs, outs, strict=True):
                batched[single] = batched_out
                if single.name is not None and isinstance(batched_out, Value) and batched_out.name is None:
                    batched_out.name = single.name
        elif any(map(batched.__contains__, node.inputs)):
            with at(node.site):
                outs = emit_all(
                    node.op, [operand for operand in operands if isinstance(operand, Value)], **node.params
                )
            batched.update(zip(node.outs, map(Shared, outs), strict=True))
    last = [batched.get(output, Shared(output)) for output in outputs]
    return [each if isinstance(each, Shared) else _array(each) for each in last]


def _outputs(
    node: Node, operands: Sequence[Value | OneHot], flags: Sequence[bool], size: int
) -> tuple[Value | OneHot | Shared, ...]:
    if any(isinstance(operand, OneHot) for operand in operands):
        out = one_hot.apply(node, operands, flags)
        if out is not None:
            return (out,)
    outs = batch_node(node.op, node, [_array(operand) for operand in operands], flags, size)
    if not isinstance(node.op, OwnPullback):
        return outs
    # A kink that was outside the mapped function is seen now.
    values = [out for out in outs if isinstance(out, Value)]
    squared = list(with_squares(values)) if len(values) == len(outs) and _are_all_outs(values) else values
    return outs if squared == values else tuple(squared)


def _are_all_outs(values: Sequence[Value]) -> bool:
    node = values[0].node if values else None
    return node is not None and node.outs == tuple(values)


def _array(operand: Value | OneHot) -> Value:
    return operand.dense() if isinstance(operand, OneHot) else operand


def _batch_body(outputs: Sequence[Value], mapped: Mapping[Value, Value], size: int) -> list[Value | Shared]:
    """Batch outputs of a body."""
    return batch_or_share(outputs, mapped, size, lambda value: False)


@batch_node.register
def _loop(
    op: LoopOp, node: Node, operands: Sequence[Value], mapped: Sequence[bool], size: int
) -> tuple[Value | Shared, ...]:
    return batch_loop(op, node, operands, mapped, size, _batch_body)


@batch_node.register
def _switch(
    op: Switch, node: Node, operands: Sequence[Value], mapped: Sequence[bool], size: int
) -> tuple[Value | Shared, ...]:
    return batch_switch(op, node, operands, mapped, size, _batch_body)


@batch_node.register
def _call(
    op: GraphCall, node: Node, operands: Sequence[Value], mapped: Sequence[bool], size: int
) -> tuple[Value, ...]:
    pairs = list(zip(node.inputs, operands, mapped, strict=True))
    shared = {single for single, _, flag in pairs if not flag}
    outs = inlined(op.graph, node.inputs)
    batched_outs = batch(outs, {single: x for single, x, flag in pairs if flag}, size, shared.__contains__)
    return tuple([in_front(out, size) if x is None else x for out, x in zip(outs, batched_outs, strict=True)])


@batch_node.register
def _barrier(
    op: Barrier, node: Node, operands: Sequence[Value], mapped: Sequence[bool], size: int
) -> tuple[Value, ...]:
    kept_count: int = node.params["kept"]
    return op(all_in_front(operands[:kept_count], mapped[:kept_count], size), operands[kept_count:])


@batch_node.register
def _custom(
    op: Custom, node: Node, operands: Sequence[Value], mapped: Sequence[bool], size: int
) -> tuple[Value, ...]:
    hidden: int = node.params["hidden"]
    results = all_in_front(operands[:hidden], mapped[:hidden], size)
    return op(results, operands[hidden:], _MappedRule(node, mapped, size))


class _MappedRule(Rule):
    """The custom rule of a function, for every element of a mapped axis.

    Parameters
    ----------
    single : Node
        The call of the function on one element.
    mapped : sequence of bool
        Which of its inputs depend on the mapped axis.
    size : int
        The extent of the mapped axis.
    """

    def __init__(self, single: Node, mapped: Sequence[bool], size: int) -> None:
        self._rule: Rule = single.params["rule"]
        super().__init__(f"{self._rule.name} for {size}")
        self.opens = self._rule.opens
        self._single = single
        self._hidden: int = single.params["hidden"]
        self._mapped = tuple(mapped)
        self._size = size

    def push(self, node: Node, tangents: Sequence[Value | None]) -> Sequence[Value | None]:
        flags = self._mapped[self._hidden :]
        present = [
            None if tangent is None else Value(operand.aval)
            for tangent, operand in zip(tangents, self._single.inputs[self._hidden :], strict=True)
        ]
        mapped = {
            single: tangent if flag else in_front(tangent, self._size)
            for single, tangent, flag in zip(present, tangents, flags, strict=True)
            if single is not None and tangent is not None
        }
        return self._batched(self._rule.push(self._single, present), node, mapped)

    def pull_back(
        self, node: Node, cotangents: Sequence[Cotangent | None], is_needed: Sequence[bool]
    ) -> Sequence[Cotangent | None]:
        return pulled_by_value(self, node, cotangents, is_needed)

    def pull(
        self, node: Node, cotangents: Sequence[Value | None], is_needed: Sequence[bool]
    ) -> Sequence[Value | None]:
        present = [
            None if cotangent is None else Value(out.aval)
            for cotangent, out in zip(cotangents, self._single.outs, strict=True)
        ]
        mapped = {
            single: cotangent
            for single, cotangent in zip(present, cotangents, strict=True)
            if single is not None and cotangent is not None
        }
        parts = self._batched(self._rule.pull(self._single, present, is_needed), node, mapped)
        # The cotangent of a shared operand is the sum over all elements.
        return [
            part if part is None or flag else reduce_sum(part, axes=(0,))
            for part, flag in zip(parts, self._mapped[self._hidden :], strict=True)
        ]

    def _batched(
        self, parts: Sequence[Value | None], node: Node, mapped: dict[Value, Value]
    ) -> list[Value | None]:
        """Return the results of the rule for all elements, from those for one; `node` is the call on all elements."""
        batched_values: dict[Value, Value] = dict(zip(self._single.outs, node.outs, strict=True))
        for position, (single, batched_input) in enumerate(
            zip(self._single.inputs, node.inputs, strict=True)
        ):
            if self._mapped[position] or position < self._hidden:
                batched_values[single] = batched_input
            elif batched_input is not single:
                batched_values[single] = in_front(batched_input, self._size)
        present = [part for part in parts if part is not None]
        batched_parts = iter(batch(present, {**batched_values, **mapped}, self._size, lambda value: False))
        results: list[Value | None] = []
        for part in parts:
            if part is None:
                results.append(None)
            else:
                applied = next(batched_parts)
                results.append(in_front(part, self._size) if applied is None else applied)
        return results
