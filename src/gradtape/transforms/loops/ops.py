"""Loops and branches as nodes: `scan`, `while_loop`, `repeat` and `switch`, which hold their bodies as graphs.

The first input of a loop's body is the turn's number, an int64; then come what is the same in each turn (`consts`), what is carried from
turn to turn (`carries`), and this turn's elements. The body returns the next carries and what it leaves behind.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from gradtape.kinds.cotangent import Cotangent
from gradtape.transforms.loops.branches import pull_switch, push_switch
from gradtape.transforms.loops.draft import Carry, Draft, Given, Loop, Outcome, Parts, stand_in, substituted
from gradtape.transforms.loops.jvp import push_loop
from gradtape.transforms.loops.vjp import pull_loop

T = TypeVar("T")

Policy: TypeAlias = str | int | tuple[str, int] | None
"""Which of a loop's carries are kept for its gradient: all (None), every k-th, about the square root of their number ("sqrt"), or n at
a time (("treeverse", n))."""

STACK: Final = aval((), np.dtype(object))
"""What a loop of unknown length leaves behind, or takes up: one element per turn, however many there are.

The interpreter holds a list; a kernel holds memory that grows. Only `repeat` reads it, and no result of a program is one.
"""


def check_operands(name: str, body: Body, given: Sequence[Aval]) -> None:
    """Raise ShapeError unless a body takes these."""
    wanted = [value.aval for value in body.inputs]
    if len(wanted) != len(given):
        raise ShapeError(f"the body of {name} takes {len(wanted)} values and was given {len(given)}")
    for place, (want, got) in enumerate(zip(wanted, given, strict=True)):
        if want.shape != got.shape or want.dtype != got.dtype:
            raise ShapeError(f"the body of {name} takes {want!r} at place {place} and was given {got!r}")


def element_of(stacked: Aval) -> Aval:
    """Return the type of an element along the leading axis."""
    return aval(stacked.shape[1:], stacked.dtype)


class _Derived(Loop):
    """What all loops share: their derivatives are loops."""

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        return push_loop(self, node, tangents)

    def pull(
        self, node: Node, cotangents: Sequence[Cotangent | None], wanted: Sequence[bool]
    ) -> Sequence[Cotangent | None]:
        return pull_loop(self, node, cotangents, wanted)

    def helpers(self) -> tuple[Loop, Loop]:
        return while_loop, repeat

    def switch(self) -> Structured:
        return switch


class _Told(_Derived):
    """A loop that is told how often to turn: its outputs are the carries and what is left behind."""

    def arranged(
        self, carries: Sequence[Value | None], left: Sequence[Value | None], count: Value | None = None
    ) -> tuple[Value | None, ...]:
        return (*carries, *left)

    def parted(self, outs: Sequence[T], carries: int) -> tuple[Sequence[T], Sequence[T], T | None]:
        return outs[:carries], outs[carries:], None


class Scan(_Told):
    """A loop of known length over the elements of arrays.

    Inputs: consts, initial carries, arrays with the loop's axis in front. Outputs: final carries, and what the turns left
    behind, stacked along a leading axis. With `reverse` the turns go from the last element to the first, and what each
    leaves stands at its element's place.
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
        body, whole = params["body"], params["consts"] + params["carries"]
        given = [aval((), INT64), *avals[:whole], *map(element_of, avals[whole:])]
        check_operands(self.name, body, given)
        types = [value.aval for value in body.outputs]
        carries, left = types[: params["carries"]], types[params["carries"] :]
        return (*carries, *[aval((params["length"], *type_.shape), type_.dtype) for type_ in left])

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        body, consts, carries, length = (params[key] for key in ("body", "consts", "carries", "length"))
        shared, carried, stacked = (
            arrays[:consts],
            list(arrays[consts : consts + carries]),
            arrays[consts + carries :],
        )
        left = [np.empty((length, *value.shape), value.dtype) for value in body.outputs[carries:]]
        for turn in reversed(range(length)) if params["reverse"] else range(length):
            elements = [np.asarray(array[turn]) for array in stacked]
            results = compute_outputs(body, [np.asarray(turn), *shared, *carried, *elements])
            carried = results[:carries]
            for whole, result in zip(left, results[carries:], strict=True):
                whole[turn] = result
        return (*carried, *left)

    def opened(self, node: Node) -> Draft:
        params = {key: node.params[key] for key in ("length", "reverse", "policy")}
        return _opened(self, node, params, node.inputs)

    def assembled(self, draft: Draft, parts: Parts) -> Outcome:
        params = draft.params
        outs = self(
            parts.body,
            parts.consts,
            parts.starts,
            parts.elements,
            params["length"],
            params["reverse"],
            params["policy"],
        )
        return Outcome(*self.parted(outs, len(parts.starts)))

    def turned(self, draft: Draft, count: Value | None) -> Draft:
        params = {**draft.params, "reverse": not draft.params["reverse"]}
        return Draft(self, params, draft.index)


