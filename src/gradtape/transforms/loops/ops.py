"""Loops and branches as nodes: `scan`, `while_loop`, `repeat` and `switch`, which hold their bodies as graphs.

The inputs of a loop's body are the number of the iteration (an int64 scalar), values that are the same in each iteration (`consts`), the
loop-carried values (`carries`), and this iteration's elements. Its outputs are the next carries and one element of each stacked output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from gradtape.errors import ShapeError
from gradtape.ir.body import Body
from gradtape.ir.builder import emit_all
from gradtape.ir.evaluate import compute_outputs
from gradtape.ir.graph import Node, Value
from gradtape.ir.op import NDArray
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import INT64, Aval, aval
from gradtape.kinds.control import Structured
from gradtape.kinds.cotangent import Cotangent, Tangent
from gradtape.kinds.registry import HOOKS
from gradtape.transforms.loops.branches import pull_switch, push_switch
from gradtape.transforms.loops.draft import (
    Carry,
    Draft,
    LoopOp,
    LoopOperand,
    LoopOutputs,
    LoopParts,
    placeholder,
    substitute,
)
from gradtape.transforms.loops.jvp import push_loop
from gradtape.transforms.loops.vjp import pull_loop

T = TypeVar("T")

Policy: TypeAlias = str | int | tuple[str, int] | None
"""Which carries of a loop are stored for its gradient: all (None), every k-th, about the square root of their number ("sqrt"), or n at
a time (("treeverse", n))."""

Pullback: TypeAlias = Callable[
    [Node, Sequence[Cotangent | None], Sequence[bool]], Sequence[Cotangent | None] | None
]

PULLBACKS: Final[list[Pullback]] = []
"""Pullbacks of loops that are tried before the one of the loops of a graph; they return None for loops that are not for them."""

STACK: Final = aval((), np.dtype(object))
"""The type of a stacked output or operand of a loop with unknown trip count: one element per iteration.

The interpreter holds a list; a kernel holds memory that grows. Only `repeat` reads it, and no result of a program is one.
"""


def check_operands(name: str, body: Body, operand_types: Sequence[Aval]) -> None:
    """Raise ShapeError unless these are the types of a body's inputs."""
    input_types = [value.aval for value in body.inputs]
    if len(input_types) != len(operand_types):
        raise ShapeError(
            f"the body of {name} takes {len(input_types)} values and was given {len(operand_types)}"
        )
    for position, (expected, actual) in enumerate(zip(input_types, operand_types, strict=True)):
        if expected.shape != actual.shape or expected.dtype != actual.dtype:
            raise ShapeError(
                f"the body of {name} takes {expected!r} at place {position} and was given {actual!r}"
            )


def element_of(stacked: Aval) -> Aval:
    """Return the type of an element along the leading axis."""
    return aval(stacked.shape[1:], stacked.dtype)


class _DifferentiableLoop(LoopOp):
    """A loop with derivatives, which are loops."""

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        with_masks = [None if tangent is None else Tangent(tangent) for tangent in tangents]
        return tuple([None if part is None else part.applied() for part in self.push(node, with_masks)])

    def push(self, node: Node, tangents: Sequence[Tangent | None]) -> Sequence[Tangent | None]:
        return push_loop(self, node, tangents)

    def pull(
        self, node: Node, cotangents: Sequence[Cotangent | None], is_needed: Sequence[bool]
    ) -> Sequence[Cotangent | None]:
        for pullback in PULLBACKS:
            pulled = pullback(node, cotangents, is_needed)
            if pulled is not None:
                return pulled
        return pull_loop(self, node, cotangents, is_needed)

    def pull_linear(
        self, node: Node, cotangents: Sequence[Cotangent | None], linear: Sequence[bool]
    ) -> Sequence[Cotangent | None]:
        return pull_loop(self, node, cotangents, linear)

    def while_and_repeat(self) -> tuple[LoopOp, LoopOp]:
        return while_loop, repeat

    def switch_op(self) -> Structured:
        return switch


