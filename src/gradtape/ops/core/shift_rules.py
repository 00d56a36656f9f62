"""Shift rules: how the result of a row changes when a value m, from which its operands are computed, is shifted by d.

`gradtape.transforms.shift_invariance` follows a shift through a graph with the rules of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple

from gradtape.ir.graph import Literal, Node, Value, number_of
from gradtape.ops.core.shape import expand_row

Axes = tuple[int | None, ...]


class Shift(NamedTuple):
    """The change of a value when m becomes m + d.

    Attributes
    ----------
    base : float or None
        None where ``degree * d`` is added to the value; else the value is multiplied by ``base ** (degree * d)``.
    degree : int or Fraction
        Never 0: a value that does not change has no `Shift`.
    axes : tuple
        For each axis of the value, the corresponding axis of m; None where d is the same along the axis.
    """

    base: float | None
    degree: int | Fraction
    axes: Axes


class NotAShift(Exception):
    """A result changes in another way."""


Shifts = Sequence[Shift | None]
ShiftRule = Callable[[Node, Shifts], Shift | None]
"""``(node, shifts of its operands) -> shift of its result``; None where it does not change. Raises NotAShift."""


def unchanged(node: Node, shifts: Shifts) -> Shift | None:
    return shifts[0]


def negated(node: Node, shifts: Shifts) -> Shift | None:
    shift = only(shifts)
    return shift if shift.base else scaled(shift, -1)


def magnitude(node: Node, shifts: Shifts) -> Shift | None:
    shift = only(shifts)
    if not shift.base:
        raise NotAShift
    return shift


@dataclass(frozen=True)
class Exponential:
    """The rule of ``base ** x``."""

    base: float

    def __call__(self, node: Node, shifts: Shifts) -> Shift | None:
        shift = only(shifts)
        if shift.base:
            raise NotAShift
        return shift._replace(base=self.base)


@dataclass(frozen=True)
class Logarithm:
    """The rule of the logarithm to a base."""

    base: float

    def __call__(self, node: Node, shifts: Shifts) -> Shift | None:
        shift = only(shifts)
        if shift.base != self.base:
            raise NotAShift
        return shift._replace(base=None)


@dataclass(frozen=True)
class Sum:
    """The rule of ``x + sign * y``."""

    sign: int

    def __call__(self, node: Node, shifts: Shifts) -> Shift | None:
        a, b = shifts
        if not any(shift is not None and shift.base for shift in shifts):
            return added(a, b, self.sign)
        return _common(node.inputs, shifts)


@dataclass(frozen=True)
class Product:
    """The rule of ``x * y ** sign``."""

    sign: int

    def __call__(self, node: Node, shifts: Shifts) -> Shift | None:
        a, b = shifts
        if (a is None or a.base) and (b is None or b.base):
            return added(a, b, self.sign)
        factor = finite_number(node.inputs[0] if a is None else node.inputs[1])
        if factor is None or (self.sign < 0 and (a is None or not factor)):
            raise NotAShift
        return scaled(only(shifts), factor if self.sign > 0 else 1 / factor)


@dataclass(frozen=True)
class Power:
    """The rule of ``x ** exponent``; None for an exponent that is the second operand."""

    exponent: Fraction | None = None

    def __call__(self, node: Node, shifts: Shifts) -> Shift | None:
        base = shifts[0]
        exponent = self.exponent or finite_number(node.inputs[1])
        if base is None or not base.base or exponent is None:
            raise NotAShift
        return scaled(base, exponent)


SUM: Final = Sum(1)
DIFFERENCE: Final = Sum(-1)
PRODUCT: Final = Product(1)
QUOTIENT: Final = Product(-1)


def selection(node: Node, shifts: Shifts) -> Shift | None:
    return _common(node.inputs[1:], shifts[1:])


def extremum(node: Node, shifts: Shifts) -> Shift | None:
    return _common(node.inputs, shifts)


def log_sum(node: Node, shifts: Shifts) -> Shift | None:
    shift = _common(node.inputs, shifts)
    if shift.base or shift.degree != 1:
        raise NotAShift
    return shift


def reduced_extremum(node: Node, shifts: Shifts) -> Shift | None:
    shift, axes = only(shifts), node.params["axes"]
    if any(shift.axes[axis] is not None for axis in axes):
        raise NotAShift
    return shift._replace(axes=tuple(own for axis, own in enumerate(shift.axes) if axis not in axes))


def reduced_sum(node: Node, shifts: Shifts) -> Shift | None:
    shift = reduced_extremum(node, shifts)
    if shift is None or shift.base:
        return shift
    return scaled(shift, math.prod(node.inputs[0].shape[axis] for axis in node.params["axes"]))


def only(shifts: Shifts) -> Shift:
    """Return the shift of the one operand that has one."""
    (shift,) = [shift for shift in shifts if shift is not None]
    return shift


def scaled(shift: Shift, factor: int | Fraction) -> Shift | None:
    return shift._replace(degree=shift.degree * factor) if factor else None


def added(a: Shift | None, b: Shift | None, sign: int) -> Shift | None:
    """Return the shift of ``x + sign * y``, or of ``x * y ** sign`` where these are multiplied."""
    if a is None or b is None:
        return a if b is None else scaled(b, sign)
    if a.axes != b.axes or a.base != b.base:
        raise NotAShift
    degree = a.degree + sign * b.degree
    return a._replace(degree=degree) if degree else None


def finite_number(value: Value) -> Fraction | None:
    """Return the finite real number that a value is, or is an expansion of."""
    number = _number(value)
    return Fraction(number) if isinstance(number, int | float) and math.isfinite(number) else None


def _number(value: Value) -> Any | None:
    if isinstance(value, Literal):
        return number_of(value)
    node = value.node
    return number_of(node.inputs[0]) if node is not None and node.op is expand_row else None


def _common(operands: Sequence[Value], shifts: Shifts) -> Shift:
    """Return the shift that all operands have. The number 0 may be multiplied by anything, and infinities shifted by anything."""
    shift = next(shift for shift in shifts if shift is not None)
    for operand, other in zip(operands, shifts, strict=True):
        number = _number(operand)
        neutral = number is not None and (number == 0 if shift.base else number in (math.inf, -math.inf))
        if other != shift and not (other is None and neutral):
            raise NotAShift
    return shift
