"""Conversion of a loop in a graph to a procedure, which writes the arrays that the loop carries in place.

The body of a loop is pure: an element that is written makes a new array. The conversion finds the writes after which nothing needs the old
array any more, and makes stores of them. Where the old array is needed, it is copied. Elementwise nodes and index maps have no memory:
their elements are computed where they are read. Their operands are stored before they are overwritten.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from gradtape.ir.body import Body, bodies_of, holds_rules
from gradtape.ir.builder import emit
from gradtape.ir.graph import Graph, Literal, Node, Value, extract, literal
from gradtape.ir.types import INT64, Aval, Shape, aval
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.control import Structured
from gradtape.kinds.elementwise import Elementwise, smooth_square
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join, starts
from gradtape.kinds.operands import conform
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.registry import UFUNCS
from gradtape.ops.core.elementwise.cast import convert, identity, with_tangent_of
from gradtape.ops.core.elementwise.integer import floor_divide, remainder
from gradtape.ops.core.elementwise.logic import equal, less
from gradtape.ops.core.elementwise.select import where
from gradtape.passes.control.bodies import holds_bodies, in_bodies
from gradtape.passes.control.loop_trim import hoist_invariants
from gradtape.passes.layout.contract_transposes import fold_transposes
from gradtape.passes.simplify.cse import eliminate_common_subexpressions
from gradtape.procedures.arrays.indexing import checked_index
from gradtape.procedures.builder import ProcedureBuilder, integer
from gradtape.procedures.ir import Apply, Content, Pointer, Procedure, Span
from gradtape.records import record
from gradtape.transforms.loops.draft import never_stop, placeholder
from gradtape.transforms.loops.ops import Repeat, Scan, Switch, While

Where: TypeAlias = tuple[Value | int, ...]


class NotConvertibleError(Exception):
    """A loop holds what procedures do not have."""


@record
class Buffer:
    """An array in memory; whether it may be overwritten when its contents are not needed."""

    pointer: Pointer
    shape: Shape
    is_owned: bool

    def element(self, build: ProcedureBuilder, index: Where) -> Value:
        return build.load(self.pointer, flat(index, self.shape))

    def reads(self) -> dict[Pointer, bool]:
        """Return the pointers that its elements are read from, and whether element i is read for element i only."""
        return {self.pointer: True}


@record
class Virtual:
    """An array without memory, whose elements are computed where they are needed, for the cost of so many additions."""

    shape: Shape
    compute: Callable[[ProcedureBuilder, Where], Value]
    sources: dict[Pointer, bool]
    known: dict[Any, tuple[Where, Value]]
    """By the identities of the positions: these, which they keep alive, and the element."""
    cost: float = 0.0

    def element(self, build: ProcedureBuilder, index: Where) -> Value:
        if not any(isinstance(coordinate, Value) for coordinate in index):
            return self.compute(build, index)
        key = tuple(
            [id(coordinate) if isinstance(coordinate, Value) else -coordinate - 1 for coordinate in index]
        )
        if key not in self.known:
            self.known[key] = index, self.compute(build, index)
        return self.known[key][1]

    def reads(self) -> dict[Pointer, bool]:
        return self.sources


Held: TypeAlias = Value | Buffer | Virtual
"""What stands for a value of the graph: a scalar, an array in memory, an array without."""


class Position:
    """An index in the arithmetic of index maps, on int64 values."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value: Final = value

    def __add__(self, other: Any) -> Any:
        return self if _is(other, 0) else Position(self.value + _number(other))

    def __sub__(self, other: Any) -> Any:
        return self if _is(other, 0) else Position(self.value - _number(other))

    def __mul__(self, other: Any) -> Any:
        return self if _is(other, 1) else Position(self.value * _number(other))

    def __floordiv__(self, other: Any) -> Any:
        return self if _is(other, 1) else Position(floor_divide(self.value, _number(other)))

    def __mod__(self, other: Any) -> Any:
        return Position(remainder(self.value, _number(other)))

    def __rsub__(self, other: Any) -> Any:
        return Position(_number(other) - self.value)

    def __neg__(self) -> Any:
        return Position(-self.value)

    __radd__, __rmul__ = __add__, __mul__


def _is(other: Any, number: int) -> bool:
    return isinstance(other, int) and other == number


