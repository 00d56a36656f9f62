"""Functions that work element by element and are not ufuncs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.frontend.numpy.registry import ATTRIBUTES, implements, implements_method
from gradtape.ir.graph import Value
from gradtape.kinds.registry import FUNCTIONS
from gradtape.procedures.arrays.indexing import nonzero
from gradtape.procedures.arrays.nests import store
from gradtape.procedures.arrays.view import ArrayView, Deferred, apply, as_expression, as_operand
from gradtape.procedures.builder import ProcedureBuilder


def _enter(function: Any) -> Callable[..., Any]:
    def replacement(build: ProcedureBuilder, *args: Any, **kwargs: Any) -> Any:
        return apply(build, function, *args, **kwargs)

    return implements(function)(replacement)


for _function in (
    np.fix,
    np.sinc,
    np.i0,
    np.angle,
    np.isreal,
    np.iscomplex,
    np.isposinf,
    np.isneginf,
    np.isclose,
):
    _enter(_function)


@implements(np.nan_to_num)
def nan_to_num(build: ProcedureBuilder, x: Any, copy: Any = True, **numbers: Any) -> Any:
    made = apply(build, np.nan_to_num, x, **numbers)
    if copy:
        return made
    store(x, made)
    return x


@implements_method("conj", "conjugate")
def conjugate(build: ProcedureBuilder, x: Any) -> Any:
    """Return a new array of complex numbers; real ones are the array itself, unlike the ufunc's."""
    return apply(build, np.conjugate, x) if x.dtype.kind == "c" else x


def part(build: ProcedureBuilder, function: Any, x: Any) -> Any:
    """Return the real or the imaginary part of complex numbers, of which NumPy's is a view."""
    made = apply(build, function, x)
    if isinstance(made, Deferred) and isinstance(x, ArrayView):
        made.viewed = x
    return made


@implements(np.imag)
def imag(build: ProcedureBuilder, val: Any) -> Any:
    operand = as_operand(build, val)
    if isinstance(operand, Value) and operand.aval.weak and operand.dtype.kind != "c":
        return operand.dtype.type(0).item()
    return part(build, np.imag, operand) if operand.dtype.kind == "c" else apply(build, np.imag, operand)


ATTRIBUTES["imag"] = imag


@implements(np.round, np.around, method="round")
def round_(build: ProcedureBuilder, a: Any, decimals: int = 0) -> Any:
    return apply(build, np.round, a, decimals=decimals)


@implements(np.clip, method="clip")
def clip(
    build: ProcedureBuilder,
    a: Any,
    a_min: Any = None,
    a_max: Any = None,
    *,
    min: Any = None,
    max: Any = None,
    dtype: Any = None,
    casting: str = "same_kind",
) -> Any:
    bounds = {"min": a_min if min is None else min, "max": a_max if max is None else max}
    there = {name: bound for name, bound in bounds.items() if bound is not None}
    return apply(
        build,
        lambda a, *bounds: FUNCTIONS[np.clip](
            a, **dict(zip(there, bounds, strict=True)), dtype=dtype, casting=casting
        ),
        a,
        *there.values(),
    )


@implements(np.where)
def where(build: ProcedureBuilder, condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return nonzero(as_expression(build, condition))
    return apply(build, np.where, condition, x, y)
