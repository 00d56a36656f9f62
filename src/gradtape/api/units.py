"""Units of derivatives: that of the result by that of the argument, for quantities of pint and astropy.

In the graph there are magnitudes alone. A quantity is a container, and its unit a part of the structure. So a derivative, which is put into
the structure of its argument, is given its unit here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import optree

from gradtape.containers.quantities import (
    conversion_factor,
    difference_unit,
    is_quantity,
    magnitude_of,
    number_unit,
    quantity_of,
    units_are_known,
    with_magnitude,
)
from gradtape.containers.unit_library import Unit
from gradtape.errors import ArgumentError, DtypeError
from gradtape.ir.builder import here
from gradtape.kinds.operands import as_value
from gradtape.kinds.registry import UFUNCS
from gradtape.trace.array.array import Array
from gradtape.trace.array.indexed_slices import IndexedSlices
from gradtape.trace.variables.variable import Variable
from gradtape.trees import NAMESPACE, TreeSpec, with_containers

RATES: Final = "quotients of tangents and primals"
"""What `common_unit` is asked for in forward mode."""


MAGNITUDES: Final = "q.to('m').magnitude, of astropy q.to_value('m')"
"""What the numbers of a quantity are, for errors."""

UNITS_AROUND: Final = f"differentiate magnitudes by this rule, {MAGNITUDES}, and put units around it"
"""What to do where a rule of the user's would have to know units."""


_NUMBERS: Final = frozenset({Array, Variable, np.ndarray, float, type(None)})


def may_have_units(*trees: Any) -> bool:
    """Return whether there may be a quantity in some trees: not in arrays, and in lists and dicts of arrays."""
    kinds: set[type] = set()
    for tree in trees:
        kind = type(tree)
        parts = tree if kind is list or kind is tuple else tree.values() if kind is dict else (tree,)
        kinds.update(map(type, parts))
    return not _NUMBERS.issuperset(kinds)


def unit_of(thing: Any) -> Unit:
    """Return the unit of differences of a quantity, and None for anything else."""
    return difference_unit(thing) if is_quantity(thing) else None


def refuse_quantities(tree: Any, what: str, remedy: str = "") -> None:
    """Raise an error if there is a quantity among the leaves.

    Raises
    ------
    DtypeError
        It says what to pass instead.
    """
    if units_are_known() and any(
        map(is_quantity, optree.tree_leaves(tree, is_quantity, namespace=NAMESPACE))
    ):
        raise DtypeError(
            f"{what} is a quantity with a unit, or holds one",
            where=here.site,
            why="units of its results are not known here: gradtape would take magnitudes, whatever their units",
            remedy=remedy
            or f"pass magnitudes in units of your choice, {MAGNITUDES}, and make quantities within the function",
        )


def leaf_units(tree: Any, spec: TreeSpec) -> tuple[list[Unit], TreeSpec]:
    """Return the unit of each leaf, and the structure in which quantities are leaves; `spec` is that in which they are none."""
    if not units_are_known():
        return [None] * spec.num_leaves, spec
    parts, bare = optree.tree_flatten(with_containers(tree), is_quantity, namespace=NAMESPACE)
    return list(map(unit_of, parts)), bare


def _map(function: Callable[[Any], Any], tree: Any) -> Any:
    return optree.tree_map(
        function, with_containers(tree), is_leaf=_is_whole, none_is_leaf=True, namespace=NAMESPACE
    )


def _is_whole(part: Any) -> bool:
    return is_quantity(part) or isinstance(part, IndexedSlices)


def magnitudes(tree: Any) -> Any:
    """Return a tree with the magnitudes of its quantities in their places."""
    if not units_are_known():
        return tree
    return _map(lambda part: magnitude_of(part) if is_quantity(part) else part, tree)


def like(thing: Any, magnitude: Any) -> Any:
    """Return a number as a quantity of the unit that `thing` has, if it is one."""
    return with_magnitude(thing, magnitude) if is_quantity(thing) else magnitude