def _number(other: Any) -> Any:
    return other.value if isinstance(other, Position) else other


def _positions(index: Where) -> tuple[Any, ...]:
    return tuple(
        [Position(coordinate) if isinstance(coordinate, Value) else coordinate for coordinate in index]
    )


def _values(index: Iterable[Any]) -> Where:
    return tuple(
        [coordinate.value if isinstance(coordinate, Position) else coordinate for coordinate in index]
    )


def flat(index: Where, shape: Shape) -> Value | int:
    """Return the offset of an element in an array in C order."""
    total: Value | int = 0
    for axis, coordinate in enumerate(index):
        factor = math.prod(shape[axis + 1 :])
        if isinstance(coordinate, int):
            total = total + coordinate * factor if isinstance(total, int) or coordinate else total
            continue
        term = coordinate if factor == 1 else coordinate * factor
        total = term if isinstance(total, int) and total == 0 else total + term
    return total


def writes_in_place(node: Node) -> bool:
    """Return whether a loop writes elements of arrays that it carries, at positions that differ between its iterations.

    An array that is also another carry of the next iteration is copied in each of them: nothing is gained.
    """
    body: Body = node.params["body"]
    carries = body.inputs[1 + node.params["consts"] :][: node.params["carries"]]
    roots = [root(out) for out in body.outputs]
    return any(
        _writes(out) and start in carries and roots.count(start) == 1
        for out, start in zip(body.outputs, roots, strict=True)
    )


def root(value: Value) -> Value:
    """Return the value whose elements were written one after the other to make a value."""
    while value.node is not None:
        node = value.node
        if isinstance(node.op, Accumulate) or node.op is identity:
            value = node.inputs[0]
        elif isinstance(node.op, Scan | While) and value.index < node.params["carries"]:
            value = node.inputs[node.params["consts"] + value.index]
        elif isinstance(node.op, Switch):
            bodies = bodies_of(node)
            roots = [root(branch.outputs[value.index]) for branch in bodies]
            positions = {
                branch.inputs.index(it)
                for branch, it in zip(bodies, roots, strict=True)
                if it in branch.inputs
            }
            if len(positions) != 1:
                return value
            value = node.inputs[1 + positions.pop()]
        else:
            return value
    return value


def _writes(value: Value) -> bool:
    """Return whether an array is made by writes of elements."""
    node = value.node
    if node is None or not value.ndim:
        return False
    if isinstance(node.op, Accumulate) or node.op is identity:
        return len(node.inputs) > 2 or _writes(node.inputs[0])
    return isinstance(node.op, Structured) and any(
        _writes(body.outputs[value.index]) for body in bodies_of(node) if value.index < len(body.outputs)
    )


def procedure_of_loop(node: Node) -> Procedure:
    """Return a procedure that computes the outputs of a loop from its inputs.

    Raises
    ------
    NotConvertibleError
        Where the loop holds stacks of unknown length or derivatives given by the user.
    """
    if holds_rules([node]):
        raise NotConvertibleError("derivatives given by the user")
    inputs = [placeholder(value) for value in node.inputs]
    copy = node.copy(tuple(inputs))
    return _Conversion(_prepared(Graph(inputs, [copy], copy.outs, node.op.name))).procedure


def _prepared(graph: Graph) -> Graph:
    """Return a graph with what loops compute in each iteration alike before them, and with nothing that is computed twice."""
    graph = hoist_invariants(graph)
    if holds_bodies(graph):
        graph = hoist_invariants(in_bodies(graph, _prepared_body))
    return fold_transposes(eliminate_common_subexpressions(graph))


def _prepared_body(body: Body) -> Body:
    prepared = _prepared(body)
    return body if prepared is body else Body(prepared.inputs, prepared.nodes, prepared.outputs, body.name)


