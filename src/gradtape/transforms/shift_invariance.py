"""Values that shift others and cancel: the maximum that a log-sum-exp takes out needs no derivative."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from gradtape.ir.graph import Literal, Node, Value, number_of
from gradtape.ir.types import carries_derivatives
from gradtape.kinds.contract import Contract
from gradtape.kinds.control import followed
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap

POWERS: Final = {"exp": "log", "exp2": "log2"}
"""Rows that make a factor of a shift, and the rows that undo them."""

VIEWS: Final = frozenset(("expand", "reshape", "permute"))

CHOSEN: Final = frozenset(("reduce_max", "reduce_min", "maximum", "minimum", "fmax", "fmin", "clip", "where"))
"""What users take out of an exponential without broadcasting it."""

TOGETHER: Final = frozenset(("maximum", "minimum", "fmax", "fmin"))
"""Rows that shift as their operands do where these shift alike, and are multiplied as these are."""

EXPONENTS: Final = {"sqrt": Fraction(1, 2), "square": Fraction(2), "reciprocal": Fraction(-1)}

Axes = tuple[int | None, ...]


class _Shift(NamedTuple):
    """What becomes of a value when the shift m becomes m + d.

    Attributes
    ----------
    undo : str
        Empty where the value becomes itself plus `degree` times d; else the row of the logarithm of which this holds.
    degree : int or Fraction
        Never 0: what does not change has no `_Shift`.
    axes : tuple
        For each axis of the value the axis of m to which it corresponds, None where d is the same all along it.
    """

    undo: str
    degree: int | Fraction
    axes: Axes


class _Unknown(Exception):
    """A node does something else with a shift than to add, or to multiply with its exponential."""


Shifts = Sequence[_Shift | None]


def cancelling_shifts(
    nodes: Sequence[Node], targets: Collection[Value], sources: Collection[Value]
) -> set[Value]:
    """Return values that the targets do not depend on, although they are computed with them.

    Parameters
    ----------
    nodes : sequence of Node
        All that the targets are computed with, in topological order.
    targets, sources : collection of Value
        From where, and to where derivatives are taken.

    Returns
    -------
    set of Value
        Their derivatives may be left out: all that comes by way of each of them adds up to zero.

    Notes
    -----
    The proof follows a candidate m through the nodes. Each value that is computed with it must be ``u + k m`` or ``u exp(k m)``, with a
    number k and something u that m is not in; where k comes to 0, m is gone. So ``m + log(sum(exp(x - m)))`` and ``e / sum(e)`` for
    ``e = exp(x - m)`` are found, their gradients as well, and nothing for which this is not an identity. What happens at infinities and
    NaN is what happens to the sums and quotients themselves.
    """
    if not any(node.op.name in POWERS for node in nodes):
        return set()
    active = depending_on(nodes, sources)
    candidates = _candidates(nodes, sources, active)
    if not candidates:
        return set()
    ends = set(targets)
    readers: dict[Value, list[int]] = {}
    for place, node in enumerate(nodes):
        for value in followed(node):
            if value in active:
                readers.setdefault(value, []).append(place)
    return {value for value in candidates if _cancels(value, nodes, readers, ends)}


def depending_on(
    nodes: Sequence[Node], sources: Collection[Value], constant: Collection[Value] = ()
) -> set[Value]:
    """Return the values with a differentiable path from a source that does not lead through what is constant."""
    active = set(sources)
    for node in nodes:
        if any(operand in active for operand in _differentiable(node)):
            active.update(out for out in node.outs if carries_derivatives(out.dtype) and out not in constant)
    return active


def _differentiable(node: Node) -> Sequence[Value]:
    """Return the inputs in which a node may have a derivative."""
    op = node.op
    if isinstance(op, Elementwise) and op.partials is not None and None in op.partials:
        return [operand for operand, rule in zip(node.inputs, op.partials, strict=True) if rule is not None]
    return followed(node)


def _candidates(
    nodes: Sequence[Node], sources: Collection[Value], active: Collection[Value]
) -> dict[Value, None]:
    found: dict[Value, None] = {}
    for node in nodes:
        if node.op.name not in ("subtract", "below"):
            continue
        x, m = node.inputs
        if x not in active or m not in active:
            continue
        root = _root(m)
        maker = root.node
        if maker is None or root in sources or root.dtype.kind != "f":
            continue
        if maker.op.name in CHOSEN or (m.node is not None and m.node.op.name == "expand"):
            found[root] = None
    return found


def _root(value: Value) -> Value:
    """Return what a value is a view or a multiple of."""
    while value.node is not None:
        node = value.node
        multiple = node.op.name in ("multiply", "divide") and _number(node.inputs[1]) is not None
        if not multiple and node.op.name not in VIEWS and node.op.name != "negative":
            break
        value = node.inputs[0]
    return value


def _cancels(value: Value, nodes: Sequence[Node], readers: dict[Value, list[int]], ends: set[Value]) -> bool:
    axes = tuple(None if extent == 1 else axis for axis, extent in enumerate(value.shape))
    moved: dict[Value, _Shift] = {value: _Shift("", 1, axes)}
    waiting = list(readers.get(value, ()))
    before = -1
    while waiting:
        place = heappop(waiting)
        if place == before:
            continue
        before = place
        node = nodes[place]
        outs = [out for out in node.outs if carries_derivatives(out.dtype)]
        if not outs or node.op.name == "stop_gradient":
            continue
        shifts = [moved.get(operand) for operand in followed(node)]
        if not any(shifts):
            continue
        try:
            shift = _through(node, shifts)
        except _Unknown:
            return False
        if shift is not None:
            if outs[0] in ends:
                return False
            moved[outs[0]] = shift
            for reader in readers.get(outs[0], ()):
                heappush(waiting, reader)
    return value not in ends


def _through(node: Node, shifts: Shifts) -> _Shift | None:
    """Return how the output of a node changes, None if it does not.

    Raises
    ------
    _Unknown
        Where that cannot be said.
    """
    rule = RULES.get(node.op.name)
    if rule is not None:
        return rule(node, shifts)
    if isinstance(node.op, Contract):
        return _contract(node, shifts)
    if isinstance(node.op, IndexMap):
        return _index_map(node, shifts)
    raise _Unknown


def _only(shifts: Shifts) -> _Shift:
    (shift,) = [shift for shift in shifts if shift is not None]
    return shift


def _number(value: Value) -> Fraction | None:
    """Return the finite real number that a value consists of."""
    number = _repeated(value)
    return Fraction(number) if isinstance(number, int | float) and math.isfinite(number) else None


def _repeated(value: Value) -> Any | None:
    if isinstance(value, Literal):
        return number_of(value)
    node = value.node
    return number_of(node.inputs[0]) if node is not None and node.op.name == "expand" else None


def _scaled(shift: _Shift, factor: int | Fraction) -> _Shift | None:
    return shift._replace(degree=shift.degree * factor) if factor else None


def _same(node: Node, shifts: Shifts) -> _Shift | None:
    return shifts[0]


def _negative(node: Node, shifts: Shifts) -> _Shift | None:
    shift = _only(shifts)
    return shift if shift.undo else _scaled(shift, -1)


def _absolute(node: Node, shifts: Shifts) -> _Shift | None:
    shift = _only(shifts)
    if not shift.undo:
        raise _Unknown
    return shift


def _exponential(node: Node, shifts: Shifts) -> _Shift | None:
    shift = _only(shifts)
    if shift.undo:
        raise _Unknown
    return shift._replace(undo=POWERS[node.op.name])


def _logarithm(node: Node, shifts: Shifts) -> _Shift | None:
    shift = _only(shifts)
    if shift.undo != node.op.name:
        raise _Unknown
    return shift._replace(undo="")


def _added(a: _Shift | None, b: _Shift | None, sign: int) -> _Shift | None:
    """Return the shift of what is the sum of two where each is one."""
    if a is None or b is None:
        return a if b is None else _scaled(b, sign)
    if a.axes != b.axes or a.undo != b.undo:
        raise _Unknown
    degree = a.degree + sign * b.degree
    return a._replace(degree=degree) if degree else None


def _sum(node: Node, shifts: Shifts) -> _Shift | None:
    a, b = shifts
    if not any(shift is not None and shift.undo for shift in shifts):
        return _added(a, b, 1 if node.op.name == "add" else -1)
    return _alike(node.inputs, shifts)


def _alike(operands: Sequence[Value], shifts: Shifts) -> _Shift:
    """Return the shift that all operands have; 0 can be multiplied with anything, and infinities shifted by anything."""
    shift = next(shift for shift in shifts if shift is not None)
    for operand, other in zip(operands, shifts, strict=True):
        number = _repeated(operand)
        neutral = number is not None and (number == 0 if shift.undo else number in (math.inf, -math.inf))
        if other != shift and not (other is None and neutral):
            raise _Unknown
    return shift


def _product(node: Node, shifts: Shifts) -> _Shift | None:
    a, b = shifts
    if (a is None or a.undo) and (b is None or b.undo):
        return _added(a, b, 1 if node.op.name == "multiply" else -1)
    factor = _number(node.inputs[0] if a is None else node.inputs[1])
    if factor is None or (node.op.name == "divide" and (a is None or not factor)):
        raise _Unknown
    return _scaled(_only(shifts), factor if node.op.name == "multiply" else 1 / factor)


def _power(node: Node, shifts: Shifts) -> _Shift | None:
    base = shifts[0]
    exponent = EXPONENTS.get(node.op.name) or _number(node.inputs[1])
    if base is None or not base.undo or exponent is None:
        raise _Unknown
    return _scaled(base, exponent)


def _chosen(node: Node, shifts: Shifts) -> _Shift | None:
    return _alike(node.inputs[1:], shifts[1:])


def _together(node: Node, shifts: Shifts) -> _Shift | None:
    return _alike(node.inputs, shifts)


def _log_added(node: Node, shifts: Shifts) -> _Shift | None:
    shift = _alike(node.inputs, shifts)
    if shift.undo or shift.degree != 1:
        raise _Unknown
    return shift


def _reduced(node: Node, shifts: Shifts) -> _Shift | None:
    shift, axes = _only(shifts), node.params["axes"]
    if any(shift.axes[axis] is not None for axis in axes):
        raise _Unknown
    kept = tuple(own for axis, own in enumerate(shift.axes) if axis not in axes)
    if node.op.name == "reduce_sum" and not shift.undo:
        return _scaled(shift._replace(axes=kept), math.prod(node.inputs[0].shape[axis] for axis in axes))
    return shift._replace(axes=kept)


def _contract(node: Node, shifts: Shifts) -> _Shift | None:
    """Multiply, and add up along letters that m does not have."""
    x, y, out = node.params["x"], node.params["y"], node.params["out"]
    total: _Shift | None = None
    for letters, shift in zip((x, y), shifts, strict=True):
        if shift is not None:
            own = dict(zip(letters, shift.axes, strict=True))
            if not shift.undo or any(own[letter] is not None for letter in letters if letter not in out):
                raise _Unknown
            total = _added(total, shift._replace(axes=tuple(own.get(letter) for letter in out)), 1)
    return total


def _index_map(node: Node, shifts: Shifts) -> _Shift | None:
    shift, name, params = shifts[0], node.op.name, node.params
    assert shift is not None and isinstance(node.op, IndexMap)  # indices are integers
    if node.op.inside is not None and not shift.undo:
        raise _Unknown
    shape, before = node.out.shape, node.inputs[0].shape
    axes: Axes
    if all(axis is None for axis in shift.axes):
        axes = (None,) * len(shape)
    elif name == "expand":
        placed = dict(zip(params["axes"], shift.axes, strict=True))
        axes = tuple(placed.get(axis) for axis in range(len(shape)))
    elif name == "permute":
        axes = tuple(shift.axes[axis] for axis in params["axes"])
    elif name == "reshape":
        if [extent for extent in before if extent != 1] != [extent for extent in shape if extent != 1]:
            raise _Unknown
        kept = iter([own for own, extent in zip(shift.axes, before, strict=True) if extent != 1])
        axes = tuple(None if extent == 1 else next(kept) for extent in shape)
    elif name in ("slice", "pad") and _leaves(node, shift.axes):
        axes = shift.axes
    else:
        raise _Unknown
    return shift._replace(axes=axes)


def _leaves(node: Node, axes: Axes) -> bool:
    """Whether a slice or what pads one takes the axes that m has as they are."""
    before = node.inputs[0].shape
    return all(
        own is None
        or (
            node.params["starts"][axis] == 0
            and node.params["strides"][axis] == 1
            and node.out.shape[axis] == before[axis]
        )
        for axis, own in enumerate(axes)
    )


RULES: Final[dict[str, Callable[[Node, Shifts], _Shift | None]]] = {
    "identity": _same,
    "convert": _same,
    "negative": _negative,
    "absolute": _absolute,
    **dict.fromkeys(POWERS, _exponential),
    **dict.fromkeys(POWERS.values(), _logarithm),
    "add": _sum,
    "subtract": _sum,
    "below": _sum,
    "multiply": _product,
    "divide": _product,
    "power": _power,
    **dict.fromkeys(EXPONENTS, _power),
    "where": _chosen,
    **dict.fromkeys(TOGETHER, _together),
    "logaddexp": _log_added,
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min"), _reduced),
}
"""By row, how its output changes when its operands do. Other elementwise rows, and all other kinds, are unknown."""
