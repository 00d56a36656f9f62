"""What is asked of a library of units: its quantities are containers of a magnitude, and the unit is a part of the structure."""

from __future__ import annotations

import abc
import sys
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from gradtape.containers.tables import Attribute
from gradtape.errors import DtypeError

Unit = Any
"""A unit of a library."""


class UnitPart:
    """What a quantity is but for its magnitude.

    Attributes
    ----------
    library : UnitLibrary
        Of the quantity.
    kind : type
        Its class.
    unit : Unit
        As it was given.
    others : dict
        Its further attributes.
    """

    __slots__ = ("_key", "kind", "library", "others", "unit")

    def __init__(
        self, library: UnitLibrary, kind: type, unit: Unit, written: Hashable, others: dict[str, Any]
    ) -> None:
        self.library, self.kind, self.unit, self.others = library, kind, unit, others
        self._key = kind, written

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnitPart) and self._key == other._key and self.others == other.others

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return str(self.unit)


class UnitLibrary(abc.ABC):
    """A library of units. It is not imported: its classes are known once they are there.

    Attributes
    ----------
    module : str
        The name of the module that has the class of quantities.
    magnitude_name : str
        The attribute of quantities that is their number.
    linear : str
        What converts a logarithmic quantity `q`.
    """

    module: ClassVar[str]
    magnitude_name: ClassVar[str]
    linear: ClassVar[str]

    def base(self) -> Any:
        """Return the class of quantities; None while the library is not imported."""
        return getattr(sys.modules.get(self.module), "Quantity", None)

    def flatten(self, quantity: Any) -> tuple[tuple[Any], UnitPart, tuple[Attribute]]:
        """Return the magnitude, the other parts, and the name of the magnitude, as optree asks for."""
        return (self.magnitude(quantity),), self.part(quantity), (Attribute(self.magnitude_name),)

    @abc.abstractmethod
    def unflatten(self, part: Any, children: Sequence[Any]) -> Any:
        """Return a quantity of a magnitude, or of what stands for one."""

    @abc.abstractmethod
    def part(self, quantity: Any) -> UnitPart:
        """Return what a quantity is but for its magnitude."""

    @abc.abstractmethod
    def magnitude(self, quantity: Any) -> Any:
        """Return the number or array of a quantity."""

    @abc.abstractmethod
    def quantity(self, magnitude: Any, unit: Unit) -> Any:
        """Return a quantity of a unit."""

    @abc.abstractmethod
    def difference_unit(self, part: UnitPart) -> Unit:
        """Return the unit of differences.

        Raises
        ------
        DtypeError
            For logarithmic units.
        """

    @abc.abstractmethod
    def number(self, unit: Unit) -> Unit:
        """Return the unit of plain numbers, which `unit` can be compared with."""

    @abc.abstractmethod
    def factor(self, unit: Unit, other: Unit) -> float | None:
        """Return by what numbers in `unit` are multiplied for numbers in `other`; None for units of another dimension."""

    def logarithmic(self, unit: Unit) -> DtypeError:
        """Return the error for a derivative of quantities in a logarithmic unit."""
        return DtypeError(
            f"a derivative of quantities in {unit}",
            why="the unit is logarithmic: equal differences of magnitudes are unequal differences of the quantity",
            remedy=f"convert to a linear unit first, {self.linear}, or pass q.{self.magnitude_name} for the derivative by the number",
        )
