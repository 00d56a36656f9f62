"""Quantities of pint and astropy as containers: the leaf is the magnitude, and the unit is a part of the structure."""

from __future__ import annotations

import sys
from typing import Any, Final

from gradtape.containers.astropy import Astropy
from gradtape.containers.pint import Pint
from gradtape.containers.tables import Nodes
from gradtape.containers.unit_library import Unit, UnitLibrary, UnitPart

_ASTROPY: Final = Astropy()
_PINT: Final = Pint()
_LIBRARIES: Final[tuple[UnitLibrary, ...]] = (_PINT, _ASTROPY)


def units_are_known() -> bool:
    """Return whether a library of units is imported: without one there are no quantities."""
    return "pint" in sys.modules or "astropy.units" in sys.modules


def _library_of(kind: type) -> UnitLibrary | None:
    for library in _LIBRARIES:
        base = library.base()
        if base is not None and issubclass(kind, base):
            return library
    return None


def is_quantity(thing: Any) -> bool:
    """Return whether an object is a quantity."""
    return units_are_known() and _library_of(type(thing)) is not None


def is_wrapped(thing: Any) -> bool:
    """Return whether an object is a quantity of pint, which holds its magnitude and is no array itself."""
    return is_wrapper_class(type(thing))


def is_wrapper_class(kind: type) -> bool:
    """Return whether objects of a class are quantities of pint."""
    base = _PINT.base()
    return base is not None and issubclass(kind, base)


def is_stranger_class(kind: type) -> bool:
    """Return whether objects of a class are traced quantities of astropy, whose class is made here: no structure names it."""
    return hasattr(kind, "_gradtape_kind") and _library_of(kind) is _ASTROPY


def as_container(leaf: Any) -> Any:
    """Return a traced quantity of astropy as one of the package's class, which has the same leaf; anything else as it is."""
    if not is_stranger_class(type(leaf)):
        return leaf
    return _ASTROPY.stand_in(_ASTROPY.part(leaf), _ASTROPY.magnitude(leaf))


def nodes_of(kind: type) -> Nodes | None:
    """Return how objects of a class are taken apart and put together, if they are quantities; None otherwise."""
    if not units_are_known():
        return None
    library = _library_of(kind)
    if library is None or is_stranger_class(kind) or hasattr(kind, "unmasked"):
        return None
    return library.flatten, library.unflatten


def _of(quantity: Any) -> UnitLibrary:
    library = _library_of(type(quantity))
    assert library is not None
    return library


def magnitude_of(quantity: Any) -> Any:
    """Return the number or array of a quantity."""
    return _of(quantity).magnitude(quantity)


def with_magnitude(quantity: Any, magnitude: Any) -> Any:
    """Return a quantity with another number."""
    library = _of(quantity)
    return library.unflatten(library.part(quantity), (magnitude,))


def quantity_of(magnitude: Any, unit: Unit) -> Any:
    """Return a quantity of a unit."""
    return _library_of_unit(unit).quantity(magnitude, unit)


def _library_of_unit(unit: Unit) -> UnitLibrary:
    return _PINT if hasattr(unit, "_REGISTRY") else _ASTROPY


_differences: Final[dict[UnitPart, Unit]] = {}


def difference_unit(quantity: Any) -> Unit:
    """Return the unit of differences of a quantity: kelvins for degrees Celsius (delta_degC), and its own for most.

    Raises
    ------
    DtypeError
        For logarithmic units: a difference of decibels is not the same everywhere.
    """
    library = _of(quantity)
    part = library.part(quantity)
    found = _differences.get(part)
    if found is None:
        _differences[part] = found = library.difference_unit(part)
    return found


def number_unit(unit: Unit) -> Unit:
    """Return the unit of plain numbers in the library of a unit."""
    return _library_of_unit(unit).number(unit)


def conversion_factor(unit: Unit, other: Unit) -> float | None:
    """Return by what numbers in `unit` are multiplied for numbers in `other`; None for units of another dimension."""
    return _library_of_unit(unit).factor(unit, other)
