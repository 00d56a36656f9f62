"""Python's operators on Arrays. They call the rows directly: through NumPy's ufunc protocol they would cost three times as much."""

from __future__ import annotations

import sys
from collections.abc import Callable
from numbers import Rational
from typing import Any, Final

import numpy as np

from gradtape.errors import DtypeError
from gradtape.ir.builder import here
from gradtape.kinds.operands import COMPACT, SEQUENCES, items_of
from gradtape.kinds.refusals import WITH_OPERATORS, is_table, keeps_labels, library_of, refusal, values_of
from gradtape.ops.core.elementwise.power import is_square
from gradtape.trace.array.handle import Handle, unwrap
from gradtape.trace.array.layout import is_c_contiguous, with_layout_of
from gradtape.trace.dispatch.dispatch import OPERAND_TYPES, fast_rule
from gradtape.trace.jit.guards import abstract_of
from gradtape.trace.jit.outcomes import is_handled
from gradtape.trace.lazy.call_observer import prediction
from gradtape.trace.lazy.force import force
from gradtape.trace.source.sites import READERS, asking_package, user_site
from gradtape.trace.subclasses.instances import is_subclass

_frame = sys._getframe
ndarray = np.ndarray

NUMBERS = (int, float, complex, np.generic, np.ndarray, list, tuple)


def _power(x: Any, y: Any) -> Any:
    """Return ``x**y``. NumPy's operator squares with np.square, which makes int8 of arrays of booleans."""
    return _SQUARE(x) if is_square(x.aval.dtype, y) and x.ndim else _POWER(x, y)


_POWER, _SQUARE = fast_rule(np.power), fast_rule(np.square)
"""Whether this version of NumPy does."""


def _sequence(other: Any) -> Any:
    """Return an operand of an uncommon type: sequences as NumPy takes them, NotImplemented for types with operators of their own,
    as sparse matrices of SciPy's and quantities of pint have.

    Raises
    ------
    DtypeError
        For arrays of other libraries, which would take the numbers out of the recording.
    """
    if isinstance(other, SEQUENCES):
        return items_of(other)
    if keeps_labels(other):
        return NotImplemented
    if is_table(other) and (values := values_of(other)) is not None:
        return values
    if isinstance(other, Rational):  # fractions.Fraction, which NumPy's numbers take as a float
        return float(other)
    if type(other).__name__ == "Decimal":
        raise DtypeError(
            "a Decimal is an operand of an array",
            where=user_site(3),
            why="Python does not mix decimal numbers with floats, and NumPy does not either",
            remedy="write float(d)",
        )
    library = library_of(other)
    if library and library not in WITH_OPERATORS:
        here.site = user_site(3)
        raise refusal(other, "an operand")
    return NotImplemented


DIVISIONS: Final = frozenset({"divide", "floor_divide", "remainder"})
"""Operators for which Python's numbers raise ZeroDivisionError, where NumPy's have infinity or NaN."""


def _check_divisor(divisor: Any, frame: Any) -> None:
    """Raise Python's error for a division of Python's numbers by zero, if user code handles it; else the result is NumPy's.

    The body of a loop stands for all iterations, of which none has a number: there the result is NumPy's.
    """
    if not is_handled(frame) or (isinstance(divisor, Handle) and abstract_of(divisor.value) is not None):
        return
    if divisor == 0:
        raise ZeroDivisionError("division by zero")


def _is_shown_with(other: Any) -> bool:
    """Return whether a package that shows arrays computes with one and an array of objects, as Matplotlib does for error bars."""
    return type(other) is ndarray and other.dtype == object and asking_package() in READERS


def _binary(name: str) -> Callable[[Any, Any], Any]:
    """Return the method of a binary operator, of which the array is the left operand."""
    rule = _power if name == "power" else fast_rule(getattr(np, name))
    signature = getattr(np, name).signature
    divides = name in DIVISIONS
    is_power = name == "power"

    def operate(self: Any, other: Any) -> Any:
        observer = prediction.observer
        if observer is not None and (made := observer.observe(operate, (self, other), _frame(1))) is not None:
            return made
        ordered = self._contiguous is True
        if is_power and not ordered and is_square(self._current.aval.dtype, other):  # also an array of rank 0
            return np.square(self)
        if isinstance(other, Handle):
            right = other._current if other._base is None else other.value
            ordered = ordered and other._contiguous is True
        elif type(other) in OPERAND_TYPES:
            right = other
            ordered = ordered and (type(other) is not ndarray or is_c_contiguous(other))
        elif is_subclass(other):  # whose own operator is asked next
            return NotImplemented
        elif isinstance(other, NUMBERS):
            right = unwrap(other)
        else:
            other = _sequence(other)
            if other is NotImplemented:
                return NotImplemented
            right = unwrap(other)
        here.site = user_site()
        try:
            result = rule(self._current if self._base is None else self.value, right)
        except DtypeError:
            if not _is_shown_with(other):
                raise
            return getattr(np, name)(*force([self.value]), other)
        if divides and result.aval.weak:
            _check_divisor(other, _frame(1))
        made = self.wrap_value(result)
        return (
            made
            if ordered or (signature and made.ndim < 3)
            else with_layout_of(made, (self, other), signature)
        )

    return operate


