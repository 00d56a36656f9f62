"""Functions that select elements: how many, the numbers decide."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.frontend.numpy.registry import implements
from gradtape.frontend.values import refuse
from gradtape.kinds.registry import FUNCTIONS as RULES
from gradtape.procedures.arrays.creation import stacked
from gradtape.procedures.arrays.graphs import apply_graph
from gradtape.procedures.arrays.indexing import getitem, nonzero
from gradtape.procedures.arrays.nests import materialise
from gradtape.procedures.arrays.shapes import concatenate, ravel
from gradtape.procedures.arrays.view import Expression, apply, as_expression
from gradtape.procedures.builder import ProcedureBuilder


@implements(np.nonzero, method="nonzero")
def nonzero_(build: ProcedureBuilder, a: Any) -> Any:
    return nonzero(as_expression(build, a))


@implements(np.flatnonzero)
def flatnonzero(build: ProcedureBuilder, a: Any) -> Any:
    return nonzero(as_expression(build, a))[0]


@implements(np.argwhere)
def argwhere(build: ProcedureBuilder, a: Any) -> Any:
    return stacked(build, nonzero(as_expression(build, a)), axis=1)


@implements(np.extract)
def extract(build: ProcedureBuilder, condition: Any, arr: Any) -> Any:
    if not isinstance(condition, Expression):
        return apply_graph(build, RULES[np.extract], (condition, arr), {})
    return getitem(ravel(as_expression(build, arr)), nonzero(ravel(condition))[0])


@implements(np.compress)
def compress(build: ProcedureBuilder, condition: Any, a: Any, axis: Any = None) -> Any:
    if not isinstance(condition, Expression):
        return apply_graph(build, RULES[np.compress], (condition, a, axis), {})
    x, places = as_expression(build, a), nonzero(condition)[0]
    if axis is None:
        return getitem(ravel(x), places)
    return getitem(x, (*[slice(None)] * (axis % x.ndim), places))


@implements(np.unique)
def unique(build: ProcedureBuilder, ar: Any, **options: Any) -> Any:
    """Sort the elements, and keep those that differ from the one before, and one NaN: they are the last."""
    if any(option is not None and option is not False for option in options.values()):
        refuse("np.unique is called with options", "sort, and compare neighbours: y[1:] != y[:-1]")
    x = ravel(as_expression(build, ar))
    if isinstance(x.shape[0], int) and x.shape[0] == 0:
        return x
    ordered = apply_graph(build, RULES[np.sort], (x,), {})
    items, before = getitem(ordered, slice(1, None)), getitem(ordered, slice(None, -1))
    is_number = apply(build, np.equal, before, before)
    differs = apply(build, np.logical_and, apply(build, np.not_equal, items, before), is_number)
    first = as_expression(build, np.ones(1, bool))
    return getitem(ordered, materialise(concatenate(build, [first, differs])))