class _CountedLoop(_DifferentiableLoop):
    """A loop whose trip count is a parameter or an operand: its outputs are the carries and the stacked outputs."""

    def arrange_outputs(
        self, carries: Sequence[Value | None], ys: Sequence[Value | None], count: Value | None = None
    ) -> tuple[Value | None, ...]:
        return (*carries, *ys)

    def split_outputs(self, outs: Sequence[T], carries: int) -> tuple[Sequence[T], Sequence[T], T | None]:
        return outs[:carries], outs[carries:], None


class Scan(_CountedLoop):
    """A loop with known trip count over the elements of arrays.

    Inputs: consts, initial carries, arrays of shape (length, ...). Outputs: final carries, stacked outputs of shape
    (length, ...). With `reverse` the iterations go from the last element to the first, and each writes its outputs at the
    position of its element.
    """

    def __call__(
        self,
        body: Body,
        consts: Sequence[Value],
        carries: Sequence[Value],
        arrays: Sequence[Value],
        length: int,
        reverse: bool = False,
        policy: Policy = None,
    ) -> tuple[Value, ...]:
        return emit_all(
            self,
            (*consts, *carries, *arrays),
            body=body,
            length=length,
            reverse=reverse,
            policy=policy,
            consts=len(consts),
            carries=len(carries),
        )

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        body, count_outside = params["body"], params["consts"] + params["carries"]
        types_of_body = [aval((), INT64), *avals[:count_outside], *map(element_of, avals[count_outside:])]
        check_operands(self.name, body, types_of_body)
        types = [value.aval for value in body.outputs]
        carries, ys = types[: params["carries"]], types[params["carries"] :]
        return (*carries, *[aval((params["length"], *type_.shape), type_.dtype) for type_ in ys])

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        body, consts, carries, length = (params[key] for key in ("body", "consts", "carries", "length"))
        shared, carried, stacked = (
            arrays[:consts],
            list(arrays[consts : consts + carries]),
            arrays[consts + carries :],
        )
        ys = [np.empty((length, *value.shape), value.dtype) for value in body.outputs[carries:]]
        for iteration in reversed(range(length)) if params["reverse"] else range(length):
            elements = [np.asarray(array[iteration]) for array in stacked]
            results = compute_outputs(body, [np.asarray(iteration), *shared, *carried, *elements])
            carried = results[:carries]
            for output, result in zip(ys, results[carries:], strict=True):
                output[iteration] = result
        return (*carried, *ys)

    def open_draft(self, node: Node) -> Draft:
        params = {key: node.params[key] for key in ("length", "reverse", "policy")}
        return _open_draft(self, node, params, node.inputs)

    def emit_draft(self, draft: Draft, parts: LoopParts) -> LoopOutputs:
        params = draft.params
        outs = self(
            parts.body,
            parts.consts,
            parts.inits,
            parts.elements,
            params["length"],
            params["reverse"],
            params["policy"],
        )
        return LoopOutputs(*self.split_outputs(outs, len(parts.inits)))

    def reversed_draft(self, draft: Draft, count: Value | None) -> Draft:
        params = {**draft.params, "reverse": not draft.params["reverse"]}
        return Draft(self, params, draft.index)