class _Conversion:
    """Converts a graph around a loop."""

    def __init__(self, graph: Graph) -> None:
        self.build = ProcedureBuilder(graph.name)
        inputs: list[Held] = []
        for value in graph.inputs:
            if value.dtype.kind == "O":
                raise NotConvertibleError("stacks of unknown length")
            if value.ndim:
                pointer = self.build.array(value.name or "x", value.shape, value.dtype)
                inputs.append(Buffer(pointer, value.shape, False))
            else:
                inputs.append(self.build.scalar(value.name or "x", value.dtype))
        outs = self._body(graph, inputs)
        results: list[Content] = []
        for out, result in zip(graph.outputs, outs, strict=True):
            if out.dtype.kind == "O":
                raise NotConvertibleError("stacks of unknown length")
            if isinstance(result, Value):
                results.append(conform(result, out.dtype, ()))
            elif isinstance(result, Buffer) and result.is_owned and result.pointer not in results:
                results.append(result.pointer)
            else:
                results.append(self._stored(result, out.aval).pointer)
        types = [aval(out.shape, out.dtype) for out in graph.outputs]
        self.procedure = self.build.finish(results, types)

    # Bodies

    def _body(self, body: Graph, inputs: Sequence[Held]) -> list[Held]:
        """Convert the nodes of a body in an order in which arrays are read before they are overwritten; return its outputs."""
        env: dict[Value, Held] = dict(zip(body.inputs, inputs, strict=True))
        uses = Counter([value for node in body.nodes for value in node.inputs] + list(body.outputs))
        # A square is differentiated as one function with the value that it is the square of.
        squares = [smooth_square(node, never_stop) for node in body.nodes]
        squared = {kink.out for square in squares if square is not None for kink in square.kinks}
        for node in _reads_first(body):
            for value in node.inputs:
                uses[value] -= 1
            operands = [self._held(env, value) for value in node.inputs]
            donated = [
                isinstance(operand, Buffer)
                and operand.is_owned
                and not uses[value]
                and operands.count(operand) == 1
                for value, operand in zip(node.inputs, operands, strict=True)
            ]
            for operand, is_donated in zip(operands, donated, strict=True):
                if is_donated and _overwrites(node):
                    self._keep_reads(env, uses, operand)
            outs = self._node(node, operands, donated)
            for out, operand in zip(node.outs, outs, strict=True):
                is_stored = uses[out] > 1 and out not in squared and _is_costly(operand)
                if isinstance(operand, Virtual) and (not out.ndim or is_stored):
                    operand = self._stored(operand, out.aval) if out.ndim else operand.element(self.build, ())
                env[out] = operand
        return [self._held(env, value) for value in body.outputs]

    def _held(self, env: dict[Value, Held], value: Value) -> Held:
        if value in env:
            return env[value]
        if not isinstance(value, Literal):
            raise NotConvertibleError("a constant array in a body")
        return value

    def _keep_reads(self, env: dict[Value, Held], uses: Counter[Value], written: Held) -> None:
        """Store what reads an array that is about to be overwritten."""
        assert isinstance(written, Buffer)
        for value, operand in env.items():
            if isinstance(operand, Virtual) and uses[value] > 0 and written.pointer in operand.sources:
                env[value] = self._stored(operand, value.aval)

    def _node(self, node: Node, operands: Sequence[Held], donated: Sequence[bool]) -> Sequence[Held]:
        op = node.op
        if op is identity and isinstance(operands[0], Buffer) and donated[0]:
            return (operands[0],)
        if isinstance(op, Elementwise):
            return (self._elementwise(node, operands),)
        if isinstance(op, IndexMap):
            return (self._index_map(node, operands),)
        if isinstance(op, Accumulate):
            return (self._accumulate(node, operands, donated[0]),)
        if isinstance(op, Join):
            return (self._join(node, operands),)
        if isinstance(op, Reduction) and op.monoid in _MONOIDS:
            return (self._reduce(node, operands[0]),)
        if isinstance(op, Structured):
            return self._structured(node, operands, donated)
        return self._applied(node, operands)

    # Nodes

    def _elementwise(self, node: Node, operands: Sequence[Held]) -> Held:
        assert isinstance(node.op, Elementwise)
        if not node.out.ndim:
            return emit(node.op, [self._scalar(operand) for operand in operands], **node.params)

        def compute(build: ProcedureBuilder, index: Where) -> Value:
            return emit(node.op, [_element(build, operand, index) for operand in operands], **node.params)

        arrays = [operand for operand in operands if not isinstance(operand, Value)]
        assert isinstance(node.op, Elementwise)
        return Virtual(node.out.shape, compute, _merged(arrays), {}, node.op.cost + _cost_of(arrays))

    def _scalar(self, operand: Held) -> Value:
        return operand if isinstance(operand, Value) else operand.element(self.build, ())

    def _index_map(self, node: Node, operands: Sequence[Held]) -> Held:
        op, (x, *indices), params = node.op, operands, node.params
        assert isinstance(op, IndexMap)
        shape = node.inputs[0].shape
        if _is_costly(x) and node.out.size > node.inputs[0].size:
            x = self._stored(x, node.inputs[0].aval)

        def compute(build: ProcedureBuilder, index: Where) -> Value:
            at = _positions(index)
            readers = [_reader(build, operand, shape[axis], axis) for axis, operand in enumerate(indices)]
            coordinates = _values(op.source(at, shape, *readers, **params))
            if op.inside is None:
                return _element(build, x, coordinates)
            inside: Value | None = None
            zero = literal(0, node.out.dtype)
            for number, low, high in op.inside(at, shape, **params):
                (tested,) = _values([number])
                if isinstance(tested, int):
                    if not low <= tested < high:
                        return zero
                    continue
                test = (tested >= low) & (tested < high)
                inside = test if inside is None else inside & test
            if inside is None:
                return _element(build, x, coordinates)
            clamped = tuple(
                [
                    p if isinstance(p, int) else UFUNCS["minimum"](UFUNCS["maximum"](p, 0), max(n - 1, 0))
                    for p, n in zip(coordinates, shape, strict=True)
                ]
            )
            return where(inside, _element(build, x, clamped), zero)

        moved = [operand for operand in (x, *indices) if not isinstance(operand, Value)]
        sources = dict.fromkeys(_merged(moved), False)
        virtual = Virtual(node.out.shape, compute, sources, {}, _cost_of(moved))
        return virtual if node.out.ndim else virtual.element(self.build, ())

    def _accumulate(self, node: Node, operands: Sequence[Held], in_place: bool) -> Held:
        op, params = node.op, node.params
        assert isinstance(op, Accumulate)
        base, v, indices, _ = op.split(operands)
        target = base if in_place else self._stored(base, node.inputs[0].aval)
        assert isinstance(target, Buffer)
        if not isinstance(v, Value) and target.pointer in v.reads():
            v = self._stored(v, node.inputs[1].aval)
        with self._nest(node.inputs[1].shape) as index:
            readers = [
                _reader(self.build, indices_of_axis, target.shape[k], k)
                for k, indices_of_axis in enumerate(indices)
            ]
            position = flat(
                _values(op.target(_positions(index), target.shape, *readers, **params)), target.shape
            )
            value = _element(self.build, v, index)
            if op.combine == "add":
                value = self.build.load(target.pointer, position) + value
            self.build.store(target.pointer, position, value)
        return target

    def _join(self, node: Node, operands: Sequence[Held]) -> Held:
        axis, out = node.params["axis"], node.out
        joined = self._new("join", out.aval)
        for operand, value, start in zip(operands, node.inputs, starts(node), strict=True):
            with self._nest(value.shape) as index:
                position = tuple([p + start if k == axis else p for k, p in enumerate(index)])
                self.build.store(
                    joined.pointer, flat(position, out.shape), _element(self.build, operand, index)
                )
        return joined

    def _reduce(self, node: Node, x: Held) -> Held:
        op, axes, shape = node.op, node.params["axes"], node.inputs[0].shape
        assert isinstance(op, Reduction)
        if op.identity is None and not math.prod(shape):
            raise NotConvertibleError("an extremum of nothing")
        outer_axes = [axis for axis in range(len(shape)) if axis not in axes]
        shares = op.monoid in ("maximum", "minimum") and node.out.dtype.kind == "f"
        if shares and isinstance(x, Virtual):
            # Another computation of an element may round differently.
            x = self._stored(x, node.inputs[0].aval)
        out = self._new("sum", node.out.aval).pointer if outer_axes else None
        result: Value | None = None
        with self._nest([shape[axis] for axis in outer_axes]) as outer:
            first = self._first(op, x, outer_axes, outer, shape)
            total = self.build.variable("total", first, node.out.dtype)
            with self._nest([shape[axis] for axis in axes]) as inner:
                index = _interleaved(outer_axes, outer, axes, inner)
                combined = UFUNCS[_MONOIDS[op.monoid]](self.build.read(total), _element(self.build, x, index))
                self.build.assign(total, combined)
            result = self.build.read(total)
            if shares:
                index_of = partial(_interleaved, outer_axes, outer, axes)
                result = self._shared(x, [shape[axis] for axis in axes], index_of, result)
            if out is not None:
                self.build.store(out, flat(outer, node.out.shape), result)
        assert result is not None
        return result if out is None else Buffer(out, node.out.shape, True)

    def _shared(
        self, x: Held, shape: Sequence[int], index_of: Callable[[Where], Where], best: Value
    ) -> Value:
        """Return an extremum with the derivative of the mean of the elements that equal it."""
        build = self.build
        total, count = (build.variable(name, 0.0, best.dtype) for name in ("total", "ties"))
        with self._nest(shape) as inner:
            element = _element(build, x, index_of(inner))
            ties = equal(element, best)
            build.assign(total, build.read(total) + where(ties, element, 0.0))
            build.assign(count, build.read(count) + where(ties, literal(1, best.dtype), 0.0))
        return with_tangent_of(best, build.read(total) / build.read(count))

    def _first(self, op: Reduction, x: Held, outer_axes: Sequence[int], outer: Where, shape: Shape) -> Any:
        if op.identity is not None:
            return op.identity
        index = dict(zip(outer_axes, outer, strict=True))
        return _element(self.build, x, tuple([index.get(axis, 0) for axis in range(len(shape))]))

    def _applied(self, node: Node, operands: Sequence[Held]) -> Sequence[Held]:
        """Apply an op to arrays in memory."""
        if "rule" in node.params or any(out.dtype.kind == "O" for out in node.outs):
            raise NotConvertibleError(node.op.name)
        arguments: list[Value | Span] = []
        for value, operand in zip(node.inputs, operands, strict=True):
            if isinstance(operand, Value):
                arguments.append(operand)
            else:
                buffer = operand if isinstance(operand, Buffer) else self._stored(operand, value.aval)
                arguments.append(Span(buffer.pointer, integer(0), value.aval))
        inputs = [Value(aval(value.shape, value.dtype)) for value in node.inputs]
        copy = node.copy(tuple(inputs))
        outs = copy.outs
        buffers = [self._new(node.op.name, out.aval) for out in outs]
        spans = tuple(
            [Span(operand.pointer, integer(0), out.aval) for operand, out in zip(buffers, outs, strict=True)]
        )
        self.build.append(Apply(Body(inputs, [copy], outs, node.op.name), tuple(arguments), spans))
        return [
            operand if out.ndim else self.build.load(operand.pointer, 0)
            for operand, out in zip(buffers, outs, strict=True)
        ]

    # Loops and branches

    def _structured(self, node: Node, operands: Sequence[Held], donated: Sequence[bool]) -> list[Held]:
        if isinstance(node.op, Switch):
            return self._switch(node, operands, donated)
        if isinstance(node.op, Repeat) or not isinstance(node.op, Scan | While):
            raise NotConvertibleError(node.op.name)
        consts, carries = node.params["consts"], node.params["carries"]
        body: Body = node.params["body"]
        shared = [
            Buffer(operand.pointer, operand.shape, False) if isinstance(operand, Buffer) else operand
            for operand in operands[:consts]
        ]
        shared = [
            self._stored(operand, value.aval) if isinstance(operand, Virtual) else operand
            for operand, value in zip(shared, node.inputs, strict=False)
        ]
        for operand in shared:
            if isinstance(operand, Buffer):
                operand.is_owned = False
        carried = _Carries(self, node.inputs[consts : consts + carries], operands[consts:], donated[consts:])
        if isinstance(node.op, While):
            if len(body.outputs) > carries:
                raise NotConvertibleError("stacks of unknown length")
            return self._while(node, body, shared, carried)
        overwritten = {carry.pointer for carry in carried.places if isinstance(carry, Buffer)}
        elements = [
            operand
            if isinstance(operand, Value) or overwritten.isdisjoint(operand.reads())
            else self._stored(operand, value.aval)  # later iterations read it
            for value, operand in zip(
                node.inputs[consts + carries :], operands[consts + carries :], strict=True
            )
        ]
        return self._scan(node, body, shared, carried, elements)

    def _scan(
        self, node: Node, body: Body, shared: list[Held], carried: _Carries, elements: Sequence[Held]
    ) -> list[Held]:
        build, length = self.build, node.params["length"]
        count = node.params["carries"]
        ys = [self._new("y", aval((length, *out.shape), out.dtype)) for out in body.outputs[count:]]
        with build.loop(length) as iteration:
            index = (length - 1) - iteration if node.params["reverse"] else iteration
            rows = [
                _row(operand, index, value.shape[1:])
                for operand, value in zip(
                    elements, node.inputs[len(node.inputs) - len(elements) :], strict=True
                )
            ]
            rows = [
                operand if not isinstance(operand, Virtual) or operand.shape else operand.element(build, ())
                for operand in rows
            ]
            outs = self._body(body, [index, *shared, *carried.inner(), *rows])
            for y, operand, value in zip(ys, outs[count:], body.outputs[count:], strict=True):
                self._fill(y.pointer, operand, value.shape, index * value.size)
            carried.next(outs[:count], body.outputs)
        return [*carried.results(), *ys]

    def _while(self, node: Node, body: Body, shared: list[Held], carried: _Carries) -> list[Held]:
        build, limit = self.build, node.params["limit"]
        bound = _bound(node)
        if bound is not None:
            asked: Body = node.params["condition"]
            needed = Body(asked.inputs, extract([bound], asked.inputs)[0], [bound])
            (bound_value,) = self._body(needed, [integer(0), *shared, *carried.inner(False)])
            count = self._scalar(bound_value)
            with build.loop(count) as number:
                carried.next(self._body(body, [number, *shared, *carried.inner()]), body.outputs)
            return [*carried.results(), UFUNCS["maximum"](count, 0)]
        trips = build.variable("trips", 0)
        with build.loop_while() as loop:
            (goes_on,) = self._body(
                node.params["condition"], [build.read(trips), *shared, *carried.inner(False)]
            )
            condition = self._scalar(goes_on)
            if limit is not None:
                condition = condition & (build.read(trips) < limit)
            build.start_body(loop, condition)
            number = build.read(trips)
            outs = self._body(body, [number, *shared, *carried.inner()])
            carried.next(outs, body.outputs)
            build.assign(trips, number + 1)
        return [*carried.results(), build.read(trips)]

    def _switch(self, node: Node, operands: Sequence[Held], donated: Sequence[bool]) -> list[Held]:
        """Convert a switch to nested branches; an array that a branch writes in place is written in all of them."""
        build, branches = self.build, bodies_of(node)
        arguments: list[Held] = []
        for operand, value, is_donated in zip(operands[1:], node.inputs[1:], donated[1:], strict=True):
            operand = self._stored(operand, value.aval) if isinstance(operand, Virtual) else operand
            arguments.append(
                Buffer(operand.pointer, operand.shape, is_donated) if isinstance(operand, Buffer) else operand
            )
        targets: list[Held] = []
        variables: list[Any] = []
        for number, out in enumerate(node.outs):
            if not out.ndim:
                variables.append(build.variable("chosen", out.dtype.type(0), out.dtype))
                targets.append(Literal(aval((), INT64), data=np.asarray(0)))
                continue
            variables.append(None)
            targets.append(self._target(branches, number, arguments, targets, out))
        index = self._scalar(operands[0])

        def choose(first: int) -> None:
            if first == len(branches) - 1:
                self._branch(branches[first], arguments, targets, variables)
                return
            with build.branch(index <= first) as branch:
                self._branch(branches[first], arguments, targets, variables)
                build.start_otherwise(branch)
                choose(first + 1)

        choose(0)
        return [
            operand if variable is None else build.read(variable)
            for operand, variable in zip(targets, variables, strict=True)
        ]

    def _target(
        self,
        branches: Sequence[Body],
        position: int,
        arguments: Sequence[Held],
        targets: Sequence[Held],
        out: Value,
    ) -> Buffer:
        """Return the array into which the branches write an output: an operand that one of them writes in place, or a new one."""
        for branch in branches:
            start = root(branch.outputs[position])
            if start in branch.inputs:
                argument = arguments[branch.inputs.index(start)]
                pointers = [other.pointer for other in targets if isinstance(other, Buffer)]
                if isinstance(argument, Buffer) and argument.is_owned and argument.pointer not in pointers:
                    return argument
        return self._new("chosen", out.aval)

    def _branch(
        self, branch: Body, arguments: Sequence[Held], targets: Sequence[Held], variables: Sequence[Any]
    ) -> None:
        written = {argument.pointer for argument in targets if isinstance(argument, Buffer)}
        inputs = [
            Buffer(argument.pointer, argument.shape, argument.pointer in written)
            if isinstance(argument, Buffer)
            else argument
            for argument in arguments
        ]
        outs = self._body(branch, inputs)
        for argument, variable in zip(outs, variables, strict=True):
            if variable is not None:
                self.build.assign(variable, convert(self._scalar(argument), variable.type.dtype))
        self._move(
            [
                (target.pointer, argument, value.aval)
                for target, argument, value in zip(targets, outs, branch.outputs, strict=True)
                if isinstance(target, Buffer)
            ]
        )

    # Memory

    def _move(self, moves: Sequence[tuple[Pointer, Held, Aval]]) -> None:
        """Write arrays where they belong; what reads an array that is overwritten is stored before."""
        moves = [move for move in moves if not (isinstance(move[1], Buffer) and move[1].pointer is move[0])]
        overwritten = {pointer for pointer, _, _ in moves}
        ready = []
        for pointer, source, type_ in moves:
            reads = {} if isinstance(source, Value) else source.reads()
            others = (overwritten & set(reads)) - ({pointer} if reads.get(pointer) else set())
            ready.append((pointer, self._stored(source, type_) if others else source, type_))
        for pointer, source, type_ in ready:
            self._fill(pointer, source, type_.shape)

    def _fill(self, pointer: Pointer, source: Held, shape: Shape, offset: Value | int = 0) -> None:
        """Write an array into contiguous memory."""
        with self._nest(shape) as index:
            position = flat(index, shape)
            position = position if isinstance(offset, int) and not offset else position + offset
            self.build.store(pointer, position, _element(self.build, source, index))

    def _new(self, name: str, type_: Aval) -> Buffer:
        """Return memory for an array. That of an iteration serves all iterations: each writes all of it before it reads it."""
        with self.build.at_start():
            return Buffer(self.build.allocate(name, type_.size, type_.dtype), type_.shape, True)

    def _stored(self, operand: Held, type_: Aval) -> Buffer:
        """Return a copy of an array in memory of its own."""
        buffer = self._new("copy", type_)
        self._fill(buffer.pointer, operand, type_.shape)
        return buffer

    @contextmanager
    def _nest(self, shape: Sequence[int]) -> Iterator[Where]:
        """Open loops over all positions in a shape."""
        with ExitStack() as stack:
            yield tuple(
                [0 if extent == 1 else stack.enter_context(self.build.loop(extent)) for extent in shape]
            )