class While(_Derived):
    """A loop that turns as long as a condition on its consts and carries holds, at most `limit` times where that is a number.

    Inputs: consts, initial carries. Outputs: final carries, the number of turns, and a stack for each thing that the turns left behind.
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
        given = [aval((), INT64), *avals]
        check_operands(self.name, body, given)
        check_operands(self.name, params["condition"], given)
        types = [value.aval for value in body.outputs]
        left = len(types) - params["carries"]
        return (*types[: params["carries"]], aval((), INT64), *[STACK] * left)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        condition, body, consts, carries, limit = (
            params[key] for key in ("condition", "body", "consts", "carries", "limit")
        )
        shared, carried = arrays[:consts], list(arrays[consts:])
        stacks: list[list[NDArray]] = [[] for _ in body.outputs[carries:]]
        turn = 0
        while limit is None or turn < limit:
            given = [np.asarray(turn), *shared, *carried]
            (goes_on,) = compute_outputs(condition, given)
            if not goes_on:
                break
            results = compute_outputs(body, given)
            carried = results[:carries]
            for stack, result in zip(stacks, results[carries:], strict=True):
                stack.append(np.array(result))
            turn += 1
        return (*carried, np.asarray(turn), *map(_boxed, stacks))

    def opened(self, node: Node) -> Draft:
        params = {key: node.params[key] for key in ("limit", "policy")}
        draft = _opened(self, node, params, node.inputs)
        condition: Body = node.params["condition"]
        becomes = dict(zip(condition.inputs, node.params["body"].inputs, strict=True))
        (draft.test,) = substituted(condition.outputs, becomes)
        return draft

    def assembled(self, draft: Draft, parts: Parts) -> Outcome:
        assert parts.condition is not None
        limit, policy = draft.params["limit"], draft.params["policy"]
        outs = self(parts.condition, parts.body, parts.consts, parts.starts, limit, policy)
        return Outcome(*self.parted(outs, len(parts.starts)))

    def turned(self, draft: Draft, count: Value | None) -> Draft:
        return Draft(repeat, {"reverse": True}, draft.index, count=count)

    def arranged(
        self, carries: Sequence[Value | None], left: Sequence[Value | None], count: Value | None = None
    ) -> tuple[Value | None, ...]:
        return (*carries, count, *left)

    def parted(self, outs: Sequence[T], carries: int) -> tuple[Sequence[T], Sequence[T], T | None]:
        return outs[:carries], outs[carries + 1 :], outs[carries]


class Repeat(_Told):
    """A loop that turns a number of times known only when it runs, over the elements of stacks.

    Inputs: the number of turns, consts, initial carries, stacks. Outputs: final carries, and a stack for each thing that
    the turns left behind.
    With `reverse` the turns go from the last element to the first, and what each leaves stands at its element's place.
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
        left = len(types) - params["carries"]
        return (*types[: params["carries"]], *[STACK] * left)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        body, consts, carries = (params[key] for key in ("body", "consts", "carries"))
        count, shared = int(arrays[0]), arrays[1 : 1 + consts]
        carried = list(arrays[1 + consts : 1 + consts + carries])
        stacks = [array.item() for array in arrays[1 + consts + carries :]]
        left: list[list[Any]] = [[None] * count for _ in body.outputs[carries:]]
        for turn in reversed(range(count)) if params["reverse"] else range(count):
            elements = [stack[turn] for stack in stacks]
            results = compute_outputs(body, [np.asarray(turn), *shared, *carried, *elements])
            carried = results[:carries]
            for stack, result in zip(left, results[carries:], strict=True):
                stack[turn] = np.array(result)
        return (*carried, *map(_boxed, left))

    def opened(self, node: Node) -> Draft:
        draft = _opened(self, node, {"reverse": node.params["reverse"]}, node.inputs[1:])
        draft.count = node.inputs[0]
        return draft

    def assembled(self, draft: Draft, parts: Parts) -> Outcome:
        assert draft.count is not None
        outs = self(
            parts.body, draft.count, parts.consts, parts.starts, parts.elements, draft.params["reverse"]
        )
        return Outcome(*self.parted(outs, len(parts.starts)))

    def turned(self, draft: Draft, count: Value | None) -> Draft:
        return Draft(self, {"reverse": not draft.params["reverse"]}, draft.index, count=draft.count)


class Switch(Structured):
    """One of several graphs on the same operands.

    Inputs: the number of the branch, an int64 that is clamped to those there are; operands. Outputs: the branch's.
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
        return push_switch(node, tangents)

    def pull(
        self, node: Node, cotangents: Sequence[Cotangent | None], wanted: Sequence[bool]
    ) -> Sequence[Cotangent | None]:
        return pull_switch(node, cotangents, wanted)


def _opened(op: Loop, node: Node, params: dict[str, Any], operands: Sequence[Value]) -> Draft:
    """Return the draft of a loop with the operands that its body reads."""
    body: Body = node.params["body"]
    consts, carries = node.params["consts"], node.params["carries"]
    given = [Given(*pair) for pair in zip(operands, body.inputs[1:], strict=True)]
    carried = [
        Carry(*start, after)
        for start, after in zip(given[consts : consts + carries], body.outputs, strict=False)
    ]
    return Draft(
        op,
        params,
        body.inputs[0],
        given[:consts],
        carried,
        given[consts + carries :],
        list(body.outputs[carries:]),
    )


def _added(a: Value, b: Value) -> Value:
    """Return the sums of the elements of two stacks, the second of which a `repeat` left behind."""
    assert b.node is not None and isinstance(b.node.op, Repeat)
    element = b.node.params["body"].outputs[b.index]
    x, y = stand_in(element), stand_in(element)
    draft = Draft(repeat, {"reverse": False}, Value(aval((), INT64)), count=b.node.inputs[0])
    draft.elements = [Given(a, x), Given(b, y)]
    draft.left = [x + y]
    (total,) = draft.emit().left
    return total


def _boxed(elements: list[Any]) -> NDArray:
    """Return a list as a 0-d array."""
    box = np.empty((), object)
    box[()] = elements
    return box


scan = Scan("scan")
while_loop = While("while_loop")
repeat = Repeat("repeat")
switch = Switch("switch")

PRIMITIVES["add_stacks"] = _added
