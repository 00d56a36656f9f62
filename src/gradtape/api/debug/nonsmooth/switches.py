"""Where ops switch from one formula to another: the two numbers whose difference changes its sign there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.ir.graph import Node, Value
from gradtape.ir.op import NDArray, Op
from gradtape.ir.types import is_inexact
from gradtape.kinds.registry import ROWS
from gradtape.ops.core.elementwise.select import where


@dataclass(frozen=True, eq=False)
class Margins:
    """The differences that decide what a node computes, one for each decision.

    Attributes
    ----------
    node : Node
    distances : ndarray
        The differences, flat; 0 at a switch.
    scales : ndarray
        The sizes of the numbers that are compared, flat, at least 1.
    terms_at : callable
        ``terms_at(k)``: the elements of operands that make one of the differences, with the factors by which it follows them.
    """

    node: Node
    distances: NDArray
    scales: NDArray
    terms_at: Callable[[int], list[Term]]

    def seeds(self, position: int) -> dict[Value, NDArray]:
        """Return the derivative of one of the differences with respect to the operands."""
        found: dict[Value, NDArray] = {}
        for value, place, factor in self.terms_at(position):
            found.setdefault(value, np.zeros(value.shape, value.dtype))[place] += factor
        return found


class Term(NamedTuple):
    """An element of an operand, and a factor."""

    value: Value
    place: tuple[int, ...]
    factor: float


Numbers = Callable[[Value], Any]
"""Returns the numbers of a value."""


def _term(value: Value, position: int, shape: tuple[int, ...], factor: float) -> Term:
    """Return the element of an operand that belongs to a flat position of the result."""
    index = tuple(map(int, np.unravel_index(position, shape)))[len(shape) - value.ndim :]
    return Term(value, tuple([0 if n == 1 else k for k, n in zip(index, value.shape, strict=True)]), factor)


def _spread(x: Any, shape: tuple[int, ...]) -> NDArray:
    """Return an operand in the shape of a result."""
    array = np.asarray(x)
    return array if array.shape == shape else np.broadcast_to(array, shape)


Rule = Callable[[Node, Numbers], Iterator[Margins]]
Border = Callable[[NDArray], Any]
"""The numbers that an operand is compared with, which are constant near it."""


def _pair(first: int, second: int) -> Rule:
    """Compare two operands of an elementwise node."""

    def margins(node: Node, numbers: Numbers) -> Iterator[Margins]:
        a, b = node.inputs[first], node.inputs[second]
        shape = node.outs[0].shape
        yield _compared(
            node,
            _spread(numbers(a), shape),
            _spread(numbers(b), shape),
            lambda k: [_term(a, k, shape, 1.0), _term(b, k, shape, -1.0)],
        )

    return margins


def _with_number(border: Border, operand: int = 0) -> Rule:
    """Compare an operand of an elementwise node with a number that changes by jumps only."""

    def margins(node: Node, numbers: Numbers) -> Iterator[Margins]:
        a, shape = node.inputs[operand], node.outs[0].shape
        x = _spread(numbers(a), shape)
        yield _compared(node, x, _spread(border(x), shape), lambda k: [_term(a, k, shape, 1.0)])

    return margins


def _quotients(node: Node, numbers: Numbers) -> Iterator[Margins]:
    """Compare the first operand of a remainder or of a whole quotient with the nearest multiple of the second."""
    a, b = node.inputs[:2]
    shape = node.outs[0].shape
    x, y = _spread(numbers(a), shape), _spread(numbers(b), shape)
    counts = np.rint(x / y)
    flat = counts.reshape(-1)
    yield _compared(
        node,
        x,
        counts * y,
        lambda k: [_term(a, k, shape, 1.0), _term(b, k, shape, -float(flat[k]))],
    )


def _compared(node: Node, a: NDArray, b: NDArray, terms_at: Callable[[int], list[Term]]) -> Margins:
    if a.dtype.kind == "c" or b.dtype.kind == "c":
        a, b = np.abs(a), np.abs(b)
    a, b = np.asarray(a, float).reshape(-1), np.asarray(b, float).reshape(-1)
    return Margins(node, a - b, np.maximum(1.0, np.maximum(np.abs(a), np.abs(b))), terms_at)


def _two_elements(x: Value, numbers: Numbers, node: Node, first: NDArray, second: NDArray) -> Margins:
    """Compare elements of one array, given by flat positions."""
    data = np.asarray(numbers(x), float).reshape(-1)

    def terms_at(k: int) -> list[Term]:
        return [_term(x, int(first[k]), x.shape, 1.0), _term(x, int(second[k]), x.shape, -1.0)]

    a, b = data[first], data[second]
    return Margins(node, a - b, np.maximum(1.0, np.maximum(np.abs(a), np.abs(b))), terms_at)


def _extremum(sign: int) -> Rule:
    """Compare the largest (or smallest) element of each reduced part with the next one."""

    def margins(node: Node, numbers: Numbers) -> Iterator[Margins]:
        x = node.inputs[0]
        axes = node.params["axes"]
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        positions = np.arange(x.size).reshape(x.shape).transpose(*kept, *axes)
        positions = positions.reshape(int(np.prod([x.shape[axis] for axis in kept], dtype=int)), -1)
        if positions.shape[1] < 2 or not positions.size:
            return
        data = sign * np.asarray(numbers(x), float).reshape(-1)[positions]
        two = np.argpartition(-data, 1, axis=1)[:, :2]
        chosen = np.take_along_axis(positions, two, 1)
        yield _two_elements(x, numbers, node, chosen[:, 0], chosen[:, 1])

    return margins


def _order(node: Node, numbers: Numbers) -> Iterator[Margins]:
    """Compare neighbours in sorted order, along the last axis."""
    x, order = node.inputs[0], np.asarray(numbers(node.outs[0]))
    positions = np.take_along_axis(np.arange(x.size).reshape(x.shape), order, -1)
    if x.shape[-1] > 1 and x.dtype.kind != "c":
        behind, before = positions[..., 1:].reshape(-1), positions[..., :-1].reshape(-1)
        yield _two_elements(x, numbers, node, behind, before)


def _search(node: Node, numbers: Numbers) -> Iterator[Margins]:
    """Compare numbers that are searched for with the nearest element of the sorted array."""
    a, v = node.inputs
    edges, searched = np.asarray(numbers(a), float), np.asarray(numbers(v), float).reshape(-1)
    if not len(edges) or v.dtype.kind == "c":
        return
    after = np.clip(np.searchsorted(edges, searched), 0, len(edges) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(np.abs(edges[before] - searched) < np.abs(edges[after] - searched), before, after)

    def terms_at(k: int) -> list[Term]:
        return [_term(v, k, v.shape, 1.0), _term(a, int(nearest[k]), a.shape, -1.0)]

    yield Margins(
        node,
        searched - edges[nearest],
        np.maximum(1.0, np.maximum(np.abs(searched), np.abs(edges[nearest]))),
        terms_at,
    )


def _running(sign: int) -> Rule:
    """Compare each element with the largest (or smallest) one before it."""

    def margins(node: Node, numbers: Numbers) -> Iterator[Margins]:
        x, axis = node.inputs[0], node.params["axis"]
        positions = np.moveaxis(np.arange(x.size).reshape(x.shape), axis, -1)
        if node.params["reverse"]:
            positions = positions[..., ::-1]
        data = sign * np.asarray(numbers(x), float).reshape(-1)[positions]
        if data.shape[-1] < 2:
            return
        best = np.maximum.accumulate(data, axis=-1)
        steps = np.arange(data.shape[-1])
        leaders = np.maximum.accumulate(np.where(data >= best, steps, 0), axis=-1)
        leading = np.take_along_axis(positions, leaders, -1)
        behind, before = positions[..., 1:].reshape(-1), leading[..., :-1].reshape(-1)
        yield _two_elements(x, numbers, node, behind, before)

    return margins


def _by_name(**rules: Rule) -> dict[Op, Rule]:
    return {ROWS[name]: rule for name, rule in rules.items()}


def _clip(node: Node, numbers: Numbers) -> Iterator[Margins]:
    for bound in range(1, len(node.inputs)):
        yield from _pair(0, bound)(node, numbers)


_AT_ZERO: Final = _with_number(lambda x: 0.0)
_WHOLE: Final = _with_number(lambda x: np.rint(x))
_HALF: Final = _with_number(lambda x: np.floor(x) + 0.5)

SWITCHES: Final = _by_name(
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin"), _pair(0, 1)),
    **dict.fromkeys(("absolute", "fabs", "sign", "signbit", "heaviside", "sqrt", "root", "cbrt"), _AT_ZERO),
    **dict.fromkeys(
        ("floor", "ceil", "trunc", "floor_real", "ceil_real", "trunc_real", "modf_fraction"), _WHOLE
    ),
    **dict.fromkeys(("rint", "round"), _HALF),
    **dict.fromkeys(("remainder", "fmod", "floor_divide"), _quotients),
    clip=_clip,
    copysign=_with_number(lambda x: 0.0, operand=1),
    hypot=_AT_ZERO,
    reduce_max=_extremum(1),
    reduce_min=_extremum(-1),
    argmax=_extremum(1),
    argmin=_extremum(-1),
    cummax=_running(1),
    cummin=_running(-1),
    argsort=_order,
    searchsorted=_search,
)
"""By row: the margins of a node whose operands have numbers."""

COMPARISONS: Final = _by_name(
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"), _pair(0, 1))
)
"""The same for comparisons: they count where their result selects something."""


def conditions(nodes: Sequence[Node]) -> list[Value]:
    """Return the conditions of selections among nodes."""
    return [node.inputs[0] for node in nodes if node.op is where]


def comparisons(found: Sequence[Value]) -> dict[Node, None]:
    """Return the comparisons of floats that decide conditions."""
    decisive: dict[Node, None] = {}
    ahead, seen = [value.node for value in found if value.node is not None], set[Node]()
    while ahead:
        node = ahead.pop()
        if node in seen:
            continue
        seen.add(node)
        if any(is_inexact(operand.dtype) for operand in node.inputs):
            if node.op in COMPARISONS:
                decisive[node] = None
        else:
            ahead += [operand.node for operand in node.inputs if operand.node is not None]
    return decisive


def margins_of(node: Node, numbers: Numbers) -> Iterator[Margins]:
    """Yield the margins of a node that switches; of others none.

    Parameters
    ----------
    node : Node
    numbers : callable
        Returns the numbers of its operands and results.
    """
    rule = SWITCHES.get(node.op) or COMPARISONS.get(node.op)
    if rule is not None:
        with np.errstate(all="ignore"):
            yield from rule(node, numbers)