def per_argument(unit: Unit, derivatives: Any, exponent: int = -1) -> Any:
    """Return derivatives in their unit, which stand in the structure of what they belong to.

    Parameters
    ----------
    unit : Unit
        Of the result.
    derivatives : nest
        Numbers, in the quantities of which they are derivatives.
    exponent : {-1, 1}, default -1
        Of the units of these quantities: 1 for tangents of a result, whose unit is multiplied by a rate.
    """
    if not units_are_known():
        return derivatives

    def with_unit(part: Any) -> Any:
        own = unit_of(part)
        content = part if own is None else magnitude_of(part)
        whole = times(unit, own, exponent)
        if content is None or whole is None:
            return content
        dense = content.to_dense() if isinstance(content, IndexedSlices) else content
        return quantity_of(dense, whole)

    if unit is None and not any(
        map(is_quantity, optree.tree_leaves(derivatives, is_quantity, namespace=NAMESPACE))
    ):
        return derivatives
    return _map(with_unit, derivatives)


def times(unit: Unit, other: Unit, exponent: int = 1) -> Unit:
    """Return the product of a unit and a power of another one."""
    if other is None:
        return unit
    return other**exponent if unit is None else unit * other**exponent


def common_unit(
    given: Any, spec: TreeSpec | None, units: Sequence[Unit], exponent: int, what: str
) -> tuple[Unit, list[float]]:
    """Return the unit of products of given numbers and others, all of which are added up, and the factors that convert to it.

    Parameters
    ----------
    given : nest
        Numbers or quantities; a number is dimensionless.
    spec : TreeSpec or None
        Their structure; None for a list.
    units : sequence of Unit
        Of the others, one for each of these.
    exponent : {-1, 1}
        Of the others.
    what : str
        What the products are, for an error.

    Returns
    -------
    unit : Unit
        None where it is dimensionless.
    factors : list of float

    Raises
    ------
    ArgumentError
        If there are several dimensions.
    """
    ones = None, [1.0] * len(units)
    if not units_are_known():
        return ones
    products = [
        times(unit_of(part), unit, exponent)
        for part, unit in zip(given if spec is None else spec.flatten_up_to(given), units, strict=True)
    ]
    known = [product for product in products if product is not None]
    if not known:
        return ones
    number = number_unit(known[0])
    products = [number if product is None else product for product in products]
    first = products[0] if conversion_factor(products[0], number) is None else number
    factors = []
    for product in products:
        factor = conversion_factor(product, first)
        if factor is None:
            raise ArgumentError(
                f"{what} are in {first or 'numbers'} and in {product or 'numbers'}",
                where=here.site,
                why="they are added up, or belong to one parameter; what has no unit counts as a number",
                remedy="give quantities: cotangents in a unit by that of each result, tangents in the unit of each primal",
            )
        factors.append(factor)
    return None if first == number else first, factors


def unit_of_sum(target: Any, weights: Any, caller: str) -> Unit:
    """Return the unit of the sum of targets, or of their products with weights; there must be one.

    Raises
    ------
    ArgumentError
        If there are several.
    """
    parts = optree.tree_leaves(target, is_quantity, none_is_leaf=True, namespace=NAMESPACE)
    if not any(map(is_quantity, parts)) and weights is None:
        return None
    given = parts if weights is None else optree.tree_leaves(weights, is_quantity, namespace=NAMESPACE)
    if len(given) != len(parts):
        return None  # refused by who asks
    units = [None] * len(parts) if weights is None else list(map(unit_of, parts))
    unit, factors = common_unit(given, None, units, 1, "targets")
    if len(set(factors)) > 1:
        raise ArgumentError(
            f"{caller}: targets are in several units of one dimension",
            where=here.site,
            why="their magnitudes are added up",
            remedy=f"convert them first: y.to({str(unit) if unit is not None else 'dimensionless'!r})",
        )
    return unit


def scaled(values: Sequence[Any], factors: Sequence[float]) -> list[Any]:
    """Return values multiplied by numbers; None for zero."""
    return [
        value if factor == 1.0 or value is None else as_value(UFUNCS["multiply"](value, factor), "a product")
        for value, factor in zip(values, factors, strict=True)
    ]
