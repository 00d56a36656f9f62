"""The anatomy of gradtape: all of it in miniature, to be read from top to bottom in an evening.

gradtape runs a function of NumPy code once, with arrays that record what is done to them. The record is a graph. A transform appends
the derivative to the graph. Passes simplify the graph. Then loops are made of it, and LLVM makes machine code of the loops:

    function ── trace ──> graph ── vjp ──> graph ── passes ──> graph ── schedule ──> loops ── LLVM ──> machine code

Section 9 adds a second way, for loops. This file has the same stages, and its classes and functions have the names of the real ones.
The head of each part says which modules of `src/gradtape` it stands for, and "Real:" says what is different there. Nothing of gradtape
is imported. You should know NumPy and the chain rule; what you need of compilers is explained. `python docs/anatomy.py` runs all examples.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import math
import operator
import struct
import timeit
from collections import Counter, namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import CFUNCTYPE, c_void_p
from dataclasses import dataclass, replace
from typing import Any

import llvmlite.binding as llvm
import numpy as np

Shape = tuple[int, ...]

# %% 1. The graph: ir/types.py, ir/tags.py, ir/graph.py, ir/builder.py
#
# A `Value` is one array in a computation. Before anything is computed, its shape and dtype are known: its `Aval` (abstract value).
# A `Node` applies an op, such as `add`, to values, and makes a new value. A node refers to its inputs, and a value to the node that
# makes it. So values and nodes form a graph, which grows while code runs. Nothing in the graph is ever changed: to compute a gradient
# is to append the nodes that compute it. A function, its gradient and its second derivative are parts of one graph and share nodes.
#
# A `TraceTag` is on the values that a tape or a trace follows. The result of a node carries the tags of its inputs. So y depends on what
# a tape watches if, and only if, y carries the tag of this tape.


@dataclass(frozen=True)
class Aval:
    """The shape and dtype of an array: all that a trace may depend on."""

    shape: Shape
    dtype: str = "f64"

    def __repr__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


class TraceTag:
    """A tape or a trace that follows values. Guards are explained in section 3."""

    recording = True
    guards: list[tuple[Value, bool]] | None = None


@dataclass(eq=False)
class Value(np.lib.mixins.NDArrayOperatorsMixin):
    """One array: the result of a node, an input, or a constant, which has `data` from the beginning."""

    aval: Aval
    node: Node | None = None
    data: Any = None
    tags: frozenset[TraceTag] = frozenset()

    shape = property(lambda self: self.aval.shape)
    __eq__, __hash__ = object.__eq__, object.__hash__  # a value is equal to itself alone

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any) -> Value:
        return PRIMITIVES[ufunc.__name__](
            *inputs
        )  # a formula of values, such as 1.0 / (1.0 + x), appends nodes


class Literal(Value):
    """A number in the program text. It meets arrays of every shape."""


class Node:
    """One application of an op to values. Real: a node may have several outputs; here it has one, `out`."""

    serials = itertools.count()

    def __init__(self, op: Op, inputs: Sequence[Value], params: Any) -> None:
        self.op, self.inputs, self.params, self.serial = op, tuple(inputs), params, next(Node.serials)
        tags = frozenset(tag for value in inputs for tag in value.tags if tag.recording)
        self.out = Value(op.infer([value.aval for value in inputs], params), self, tags=tags)


def emit(op: Op, inputs: Sequence[Value], **params: Any) -> Value:
    """Append a node and return its output. All recording comes down to this function."""
    return Node(op, inputs, params).out


def extract(outputs: Iterable[Value], stop: Callable[[Value], bool]) -> list[Node]:
    """Return the nodes that compute `outputs`, oldest first. The walk ends at values for which `stop` holds."""
    found, pending = set[Node](), list(outputs)
    while pending:
        value = pending.pop()
        if value.node is not None and value.node not in found and not stop(value):
            found.add(value.node)
            pending += value.node.inputs
    return sorted(found, key=lambda node: node.serial)


class Graph:
    """A part of the graph as a program. It is right where each guard has the truth value that was seen (section 3)."""

    def __init__(self, inputs: Sequence[Value], outputs: Sequence[Value], guards: Any = ()) -> None:
        self.inputs, self.outputs, self.guards = inputs, outputs, guards
        self.results = [*outputs, *[value for value, _ in guards]]
        self.nodes = extract(self.results, set(inputs).__contains__)
        made = {*inputs, *[node.out for node in self.nodes]}
        used = dict.fromkeys([value for node in self.nodes for value in node.inputs] + self.results)
        self.constants = [value for value in used if value not in made]


# ir/printer.py, ir/verifier.py: a graph prints as Python with one op on each line, which is called three-address code. A verifier
# checks the rules that every graph keeps. It runs after each pass (section 5): a pass that breaks a graph is found at once, by name.


def print_graph(graph: Graph) -> str:
    """Return a graph as typed three-address Python."""
    names = {value: f"x{k}" for k, value in enumerate(graph.inputs)}
    names |= {value: repr(value.data.tolist()) for value in graph.constants}
    names |= {node.out: f"v{k}" for k, node in enumerate(graph.nodes)}
    lines = [f"def f({', '.join(f'{names[x]}: {x.aval}' for x in graph.inputs)}):"]
    for node in graph.nodes:
        operands = [names[x] for x in node.inputs] + [f"{key}={param}" for key, param in node.params.items()]
        lines.append(f"    {names[node.out]}: {node.out.aval} = {node.op.name}({', '.join(operands)})")
    lines += [f"    assert {names[value]} == {seen}" for value, seen in graph.guards]
    return "\n".join([*lines, f"    return {', '.join([names[x] for x in graph.outputs])}"])


def verify(graph: Graph, stage: str) -> None:
    """Check that values are known before they are used, and that each has the type that its op infers."""
    known = {*graph.inputs, *[value for value in graph.constants if value.data is not None]}
    for node in graph.nodes:
        inferred = node.op.infer([value.aval for value in node.inputs], node.params)
        assert known.issuperset(node.inputs), f"after {stage}: {node.op.name} uses what is not known yet"
        assert inferred == node.out.aval, f"after {stage}: {node.op.name} does not make {node.out.aval}"
        known.add(node.out)


# %% 2. Kinds and rows: ir/op.py, ir/primitives.py, kinds/elementwise.py, kinds/operands.py, ops/core/elementwise/
#
# NumPy has hundreds of functions, but few kinds of functions. What is true of all ops of a kind is written once, in the class of the
# kind: the type of the result (`infer`), how NumPy computes it (`evaluate`), derivatives (`jvp`, `transpose`), many cases at once
# (`batch`). What is special to one op is a row: an instance of the class, made from a few facts. A new op is a new row.
#
# The elementwise kind is `out[i] = f(x[i], y[i], ...)`. A row has three facts: the function of NumPy, the instruction for LLVM (with {}
# for the operands), and a partial derivative for each argument: a formula of the result `z` and the arguments. If the formula is a truth
# value, as in the row of `where`, the derivative is a selection: where it is False the derivative is 0, whatever it is multiplied with.
#
# Broadcasting has a node of its own, `expand`. So the operands of an elementwise node have one shape (or are numbers), and no
# derivative has to undo a broadcast.

PRIMITIVES: dict[str, Elementwise] = {}


def as_value(operand: Any) -> Value:
    """Return an operand as a value: a number as a literal, and an ndarray as a constant with a copy of the data."""
    if isinstance(operand, Value):
        return operand
    data = np.array(operand, float)
    return Value(Aval(data.shape), data=data) if data.ndim else Literal(Aval(()), data=data)


def scaled(partial: Any, vector: Value) -> Value:
    """Return a partial derivative times a vector; a truth value selects."""
    if isinstance(partial, Value) and partial.aval.dtype == "bool":
        return where(partial, vector, 0.0)
    return partial * vector


class Elementwise:
    """A row of the elementwise kind."""

    def __init__(self, function: Any, body: str, *partials: Any, dtype: str = "f64") -> None:
        self.name, self.function, self.body = function.__name__, function, body
        self.partials, self.dtype, self.is_expensive = partials, dtype, "@" in body  # a call
        PRIMITIVES[self.name] = self

    def __call__(self, *operands: Any) -> Value:
        values = [as_value(operand) for operand in operands]
        shape = np.broadcast_shapes(*[value.shape for value in values])
        return emit(self, [x if isinstance(x, Literal) else broadcast_to(x, shape) for x in values])

    def infer(self, avals: Sequence[Aval], params: Any) -> Aval:
        return Aval(max([aval.shape for aval in avals], key=len), self.dtype)

    def evaluate(self, arrays: Sequence[Any], params: Any) -> Any:
        return self.function(*arrays)

    def jvp(self, node: Node, tangents: Sequence[Any]) -> Value | None:
        """Return the sum over the arguments of the partial derivative times the tangent (section 4)."""
        pairs = zip(self.partials, tangents, strict=True)
        terms = [scaled(rule(node.out, *node.inputs), dx) for rule, dx in pairs if rule and dx is not None]
        return sum(terms[1:], terms[0]) if terms else None

    def batch(self, node: Node, operands: Sequence[Value], n: int) -> Value:
        return self(*operands)  # broadcasting adds the axis in front


add = Elementwise(np.add, "fadd double {}, {}", lambda z, x, y: 1.0, lambda z, x, y: 1.0)
subtract = Elementwise(np.subtract, "fsub double {}, {}", lambda z, x, y: 1.0, lambda z, x, y: -1.0)
multiply = Elementwise(np.multiply, "fmul double {}, {}", lambda z, x, y: y, lambda z, x, y: x)
divide = Elementwise(np.divide, "fdiv double {}, {}", lambda z, x, y: 1.0 / y, lambda z, x, y: -z / y)
negative = Elementwise(np.negative, "fneg double {}", lambda z, x: -1.0)
sqrt = Elementwise(np.sqrt, "call double @sqrt(double {})", lambda z, x: 0.5 / z)
exp = Elementwise(np.exp, "call double @exp(double {})", lambda z, x: z)
log1p = Elementwise(np.log1p, "call double @log1p(double {})", lambda z, x: 1.0 / (1.0 + x))
greater = Elementwise(np.greater, "fcmp ogt double {}, {}", None, None, dtype="bool")
bitwise_and = Elementwise(np.bitwise_and, "and i1 {}, {}", None, None, dtype="bool")
invert = Elementwise(np.invert, "xor i1 {}, true", None, dtype="bool")
where = Elementwise(
    np.where, "select i1 {}, double {}, double {}", None, lambda z, c, *_: c, lambda z, c, *_: ~c
)

# kinds/index_map.py, ops/core/shape.py, ops/core/indexing.py: the index-map kind is `out[i] = x[source(i)]`. Every element of `out` is a
# copy of one of x: `expand` repeats them, `permute` reorders the axes, `slice` selects. The fact of a row is `source`, arithmetic on
# positions. NumPy calls it with arrays of integers, and so computes the result. Section 6 calls it with the variables of loops: there an
# index map costs nothing, it only says where to read. (`lead` is for `batch`: the parameters if there is one more axis in front.)
#
# kinds/accumulate.py, kinds/reduction.py: the transpose of an index map adds, `out[source(j)] += x[j]`. It has the same parameters:
# `whole` is the shape on the side of `source`, and `shape` is the other one. The transpose of `expand` is a sum. Real: a kind of its own.


@dataclass(eq=False)
class IndexMap:
    """A row of the index-map kind: ``out[i] = x[source(i)]``."""

    name: str
    source: Callable[..., tuple[Any, ...]]
    lead: Callable[..., Any]

    def infer(self, avals: Sequence[Aval], params: Any) -> Aval:
        return Aval(params["shape"], avals[0].dtype)

    def evaluate(self, arrays: Sequence[Any], params: Any) -> Any:
        index = self.source(tuple(np.indices(params["shape"])), **params)
        return np.broadcast_to(arrays[0][index], params["shape"])

    def jvp(self, node: Node, tangents: Sequence[Any]) -> Value | None:
        return emit(self, tangents, **node.params)

    def transpose(self, node: Node, ct: Value) -> Value:
        return emit(TRANSPOSES[self], [ct], **node.params)

    def batch(self, node: Node, operands: Sequence[Value], n: int) -> Value:
        front = {"whole": (n, *node.params["whole"]), "shape": (n, *node.params["shape"])}
        return emit(self, operands, **{**node.params, **front, **self.lead(**node.params)})


class Accumulate(IndexMap):
    """A row of the accumulate kind: ``out[source(j)] += x[j]``, where `out` begins as zeros."""

    def infer(self, avals: Sequence[Aval], params: Any) -> Aval:
        return Aval(params["whole"])

    def evaluate(self, arrays: Sequence[Any], params: Any) -> Any:
        out, j = np.zeros((1, *params["whole"])), tuple(np.indices(params["shape"]))
        np.add.at(out, (np.zeros(params["shape"], int), *self.source(j, **params)), arrays[0])
        return out[0]  # the axis in front is for sums over all axes: `source` has no index for them


def _sliced(i: Any, starts: Shape, steps: Shape, **_: Shape) -> tuple[Any, ...]:
    """Count from each start in steps. A step of 0 stands for an integer in an index, which drops its axis."""
    places = iter(i)
    return tuple(a + d * next(places) if d else a for a, d in zip(starts, steps, strict=True))


Op = Elementwise | IndexMap
expand = IndexMap(  # axis k of x becomes axis axes[k] of the result, and x is repeated along the other axes
    "expand",
    source=lambda i, axes, **_: tuple(i[axis] for axis in axes),
    lead=lambda axes, **_: {"axes": (0, *[axis + 1 for axis in axes])},
)
permute = IndexMap("permute", expand.source, expand.lead)
slice_ = IndexMap("slice", _sliced, lambda starts, steps, **_: {"starts": (0, *starts), "steps": (1, *steps)})
reduce_sum = Accumulate("reduce_sum", expand.source, expand.lead)
put_add = Accumulate("put_add", slice_.source, slice_.lead)
TRANSPOSES = {expand: reduce_sum, permute: reduce_sum, reduce_sum: expand, slice_: put_add, put_add: slice_}


def getitem(x: Value, key: Any) -> Value:
    """Return `x[key]` for integers and slices."""
    keys = key if isinstance(key, tuple) else (key,)
    spans = [range(n)[k] for n, k in itertools.zip_longest(x.shape, keys, fillvalue=slice(None))]
    starts = tuple(span if isinstance(span, int) else span.start for span in spans)
    steps = tuple(0 if isinstance(span, int) else span.step for span in spans)
    shape = tuple(len(span) for span in spans if isinstance(span, range))
    return emit(slice_, [x], whole=x.shape, shape=shape, starts=starts, steps=steps)


def broadcast_to(x: Value, shape: Shape) -> Value:
    """Return `x` as NumPy broadcasts it: an axis of one element is dropped, and comes back with the extent in `shape`."""
    kept = [n == m for n, m in zip(x.shape[::-1], shape[::-1], strict=False)][::-1]
    x = x if all(kept) else getitem(x, tuple(slice(None) if keep else 0 for keep in kept))
    axes = tuple(k + len(shape) - len(kept) for k, keep in enumerate(kept) if keep)
    return x if x.shape == shape else emit(expand, [x], whole=x.shape, shape=shape, axes=axes)


# ops/numpy/, kinds/registry.py, kinds/contract.py: the other functions of NumPy are composites, Python code that calls rows. Only rows
# leave nodes in the graph. The product of matrices is a composite: products of elements, and their sum. Section 6 makes of this the
# loops that one would write by hand. Real: such products are of a kind of their own, that of einsum, and BLAS computes the large ones.


def sum_(x: Value, axis: Any = None) -> Value:
    axes = range(len(x.shape)) if axis is None else [k % len(x.shape) for k in np.atleast_1d(axis)]
    kept = tuple(k for k in range(len(x.shape)) if k not in axes)
    return emit(reduce_sum, [x], whole=tuple(x.shape[k] for k in kept), shape=x.shape, axes=kept)


def transpose(x: Value) -> Value:
    return emit(permute, [x], whole=x.shape, shape=x.shape[::-1], axes=tuple(range(len(x.shape)))[::-1])


def matmul(a: Value, b: Value) -> Value:
    rank, wide = len(a.shape), a.shape + b.shape[1:]
    left = a if a.shape == wide else emit(expand, [a], whole=a.shape, shape=wide, axes=tuple(range(rank)))
    return sum_(left * b, axis=rank - 1)


FUNCTIONS: dict[Any, Any] = {np.sum: sum_, np.transpose: transpose, np.matmul: matmul}

v = Value(Aval((2, 3)))
print(print_graph(Graph([v], [sum_(exp(getitem(v, 0)) * 2.0)])))

# %% 3. Tracing: trace/array/array.py, trace/dispatch/dispatch.py, trace/lazy/force.py, trace/jit/guards.py
#
# An `Array` is what the user's code has in its hands. It holds a value and behaves as an ndarray, because NumPy hands every ufunc that
# meets an `Array` to `__array_ufunc__`, and every other function to `__array_function__`. Both append nodes. Nothing is computed: the
# value is pending. To show numbers, `force` computes them with NumPy. Real: after `x[i] = y` the `Array` x holds another value.
#
# To jit a function is to run it once, with arrays that stand for the arguments of all later calls. A branch (`if total > 1:`) needs a
# truth value then. It takes that of the call at hand, and a guard is recorded: the trace is right only where the truth is the same.


def force(value: Value) -> Any:
    """Return the data of a value. What is pending is computed."""
    with np.errstate(all="ignore"):
        for node in extract([value], lambda value: value.data is not None):
            node.out.data = node.op.evaluate([operand.data for operand in node.inputs], node.params)
    return value.data


class Array(np.lib.mixins.NDArrayOperatorsMixin):
    """The array that the user's code sees: NumPy's interface on a value. After x += y, Python's x is another one."""

    def __init__(self, value: Any) -> None:
        self.value = as_value(value)

    shape = property(lambda self: self.value.shape)
    T = property(lambda self: np.transpose(self))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        rule = FUNCTIONS.get(function) or PRIMITIVES.get(function.__name__)
        operands = [as_value(x) if isinstance(x, np.ndarray) else getattr(x, "value", x) for x in args]
        return Array(rule(*operands, **kwargs)) if rule else NotImplemented

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None) -> Any:
        return self.__array_function__(ufunc, (), inputs, {})

    def __getitem__(self, key: Any) -> Array:
        return Array(getitem(self.value, key))

    def __bool__(self) -> bool:
        truth = bool(force(self.value))
        for tag in self.value.tags:
            if tag.guards is not None:
                tag.guards.append((self.value, truth))
        return truth