def _bound(node: Node) -> Value | None:
    """Return the trip count, as a value of the condition, of a loop that ends after a number of iterations known at its beginning."""
    condition: Body = node.params["condition"]
    test = condition.outputs[0].node
    if node.params["limit"] is not None or test is None or test.op is not less:
        return None
    index, bound = test.inputs
    changing = {condition.inputs[0], *condition.inputs[1 + node.params["consts"] :]}
    if index is not condition.inputs[0] or changing & {bound, *reached(bound)}:
        return None
    return bound


def reached(value: Value) -> set[Value]:
    """Return the leaves that a value depends on."""
    return set(extract([value], stop=lambda other: other.node is None)[1])


class _Carries:
    """The loop-carried values of a loop that is converted: variables, and arrays in memory."""

    def __init__(
        self,
        conversion: _Conversion,
        inits: Sequence[Value],
        operands: Sequence[Held],
        donated: Sequence[bool],
    ) -> None:
        self.conversion = conversion
        self.places: list[Any] = []
        for value, operand, is_donated in zip(inits, operands, donated, strict=False):
            if not value.ndim:
                scalar = conversion._scalar(operand)
                self.places.append(conversion.build.variable(value.name or "c", scalar, value.dtype))
            elif is_donated:
                self.places.append(operand)
            else:
                self.places.append(conversion._stored(operand, value.aval))

    def inner(self, may_write: bool = True) -> list[Held]:
        """Return what an iteration begins with."""
        return [
            Buffer(carry.pointer, carry.shape, may_write)
            if isinstance(carry, Buffer)
            else self.conversion.build.read(carry)
            for carry in self.places
        ]

    def next(self, outs: Sequence[Held], values: Sequence[Value]) -> None:
        """Let the next iteration begin with these."""
        moves = []
        for carry, result, value in zip(self.places, outs, values, strict=False):
            if isinstance(carry, Buffer):
                moves.append((carry.pointer, result, value.aval))
            else:
                self.conversion.build.assign(
                    carry, convert(self.conversion._scalar(result), carry.type.dtype)
                )
        self.conversion._move(moves)

    def results(self) -> list[Held]:
        """Return the values after the loop."""
        return [
            carry if isinstance(carry, Buffer) else self.conversion.build.read(carry) for carry in self.places
        ]


