"""Complex numbers as pairs of real ones: kernels compute with these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.errors import LoweringError
from gradtape.ir.body import Body, bodies_of
from gradtape.ir.builder import at, emit, emit_all
from gradtape.ir.graph import Graph, Literal, Node, Value, extract, literal
from gradtape.ir.types import aval, part_dtype
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.kinds.control import Barrier, barrier
from gradtape.kinds.correlation import Correlation
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.elementwise import Elementwise, Parts
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join
from gradtape.kinds.operands import broadcast_to
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.registry import ROWS
from gradtape.kinds.routines.callback import Callback, python_call
from gradtape.kinds.routines.matrix import Matrix
from gradtape.kinds.sort import Sort
from gradtape.ops.core.join import join
from gradtape.ops.core.shape import reshape, slice_
from gradtape.passes.complex.loops import accumulated, reduced
from gradtape.passes.complex.products import contracted, four_products
from gradtape.passes.simplify.annotations import inline_custom_calls
from gradtape.passes.simplify.inline_calls import inline_calls
from gradtape.transforms.loops.draft import make_body
from gradtape.transforms.loops.ops import Switch, While


def holds_complex(graph: Graph) -> bool:
    """Return whether there are complex numbers in a graph or in the bodies that it holds."""
    values = [value for node in graph.nodes for value in node.outs]
    if any(map(is_complex, (*graph.inputs, *values))):
        return True
    return any(holds_complex(body) for node in graph.nodes for body in bodies_of(node))


def is_complex(value: Value) -> bool:
    """Return whether a value holds complex numbers."""
    return value.dtype.kind == "c"


class ComplexSplit:
    """The values of the new graph by those of the old one."""

    __slots__ = ("_becomes", "_flat", "_parts")

    def __init__(self) -> None:
        self._becomes: dict[Value, Value] = {}
        self._flat: dict[Value, Value] = {}
        self._parts: dict[Value, Parts] = {}

    def enter(self, value: Value, parts: Parts) -> None:
        """Say what the parts of a value are."""
        self._parts[value] = parts

    def source(self, value: Value) -> Value:
        """Return the new input for an input or a constant."""
        if not is_complex(value):
            return value
        data = None
        if value.data is not None:
            data = np.ascontiguousarray(value.data).reshape((*value.shape, 1)).view(part_dtype(value.dtype))
        flat = Value(aval((*value.shape, 2), part_dtype(value.dtype)), data=data)
        self.enter_flat(value, flat)
        return flat

    def enter_flat(self, value: Value, flat: Value) -> None:
        """Say which array has the parts of a value on its last axis."""
        self._flat[value] = flat
        self._parts[value] = (_part(flat, 0), _part(flat, 1))

    def value(self, value: Value) -> Value:
        return self._becomes.get(value, value)

    def parts(self, value: Value) -> Parts:
        if isinstance(value, Literal):
            assert value.data is not None
            part = part_dtype(value.dtype)
            return literal(value.data.real, part), literal(value.data.imag, part)
        return self._parts[value]

    def output(self, value: Value) -> Value:
        """Return a real value, or the array with the parts of a complex one on its last axis."""
        if not is_complex(value):
            return self.value(value)
        if value in self._flat:
            return self._flat[value]
        columns = [reshape(broadcast_to(part, value.shape), (*value.shape, 1)) for part in self.parts(value)]
        return join(columns, value.ndim)

    def node(self, node: Node) -> None:
        """Enter what the outputs of a node become."""
        if any(map(holds_complex, bodies_of(node))):
            self._structured(node)
            return
        if not any(map(is_complex, (*node.inputs, *node.outs))):
            inputs = tuple([self.value(value) for value in node.inputs])
            if inputs != node.inputs:
                self._becomes.update(zip(node.outs, node.copy(inputs).outs, strict=True))
            return
        if isinstance(node.op, Barrier):
            self._barrier(node)
            return
        if isinstance(node.op, Callback | Matrix):
            self._python_call(node)
            return
        replacement = _by_other_rows(node)
        if replacement is not None:
            self._replaced(node, replacement)
            return
        try:
            result = self._result(node)
        except LoweringError:
            self._python_call(node)
            return
        out = node.out
        if isinstance(result, Value):
            self._becomes[out] = _shaped(result, out)
        else:
            self._parts[out] = (_shaped(result[0], out), _shaped(result[1], out))

    def _replaced(self, node: Node, replacement: Value) -> None:
        """Split what a node is computed by."""
        nodes, _ = extract(
            [replacement], node.inputs, stop=lambda value: value.node is None or value in node.inputs
        )
        for inner in nodes:
            self.node(inner)
        if is_complex(replacement):
            self._parts[node.out] = self.parts(replacement)
        else:
            self._becomes[node.out] = self.value(replacement)

    def _structured(self, node: Node) -> None:
        """Split the bodies of a loop or a branch as well; carries of complex numbers become two carries."""
        params = node.params
        first = bodies_of(node)[0]
        lead = len(node.inputs) - len(first.inputs) + (0 if isinstance(node.op, Switch) else 1)
        inner = first.inputs[len(first.inputs) - len(node.inputs) + lead :]
        flags = [*[False] * lead, *map(is_complex, inner)]
        groups = [
            self.parts(value) if flag else (self.value(value),)
            for value, flag in zip(node.inputs, flags, strict=True)
        ]
        changed = {name: self._split_param(param) for name, param in params.items()}
        left = list(map(is_complex, first.outputs))
        if not isinstance(node.op, Switch):
            consts, carries = params["consts"], params["carries"]
            counts = [len(group) for group in groups[lead:]]
            changed["consts"] = sum(counts[:consts])
            changed["carries"] = sum(counts[consts : consts + carries])
            if isinstance(node.op, While):
                left.insert(carries, False)
        outs = iter(emit_all(node.op, [value for group in groups for value in group], **changed))
        for out, flag in zip(node.outs, left, strict=True):
            if flag:
                self._parts[out] = (next(outs), next(outs))
            else:
                self._becomes[out] = next(outs)

    def body(self, body: Body) -> Body:
        """Return a body of the parts."""
        inputs: list[Value] = []
        for value in body.inputs:
            if is_complex(value):
                parts = tuple(Value(aval(value.shape, part_dtype(value.dtype))) for _ in range(2))
                self._parts[value] = (parts[0], parts[1])
                inputs += parts
            else:
                inputs.append(value)
        inlined = inline_custom_calls(inline_calls(body))
        for node in inlined.nodes:
            with at(node.site):
                self.node(node)
        outputs: list[Value] = []
        for value in inlined.outputs:
            parts_ = self.parts(value) if is_complex(value) else (self.value(value),)
            outputs += [_shaped(part, value) for part in parts_]
        return make_body(inputs, outputs)

    def _barrier(self, node: Node) -> None:
        kept_count: int = node.params["kept"]
        groups = [self.parts(value) if is_complex(value) else (self.value(value),) for value in node.inputs]
        values = [value for group in groups[:kept_count] for value in group]
        after = [value for group in groups[kept_count:] for value in group]
        outs = iter(barrier(values, after))
        for out in node.outs:
            if is_complex(out):
                self._parts[out] = (next(outs), next(outs))
            else:
                self._becomes[out] = next(outs)

    def _python_call(self, node: Node) -> None:
        """Let Python compute a node of complex numbers, which are pairs of floats for it."""
        inputs: list[Value] = []
        packed: list[int] = []
        for value in node.inputs:
            packed.append(0 if not is_complex(value) else 1 if value.shape else 2)
            inputs += self.parts(value) if packed[-1] == 2 else [self.output(value)]
        outs = iter(python_call(node.op, inputs, packed, node.params, node.outs))
        for out in node.outs:
            if not is_complex(out):
                self._becomes[out] = next(outs)
            elif out.shape:
                pairs = next(outs)
                self._parts[out] = (_part(pairs, 0), _part(pairs, 1))
            else:
                self._parts[out] = (next(outs), next(outs))

    def _result(self, node: Node) -> Value | Parts:
        op = node.op
        if isinstance(op, Elementwise) and op.complex_body is not None:
            operands = [
                self.parts(value) if is_complex(value) else self.value(value) for value in node.inputs
            ]
            return op.complex_body(*operands, **node.params)
        if isinstance(op, Contract):
            x, y = map(self.parts, node.inputs)
            return contracted(node, x, y)
        if isinstance(op, Correlation):
            return four_products(node, *map(self.parts, node.inputs))
        is_sum = (
            isinstance(op, Reduction | Cumulative) and op.transpose_rule is not None and len(node.inputs) == 1
        )
        if is_sum or isinstance(op, IndexMap | Join | Accumulate):
            return self._one_part(node, 0), self._one_part(node, 1)
        raise LoweringError(
            f"{op.name} of complex numbers has no kernel", why="it has no formula in real and imaginary parts"
        )

    def _split_param(self, param: Any) -> Any:
        """Return a parameter of a node with bodies of the parts."""
        if isinstance(param, Body):
            return type(self)().body(param)
        if isinstance(param, tuple) and param and isinstance(param[0], Body):
            return tuple([type(self)().body(body) for body in param])
        return param

    def _one_part(self, node: Node, which: int) -> Value:
        inputs = [
            self.parts(value)[which] if is_complex(value) else self.value(value) for value in node.inputs
        ]
        return emit(node.op, inputs, **node.params)


def _by_other_rows(node: Node) -> Value | None:
    """Return the result of a node of complex numbers, by rows that have formulas in parts; None if it has one itself."""
    op = node.op
    if isinstance(op, Sort):
        return op.of_complex(*node.inputs, **node.params)
    if isinstance(op, Reduction) and op.of_complex is not None:
        return op.of_complex(*node.inputs, **node.params)
    if isinstance(op, Reduction) and op.transpose_rule is None and op.monoid in ROWS:
        return reduced(node)
    if isinstance(op, Cumulative) and (op.transpose_rule is None or len(node.inputs) > 1):
        return accumulated(node)
    return None


def _part(flat: Value, which: int) -> Value:
    """Return the real or the imaginary parts of an array with both on its last axis."""
    shape: Sequence[int] = flat.shape[:-1]
    starts = (*[0 for _ in shape], which)
    return reshape(slice_(flat, starts, (*shape, 1), (1,) * flat.ndim), tuple(shape))


def _shaped(value: Value, like: Value) -> Value:
    return broadcast_to(value, like.shape) if value.shape != like.shape else value