class While(_DifferentiableLoop):
    """A loop with a condition on its consts and carries, of at most `limit` iterations where that is a number.

    Inputs: consts, initial carries. Outputs: final carries, the trip count (int64 scalar), and one stack per stacked output.
    The condition's inputs are those of the body.
    """

    def __call__(
        self,
        condition: Body,
        body: Body,
        consts: Sequence[Value],
        carries: Sequence[Value],
        limit: int | None = None,
        policy: Policy = None,
    ) -> tuple[Value, ...]:
        return emit_all(
            self,
            (*consts, *carries),
            condition=condition,
            body=body,
            limit=limit,
            policy=policy,
            consts=len(consts),
            carries=len(carries),
        )

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        body = params["body"]
        body_types = [aval((), INT64), *avals]
        check_operands(self.name, body, body_types)
        check_operands(self.name, params["condition"], body_types)
        types = [value.aval for value in body.outputs]
        ys = len(types) - params["carries"]
        return (*types[: params["carries"]], aval((), INT64), *[STACK] * ys)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        condition, body, consts, carries, limit = (
            params[key] for key in ("condition", "body", "consts", "carries", "limit")
        )
        shared, carried = arrays[:consts], list(arrays[consts:])
        stacks: list[list[NDArray]] = [[] for _ in body.outputs[carries:]]
        iteration = 0
        while limit is None or iteration < limit:
            arguments = [np.asarray(iteration), *shared, *carried]
            (goes_on,) = compute_outputs(condition, arguments)
            if not goes_on:
                break
            results = compute_outputs(body, arguments)
            carried = results[:carries]
            for stack, result in zip(stacks, results[carries:], strict=True):
                stack.append(np.array(result))
            iteration += 1
        return (*carried, np.asarray(iteration), *map(_object_array, stacks))

    def open_draft(self, node: Node) -> Draft:
        params = {key: node.params[key] for key in ("limit", "policy")}
        draft = _open_draft(self, node, params, node.inputs)
        condition: Body = node.params["condition"]
        becomes = dict(zip(condition.inputs, node.params["body"].inputs, strict=True))
        (draft.test,) = substitute(condition.outputs, becomes)
        return draft

    def emit_draft(self, draft: Draft, parts: LoopParts) -> LoopOutputs:
        assert parts.condition is not None
        limit, policy = draft.params["limit"], draft.params["policy"]
        outs = self(parts.condition, parts.body, parts.consts, parts.inits, limit, policy)
        return LoopOutputs(*self.split_outputs(outs, len(parts.inits)))

    def reversed_draft(self, draft: Draft, count: Value | None) -> Draft:
        return Draft(repeat, {"reverse": True}, draft.index, count=count)

    def arrange_outputs(
        self, carries: Sequence[Value | None], ys: Sequence[Value | None], count: Value | None = None
    ) -> tuple[Value | None, ...]:
        return (*carries, count, *ys)

    def split_outputs(self, outs: Sequence[T], carries: int) -> tuple[Sequence[T], Sequence[T], T | None]:
        return outs[:carries], outs[carries + 1 :], outs[carries]


class Repeat(_CountedLoop):
    """A loop whose trip count is an operand, over the elements of stacks.

    Inputs: the trip count (int64 scalar), consts, initial carries, stacks. Outputs: final carries, and one stack per stacked
    output. With `reverse` the iterations go from the last element to the first, and each writes its outputs at the position
    of its element.
    """

    def __call__(
        self,
        body: Body,
        count: Value,
        consts: Sequence[Value],
        carries: Sequence[Value],
        stacks: Sequence[Value],
        reverse: bool = False,
    ) -> tuple[Value, ...]:
        return emit_all(
            self,
            (count, *consts, *carries, *stacks),
            body=body,
            reverse=reverse,
            consts=len(consts),
            carries=len(carries),
        )

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        body = params["body"]
        first = 1 + params["consts"] + params["carries"]
        elements = [value.aval for value in body.inputs[first:]]
        check_operands(self.name, body, [aval((), INT64), *avals[1:first], *elements])
        types = [value.aval for value in body.outputs]
        ys = len(types) - params["carries"]
        return (*types[: params["carries"]], *[STACK] * ys)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        body, consts, carries = (params[key] for key in ("body", "consts", "carries"))
        count, shared = int(arrays[0]), arrays[1 : 1 + consts]
        carried = list(arrays[1 + consts : 1 + consts + carries])
        stacks = [array.item() for array in arrays[1 + consts + carries :]]
        ys: list[list[Any]] = [[None] * count for _ in body.outputs[carries:]]
        for iteration in reversed(range(count)) if params["reverse"] else range(count):
            elements = [stack[iteration] for stack in stacks]
            results = compute_outputs(body, [np.asarray(iteration), *shared, *carried, *elements])
            carried = results[:carries]
            for stack, result in zip(ys, results[carries:], strict=True):
                stack[iteration] = np.array(result)
        return (*carried, *map(_object_array, ys))

    def open_draft(self, node: Node) -> Draft:
        draft = _open_draft(self, node, {"reverse": node.params["reverse"]}, node.inputs[1:])
        draft.count = node.inputs[0]
        return draft

    def emit_draft(self, draft: Draft, parts: LoopParts) -> LoopOutputs:
        assert draft.count is not None
        outs = self(
            parts.body, draft.count, parts.consts, parts.inits, parts.elements, draft.params["reverse"]
        )
        return LoopOutputs(*self.split_outputs(outs, len(parts.inits)))

    def reversed_draft(self, draft: Draft, count: Value | None) -> Draft:
        return Draft(self, {"reverse": not draft.params["reverse"]}, draft.index, count=draft.count)