_MONOIDS: Final = {
    "add": "add",
    "multiply": "multiply",
    "maximum": "maximum",
    "minimum": "minimum",
    "or": "bitwise_or",
    "and": "bitwise_and",
}
"""The rows that combine two elements of a reduction."""


def _element(build: ProcedureBuilder, operand: Held, index: Where) -> Value:
    return operand if isinstance(operand, Value) else operand.element(build, index)


def _reader(
    build: ProcedureBuilder, indices: Held, extent: int, axis: int
) -> Callable[[tuple[Any, ...]], Position | int]:
    """Return a function that reads an index array: negative indices count from the end, others outside the extent are errors."""

    def read(position: tuple[Any, ...]) -> Position | int:
        number = integer(_element(build, indices, _values(position)))
        checked = checked_index(build, number, extent, axis)
        return Position(checked) if isinstance(checked, Value) else checked

    return read


def _row(operand: Held, index: Value, shape: Shape) -> Held:
    """Return an element along the leading axis."""
    assert not isinstance(operand, Value)
    sources = dict.fromkeys(operand.reads(), False)
    return Virtual(
        shape, lambda build, rest: operand.element(build, (index, *rest)), sources, {}, _cost_of([operand])
    )


def _merged(arrays: Iterable[Buffer | Virtual]) -> dict[Pointer, bool]:
    """Return what an elementwise function of arrays reads."""
    merged: dict[Pointer, bool] = {}
    for array in arrays:
        for pointer, aligned in array.reads().items():
            merged[pointer] = aligned and merged.get(pointer, True)
    return merged