def _reflected(name: str) -> Callable[[Any, Any], Any]:
    rule = fast_rule(getattr(np, name))
    signature = getattr(np, name).signature
    divides = name in DIVISIONS

    def operate(self: Any, other: Any) -> Any:
        observer = prediction.observer
        if observer is not None and (made := observer.observe(operate, (self, other), _frame(1))) is not None:
            return made
        if is_subclass(other):
            return NotImplemented
        if not isinstance(other, NUMBERS):
            other = _sequence(other)
            if other is NotImplemented:
                return NotImplemented
        here.site = user_site()
        try:
            result = rule(unwrap(other), self.value)
        except DtypeError:
            if not _is_shown_with(other):
                raise
            return getattr(np, name)(other, *force([self.value]))
        if divides and result.aval.weak:
            _check_divisor(self, _frame(1))
        made = self.wrap_value(result)
        if (self._contiguous is True and is_c_contiguous(other)) or (signature and made.ndim < 3):
            return made
        return with_layout_of(made, (other, self), signature)

    return operate


def _in_place(name: str) -> Callable[[Any, Any], Any]:
    rule = fast_rule(getattr(np, name))

    def operate(self: Any, other: Any) -> Any:
        # Numbers are immutable: Python falls back on `x = x + y`. Arrays of rank 0 and views of one element are not.
        if (self.is_scalar and not self.scalar_in_place) or not (
            isinstance(other, (Handle, *NUMBERS)) or type(other) in COMPACT
        ):
            return NotImplemented
        if is_subclass(other):
            return getattr(np, name)(self, other, out=(self,))
        here.site = user_site()
        self.write_result(rule(self.value, unwrap(other)), f"np.{name}")
        return self

    return operate


def _unary(name: str) -> Callable[[Any], Any]:
    rule = fast_rule(getattr(np, name))

    def operate(self: Any) -> Any:
        observer = prediction.observer
        if observer is not None and (made := observer.observe(operate, (self,), _frame(1))) is not None:
            return made
        here.site = user_site()
        made = self.wrap_value(rule(self.value))
        return made if self._contiguous is True else with_layout_of(made, (self,))

    return operate


class Operators:
    """Mixin: every operator that ndarrays have."""

    __slots__ = ()

    scalar_in_place = False

    __add__, __radd__, __iadd__ = _binary("add"), _reflected("add"), _in_place("add")
    __sub__, __rsub__, __isub__ = _binary("subtract"), _reflected("subtract"), _in_place("subtract")
    __mul__, __rmul__, __imul__ = _binary("multiply"), _reflected("multiply"), _in_place("multiply")
    __truediv__, __rtruediv__, __itruediv__ = _binary("divide"), _reflected("divide"), _in_place("divide")
    __floordiv__, __rfloordiv__ = _binary("floor_divide"), _reflected("floor_divide")
    __ifloordiv__ = _in_place("floor_divide")
    __mod__, __rmod__, __imod__ = _binary("remainder"), _reflected("remainder"), _in_place("remainder")
    __divmod__, __rdivmod__ = _binary("divmod"), _reflected("divmod")
    __pow__, __rpow__, __ipow__ = _binary("power"), _reflected("power"), _in_place("power")
    __matmul__, __rmatmul__, __imatmul__ = _binary("matmul"), _reflected("matmul"), _in_place("matmul")
    __and__, __rand__, __iand__ = _binary("bitwise_and"), _reflected("bitwise_and"), _in_place("bitwise_and")
    __or__, __ror__, __ior__ = _binary("bitwise_or"), _reflected("bitwise_or"), _in_place("bitwise_or")
    __xor__, __rxor__, __ixor__ = _binary("bitwise_xor"), _reflected("bitwise_xor"), _in_place("bitwise_xor")
    __lshift__, __rlshift__, __ilshift__ = (
        _binary("left_shift"),
        _reflected("left_shift"),
        _in_place("left_shift"),
    )
    __rshift__, __rrshift__, __irshift__ = (
        _binary("right_shift"),
        _reflected("right_shift"),
        _in_place("right_shift"),
    )
    __lt__, __le__, __gt__, __ge__ = (
        _binary("less"),
        _binary("less_equal"),
        _binary("greater"),
        _binary("greater_equal"),
    )
    __eq__, __ne__ = _binary("equal"), _binary("not_equal")
    __neg__, __pos__, __abs__ = _unary("negative"), _unary("positive"), _unary("absolute")
    __invert__ = _unary("invert")