def trace(function: Callable[..., Any], arrays: Sequence[Any]) -> Graph:
    """Run a function once, and return what it does to arrays of these shapes. A guard becomes a number: 1.0 or 0.0."""
    tag = TraceTag()
    tag.guards = []
    inputs = [Value(Aval(np.shape(array)), data=array, tags=frozenset([tag])) for array in arrays]
    outputs = [array.value for array in function(*map(Array, inputs))]
    tag.recording = False
    return Graph(inputs, outputs, [(where(value, 1.0, 0.0), truth) for value, truth in tag.guards])


x = Array([1.0, 2.0])
y = np.exp(x) * 2 + x[::-1]  # y.value is pending
assert y.value.data is None and np.allclose(force(y.value), np.exp([1, 2]) * 2 + [2, 1])

# %% 4. Derivatives: transforms/jvp.py, transforms/vjp.py, transforms/linear.py, kinds/cotangent.py
#
# Forward mode. The tangent of a value says how much the value changes when the sources change a little. Each op knows how it maps the
# tangents of its inputs to the tangent of its result. `jvp` asks the nodes one after the other. None stands for a tangent of zeros.
#
# Reverse mode. The cotangent of a value says how much the target changes when the value changes a little. It needs no other rule per
# op. The nodes that `jvp` appends compute a linear function of the tangents. `vjp` runs `jvp` with placeholders as tangents, and a tag
# to recognise the linear nodes. Then it goes through these from the last to the first and transposes each of them: what was expanded is
# summed, and what was multiplied is multiplied with the same factor. If a value is used more than once, its cotangents are added.
# Real: each node is linearised when it is met on the way back, so that nodes which the target does not need cost nothing.
#
# Masks. At x = 0, `where(x > 0, sqrt(x), 0.0)` does not select the root, whose derivative is infinite there; 0 * inf would be NaN. So a
# `Cotangent` that a selection sets to 0 keeps the mask of the selection through elementwise nodes, and applies it behind them.