def _interleaved(outer_axes: Sequence[int], outer: Where, axes: Sequence[int], inner: Where) -> Where:
    coordinates = dict(zip([*outer_axes, *axes], [*outer, *inner], strict=True))
    return tuple([coordinates[axis] for axis in range(len(coordinates))])


MOST_COMPUTED_TWICE: Final = 3
"""Additions that are made again for each use of an array; one that costs more is stored where it is used twice."""


def _cost_of(arrays: Iterable[Buffer | Virtual]) -> float:
    """Return the cost of an element of each of these arrays, in additions."""
    return sum(array.cost for array in arrays if isinstance(array, Virtual))


def _is_costly(operand: Held) -> bool:
    """Return whether elements are stored rather than computed twice."""
    return isinstance(operand, Virtual) and operand.cost > MOST_COMPUTED_TWICE


def _overwrites(node: Node) -> int:
    """Return how late a node is to be converted: loops and branches may overwrite their operands, writes do."""
    if isinstance(node.op, Accumulate) or node.op is identity:
        return 2
    return isinstance(node.op, Structured)


def _reads_first(body: Graph) -> Iterator[Node]:
    """Yield the nodes of a body in an order in which, as far as possible, arrays are read before they are overwritten."""
    waiting = list(body.nodes)
    computed = set(body.inputs)
    while waiting:
        ready = [
            node
            for node in waiting
            if all(
                value in computed or isinstance(value, Literal) or value.data is not None
                for value in node.inputs
            )
        ]
        chosen = min(ready, key=_overwrites)
        waiting.remove(chosen)
        computed.update(chosen.outs)
        yield chosen
