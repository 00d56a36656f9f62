"""Identities that hold for every IEEE number, infinities and NaN included, and cheaper ways to say the
same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from gradtape.ir.graph import Graph, Literal, Node, Value, literal, number_of
from gradtape.ir.primitives import PRIMITIVES
from gradtape.kinds.index_map import repeated_number
from gradtape.kinds.registry import ROWS
from gradtape.ops.core.elementwise.arithmetic import add, divide, multiply, subtract
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.shape import expand, reshape
from gradtape.passes.rewrite import rewrite


def simplify(graph: Graph) -> Graph:
    """Return the graph with cheaper equivalents of single nodes."""
    return rewrite(graph, _simplify)


def _simplify(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    rule = RULES.get(node.op.name)
    if rule is None:
        return None
    result = rule(node, inputs)
    if result is None or result.dtype != node.out.dtype:
        return None
    if (isinstance(result, Literal) and node.out.shape != ()) or result.shape != node.out.shape:
        return None
    return (result,)


def row(name: str) -> Callable[..., Value]:
    """Return the row of this name."""
    found: Any = ROWS[name]
    return cast(Callable[..., Value], found)


def made_by(value: Value, name: str) -> Node | None:
    """Return the node that makes a value if it applies the row of this name."""
    node = value.node
    return node if node is not None and node.op.name == name else None


def is_zero(value: Value, negative: bool) -> bool:
    """Return whether a value is known to be zero everywhere, with this sign (integers have none)."""
    number = repeated_number(value)
    if number is None or number.data is None or number.data.any():
        return False
    return number.dtype.kind in "iub" or (
        number.dtype.kind == "f" and bool(np.signbit(number.data)) is negative
    )


def _add(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    x, y = inputs
    if is_zero(y, negative=True):
        return x
    if is_zero(x, negative=True):
        return y
    negated = made_by(y, "negative")
    if negated is not None:
        return subtract(x, negated.inputs[0])
    negated = made_by(x, "negative")
    if negated is not None:
        return subtract(y, negated.inputs[0])
    return _merged_choices(x, y)


def _merged_choices(x: Value, y: Value) -> Value | None:
    """``where(c, a, 0) + where(c, 0, b)`` is ``where(c, a, b)``."""
    first, second = made_by(x, "where"), made_by(y, "where")
    if first is None or second is None or first.inputs[0] is not second.inputs[0]:
        return None
    (c, a, b), (_, d, e) = first.inputs, second.inputs
    if is_zero(b, negative=False) and is_zero(d, negative=False):
        return where(c, a, e)
    if is_zero(a, negative=False) and is_zero(e, negative=False):
        return where(c, d, b)
    return None


def _subtract(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    x, y = inputs
    if is_zero(y, negative=False):
        return x
    negated = made_by(y, "negative")
    return None if negated is None else add(x, negated.inputs[0])


def _multiply(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    x, y = inputs
    for number, other in ((number_of(y), x), (number_of(x), y)):
        if number == 1 and not isinstance(number, bool):
            return other
        if number == -1 and other.dtype.kind == "f":
            return PRIMITIVES["negative"](other)
    return None


def _divide(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    x, y = inputs
    number = number_of(y)
    if number == 1:
        return x
    if isinstance(number, float) and number != 0 and np.isfinite(number):
        mantissa, exponent = np.frexp(number)
        if abs(mantissa) == 0.5 and abs(exponent) < 100:
            return multiply(x, literal(1.0 / number, y.dtype))
    return None


def _negative(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    (x,) = inputs
    inner = made_by(x, "negative")
    if inner is not None:
        return inner.inputs[0]
    return None


def _power(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """Small whole exponents are products; NumPy's own fast path covers -1, 0.5, 1 and 2."""
    x, y = inputs
    number = number_of(y)
    if x.dtype.kind != "f" or number is None:
        return None
    if number == 1:
        return x
    if number == 2:
        return multiply(x, x)
    if number == 3:
        return multiply(multiply(x, x), x)
    if number == 4:
        square = multiply(x, x)
        return multiply(square, square)
    if number == -1:
        return divide(literal(1, x.dtype), x)
    if number == 0.5:
        return row("sqrt")(x)
    return None


