"""Quantities of astropy, a subclass of ndarray. Of a traced magnitude they are instances (`trace/subclasses`), which the tracer makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.containers.unit_library import Unit, UnitLibrary, UnitPart
from gradtape.errors import UnsupportedCodeError

_STAND_IN: Final = "_gradtape_leaf"
_NUMBERS: Final = (np.ndarray, np.generic, int, float, complex)


def _refuse(*_: Any) -> Any:
    raise UnsupportedCodeError("quantities of astropy are among its arguments", where=None)


class _NoNumber:
    """The element of a quantity that stands for another one: code that is compiled from its source has no such arguments."""

    __slots__ = ()
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __neg__ = __abs__ = __float__ = __bool__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse


_NO_NUMBER: Final = np.array(_NoNumber(), object)


class _Hooks:
    """What is known of instances in a higher layer.

    Attributes
    ----------
    instance : callable or None
        Makes one of a class, a traced magnitude and what it is a view of.
    content : callable or None
        Returns the magnitude of one, and anything else as it is.
    is_traced : callable or None
        Returns whether a leaf is a traced array.
    """

    instance: Callable[[type, Any, Any], Any] | None = None
    content: Callable[[Any], Any] | None = None
    is_traced: Callable[[Any], bool] | None = None


HOOKS: Final = _Hooks()


class Astropy(UnitLibrary):
    """Units of astropy."""

    module, magnitude_name, linear = "astropy.units", "value", "q.physical"

    def part(self, quantity: Any) -> UnitPart:
        """Return the unit, and the attributes of the class of the quantity: the wrap angle of a longitude."""
        fields = vars(quantity)
        others = {name: item for name, item in fields.items() if name not in ("_unit", "info", _STAND_IN)}
        unit = quantity.unit
        return UnitPart(self, quantity.__class__, unit, (unit, str(unit)), others)

    def unflatten(self, part: Any, children: Sequence[Any]) -> Any:
        """Return a quantity; an instance for a traced magnitude."""
        (child,) = children
        if HOOKS.is_traced is not None and HOOKS.is_traced(child):
            made = HOOKS.instance(part.kind, child, None)  # type: ignore[misc] # set with `is_traced`
        elif isinstance(child, _NUMBERS):
            made = np.asarray(child).view(part.kind)
        else:
            return self.stand_in(part, child)
        return _completed(made, part)

    def stand_in(self, part: UnitPart, leaf: Any) -> Any:
        """Return a quantity without a number that has any object as its leaf: None, axes of vmap, values of a graph."""
        made = _completed(_NO_NUMBER.view(part.kind), part)
        setattr(made, _STAND_IN, leaf)
        return made

    def magnitude(self, quantity: Any) -> Any:
        """Return the elements; a number for rank 0, unless it is traced: no node may be added, since the recording may have ended."""
        fields = vars(quantity)
        if _STAND_IN in fields:
            return fields[_STAND_IN]
        array = quantity if HOOKS.content is None else HOOKS.content(quantity)
        return array.view(np.ndarray)[()] if array is quantity else array

    def quantity(self, magnitude: Any, unit: Unit) -> Any:
        """Return a quantity of a unit."""
        return self.unflatten(UnitPart(self, self.base(), unit, None, {}), (magnitude,))

    def difference_unit(self, part: UnitPart) -> Unit:
        """Return the unit itself: astropy does not tell degrees Celsius and differences of them apart."""
        if hasattr(part.unit, "function_unit"):
            raise self.logarithmic(part.unit)
        return part.unit

    def number(self, unit: Unit) -> Unit:
        """Return the dimensionless unit."""
        return unit / unit

    def factor(self, unit: Unit, other: Unit) -> float | None:
        """Return the factor of a conversion without equivalencies."""
        return float(unit.to(other)) if unit.is_equivalent(other) else None


def _completed(made: Any, part: UnitPart) -> Any:
    """Return an object of a class of quantities with the attributes that make it a quantity."""
    made._unit = part.unit
    for name, item in part.others.items():
        setattr(made, name, item)
    return made
