"""Procedures as nodes: `procedure`, and `procedure_vjp`, its derivative in reverse.

A node is a pure function of arrays. Derivatives of any order are nodes of these two sorts. Let J be the Jacobian of f, and F the forward
derivative of f, which takes x and dx to f(x) and J dx. The tangent of (x, ct) -> J^T ct in the direction (dx, dct), and its own pullback
with the cotangents u, are gradients in x of <dct, f(x)> + <ct, J dx> and of <v, f(x)> + <u, J^T ct>: the derivatives in reverse of F at
(x, dx) with the seeds (dct, ct), and at (x, u) with the seeds (v, ct). So no derivative in reverse is differentiated as a program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.config import loop_policy
from gradtape.errors import InternalError
from gradtape.ir.builder import emit_all
from gradtape.ir.graph import Node, Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import Aval, is_inexact
from gradtape.kinds.batching import Shared, batch_node
from gradtape.kinds.control import OwnPullback
from gradtape.kinds.cotangent import Cotangent
from gradtape.procedures.interpret import run_procedure
from gradtape.transforms.loops.budget import stated_budget
from gradtape.transforms.procedures.reference import (
    Flags,
    Policy,
    ProcedureReference,
    batch_of,
    cotangent_of,
    tangent_of,
    with_squares_of,
)


class ProcedureOp(OwnPullback):
    """A node that runs a procedure."""

    def whole(self, params: dict[str, Any]) -> ProcedureReference:
        """Return the procedure that computes the outputs of a node."""
        raise NotImplementedError

    def is_linear(self, node: Node, flags: Sequence[bool]) -> bool:
        """Return whether derivatives among the outputs of a node are linear in the flagged inputs; other outputs do not depend on them."""
        raise NotImplementedError

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        reference = self.whole(params)
        operand_types = [(type_.shape, type_.dtype) for type_ in avals]
        parameter_types = [(type_.shape, type_.dtype) for type_ in reference.types]
        if operand_types != parameter_types:
            raise InternalError(f"{reference.name} takes {reference.types} and was given {tuple(avals)}")
        return reference.result_types

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        return tuple(run_procedure(self.whole(params).procedure, arrays))


class Primal(ProcedureOp):
    """A procedure, or a forward derivative of one. Inputs and outputs: its parameters and its results."""

    def __call__(self, reference: ProcedureReference, inputs: Sequence[Value]) -> tuple[Value, ...]:
        return emit_all(self, inputs, procedure=reference)

    def whole(self, params: dict[str, Any]) -> ProcedureReference:
        reference: ProcedureReference = params["procedure"]
        return reference

    def with_squares_of(
        self, node: Node, kinked: Sequence[int | None], result: int | None = None
    ) -> tuple[Sequence[int], Callable[[Sequence[Value]], Sequence[Value]]] | None:
        extended = with_squares_of(node.params["procedure"], tuple(kinked), result)
        if extended is None:
            return None
        reference, positions = extended
        return positions, lambda squares: self(reference, [*node.inputs, *squares])

    def is_linear(self, node: Node, flags: Sequence[bool]) -> bool:
        reference: ProcedureReference = node.params["procedure"]
        primal = reference.primal
        return reference.moving is not None and primal is not None and not any(flags[: len(primal.types)])

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        return tuple(_pushed(node.params["procedure"], node.inputs, tangents)[len(node.outs) :])

    def pull(
        self, node: Node, cotangents: Sequence[Cotangent | None], is_needed: Sequence[bool]
    ) -> Sequence[Cotangent | None]:
        return self.pull_with(None, node, cotangents, is_needed)

    def pull_with(
        self, policy: Policy, node: Node, cotangents: Sequence[Cotangent | None], is_needed: Sequence[bool]
    ) -> Sequence[Cotangent | None]:
        """Do what `pull` does, with a checkpoint policy for loops."""
        reference: ProcedureReference = node.params["procedure"]
        seeds = [None if cotangent is None else cotangent.applied() for cotangent in cotangents]
        primal, moving = reference.primal, reference.moving
        if primal is not None and moving is not None and self.is_linear(node, is_needed):
            count, results = len(primal.types), len(primal.result_types)
            if all(seed is None for seed in seeds[:results]):  # the transpose of J dx is J^T, without dx
                aims = [flag is True for flag in spread(is_needed[count:], moving)]
                _, parts = _pulled(primal, node.inputs[:count], _by_result(primal, seeds[results:]), aims)
                pulled = [*(None,) * count, *_chosen(parts, moving)]
                return [None if part is None else Cotangent(part) for part in pulled]
        _, pulled = _pulled(reference, node.inputs, seeds, is_needed, policy)
        return [None if part is None else Cotangent(part) for part in pulled]


class Reverse(ProcedureOp):
    """The derivative of a procedure in reverse.

    Inputs: those of the procedure, and a cotangent for each result that is flagged by `seeded`. Outputs: its results, and the
    cotangents of the parameters that are flagged by `active`. `policy` says what is kept of loops; by default it is that of
    `gradtape.config` where the node is made, or its memory budget. A pass may add `between`, which computes seeds from the results.
    """

    def __call__(
        self,
        reference: ProcedureReference,
        active: Flags,
        seeded: Flags,
        inputs: Sequence[Value],
        policy: Policy = None,
    ) -> tuple[Value, ...]:
        return emit_all(
            self,
            inputs,
            procedure=reference,
            active=active,
            seeded=seeded,
            policy=policy or loop_policy() or stated_budget(),
        )

    def whole(self, params: dict[str, Any]) -> ProcedureReference:
        flags = params["active"], params["seeded"]
        return cotangent_of(params["procedure"], *flags, params["policy"], params.get("between"))

    def is_linear(self, node: Node, flags: Sequence[bool]) -> bool:
        reference: ProcedureReference = node.params["procedure"]
        return not any(flags[: len(reference.types)])

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        reference: ProcedureReference = node.params["procedure"]
        active, seeded, policy = (node.params[name] for name in ("active", "seeded", "policy"))
        count = len(reference.types)
        primals, seeds = node.inputs[:count], spread(node.inputs[count:], seeded)
        directions = list(tangents[:count])
        moved = spread(tangents[count:], seeded)
        if all(direction is None for direction in directions):
            _, pulled = _pulled(reference, primals, moved, active, policy)
            return (*(None,) * len(reference.result_types), *_chosen(pulled, active))
        flags, forward = _forward(reference, directions)
        inputs = [*primals, *_chosen(directions, flags)]
        inputs_of_results = [*moved, *_inexact(reference, seeds)]
        is_needed = [*active, *(False,) * sum(flags)]
        results, pulled = _pulled(forward, inputs, inputs_of_results, is_needed, policy)
        return (
            *_by_result(reference, results[len(reference.result_types) :]),
            *_chosen(pulled[:count], active),
        )

    def pull(
        self, node: Node, cotangents: Sequence[Cotangent | None], is_needed: Sequence[bool]
    ) -> Sequence[Cotangent | None]:
        reference: ProcedureReference = node.params["procedure"]
        active, seeded, policy = (node.params[name] for name in ("active", "seeded", "policy"))
        count, results = len(reference.types), len(reference.result_types)
        primals, seeds = node.inputs[:count], spread(node.inputs[count:], seeded)
        applied = [None if cotangent is None else cotangent.applied() for cotangent in cotangents]
        of_results, directions = applied[:results], spread(applied[results:], active)
        flags = tuple([direction is not None for direction in directions])
        if not any(flags):
            _, pulled = _pulled(reference, primals, of_results, is_needed[:count], policy)
            parts = [*pulled, *(None,) * sum(seeded)]
        else:
            flags, forward = _forward(reference, directions)
            inputs = [*primals, *_chosen(directions, flags)]
            aims = [*is_needed[:count], *(False,) * sum(flags)]
            results_and_parts, pulled = _pulled(
                forward, inputs, [*of_results, *_inexact(reference, seeds)], aims, policy
            )
            moved = _by_result(reference, results_and_parts[results:])
            parts = [*pulled[:count], *_chosen(moved, seeded)]
        return [None if part is None else Cotangent(part) for part in parts]


procedure = Primal("procedure")
procedure_vjp = Reverse("procedure_vjp")


def _forward(
    reference: ProcedureReference, directions: Sequence[Value | None]
) -> tuple[Flags, ProcedureReference]:
    """Return which parameters move, and the forward derivative in them."""
    flags = tuple(
        [
            direction is not None and is_inexact(type_.dtype)
            for direction, type_ in zip(directions, reference.types, strict=True)
        ]
    )
    return flags, tangent_of(reference, flags)


def _pushed(
    reference: ProcedureReference, inputs: Sequence[Value], tangents: Sequence[Value | None]
) -> list[Value | None]:
    """Return the results of a procedure, and the tangents of all of them."""
    flags, forward = _forward(reference, tangents)
    if not any(flags):
        return [None] * (2 * len(reference.result_types))
    outs = procedure(forward, [*inputs, *_chosen(tangents, flags)])
    count = len(reference.result_types)
    return [*outs[:count], *_by_result(reference, outs[count:])]


def _pulled(
    reference: ProcedureReference,
    inputs: Sequence[Value],
    seeds: Sequence[Value | None],
    is_needed: Sequence[bool],
    policy: Policy = None,
) -> tuple[Sequence[Value], list[Value | None]]:
    """Return the results of a procedure, and the cotangents of the parameters that are wanted; None for all others."""
    active = tuple(
        [flag and is_inexact(type_.dtype) for flag, type_ in zip(is_needed, reference.types, strict=True)]
    )
    seeded = tuple(
        [
            seed is not None and is_inexact(type_.dtype)
            for seed, type_ in zip(seeds, reference.result_types, strict=True)
        ]
    )
    if not any(active) or not any(seeded):
        return procedure(reference, inputs), [None] * len(active)
    outs = procedure_vjp(reference, active, seeded, [*inputs, *_chosen(seeds, seeded)], policy)
    count = len(reference.result_types)
    return outs[:count], spread(outs[count:], active)


def _chosen(items: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    return [item for item, flag in zip(items, flags, strict=True) if flag]


def spread(items: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """Return one item for each flag that is set, and None for the others."""
    remaining = iter(items)
    return [next(remaining) if flag else None for flag in flags]


def _inexact(reference: ProcedureReference, items: Sequence[Any]) -> list[Any]:
    """Return the items of results that have tangents."""
    return _chosen(items, [is_inexact(type_.dtype) for type_ in reference.result_types])


def _by_result(reference: ProcedureReference, tangents: Sequence[Value | None]) -> list[Value | None]:
    """Return a tangent for each result, None where it has none."""
    return spread(tangents, [is_inexact(type_.dtype) for type_ in reference.result_types])


@batch_node.register
def _batch(
    op: Primal, node: Node, operands: Sequence[Value], mapped: Sequence[bool], size: int
) -> tuple[Value | Shared, ...]:
    reference = batch_of(node.params["procedure"], size, tuple(mapped))
    return op(reference, operands)