def _where(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    c, a, b = inputs
    if a is b:
        return a
    known = repeated_number(c)
    if known is not None and known.data is not None:
        return a if known.data else b
    inverted = made_by(c, "invert")
    if inverted is not None:
        return where(inverted.inputs[0], b, a)
    for branch, position in ((a, 1), (b, 2)):
        inner = made_by(branch, "where")
        if inner is not None and inner.inputs[0] is c:
            return where(c, inner.inputs[1], b) if position == 1 else where(c, a, inner.inputs[2])
    return None


def _idempotent(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    return inputs[0] if inputs[0] is inputs[1] else None


def _invert(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    inner = made_by(inputs[0], "invert")
    return None if inner is None else inner.inputs[0]


def _convert(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    return inputs[0] if inputs[0].dtype == node.out.dtype else None


def _permute(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    (x,) = inputs
    axes: tuple[int, ...] = node.params["axes"]
    inner = made_by(x, "permute")
    if inner is not None:
        axes = tuple(inner.params["axes"][axis] for axis in axes)
        x = inner.inputs[0]
    elif axes != tuple(range(len(axes))):
        return None
    return x if axes == tuple(range(len(axes))) else row("permute")(x, axes=axes)


def _reshape(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    (x,) = inputs
    shape = node.params["shape"]
    if x.shape == shape and not isinstance(x, Literal):
        return x
    inner = made_by(x, "reshape")
    return None if inner is None else reshape(inner.inputs[0], shape)


def _expand(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    (x,) = inputs
    axes: tuple[int, ...] = node.params["axes"]
    inner = made_by(x, "expand")
    if inner is not None:
        composed = tuple(axes[axis] for axis in inner.params["axes"])
        return expand(inner.inputs[0], node.out.shape, composed)
    return x if x.shape == node.out.shape and not isinstance(x, Literal) else None


def _slice(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """A slice of a slice is a slice."""
    inner = made_by(inputs[0], "slice")
    return None if inner is None else row("slice")(inner.inputs[0], **_composed(node, inner, inner))


def _pad(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """What is put into zeros, and that into zeros, is put there at once."""
    inner = made_by(inputs[0], "pad")
    return None if inner is None else row("pad")(inner.inputs[0], **_composed(node, inner, node))


def _composed(outer: Node, inner: Node, scaling: Node) -> dict[str, tuple[int, ...]]:
    """Return the parameters of a map that takes two steps at once; `scaling` is the step whose strides scale the other's places."""
    other = inner if scaling is outer else outer
    starts, strides = scaling.params["starts"], scaling.params["strides"]
    moved = zip(starts, strides, other.params["starts"], strict=True)
    scaled = zip(strides, other.params["strides"], strict=True)
    return {
        "shape": outer.params["shape"],
        "starts": tuple(start + stride * further for start, stride, further in moved),
        "strides": tuple(stride * further for stride, further in scaled),
    }


def _join(node: Node, inputs: tuple[Value, ...]) -> Value | None:
    """Slices laid end to end in the order in which they were cut are what they were cut from."""
    axis: int = node.params["axis"]
    whole: Value | None = None
    reached = 0
    for piece in inputs:
        cut = made_by(piece, "slice")
        if cut is None or (whole is not None and cut.inputs[0] is not whole):
            return None
        whole = cut.inputs[0]
        starts = tuple(reached if k == axis else 0 for k in range(piece.ndim))
        if cut.params["starts"] != starts or any(stride != 1 for stride in cut.params["strides"]):
            return None
        reached += piece.shape[axis]
    return whole


RULES: dict[str, Any] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "negative": _negative,
    "power": _power,
    "where": _where,
    "bitwise_and": _idempotent,
    "bitwise_or": _idempotent,
    "invert": _invert,
    "convert": _convert,
    "permute": _permute,
    "reshape": _reshape,
    "expand": _expand,
    "slice": _slice,
    "pad": _pad,
    "join": _join,
}
"""By op, what makes it cheaper."""
