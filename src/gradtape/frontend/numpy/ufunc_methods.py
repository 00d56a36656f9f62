"""Methods of ufuncs: ``reduce``, ``accumulate``, ``outer`` and ``at``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.frontend.numpy.registry import UFUNC_METHODS
from gradtape.kinds.arguments import NO_VALUE
from gradtape.kinds.operands import as_value, conform
from gradtape.kinds.registry import UFUNCS
from gradtape.ops.numpy.statistics.reductions import limits, sum_dtype
from gradtape.procedures.arrays import indexing, products, reductions
from gradtape.procedures.arrays.view import as_expression
from gradtape.procedures.builder import ProcedureBuilder


def _enter_reduce(name: str, rule: Callable[..., Any]) -> None:
    def reduce(build: ProcedureBuilder, array: Any, axis: Any = 0, *args: Any, **kwargs: Any) -> Any:
        return rule(as_expression(build, array), axis, *args, **kwargs)

    UFUNC_METHODS[name, "reduce"] = reduce


def _extremum(largest: bool) -> Callable[..., Any]:
    def reduce(
        x: Any,
        axis: Any = 0,
        dtype: Any = None,
        keepdims: bool = False,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:
        return reductions.extremum(x, largest, axis, keepdims, initial, where)

    return reduce


_enter_reduce("add", reductions.sum_)
_enter_reduce("multiply", reductions.prod)
_enter_reduce("maximum", _extremum(True))
_enter_reduce("minimum", _extremum(False))
_enter_reduce("logical_and", lambda x, axis=0, dtype=None, keepdims=False: reductions.all_(x, axis, keepdims))
_enter_reduce("logical_or", lambda x, axis=0, dtype=None, keepdims=False: reductions.any_(x, axis, keepdims))


def _enter_accumulate(name: str, neutral: Callable[[Any], Any]) -> None:
    def accumulate(build: ProcedureBuilder, array: Any, axis: int = 0, dtype: Any = None) -> Any:
        x = as_expression(build, array)
        found = np.dtype(dtype) if dtype is not None else x.dtype
        if dtype is None and name in ("add", "multiply"):
            found = sum_dtype(x.dtype)
        return reductions.accumulate(x, UFUNCS[name], neutral(found), found, axis)

    UFUNC_METHODS[name, "accumulate"] = accumulate


_enter_accumulate("add", lambda dtype: 0)
_enter_accumulate("multiply", lambda dtype: 1)
_enter_accumulate("maximum", lambda dtype: limits(dtype)[0])
_enter_accumulate("minimum", lambda dtype: limits(dtype)[1])


def _enter_pairs(name: str) -> None:
    rule = UFUNCS[name]

    def outer(build: ProcedureBuilder, a: Any, b: Any) -> Any:
        return products.outer(build, rule, a, b)

    def at(build: ProcedureBuilder, a: Any, indices: Any, b: Any = None) -> None:
        def changed(old: Any, new: Any) -> Any:
            return conform(as_value(rule(old, new)), a.dtype, ())

        indexing.update_at(a, indices, changed, b)

    UFUNC_METHODS[name, "outer"] = outer
    UFUNC_METHODS[name, "at"] = at


for _name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "less", "greater"):
    _enter_pairs(_name)