def jvp(target: Value, sources: Sequence[Value], tangents: Sequence[Value], stop: Any) -> Value | None:
    """Append the forward sweep and return the tangent of the target. Values for which `stop` holds are constants."""
    pushed: dict[Value, Value | None] = dict(zip(sources, tangents, strict=True))
    for node in extract([target], lambda value: value in pushed or stop(value)):
        incoming = [pushed.get(value) for value in node.inputs]
        if any(tangent is not None for tangent in incoming):
            pushed[node.out] = node.op.jvp(node, incoming)
    return pushed.get(target)


@dataclass(frozen=True)
class Cotangent:
    """A cotangent: `value` where `mask` holds, and zero elsewhere."""

    value: Value
    mask: Value | None = None

    def times(self, partial: Any) -> Cotangent:
        if isinstance(partial, Value) and partial.aval.dtype == "bool":
            return Cotangent(self.value, partial if self.mask is None else self.mask & partial)
        return Cotangent(scaled(partial, self.value), self.mask)

    def plus(self, other: Cotangent) -> Cotangent:
        if self.mask is other.mask:
            return Cotangent(self.value + other.value, self.mask)
        return Cotangent(self.applied() + other.applied())

    def applied(self) -> Value:
        return self.value if self.mask is None else where(self.mask, self.value, 0.0)


