"""Reductions and prefixes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.frontend.numpy.registry import METHODS, implements
from gradtape.procedures.arrays import reductions
from gradtape.procedures.arrays.view import as_expression
from gradtape.procedures.builder import ProcedureBuilder


def _enter(rule: Callable[..., Any], functions: tuple[Any, ...], method: str | None = None) -> None:
    """Let a reduction of an expression stand for functions of NumPy and for a method."""

    def replacement(build: ProcedureBuilder, a: Any, *args: Any, **kwargs: Any) -> Any:
        return rule(as_expression(build, a), *args, **kwargs)

    implements(*functions)(replacement)
    if method is not None:
        METHODS[method] = replacement


def _sum(x: Any, axis: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    return reductions.sum_(x, axis, dtype, **kwargs)


_enter(_sum, (np.sum,), "sum")
_enter(reductions.prod, (np.prod,), "prod")
_enter(reductions.mean, (np.mean,), "mean")
_enter(reductions.max_, (np.max, np.amax), "max")
_enter(reductions.min_, (np.min, np.amin), "min")
_enter(reductions.any_, (np.any,), "any")
_enter(reductions.all_, (np.all,), "all")
_enter(reductions.count_nonzero, (np.count_nonzero,))
_enter(reductions.cumsum, (np.cumsum,), "cumsum")
_enter(reductions.cumprod, (np.cumprod,), "cumprod")
_enter(reductions.var, (np.var,), "var")
_enter(reductions.std, (np.std,), "std")
_enter(lambda x, *args, **kwargs: reductions.position(x, True, *args, **kwargs), (np.argmax,), "argmax")
_enter(lambda x, *args, **kwargs: reductions.position(x, False, *args, **kwargs), (np.argmin,), "argmin")
