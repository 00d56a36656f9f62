"""The pullback of loops by that of the procedure that computes the same, and batches of it.

A procedure records what its reverse sweep needs, and restores arrays that were overwritten. Cholesky's decomposition of a 100 by 100
matrix with `fori_loop`, in microseconds: the pullback of the loop takes 700,000, because each of its iterations keeps the whole matrix;
that of the procedure takes 165. ADR 111 has the measurements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from gradtape.ir.body import Body, bodies_of, holds_rules
from gradtape.ir.builder import emit_all
from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.types import aval, is_inexact
from gradtape.kinds.batching import Shared, all_in_front, batch_node, in_front
from gradtape.kinds.contract import Contract
from gradtape.kinds.cotangent import Cotangent
from gradtape.lru import LRU
from gradtape.ops.core.elementwise.cast import identity, zeros_like
from gradtape.ops.core.elementwise.logic import not_equal
from gradtape.passes.control.bodies import in_bodies
from gradtape.passes.rewrite import rewrite
from gradtape.procedures.ir import Pointer
from gradtape.transforms.adjoint import are_linear
from gradtape.transforms.batch import batch_more
from gradtape.transforms.jvp import jvp
from gradtape.transforms.loops.budget import is_budget
from gradtape.transforms.loops.draft import LoopOp, emit_substituted, never_stop, placeholder
from gradtape.transforms.loops.ops import PULLBACKS, While
from gradtape.transforms.loops.vjp import pull_loop
from gradtape.transforms.observers import is_observed
from gradtape.transforms.procedures.activity import Activity
from gradtape.transforms.procedures.loop_conversion import (
    NotConvertibleError,
    procedure_of_loop,
    writes_in_place,
)
from gradtape.transforms.procedures.ops import Reverse, procedure, procedure_vjp, spread
from gradtape.transforms.procedures.reference import (
    Flags,
    ProcedureReference,
    batch_of,
    reference_to,
)
from gradtape.transforms.vjp import reverse_sweep

_CONVERTED: Final[LRU[Any, tuple[ProcedureReference | None]]] = LRU(lambda: 256)


def pull_as_procedure(
    node: Node, cotangents: Sequence[Cotangent | None], wanted: Sequence[bool]
) -> Sequence[Cotangent | None] | None:
    """Return the cotangents of a loop's inputs; None for loops that are better differentiated as loops of the graph.

    Those are loops that a debugger observes, linear loops, which keep nothing, loops with derivatives given by the user, and all loops that
    do not write in place but those of `_is_procedure`.
    """
    if is_observed() or not (writes_in_place(node) or (_is_procedure(node) and not are_linear(node, wanted))):
        return None
    reference = reference_to_loop(node)
    if reference is None:
        return None
    call = procedure(reference, node.inputs)[0].node
    assert call is not None
    seeded = tuple([cotangent is not None for cotangent in cotangents])
    flags = _connected(reference, tuple(map(bool, wanted)), seeded)
    pulled = procedure.pull_with(node.params.get("policy"), call, cotangents, flags)
    # The zeros of a procedure are zeros by selection: see ADR 104.
    return [
        None if part is None else Cotangent(part.value, not_equal(part.value, 0), is_applied=True)
        for part in pulled
    ]


@lru_cache(maxsize=256)
def _connected(reference: ProcedureReference, active: Flags, seeded: Flags) -> Flags:
    """Return which of the active parameters have a differentiable path to a seeded result."""
    activity = Activity(reference.procedure, active, seeded)
    return tuple(
        [
            flag and (x.memory in activity.locations if isinstance(x, Pointer) else x in activity.values)
            for x, flag in zip(reference.procedure.parameters, active, strict=True)
        ]
    )


def reference_to_loop(node: Node) -> ProcedureReference | None:
    """Return the reference to the procedure that computes a loop; None if there is none."""
    if holds_rules([node]):
        return None
    types = tuple([(value.shape, value.dtype) for value in node.inputs])
    key = node.op, types, tuple(sorted(node.params.items()))
    converted = _CONVERTED.get(key)
    if converted is None:
        _CONVERTED[key] = converted = (_converted(node),)
    return converted[0]


def _converted(node: Node) -> ProcedureReference | None:
    try:
        reference = reference_to(procedure_of_loop(node))
    except NotConvertibleError:
        return None
    if not writes_in_place(node):
        reference.loop = node.op, node.params
    return reference


def _is_procedure(node: Node) -> bool:
    """Return whether a loop is differentiated as a procedure: one of unknown trip count whose iterations multiply matrices.

    Microseconds as a loop of the graph and as a procedure: 264 and 45 for a fixed point with ``A @ x``, 3278 and 2608 for 64 lines by 64
    units; but without products 1760 and 4130 for Newton's iteration on 100,000 numbers, and with treeverse 34,000 and 172,000 for sines.
    """
    if not isinstance(node.op, While) or (node.params["limit"], node.params["policy"]) != (None, None):
        return False
    nodes = list(_nodes_inside(node))
    if any(x.dtype.kind == "c" for inner in nodes for x in (*inner.inputs, *inner.outs)):
        return False
    return any(isinstance(inner.op, Contract) for inner in nodes)


def _nodes_inside(node: Node) -> Iterator[Node]:
    for body in bodies_of(node):
        for inner in body.nodes:
            yield inner
            yield from _nodes_inside(inner)


@batch_node.register
def _batch_reverse(
    op: Reverse, node: Node, operands: Sequence[Value], mapped: Sequence[bool], size: int
) -> tuple[Value | Shared, ...]:
    """Return the derivative of the batch. A shared operand whose cotangents differ between elements is repeated first.

    Where the derivative of a loop can be a loop, that is batched: its iterations have the elements of the mapped axis in the lanes of
    vectors, and what does not depend on this axis, such as the forward sweep of a Jacobian, is computed once.
    """
    policy = node.params["policy"]
    unfolded = _unfolded(node) if policy in (None, "all") or is_budget(policy) else None
    if unfolded is not None:
        inputs, outs = unfolded
        batches: dict[Value, Any] = {
            inner: operand if flag else Shared(operand)
            for inner, operand, flag in zip(inputs, operands, mapped, strict=True)
        }
        return tuple(batch_more(outs, batches, size, never_stop))
    reference: ProcedureReference = node.params["procedure"]
    active, seeded, policy = (node.params[name] for name in ("active", "seeded", "policy"))
    count = len(reference.types)
    batched = tuple([flag or own for flag, own in zip(mapped[:count], active, strict=True)])
    own = [flag or not wanted for flag, wanted in zip(mapped[:count], batched, strict=True)]
    primals = all_in_front(operands[:count], own, size)
    seeds = all_in_front(operands[count:], mapped[count:], size)
    if reference.loop is not None:
        return tuple(_pulled_batch(reference, primals, batched, active, spread(seeds, seeded), size))
    return op(batch_of(reference, size, batched), active, seeded, [*primals, *seeds], policy)


def _pulled_batch(
    reference: ProcedureReference,
    primals: Sequence[Value],
    batched: Sequence[bool],
    active: Sequence[bool],
    seeds: Sequence[Value | None],
    size: int,
) -> list[Value | Shared]:
    """Return the outputs of the batch of a loop, and the cotangents that are pulled back through it."""
    copies = [identity(primal) for primal in primals]  # an operand may be passed twice
    inputs = [
        Value(aval(copy.shape[1:], copy.dtype)) if flag else copy
        for copy, flag in zip(copies, batched, strict=True)
    ]
    batches: dict[Value, Any] = {
        inner: copy if flag else Shared(copy)
        for inner, copy, flag in zip(inputs, copies, batched, strict=True)
    }
    outs = batch_more(_loops_of(reference, inputs) or [], batches, size, never_stop)
    pairs = [
        (out if isinstance(out, Value) else in_front(out.value, size), seed)
        for out, seed in zip(outs, seeds, strict=True)
        if seed is not None
    ]
    sources = [copy for copy, flag in zip(copies, active, strict=True) if flag]
    sweep = reverse_sweep(
        [out for out, _ in pairs], sources, [seed for _, seed in pairs], set(copies).__contains__
    )
    return [
        *outs,
        *[zeros_like(x) if part is None else part for x, part in zip(sources, sweep.results, strict=True)],
    ]


def unfold_loops(graph: Graph) -> Graph:
    """Return the graph with loops in place of their derivatives: what is written to files holds no procedures."""

    def rule(node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        unfolded = _unfolded(node) if node.op is procedure_vjp else None
        return (
            None
            if unfolded is None
            else emit_substituted(unfolded[1], dict(zip(unfolded[0], operands, strict=True)))
        )

    return rewrite(in_bodies(graph, _unfold_body), rule)


def _unfold_body(body: Body) -> Body:
    unfolded = unfold_loops(body)
    return body if unfolded is body else Body(unfolded.inputs, unfolded.nodes, unfolded.outputs, body.name)


def _unfolded(node: Node) -> tuple[list[Value], list[Value]] | None:
    """Return inputs and outputs of a graph of loops that computes the same as a derivative; None where there is none."""
    reference: ProcedureReference = node.params["procedure"]
    inputs = [placeholder(value) for value in node.inputs]
    count = len(reference.types)
    outs = _loops_of(reference, inputs[:count])
    if outs is None:
        return None
    active: Sequence[bool] = node.params["active"]
    seeds = spread(inputs[count:], node.params["seeded"])
    sources = [source for source, flag in zip(inputs, active, strict=False) if flag]
    loop = outs[0].node
    if reference.loop is not None and loop is not None and isinstance(loop.op, LoopOp):
        cotangents = [None if seed is None else Cotangent(seed) for seed in seeds]
        parts = pull_loop(loop.op, loop, cotangents, active)
        pulled = [
            None if part is None else part.applied() for part, flag in zip(parts, active, strict=True) if flag
        ]
    else:
        pairs = [(out, seed) for out, seed in zip(outs, seeds, strict=True) if seed is not None]
        sweep = reverse_sweep([out for out, _ in pairs], sources, [seed for _, seed in pairs], never_stop)
        pulled = list(sweep.results)
    return inputs, [
        *outs,
        *[zeros_like(x) if part is None else part for x, part in zip(sources, pulled, strict=True)],
    ]


def _loops_of(reference: ProcedureReference, inputs: Sequence[Value]) -> list[Value] | None:
    """Append the loop of which a procedure or a forward derivative was made; None where there is none."""
    if reference.loop is not None:
        op, params = reference.loop
        return list(emit_all(op, inputs, **params))
    if reference.primal is None or reference.moving is None:
        return None
    count = len(reference.primal.types)
    outs = _loops_of(reference.primal, inputs[:count])
    if outs is None:
        return None
    sources = [source for source, flag in zip(inputs, reference.moving, strict=False) if flag]
    targets = [out for out in outs if is_inexact(out.dtype)]
    tangents = jvp(targets, sources, inputs[count:], never_stop)
    return [
        *outs,
        *[
            zeros_like(x) if tangent is None else tangent
            for x, tangent in zip(targets, tangents, strict=True)
        ],
    ]


PULLBACKS.append(pull_as_procedure)