def pull_linear(out: Any, cotangent: Value, tag: TraceTag) -> dict[Value, Cotangent]:
    """Transpose the linear nodes, which carry `tag`, and return the cotangents of all values on the way."""
    found = {out: Cotangent(cotangent)}
    for node in reversed(extract([out], lambda value: tag not in value.tags)):
        ct = found[node.out]
        if isinstance(node.op, Elementwise):
            parts = [rule and ct.times(rule(node.out, *node.inputs)) for rule in node.op.partials]
        else:
            parts = [Cotangent(node.op.transpose(node, ct.applied()))]
        for value, part in zip(node.inputs, parts, strict=True):
            if tag in value.tags:
                found[value] = found[value].plus(part) if value in found else part
    return found


def vjp(target: Value, sources: Sequence[Value], cotangent: Value, stop: Any) -> list[Value]:
    """Append the reverse sweep and return the cotangents of the sources."""
    tag = TraceTag()
    tangents = [Value(source.aval, tags=frozenset([tag])) for source in sources]
    found = pull_linear(jvp(target, sources, tangents, stop), cotangent, tag)
    return [found[tangent].applied() for tangent in tangents]


# transforms/batch.py, kinds/batching.py: to batch a value is to compute it for n cases at once. Every node that depends on the case is
# replaced by one whose arrays have an axis of n in front. What does not depend on the case is used as it is.


def batch(output: Value, mapped: Mapping[Value, Value], n: int) -> Value:
    """Return the output for all cases. `mapped` says for some values what they are in all cases."""
    found = dict(mapped)
    for node in extract([output], mapped.__contains__):
        if any(value in found for value in node.inputs):
            found[node.out] = node.op.batch(node, [found.get(value, value) for value in node.inputs], n)
    return found[output]


# api/tape/tape.py, api/tape/jacobian.py: a tape is a tag. `watch` puts it on a value; all that is computed from this value carries it,
# and everything else is constant. A Jacobian is a batched gradient: the reverse sweep is recorded once, with a placeholder as the
# cotangent, and is batched over the rows of an identity matrix. TensorFlow calls this pfor.


class GradientTape(TraceTag):
    """Follows what is computed from the arrays that it watches. A gradient is that of the sum of the target."""

    def __enter__(self) -> GradientTape:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.recording = False

    def watch(self, array: Array) -> None:
        array.value.tags |= {self}

    def gradient(self, target: Array, source: Array) -> Array:
        ones = broadcast_to(as_value(1.0), target.shape)
        return Array(*vjp(target.value, [source.value], ones, lambda value: self not in value.tags))

    def jacobian(self, target: Array, source: Array) -> Array:
        seed, (n,) = Value(target.value.aval), target.shape
        (row,) = vjp(target.value, [source.value], seed, lambda value: self not in value.tags)
        return Array(batch(row, {seed: as_value(np.eye(n))}, n))


m, x = np.array([[1.0, 0.5], [3.0, 0.2], [5.0, 0.1]]), Array([0.0, 4.0])
with GradientTape() as tape:
    tape.watch(x)
    slope = tape.gradient(np.sum(np.where(x > 0, np.sqrt(x), 0.0) * x), x)
    rows = tape.jacobian(np.exp(m @ x), x)
assert np.allclose(force(slope.value), [0.0, 3.0])
assert np.allclose(force(tape.gradient(slope, x).value), [0.0, 0.375])  # the second derivative
assert np.allclose(force(rows.value), np.exp(m @ [0.0, 4.0])[:, None] * m)


def loss(w: Any, x: Any, y: Any) -> Any:
    """Logistic regression with labels -1 and 1. It is NumPy code, and the example of all sections that follow."""
    return np.sum(np.log1p(np.exp(-y * (x @ w)))) + 0.5 * np.sum(w * w)


def loss_and_slope(w: Array, x: Array, y: Array) -> tuple[Array, Array]:
    with GradientTape() as tape:
        tape.watch(w)
        value = loss(w, x, y)
    return value, tape.gradient(value, w)


# %% 5. Passes: passes/pipeline.py, passes/rewrite.py, passes/simplify/
#
# A pass makes a simpler graph that computes the same. It is a rule that says for one node what its output becomes; `rewrite` applies
# the rule to all nodes. The pipeline is a tuple of passes. Unused nodes need no pass: a `Graph` has only what its results need.


def rewrite(graph: Graph, rule: Callable[..., Value]) -> Graph:
    """Return the graph in which the output of each node is what the rule makes of the node and its new inputs."""
    becomes, found = {}, {}
    for node in graph.nodes:
        becomes[node.out] = rule(node, [becomes.get(value, value) for value in node.inputs], found)
    outputs = [becomes.get(value, value) for value in graph.outputs]
    guards = [(becomes.get(value, value), seen) for value, seen in graph.guards]
    verify(changed := Graph(graph.inputs, outputs, guards), rule.__name__)
    return changed


def fold_constants(node: Node, inputs: list[Value], found: dict[Any, Value]) -> Value:
    """Constant folding: compute what depends on numbers alone, and leave out factors of one."""
    numbers = {x: x.node.inputs[0] if x.node and x.node.op is expand else x for x in inputs}
    inputs = [numbers[x] if isinstance(numbers[x], Literal) else x for x in inputs]  # repeated or not
    if isinstance(node.op, IndexMap) or node.op.dtype == "bool":
        return emit(node.op, inputs, **node.params)
    if all(isinstance(x, Literal) for x in inputs):
        return broadcast_to(as_value(node.op.evaluate([x.data for x in inputs], {})), node.out.shape)
    others = [x for x in inputs if not (isinstance(x, Literal) and x.data == 1.0)]
    return others[0] if node.op is multiply and len(others) == 1 else emit(node.op, inputs)


def eliminate_common_subexpressions(node: Node, inputs: list[Value], found: dict[Any, Value]) -> Value:
    """Common subexpression elimination: what was computed before is not computed again."""
    key = node.op, *[str(x.data) if isinstance(x, Literal) else x for x in inputs], str(node.params)
    return found.setdefault(key, emit(node.op, inputs, **node.params))


