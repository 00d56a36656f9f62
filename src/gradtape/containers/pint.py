"""Quantities of pint, which hold any array as their magnitude."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtape.containers.unit_library import Unit, UnitLibrary, UnitPart


class Pint(UnitLibrary):
    """Units of pint. Each registry has a class of quantities of its own."""

    module, magnitude_name, linear = "pint", "magnitude", "q.to_base_units()"

    def part(self, quantity: Any) -> UnitPart:
        """Return the unit as it is written: 1000 m and 1 km are equal to pint."""
        return UnitPart(self, type(quantity), quantity.units, frozenset(quantity.unit_items()), {})

    def unflatten(self, part: Any, children: Sequence[Any]) -> Any:
        """Return a quantity of the registry of the unit."""
        made = part.kind(0.0, part.unit)
        made._magnitude = children[0]  # pint refuses what stands for a magnitude: None, axes of vmap
        return made

    def magnitude(self, quantity: Any) -> Any:
        """Return what the quantity holds."""
        return quantity.magnitude

    def quantity(self, magnitude: Any, unit: Unit) -> Any:
        """Return a quantity of the registry of the unit."""
        return unit._REGISTRY.Quantity(magnitude, unit)

    def difference_unit(self, part: UnitPart) -> Unit:
        """Return kelvins for degrees Celsius (delta_degC), and the unit itself for most."""
        zero, one, two = [part.kind(float(count), part.unit) for count in range(3)]
        low, middle, high = [each.to_base_units().magnitude for each in (zero, one, two)]
        if abs((high - middle) - (middle - low)) > 1e-6 * abs(high - low):
            raise self.logarithmic(part.unit)
        return (one - zero).units

    def number(self, unit: Unit) -> Unit:
        """Return the dimensionless unit of the registry."""
        return unit._REGISTRY.Unit("")

    def factor(self, unit: Unit, other: Unit) -> float | None:
        """Return the magnitude of 1 `unit` in `other`."""
        if unit.dimensionality != other.dimensionality:
            return None
        return float(self.quantity(1.0, unit).to(other).magnitude)
