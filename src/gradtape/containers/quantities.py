"""Quantities of pint as containers: the leaf is the magnitude, and the unit is a part of the structure.

pint is not imported: its classes are known once they are there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from gradtape.containers.tables import Attribute, Nodes
from gradtape.errors import DtypeError


class UnitPart:
    """What a quantity is but for its magnitude.

    Attributes
    ----------
    kind : type
        Its class, of which each registry has one.
    unit : pint.Unit
        As it was given.
    """

    __slots__ = ("_key", "kind", "unit")

    def __init__(self, quantity: Any) -> None:
        self.kind, self.unit = type(quantity), quantity.units
        # Units of equal size are equal to pint, 1000 m and 1 km: here it counts how a unit is written.
        self._key = self.kind, frozenset(quantity.unit_items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnitPart) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return str(self.unit)


def _flatten(quantity: Any) -> tuple[tuple[Any], UnitPart, tuple[Attribute]]:
    return (quantity.magnitude,), UnitPart(quantity), (Attribute("magnitude"),)


def _unflatten(part: Any, children: Sequence[Any]) -> Any:
    made = quantity_of(0.0, part.unit, part.kind)
    made._magnitude = children[0]  # pint refuses what stands for a magnitude: None, axes of vmap
    return made


def quantity_of(magnitude: Any, unit: Any, kind: Callable[..., Any] | None = None) -> Any:
    """Return a quantity of a unit, of the registry of the unit."""
    return (unit._REGISTRY.Quantity if kind is None else kind)(magnitude, unit)


def _base() -> Any:
    return getattr(sys.modules.get("pint"), "Quantity", None)


def is_quantity(thing: Any) -> bool:
    """Return whether an object is a quantity of pint."""
    base = _base()
    return base is not None and isinstance(thing, base)


def is_quantity_class(kind: type) -> bool:
    """Return whether objects of a class are quantities of pint."""
    base = _base()
    return base is not None and issubclass(kind, base)


def nodes_of(kind: type) -> Nodes | None:
    """Return how objects of a class are taken apart and put together, if they are quantities of pint; None otherwise."""
    return (_flatten, _unflatten) if is_quantity_class(kind) else None


_differences: Final[dict[UnitPart, Any]] = {}


def difference_unit(quantity: Any) -> Any:
    """Return the unit of differences of a quantity: kelvins for degrees Celsius (delta_degC), and its own for most.

    Raises
    ------
    DtypeError
        For logarithmic units: a difference of decibels is not the same everywhere.
    """
    part = UnitPart(quantity)
    found = _differences.get(part)
    if found is None:
        _differences[part] = found = _difference_unit(part)
    return found


def _difference_unit(part: UnitPart) -> Any:
    zero, one, two = [quantity_of(float(count), part.unit, part.kind) for count in range(3)]
    low, middle, high = [each.to_base_units().magnitude for each in (zero, one, two)]
    if abs((high - middle) - (middle - low)) > 1e-6 * abs(high - low):
        raise DtypeError(
            f"a derivative of quantities in {part.unit}",
            why="the unit is logarithmic: equal differences of magnitudes are unequal differences of the quantity",
            remedy="convert to a linear unit first, q.to_base_units(), or pass q.magnitude for the derivative by the number",
        )
    return (one - zero).units