def optimise(graph: Graph) -> Graph:
    return functools.reduce(rewrite, PASSES, graph)


PASSES = (fold_constants, eliminate_common_subexpressions)
example = optimise(trace(loss_and_slope, [np.ones(3), np.ones((4, 3)), np.ones(4)]))
print(print_graph(example))

# %% 6. Loops: loops/ir.py, loops/affine.py, loops/printer.py, lower/schedule/, lower/building/
#
# A loop nest runs statements for every combination of its loop variables i0, i1, ... There are three statements. They work on numbers,
# which have names, and on buffers: flat arrays, which begin as zeros. A position in a buffer is an `Affine` expression: a sum of loop
# variables with integer factors. The `source` of an index map computes with them as it does with integers.
#
# Few values need a buffer: results, sums, and calls of the C library that are used twice. Each of these gets a loop nest. The other
# values are never stored. A loop that needs an element of such a value computes it on the spot: `element` goes back, from node to node,
# until it comes to numbers and buffers. This is called fusion: arrays need not go through memory. Real: nests share their loops as well.

Load = namedtuple("Load", "target buffer index")  # target = buffer[index]
Compute = namedtuple("Compute", "target op args")  # target = op(*args)
Store = namedtuple("Store", "buffer index value adds")  # buffer[index] = value, or += value
LoopNest = namedtuple("LoopNest", "extents body")  # for i0 in range(extents[0]): for i1 in ...: body


@dataclass(frozen=True)
class Affine:
    """A position: ``offset + sum(factor * variable)``."""

    terms: tuple[tuple[str, int], ...] = ()
    offset: int = 0

    def __add__(self, other: Any) -> Affine:
        other = other if isinstance(other, Affine) else Affine((), other)
        return Affine(self.terms + other.terms, self.offset + other.offset)

    def __mul__(self, factor: int) -> Affine:
        return Affine(tuple((name, factor * old) for name, old in self.terms), factor * self.offset)

    def __sub__(self, other: Any) -> Affine:
        return self + other * -1

    __radd__, __rmul__ = __add__, __mul__

    def __str__(self) -> str:
        terms = [name if factor == 1 else f"{factor}*{name}" for name, factor in self.terms]
        return " + ".join(terms + [str(self.offset)] * (self.offset != 0 or not terms))


def flat(index: tuple[Any, ...], shape: Shape) -> Affine:
    """Return the position in a flat buffer of an index into a shape."""
    return sum([place * math.prod(shape[k + 1 :]) for k, place in enumerate(index)], Affine())


def print_loops(nest: LoopNest) -> str:
    """Return a loop nest as Python, which runs on flat NumPy arrays."""
    lines = [f"{'    ' * k}for i{k} in range({extent}):" for k, extent in enumerate(nest.extents)]
    for s in nest.body:
        if isinstance(s, Load):
            text = f"{s.target} = {s.buffer}[{s.index}]"
        elif isinstance(s, Compute):
            text = f"{s.target} = {s.op.name}({', '.join(map(str, s.args))})"
        else:
            text = f"{s.buffer}[{s.index}] {'+=' if s.adds else '='} {s.value}"
        lines.append("    " * len(nest.extents) + text)
    return "\n".join(lines)


class Builder:
    """The loop nests that compute the results of a graph, and the names of the buffers."""

    def __init__(self, graph: Graph) -> None:
        inputs = [*graph.inputs, *[value for value in graph.constants if not isinstance(value, Literal)]]
        self.buffers = {value: f"x{k}" for k, value in enumerate(inputs)}
        self.nests: list[LoopNest] = []
        uses = Counter(value for node in graph.nodes for value in node.inputs)
        for node in graph.nodes:
            is_kept = getattr(node.op, "is_expensive", False) and uses[node.out] > 1
            if is_kept or node.out in graph.results or isinstance(node.op, Accumulate):
                self.body, self.known = [], {}
                self.nests.append(self.nest(node, f"w{len(self.nests)}"))

    def nest(self, node: Node, out: str) -> LoopNest:
        """Return the loops that compute the output of a node into the buffer `out`."""
        adds = isinstance(node.op, Accumulate)
        extents = node.params["shape"] if adds else node.out.shape
        index = tuple(Affine(((f"i{level}", 1),)) for level in range(len(extents)))
        number = self.element(node.inputs[0], index) if adds else self.compute(node, index)
        place = node.op.source(index, **node.params) if adds else index
        self.buffers[node.out] = out  # from now on; above, `compute` was not to read it
        return LoopNest(extents, [*self.body, Store(out, flat(place, node.out.shape), number, adds)])

    def element(self, value: Value, index: tuple[Any, ...]) -> Any:
        """Return an element of a value: a number, or the name of one."""
        if isinstance(value, Literal):
            return float(value.data)
        if (value, index) not in self.known:
            if value in self.buffers:
                number = self.bind(Load, self.buffers[value], flat(index, value.shape))
            else:
                number = self.compute(value.node, index)
            self.known[value, index] = number
        return self.known[value, index]

    def compute(self, node: Node, index: tuple[Any, ...]) -> Any:
        if isinstance(node.op, IndexMap):
            return self.element(node.inputs[0], node.op.source(index, **node.params))
        return self.bind(Compute, node.op, [self.element(value, index) for value in node.inputs])

    def bind(self, kind: Any, *facts: Any) -> str:
        self.body.append(kind(f"t{len(self.body)}", *facts))
        return self.body[-1].target


loops = Builder(example)
print(source := "\n".join(map(print_loops, loops.nests)))
memory = {name: np.full(math.prod(x.shape), float(x in example.inputs)) for x, name in loops.buffers.items()}
exec(source, {row.name: row.function for row in PRIMITIVES.values()}, memory)
assert np.isclose(memory[loops.buffers[example.outputs[0]]], loss(np.ones(3), np.ones((4, 3)), np.ones(4)))

# %% 7. Machine code: lower/llvm/module.py, lower/llvm/statements.py, runtime/compile/engine.py, runtime/compile/program.py
#
# LLVM is a compiler that reads a language between C and machine code. An instruction makes one number, such as %v3, out of others, and
# `getelementptr` an address. A loop is a label and a jump back to it. `phi` is the loop variable: 0 at first, and then the next number.
#
# Each nest becomes a function. `noalias` says that no buffer overlaps another. So LLVM may move what does not change out of a loop, and
# compute several elements with one instruction. The additions of a sum are marked `reassoc`: LLVM may change their order, as it must to
# add several at once. Real: `exp` and others are also computed for several elements at once, and nests run on several threads.