class Switch(Structured):
    """One of several graphs on the same operands.

    Inputs: the index of the branch (int64 scalar, clamped to the existing branches), operands. Outputs: those of the branch.
    """

    def __call__(
        self, branches: Sequence[Body], index: Value, operands: Sequence[Value]
    ) -> tuple[Value, ...]:
        return emit_all(self, (index, *operands), branches=tuple(branches))

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        for branch in params["branches"]:
            check_operands(self.name, branch, avals[1:])
        return tuple(value.aval for value in params["branches"][0].outputs)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        branches = params["branches"]
        branch = branches[min(max(int(arrays[0]), 0), len(branches) - 1)]
        return tuple(compute_outputs(branch, arrays[1:]))

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        with_masks = [None if tangent is None else Tangent(tangent) for tangent in tangents]
        return tuple([None if part is None else part.applied() for part in self.push(node, with_masks)])

    def push(self, node: Node, tangents: Sequence[Tangent | None]) -> Sequence[Tangent | None]:
        return push_switch(node, tangents)

    def pull(
        self, node: Node, cotangents: Sequence[Cotangent | None], is_needed: Sequence[bool]
    ) -> Sequence[Cotangent | None]:
        return pull_switch(node, cotangents, is_needed)


def _open_draft(op: LoopOp, node: Node, params: dict[str, Any], operands: Sequence[Value]) -> Draft:
    """Return the draft of a node from its operands; `operands` does not include a trip count."""
    body: Body = node.params["body"]
    consts, carries = node.params["consts"], node.params["carries"]
    loop_operands = [LoopOperand(*pair) for pair in zip(operands, body.inputs[1:], strict=True)]
    carried = [
        Carry(*start, next_carry)
        for start, next_carry in zip(loop_operands[consts : consts + carries], body.outputs, strict=False)
    ]
    return Draft(
        op,
        params,
        body.inputs[0],
        loop_operands[:consts],
        carried,
        loop_operands[consts + carries :],
        list(body.outputs[carries:]),
    )


def _add_stacks(a: Value, b: Value) -> Value:
    """Return the elementwise sum of two stacks, the second of which is an output of a `repeat`."""
    assert b.node is not None and isinstance(b.node.op, Repeat)
    element = b.node.params["body"].outputs[b.index]
    x, y = placeholder(element), placeholder(element)
    draft = Draft(repeat, {"reverse": False}, Value(aval((), INT64)), count=b.node.inputs[0])
    draft.elements = [LoopOperand(a, x), LoopOperand(b, y)]
    draft.ys = [x + y]
    (total,) = draft.emit().ys
    return total


def _scanned(
    step: Callable[..., tuple[Sequence[Value], Sequence[Value]]],
    consts: Sequence[Value],
    carries: Sequence[Value],
    elements: Sequence[Value],
    reverse: bool = False,
) -> tuple[Sequence[Value], Sequence[Value]]:
    """Return the last carries and the stacked outputs of a loop over the leading axis of arrays; see `Hooks.scan`."""
    length = elements[0].shape[0]
    draft = Draft(scan, {"length": length, "reverse": reverse, "policy": None}, Value(aval((), INT64)))
    draft.consts = [LoopOperand(value, placeholder(value)) for value in consts]
    draft.elements = [LoopOperand(value, Value(element_of(value.aval))) for value in elements]
    carried = [LoopOperand(value, placeholder(value)) for value in carries]
    inner = [[operand.inner for operand in group] for group in (draft.consts, carried, draft.elements)]
    next_carries, draft.ys = map(list, step(*inner))
    draft.carries = [Carry(*start, next_) for start, next_ in zip(carried, next_carries, strict=True)]
    outs = draft.emit()
    return outs.carries, outs.ys


def _object_array(elements: list[Any]) -> NDArray:
    """Return a list as a 0-d object array."""
    box = np.empty((), object)
    box[()] = elements
    return box


scan = Scan("scan")
while_loop = While("while_loop")
repeat = Repeat("repeat")
switch = Switch("switch")

PRIMITIVES["add_stacks"] = _add_stacks
HOOKS.scan = _scanned
