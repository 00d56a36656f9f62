"""The adjoint of a user's linear rule, which is checked to be linear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gradtape.errors import NotDifferentiableError
from gradtape.ir.body import bodies_of
from gradtape.ir.builder import here
from gradtape.ir.graph import Node, TraceTag, Value, extract
from gradtape.ir.types import carries_derivatives, is_inexact
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.kinds.control import Structured, carried
from gradtape.kinds.correlation import Correlation
from gradtape.kinds.cotangent import Cotangent
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.routines.callback import Callback
from gradtape.kinds.routines.matrix import Matrix
from gradtape.kinds.sort import Sort
from gradtape.transforms.linear import pull_linear
from gradtape.transforms.loops.draft import LoopOp
from gradtape.transforms.procedures.ops import ProcedureOp

WHY: Final = "a rule for one direction of differentiation serves the other by transposition, and only linear maps have a transpose"
REMEDY: Final = (
    "write the rule as a linear map of its (co)tangents (branches and factors may depend on the primals)"
)


def adjoint(
    outputs: Sequence[Value | None],
    starts: Sequence[Value],
    cotangents: Sequence[Value | None],
    tag: TraceTag,
    description: str,
) -> list[Value | None]:
    """Pull cotangents back through nodes that must be linear.

    Parameters
    ----------
    outputs : sequence of Value or None
        What was computed from `starts`.
    starts : sequence of Value
        The linear inputs; they carry `tag`, which is recording.
    cotangents : sequence of Value or None
        One per output.
    tag : TraceTag
        Tells what depends on `starts`.
    what : str
        What the nodes are, for the error.

    Returns
    -------
    list of Value or None
        One per start.

    Raises
    ------
    NotDifferentiableError
        Where the outputs are not linear in `starts`.
    """
    output_pairs = [
        (output, Cotangent(cotangent))
        for output, cotangent in zip(outputs, cotangents, strict=True)
        if output is not None and cotangent is not None
    ]
    if any(tag not in output.tags and not _is_zero(output) for output, _ in output_pairs):
        raise NotDifferentiableError(
            f"{description}: part of its result is a constant other than zero",
            where=here.site,
            why=WHY,
            remedy=REMEDY,
        )
    pairs = [(output, cotangent) for output, cotangent in output_pairs if tag in output.tags]
    nodes, _ = extract([output for output, _ in pairs], starts, lambda value: tag not in value.tags, carried)
    for node in nodes:
        if not _is_linear(node, [tag in operand.tags for operand in node.inputs]):
            raise _not_linear(description, node)
    pulled_by_value = pull_linear(pairs, starts, tag)
    pulled = [pulled_by_value.get(start) for start in starts]
    result = [None if cotangent is None else cotangent.applied() for cotangent in pulled]
    # The transpose of a linear map does not depend on where it is taken.
    if any(value is not None and tag in value.tags for value in result):
        raise _not_linear(description, nodes[-1])
    return result


def _not_linear(description: str, node: Node) -> NotDifferentiableError:
    return NotDifferentiableError(
        f"{description}: {node.op.name} is not linear there",
        where=node.site,
        why=WHY,
        remedy=REMEDY,
    )


def _is_linear(node: Node, flags: Sequence[bool]) -> bool:
    """Return whether a node is linear in the flagged inputs."""
    op = node.op
    if isinstance(op, Structured):
        return are_linear(node, flags)
    if isinstance(op, ProcedureOp):
        return op.is_linear(node, flags)
    if isinstance(op, Sort) or not all(is_inexact(out.dtype) for out in node.outs):
        return False
    if isinstance(op, Elementwise):
        return _is_linear_row(node, op, flags)
    if isinstance(op, IndexMap):
        return not any(flags[1:])
    if isinstance(op, Join):
        return _others_are_zero(node, flags, range(len(flags)))
    if isinstance(op, Accumulate):
        return not any(flags[2:]) and _others_are_zero(node, flags, (0, 1))
    if isinstance(op, Reduction):
        return op.transpose_rule is not None
    if isinstance(op, Contract | Correlation):
        return not all(flags)
    if isinstance(op, Matrix | Callback):
        return op.is_linear(flags)
    if isinstance(op, Cumulative):
        return op.transpose_rule is not None and not any(flags[:-1])
    return True


def are_linear(node: Node, flags: Sequence[bool]) -> bool:
    """Return whether the outputs of a loop or branch are linear in the flagged inputs, in each iteration."""
    moving = [
        flag and carries_derivatives(operand.dtype) for flag, operand in zip(flags, node.inputs, strict=True)
    ]
    if not isinstance(node.op, LoopOp):
        return all(
            _linear_in(branch.nodes, _flagged(branch.inputs, moving[1:])) is not None
            for branch in bodies_of(node)
        )
    draft = node.op.open_draft(node)
    body_inputs = draft.body_inputs[1:]
    started = _flagged(body_inputs, moving[len(moving) - len(body_inputs) :])
    linear = set(started)
    while True:  # terminates: each round but the last finds another linear carry
        linear_values = _linear_in(draft.nodes(), linear)
        if linear_values is None or draft.test in linear_values:
            return False
        newly_linear = {carry.inner for carry in draft.carries if carry.next_carry in linear_values} - linear
        if not newly_linear:
            break
        linear |= newly_linear
    # A carry that begins or goes on with something else than zero is affine.
    return all(
        (carry.inner in started or _is_zero(carry.init))
        and (carry.next_carry in linear_values or _is_zero(carry.next_carry))
        for carry in draft.carries
        if carry.inner in linear
    )


def _flagged(values: Sequence[Value], flags: Sequence[bool]) -> set[Value]:
    return {value for value, flag in zip(values, flags, strict=True) if flag}


def _linear_in(nodes: Sequence[Node], linear: set[Value]) -> set[Value] | None:
    """Return what depends on linear values; None where something does not do so linearly."""
    linear_values = set(linear)
    for node in nodes:
        flags = [operand in linear_values for operand in node.inputs]
        if any(flags):
            if not _is_linear(node, flags):
                return None
            linear_values.update(node.outs)
    return linear_values


def _is_linear_row(node: Node, op: Elementwise, flags: Sequence[bool]) -> bool:
    if op.linear_rules is None:
        return False
    if any(flag and rule is None for flag, rule in zip(flags, op.linear_rules, strict=True)):
        return False
    return _others_are_zero(node, flags, op.additive) if op.additive else sum(flags) == 1


def _others_are_zero(node: Node, flags: Sequence[bool], positions: Sequence[int]) -> bool:
    return all(flags[position] or _is_zero(node.inputs[position]) for position in positions)


def _is_zero(value: Value) -> bool:
    """Return whether a value is zero at any primals, by the structure of its computation."""
    data: Any = value.data
    if data is not None:
        return not data.any()
    node = value.node
    if node is None:
        return False
    op, inputs = node.op, node.inputs
    if isinstance(op, Elementwise):
        if op.additive:
            return all(_is_zero(inputs[position]) for position in op.additive)
        rules = op.linear_rules or ()
        return any(
            rule is not None and _is_zero(operand) for rule, operand in zip(rules, inputs, strict=False)
        )
    if isinstance(op, Contract | Correlation):
        return any(map(_is_zero, inputs))
    if isinstance(op, Join):
        return all(map(_is_zero, inputs))
    if isinstance(op, Reduction | Cumulative) and op.transpose_rule is None:
        return False
    return isinstance(op, IndexMap | Reduction | Cumulative) and _is_zero(
        inputs[-1] if isinstance(op, Cumulative) else inputs[0]
    )