def emit_nest(nest: LoopNest) -> list[str]:
    """Return the instructions of a loop nest. Loop k begins at the label head.k, and after it comes the label end.k."""
    lines, depth = [], len(nest.extents)

    def bind(text: str) -> str:
        lines.append(f"%v{len(lines)} = {text}")
        return f"%v{len(lines) - 1}"

    def number(x: Any) -> str:
        return f"%{x}" if isinstance(x, str) else f"0x{struct.pack('>d', x).hex()}"

    def pointer(s: Load | Store) -> str:
        position = str(s.index.offset)
        for var, factor in s.index.terms:
            position = bind(f"add i64 {position}, {bind(f'mul i64 %{var}, {factor}')}")
        return bind(f"getelementptr inbounds double, ptr %{s.buffer}, i64 {position}")

    for k in range(depth):
        first = f"head.{k - 1}" if k > 0 else "entry"
        last = f"end.{k + 1}" if k + 1 < depth else f"head.{k}"
        lines += [f"br label %head.{k}", f"head.{k}:"]
        lines += [f"%i{k} = phi i64 [ 0, %{first} ], [ %next.{k}, %{last} ]"]
    for s in nest.body:
        if isinstance(s, Load):
            lines += [f"%{s.target} = load double, ptr {pointer(s)}"]
        elif isinstance(s, Compute):
            lines += [f"%{s.target} = {s.op.body.format(*map(number, s.args))}"]
        else:
            value, place = number(s.value), pointer(s)
            if s.adds:
                value = bind(f"fadd reassoc contract double {bind(f'load double, ptr {place}')}, {value}")
            lines += [f"store double {value}, ptr {place}"]
    for k in reversed(range(depth)):
        lines += [f"%next.{k} = add i64 %i{k}, 1", f"%more.{k} = icmp slt i64 %next.{k}, {nest.extents[k]}"]
        lines += [f"br i1 %more.{k}, label %head.{k}, label %end.{k}", f"end.{k}:"]
    return lines


def emit_module(loops: Builder) -> str:
    """Return the text of a module with a function for each nest, and with `kernel`, which calls them in order."""
    parameters = ", ".join([f"ptr noalias %{buffer}" for buffer in loops.buffers.values()])
    bodies = [row.body for row in PRIMITIVES.values() if row.is_expensive]
    lines, calls = [body.replace("call", "declare").replace(" {}", "") for body in bodies], []
    for k, nest in enumerate(loops.nests):
        lines += [f"define internal void @nest{k}({parameters}) noinline {{", "entry:"]
        lines += [*(emit_nest(nest) if all(nest.extents) else ()), "ret void", "}"]
        calls += [f"call void @nest{k}({parameters})"]
    return "\n".join([*lines, f"define void @kernel({parameters}) {{", *calls, "ret void", "}"])


def compile_object(text: str) -> tuple[Any, bytes]:
    """Return a description of this machine, and the machine code of a module, optimised for it."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    host = {"cpu": llvm.get_host_cpu_name(), "features": llvm.get_host_cpu_features().flatten()}
    machine = llvm.Target.from_default_triple().create_target_machine(**host, opt=3, reloc="pic")
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
    builder.getModulePassManager().run(module := llvm.parse_assembly(text), builder)
    return machine, machine.emit_object(module)


class Program:
    """A graph, and the kernel that computes it."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.loops = graph, Builder(graph)
        machine, code = compile_object(emit_module(self.loops))
        library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process().export_symbol("kernel")
        self.loaded = library.link(llvm.create_lljit_compiler(machine), "program")
        self.kernel = CFUNCTYPE(None, *[c_void_p] * len(self.loops.buffers))(self.loaded["kernel"])

    def __call__(self, *arrays: Any) -> list[Any] | None:
        """Return the outputs, or None where a guard does not hold."""
        memory = {value: np.zeros(value.shape) if value.node else value.data for value in self.loops.buffers}
        memory |= dict(zip(self.graph.inputs, arrays, strict=True))
        self.kernel(*[array.ctypes.data for array in memory.values()])
        if any(memory[value] != seen for value, seen in self.graph.guards):
            return None
        return [np.array(memory.get(value, value.data)) for value in self.graph.outputs]


# %% 8. The call site: trace/jit/callsite.py, api/transforms/jit.py
#
# A jitted function keeps its programs, by the shapes of the arguments. There may be several for the same shapes, one for each way that
# the branches went. A call takes the first whose guards hold. If there is none, the function is traced and compiled once more.


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is traced and compiled when it must be, and runs as machine code."""
    programs: dict[Any, list[Program]] = {}

    def call(*args: Any) -> Any:
        arrays = [np.asarray(arg, float, order="C") for arg in args]
        known = programs.setdefault(tuple(array.shape for array in arrays), [])
        for program in known:
            if (results := program(*arrays)) is not None:
                return results
        known.append(Program(optimise(trace(function, arrays))))
        return call(*args)

    return call


capped = jit(lambda x: [x / np.sum(x) if np.sum(x) > 1 else x * 1.0])
for numbers in ([3.0, 1.0], [0.25, 0.25], [1.0, 1.0]):  # two traces: one for each branch
    assert np.allclose(capped(numbers), np.divide(numbers, max(sum(numbers), 1.0)))
random = np.random.default_rng(0)
w, x, y = random.normal(size=10), random.normal(size=(1000, 10)), random.choice([-1.0, 1.0], 1000)
train = jit(loss_and_slope)
value, slope = train(w, x, y)
assert np.isclose(value, loss(w, x, y))
for k, step in enumerate(1e-6 * np.eye(10)):
    assert np.isclose(slope[k], (loss(w + step, x, y) - loss(w - step, x, y)) / 2e-6)
for call in ("loss(w, x, y)", "train(w, x, y)"):  # the loss in NumPy; the loss and its gradient, compiled
    seconds = min(timeit.repeat(call, number=100, repeat=9, globals=globals())) / 100
    print(f"{call} takes {seconds * 1e6:.0f} microseconds")

# %% 9. Loops from code: frontend/translate.py, frontend/interpreter.py, frontend/loops/, frontend/operators.py
#
# To trace a loop is to run it, and each iteration leaves its nodes. There is a second front end for functions with long loops. It does not
# run the function but reads its code, and makes a `Procedure`: a program of loops and statements that write to memory. What is computed
# between the statements is a graph of numbers, so that rows and derivatives are those of sections 2 and 4. The statements are `Load` and
# `Store` of section 6 and three more (procedures/ir.py). Real: `If` and `While` too; trip counts and indices may depend on data.
#
# The code is interpreted with abstract values. A name holds a number or an index that is known, a value that depends on data, or an array.
# A loop is interpreted until nothing changes any more: at first each name keeps its value; if the body assigns another one, the name is
# a `Scalar` in a variable, and the body is interpreted again. This is a fixpoint of abstract interpretation (Cousot and Cousot, 1977). A
# variable is an array of one element here. Real: bytecode is read, and its jumps become loops and branches.

For = namedtuple("For", "index count body backwards")
Push = namedtuple("Push", "values")  # append numbers to the tape, for the reverse sweep
Pop = namedtuple("Pop", "outs")  # take them off: the last one first
Memory = namedtuple("Memory", "name shape")
Scalar = namedtuple("Scalar", "name")
BINARY = {ast.Add: (operator.add, add), ast.Sub: (operator.sub, subtract)}
BINARY |= {ast.Mult: (operator.mul, multiply), ast.Div: (operator.truediv, divide)}


@dataclass
class Procedure:
    """A program that works on flat arrays: its parameters, which are arrays, then others that begin as zeros."""

    name: str
    parameters: list[str]
    sizes: dict[str, int]
    body: list[Any]
    results: list[str]


class Interpreter:
    """Interprets the code of a function with abstract values, and appends the statements of its procedure."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names, self.body, self.depth = names, [], 0
        self.sizes = {name: math.prod(memory.shape) for name, memory in names.items()} | {"result": 1}

    def value(self, code: Any) -> Any:
        """Return what an expression is."""
        if isinstance(code, ast.Constant):
            return code.value
        if isinstance(code, ast.Name):
            held = self.names[code.id]
            return self.load(code.id, Affine()) if isinstance(held, Scalar) else held
        if isinstance(code, ast.Subscript):
            return self.load(*self.element(code))
        if isinstance(code, ast.UnaryOp):
            return negative(self.value(code.operand))
        if isinstance(code, ast.Call):
            operands, name = [self.value(x) for x in code.args], ast.unparse(code.func).removeprefix("np.")
            return operands[0].shape[0] if name == "len" else PRIMITIVES[name](*operands)
        left, right = self.value(code.left), self.value(code.right)
        return BINARY[type(code.op)][isinstance(left, Value) or isinstance(right, Value)](left, right)

    def load(self, name: str, index: Affine) -> Value:
        self.body.append(Load(Value(Aval(())), name, index))
        return self.body[-1].target

    def element(self, code: Any) -> tuple[str, Affine]:
        memory, keys = self.value(code.value), getattr(code.slice, "elts", [code.slice])
        return memory.name, flat(tuple(self.value(key) for key in keys), memory.shape)

    def run(self, code: Any) -> None:
        """Interpret a statement."""
        if isinstance(code, ast.For):
            for_loop(self, code)
        elif isinstance(code, ast.Return):
            self.body.append(Store("result", Affine(), as_value(self.value(code.value)), False))
        elif isinstance(code, ast.AugAssign):
            self.assign(code.target, self.value(ast.BinOp(code.target, code.op, code.value)))
        else:
            self.assign(code.targets[0], self.value(code.value))

    def assign(self, target: Any, value: Any) -> None:
        if isinstance(target, ast.Subscript):
            self.body.append(Store(*self.element(target), as_value(value), False))
        elif isinstance(self.names.get(target.id), Scalar):
            self.body.append(Store(target.id, Affine(), as_value(value), False))
        else:
            self.names[target.id] = value


