"""Histograms with bins of one width: the bin of an element is computed, not searched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.frontend.numpy.registry import implements
from gradtape.ir.graph import Value
from gradtape.ir.types import FLOAT64, INT64
from gradtape.kinds.arguments import NO_VALUE
from gradtape.kinds.operands import as_value, conform
from gradtape.kinds.registry import FUNCTIONS as RULES
from gradtape.ops.core.elementwise.arithmetic import add, divide, multiply, subtract
from gradtape.ops.core.elementwise.logic import equal, greater_equal, less, less_equal, not_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.procedures.arrays import creation
from gradtape.procedures.arrays.graphs import apply_graph
from gradtape.procedures.arrays.index_arithmetic import Extent
from gradtape.procedures.arrays.nests import as_view, element, new_array, run_nest
from gradtape.procedures.arrays.reductions import extremum
from gradtape.procedures.arrays.shapes import ravel
from gradtape.procedures.arrays.view import Expression, Loads, as_expression
from gradtape.procedures.builder import ProcedureBuilder


@implements(np.histogram)
def histogram(
    build: ProcedureBuilder,
    a: Any,
    bins: Any = 10,
    range: Any = None,
    density: Any = None,
    weights: Any = None,
) -> Any:
    """Follow `numpy.histogram`; bins of one width are found by a division, and corrected at their edges as NumPy does."""
    x = as_expression(build, a)
    if density or not isinstance(bins, int | np.integer) or bins < 1 or x.dtype != FLOAT64 or x.size == 0:
        return apply_graph(build, RULES[np.histogram], (x, bins, range, density, weights), {})
    x = ravel(x)
    mass = None if weights is None else ravel(as_expression(build, weights))
    low, high = (
        range
        if range is not None
        else (extremum(x, largest, None, False, NO_VALUE, NO_VALUE) for largest in (False, True))
    )
    low, high = (conform(as_value(bound), FLOAT64, ()) for bound in (low, high))
    flat = equal(low, high)
    low, high = where(flat, subtract(low, 0.5), low), where(flat, add(high, 0.5), high)
    count = int(bins)
    edges = as_view(build, creation.linspace(build, low, high, count + 1), temporary=False)
    heights = new_array(build, (count,), INT64 if mass is None else mass.dtype, zero=True)
    width = subtract(high, low)

    def body(indices: Sequence[Extent], loads: Loads) -> None:
        point = x.element(indices, loads)
        inside = greater_equal(point, low) & less_equal(point, high)
        share = multiply(divide(subtract(point, low), width), float(count))
        place = conform(where(inside, share, 0.0), INT64, ())
        place = where(equal(place, count), count - 1, place)
        too_far = less(point, edges.element((place,), loads))
        place = where(inside & too_far, subtract(place, 1), place)
        beyond = greater_equal(point, edges.element((add(place, 1),), loads)) & not_equal(place, count - 1)
        place = where(inside & beyond, add(place, 1), place)
        one = 1 if mass is None else element(mass, indices, loads)
        change = where(inside, one, heights.dtype.type(0))
        heights.store((place,), add(heights.element((place,), Loads()), change))

    sources: list[Expression | Value] = [x] if mass is None else [x, mass]
    run_nest(build, x.shape, body, sources)
    return heights, edges