def for_loop(self: Interpreter, code: ast.For) -> None:
    """Interpret a loop over a range, until it is settled which names change in it. No value is read outside its block."""
    before, outer, count = self.names, self.body, self.value(code.iter.args[0])
    held = {name for name, x in before.items() if isinstance(x, Value)}
    index, self.depth = f"i{self.depth}", self.depth + 1
    while True:
        self.names, self.body = before | {name: Scalar(name) for name in held}, []
        entered = dict(self.names)
        self.names[code.target.id] = Affine(((index, 1),))
        for line in code.body:
            self.run(line)
        changed = {name for name in entered if self.names[name] is not entered[name]}
        if not changed - {code.target.id}:
            break
        held |= changed
    outer += [Store(name, Affine(), as_value(before[name]), False) for name in sorted(held)]
    self.sizes |= dict.fromkeys(held, 1)
    outer.append(For(index, count, self.body, False))
    self.names, self.body, self.depth = before | {name: Scalar(name) for name in held}, outer, self.depth - 1


def translate(function: Callable[..., Any], shapes: Sequence[Shape]) -> Procedure:
    """Return the procedure of a function of arrays of these shapes."""
    code: Any = ast.parse(inspect.getsource(function)).body[0]
    parameters = [argument.arg for argument in code.args.args]
    interpreter = Interpreter(dict(zip(parameters, map(Memory, parameters, shapes), strict=True)))
    for line in code.body:
        interpreter.run(line)
    return Procedure(code.name, parameters, interpreter.sizes, interpreter.body, ["result"])


# statements.py, procedures/printer.py, procedures/interpret.py: a procedure prints as Python, and this is how it is interpreted.


def walk(body: list[Any]) -> Iterable[Any]:
    """Yield statements and those inside them."""
    for s in body:
        yield s
        yield from walk(s.body) if isinstance(s, For) else ()


def print_procedure(procedure: Procedure) -> str:
    """Return a procedure as Python."""
    names: dict[Value, str] = {}

    def text(x: Any) -> str:
        if isinstance(x, Literal):
            return str(float(x.data))
        if x.node is not None:
            return f"{x.node.op.name}({', '.join(map(text, x.node.inputs))})"
        return names.setdefault(x, f"t{len(names)}")

    def block(body: list[Any], tab: str) -> Iterable[str]:
        for s in body:
            if isinstance(s, For):
                yield f"{tab}for {s.index} in {f'reversed(range({s.count}))' if s.backwards else f'range({s.count})'}:"
                yield from block(s.body, f"{tab}    ")
            elif isinstance(s, Load):
                yield f"{tab}{text(s.target)} = {s.buffer}[{s.index}]"
            elif isinstance(s, Store):
                yield f"{tab}{s.buffer}[{s.index}] {'+=' if s.adds else '='} {text(s.value)}"
            elif isinstance(s, Push):
                yield from [f"{tab}tape.append({text(x)})" for x in s.values]
            else:
                yield from [f"{tab}{text(x)} = tape.pop()" for x in reversed(s.outs)]

    others = [name for name in procedure.sizes if name not in procedure.parameters]
    lines = [f"def {procedure.name}({', '.join(procedure.parameters)}):", "    tape = []"]
    lines += [f"    {name} = zeros({procedure.sizes[name]})" for name in others]
    lines += block(procedure.body, "    ")
    return "\n".join([*lines, f"    return {', '.join(procedure.results)}"])


def run_procedure(procedure: Procedure, arrays: Sequence[Any]) -> Any:
    """Return the results for copies of arrays."""
    names: dict[str, Any] = {row.name: row.function for row in PRIMITIVES.values()} | {"zeros": np.zeros}
    exec(print_procedure(procedure), names)
    return names[procedure.name](*[np.array(array, float).ravel() for array in arrays])


# transforms/procedures/vjp.py, transforms/procedures/adjoint.py, transforms/procedures/residuals.py: the reverse sweep walks the
# statements backwards. Each array x has a shadow x_b with its cotangents. The reverse of a load adds to the shadow, the reverse of a store
# takes the cotangent from there and leaves 0, and in between `vjp` of section 4 pulls it back through the numbers.
#
# A derivative needs values that were loaded in the forward sweep, when the memory had other contents. There are three ways to a value.
# Recompute it from what was loaded. Record it: it is pushed on a tape, and popped in the reverse sweep. Restore the memory: record what a
# store overwrites, write it back in the reverse of the store, and load again. For each array the cheaper of the last two is chosen: loads
# or stores may be in fewer loops. What no derivative needs is not recorded (this is "to be recorded" analysis, as in Tapenade). Real: a
# minimum cut decides between recording the result of an expensive function and recording its operands.


def adjoint(body: list[Any]) -> list[list[Any]]:
    """Return the reverse of each statement of a block. That of a loop has the reverses of its body in place of statements."""
    cotangents: dict[Value, Value] = {}
    steps: list[list[Any]] = [[] for _ in body]
    for s, step in reversed(list(zip(body, steps, strict=True))):
        if isinstance(s, For):
            step.append(For(s.index, s.count, adjoint(s.body), True))
        elif isinstance(s, Load):
            if s.target in cotangents:
                step.append(Store(f"{s.buffer}_b", s.index, cotangents[s.target], True))
        else:
            step.append(ct := Load(Value(Aval(())), f"{s.buffer}_b", s.index))
            step.append(Store(*ct[1:], as_value(0.0), False))
            sources = leaves(s.value)
            parts = vjp(s.value, sources, ct.target, lambda x: False) if sources else []
            for x, part in zip(sources, parts, strict=True):
                cotangents[x] = cotangents[x] + part if x in cotangents else part
    return steps


def leaves(value: Value) -> list[Value]:
    """Return what was loaded for a value."""
    made = [value, *[x for node in extract([value], lambda x: False) for x in node.inputs]]
    return [x for x in dict.fromkeys(made) if x.node is None and not isinstance(x, Literal)]


class Planner:
    """What is recorded, restored and loaded again. An access is (buffer, runs of its block, block, position, where it is needed first)."""

    def __init__(self, body: list[Any], steps: list[list[Any]]) -> None:
        self.loads: dict[Value, Any] = {}
        self.stores: list[tuple[str, int]] = []
        self.find(body, steps, 1)
        self.restored = {buffer for buffer, *_ in self.loads.values() if self.is_restored(buffer)}
        stored = {buffer for buffer, _ in self.stores}
        self.recorded = {x for x, (name, *_) in self.loads.items() if name in stored - self.restored}

    def find(self, body: list[Any], steps: list[list[Any]], runs: int) -> None:
        """Enter the stores of a block, and the loads whose values its reverse needs, with the position where they are needed first."""
        places = {s.target: place for place, s in enumerate(body) if isinstance(s, Load)}
        for place, step in reversed(list(enumerate(steps))):
            needed = {x for s in step if isinstance(s, Store) for x in leaves(s.value)}
            for x in filter(needed.__contains__, places):
                when = max(place, places[x])
                self.loads.setdefault(x, (body[places[x]].buffer, runs, body, places[x], when))
            if isinstance(body[place], For):
                self.find(body[place].body, step[0].body, runs * body[place].count)
            elif isinstance(body[place], Store):
                self.stores.append((body[place].buffer, runs))

    def is_restored(self, buffer: str) -> bool:
        """Return whether stores are fewer than loads, and nothing is stored between a load and where it is needed in its block."""
        loads = [load for load in self.loads.values() if load[0] == buffer]
        stores = [runs for name, runs in self.stores if name == buffer]
        between = [s for *_, body, place, when in loads for s in walk(body[place:when])]
        is_cheaper = sum(stores) < sum([load[1] for load in loads])
        return is_cheaper and not any(isinstance(s, Store) and s.buffer == buffer for s in between)


def vjp_procedure(procedure: Procedure) -> Procedure:
    """Return the procedure of the result and of its cotangents for the parameters."""
    steps = adjoint(procedure.body)
    plan = Planner(procedure.body, steps)

    def sweeps(body: list[Any], steps: list[list[Any]]) -> tuple[list[Any], list[Any]]:
        """Return the forward sweep and the reverse sweep of a block."""
        forward, backward = list[Any](), list[Any]()
        record = [s.target for s in body if isinstance(s, Load) and s.target in plan.recorded]
        again = {x: load for x, load in plan.loads.items() if load[2] is body and x not in plan.recorded}
        for place, (s, step) in enumerate(zip(body, steps, strict=True)):
            loads = [body[first] for *_, first, when in again.values() if when == place]
            if isinstance(s, For):
                inner, reverse = sweeps(s.body, step[0].body)
                s, step = s._replace(body=inner), [step[0]._replace(body=reverse)]
            elif isinstance(s, Store) and s.buffer in plan.restored:
                forward.append(old := Load(Value(Aval(())), s.buffer, s.index))
                record.append(old.target)
                loads.insert(0, Store(s.buffer, s.index, old.target, False))
            forward.append(s)
            backward = [*loads, *step, *backward]
        return [*forward, Push(record)], [Pop(record), *backward]

    forward, backward = sweeps(procedure.body, steps)
    seed = Store("result_b", Affine(), as_value(1.0), False)
    sizes = procedure.sizes | {f"{name}_b": size for name, size in procedure.sizes.items()}
    results = ["result", *[f"{name}_b" for name in procedure.parameters]]
    return Procedure(procedure.name, procedure.parameters, sizes, [*forward, seed, *backward], results)


# passes/procedures/pipeline.py, lower/procedures/emit.py: all numbers that a procedure stores are one graph, and go through the passes of
# section 5. Real: loops are fused, exchanged and divided too. Then the procedure is written as LLVM IR, much as in section 7: one statement
# after the other, with variables in memory that LLVM turns into registers, and a tape that grows.


def simplify_scalars(procedure: Procedure) -> Procedure:
    """Return the procedure after the passes over its numbers."""
    values = dict.fromkeys([s.value for s in walk(procedure.body) if isinstance(s, Store)])
    inputs = dict.fromkeys([x for value in values for x in leaves(value)])
    becomes = dict(zip(values, optimise(Graph([*inputs], [*values])).outputs, strict=True))

    def copied(s: Any) -> Any:
        if isinstance(s, For):
            return s._replace(body=[*map(copied, s.body)])
        return s._replace(value=becomes[s.value]) if isinstance(s, Store) else s

    return replace(procedure, body=[*map(copied, procedure.body)])


def settle(w: Any, x: Any) -> Any:
    for _ in range(10):  # the neurons x of a network are updated one by one, and in place
        for i in range(len(x)):
            s = 0.0
            for j in range(len(x)):
                s += w[i, j] * x[j]
            x[i] = 1.0 / (1.0 + np.exp(-s))
    return x[0]


w, x = random.normal(size=(5, 5)), random.uniform(size=5)
primal = translate(settle, [w.shape, x.shape])
reverse = simplify_scalars(vjp_procedure(primal))
print(print_procedure(primal))
print(print_procedure(reverse))
assert np.isclose(*run_procedure(primal, [w, x]), settle(w, x.copy()))
value, slope, _ = run_procedure(reverse, [w, x])
for k, step in enumerate(1e-6 * np.eye(25).reshape(25, 5, 5)):
    assert np.isclose(slope[k], (settle(w + step, x.copy()) - settle(w - step, x.copy())) / 2e-6)
